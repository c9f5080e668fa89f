"""Plan and compute a pass over chunks: small task graphs for dask, without rechunking or transposes."""

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.proximity.chunked._spill import entries, opened

Node = Any  # a reference to a task, or a StoredChunk
Nodes = dict[tuple[int, int], Node]  # by place (i, j), usually i ≤ j


@dataclasses.dataclass(frozen=True, eq=False)
class Chunks:
    """Chunks of a matrix, and the tasks that make them."""

    at: Nodes
    graph: dict = dataclasses.field(default_factory=dict)


class Plan:
    """The tasks of one pass over some chunks."""

    def __init__(self, *sources: Chunks) -> None:
        self.graph: dict = {}
        for source in sources:
            self.graph |= source.graph
        self._name, self._numbers = uuid.uuid4().hex, itertools.count()

    def add(self, function: Callable[..., object], *args: object, opens: bool = True) -> Node:
        """Plan function(*args), where some arguments are nodes; kept chunks are opened first."""
        from dask._task_spec import Task, TaskRef

        key = f"{getattr(function, '__name__', 'chunk')}-{self._name}", next(self._numbers)
        self.graph[key] = Task(key, _call, function, opens, *args)
        return TaskRef(key)

    def constant(self, value: np.ndarray) -> Node:
        """Return a node for an array that several tasks need: it is sent once."""
        from dask._task_spec import DataNode, TaskRef

        key = f"constant-{self._name}", next(self._numbers)
        self.graph[key] = DataNode(key, value)
        return TaskRef(key)

    def compute(self, nodes: Sequence[Node]) -> Sequence[Any]:
        """Compute some nodes; apart from `persist`, no other function of a proximity computes."""
        from dask.array import Array as DaskArray
        from dask.base import get_scheduler

        keys = [node.key for node in nodes]
        return get_scheduler(cls=DaskArray)(_needed(self.graph, keys), keys)

    def persist(self, nodes: Nodes) -> Chunks:
        """Compute chunks, and keep them where they are."""
        import dask
        from dask.delayed import Delayed

        keys = [node.key for node in nodes.values()]
        graph = _needed(self.graph, keys)
        kept = dask.persist(*(Delayed(key, graph) for key in keys), optimize_graph=False)
        return Chunks(nodes, {key: part.dask[key] for key, part in zip(keys, kept, strict=True)})


def _call(function: Callable[..., object], opens: bool, *args: object) -> object:
    return function(*(map(opened, args) if opens else args))


def _needed(graph: dict, keys: list) -> dict:
    """Return the tasks that these keys need."""
    from dask.optimization import cull

    return cull(graph, keys)[0]


def summed(parts: Iterable[Array]) -> Array:
    """Return the sum of the arrays that are not None; None if all are."""
    some = [part for part in parts if part is not None]
    return sum(some[1:], some[0]) if some else None


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


def upper(n: int) -> Iterator[tuple[int, int]]:
    """Yield the places on and above the diagonal of n×n chunks; n may come from a forged file."""
    return itertools.combinations_with_replacement(range(n), 2)


def chunks_of(array: Array) -> Chunks:
    """Return all chunks of a dask array."""
    import dask
    from dask._task_spec import TaskRef

    [array] = dask.optimize(array)
    rows, columns = array.numblocks
    places = itertools.product(range(rows), range(columns))
    return Chunks({place: TaskRef((array.name, *place)) for place in places}, dict(array.__dask_graph__()))


def mirrored(chunks: Chunks, sizes: tuple[int, ...], like: Array) -> Array:
    """Return the symmetric dask array with these chunks on and above the diagonal."""
    from dask._task_spec import Task
    from dask.array import Array as DaskArray
    from dask.highlevelgraph import HighLevelGraph

    name = uuid.uuid4().hex
    own, base = f"symmetric-{name}", f"chunks-{name}"
    layer = {}
    for i, j in itertools.product(range(len(sizes)), repeat=2):
        function, place = (entries, (i, j)) if i <= j else (_transpose, (j, i))
        layer[own, i, j] = Task((own, i, j), function, chunks.at[place])
    graph = HighLevelGraph({own: layer, base: chunks.graph}, {own: {base}, base: set()})
    return DaskArray(graph, own, (sizes, sizes), meta=like)


def _transpose(w: Any) -> Array:
    return entries(w).T
