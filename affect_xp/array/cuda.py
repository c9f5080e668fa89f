"""CuPy kernels for dense matrices: one pass over memory instead of one per array operation.

Each function has a twin in the array API standard, which all other libraries use; the caller chooses by
`has_kernels`. Sums are in float64 and without atomic additions of floats, so their bits do not depend on the
order in which threads run. An entry of W is read from memory once, unless there are more clusters than
`MAX_BINS`.
"""

import functools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.array.typing import Array

LANES = 32
SHARED_BYTES = 48 * 1024  # of a block, on every device
MAX_WARPS = 8  # in a block
MAX_BINS = 96  # of a warp; more clusters than these take another read of W
MAX_COUNTS = 8192  # of clusters in all runs, which a block counts in shared memory
TILE = 32  # of the check of symmetry
SLICES = 8  # blocks that share a row of tiles

SOURCE = Path(__file__).with_name("kernels.cu")

TEMPLATES = tuple(
    f"{name}<{kind}>"
    for name in ("products", "residuals", "regroup", "blend", "extremes")
    for kind in ("float", "double")
)


def products(w: Array, labels: Array, k: int) -> Array:
    """Return W·Z, (n, R·k), in float64, given the labels (n, R); -1 for objects in no cluster."""
    n, runs = labels.shape
    out = _cupy().empty((n, runs * k))
    short = labels.astype(np.int16, order="C")
    for first, width in _pieces(runs * k, 1):
        _by_rows("products", w, width, (short, n, *_ints(runs, k, first, width), out))
    return out


def block_residuals(w: Array, labels: Array, guess: Array, z: Array) -> tuple[Array, Array]:
    """Return Σ (g − wᵢⱼ) and Σ (g − wᵢⱼ)² over i ≠ j of each block, (k, k), for a guess g per block."""
    n, k = labels.shape[0], guess.shape[0]
    cupy = _cupy()
    out = cupy.empty((n, 2 * k))
    short, guess = labels.astype(np.int16), cupy.ascontiguousarray(guess, dtype=np.float64)
    for first, width in _pieces(k, 2):
        _by_rows("residuals", w, 2 * width, (short, guess, n, *_ints(k, first, width), out))
    total = z.T @ out
    return total[:, :k], total[:, k:]


