"""Proximities stored in a sparse matrix of SciPy or CuPy: graphs that change over time."""

import copy
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse

from affect_xp.array import cuda, namespace
from affect_xp.array.namespace import (
    MANY_CLUSTERS,
    array_namespace,
    block_bytes,
    can_sum_rows,
    device_of,
    for_each_block,
    from_host,
    gather,
    is_array,
    is_cupy,
    not_zero,
    on_host,
    sums_by_number,
    wide_dtype,
)
from affect_xp.array.threads import run_blocks
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.exceptions import InputTypeError
from affect_xp.partition import Alignment, Partition
from affect_xp.proximity._base import Summable, joint_magnitude, measured_magnitude
from affect_xp.proximity._occupied import Occupied
from affect_xp.proximity.grouped import Summed, change_of_squares, identity, remembered

Matrix = Any  # a sparse matrix or array of scipy.sparse or cupyx.scipy.sparse

# Bytes of a cache line, and of the cache of one core.
CACHE_LINE_BYTES, NEAR_CACHE_BYTES = 64, 2**20
# Threads multiply blocks of rows with this many entries.
BLOCK_ENTRIES = 2**18
# Blocks of rows of a blend that are computed before they are stacked.
N_BLOCKS_AHEAD = 8


def is_sparse(w: object) -> bool:
    """Return whether w is a sparse matrix or array of SciPy or CuPy, without importing CuPy."""
    cupyx_sparse = sys.modules.get("cupyx.scipy.sparse")
    return scipy.sparse.issparse(w) or (cupyx_sparse is not None and cupyx_sparse.issparse(w))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sparse(Summable):
    """A proximity matrix in CSR format; assumed to be exactly symmetric and finite.

    `as_proximity` makes one from a sparse matrix after checking it. Entries that are not stored are
    zero and enter sums analytically: nothing is made dense, and temporaries are a small fraction of
    the matrix.

    Parameters
    ----------
    matrix : (n, n) sparse matrix or array of scipy.sparse or cupyx.scipy.sparse, float32 or float64
        In any format; CSR in canonical form (sorted, without duplicates) is not copied. Stored as
        `scipy.sparse.csr_array` or `cupyx.scipy.sparse.csr_matrix`.
    prune : float
        A blend stores an entry for each pair that is or ever was linked, and the weight of a removed
        link decays by α at each step. A blend drops the smallest entries, with a sum of at most this
        share of the weight,

            Σ|dropped| ≤ prune · (α Σ|ψ| + (1 − α) Σ|w|),

        namely those below that weight divided by the number of entries. A removed link thus disappears
        after about ln(prune) / ln(α) steps: 33 for the default and α = 0.5. With 0 all are kept.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, affect_xp as ax
    >>> from affect_xp.proximity.sparse import Sparse
    >>> w = Sparse(scipy.sparse.coo_array(([2.0, 2.0], ([0, 1], [1, 0])), shape=(3, 3)))
    >>> w
    Sparse(n=3, dtype=float64, library=numpy)
    >>> ax.block_moments(w, [0, 0, 1]).means
    array([[2., 0.],
           [0., 0.]])
    """

    carries_products: ClassVar[bool] = False  # n×k numbers may exceed the matrix itself
    sums_by_product: ClassVar[bool] = True

    matrix: Matrix
    prune: float = 1e-10
    known_magnitude: float | None = dataclasses.field(default=None, kw_only=True)

    @remembered
    def magnitude(self) -> float:
        known = self.known_magnitude
        return measured_magnitude([self.matrix.data]) if known is None else known

    def __post_init__(self) -> None:
        check_fraction("prune", self.prune)
        if not is_sparse(self.matrix):
            raise InputTypeError(
                f"matrix must be a sparse matrix of SciPy or CuPy, got {type(self.matrix).__name__}; "
                "make it one with scipy.sparse.csr_array, or use Dense"
            )
        object.__setattr__(self, "matrix", canonical(self.matrix))

    @property
    def n(self) -> int:
        return self.matrix.shape[0]

    @property
    def like(self) -> Array:
        """The array of the stored values."""
        return self.matrix.data

    @staticmethod
    def on_device_of(like: Array, matrix: scipy.sparse.csr_array) -> Matrix:
        """Return a matrix of SciPy in the library of `like`, which must be NumPy or CuPy."""
        if isinstance(like, np.ndarray):
            return matrix
        parts = (from_host(part, like) for part in (matrix.data, matrix.indices, matrix.indptr))
        return _csr_type(like)(tuple(parts), shape=matrix.shape)

    @property
    def sums_plainly(self) -> bool:
        return on_host(self.like)

    @property
    def max_update_share(self) -> float:  # type: ignore[override]
        """0.1, since products copy rows; 0 on a device, where a product with Z is one launch."""
        return 0.0 if is_cupy(self.like) else 0.1

    def kernel_array(self, k: int) -> cuda.Csr | None:
        return self._csr if is_cupy(self.like) and k <= cuda.MAX_CLUSTERS else None

    @functools.cached_property
    def _csr(self) -> cuda.Csr:
        w = self.matrix
        return cuda.Csr(w.data, w.indices, w.indptr, self.diagonal())

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats; cached."""
        return self._diagonal

    @functools.cached_property
    def _diagonal(self) -> Array:
        return array_namespace(self.like).astype(self.matrix.diagonal(), wide_dtype(self.like))

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V, (n, r), in the dtype of V; with `rows`, W[:, rows]·v.

        Float32 values are widened to that dtype: on the host a few rows at a time, on a device all
        values (not the indices) at once for the duration of the product.
        """
        if rows is not None:
            return self._matmul_rows(v, rows)
        if not isinstance(v, np.ndarray):
            w = self.matrix
            return cuda.csr_matmul(w.data, w.indices, w.indptr, v)
        blocks = self._narrow_blocks if v.dtype == np.float32 else self._blocks
        # A row of V should be one cache line; but if all these lines do not fit into the cache and a single
        # column does, multiply one column at a time.
        is_one = self.n * v.itemsize <= NEAR_CACHE_BYTES < self.n * CACHE_LINE_BYTES / 4
        width = 1 if is_one else max(1, CACHE_LINE_BYTES // v.itemsize)
        v = np.asarray(v, order="F" if is_one else "C")  # columns without gaps
        product = np.empty(v.shape, dtype=v.dtype, order="F" if is_one else "C")
        for start in range(0, v.shape[1], width):
            columns: slice | int = slice(start, start + width) if width > 1 else start
            part = np.ascontiguousarray(v[:, columns])

            def fill(
                block: tuple[slice, Matrix], part: np.ndarray = part, columns: slice | int = columns
            ) -> None:
                product[block[0], columns] = _with_dtype(block[1], part.dtype) @ part

            run_blocks(fill, blocks)
        return product

    @functools.cached_property
    def _blocks(self) -> list[tuple[slice, Matrix]]:
        """Blocks of rows on the host for threads, without copying."""
        w = self.matrix
        blocks = _row_blocks(_row_counts(w), BLOCK_ENTRIES)
        return [(rows, _view(w, rows)) for rows in blocks]

    @functools.cached_property
    def _narrow_blocks(self) -> list[tuple[slice, Matrix]]:
        """The same with values in float32, copied if they are stored in float64."""
        return [(rows, _with_dtype(block, np.float32)) for rows, block in self._blocks]

    @property
    def thin_dtype(self) -> object:
        """float32: a product reads rows of V in random order, so fewer bytes are faster."""
        return array_namespace(self.like).float32

    def _matmul_rows(self, v: Array, rows: Array) -> Array:
        if on_host(v):
            # W[:, rows]·v = W[rows, :]ᵀ·v by symmetry, and whole rows are fast to read.
            return _with_dtype(self.matrix[rows, :], v.dtype).T @ v
        # Reading rows would make the host wait for their number of entries. `rows` may contain duplicates.
        xp = array_namespace(v)
        spread = xp.zeros((self.n, v.shape[1]), dtype=v.dtype, device=device_of(v))
        xp.add.at(spread, rows, v)
        return self.matmul(spread)

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Any:
        """Return W with the labels of its objects; of many clusters only the occupied blocks."""
        if k > MANY_CLUSTERS and labels.shape[1] == 1 and can_sum_rows(labels):
            return Occupied(self, labels, k, given)
        return Summed(self, labels, k, given)

    def block_sums(
        self, partition: Partition, *, squares: bool = True
    ) -> tuple[np.ndarray, np.ndarray | None]:
        z = partition.membership
        total = z.T @ self._times_membership(partition.labels, partition.k, lambda w: w)
        sums = total - identity(total) * (self.diagonal() @ z)
        return sums, self.block_squares(partition) if squares else None

    def block_squares(self, partition: Partition) -> np.ndarray:
        z, w_ii = partition.membership, self.diagonal()
        total = z.T @ self._times_membership(partition.labels, partition.k, lambda w: w * w)
        return total - identity(total) * ((w_ii * w_ii) @ z)

    def times_membership(self, groups: Summed) -> tuple[Array, None]:
        """Return W·Z, (n, R·k); for one partition on the host without multiplications."""
        csr = self.kernel_array(groups.k)
        if csr is not None:
            return cuda.products(csr, groups.labels, groups.k), None
        if groups.n_runs > 1 or not isinstance(groups.labels, np.ndarray):
            return self.matmul(groups.membership), None
        return self._times_membership(groups.labels[:, 0], groups.k, lambda w: w), None

    def _times_membership(
        self, labels: np.ndarray, k: int, function: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Return f(W)·Z, (n, k), for the membership of one partition, on the host.

        Column indices are replaced by clusters, and duplicate entries of a row are summed: no rows of Z
        are read, and nothing is multiplied.
        """
        w, product = self.matrix, np.empty((self.n, k))
        column = np.where(labels >= 0, labels, k).astype(w.indices.dtype)

        def fill(block: tuple[slice, Matrix]) -> None:
            rows, part = block
            values = function(part.data.astype(np.float64, copy=False))
            places = type(w)((values, column[part.indices], part.indptr), shape=(part.shape[0], k + 1))
            product[rows] = places.toarray()[:, :k]

        run_blocks(fill, self._blocks)
        return product

    def change_of_squares(self, before: Partition, now: Partition, rows: np.ndarray) -> np.ndarray:
        return change_of_squares(self._square_rows(rows), before, now, rows)

    def _square_rows(self, rows: np.ndarray) -> Iterator[tuple[slice, Matrix]]:
        """Yield slices of `rows` and a matrix of their wᵢⱼ², with 0 for i = j."""
        for block in _row_blocks(_row_counts(self.matrix)[rows]):
            own = rows[block]
            taken = self.matrix[own, :]
            values = taken.data.astype(np.float64)
            values *= values
            values[taken.indices == own[row_numbers(taken.indptr, slice(0, taken.nnz))]] = 0
            yield block, with_values(taken, values)

    def off_diagonal_squares(self, partition: Partition) -> Array:
        if partition.n_outside == 0:
            return self._off_diagonal_squares
        return np.sum(self.block_squares(partition))

    @functools.cached_property
    def _off_diagonal_squares(self) -> np.ndarray:
        w_ii = self.diagonal()
        return sum(_square_sum(part.data) for _, part in self._blocks) - w_ii @ w_ii

    def centred_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k), in two passes.

        With N pairs in a block, n₊ of them stored, zeros enter analytically and no digits cancel:

            μ = Σ₊ w / N,   Σ(w − μ)² = Σ₊ (w − μ)² + (N − n₊) μ²
        """
        count = partition.pair_counts
        xp = array_namespace(count)
        n_stored, s = self._block_sums(partition, lambda w, _: (xp.ones_like(w), w))
        means = s / not_zero(count)
        (squares,) = self._block_sums(partition, _square_residuals(means))
        return means, squares + (count - n_stored) * means * means

    def centred_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² = Σ₊ (w − μ)² + Σ (N − n₊) μ² in one pass."""
        xp = array_namespace(means)
        residuals = _square_residuals(means)
        n_stored, squares = self._block_sums(partition, lambda w, b: (xp.ones_like(w), *residuals(w, b)))
        return xp.sum(squares + (partition.pair_counts - n_stored) * means * means)

    def _block_sums(
        self, partition: Partition, terms: Callable[[Array, Array], tuple[Array, ...]]
    ) -> list[Array]:
        """Return the sum of each term over the stored entries wᵢⱼ, i ≠ j, of each block, (k, k).

        `terms` receives some values (in wide floats) and the block number of each. Blocks are
        numbered c·(k + 1) + d; the last number is for excluded entries.
        """
        k, w = partition.k, self.matrix
        xp = array_namespace(w.data)
        labels = xp.where(partition.labels >= 0, partition.labels, xp.full_like(partition.labels, k))
        narrow = xp.astype(labels, xp.int32)  # random access: fewer bytes are faster
        totals: list[Array] = []
        for entries in _entry_blocks(w.data):
            rows, columns = row_numbers(w.indptr, entries), w.indices[entries]
            block = xp.take(labels, rows) * (k + 1) + xp.take(narrow, columns)
            block = xp.where(rows == columns, xp.full_like(block, (k + 1) ** 2 - 1), block)
            values = xp.astype(w.data[entries], wide_dtype(w.data), copy=False)
            sums = [sums_by_number(block, term, (k + 1) ** 2) for term in terms(values, block)]
            totals = [a + b for a, b in zip(totals, sums, strict=True)] if totals else sums
        return [xp.reshape(total, (k + 1, k + 1))[:k, :k] for total in totals]

    def take(self, index: Array) -> "Sparse":
        taken = self.matrix[index, :][:, index]
        taken.sort_indices()
        return Sparse(taken, self.prune, known_magnitude=self.known_magnitude)

    def copy(self) -> "Sparse":
        return Sparse(self.matrix.copy(), self.prune, known_magnitude=joint_magnitude(self, self))

    def to_dense(self) -> Any:
        """Return the proximities as a `Dense`."""
        return self.dense_type(self.matrix.toarray())

    def blend(
        self, past: "Sparse", alpha: Array | float, alignment: Alignment, *, out: "Sparse | None" = None
    ) -> "Sparse":
        """Return α·past + (1 − α)·W for pairs of objects that have a past, and W for the others.

        The result stores the pairs stored in either, except for negligible ones (see `prune`), in new
        storage: it seldom fits into `out`. On a device the host waits for the number of entries, as CuPy
        does whenever it changes.
        """
        if not isinstance(past, Sparse):
            raise InputTypeError(
                f"cannot blend Sparse with {type(past).__name__}; call to_dense() on the Sparse proximities "
                "first, or pass sparse matrices at every step"
            )
        w, psi = self.matrix, past.matrix
        xp = array_namespace(w.data, psi.data)
        # In the dtype of W, to avoid widening.
        a = xp.astype(alpha, w.data.dtype) if is_array(alpha) else alpha
        n_both = w.nnz + psi.nnz
        smallest = self.prune * (a * past._weight() + (1 - a) * self._weight()) / max(1, n_both)
        parts = _Aligned.of(w, psi, alignment)
        made = _made(lambda rows: _pruned(parts.blend(rows, a), smallest), _row_blocks(parts.row_counts()), w)
        blended = _stacked(made, w, n_both)
        return Sparse(blended, self.prune, known_magnitude=joint_magnitude(self, past, alpha))

    def blend_by_object(
        self,
        past: "Sparse",
        alpha: Array | float,
        trust: Array,
        alignment: Alignment,
        *,
        out: "Sparse | None" = None,
    ) -> "Sparse":
        """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ), with the pairs stored in either, except for negligible ones."""
        w, psi = self.matrix, past.matrix
        xp = array_namespace(w.data, psi.data)
        a = xp.astype(xp.asarray(alpha), w.data.dtype)
        s = xp.astype(trust * alpha**0.5, w.data.dtype)  # √α s, so that weights are exactly symmetric
        n_both = w.nnz + psi.nnz
        smallest = self.prune * (a * past._weight() + (1 - a) * self._weight()) / max(1, n_both)
        parts = _Aligned.of(w, psi, alignment)
        blocks = _row_blocks(parts.row_counts())
        made = _made(lambda rows: _pruned(parts.blend_by_object(rows, s), smallest), blocks, w)
        return Sparse(_stacked(made, w, n_both), self.prune)

    def block_products(self, past: "Sparse", alignment: Alignment, partition: Partition) -> Array:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block, (k, k), from the pairs stored in both."""
        k, parts = partition.k, _Aligned.of(self.matrix, past.matrix, alignment)
        xp = array_namespace(self.like, past.like)
        labels = xp.where(partition.labels >= 0, partition.labels, xp.full_like(partition.labels, k))
        total: Array = 0
        for rows in _row_blocks(parts.row_counts()):
            both = parts.products(rows)
            i, j = rows.start + row_numbers(both.indptr, slice(0, both.nnz)), both.indices
            values = xp.astype(both.data, wide_dtype(both.data), copy=False)
            values = xp.where(i == j, xp.zeros_like(values), values)
            if self.kernel_array(k) is not None:
                csr = cuda.Csr(values, j, both.indptr)
                by_row = cuda.products(csr, partition.short_labels[:, None], k)
                total = total + partition.membership[rows, :].T @ by_row
                continue
            block = xp.take(labels, i) * (k + 1) + xp.take(labels, j)
            total = total + sums_by_number(block, values, (k + 1) ** 2)
        return total if total.shape == (k, k) else xp.reshape(total, (k + 1, k + 1))[:k, :k]

    def _weight(self) -> Array | float:
        """Return Σ|wᵢⱼ|."""
        data = self.matrix.data
        xp = array_namespace(data)
        return sum(xp.sum(xp.abs(data[e]), dtype=wide_dtype(data)) for e in _entry_blocks(data))

    def mapped(self, function: Callable[[Array], Array]) -> "Sparse":
        """Return f(wᵢⱼ) of the stored entries, some at a time; the others stay zero."""
        return self._with_entries(lambda entries: function(self.matrix.data[entries]))

    def scaled(self, s: Array) -> "Sparse":
        """Return sᵢ wᵢⱼ sⱼ with the same structure."""
        w = self.matrix
        xp = array_namespace(w.data, s)

        def scaled_entries(entries: slice) -> Array:
            pairs = xp.take(s, row_numbers(w.indptr, entries)) * xp.take(s, w.indices[entries])
            return w.data[entries] * pairs

        return self._with_entries(scaled_entries)

    def with_absent(self, past: "Sparse", source: Array, away: Array) -> "Sparse":
        """Return these proximities followed by the past proximities of absent objects.

        On a device the host waits for the number of entries.
        """
        if away.shape[0] == 0:
            return self.copy()
        size = self.n + away.shape[0]
        w, everywhere = _padded(self.matrix, size), array_namespace(source, away).concat([source, away])
        # Only `source` and `target` are used, not the counts.
        moves = Alignment(everywhere, _targets(everywhere, past.n), n_common=0, n_new=0)
        parts = _Aligned.of(w, past.matrix, moves)
        blocks = (_pruned(parts.with_absent(rows, self.n), 0.0) for rows in _row_blocks(parts.row_counts()))
        made = _stacked(blocks, w, w.nnz + past.matrix.nnz)
        return Sparse(made, self.prune, known_magnitude=joint_magnitude(self, past))

    def add_between_groups(self, other: "Sparse", groups: Array, table: np.ndarray) -> "Sparse":
        """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ, with the pairs that are not zero.

        On a device the host waits for the number of entries.
        """
        w, more, n_groups = self.matrix, other.matrix, len(table)
        xp = array_namespace(w.data, more.data)
        marks = xp.reshape(from_host(table, w.data, w.data.dtype), (-1,))

        def summed(rows: slice) -> Matrix:
            now, others = _rows(w, rows), _rows(more, rows)
            i, j = row_numbers(others.indptr, slice(0, others.nnz)), others.indices
            marked = xp.take(marks, xp.take(groups[rows], i) * n_groups + xp.take(groups, j))
            values = xp.astype(others.data * marked, now.data.dtype, copy=False)
            return _pruned(now + with_values(others, values), 0.0)

        blocks = (summed(rows) for rows in _row_blocks(_row_counts(w) + _row_counts(more)))
        made = _stacked(blocks, w, w.nnz + more.nnz)
        return Sparse(made, self.prune, known_magnitude=joint_magnitude(self, other))

    def _with_entries(self, values_of: Callable[[slice], Array]) -> "Sparse":
        """Return a matrix with the same structure and new values, computed some entries at a time."""
        values = array_namespace(self.like).empty_like(self.like)
        for entries in _entry_blocks(values):
            values[entries] = values_of(entries)
        return Sparse(with_values(self.matrix, values), self.prune)


def _square_sum(data: np.ndarray) -> float:
    """Return Σw², in wide floats."""
    values = data.astype(np.float64, copy=False)
    return float(values @ values)


def _square_residuals(means: Array) -> Callable[[Array, Array], tuple[Array]]:
    """Return the function that maps values and block numbers to (w − μ)²."""
    xp = array_namespace(means)
    k = means.shape[0]
    padded = xp.zeros((k + 1, k + 1), dtype=means.dtype, device=device_of(means))
    padded[:k, :k] = means
    by_block = xp.reshape(padded, (-1,))

    def square_residuals(values: Array, block: Array) -> tuple[Array]:
        residuals = values - xp.take(by_block, block)
        return (residuals * residuals,)

    return square_residuals


def _entry_blocks(data: Array) -> Iterator[slice]:
    """Yield slices of stored entries: a few arrays of this size fit into cache (or device memory)."""
    width = max(1, block_bytes(data) // 64)
    for start in range(0, max(1, data.shape[0]), width):
        yield slice(start, min(start + width, data.shape[0]))


def row_numbers(indptr: Array, entries: slice) -> Array:
    """Return the row of each stored entry in a slice."""
    xp = array_namespace(indptr)
    if not on_host(indptr):
        places = xp.arange(entries.start, entries.stop, dtype=indptr.dtype, device=device_of(indptr))
        return xp.searchsorted(indptr[1:], places, side="right")
    ends = np.array([entries.start, entries.stop], dtype=indptr.dtype)  # another dtype would copy indptr
    first, last = np.searchsorted(indptr, ends, side="right") - 1
    ends = np.clip(indptr[first : last + 2], entries.start, entries.stop)
    return np.repeat(np.arange(first, first + len(ends) - 1), np.diff(ends))


def _row_blocks(counts: Array, budget: int | None = None) -> list[slice]:
    """Return slices of rows with few stored entries each; on a device all rows are one block.

    There the host would have to wait for the row counts.
    """
    n = counts.shape[0]
    if n == 0 or not on_host(counts):
        return [slice(0, n)] if n else []
    ends = np.cumsum(counts, dtype=np.int64)
    budget = max(1, namespace.HOST_BLOCK_BYTES // 8) if budget is None else budget
    cuts = np.unique(np.searchsorted(ends, np.arange(budget, ends[-1], budget)) + 1)
    bounds = [0, *cuts[cuts < n].tolist(), n]
    return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]


def _row_counts(matrix: Matrix) -> Array:
    """Return the number of stored entries in each row."""
    return matrix.indptr[1:] - matrix.indptr[:-1]


def _view(matrix: Matrix, rows: slice) -> Matrix:
    """Return some rows of a matrix on the host; values and columns are not copied."""
    ends = matrix.indptr[rows.start : rows.stop + 1]
    entries = slice(ends[0], ends[-1])
    block = type(matrix)((len(ends) - 1, matrix.shape[1]), dtype=matrix.dtype)
    # The constructor would copy slices of larger arrays.
    block.data, block.indices, block.indptr = matrix.data[entries], matrix.indices[entries], ends - ends[0]
    return block


def _rows(matrix: Matrix, rows: slice) -> Matrix:
    """Return some rows; no copy if these are all, or on the host."""
    if rows == slice(0, matrix.shape[0]):
        return matrix
    return _view(matrix, rows) if on_host(matrix.data) else matrix[rows, :]


def with_values(matrix: Matrix, values: Array) -> Matrix:
    """Return a matrix with other values, sharing the structure."""
    other = copy.copy(matrix)
    other.data = values
    return other


def _with_dtype(matrix: Matrix, dtype: object) -> Matrix:
    """Return a matrix with values of this dtype; the same matrix if it has them."""
    if matrix.data.dtype == dtype:
        return matrix
    return with_values(matrix, array_namespace(matrix.data).astype(matrix.data, dtype, copy=False))


@dataclasses.dataclass(frozen=True, eq=False)
class _Aligned:
    """W and the past, blended in blocks of rows in the order of W's objects."""

    w: Matrix
    psi: Matrix  # with an empty last row for new objects, if objects have changed
    alignment: Alignment

    @staticmethod
    def of(w: Matrix, psi: Matrix, alignment: Alignment) -> "_Aligned":
        """Prepare two matrices for blending."""
        if not alignment.unchanged:
            indptr = array_namespace(psi.indptr).concat([psi.indptr, psi.indptr[-1:]])
            psi = type(psi)((psi.data, psi.indices, indptr), shape=(psi.shape[0] + 1, psi.shape[1]))
        return _Aligned(w, psi, alignment)

    def row_counts(self) -> Array:
        """Return the number of stored entries in each row of both, (n,)."""
        now, before = _row_counts(self.w), _row_counts(self.psi)
        source = self.alignment.source
        return now + (before if source is None else gather(before, source, 0))

    def blend(self, rows: slice, a: Array | float) -> Matrix:
        """Return some rows of W − α·P W P + α·E Ψ Eᵀ, with E and P as in `Blend`."""
        now, source = _rows(self.w, rows), self.alignment.source
        xp = array_namespace(now.data)
        present = (1 - a) * now.data
        if source is None:
            before = _rows(self.psi, rows)
        else:
            before = self._past_rows(source[rows])
            i, j = row_numbers(now.indptr, slice(0, now.nnz)), now.indices
            common = (xp.take(source[rows], i) >= 0) & (xp.take(source, j) >= 0)
            present = xp.where(common, present, now.data)
        past = xp.astype(a * before.data, now.data.dtype, copy=False)
        return with_values(now, present) + with_values(before, past)

    def blend_by_object(self, rows: slice, s: Array) -> Matrix:
        """Return some rows of wᵢⱼ + sᵢsⱼ (ψᵢⱼ − wᵢⱼ)."""
        now, before = self._both(rows)
        xp = array_namespace(now.data)

        def weights(part: Matrix) -> Array:
            i = row_numbers(part.indptr, slice(0, part.nnz))
            return xp.take(s[rows], i) * xp.take(s, part.indices)

        past = xp.astype(weights(before) * before.data, now.data.dtype, copy=False)
        return with_values(now, (1 - weights(now)) * now.data) + with_values(before, past)

    def _both(self, rows: slice) -> tuple[Matrix, Matrix]:
        """Return some rows of W, and of the past in the order of the objects of W."""
        source = self.alignment.source
        before = _rows(self.psi, rows) if source is None else self._past_rows(source[rows])
        return _rows(self.w, rows), before

    def products(self, rows: slice) -> Matrix:
        """Return some rows of wᵢⱼψᵢⱼ, in wide floats."""
        now, before = self._both(rows)
        return _with_dtype(now, wide_dtype(now.data)).multiply(before).tocsr()

    def with_absent(self, rows: slice, n: int) -> Matrix:
        """Return some rows of W, padded, plus E Ψ Eᵀ without the proximities among the first n objects."""
        source = self.alignment.source
        assert source is not None
        now, before = _rows(self.w, rows), self._past_rows(source[rows])
        xp = array_namespace(now.data)
        i, j = rows.start + row_numbers(before.indptr, slice(0, before.nnz)), before.indices
        values = xp.where((i >= n) | (j >= n), before.data, xp.zeros_like(before.data))
        return now + with_values(before, xp.astype(values, now.data.dtype, copy=False))

    def _past_rows(self, source: Array) -> Matrix:
        """Return the rows of E Ψ Eᵀ for objects at the positions `source` in the past."""
        psi, target = self.psi, self.alignment.target
        xp = array_namespace(psi.data)
        found = psi[xp.where(source >= 0, source, xp.full_like(source, psi.shape[0] - 1)), :]
        columns = xp.take(target, found.indices)
        # Objects that left become zeros in column 0, which are dropped when the blend is formed.
        values = xp.where(columns >= 0, found.data, xp.zeros_like(found.data))
        columns = xp.where(columns >= 0, columns, xp.zeros_like(columns))
        columns = xp.astype(columns, found.indices.dtype, copy=False)
        moved = type(psi)((values, columns, found.indptr), shape=(source.shape[0], self.w.shape[1]))
        moved.sum_duplicates()
        return moved


def _padded(matrix: Matrix, size: int) -> Matrix:
    """Return a matrix padded with empty rows and columns, (size, size), sharing values and columns."""
    indptr = matrix.indptr
    xp = array_namespace(indptr)
    behind = xp.broadcast_to(indptr[-1:], (size - matrix.shape[0],))
    return type(matrix)((matrix.data, matrix.indices, xp.concat([indptr, behind])), shape=(size, size))


def _targets(source: Array, n_past: int) -> Array:
    """Return the current position of each past object, (n_past,), -1 for absent ones."""
    xp, n, device = array_namespace(source), source.shape[0], device_of(source)
    target = xp.full((n_past + 1,), -1, dtype=source.dtype, device=device)  # the last is for new objects
    target[xp.where(source >= 0, source, xp.full_like(source, n_past))] = xp.arange(
        n, dtype=source.dtype, device=device
    )
    return target[:n_past]


def _pruned(matrix: Matrix, smallest: Array | float) -> Matrix:
    """Drop entries that are zero or smaller than `smallest`, in place."""
    xp = array_namespace(matrix.data)
    matrix.data = xp.where(xp.abs(matrix.data) < smallest, xp.zeros_like(matrix.data), matrix.data)
    matrix.eliminate_zeros()
    return matrix


def _made(make: Callable[[slice], Matrix], blocks: list[slice], like: Matrix) -> Iterator[Matrix]:
    """Yield make(rows) for each block of rows, in order; threads compute a few at a time."""
    for start in range(0, len(blocks), N_BLOCKS_AHEAD):
        some = blocks[start : start + N_BLOCKS_AHEAD]
        made: dict[int, Matrix] = {}

        def work(rows: slice, made: dict[int, Matrix] = made) -> None:
            made[rows.start] = make(rows)

        for_each_block(work, some, like.data)
        for rows in some:
            yield made.pop(rows.start)


def _stacked(blocks: Iterator[Matrix], like: Matrix, capacity: int) -> Matrix:
    """Return blocks of rows as one matrix of the shape of `like`, with at most `capacity` entries.

    The blocks are written one by one into arrays of the full capacity; the host allocates memory only
    for written pages, so the result is never in memory twice.
    """
    if not on_host(like.data):
        return next(blocks)
    index_dtype = np.int32 if max(capacity, like.shape[1]) < 2**31 else np.int64
    data, indices = np.empty(capacity, dtype=like.data.dtype), np.empty(capacity, dtype=index_dtype)
    indptr = np.zeros(like.shape[0] + 1, dtype=index_dtype)
    row = end = 0
    for block in blocks:
        entries = slice(end, end + block.nnz)
        data[entries], indices[entries] = block.data, block.indices
        indptr[row + 1 : row + 1 + block.shape[0]] = block.indptr[1:].astype(index_dtype) + end
        row, end = row + block.shape[0], entries.stop
    data.resize(end, refcheck=False)
    indices.resize(end, refcheck=False)
    return type(like)((data, indices, indptr), shape=like.shape)


def canonical(matrix: Matrix) -> Matrix:
    """Return a matrix in sorted CSR format with duplicates summed; the input is not changed."""
    rows = matrix if type(matrix) is _csr_type(matrix) else _csr_type(matrix)(matrix)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if rows.nnz < rows.data.shape[0]:  # SciPy allows unused space after the last entry
        rows = copy.copy(rows)
        rows.prune()
    return rows


def _csr_type(matrix: Matrix) -> Any:
    """Return the CSR class for a matrix."""
    if scipy.sparse.issparse(matrix):
        return scipy.sparse.csr_array
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse.csr_matrix
