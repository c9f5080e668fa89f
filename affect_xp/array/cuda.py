"""Kernels for dense matrices of CuPy: what takes many passes over memory by array operations, in one.

Each function has a twin in the array API standard, which all other libraries use; the caller chooses by
`usable`. Sums are in float64 and without atomic additions of floats, so their bits do not depend on the order
in which threads run. An entry of W is read from memory once, unless there are more clusters than `MAX_BINS`.
"""

import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.array.typing import Array

__all__ = [
    "MAX_CLUSTERS",
    "blend",
    "block_residuals",
    "extremes",
    "lloyd_assign",
    "moved_products",
    "products",
    "usable",
]

LANES = 32
SHARED_BYTES = 48 * 1024  # of a block, on every device
MAX_WARPS = 8  # in a block
MAX_BINS = 96  # of a warp; more clusters than these take another read of W
MAX_CLUSTERS = 2**15 - 1  # labels are 16-bit integers: they stay in cache
TILE = 32  # of the check of symmetry
SLICES = 8  # blocks that share a row of tiles

SOURCE = Path(__file__).with_name("kernels.cu")

TEMPLATES = tuple(
    f"{name}<{kind}>"
    for name in ("products", "residuals", "regroup", "blend", "extremes")
    for kind in ("float", "double")
)


def usable(w: Array, k: int = 1) -> bool:
    """Tell whether the kernels can read W: of CuPy, float32 or float64, with adjacent entries in a row."""
    cupy = sys.modules.get("cupy")
    return (
        cupy is not None
        and isinstance(w, cupy.ndarray)
        and w.dtype.kind == "f"
        and w.dtype.itemsize in (4, 8)
        and w.strides[-1] == w.dtype.itemsize
        and k <= MAX_CLUSTERS
    )


def products(w: Array, labels: Array, k: int) -> Array:
    """Return W·Z, (n, R·k), in float64, given the labels (n, R); -1 for objects in no cluster."""
    n, runs = labels.shape
    out = _cupy().empty((n, runs * k))
    short = labels.astype(np.int16)
    for first, width in _pieces(runs * k, 1):
        _by_rows("products", w, width, (short, n, *_ints(runs, k, first, width), out))
    return out


def block_residuals(w: Array, labels: Array, guess: Array) -> tuple[Array, Array]:
    """Return Σ (g − wᵢⱼ) and Σ (g − wᵢⱼ)² over i ≠ j of each block, (k, k), with g the guess for it."""
    n, k = labels.shape[0], guess.shape[0]
    cupy = _cupy()
    out = cupy.empty((n, 2 * k))
    short, guess = labels.astype(np.int16), cupy.ascontiguousarray(guess, dtype=np.float64)
    for first, width in _pieces(k, 2):
        _by_rows("residuals", w, 2 * width, (short, guess, n, *_ints(k, first, width), out))
    z = (labels[:, None] == cupy.arange(k)).astype(np.float64)
    total = z.T @ out
    return total[:, :k], total[:, k:]


