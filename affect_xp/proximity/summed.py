"""Moments from products: where W·Z is known, sums by block need no pass over W of their own."""

import abc
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from affect_xp.array.namespace import array_namespace, device_of, is_lazy, on_host
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity._base import Proximity
from affect_xp.proximity.grouped import Grouped, Stored

# Plain sums of squares serve while this share of them is left when the mean is taken off: then the relative
# error is some 1e-11 at most.
EXACT = 1e-5
# The diagonal may be taken off plain sums while this share of the squares is left.
DROWNED = 1e-7
# Sums of squares are brought up to date while no larger share of the objects has moved.
MAX_UPDATE_SHARE = 0.3


class Summable(Proximity):
    """A proximity whose entries can be summed plainly, and carefully where that loses digits."""

    def times_membership(self, groups: "Summed") -> Array:
        """Return W·Z, (n, R·k)."""
        return self.matmul(groups.membership)

    @abc.abstractmethod
    def block_sums(self, partition: Partition, *, squares: bool = True) -> tuple[Array, Array | None]:
        """Return Σ wᵢⱼ and, if asked for, Σ wᵢⱼ² over i ≠ j of each block, (k, k), on the host."""

    @abc.abstractmethod
    def block_squares(self, partition: Partition) -> Array:
        """Return Σ wᵢⱼ² over i ≠ j of each block, (k, k)."""

    @abc.abstractmethod
    def square_rows(self, rows: np.ndarray) -> Iterator[tuple[slice, Any]]:
        """Yield which of the rows asked for, and wᵢⱼ² of them, with 0 for i = j, by which to multiply."""

    @abc.abstractmethod
    def off_diagonal_squares(self, partition: Partition) -> Array:
        """Return Σ_{i≠j} wᵢⱼ² over the objects that are in a cluster."""

    @abc.abstractmethod
    def careful_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, from differences."""

    @abc.abstractmethod
    def careful_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², from differences."""

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> "Summed":
        """Return W with the labels of its objects."""
        return Summed(self, labels, k, given)

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k).

        Plain sums lose digits where the mean is large and the spread is small. On the host, where that can
        be seen without waiting, a second pass is made then; on a device the careful one is the first.
        """
        return self.group(partition).moments()

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², in two passes where the first one lost digits."""
        return self.group(partition).distance_to(means)

    @property
    def is_at_hand(self) -> bool:
        """Whether values can be looked at without waiting for them."""
        return on_host(self.like) and not is_lazy(self.like)

    def plain_moments(self, partition: Partition, sums: Array, squares: Array) -> tuple[Array, Array] | None:
        """Return μ = Σw/N and Σ(w − μ)² = Σw² − Nμ², or None where digits were lost."""
        xp, count = array_namespace(sums), partition.pair_counts
        means = sums / xp.where(count > 0, count, xp.ones_like(count))
        left = squares - count * means * means
        varied = count - identity(count) > 1  # the others have no spread
        w_ii = self.diagonal()
        own = identity(count) * ((w_ii * w_ii) @ partition.membership)  # what was taken off
        if not bool(xp.all((left >= EXACT * squares) & (squares >= DROWNED * own) | ~varied)):
            return None
        return means, xp.where(varied, left, xp.zeros_like(left))

    def plain_distance(self, partition: Partition, means: Array, sums: Array) -> Array | None:
        """Return Σw² − 2Σμ Σw + ΣNμ² with Σw of each block, or None where digits were lost."""
        xp, w_ii = array_namespace(sums), self.diagonal()
        squares = self.off_diagonal_squares(partition)
        spread = xp.sum(partition.pair_counts * means * means)
        total = squares - 2 * xp.sum(means * sums) + spread
        exact = (total >= EXACT * (squares + spread)) & (squares >= DROWNED * (w_ii @ w_ii))
        return total if bool(exact) else None


@dataclasses.dataclass(frozen=True, eq=False)
class Summed(Stored):
    """W·Z as an array; on the host it saves the moments a pass."""

    proximity: Summable
    # Labels by which Σ wᵢⱼ² of each block was summed before, and that sum.
    earlier: tuple[Partition, Array] | None = None

    def multiplied(self) -> Array:
        """Return WZ, computed."""
        return self.proximity.times_membership(self)

    def moments(self) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it."""
        W, partition, found = self.proximity, self.partition, None
        if W.is_at_hand:
            known = self.is_multiplied or self.earlier is not None
            sums, squares = (self._off_diagonal(), self.squares) if known else W.block_sums(partition)
            self.__dict__["squares"] = squares
            found = W.plain_moments(partition, sums, squares)
        return W.careful_moments(partition) if found is None else found

    def distance_to(self, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        W, partition, found = self.proximity, self.partition, None
        if W.is_at_hand:
            sums = self._off_diagonal() if self.is_multiplied else W.block_sums(partition, squares=False)[0]
            found = W.plain_distance(partition, means, sums)
        return W.careful_distance(partition, means) if found is None else found

    def near(self, other: Grouped) -> "Summed":
        """Return the same, with sums of squares to be updated from those by other labels."""
        summed = isinstance(other, Summed) and "squares" in other.__dict__
        return dataclasses.replace(self, wz=self._known, earlier=other._handed_over()) if summed else self  # type: ignore[attr-defined]

    @property
    def _known(self) -> Array | None:
        return self.array if self.is_multiplied else None

    def _handed_over(self) -> tuple[Partition, Array] | None:
        """Return labels and sums of squares from which those by other labels can be updated."""
        return (self.partition, self.squares) if "squares" in self.__dict__ else self.earlier

    def _relabelled(self, labels: Array, wz: Array) -> "Summed":
        earlier = self._handed_over() if self.n_runs == labels.shape[1] == 1 else None
        return dataclasses.replace(self, labels=labels, wz=wz, given=None, earlier=earlier)

    @functools.cached_property
    def squares(self) -> Array:
        """Σ wᵢⱼ² over i ≠ j, (k, k): updated where few objects have moved since it was summed."""
        partition = self.partition
        if self.earlier is not None and isinstance(self.array, np.ndarray):
            before, squares = self.earlier
            rows = np.flatnonzero(before.labels != partition.labels) if before.k == partition.k else None
            most = min(MAX_UPDATE_SHARE, self.proximity.max_update_share) * partition.n
            if rows is not None and len(rows) <= most:
                return squares + self._change_of_squares(before, rows)
        return self.proximity.block_squares(partition)

    def _change_of_squares(self, before: Partition, rows: np.ndarray) -> np.ndarray:
        """Return by how much the sums of squares of each block change, (k, k).

        With Q the squares off the diagonal, Z and Z' the memberships, and Δ = Z' − Z, zero but for some rows,

            Z'ᵀQZ' − ZᵀQZ = ΔᵀR + RᵀΔ,   R = Q (Z + Z') / 2
        """
        now = self.partition
        z, delta = (before.membership + now.membership) / 2, now.membership - before.membership
        total = np.zeros((now.k, now.k))
        for block, q in self.proximity.square_rows(rows):
            half = delta[rows[block]].T @ (q @ z)
            total += half + half.T
        return total

    def _off_diagonal(self) -> Array:
        """Return Σ wᵢⱼ over i ≠ j of each block, (k, k)."""
        z = self.partition.membership
        total = z.T @ self.array
        return total - identity(total) * (self.proximity.diagonal() @ z)


def identity(x: Array) -> Array:
    """Return an identity of the shape, dtype and device of x."""
    return array_namespace(x).eye(x.shape[0], x.shape[1], dtype=x.dtype, device=device_of(x))
