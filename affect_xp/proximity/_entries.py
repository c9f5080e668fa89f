"""Functions of some rows and columns of W that several representations share."""

import numpy as np

from affect_xp.array.namespace import array_namespace, can_sum_rows, from_host
from affect_xp.array.typing import Array

# Rows of a float32 W with so many objects are summed in float32, if entries are in a range in which squares
# neither overflow nor vanish; so many rows of each cluster give the guess of means.
MIN_NARROW, NARROW_RANGE, GUESSED_ROWS = 1000, (2.0**-20, 2.0**40), 8


def scaled(w: Array, s_rows: Array, s_columns: Array) -> Array:
    """Return sᵢ wᵢⱼ sⱼ in the precision of W; exactly symmetric."""
    xp = array_namespace(w, s_rows)
    return xp.astype(w * (s_rows[:, None] * s_columns[None, :]), w.dtype, copy=False)


def add_between_groups(w: Array, other: Array, g_rows: Array, g_columns: Array, table: np.ndarray) -> Array:
    """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ in the precision of W."""
    xp = array_namespace(w, other)
    marks = from_host(table, w, w.dtype)
    marked = xp.take(xp.take(marks, g_columns, axis=1), g_rows, axis=0)
    return xp.astype(w + marked * other, w.dtype, copy=False)


def is_narrow(w: Array) -> bool:
    """Return whether sums of a few rows may be in float32."""
    return can_sum_rows(w) and w.dtype == np.float32 and len(w) >= MIN_NARROW


def guessed_means(
    w: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray], on_diagonal: bool
) -> np.ndarray | None:
    """Return the mean of a few entries of each block, (k, k); None if squares may be too large or small.

    `rows` and `columns` are the objects with each label. Entries wᵢᵢ, which may be far larger than the
    others, are excluded; the means of a matrix with these are symmetric.
    """
    (i, z_i), (j, z_j) = _few(rows), _few(columns)
    x, is_own = w[np.ix_(i, j)].astype(np.float64), (i[:, None] == j) & on_diagonal
    x[is_own] = 0
    low, high = NARROW_RANGE
    if not low <= np.abs(x).max(initial=0) <= high:
        return None
    means = (z_i.T @ x @ z_j) / np.maximum(z_i.T @ ~is_own @ z_j, 1)
    return ((means + means.T) / 2 if on_diagonal else means).astype(w.dtype)


def _few(by_label: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return a few objects of each label, and their memberships."""
    some = [rows[:: -(-len(rows) // GUESSED_ROWS)] if len(rows) else rows for rows in by_label]
    return np.concatenate(some), np.repeat(np.eye(len(some)), [len(rows) for rows in some], axis=0)
