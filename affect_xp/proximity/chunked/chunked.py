"""Proximities stored in a dask array: larger than memory, or distributed over a cluster.

The loop of AFFECT runs on the client. Only chunks on and above the diagonal are read; the others are their
transposes. Each method is one `dask.compute`: a pass over these chunks whose results are thin (n×r) or small
(k×k, numbers), and plain arrays of the library of the chunks.
"""

import dataclasses
import functools
import itertools
import logging
import math
import operator
import os
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from array_api_compat import is_dask_array

from affect_xp.array.namespace import array_namespace, device_of, from_host, is_host_value, to_host
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputTypeError
from affect_xp.partition import UNCHANGED, Alignment, Partition
from affect_xp.proximity._base import Proximity, joint_magnitude, measured_magnitude
from affect_xp.proximity._entries import add_between_groups, scaled
from affect_xp.proximity.chunked._chunk import (
    chunk_blend,
    chunk_blend_by_object,
    chunk_block_products,
    chunk_block_squares,
    chunk_copy,
    chunk_diagonal,
    chunk_moments,
    chunk_moments_and_products,
    chunk_probe,
    chunk_products,
    chunk_square_distance,
    chunk_squares,
    chunk_squares_and_products,
    chunk_with_absent,
    mirrored_product,
    product,
    some_products,
    stacked_moments,
    summed,
    summed_sides,
    with_products,
)
from affect_xp.proximity.chunked._grouped import ChunkedGroups
from affect_xp.proximity.chunked._plan import (
    Node,
    Nodes,
    Work,
    compute,
    constant,
    meta_of,
    mirrored,
    persist,
    square_chunks,
    square_cut,
    task,
    tree,
    upper_nodes,
    written,
)
from affect_xp.proximity.chunked._spill import Spill, StoredChunk, opened

__all__ = ["Chunked", "pairwise", "probe"]

log = logging.getLogger("affect_xp")

