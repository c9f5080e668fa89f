"""Simulators: the numbers the paper states, the rules of flocking against a loop, and seeds."""

import importlib
import itertools

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.datasets import boids as make_boids
from affect_xp.datasets import separated_gaussians


class TestSeparatedGaussians:
    def test_mixture(self):
        steps = list(separated_gaussians(4000, rng=0))
        assert len(steps) == 40
        np.testing.assert_array_equal(steps[0].means, [[4, 0], [-4, 0]])
        for t, step in enumerate(steps):
            scale = 0.1 if t < 19 else 0.3
            np.testing.assert_allclose(step.covariances, np.stack([np.eye(2)] * 2) * scale)
            for c in (0, 1):
                own = step.X[step.labels == c]
                assert len(own) == 2000
                np.testing.assert_allclose(own.mean(axis=0), step.means[c], atol=0.06)
                np.testing.assert_allclose(np.cov(own.T), step.covariances[c], atol=0.05)

    def test_means_walk_each_for_itself(self):
        means = np.stack([step.means for step in separated_gaussians(2, n_steps=200, rng=1)])
        moves = np.diff(means, axis=0)
        np.testing.assert_allclose(np.abs(moves[:, :, 0]), 0.1)
        np.testing.assert_array_equal(moves[:, :, 1], 0)
        together = np.mean(moves[:, 0, 0] * moves[:, 1, 0] > 0)
        assert 0.3 < together < 0.7
        assert 0.3 < np.mean(moves[:, :, 0] > 0) < 0.7


def slow_move(x, v, labels, goals, scatters):
    """Move each boid by the four rules, one boid and one rule after the other."""
    after = []
    for i in range(len(x)):
        mates = [j for j in range(len(x)) if j != i and labels[j] == labels[i]]
        change = np.zeros(3)
        for j in range(len(x)):
            if j != i and np.linalg.norm(x[i] - x[j]) < (20 if scatters else 10):
                change += x[i] - x[j]
        if mates:
            change += (np.mean([v[j] for j in mates], axis=0) - v[i]) / 8
        if not scatters:
            if mates:
                change += (np.mean([x[j] for j in mates], axis=0) - x[i]) / 100
            change += (goals[labels[i]] - x[i]) / 100
        after.append(v[i] + change)
    return x + np.array(after), np.array(after)


class TestBoids:
    @pytest.mark.parametrize("variable, start", [(False, 3), (True, 16), (True, 17), (True, 19)])
    def test_five_moves_of_a_loop(self, variable, start):
        """A step is five moves by the rules; flocks, goals and scattering are as documented."""
        steps = list(make_boids(start + 2, flock_size=6, variable=variable, rng=0))
        before, now = steps[start], steps[start + 1]
        y = np.arange(4) * 60.0 if start < 19 else np.array([30.0, 150.0])
        goals = np.stack([np.full(len(y), 10.0 * start), y, np.zeros(len(y))], axis=1)
        x, v = before.X, before.velocities
        for _ in range(5):
            goals[:, 0] += 2
            x, v = slow_move(x, v, now.labels, goals, scatters=variable and start + 1 in (17, 18))
        np.testing.assert_allclose(x, now.X, atol=1e-9)
        np.testing.assert_allclose(v, now.velocities, atol=1e-9)

    def test_start(self):
        step = next(make_boids(rng=0))
        assert step.X.shape == (100, 3)
        assert np.bincount(step.labels).tolist() == [25] * 4
        centres = np.array([[0, 60 * f, 0] for f in range(4)])
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
        # By its module: in the package the name is that of the function.
        monkeypatch.setattr(importlib.import_module("affect_xp.datasets.boids"), "SPEED", 7.0)
        fast = list(make_boids(4, rng=0))[-1].X
        np.testing.assert_allclose(slow - slow[0], fast - fast[0], atol=1e-8)
        assert np.abs(slow - fast).max() > 1


@pytest.mark.parametrize("simulate", [separated_gaussians, make_boids])
def test_seeds(simulate):
    same, again, other = (np.stack([s.X for s in simulate(n_steps=3, rng=seed)]) for seed in (5, 5, 6))
    np.testing.assert_array_equal(same, again)
    assert not np.array_equal(same, other)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: separated_gaussians(7), "n_samples must be even, got 7"),
        (lambda: separated_gaussians(n_steps=0), "n_steps must be at least 1, got 0"),
        (lambda: make_boids(0), "n_steps must be at least 1, got 0"),
        (lambda: make_boids(n_flocks=1), "n_flocks must be at least 2, got 1"),
        (lambda: make_boids(flock_size=1.5), "flock_size must be an integer, got 1.5"),
        (lambda: make_boids(spacing=40), "spacing must be at least 60, lest the cubes overlap, got 40"),
        (lambda: make_boids(n_flocks=5, variable=True), "n_flocks must be even and at least 4"),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        next(call())


def test_names():
    assert set(ax.datasets.__all__) <= set(vars(ax.datasets))
