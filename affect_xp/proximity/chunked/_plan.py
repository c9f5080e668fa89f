"""Plan and compute a pass over chunks with dask."""

import itertools
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.proximity.chunked._spill import StoredChunk, opened

# How many partial results one task combines.
FAN_IN = 16

Node = Any  # a dask.delayed.Delayed, or a StoredChunk
Nodes = dict[tuple[int, int], Node]  # the chunks (i, j), i ≤ j
Work = tuple  # a function and its arguments, some of which may be nodes


def task(function: Callable[..., object], *args: object) -> Node:
    """Plan a call; stored chunks are opened first."""
    from dask import delayed

    return delayed(_call, pure=False)(function, *args)


def _call(function: Callable[..., object], *args: object) -> object:
    return function(*map(opened, args))


def written(chunk: StoredChunk, function: Callable[..., Array], *args: object) -> Node:
    """Plan a call whose result is written to the store; return the node of the stored chunk."""
    from dask import delayed

    return delayed(_call_and_write, pure=False)(chunk, function, *args)


def _call_and_write(chunk: StoredChunk, function: Callable[..., Array], *args: object) -> StoredChunk:
    return chunk.write(_call(function, *args))


def constant(value: object) -> Node:
    """Return a value as a node, so that the tasks that need it share one copy."""
    from dask import delayed

    return delayed(value, pure=False, traverse=False)


def compute(nodes: list[Node]) -> tuple:
    """Compute some nodes in one pass; apart from `persist`, no other function of a proximity computes."""
    import dask

    return dask.compute(*nodes)


def persist(nodes: list[Node]) -> tuple:
    """Compute some nodes and keep the results on the workers."""
    import dask

    return dask.persist(*nodes)


def tree(parts: list[Node], combine: Callable[..., Array]) -> Node:
    """Combine partial results, a few at a time, so that no task holds them all."""
    while len(parts) > 1:
        parts = [task(combine, *parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0]


def meta_of(array: Array) -> Array:
    """Return an empty array with the library, device and dtype of the chunks of a dask array."""
    from dask.array.utils import meta_from_array

    return meta_from_array(array)


def square_cut(n: int, dtype: object) -> tuple[int, ...]:
    """Return chunk sizes for n rows such that square chunks have dask's "array.chunk-size"."""
    from dask.array.core import normalize_chunks

    return normalize_chunks("auto", shape=(n, n), dtype=dtype)[0]


def square_chunks(array: Array) -> Array:
    """Return the array with the same chunk sizes for rows and columns, the finer of the two."""
    if np.isnan(array.shape).any():
        raise InputError("W has chunks of unknown size; call its compute_chunk_sizes() first")
    rows, columns = array.chunks
    return array if rows == columns else array.rechunk((max(rows, columns, key=len),) * 2)


def upper_nodes(array: Array) -> Nodes:
    """Return the chunks on and above the diagonal of an array of square chunks."""
    nodes = array.to_delayed()
    return {(i, j): nodes[i, j] for i, j in itertools.combinations_with_replacement(range(len(nodes)), 2)}


def mirrored(upper: Nodes, sizes: tuple[int, ...], like: Array) -> Array:
    """Return the symmetric dask array with these chunks on and above the diagonal."""
    from dask.array import Array as DaskArray
    from dask.highlevelgraph import HighLevelGraph

    name = f"symmetric-{uuid.uuid4().hex}"
    layer = {
        (name, i, j): upper[i, j].key if i <= j else (_transpose, upper[j, i].key)
        for i, j in itertools.product(range(len(sizes)), repeat=2)
    }
    graph = HighLevelGraph.from_collections(name, layer, dependencies=list(upper.values()))
    return DaskArray(graph, name, (sizes, sizes), meta=like)


def _transpose(w: Array) -> Array:
    return w.T
