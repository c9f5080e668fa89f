"""Preparation of features: decided at the first step, and kept for all later steps.

Dot products depend on the units and the offset of each column. Location, scale and the width of a Gaussian
kernel are estimated from the first step alone:

* no future data are used: processing one step at a time gives the same result as processing the whole
  sequence;
* all steps share one coordinate system, because similarities of different steps are blended, and objects that
  arrive later are compared with earlier ones.
"""

import copy
import dataclasses
import math
import numbers
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    check_is_numpy,
    computed,
    device_of,
    fill_rows,
    for_each_block,
    from_host,
    not_zero,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice, warn_caller
from affect_xp.exceptions import InputError, InputTypeError, ScaleWarning, shown
from affect_xp.proximity.kernels import Block

SCALES = ("auto", "none", "center", "standard", "robust")
GAMMAS = ("first", "each")

# "auto" subtracts the mean if its square is at least this share of the variance, ‖x̄‖² ≥ ½ Σσ². Below that it
# hardly affects the forgetting factor. Windows of standardised series, whose columns are different days at
# each step, stay below: for later windows the mean of the first one would be noise.
MIN_OFFSET = 0.5
# If the mean must not be subtracted, warn if its square is this many times the variance: cosines exceed 0.9.
MIN_DOMINANT_OFFSET = 10.0
# Columns are standardised if their standard deviations differ by this factor or more: their units differ.
MIN_SPREAD_RATIO = 10.0
# From this factor on, warn: if the widest column has no clusters, it hides those of the others (ARI 0 instead
# of 0.6 to 1 by simulation). X is not scaled, because a column is also wide if it holds the clusters, such as
# two that are 10 standard deviations apart; columns of noise would then hide them (ARI 0.4 instead of 1).
MIN_WARNED_RATIO = 5.0
# The interquartile range of a normal distribution, in standard deviations.
NORMAL_IQR = 1.349
# A column is constant if its spread is below this many rounding errors of its largest value.
MAX_ROUNDING_ERRORS = 10
# Powers of two between which squares of features, and their sums, neither overflow nor underflow.
USUAL_EXPONENT = 400
# The kinds of proximity that depend on lengths.
LENGTHS = ("dot", "rbf", "euclidean")


@dataclasses.dataclass(frozen=True, eq=False)
class Preparation:
    """The decisions of a model at its first step, kept until `reset()`.

    Features X become (X − location) / scale, column by column.

    Attributes
    ----------
    location : (p,) NumPy array or None
        The offset of each column; None for 0.
    scale : (p,) NumPy array or None
        The divisor of each column; None for 1.
    gamma : float or None
        γ of proximity="rbf"; None if it is recomputed at each step, or not needed.
    rescale : str or None
        The transform that rescale="auto" chose for similarities.
    scaler : object or None
        The fitted copy of the object passed as `scale`.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> X = np.array([[101.0, 0.0], [103.0, 2.0]])
    >>> model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).partial_fit(X)
    >>> model.preparation_.location
    array([102.,   1.])
    """

    location: np.ndarray | None = None
    scale: np.ndarray | None = None
    gamma: float | None = None
    rescale: str | None = None
    scaler: Any = None

    def apply(self, X: Array) -> Array:
        """Return prepared features, with the dtype and device of X; X itself if there is nothing to do."""
        if self.scaler is not None:
            return _by_object(self.scaler, X)
        if self.location is None and self.scale is None:
            return X
        if not _is_usable(X):
            return X  # the kernel raises the error
        p = len(self.location if self.location is not None else self.scale)  # type: ignore[arg-type]
        if X.shape[1] != p:
            raise InputError(
                f"X has {X.shape[1]} features, but the previous steps had {p}, whose location and scale are "
                "kept; pass the same features at each step, or use scale='none'"
            )
        xp, wide = array_namespace(X), wide_dtype(X)
        dtype = X.dtype if xp.isdtype(X.dtype, "real floating") else wide
        location, scale = (
            None if x is None else from_host(x, X, dtype=wide)[None, :] for x in (self.location, self.scale)
        )
        result = xp.empty(tuple(X.shape), dtype=dtype, device=device_of(X))

        def prepared(rows: slice) -> Array:
            return xp.astype(_moved(X[rows, :], location, scale, wide), dtype, copy=False)

        return fill_rows(X, row_blocks(X), prepared, result)


def _moved(x: Array, location: Array | None, scale: Array | None, wide: object) -> Array:
    """Return (x − location) / scale in wide floats."""
    x = array_namespace(x).astype(x, wide, copy=False)
    x = x if location is None else x - location
    return x if scale is None else x / scale