PASS = "pass over chunks: %s of %d objects"


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Chunked(Proximity):
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
    _square_sums: Node | None = dataclasses.field(default=None, kw_only=True)  # Σ wᵢⱼ², if planned

    can_hold = staticmethod(is_dask_array)

    @functools.cached_property
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

    @property
    def like(self) -> Array:
        """An empty array with the library, device and dtype of the chunks."""
        return meta_of(self.array)

    @property
    def sums_plainly(self) -> bool:
        """Whether plain sums are tried first: where lost digits can be seen without waiting."""
        return is_host_value(self.like)

    @functools.cached_property
    def _slices(self) -> list[slice]:
        """The rows of each chunk; columns have the same chunk sizes."""
        stops = np.cumsum(self.array.chunks[0]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    @functools.cached_property
    def _known(self) -> "_Known":
        """The chunks, updated when a method call writes them to the store."""
        chunks = upper_nodes(self.array) if self._spill is None else self._stored(self._spill)
        return _Known(chunks, self._spill)

    def _stored(self, spill: Spill) -> Nodes:
        """Return the chunks on and above the diagonal as stored chunks."""
        sizes, like = self.array.chunks[0], self.like
        places = itertools.combinations_with_replacement(range(len(sizes)), 2)
        return {(i, j): StoredChunk(spill, (i, j), (sizes[i], sizes[j]), like) for i, j in places}

    def _ask(self, question: str, plan: Callable[[Nodes], list[Node]]) -> tuple:
        """Compute a plan on the chunks; the first time, also write the chunks to the store."""
        known = self._known
        if self.store is None or known.spill is not None:
            log.debug(PASS, question, self.n)
            return compute(plan(known.chunks))
        log.debug(PASS, f"{question}, all written", self.n)
        spill = Spill(self.store)
        stored = self._stored(spill)
        chunks = {place: written(stored[place], opened, chunk) for place, chunk in known.chunks.items()}
        results = compute([*plan(chunks), *chunks.values()])
        known.chunks, known.spill = stored, spill
        return results[: -len(chunks)]

    @functools.cached_property
    def _diagonal(self) -> Array:
        own = [(i, i) for i in range(len(self._slices))]
        return _concat(self._ask("diagonal", lambda chunks: [task(chunk_diagonal, chunks[p]) for p in own]))

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats; computed once, from the chunks on the diagonal."""
        return self._diagonal

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V, (n, r), in one pass; with `rows`, W[:, rows]·v from the chunks with these rows."""
        if rows is None:
            return _concat(self._ask("product", lambda chunks: self._plan_product(chunks, v)))
        if rows.shape[0] == 0:
            return array_namespace(v).zeros((self.n, v.shape[1]), dtype=v.dtype, device=device_of(v))
        operands = self._grouped(v, rows)
        plan = self._plan_some if self.store is None else self._plan_some_stored
        return _concat(self._ask("product with some rows", lambda chunks: plan(chunks, operands)))

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> ChunkedGroups:
        """Return W with the labels of its objects; W·Z is computed when needed, if possible along with α."""
        return ChunkedGroups(self, labels, k, given)

    def _plan_product(self, chunks: Nodes, v: Array) -> list[Node]:
        """Plan W·V. Chunk (i, j) is used twice: W_ij·V_j for rows i of the product, W_ijᵀ·V_i for rows j."""
        parts = self._split(v)
        return self._plan_sums(
            {(i, j): task(chunk_products, w, parts[i], parts[j], i == j) for (i, j), w in chunks.items()}
        )

    def _plan_some(self, chunks: Nodes, operands: list[Node | None]) -> list[Node]:
        """Plan W[:, rows]·v, chunk by chunk as for W·V, without moving chunks between workers."""
        return self._plan_sums(
            {
                (i, j): task(some_products, chunk, operands[i], operands[j], i == j)
                for (i, j), chunk in chunks.items()
                if operands[i] is not None or operands[j] is not None
            }
        )

    def _plan_sums(self, products: Nodes) -> list[Node]:
        """Plan the sums of chunk products for each block of rows of W."""
        sums = []
        for block in range(len(self._slices)):
            places = [place for place in products if block in place]
            sides = [int(i != block) for i, _ in places]
            sums.append(task(summed_sides, sides, *[products[place] for place in places]))
        return sums

    def _plan_some_stored(self, chunks: Nodes, operands: list[Node | None]) -> list[Node]:
        """Plan W[:, rows]·v, one task per block of rows: each worker reads only what it needs."""
        some = [(i, operand) for i, operand in enumerate(operands) if operand is not None]
        return [
            task(
                _some_sums,
                [(chunks[min(i, block), max(i, block)], i < block, operand) for i, operand in some],
            )
            for block in range(len(operands))
        ]

    def _grouped(self, v: Array, rows: Array) -> list[Node | None]:
        """Return for each chunk its rows that are in `rows` and their part of v, or None."""
        xp = array_namespace(v)
        index = to_host(rows, reason="which chunks hold these rows?")[0]
        operands: list[Node | None] = []
        for s in self._slices:
            here = np.flatnonzero((index >= s.start) & (index < s.stop))
            part = xp.take(v, from_host(here, v), axis=0)
            operands.append(constant((index[here] - s.start, part)) if len(here) else None)
        return operands

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k), in one pass.

        Each chunk sums about its own means, so that no digits are lost if the mean is large and the spread
        is small; `stacked_moments` merges them.
        """
        return self.block_moments_with(None, partition)[0]

    def block_moments_with(
        self, z: Array | None, partition: Partition
    ) -> tuple[tuple[Array, Array], Array | None]:
        """Return the moments of the blocks and W·Z in one pass."""
        labels, k = self._split(partition.labels), partition.k
        function = chunk_moments if z is None else chunk_moments_and_products

        def part(chunk: Node, i: int, j: int) -> Node:
            return task(function, chunk, labels[i], labels[j], k, i == j)

        moments, product = self._reduced("moments", part, stacked_moments, products=z is not None)
        return (moments[1, :, :], moments[2, :, :]), product

    def square_sum_with(self, z: Array | None, partition: Partition) -> tuple[Array, Array | None]:
        """Return Σ wᵢⱼ² over the objects in clusters and, if z is given, W·Z, in one pass."""
        if partition.n_outside == 0 and (z is None or self.knows_squares):
            return self.square_sum, None if z is None else self.matmul(z)
        z_parts = self._split(partition.membership)
        function = chunk_squares if z is None else chunk_squares_and_products

        def part(chunk: Node, i: int, j: int) -> Node:
            return task(function, chunk, z_parts[i], z_parts[j], i == j)

        return self._reduced("squares", part, summed, products=z is not None)

    def block_squares(self, partition: Partition) -> Array:
        """Return Σ wᵢⱼ² of each block, with the diagonal, (k, k), in one pass."""
        z = self._split(partition.membership)

        def part(chunk: Node, i: int, j: int) -> Node:
            return task(chunk_block_squares, chunk, z[i], z[j], i == j)

        return self._reduced("squares by block", part, summed)[0]

    @property
    def knows_squares(self) -> bool:
        """Whether Σ wᵢⱼ² is known or planned, as for blends and copies."""
        return self._square_sums is not None or "square_sum" in self.__dict__

    @functools.cached_property
    def square_sum(self) -> Array:
        """Σ wᵢⱼ²; computed once."""
        if self._square_sums is not None:
            return compute([self._square_sums])[0]

        def plan(chunks: Nodes) -> list[Node]:
            parts = [task(chunk_squares, w, None, None, i == j) for (i, j), w in chunks.items()]
            return [tree(parts, summed)]

        return self._ask("squares", plan)[0]

    def _reduced(
        self,
        question: str,
        part: Callable[[Node, int, int], Node],
        combine: Callable[..., Array],
        *,
        products: bool = False,
    ) -> tuple[Array, Array | None]:
        """Combine the results of a task for each chunk; with `products`, results and products of each.

        One task does both: passing chunks between tasks would keep them in memory.
        """

        def plan(chunks: Nodes) -> list[Node]:
            parts = {place: part(chunk, *place) for place, chunk in chunks.items()}
            if not products:
                return [tree(list(parts.values()), combine)]
            sides = {place: task(operator.getitem, both, 1) for place, both in parts.items()}
            first = [task(operator.getitem, both, 0) for both in parts.values()]
            return [tree(first, combine), *self._plan_sums(sides)]

        result, *product = self._ask(f"{question} and product" if products else question, plan)
        return result, _concat(product) if products else None

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² in one pass."""
        return self.square_distance_with(None, partition, means)[0]

    def square_distance_with(
        self, z: Array | None, partition: Partition, means: Array
    ) -> tuple[Array, Array | None]:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² and W·Z in one pass."""
        labels, mu = self._split(partition.labels), constant(means)
        v = None if z is None else self._split(z)

        def part(chunk: Node, i: int, j: int) -> Node:
            arguments = labels[i], labels[j], mu, i == j
            if v is None:
                return task(chunk_square_distance, chunk, *arguments)
            return task(with_products, chunk, chunk_square_distance, arguments, v[i], v[j], i == j)

        total, product = self._reduced("distance", part, summed, products=z is not None)
        return array_namespace(total).reshape(total, ()), product

    def _split(self, values: Array) -> list[Node]:
        """Split `values` by the rows of the chunks."""
        return [constant(values[rows, ...]) for rows in self._slices]

    def take(self, index: Array) -> "Chunked":
        """Return the proximities among the objects at `index`, lazily."""
        host = to_host(index, reason="dask plans with indices on the host")[0]
        taken = self.array[host, :][:, host]
        return Chunked(taken, self.store, known_magnitude=self.known_magnitude)

    def copy(self) -> "Chunked":
        """Return the same proximities, computed once and persisted.

        If the chunks are already written to the store, the copy takes them over, and this proximity is
        lazy again.
        """
        known = self._known
        if known.spill is not None and self._spill is None:
            del self.__dict__["_known"]
            return self._kept_in(known.spill, joint_magnitude(self, self))
        calls = {place: (chunk_copy, chunk) for place, chunk in known.chunks.items()}
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
        a = constant(alpha)
        calls = {
            (i, j): (chunk_blend, chunk, before[i, j], a, known[i], known[j])
            for (i, j), chunk in self._known.chunks.items()
        }
        store = past.store if self.store is None else self.store
        blended = self._kept(calls, store, joint_magnitude(self, past, alpha))
        if out is not None and out._spill is not None:
            out._spill.delete()
        return blended

    def blend_by_object(
        self,
        past: "Chunked",
        alpha: Array | float,
        trust: Array,
        alignment: Alignment,
        *,
        out: "Chunked | None" = None,
    ) -> "Chunked":
        """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ), persisted."""
        before, _ = self._aligned(past, alignment)
        a, s = constant(alpha), self._split(trust)
        calls = {
            (i, j): (chunk_blend_by_object, chunk, before[i, j], a, s[i], s[j])
            for (i, j), chunk in self._known.chunks.items()
        }
        store = past.store if self.store is None else self.store
        blended = self._kept(calls, store, joint_magnitude(self, past))
        if out is not None and out._spill is not None:
            out._spill.delete()
        return blended

    def block_products(self, past: "Chunked", alignment: Alignment, partition: Partition) -> Array:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block, (k, k), in one pass."""
        before, _ = self._aligned(past, alignment)
        labels, k = self._split(partition.labels), partition.k

        def plan(chunks: Nodes) -> list[Node]:
            parts = [
                task(chunk_block_products, w, before[i, j], labels[i], labels[j], k, i == j)
                for (i, j), w in chunks.items()
            ]
            return [tree(parts, summed)]

        return self._ask("products with the past", plan)[0]

    def _aligned(self, past: "Chunked", alignment: Alignment) -> tuple[Nodes, Sequence[Node | None]]:
        """Return the chunks of the past aligned with W's, and masks of objects with a past (None: all)."""
        if alignment.source is None:
            same_chunks = past.array.chunks == self.array.chunks
            chunks = past._known.chunks if same_chunks else upper_nodes(past.array.rechunk(self.array.chunks))
            return chunks, [None] * len(self._slices)
        xp = array_namespace(alignment.source)
        known = alignment.source >= 0
        # A new object has no row in the past: use any row.
        moved = past.take(xp.where(known, alignment.source, xp.zeros_like(alignment.source)))
        return upper_nodes(moved.array.rechunk(self.array.chunks)), self._split(known)

    def _kept(
        self,
        calls: dict[tuple[int, int], Work],
        store: str | os.PathLike[str] | None,
        magnitude: float | None,
    ) -> "Chunked":
        """Return a proximity with the computed results of these calls as chunks, in memory or in a store."""
        log.debug(PASS, "blend or copy", self.n)
        if store is not None:
            spill = Spill(store)
            compute([written(chunk, *calls[place]) for place, chunk in self._stored(spill).items()])
            return self._kept_in(spill, magnitude)
        chunks = {place: task(*call) for place, call in calls.items()}
        squares = tree([task(chunk_squares, w, None, None, i == j) for (i, j), w in chunks.items()], summed)
        *made, squares = persist([*chunks.values(), squares])
        array = mirrored(dict(zip(calls, made, strict=True)), self.array.chunks[0], self.like)
        return Chunked(array, known_magnitude=magnitude, _square_sums=squares)

    def _kept_in(self, spill: Spill, magnitude: float | None) -> "Chunked":
        """Return the proximity whose chunks are in a folder of the store."""
        read = {place: task(chunk_copy, chunk) for place, chunk in self._stored(spill).items()}
        array = mirrored(read, self.array.chunks[0], self.like)
        return Chunked(array, os.path.dirname(spill.path), spill, known_magnitude=magnitude)

    def mapped(self, function: Callable[[Array], Array]) -> "Chunked":
        """Return f(wᵢⱼ), lazily; the function receives one chunk at a time."""
        return self._planned({place: (function, chunk) for place, chunk in self._known.chunks.items()})

    def scaled(self, s: Array) -> "Chunked":
        """Return sᵢ wᵢⱼ sⱼ, lazily."""
        parts = self._split(s)
        return self._planned(
            {(i, j): (scaled, chunk, parts[i], parts[j]) for (i, j), chunk in self._known.chunks.items()}
        )

    def _planned(self, calls: dict[tuple[int, int], Work]) -> "Chunked":
        """Return a proximity whose chunks are computed by these calls when a question is asked."""
        nodes = {place: task(*call) for place, call in calls.items()}
        return Chunked(mirrored(nodes, self.array.chunks[0], self.like), self.store)

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
        nodes = {place: task(opened, chunk) for place, chunk in self._known.chunks.items()}
        for i, j in itertools.product(range(len(known)), range(len(behind))):
            if i <= len(sizes) + j:
                nodes[i, len(sizes) + j] = task(chunk_with_absent, before[i][j], known[i], self.like.dtype)
        store = past.store if self.store is None else self.store
        array = mirrored(nodes, sizes + behind, self.like)
        return Chunked(array, store, known_magnitude=joint_magnitude(self, past)).copy()

    @staticmethod
    def _columns_before(past: "Chunked", source: Array, away: Array, chunks: tuple) -> list[list[Node]]:
        """Return the past columns of the absent objects, in chunks; new objects get arbitrary rows."""
        rows, columns = to_host(source, away, reason="dask plans with indices on the host")
        columns = columns.astype(int)
        rows = np.concatenate([np.maximum(rows, 0).astype(int), columns])
        return past.array[:, columns][rows, :].rechunk(chunks).to_delayed().tolist()

    def add_between_groups(self, other: "Chunked", groups: Array, table: np.ndarray) -> "Chunked":
        """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ, persisted."""
        others, _ = self._aligned(other, UNCHANGED)
        g, marks = self._split(groups), constant(table)
        calls = {
            (i, j): (add_between_groups, chunk, others[i, j], g[i], g[j], marks)
            for (i, j), chunk in self._known.chunks.items()
        }
        store = other.store if self.store is None else self.store
        return self._kept(calls, store, joint_magnitude(self, other))


