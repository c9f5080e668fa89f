"""Boids: the flocking rules against a loop, and the rankings of the paper's two experiments."""

import importlib
import itertools

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.datasets import boids as make_boids
from affect_xp.experiments import Options, boids, boids_variable
from affect_xp.models.tuning import Tuning


def slow_move(x, v, labels, goals, scatters, separation="all", goal="place"):
    """Move each boid by the four rules, one boid and one rule after the other."""
    after = []
    for i in range(len(x)):
        mates = [j for j in range(len(x)) if j != i and labels[j] == labels[i]]
        change = np.zeros(3)
        for j in range(len(x)) if separation == "all" else mates:
            if j != i and np.linalg.norm(x[i] - x[j]) < (20 if scatters else 10):
                change += x[i] - x[j]
        if mates:
            change += (np.mean([v[j] for j in mates], axis=0) - v[i]) / 8
        if not scatters:
            if mates:
                change += (np.mean([x[j] for j in mates], axis=0) - x[i]) / 100
            if goal == "place":
                change += (goals[labels[i]] - x[i]) / 100
        after.append(v[i] + change)
    return x + np.array(after), np.array(after)


ROW = [(0, 0), (90, 0), (180, 0), (270, 0)]  # the paths: across, above
SQUARE = [(0, 0), (0, 90), (90, 0), (90, 90)]


