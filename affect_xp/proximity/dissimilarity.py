"""Convert similarities to dissimilarities and back, and check for dissimilarities."""

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    fill_rows,
    on_input_device,
    put,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError
from affect_xp.proximity import Chunked, Dense, Proximity, as_proximity
from affect_xp.proximity.checks import held

KINDS = ("distance", "squared_distance", "complement")


@on_input_device
def to_dissimilarity(W: Array | Proximity, kind: str = "distance") -> Array | Proximity:
    """Convert similarities to dissimilarities, in the dtype of W.

    Parameters
    ----------
    W : (n, n) array or Proximity
        Similarities.
    kind : "distance", "squared_distance" or "complement"
        For dot products (and kernels), √(wᵢᵢ + wⱼⱼ − 2wᵢⱼ) or its square: the Euclidean distances of the
        features. If W is not positive semi-definite, negative squares become 0. For similarities
        between 0 and 1, the complement 1 − wᵢⱼ, with a zero diagonal.

    Returns
    -------
    array, or a Proximity (Dense, or Chunked) if W is one

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.dissimilarity import to_dissimilarity
    >>> x = np.array([[0.0], [3.0]])
    >>> to_dissimilarity(x @ x.T)
    array([[0., 3.],
           [3., 0.]])
    """
    check_choice("kind", kind, KINDS)
    w = stored(as_proximity(W))
    if kind == "complement":
        return _as_given(W, _complement(w, "W", on_diagonal=0.0))
    xp, wide = array_namespace(w), wide_dtype(w)
    w_ii = xp.astype(xp.linalg.diagonal(w), wide)

    def rows_of(rows: slice) -> Array:
        d = w_ii[rows, None] + w_ii[None, :] - 2 * xp.astype(w[rows, :], wide, copy=False)
        d = xp.where(d > 0, d, xp.zeros_like(d))
        return xp.astype(xp.sqrt(d) if kind == "distance" else d, w.dtype, copy=False)

    return _as_given(W, fill_rows(w, row_blocks(w), rows_of))


@on_input_device
def to_similarity(D: Array | Proximity, kind: str = "distance") -> Array | Proximity:
    """Convert dissimilarities to similarities, in the dtype of D; the inverse of `to_dissimilarity`.

    Parameters
    ----------
    D : (n, n) array or Proximity
        Dissimilarities.
    kind : "distance", "squared_distance" or "complement"
        The kind of D. Distances dᵢⱼ, or their squares, give the dot products of the centered features,
        −½ (d²ᵢⱼ − rᵢ − rⱼ + g), with the row means r of d² and their mean g. Complements, which are between
        0 and 1, give 1 − dᵢⱼ.

    Returns
    -------
    array, or a Proximity (Dense, or Chunked) if D is one

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.dissimilarity import to_similarity
    >>> to_similarity(np.array([[0.0, 2.0], [2.0, 0.0]]))
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    check_choice("kind", kind, KINDS)
    d = stored(as_proximity(D, name="D"))
    check_dissimilarities(d)
    if kind == "complement":
        return _as_given(D, _complement(d, "D", on_diagonal=1.0))
    xp, wide = array_namespace(d), wide_dtype(d)

    def squares(rows: slice) -> Array:
        x = xp.astype(d[rows, :], wide, copy=False)
        return x * x if kind == "distance" else x

    r = xp.concat([xp.mean(squares(rows), axis=1) for rows in row_blocks(d)])
    g = xp.mean(r)

    def rows_of(rows: slice) -> Array:
        return xp.astype((r[rows, None] + r[None, :] - g - squares(rows)) / 2, d.dtype, copy=False)

    return _as_given(D, fill_rows(d, row_blocks(d), rows_of))


def _complement(w: Array, name: str, on_diagonal: float) -> Array:
    """Return 1 − wᵢⱼ for entries between 0 and 1, and a given diagonal; one read."""
    xp = array_namespace(w)
    low, high = to_host(xp.stack(_extremes(w)), reason="range of similarities")[0].tolist()
    if low < -_tolerance(w) or high > 1 + _tolerance(w):
        raise InputError(
            f"{name} has entries from {low} to {high}, but kind='complement' is for entries between 0 and 1; "
            "for dot products or distances use kind='distance'"
        )
    places = xp.arange(w.shape[0], dtype=xp.int64, device=device_of(w))
    diagonal = xp.full((), on_diagonal, dtype=w.dtype, device=device_of(w))

    def rows_of(rows: slice) -> Array:
        d = 1 - w[rows, :]
        d = xp.where(d > 0, d, xp.zeros_like(d))
        return xp.where(places[rows, None] == places[None, :], diagonal, d)

    return fill_rows(w, row_blocks(w), rows_of)


def _as_given(given: Array | Proximity, array: Array) -> Array | Proximity:
    """Return a Proximity if one was given, otherwise the array."""
    return held(array) if isinstance(given, Proximity) else array


def stored(W: Proximity) -> Array:
    """Return all proximities as an array."""
    W = W.formed()
    if isinstance(W, Dense | Chunked):
        return W.array
    xp, wide, device = array_namespace(W.like), wide_dtype(W.like), device_of(W.like)
    w = xp.empty((W.n, W.n), dtype=W.like.dtype, device=device)
    for rows in row_blocks(w):
        unit = xp.eye(rows.stop - rows.start, dtype=wide, device=device)
        places = xp.arange(rows.start, rows.stop, dtype=xp.int64, device=device)
        w = put(w, (rows, slice(None)), xp.astype(W.matmul(unit, places).T, w.dtype, copy=False))
    return w


def check_dissimilarities(d: Array) -> float:
    """Return the largest entry; raise unless the diagonal is 0 and none is negative, up to rounding."""
    xp = array_namespace(d)
    low, high = _extremes(d)
    diagonal = xp.linalg.diagonal(d)
    worst = xp.argmax(xp.abs(diagonal))
    summary = xp.stack([low, high, xp.take(diagonal, xp.reshape(worst, (1,)))[0]])
    values, place = to_host(summary, worst, reason="are these dissimilarities?")
    lowest, highest, on_diagonal = values.tolist()
    tolerance = _tolerance(d) * max(highest, -lowest)
    if abs(on_diagonal) > tolerance:
        raise InputError(
            f"D looks like similarities: D[{int(place)}, {int(place)}] = {on_diagonal}, but the diagonal of "
            "dissimilarities is 0; convert it first, for example with ax.to_dissimilarity(D)"
        )
    if lowest < -tolerance:
        raise InputError(
            f"D contains {lowest}, but dissimilarities are nonnegative; "
            "convert similarities first, for example with ax.to_dissimilarity(D)"
        )
    return highest


def _tolerance(d: Array) -> float:
    """Return the tolerance for rounding, relative to the largest entry."""
    return 1e-4 if d.dtype == array_namespace(d).float32 else 1e-8


def _extremes(d: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest entry."""
    xp = array_namespace(d)
    lows, highs = zip(*((xp.min(d[rows, :]), xp.max(d[rows, :])) for rows in row_blocks(d)), strict=True)
    return xp.min(xp.stack(lows)), xp.max(xp.stack(highs))
