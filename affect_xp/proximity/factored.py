"""Proximities stored as factors, W = U diag(s) Uᵀ: dot products of features, and their blends."""

import dataclasses
import functools
import math
import sys
from typing import Any, final

import numpy as np

from affect_xp.array import namespace
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    changed_places,
    device_of,
    from_host,
    gather,
    is_array,
    is_cupy,
    is_lazy,
    not_zero,
    on_host,
    on_input_device,
    places_of,
    row_blocks,
    thin_product,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction, check_int
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import UNCHANGED, Alignment, Partition
from affect_xp.proximity._base import (
    Proximity,
    feature_matrix,
    joint_magnitude,
    log2,
    measured_magnitude,
    reject_not_finite,
)
from affect_xp.proximity._columns import (
    Factor,
    Factors,
    Scatter,
    Spread,
    copied,
    eigenpairs,
    eigenpairs_by_gram,
    expand,
    filled,
    label_sums,
    mapped,
    numbered,
    project,
    rows_of,
    scatter_with,
    with_features,
)
from affect_xp.proximity._factored_groups import FactoredGroups
from affect_xp.proximity.blend import BlendGroups, ObjectGroups
from affect_xp.proximity.grouped import MAX_UPDATE_SHARE, Grouped, column_sums, remembered

# On a device, products with at most this many columns are computed from scratch when objects move.
MAX_SMALL_RANK = 64
# Columns whose weight is below this share of its original value are negligible.
TOLERANCE = 1e-17
# Eigenvalues below this share of the largest are rounding errors when columns are recombined.
RELATIVE_ROUNDING = 1e-12
# Up to this size the columns of all steps are copied into one array, which fits into a large cache.
HOST_JOINED_BYTES = 8 * 2**20
# Sums of squares of columns are updated for moved objects from this number nq² of multiplications on.
MIN_UPDATED_WORK = 2**24

