"""Products of a large NumPy array with a thin one, and sums of its rows.

BLAS repacks a large matrix before it multiplies, which pays off if each entry is used often. With a thin
matrix the repacking takes longer than the product. OpenBLAS computes small products without it (on processors
with AVX-512; on others nothing is lost), so a large product is computed in small tiles.
"""

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array.threads import n_threads, run_blocks

# Multiplications per tile: OpenBLAS computes products up to this size without repacking.
MIN_TILED_WORK = 10**6
# Tile heights are multiples of TILE_ROWS, which kernels hold in registers; with at most TILE_COLUMNS columns
# the thin matrix stays in cache.
TILE_ROWS, TILE_COLUMNS = 24, 2048
# Kernels of float64 compute this many columns at once. If only a few are missing, it is faster to add columns
# of zeros (of 5,000², in ms: 4 columns 15, 8 columns 12, 15 columns 23, 16 columns 18).
KERNEL_COLUMNS, MAX_ADDED = 8, 6
# Sums in shorter tiles are slower than those of BLAS.
MIN_TILE_HEIGHT = 64
# Longer sums are computed in parts, which is also more accurate.
LONG_SUM = 4096
# From this number of columns on, repacking pays off.
MIN_BLAS_COLUMNS = 40
# Multiplications that justify another thread.
WORK_PER_THREAD = 2**24
# Rows are added for so many columns at a time, unless the matrix has at most so many bytes: the processor
# then keeps it in cache.
ADDED_COLUMNS, CACHED_BYTES = 64, 2**24


def times(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return w·x for a large (n, m) w and a thin (m, c) x of the same dtype."""
    (n, m), c = w.shape, x.shape[1]
    if c >= MIN_BLAS_COLUMNS or w.strides[1] != w.itemsize:
        return w @ x
    n_more = -c % KERNEL_COLUMNS
    if w.dtype == np.float64 and m > TILE_COLUMNS and c < 2 * KERNEL_COLUMNS and 0 < n_more < MAX_ADDED:
        return times(w, np.concatenate([x, np.zeros((m, n_more))], axis=1))[:, :c]
    out, x = np.empty((n, c), dtype=w.dtype), np.ascontiguousarray(x)
    # A product with a single column never repacks.
    width = m if c == 1 else min(m, TILE_COLUMNS, MIN_TILED_WORK // (TILE_ROWS * c))
    height = max(1, MIN_TILED_WORK // (TILE_ROWS * width * c)) * TILE_ROWS
    if n * m * c < WORK_PER_THREAD:
        _fill(out, w, x, height, width)
        return out
    n_blocks = min(2 * n_threads(), 1 + n * m * c // WORK_PER_THREAD)
    step = -(-n // (n_blocks * height)) * height  # whole tiles: blocks do not change the order of sums

    def fill(start: int) -> None:
        rows = slice(start, start + step)
        _fill(out[rows], w[rows], x, height, width)

    run_blocks(fill, range(0, n, step))
    return out


def _fill(out: np.ndarray, w: np.ndarray, x: np.ndarray, height: int, width: int) -> None:
    """Write w·x into `out`, tile by tile."""
    (n, m), c = w.shape, x.shape[1]
    n_tiles = n // height
    whole = n_tiles * height
    for start in range(0, m, width):
        columns = slice(start, min(start + width, m))
        tiles = w[:whole, columns].reshape(n_tiles, height, columns.stop - start)  # no copy
        if start == 0:
            np.matmul(tiles, x[columns], out=out[:whole].reshape(n_tiles, height, c))
        else:
            out[:whole] += np.matmul(tiles, x[columns]).reshape(whole, c)
    if whole < n:
        np.matmul(w[whole:], x, out=out[whole:])


def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return aᵀ·b for tall (n, p) a and (n, c) b of the same dtype."""
    (n, p), c = a.shape, b.shape[1]
    height = min(LONG_SUM, MIN_TILED_WORK // max(1, p * c))
    n_tiles = n // height if height else 0
    if n_tiles < 2 or height < MIN_TILE_HEIGHT:
        return a.T @ b
    parts, whole = np.empty((n_tiles, p, c), dtype=a.dtype), n_tiles * height
    a_tiles = a[:whole].reshape(n_tiles, height, p).transpose(0, 2, 1)
    b_tiles = b[:whole].reshape(n_tiles, height, c)
    n_blocks = min(2 * n_threads(), n_tiles, 1 + n * p * c // WORK_PER_THREAD)
    step = -(-n_tiles // n_blocks)

    def fill(start: int) -> None:
        tiles = slice(start, start + step)
        np.matmul(a_tiles[tiles], b_tiles[tiles], out=parts[tiles])

    run_blocks(fill, range(0, n_tiles, step))
    total = parts.sum(axis=0)
    return total + a[whole:].T @ b[whole:] if whole < n else total


def is_cached(w: np.ndarray) -> bool:
    """Return whether rows of w can be added quickly in any order."""
    return w.dtype == np.float64 and w.flags.c_contiguous and w.nbytes <= CACHED_BYTES


def added_rows(w: np.ndarray, rows: np.ndarray, numbers: np.ndarray, signs: np.ndarray, n: int) -> np.ndarray:
    """Return the sum of the rows of w with each number 0 ... n-1, times their signs, as columns, (m, n).

    Rows may repeat. A product with a matrix of -1, 0 and 1 would multiply each row n times. A large w is
    read by blocks of columns, whose sums stay in cache.
    """
    short = numbers.astype(np.int16) if n < 2**15 else numbers  # NumPy sorts small integers in one sweep
    order, ends = np.argsort(short, kind="stable"), np.cumsum(np.bincount(numbers, minlength=n))
    used, width = np.bincount(rows, minlength=len(w)) > 0, w.shape[1] if is_cached(w) else ADDED_COLUMNS
    some = slice(None) if is_cached(w) or used.all() else np.flatnonzero(used)
    place = rows if isinstance(some, slice) else (np.cumsum(used) - 1)[rows]
    chosen = signs[order].astype(np.float64), place[order], np.concatenate([[0], ends])
    signed = scipy.sparse.csr_array(chosen, shape=(n, len(w) if isinstance(some, slice) else len(some)))
    sums = np.empty((w.shape[1], n))

    def fill(start: int) -> None:
        block = slice(start, start + width)
        sums[block] = (signed @ np.ascontiguousarray(w[some, block], dtype=np.float64)).T

    run_blocks(fill, range(0, w.shape[1], width))
    return sums


def sums_by_number(
    w: np.ndarray, numbers: np.ndarray, n: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the sum of the rows of w with each number 0 ... n-1, (n, m), given R numbers of each row.

    Rows may have weights; those with the number -1 are left out. A product with a matrix of 0 and 1 would
    multiply each row n times.
    """
    flat = numbers.reshape(-1)
    short = flat.astype(np.int16) if n < 2**15 else flat  # NumPy sorts small integers in one sweep
    order, ends = np.argsort(short, kind="stable"), np.cumsum(np.bincount(flat + 1, minlength=n + 1))
    rows = order[ends[0] :] // numbers.shape[1]
    values = np.ones(len(rows)) if weights is None else weights[rows]
    return scipy.sparse.csr_array((values, rows, ends - ends[0]), shape=(n, len(w))) @ w
