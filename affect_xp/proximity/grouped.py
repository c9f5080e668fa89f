"""Proximities together with the labels of their objects.

A step needs block moments, distances to centroids and sums by cluster, which follow from W·Z with the one-hot
membership Z. A `Grouped` holds W, the labels and W·Z, and updates W·Z when objects change clusters.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import numpy as np

from affect_xp.array import blas, cuda
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    changed_places,
    device_of,
    fill_rows,
    for_each_block,
    from_host,
    is_cupy,
    keep,
    not_negative,
    not_zero,
    one_hot,
    ratio,
    row_blocks,
    rows_at,
    thin_product,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.partition import Partition

T = TypeVar("T")

# Sums of squares are updated if at most this share of the objects has moved.
MAX_UPDATE_SHARE = 0.3
# Rows of a float32 W with so many objects are summed in float32, if entries are in a range in which squares
# neither overflow nor vanish; so many rows of each cluster give the guess of means, which is 0 for means of
# up to so many standard deviations.
MIN_NARROW, NARROW_RANGE, GUESSED_ROWS, MAX_SMALL_MEAN = 1000, (2.0**-20, 2.0**40), 8, 4
# With so many clusters rows are added by label, at least so many at a time; so many sums are kept.
MIN_ADDED, ADDED_ROWS, N_SUMS = 64, 1024, 8
# Up to so many entries of WZ, calls of NumPy take longer than their work.
FEW_ENTRIES = 2**18


class remembered(functools.cached_property[T]):
    """A cached property that tells whether its value has been computed."""

    def known(self, instance: object) -> T | None:
        """Return the value, or None if it has not been computed."""
        assert self.attrname is not None
        return instance.__dict__.get(self.attrname)


@dataclasses.dataclass(frozen=True, eq=False)
class Moves:
    """Objects that change clusters."""

    objects: Array  # (m,)
    before: Array  # labels of all objects, (n, R)
    after: Array
    k: int
    places: Array | None = None  # of the objects in the matrix, -1 if not in it; None if the same

    @functools.cached_property
    def v(self) -> Array:
        """The change of their memberships, (m, R·k); zero for objects that are not in the matrix."""
        xp, wide = array_namespace(self.after), wide_dtype(self.after)
        v = membership(xp.take(self.after, self.objects, axis=0), self.k, wide)
        v -= membership(xp.take(self.before, self.objects, axis=0), self.k, wide)
        return v if self.places is None else keep(v, self.places, 0)

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Return their labels after and before, (m, R), in NumPy; -1 for objects not in the matrix."""
        after, before = self.after[self.objects], self.before[self.objects]
        if self.places is None:
            return after, before
        return keep(after, self.places, -1), keep(before, self.places, -1)

    def signed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return objects, the columns of Z in which they change, and 1 or -1, in NumPy."""
        after, before = self.after[self.objects], self.before[self.objects]
        parts = []
        for labels, sign in ((after, 1.0), (before, -1.0)):
            i, r = np.nonzero((after != before) & (labels >= 0))
            parts.append((self.objects[i], self.k * r + labels[i, r], np.full(len(i), sign)))
        objects, columns, signs = (np.concatenate(part) for part in zip(*parts, strict=True))
        return objects, columns, signs

    @property
    def rows(self) -> Array:
        """Their rows of the matrix; row 0 for objects that are not in the matrix."""
        return self.objects if self.places is None else not_negative(self.places)


@dataclasses.dataclass(frozen=True, eq=False)
class AllBlocks:
    """All blocks of a partition, in arrays (k, k)."""

    partition: Partition

    @property
    def m_c(self) -> Array:
        """The size of the cluster of the rows, (k, 1)."""
        return self.partition.sizes[:, None]

    @property
    def m_d(self) -> Array:
        """The size of the cluster of the columns, (1, k)."""
        return self.partition.sizes[None, :]

    @functools.cached_property
    def copies(self) -> Array:
        """How often each value occurs in its block: twice within a cluster, by symmetry, (k, k)."""
        return identity(self.counts) + 1

    @property
    def counts(self) -> Array:
        """The number of pairs i ≠ j of each block, (k, k)."""
        return self.partition.pair_counts

    def transposed(self, x: Array) -> Array:
        """Return the value of the block (d, c) in place of that of (c, d)."""
        return x.T

    def matrix(self, x: Array) -> Array:
        """Return values of blocks as a matrix, (k, k)."""
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class Grouped(abc.ABC):
    """A proximity W and the labels of its objects in R partitions.

    Only k-means uses several partitions; `partition`, `sums`, `moments` and `distance_to` need R = 1.
    """

    proximity: Any  # W
    labels: Array  # clusters 0 ... k-1, -1 for none, (n, R)
    k: int
    given: Partition | None = None  # the partition, if it was given as one

    @functools.cached_property
    def partition(self) -> Partition:
        """The partition, if there is only one."""
        assert self.n_runs == 1
        return self.given or Partition(self.labels[:, 0], self.k)

    @property
    def n_runs(self) -> int:
        """The number R of partitions."""
        return self.labels.shape[1]

    @property
    def membership(self) -> Array:
        """The concatenated memberships Z, (n, R·k), in wide floats."""
        if self.n_runs == 1:
            return self.partition.membership
        return membership(self.labels, self.k, wide_dtype(self.labels))

    @abc.abstractmethod
    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ, (rows, R·k); do not write to them."""

    @abc.abstractmethod
    def own(self) -> Array:
        """Return the diagonal of ZᵀWZ for each partition, (R, k)."""

    @abc.abstractmethod
    def moved(self, labels: Array, moves: Moves) -> "Grouped":
        """Return W grouped by other labels, which differ for some objects."""

    @abc.abstractmethod
    def of_runs(self, runs: list[int]) -> "Grouped":
        """Return W grouped by some of the partitions."""

    def regrouped(self, labels: Array, rows: Array) -> "Grouped":
        """Return W grouped by other labels, (n, R), that differ for the objects at `rows`."""
        return self.moved(labels, Moves(rows, self.labels, labels, self.k))

    @property
    def moves_unread(self) -> bool:
        """Whether `regrouped` ignores rows of -1 at the end, so that the host need not know their number."""
        return False

    def from_scratch(self, labels: Array) -> "Grouped":
        """Return W grouped by other labels, (n, R), from scratch."""
        return self.proximity.grouped(labels, self.k)

    @property
    def parts(self) -> Any:
        """The current and past proximities with the same labels if W is a blend, otherwise None."""
        return None

    def joined(self, past: "Grouped", blend: Any) -> "Grouped | None":
        """Return the blend with a past that has the same labels, or None if the types differ."""
        return None

    def distances(self, rows: slice, sizes: Array, own: Array) -> Array:
        """Return squared distances of some objects to the centroids minus wᵢᵢ, (rows, R, k).

        `sizes` are the cluster sizes, and `own` is the result of `own()`. Empty clusters are at infinity.
        """
        wz, m = self.rows(rows), not_zero(sizes)
        d = array_namespace(wz).reshape(wz, (wz.shape[0], *sizes.shape)) * (-2 / m)
        d += centres(sizes, own)
        return d

    def nearest(self, sizes: Array, own: Array, bounds: Any = None) -> tuple[Array, Any]:
        """Return the nearest centroid of each object, (n, R), and bounds for the next call."""
        xp = array_namespace(sizes)
        blocks = row_blocks(self.labels, n_columns=self.n_runs * self.k)
        return fill_rows(
            self.labels, blocks, lambda rows: xp.argmin(self.distances(rows, sizes, own), axis=2)
        ), None

    @property
    def is_few(self) -> bool:
        """Whether WZ is in NumPy, and so small that calls take longer than their work."""
        return can_sum_rows(self.labels) and self.labels.size * self.k <= FEW_ENTRIES

    def inner_products(self, scale: np.ndarray) -> np.ndarray:
        """Return WZ with columns multiplied by numbers (R, k), (n, R, k), in NumPy."""
        n, n_runs = self.labels.shape
        return self.rows(slice(0, n)).reshape(n, n_runs, self.k) * scale

    def for_kernels(self) -> cuda.Product:
        """Return WZ for CuPy kernels; that of a blend as its parts."""
        return cuda.Product(self.rows(slice(0, self.labels.shape[0])))

    def sums(self) -> Array:
        """Return ZᵀWZ, (k, k)."""
        z = self.membership
        return sum(z[rows, :].T @ self.rows(rows) for rows in row_blocks(z))

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,)."""
        return self.proximity.diagonal()

    def moments(self) -> tuple[Array, Array]:
        """Return the mean μ and the sum of squares Σ(w − μ)² of each block, both (k, k); computed once."""
        return self._moments

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        return self.proximity.block_moments(self.partition)

    def distance_to(self, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})² for block means μ, (k, k)."""
        return self.proximity.square_distance(self.partition, means)

    @property
    def kernel_array(self) -> Any:
        """The matrix, if CuPy kernels can read it, otherwise None."""
        return None

    @functools.cached_property
    def kernel_moments(self) -> cuda.Moments | None:
        """All block moments, if CuPy kernels can compute them."""
        w = self.kernel_array
        return None if w is None else cuda.moments(w, self.partition.short_labels, self.k)

    def kernel_residuals(self, means: Array, diagonal_means: Array) -> Array | None:
        """Return sums of differences from some block means, if CuPy kernels can compute them."""
        w = self.kernel_array
        if w is None:
            return None
        return cuda.residual_sums(w, self.partition.short_labels, means, diagonal_means)

    @property
    def blocks(self) -> Any:
        """The blocks of the arrays of moments: all, (k, k), or only occupied ones."""
        return AllBlocks(self.partition)

    def on(self, blocks: Any) -> "Grouped":
        """Return the same groups with arrays for these blocks."""
        return self

    def together(self, other: "Grouped") -> "tuple[Grouped, Grouped]":
        """Return both with arrays for the same blocks."""
        return self, other

    def block_means(self) -> Array:
        """Return the mean of each block, (k, k)."""
        partition, total = self.partition, self.sums()
        own = identity(total) * partition.totals(self.diagonal())
        return ratio(total - own, partition.pair_counts)

    def row_squares(self, means: Array) -> Array:
        """Return Σᵢ (rᵢd − μ_cd)² over i in c for the means r of rows within blocks, by block, (k, k)."""

        def squares(which: slice) -> Array:
            x = self.row_deviations(which, means)
            x *= x
            return x

        return self._summed_by_cluster(squares)

    def row_products(self, other: "Grouped", source: Array | None = None) -> Array:
        """Return Σᵢ (rᵢd − μ_cd)(sᵢd − ν_cd) over i in c for the means r and s of rows, by block, (k, k).

        `source` gives the places of objects in the other, -1 for objects without a label that are not in it.
        """
        mu, nu = self.block_means(), other.block_means()

        def products(which: slice) -> Array:
            there = which if source is None else not_negative(source[which])
            x = self.row_deviations(which, mu)
            x *= other.row_deviations(there, nu)
            return x

        return self._summed_by_cluster(products)

    def row_deviations(self, which: slice | Array, means: Array) -> Array:
        """Return means of rows within each block, without wᵢᵢ, minus the block mean, (rows, k)."""
        rows, w_ii = self.partition.at(which), rows_at(self.diagonal(), which)
        z = rows.membership
        deviations = ratio(self.rows(which) - w_ii[:, None] * z, self.partition.sizes[None, :] - z)
        # Subtracted before squaring: means may be much larger than the deviations.
        deviations -= rows.by_object(means)
        return deviations

    def _summed_by_cluster(self, values: Callable[[slice], Array]) -> Array:
        """Return the sum of values of objects, (rows, k), over the objects of each cluster, (k, k)."""
        partition, k, adds_rows = self.partition, self.k, self.k >= MIN_ADDED and can_sum_rows(self.labels)
        blocks = list(
            row_blocks(self.labels, n_columns=k, host_rows=max(k, ADDED_ROWS) if adds_rows else None)
        )
        sums: dict[int, Array] = {}

        def add(part: int) -> None:
            for rows in blocks[part::N_SUMS]:
                if adds_rows:
                    found = blas.sums_by_number(values(rows), self.labels[rows], k)
                else:
                    found = partition.at(rows).membership.T @ values(rows)
                sums[part] = found if part not in sums else sums[part] + found

        parts = range(min(N_SUMS, len(blocks)))
        for_each_block(add, parts, self.labels)
        return sum(sums[part] for part in parts)

    def near(self, other: "Grouped") -> "Grouped":
        """Return the same groups, able to reuse sums of `other`, whose labels are similar."""
        return self

    def handed_over(self) -> tuple[Partition, Array] | None:
        """Return labels and sums of squares from which those by other labels can be updated, if known."""
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(Grouped):
    """W·Z as an array, computed when first needed."""

    wz: Array | None = None  # if known

    @remembered
    def array(self) -> Array:
        """WZ, (n, R·k)."""
        return self.multiplied() if self.wz is None else self.wz

    def multiplied(self) -> Array:
        """Compute WZ."""
        return self.proximity.matmul(self.membership)

    @property
    def is_multiplied(self) -> bool:
        """Whether WZ is known."""
        return self.wz is not None or Stored.array.known(self) is not None

    def rows(self, which: slice | Array) -> Array:
        return rows_at(self.array, which)

    def own(self) -> Array:
        wz = self.array
        return sum(own_sums(wz[rows, :], self.labels[rows, :], self.k) for rows in row_blocks(wz))

    def moved(self, labels: Array, moves: Moves) -> Self:
        return self._relabelled(labels, self.proximity.moved_product(self, moves))

    def of_runs(self, runs: list[int]) -> Self:
        if len(runs) == self.n_runs:
            return self
        index = run_columns(runs, self.k, self.labels)
        return self._relabelled(
            array_namespace(self.labels).take(self.labels, from_host(runs, self.labels), axis=1),
            array_namespace(self.array).take(self.array, index, axis=1),
        )

    def _relabelled(self, labels: Array, wz: Array) -> Self:
        return dataclasses.replace(self, labels=labels, wz=wz, given=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Summed(Stored):
    """W·Z as an array; on the host it saves a pass for the moments."""

    # Earlier labels and their Σ wᵢⱼ² of each block.
    earlier: tuple[Partition, Array] | None = None

    @remembered
    def product(self) -> tuple[Array, Array | None]:
        """WZ, and Σ wᵢⱼ² over i ≠ j of each block, (k, k), if they are summed in the same pass."""
        return self.proximity.times_membership(self)

    def multiplied(self) -> Array:
        return self.product[0]

    @property
    def kernel_array(self) -> Any:
        return self.proximity.kernel_array(self.k)

    @property
    def moves_unread(self) -> bool:
        return is_cupy(self.kernel_array)  # not for a sparse matrix

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        W, partition = self.proximity, self.partition
        if self.kernel_moments is not None:
            return self.kernel_moments.blocks()[:2]
        if W.sums_plainly:
            return W.plain_moments(partition, *self.block_sums)
        return W.centred_moments(partition)

    @remembered
    def block_sums(self) -> tuple[Array, Array]:
        """Σ wᵢⱼ and Σ wᵢⱼ² over i ≠ j of each block, both (k, k)."""
        W, partition = self.proximity, self.partition
        if self.is_multiplied or self.earlier is not None or W.sums_by_product or W.sums_squares:
            return self._off_diagonal(), self._squares()
        return W.block_sums(partition)

    def _squares(self) -> Array:
        """Return Σ wᵢⱼ² as summed with WZ, or updated if few objects have moved since the last sum."""
        squares = self.known_squares
        squares = self.updated_squares() if squares is None else squares
        return self.proximity.block_squares(self.partition) if squares is None else squares

    @property
    def known_squares(self) -> Array | None:
        """Σ wᵢⱼ² over i ≠ j of each block, (k, k), if it has been computed."""
        found = Summed.block_sums.known(self) or Summed.product.known(self)
        return None if found is None else found[1]

    def distance_to(self, means: Array) -> Array:
        W, partition, found, k = self.proximity, self.partition, None, self.k
        if self.kernel_array is not None:
            sums = cuda.residual_sums(self.kernel_array, partition.short_labels, means)
            return array_namespace(sums).sum(sums[: 2 * k * k].reshape(k, 2 * k)[:, k:])
        if W.sums_plainly:
            known = self.is_multiplied or W.sums_by_product
            sums = self._off_diagonal() if known else W.block_sums(partition, squares=False)[0]
            found = W.plain_distance(partition, means, sums, self.known_squares)
        return W.centred_distance(partition, means) if found is None else found

    def near(self, other: Grouped) -> "Summed":
        """Return the same groups, with sums of squares to be updated from those of other labels."""
        if not self.is_multiplied or not isinstance(other, Summed) or other.known_squares is None:
            return self
        return dataclasses.replace(self, wz=self.array, earlier=other.handed_over())

    def handed_over(self) -> tuple[Partition, Array] | None:
        squares = self.known_squares
        return self.earlier if squares is None else (self.partition, squares)

    def _relabelled(self, labels: Array, wz: Array) -> "Summed":
        earlier = self.handed_over() if self.n_runs == labels.shape[1] == 1 else None
        return dataclasses.replace(self, labels=labels, wz=wz, given=None, earlier=earlier)

    def updated_squares(self) -> Array | None:
        """Return Σ wᵢⱼ² from those by earlier labels; None if there are none, or many objects have moved."""
        partition = self.partition
        if self.earlier is None or self.earlier[0].k != partition.k:
            return None
        before, squares = self.earlier
        rows = changed_places(before.labels, partition.labels)
        most = min(MAX_UPDATE_SHARE, self.proximity.max_update_share) * partition.n
        if rows is None or len(rows) > most:
            return None
        return squares + self.proximity.change_of_squares(before, partition, rows) if len(rows) else squares

    def _off_diagonal(self) -> Array:
        """Return Σ wᵢⱼ over i ≠ j of each block, (k, k)."""
        z = self.partition.membership
        total = z.T @ self.array
        return total - identity(total) * (self.proximity.diagonal() @ z)


def change_of_squares(
    parts: Iterable[tuple[slice, Any]], before: Partition, now: Partition, rows: np.ndarray
) -> np.ndarray:
    """Return the change of the sums of squares of each block, (k, k), given parts of the squares of rows.

    With Q the squares off the diagonal, Z and Z' the memberships, and Δ = Z' − Z, zero in most rows,

        Z'ᵀQZ' − ZᵀQZ = ΔᵀR + RᵀΔ,   R = Q (Z + Z') / 2
    """
    z, delta = (before.membership + now.membership) / 2, now.membership - before.membership
    total = np.zeros((now.k, now.k))
    for block, q in parts:
        half = delta[rows[block]].T @ thin_product(q, z)
        total += half + half.T
    return total


def is_narrow(w: Array) -> bool:
    """Return whether sums of a few rows may be in float32."""
    return can_sum_rows(w) and w.dtype == np.float32 and len(w) >= MIN_NARROW


def guessed_means(
    w: np.ndarray, rows: list[np.ndarray], columns: list[np.ndarray], on_diagonal: bool
) -> np.ndarray | None:
    """Return the mean of a few entries of each block, (k, k); None if squares may be too large or small.

    It is 0 where it is not much larger than the spread, so that subtracting it would save no digits.
    `rows` and `columns` are the objects with each label. Entries wᵢᵢ, which may be far larger than the
    others, are excluded; the means of a matrix with these are symmetric.
    """
    (i, z_i), (j, z_j) = _few(rows), _few(columns)
    x, is_own = w[np.ix_(i, j)].astype(np.float64), (i[:, None] == j) & on_diagonal
    x[is_own] = 0
    low, high = NARROW_RANGE
    if not low <= np.abs(x).max(initial=0) <= high:
        return None
    count = np.maximum(z_i.T @ ~is_own @ z_j, 1)
    means, squares = z_i.T @ x @ z_j / count, z_i.T @ (x * x) @ z_j / count
    means[means**2 <= MAX_SMALL_MEAN**2 * (squares - means**2)] = 0
    return ((means + means.T) / 2 if on_diagonal else means).astype(w.dtype)


def _few(by_label: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return a few objects of each label, and their memberships."""
    some = [rows[:: -(-len(rows) // GUESSED_ROWS)] if len(rows) else rows for rows in by_label]
    return np.concatenate(some), np.repeat(np.eye(len(some)), [len(rows) for rows in some], axis=0)


def membership(labels: Array, k: int, dtype: object) -> Array:
    """Return the concatenated memberships of several partitions, (n, R·k), given their labels (n, R)."""
    n, n_runs = labels.shape
    return array_namespace(labels).reshape(one_hot(labels, k, dtype), (n, n_runs * k))


def own_sums(wz: Array, labels: Array, k: int) -> Array:
    """Return the sum of (WZ)ᵢc over the objects i of each cluster c, (R, k), given WZ (n, R·k)."""
    n, n_runs = labels.shape
    if not can_sum_rows(wz, labels):
        own = column_sums(membership(labels, k, wz.dtype) * wz)
        return array_namespace(wz).reshape(own, (n_runs, k))
    run = np.arange(n_runs)
    places = n_runs * k * np.arange(n)[:, None] + k * run + np.maximum(labels, 0)
    numbers = (k + 1) * run + labels + 1  # 0 for no label
    own = np.bincount(numbers.reshape(-1), wz.reshape(-1)[places].reshape(-1), n_runs * (k + 1))
    return own.reshape(n_runs, k + 1)[:, 1:]


def centres(sizes: Array, own: Array) -> Array:
    """Return the squared length of each centroid, (ZᵀWZ)cc / m², (R, k); infinite for empty clusters."""
    xp, m = array_namespace(sizes), not_zero(sizes)
    return xp.where(sizes > 0, own / (m * m), xp.full_like(m, xp.inf))


def run_columns(runs: list[int], k: int, like: Array) -> Array:
    """Return the columns of a membership (n, R·k) that belong to some of the partitions."""
    return from_host([r * k + c for r in runs for c in range(k)], like)


def column_sums(x: Array) -> Array:
    """Return the sums over the rows of x, as a product, which is faster than `sum`."""
    return array_namespace(x).ones((x.shape[0],), dtype=x.dtype, device=device_of(x)) @ x


def identity(x: Array) -> Array:
    """Return an identity matrix with the shape, dtype and device of x."""
    return array_namespace(x).eye(x.shape[0], x.shape[1], dtype=x.dtype, device=device_of(x))
