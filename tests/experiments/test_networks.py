"""The comparison on contact networks: measures against loops, other methods, and a small report."""

import importlib.util
import json
import types

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.experiments import Options, _network_methods, networks, reproduce

SMALL = ("static", networks.PAPER, "mean of all so far")


def steps_of(n_steps=5, **options):
    return list(ax.datasets.contacts(n_steps, n_groups=3, group_size=8, absence=0.3, rng=0, **options))


@pytest.fixture
def small(monkeypatch):
    """Three methods, five steps, and only one of the simulations."""
    monkeypatch.setattr(networks, "METHODS", {name: networks.METHODS[name] for name in SMALL})
    monkeypatch.setattr(networks, "SIMULATIONS", {"absences": networks.SIMULATIONS["absences"]})
    monkeypatch.setattr(networks, "STEPS", 5)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)


# --- measures


def test_stability_of_those_at_both_steps():
    labels = [np.array([0, 0, 1, 1, 0]), np.array([5, 7, 7, 5, 5]), np.array([1, 1])]
    ids = ["abcde", "cabxd", "ca"]
    first = ax.adjusted_rand_index([1, 0, 0, 1], [5, 7, 7, 5])  # c, a, b, d
    second = ax.adjusted_rand_index([5, 7], [1, 1])
    assert networks.stability(labels, ids) == pytest.approx((first + second) / 2)
    assert first == 1.0 != second


def test_scores():
    steps = steps_of()
    perfect = networks.scored(
        networks.Method(lambda steps, k, seed: [s.labels + 7 for s in steps]), steps, 3, 0
    )
    assert [perfect.of(m) for m in (networks.ARI, networks.RAND, networks.STABILITY)] == [1.0, 1.0, 1.0]
    assert perfect.of(networks.SECONDS) >= 0
    one = networks.scored(networks.Method(lambda steps, k, seed: [0 * s.labels for s in steps]), steps, 3, 0)
    assert one.of(networks.ARI) == 0.0 < one.of(networks.RAND) < 0.5
    expected = [ax.rand_index(0 * step.labels, step.labels) for step in steps]
    np.testing.assert_allclose(one.rand, expected)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_running_means(window):
    """Against a loop over pairs of people."""
    steps = steps_of(8, steps_per_day=1)
    assert len({tuple(step.ids) for step in steps}) > 3
    for t, mean in enumerate(_network_methods.running_means(steps, window)):
        seen = steps[: t + 1] if window is None else steps[max(0, t + 1 - window) : t + 1]
        for i, a in enumerate(steps[t].ids):
            for j, b in enumerate(steps[t].ids):
                values = [s.W[s.ids.index(a), s.ids.index(b)] for s in seen if a in s.ids and b in s.ids]
                assert mean[i, j] == pytest.approx(np.mean(values))


# --- other methods


def test_every_method_finds_plain_groups():
    steps = steps_of(4, daily_contacts=3000.0, pair_spread=0.0, bursts=0.0, mixing=0.05, lunch_mixing=0.1)
    for name, method in networks.available().items():
        if not method.needs:
            assert networks.scored(method, steps, 3, 0).of(networks.ARI) == 1.0, name


def test_leiden():
    pytest.importorskip("leidenalg")
    steps = steps_of(4, daily_contacts=500.0, mixing=0.05, lunch_mixing=0.1)
    for name, method in networks.METHODS.items():
        if method.needs:
            assert method.sees == _network_methods.HINDSIGHT
            assert networks.scored(method, steps, 3, 2**32 - 1).of(networks.ARI) > 0.5, name
    strong, weak = (
        networks.scored(networks.METHODS[f"Leiden, coupling {c}"], steps, 3, 0) for c in ("10", "0.01")
    )
    assert strong.stability >= weak.stability


@pytest.mark.parametrize("k", [1, 4, 40])
def test_resolution_for_k_groups(k):
    tried = []

    def optimise(resolution):
        tried.append(resolution)
        return [np.arange(max(1, round(10 * resolution)))] * 3

    labels = _network_methods._matched(optimise, k)
    assert abs(len(labels[0]) - k) <= 1
    assert tried[0] == 1.0 and len(tried) <= _network_methods.TRIES


def test_the_nearest_number_of_groups_is_kept():
    counts = iter([9, 3, 8, 2, 9, 2])
    labels = _network_methods._matched(lambda resolution: [np.arange(next(counts))], 5)
    assert len(labels[0]) == 3


def test_methods_without_their_package_are_left_out(small, monkeypatch):
    rival = networks.Method(
        networks.METHODS["static"].find, _network_methods.HINDSIGHT, needs="no_such_package"
    )
    monkeypatch.setitem(networks.METHODS, "rival", rival)
    assert tuple(networks.available()) == SMALL
    report = reproduce("networks", Options(runs=1))
    assert "Some methods need no_such_package and are skipped: pip install no_such_package." in report.remarks


# --- data and report


def test_data_sets(monkeypatch, tmp_path):
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    assert list(networks.data_sets(Options())) == list(networks.SIMULATIONS)
    (tmp_path / "reality.mat").touch()
    found = networks.data_sets(Options(data=tmp_path))
    assert list(found) == ["reality", *networks.SIMULATIONS]
    assert found["reality"].k == 2


def test_simulations_differ_as_they_are_called(monkeypatch):
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    found = {name: data.steps(0) for name, data in networks.data_sets(Options()).items()}
    assert min(len(step.ids) for step in found["absences"]) < 88
    first, last = found["moves"][0], found["moves"][-1]
    groups = dict(zip(first.ids, first.labels, strict=True))
    assert sum(groups.get(i, c) != c for i, c in zip(last.ids, last.labels, strict=True)) > 10
    volumes = {name: np.std(np.log([step.W.sum() for step in steps])) for name, steps in found.items()}
    assert volumes["heavy tails"] > 2 * volumes["moves"]


def test_report(small, tmp_path):
    report = reproduce("networks", Options(runs=2))
    summary, details = report.tables
    assert summary["static"].mean < summary[networks.PAPER].mean
    assert summary["static"] == details["static"]
    heading, rows = details.cells()
    assert heading == ["", "sees", "ARI", "Rand", "stability", "seconds"]
    assert [row[:2] for row in rows] == [[name, "past"] for name in SMALL]
    assert all(len(row) == 6 for row in rows)
    assert "absences" in summary.markdown().splitlines()[2]
    assert all(len(curve) == 5 for curve in report.series.values())
    stored = json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert [name for name, _ in stored["tables"][1]["columns"]] == heading[2:]
    assert any("reality.npz" in remark for remark in report.remarks)
    if importlib.util.find_spec("matplotlib"):
        figures = {path.name for path in report.write(tmp_path) if path.suffix == ".png"}
        assert figures == {"networks-ari.png", "networks-steps.png"}


@pytest.mark.parametrize("ours, holds", [(0.9, True), (0.7, False)])
def test_claims_compare_methods_that_see_the_same(ours, holds):
    chosen = networks.CHOSEN[networks.CAUSAL]
    means = {"static": 0.5, chosen: ours, networks.PAPER: 0.99, "α = 0.5": 0.8, "Leiden, coupling 1": 0.95}
    run = {name: types.SimpleNamespace(of=lambda measure, mean=mean: mean) for name, mean in means.items()}
    claims = networks._claims({"somewhere": [run]})
    assert [claim.holds for claim in claims] == [holds]  # our best method is not the chosen one
    assert "α = 0.5 (0.800)" in claims[0].text