@dataclasses.dataclass(frozen=True, eq=False)
class Request:
    """The preparation that a model requests, and the invariances of its clusterer."""

    # The parameters of the model.
    scale: Any
    gamma: str | float
    proximity: str | Block
    # Whether the clusterer finds the same clusters in dot products of translated features.
    translation_free: bool = False
    # Whether it finds the same clusters in features of other units. A clusterer with a threshold does not.
    unit_free: bool = False

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        if isinstance(self.scale, type) or not (
            hasattr(self.scale, "fit") and hasattr(self.scale, "transform")
        ):
            check_choice("scale, if not an object with fit and transform,", self.scale, SCALES)
        if self.is_precomputed and not (isinstance(self.scale, str) and self.scale in ("auto", "none")):
            raise InputError(
                f"scale={self.scale!r} is for features, but proximity='precomputed'; omit scale, or pass "
                "features with proximity='dot', 'rbf', 'cosine' or 'euclidean'"
            )
        self._check_gamma()

    def _check_gamma(self) -> None:
        gamma: object = self.gamma
        if isinstance(gamma, str):
            check_choice("gamma, if not a number,", gamma, GAMMAS)
        elif isinstance(gamma, bool) or not isinstance(gamma, numbers.Real):
            raise InputTypeError(f"gamma must be 'first', 'each' or a positive number, got {shown(gamma)}")
        elif not 0 < float(gamma) < math.inf:
            raise InputError(f"gamma must be positive and finite, got {gamma}")
        if self.proximity != "rbf" and gamma != "first":
            raise InputError(f"gamma={gamma!r} is for proximity='rbf', got {self.proximity!r}; omit gamma")

    @property
    def is_precomputed(self) -> bool:
        """Whether the input is proximities rather than features."""
        return isinstance(self.proximity, str) and self.proximity == "precomputed"

    @property
    def has_units(self) -> bool:
        """Whether a parameter is in the units of the features: a threshold, or γ."""
        return not self.unit_free or not isinstance(self.gamma, str)


@dataclasses.dataclass(frozen=True, eq=False)
class _ColumnStatistics:
    """Statistics of the columns of X: mean, standard deviation and largest |x|, (p,) each, on the host."""

    mean: np.ndarray
    std: np.ndarray  # 0 for constant columns
    largest: np.ndarray

    @property
    def offset(self) -> float:
        """‖x̄‖² / Σσ²: the constant part of dot products."""
        unit = self.largest.max() or 1.0  # so that no square overflows
        square, variance = ((self.mean / unit) ** 2).sum(), ((self.std / unit) ** 2).sum()
        return float(square / variance) if variance > 0 else 0.0

    @property
    def spread(self) -> float:
        """The largest standard deviation divided by the smallest nonzero one."""
        some = self.std[self.std > 0]
        return float(some.max() / some.min()) if len(some) else 1.0

    def prepared(self, preparation: Preparation) -> "_ColumnStatistics":
        """Return the statistics of prepared features; the largest |x| is a bound."""
        location = 0.0 if preparation.location is None else preparation.location
        scale = 1.0 if preparation.scale is None else preparation.scale
        return _ColumnStatistics(
            (self.mean - location) / scale, self.std / scale, self.largest / scale + np.abs(location) / scale
        )

    @property
    def variance(self) -> float:
        """The variance of all entries: the mean variance of columns, and the variance of their means."""
        with np.errstate(over="ignore", under="ignore"):
            return float((self.std**2).mean() + self.mean.var())


def decide(X: Array, request: Request, names: Sequence[str] | None = None) -> Preparation:
    """Return the preparation of all steps, from the features of the first.

    One transfer copies statistics to the host; "robust" copies the whole array if it is a dask array. `names`
    are those of the columns, for messages.
    """
    if not _is_usable(X):
        return Preparation()  # the kernel raises the error
    if not isinstance(request.scale, str):
        return _with_object(X, request)
    columns = _statistics_of(X)
    if columns is None:
        return Preparation()
    found = _scaling(X, columns, request, names or [f"column {j}" for j in range(X.shape[1])])
    prepared = columns.prepared(found)
    _check_range(prepared, X.shape, request)
    return dataclasses.replace(found, gamma=_gamma(request, X.shape[1], prepared.variance))


def _is_usable(X: Array) -> bool:
    xp = array_namespace(X)
    return X.ndim == 2 and 0 not in X.shape and xp.isdtype(X.dtype, ("real floating", "integral", "bool"))


