"""The comparison on objects that move: its measures on small cases, and a small run."""

import numpy as np
import pytest

from affect_xp.datasets import load_football
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
    assert "| auto |" in report.markdown() and "likelihood: " in ari.text() and len(report.claims) == 4


@pytest.mark.parametrize(("found", "holds"), [(1.0, True), (3.0, False)])
def test_claims_of_rules_are_over_all_data(found, holds):
    def run(error):
        other = dict.fromkeys(groups.RULES, groups.Found(5, 2.0, 0.5))
        return other | {"auto": groups.Found(5, error, 0.6 if holds else 0.4)}

    claims = groups._claims({"a": [run(found), run(found)], "b": [run(2.0)]})
    assert [claim.holds for claim in claims] == [holds] * 4


LISTS = ("member", "conference", "scored", "team1", "team2", "month")


def write_football(path, *, first=2001, n_seasons=4, n_teams=48):
    """Write seasons with teams that come and go, 12 independents, and a third conference in later seasons."""
    rng, data = np.random.default_rng(0), {name: [] for name in LISTS}
    data["member_ptr"], data["game_ptr"] = [0], [0]
    for t in range(n_seasons):
        members = np.arange(t, n_teams - 3 + t)  # one leaves and one joins each season
        independent = members % 4 == 0
        conference = np.where(independent, 9, members % 4 if t > 1 else members % 2)
        pairs = [
            (i, j)
            for a, i in enumerate(members)
            for b, j in enumerate(members[:a])
            if rng.random() < (0.8 if conference[a] == conference[b] else 0.03)
        ]
        data["member"] += members.tolist()
        data["conference"] += conference.tolist()
        data["scored"] += (~independent).tolist()
        data["team1"] += [i for i, _ in pairs]
        data["team2"] += [j for _, j in pairs]
        data["month"] += rng.choice([9, 10, 11], len(pairs)).tolist()
        data["member_ptr"].append(len(data["member"]))
        data["game_ptr"].append(len(data["team1"]))
    data["season"], data["teams"] = (
        list(range(first, first + n_seasons)),
        [f"T{i}" for i in range(n_teams + 1)],
    )
    np.savez(path, **{name: np.array(values) for name, values in data.items()})


def test_other_seasons_and_conferences(monkeypatch, tmp_path):
    write_football(tmp_path / "football.npz")
    made = load_football(tmp_path / "football.npz")
    assert [s.season for s in made] == [2001, 2002, 2003, 2004] and [s.k for s in made] == [3, 3, 4, 4]
    assert made[0].ids[0] == "T0" and made[1].ids[0] == "T1" and np.all(made[0].W == made[0].W.T)
    assert (made[0].labels == -1).sum() == 12 and made[0].W.sum() == 2 * np.load(tmp_path / "football.npz")[
        "game_ptr"
    ][1]
    parts = load_football(tmp_path / "football.npz", parts=3)
    np.testing.assert_array_equal(sum(s.W for s in parts[:3]), made[0].W)
    kept = {name: movers.METHODS[name] for name in (movers.STATIC, movers.PAPER, movers.OBJECTS)}
    monkeypatch.setattr(movers, "METHODS", kept)
    monkeypatch.setattr(movers, "SIMULATIONS", {})
    monkeypatch.setattr(movers, "CALIBRATED", {"50 contacts a day": {"moves": 0.03}} | movers.CALIBRATED)
    monkeypatch.setattr(movers, "calibration_run", lambda options, seed: np.array([[0.95, 1.0]]))
    report = reproduce("movers", Options(runs=1, data=tmp_path))
    assert report.tables[0][f"football, seasons: {movers.OBJECTS}"].mean > 0.9
    assert not any("reference" in claim.text for claim in report.claims)  # its numbers are of other seasons
    assert any("the delay is at most half" in claim.text for claim in report.claims)
