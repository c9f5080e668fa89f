"""Detect the kind of proximities: similarities, dissimilarities, or nearly constant.

Two objects of the same cluster have similar rows in W, whether W contains similarities or dissimilarities. If
rows are similar, similarities are large and dissimilarities are small:

    ρ = corr(wᵢⱼ, rᵢⱼ) over i ≠ j,   rᵢⱼ = corr(wₖᵢ, wₖⱼ) over k ∉ {i, j}

Distances of features have ρ near −1; dot products, kernels and networks with groups have ρ > 0; noise has 0.
"""

from typing import Any, NamedTuple

import numpy as np

from affect_xp.array.namespace import array_namespace, can_sum_rows, device_of, not_zero, row_blocks, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import warn_caller
from affect_xp.exceptions import InputWarning, ScaleWarning
from affect_xp.proximity import Dense, Factored, Proximity
from affect_xp.proximity.transforms import sampled_columns

# Fewer objects than this are not judged.
MIN_OBJECTS = 10
# Beyond ±ρ of this size, W is considered similarities or dissimilarities.
MIN_CORRELATION = 0.5
# Distances are positive except for this share of the pairs (duplicates); graphs have more zeros.
MAX_SHARE_OF_ZEROS = 0.1
# A diagonal is zero if it is below this multiple of √eps, relative to the largest entry.
ZERO_DIAGONAL = 10

# A constant dominates similarities if their squared mean is this share of their mean square, and an additive
# model with one number per object explains this share of the rest. This holds if the squared mean of the
# features is 10 times their variance. The second condition excludes Gaussian kernels, graphs and most
# correlations.
MIN_CONSTANT_SHARE = 0.85
MIN_ADDITIVE_SHARE = 0.93
MIN_COLUMNS = 20

NOTHING_TO_FIND = "there are no clusters, and the returned ones are arbitrary"


class EntryStatistics(NamedTuple):
    """Statistics of the off-diagonal entries of up to 256 objects."""

    rho: float  # the correlation of entries with the similarity of rows; 0 if either is constant
    lowest: float
    highest: float
    zeros: float  # the share of pairs with a zero entry
    on_diagonal: float  # the largest |wᵢᵢ|


def entry_statistics(W: Dense) -> EntryStatistics:
    """Return the statistics of W, with one read; W must have at least three objects."""
    xp = array_namespace(W.array)
    columns, places = sampled_columns(W)
    r, zeros = places.shape[0], xp.zeros_like(columns)
    largest = xp.max(xp.abs(columns))
    x = columns / not_zero(largest)  # so that no square overflows
    block = xp.take(x, places, axis=0)  # (r, r), with zeros in place of wᵢᵢ
    others = xp.arange(r, dtype=xp.int64, device=device_of(x))
    pairs = xp.astype(others[:, None] != others[None, :], x.dtype)
    likeness, known = _likeness(x, block)
    objects = xp.arange(W.n, dtype=xp.int64, device=device_of(x))
    own = objects[:, None] == places[None, :]
    lowest = xp.min(xp.where(own, xp.max(columns) + zeros, columns))
    highest = xp.max(xp.where(own, xp.min(columns) + zeros, columns))
    n_zeros = xp.sum(xp.astype((columns == 0) & ~own, x.dtype))
    facts = (
        _correlation(block, likeness, pairs * known),
        lowest,
        highest,
        n_zeros / (r * max(1, W.n - 1)),
        xp.max(xp.abs(W.diagonal())),
    )
    read = to_host(xp.stack(facts), reason="are these similarities or distances?")[0]
    return EntryStatistics(*read.tolist())


def _likeness(x: Array, block: Array) -> tuple[Array, Array]:
    """Return rᵢⱼ, and 1 where it is defined and 0 elsewhere, both (r, r)."""
    xp = array_namespace(x)
    n = x.shape[0] - 2
    # Column i without its entries i, which is 0, and j: sums S and sums of squares Q.
    S, Q = xp.sum(x, axis=0)[:, None] - block, xp.sum(x * x, axis=0)[:, None] - block * block
    covariance = x.T @ x - S * S.T / n
    variance = Q - S * S / n
    varied = variance > 1e-12 * (Q + xp.ones_like(Q))
    known = varied & varied.T
    scale = xp.sqrt(xp.where(known, variance * variance.T, xp.ones_like(variance)))
    return xp.where(known, covariance / scale, xp.zeros_like(scale)), xp.astype(known, x.dtype)


def _correlation(a: Array, b: Array, weights: Array) -> Array:
    """Return the correlation of a and b over weights of 1, a 0-d array; 0 if either is constant."""
    xp = array_namespace(a)
    total = xp.sum(weights)
    one = xp.ones_like(total)
    total = xp.where(total > 0, total, one)
    a, b = (weights * (y - xp.sum(weights * y) / total) for y in (a, b))
    product = xp.sum(a * a) * xp.sum(b * b)
    varied = product > (1e-12 * total) ** 2
    return xp.where(varied, xp.sum(a * b) / xp.sqrt(xp.where(varied, product, one)), xp.zeros_like(one))


