"""Transforms of proximities before smoothing, for counts with heavy tails or varying volume.

AFFECT assumes that noise has one variance per block. The variance of a count grows with its mean, so a few
busy pairs dominate Σ(w − μ)², and the forgetting factor follows them and the volume of a step instead of the
clusters. A transform brings the entries of a step to similar magnitudes. It works on the stored data of each
representation, without an n×n temporary, and does not modify its input.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    host_value,
    is_array,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array, Namespace
from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError
from affect_xp.proximity import Chunked, Dense, Proximity, Sparse, as_proximity
from affect_xp.proximity._base import checked_dtype
from affect_xp.proximity.checks import checked_array

Transform = str | Callable[[Array], Array] | None

# The skewness is estimated from at most this many entries of at most this many objects, and only if there are
# at least as many positive entries as the last number, ten pairs.
SAMPLED_ENTRIES = 2**18
SAMPLED_OBJECTS = 256
FEWEST = 20
# A sample of m pairs from an exponential distribution has a skewness of 2 / (1 + 11 / m), on average.
MISSED = 22
# Above this skewness a few pairs dominate the sums of squares. The exponential distribution has 2; the mean
# is the best statistic to distinguish two of them, so a logarithm loses more than it gains.
SKEWED = 2.5
# A logarithm helps if its skewness is below this share of that of the entries. The share is three quarters
# for Poisson counts about 1, nine tenths for narrow kernels, and one for two values.
MENDED = 2 / 3


def transform(W: Array | Proximity, how: Transform) -> Proximity:
    """Return transformed proximities in the same representation, entry by entry or by totals.

    ===========  ===================  ===============================================================
    how          entry                use for
    ===========  ===================  ===============================================================
    None         wᵢⱼ                  measurements whose noise does not grow with their size
    "log1p"      ln(1 + wᵢⱼ)          counts with heavy tails; try it first for contact networks
    "sqrt"       √wᵢⱼ                 Poisson counts: their variance becomes constant
    "binary"     1 if wᵢⱼ > 0         existence of a contact matters, not the number
    "volume"     wᵢⱼ / Σ_{i≠j} w      steps of different observation time, with similar shares
    "degree"     wᵢⱼ / √(dᵢ dⱼ)       objects that differ in activity, dᵢ = Σⱼ wᵢⱼ with wᵢᵢ
    a function   f(wᵢⱼ)               anything else
    ===========  ===================  ===============================================================

    Diagonal entries are transformed like all others; they count in the degrees, but not in the volume. An
    object of degree zero keeps its zeros. The result has the dtype and device of W.

    Parameters
    ----------
    W : (n, n) array, sparse matrix, dask array or Proximity
        Nonnegative similarities; for "volume" the total, and for "degree" the degrees must be nonnegative.
        `Factored` has no entries: it supports only "volume" and "degree", as scalings of its rows.
    how : str, function or None
        A function receives a writable copy of some entries, (m, n), or (m,) for a sparse matrix, and returns
        as many real, finite values. It must treat entries independently, and for a sparse matrix
        map 0 to 0: entries that are not stored stay zero.

    Returns
    -------
    Proximity
        A `Dense` has a new array. A `Chunked` is lazy, and its entries are checked when they are
        computed. The others are checked immediately; on a device the host waits once.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.transforms import transform
    >>> contacts = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 400.0], [0.0, 400.0, 0.0]])
    >>> transform(contacts, "log1p").array.round(1)
    array([[0. , 0.7, 0. ],
           [0.7, 0. , 6. ],
           [0. , 6. , 0. ]])
    >>> transform(contacts, lambda w: np.minimum(w, 5)).array
    array([[0., 1., 0.],
           [1., 0., 5.],
           [0., 5., 0.]])
    """
    check_transform(how)
    proximity = as_proximity(W).formed()
    if how is None:
        return proximity
    if not callable(how) and how in SCALES:
        return proximity.scaled(SCALES[how](proximity))
    return _entry_by_entry(proximity, how)


def check_transform(how: object, others: tuple[str, ...] = ()) -> None:
    """Raise unless `how` is a transform, or one of the names `others`."""
    if how is not None and not callable(how):
        check_choice("rescale, if neither None nor a function,", how, (*others, *TRANSFORMS))


# Functions of nonnegative entries that map 0 to 0.
ENTRYWISE: dict[str, Callable[[Namespace, Array], Array]] = {
    "log1p": lambda xp, x: xp.log1p(x),
    "sqrt": lambda xp, x: xp.sqrt(x),
    "binary": lambda xp, x: xp.astype(x > 0, x.dtype),
}


def _entry_by_entry(W: Proximity, how: str | Callable[[Array], Array]) -> Proximity:
    """Apply a function of entries; all blocks are checked with one read, chunks each on its own."""
    if callable(how) and isinstance(W, Dense):
        return Dense(_checked_dense(W.mapped(functools.partial(_applied, how)).array))
    if isinstance(W, Chunked):
        return W.mapped(functools.partial(_checked_chunk, how))
    facts: list[Array] = []
    result = W.mapped(lambda x: _noted(how, x, facts))
    _check(how, facts)
    return result


def _checked_chunk(how: str | Callable[[Array], Array], x: Array) -> Array:
    facts: list[Array] = []
    result = _noted(how, x, facts)
    _check(how, facts)
    return result


def _noted(how: str | Callable[[Array], Array], x: Array, facts: list[Array]) -> Array:
    """Return the function of some entries; record the smallest one, or what `_check` must know of a function.

    This is whether its values are finite, and its value at 0, which for a sparse matrix must be 0.
    """
    xp, zero = array_namespace(x), array_namespace(x).zeros((1,), dtype=x.dtype, device=device_of(x))
    if callable(how):
        is_sparse = x.ndim == 1
        result = _applied(how, xp.concat([x, zero]) if is_sparse else x)
        finite = xp.astype(xp.all(xp.isfinite(result)), x.dtype)
        facts.append(xp.stack([finite, result[-1] if is_sparse else zero[0]]))
        return result[:-1] if is_sparse else result
    if x.shape[0] == 0:  # a sparse matrix without entries
        return x
    facts.append(xp.min(x))
    return ENTRYWISE[how](xp, xp.maximum(x, zero[0]))


def _check(how: str | Callable[[Array], Array], facts: list[Array]) -> None:
    """Raise unless the function of entries was valid."""
    if not facts:
        return
    xp = array_namespace(facts[0])
    if callable(how):
        _check_results(to_host(xp.stack(facts), reason="is the transform of entries valid?")[0])
        return
    least = float(to_host(xp.min(xp.stack(facts)), reason="are similarities negative?")[0])
    if least < 0:
        raise InputError(
            f"rescale={how!r} needs nonnegative similarities, such as counts, but W contains {least}; "
            "use rescale=None, or pass a function that accepts negative values"
        )


def _applied(function: Callable[[Array], Array], x: Array) -> Array:
    """Return the function of a copy of some entries, in their dtype; raise if its shape or type is wrong."""
    xp = array_namespace(x)
    result = function(xp.asarray(x, copy=True))
    if not is_array(result) or tuple(result.shape) != tuple(x.shape):
        got = getattr(result, "shape", type(result).__name__)
        raise InputError(
            f"the function passed as rescale must return an array of the shape it gets, {tuple(x.shape)}, "
            f"got {got}"
        )
    array_namespace(x, result)
    real = checked_dtype(result, "the result of the function passed as rescale")
    return xp.astype(real, x.dtype, copy=False)


def _checked_dense(w: Array) -> Array:
    """Return an array that a function has filled; raise unless it is finite and symmetric."""
    try:
        return checked_array(w, "transform(W)")[0]
    except InputError as error:
        raise InputError(
            "the function passed as rescale must return finite numbers and treat each entry independently "
            f"of the others in its array: {error}"
        ) from error


def _check_results(read: np.ndarray) -> None:
    if not read[:, 0].all():
        raise InputError(
            "the function passed as rescale must return finite numbers for all entries, including 0, but did "
            "not; use one that is defined there, such as log1p instead of log"
        )
    if read[:, 1].any():
        value = read[read[:, 1] != 0, 1][0]
        raise InputError(
            f"the function passed as rescale maps 0 to {value}, but most zeros of a sparse matrix are not "
            "stored and stay 0; use one that maps 0 to 0, or call to_dense() on the proximities"
        )


def _volume_scale(W: Proximity) -> Array:
    """Return s with sᵢsⱼ = 1 / Σ_{i≠j} w, (n,); square roots avoid overflow and underflow."""
    sums, w_ii = W.row_sums(), W.diagonal()
    xp = array_namespace(sums)
    total = xp.sum(sums - w_ii)
    rounding = W.n * xp.finfo(sums.dtype).eps * xp.sum(xp.abs(sums) + xp.abs(w_ii))
    read, least = to_host(total, rounding, reason="how much is there at this step?")
    if not float(least) < float(read) < math.inf:
        raise InputError(
            f"rescale='volume' divides by the sum of W off the diagonal, which is {float(read)}; "
            "omit steps without observations, and pass nonnegative similarities"
        )
    return xp.ones_like(sums) / xp.sqrt(total)


def _degree_scale(W: Proximity) -> Array:
    """Return s = d^{-1/2} with d = Σⱼ wᵢⱼ, (n,), and 0 if d is 0."""
    d = W.row_sums()
    xp = array_namespace(d)
    place = xp.argmin(d)
    least, i = to_host(xp.min(d), place, reason="is a degree negative?")
    if not 0 <= float(least) < math.inf:
        raise InputError(
            f"rescale='degree' needs nonnegative similarities, but those of object {int(i)} sum to "
            f"{float(least)}; drop the object, or pass a function that accepts negative values"
        )
    some = d > xp.finfo(d.dtype).smallest_normal  # so that the inverse does not overflow
    return xp.where(some, 1 / xp.sqrt(xp.where(some, d, xp.ones_like(d))), xp.zeros_like(d))


SCALES: dict[str, Callable[[Proximity], Array]] = {"volume": _volume_scale, "degree": _degree_scale}
TRANSFORMS = (*ENTRYWISE, *SCALES)


def skewness(W: Proximity, columns: Array | None = None) -> Array:
    """Return the skewness of positive similarities if their logarithms have less than 2/3 of it; else 0.

        γ = (1 + 22 / N) Σ(w − w̄)³ / N σ³   over the N entries i ≠ j with w > 0, and the same for ln(1 + w)

    The exponential distribution has γ = 2, and contact counts have more. Small samples have less, which the
    first factor corrects. The result is 0 if "log1p" does not help, as for the few near neighbours of a
    narrow kernel, or cannot be used because a similarity is negative. It is also 0 for binary graphs.

    It uses up to 262,144 equally spaced entries: stored entries of `Sparse`, otherwise the columns of up to
    256 objects, at least one. With fewer than 20 positive entries the result is 0. The host reads nothing,
    except what `Chunked` computes. `columns` are the result of `sampled_columns`, if the caller has it. Above
    `SKEWED`, the transform "log1p" is recommended.
    """
    xp = array_namespace(W.like)
    if isinstance(W, Sparse):
        x = _stored_entries(W)
        if x.shape[0] == 0:
            return xp.zeros((), dtype=x.dtype, device=device_of(x))
    else:
        x = sampled_columns(W)[0] if columns is None else columns
    is_negative = xp.any(x < 0)
    if host_value(is_negative):
        return xp.zeros((), dtype=x.dtype, device=device_of(x))
    some = x > 0
    raw = _skewness_of(x, some)
    logarithmic = _skewness_of(xp.log1p(xp.where(some, x, xp.zeros_like(x))), some)
    count = xp.sum(xp.astype(some, x.dtype))
    mends = (xp.abs(logarithmic) < MENDED * raw) & (count >= FEWEST) & ~is_negative
    raw = raw * (1 + MISSED / xp.maximum(count, xp.ones_like(count)))
    return xp.where(mends, raw, xp.zeros_like(raw))


def _stored_entries(W: Sparse) -> Array:
    """Return some of the stored entries, (N,), in wide floats, with zeros in place of wᵢᵢ."""
    data, columns, indptr = W.matrix.data, W.matrix.indices, W.matrix.indptr
    xp, apart = array_namespace(data), max(1, -(-data.shape[0] // SAMPLED_ENTRIES))
    places = xp.arange(0, data.shape[0], apart, dtype=indptr.dtype, device=device_of(data))
    rows = xp.searchsorted(indptr[1:], places, side="right")
    x = xp.astype(data[::apart], wide_dtype(data))
    return xp.where(rows == columns[::apart], xp.zeros_like(x), x)


def sampled_columns(W: Proximity) -> tuple[Array, Array]:
    """Return columns of W, (n, r), in wide floats with zeros in place of wᵢᵢ, and their objects, (r,)."""
    xp, n, like = array_namespace(W.like), W.n, W.like
    device, wide = device_of(like), wide_dtype(like)
    r = min(n, SAMPLED_OBJECTS, max(1, SAMPLED_ENTRIES // n))
    places = xp.arange(r, dtype=xp.int64, device=device) * n // r
    x = W.matmul(xp.eye(r, dtype=wide, device=device), places)
    objects = xp.arange(n, dtype=xp.int64, device=device)
    return xp.where(objects[:, None] == places[None, :], xp.zeros_like(x), x), places


def _skewness_of(x: Array, some: Array) -> Array:
    """Return the skewness of some entries; 0 if they are all equal, or there are none."""
    xp = array_namespace(x)
    largest, zeros, count = xp.max(x), xp.zeros_like(x), xp.sum(xp.astype(some, x.dtype))
    one = xp.ones_like(largest)
    x = x / xp.where(largest > 0, largest, one)  # so that no power overflows
    count = xp.maximum(count, one)
    deviation = xp.where(some, x - xp.sum(xp.where(some, x, zeros)) / count, zeros)
    variance = xp.sum(deviation * deviation) / count
    varied = variance > xp.finfo(x.dtype).eps
    third = xp.sum(deviation * deviation * deviation) / count
    return xp.where(varied, third / xp.where(varied, variance, one) ** 1.5, xp.zeros_like(one))


def skewness_hint(value: float) -> str | None:
    """Return the warning for similarities of this skewness; None if there is none."""
    if value <= SKEWED:
        return None
    return (
        f"W is highly skewed (skewness {value:.1f}): a few pairs dominate the forgetting factor; for counts "
        'such as contacts use rescale="log1p", or filter this warning'
    )