def moved_products(
    wz: Array, w: Array, objects: Array, before: Array, after: Array, places: Array | None = None
) -> Array:
    """Return W·Z after some objects have changed clusters, given all labels before and after, (n', R).

    `places` are the positions of the objects in W if they differ, -1 for objects that are not in W.
    """
    n, runs = w.shape[0], after.shape[1]
    k, out = wz.shape[1] // runs, _cupy().empty(wz.shape)
    wz, objects, before, after = *_in_order(np.float64, wz), *_in_order(np.int64, objects, before, after)
    (places,) = _in_order(np.int64, places)
    for first, width in _pieces(runs * k, 1):
        warps, bounds = _n_warps(width), _ints(runs, k, first, width)
        given = (objects, places, *_ints(objects.shape[0]), before, after, n, *bounds, wz, out)
        _run("regroup", w, -(-n // LANES), (LANES, warps), width * warps, given)
    return out


def blend(
    w: Array,
    past: Array,
    alpha: Array | float,
    *,
    source: Array | None = None,
    out: Array | None = None,
    labels: Array | None = None,
    k: int = 0,
) -> tuple[Array, Array | None]:
    """Return α·past + (1 − α)·W and, given labels (n,), its product with Z, (n, k).

    With a source, the past of object i is at source[i]; objects at -1 have no past and keep W. The result may
    overwrite `out`, which may be the past if there is no source.
    """
    cupy, n = _cupy(), w.shape[0]
    out = cupy.empty((n, n), dtype=w.dtype) if out is None else out
    width = k if labels is not None and k <= MAX_BINS else 0
    product = cupy.empty((n, k)) if width else None
    short = labels.astype(np.int16) if labels is not None and width else None
    (source,) = _in_order(np.int64, source)
    matrices = [y for x in (past, out) for y in (x, x.strides[0] // x.itemsize)]
    given = (*matrices, source, *_weight(alpha), short, n, *_ints(k, width), product)
    _by_rows("blend", w, width, given)
    return out, products(out, labels[:, None], k) if labels is not None and not width else product


def extremes(w: Array) -> Array:
    """Return max |wᵢⱼ| and max |wᵢⱼ − wⱼᵢ|, (2,), in float64; the first is NaN if an entry is not finite."""
    n_tiles = -(-w.shape[0] // TILE)
    out = _cupy().empty((n_tiles * SLICES, 2))
    _run("extremes", w, (n_tiles, SLICES), (TILE, 8), 0, (w.shape[0], out))
    return out.max(axis=0)


def lloyd_assign(
    wz: Array, past: Array | None, alpha: Array | float | None, w_ii: Array, labels: Array, k: int
) -> tuple[Array, Array, Array, Array]:
    """Return the nearest centroids, (n, R), the moved objects, the sizes, (R, k), and a report.

    The product with Z is `wz`, or wz + α·(past − wz). The report for the host, (2R + 2,), holds the number of
    objects that move in each run and in any run, the number of empty clusters, and the sum of squares of each
    run before the moves. Only as many entries of the moved objects are set as objects move in any run.
    """
    cupy, (n, runs) = _cupy(), labels.shape
    bins = runs * k
    (wz, w_ii), (labels,) = _in_order(np.float64, wz, w_ii), _in_order(np.int64, labels)
    (past,) = _in_order(np.float64, past)
    mixed = (past, *_weight(0.0 if alpha is None else alpha))
    sums, report = cupy.empty((3, bins)), cupy.empty(2 * runs + 2)
    found, rows = cupy.empty(labels.shape, dtype=np.int64), cupy.empty(n, dtype=np.int64)
    moves, counts = cupy.empty(n, dtype=np.uint8), cupy.zeros(bins + runs, dtype=np.int32)
    _run("cluster_sums", None, bins, (256,), 0, (wz, *mixed, w_ii, labels, n, *_ints(runs, k), sums))
    given = (wz, *mixed, sums, labels, n, *_ints(runs, k), found, moves, counts)
    _run("nearest", None, -(-n // 256), (256,), (bins + runs + 1) // 2, given)
    _run("conclude", None, 1, (1024,), 0, (sums, counts, moves, n, *_ints(runs, k), rows, report))
    return found, rows, counts[:bins].reshape(runs, k), report


# Small arrays cost launches, not bytes: one kernel replaces several operations of the standard.
ELEMENTWISE = {
    "ratio": ("T total, T count", "T out", "out = count > 0 ? total / count : (T)0"),
    "not_zero": ("T count", "T out", "out = count > 0 ? count : (T)1"),
    "not_negative": ("T index", "T out", "out = index < 0 ? (T)0 : index"),
    "one_hot": ("raw L labels, int64 k", "T hot", "hot = labels[i / k] == (L)(i % k)"),
    "gather": (
        "raw T x, raw L index, int64 width, T fill",
        "T out",
        "const long long from = index[i / width]; out = from < 0 ? fill : x[from * width + i % width]",
    ),
}


def ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where the count is not positive; both have the same dtype."""
    return _elementwise("ratio")(total, count)


def not_zero(count: Array) -> Array:
    """Return counts with 0 replaced by 1."""
    return _elementwise("not_zero")(count)


def not_negative(index: Array) -> Array:
    """Return an index with negative numbers replaced by 0."""
    return _elementwise("not_negative")(index)


def one_hot(labels: Array, k: int, dtype: object) -> Array:
    """Return the membership Z, labels along its first axes and clusters along the last."""
    return _elementwise("one_hot")(labels, k, _cupy().empty((*labels.shape, k), dtype=dtype))


def gather(x: Array, index: Array, fill: float) -> Array:
    """Return x[index] along the first axis, and `fill` where the index is negative."""
    shape = (*index.shape, *x.shape[1:])
    width = math.prod(x.shape[1:])
    return _elementwise("gather")(x, index, width, fill, _cupy().empty(shape, dtype=x.dtype))


@functools.cache
def _elementwise(name: str) -> Any:
    return _cupy().ElementwiseKernel(*ELEMENTWISE[name], f"affect_xp_{name}")


def _cupy() -> Any:
    return sys.modules["cupy"]


@functools.cache
def _module(device: int) -> Any:
    """Return the kernels, compiled for the current device at first use."""
    return _cupy().RawModule(
        code=SOURCE.read_text(encoding="utf-8"), options=("-std=c++17",), name_expressions=TEMPLATES
    )


@functools.cache
def _kernel(device: int, name: str) -> Any:
    return _module(device).get_function(name)


def _weight(alpha: Array | float) -> tuple[Array | None, float]:
    """Return α as an array on the device, or as a number."""
    if isinstance(alpha, _cupy().ndarray):
        return alpha.astype(np.float64, copy=False), 0.0
    return None, float(alpha)


def _in_order(dtype: type, *arrays: Array | None) -> tuple[Any, ...]:
    """Return contiguous arrays of the given dtype, copied only if needed."""
    return tuple(None if x is None else _cupy().ascontiguousarray(x, dtype=dtype) for x in arrays)


def _ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as C `int`; Python integers are passed as `long long`."""
    return tuple(np.int32(value) for value in values)


def _pieces(n_bins: int, n_kinds: int) -> list[tuple[int, int]]:
    """Return (first, width) of the groups of bins that fit into a warp, with `n_kinds` values per bin."""
    most = MAX_BINS // n_kinds
    return [(first, min(most, n_bins - first)) for first in range(0, n_bins, most)]


def _n_warps(n_bins: int) -> int:
    """Return how many warps with this number of bins fit into a block."""
    return max(1, min(MAX_WARPS, SHARED_BYTES // (8 * LANES * max(1, n_bins))))


def _by_rows(name: str, w: Array, n_bins: int, given: tuple[Any, ...]) -> None:
    """Run a kernel with one warp for each row of W."""
    warps = _n_warps(n_bins)
    _run(name, w, -(-w.shape[0] // warps), (LANES, warps), n_bins * warps, given)


def _run(
    name: str,
    w: Array | None,
    grid: int | tuple[int, int],
    block: tuple[int, ...],
    n_bins: int,
    given: tuple[Any, ...],
) -> None:
    """Start a kernel, for the dtype of W if given; a bin takes 8 bytes of shared memory per lane."""
    lanes = LANES if w is not None else 1
    if w is not None:
        name = f"{name}<{'float' if w.dtype.itemsize == 4 else 'double'}>"
        given = (w, w.strides[0] // w.itemsize, *given)
    kernel = _kernel(_cupy().cuda.Device().id, name)
    kernel(grid if isinstance(grid, tuple) else (grid,), block, given, shared_mem=8 * lanes * n_bins)
