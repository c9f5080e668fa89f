"""The forgetting factor: against its definition, against 50 digits, and the oracle against simulation."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax


def matrix(seed=0, n=9):
    w = np.random.default_rng(seed).normal(size=(n, n))
    return w + w.T


LABELS = [
    np.array([0, 0, 0, 1, 1, 2, 1, 0, 2]),
    np.array([0, 0, 0, 0, 0, 0, 1, 2, 2]),
    np.array([3, 3, 0, 0, 0, 3, 0, 3, 3]),
    np.array([0, -1, 0, 1, -1, 1, 1, 0, 1]),
    np.zeros(9, dtype=int),
    np.arange(9),
]


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_definition(eager_xp, small_blocks, labels):
    w, past = matrix(0), matrix(1)
    alpha = ax.forgetting_factor(eager_xp.array(w), eager_xp.array(past), eager_xp.array(labels))
    assert eager_xp.owns(alpha) and alpha.shape == ()
    np.testing.assert_allclose(
        float(eager_xp.numpy(alpha)), reference.forgetting_factor(w, past, labels), atol=1e-12
    )


def test_float32_storage_is_summed_in_float64(eager_xp):
    w, past, labels = matrix(0, 60).astype(np.float32), matrix(1, 60).astype(np.float32), np.arange(60) % 3
    alpha = ax.forgetting_factor(eager_xp.array(w), eager_xp.array(past), eager_xp.array(labels))
    expected = reference.forgetting_factor(w.astype(float), past.astype(float), labels)
    np.testing.assert_allclose(float(eager_xp.numpy(alpha)), expected, rtol=1e-12)


def fifty_digits(w, past, labels):
    """The definition in 50-digit arithmetic."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):
        exact = np.vectorize(mpmath.mpf, otypes=[object])
        return float(reference.forgetting_factor(exact(w), exact(past), labels))


@pytest.mark.parametrize(("dtype", "ratio"), [(np.float64, 1e6), (np.float32, 1e3)])
@pytest.mark.parametrize("block_means", ["one", "many"])
def test_large_mean_and_small_spread(eager_xp, small_blocks, dtype, ratio, block_means):
    labels = np.arange(24) % 3
    means = np.ones((3, 3)) if block_means == "one" else np.array([[1, -2, 3], [-2, 4, 0], [3, 0, -5]])
    w, past = (ratio * means[np.ix_(labels, labels)] + matrix(s, 24) for s in (0, 1))
    w, past = w.astype(dtype), past.astype(dtype)
    alpha = ax.forgetting_factor(eager_xp.array(w), eager_xp.array(past), eager_xp.array(labels))
    exact = fifty_digits(w.astype(float), past.astype(float), labels)
    assert abs(float(eager_xp.numpy(alpha)) - exact) < 1e-8


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_neither_noise_nor_drift(eager_xp, value):
    w = eager_xp.array(np.full((4, 4), value))
    for labels in ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3]):
        assert float(eager_xp.numpy(ax.forgetting_factor(w, w, eager_xp.array(labels)))) == 0.0


def test_noise_alone_and_drift_alone(eager_xp):
    labels = np.array([0] * 4 + [1] * 4)
    ones, w = np.ones((8, 8)), matrix(0, 8)
    drift_alone = ax.forgetting_factor(eager_xp.array(ones), eager_xp.array(2 * ones), eager_xp.array(labels))
    assert float(eager_xp.numpy(drift_alone)) == 0.0
    means, _, diagonal_means, _ = reference.block_moments(w, labels, 2)
    past = means[np.ix_(labels, labels)]
    np.fill_diagonal(past, diagonal_means[labels])
    noise_alone = ax.forgetting_factor(eager_xp.array(w), eager_xp.array(past), eager_xp.array(labels))
    np.testing.assert_allclose(float(eager_xp.numpy(noise_alone)), 1.0, atol=1e-12)


@settings(max_examples=80)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e6]))
def test_properties(n, k, seed, scale):
    rng = np.random.default_rng(seed)
    w, past = scale * matrix(seed, n), scale * matrix(seed + 1, n)
    labels = rng.integers(0, k, size=n)
    alpha = float(ax.forgetting_factor(w, past, labels, k))
    assert 0 <= alpha <= 1
    np.testing.assert_allclose(alpha, reference.forgetting_factor(w, past, labels), rtol=1e-9, atol=1e-12)
    order, names = rng.permutation(n), rng.permutation(k)
    shuffled = ax.forgetting_factor(w[np.ix_(order, order)], past[np.ix_(order, order)], labels[order], k)
    np.testing.assert_allclose(float(shuffled), alpha, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        float(ax.forgetting_factor(w, past, names[labels], k)), alpha, rtol=1e-9, atol=1e-12
    )


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="past has 4 objects, but W has 3"):
        ax.forgetting_factor(np.eye(3), np.eye(4), [0, 0, 1])


def test_libraries_must_agree():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="different libraries"):
        ax.forgetting_factor(np.eye(3), torch.eye(3, dtype=torch.float64), [0, 0, 1])


def test_oracle(xp, small_blocks):
    rng = np.random.default_rng(0)
    psi, past, variance = rng.normal(size=(7, 7)), rng.normal(size=(7, 7)), rng.random((7, 7))
    expected = variance.sum() / (((past - psi) ** 2).sum() + variance.sum())
    alpha = ax.oracle_forgetting_factor(xp.array(psi), xp.array(variance), xp.array(past))
    np.testing.assert_allclose(float(xp.numpy(alpha)), expected, rtol=1e-13)


def test_oracle_minimises_the_expected_error():
    rng = np.random.default_rng(0)
    psi, past, variance = matrix(0, 6), matrix(1, 6), rng.random((6, 6))

    def risk(alpha):
        return ((alpha * (past - psi)) ** 2).sum() + ((1 - alpha) ** 2 * variance).sum()

    best = float(ax.oracle_forgetting_factor(psi, variance, past))
    assert risk(best) < min(risk(best - 0.01), risk(best + 0.01))


def test_oracle_shapes_must_agree():
    with pytest.raises(ValueError, match="must be of one shape"):
        ax.oracle_forgetting_factor(np.eye(3), np.eye(3), np.eye(4))


def test_gaussian_mixture_moments_match_simulation(eager_xp):
    rng = np.random.default_rng(0)
    means = np.array([[1.0, -0.5], [0.3, 2.0]])
    roots = rng.normal(size=(2, 2, 2))
    covariances = roots @ roots.swapaxes(1, 2)
    labels = np.array([0, 0, 1, 1])
    psi, variance = ax.gaussian_mixture_proximity(
        eager_xp.array(means), eager_xp.array(covariances), eager_xp.array(labels)
    )
    noise = rng.normal(size=(200_000, 4, 2))
    x = means[labels] + np.einsum("nij,snj->sni", np.linalg.cholesky(covariances)[labels], noise)
    w = np.einsum("sni,smi->snm", x, x)
    np.testing.assert_allclose(eager_xp.numpy(psi), w.mean(axis=0), rtol=0.02, atol=0.05)
    np.testing.assert_allclose(eager_xp.numpy(variance), w.var(axis=0), rtol=0.04)
