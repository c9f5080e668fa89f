"""Operations on one chunk of a proximity matrix: functions of arrays of any library.

The rows and columns of a chunk are different objects, except on the diagonal. A chunk off the diagonal also
represents its transpose. Chunks are widened to float64 one block of rows at a time, and never written to.
Labels come from the host, as small integers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    device_of,
    from_host,
    one_hot,
    ratio,
    row_blocks,
    to_host,
    wide_dtype,
    widened_blocks,
)
from affect_xp.array.typing import Array
from affect_xp.proximity._entries import add_between_groups, scaled
from affect_xp.proximity.chunked._spill import Kept, StoredChunk, opened
from affect_xp.proximity.grouped import guessed_means, is_narrow

# Rows with so many entries are summed at a time: they stay in cache, and BLAS multiplies them without a copy.
SUMMED_ENTRIES, MIN_SUMMED_ROWS = 2**16, 8
# So many entries of some columns are copied at a time, and so many rows multiplied by a vector.
TAKEN_ENTRIES, PROBED_ROWS = 2**13, 256

Labels = np.ndarray  # small integers, on the host


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
        parts = row_blocks(w, host_rows=PROBED_ROWS)
        blocks = ((rows, w[rows, :]) for rows in parts) if w.dtype == dtype else widened_blocks(w, dtype)
        for rows, x in blocks:
            right.append(xp.astype(x @ v_c, wide))
            down += xp.astype(v_r[rows] @ x, wide)
        largest = largest_of(w, sample, on_diagonal)
    found = to_host(xp.concat(right), down, xp.astype(largest, wide), reason="checking symmetry")
    return found[0], found[1], float(found[2])


def largest_of(w: Array, sample: slice, on_diagonal: bool) -> Array:
    """Return the largest |wᵢⱼ| of some rows and the diagonal; 0 if there are none."""
    xp = array_namespace(w)
    seen = [xp.max(xp.abs(w[sample, :]))] if sample.start < w.shape[0] else []
    seen += [xp.max(xp.abs(xp.linalg.diagonal(w)))] if on_diagonal else []
    return xp.max(xp.stack(seen)) if seen else xp.zeros((), dtype=w.dtype, device=device_of(w))


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


def label_products(
    w: Array, c_rows: Labels, c_columns: Labels, k: int, on_diagonal: bool
) -> tuple[Array, Array | None]:
    """Return `chunk_products` with the memberships of several partitions, given labels (·, R)."""
    if can_sum_rows(w) and c_rows.shape[1] == 1:
        return label_sums(w, c_rows[:, 0], c_columns[:, 0], k, on_diagonal, squares=False)[:2]
    return chunk_products(w, _memberships(c_rows, k, w), _memberships(c_columns, k, w), on_diagonal)


def _memberships(labels: Labels, k: int, like: Array, dtype: object = None) -> Array:
    """Return the concatenated memberships Z of several partitions, (·, R·k), by default in wide floats."""
    c = from_host(labels.astype(np.int64), like)
    z = one_hot(c, k, wide_dtype(like) if dtype is None else dtype)
    return array_namespace(z).reshape(z, (z.shape[0], -1)) if c.ndim > 1 else z


def chunk_sums(
    w: Array, c_rows: Labels, c_columns: Labels, k: int, on_diagonal: bool
) -> tuple[Array, Array | None, Array, Array | None]:
    """Return WZ, WᵀZ off the diagonal, Σ wᵢⱼ² of each block, and wᵢᵢ on the diagonal."""
    own = chunk_diagonal(w) if on_diagonal else None
    if can_sum_rows(w):
        right, down, q = label_sums(w, c_rows, c_columns, k, on_diagonal)
        return right, down, q, own
    z_rows, z_columns = _memberships(c_rows, k, w), _memberships(c_columns, k, w)
    right, down = chunk_products(w, z_rows, z_columns, on_diagonal)
    return right, down, block_squares(w, c_rows, c_columns, k, on_diagonal), own


def block_squares(w: Array, c_rows: Labels, c_columns: Labels, k: int, on_diagonal: bool) -> Array:
    """Return Z_rᵀ(W² Z_c): Σ wᵢⱼ² of each block over a chunk and its transpose, (k, k)."""
    if can_sum_rows(w):
        return label_sums(w, c_rows, c_columns, k, on_diagonal, products=False)[2]
    z_rows, z_columns = _memberships(c_rows, k, w), _memberships(c_columns, k, w)
    total: Array = 0
    for rows, x in widened_blocks(w, z_columns.dtype):
        total = total + z_rows[rows, :].T @ ((x * x) @ z_columns)
    return total if on_diagonal else total + total.T


def checked_sums(
    w: np.ndarray,
    labels: tuple[Labels, Labels],
    v: tuple[np.ndarray, np.ndarray],
    k: int,
    sample: slice,
    on_diagonal: bool,
) -> tuple:
    """Return `chunk_sums`, W·v, Wᵀ·v and the largest |wᵢⱼ| of some rows, in one pass over a NumPy chunk.

    `labels` and `v` are pairs: of the rows, and of the columns.
    """
    right, down, q, right_v, down_v = label_sums(w, labels[0], labels[1], k, on_diagonal, v=v)
    own = chunk_diagonal(w) if on_diagonal else None
    return right, down, q, own, right_v, down_v, largest_of(w, sample, on_diagonal)


@np.errstate(over="ignore", invalid="ignore")  # where entries, or their squares, are not finite
def label_sums(
    w: np.ndarray,
    c_rows: Labels,
    c_columns: Labels,
    k: int,
    on_diagonal: bool,
    *,
    products: bool = True,
    squares: bool = True,
    v: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple:
    """Return WZ, WᵀZ off the diagonal, Σ wᵢⱼ² of each block and, with v, W·v and Wᵀ·v.

    Rows of the same cluster are gathered, a few at a time, and summed while they are in cache:

        (ZᵀW)_c = Σ_{i in c} wᵢ,    (ZᵀQ)_c = Σ_{i in c} qᵢ  with qᵢⱼ = wᵢⱼ²

    A chunk on the diagonal is symmetric: WZ = (ZᵀW)ᵀ. Elsewhere WZ is a product with the one-hot Z. Rows of a
    large float32 chunk are summed in float32, less a guess of the mean of each block, as those of `Dense`.
    """
    by_row, by_column = (_by_label(labels, k) for labels in (c_rows, c_columns))
    guess = guessed_means(w, by_row, by_column, on_diagonal) if is_narrow(w) else None
    z, dtype = one_hot(c_columns, k, np.float64), np.float64 if guess is None else w.dtype
    operand = z[:, :0] if on_diagonal or not products else z
    operand = np.asfortranarray(operand if v is None else np.column_stack([operand, v[1]]), dtype)
    v_rows = None if v is None else v[0].astype(dtype)
    right, sums, q = np.empty((len(w), operand.shape[1])), np.zeros((k, len(z))), np.zeros((k, len(z)))
    down_v = np.zeros(len(z))
    for c, rows, x in _residual_rows(w, by_row, guess, c_columns, on_diagonal):
        if operand.shape[1]:
            right[rows] = x @ operand
        if v_rows is not None:
            down_v += v_rows[rows] @ x
        if c < k:
            ones = np.ones(len(rows), dtype)
            if products or guess is not None:
                sums[c] += ones @ x
            if squares:
                q[c] += ones @ np.multiply(x, x, out=x)
    if guess is not None:
        own = np.diagonal(w) if on_diagonal else None
        _add_guess((right, sums, q, down_v), guess[:, c_columns], c_rows, operand, v_rows, own)
    sides = (sums.T, None) if on_diagonal else (right[:, :k], sums.T)
    blocks = q @ z
    blocks = blocks if on_diagonal else blocks + blocks.T
    return (*sides, blocks) if v is None else (*sides, blocks, right[:, -1], down_v)


def _residual_rows(
    w: np.ndarray, by_row: list[np.ndarray], guess: np.ndarray | None, c_columns: Labels, on_diagonal: bool
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each label (k: none), some of its rows, and rᵢⱼ = wᵢⱼ − g in a buffer, with rᵢᵢ = 0.

    Without a guess these are the entries, in float64.
    """
    buffer = _buffer(w, np.float64 if guess is None else w.dtype)
    for c, members in enumerate(by_row):
        g = None if guess is None or not guess[c].any() else guess[c, c_columns]
        for part, x in _gathered(w, members, buffer):
            if g is not None:
                x -= g
            if guess is not None and on_diagonal:
                x[np.arange(len(x)), members[part]] = 0
            yield c, members[part], x


