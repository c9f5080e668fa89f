"""Simulators: the numbers the paper states, and seeds."""

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
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        next(call())


def test_names():
    assert set(ax.datasets.__all__) <= set(vars(ax.datasets))
