"""Chunked proximities with the labels of their objects: products and moments share a pass over the chunks."""

import dataclasses
import functools
from typing import TYPE_CHECKING, final

import numpy as np

from affect_xp.array.typing import Array
from affect_xp.proximity._base import MIN_OFF_DIAGONAL_SHARE, MIN_SHARE_LEFT, plain_moments
from affect_xp.proximity.grouped import Stored

if TYPE_CHECKING:
    from affect_xp.proximity.chunked.chunked import Chunked


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ChunkedGroups(Stored):
    """W·Z as an array; moments that are requested first compute it in the same pass."""

    proximity: "Chunked"

    @property
    def _wanted(self) -> Array | None:
        """Z, if WZ is not yet computed."""
        return None if self.is_multiplied else self.membership

    def multiplied(self) -> Array:
        """Compute WZ; for given labels along with the moments, which α needs of W, but not of the past."""
        if self.given is None or self.proximity.knows_squares:
            return super().multiplied()
        moments, wz = self.proximity.block_moments_with(self.membership, self.partition)
        self.__dict__["_moments"] = moments
        return wz

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        W, partition = self.proximity, self.partition
        if self.is_multiplied and W.sums_plainly:
            w_ii, z = self.diagonal(), partition.membership
            sums = z.T @ self.array - np.diag(w_ii @ z)
            squares = W.block_squares(partition) - np.diag((w_ii * w_ii) @ z)
            plain = plain_moments(w_ii, partition, sums, squares)
            return W.block_moments(partition) if plain is None else plain
        moments, wz = self.proximity.block_moments_with(self._wanted, self.partition)
        self._keep(wz)
        return moments

    def distance_to(self, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² = Σw² − 2Σμ Σw + ΣNμ², or from differences if digits are lost."""
        W, partition = self.proximity, self.partition
        if not W.sums_plainly:
            distance, wz = W.square_distance_with(self._wanted, partition, means)
            self._keep(wz)
            return distance
        squares, wz = W.square_sum_with(self._wanted, partition)
        self._keep(wz)
        w_ii, z = self.diagonal() * partition.is_member, partition.membership
        squares, own = squares - w_ii @ w_ii, w_ii @ w_ii
        spread = np.sum(partition.pair_counts * means * means)
        total = z.T @ self.array
        total = squares - 2 * np.sum(means * (total - np.diag(w_ii @ z))) + spread
        if total >= MIN_SHARE_LEFT * (squares + spread) and squares >= MIN_OFF_DIAGONAL_SHARE * own:
            return total
        return W.square_distance(partition, means)

    def _keep(self, wz: Array | None) -> None:
        """Store WZ in the cached property."""
        if wz is not None:
            self.__dict__["array"] = wz
