"""The correction of α for entries that share an object: definition, unbiasedness, and use."""

import numpy as np
import pytest
import reference
from alphas import estimate
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.affect.forgetting import noise_and_drift, share_of_noise
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.partition import Partition, align

N = 13
LABELS = [
    np.arange(N) % 3,
    np.array([0] * 5 + [1] * 4 + [2] * 3 + [3]),  # the smallest sufficient clusters, and smaller ones
    np.array([0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 3, 3]),
    np.array([3, 3, 0, 0, 0, 3, 0, 3, 3, 0, 3, 0, 3]),  # empty clusters
    np.array([0, -1, 0, 1, -1, 1, 1, 0, 1, -1, 0, 0, 1]),  # objects without a cluster
    np.zeros(N, dtype=int),
    np.arange(N),
]


def features(seed=0, n=N):
    return np.random.default_rng(seed).normal(loc=[1.0, 0.0, 0.0], size=(n, 3))


def products(seed=0, n=N):
    """Dot products: entries that share an object are dependent."""
    x = features(seed, n)
    return x @ x.T


def found_alpha(xp, W, past, labels):
    return float(xp.numpy(ax.forgetting_factor(W, past, xp.array(labels), correction="objects")))


def dense(xp):
    return [ax.Dense(xp.array(products(seed))) for seed in (0, 1)], [products(0), products(1)]


def dense_float32(xp):
    stored = [products(seed).astype(np.float32) for seed in (0, 1)]
    return [ax.Dense(xp.array(w)) for w in stored], [w.astype(np.float64) for w in stored]


def factored(xp):
    return [ax.Factored.from_features(xp.array(features(s))) for s in (0, 1)], [products(0), products(1)]


def sparse(xp):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("sparse matrices are SciPy's and CuPy's")
    module = pytest.importorskip("cupyx.scipy.sparse" if xp.name == "cupy" else "scipy.sparse")
    thinned = [products(seed) * (products(seed + 2) > 1) for seed in (0, 1)]
    return [ax.Sparse(module.csr_matrix(xp.array(w))) for w in thinned], thinned


def chunked(xp):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("chunks are tried on NumPy and CuPy")
    da = pytest.importorskip("dask.array")
    pair = [products(0), products(1)]
    return [ax.Chunked(da.from_array(xp.array(w), chunks=4, asarray=False)) for w in pair], pair


# Add a line for each new representation: a function that returns W and its past, with their matrices.
MAKERS = [dense, dense_float32, factored, sparse, chunked]


@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_definition_on_every_representation(eager_xp, small_blocks, maker, labels):
    (W, past), (w, psi) = maker(eager_xp)
    alpha = ax.forgetting_factor(W, past, eager_xp.array(labels), correction="objects")
    assert eager_xp.owns(alpha) and alpha.shape == ()
    expected = reference.forgetting_factor(w, psi, labels, "objects")
    np.testing.assert_allclose(float(eager_xp.numpy(alpha)), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_variances_of_the_means(eager_xp, labels):
    w, k = products(), int(labels.max()) + 1
    W, partition = ax.Dense(eager_xp.array(w)), Partition(eager_xp.array(labels), k)
    groups = W.group(partition)
    found, on_diagonal = mean_variances(groups, moments_of(groups))
    assert found.shape == (k, k) and on_diagonal.shape == (k,)
    found, on_diagonal = eager_xp.numpy(found), eager_xp.numpy(on_diagonal)
    for c, d, pairs in reference.blocks(labels):
        expected = reference.mean_variance(w, pairs, each_stands_twice=c == d)
        mine = on_diagonal[c] if d is None else found[c, d]
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("of_array", [lambda array: array, ax.Dense], ids=["array", "Dense"])
def test_arrays_eager_and_lazy(xp, of_array):
    w, past = products(0), products(1)
    alpha = found_alpha(xp, of_array(xp.array(w)), of_array(xp.array(past)), LABELS[1])
    np.testing.assert_allclose(alpha, reference.forgetting_factor(w, past, LABELS[1], "objects"), atol=1e-10)


def test_objects_that_come_and_go_take_no_part(eager_xp):
    w, past, ids = products(0), products(1), range(3, 3 + N)
    W, psi = ax.Dense(eager_xp.array(w)), ax.Dense(eager_xp.array(past))
    moves = align(tuple(ids), tuple(range(N)), W.like)
    labels = Partition(eager_xp.array(np.arange(N) % 2), 2)
    alpha = estimate(W, psi, labels.masked(moves.source), labels.take(moves.target), "objects")
    stay = np.arange(N - 3)
    expected = reference.forgetting_factor(
        w[np.ix_(stay, stay)], past[np.ix_(stay + 3, stay + 3)], stay % 2, "objects"
    )
    np.testing.assert_allclose(float(eager_xp.numpy(alpha)), expected, atol=1e-12)


@settings(max_examples=80)
@given(st.integers(1, 14), st.integers(1, 4), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1.0, 1e6]))
def test_properties(n, k, seed, scale):
    rng = np.random.default_rng(seed)
    w, past, labels = scale * products(seed, n), scale * products(seed + 1, n), rng.integers(-1, k, size=n)
    alpha = float(ax.forgetting_factor(w, past, labels, k, correction="objects"))
    assert 0 <= alpha <= 1
    expected = reference.forgetting_factor(w, past, labels, "objects")
    np.testing.assert_allclose(alpha, expected, rtol=1e-9, atol=1e-10)
    order = rng.permutation(n)
    moved = np.ix_(order, order)
    shuffled = ax.forgetting_factor(w[moved], past[moved], labels[order], k, correction="objects")
    np.testing.assert_allclose(float(shuffled), alpha, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("dtype", "ratio"), [(np.float64, 1e6), (np.float32, 1e3)])