def moved_products(wz: Array, w: Array, rows: Array, before: Array, after: Array) -> Array:
    """Return W·Z for the labels `after`, (n, R), given that for `before`; they differ at `rows`."""
    n, runs = after.shape
    k, out = wz.shape[1] // runs, _cupy().empty_like(wz)
    for first, width in _pieces(runs * k, 1):
        warps = _n_warps(width)
        bounds = _ints(runs, k, first, width)
        given = (rows, *_ints(rows.shape[0]), before, after, n, *bounds, wz, out)
        _run("regroup", w, -(-n // LANES), (LANES, warps), width * warps, given)
    return out


def blend(
    w: Array, past: Array, alpha: Array | float, labels: Array | None = None, k: int = 0
) -> Array | None:
    """Overwrite the past with α·past + (1 − α)·W; given labels (n,), return its product with Z, (n, k)."""
    cupy, n = _cupy(), w.shape[0]
    alpha = cupy.asarray(alpha, dtype=np.float64)
    at_once = labels is not None and k <= MAX_BINS
    short = labels.astype(np.int16) if at_once and labels is not None else None
    out = cupy.empty((n, k)) if at_once else None
    width = k if at_once else 0
    given = (past, past.strides[0] // past.itemsize, alpha, short, n, *_ints(k, width), out)
    _by_rows("blend", w, width, given)
    if labels is None:
        return None
    return out if at_once else products(past, labels[:, None], k)


def extremes(w: Array) -> Array:
    """Return max |wᵢⱼ| and max |wᵢⱼ − wⱼᵢ|, (2,), in float64; the first is NaN if an entry is not finite."""
    n_tiles = -(-w.shape[0] // TILE)
    out = _cupy().empty((n_tiles * SLICES, 2))
    _run("extremes", w, (n_tiles, SLICES), (TILE, 8), 0, (w.shape[0], out))
    return out.max(axis=0)


def lloyd_assign(
    wz: Array, past: Array | None, alpha: Array | float | None, w_ii: Array, labels: Array, k: int
) -> tuple[Array, Array, Array, Array]:
    """Return the nearest centroids, (n, R), the objects that move, the sizes, (R, k), and a report.

    The product with Z is `wz`, or wz + α·(past − wz). The report is for the host, (2R + 2,): how many objects
    move in each run and in any, how many clusters are empty now, and the sum of squares of each run before.
    Only so many entries of the objects that move are set.
    """
    cupy, (n, runs) = _cupy(), labels.shape
    bins = runs * k
    mixed = (past, cupy.asarray(alpha, dtype=np.float64)) if past is not None else (None, None)
    sums, report = cupy.empty((3, bins)), cupy.empty(2 * runs + 2)
    found, rows = cupy.empty_like(labels), cupy.empty(n, dtype=np.int64)
    moves, counts = cupy.empty(n, dtype=np.uint8), cupy.zeros(bins + runs, dtype=np.int32)
    _run("cluster_sums", None, bins, (256,), 0, (wz, *mixed, w_ii, labels, n, *_ints(runs, k), sums))
    given = (wz, *mixed, sums, labels, n, *_ints(runs, k), found, moves, counts)
    _run("nearest", None, -(-n // 256), (256,), (bins + runs + 1) // 2, given)
    _run("conclude", None, 1, (1024,), 0, (sums, counts, moves, n, *_ints(runs, k), rows, report))
    return found, rows, counts[:bins].reshape(runs, k), report


def _cupy() -> Any:
    return sys.modules["cupy"]


@functools.cache
def _module(device: int) -> Any:
    """Return the kernels, compiled for the current device when one of them is first used."""
    return _cupy().RawModule(
        code=SOURCE.read_text(encoding="utf-8"), options=("-std=c++17",), name_expressions=TEMPLATES
    )


@functools.cache
def _kernel(device: int, name: str) -> Any:
    return _module(device).get_function(name)


def _ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as `int` of C; others are passed as `long long`."""
    return tuple(np.int32(value) for value in values)


def _pieces(n_bins: int, n_kinds: int) -> list[tuple[int, int]]:
    """Return (first, width) of bins that a warp can hold at a time, with so many kinds of them."""
    most = MAX_BINS // n_kinds
    return [(first, min(most, n_bins - first)) for first in range(0, n_bins, most)]


def _n_warps(n_bins: int) -> int:
    """Return how many warps with so many bins fit into a block."""
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
    """Start a kernel, for the dtype of W where there is one; a bin has 8 bytes of shared memory a lane."""
    lanes = LANES if w is not None else 1
    if w is not None:
        name = f"{name}<{'float' if w.dtype.itemsize == 4 else 'double'}>"
        given = (w, w.strides[0] // w.itemsize, *given)
    kernel = _kernel(_cupy().cuda.Device().id, name)
    kernel(grid if isinstance(grid, tuple) else (grid,), block, given, shared_mem=8 * lanes * n_bins)
