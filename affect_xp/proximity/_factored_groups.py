"""Factored proximities with the labels of their objects, known through thin sums alone."""

import dataclasses
import functools
from typing import TYPE_CHECKING, final

from affect_xp.array.namespace import array_namespace, from_host
from affect_xp.array.typing import Array
from affect_xp.proximity._columns import combined, project
from affect_xp.proximity.grouped import Grouped, run_columns

if TYPE_CHECKING:
    from affect_xp.proximity.factored import Factored


@final
@dataclasses.dataclass(frozen=True, eq=False)
class FactoredGroups(Grouped):
    """W·Z = U (s ∘ T) with T = UᵀZ, of which only T is kept."""

    proximity: "Factored"
    known_t: Array | None = None  # T, (q, R·k), where it is known

    @functools.cached_property
    def t(self) -> Array:
        """T = UᵀZ, (q, R·k)."""
        return project(self.proximity.joined, self.membership) if self.known_t is None else self.known_t

    @functools.cached_property
    def _weighted(self) -> Array:
        """s ∘ T."""
        return self.proximity.weights[:, None] * self.t

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ."""
        return combined(self.proximity.joined, which, self._weighted)

    def own(self, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀWZ = Σ_a s_a t_a² for each partition, (R, k)."""
        own = self.proximity.weights @ (self.t * self.t)
        return array_namespace(self.t).reshape(own, (self.n_runs, self.k))

    def moved(self, labels: Array, v: Array, rows: Array) -> "FactoredGroups":
        """Return W grouped by other labels."""
        return self.relabelled(labels, self.t + project(self.proximity.joined, v, rows))

    def of_runs(self, runs: list[int]) -> "FactoredGroups":
        """Return W grouped by some of the partitions."""
        xp, index = array_namespace(self.t), run_columns(runs, self.k, self.labels)
        labels = xp.take(self.labels, from_host(runs, self.labels), axis=1)
        return self.relabelled(labels, xp.take(self.t, index, axis=1))

    def relabelled(self, labels: Array, t: Array) -> "FactoredGroups":
        """Return W grouped by other labels, given T."""
        return FactoredGroups(self.proximity, labels, self.k, known_t=t)

    def sums(self) -> Array:
        """Return ZᵀWZ = Tᵀ (s ∘ T), (k, k)."""
        return self.t.T @ (self.proximity.weights[:, None] * self.t)

    def moments(self) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it."""
        return self.proximity.block_moments(self.partition, self.t)

    def distance_to(self, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        return self.proximity.square_distance(self.partition, means, self.t)
