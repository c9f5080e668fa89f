"""The table of choices: all choices use the same data, and the default is compared with the better init."""

import numpy as np
import pytest

from affect_xp.experiments import Options, choices, reproduce


@pytest.fixture
def colliding_only(monkeypatch):
    every = choices.trials
    monkeypatch.setattr(choices, "trials", lambda options: {"colliding": every(options)["colliding"]})


def test_colliding(colliding_only):
    report = reproduce("choices", Options(runs=6))
    rand, error = report.tables
    assert rand["static"].mean > rand["previous"].mean + 0.01
    assert rand["auto"].mean > rand["previous"].mean + 0.01
    assert error["auto"].mean < error["previous"].mean
    assert rand["previous, corrected"].mean < rand["previous"].mean
    assert all(claim.holds for claim in report.claims)


def test_real_data_is_used_where_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    simulated = set(choices.trials(Options()))
    (tmp_path / "reality.npz").touch()
    found = choices.trials(Options(data=tmp_path))
    assert set(found) - simulated == {"reality"}
    assert found["reality"][1] == choices.RUNS_ON_DATA
    assert choices.trials(Options(runs=2, data=tmp_path))["reality"][1] == 2


@pytest.mark.parametrize("auto, holds", [([0.9, 0.8], True), ([0.85, 0.74], False)])
def test_the_claim_is_about_the_better_of_the_two(auto, holds):
    scores = {"previous": np.array([0.7, 0.6]), "static": np.array([0.9, 0.8]), "auto": np.array(auto)}
    assert choices._claim("x", choices.RAND, scores).holds is holds
    worse = {name: -values for name, values in scores.items()}
    assert choices._claim("x", choices.ERROR, worse).holds is holds
