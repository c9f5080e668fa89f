"""Products of a proximity with memberships, kept up to date while objects move from cluster to cluster."""

import abc
import dataclasses
from typing import TYPE_CHECKING, Self

from affect_xp.array.namespace import array_namespace, device_of, one_hot, pick, row_blocks
from affect_xp.array.typing import Array
from affect_xp.partition import Partition

if TYPE_CHECKING:
    from affect_xp.proximity._base import Proximity


class Product(abc.ABC):
    """W·Z for the memberships Z of R partitions side by side, (n, R·k).

    It need not be stored: what is asked for is a block of rows at a time, and sums by cluster. Moments by the
    one partition it was made with may be had from it for less than from the proximity itself.
    """

    proximity: "Proximity"  # W

    @abc.abstractmethod
    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ, (rows, R·k); not to be written to."""

    @abc.abstractmethod
    def own(self, labels: Array, k: int, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀWZ for each partition, (R, k), given the labels (n, R) of Z.

        Z itself, (n, R·k), may be given where it is at hand.
        """

    @abc.abstractmethod
    def moved(self, v: Array, rows: Array) -> "Product":
        """Return W·(Z + V) for a V that is zero but for some rows."""

    @abc.abstractmethod
    def columns(self, index: Array) -> "Product":
        """Return some columns of WZ."""

    def sums(self, partition: Partition) -> Array:
        """Return ZᵀWZ, (k, k), given the partition Z stands for."""
        z = partition.membership
        return sum(z[rows, :].T @ self.rows(rows) for rows in row_blocks(z))

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,)."""
        return self.proximity.diagonal()

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, given the partition Z stands for."""
        return self.proximity.block_moments(partition)

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², given the partition Z stands for."""
        return self.proximity.square_distance(partition, means)


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(Product):
    """W·Z as an array."""

    proximity: "Proximity"
    array: Array

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ."""
        return pick(self.array, which)

    def own(self, labels: Array, k: int, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀWZ for each partition, (R, k)."""
        xp, n_runs = array_namespace(self.array), labels.shape[1]
        if z is not None:
            return xp.reshape(column_sums(z * self.array), (n_runs, k))
        own = xp.zeros((n_runs * k,), dtype=self.array.dtype, device=device_of(self.array))
        for rows in row_blocks(self.array):
            own += column_sums(membership(labels[rows, :], k, own.dtype) * self.array[rows, :])
        return xp.reshape(own, (n_runs, k))

    def moved(self, v: Array, rows: Array) -> Self:
        """Return W·(Z + V)."""
        change = self.proximity.matmul(v, rows)
        change += self.array
        return dataclasses.replace(self, array=change)

    def columns(self, index: Array) -> Self:
        """Return some columns of WZ."""
        return dataclasses.replace(self, array=array_namespace(self.array).take(self.array, index, axis=1))


def membership(labels: Array, k: int, dtype: object) -> Array:
    """Return the memberships of several partitions side by side, (n, R·k), given their labels (n, R)."""
    n, n_runs = labels.shape
    return array_namespace(labels).reshape(one_hot(labels, k, dtype), (n, n_runs * k))


def column_sums(x: Array) -> Array:
    """Return the sums over the rows of x, as a product: faster than along an axis."""
    return array_namespace(x).ones((x.shape[0],), dtype=x.dtype, device=device_of(x)) @ x
