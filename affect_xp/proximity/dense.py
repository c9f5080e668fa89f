"""Proximities stored in a two-dimensional array of any library."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import final

import numpy as np

from affect_xp.array import blas, cuda
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    device_of,
    fill_rows,
    for_each_block,
    gather,
    has_kernels,
    is_array,
    is_host_value,
    not_zero,
    put,
    row_blocks,
    thin_product,
    wide_dtype,
    widened_product,
)
from affect_xp.array.threads import own_threads, run_blocks
from affect_xp.array.typing import Array
from affect_xp.partition import Alignment, Partition
from affect_xp.proximity._base import Summable, joint_magnitude, log2, measured_magnitude
from affect_xp.proximity._entries import add_between_groups, scaled
from affect_xp.proximity.grouped import (
    NARROW_RANGE,
    Grouped,
    Moves,
    Stored,
    Summed,
    change_of_squares,
    guessed_means,
    identity,
    is_narrow,
    remembered,
)

# Rows are gathered so many entries at a time: they stay in cache, and BLAS multiplies them without a copy.
GATHERED_ENTRIES, MIN_GATHERED_ROWS = 2**18, 8
# Independent sums over rows, which threads may make in any order.
N_SUMS = 8
# From so many clusters on, by the bytes of an entry, sums by label are faster than products with a one-hot
# membership; block sums, which read half of W, from twice as many.
MIN_SUMMED_CLUSTERS = {8: 12, 4: 6}
# Several partitions of at least so many clusters, and so many together, are summed row by row.
MIN_ADDED_CLUSTERS, MIN_ADDED_COLUMNS = 8, 40
# Moments of up to so many blocks are computed from their entries alone, unless nearly all of Σw² is due to
# means: then the others have lost digits too.
MAX_SINGLE_BLOCKS, MIN_SPREAD_SHARE = 100, 0.01
# Rows of a blend that are made at a time have so many entries, and rows that are copied: large blocks are
# written to new memory without reading it.
BLENDED_ENTRIES, COPIED_ENTRIES = 2**17, 2**22


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSums:
    """Sums by label, in float64."""

    partition: Partition
    wz: np.ndarray  # WZ, (n, k)
    squares: np.ndarray | None  # Σ wᵢⱼ² over i ≠ j of each block, (k, k), if requested
    square_sum: float | None  # Σ wᵢⱼ² over all entries, if squares are requested
    right: np.ndarray  # Wv, (n,)
    down: np.ndarray  # Wᵀv, (n,)
    products: np.ndarray | None = None  # Σ wᵢⱼoᵢⱼ over i ≠ j of each block, (k, k), for another matrix O


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dense(Summable):
    """A proximity matrix stored as an n×n array; assumed to be symmetric and finite.

    `as_proximity` makes one from an array after checking it. W is read in blocks of rows and, where
    possible, only on and above the diagonal: there is no n×n temporary.

    Parameters
    ----------
    array : (n, n) array of float32 or float64
        Not copied.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> w = ax.Dense(np.eye(3))
    >>> w.matmul(np.ones((3, 1))).ravel()
    array([1., 1., 1.])
    """

    array: Array
    square_sum: float | None = dataclasses.field(default=None, kw_only=True)  # Σ wᵢⱼ², if known
    known_magnitude: float | None = dataclasses.field(default=None, kw_only=True)
    sums: LabelSums | None = dataclasses.field(default=None, kw_only=True)  # by some labels, where known
    sums_squares: bool = dataclasses.field(default=False, kw_only=True)  # with each product by label

    @remembered
    def magnitude(self) -> float:
        if self.known_magnitude is not None:
            return self.known_magnitude
        if self.square_sum is not None and 0 < self.square_sum < np.inf:
            return log2(self.square_sum) / 2  # at most n times as large as the largest entry
        return measured_magnitude(self.array[rows, :] for rows in row_blocks(self.array))

    @property
    def n(self) -> int:
        return self.array.shape[0]

    @property
    def like(self) -> Array:
        """The array itself."""
        return self.array

    @property
    def sums_plainly(self) -> bool:
        return is_host_value(self.array)

    @property
    def thin_dtype(self) -> object:
        """The dtype of the array: products in another dtype would have to copy it."""
        return self.array.dtype

    def diagonal(self) -> Array:
        return self._diagonal

    @functools.cached_property
    def _diagonal(self) -> Array:
        xp = array_namespace(self.array)
        return xp.astype(xp.linalg.diagonal(self.array), wide_dtype(self.array))

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        if rows is not None:
            return self._matmul_rows(v, rows)
        return widened_product(self.array, v)

    def change_matmul(self, past: "Dense", v: Array, rows: Array) -> Array:
        narrow = is_narrow(self.array) and is_narrow(past.array)
        return self._matmul_rows(v, rows, narrow=narrow, past=past)

    def _matmul_rows(
        self, v: Array, rows: Array, *, narrow: bool = False, past: "Dense | None" = None
    ) -> Array:
        """Return W·V, or (Ψ − W)·V if there is a past, for a V that is zero except in some rows."""
        # W[:, rows]·v = (vᵀ W[rows, :])ᵀ by symmetry, and whole rows are fast to read.
        w = self.array
        xp = array_namespace(w, v)
        dtype, vt = w.dtype if narrow else v.dtype, xp.astype(v.T, w.dtype) if narrow else v.T
        product = xp.zeros((v.shape[1], self.n), dtype=v.dtype, device=device_of(w))
        for block in row_blocks(w, rows.shape[0]):
            x = xp.astype(xp.take(w, rows[block], axis=0), dtype, copy=False)
            if past is not None:
                x = xp.take(past.array, rows[block], axis=0) - x
            product += xp.astype(vt[:, block] @ x, v.dtype, copy=False)
        by_rows = xp.empty((self.n, v.shape[1]), dtype=v.dtype, device=device_of(w))
        return put(by_rows, (slice(None), slice(None)), product.T)

    def row_sums(self) -> Array:
        """Return W1, (n,): from the sums by label if they are known and all objects have a label."""
        known = self.sums is not None and self.sums.partition.n_outside == 0
        return self.sums.wz.sum(axis=1) if known else super().row_sums()  # type: ignore[union-attr]

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Summed:
        known = self.sums
        if (
            known is None
            or known.partition.k != k
            or not np.array_equal(labels, known.partition.labels[:, None])
        ):
            return Summed(self, labels, k, given)
        earlier = None if known.squares is None else (known.partition, known.squares)
        return Summed(self, labels, k, given, wz=known.wz, earlier=earlier)

    def with_sums(self, partition: Partition, squares: str) -> "Dense":
        """Return W with its sums by label and sums of squares (see `label_sums`), if it is NumPy's."""
        if not can_sum_rows(self.array, partition.labels) or partition.n != self.n:
            return self
        sums = label_sums(self.array, partition, squares=squares)
        known = self.square_sum if sums.square_sum is None else sums.square_sum
        return dataclasses.replace(self, sums=sums, square_sum=known)

    def summing_squares(self) -> "Dense":
        return dataclasses.replace(self, sums_squares=True)

    def with_squares_of(self, groups: Grouped) -> "Dense":
        squares = groups.known_squares if isinstance(groups, Summed) else None
        xp, w_ii = array_namespace(self.array), self.diagonal()
        if squares is None or bool(xp.any(groups.labels < 0)):  # squares are known on the host only
            return self
        return dataclasses.replace(self, square_sum=float(xp.sum(squares) + w_ii @ w_ii))

    def summed(self, partition: Partition, *, squares: bool = True) -> Summed:
        """Return W by labels, with W·Z and perhaps sums of squares; if it is NumPy's, from one pass."""
        W = self.with_sums(partition, "blocks" if squares else "none")
        return W.grouped(partition.labels[:, None], partition.k, partition)

    def squared_difference(self, other: "Dense") -> Array:
        """Return Σ (wᵢⱼ − oᵢⱼ)² over all entries, a number."""
        w, o = self.array, other.array
        xp, wide = array_namespace(w, o), wide_dtype(w)
        squares: dict[int, Array] = {}

        def add(rows: slice) -> None:
            x = xp.astype(w[rows, :], wide)
            x -= o[rows, :]
            x = xp.reshape(x, (-1,))
            squares[rows.start] = x @ x

        for_each_block(add, row_blocks(w), w)
        total = xp.zeros((), dtype=wide, device=device_of(w))
        return sum((squares[start] for start in sorted(squares)), start=total)

    def times_membership(self, groups: Summed) -> tuple[Array, Array | None]:
        if has_kernels(self.array, groups.k):
            return cuda.products(self.array, groups.labels, groups.k), None
        if groups.n_runs == 1 and can_sum_rows(self.array, groups.labels):
            n_labelled = np.count_nonzero(groups.labels >= 0)  # the rows of others are not read
            if groups.k * self.n >= MIN_SUMMED_CLUSTERS[self.array.itemsize] * n_labelled:
                squares = self.sums_squares and n_labelled == self.n
                sums = label_sums(self.array, groups.partition, squares="blocks" if squares else "none")
                return sums.wz, sums.squares
        if self._adds_rows(groups):
            none = np.full_like(groups.labels, -1)
            moves = Moves(np.arange(self.n), none, groups.labels, groups.k)
            return blas.added_rows(self.array, *moves.signed(), groups.n_runs * groups.k), None
        return self.matmul(groups.membership), None

    def moved_product(self, groups: Stored, moves: Moves) -> Array:
        if has_kernels(self.array, groups.k):
            return cuda.moved_products(
                groups.array, self.array, moves.objects, moves.before, moves.after, moves.places
            )
        n_runs, k, narrow = groups.n_runs, groups.k, is_narrow(self.array)
        if n_runs == 1 or not self.updates_each_run or moves.places is not None:
            return groups.array + self._matmul_rows(moves.v, moves.rows, narrow=narrow)
        if self._adds_rows(groups):
            sums = blas.added_rows(self.array, *moves.signed(), n_runs * k)
            sums += groups.array
            return sums
        wz = groups.array.copy()
        for r in range(n_runs):  # each with its own objects
            before, after = moves.before[:, r : r + 1], moves.after[:, r : r + 1]
            own = Moves(np.flatnonzero(before != after), before, after, k)
            wz[:, r * k : (r + 1) * k] += self._matmul_rows(own.v, own.rows, narrow=narrow)
        return wz

    def _adds_rows(self, groups: Stored) -> bool:
        """Return whether adding rows of W is faster than a product with the memberships of several runs."""
        k, n_runs = groups.k, groups.n_runs
        if n_runs == 1 or k < MIN_ADDED_CLUSTERS or not can_sum_rows(self.array, groups.labels):
            return False
        return n_runs * k >= MIN_ADDED_COLUMNS or blas.is_cached(self.array)

    @property
    def updates_each_run(self) -> bool:  # type: ignore[override]
        return can_sum_rows(self.array)

    def kernel_array(self, k: int) -> Array | None:
        return self.array if k <= cuda.MAX_CLUSTERS and has_kernels(self.array, k) else None

    def block_sums(self, partition: Partition, *, squares: bool = True) -> tuple[Array, Array | None]:
        """Return Σ wᵢⱼ and, if `squares`, Σ wᵢⱼ² over i ≠ j of each block, (k, k), in half a pass."""
        sums, *more = self._sums(partition, (1, 2) if squares else (1,))
        return sums, more[0] if squares else None

    def block_squares(self, partition: Partition) -> Array:
        return self._sums(partition, (2,))[0]

    def change_of_squares(self, before: Partition, now: Partition, rows: np.ndarray) -> np.ndarray:
        return change_of_squares(self._square_rows(rows), before, now, rows)

    def _square_rows(self, rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield slices of `rows` and a matrix of their wᵢⱼ², with 0 for i = j."""
        for block in row_blocks(self.array, len(rows)):
            own = rows[block]
            q = self.array[own].astype(np.float64, copy=False)
            q *= q
            q[np.arange(len(own)), own] = 0
            yield block, q

    def _sums(self, partition: Partition, powers: tuple[int, ...]) -> list[Array]:
        """Return Σ wᵢⱼ and Σ wᵢⱼ² (or one of them) over i ≠ j of each block, (k, k), in half a pass."""
        z, w, w_ii = partition.membership, self.array, self.diagonal()
        if can_sum_rows(w, partition.labels) and partition.k >= 2 * MIN_SUMMED_CLUSTERS[w.itemsize]:
            known = label_sums(w, partition, squares="blocks" if 2 in powers else "none")
            total = z.T @ known.wz
            sums = {1: total - identity(total) * (w_ii @ z), 2: known.squares}
            return [sums[power] for power in powers]
        xp, found = array_namespace(w), {}

        def fill(rows: slice) -> None:
            x = xp.astype(w[rows, rows.start :], z.dtype, copy=False)
            z_rows = z[rows, :]
            found[rows.start] = [
                _both_halves(x if power == 1 else x * x, z, z_rows, rows) for power in powers
            ]

        blocks = list(row_blocks(w))
        for_each_block(fill, blocks, w)
        totals = [sum(parts) for parts in zip(*(found[rows.start] for rows in blocks), strict=True)]
        return [
            total - identity(total) * (w_ii**power @ z) for power, total in zip(powers, totals, strict=True)
        ]

    def centred_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the moments from sums about a guess g of each block's mean: one row of W per cluster.

        μ = g − Σ(g − w)/N,   Σ(w − μ)² = Σ(g − w)² − N(g − μ)²
        """
        xp = array_namespace(self.array)
        guess = self._guess_means(partition)
        s, q = self._residual_sums(partition, guess)
        count = partition.pair_counts
        shift = s / not_zero(count)
        squares = q - count * shift * shift
        zero = xp.zeros_like(squares)
        return xp.where(count > 0, guess - shift, zero), xp.where(squares > 0, squares, zero)

    def with_centred(
        self, partition: Partition, found: tuple[Array, Array], lost: Array
    ) -> tuple[Array, Array]:
        means, squares = found
        few = can_sum_rows(self.array, lost) and np.count_nonzero(lost) <= MAX_SINGLE_BLOCKS
        if not few or np.sum(squares) < MIN_SPREAD_SHARE * np.sum(partition.pair_counts * means * means):
            return self.centred_moments(partition)
        for c, d in np.argwhere(np.triu(lost | lost.T)):
            moments = self._block_moments(*(np.flatnonzero(partition.labels == e) for e in (c, d)))
            means[c, d], squares[c, d] = means[d, c], squares[d, c] = moments
        return means, squares

    def _block_moments(self, i: np.ndarray, j: np.ndarray) -> tuple[float, float]:
        """Return μ and Σ(w − μ)² of the entries of rows i and columns j off the diagonal.

        With a guess g of the mean, from one row: μ = g + Σ(w − g)/N,   Σ(w − μ)² = Σ(w − g)² − N(μ − g)²
        """
        w, count = self.array, len(i) * len(j) - len(np.intersect1d(i, j))
        g, s, q = w[i[0], j[j != i[0]]].mean(dtype=np.float64), 0.0, 0.0
        for rows in row_blocks(w, len(i), n_columns=len(j)):
            own = i[rows, None]
            x = np.where(own == j, 0.0, w[own, j] - g)
            s, q = s + x.sum(), q + np.vdot(x, x)
        return g + s / count, max(q - s * s / count, 0.0)

    def _residual_sums(self, partition: Partition, guess: Array) -> tuple[Array, Array]:
        """Return Σ (g − w) and Σ (g − w)² over i ≠ j of each block, (k, k)."""
        z = partition.membership
        s = q = array_namespace(guess).zeros_like(guess)
        for rows, columns, x in self._residual_blocks(partition, guess):
            z_rows, z_columns = z[rows, :].T, z[columns, :]
            s_block = (z_rows @ x) @ z_columns
            x *= x
            q_block = (z_rows @ x) @ z_columns
            if columns != rows:  # the transpose, below the diagonal
                s_block, q_block = s_block + s_block.T, q_block + q_block.T
            s, q = s + s_block, q + q_block
        return s, q

    def _guess_means(self, partition: Partition) -> Array:
        """Return the mean of one row of each cluster over each cluster, (k, k), made symmetric."""
        xp = array_namespace(self.array)
        z, m = partition.membership, partition.sizes
        members = xp.argmax(z, axis=0)  # (k,), the first object of each cluster
        # Exclude the diagonal, which may be far larger than the other entries.
        rows = xp.astype(xp.take(self.array, members, axis=0), z.dtype, copy=False)
        own = (
            members[:, None] == xp.arange(self.n, dtype=members.dtype, device=device_of(self.array))[None, :]
        )
        sums = xp.where(own, xp.zeros_like(rows), rows) @ z
        counts = m[None, :] - identity(sums)
        means = sums / not_zero(counts)
        return (means + means.T) / 2

    def off_diagonal_squares(self, partition: Partition) -> Array:
        w, w_ii = self.array, self.diagonal()
        if partition.n_outside == 0 and self.square_sum is not None:
            return self.square_sum - w_ii @ w_ii
        xp, member = array_namespace(w), partition.is_member
        total = -member @ (w_ii * w_ii)
        for rows in row_blocks(w):
            x = xp.astype(w[rows, :], member.dtype, copy=False)
            if partition.n_outside == 0:
                x = xp.reshape(x, (-1,))
                total += x @ x
            else:
                total += member[rows] @ ((x * x) @ member)
        return total

    def centred_distance(self, partition: Partition, means: Array) -> Array:
        xp = array_namespace(self.array)
        member = partition.is_member
        total = xp.zeros((), dtype=member.dtype, device=device_of(member))
        for rows, columns, x in self._residual_blocks(partition, means):
            x *= x
            part = (member[rows] @ x) @ member[columns]
            total = total + (part if columns == rows else 2 * part)
        return total

    def _residual_blocks(self, partition: Partition, means: Array) -> Iterator[tuple[slice, slice, Array]]:
        """Yield (rows, columns, μ_{cᵢcⱼ} − wᵢⱼ) on and above the diagonal.

        The blocks on the diagonal have rows == columns and zeros in place of μ − wᵢᵢ. The caller may
        overwrite the array: allocating another one per block costs more than its sums.
        """
        w = self.array
        xp = array_namespace(w)
        by_column = means @ partition.membership.T  # μ_{c cⱼ}, (k, n)
        for rows in row_blocks(w):
            cluster = partition.safe_labels[rows]
            x = xp.take(by_column[:, rows], cluster, axis=0)
            x -= w[rows, rows]
            yield rows, rows, xp.where(identity(x) > 0, xp.zeros_like(x), x)
            columns = slice(rows.stop, self.n)
            if columns.start < columns.stop:
                x = xp.take(by_column[:, columns], cluster, axis=0)
                x -= w[rows, columns]
                yield rows, columns, x

    def take(self, index: Array) -> "Dense":
        w = self.array
        xp = array_namespace(w)
        blocks = row_blocks(w, index.shape[0])
        taken = xp.concat([xp.take(xp.take(w, index[b], axis=0), index, axis=1) for b in blocks])
        return Dense(taken, known_magnitude=self.known_magnitude)

    def submatrix(self, index: Array | None = None) -> Array:
        if index is not None and has_kernels(self.array):
            return cuda.submatrix(self.array, index)
        w = self.array if index is None else self.take(index).array
        return array_namespace(w).astype(w, wide_dtype(w), copy=False)

    def copy(self) -> "Dense":
        blocks = row_blocks(self.array, host_rows=max(1, COPIED_ENTRIES // max(1, self.n)))
        copied = fill_rows(self.array, blocks, lambda rows: self.array[rows, :])
        return Dense(copied, square_sum=self.square_sum, known_magnitude=joint_magnitude(self, self))

    def blend(
        self, past: "Dense", alpha: Array | float, alignment: Alignment, *, out: "Dense | None" = None
    ) -> "Dense":
        w = self.array
        xp = array_namespace(w, past.array)
        # In the dtype of W, to avoid widening.
        a = xp.astype(alpha, w.dtype) if is_array(alpha) else alpha
        magnitude = joint_magnitude(self, past, alpha)
        fits = out is not None and (out.array.dtype, out.n) == (w.dtype, self.n) and alignment.unchanged
        target: Array = out.array if fits else None  # type: ignore[union-attr]
        if has_kernels(w) and has_kernels(past.array) and w.dtype == past.array.dtype:
            blended_array, _ = cuda.blend(w, past.array, alpha, source=alignment.source, out=target)
            return Dense(blended_array, known_magnitude=magnitude)
        if not alignment.unchanged:
            blended_rows = functools.partial(self._blend_changed, past, a, alignment)
            return Dense(fill_rows(w, row_blocks(w), blended_rows), known_magnitude=magnitude)
        if can_sum_rows(w, past.array):
            target = np.empty_like(w) if target is None else target
            return Dense(target, square_sum=_blend(self, past, float(a), target), known_magnitude=magnitude)
        squares: dict[int, float] = {}

        def blended(rows: slice) -> Array:
            block = a * past.array[rows, :] + (1 - a) * w[rows, :]
            if self.sums_plainly:  # and the block is in cache
                squares[rows.start] = _sum_of_squares(block)
            return block

        target = fill_rows(w, row_blocks(w), blended, target)
        square_sum = sum(squares.values()) if self.sums_plainly else None
        return Dense(target, square_sum=square_sum, known_magnitude=magnitude)

    def blend_by_object(
        self,
        past: "Dense",
        alpha: Array | float,
        trust: Array,
        alignment: Alignment,
        *,
        out: "Dense | None" = None,
    ) -> "Dense":
        """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ), in one pass."""
        w, psi, source = self.array, past.array, alignment.source
        xp = array_namespace(w, psi)
        s = xp.astype(trust * alpha**0.5, w.dtype)  # √α s, so that weights are exactly symmetric
        fits = out is not None and source is None and (out.array.dtype, out.n) == (w.dtype, self.n)
        target: Array = out.array if fits else None  # type: ignore[union-attr]
        magnitude = joint_magnitude(self, past)
        if source is None and can_sum_rows(w, psi):
            target = np.empty_like(w) if target is None else target
            _blend_by_object(w, psi, s, target)
            return Dense(target, known_magnitude=magnitude)

        def rows_of(rows: slice) -> Array:
            block = (psi[rows, :] if source is None else _aligned_rows(psi, source, rows)) - w[rows, :]
            block *= s[rows, None] * s[None, :]
            block += w[rows, :]
            return xp.astype(block, w.dtype, copy=False)

        return Dense(fill_rows(w, row_blocks(w), rows_of, target), known_magnitude=magnitude)

    def blend_two_sided(self, sides: "Sequence[tuple[Dense, Array, Array]]") -> "Dense":
        w = self.array
        xp = array_namespace(w)
        scaled_sides = [(psi.array, xp.astype(s * a**0.5, w.dtype)) for psi, a, s in sides]

        def rows_of(rows: slice) -> Array:
            block = xp.asarray(w[rows, :], copy=True)
            for psi, s in scaled_sides:
                block += (s[rows, None] * s[None, :]) * (psi[rows, :] - w[rows, :])
            return block

        return Dense(fill_rows(w, row_blocks(w), rows_of))

    def block_products(self, past: "Dense", alignment: Alignment, partition: Partition) -> Array:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block, (k, k), in half a pass if objects are the same."""
        w, psi, z, source = self.array, past.array, partition.membership, alignment.source
        xp = array_namespace(w, psi)
        parts: dict[int, Array] = {}

        def add(rows: slice) -> None:
            if source is None:
                x = xp.astype(w[rows, rows.start :], z.dtype, copy=False) * psi[rows, rows.start :]
                parts[rows.start] = _both_halves(x, z, z[rows, :], rows)
                return
            x = xp.astype(w[rows, :], z.dtype)
            x *= _aligned_rows(psi, source, rows)
            parts[rows.start] = z[rows, :].T @ thin_product(x, z)

        for_each_block(add, row_blocks(w), w)
        psi_ii = past.diagonal() if source is None else gather(past.diagonal(), source, 0)
        total = sum(parts[start] for start in sorted(parts))
        return total - identity(total) * ((self.diagonal() * psi_ii) @ z)

    def block_differences(self, past: "Dense", partition: Partition) -> np.ndarray | None:
        w, psi, (low, high) = self.array, past.array, np.log2(NARROW_RANGE)
        narrow = is_narrow(w) and is_narrow(psi) and can_sum_rows(partition.labels)
        if not narrow or not low <= max(self.magnitude, past.magnitude) <= high:
            return None
        z, parts = partition.membership.astype(w.dtype), {}

        def add(rows: slice) -> None:
            x = w[rows, rows.start :] - psi[rows, rows.start :]
            x *= x
            parts[rows.start] = _both_halves(x, z, z[rows], rows).astype(np.float64)

        run_blocks(add, row_blocks(w))
        total, d_ii = sum(parts[start] for start in sorted(parts)), self.diagonal() - past.diagonal()
        return total - np.diag((d_ii * d_ii) @ partition.membership)

    def change_by_trust(
        self, past: "Dense", alpha: float, trust: np.ndarray, movers: np.ndarray, partition: Partition
    ) -> np.ndarray | None:
        if not can_sum_rows(self.array, past.array, trust):
            return None
        z, total = partition.membership, np.zeros((partition.k, partition.k))
        both = z.copy()
        both[movers] /= 2  # pairs of movers are in two rows
        for block in row_blocks(self.array, len(movers)):
            rows = movers[block]
            w = self.array[rows].astype(z.dtype, copy=False)
            d, u = past.array[rows] - w, trust[rows, None] * trust
            # (u − 1) d {2w + a (u + 1) d}
            change = alpha * (u + 1)
            change *= d
            change += w
            change += w
            change *= d
            u -= 1
            change *= u
            change[np.arange(len(rows)), rows] = 0
            half = alpha * (z[rows].T @ thin_product(change, both))
            total += half + half.T
        return total

    def products_and_past(self, past: "Dense", partition: Partition) -> tuple[Array, Summed] | None:
        """Return Σ wᵢⱼψᵢⱼ of each block and Ψ by labels from one pass, if k is large enough."""
        w, psi, k = self.array, past.array, partition.k
        if not can_sum_rows(w, psi, partition.labels) or k < MIN_SUMMED_CLUSTERS[psi.itemsize]:
            return None
        sums = label_sums(psi, partition, squares="blocks", other=w)
        known = dataclasses.replace(past, sums=sums)
        return sums.products, known.grouped(partition.labels[:, None], k, partition)

    def _blend_changed(self, past: "Dense", a: Array | float, alignment: Alignment, rows: slice) -> Array:
        """Return some rows of the blend if objects came, left or changed places."""
        xp = array_namespace(self.array)
        source, w = alignment.source, self.array[rows, :]
        assert source is not None
        before = _aligned_rows(past.array, source, rows)
        common = (source[rows] >= 0)[:, None] & (source >= 0)[None, :]
        return xp.where(common, a * before + (1 - a) * w, w)

    def mapped(self, function: Callable[[Array], Array]) -> "Dense":
        """Return f(wᵢⱼ) in a new array; the function receives one block of rows at a time."""
        w = self.array
        return Dense(fill_rows(w, row_blocks(w), lambda rows: function(w[rows, :])))

    def scaled(self, s: Array) -> "Dense":
        """Return sᵢ wᵢⱼ sⱼ in a new array."""
        w = self.array
        return Dense(fill_rows(w, row_blocks(w), lambda rows: scaled(w[rows, :], s[rows], s)))

    def with_absent(self, past: "Dense", source: Array, away: Array) -> "Dense":
        w, psi, m = self.array, past.array, away.shape[0]
        if m == 0:
            return self.copy()
        xp, size = array_namespace(w, psi), self.n + m
        everywhere = xp.concat([source, away])

        def rows_of(rows: slice) -> Array:
            if rows.start >= self.n:
                before = gather(xp.take(psi, everywhere[rows], axis=0).T, everywhere, 0).T
                return xp.astype(before, w.dtype, copy=False)
            before = xp.take(gather(psi, source[rows], 0), away, axis=1)
            return xp.concat([w[rows, :], xp.astype(before, w.dtype, copy=False)], axis=1)

        upper = row_blocks(w, self.n, n_columns=size)
        lower = (slice(self.n + b.start, self.n + b.stop) for b in row_blocks(w, m, n_columns=size))
        out = xp.empty((size, size), dtype=w.dtype, device=device_of(w))
        out = fill_rows(w, itertools.chain(upper, lower), rows_of, out)
        return Dense(out, known_magnitude=joint_magnitude(self, past))

    def add_between_groups(self, other: "Dense", groups: Array, table: np.ndarray) -> "Dense":
        """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ in a new array."""
        w, more = self.array, other.array

        def rows_of(rows: slice) -> Array:
            return add_between_groups(w[rows, :], more[rows, :], groups[rows], groups, table)

        return Dense(fill_rows(w, row_blocks(w), rows_of), known_magnitude=joint_magnitude(self, other))


def _aligned_rows(psi: Array, source: Array, rows: slice) -> Array:
    """Return some rows of the past in the order of the current objects; zeros for new objects."""
    return gather(gather(psi, source[rows], 0).T, source, 0).T


def _both_halves(x: Array, z: Array, z_rows: Array, rows: slice) -> Array:
    """Return the contribution of some rows, from the diagonal on, and their transpose to ZᵀWZ, (k, k)."""
    part = z_rows.T @ thin_product(x, z[rows.start :, :])
    on_diagonal = z_rows.T @ (x[:, : z_rows.shape[0]] @ z_rows)
    return part + part.T - on_diagonal


@np.errstate(over="ignore", invalid="ignore")  # of squares
def _blend(W: Dense, past: Dense, a: float, out: np.ndarray) -> float:
    """Write aΨ + (1 − a)W into `out`, which may be the past, and return the sum of its squares.

    If the squares of both are known, and show that no difference overflows, it is W + a(Ψ − W), and

        Σψ̂² = a Σψ² + (1 − a) Σw² − a (1 − a) Σ(ψ − w)²
    """
    w, psi, n, given = W.array, past.array, W.n, (W.square_sum, past.square_sum)
    known = None not in given and a < 1 and max(given) ** 0.5 < np.finfo(w.dtype).max / 4  # type: ignore[type-var,operator]
    height = max(1, BLENDED_ENTRIES // n)
    starts, totals = range(0, n, height), np.zeros(N_SUMS)

    def fill(s: int) -> None:
        share = np.empty((0 if known else height, n), w.dtype)
        for start in starts[len(starts) * s // N_SUMS : len(starts) * (s + 1) // N_SUMS]:
            now, before, x = (part[start : start + height] for part in (w, psi, out))
            if known:
                np.subtract(before, now, out=x)
                flat = x.reshape(-1)
                totals[s] += flat @ flat
                x *= a
                x += now
            else:
                np.multiply(before, a, out=x)
                x += np.multiply(now, 1 - a, out=share[: len(x)])
                flat = x.reshape(-1).astype(np.float64, copy=False)
                totals[s] += flat @ flat

    run_blocks(fill, range(N_SUMS))
    total = float(totals.sum())
    return a * given[1] + (1 - a) * given[0] - a * (1 - a) * total if known else total  # type: ignore[operator]


def _blend_by_object(w: np.ndarray, psi: np.ndarray, s: np.ndarray, out: np.ndarray) -> None:
    """Write W + S(Ψ − W)S into `out`, which may be Ψ."""
    n, height = len(w), max(1, BLENDED_ENTRIES // len(w))

    def fill(part: int) -> None:
        weights = np.empty((height, n), w.dtype)
        for start in range(0, n, height)[part::N_SUMS]:
            rows = slice(start, min(start + height, n))
            block = out[rows]
            np.subtract(psi[rows], w[rows], out=block)
            block *= np.multiply(s[rows, None], s, out=weights[: len(block)])
            block += w[rows]

    run_blocks(fill, range(N_SUMS))


def _sum_of_squares(x: Array) -> float:
    """Return Σx² of a block on the host, in wide floats; infinite if it overflows."""
    xp = array_namespace(x)
    x = xp.reshape(xp.astype(x, wide_dtype(x), copy=False), (-1,))
    with np.errstate(over="ignore"):
        return float(x @ x)


@own_threads()
@np.errstate(over="ignore", invalid="ignore")  # where entries, or their squares, are not finite
def label_sums(
    w: np.ndarray,
    partition: Partition,
    v: np.ndarray | None = None,
    *,
    squares: str = "none",
    other: np.ndarray | None = None,
) -> LabelSums:
    """Return sums of W by label, and of squares those of "blocks", the "total", or "none", in one read.

    Rows of the same cluster are gathered, a few at a time, and summed while they are in cache:

        (ZᵀW)_c = Σ_{i in c} wᵢ,    (ZᵀQ)_c = Σ_{i in c} qᵢ  with qᵢⱼ = wᵢⱼ²

    W is symmetric, so that WZ = (ZᵀW)ᵀ. A product with the one-hot Z takes k multiplications for each entry.
    Wv and Wᵀv for a given v are summed in the same pass: they tell whether W is symmetric. So are products
    with another symmetric matrix.

    The few rows of a large float32 W are summed in float32, after a guess g of the mean of each block is
    subtracted, 0 for small means, so that rounding is relative to the spread: with r = w − g, over a block of
    N entries,

        Σw = Σr + Ng,    Σw² = Σr² + 2g Σr + Ng²
    """
    n, k = partition.n, partition.k
    w = w.T if w.flags.f_contiguous else w  # whole rows are quick to fetch
    labels = np.where(partition.labels < 0, k, partition.labels)  # k: in no cluster
    task = _Task.of(w, labels, k + 1, v, squares, other)
    parts = task.parts  # of each label the same number
    wz, (q, both) = np.zeros((len(parts), n)), np.zeros((2, len(parts), k + 1))
    right, down, totals = np.zeros(n), np.zeros((N_SUMS, n)), np.zeros(N_SUMS)

    n_summed = len(parts) if v is not None or squares != "none" else len(parts) * k // (k + 1)

    def add(s: int) -> None:
        buffers = task.buffers()
        for p in range(s, n_summed, N_SUMS):
            q_p, both_p, total = task.add(parts[p], buffers, wz[p], right, down[s])
            q[p] = np.bincount(labels, weights=q_p, minlength=k + 1)
            if other is not None:
                both[p] = np.bincount(labels, weights=both_p, minlength=k + 1)
            totals[s] += total

    run_blocks(add, range(N_SUMS))
    shape = k + 1, len(parts) // (k + 1)
    wz, q, both = (x.reshape(*shape, -1).sum(axis=1) for x in (wz, q, both))
    w_ii, z, known = np.diagonal(w).astype(np.float64), partition.membership, squares == "blocks"
    total, product = task.add_guess(wz, q, float((q if known else totals).sum()))
    blocks = q[:k, :k] - np.diag((w_ii * w_ii) @ z) if known else None
    products = None if other is None else both[:k, :k] - np.diag((w_ii * np.diagonal(other)) @ z)
    wz, square_sum = np.ascontiguousarray(wz[:k].T), total if squares != "none" else None
    right, down = right + product, down.sum(axis=0) + product
    return LabelSums(partition, wz, blocks, square_sum, right, down, products)


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """What is summed by which labels."""

    w: np.ndarray
    labels: np.ndarray
    parts: list[np.ndarray]  # the rows with each label, in several parts where labels are few
    v: np.ndarray | None
    squares: str
    other: np.ndarray | None
    guess: np.ndarray | None  # of the mean of each block; None if sums are in float64

    @staticmethod
    def of(
        w: np.ndarray,
        labels: np.ndarray,
        n_labels: int,
        v: np.ndarray | None,
        squares: str,
        other: np.ndarray | None,
    ) -> "_Task":
        """Return the task; the sums of a large float32 W are in float32 if its squares are in range."""
        order = np.argsort(labels, kind="stable")
        by_label = np.split(order, np.cumsum(np.bincount(labels, minlength=n_labels))[:-1])
        parts = [part for rows in by_label for part in np.array_split(rows, -(-N_SUMS // n_labels))]
        guess = guessed_means(w, by_label, by_label, True) if other is None and is_narrow(w) else None
        v = v if v is None or guess is None else v.astype(w.dtype)
        return _Task(w, labels, parts, v, squares, other, guess)

    def buffers(self) -> tuple[np.ndarray, ...]:
        """Return memory for some rows as they are, and as summed; and the same for the other matrix."""
        n, n_entries = len(self.labels), GATHERED_ENTRIES if self.other is None else GATHERED_ENTRIES // 2
        shape = min(max(MIN_GATHERED_ROWS, n_entries // n), n), n
        given = np.empty(shape, self.w.dtype)
        summed = given if self.guess is not None or given.dtype == np.float64 else np.empty(shape)
        if self.other is None:
            return given, summed, summed, summed
        more = np.empty(shape, self.other.dtype)
        return given, summed, more, more if more.dtype == np.float64 else np.empty(shape)

    def add(
        self,
        rows: np.ndarray,
        buffers: tuple[np.ndarray, ...],
        wz: np.ndarray,
        right: np.ndarray,
        down: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Add the sum of some rows, and of their products with v.

        Return the sums of squares and of products with the other matrix by column, and all squares.
        """
        (q, both), total, (given, summed, more, product) = np.zeros((2, len(wz))), 0.0, buffers
        sums = np.empty((1 if self.v is None else 2, len(wz)), summed.dtype)
        guess = None if self.guess is None or not len(rows) else self.guess[self.labels[rows[0]], self.labels]
        is_centred, ones = guess is not None and guess.any(), np.ones((len(sums), len(summed)), summed.dtype)
        for start in range(0, len(rows), len(summed)):
            some = rows[start : start + len(summed)]
            x = np.take(self.w, some, axis=0, out=given[: len(some)], mode="clip")  # fastest
            if is_centred:
                x -= guess
            if guess is not None:
                x[np.arange(len(some)), some] = 0  # `add_guess` adds the diagonal
            elif given is not summed:
                x = summed[: len(some)]
                np.copyto(x, given[: len(some)])
            weights = ones[:, : len(some)]
            if self.v is not None:
                right[some] = x @ self.v
                weights[1] = self.v[some]
            np.matmul(weights, x, out=sums)
            wz += sums[0]
            if self.v is not None:
                down += sums[1]
            if self.other is not None:
                y = np.take(self.other, some, axis=0, out=more[: len(some)], mode="clip")
                np.matmul(weights[0], np.multiply(x, y, out=product[: len(some)]), out=sums[0])
                both += sums[0]
            if self.squares == "blocks":
                x *= x
                np.matmul(weights[0], x, out=sums[0])
                q += sums[0]
            elif self.squares == "total":
                flat = x.reshape(-1)
                total += float(flat @ flat)
        return q, both, total

    def add_guess(self, wz: np.ndarray, q: np.ndarray, total: float) -> tuple[float, np.ndarray | float]:
        """Add guess and diagonal to sums and squares by label; return all squares, and what Wv lacks."""
        if self.guess is None:
            return total, 0.0
        labels, g, v = self.labels, self.guess.astype(np.float64), 0.0 if self.v is None else self.v
        totals = functools.partial(np.bincount, labels, minlength=len(q))
        m, r_ii = totals().astype(np.float64), np.diagonal(self.w) - g[labels, labels]
        wz[labels, np.arange(len(labels))] += r_ii
        r = np.stack([totals(weights=row) for row in wz])
        more = 2 * g * r + np.outer(m, m) * g * g + np.diag(totals(weights=r_ii * r_ii))
        wz += (m[:, None] * g)[:, labels]
        q += more
        product = 0.0 if self.v is None else (g @ totals(weights=self.v))[labels]
        return total + more.sum(), product + v * r_ii