# Resets cached values after the columns have changed.
UNKNOWN: dict[str, Any] = {
    "leading": None,
    "known_diagonal": None,
    "known_magnitude": None,
    "past_error": 0.0,
}


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Factored(Proximity):
    """W = U diag(s) Uᵀ with U of shape (n, q) and weights s of either sign; exact, and never n×n.

    Made from features by `from_features`. A blend appends the current columns to those of the past, so
    memory and time grow with the history, until old weights become negligible or `max_rank` is reached. U
    takes n·q numbers; a product with V (n, r) takes 4nqr operations, the moments 2nq² (k times that on a
    device, to avoid waiting), and the distance to given means half as much as a product, because the q×q
    scatter of U is kept from step to step.

    Attributes
    ----------
    factors : tuple
        The columns of U. The arrays must not be written to.
    weights : (q,) array
        The weights s, in wide floats.
    max_rank, tolerance
        As given to `from_features`; a blend uses those of the current step.
    error : 0-d array or float
        An upper bound of the Frobenius norm of all that was dropped because of `max_rank` and `tolerance`.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.factored import Factored
    >>> w = Factored.from_features(np.array([[1.0, 2.0], [3.0, 0.0]]))
    >>> w.to_dense().array
    array([[5., 3.],
           [3., 9.]])
    >>> w.matmul(np.ones((2, 1))).ravel()
    array([ 8., 12.])
    """

    factors: tuple[Factor, ...]
    weights: Array
    max_rank: int | None = None
    tolerance: float = TOLERANCE
    error: Array | float = 0.0
    leading: Scatter | None = None  # of the first columns, if known
    known_diagonal: Array | None = None  # if known from the parts of a blend
    known_magnitude: float | None = None
    past_error: Array | float = 0.0  # the part of `error` that comes from the past of a blend
    joins: bool = True  # whether few columns are copied into one array

    @remembered
    def magnitude(self) -> float:
        """About log₂ of the largest s·x²."""
        if self.known_magnitude is not None:
            return self.known_magnitude
        return 2 * self._log2_features() + measured_magnitude([self.weights])

    def _log2_features(self) -> float:
        return measured_magnitude(factor.x for factor in self.factors)

    def in_units_of(self, unit: float) -> "Factored":
        """Return W / unit with features of magnitude 1, since their fourth powers are summed."""
        size = self._log2_features()
        x_unit = 2.0 ** round(size) if math.isfinite(size) else 1.0
        factors = tuple(dataclasses.replace(factor, x=factor.x / x_unit) for factor in self.factors)
        weights = self.weights * (x_unit / unit) * x_unit
        return dataclasses.replace(self, factors=factors, weights=weights, **UNKNOWN)

    @staticmethod
    @on_input_device
    def from_features(
        X: Array, weights: Array | None = None, *, max_rank: int | None = None, tolerance: float = TOLERANCE
    ) -> "Factored":
        """Return the dot products W = X diag(weights) Xᵀ of features, after checking that they are finite.

        Parameters
        ----------
        X : (n, p) array of any library, or nested lists
            float32 and float64 are kept, not copied; integers and booleans become float64.
        weights : (p,) array, optional
            Of either sign; by default 1 for each column.
        max_rank : int, optional
            The largest number of columns a blend may keep, at least p. Beyond it the best approximation
            of this rank is kept, and `error` bounds the difference.
        tolerance : float
            The columns of a step are dropped when the product of the forgetting factors since then (of
            those that are Python floats) is below this value.
        """
        X, size = _checked_features(X)
        magnitude = size if weights is None else None
        p, xp, wide = X.shape[1], array_namespace(X), wide_dtype(X)
        if max_rank is not None and check_int("max_rank", max_rank, 1) < p:
            raise InputError(
                f"max_rank={max_rank}, but X has {p} columns; raise it or reduce the features first"
            )
        if weights is None:
            weights = xp.ones((p,), dtype=wide, device=device_of(X))
        if tuple(weights.shape) != (p,):
            shape = tuple(weights.shape)
            raise InputError(f"weights must be of shape ({p},), one for each column of X, got {shape}")
        tolerance = check_fraction("tolerance", tolerance)
        factors, weights = (Factor(X),), xp.astype(weights, wide)
        return Factored(factors, weights, max_rank, tolerance, known_magnitude=magnitude)

    @property
    def n(self) -> int:
        return self.factors[0].x.shape[0]

    @property
    def max_update_share(self) -> float:  # type: ignore[override]
        """1; 0 for few columns on a device, where a product from scratch takes fewer launches."""
        return 0.0 if self.rank <= MAX_SMALL_RANK and is_cupy(self.like) else 1.0

    @property
    def rank(self) -> int:
        """The number q of columns of U."""
        return self.weights.shape[0]

    @property
    def like(self) -> Array:
        """The features of the oldest columns."""
        return self.factors[0].x

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats; cached."""
        return self._diagonal

    @remembered
    def _diagonal(self) -> Array:
        if self.known_diagonal is not None:
            return self.known_diagonal
        # wᵢᵢ = Σ_a s_a uᵢₐ²
        return expand(self.factors, lambda u, columns: _square(u) @ self.weights[columns, None], 1)[:, 0]

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V = U (s ∘ UᵀV), (n, r); with `rows`, W[:, rows]·v."""
        t = self.weights[:, None] * project(self.joined, v, rows)
        return array_namespace(v).astype(self._times(t), v.dtype, copy=False)

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> FactoredGroups:
        """Return W with the labels of its objects, using UᵀZ: no n×k array is stored."""
        return FactoredGroups(self, labels, k, given)

    def carried(self, groups: Grouped, given: Partition | None = None) -> FactoredGroups | None:
        """Return the groups of this blend with the same labels, unless columns were dropped.

        A blend by objects has other rows than its parts, those of movers times their trust.
        """
        if isinstance(groups, ObjectGroups):
            return None
        parts: list[Any] = [groups]
        if isinstance(groups, BlendGroups):
            pair = groups.parts
            parts = [pair.past, pair.current]
            parts += [] if pair.common is pair.current else [pair.common]
        t = array_namespace(self.weights).concat([part.t for part in parts])
        if t.shape[0] != self.rank:
            return None
        return FactoredGroups(self, groups.labels, groups.k, given or groups.given, known_t=t)

    def concatenated(self, past: "Factored", alpha: Array | float) -> "Factored":
        """Return α·past + (1 − α)·W of the same objects with the columns of both, without copying."""
        xp = array_namespace(self.weights)
        weights = xp.concat([alpha * past.weights, (1 - alpha) * self.weights])
        diagonal = self._blended_diagonal(past, alpha, UNCHANGED)
        return Factored(past.joined + self.joined, weights, known_diagonal=diagonal, joins=False)

    def _times(self, t: Array) -> Array:
        """Return U·T, (n, r)."""
        return expand(self.joined, lambda u, columns: thin_product(u, t[columns, :]), t.shape[1])

    @functools.cached_property
    def joined(self) -> Factors:
        """The columns in one factor if U is small: one product is faster than many."""
        budget = HOST_JOINED_BYTES if on_host(self.like) else namespace.DEVICE_BLOCK_BYTES
        is_large = 8 * self.n * self.rank > budget
        if not self.joins or len(self.factors) == 1 or is_large or is_lazy(self.like):
            return self.factors
        return (Factor(rows_of(self.factors, slice(0, self.n))),)

    def block_moments(self, partition: Partition, spread: Spread | None = None) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k).

        Rows of U are centered about their centroids, uᵢ = ū_c + dᵢ: then all cross terms vanish, and no
        digits are lost if the mean is large and the spread is small. With C_c = Σ_{i∈c} dᵢdᵢᵀ and all
        products of vectors and matrices weighted by s, over all i in c and j in d (i = j as well):

            w̄ = ⟨ū_c, ū_d⟩,   Σ(w − w̄)² = m_c ū_cᵀC_d ū_c + m_d ū_dᵀC_c ū_d + ⟨C_c, C_d⟩
        """
        spread = self.spread(partition) if spread is None else spread
        m, across, centroids = partition.sizes, spread.across, spread.centroids
        squares = m[:, None] * across + m[None, :] * across.T + spread.within
        return self._off_diagonal(partition, (self.weights * centroids) @ centroids.T, squares)

    def spread(self, partition: Partition, t: Array | None = None) -> Spread:
        """Return the sums C_c; T = UᵀZ may be known."""
        t = label_sums(self.joined, partition.labels[:, None], partition.k) if t is None else t
        return Spread.of(self.joined, self.weights, partition, _centroids(partition, t))

    def moved_spread(self, known: Spread, before: Partition, now: Partition, t: Array) -> Spread:
        """Return the sums C_c for other labels, updated if few objects have moved; T = UᵀZ."""
        rows = changed_places(before.labels, now.labels)
        is_little = self.n * self.rank**2 < MIN_UPDATED_WORK
        if rows is None or known.scatters is None or is_little or len(rows) > MAX_UPDATE_SHARE * self.n:
            return self.spread(now, t)
        return known.moved(self.joined, self.weights, rows, before, now, _centroids(now, t))

    def _off_diagonal(self, partition: Partition, means: Array, squares: Array) -> tuple[Array, Array]:
        """Return μ and Σ(w − μ)² over i ≠ j, given w̄ and Σ(w − w̄)² over all pairs. Within a cluster

        μ = w̄ − Σᵢ(wᵢᵢ − w̄) / m(m − 1),   Σ_{i≠j}(w − μ)² = Σ(w − w̄)² + m²(w̄ − μ)² − Σᵢ(wᵢᵢ − μ)²
        """
        m, count = partition.sizes, partition.pair_counts
        xp = array_namespace(m)
        own = xp.eye(partition.k, dtype=m.dtype, device=device_of(m))
        above = self.diagonal() - partition.by_object(xp.linalg.diagonal(means))
        excess = partition.totals(above)  # Σ(wᵢᵢ − w̄), (k,)
        shift = own * excess / not_zero(count)  # w̄ − μ
        mu = xp.where(count > 0, means - shift, xp.zeros_like(means))
        deviation = self.diagonal() - partition.by_object(xp.linalg.diagonal(mu))
        squares = squares + _square(m * shift) - own * partition.totals(_square(deviation))
        return mu, xp.where((squares > 0) & (count > 0), squares, xp.zeros_like(squares))

    def square_distance(self, partition: Partition, means: Array, t: Array | None = None) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²; T = UᵀZ may be known.

        As in `block_moments`, but summed over all blocks, which needs only the scatter C = Σ_c C_c within
        clusters. It follows from the scatter of U, which is known, and the centroids:

            Σ(w − μ)² = Σ m_c m_d (⟨ū_c, ū_d⟩ − μ_cd)² + 2 Σ m_c ū_cᵀC ū_c + ⟨C, C⟩
            C = Σᵢ (uᵢ − r)(uᵢ − r)ᵀ − Σ m_c (ū_c − r)(ū_c − r)ᵀ

        The host waits once for the number of unlabelled objects, if the partition does not know it.
        """
        t = label_sums(self.joined, partition.labels[:, None], partition.k) if t is None else t
        xp, s, m = array_namespace(self.weights), self.weights, partition.sizes
        centroids = _centroids(partition, t)
        about = centroids - self._scatter.centre
        scatter = self._labelled_scatter(partition) - (m[:, None] * about).T @ about  # C, (q, q)
        weighted = s * centroids
        between = m @ (_square(weighted @ centroids.T - means) @ m)
        across = m @ xp.sum((weighted @ scatter) * weighted, axis=1)
        within = s @ (_square(scatter) @ s)
        deviation = self.diagonal() - partition.by_object(xp.linalg.diagonal(means))
        on_diagonal = _square(deviation) @ partition.is_member
        total = between + 2 * across + within - on_diagonal
        return xp.where(total > 0, total, xp.zeros_like(total))

    @property
    def _known_scatter(self) -> Scatter | None:
        """The scatter of U, if it is known of all columns."""
        is_whole = self.leading is not None and self.leading.q == self.rank
        return self.leading if is_whole else Factored._scatter.known(self)

    def with_squares_of(self, groups: Grouped) -> "Factored":
        """Return W with the scatter of U, if C_c are known: Σ C_c + Σ m_c (ū_c − r)(ū_c − r)ᵀ with mean r."""
        spread = FactoredGroups.spread.known(groups) if isinstance(groups, FactoredGroups) else None
        if spread is None or not can_sum_rows(self.weights) or bool(np.any(groups.labels < 0)):
            return self
        m = groups.partition.sizes
        centre = (m @ spread.centroids) / self.n
        about = spread.centroids - centre
        scatter = Scatter(centre, spread.total + (m[:, None] * about).T @ about)
        return dataclasses.replace(self, leading=scatter)

    def with_known(self) -> "Factored":
        """Return the same with computed values as fields, which a file stores."""
        diagonal = Factored._diagonal.known(self)
        return dataclasses.replace(
            self,
            leading=self._known_scatter or self.leading,
            known_diagonal=self.known_diagonal if diagonal is None else diagonal,
        )

    @remembered
    def _scatter(self) -> Scatter:
        """The scatter of U; only the unknown part is computed."""
        xp, scatter = array_namespace(self.weights), self.leading
        if scatter is None:
            none = self.weights[:0]
            scatter = Scatter(none, none[:, None] * none)
        for i, (factor, columns) in enumerate(numbered(self.factors)):
            if columns.stop > scatter.q:
                mean = column_sums(factor.rows(slice(0, self.n))) / self.n
                products = scatter_with(self.factors[: i + 1], xp.concat([scatter.centre, mean]))
                scatter = scatter.adding(mean, products)
        return scatter

    def _labelled_scatter(self, partition: Partition) -> Array:
        """Return the scatter of the rows of labelled objects about the common centre, (q, q)."""
        xp = array_namespace(self.weights)
        outside, n_outside = partition.labels < 0, partition.n_outside
        if n_outside is None:
            count = xp.sum(xp.astype(outside, xp.int64))
            n_outside = int(to_host(count, reason="how many objects are unlabelled?")[0])
        if n_outside == 0:
            return self._scatter.sums
        if 2 * n_outside > self.n:
            return self._rows_scatter(places_of(~outside, self.n - n_outside))
        return self._scatter.sums - self._rows_scatter(places_of(outside, n_outside))

    def _rows_scatter(self, index: Array) -> Array:
        """Return Σ(uᵢ − r)(uᵢ − r)ᵀ over some objects, (q, q)."""
        centre, total = self._scatter.centre, 0
        for block in row_blocks(self.like, index.shape[0], n_columns=self.rank):
            u = rows_of(self.factors, index[block]) - centre
            total = total + u.T @ u
        return total

    def take(self, index: Array) -> "Factored":
        xp = array_namespace(self.weights)
        factors = mapped(self.factors, lambda x: xp.take(x, index, axis=0))
        return dataclasses.replace(self, factors=factors, leading=None, known_diagonal=None, past_error=0.0)

    def rows(self, index: Array | None = None) -> Array:
        """Return the rows of U at `index`, by default all, (m, q), in wide floats."""
        return rows_of(self.factors, slice(0, self.n) if index is None else index)

    def copy(self) -> "Factored":
        return dataclasses.replace(self, factors=copied(self.factors))

    def to_dense(self) -> Any:
        """Return the proximities as a `Dense` with an n×n array in the precision of the features."""
        xp, dtype = array_namespace(self.weights), self.like.dtype
        u = rows_of(self.factors, slice(0, self.n)).T  # (q, n)

        def rows_of_w(rows: slice) -> Array:
            return xp.astype((rows_of(self.factors, rows) * self.weights) @ u, dtype)

        return self.dense_type(filled(self.factors, self.n, dtype, rows_of_w))

    def blend(
        self, past: "Factored", alpha: Array | float, alignment: Alignment, *, out: "Factored | None" = None
    ) -> "Factored":
        """Return α·past + (1 − α)·W for pairs of objects that have a past, and W for the others.

        With E the embedding of the common objects, P = EEᵀ, and W = X diag(s) Xᵀ, the columns are EY of
        the past with the weights α s_Y, and X with the weights (1 − α) s; if there are new objects,
        X with s and PX with −α s. Arrays of the past are shared while the objects stay the same.
        """
        if not isinstance(past, Factored):
            raise InputTypeError(f"cannot blend Factored with {type(past).__name__}; call .to_dense() first")
        xp, s = array_namespace(self.weights, past.weights), self.weights
        is_known = not is_array(alpha)
        a = float(alpha) if is_known else xp.astype(alpha, s.dtype)
        before, leading = past._embedded(alignment)
        before = tuple(f.decayed(a if is_known else 1.0) for f in before)
        now = copied(self.factors)
        if alignment.n_new:
            now, weights = now + tuple(f.without_new(alignment.source) for f in now), xp.concat([s, -a * s])
        else:
            now, weights = tuple(f.decayed(1 - a if is_known else 1.0) for f in now), (1 - a) * s
        weights = xp.concat([a * past.weights, weights])
        error = a * past.error + self.error
        return Factored(
            before + now,
            weights,
            self.max_rank,
            self.tolerance,
            error,
            leading,
            self._blended_diagonal(past, a, alignment),
            joint_magnitude(self, past, alpha),
            past_error=a * past.error,
        )._drop_decayed()

    def blend_by_object(
        self,
        past: "Factored",
        alpha: Array | float,
        trust: Array,
        alignment: Alignment,
        *,
        out: "Factored | None" = None,
    ) -> "Factored":
        """Return W + α S(EΨEᵀ − W)S: the columns of SY, of X and of SX with the weights α s_Y, s and −α s."""
        xp, s = array_namespace(self.weights, past.weights), self.weights
        a = float(alpha) if not is_array(alpha) else xp.astype(alpha, s.dtype)
        before, _ = past._embedded(alignment)

        def trusted(x: Array) -> Array:
            return xp.astype(x * trust[:, None], x.dtype, copy=False)

        decayed = tuple(f.decayed(a if isinstance(a, float) else 1.0) for f in with_features(before, trusted))
        now = copied(self.factors)
        return Factored(
            decayed + now + with_features(now, trusted),
            xp.concat([a * past.weights, s, -a * s]),
            self.max_rank,
            self.tolerance,
            a * past.error + self.error,
        )._drop_decayed()

    def block_products(self, past: "Factored", alignment: Alignment, partition: Partition) -> Array:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block, (k, k).

        With G_c = Σ_{i∈c} uᵢyᵢᵀ it is Σ_ab s_a t_b (G_c)_ab (G_d)_ab over all i and j.
        """
        xp, z, (before, _) = array_namespace(self.weights), partition.membership, past._embedded(alignment)
        total: Array = 0
        for factor, columns in numbered(self.factors):
            for a in range(columns.stop - columns.start):
                u = factor.rows(slice(0, self.n))[:, a]
                g = project(before, z * u[:, None])  # (q, k), G_c of one column
                total = total + self.weights[columns.start + a] * (g.T @ (past.weights[:, None] * g))
        psi_ii = past.diagonal()
        psi_ii = psi_ii if alignment.source is None else gather(psi_ii, alignment.source, 0)
        own = (self.diagonal() * psi_ii) @ z
        return total - xp.eye(partition.k, dtype=own.dtype, device=device_of(own)) * own

    def _blended_diagonal(self, past: "Factored", a: Array | float, alignment: Alignment) -> Array:
        """Return the diagonal of the blend, from those of its parts."""
        w, psi, source = self.diagonal(), past.diagonal(), alignment.source
        if source is None:
            return w + a * (psi - w)
        return array_namespace(w).where(source >= 0, w + a * (gather(psi, source, 0) - w), w)

    def _embedded(self, alignment: Alignment) -> tuple[tuple[Factor, ...], Scatter | None]:
        """Return EU, with zeros for new objects, and its scatter, or None if unknown."""
        source, scatter = alignment.source, self._known_scatter
        if source is None:
            return self.factors, scatter
        xp = array_namespace(source)
        if alignment.n_new:
            factors = mapped(self.factors, lambda x: gather(x, source, 0))
        else:
            factors = mapped(self.factors, lambda x: xp.take(x, source, axis=0))
        n_left = self.n - alignment.n_common
        if scatter is None or 2 * n_left > self.n:
            return factors, None
        if n_left:
            scatter = scatter.plus(-self._rows_scatter(alignment.gone()))
        return factors, scatter.plus(alignment.n_new * scatter.centre[:, None] * scatter.centre)

    def _drop_decayed(self) -> "Factored":
        """Drop decayed columns, and reduce the rank to at most `max_rank`."""
        stays = [factor.decay >= self.tolerance for factor in self.factors]
        stays[-1] = True  # keep at least one
        short = self if all(stays) else self._keep(stays)
        if self.max_rank is None or short.rank <= self.max_rank:
            return short
        return short._truncate(self.max_rank)

    def _keep(self, stays: list[bool]) -> "Factored":
        """Drop some factors, and add their norms ‖s u uᵀ‖ = |s| ‖u‖² to `error`."""
        xp, error, leading = array_namespace(self.weights), self.error, self.leading
        diagonal = self.diagonal()
        for stay, (factor, columns) in zip(stays, numbered(self.factors), strict=True):
            if not stay:
                squares, s = _square(factor.rows(slice(0, self.n))), self.weights[columns]
                error, diagonal = error + xp.abs(s) @ xp.sum(squares, axis=0), diagonal - squares @ s
        kept = np.repeat(stays, [factor.width for factor in self.factors]).nonzero()[0]
        if leading is not None:
            leading = leading.columns(from_host(kept[kept < leading.q], self.weights))
        return dataclasses.replace(
            self,
            factors=tuple(factor for stay, factor in zip(stays, self.factors, strict=True) if stay),
            weights=xp.take(self.weights, from_host(kept, self.weights)),
            error=error,
            leading=leading,
            known_diagonal=diagonal,
        )

    def _compress(self, max_rank: int | None = None) -> "Factored":
        """Reduce the columns to the numerical rank, or to `max_rank` if that is less.

        The host waits once for the numerical rank.
        """
        if self.rank == 0 or is_lazy(self.like):
            return self
        values, basis = eigenpairs(self.factors, self.weights)
        sizes = np.abs(to_host(values, reason="how many columns are more than rounding?")[0])
        share = max(RELATIVE_ROUNDING, float(array_namespace(self.like).finfo(self.like.dtype).eps))
        rank = max(1, int(np.count_nonzero(sizes > share * sizes[0])))
        return self._leading(rank if max_rank is None else min(rank, max_rank), values, basis)

    def _truncate(self, rank: int) -> "Factored":
        """Return the best approximation of this rank in the Frobenius norm; add its distance to `error`."""
        return self._leading(rank, *eigenpairs_by_gram(self._gram(), self.weights))

    def _leading(self, rank: int, values: Array, basis: Array) -> "Factored":
        """Keep the first eigenvalues λ of all; the error is √Σλ² of the others."""
        xp = array_namespace(values)
        factor = Factor(xp.astype(self._times(basis[:, :rank]), self.like.dtype, copy=False))
        return dataclasses.replace(
            self,
            factors=(factor,),
            weights=values[:rank],
            error=self.error + xp.sqrt(xp.sum(_square(values[rank:]))),
            leading=None,
            known_diagonal=None,
        )

    def _gram(self) -> Array:
        """Return UᵀU = Σ(u − r)(u − r)ᵀ + σrᵀ + rσᵀ − n rrᵀ with σ = Σu, (q, q)."""
        xp, r = array_namespace(self.weights), self._scatter.centre
        ones = xp.ones((self.n, 1), dtype=r.dtype, device=device_of(r))
        shift = project(self.factors, ones) * r  # σrᵀ, (q, q)
        return self._scatter.sums + shift + shift.T - self.n * r[:, None] * r

    def scaled(self, s: Array) -> "Factored":
        """Return sᵢ wᵢⱼ sⱼ: the rows of U times s, in the precision of the features."""
        xp = array_namespace(s)
        factors = with_features(self.factors, lambda x: xp.astype(x * s[:, None], x.dtype, copy=False))
        error = self.error * xp.max(s * s)
        return dataclasses.replace(self, factors=factors, error=error, **UNKNOWN)

    def with_absent(self, past: "Factored", source: Array, away: Array) -> "Factored":
        """Return these proximities followed by the past proximities of absent objects.

        With U padded by zeros for absent objects, Y the past rows of all objects, and P the projection
        onto the objects of W,

            U diag(s) Uᵀ + Y diag(s_Y) Yᵀ − PY diag(s_Y) YᵀP,

        compressed to the numerical rank: otherwise the number of columns would double at each step.
        If W is a blend, `past` must be the past it was blended with, otherwise `error` is too small.
        """
        m = away.shape[0]
        if m == 0:
            return self.copy()
        xp, device = array_namespace(self.weights, past.weights), device_of(source)
        everywhere = xp.concat([source, away])
        here = xp.concat(
            [
                xp.arange(self.n, dtype=source.dtype, device=device),
                xp.full((m,), -1, dtype=source.dtype, device=device),
            ]
        )
        now = mapped(self.factors, lambda x: gather(x, here, 0))
        before = mapped(past.factors, lambda x: gather(x, everywhere, 0))
        return dataclasses.replace(
            self,
            factors=now + before + tuple(f.without_new(here) for f in before),
            weights=xp.concat([self.weights, past.weights, -past.weights]),
            # A blend already contains the error of its past, or α times it: do not count it twice.
            error=self.error - self.past_error + past.error,
            leading=None,
            known_diagonal=None,
            known_magnitude=joint_magnitude(self, past),
            past_error=0.0,
        )._compress(self.max_rank)

    def add_between_groups(self, other: "Factored", groups: Array, table: np.ndarray) -> "Factored":
        """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ.

        With the table Σ λ_l a_l a_lᵀ and O = X diag(s) Xᵀ, the columns are those of X multiplied by a_l of
        the group of each object, with the weights λ_l s, compressed to the numerical rank. The result may
        exceed `max_rank`, which applies to blends.
        """
        values, vectors = np.linalg.eigh(np.asarray(table, dtype=float))
        some = np.abs(values) > RELATIVE_ROUNDING
        if not some.any():
            return self.copy()
        xp = array_namespace(self.weights, other.weights)
        factors, weights = self.factors, [self.weights]
        for value, vector in zip(values[some].tolist(), vectors.T[some], strict=True):
            mask = xp.take(from_host(vector, self.weights, self.weights.dtype), groups)
            factors += tuple(factor.times(mask) for factor in other.factors)
            weights.append(value * other.weights)
        return dataclasses.replace(
            self,
            factors=factors,
            weights=xp.concat(weights),
            error=self.error + other.error,
            leading=None,
            known_diagonal=None,
            known_magnitude=joint_magnitude(self, other),
            past_error=0.0,
        )._compress()


def _checked_features(given: Array) -> tuple[Array, float]:
    """Return finite features, and the magnitude of their dot products."""
    X = feature_matrix(given)
    if X.shape[1] == 0:
        return X, -math.inf
    xp = array_namespace(X)
    with np.errstate(invalid="ignore"):
        sizes = xp.stack([xp.max(xp.abs(X[rows, :])) for rows in row_blocks(X)])  # temporaries stay small
        largest = float(to_host(xp.max(sizes), reason="are the features finite?")[0])
    if not math.isfinite(largest):
        reject_not_finite(X)
    if largest > math.sqrt(sys.float_info.max / X.shape[1]) / X.shape[0]:  # sums over pairs do not overflow
        raise InputError(
            f"X holds numbers up to {largest:.3g}, whose dot products are too large; divide X by a constant"
        )
    return X, 2 * log2(largest)


def _centroids(partition: Partition, t: Array) -> Array:
    """Return the mean ū of the rows of U in each cluster, (k, q), given T = UᵀZ."""
    return t.T / not_zero(partition.sizes)[:, None]


def _square(x: Array) -> Array:
    return x * x
