"""Convert arrays and matrices to proximities, with checks that need no n×n temporary."""

import math
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    as_array,
    can_sum_rows,
    device_of,
    for_each_block,
    from_host,
    has_kernels,
    is_array,
    is_by_columns,
    on_input_device,
    put,
    row_blocks,
    square_tiles,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Partition
from affect_xp.proximity._base import TOLERANCE, Proximity, check_square, checked_dtype, log2
from affect_xp.proximity.checks_sparse import checked_sparse
from affect_xp.proximity.chunked import Chunked, checked_and_summed, probe
from affect_xp.proximity.dense import Dense, label_sums
from affect_xp.proximity.sparse import Sparse, is_sparse

# Check symmetry with a random vector v, with 1 ≤ |vⱼ| < 1.5 and random signs. In
#
#     rᵢ = Σ_{j≥i} wᵢⱼvⱼ − Σ_{j≥i} wⱼᵢvⱼ
#
# an asymmetric pair adds at least its difference to one rᵢ, and NaN and infinity propagate. Each entry is
# used once, while its block of rows is in cache. If an |rᵢ| exceeds this share of (a lower bound of) the
# largest entry, float32 is summed in float64 and, if it still does, W is compared with Wᵀ entry by entry.
SUSPECT = {"float64": 1e-10, "float32": 7.5e-5}

# Rows per block on the host; columns per block, which keep sums in float32 short; and independent sums over
# blocks, which threads may compute in any order.
BLOCK_ROWS = 64
NARROW_COLUMNS = 1024
N_SUMS = 8

# Rows that are read for a lower bound of the largest entry.
SAMPLE_ROWS = 64


@on_input_device
def as_proximity(w: Array | Proximity, name: str = "W") -> Proximity:
    """Return `w` as a proximity, after checking that it is square, symmetric, real and finite.

    A `Proximity` is returned unchanged, a dask array becomes `Chunked`, a sparse matrix `Sparse`, any other
    array `Dense`. The checks read the matrix once, need no n×n temporary, and wait once for a device.

    Parameters
    ----------
    w : (n, n) array of any library, sparse matrix of SciPy or CuPy, nested lists, or Proximity
        float32 and float64 are kept, integers and booleans become float64. Asymmetry up to 1e-8
        (float32: 1e-4) of the largest entry is attributed to rounding.
    name : str
        The name used in messages.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.as_proximity(np.eye(3))
    Dense(n=3, dtype=float64, library=numpy)
    >>> ax.as_proximity(np.array([[1.0, 2.0], [3.0, 1.0]]))
    Traceback (most recent call last):
    ...
    affect_xp.exceptions.InputError: W is not symmetric: W[0, 1] = 2.0 but W[1, 0] = 3.0; ...
    """
    if isinstance(w, Proximity):
        return w
    if isinstance(w, list | tuple):
        w = as_array(w)
    if not is_array(w):
        if is_sparse(w):
            matrix, size = checked_sparse(w, name)
            return Sparse(matrix, known_magnitude=log2(size))
        raise InputTypeError(
            f"{name} must be a two-dimensional array, a sparse matrix or a Proximity, got "
            f"{type(w).__name__}; "
            "convert it with the asarray of NumPy, CuPy or another array library"
        )
    w, size = checked_array(w, name)
    return held(w, log2(size))


def held(w: Array, known_magnitude: float | None = None) -> Dense | Chunked:
    """Return a symmetric array as the proximity that holds arrays of its library."""
    return (Chunked if Chunked.can_hold(w) else Dense)(w, known_magnitude=known_magnitude)


def is_plain(w: Any) -> TypeGuard[np.ndarray]:
    """Tell whether w is an n×n array of floats, of NumPy or of dask with NumPy chunks.

    `summed_proximity` can check and sum it at once.
    """
    return (
        can_sum_rows(w._meta if Chunked.can_hold(w) else w)
        and w.ndim == 2
        and w.shape[0] == w.shape[1] > 0
        and w.dtype in (np.float32, np.float64)
        and w.dtype.isnative
    )


