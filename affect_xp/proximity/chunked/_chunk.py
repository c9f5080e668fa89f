"""Operations on one chunk of a proximity matrix: functions of arrays of any library.

The rows and columns of a chunk are different objects, except on the diagonal. A chunk off the diagonal also
represents its transpose. Chunks are widened to float64 one block of rows at a time, and never written to.
"""

from collections.abc import Callable

import numpy as np

from affect_xp.array.namespace import (
    WIDENED_ROWS,
    array_namespace,
    can_sum_rows,
    device_of,
    from_host,
    is_array,
    one_hot,
    ratio,
    row_blocks,
    to_host,
    wide_dtype,
    widened_blocks,
)
from affect_xp.array.typing import Array
from affect_xp.proximity._base import MIN_OFF_DIAGONAL_SHARE, MIN_SHARE_LEFT


def chunk_diagonal(w: Array) -> Array:
    """Return the diagonal of a chunk in wide floats."""
    xp = array_namespace(w)
    return xp.astype(xp.linalg.diagonal(w), wide_dtype(w))


def chunk_probe(
    w: Array, v_rows: np.ndarray, v_columns: np.ndarray, sample: slice, dtype: object, on_diagonal: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return W·v and Wᵀ·v in some precision, and the largest |wᵢⱼ| of some rows and the diagonal."""
    xp, wide = array_namespace(w), wide_dtype(w)
    v_r, v_c = from_host(v_rows, w, dtype), from_host(v_columns, w, dtype)
    right, down = [], xp.zeros(w.shape[1], dtype=wide, device=device_of(w))
    with np.errstate(invalid="ignore", over="ignore"):
        for rows, x in widened_blocks(w, dtype):
            right.append(xp.astype(x @ v_c, wide))
            down += xp.astype(v_r[rows] @ x, wide)
        seen = [xp.max(xp.abs(w[sample, :]))] if sample.start < w.shape[0] else []
        seen += [xp.max(xp.abs(xp.linalg.diagonal(w)))] if on_diagonal else []
        largest = xp.max(xp.stack(seen)) if seen else down[0] * 0
    arrays = xp.concat(right), down, xp.astype(largest, wide)
    found = to_host(*arrays, reason="checking symmetry")
    return found[0], found[1], float(found[2])


def chunk_products(
    w: Array, v_rows: Array, v_columns: Array, on_diagonal: bool
) -> tuple[Array, Array | None]:
    """Return W·V for the columns and, off the diagonal, Wᵀ·V for the rows, in the precision of V."""
    xp = array_namespace(w, v_columns)
    right, down = [], None
    for rows, x in widened_blocks(w, v_columns.dtype):
        right.append(x @ v_columns)
        if not on_diagonal:
            part = v_rows[rows, :].T @ x
            down = part if down is None else down + part
    return xp.concat(right), None if down is None else down.T


def chunk_moments_and_products(
    w: Array, c_rows: Array, c_columns: Array, k: int, on_diagonal: bool
) -> tuple[Array, tuple[Array, Array | None]]:
    """Return `chunk_moments`, and `chunk_products` with the memberships, in one pass if digits allow it.

    μ = S/N,   Σ(w − μ)² = Q − Nμ²,   S = Z_rᵀ(WZ_c),   Q = Z_rᵀ(W² Z_c)
    """
    wide = wide_dtype(w)
    z_rows, z_columns = one_hot(c_rows, k, wide), one_hot(c_columns, k, wide)
    if not can_sum_rows(w):
        products = chunk_products(w, z_rows, z_columns, on_diagonal)
        return centred_moments(w, c_rows, c_columns, k, on_diagonal), products
    right, down, q = np.empty((len(w), k)), np.zeros((k, w.shape[1])), np.zeros((k, k))
    square = np.empty((WIDENED_ROWS, w.shape[1]))
    for rows, x in widened_blocks(w, wide):
        np.matmul(x, z_columns, out=right[rows])
        if not on_diagonal:
            down += z_rows[rows].T @ x
        with np.errstate(over="ignore"):
            squares = np.multiply(x, x, out=square[: len(x)])
        q += z_rows[rows].T @ (squares @ z_columns)
    m_rows, m_columns, s = z_rows.sum(axis=0), z_columns.sum(axis=0), z_rows.T @ right
    count, own = m_rows[:, None] * m_columns, np.zeros(k)
    if on_diagonal:
        w_ii = chunk_diagonal(w)
        own = (w_ii * w_ii) @ z_rows
        count, s, q = count - np.diag(m_rows), s - np.diag(w_ii @ z_rows), q - np.diag(own)
    means = ratio(s, count)
    left = q - count * means * means
    exact = (left >= MIN_SHARE_LEFT * q) & (q >= MIN_OFF_DIAGONAL_SHARE * np.diag(own)) & (q < np.inf)
    moments = np.stack([count, means, np.where(count > 1, left, 0.0)])
    if not (exact | (count <= 1)).all():
        moments = centred_moments(w, c_rows, c_columns, k, on_diagonal)
    elif not on_diagonal:
        moments = merged_moments(np.stack([moments, moments.transpose(0, 2, 1)]))
    return moments, (right, None if on_diagonal else down.T)


def chunk_block_squares(w: Array, z_rows: Array, z_columns: Array, on_diagonal: bool) -> Array:
    """Return Z_rᵀ(W² Z_c): Σ wᵢⱼ² of each block over a chunk and its transpose, (k, k)."""
    total: Array = 0
    for rows, x in widened_blocks(w, z_columns.dtype):
        total = total + z_rows[rows, :].T @ ((x * x) @ z_columns)
    return total if on_diagonal else total + total.T


def chunk_squares_and_products(
    w: Array, z_rows: Array, z_columns: Array, on_diagonal: bool
) -> tuple[Array, tuple[Array, Array | None]]:
    """Return Σ wᵢⱼ² over the objects in clusters of a chunk and its transpose, and `chunk_products`."""
    squares = chunk_squares(w, z_rows, z_columns, on_diagonal)
    return squares, chunk_products(w, z_rows, z_columns, on_diagonal)


def chunk_squares(
    w: Array, z_rows: Array | None = None, z_columns: Array | None = None, on_diagonal: bool = True
) -> Array:
    """Return Σ wᵢⱼ² over the objects in clusters (None: all) of a chunk and its transpose, 0-d."""
    xp, wide = array_namespace(w), wide_dtype(w)
    total = xp.zeros((), dtype=wide, device=device_of(w))
    some = z_rows is not None and z_columns is not None
    in_rows, in_columns = (xp.sum(z, axis=1) for z in (z_rows, z_columns)) if some else (None, None)
    with np.errstate(over="ignore"):  # infinite, and not used, in units whose squares are out of range
        for rows, x in widened_blocks(w, wide):
            if in_rows is None or in_columns is None:
                flat = xp.reshape(x, (-1,))
                total = total + flat @ flat
            else:
                total = total + in_rows[rows] @ ((x * x) @ in_columns)
        return total if on_diagonal else 2 * total


def with_products(
    w: Array,
    function: Callable[..., Array],
    arguments: tuple,
    v_rows: Array,
    v_columns: Array,
    on_diagonal: bool,
) -> tuple[Array, tuple[Array, Array | None]]:
    """Return a function of a chunk, and the products of the chunk."""
    return function(w, *arguments), chunk_products(w, v_rows, v_columns, on_diagonal)


def some_products(
    w: Array, rows: tuple | None, columns: tuple | None, on_diagonal: bool
) -> tuple[Array | None, Array | None]:
    """Return W·V for some columns and, off the diagonal, Wᵀ·V for some rows; None if there are none.

    Both arguments are pairs of host indices and their part of V.
    """
    xp = array_namespace(w)

    def taken(index: np.ndarray, axis: int) -> Array:
        return xp.take(w, from_host(index, w), axis=axis)

    right = None if columns is None else product(taken(columns[0], 1), columns[1])
    down = None if rows is None or on_diagonal else mirrored_product(taken(rows[0], 0), rows[1])
    return right, down


def summed_sides(sides: list[int], *products: tuple[Array | None, Array | None]) -> Array:
    """Add up one side of each pair of products, if present."""
    chosen = [pair[side] for pair, side in zip(products, sides, strict=True)]
    return summed(*[product for product in chosen if product is not None])


def summed(*parts: Array) -> Array:
    """Return the sum of arrays."""
    return sum(parts[1:], parts[0])


def product(w: Array, v: Array) -> Array:
    """Return W·V in the precision of V."""
    xp = array_namespace(w, v)
    return xp.concat([xp.astype(w[rows, :], v.dtype, copy=False) @ v for rows in row_blocks(w)])


def mirrored_product(w: Array, v: Array) -> Array:
    """Return Wᵀ·V in the precision of V."""
    xp = array_namespace(w, v)
    parts = [v[rows, :].T @ xp.astype(w[rows, :], v.dtype, copy=False) for rows in row_blocks(w)]
    return summed(*parts).T


def chunk_moments(w: Array, c_rows: Array, c_columns: Array, k: int, on_diagonal: bool) -> Array:
    """Return N, μ and Σ(w − μ)² of each block over the entries of a chunk, (3, k, k).

    The entries wᵢᵢ are excluded; a chunk off the diagonal includes its transpose.
    """
    return chunk_moments_and_products(w, c_rows, c_columns, k, on_diagonal)[0]


def centred_moments(w: Array, c_rows: Array, c_columns: Array, k: int, on_diagonal: bool) -> Array:
    """Return the same as `chunk_moments`, from differences."""
    xp = array_namespace(w)
    z_columns = one_hot(c_columns, k, wide_dtype(w))
    m_columns = xp.sum(z_columns, axis=0)
    eye = xp.eye(k, dtype=z_columns.dtype, device=device_of(w)) if on_diagonal else 0.0
    parts = []
    for rows in row_blocks(w):
        z_rows = one_hot(c_rows[rows], k, z_columns.dtype)
        count = xp.sum(z_rows, axis=0)[:, None] * (m_columns[None, :] - eye)
        x = xp.astype(w[rows, :], z_columns.dtype, copy=False)
        x = _without_diagonal(x, rows) if on_diagonal else x
        means = ratio((z_rows.T @ x) @ z_columns, count)
        x = _residuals(x, rows, c_rows, means @ z_columns.T, on_diagonal)
        x *= x
        parts.append(xp.stack([count, means, (z_rows.T @ x) @ z_columns]))
    moments = merged_moments(xp.stack(parts))
    if on_diagonal:
        return moments
    return merged_moments(xp.stack([moments, xp.permute_dims(moments, (0, 2, 1))]))


def chunk_square_distance(
    w: Array, c_rows: Array, c_columns: Array, means: Array, on_diagonal: bool
) -> Array:
    """Return Σ (wᵢⱼ − μ_{cᵢcⱼ})² over the entries i ≠ j of a chunk and its transpose."""
    xp = array_namespace(w)
    z_columns = one_hot(c_columns, means.shape[0], wide_dtype(w))
    in_columns, by_column = xp.sum(z_columns, axis=1), means @ z_columns.T
    total = xp.zeros((), dtype=z_columns.dtype, device=device_of(w))
    for rows in row_blocks(w):
        x = _residuals(w[rows, :], rows, c_rows, by_column, on_diagonal)
        x *= x
        total = total + xp.astype(c_rows[rows] >= 0, x.dtype) @ (x @ in_columns)
    return total if on_diagonal else 2 * total


def _residuals(x: Array, rows: slice, c_rows: Array, by_column: Array, on_diagonal: bool) -> Array:
    """Return μ_{cᵢcⱼ} − wᵢⱼ for some rows of a chunk, given μ_{c cⱼ}, with zeros in place of μ − wᵢᵢ.

    The rows of unlabelled objects are arbitrary. The array is new and may be overwritten.
    """
    xp = array_namespace(x)
    c = c_rows[rows]
    residuals = xp.take(by_column, xp.where(c >= 0, c, xp.zeros_like(c)), axis=0)
    residuals -= x
    return _without_diagonal(residuals, rows) if on_diagonal else residuals


def _without_diagonal(x: Array, rows: slice) -> Array:
    """Return some rows of a chunk on the diagonal with zeros in place of wᵢᵢ."""
    xp = array_namespace(x)
    own = xp.eye(x.shape[0], x.shape[1], k=rows.start, dtype=xp.bool, device=device_of(x))
    return xp.where(own, xp.zeros_like(x), x)


def merged_moments(parts: Array) -> Array:
    """Return N, μ and Σ(w − μ)² of all entries from those of parts, (p, 3, k, k) → (3, k, k).

    N = ΣN_p,   μ = ΣN_pμ_p / N,   Σ(w − μ)² = Σ{ Σ_p(w − μ_p)² + N_p(μ_p − μ)² }
    """
    xp = array_namespace(parts)
    counts, means, squares = parts[:, 0, :, :], parts[:, 1, :, :], parts[:, 2, :, :]
    count = xp.sum(counts, axis=0)
    mean = ratio(xp.sum(counts * means, axis=0), count)
    return xp.stack([count, mean, xp.sum(squares + counts * (means - mean) ** 2, axis=0)])


def stacked_moments(*parts: Array) -> Array:
    """Return the moments of all entries from those of parts, each (3, k, k)."""
    return merged_moments(array_namespace(*parts).stack(parts))


def chunk_blend(
    w: Array, past: Array, alpha: Array | float, known_rows: Array | None, known_columns: Array | None
) -> Array:
    """Return α·past + (1 − α)·W for pairs of known objects (None: all), and W for the others."""
    xp = array_namespace(w, past)
    a = xp.astype(alpha, w.dtype) if is_array(alpha) else alpha
    if can_sum_rows(w) and known_rows is None:
        blended, share = np.empty_like(w), np.empty((WIDENED_ROWS, w.shape[1]), w.dtype)
        for rows in row_blocks(w, host_rows=WIDENED_ROWS):
            np.multiply(past[rows], a, out=blended[rows], casting="same_kind")
            blended[rows] += np.multiply(w[rows], 1 - a, out=share[: rows.stop - rows.start])
        return blended
    blended = xp.astype(a * past + (1 - a) * w, w.dtype, copy=False)
    if known_rows is None or known_columns is None:
        return blended
    return xp.where(known_rows[:, None] & known_columns[None, :], blended, w)


def chunk_blend_by_object(
    w: Array, past: Array, alpha: Array | float, s_rows: Array, s_columns: Array
) -> Array:
    """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ) in the precision of W; exactly symmetric."""
    xp = array_namespace(w, past)
    a = xp.astype(alpha, w.dtype) if is_array(alpha) else alpha
    s_rows, s_columns = (xp.astype(s, w.dtype, copy=False) for s in (s_rows, s_columns))
    parts = []
    for rows in row_blocks(w):
        block = xp.astype(past[rows, :], w.dtype) - w[rows, :]
        block *= s_rows[rows, None] * s_columns[None, :]
        block *= a
        block += w[rows, :]
        parts.append(block)
    return xp.concat(parts)


def chunk_block_products(
    w: Array, past: Array, c_rows: Array, c_columns: Array, k: int, on_diagonal: bool
) -> Array:
    """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block over the entries of a chunk and its transpose, (k, k)."""
    xp = array_namespace(w, past)
    z_columns, total = one_hot(c_columns, k, wide_dtype(w)), 0
    for rows in row_blocks(w):
        x = xp.astype(w[rows, :], z_columns.dtype) * past[rows, :]
        x = _without_diagonal(x, rows) if on_diagonal else x
        total = total + one_hot(c_rows[rows], k, z_columns.dtype).T @ (x @ z_columns)
    return total if on_diagonal else total + total.T  # type: ignore[attr-defined]


def chunk_with_absent(past: Array, known_rows: Array | None, dtype: object) -> Array:
    """Return a chunk of the past with zeros in the rows of unknown objects (None: all are known)."""
    xp = array_namespace(past)
    if known_rows is not None:
        past = xp.where(known_rows[:, None], past, xp.zeros_like(past))
    return xp.astype(past, dtype, copy=False)


def chunk_copy(w: Array) -> Array:
    """Return a copy of a chunk."""
    return array_namespace(w).asarray(w, copy=True)
