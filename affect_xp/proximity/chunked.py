"""Proximities held in a dask array: larger than memory, or spread over a cluster.

The loop of AFFECT runs on the client. Only chunks on and right of the diagonal are ever read, the
others being their mirror images. Each question is one `dask.compute`: a pass over these chunks whose
results are thin (n×r) or small (k×k, numbers), and plain arrays of the library of the chunks.
"""

import dataclasses
import functools
import itertools
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from array_api_compat import is_dask_array

from affect_xp import _array
from affect_xp._array import array_namespace, device_of, one_hot, row_blocks, wide_dtype
from affect_xp._typing import Array
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.objects import Alignment
from affect_xp.partition import Partition
from affect_xp.proximity._base import Proximity

__all__ = ["Chunked", "is_dask_array", "pairwise"]

# How many partial results one task adds up.
FAN_IN = 16

Node = Any  # a dask.delayed.Delayed: the plan of one result
Nodes = dict[tuple[int, int], Node]  # the chunks (i, j), i ≤ j


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Chunked(Proximity):
    """A proximity matrix held as an n×n dask array; trusted to be symmetric and finite.

    `as_proximity` makes one from a dask array after checking it. Nothing is computed before a question is
    asked, then with the scheduler that dask is set to: threads, processes, or a dask.distributed
    cluster. An array that is only planned is computed afresh for each question; call its `persist` first
    if there is memory for it. Blends and copies are kept: in the memory of the workers (`dask.persist`),
    or in `store`.

    Parameters
    ----------
    array : (n, n) dask array of float32 or float64, with NumPy or CuPy chunks
        Rechunked, lazily, if its rows and columns are not cut alike.
    store : str or path, optional
        A scratch folder that client and workers share. Blends and copies are written there (zarr) instead
        of being kept in memory, half a matrix each, and are deleted when no one refers to them any more.
        A blend with a past that has a store goes there, too.

    Examples
    --------
    >>> import dask.array, numpy as np
    >>> from affect_xp.proximity.chunked import Chunked
    >>> w = Chunked(dask.array.eye(4, chunks=2))
    >>> w.matmul(np.ones((4, 1))).ravel()
    array([1., 1., 1., 1.])
    """

    array: Array
    store: str | os.PathLike[str] | None = None
    _spill: "_Spill | None" = None  # where the chunks are, if this is a blend or copy in a store

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", _square_chunks(self.array))

    @property
    def n(self) -> int:
        """The number of objects."""
        return self.array.shape[0]

    @property
    def like(self) -> Array:
        """An empty array of the library, device and dtype of the chunks."""
        from dask.array.utils import meta_from_array

        return meta_from_array(self.array)

    @functools.cached_property
    def _slices(self) -> list[slice]:
        """The rows of each chunk; its columns are cut alike."""
        stops = np.cumsum(self.array.chunks[0]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    @functools.cached_property
    def _upper(self) -> Nodes:
        """The chunks on and right of the diagonal."""
        return _upper_nodes(self.array)

    @functools.cached_property
    def _diagonal(self) -> Array:
        nodes = [_task(chunk_diagonal, self._upper[i, i]) for i in range(len(self._slices))]
        return _concat(_compute(nodes))

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats. It is computed once, from the chunks on the diagonal."""
        return self._diagonal

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V, (n, r), in one pass; with `rows`, W[:, rows]·v from the chunks that hold these rows.

        Chunk (i, j) serves twice: W_ij·V_j for rows i of the product, W_ijᵀ·V_i for rows j.
        """
        if rows is not None and rows.shape[0] == 0:
            return array_namespace(v).zeros((self.n, v.shape[1]), dtype=v.dtype, device=device_of(v))
        operands = self._whole(v) if rows is None else self._grouped(v, rows)
        products = {
            (i, j): _task(chunk_products, chunk, operands[i], operands[j], i == j)
            for (i, j), chunk in self._upper.items()
            if operands[i] is not None or operands[j] is not None
        }
        sums = []
        for block in range(len(self._slices)):
            places = [place for place in products if block in place]
            sides = [int(i != block) for i, _ in places]
            sums.append(_task(_sum_sides, sides, *[products[place] for place in places]))
        return _concat(_compute(sums))

    def _whole(self, v: Array) -> list[Node]:
        """Return (None, V_i) for the rows i of each chunk."""
        return [_constant((None, v[rows, :])) for rows in self._slices]

    def _grouped(self, v: Array, rows: Array) -> list[Node | None]:
        """Return for each chunk which of its rows are among `rows`, and their part of v; or None."""
        xp = array_namespace(v)
        index = _array.to_host(rows, reason="which chunks hold these rows?")[0]
        operands: list[Node | None] = []
        for s in self._slices:
            here = np.flatnonzero((index >= s.start) & (index < s.stop))
            local = _array.from_host(index[here] - s.start, v)
            part = xp.take(v, _array.from_host(here, v), axis=0)
            operands.append(_constant((local, part)) if len(here) else None)
        return operands

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k), in one pass.

        Each chunk takes its sums about its own means, so that no digits are lost where the mean is large
        and the spread is small; `merged_moments` puts them together.
        """
        labels = self._split(partition.labels)
        parts = [
            _task(chunk_moments, chunk, labels[i], labels[j], partition.k, i == j)
            for (i, j), chunk in self._upper.items()
        ]
        (moments,) = _compute([_tree(parts, _merge)])
        return moments[1, :, :], moments[2, :, :]

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² in one pass."""
        labels, means = self._split(partition.labels), _constant(means)
        parts = [
            _task(chunk_square_distance, chunk, labels[i], labels[j], means, i == j)
            for (i, j), chunk in self._upper.items()
        ]
        (total,) = _compute([_tree(parts, _add)])
        return array_namespace(total).reshape(total, ())

    def _split(self, values: Array) -> list[Node]:
        """Return the part of `values` that belongs to the rows of each chunk."""
        return [_constant(values[rows]) for rows in self._slices]

    def take(self, index: Array) -> "Chunked":
        """Return the proximities among the objects at `index`, lazily."""
        host = _array.to_host(index, reason="dask plans with indices on the host")[0]
        return Chunked(self.array[host, :][:, host], self.store)

    def copy(self) -> "Chunked":
        """Return the same proximities, computed once and kept."""
        return self._kept({place: _task(_own, chunk) for place, chunk in self._upper.items()}, self.store)

    def blend(
        self, past: "Chunked", alpha: Array | float, alignment: Alignment, *, overwrite: bool = False
    ) -> "Chunked":
        """Return α·past + (1 − α)·W where both objects were there before, and W elsewhere; it is kept.

        A past in memory is let go with the last reference to it; with `overwrite`, one in a store is
        deleted as soon as the blend is written.
        """
        if not isinstance(past, Chunked):
            raise InputTypeError(
                f"cannot blend Chunked with {type(past).__name__}; convert the past with "
                "Chunked(dask.array.from_array(past.array)), or W with Dense(W.array.compute())"
            )
        before, known = self._aligned(past, alignment)
        a = _constant(alpha)
        nodes = {
            (i, j): _task(chunk_blend, chunk, before[i, j], a, known[i], known[j])
            for (i, j), chunk in self._upper.items()
        }
        blended = self._kept(nodes, past.store if self.store is None else self.store)
        if overwrite and past._spill is not None:
            past._spill.delete()
        return blended

    def _aligned(self, past: "Chunked", alignment: Alignment) -> tuple[Nodes, Sequence[Node | None]]:
        """Return the chunks of the past in the places of W's, and who was there before (None: all)."""
        if alignment.source is None:
            return _upper_nodes(past.array.rechunk(self.array.chunks)), [None] * len(self._slices)
        xp = array_namespace(alignment.source)
        known = alignment.source >= 0
        # A new object has no row in the past: any row will do.
        moved = past.take(xp.where(known, alignment.source, xp.zeros_like(alignment.source)))
        return _upper_nodes(moved.array.rechunk(self.array.chunks)), self._split(known)

    def _kept(self, nodes: Nodes, store: str | os.PathLike[str] | None) -> "Chunked":
        """Return a proximity whose chunks are computed now, in memory or in a store."""
        import dask

        spill = None if store is None else _Spill(store)
        if spill is None:
            kept = dict(zip(nodes, dask.persist(*nodes.values()), strict=True))
        else:
            _compute([_task(_write, node, spill, place) for place, node in nodes.items()])
            kept = {place: _task(_read, spill, place, self.like) for place in nodes}
        return Chunked(_mirrored(kept, self.array.chunks[0], self.like), store, spill)


