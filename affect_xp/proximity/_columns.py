"""The columns of the factor U of W = U diag(s) Uᵀ: features of several steps side by side.

Columns are stored by step and read in blocks of rows, so that U is never copied as a whole.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from affect_xp.array import blas
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    device_of,
    fill_rows,
    for_each_block,
    from_host,
    row_blocks,
    rows_at,
    sorted_segments,
    tall_gram,
    thin_product,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity.grouped import column_sums, membership

# From so many entries of one row of U times one of Z on, rows are added by label instead of multiplied by Z
# (4,000 rows, q = 256, R·k = 1,000: 34 → 4 ms), at least so many rows at a time.
MIN_SUMMED_WORK, SUMMED_ROWS = 2048, 4096
# Larger clusters are processed in pieces of so many objects.
PIECE_ROWS = 2**14


@dataclasses.dataclass(frozen=True, eq=False)
class Factor:
    """Some columns of U: features, with masked rows."""

    x: Array  # (n, p); other factors may hold the same array
    mask: Array | None = None  # (n,), factors of the rows of x, mostly 0 or 1; None for 1
    decay: float = 1.0  # upper bound of the remaining share of the original weight

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.x.shape[1]

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of these columns, in wide floats."""
        x = rows_at(self.x, which)
        if self._is_narrow:
            x = array_namespace(x).astype(x, wide_dtype(x))
        return x if self.mask is None else x * rows_at(self.mask, which)[:, None]

    def rows_as(self, dtype: Any, which: slice | Array) -> Array:
        """Return the same in another precision."""
        if self.mask is None and self.x.dtype == dtype:
            return rows_at(self.x, which)
        return array_namespace(self.x).astype(self.rows(which), dtype, copy=False)

    @functools.cached_property
    def _is_narrow(self) -> bool:
        return bool(self.x.dtype != wide_dtype(self.x))

    def without_new(self, source: Array) -> "Factor":
        """Return the factor with rows of zeros for the objects at which `source` is negative."""
        known = array_namespace(source).astype(source >= 0, wide_dtype(self.x))
        return self.times(known)

    def times(self, mask: Array) -> "Factor":
        """Return the factor with its rows multiplied by numbers, (n,), in wide floats."""
        return dataclasses.replace(self, mask=mask if self.mask is None else mask * self.mask)

    def decayed(self, share: float) -> "Factor":
        """Return the factor with its weight multiplied by `share`."""
        return dataclasses.replace(self, decay=self.decay * share)


