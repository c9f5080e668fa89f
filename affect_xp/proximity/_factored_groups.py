"""Factored proximities with the labels of their objects, using only thin sums."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, final

import numpy as np

from affect_xp.array.namespace import array_namespace, can_sum_rows, from_host, not_zero, ratio, row_blocks
from affect_xp.array.typing import Array
from affect_xp.proximity._bounds import Bounds, Distances, can_narrow, nearest_by_blocks
from affect_xp.proximity._columns import Spread, combined, label_sums, project
from affect_xp.proximity.blend import Blend, GroupedPair, Known, Pair
from affect_xp.proximity.grouped import Grouped, Moves, centres, identity, remembered, run_columns

if TYPE_CHECKING:
    from affect_xp.proximity.factored import Factored


# Bounds pay off from this number of multiplications on, in all distances to centroids.
MIN_BOUNDED_WORK = 2**24


@final
@dataclasses.dataclass(frozen=True, eq=False)
class FactoredGroups(Grouped):
    """W·Z = U (s ∘ T) with T = UᵀZ; only T is stored."""

    proximity: "Factored"
    known_t: Array | None = None  # T, (q, R·k), if known
    pair: Pair | None = None  # if W is a blend of this pair
    # Groups of W, or of the current part of a blend, with similar labels.
    similar: "FactoredGroups | None" = None

    @functools.cached_property
    def t(self) -> Array:
        """T = UᵀZ, (q, R·k)."""
        return (
            label_sums(self.proximity.joined, self.labels, self.k) if self.known_t is None else self.known_t
        )

    @functools.cached_property
    def _weighted(self) -> Array:
        """s ∘ T."""
        return self.proximity.weights[:, None] * self.t

    def rows(self, which: slice | Array) -> Array:
        return combined(self.proximity.joined, which, self._weighted)

    def own(self) -> Array:
        """Return the diagonal of ZᵀWZ = Σ_a s_a t_a² for each partition, (R, k)."""
        own = self.proximity.weights @ (self.t * self.t)
        return array_namespace(self.t).reshape(own, (self.n_runs, self.k))

    def nearest(self, sizes: Array, own: Array, bounds: Bounds | None = None) -> tuple[Array, Bounds | None]:
        """Return the nearest centroid of each object, (n, R); in NumPy, bounds skip most of the search."""
        if self.n_runs > 1 or not can_sum_rows(self.labels):
            return super().nearest(sizes, own)
        blocks = list(row_blocks(self.labels, n_columns=self.k))
        W, t, m = self.proximity, self.t, sizes[0, :]
        if self.k == 1 or m.min() == 0 or W.weights.min() < 0:
            bounds = None
        elif bounds is None:
            bounds = Bounds(W.weights, W.diagonal(), t, m)
        else:
            bounds.follow(t / m)
        narrow = bounds is not None and can_narrow(W.diagonal(), W.weights, self.k)
        b, centre = self._weighted * (-2 / not_zero(m)), centres(m, own[0, :])
        distances = Distances(W.joined, b, centre, W.diagonal(), narrow=narrow)
        labels = nearest_by_blocks(self.labels[:, 0], blocks, distances, bounds)
        return labels[:, None], bounds

    @property
    def is_few(self) -> bool:
        """Whether U is a NumPy array so small that calls take longer than products."""
        n, n_runs = self.labels.shape
        return can_sum_rows(self.labels) and self.proximity.rank * self.k * n * n_runs < MIN_BOUNDED_WORK

    def inner_products(self, scale: np.ndarray) -> np.ndarray:
        """Return WZ with columns multiplied by numbers (R, k), (n, R, k), in NumPy."""
        n, n_runs = self.labels.shape
        products = combined(self.proximity.joined, slice(0, n), self._weighted * scale.reshape(-1))
        return products.reshape(n, n_runs, self.k)

    def regrouped(self, labels: Array, rows: Array) -> "FactoredGroups":
        if not self.is_few:
            return self.moved(labels, Moves(rows, self.labels, labels, self.k))
        z = np.eye(self.k + 1)[:, : self.k]  # -1 gives zeros
        change = (z[labels[rows]] - z[self.labels[rows]]).reshape(len(rows), -1)
        t = [factor.rows(rows).T @ change for factor in self.proximity.joined]
        return self.relabelled(labels, self.t + np.concatenate(t))

    def moved(self, labels: Array, moves: Moves) -> "FactoredGroups":
        if not can_sum_rows(labels):
            return self.relabelled(labels, self.t + project(self.proximity.joined, moves.v, moves.rows))
        after, before = (label_sums(self.proximity.joined, x, self.k, moves.rows) for x in moves.labels())
        return self.relabelled(labels, self.t + (after - before))

    def of_runs(self, runs: list[int]) -> "FactoredGroups":
        if len(runs) == self.n_runs:
            return self
        xp, index = array_namespace(self.t), run_columns(runs, self.k, self.labels)
        labels = xp.take(self.labels, from_host(runs, self.labels), axis=1)
        return self.relabelled(labels, xp.take(self.t, index, axis=1))

    def relabelled(self, labels: Array, t: Array | None) -> "FactoredGroups":
        """Return W grouped by other labels, given T."""
        return dataclasses.replace(self, labels=labels, given=None, known_t=t)

    def from_scratch(self, labels: Array) -> "FactoredGroups":
        return self.relabelled(labels, None)

    def joined(self, past: Grouped, blend: Blend) -> "FactoredGroups":
        """Return the blend with the past: it has the columns, and T, of both."""
        assert isinstance(past, FactoredGroups)
        W = self.proximity.concatenated(past.proximity, blend.alpha)
        t = array_namespace(self.t).concat([past.t, self.t])
        similar = self.similar if FactoredGroups.spread.known(self) is None else self
        return FactoredGroups(W, self.labels, self.k, self.given, t, blend.pair, similar)

    @property
    def parts(self) -> GroupedPair | None:
        if self.pair is None:
            return None
        pair, labels, k, given = self.pair, self.labels, self.k, self.given
        q = pair.past.rank  # type: ignore[attr-defined]
        past: Any = pair.past
        current: Any = pair.current
        known = Known(
            FactoredGroups(current, labels, k, given, self.t[q:, :], similar=self.similar),
            past=FactoredGroups(past, labels, k, given, self.t[:q, :]),
        )
        return GroupedPair(pair, labels, k, given, known)

    def sums(self) -> Array:
        """Return ZᵀWZ = Tᵀ (s ∘ T), (k, k)."""
        return self.t.T @ (self.proximity.weights[:, None] * self.t)

    @remembered
    def spread(self) -> Spread:
        """The rows of U about the centroids of their clusters, updated from similar labels if possible."""
        known = None if self.similar is None else FactoredGroups.spread.known(self.similar)
        if known is None or self.similar is None or self.similar.k != self.k:
            return self.proximity.spread(self.partition, self.t)
        return self.proximity.moved_spread(known, self.similar.partition, self.partition, self.t)

    def near(self, other: Grouped) -> "FactoredGroups":
        """Return the same groups, able to update the spread of `other`, even if it is computed later."""
        if self.similar is other or not isinstance(other, FactoredGroups):
            return self
        return dataclasses.replace(self, similar=other)

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        return self.proximity.block_moments(self.partition, self.spread)

    def row_squares(self, means: Array) -> Array:
        """Return Σᵢ (rᵢd − μ_cd)² over i in c; means of rows are r = ⟨uᵢ, ū_d⟩, which gives ū_dᵀC_c ū_d.

        Within a cluster, with pᵢ = ⟨uᵢ − ū, ū⟩ and δᵢ = wᵢᵢ − Σwᵢᵢ/m, rᵢ − μ = (m pᵢ − δᵢ) / (m − 1).
        """
        W, partition, m = self.proximity, self.partition, self.partition.sizes
        xp, across = array_namespace(m), self.spread.across.T
        delta = self._diagonal_deviations
        products = label_sums(W.joined, self.labels, self.k, weights=delta)  # Σδᵢuᵢ, (q, k)
        products = xp.sum(products.T * (W.weights * self.spread.centroids), axis=1)  # Σδᵢpᵢ
        p, own = xp.linalg.diagonal(across), identity(across)
        squares = m * m * p - 2 * m * products + partition.totals(delta * delta)
        return across + own * (ratio(squares, (m - 1) ** 2) - p)

    def row_deviations(self, which: slice | Array, means: Array) -> Array:
        """Return the same as for any W; in NumPy with fewer passes, by the formulas of `row_squares`."""
        if not can_sum_rows(self.labels):
            return super().row_deviations(which, means)
        b, whole_means = self._row_means
        x, own = combined(self.proximity.joined, which, b), self.partition.at(which).safe_labels
        x -= whole_means[own]
        places, m = (np.arange(len(own)), own), self.partition.sizes[own]
        x[places] = ratio(m * x[places] - self._diagonal_deviations[which], m - 1)
        return x

    @functools.cached_property
    def _row_means(self) -> tuple[Array, Array]:
        """B with ⟨uᵢ, ū_d⟩ = (UB)ᵢd, (q, k), and the means ⟨ū_c, ū_d⟩, (k, k)."""
        b = self._weighted / not_zero(self.partition.sizes)
        return b, ratio(self.t, self.partition.sizes).T @ b

    @functools.cached_property
    def _diagonal_deviations(self) -> Array:
        """δᵢ = wᵢᵢ minus its mean over the cluster, (n,)."""
        partition, w_ii = self.partition, self.proximity.diagonal()
        return w_ii - partition.by_object(ratio(partition.totals(w_ii), partition.sizes))

    def distance_to(self, means: Array) -> Array:
        return self.proximity.square_distance(self.partition, means, self.t)