def _add_guess(
    made: tuple[np.ndarray, ...],
    guess: np.ndarray,
    c_rows: Labels,
    operand: np.ndarray,
    v_rows: np.ndarray | None,
    own: np.ndarray | None,
) -> None:
    """Complete sums of the residuals r = w − g, given g by label and column, and wᵢᵢ on the diagonal.

    Σw = Σr + Ng,    Σw² = Σr² + 2g Σr + Ng²
    """
    right, sums, q, down_v = made
    g, k = guess.astype(np.float64), len(q)
    m = np.bincount(c_rows[c_rows >= 0], minlength=k)[:, None]
    v = np.zeros(len(c_rows)) if v_rows is None else v_rows.astype(np.float64)
    if own is not None:
        columns = np.arange(len(own))
        r = own - g[c_rows, columns]
        sums[c_rows[c_rows >= 0], columns[c_rows >= 0]] += r[c_rows >= 0]
        q[c_rows[c_rows >= 0], columns[c_rows >= 0]] += r[c_rows >= 0] ** 2
        right += r[:, None] * operand
        down_v += v * r
    right += (g @ operand)[c_rows]
    down_v += np.bincount(c_rows % (k + 1), weights=v, minlength=k + 1) @ g
    q += 2 * g[:k] * sums + m * g[:k] ** 2
    sums += m * g[:k]


