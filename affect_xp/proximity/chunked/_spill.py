"""Kept chunks of a matrix: in memory, or in a scratch folder as zarr arrays that support partial reads."""

import dataclasses
import os
import shutil
import uuid
import weakref

import numpy as np

from affect_xp.array.namespace import array_namespace, as_like, to_host
from affect_xp.array.typing import Array
from affect_xp.exceptions import AffectError

__all__ = ["Kept", "Spill", "StoredChunk", "opened"]


@dataclasses.dataclass(eq=False)
class Kept:
    """A chunk of a blend or copy.

    Attributes
    ----------
    array : array or None
        None if it is stored, or if a blend was written in its place.
    square_sum : 0-d array
        Σ wᵢⱼ² over the chunk and its transpose.
    diagonal : array or None
        wᵢᵢ of a chunk on the diagonal.
    after : α and a chunk, or None
        The blend that was written in its place.
    """

    array: Array
    square_sum: Array
    diagonal: Array | None
    after: "tuple[float, Kept] | None" = None

    def __sizeof__(self) -> int:
        """Return the bytes of the chunk: dask moves what is smaller, and counts the memory of workers."""
        return object.__sizeof__(self) + getattr(self.array, "nbytes", 0)


class Spill:
    """A folder with a zarr array for each chunk.

    It is deleted with the last plan on the client that reads it. Copies sent to workers delete
    nothing.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.path = os.path.join(os.path.abspath(store), f"{uuid.uuid4().hex}.zarr")
        self.delete = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> tuple:
        return _spill_at, (self.path,)


def _spill_at(path: str) -> Spill:
    spill = object.__new__(Spill)
    spill.path = path
    return spill


class StoredChunk:
    """A chunk on disk: its location, and an array of the library, device and dtype it is read as."""

    def __init__(self, spill: Spill, place: tuple[int, int], shape: tuple[int, int], like: Array) -> None:
        self.spill, self.place, self.shape, self.like = spill, place, shape, like

    @property
    def path(self) -> str:
        """The folder of its zarr array."""
        return os.path.join(self.spill.path, f"{self.place[0]}.{self.place[1]}")

    def write(self, w: Array) -> "StoredChunk":
        """Write the chunk, uncompressed (noise does not compress); return self."""
        import zarr

        zarr.create_array(
            self.path,
            data=to_host(w, reason="a chunk goes to the store")[0].astype(self._dtype, copy=False),
            chunks=self.shape,
            compressors=None,
            filters=None,
            overwrite=True,
            config={"write_empty_chunks": True},  # write a file even for a chunk of zeros
        )
        return self

    def mapped(self) -> np.ndarray:
        """Return the chunk as a read-only memory map of its file: only accessed parts are read.

        The file of a zarr array with one chunk, without compression or filters, holds the raw numbers.
        """
        return np.asarray(
            np.memmap(os.path.join(self.path, "c", "0", "0"), self._dtype, mode="r", shape=self.shape)
        )

    @property
    def _dtype(self) -> np.dtype:
        return np.dtype(str(self.like.dtype)).newbyteorder("<")

    def read(self) -> Array:
        """Return the chunk as an array of its library."""
        return self._moved(self.mapped())

    def take(self, index: np.ndarray, axis: int) -> Array:
        """Return some rows or columns of the chunk as an array of its library."""
        return self._moved(np.take(self.mapped(), index, axis=axis))

    def _moved(self, host: np.ndarray) -> Array:
        return as_like(host, self.like, reason="a chunk of the store")


def opened(value: object) -> Array:
    """Return a kept or stored chunk as an array, and anything else unchanged."""
    if isinstance(value, Kept):
        if value.array is None:
            raise AffectError(
                "a blend was written over this chunk of the smoothed proximities, and failed or was lost; "
                "call reset() and start again"
            )
        return value.array
    return value.read() if isinstance(value, StoredChunk) else value


def entries(value: object) -> Array:
    """Return a chunk as an array that does not depend on the store."""
    array = opened(value)
    return array_namespace(array).asarray(array, copy=True) if isinstance(value, StoredChunk) else array
