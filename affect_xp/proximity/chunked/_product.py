"""Products of chunked proximities, put off so that they share a pass over the chunks with the moments."""

from typing import TYPE_CHECKING, final

from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity.product import Product, Stored

if TYPE_CHECKING:
    from affect_xp.proximity.chunked.chunked import Chunked


@final
class ChunkedProduct(Product):
    """W·Z for memberships Z, not computed before it is needed.

    Moments by the same partition, if they are asked for first, share the pass.
    """

    def __init__(self, proximity: "Chunked", z: Array) -> None:
        self.proximity: Chunked = proximity
        self._z: Array | None = z
        self._stored: Stored | None = None

    def _now(self, array: Array | None = None) -> Stored:
        """Return the product, computed once."""
        if self._stored is None:
            array = self.proximity.matmul(self._z) if array is None else array
            self._z, self._stored = None, Stored(self.proximity, array)
        return self._stored

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ."""
        return self._now().rows(which)

    def own(self, labels: Array, k: int, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀWZ for each partition, (R, k)."""
        return self._now().own(labels, k, z)

    def moved(self, v: Array, rows: Array) -> Stored:
        """Return W·(Z + V)."""
        return self._now().moved(v, rows)

    def columns(self, index: Array) -> Stored:
        """Return some columns of WZ."""
        return self._now().columns(index)

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it."""
        moments, array = self.proximity.block_moments_with(self._z, partition)
        self._now(array)
        return moments

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        distance, array = self.proximity.square_distance_with(self._z, partition, means)
        self._now(array)
        return distance