def pairwise(x: Array, block: Callable[[Array, Array | None], Array], dtype: object) -> Chunked:
    """Return the proximities of the rows of a dask array X (n, p), lazily.

    Chunk (i, j) is block(X_i, X_j) right of the diagonal, and block(X_i, None) on it. The rows are cut finer
    where a chunk would be larger than dask's setting "array.chunk-size".
    """
    from dask.array.core import normalize_chunks

    n = x.shape[0]
    allowed = normalize_chunks("auto", shape=(n, n), dtype=dtype)[0]
    rows = x.chunks[0] if max(x.chunks[0]) <= max(allowed) else allowed
    x = x.rechunk({0: rows, 1: -1})
    parts = x.to_delayed()[:, 0]
    places = itertools.combinations_with_replacement(range(len(parts)), 2)
    nodes = {(i, j): _task(block, parts[i], None if i == j else parts[j]) for i, j in places}
    xp = array_namespace(x._meta)
    return Chunked(_mirrored(nodes, rows, xp.empty((0, 0), dtype=dtype, device=device_of(x._meta))))


# What is done to one chunk: functions of arrays of any library, which know nothing of dask.


def chunk_diagonal(w: Array) -> Array:
    """Return the diagonal of a chunk in wide floats."""
    xp = array_namespace(w)
    return xp.astype(xp.linalg.diagonal(w), wide_dtype(w))


