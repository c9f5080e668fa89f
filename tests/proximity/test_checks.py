"""Checks of a matrix, and the position of the error."""

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.proximity import checks


def spoiled(i, j, value, mirror=None, dtype=np.float64):
    w = np.ones((9, 9), dtype=dtype)
    w[i, j] = value
    w[j, i] = value if mirror is None else mirror
    return w


@pytest.mark.parametrize(
    ("w", "error", "message"),
    [
        (
            np.ones((3, 4)),
            ValueError,
            r"W must be a square matrix of proximities, got shape \(3, 4\); from features",
        ),
        (np.ones(3), ValueError, r"W must be a square matrix of proximities, got shape \(3,\)"),
        (np.ones((0, 0)), ValueError, "W has no objects"),
        (
            spoiled(2, 7, np.nan),
            ValueError,
            r"W must be finite, but W\[2, 7\] = nan; leave out objects without data",
        ),
        (spoiled(5, 5, np.inf), ValueError, r"W must be finite, but W\[5, 5\] = inf"),
        (spoiled(8, 0, -np.inf), ValueError, r"W must be finite, but W\[0, 8\] = -inf"),
        (
            spoiled(1, 6, 2.0, 3.0),
            ValueError,
            r"W is not symmetric: W\[1, 6\] = 2.0 but W\[6, 1\] = 3.0; use \(W \+",
        ),
        (spoiled(1, 6, 1.0, 1.0 + 1e-6), ValueError, "not symmetric"),
        (np.ones((3, 3), dtype=complex), TypeError, "W must be real, got dtype"),
    ],
)
def test_bad_matrices(xp, small_blocks, w, error, message):
    with pytest.raises(error, match=message):
        ax.as_proximity(xp.array(w))


def test_rounding_is_not_asymmetry(xp, small_blocks):
    ax.as_proximity(xp.array(spoiled(1, 6, 1.0, 1.0 + 1e-10)))
    ax.as_proximity(xp.array(1e9 * spoiled(1, 6, 1.0, 1.0 + 1e-10)))  # the tolerance is relative
    ax.as_proximity(xp.array(spoiled(1, 6, 1.0, 1.0 + 1e-6, np.float32)))


def test_small_entries_are_held_to_the_same_tolerance():
    with pytest.raises(ValueError, match="not symmetric"):
        ax.as_proximity(1e-9 * spoiled(1, 6, 2.0, 3.0))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, bool])
def test_integers_are_converted(eager_xp, dtype):
    proximity = ax.as_proximity(eager_xp.array(np.eye(3), dtype))
    assert "float64" in str(proximity.array.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_kept(eager_xp, dtype):
    w = eager_xp.array(np.eye(3), dtype)
    assert ax.as_proximity(w).array is w


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="float32 or float64, got float16; use astype"):
        ax.as_proximity(np.eye(3, dtype=np.float16))


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match=r"W is a masked array; fill it with W\.filled\(0\)"):
        ax.as_proximity(np.ma.masked_equal(np.eye(3), 0.0))


@pytest.mark.parametrize("w", ["W.npy", None, 3.0, {"a": 1}])
def test_not_an_array(w):
    with pytest.raises(
        TypeError, match="W must be a two-dimensional array, a sparse matrix or a Proximity, got"
    ):
        ax.as_proximity(w)


def test_lists_and_proximities_are_taken():
    proximity = ax.as_proximity([[1, 2], [2, 1]])
    assert ax.as_proximity(proximity) is proximity
    assert repr(proximity) == "Dense(n=2, dtype=float64, library=numpy)"


def products(n, dtype=np.float64, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3)).astype(dtype)
    return x @ x.T


def no_comparison(*args):
    raise AssertionError("compared entry by entry")


def without_comparison(monkeypatch):
    monkeypatch.setattr(checks, "_check_entries", no_comparison)
    monkeypatch.setattr("affect_xp.proximity.checks.has_kernels", lambda w, k=1: False)  # its kernel compares


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_symmetric_matrices_are_read_once(xp, small_blocks, monkeypatch, dtype, order):
    without_comparison(monkeypatch)
    w = products(150, dtype)
    if order == "strided":
        w = np.repeat(np.repeat(w, 2, axis=0), 2, axis=1)[::2, ::2]
    ax.as_proximity(xp.array(np.asarray(w, order=order) if order == "F" else w))


def test_sums_in_float32_are_repeated_in_float64(eager_xp, monkeypatch):
    without_comparison(monkeypatch)
    monkeypatch.setitem(checks.SUSPECT, "float32", 1e-9)  # far below the rounding of float32
    ax.as_proximity(eager_xp.array(products(150, np.float32), np.float32))


@pytest.mark.parametrize("seed", range(5))
def test_the_smallest_asymmetry_is_found(xp, small_blocks, seed):
    rng, w = np.random.default_rng(seed), products(200, seed=seed)
    i, j = np.sort(rng.choice(200, 2, replace=False))
    w[j, i] += 1.01e-8 * np.max(np.abs(w))
    with pytest.raises(ValueError, match=rf"W is not symmetric: W\[{i}, {j}\]"):
        ax.as_proximity(xp.array(w))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_place_hides_a_number_that_is_not_finite(eager_xp, small_blocks, value):
    for i, j in np.ndindex(5, 5):
        w = np.ones((5, 5))
        w[i, j] = value
        with pytest.raises(ValueError, match=rf"must be finite, but W\[{i}, {j}\] = {value}"):
            ax.as_proximity(eager_xp.array(w))


def test_sums_may_overflow(eager_xp):
    checked, size = checks.checked_array(eager_xp.array(np.full((5, 5), 1e308)), "W")
    assert checked.shape == (5, 5)
    assert size == 1e308


def test_differences_are_those_of_rows_and_columns(eager_xp, monkeypatch):
    monkeypatch.setattr(checks, "BLOCK_ROWS", 5)
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 5 * 23 * 8)
    w = np.random.default_rng(0).normal(size=(23, 23))  # not symmetric at all
    v = np.random.default_rng(1).normal(size=23)
    right, down = checks._halves(eager_xp.array(w), eager_xp.array(v))
    first = 5 * (np.arange(23) // 5)
    expected = [sum((w[i, j] - w[j, i]) * v[j] for j in range(first[i], 23)) for i in range(23)]
    np.testing.assert_allclose(eager_xp.numpy(right - down), expected, atol=1e-12)


def test_the_size_is_that_of_the_largest_entry(xp, small_blocks):
    for factor in (1e-200, 1.0, 1e200):
        w = factor * products(60)
        size = checks.checked_array(xp.array(w), "W")[1]
        assert np.max(np.abs(w)) / 100 < size < 4 * 60 * np.max(np.abs(w))
