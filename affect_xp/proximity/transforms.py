"""Transforms of proximities before they are tracked: for counts with heavy tails, and volume that moves.

AFFECT takes noise to have one variance in each block. Counts do not: the variance of a count grows with its
mean, so a few busy pairs make most of Σ(w − μ)², and the forgetting factor follows them, and the volume of a
step, instead of the clusters. A transform makes the entries of a step alike in size before that. Each is done
on what the representation stores, with no n×n temporary, and what was given is left as it is.
"""

import functools
import math
from collections.abc import Callable

from affect_xp.array.namespace import array_namespace, device_of, is_array, to_host, wide_dtype
from affect_xp.array.typing import Array, Namespace
from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError
from affect_xp.proximity import Chunked, Dense, Proximity, Sparse, as_proximity
from affect_xp.proximity.checks import checked_array, checked_dtype

__all__ = [
    "TRANSFORMS",
    "Transform",
    "auto_rescale",
    "check_transform",
    "rescale_for",
    "sampled_columns",
    "skewness",
    "skewness_hint",
    "transform",
]

Transform = str | Callable[[Array], Array] | None

# Entries are sampled up to this many, and up to so many objects, to learn how skewed they are; of fewer
# positive ones than this, ten pairs, nothing is said.
SAMPLED_ENTRIES = 2**18
SAMPLED_OBJECTS = 256
FEWEST = 20
# A sample of m pairs from an exponential distribution has a skewness of 2 / (1 + 11 / m), on average.
MISSED = 22
# Above this skewness a few pairs rule the sums of squares. The exponential distribution has 2, and there the
# mean is the best to tell two of them apart: a logarithm loses more than it gains.
SKEWED = 2.5
# A logarithm helps if its skewness is below this share of that of the entries. Of Poisson counts about 1 it
# is three quarters, of narrow kernels nine tenths, and of two values all of it.
MENDED = 2 / 3

NOT_FINITE = (
    "the function given as rescale must return finite numbers for all entries, 0 among them, but did not; "
    "give one that is defined there, such as log1p instead of log"
)


