"""Proximities stored in a dask array: larger than memory, or distributed over a cluster.

The loop of AFFECT runs on the client. Only chunks on and above the diagonal are read; the others are their
transposes. If all are in memory, objects that moved are read by rows, also below the diagonal. Each method is
one graph for dask: a pass over these chunks whose results are thin (n×r) or small (k×k, numbers), and plain
arrays of the library of the chunks.
"""

import dataclasses
import functools
import itertools
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
from array_api_compat import is_dask_array

from affect_xp.array.namespace import array_namespace, device_of, from_host, is_array, to_host
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputTypeError
from affect_xp.partition import UNCHANGED, Alignment, Partition
from affect_xp.proximity._base import Summable, joint_magnitude, log2, measured_magnitude
from affect_xp.proximity.chunked._chunk import (
    block_squares,
    centred_distance,
    centred_moments,
    checked_sums,
    chunk_added,
    chunk_blend,
    chunk_blend_by_object,
    chunk_blend_in_place,
    chunk_block_products,
    chunk_copy,
    chunk_diagonal,
    chunk_entries,
    chunk_probe,
    chunk_products,
    chunk_scaled,
    chunk_sums,
    chunk_with_absent,
    label_products,
    merged_moments,
    moved_products,
    some_products,
    square_changes,
)
from affect_xp.proximity.chunked._plan import (
    Chunks,
    Node,
    Nodes,
    Plan,
    chunks_of,
    meta_of,
    mirrored,
    square_chunks,
    square_cut,
    summed,
    upper,
)
from affect_xp.proximity.chunked._spill import Kept, Spill, StoredChunk
from affect_xp.proximity.grouped import Moves, Stored, Summed, identity, remembered

__all__ = ["Chunked", "checked_and_summed", "pairwise", "probe"]

log = logging.getLogger("affect_xp")

PASS = "pass over chunks: %s of %d objects"

# A product has at most so many columns at a time: the client holds the products of all chunks of a row.
MAX_COLUMNS = 16
# A task reads chunks of one worker with at most so many bytes: all of them have to be in its memory.
BYTES_AT_ONCE = 2**29