Factors = tuple[Factor, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter matrix of columns of U over all objects, about any centre r."""

    centre: Array  # r, (q,)
    sums: Array  # Σᵢ (uᵢ − r)(uᵢ − r)ᵀ, (q, q)

    @property
    def q(self) -> int:
        """The number of columns."""
        return self.centre.shape[0]

    def columns(self, index: Array) -> "Scatter":
        """Return the scatter of some of the columns."""
        xp = array_namespace(self.sums)
        return Scatter(xp.take(self.centre, index), xp.take(xp.take(self.sums, index, axis=0), index, axis=1))

    def plus(self, sums: Array) -> "Scatter":
        """Return the scatter including other rows, given their sums about the same centre."""
        return Scatter(self.centre, self.sums + sums)

    def adding(self, mean: Array, products: Array) -> "Scatter":
        """Return the scatter including further columns, given their means and products with all columns."""
        xp = array_namespace(self.sums)
        left = xp.concat([self.sums, products[: self.q, :].T])
        return Scatter(xp.concat([self.centre, mean]), xp.concat([left, products], axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class Spread:
    """Rows of U about the centroids ū of their clusters: C_c = Σ_{i∈c} (uᵢ − ū_c)(uᵢ − ū_c)ᵀ.

    Products of vectors and matrices are weighted by s.
    """

    centroids: Array  # ū, (k, q)
    across: Array  # ū_cᵀC_d ū_c, (k, k)
    within: Array  # ⟨C_c, C_d⟩, (k, k)
    total: Array  # Σ C_c without weights, (q, q)
    scatters: Array | None  # C_c without weights, (k, q, q), unless larger than U

    @staticmethod
    def of(factors: Factors, s: Array, partition: Partition, centroids: Array) -> "Spread":
        """Sum over all objects with a label."""
        return Spread._from(scatters(factors, partition, centroids), s, partition.n, centroids)

    @staticmethod
    def _from(c: Array, s: Array, n: int, centroids: Array) -> "Spread":
        xp, (k, q) = array_namespace(s), centroids.shape
        flat, weighted = xp.reshape(c, (k, q * q)), s * centroids
        across = fill_rows(
            flat,
            row_blocks(flat),
            lambda rows: xp.sum((weighted @ c[rows, :, :]) * weighted, axis=2),
            xp.empty((k, k), dtype=flat.dtype, device=device_of(flat)),
        )
        are_one = can_sum_rows(s) and bool(np.all(s == 1))
        within = (flat if are_one else flat * xp.reshape(s[:, None] * s, (1, q * q))) @ flat.T
        return Spread(centroids, across.T, within, xp.sum(c, axis=0), c if k * q <= n else None)

    def moved(
        self,
        factors: Factors,
        s: np.ndarray,
        rows: np.ndarray,
        before: Partition,
        now: Partition,
        centroids: np.ndarray,
    ) -> "Spread":
        """Return the same for other labels of some objects, in NumPy. With ū the centroids before,

        C′_c = C_c + Σ_in (uᵢ − ū_c)(uᵢ − ū_c)ᵀ − Σ_out (uᵢ − ū_c)(uᵢ − ū_c)ᵀ − m′_c (ū′_c − ū_c)(ū′_c − ū_c)ᵀ
        """
        before_c: Any = self.scatters
        u, scatters = rows_of(factors, rows), np.empty_like(before_c)
        members = [_by_label(x.labels[rows], now.k) for x in (now, before)]

        def fill(c: int) -> None:
            shift = centroids[c] - self.centroids[c]
            joined, left = (u[index[c]] - self.centroids[c] for index in members)
            scatters[c] = before_c[c] - now.sizes[c] * shift[:, None] * shift
            scatters[c] += joined.T @ joined
            scatters[c] -= left.T @ left

        for_each_block(fill, range(now.k), u)
        return Spread._from(scatters, s, now.n, centroids)


def _by_label(labels: np.ndarray, k: int) -> list[np.ndarray]:
    """Return the places of each label 0 ... k-1."""
    ends = np.cumsum(np.bincount(labels + 1, minlength=k + 1))
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])[1:]


def rows_of(factors: Factors, which: slice | Array) -> Array:
    """Return some rows of U, in wide floats."""
    if len(factors) == 1:
        return factors[0].rows(which)
    return array_namespace(factors[0].x).concat([factor.rows(which) for factor in factors], axis=1)


def scatter_with(factors: Factors, means: Array) -> Array:
    """Return Σ(uᵢ − r)(vᵢ − v̄)ᵀ, (q, p), for the columns v of the last factor and the means r of U."""
    last, p = factors[-1], factors[-1].width
    xp, mean, blocks = array_namespace(means), means[-p:], list(row_blocks(last.x, n_columns=p))
    sums: dict[int, Array] = {}

    def add(block: slice) -> None:
        v = last.rows(block) - mean
        others = [tall_gram(v, f.rows(block)) for f in factors[:-1]]
        # Σ(u − r)vᵀ = Σuvᵀ − r Σvᵀ; Σvᵀ is only rounding, but matters if r is large.
        if others:
            others = [xp.concat(others, axis=1) - column_sums(v)[:, None] * means[:-p]]
        sums[block.start] = xp.concat([*others, tall_gram(v, v)], axis=1)  # (p, q)

    for_each_block(add, blocks, last.x)
    return sum_of_terms(sums[block.start] for block in blocks).T


def project(factors: Factors, v: Array, rows: Array | None = None) -> Array:
    """Return UᵀV, (q, r); with `rows`, U[rows]ᵀ·v."""
    xp, wide = array_namespace(v), wide_dtype(v)
    blocks = list(row_blocks(v, n_columns=_widest(factors, v.shape[1]))) or [slice(0, 0)]
    sums: dict[int, Array] = {}

    def add(block: slice) -> None:
        which = block if rows is None else rows[block]
        part = xp.astype(v[block, :], wide, copy=False)
        sums[block.start] = xp.concat([tall_gram(part, f.rows(which)) for f in factors], axis=1)  # (r, q)

    for_each_block(add, blocks, v)
    return sum_of_terms(sums[block.start] for block in blocks).T


def label_sums(
    factors: Factors, labels: Array, k: int, rows: Array | None = None, weights: Array | None = None
) -> Array:
    """Return UᵀZ, (q, R·k), for labels (n, R) of all objects or those at `rows`, which may have weights."""
    wide, q = wide_dtype(labels), sum(factor.width for factor in factors)
    if not can_sum_rows(labels):
        z = membership(labels, k, wide)
        return project(factors, z if weights is None else z * weights[:, None], rows)
    n_numbers, by_label = labels.shape[1] * k, labels.shape[1] * k * q >= MIN_SUMMED_WORK
    numbers, sums = np.where(labels < 0, -1, labels + k * np.arange(labels.shape[1])), {}
    height = max(SUMMED_ROWS, 4 * n_numbers) if by_label else None  # all sums are smaller than U
    blocks = list(row_blocks(labels, n_columns=max(n_numbers, q), host_rows=height)) or [slice(0, 0)]

    def add(block: slice) -> None:
        parts = [factor.rows(block if rows is None else rows[block]) for factor in factors]
        some = None if weights is None else weights[block]
        if by_label:
            parts = [blas.sums_by_number(part, numbers[block], n_numbers, some) for part in parts]
        else:
            z = membership(labels[block], k, wide)
            z = z if some is None else z * some[:, None]
            parts = [tall_gram(z, part) for part in parts]
        sums[block.start] = np.concatenate(parts, axis=1)  # (R·k, q)

    for_each_block(add, blocks, labels)
    return sum_of_terms(sums[block.start] for block in blocks).T


def combined(factors: Factors, which: slice | Array, b: Array) -> Array:
    """Return some rows of UB, for a thin B, in the precision of B."""
    return sum_of_terms(
        thin_product(factor.rows_as(b.dtype, which), b[columns, :]) for factor, columns in numbered(factors)
    )


def expand(factors: Factors, term: Callable[[Array, slice], Array], n_columns: int) -> Array:
    """Return the sum over factors of term(rows of the factor, its columns in U), (n, n_columns)."""

    def rows(block: slice) -> Array:
        return sum_of_terms(term(factor.rows(block), columns) for factor, columns in numbered(factors))

    return filled(factors, n_columns, wide_dtype(factors[0].x), rows)


def sum_of_terms(terms: Iterator[Array]) -> Array:
    """Return the sum of new arrays, in the memory of the first."""
    total = next(terms)
    for term in terms:
        total += term
    return total


def filled(factors: Factors, n_columns: int, dtype: object, rows_of: Callable[[slice], Array]) -> Array:
    """Return an array with a row for each object, filled by blocks of rows."""
    x = factors[0].x
    out = array_namespace(x).empty((x.shape[0], n_columns), dtype=dtype, device=device_of(x))
    return fill_rows(x, row_blocks(out, n_columns=_widest(factors, n_columns)), rows_of, out)


def numbered(factors: Factors) -> Iterator[tuple[Factor, slice]]:
    """Yield each factor and the slice of its columns in U."""
    start = 0
    for factor in factors:
        yield factor, slice(start, start + factor.width)
        start += factor.width


def _widest(factors: Factors, n_columns: int) -> int:
    """Return the largest number of columns handled at a time."""
    return max(n_columns, *(factor.width for factor in factors))


def scatters(factors: Factors, partition: Partition, centroids: Array) -> Array:
    """Return the scatter Σ(uᵢ − ū_c)(uᵢ − ū_c)ᵀ of each cluster, (k, q, q)."""
    segments = sorted_segments(partition.labels, partition.sizes)
    if segments is None:
        return _scatters_by_membership(factors, partition, centroids)
    return _scatters_by_order(factors, centroids, *segments)


def _scatters_by_order(factors: Factors, centroids: Array, order: Array, ends: np.ndarray) -> Array:
    """Sum over objects in the order of their clusters: nq² operations in all."""
    xp, (k, q) = array_namespace(centroids), centroids.shape
    height = next(row_blocks(centroids, PIECE_ROWS, n_columns=q)).stop
    begins, pieces = np.append(0, ends[:-1]), {}
    if ends[-1] <= height:  # few objects: calls take longer than sums
        own = from_host(np.repeat(np.arange(k), ends - begins), order)
        d = rows_of(factors, order) - xp.take(centroids, own, axis=0)
        parts = [d[start:stop, :] for start, stop in zip(begins.tolist(), ends.tolist(), strict=True)]
        return xp.stack([part.T @ part for part in parts])

    def add(piece: tuple[int, int]) -> None:
        c, start = piece
        total, stop = None, min(start + PIECE_ROWS, int(ends[c]))
        for i in range(start, stop, height):
            d = rows_of(factors, order[i : min(i + height, stop)]) - centroids[c, :]
            total = d.T @ d if total is None else total + d.T @ d
        pieces[piece] = total

    cuts = [[(c, i) for i in range(int(begins[c]), int(ends[c]), PIECE_ROWS)] for c in range(k)]
    for_each_block(add, [piece for some in cuts for piece in some], centroids)
    none = xp.zeros((q, q), dtype=centroids.dtype, device=device_of(centroids))
    return xp.stack([sum_of_terms(pieces.pop(piece) for piece in some) if some else none for some in cuts])


def _scatters_by_membership(factors: Factors, partition: Partition, centroids: Array) -> Array:
    """Multiply by the membership: k times the operations, but no waiting on a device."""
    xp, z, (k, q) = array_namespace(centroids), partition.membership, centroids.shape
    total = xp.zeros((k * q, q), dtype=centroids.dtype, device=device_of(centroids))
    for rows in row_blocks(z, n_columns=k * q):
        d = rows_of(factors, rows) - z[rows, :] @ centroids
        by_cluster = xp.reshape(z[rows, :, None] * d[:, None, :], (d.shape[0], k * q))
        total = total + by_cluster.T @ d
    return xp.reshape(total, (k, q, q))


def eigenpairs(factors: Factors, s: Array) -> tuple[Array, Array]:
    """Return eigenvalues λ of W = U diag(s) Uᵀ, largest |λ| first, and B, (q, ·), with eigenvectors UB.

    With h = √|s|, σ = sign(s) and Uh = QR, they are those of RσRᵀ = EλEᵀ, and QE = WQE/λ = U(hσRᵀE/λ). R is
    slower than UᵀU, but UᵀU would lose half of the digits if weights of both signs cancel.
    """
    xp = array_namespace(s)
    h, sign = xp.sqrt(xp.abs(s)), xp.sign(s)
    r = _triangle(factors, h)
    values, vectors = xp.linalg.eigh((r * sign) @ r.T)
    order = xp.argsort(xp.abs(values), descending=True, stable=True)
    values = xp.take(values, order)
    some = xp.abs(values) > xp.finfo(values.dtype).eps * xp.abs(values[0])
    inverse = xp.where(some, 1 / xp.where(some, values, xp.ones_like(values)), xp.zeros_like(values))
    return values, (h * sign)[:, None] * (r.T @ xp.take(vectors, order, axis=1)) * inverse


def eigenpairs_by_gram(gram: Array, s: Array) -> tuple[Array, Array]:
    """Return the same as `eigenpairs`, from UᵀU if it is known.

    With UᵀU = VDVᵀ the columns of UVD^{-1/2} are orthonormal, so that λ are the eigenvalues of
    D^{1/2}VᵀsVD^{1/2}.
    """
    xp = array_namespace(s)
    d, v = xp.linalg.eigh(gram)
    some = d > xp.finfo(d.dtype).eps * s.shape[0] * d[-1]
    root = xp.sqrt(xp.where(some, d, xp.zeros_like(d)))
    values, vectors = xp.linalg.eigh((v * root).T @ (s[:, None] * v * root))
    order = xp.argsort(xp.abs(values), descending=True, stable=True)
    inverse = xp.where(some, 1 / xp.where(some, root, xp.ones_like(root)), xp.zeros_like(root))
    return xp.take(values, order), (v * inverse) @ xp.take(vectors, order, axis=1)


def _triangle(factors: Factors, h: Array) -> Array:
    """Return R of Uh = QR, (min(n, q), q), from blocks with more rows than columns."""
    xp, q, x = array_namespace(h), h.shape[0], factors[0].x
    width = max(2 * q, next(row_blocks(x, n_columns=q)).stop)
    r = h[:0, None] * h
    for start in range(0, x.shape[0], width):
        rows = rows_of(factors, slice(start, min(start + width, x.shape[0]))) * h
        r = xp.linalg.qr(xp.concat([r, rows]))[1]
    return r


def mapped(factors: Factors, change: Callable[[Array], Array]) -> Factors:
    """Return the factors with their arrays changed; shared arrays stay shared."""
    return tuple(
        factor if factor.mask is None else dataclasses.replace(factor, mask=change(factor.mask))
        for factor in with_features(factors, change)
    )


def with_features(factors: Factors, change: Callable[[Array], Array]) -> Factors:
    """Return the factors with other features and the same masks; shared arrays stay shared."""
    changed = {id(factor.x): factor.x for factor in factors}
    changed = {key: change(x) for key, x in changed.items()}
    return tuple(dataclasses.replace(factor, x=changed[id(factor.x)]) for factor in factors)


def copied(factors: Factors) -> Factors:
    """Return copies of the factors: the caller may overwrite the features for the next step."""
    return mapped(factors, copy_of)


def copy_of(x: Array) -> Array:
    """Return a copy; NumPy arrays are copied by all threads, since fresh memory is slow."""
    if not can_sum_rows(x) or x.ndim == 1:
        return array_namespace(x).asarray(x, copy=True)
    return fill_rows(x, row_blocks(x), lambda rows: x[rows, :])