def transform(W: Array | Proximity, how: Transform) -> Proximity:
    """Return proximities made of others, entry by entry or by totals, in the same representation.

    ===========  ===================  ===============================================================
    how          entry                when
    ===========  ===================  ===============================================================
    None         wᵢⱼ                  measurements whose noise does not grow with their size
    "log1p"      ln(1 + wᵢⱼ)          counts with heavy tails; the first to try on contact networks
    "sqrt"       √wᵢⱼ                 counts that vary like Poisson's: their variance becomes constant
    "binary"     1 where wᵢⱼ > 0      whether there was contact matters, not how much
    "volume"     wᵢⱼ / Σ_{i≠j} w      steps that are observed for longer or shorter, with like shares
    "degree"     wᵢⱼ / √(dᵢ dⱼ)       objects that differ in activity, dᵢ = Σⱼ wᵢⱼ with wᵢᵢ
    a function   f(wᵢⱼ)               anything else
    ===========  ===================  ===============================================================

    The diagonal is treated as every other entry; it counts for the degrees, but not for the volume. An object
    of degree zero keeps its zeros. Precision and device are those of W.

    Parameters
    ----------
    W : (n, n) array, sparse matrix, dask array or Proximity
        Similarities of 0 or more; for "volume" their total, for "degree" those of each object.
        `Factored` knows no single entry: it takes "volume" and "degree" alone, as scalings of its rows.
    how : str, function or None
        A function gets an array with some entries, (m, n) or for a sparse matrix (m,), its own to write to,
        and returns as many real, finite ones. It must look at one entry at a time, and for a sparse matrix
        make 0 of 0: entries that are not stored stay zero.

    Returns
    -------
    Proximity
        A `Dense` in an array of its own. A `Chunked` is planned, and its entries are checked when they are
        computed. The others are checked at once; on a device the host waits once.

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
    if callable(how):
        return _by_function(proximity, how)
    if how in SCALES:
        return proximity.scaled(SCALES[how](proximity))
    return _by_name(proximity, how)


def check_transform(how: object, others: tuple[str, ...] = ()) -> None:
    """Raise unless `how` is a transform, or one of other names."""
    if how is not None and not callable(how):
        check_choice("rescale, where it is neither None nor a function,", how, (*others, *TRANSFORMS))


# Functions of entries that are 0 or more, and keep zeros.
ENTRYWISE: dict[str, Callable[[Namespace, Array], Array]] = {
    "log1p": lambda xp, x: xp.log1p(x),
    "sqrt": lambda xp, x: xp.sqrt(x),
    "binary": lambda xp, x: xp.astype(x > 0, x.dtype),
}


def _by_name(W: Proximity, name: str) -> Proximity:
    """Apply one of the functions of entries that are 0 or more; all blocks are checked with one read."""
    if isinstance(W, Chunked):
        return W.mapped(functools.partial(_checked_chunk, name))
    lowest: list[Array] = []
    result = W.mapped(lambda x: _noted(name, x, lowest))
    _check_lowest(name, lowest)
    return result


def _noted(name: str, x: Array, lowest: list[Array]) -> Array:
    """Return the function of some entries, and note the smallest of these."""
    xp = array_namespace(x)
    if x.shape[0] == 0:  # a sparse matrix without entries
        return x
    lowest.append(xp.min(x))
    return ENTRYWISE[name](xp, xp.maximum(x, xp.zeros((), dtype=x.dtype, device=device_of(x))))


def _checked_chunk(name: str, x: Array) -> Array:
    """Return the function of a chunk, checked at once: there is no later."""
    lowest: list[Array] = []
    result = _noted(name, x, lowest)
    _check_lowest(name, lowest)
    return result


def _check_lowest(name: str, lowest: list[Array]) -> None:
    if not lowest:
        return
    xp = array_namespace(lowest[0])
    least = float(to_host(xp.min(xp.stack(lowest)), reason="are similarities negative?")[0])
    if least < 0:
        raise InputError(
            f"rescale={name!r} is for similarities of 0 or more, such as counts, but W holds {least}; "
            "use rescale=None, or pass a function that takes negative values"
        )


def _by_function(W: Proximity, function: Callable[[Array], Array]) -> Proximity:
    """Apply a function of entries, and check what it returns: all blocks with one read."""
    if isinstance(W, Chunked):
        return W.mapped(functools.partial(_finite_chunk, function))
    if isinstance(W, Dense):
        return Dense(_checked_dense(W.mapped(functools.partial(_applied, function)).array))
    facts: list[Array] = []
    result = W.mapped(lambda x: _applied_to_stored(function, x, facts))
    _check_facts(facts)
    return result


def _applied(function: Callable[[Array], Array], x: Array) -> Array:
    """Return the function of a copy of some entries, if it is of their shape and real, in their precision."""
    xp = array_namespace(x)
    result = function(xp.asarray(x, copy=True))
    if not is_array(result) or tuple(result.shape) != tuple(x.shape):
        got = getattr(result, "shape", type(result).__name__)
        raise InputError(
            f"the function given as rescale must return an array of the shape it gets, {tuple(x.shape)}, "
            f"got {got}"
        )
    array_namespace(x, result)
    real = checked_dtype(result, "what the function given as rescale returns")
    return xp.astype(real, x.dtype, copy=False)


def _checked_dense(w: Array) -> Array:
    """Return an array that a function has filled, if it is finite and symmetric."""
    try:
        return checked_array(w, "transform(W)")
    except InputError as error:
        raise InputError(
            "the function given as rescale must return finite numbers and look at one entry at a time, "
            f"whatever else is in the array it gets: {error}"
        ) from error


def _applied_to_stored(function: Callable[[Array], Array], x: Array, facts: list[Array]) -> Array:
    """Return the function of some stored entries, and note whether it is finite, and what it makes of 0."""
    xp = array_namespace(x)
    zero = xp.zeros((1,), dtype=x.dtype, device=device_of(x))
    result = _applied(function, xp.concat([x, zero]))
    facts.append(xp.stack([xp.astype(xp.all(xp.isfinite(result)), x.dtype), result[-1]]))
    return result[:-1]


def _check_facts(facts: list[Array]) -> None:
    xp = array_namespace(facts[0])
    read = to_host(xp.stack(facts), reason="is the transform of stored entries valid?")[0]
    if not read[:, 0].all():
        raise InputError(NOT_FINITE)
    if read[:, 1].any():
        value = read[read[:, 1] != 0, 1][0]
        raise InputError(
            f"the function given as rescale makes {value} of 0, but in a sparse matrix most zeros are not "
            "stored and stay; give one that leaves 0 as it is, or call to_dense() on the proximities"
        )


def _finite_chunk(function: Callable[[Array], Array], x: Array) -> Array:
    """Return the function of a chunk, checked at once: there is no later."""
    result = _applied(function, x)
    xp = array_namespace(result)
    if not bool(to_host(xp.all(xp.isfinite(result)), reason="is the transform of a chunk finite?")[0]):
        raise InputError(NOT_FINITE)
    return result


def _row_sums(W: Proximity) -> Array:
    """Return Σⱼ wᵢⱼ, (n,), in wide floats."""
    xp, like = array_namespace(W.like), W.like
    return W.matmul(xp.ones((W.n, 1), dtype=wide_dtype(like), device=device_of(like)))[:, 0]


def _volume_scale(W: Proximity) -> Array:
    """Return s with sᵢsⱼ = 1 / Σ_{i≠j} w, (n,). Roots, so that no total is too large or small for it."""
    sums, w_ii = _row_sums(W), W.diagonal()
    xp = array_namespace(sums)
    total = xp.sum(sums - w_ii)
    rounding = W.n * xp.finfo(sums.dtype).eps * xp.sum(xp.abs(sums) + xp.abs(w_ii))
    read, least = to_host(total, rounding, reason="how much is there at this step?")
    if not float(least) < float(read) < math.inf:
        raise InputError(
            f"rescale='volume' divides by the total of W off the diagonal, which is {float(read)}; "
            "leave out steps at which nothing was observed, and transform similarities of 0 or more"
        )
    return xp.ones_like(sums) / xp.sqrt(total)


def _degree_scale(W: Proximity) -> Array:
    """Return s = d^{-1/2} with d = Σⱼ wᵢⱼ, (n,), and 0 where d is."""
    d = _row_sums(W)
    xp = array_namespace(d)
    place = xp.argmin(d)
    least, i = to_host(xp.min(d), place, reason="is a degree negative?")
    if not 0 <= float(least) < math.inf:
        raise InputError(
            f"rescale='degree' is for similarities of 0 or more, but those of object {int(i)} add up to "
            f"{float(least)}; leave it out, or pass a function that takes negative values"
        )
    some = d > xp.finfo(d.dtype).smallest_normal  # whose inverse is a number
    return xp.where(some, 1 / xp.sqrt(xp.where(some, d, xp.ones_like(d))), xp.zeros_like(d))


SCALES: dict[str, Callable[[Proximity], Array]] = {"volume": _volume_scale, "degree": _degree_scale}
TRANSFORMS = (*ENTRYWISE, *SCALES)


def auto_rescale(W: Proximity) -> str | None:
    """Return the transform that similarities call for: "log1p" where they are skewed, else None.

    It is called for above a skewness of `SKEWED`; see `skewness`. On a device the host waits once.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.proximity.transforms import auto_rescale
    >>> counts = np.random.default_rng(0).lognormal(2, 1.5, size=(50, 50)).round()
    >>> auto_rescale(ax.Dense(counts + counts.T))
    'log1p'
    """
    return rescale_for(float(to_host(skewness(W), reason="are similarities skewed?")[0]))


def rescale_for(value: float) -> str | None:
    """Return the transform that similarities of this skewness call for."""
    return "log1p" if value > SKEWED else None


def skewness(W: Proximity, columns: Array | None = None) -> Array:
    """Return how skewed positive similarities are, if their logarithms are so by less than 2/3; else 0.

        γ = (1 + 22 / N) Σ(w − w̄)³ / N σ³   over the N entries i ≠ j with w > 0, and the same for ln(1 + w)

    The exponential distribution has γ = 2, and contact counts have more. A few entries of it have less; the
    factor in front makes up for that. What "log1p" does not mend, such as the few near neighbours of a narrow
    kernel, and what it cannot be used on, as soon as a similarity is negative, counts as 0. So do graphs of
    zeros and ones.

    Up to 262,144 entries are asked for, equally spaced: stored ones of `Sparse`, or else the columns of up to
    256 objects, one at least. With fewer than 20 positive ones among them the answer is 0. Nothing is read by
    the host, but for what `Chunked` computes. `columns` are these, where the caller has them from
    `sampled_columns`.

    Returns
    -------
    0-d array in wide floats, on the device of W
        Above `SKEWED` a transform is called for; see `skewness_hint`.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.proximity.transforms import skewness
    >>> counts = np.random.default_rng(0).lognormal(2, 1.5, size=(50, 50)).round()
    >>> W = ax.Dense(counts + counts.T)
    >>> float(skewness(W)) > 2.5
    True
    """
    xp = array_namespace(W.like)
    if isinstance(W, Sparse):
        x = _stored_entries(W)
        if x.shape[0] == 0:
            return xp.zeros((), dtype=x.dtype, device=device_of(x))
    else:
        x = sampled_columns(W)[0] if columns is None else columns
    some = x > 0
    raw, logarithmic = (
        _skewness_of(x, some),
        _skewness_of(xp.log1p(xp.where(some, x, xp.zeros_like(x))), some),
    )
    count = xp.sum(xp.astype(some, x.dtype))
    mends = (xp.abs(logarithmic) < MENDED * raw) & (count >= FEWEST) & ~xp.any(x < 0)
    raw = raw * (1 + MISSED / xp.maximum(count, xp.ones_like(count)))
    return xp.where(mends, raw, xp.zeros_like(raw))


def _stored_entries(W: Sparse) -> Array:
    """Return some of the stored entries, (N,), in wide floats, with zeros in place of wᵢᵢ.

    The columns of a few of very many objects would hold next to none of them.
    """
    data, columns, indptr = W.matrix.data, W.matrix.indices, W.matrix.indptr
    xp, apart = array_namespace(data), max(1, -(-data.shape[0] // SAMPLED_ENTRIES))
    places = xp.arange(0, data.shape[0], apart, dtype=indptr.dtype, device=device_of(data))
    rows = xp.searchsorted(indptr[1:], places, side="right")
    x = xp.astype(data[::apart], wide_dtype(data))
    return xp.where(rows == columns[::apart], xp.zeros_like(x), x)


def sampled_columns(W: Proximity) -> tuple[Array, Array]:
    """Return columns of W, (n, r), in wide floats with zeros in place of wᵢᵢ, and of which objects, (r,)."""
    xp, n, like = array_namespace(W.like), W.n, W.like
    device, wide = device_of(like), wide_dtype(like)
    r = min(n, SAMPLED_OBJECTS, max(1, SAMPLED_ENTRIES // n))
    places = xp.arange(r, dtype=xp.int64, device=device) * n // r
    x = W.matmul(xp.eye(r, dtype=wide, device=device), places)
    objects = xp.arange(n, dtype=xp.int64, device=device)
    return xp.where(objects[:, None] == places[None, :], xp.zeros_like(x), x), places


def _skewness_of(x: Array, some: Array) -> Array:
    """Return the skewness of some entries; 0 where they are all alike, or there are none."""
    xp = array_namespace(x)
    largest, zeros, count = xp.max(x), xp.zeros_like(x), xp.sum(xp.astype(some, x.dtype))
    one = xp.ones_like(largest)
    x = x / xp.where(largest > 0, largest, one)  # so that no power leaves the range of numbers
    count = xp.maximum(count, one)
    deviation = xp.where(some, x - xp.sum(xp.where(some, x, zeros)) / count, zeros)
    variance = xp.sum(deviation * deviation) / count
    varied = variance > xp.finfo(x.dtype).eps
    third = xp.sum(deviation * deviation * deviation) / count
    return xp.where(varied, third / xp.where(varied, variance, one) ** 1.5, xp.zeros_like(one))


def skewness_hint(value: float) -> str | None:
    """Return what to tell about similarities of this skewness; None if there is nothing to tell."""
    if value <= SKEWED:
        return None
    return (
        f"W is highly skewed (skewness {value:.1f}): a few pairs dominate the forgetting factor; for counts "
        'such as contacts use rescale="log1p", or filter this warning'
    )