def hint_at_kind(W: Proximity, clusterer: Any, *, known: bool) -> None:
    """Warn if W looks like the kind that the clusterer does not take, or if all its entries are equal.

    Only arrays and features of at least ten objects are checked. With `known`, the kind of W is known to be
    correct.
    """
    wants = getattr(clusterer, "wants", None)
    if wants is None or W.n < MIN_OBJECTS:
        return
    hint = None
    if isinstance(W, Factored) and _are_same(W.like) and getattr(clusterer, "n_clusters", None) != 1:
        hint = f"all objects have the same features: {NOTHING_TO_FIND}"
    if isinstance(W, Dense):
        hint = _hint(entry_statistics(W), W, None if known else wants, clusterer)
    if hint is not None:
        warn_caller(hint, InputWarning)


def _are_same(x: Array) -> bool:
    """Return whether all rows are equal, with one read; in NumPy up to the first that differs."""
    xp = array_namespace(x)
    if can_sum_rows(x):
        return all(np.all(x[rows] == x[0]) for rows in row_blocks(x))
    same = xp.all(xp.max(x, axis=0) == xp.min(x, axis=0))
    return bool(to_host(same, reason="do objects differ?")[0])


def _hint(stats: EntryStatistics, W: Dense, wants: str | None, clusterer: Any) -> str | None:
    """Return the warning about W; None if there is none."""
    name = type(getattr(clusterer, "estimator", clusterer)).__name__
    if stats.lowest == stats.highest and getattr(clusterer, "n_clusters", None) != 1:
        return f"all entries of W off the diagonal are {stats.lowest:.6g}: {NOTHING_TO_FIND}"
    eps = array_namespace(W.array).finfo(W.array.dtype).eps
    if stats.on_diagonal > ZERO_DIAGONAL * eps**0.5 * max(stats.highest, -stats.lowest):
        return None  # clusterers of distances check this themselves
    if wants == "dissimilarity" and stats.rho > MIN_CORRELATION:
        return (
            f"{name} takes dissimilarities, but W looks like similarities: pairs with large entries "
            f"have similar rows (correlation {stats.rho:.2f}); use ax.Spectral or ax.KMeans, or "
            "pass W.max() - W with zeros on the diagonal"
        )
    # Graphs have more zeros.
    are_distances = stats.rho < -MIN_CORRELATION and stats.lowest >= 0 and stats.zeros <= MAX_SHARE_OF_ZEROS
    if wants == "similarity" and are_distances:
        return (
            f"{name} takes similarities, but W looks like distances: its diagonal is 0, and pairs with "
            f"small entries have similar rows (correlation {stats.rho:.2f}); use ax.Linkage, or "
            "convert W with ax.to_similarity(W)"
        )
    return None


def constant_facts(columns: Array, places: Array) -> Array:
    """Return the constant share of similarities, and the additive share of the rest, (2,), in wide floats.

        w̄² / mean w²,   1 − Σ(wᵢⱼ − aᵢ − bⱼ + w̄)² / Σ(wᵢⱼ − w̄)²

    with a and b the means of rows and columns, over i ≠ j of some columns. Dot products of features with a
    large mean c are c·c + c·x + c·y + x·y: the first term dominates, and the next two dominate the rest.
    `columns`, (n, r), and `places`, (r,), are the result of `sampled_columns`.
    """
    xp, (n, r) = array_namespace(columns), columns.shape
    largest = xp.max(xp.abs(columns))
    one = xp.ones_like(largest)
    x = columns / xp.where(largest > 0, largest, one)  # so that no square overflows
    objects = xp.arange(n, dtype=places.dtype, device=device_of(columns))
    off = xp.astype(objects[:, None] != places[None, :], x.dtype)  # (n, r)
    count = max(1, n * r - r)
    mean, square = xp.sum(x) / count, xp.sum(x * x) / count
    by_row = xp.sum(x, axis=1) / xp.maximum(xp.sum(off, axis=1), one)
    by_column = xp.sum(x, axis=0) / max(1, n - 1)
    deviation = off * (x - mean)
    rest = off * (x - by_row[:, None] - by_column[None, :] + mean)
    total = xp.sum(deviation * deviation)
    some, varied = square > 0, total > xp.finfo(x.dtype).eps * square
    share = xp.where(some, mean * mean / xp.where(some, square, one), 0 * one)
    additive = xp.where(varied, 1 - xp.sum(rest * rest) / xp.where(varied, total, one), 0 * one)
    return xp.stack([share, additive])


def warn_of_constant(facts: np.ndarray, r: int) -> None:
    """Warn if a constant dominates similarities with these `constant_facts` of r columns."""
    share, additive = (float(fact) for fact in facts)
    if r >= MIN_COLUMNS and share >= MIN_CONSTANT_SHARE and additive >= MIN_ADDITIVE_SHARE:
        warn_caller(
            f"a constant dominates W: the squared mean similarity is {share:.1%} of the mean square, "
            f"and one number per object explains {additive:.1%} of the rest, as in X @ X.T of features "
            "with a large mean. The forgetting factor will hardly react to changes of clusters; center the "
            "columns of X first, or pass features with proximity='dot'; scale='none' silences this warning",
            ScaleWarning,
        )
