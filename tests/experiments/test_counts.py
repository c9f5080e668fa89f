"""The experiment on the decisions of rescale="auto"."""

import numpy as np
import pytest

from affect_xp.experiments import Options, counts, reproduce

HEAVY = [name for name in counts.KINDS if name.startswith(("contacts", "log-normal"))]
BETWEEN = ("bursts, identical pairs",)  # either decision is possible


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(counts, "STEPS", 3)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)


@pytest.mark.usefixtures("few_steps")
def test_what_auto_decides_on_each_kind():
    report = reproduce("counts", Options(runs=2))
    (table,) = report.tables
    assert list(table.trials) == list(counts.KINDS)
    for name, trials in table.trials.items():
        decided = [trial.takes_log1p for trial in trials]
        assert name in BETWEEN or decided == [name in HEAVY] * 2, name
        for trial in trials:
            assert trial.auto == (trial.log1p if trial.takes_log1p else trial.plain)
        assert table[name].mean == np.mean([trial.auto for trial in trials])
    assert "| contacts, absences | 2 of 2 |" in report.markdown()
    assert len(report.claims) == len(counts.KINDS)


@pytest.mark.usefixtures("few_steps")
def test_steps_are_symmetric_and_have_groups():
    for make in counts.KINDS.values():
        for step in make(0):
            assert step.W.shape == (len(step.ids), len(step.labels))
            np.testing.assert_array_equal(step.W, step.W.T)
            assert len(np.unique(step.labels)) <= step.k


def test_a_loss_breaks_the_claim():
    def claim(log1p):
        return counts._claim("x", [counts.Trial(True, 0.9, log1p)] * 2)

    assert claim(0.95).holds and not claim(0.8).holds


def test_football(tmp_path):
    """Two seasons of three teams and one that is not scored."""
    np.savez(
        tmp_path / "football.npz",
        season=np.array([1970, 1971]),
        month=np.array([9, 10, 11]),
        teams=np.array(list("abcd")),
        member=np.array([0, 1, 3, 0, 1, 2]),
        member_ptr=np.array([0, 3, 6]),
        conference=np.array([5, 5, -1, 5, 6, 6]),
        scored=np.array([1, 1, 0, 1, 1, 1]),
        team1=np.array([0, 0, 2]),
        team2=np.array([1, 1, 1]),
        game_ptr=np.array([0, 2, 3]),
    )
    make = counts.kinds(Options(data=tmp_path))["college football"]
    first, second = make(0)
    assert first.ids == ["a", "b", "d"] and first.k == 1 and second.k == 2
    np.testing.assert_array_equal(first.W, [[0, 2, 0], [2, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(second.W, [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(first.labels, [5, 5, counts.UNSCORED])