Call = tuple  # a function of chunks and its arguments
Of = Callable[[int, int], tuple]  # the arguments for a chunk


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Chunked(Summable):
    """A proximity matrix stored as an n×n dask array; assumed to be symmetric and finite.

    `as_proximity` makes one from a dask array after checking it. Methods compute when they are called, with
    the configured dask scheduler: threads, processes, or a dask.distributed cluster. Blends and copies are
    persisted: in the memory of the workers (`dask.persist`), or in `store`. Without a store, a lazy array
    is recomputed for each method call; call its `persist` first if there is enough memory. With a store,
    the first call also writes the chunks there, and later calls read them; an update after k-means moves
    reads only the rows and columns of the moved objects.

    Parameters
    ----------
    array : (n, n) dask array of float32 or float64, with NumPy or CuPy chunks
        Rechunked, lazily, if its rows and columns have different chunk sizes.
    store : str or path, optional
        A scratch folder shared by client and workers. Half a matrix is written there (zarr) for each
        proximity, blend or copy, and deleted when it is no longer referenced. A blend with a past that
        has a store is written there too.

    Examples
    --------
    >>> import dask.array, numpy as np
    >>> from affect_xp.proximity.chunked.chunked import Chunked
    >>> w = Chunked(dask.array.eye(4, chunks=2))
    >>> w.matmul(np.ones((4, 1))).ravel()
    array([1., 1., 1., 1.])
    """

    array: Array
    store: str | os.PathLike[str] | None = None
    _spill: Spill | None = None  # the chunks of a blend or copy in a store
    known_magnitude: float | None = dataclasses.field(default=None, kw_only=True)
    # Labels, W·Z and Σ wᵢⱼ² over i ≠ j of each block, where known.
    sums: tuple[Partition, Array, Array] | None = dataclasses.field(default=None, kw_only=True)
    # Σ wᵢⱼ² over each chunk and its transpose, where known.
    chunk_squares: Mapping[tuple[int, int], float] | None = dataclasses.field(default=None, kw_only=True)
    _chunks: Chunks | None = dataclasses.field(default=None, kw_only=True)  # those of a blend or copy
    _facts: Sequence[Kept] | None = dataclasses.field(default=None, kw_only=True)  # of these, if stored

    can_hold = staticmethod(is_dask_array)
    sums_by_product: ClassVar[bool] = True
    sums_plainly: ClassVar[bool] = True  # the client waits for each pass

    @remembered
    def magnitude(self) -> float:
        """log₂ of the largest |wᵢⱼ|; if it was not given, of the largest |wᵢᵢ|, unless these are zero."""
        if self.known_magnitude is not None:
            return self.known_magnitude
        magnitude = measured_magnitude([self.diagonal()])
        if magnitude > -math.inf:
            return magnitude
        log.debug(PASS, "largest entry", self.n)
        return measured_magnitude([self.array])

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", square_chunks(self.array))

    @property
    def n(self) -> int:
        return self.array.shape[0]

    @functools.cached_property
    def like(self) -> Array:
        """An empty array with the library, device and dtype of the chunks."""
        return meta_of(self.array)

    @functools.cached_property
    def _slices(self) -> list[slice]:
        """The rows of each chunk; columns have the same chunk sizes."""
        ends = np.cumsum([0, *self.array.chunks[0]]).tolist()
        return list(itertools.starmap(slice, itertools.pairwise(ends)))

    @functools.cached_property
    def _known(self) -> "_Known":
        """The chunks, updated when a method call writes them to the store."""
        if self._spill is not None:
            return _Known(Chunks(self._stored(self._spill)), self._spill)
        return _Known(self._lazy_chunks())

    def _lazy_chunks(self) -> Chunks:
        return chunks_of(self.array) if self._chunks is None else self._chunks

    @property
    def _at_once(self) -> int:
        """The number of chunks that one task may read."""
        return max(1, BYTES_AT_ONCE // max(1, self.array.itemsize * max(self.array.chunks[0]) ** 2))

    @property
    def _upper(self) -> Nodes:
        """The chunks on and above the diagonal."""
        at = self._known.chunks.at
        return {place: at[place] for place in upper(len(self._slices))}

    def _stored(self, spill: Spill) -> Nodes:
        """Return the chunks on and above the diagonal as stored chunks."""
        sizes, like = self.array.chunks[0], self.like
        places = upper(len(sizes))
        return {(i, j): StoredChunk(spill, (i, j), (sizes[i], sizes[j]), like) for i, j in places}

    def _ask(
        self, question: str, plan: Callable[[Plan, Nodes], list[Node]], *others: Chunks
    ) -> Sequence[Any]:
        """Compute a plan on the chunks; the first time, also write the chunks to the store."""
        known, nodes = self._known, self._upper
        tasks = Plan(known.chunks, *others)
        if self.store is None or known.spill is not None:
            log.debug(PASS, question, self.n)
            return tasks.compute(plan(tasks, known.chunks.at), self._at_once)
        log.debug(PASS, f"{question}, all written", self.n)
        spill = Spill(self.store)
        stored = self._stored(spill)
        written = {place: tasks.add(stored[place].write, node) for place, node in nodes.items()}
        results = tasks.compute([*plan(tasks, written), *written.values()])
        known.chunks, known.spill = Chunks(stored), spill
        return results[: -len(written)]

    def _read_diagonal(self) -> Array:
        if self.keeps_facts:
            return _concat([fact.diagonal for fact in self._kept_facts if fact.diagonal is not None])
        own = [(i, i) for i in range(len(self._slices))]
        return _concat(
            self._ask("diagonal", lambda tasks, chunks: [tasks.add(chunk_diagonal, chunks[p]) for p in own])
        )

    def diagonal(self) -> Array:
        if self._known.diagonal is None:
            self._known.diagonal = self._read_diagonal()
        return self._known.diagonal

    @property
    def keeps_facts(self) -> bool:
        """Whether Σ wᵢⱼ² and the diagonal were computed with the chunks, as for blends and copies."""
        return self._chunks is not None or self._facts is not None

    @functools.cached_property
    def _kept_facts(self) -> Sequence[Kept]:
        if self._facts is not None or self._chunks is None:
            return self._facts or ()
        tasks = Plan(self._chunks)
        facts = [tasks.add(_fact, node, opens=False) for node in self._chunks.at.values()]
        return tasks.compute(facts, self._at_once)

    @functools.cached_property
    def square_sum(self) -> Array:
        """Σ wᵢⱼ² of a blend or copy."""
        return summed([fact.square_sum for fact in self._kept_facts])

    def _each(
        self,
        question: str,
        function: Callable,
        of: Of,
        *others: Chunks,
        places: Iterable[tuple[int, int]] | None = None,
        opens: bool = True,
    ) -> dict[tuple[int, int], Any]:
        """Return function(w, *of(i, j)) of each chunk w, or of those at some places, by place."""
        places = self._upper if places is None else places

        def plan(tasks: Plan, chunks: Nodes) -> list[Node]:
            return [tasks.add(function, chunks[place], *of(*place), opens=opens) for place in places]

        return dict(zip(places, self._ask(question, plan, *others), strict=True))

    def _sides(self, held: Sequence[bool]) -> dict[tuple[int, int], tuple[bool, bool]]:
        """Return the chunks with some objects, and whether to read their rows, and their columns.

        Whole rows are quick to read. Unless all chunks are in memory, columns above the diagonal are read
        in place of rows below it.
        """
        if self.store is None and self._known.chunks.are_whole(len(held)):
            return {place: (True, False) for place in self._known.chunks.at if held[place[0]]}
        sides = {(i, j): (held[i], held[j] and i < j) for i, j in self._upper}
        return {place: either for place, either in sides.items() if any(either)}

    def _product(self, parts: dict[tuple[int, int], Any]) -> Array:
        """Return W·V, given W_ij·V_j for rows i of the product, and W_ijᵀ·V_i for rows j."""
        blocks: list[list] = [[] for _ in self._slices]
        for (i, j), (right, down, *_) in parts.items():
            blocks[i].append(right)
            blocks[j].append(down)
        return _concat([summed(block) for block in blocks])

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V, (n, r), in one pass; with `rows`, W[:, rows]·v from the chunks with these rows."""
        xp = array_namespace(v)
        if rows is None:
            sent = Plan()
            parts = [sent.constant(v[s, ...]) for s in self._slices]
            once = Chunks({}, sent.graph)
            return self._product(
                self._each("product", chunk_products, lambda i, j: (parts[i], parts[j], i == j), once)
            )
        if rows.shape[0] == 0:
            return xp.zeros((self.n, v.shape[1]), dtype=v.dtype, device=device_of(v))
        if v.shape[1] > MAX_COLUMNS:
            groups = range(0, v.shape[1], MAX_COLUMNS)
            return xp.concat([self.matmul(v[:, c : c + MAX_COLUMNS], rows) for c in groups], axis=1)
        index = to_host(rows, reason="which chunks hold these rows?")[0]
        return self._some(index, some_products, lambda here: (xp.take(v, from_host(here, v), axis=0),))

    def moved_product(self, groups: Stored, moves: Moves) -> Array:
        arrays = [moves.objects, moves.before, moves.after]
        arrays += [] if moves.places is None else [moves.places]
        on_host = to_host(*arrays, reason="which chunks hold the moved objects?")
        objects, before, after, *places = (x.astype(np.int64, copy=False) for x in on_host)
        index, before, after = places[0] if places else objects, short(before[objects]), short(after[objects])
        inside = index >= 0
        if not inside.any():
            return groups.array
        index, before, after = index[inside], before[inside], after[inside]
        change = self._some(index, moved_products, lambda here: (before[here], after[here]), groups.k)
        return groups.array + change

    def _some(
        self, index: np.ndarray, function: Callable, parts_of: Callable[[np.ndarray], tuple], *more: object
    ) -> Array:
        """Return W[:, index]·V from the chunks with these objects, without moving chunks between workers."""
        operands: list[tuple | None] = []
        for rows in self._slices:
            here = np.flatnonzero((index >= rows.start) & (index < rows.stop))
            operands.append((index[here] - rows.start, *parts_of(here)) if len(here) else None)

        sides = self._sides([operand is not None for operand in operands])

        def of(i: int, j: int) -> tuple:
            rows, columns = sides[i, j]
            return operands[i] if rows else None, operands[j] if columns else None, *more

        return self._product(self._each("product with some rows", function, of, places=sides, opens=False))

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Summed:
        """Return W with the labels of its objects; W·Z is computed when needed, if possible along with α."""
        if self.sums is not None:
            partition, wz, squares = self.sums
            if partition.k == k and np.array_equal(labels, partition.labels[:, None]):
                return Summed(self, labels, k, given, wz=wz, earlier=(partition, squares))
        return Summed(self, labels, k, given)

    def times_membership(self, groups: Summed) -> tuple[Array, Array | None]:
        """Return W·Z; for given labels along with squares, which α needs of W, but not of the past."""
        if groups.given is not None and not self.keeps_facts:
            return self.label_sums(groups.partition)
        of = self._with_labels(groups.labels, groups.k)
        return self._product(self._each("product", label_products, of)), None

    def label_sums(self, partition: Partition) -> tuple[Array, Array]:
        """Return W·Z, and Σ wᵢⱼ² over i ≠ j of each block, in one pass."""
        of = self._with_labels(partition.labels, partition.k)
        wz, squares, w_ii = self._joined(self._each("sums and squares", chunk_sums, of))
        self._known.diagonal = w_ii
        return wz, self._without_own(squares, partition)

    def _joined(self, parts: dict[tuple[int, int], Any]) -> tuple[Array, Array, Array]:
        """Return WZ, the squares with wᵢᵢ², and wᵢᵢ, given the results of `chunk_sums`."""
        squares = summed([part[2] for part in parts.values()])
        return self._product(parts), squares, _concat([parts[i, i][3] for i in range(len(self._slices))])

    def _without_own(self, squares: Array, partition: Partition) -> Array:
        w_ii = self.diagonal()
        return squares - identity(squares) * ((w_ii * w_ii) @ partition.membership)

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        return self.group(partition).moments()

    def square_distance(self, partition: Partition, means: Array) -> Array:
        return self.group(partition).distance_to(means)

    def block_sums(self, partition: Partition, *, squares: bool = True) -> tuple[Array, Array | None]:
        z, (wz, found) = partition.membership, self.label_sums(partition)
        return z.T @ wz - identity(found) * (self.diagonal() @ z), found

    def block_squares(self, partition: Partition) -> Array:
        of = self._with_labels(partition.labels, partition.k)
        return self._without_own(
            summed(self._each("squares by block", block_squares, of).values()), partition
        )

    def change_of_squares(self, before: Partition, now: Partition, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.zeros((now.k, now.k))
        old, new = self._labels(before.labels), self._labels(now.labels)
        sides = self._sides([bool(((rows >= s.start) & (rows < s.stop)).any()) for s in self._slices])

        def of(i: int, j: int) -> tuple:
            return (old[i], old[j]), (new[i], new[j]), now.k, sides[i, j], i == j

        half = summed(self._each("squares of some rows", square_changes, of, places=sides).values())
        return half + half.T

    def off_diagonal_squares(self, partition: Partition) -> Array:
        if partition.n_outside == 0 and self.keeps_facts:
            w_ii = self.diagonal()
            return self.square_sum - w_ii @ w_ii
        squares = self.block_squares(partition)
        return array_namespace(squares).sum(squares)

    def centred_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k), in one pass.

        Each chunk sums about its own means, so that no digits are lost if the mean is large and the spread
        is small.
        """
        of = self._with_labels(partition.labels, partition.k)
        parts = list(self._each("moments", centred_moments, of).values())
        moments = merged_moments(array_namespace(*parts).stack(parts))
        return moments[1, :, :], moments[2, :, :]

    def centred_distance(self, partition: Partition, means: Array) -> Array:
        mu = to_host(means, reason="dask plans on the host")[0]
        of = self._with_labels(partition.labels, mu)
        total = summed(self._each("distance", centred_distance, of).values())
        return array_namespace(total).reshape(total, ())

    def _with_labels(self, labels: Array, more: object) -> Of:
        """Return the labels of the rows and columns of each chunk, another argument, and if i = j."""
        parts = self._labels(labels)
        return lambda i, j: (parts[i], parts[j], more, i == j)

    def _labels(self, labels: Array) -> list[np.ndarray]:
        """Return the labels of each block of rows as small integers on the host."""
        host = short(to_host(labels, reason="dask plans with labels on the host")[0])
        return [host[rows] for rows in self._slices]

    def _split(self, values: Array) -> list[np.ndarray]:
        """Split `values` by the rows of the chunks, on the host."""
        host = to_host(values, reason="dask plans on the host")[0]
        return [host[rows] for rows in self._slices]

    def take(self, index: Array) -> "Chunked":
        """Return the proximities among the objects at `index`, lazily."""
        host = to_host(index, reason="dask plans with indices on the host")[0]
        taken = self.array[host, :][:, host]
        return Chunked(taken, self.store, known_magnitude=self.known_magnitude)

    def submatrix(self, index: Array | None = None) -> Array:
        """Return wᵢⱼ among the few objects at `index`, by default all, in wide floats, in one pass."""
        host = np.arange(self.n) if index is None else to_host(index, reason="dask plans on the host")[0]
        order = np.argsort(host, kind="stable")
        inside = [np.flatnonzero((host[order] >= s.start) & (host[order] < s.stop)) for s in self._slices]
        places = [(i, j) for i, j in upper(len(inside)) if len(inside[i]) and len(inside[j])]
        rows = [host[order[here]] - s.start for here, s in zip(inside, self._slices, strict=True)]
        found = self._ask(
            "entries of some objects",
            lambda tasks, chunks: [
                tasks.add(chunk_entries, chunks[i, j], rows[i], rows[j]) for i, j in places
            ],
        )
        xp, parts = array_namespace(*found), dict(zip(places, found, strict=True))
        used = [i for i, here in enumerate(inside) if len(here)]
        lines = [xp.concat([parts[i, j] if i <= j else parts[j, i].T for j in used], axis=1) for i in used]
        back = from_host(np.argsort(order), self.like)
        return xp.take(xp.take(xp.concat(lines), back, axis=0), back, axis=1)

    def copy(self) -> "Chunked":
        """Return the same proximities, computed once and persisted.

        If the chunks are already written to the store, the copy takes them over, and this proximity is
        lazy again.
        """
        known = self._known
        if known.spill is not None and self._spill is None:
            spill, known.chunks, known.spill = known.spill, self._lazy_chunks(), None
            return self._kept_in(spill, joint_magnitude(self, self))
        calls = {(i, j): (chunk_copy, chunk, i == j) for (i, j), chunk in self._upper.items()}
        return self._kept(calls, self.store, joint_magnitude(self, self))

    def blend(
        self, past: "Chunked", alpha: Array | float, alignment: Alignment, *, out: "Chunked | None" = None
    ) -> "Chunked":
        """Return the persisted blend α·past + (1 − α)·W, with W for pairs of objects without a past.

        A past in memory is freed with its last reference; `out`, if it is in a store, is deleted as soon
        as the blend is written.
        """
        if not isinstance(past, Chunked):
            raise InputTypeError(
                f"cannot blend Chunked with {type(past).__name__}; convert the past with "
                "Chunked(dask.array.from_array(past.array)), or W with Dense(W.array.compute())"
            )
        before, known = self._aligned(past, alignment)
        blended = chunk_blend_in_place if out is past and before is past._chunks else chunk_blend
        return self._blended(past, before, blended, (_number(alpha),), known, alpha, out)

    def blend_by_object(
        self,
        past: "Chunked",
        alpha: Array | float,
        trust: Array,
        alignment: Alignment,
        *,
        out: "Chunked | None" = None,
    ) -> "Chunked":
        before, _ = self._aligned(past, alignment)
        by_object = _number(alpha), self._split(trust)
        return self._blended(past, before, chunk_blend_by_object, by_object[:1], by_object[1], 1.0, out)

    def _blended(
        self,
        past: "Chunked",
        before: Chunks,
        function: Callable,
        weight: tuple,
        by_row: Sequence | None,
        alpha: Array | float,
        out: "Chunked | None",
    ) -> "Chunked":
        """Return a function of chunks of W and the past, persisted; the storage of `out` is freed."""
        calls = {
            (i, j): (
                function,
                chunk,
                before.at[i, j],
                *weight,
                None if by_row is None else (by_row[i], by_row[j]),
                i == j,
                *self._squares_for(function, i, j),
            )
            for (i, j), chunk in self._upper.items()
        }
        store = past.store if self.store is None else self.store
        blended = self._kept(calls, store, joint_magnitude(self, past, alpha), before)
        if out is not None and out._spill is not None:
            out._spill.delete()
        return blended

    def _squares_for(self, function: Callable, i: int, j: int) -> tuple[float, ...]:
        """Return Σ wᵢⱼ² over a chunk for a blend in place, if it is known."""
        known = self.chunk_squares if function is chunk_blend_in_place else None
        return () if known is None else (known[i, j],)

    def block_products(self, past: "Chunked", alignment: Alignment, partition: Partition) -> Array:
        before, _ = self._aligned(past, alignment)
        labels = self._labels(partition.labels)

        def of(i: int, j: int) -> tuple:
            return before.at[i, j], labels[i], labels[j], partition.k, i == j

        return summed(self._each("products with the past", chunk_block_products, of, before).values())

    def _aligned(self, past: "Chunked", alignment: Alignment) -> tuple[Chunks, list[np.ndarray] | None]:
        """Return the chunks of the past aligned with W's, and masks of objects with a past (None: all)."""
        if alignment.source is None:
            same_chunks = past.array.chunks == self.array.chunks
            return past._known.chunks if same_chunks else chunks_of(
                past.array.rechunk(self.array.chunks)
            ), None
        xp = array_namespace(alignment.source)
        known = alignment.source >= 0
        # A new object has no row in the past: use any row.
        moved = past.take(xp.where(known, alignment.source, xp.zeros_like(alignment.source)))
        return chunks_of(moved.array.rechunk(self.array.chunks)), self._split(known)

    def _kept(
        self,
        calls: dict[tuple[int, int], Call],
        store: str | os.PathLike[str] | None,
        magnitude: float | None,
        *others: Chunks,
    ) -> "Chunked":
        """Return a proximity with the results of these calls as chunks, in memory or in a store."""
        log.debug(PASS, "blend or copy", self.n)
        tasks = Plan(self._known.chunks, *others)
        made = {
            place: tasks.add(*call, opens=call[0] is not chunk_blend_in_place)
            for place, call in calls.items()
        }
        if store is not None:
            spill = Spill(store)
            stored = self._stored(spill)
            written = [tasks.add(_write, w, stored[place], opens=False) for place, w in made.items()]
            return self._kept_in(spill, magnitude, tasks.compute(written))
        chunks = tasks.persist(made)
        array = mirrored(chunks, self.array.chunks[0], self.like)
        return Chunked(array, known_magnitude=magnitude, _chunks=chunks)

    def _kept_in(
        self, spill: Spill, magnitude: float | None, facts: Sequence[Kept] | None = None
    ) -> "Chunked":
        """Return the proximity whose chunks are in a folder of the store."""
        array = mirrored(Chunks(self._stored(spill)), self.array.chunks[0], self.like)
        return Chunked(array, os.path.dirname(spill.path), spill, known_magnitude=magnitude, _facts=facts)

    def mapped(self, function: Callable[[Array], Array]) -> "Chunked":
        """Return f(wᵢⱼ), lazily; the function receives one chunk at a time."""
        return self._planned({place: (function, chunk) for place, chunk in self._upper.items()})

    def scaled(self, s: Array) -> "Chunked":
        """Return sᵢ wᵢⱼ sⱼ, lazily."""
        parts = self._split(s)
        return self._planned(
            {(i, j): (chunk_scaled, chunk, parts[i], parts[j]) for (i, j), chunk in self._upper.items()}
        )

    def _planned(self, calls: dict[tuple[int, int], Call]) -> "Chunked":
        """Return a proximity whose chunks are computed by these calls when a question is asked."""
        tasks = Plan(self._known.chunks)
        nodes = {place: tasks.add(*call) for place, call in calls.items()}
        return Chunked(mirrored(Chunks(nodes, tasks.graph), self.array.chunks[0], self.like), self.store)

    def with_absent(self, past: "Chunked", source: Array, away: Array) -> "Chunked":
        """Return these proximities followed by the past proximities of absent objects, persisted.

        The absent objects get separate chunks, no larger than the largest chunk of W.
        """
        if away.shape[0] == 0:
            return self.copy()
        sizes, largest = self.array.chunks[0], max(self.array.chunks[0])
        behind = tuple(min(largest, away.shape[0] - start) for start in range(0, away.shape[0], largest))
        known = [*self._split(source >= 0), *[None] * len(behind)]
        before = self._columns_before(past, source, away, (sizes + behind, behind))
        tasks, p = Plan(self._known.chunks, before), len(sizes)
        nodes = dict(self._upper)
        for i, j in itertools.product(range(len(known)), range(len(behind))):
            if i <= p + j:
                chunk = tasks.add(chunk_with_absent, before.at[i, j], known[i], self.like.dtype)
                nodes[i, p + j] = chunk
        store = past.store if self.store is None else self.store
        array = mirrored(Chunks(nodes, tasks.graph), sizes + behind, self.like)
        return Chunked(array, store, known_magnitude=joint_magnitude(self, past)).copy()

    @staticmethod
    def _columns_before(past: "Chunked", source: Array, away: Array, chunks: tuple) -> Chunks:
        """Return the past columns of the absent objects, in chunks; new objects get arbitrary rows."""
        rows, columns = to_host(source, away, reason="dask plans with indices on the host")
        columns = columns.astype(int)
        rows = np.concatenate([np.maximum(rows, 0).astype(int), columns])
        return chunks_of(past.array[:, columns][rows, :].rechunk(chunks))

    def add_between_groups(self, other: "Chunked", groups: Array, table: np.ndarray) -> "Chunked":
        others, _ = self._aligned(other, UNCHANGED)
        g = self._split(groups)
        calls = {
            (i, j): (chunk_added, chunk, others.at[i, j], (g[i], g[j]), table, i == j)
            for (i, j), chunk in self._upper.items()
        }
        store = other.store if self.store is None else self.store
        return self._kept(calls, store, joint_magnitude(self, other), others)


@dataclasses.dataclass
class _Known:
    """What is known of lazy chunks, updated by method calls."""

    chunks: Chunks  # lazy, kept in memory, or written to a store
    spill: Spill | None = None  # if they are written to a store
    diagonal: Array | None = None  # wᵢᵢ, (n,)


def short(labels: np.ndarray) -> np.ndarray:
    """Return labels as integers of few bytes: they are sent with each task."""
    return labels.astype(np.result_type(np.min_scalar_type(labels.max(initial=0)), np.int8), copy=False)


def _number(alpha: Array | float) -> float:
    return float(to_host(alpha, reason="dask plans with α on the host")[0]) if is_array(alpha) else alpha


def _fact(chunk: Kept) -> Kept:
    return dataclasses.replace(chunk, array=None)


def _write(chunk: Kept, stored: StoredChunk) -> Kept:
    """Write a chunk to the store; return what is known of it."""
    stored.write(chunk.array)
    return _fact(chunk)


def pairwise(x: Array, block: Callable[[Array, Array | None], Array], dtype: object) -> Chunked:
    """Return the proximities of the rows of a dask array X (n, p), lazily.

    Chunk (i, j) is block(X_i, X_j) above the diagonal, and block(X_i, None) on it. The rows are split further
    if a chunk would exceed dask's "array.chunk-size".
    """
    allowed = square_cut(x.shape[0], dtype)
    rows = x.chunks[0] if max(x.chunks[0]) <= max(allowed) else allowed
    features = chunks_of(x.rechunk({0: rows, 1: -1}))
    tasks, parts = Plan(features), features.at
    nodes = {
        (i, j): tasks.add(block, parts[i, 0], None if i == j else parts[j, 0]) for i, j in upper(len(rows))
    }
    xp = array_namespace(x._meta)
    like = xp.empty((0, 0), dtype=dtype, device=device_of(x._meta))
    return Chunked(mirrored(Chunks(nodes, tasks.graph), rows, like))


class _Probe:
    """Products of all chunks of a dask array with a random v, and the largest |wᵢⱼ| of every step-th row."""

    def __init__(self, array: Array, v: np.ndarray, step: int) -> None:
        self.array = square_chunks(array)
        self.ends = np.cumsum([0, *self.array.chunks[0]]).tolist()
        self.chunks, self.n = chunks_of(self.array), len(v)
        self.v = [v[a:b] for a, b in itertools.pairwise(self.ends)]
        self.samples = [slice(-start % step, None, step) for start in self.ends]

    def plan(self, tasks: Plan, i: int, j: int, dtype: object) -> Node:
        """Plan `chunk_probe` of a chunk."""
        given = self.v[i], self.v[j], self.samples[i], dtype, i == j
        return tasks.add(chunk_probe, self.chunks.at[i, j], *given)

    def combined(self, parts: dict[tuple[int, int], tuple]) -> tuple[np.ndarray, np.ndarray, float]:
        """Return Wv, Wᵀv and the largest |wᵢⱼ|, given those of the chunks."""
        right, down, least = np.zeros(self.n), np.zeros(self.n), 0.0
        for (i, j), (right_part, down_part, largest) in parts.items():
            right[self.ends[i] : self.ends[i + 1]] += right_part
            down[self.ends[j] : self.ends[j + 1]] += down_part
            least = float(np.maximum(least, largest))  # NaN stays
        return right, down, least


def probe(array: Array, v: np.ndarray, step: int, dtype: object) -> tuple[np.ndarray, np.ndarray, float]:
    """Return Wv and Wᵀv of a dask array, and the largest |wᵢⱼ| of every step-th row and the diagonal.

    One task per chunk; only vectors are moved.
    """
    found = _Probe(array, v, step)
    tasks = Plan(found.chunks)
    parts = {place: found.plan(tasks, *place, dtype) for place in found.chunks.at}
    return found.combined(dict(zip(parts, tasks.compute(list(parts.values())), strict=True)))


@np.errstate(over="ignore", invalid="ignore")  # where entries, or their squares, are not finite
def checked_and_summed(
    array: Array, v: np.ndarray, step: int, partition: Partition
) -> tuple[Chunked, np.ndarray, float]:
    """Return a dask array of NumPy chunks with its sums by label, Wv − Wᵀv, and the largest |wᵢⱼ| seen.

    This is one pass. Chunks below the diagonal are read for the check only.
    """
    found = _Probe(array, v, step)
    W, tasks, nodes = Chunked(found.array), Plan(found.chunks), {}
    labels = W._labels(partition.labels)
    for (i, j), chunk in found.chunks.at.items():
        if i > j:
            nodes[i, j] = found.plan(tasks, i, j, W.like.dtype)
        else:
            both = (labels[i], labels[j]), (found.v[i], found.v[j])
            nodes[i, j] = tasks.add(checked_sums, chunk, *both, partition.k, found.samples[i], i == j)
    log.debug(PASS, "check, sums and squares", W.n)
    parts = dict(zip(nodes, tasks.compute(list(nodes.values()), W._at_once), strict=True))
    wz, squares, w_ii = W._joined({(i, j): part for (i, j), part in parts.items() if i <= j})
    right, down, least = found.combined({place: part[-3:] for place, part in parts.items()})
    squares = squares - np.diag((w_ii * w_ii) @ partition.membership)
    by_chunk = {(i, j): float(part[2].sum()) for (i, j), part in parts.items() if i <= j}
    W = Chunked(
        found.array,
        known_magnitude=log2(float(np.abs(right).max())),
        sums=(partition, wz, squares),
        chunk_squares=by_chunk if bool((partition.labels >= 0).all()) else None,
    )
    W._known.chunks, W._known.diagonal = found.chunks, w_ii
    return W, right - down, least


def _concat(parts: Sequence[Array]) -> Array:
    return array_namespace(*parts).concat(list(parts))
