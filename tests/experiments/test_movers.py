"""The comparison on objects that move: its measures on small cases, and a small run."""

import numpy as np
import pytest

from affect_xp.experiments import Options, groups, movers, reproduce
from affect_xp.experiments.counts import WeightedStep

GROUPS = [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]]


def steps(groups=GROUPS):
    return [WeightedStep(np.eye(6), list("abcdef"), np.array(own), 2) for own in groups]


@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_the_delay_is_the_number_of_steps_until_an_object_is_with_its_new_group(late):
    found = [np.array(GROUPS[0] if 1 <= t <= late else own) for t, own in enumerate(GROUPS)]
    assert movers.delays(found, steps()) == [late]


def test_names_of_clusters_do_not_matter():
    assert movers.delays([1 - np.array(own) for own in GROUPS], steps()) == [0]


def test_objects_that_are_not_scored_do_not_move():
    groups = [[0, 0, -1, 1, 1, 1], *GROUPS[1:]]
    assert movers.delays([np.array(own) for own in groups], steps(groups)) == []
    scores = movers.scored([np.array([0, 0, 7, 1, 1, 1])] * 4, steps([[0, 0, -1, 1, 1, 1]] * 4))
    assert scores == movers.Scores(1.0, 0.0)


def test_a_small_run(monkeypatch, tmp_path):
    monkeypatch.setattr(movers, "STEPS", 4)
    monkeypatch.setattr(movers, "SIMULATIONS", {"moves": {"moves": 0.03}})
    kept = {name: movers.METHODS[name] for name in (movers.STATIC, movers.PAPER, movers.OBJECTS)}
    monkeypatch.setattr(movers, "METHODS", kept)
    monkeypatch.setattr(movers, "CALIBRATED", dict(list(movers.CALIBRATED.items())[:3]))
    report = reproduce("movers", Options(runs=2, data=tmp_path))
    ari, difference, delay, hindsight, calibration = report.tables
    assert [row[0] for row in ari.cells()[1]] == list(kept)
    name = f"contacts, moves: {movers.OBJECTS}"
    assert 0 < ari[name].mean <= 1 and difference[name].mean == 0 and delay.measure == "delay"
    assert [row[0] for row in hindsight.cells()[1]] == list(movers.SMOOTHED)
    assert len(calibration.cells()[1]) == 3 and len(report.claims) == 5
    assert "contacts, moves, its seeds 0 to 4" in report.claims[1].text


def test_a_small_run_of_rules(monkeypatch, tmp_path):
    monkeypatch.setattr(movers, "STEPS", 3)
    monkeypatch.setattr(groups, "DATA", ("contacts, moves",))
    monkeypatch.setattr(groups, "MAX_CLUSTERS", 6)
    report = reproduce("groups", Options(runs=1, data=tmp_path))
    k, error, ari = report.tables
    assert all(1 <= entry.measured.mean <= 6 for entry in k.entries) and len(k.entries) == len(groups.RULES)
    assert all(0 <= entry.measured.mean <= 4 for entry in error.entries)
    assert "| auto |" in report.markdown() and "likelihood: " in ari.text() and len(report.claims) == 1
