"""Detect similarities that are nearly constant, such as dot products of features with a large mean."""

import numpy as np

from affect_xp.array.namespace import array_namespace, device_of
from affect_xp.array.typing import Array
from affect_xp.checks import warn_caller
from affect_xp.exceptions import ScaleWarning

__all__ = ["constant_facts", "warn_of_constant"]

# A constant dominates similarities if their squared mean is this share of their mean square, and an additive
# model with one number per object explains this share of the rest. This holds if the squared mean of the
# features is 10 times their variance. The second condition excludes Gaussian kernels, graphs and most
# correlations.
MIN_CONSTANT_SHARE = 0.85
MIN_ADDITIVE_SHARE = 0.93
MIN_COLUMNS = 20


def constant_facts(columns: Array, places: Array) -> Array:
    """Return the constant share of similarities, and the additive share of the rest, (2,), in wide floats.

        w̄² / mean w²,   1 − Σ(wᵢⱼ − aᵢ − bⱼ + w̄)² / Σ(wᵢⱼ − w̄)²

    with a and b the means of rows and columns, over i ≠ j of some columns. Dot products of features with a
    large mean c are c·c + c·x + c·y + x·y: the first term dominates, and the next two dominate the rest.

    Parameters
    ----------
    columns : (n, r) array
    places : (r,) int array
        Both are returned by `affect_xp.proximity.transforms.sampled_columns`.
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