def _buffer(w: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
    """Return memory for some rows. New memory for each block would cost more than its sums."""
    return np.empty((_block_rows(w), w.shape[1]), dtype)


def _block_rows(w: np.ndarray) -> int:
    return max(MIN_SUMMED_ROWS, SUMMED_ENTRIES // w.shape[1])


def _gathered(w: np.ndarray, index: np.ndarray, buffer: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield some rows of a chunk in a buffer.

    `take` would copy all of a chunk that is strided, or not aligned, as one that a worker received.
    """
    at_once = w.flags.c_contiguous and w.flags.aligned and w.dtype == buffer.dtype
    for start in range(0, len(index), len(buffer)):
        rows = index[start : start + len(buffer)]
        x = buffer[: len(rows)]
        if at_once:
            np.take(w, rows, axis=0, out=x, mode="clip")  # fastest
        elif w.flags.aligned:
            x[...] = w[rows]  # one call for many rows: threads would wait for each other at each row
        else:
            for target, i in zip(x, rows.tolist(), strict=True):
                target[:] = w[i]
        yield slice(start, start + len(rows)), x


def _by_label(labels: Labels, k: int) -> list[np.ndarray]:
    """Return the objects with each label, and at last those with none."""
    labels = np.where(labels < 0, k, labels)
    ends = np.cumsum(np.bincount(labels, minlength=k + 1))
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])


def some_products(
    w: Array | StoredChunk, rows: tuple | None, columns: tuple | None
) -> tuple[Array | None, Array | None]:
    """Return W·V for some columns, and Wᵀ·V for some rows; None if there are none. They have the dtype of V.

    Both arguments are pairs of host indices and their part of V. Only these parts of a stored chunk are read.
    """
    right, down = _some_products(w, rows, columns)
    if rows is None or down is None:
        return right, down
    return right, array_namespace(down).astype(down, rows[1].dtype, copy=False)


def _some_products(
    w: Array | StoredChunk, rows: tuple | None, columns: tuple | None
) -> tuple[Array | None, Array | None]:
    """Return `some_products`; those of rows are added in float64, where NumPy adds them."""
    right = down = made = None
    if columns is not None:
        right = array_namespace(columns[1]).concat([x @ columns[1] for _, x in _parts(w, columns, 1)])
    if rows is not None:
        for part, x in _parts(w, rows, 0):
            if can_sum_rows(x):  # in the same memory: a worker of dask gives freed memory back at once
                made = np.matmul(rows[1][part].T, x, out=made)
                down = made.astype(np.float64) if down is None else np.add(down, made, out=down)
            else:
                made = rows[1][part, :].T @ x
                down = made if down is None else down + made
    return right, None if down is None else down.T


def moved_products(
    w: Array | StoredChunk, rows: tuple | None, columns: tuple | None, k: int
) -> tuple[Array | None, Array | None]:
    """Return `some_products` with changes of memberships: indices, and labels before and after, (·, R)."""
    like = w.like if isinstance(w, StoredChunk) else opened(w)
    dtype = np.float32 if is_narrow(like) else wide_dtype(like)
    of_rows, of_columns = (
        None
        if side is None
        else (side[0], _memberships(side[2], k, like, dtype) - _memberships(side[1], k, like, dtype))
        for side in (rows, columns)
    )
    return _some_products(w, of_rows, of_columns)


def _parts(w: Array | StoredChunk, some: tuple, axis: int) -> Iterator[tuple[slice, Array]]:
    """Yield blocks of some rows, or of rows with some columns, in the precision of V.

    Only these are read of a stored chunk: NumPy maps the file.
    """
    index, dtype = some[0], some[1].dtype
    if isinstance(w, StoredChunk) and not isinstance(w.like, np.ndarray):
        x = w.take(index, axis)
        yield slice(0, x.shape[0]), array_namespace(x).astype(x, dtype, copy=False)
        return
    x = opened(w)
    if can_sum_rows(x) and axis == 0:
        yield from _gathered(x, index, _buffer(x, dtype))
    elif can_sum_rows(x):
        height = max(1, TAKEN_ENTRIES // max(1, len(index)))
        for part in row_blocks(x, host_rows=height):  # `take` would copy a strided block
            yield part, x[part][:, index].astype(dtype)
    else:
        xp, places = array_namespace(x), from_host(index, x)
        for part in row_blocks(x, len(index) if axis == 0 else x.shape[0]):
            taken = xp.take(x, places[part], axis=0) if axis == 0 else xp.take(x[part, :], places, axis=1)
            yield part, xp.astype(taken, dtype, copy=False)


def square_changes(
    w: np.ndarray,
    before: tuple[Labels, Labels],
    after: tuple[Labels, Labels],
    k: int,
    sides: tuple[bool, bool],
    on_diagonal: bool,
) -> np.ndarray:
    """Return ΔᵀQ(Z + Z')/2 over the moved rows of a NumPy chunk, its moved columns, or both, (k, k).

    Z and Z' are the memberships of the rows and columns before and after, Δ = Z' − Z, and Q has entries wᵢⱼ²,
    without wᵢᵢ²; see `Summed`.
    """
    total, mean, delta, moved = np.zeros((k, k)), [], [], []
    for old, new in zip(before, after, strict=True):  # of rows, and of columns
        z, z_new = one_hot(old, k, np.float64), one_hot(new, k, np.float64)
        moved.append(np.flatnonzero(old != new))
        mean.append((z + z_new) / 2)
        delta.append((z_new - z)[moved[-1]])
    for part, x in _parts(w, (moved[0], delta[0]), 0) if sides[0] else ():
        x *= x
        if on_diagonal:
            x[np.arange(len(x)), moved[0][part]] = 0
        total += delta[0][part].T @ (x @ mean[1])
    for part, x in _parts(w, (moved[1], delta[1]), 1) if sides[1] else ():
        x *= x
        total += delta[1].T @ (x.T @ mean[0][part])
    return total


def chunk_entries(w: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """Return wᵢⱼ of some rows and columns in wide floats."""
    xp = array_namespace(w)
    if can_sum_rows(w):  # `take` would copy a strided chunk
        return w[rows][:, columns].astype(np.float64, copy=False)
    taken = xp.take(xp.take(w, from_host(rows, w), axis=0), from_host(columns, w), axis=1)
    return xp.astype(taken, wide_dtype(w), copy=False)


def centred_moments(w: Array, c_rows: Labels, c_columns: Labels, k: int, on_diagonal: bool) -> Array:
    """Return N, μ and Σ(w − μ)² of each block over the entries of a chunk, (3, k, k), from differences.

    The entries wᵢᵢ are excluded; a chunk off the diagonal includes its transpose.
    """
    xp = array_namespace(w)
    z_all, z_columns = _memberships(c_rows, k, w), _memberships(c_columns, k, w)
    m_columns = xp.sum(z_columns, axis=0)
    eye = xp.eye(k, dtype=z_columns.dtype, device=device_of(w)) if on_diagonal else 0.0
    parts = []
    for rows in row_blocks(w):
        z_rows = z_all[rows, :]
        count = xp.sum(z_rows, axis=0)[:, None] * (m_columns[None, :] - eye)
        x = xp.astype(w[rows, :], z_columns.dtype, copy=False)
        x = _without_diagonal(x, rows) if on_diagonal else x
        means = ratio((z_rows.T @ x) @ z_columns, count)
        x = _residuals(x, rows, z_rows, means @ z_columns.T, on_diagonal)
        x *= x
        parts.append(xp.stack([count, means, (z_rows.T @ x) @ z_columns]))
    moments = merged_moments(xp.stack(parts))
    if on_diagonal:
        return moments
    return merged_moments(xp.stack([moments, xp.permute_dims(moments, (0, 2, 1))]))


def centred_distance(
    w: Array, c_rows: Labels, c_columns: Labels, means: np.ndarray, on_diagonal: bool
) -> Array:
    """Return Σ (wᵢⱼ − μ_{cᵢcⱼ})² over the entries i ≠ j of a chunk and its transpose."""
    xp, k = array_namespace(w), len(means)
    z_rows, z_columns = _memberships(c_rows, k, w), _memberships(c_columns, k, w)
    in_rows, in_columns = xp.sum(z_rows, axis=1), xp.sum(z_columns, axis=1)
    by_column = from_host(means, w) @ z_columns.T
    total = xp.zeros((), dtype=z_columns.dtype, device=device_of(w))
    for rows in row_blocks(w):
        x = _residuals(w[rows, :], rows, z_rows[rows, :], by_column, on_diagonal)
        x *= x
        total = total + in_rows[rows] @ (x @ in_columns)
    return total if on_diagonal else 2 * total


def _residuals(x: Array, rows: slice, z_rows: Array, by_column: Array, on_diagonal: bool) -> Array:
    """Return μ_{cᵢcⱼ} − wᵢⱼ for some rows of a chunk, given μ_{c cⱼ}, with zeros in place of μ − wᵢᵢ.

    The rows of unlabelled objects are arbitrary. The array is new and may be overwritten.
    """
    residuals = z_rows @ by_column
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


def chunk_blend(
    w: Array,
    past: Array,
    alpha: float,
    known: tuple[np.ndarray, np.ndarray] | None,
    on_diagonal: bool,
    spent: Kept | None = None,
    w_squares: float | None = None,
) -> Kept:
    """Return α·past + (1 − α)·W for pairs of known objects (None: all), and W for the others.

    The result may be written in place of the past, which is then taken out of `spent`. If Σw² over the chunk
    and its transpose is known too, and shows that no difference overflows, it is W + α(Ψ − W), and

        Σψ̂² = α Σψ² + (1 − α) Σw² − α (1 − α) Σ(ψ − w)²
    """
    xp = array_namespace(w, past)
    if not can_sum_rows(w, past) or known is not None:
        blended = xp.astype(alpha * past + (1 - alpha) * w, w.dtype, copy=False)
        if known is not None:
            rows, columns = (from_host(some, w) for some in known)
            blended = xp.where(rows[:, None] & columns[None, :], blended, w)
        return kept(blended, on_diagonal)
    if past.dtype != w.dtype or not past.flags.behaved:  # writeable and aligned
        spent = None
    blended = np.empty(w.shape, w.dtype) if spent is None else past
    if spent is not None:
        spent.array = None  # dask may repeat a task that failed: it must not blend twice
    squares = (0.0, np.inf) if spent is None or w_squares is None else (float(spent.square_sum), w_squares)
    if alpha < 1 and max(squares) ** 0.5 < float(np.finfo(w.dtype).max) / 4:
        between = _blend_by_difference(w, past, alpha, blended) * (1 if on_diagonal else 2)
        total = alpha * squares[0] + (1 - alpha) * squares[1] - alpha * (1 - alpha) * between
    else:
        total = _blend_by_sum(w, past, alpha, blended) * (1 if on_diagonal else 2)
    found = Kept(blended, max(total, 0.0), chunk_diagonal(blended) if on_diagonal else None)
    if spent is not None:
        spent.after = alpha, found
    return found


def _blend_by_sum(w: np.ndarray, past: np.ndarray, alpha: float, out: np.ndarray) -> float:
    """Write the blend into `out`, which may be the past, and return the sum of its squares."""
    wide, total = _buffer(w), 0.0
    share = np.empty(wide.shape, w.dtype)
    for rows in row_blocks(w, host_rows=len(wide)):
        block = out[rows]
        np.multiply(past[rows], alpha, out=block, casting="same_kind")
        block += np.multiply(w[rows], 1 - alpha, out=share[: len(block)])
        total += _sum_of_squares(block, wide[: len(block)])
    return total


def _blend_by_difference(w: np.ndarray, past: np.ndarray, alpha: float, out: np.ndarray) -> float:
    """Write the blend into `out`, which may be the past, and return Σ(ψ − w)²."""
    total = 0.0
    for rows in row_blocks(w, host_rows=_block_rows(w)):
        block = out[rows]
        np.subtract(past[rows], w[rows], out=block)
        total += _sum_of_squares(block)
        block *= alpha
        block += w[rows]
    return total


def chunk_blend_in_place(
    w: Array | Kept | StoredChunk,
    past: Kept,
    alpha: float,
    known: None,
    on_diagonal: bool,
    w_squares: float | None = None,
) -> Kept:
    """Return `chunk_blend` of chunks that are not opened yet, in place of the past if possible.

    If another worker is lost, dask may repeat a task that has ended: then the past holds its result.
    """
    if past.after is not None and past.after[0] == alpha:
        return past.after[1]
    return chunk_blend(opened(w), opened(past), alpha, known, on_diagonal, spent=past, w_squares=w_squares)


@np.errstate(over="ignore")  # infinite, and not used, in units whose squares are out of range
def _sum_of_squares(block: np.ndarray, wide: np.ndarray | None = None) -> float:
    """Return the sum of squares; with `wide`, memory for the entries, in float64."""
    if wide is not None:
        np.copyto(wide, block)
    flat = (block if wide is None else wide).reshape(-1)
    return float(flat @ flat)


def kept(w: Array, on_diagonal: bool) -> Kept:
    """Return a chunk with its sum of squares and its diagonal."""
    xp, wide = array_namespace(w), wide_dtype(w)
    total = xp.zeros((), dtype=wide, device=device_of(w))
    with np.errstate(over="ignore"):  # infinite, and not used, in units whose squares are out of range
        for _, x in widened_blocks(w, wide):
            flat = xp.reshape(x, (-1,))
            total = total + flat @ flat
        total = total if on_diagonal else 2 * total
    return Kept(w, total, chunk_diagonal(w) if on_diagonal else None)


def chunk_scaled(w: Array, s_rows: np.ndarray, s_columns: np.ndarray) -> Array:
    """Return sᵢ wᵢⱼ sⱼ."""
    return scaled(w, from_host(s_rows, w), from_host(s_columns, w))


def chunk_added(
    w: Array, other: Array, groups: tuple[np.ndarray, np.ndarray], table: np.ndarray, on_diagonal: bool
) -> Kept:
    """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ."""
    g_rows, g_columns = (from_host(g, w) for g in groups)
    return kept(add_between_groups(w, other, g_rows, g_columns, table), on_diagonal)


def chunk_blend_by_object(
    w: Array, past: Array, alpha: float, s: tuple[np.ndarray, np.ndarray], on_diagonal: bool
) -> Kept:
    """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ) in the precision of W; exactly symmetric."""
    xp = array_namespace(w, past)
    s_rows, s_columns = (from_host(x, w, w.dtype) for x in s)
    parts = []
    for rows in row_blocks(w):
        block = xp.astype(past[rows, :], w.dtype) - w[rows, :]
        block *= s_rows[rows, None] * s_columns[None, :]
        block *= alpha
        block += w[rows, :]
        parts.append(block)
    return kept(xp.concat(parts), on_diagonal)


def chunk_block_products(
    w: Array, past: Array, c_rows: Labels, c_columns: Labels, k: int, on_diagonal: bool
) -> Array:
    """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block over the entries of a chunk and its transpose, (k, k)."""
    xp = array_namespace(w, past)
    z_rows, z_columns = _memberships(c_rows, k, w), _memberships(c_columns, k, w)
    total: Array = 0
    for rows in row_blocks(w):
        x = xp.astype(w[rows, :], z_columns.dtype) * past[rows, :]
        x = _without_diagonal(x, rows) if on_diagonal else x
        total = total + z_rows[rows, :].T @ (x @ z_columns)
    return total if on_diagonal else total + total.T


def chunk_with_absent(past: Array, known_rows: np.ndarray | None, dtype: object) -> Array:
    """Return a chunk of the past with zeros in the rows of unknown objects (None: all are known)."""
    xp = array_namespace(past)
    if known_rows is not None:
        past = xp.where(from_host(known_rows, past)[:, None], past, xp.zeros_like(past))
    return xp.astype(past, dtype, copy=False)


def chunk_copy(w: Array, on_diagonal: bool) -> Kept:
    """Return a copy of a chunk."""
    return kept(array_namespace(w).asarray(w, copy=True), on_diagonal)