@pytest.mark.parametrize("block_means", ["one", "many"])
def test_large_mean_and_small_spread(eager_xp, small_blocks, dtype, ratio, block_means):
    mpmath = pytest.importorskip("mpmath")
    labels = np.arange(24) % 3
    means = np.ones((3, 3)) if block_means == "one" else np.array([[1, -2, 3], [-2, 4, 0], [3, 0, -5]])
    w, past = (ratio * means[np.ix_(labels, labels)] + products(s, 24) for s in (0, 1))
    w, past = w.astype(dtype), past.astype(dtype)
    with mpmath.workdps(50):
        exact = np.vectorize(mpmath.mpf, otypes=[object])
        expected = float(
            reference.forgetting_factor(exact(w.astype(float)), exact(past.astype(float)), labels, "objects")
        )
    assert abs(found_alpha(eager_xp, eager_xp.array(w), eager_xp.array(past), labels) - expected) < 1e-8


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_neither_noise_nor_drift(eager_xp, value):
    w = eager_xp.array(np.full((8, 8), value))
    for labels in ([0] * 8, [0] * 4 + [1] * 4, list(range(8))):
        assert found_alpha(eager_xp, w, w, labels) == 0.0


def test_drift_that_the_uncertainty_explains_is_none(eager_xp):
    """If the past equals the block means of W, the drift is smaller than the uncertainty of the means."""
    w, labels = products(0, 16), np.arange(16) % 2
    means, _, diagonal_means, _ = reference.block_moments(w, labels, 2)
    past = means[np.ix_(labels, labels)]
    np.fill_diagonal(past, diagonal_means[labels])
    assert found_alpha(eager_xp, eager_xp.array(w), eager_xp.array(past), labels) == 1.0


@pytest.mark.parametrize("scale", [1.3, 2.76, 1.23, 1.36])
def test_noise_is_never_negative(eager_xp, scale):
    """Four objects whose rows have equal means have exactly zero noise, despite rounding."""
    w = scale * np.array([[0, 1, -1, 0], [1, 0, 0, -1], [-1, 0, 0, 1], [0, -1, 1, 0]])
    alpha = found_alpha(eager_xp, eager_xp.array(w), eager_xp.array(w + 1), [0, 0, 0, 0])
    assert 0 <= alpha < 1e-12


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_a_known_product_stands_for_the_matrix(eager_xp, maker):
    W, past = maker(eager_xp)[0]
    labels = Partition(eager_xp.array(LABELS[1]), 4)
    expected = float(eager_xp.numpy(estimate(W, past, labels, labels, "objects")))
    groups = [x.group(labels) for x in (W, past)]
    for known in groups:
        known.rows(slice(0, 1))  # caches the product
    alpha = share_of_noise(*noise_and_drift(*groups, "objects"))
    assert float(eager_xp.numpy(alpha)) == pytest.approx(expected, rel=1e-10)


SIZES = np.array([2, 3, 4, 5, 8])
CENTRES = np.array([[1.0, 0.0], [0.0, 0.5], [2.0, 0.5], [0.0, 0.0], [-1.0, 1.0]])


def gaussian_products(rng, labels):
    x = CENTRES[labels] + rng.normal(size=(len(labels), 2))
    return x @ x.T


def independent_entries(rng, labels):
    w = rng.normal(size=(len(labels), len(labels)))
    return np.triu(w) + np.triu(w, 1).T