def _statistics_of(X: Array) -> _ColumnStatistics | None:
    """Return mean, spread and size of each column, read with one transfer; None if they are not finite.

    Columns are divided by their largest value first, so that squares do not overflow, and the mean of a
    constant column is exact.
    """
    xp, wide = array_namespace(X), wide_dtype(X)
    eps = xp.finfo(X.dtype if xp.isdtype(X.dtype, "real floating") else wide).eps
    blocks = list(row_blocks(X))

    def by_block(function: Callable[[Array], Array]) -> Array:
        parts: dict[int, Array] = {}

        def add(rows: slice) -> None:
            parts[rows.start] = function(xp.astype(X[rows, :], wide, copy=False))

        for_each_block(add, blocks, X)
        return xp.stack([parts[rows.start] for rows in blocks])

    def total(function: Callable[[Array], Array]) -> Array:
        return xp.sum(by_block(lambda x: xp.sum(function(x / unit[None, :]), axis=0)), axis=0)

    with own_threads(), np.errstate(invalid="ignore", over="ignore"):
        largest = xp.max(by_block(lambda x: xp.max(xp.abs(x), axis=0)), axis=0)  # (p,)
        unit = not_zero(largest)
        mean = total(lambda x: x) / X.shape[0]
        std = xp.sqrt(total(lambda x: (x - mean[None, :]) ** 2) / X.shape[0])
        facts = to_host(xp.stack([largest, mean, std]), reason="units and offsets of features")[0]
    largest, mean, std = (np.asarray(fact, dtype=np.float64) for fact in facts)
    if not np.isfinite(facts).all():
        return None
    std = np.where(std > MAX_ROUNDING_ERRORS * float(eps), std, 0.0)
    return _ColumnStatistics(mean * largest, std * largest, largest)


def _scaling(X: Array, columns: _ColumnStatistics, request: Request, names: Sequence[str]) -> Preparation:
    """Return the requested location and scale."""
    if request.scale == "auto":
        return _automatic(columns, request, names)
    if request.scale == "none":
        return Preparation()
    if request.scale == "robust":
        return _robust(X, columns)
    return _standard(columns, center=True, divide=request.scale == "standard")


def _standard(columns: _ColumnStatistics, *, center: bool, divide: bool) -> Preparation:
    std = np.where(columns.std > 0, columns.std, 1.0)
    return Preparation(_fixed(columns.mean) if center else None, _fixed(std) if divide else None)


def _automatic(columns: _ColumnStatistics, request: Request, names: Sequence[str]) -> Preparation:
    """Return the preparation for scale="auto"; warn if the right one is unclear."""
    is_dot, offset = request.proximity == "dot", columns.offset
    may_center = is_dot and request.translation_free
    if callable(request.proximity):
        return Preparation()  # the effect on the function is unknown
    if not may_center and request.proximity in ("dot", "cosine") and offset >= MIN_DOMINANT_OFFSET:
        _warn_of_offset(offset, request)
    if request.proximity in LENGTHS and columns.spread >= MIN_WARNED_RATIO:
        divide = columns.spread >= MIN_SPREAD_RATIO and not request.has_units
        _warn_of_spread(columns, request, names, divide=divide)
        if divide:
            return _standard(columns, center=may_center or not is_dot, divide=True)
    center = may_center and offset >= MIN_OFFSET
    return _in_range(columns, _standard(columns, center=center, divide=False), request)


def _in_range(columns: _ColumnStatistics, found: Preparation, request: Request) -> Preparation:
    """Divide all columns by one power of two if their squares would overflow or underflow."""
    prepared = columns.prepared(found)
    size = float(np.maximum(np.abs(prepared.mean), prepared.std).max())
    exponent = math.frexp(size)[1] if size > 0 else 0
    if abs(exponent) <= USUAL_EXPONENT or request.has_units or request.proximity == "cosine":
        return found
    return dataclasses.replace(found, scale=_fixed(np.full_like(columns.mean, 2.0 ** min(exponent, 1023))))


def _robust(X: Array, columns: _ColumnStatistics) -> Preparation:
    """Return the median, and IQR / 1.349; the standard deviation if the IQR is 0."""
    x = computed(X, reason="quartiles of a lazy array")
    xp, n = array_namespace(x), x.shape[0]
    ordered = xp.sort(xp.astype(x, wide_dtype(x)), axis=0)
    below = [int(q * (n - 1)) for q in (0.25, 0.5, 0.75)]
    rows = from_host([i for b in below for i in (b, min(b + 1, n - 1))], ordered)
    read = to_host(xp.take(ordered, rows, axis=0), reason="quartiles of features")[0]
    weights = [q * (n - 1) - b for q, b in zip((0.25, 0.5, 0.75), below, strict=True)]
    low, median, high = (
        (1 - w) * a + w * b for w, a, b in zip(weights, read[::2, :], read[1::2, :], strict=True)
    )
    scale = high / NORMAL_IQR - low / NORMAL_IQR
    scale = np.where((scale > 0) & (columns.std > 0), scale, columns.std)
    return Preparation(_fixed(median), _fixed(np.where(scale > 0, scale, 1.0)))