def chunk_products(
    w: Array, rows: tuple | None, columns: tuple | None, on_diagonal: bool
) -> tuple[Array | None, Array | None]:
    """Return W·V of the columns and, off the diagonal, Wᵀ·V of the rows; None where there is no V.

    Either is a pair of indices, or None for all of them, and V.
    """
    right = None if columns is None else _times(w, *columns)
    down = None if rows is None or on_diagonal else _times(w.T, *rows)
    return right, down


def _times(w: Array, index: Array | None, v: Array) -> Array:
    """Return W·V, or W[:, index]·V, in the precision of V; a block of rows is widened at a time."""
    xp = array_namespace(w, v)
    blocks = (w[rows, :] if index is None else xp.take(w[rows, :], index, axis=1) for rows in row_blocks(w))
    return xp.concat([xp.astype(block, v.dtype, copy=False) @ v for block in blocks])


def chunk_moments(w: Array, c_rows: Array, c_columns: Array, k: int, on_diagonal: bool) -> Array:
    """Return N, μ and Σ(w − μ)² of each block over the entries of a chunk, (3, k, k).

    The entries wᵢᵢ are left out; a chunk off the diagonal stands for its mirror image, too.
    """
    xp = array_namespace(w)
    z_columns = one_hot(c_columns, k, wide_dtype(w))
    m_columns = xp.sum(z_columns, axis=0)
    eye = xp.eye(k, dtype=z_columns.dtype, device=device_of(w)) if on_diagonal else 0.0
    parts = []
    for rows in row_blocks(w):
        z_rows = one_hot(c_rows[rows], k, z_columns.dtype)
        count = xp.sum(z_rows, axis=0)[:, None] * (m_columns[None, :] - eye)
        x = xp.astype(w[rows, :], z_columns.dtype, copy=False)
        x = _without_diagonal(x, rows) if on_diagonal else x
        means = _ratio(z_rows.T @ (x @ z_columns), count)
        x = _residuals(x, rows, c_rows, means @ z_columns.T, on_diagonal)
        parts.append(xp.stack([count, means, z_rows.T @ ((x * x) @ z_columns)]))
    moments = merged_moments(xp.stack(parts))
    if on_diagonal:
        return moments
    return merged_moments(xp.stack([moments, xp.permute_dims(moments, (0, 2, 1))]))


def chunk_square_distance(
    w: Array, c_rows: Array, c_columns: Array, means: Array, on_diagonal: bool
) -> Array:
    """Return Σ (wᵢⱼ − μ_{cᵢcⱼ})² over the entries i ≠ j of a chunk and of its mirror image."""
    xp = array_namespace(w)
    z_columns = one_hot(c_columns, means.shape[0], wide_dtype(w))
    in_columns, by_column = xp.sum(z_columns, axis=1), means @ z_columns.T
    total = xp.zeros((), dtype=z_columns.dtype, device=device_of(w))
    for rows in row_blocks(w):
        x = _residuals(w[rows, :], rows, c_rows, by_column, on_diagonal)
        total = total + xp.astype(c_rows[rows] >= 0, x.dtype) @ ((x * x) @ in_columns)
    return total if on_diagonal else 2 * total


def _residuals(x: Array, rows: slice, c_rows: Array, by_column: Array, on_diagonal: bool) -> Array:
    """Return wᵢⱼ − μ_{cᵢcⱼ} for some rows of a chunk, given μ_{c cⱼ}, with zeros in place of wᵢᵢ − μ.

    The rows of objects without a label are arbitrary.
    """
    xp = array_namespace(x)
    c = c_rows[rows]
    x = x - xp.take(by_column, xp.where(c >= 0, c, xp.zeros_like(c)), axis=0)
    return _without_diagonal(x, rows) if on_diagonal else x


def _without_diagonal(x: Array, rows: slice) -> Array:
    """Return some rows of a chunk on the diagonal with zeros in place of wᵢᵢ."""
    xp = array_namespace(x)
    own = xp.eye(x.shape[0], x.shape[1], k=rows.start, dtype=xp.bool, device=device_of(x))
    return xp.where(own, xp.zeros_like(x), x)


