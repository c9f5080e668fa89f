"""Functions of some rows and columns of W that several representations share."""

import numpy as np

from affect_xp.array.namespace import array_namespace, from_host
from affect_xp.array.typing import Array


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
