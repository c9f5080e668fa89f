"""Proximities stored in a dask array: larger than memory, or distributed over a cluster."""

from affect_xp.proximity.chunked.chunked import Chunked, is_dask_array, pairwise

__all__ = ["Chunked", "is_dask_array", "pairwise"]
