"""Chunked proximities with the labels of their objects: products and moments share a pass over the chunks."""

import dataclasses
import functools
from typing import TYPE_CHECKING, final

from affect_xp.array.typing import Array
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

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        moments, wz = self.proximity.block_moments_with(self._wanted, self.partition)
        self._keep(wz)
        return moments

    def distance_to(self, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        distance, wz = self.proximity.square_distance_with(self._wanted, self.partition, means)
        self._keep(wz)
        return distance

    def _keep(self, wz: Array | None) -> None:
        """Store WZ in the cached property."""
        if wz is not None:
            self.__dict__["array"] = wz
