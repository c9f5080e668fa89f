"""Checks of a dense proximity matrix, without an n×n temporary."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    is_lazy,
    on_host,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError, InputTypeError

# Asymmetry relative to the largest entry that is taken for rounding. Products of features in single
# precision differ from their transposes by some 1e-6.
TOLERANCE = {"float64": 1e-8, "float32": 1e-4}

# Symmetry is checked by square tiles, each against its mirror image: both should stay in cache.
HOST_TILE = 512
DEVICE_TILE = 4096


def checked_array(w: Array, name: str) -> tuple[Array, float]:
    """Return w as a real, finite, square and symmetric array, and its size; or say what is wrong where.

    The size is the largest |wᵢⱼ|.
    """
    if isinstance(w, np.ma.MaskedArray):
        raise InputTypeError(f"{name} is a masked array; fill it with {name}.filled(0), or leave objects out")
    w = checked_dtype(w, name)
    if w.ndim != 2 or w.shape[0] != w.shape[1]:
        raise InputError(
            f"{name} must be a square matrix of proximities, got shape {tuple(w.shape)}; "
            "from features X compute it first, for instance X @ X.T, or give the model proximity='dot'"
        )
    if w.shape[0] == 0:
        raise InputError(
            f"{name} has no objects (shape (0, 0)); leave out steps at which nothing was observed"
        )
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
    return w, largest


def _dtype_name(w: Array) -> str:
    return "float32" if w.dtype == array_namespace(w).float32 else "float64"


def checked_dtype(w: Array, name: str) -> Array:
    """Return w in float32 or float64, or say why it cannot be used."""
    xp = array_namespace(w)
    if isinstance(w, np.ndarray) and w.dtype.kind == "f" and not w.dtype.isnative:  # from a file, perhaps
        w = w.astype(w.dtype.newbyteorder("="))
    if xp.isdtype(w.dtype, "complex floating"):
        raise InputTypeError(f"{name} must be real, got dtype {w.dtype}; pass its real part or its modulus")
    if xp.isdtype(w.dtype, ("integral", "bool")):
        return xp.astype(w, wide_dtype(w))
    if w.dtype not in (xp.float32, xp.float64):
        smaller = "float32" if str(w.dtype).endswith("float16") else "float64"
        raise InputTypeError(
            f"{name} must be of dtype float32 or float64, got {w.dtype}; use astype({smaller!r})"
        )
    return w


def _extremes(w: Array) -> tuple[float, float]:
    """Return max |wᵢⱼ| and max |wᵢⱼ − wⱼᵢ| as numbers, with one transfer; NaN shows in both."""
    xp = array_namespace(w)
    largest = asymmetry = xp.zeros((), dtype=w.dtype, device=device_of(w))
    with np.errstate(invalid="ignore"):  # inf − inf
        for rows, columns in _tiles(w):
            tile, mirror = w[rows, columns], w[columns, rows].T
            largest = xp.maximum(largest, xp.maximum(xp.max(xp.abs(tile)), xp.max(xp.abs(mirror))))
            asymmetry = xp.maximum(asymmetry, xp.max(xp.abs(tile - mirror)))
        read = to_host(xp.stack([largest, asymmetry]), reason="checking symmetry")[0]
    return float(read[0]), float(read[1])


def _tiles(w: Array) -> Iterator[tuple[slice, slice]]:
    """Yield the tiles on and right of the diagonal."""
    n = w.shape[0]
    width = n if is_lazy(w) else HOST_TILE if on_host(w) else DEVICE_TILE
    starts = range(0, n, width)
    for i in starts:
        for j in range(i, n, width):
            yield slice(i, min(i + width, n)), slice(j, min(j + width, n))


def _first(w: Array, is_bad: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> tuple[int, int, float, float]:
    """Return i, j, wᵢⱼ and wⱼᵢ of the first entry that is bad; only called when there is one."""
    for rows in row_blocks(w):
        block = to_host(w[rows, :], reason="finding the bad entry")[0]
        mirror = to_host(w[:, rows], reason="finding the bad entry")[0].T
        places = np.argwhere(is_bad(block, mirror))
        if len(places):
            i, j = places[0]
            return rows.start + int(i), int(j), block[i, j].item(), mirror[i, j].item()
    raise AssertionError("no bad entry found")
