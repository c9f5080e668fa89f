"""Kernels of features: against SciPy's distances and the formulas, on every array library."""

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import affect_xp as ax
from affect_xp import exceptions
from affect_xp.proximity import Dense
from affect_xp.proximity.kernels import (
    KERNELS,
    features_to_proximity,
    nystroem_features,
    random_fourier_features,
)

N, P = 23, 3


def features(n=N, offset=5.0, dtype=np.float64):
    return (np.random.default_rng(0).normal(size=(n, P)) + offset).astype(dtype)


def dot(x):
    return x @ x.T


def rbf(x, gamma=None):
    gamma = 1 / (x.shape[1] * x.var()) if gamma is None else gamma
    return np.exp(-gamma * cdist(x, x, "sqeuclidean"))


def cosine(x):
    return 1 - cdist(x, x, "cosine")


def euclidean(x):
    return cdist(x, x)


TWINS = {"dot": dot, "rbf": rbf, "cosine": cosine, "euclidean": euclidean}


def matrix(xp, proximity):
    return xp.numpy(proximity.array)


def test_every_kernel_has_a_twin_and_a_kind():
    assert TWINS.keys() == KERNELS.keys()
    kinds = {name: kernel.kind for name, kernel in KERNELS.items()}
    assert kinds == dict.fromkeys(("dot", "rbf", "cosine"), "similarity") | {"euclidean": "dissimilarity"}


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_are_their_twins_and_symmetric(xp, small_blocks, kind, dtype):
    x = features(dtype=dtype)
    found = matrix(xp, features_to_proximity(xp.array(x), kind))
    assert found.dtype == dtype
    tolerance = 1e-13 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(found, TWINS[kind](x.astype(np.float64)), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(found, found.T)
    if KERNELS[kind].diagonal is not None:
        assert np.all(np.diag(found) == KERNELS[kind].diagonal)


@pytest.mark.parametrize("gamma", [0.3, 40])
def test_gamma(xp, gamma):
    found = matrix(xp, features_to_proximity(xp.array(features(offset=1e3)), "rbf", gamma=gamma))
    np.testing.assert_allclose(found, rbf(features(offset=1e3), gamma), rtol=1e-10)


def test_equal_features_have_similarity_one(eager_xp):
    assert np.all(matrix(eager_xp, features_to_proximity(eager_xp.array(np.full((4, 2), 7.0)), "rbf")) == 1)


def test_close_points_far_from_the_origin_keep_their_distance(eager_xp):
    x = np.array([[1e6, 1e6], [1e6 + 1e-6, 1e6], [1e6, 1e6]])
    found = matrix(eager_xp, features_to_proximity(eager_xp.array(x), "euclidean"))
    np.testing.assert_allclose(found, cdist(x, x), rtol=1e-15)
    assert found[0, 2] == 0


def test_a_row_of_zeros_has_cosine_zero_and_large_rows_do_not_overflow(eager_xp):
    x = np.array([[0.0, 0.0], [1e200, 1e200], [1.0, 0.0]])
    found = matrix(eager_xp, features_to_proximity(eager_xp.array(x), "cosine"))
    np.testing.assert_allclose(found, [[0, 0, 0], [0, 1, 0.5**0.5], [0, 0.5**0.5, 1]], rtol=1e-15)


def test_a_function_gets_rows_and_its_small_asymmetry_is_removed(xp, small_blocks):
    def manhattan(a, b):
        total = sum(abs(a[:, f][:, None] - b[:, f][None, :]) for f in range(P))
        return total + 1e-12 * a[:, 0][:, None]

    found = matrix(xp, features_to_proximity(xp.array(features()), manhattan))
    np.testing.assert_allclose(found, cdist(features(), features(), "cityblock"), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(found, found.T)


def test_integers_and_lists_become_floats():
    np.testing.assert_array_equal(features_to_proximity([[1, 2], [3, 4]]).array, [[5.0, 11.0], [11.0, 25.0]])


def test_no_other_matrix_is_made():
    n = 2500
    x = features(n)
    tracemalloc.start()
    try:
        for kind in KERNELS:
            tracemalloc.reset_peak()
            features_to_proximity(x, kind)
            peak = tracemalloc.get_traced_memory()[1]
            assert peak < 1.6 * 8 * n * n, f"{kind}: {peak / 1e6:.0f} MB"  # the result plus blocks of 4 MB
    finally:
        tracemalloc.stop()


def error(message, call, *args, kind=exceptions.InputError, **kwargs):
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert message in str(caught.value)


def test_bad_features(xp):
    x = features()
    x[4, 1] = np.nan
    error("X[4, 1] = nan", features_to_proximity, xp.array(x))
    error("got shape (23,); use X[:, None]", features_to_proximity, xp.array(x[:, 0]))
    x[4, 1] = np.inf
    error("X[4, 1] = inf", features_to_proximity, xp.array(x), "euclidean")


def test_bad_arguments():
    x = features()
    typed = {"kind": exceptions.InputTypeError}
    error("'dot', 'rbf', 'cosine', 'euclidean', got 'gauss'", features_to_proximity, x, "gauss")
    error("got dtype complex128; pass its real part", features_to_proximity, x + 1j, **typed)
    error("got float16", features_to_proximity, x.astype(np.float16), **typed)
    error("got shape (0, 3)", features_to_proximity, x[:0])
    error("has no parameter gamma; valid ones: none", features_to_proximity, x, gamma=1.0, **typed)
    error("gamma must be positive and finite, got -1", features_to_proximity, x, "rbf", gamma=-1)
    error("got 'auto'", features_to_proximity, x, "rbf", gamma="auto", **typed)
    error("must return shape (23, 23)", features_to_proximity, x, lambda a, b: a)
    error("even", random_fourier_features, x, 7)
    error("at most 23", nystroem_features, x, 24)
    error("is a dissimilarity", nystroem_features, x, 4, "euclidean")


def test_random_fourier_features_approach_the_kernel(eager_xp):
    x = features()
    found = random_fourier_features(eager_xp.array(x), 4000, gamma=0.4, rng=0)
    assert found.shape == (N, 4000)
    assert eager_xp.owns(found)
    f = eager_xp.numpy(found)
    np.testing.assert_allclose(f @ f.T, rbf(x, 0.4), atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(np.sum(f * f, axis=1), 1, rtol=1e-12)
    again = random_fourier_features(x, 4000, gamma=0.4, rng=0)
    np.testing.assert_allclose(f, again, rtol=1e-9, atol=1e-12)  # the same start with every library


def test_nystroem_features_are_exact_to_the_objects_drawn(eager_xp, small_blocks):
    x, q = features(), 9
    found = nystroem_features(eager_xp.array(x), q, rng=0)
    assert found.shape == (N, q)
    assert eager_xp.owns(found)
    drawn = np.random.default_rng(0).permutation(N)[:q]
    f = eager_xp.numpy(found)
    np.testing.assert_allclose((f @ f.T)[:, drawn], rbf(x)[:, drawn], atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nystroem_of_dot_products_has_their_rank(eager_xp, dtype):
    x = features(dtype=dtype)
    f = eager_xp.numpy(nystroem_features(eager_xp.array(x), 10, "dot", rng=1))
    assert f.dtype == dtype
    assert np.sum(np.any(f != 0, axis=0)) == P
    np.testing.assert_allclose(f @ f.T, dot(x), rtol=1e-9 if dtype == np.float64 else 1e-5)


def test_a_dask_array_of_features_is_for_proximities_only():
    dask_array = pytest.importorskip("dask.array")
    x = dask_array.from_array(features(), chunks=10)
    for function in (random_fourier_features, nystroem_features):
        error("pass X.compute()", function, x, 4, kind=exceptions.InputTypeError)


def test_a_memory_mapped_matrix_is_not_loaded(tmp_path):
    n, k = 3000, 4
    labels = np.arange(n) % k
    path = tmp_path / "w.npy"
    made = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, n))
    x = (
        np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
        + 3 * np.eye(5, dtype=np.float32)[labels]
    )
    for start in range(0, n, 500):
        made[start : start + 500] = x[start : start + 500] @ x.T
    made.flush()
    del made
    mapped = np.load(path, mmap_mode="r")
    tracemalloc.start()
    try:
        w = ax.as_proximity(mapped)
        moments = ax.block_moments(w, labels)
        found = ax.kmeans(w, k, init=labels, n_init=2, rng=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(w, Dense)
    assert peak < mapped.nbytes / 2, f"{peak / 1e6:.0f} MB for a matrix of {mapped.nbytes / 1e6:.0f} MB"
    loaded = np.array(mapped)
    np.testing.assert_array_equal(moments.means, ax.block_moments(loaded, labels).means)
    np.testing.assert_array_equal(found.labels, ax.kmeans(loaded, k, init=labels, n_init=2, rng=0).labels)