def _fixed(values: np.ndarray) -> np.ndarray:
    """Return values as a read-only array."""
    values = np.array(values, dtype=np.float64)
    values.flags.writeable = False
    return values


def _gamma(request: Request, p: int, variance: float) -> float | None:
    """Return γ: 1 / (p · var X) of the prepared first step, the given number, or None for gamma="each"."""
    if request.proximity != "rbf" or request.gamma == "each":
        return None
    if request.gamma != "first":
        return float(request.gamma)
    return 1 / (p * variance) if variance > 0 else 1.0


def _check_range(columns: _ColumnStatistics, shape: tuple[int, ...], request: Request) -> None:
    """Raise if dot products or squared distances of features would overflow or underflow."""
    if request.proximity not in LENGTHS:
        return
    n, p = shape
    size, spread = float(columns.largest.max()), float(columns.std.max())
    most = math.sqrt(sys.float_info.max / (4 * p)) / n  # sums over all pairs do not overflow
    least = 1e3 * math.sqrt(sys.float_info.min)
    if size > most or 0 < spread < least:
        what = "large" if size > most else "small"
        how = "multiply" if what == "small" else "divide"
        raise InputError(
            f"X has values up to {size:.3g} with a spread of {spread:.3g}: too {what} for their "
            f"squares, with scale={request.scale!r}; {how} X by a constant, or use scale='standard'"
        )


def _with_object(X: Array, request: Request) -> Preparation:
    """Fit a copy of the object passed as scale."""
    scaler = copy.deepcopy(request.scale)
    scaler.fit(_on_host(scaler, X))
    columns = _statistics_of(_by_object(scaler, X))
    if columns is None:
        return Preparation(scaler=scaler)
    _check_range(columns, X.shape, request)
    return Preparation(gamma=_gamma(request, len(columns.mean), columns.variance), scaler=scaler)


def _on_host(scaler: Any, X: Array) -> np.ndarray:
    message = (
        f"scale={scaler!r} works on NumPy arrays, got {type(X).__module__}.{type(X).__name__}; "
        "use scale='standard' or 'robust', which accept arrays of all libraries"
    )
    check_is_numpy(X, message)
    return X


def _by_object(scaler: Any, X: Array) -> np.ndarray:
    result = np.asarray(scaler.transform(_on_host(scaler, X)))
    if result.ndim != 2 or len(result) != len(X):
        raise InputError(
            f"scale={scaler!r} must return one row for each of {len(X)} objects, got shape {result.shape}"
        )
    return result


def _warn_of_offset(offset: float, request: Request) -> None:
    remedy = "use proximity='rbf'"
    if request.proximity == "cosine":
        remedy = "use scale='center' to subtract it"
    warn_caller(
        f"the mean of the features dominates: its square is {offset:.3g} times their variance, so that all "
        f"similarities of proximity={request.proximity!r} are nearly equal. X is not centered, because this "
        f"would change the meaning of the similarities; {remedy}, or scale='none' to silence this warning",
        ScaleWarning,
    )


def _warn_of_spread(
    columns: _ColumnStatistics, request: Request, names: Sequence[str], *, divide: bool
) -> None:
    places = [int(j) for j in np.argsort(-columns.std, kind="stable") if columns.std[j] > 0]
    shown = places if len(places) <= 6 else [*places[:3], None, *places[-3:]]
    spreads = ", ".join("..." if j is None else f"{names[j]} {columns.std[j]:.3g}" for j in shown)
    if divide:
        done = "Dividing by the standard deviations of the first step; pass scale='standard' to confirm"
    elif request.has_units:
        done = (
            "X is not scaled, because a parameter is in its units: use scale='standard' with a parameter in "
            "standard deviations"
        )
    else:
        done = "X is not scaled, because the columns may have the same unit: use scale='standard' if not"
    warn_caller(
        f"the columns of X differ in spread by a factor of {columns.spread:.3g} ({spreads}): unscaled, "
        f"the widest dominate. {done}, or scale='none' to use X unchanged; both silence this warning",
        ScaleWarning,
    )
