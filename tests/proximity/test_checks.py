"""What is wrong with a matrix, and where."""

import numpy as np
import pytest

import affect_xp as ax


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