class TestSimulation:
    @pytest.mark.parametrize(
        "start, paths, choices",
        [
            (3, ROW, {}),
            (3, [(60 * f, 0) for f in range(4)], {"spacing": 60}),
            (3, ROW, {"goal": "direction"}),
            (3, [(60 * f, 0) for f in range(4)], {"separation": "flock", "spacing": 60}),
            (3, SQUARE, {"layout": "square"}),
            (16, ROW, {"variable": True}),
            (17, ROW, {"variable": True}),
            (19, [(45, 0), (225, 0)], {"variable": True}),
            (19, [(0, 45), (90, 45)], {"variable": True, "layout": "square"}),
        ],
    )
    def test_five_moves_of_a_loop(self, start, paths, choices):
        """A step is five moves by the rules; flocks, goals and scattering are as documented."""
        steps = list(make_boids(start + 2, flock_size=6, rng=0, **choices))
        before, now = steps[start], steps[start + 1]
        goals = np.array([(10.0 * start, across, above) for across, above in paths])
        rules = {name: choices[name] for name in ("separation", "goal") if name in choices}
        x, v = before.X, before.velocities
        for _ in range(5):
            goals[:, 0] += 2
            x, v = slow_move(
                x, v, now.labels, goals, "variable" in choices and start + 1 in (17, 18), **rules
            )
        np.testing.assert_allclose(x, now.X, atol=1e-9)
        np.testing.assert_allclose(v, now.velocities, atol=1e-9)

    @pytest.mark.parametrize("layout, paths", [("row", ROW), ("square", SQUARE)])
    def test_start(self, layout, paths):
        step = next(make_boids(layout=layout, rng=0))
        assert step.X.shape == (100, 3)
        assert np.bincount(step.labels).tolist() == [25] * 4
        centres = np.array([(0, across, above) for across, above in paths])
        assert np.abs(step.X - centres[step.labels]).max() < 30
        assert np.abs(step.X - centres[step.labels]).max(axis=0).min() > 25

    def test_one_boid_changes_at_each_step(self):
        labels = [step.labels for step in make_boids(30, rng=1)]
        assert [int((a != b).sum()) for a, b in itertools.pairwise(labels)] == [1] * 29
        assert set(np.concatenate(labels).tolist()) == {0, 1, 2, 3}

    def test_flocks_regroup(self):
        steps = list(make_boids(30, variable=True, rng=0))
        assert [len(np.unique(step.labels)) for step in steps] == [4] * 19 + [2] * 11
        assert int((steps[18].labels // 2 != steps[19].labels).sum()) == 1
        spread = [step.X[step.labels == 0].std(axis=0).min() for step in steps]
        assert min(spread[17:19]) > 2 * max(spread[:17])

    def test_speed_does_not_matter_to_distances(self, monkeypatch):
        slow = list(make_boids(4, rng=0))[-1].X
        # Import the module: in the package its name refers to the function.
        monkeypatch.setattr(importlib.import_module("affect_xp.datasets.boids"), "SPEED", 7.0)
        fast = list(make_boids(4, rng=0))[-1].X
        np.testing.assert_allclose(slow - slow[0], fast - fast[0], atol=1e-8)
        assert np.abs(slow - fast).max() > 1

    @pytest.mark.parametrize(
        "arguments, message",
        [
            ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
            ({"n_flocks": 1}, "n_flocks must be at least 2, got 1"),
            ({"flock_size": 1.5}, "flock_size must be an integer, got 1.5"),
            ({"spacing": 40}, "spacing must be at least 60, so that cubes do not overlap, got 40"),
            ({"n_flocks": 5, "variable": True}, "n_flocks must be even and at least 4"),
            ({"layout": "ring"}, "layout must be one of 'row', 'square', got 'ring'"),
            ({"separation": "none"}, "separation must be one of 'all', 'flock', got 'none'"),
            ({"goal": "far"}, "goal must be one of 'place', 'direction', got 'far'"),
        ],
    )
    def test_errors(self, arguments, message):
        with pytest.raises((ValueError, TypeError), match=message):
            next(make_boids(**arguments))


def mean_rands(runs):
    """Return the mean Rand index of each method over runs and time."""
    return {method: np.mean([run[method].rand for run in runs]) for method in runs[0]}


class TestFixedNumber:
    def test_affect_beats_static_clustering_and_rg(self):
        methods = (boids.STATIC, boids.THREE, boids.RG10)
        runs = [boids.one_run(boids.AS_CHOSEN, methods, seed) for seed in range(6)]
        rand = mean_rands(runs)
        assert rand[boids.THREE] > rand[boids.STATIC] + 0.015
        assert rand[boids.THREE] > rand[boids.RG10]
        alpha = boids.mean_over_runs(runs, boids.THREE, boids.alpha_of)
        assert np.isnan(alpha[0])
        assert 0.4 < alpha[1:].mean() < 0.7

    def test_report(self, tmp_path):
        report = boids.run(Options(runs=1))
        table, choices = report.tables
        assert [entry.method for entry in table.entries] == list(boids.METHODS)
        assert len(choices.entries) == len(boids.OTHER_READINGS) * len(boids.COMPARED)
        assert choices["cubes touch: static"].mean < table["static"].mean - 0.05
        assert report.series["alpha, AFFECT, 1 iteration"].shape == (40,)
        names = {path.name for path in report.write(tmp_path)}
        assert {"boids.md", "boids.json", "boids-positions.png", "boids-rand.png", "boids-alpha.svg"} <= names

    def test_squared_distances_are_those_of_differences(self):
        a, b = np.array([[0.0, 0, 0], [1, 2, 2]]), np.array([[3.0, 4, 0]])
        np.testing.assert_array_equal(boids.squared_distance(a, b), [[25], [12]])


class TestVariableNumber:
    def test_affect_beats_static_clustering(self):
        """It also finds four flocks, then two, while static clustering finds more."""
        runs = [
            boids_variable.one_run(boids_variable.AS_CHOSEN, (boids.STATIC, boids.THREE), seed)
            for seed in range(2)
        ]
        rand = mean_rands(runs)
        assert rand[boids.THREE] > rand[boids.STATIC] + 0.03
        k = {m: boids.mean_over_runs(runs, m, boids.clusters_of) for m in (boids.STATIC, boids.THREE)}
        assert abs(k[boids.THREE][1:17].mean() - 4) < 0.5
        assert k[boids.THREE][17:21].max() > 6
        assert k[boids.THREE][-5:].mean() < 3.5 < k[boids.STATIC][-5:].mean()

    def test_alpha_of_two_clusters_is_that_of_the_best_two(self):
        short = boids_variable.Reading(flight={"n_steps": 2})
        before, now = short.similarities(short.steps(0))
        two = ax.spectral(now, 2, assign_labels="cluster_qr").labels
        alpha = float(ax.forgetting_factor(now, before, two))
        assert boids_variable.alpha_of_two(1, now, before, None, 1) == pytest.approx(alpha)
        blend = ax.Dense(alpha * before.array + (1 - alpha) * now.array)
        again = ax.spectral(blend, 2, assign_labels="cluster_qr").labels
        expected = float(ax.forgetting_factor(now, before, again))
        assert boids_variable.alpha_of_two(2, now, before, None, 1) == pytest.approx(expected)
        trace = boids_variable.one_run(short, (boids_variable.ONE_OF_TWO,), 0)[boids_variable.ONE_OF_TWO]
        assert trace.alpha[1] == pytest.approx(alpha)

    def test_a_kernel_as_wide_as_the_scene_shows_two_halves(self):
        wide = boids_variable.Reading(None, flight={"n_steps": 10})
        trace = boids_variable.one_run(wide, (boids.STATIC,), 0)[boids.STATIC]
        assert trace.k.tolist() == [2] * 10

    def test_each_run_is_trained_on_a_simulation_of_its_own(self, monkeypatch):
        short = boids_variable.Reading(flight={"n_steps": 3})
        trained_on = []

        def best(make, given, truth):
            trained_on.append(truth)
            return Tuning(len(trained_on) / 10, {})

        monkeypatch.setattr(boids_variable, "tune_alpha", best)
        runs = [boids_variable.one_run(short, (boids.STATIC, boids_variable.PCM_TRAINED), s) for s in (0, 1)]
        alphas = [run[boids_variable.PCM_TRAINED].alpha[1:].tolist() for run in runs]
        assert alphas == [[0.1, 0.1], [0.2, 0.2]]
        last = [truth[-1] for truth in trained_on] + [short.steps(s)[-1].labels for s in (0, 1)]
        assert all(not np.array_equal(a, b) for a, b in itertools.combinations(last, 2))
        boids_variable.one_run(short, (boids.STATIC,), 0)
        assert len(trained_on) == 2  # no training

    def test_similarities(self):
        steps = boids_variable.Reading(flight={"n_steps": 2}).steps(0)
        (w, _) = boids_variable.Reading(20.0).similarities(steps)
        x = steps[0].X
        np.testing.assert_allclose(w.array[3, 40], np.exp(-np.sum((x[3] - x[40]) ** 2) / 800))
        np.testing.assert_array_equal(np.diag(w.array), 0)
        (w, _) = boids_variable.Reading(20.0, self_similarity=1.0).similarities(steps)
        np.testing.assert_array_equal(np.diag(w.array), 1)

    def test_report(self, tmp_path, monkeypatch):
        short = {"n_steps": 4}
        monkeypatch.setattr(boids_variable, "AS_CHOSEN", boids_variable.Reading(flight=short))
        monkeypatch.setattr(
            boids_variable, "OTHER_READINGS", {"wide": boids_variable.Reading(60.0, flight=short)}
        )
        monkeypatch.setattr(boids_variable, "RUNS", 1)
        monkeypatch.setattr(boids_variable, "REGROUP_AT", 3)
        monkeypatch.setattr(boids_variable, "SCATTER_AT", 2)
        report = boids_variable.run(Options())
        table, choices = report.tables
        assert [entry.method for entry in table.entries] == list(boids_variable.SHOWN)
        assert [entry.method for entry in choices.entries] == [f"wide: {m}" for m in boids_variable.COMPARED]
        assert 0 <= report.settings[boids_variable.PCQ_TRAINED] <= 0.9
        assert report.series["clusters, static"].shape == (4,)
        assert tmp_path / "boids-variable-clusters.png" in report.write(tmp_path)
