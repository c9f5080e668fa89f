"""Proximities stored in a dask array: larger than memory, or distributed over a cluster."""

from affect_xp.proximity.chunked.chunked import Chunked, pairwise

__all__ = ["Chunked", "pairwise"]