# wᵢⱼ = xᵢ·xⱼ with xᵢ ~ N(μ_c, I): var(a) = ‖μ_d‖², var(b) = ‖μ_c‖², var(e) = tr I
COMPONENTS = {
    gaussian_products: (np.tile(np.sum(CENTRES**2, axis=1), (5, 1)), np.full((5, 5), 2.0)),
    independent_entries: (np.zeros((5, 5)), np.ones((5, 5))),
}


def true_mean_variances(a, e):
    """Return var μ̂ from var(a) and var(e), (k, k) each."""
    m = SIZES[:, None]
    within = 4 * a / m + 2 * e / (m * (m - 1))
    return np.where(np.eye(len(SIZES)) > 0, within, a / m + a.T / m.T + e / (m * m.T))


@pytest.mark.parametrize("kind", COMPONENTS, ids=lambda kind: kind.__name__)
def test_no_bias(kind):
    """The estimates are unbiased for all sizes at which the variances can be estimated."""
    rng, labels, draws = np.random.default_rng(0), np.repeat(np.arange(5), SIZES), []
    partition = Partition(labels, 5)
    for _ in range(2000):
        W = ax.Dense(kind(rng, labels))
        groups = W.group(partition)
        moments = moments_of(groups)
        of_means, _ = mean_variances(groups, moments)
        draws.append((moments.means, of_means, moments.squares() / moments.pair_counts + of_means))
    told = ~np.diag(SIZES < 4)
    means, of_means, of_entries = (np.array(values)[:, told] for values in zip(*draws, strict=True))
    a, e = COMPONENTS[kind]
    expected = true_mean_variances(a, e)[told]
    assert largest_z((means - means.mean(axis=0)) ** 2, expected) < 4  # the expected values are correct
    assert largest_z(of_means, expected) < 4
    assert largest_z(of_entries, (a + a.T + e)[told]) < 4


def largest_z(draws, expected):
    """Return the largest deviation of the means of the draws from the expected values, in standard errors."""
    return np.abs((draws.mean(axis=0) - expected) / (draws.std(axis=0) / np.sqrt(len(draws)))).max()


def smoothing_error(seed, correction):
    """Return the mean squared error of Ψ̂ over the steps of one run with known clusters."""
    first, *steps = ax.datasets.separated_gaussians(rng=seed)
    smoothed, errors = first.W, []
    for step in steps:
        psi, _ = ax.gaussian_mixture_proximity(step.means, step.covariances, step.labels)
        alpha = float(ax.forgetting_factor(step.W, smoothed, step.labels, correction=correction))
        smoothed = alpha * smoothed + (1 - alpha) * step.W
        errors.append(ax.tracking_error(smoothed, psi))
    return np.mean(errors)


def test_separated_gaussians_are_tracked_better():
    gains = np.array([smoothing_error(s, None) - smoothing_error(s, "objects") for s in range(15)])
    assert gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(len(gains))


def test_the_host_never_waits():
    strict = pytest.importorskip("array_api_strict")
    from transfers import DEVICE, counted

    def device(values):
        return strict.asarray(np.array(values), device=DEVICE)

    W, past = (ax.Dense(device(products(seed))) for seed in (0, 1))
    labels = Partition(device(LABELS[1]), 4)
    with counted() as seen:
        estimate(W, past, labels, labels, "objects")
    assert not seen, seen.where


def test_no_matrix_is_made(monkeypatch):
    torch = pytest.importorskip("torch")
    from test_temporaries import Large, N, labels, matrix

    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 2_000 * N * 8)
    W, past = matrix(torch.float32), matrix(torch.float32)
    with Large() as large:
        estimate(W, past, labels(), labels(), "objects")
    assert large.found == []


@pytest.mark.parametrize("correction", ["entries", True, 1, ("objects",)])
def test_unknown_correction(correction):
    with pytest.raises(ValueError, match="correction must be 'objects' or None, got"):
        ax.forgetting_factor(np.eye(3), np.eye(3), [0, 0, 1], correction=correction)


def test_affect_takes_it():
    """At the second step, with the labels of the first, α equals the result of the function."""
    first, second = (step.W for step in list(ax.datasets.colliding_gaussians(n_steps=2, rng=0)))
    model = ax.Affect(ax.KMeans(2), init="previous", n_iter=1, correction="objects", random_state=0)
    labels = model.partial_fit(first).labels_
    corrected = ax.forgetting_factor(second, first, labels, correction="objects")
    assert model.partial_fit(second).alpha_ == pytest.approx(float(corrected), rel=1e-12)
    assert model.alpha_ > float(ax.forgetting_factor(second, first, labels)) + 1e-3
    with pytest.raises(ax.exceptions.InputError, match="correction must be 'objects' or None, got 'pairs'"):
        ax.Affect(ax.KMeans(2), correction="pairs").partial_fit(first)
