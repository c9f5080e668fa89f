"""Products of factored proximities, known through thin sums alone."""

import dataclasses
import functools
from typing import TYPE_CHECKING, final

from affect_xp.array.namespace import array_namespace
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity._columns import combined, project
from affect_xp.proximity.product import Product

if TYPE_CHECKING:
    from affect_xp.proximity.factored import Factored


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Projected(Product):
    """W·Z = U (s ∘ T) with T = UᵀZ, of which only T is kept."""

    proximity: "Factored"
    t: Array  # (q, R·k)

    @functools.cached_property
    def _weighted(self) -> Array:
        """s ∘ T."""
        return self.proximity.weights[:, None] * self.t

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ."""
        return combined(self.proximity.joined, which, self._weighted)

    def own(self, labels: Array, k: int, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀWZ = Σ_a s_a t_a² for each partition, (R, k)."""
        return array_namespace(self.t).reshape(
            self.proximity.weights @ (self.t * self.t), (labels.shape[1], k)
        )

    def moved(self, v: Array, rows: Array) -> "Projected":
        """Return W·(Z + V)."""
        return Projected(self.proximity, self.t + project(self.proximity.joined, v, rows))

    def columns(self, index: Array) -> "Projected":
        """Return some columns of WZ."""
        return Projected(self.proximity, array_namespace(self.t).take(self.t, index, axis=1))

    def sums(self, partition: Partition) -> Array:
        """Return ZᵀWZ = Tᵀ (s ∘ T), (k, k)."""
        return self.t.T @ (self.proximity.weights[:, None] * self.t)

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it."""
        return self.proximity._block_moments(partition, self.t)

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        return self.proximity._square_distance(partition, means, self.t)