@dataclasses.dataclass
class _Known:
    """The chunks on and above the diagonal: lazy, or written to a store."""

    chunks: Nodes
    spill: Spill | None


def pairwise(x: Array, block: Callable[[Array, Array | None], Array], dtype: object) -> Chunked:
    """Return the proximities of the rows of a dask array X (n, p), lazily.

    Chunk (i, j) is block(X_i, X_j) above the diagonal, and block(X_i, None) on it. The rows are split further
    if a chunk would exceed dask's "array.chunk-size".
    """
    allowed = square_cut(x.shape[0], dtype)
    rows = x.chunks[0] if max(x.chunks[0]) <= max(allowed) else allowed
    x = x.rechunk({0: rows, 1: -1})
    parts = x.to_delayed()[:, 0]
    places = itertools.combinations_with_replacement(range(len(parts)), 2)
    nodes = {(i, j): task(block, parts[i], None if i == j else parts[j]) for i, j in places}
    xp = array_namespace(x._meta)
    return Chunked(mirrored(nodes, rows, xp.empty((0, 0), dtype=dtype, device=device_of(x._meta))))


def probe(array: Array, v: np.ndarray, step: int, dtype: object) -> tuple[np.ndarray, np.ndarray, float]:
    """Return Wv and Wᵀv of a dask array, and the largest |wᵢⱼ| of every step-th row and the diagonal.

    One task per chunk; only vectors are moved.
    """
    w, ends = square_chunks(array), np.cumsum([0, *square_chunks(array).chunks[0]])
    parts = [constant(v[a:b]) for a, b in itertools.pairwise(ends)]
    samples = [slice(-int(start) % step, None, step) for start in ends]
    places = list(itertools.product(range(len(parts)), repeat=2))
    nodes = w.to_delayed()
    calls = [task(chunk_probe, nodes[i, j], parts[i], parts[j], samples[i], dtype, i == j) for i, j in places]
    right, down, least = np.zeros(len(v)), np.zeros(len(v)), 0.0
    for (i, j), (right_part, down_part, largest) in zip(places, compute(calls), strict=True):
        right[ends[i] : ends[i + 1]] += right_part
        down[ends[j] : ends[j + 1]] += down_part
        least = float(np.maximum(least, largest))  # NaN stays
    return right, down, least


def _some_sums(parts: list[tuple[StoredChunk, bool, tuple[np.ndarray, Array]]]) -> Array:
    """Add up the products with some rows (for the transpose) or columns of stored chunks."""
    return summed(
        *[
            mirrored_product(chunk.take(index, 0), v) if mirror else product(chunk.take(index, 1), v)
            for chunk, mirror, (index, v) in parts
        ]
    )


def _concat(parts: Sequence[Array]) -> Array:
    return array_namespace(*parts).concat(list(parts))
