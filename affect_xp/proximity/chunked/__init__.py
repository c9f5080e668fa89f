"""Proximities stored in a dask array: larger than memory, or distributed over a cluster."""

from affect_xp.proximity.chunked.chunked import Chunked, checked_and_summed, pairwise, probe

__all__ = ["Chunked", "checked_and_summed", "pairwise", "probe"]
