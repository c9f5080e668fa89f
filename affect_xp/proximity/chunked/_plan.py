"""Plan and compute a pass over chunks: small task graphs for dask, without rechunking or transposes."""

import dataclasses
import functools
import itertools
import sys
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

    def are_whole(self, n: int) -> bool:
        """Whether all n×n chunks are in memory: none is still a task."""
        from dask._task_spec import Task

        return len(self.at) == n * n and not any(isinstance(part, Task) for part in self.graph.values())

    @functools.cached_property
    def holders(self) -> dict[Any, tuple[str, int]]:
        """The worker that holds each chunk, and its number of threads; none without a cluster."""
        distributed: Any = sys.modules.get("distributed")
        if distributed is None:
            return {}
        futures = {key: part for key, part in self.graph.items() if isinstance(part, distributed.Future)}
        if not futures:
            return {}
        distributed.wait(list(futures.values()))
        client = next(iter(futures.values())).client
        workers, threads = client.who_has(list(futures.values())), client.nthreads()
        known = {key: workers.get(future.key) for key, future in futures.items()}
        return {key: (own[0], threads.get(own[0], 1)) for key, own in known.items() if own}


class Plan:
    """The tasks of one pass over some chunks."""

    def __init__(self, *sources: Chunks) -> None:
        self.graph: dict = {}
        for source in sources:
            self.graph |= source.graph
        self._sources = sources
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

    def compute(self, nodes: Sequence[Node], at_once: int = 1) -> Sequence[Any]:
        """Compute some nodes; apart from `persist`, no other function of a proximity computes.

        One task makes up to `at_once` nodes whose chunks are on the same worker.
        """
        from dask._task_spec import Task
        from dask.array import Array as DaskArray
        from dask.base import get_scheduler

        keys = [node.key for node in nodes]
        merged = {f"several-{uuid.uuid4().hex}": own for own in self._together(keys, at_once)}
        several = {name: Task(name, _several, *map(self.graph.get, own)) for name, own in merged.items()}
        asked = [*merged, *(key for key in keys if key not in set(itertools.chain(*merged.values())))]
        results = get_scheduler(cls=DaskArray)(_needed(self.graph | several, asked), asked)
        found = dict(zip(asked, results, strict=True))
        for name, own in merged.items():
            found.update(zip(own, found[name], strict=True))
        return [found[key] for key in keys]

    def _together(self, keys: list, at_once: int) -> list[list]:
        """Return groups of keys that need chunks of one worker, at least one for each of its threads."""
        holders = {key: held for source in self._sources for key, held in source.holders.items()}
        by_worker: dict[Any, list] = {}
        for key in keys:
            needed = getattr(self.graph[key], "dependencies", ())  # a chunk itself needs none
            workers = {holders.get(chunk) for chunk in needed}
            by_worker.setdefault(workers.pop() if len(workers) == 1 else None, []).append(key)
        by_worker.pop(None, None)
        groups = []
        for (_, threads), own in by_worker.items():
            size = min(at_once, -(-len(own) // threads))
            groups += [own[start : start + size] for start in range(0, len(own), size)]
        return [group for group in groups if len(group) > 1]

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


def _several(*results: object) -> tuple:
    return results


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