def merged_moments(parts: Array) -> Array:
    """Return N, μ and Σ(w − μ)² of all entries from those of parts, (p, 3, k, k) → (3, k, k).

    N = ΣN_p,   μ = ΣN_pμ_p / N,   Σ(w − μ)² = Σ{ Σ_p(w − μ_p)² + N_p(μ_p − μ)² }
    """
    xp = array_namespace(parts)
    counts, means, squares = parts[:, 0, :, :], parts[:, 1, :, :], parts[:, 2, :, :]
    count = xp.sum(counts, axis=0)
    mean = _ratio(xp.sum(counts * means, axis=0), count)
    return xp.stack([count, mean, xp.sum(squares + counts * (means - mean) ** 2, axis=0)])


def chunk_blend(
    w: Array, past: Array, alpha: Array | float, known_rows: Array | None, known_columns: Array | None
) -> Array:
    """Return α·past + (1 − α)·W where both objects are known (None: all are), and W elsewhere."""
    xp = array_namespace(w, past)
    a = xp.astype(alpha, w.dtype) if _array.is_array(alpha) else alpha
    blended = xp.astype(a * past + (1 - a) * w, w.dtype, copy=False)
    if known_rows is None or known_columns is None:
        return blended
    return xp.where(known_rows[:, None] & known_columns[None, :], blended, w)


def _ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where nothing is counted."""
    xp = array_namespace(total)
    return total / xp.where(count > 0, count, xp.ones_like(count))


def _own(w: Array) -> Array:
    return array_namespace(w).asarray(w, copy=True)


# How chunks are planned, put together and kept: all that is said to dask.


def _task(function: Callable[..., object], *args: object) -> Node:
    """Plan a call."""
    from dask import delayed

    return delayed(function, pure=False)(*args)


def _constant(value: object) -> Node:
    """Return a value as a node, so that the tasks that need it share one copy."""
    from dask import delayed

    return delayed(value, pure=False, traverse=False)


def _compute(nodes: list[Node]) -> tuple:
    """Compute some nodes in one pass: nothing else here computes, but for `dask.persist`."""
    import dask

    return dask.compute(*nodes)


def _tree(parts: list[Node], combine: Callable[..., Array]) -> Node:
    """Combine partial results, a few at a time, so that none has to hold them all."""
    while len(parts) > 1:
        parts = [_task(combine, *parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
    return parts[0]


def _merge(*moments: Array) -> Array:
    return merged_moments(array_namespace(*moments).stack(moments))


def _add(*parts: Array) -> Array:
    return sum(parts[1:], parts[0])


def _sum_sides(sides: list[int], *products: tuple[Array | None, Array | None]) -> Array:
    """Add up one side of each pair of products, as far as it is there."""
    chosen = [pair[side] for pair, side in zip(products, sides, strict=True)]
    return _add(*[product for product in chosen if product is not None])


def _concat(parts: Sequence[Array]) -> Array:
    return array_namespace(*parts).concat(list(parts))


def _square_chunks(array: Array) -> Array:
    """Return the array with its columns cut like its rows; the finer of the two cuts is taken."""
    if np.isnan(array.shape).any():
        raise InputError("W has chunks of unknown size; call its compute_chunk_sizes() first")
    rows, columns = array.chunks
    return array if rows == columns else array.rechunk((max(rows, columns, key=len),) * 2)


def _upper_nodes(array: Array) -> Nodes:
    """Return the chunks on and right of the diagonal of an array of square chunks."""
    nodes = array.to_delayed()
    return {(i, j): nodes[i, j] for i, j in itertools.combinations_with_replacement(range(len(nodes)), 2)}


def _mirrored(upper: Nodes, sizes: tuple[int, ...], like: Array) -> Array:
    """Return the symmetric dask array of which these are the chunks on and right of the diagonal."""
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


class _Spill:
    """A folder with a zarr array for each chunk.

    It is deleted with the last plan on the client that reads it. The copies that travel to workers
    delete nothing.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.path = os.path.join(os.path.abspath(store), f"{uuid.uuid4().hex}.zarr")
        self.delete = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> tuple:
        return _spill_at, (self.path,)

    def chunk(self, place: tuple[int, int]) -> str:
        """Return the path of a chunk."""
        return os.path.join(self.path, f"{place[0]}.{place[1]}")


def _spill_at(path: str) -> _Spill:
    spill = object.__new__(_Spill)
    spill.path = path
    return spill


def _write(w: Array, spill: _Spill, place: tuple[int, int]) -> None:
    """Write a chunk, uncompressed: noise does not compress."""
    import zarr

    host = _array.to_host(w, reason="a chunk goes to the store")[0]
    zarr.create_array(spill.chunk(place), data=host, chunks=host.shape, compressors=None, overwrite=True)


def _read(spill: _Spill, place: tuple[int, int], like: Array) -> Array:
    import zarr

    return _array.from_host(zarr.open_array(spill.chunk(place), mode="r")[...], like)