def summed_proximity(
    w: Array | Proximity, name: str, partition: Partition, squares: str = "blocks"
) -> Proximity:
    """Return `w` as `as_proximity` does; a NumPy or dask array is summed by label in the pass that checks it.

    Squares are summed by "blocks", or in "total". Labels of another number of objects are not used.
    """
    if not is_plain(w) or w.shape[0] != partition.n or not can_sum_rows(partition.labels):
        return as_proximity(w, name)
    v = _probe_vector(w.shape[0])
    if Chunked.can_hold(w):
        W, differences, least = checked_and_summed(w, v, max(1, w.shape[0] // SAMPLE_ROWS), partition)
        is_symmetric = float(np.abs(differences).max()) <= SUSPECT[_dtype_name(w)] * least < math.inf
        return W if is_symmetric else as_proximity(w, name)
    sums = label_sums(w, partition, v, squares=squares)
    difference, size, least = _compared(w, sums.right, sums.down)
    if not difference <= SUSPECT[_dtype_name(w)] * least < math.inf:
        size = checked_array(w, name)[1]
    return Dense(w, known_magnitude=log2(size), sums=sums, square_sum=sums.square_sum)


def checked_array(w: Array, name: str) -> tuple[Array, float]:
    """Return w as an array and its magnitude; raise unless it is real, finite, square and symmetric.

    The magnitude is the largest |wᵢⱼ| up to a factor of about 4n, without another pass over w.
    """
    if isinstance(w, np.ma.MaskedArray):
        raise InputTypeError(f"{name} is a masked array; fill it with {name}.filled(0), or leave objects out")
    w = checked_dtype(w, name)
    of_features = "from features X compute it first, for instance X @ X.T, or give the model proximity='dot'"
    check_square(w, name, of_features)
    if has_kernels(w):  # compares all entries in one read
        return w, _check_entries(w, name)
    for dtype in dict.fromkeys([w.dtype, wide_dtype(w)]):
        difference, size, least = _probe(w, dtype)
        if difference <= SUSPECT[_dtype_name(w)] * least < math.inf:
            return w, size
    return w, _check_entries(w, name)


def _check_entries(w: Array, name: str) -> float:
    """Return the largest |wᵢⱼ|; raise if w is not finite or not symmetric."""
    largest, asymmetry = _extremes(w)
    if not math.isfinite(largest):
        i, j, value, _ = _first(w, lambda block, _: ~np.isfinite(block))
        raise InputError(
            f"{name} must be finite, but {name}[{i}, {j}] = {value}; "
            "leave out objects without data, or fill them in"
        )
    tolerance = TOLERANCE[_dtype_name(w)] * largest
    if asymmetry > tolerance:
        i, j, value, mirrored = _first(w, lambda block, mirror: np.abs(block - mirror) > tolerance)
        raise InputError(
            f"{name} is not symmetric: {name}[{i}, {j}] = {value} but {name}[{j}, {i}] = {mirrored}; "
            f"use ({name} + {name}.T) / 2 if either half will do"
        )
    return largest


def _dtype_name(w: Array) -> str:
    return "float32" if w.dtype == array_namespace(w).float32 else "float64"


@own_threads()
def _probe(w: Array, dtype: object) -> tuple[float, float, float]:
    """Return max |rᵢ|, max |Σⱼ wᵢⱼvⱼ| and a lower bound of max |wᵢⱼ| as numbers, with one transfer.

    Products are computed in the given dtype. NaN and infinite entries make the first number NaN or infinite.
    """
    if Chunked.can_hold(w):
        v, step = _probe_vector(w.shape[0]), max(1, w.shape[0] // SAMPLE_ROWS)
        right, down, least = probe(w, v, step, dtype)
        with np.errstate(invalid="ignore"):
            return float(np.abs(right - down).max()), float(np.abs(right).max()), least
    v = from_host(_probe_vector(w.shape[0]), w, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        right, down = _halves(w.T if is_by_columns(w) else w, v)
        return _compared(w, right, down)


def _probe_vector(n: int) -> np.ndarray:
    """Return v, (n,), with 1 ≤ |vⱼ| < 1.5."""
    v = np.random.default_rng(0).uniform(-0.5, 0.5, n)
    return v + np.sign(v)


def _compared(w: Array, right: Array, down: Array) -> tuple[float, float, float]:
    """Return the numbers of `_probe`, given Σⱼ wᵢⱼvⱼ and Σⱼ wⱼᵢvⱼ."""
    xp, n = array_namespace(w), w.shape[0]
    with np.errstate(invalid="ignore", over="ignore"):
        sample = w[:: max(1, n // SAMPLE_ROWS), :]
        least = xp.maximum(xp.max(xp.abs(sample)), xp.max(xp.abs(xp.linalg.diagonal(w))))
        seen = [xp.max(xp.abs(right - down)), xp.max(xp.abs(right)), xp.astype(least, right.dtype)]
        found = to_host(xp.stack(seen), reason="checking symmetry")[0].tolist()
    return found[0], found[1], found[2]


def _halves(w: Array, v: Array) -> tuple[Array, Array]:
    """Return Σ_{j≥i} wᵢⱼvⱼ and Σ_{j≥i} wⱼᵢvⱼ, (n,); j starts at the first row of the block of i."""
    xp, n, wide = array_namespace(w), w.shape[0], wide_dtype(w)
    right = xp.zeros(n, dtype=wide, device=device_of(w))
    down = xp.zeros((N_SUMS, n), dtype=wide, device=device_of(w))
    blocks = list(row_blocks(w, host_rows=BLOCK_ROWS))
    parts = list(row_blocks(w, n_columns=1, host_rows=n if v.dtype == wide else NARROW_COLUMNS))

    def add(s: int) -> None:
        nonlocal right, down
        for rows in blocks[s::N_SUMS]:
            block = xp.astype(w[rows, :], v.dtype, copy=False)
            for part in parts:
                if part.stop > rows.start:
                    columns = slice(max(part.start, rows.start), part.stop)
                    right = put(right, rows, right[rows] + xp.astype(block[:, columns] @ v[columns], wide))
            above = down[s, : rows.stop] + xp.astype(v[rows] @ block[:, : rows.stop], wide)
            down = put(down, (s, slice(rows.stop)), above)

    for_each_block(add, range(min(N_SUMS, len(blocks))), w)
    return right, xp.sum(down, axis=0)


def _extremes(w: Array) -> tuple[float, float]:
    """Return max |wᵢⱼ| and max |wᵢⱼ − wⱼᵢ| as numbers, with one transfer; NaN shows in both."""
    if has_kernels(w):
        read = to_host(cuda.extremes(w), reason="checking symmetry")[0]
        return float(read[0]), float(read[1])
    xp = array_namespace(w)
    largest = asymmetry = xp.zeros((), dtype=w.dtype, device=device_of(w))
    with np.errstate(invalid="ignore"):  # inf − inf
        for rows, columns in square_tiles(w):
            tile, mirror = w[rows, columns], w[columns, rows].T
            largest = xp.maximum(largest, xp.maximum(xp.max(xp.abs(tile)), xp.max(xp.abs(mirror))))
            asymmetry = xp.maximum(asymmetry, xp.max(xp.abs(tile - mirror)))
        read = to_host(xp.stack([largest, asymmetry]), reason="checking symmetry")[0]
    return float(read[0]), float(read[1])


def _first(w: Array, is_bad: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> tuple[int, int, float, float]:
    """Return i, j, wᵢⱼ and wⱼᵢ of the first bad entry; there must be one."""
    for rows in row_blocks(w):
        block = to_host(w[rows, :], reason="finding the bad entry")[0]
        mirror = to_host(w[:, rows], reason="finding the bad entry")[0].T
        places = np.argwhere(is_bad(block, mirror))
        if len(places):
            i, j = places[0]
            return rows.start + int(i), int(j), block[i, j].item(), mirror[i, j].item()
    raise AssertionError("no bad entry found")
