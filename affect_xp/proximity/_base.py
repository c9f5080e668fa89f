"""What a proximity can be asked: the contract between storage and algorithms."""

import abc
from typing import ClassVar, Self

from affect_xp._array import array_namespace
from affect_xp._typing import Array, Namespace
from affect_xp.objects import Alignment
from affect_xp.partition import Partition
from affect_xp.proximity.product import Product, Stored


class Proximity(abc.ABC):
    """A symmetric n×n matrix W of proximities, known only through what it can be reduced to.

    Everything above (moments, forgetting factor, clustering) is written on these questions alone, so
    that a new way of storing W is one new class. All sums are accumulated in float64 where the
    device has it, whatever W is stored in. Objects whose label is -1 take no part in sums by block.
    """

    carries_products: ClassVar[bool] = True  # whether a product is worth its room from step to step

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """The number of objects."""

    @property
    @abc.abstractmethod
    def like(self) -> Array:
        """An array whose library and device are those of all results."""

    @abc.abstractmethod
    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats."""

    @abc.abstractmethod
    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V for a thin V, (n, r).

        With `rows`, V is zero but for these rows, and `v` holds only them: W[:, rows]·v.
        """

    def product(self, z: Array) -> Product:
        """Return W·Z for memberships Z, (n, R·k), to be kept up to date while objects move."""
        return self.stored_product(self.matmul(z))

    def stored_product(self, array: Array) -> Product:
        """Return W·Z, given its entries (n, R·k)."""
        return Stored(self, array)

    def carried(self, product: Product) -> Product | None:
        """Return a product that was known before this proximity was stored as one of its own, to be kept.

        None where it cannot be told.
        """
        return self.stored_product(product.rows(slice(0, self.n)))

    @abc.abstractmethod
    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean μ of each block and the sum of squares Σ(w − μ)² over it, both (k, k).

        The block (c, d) holds the entries wᵢⱼ with i in c, j in d and i ≠ j.
        """

    @abc.abstractmethod
    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², a number, for given block means μ (k, k)."""

    @abc.abstractmethod
    def take(self, index: Array) -> Self:
        """Return the proximities among the objects at `index`."""

    @abc.abstractmethod
    def blend(
        self, past: Self, alpha: Array | float, alignment: Alignment, *, overwrite: bool = False
    ) -> Self:
        """Return Ψ̂: α·past + (1 − α)·W where both objects were there before, and W elsewhere.

        With `overwrite` the storage of `past` may be used for the result: the caller vows that nobody
        else looks at it.
        """

    @abc.abstractmethod
    def copy(self) -> Self:
        """Return the same proximities in storage of their own."""

    def formed(self) -> "Proximity":
        """Return a proximity that is stored, not one that is computed when asked."""
        return self

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return array_namespace(self.like)

    def __repr__(self) -> str:
        library = type(self.like).__module__.split(".")[0]
        return f"{type(self).__name__}(n={self.n}, dtype={self.like.dtype}, library={library})"
