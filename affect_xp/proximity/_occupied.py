"""Proximities of a sparse graph with the labels of its objects in many clusters.

Of the k² blocks of a sparse graph most are empty. Only the occupied ones are stored, as arrays with an entry
for each of them and a last one for all other blocks together: O(entries + n) memory, no n×k or k×k array.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.namespace import not_zero
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity.grouped import Grouped, Moves


@dataclasses.dataclass(frozen=True, eq=False)
class OccupiedBlocks:
    """Blocks (c, d) of a partition, by their sorted numbers c·k + d; arrays end with all other blocks."""

    partition: Partition
    keys: np.ndarray

    @functools.cached_property
    def m_c(self) -> np.ndarray:
        """The size of the cluster of the rows of each block; 1 for the other blocks."""
        return np.append(self.partition.sizes[self.keys // self.partition.k], 1.0)

    @functools.cached_property
    def m_d(self) -> np.ndarray:
        """The size of the cluster of the columns of each block; 1 for the other blocks."""
        return np.append(self.partition.sizes[self.keys % self.partition.k], 1.0)

    @functools.cached_property
    def copies(self) -> np.ndarray:
        """How often each value occurs in its block: twice within a cluster, by symmetry."""
        return np.append(1.0 + (self.keys // self.partition.k == self.keys % self.partition.k), 1.0)

    @functools.cached_property
    def counts(self) -> np.ndarray:
        """The number of pairs i ≠ j of each block."""
        m = self.partition.sizes
        counts = self.m_c * (self.m_d - (self.copies - 1))
        counts[-1] = m.sum() * (m.sum() - 1) - counts[:-1].sum()
        return counts

    def transposed(self, x: np.ndarray) -> np.ndarray:
        """Return the value of the block (d, c) in place of that of (c, d)."""
        k = self.partition.k
        return np.append(x[self.places(self.keys % k * k + self.keys // k)], x[-1])

    def places(self, keys: np.ndarray) -> np.ndarray:
        """Return the places of blocks in these arrays."""
        if keys is self.keys:
            return np.arange(len(keys))
        places = np.minimum(np.searchsorted(self.keys, keys), max(0, len(self.keys) - 1))
        known = self.keys[places] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        return np.where(known, places, len(self.keys))

    def matrix(self, x: np.ndarray) -> Any:
        """Return values of blocks as a sparse array, (k, k)."""
        k = self.partition.k
        indptr = np.searchsorted(self.keys, k * np.arange(k + 1))
        return scipy.sparse.csr_array((x[:-1], self.keys % k, indptr), shape=(k, k))


@dataclasses.dataclass(frozen=True, eq=False)
class _Segments:
    """Values sorted by number: the distinct numbers, and how many values each has."""

    keys: np.ndarray
    values: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(number: np.ndarray, values: np.ndarray) -> "_Segments":
        order = np.argsort(number, kind="stable")
        number, values = number[order], values[order].astype(np.float64, copy=False)
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        return _Segments(number[starts], values, np.diff(starts, append=len(number)))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of values with each number."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.add.reduceat(values, starts) if len(values) else np.zeros(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Occupied(Grouped):
    """A sparse W with one partition into many clusters, on the host."""

    shared: OccupiedBlocks | None = None  # the blocks of the arrays, if not those of W
    known_entries: _Segments | None = None  # the stored entries by block

    @functools.cached_property
    def blocks(self) -> OccupiedBlocks:
        """The blocks in the arrays of moments."""
        return self.shared or OccupiedBlocks(self.partition, self._entries.keys)

    def on(self, blocks: Any) -> "Occupied":
        return dataclasses.replace(self, shared=blocks, known_entries=self._entries)

    def together(self, other: Grouped) -> tuple[Grouped, Grouped]:
        """Return both with arrays for the blocks that are occupied in either."""
        assert isinstance(other, Occupied)
        keys = np.union1d(self._entries.keys, other._entries.keys)
        blocks = OccupiedBlocks(self.partition, keys)
        return self.on(blocks), other.on(blocks)

    @functools.cached_property
    def _entries(self) -> _Segments:
        """The stored entries i ≠ j of objects in clusters, by block."""
        if self.known_entries is not None:
            return self.known_entries
        w, label = self.proximity.matrix, self.labels[:, 0]
        rows = np.repeat(np.arange(w.shape[0], dtype=w.indices.dtype), np.diff(w.indptr))
        kept = (rows != w.indices) & (label[rows] >= 0) & (label[w.indices] >= 0)
        return _Segments.of(label[rows[kept]] * self.k + label[w.indices[kept]], w.data[kept])

    @functools.cached_property
    def _row_means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The means of rows within blocks that have an entry: object, place of the block, and mean."""
        wz, label, blocks = self._product, self.labels[:, 0], self.blocks
        i = np.repeat(np.arange(wz.shape[0]), np.diff(wz.indptr))
        kept = (wz.indices < self.k) & (label[i] >= 0)
        i, c, d, sums = i[kept], label[i[kept]], wz.indices[kept].astype(np.int64), wz.data[kept]
        within = c == d
        sums = sums - within * self.diagonal()[i]
        means = sums / not_zero(self.partition.sizes[d] - within)
        return i, blocks.places(c * self.k + d), means

    @functools.cached_property
    def _product(self) -> Any:
        """WZ as a sparse array, (n, k + 1); the last column is for objects without a cluster."""
        w, label = self.proximity.matrix, self.labels[:, 0]
        column = np.where(label >= 0, label, self.k).astype(w.indices.dtype)
        parts = w.data.astype(np.float64), column[w.indices], w.indptr.copy()
        wz = scipy.sparse.csr_array(parts, shape=(w.shape[0], self.k + 1))
        wz.sum_duplicates()
        return wz

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of WZ as an array, (rows, k)."""
        return self._product[which].toarray()[:, : self.k]

    def own(self) -> Array:
        """Return the diagonal of ZᵀWZ, (1, k)."""
        c = np.arange(self.k)
        entries, diagonal = self._entries, self.partition.totals(self.diagonal())
        places = OccupiedBlocks(self.partition, entries.keys).places(c * self.k + c)
        return (np.append(entries.sums(entries.values), 0.0)[places] + diagonal)[None, :]

    def moved(self, labels: Array, moves: Moves) -> Grouped:
        return self.proximity.grouped(labels, self.k)

    def of_runs(self, runs: list[int]) -> Grouped:
        """Return the same groups: there is only one partition."""
        return self

    def block_means(self) -> Array:
        return self.moments()[0]

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        entries, counts = self._entries, self.blocks.counts
        means = self._by_block(entries.sums(entries.values)) / not_zero(counts)
        return means, self._squares(means)

    def distance_to(self, means: Array) -> Array:
        return np.sum(self._squares(means))

    def _squares(self, means: np.ndarray) -> np.ndarray:
        """Return Σ(w − μ)² of each block, from differences: Σ₊ (w − μ)² + (N − n₊) μ²."""
        entries = self._entries
        residuals = entries.values - np.repeat(means[self._places], entries.lengths)
        n_stored = self._by_block(entries.lengths)
        squares = self._by_block(entries.sums(residuals * residuals))
        return squares + (self.blocks.counts - n_stored) * means * means

    @functools.cached_property
    def _places(self) -> np.ndarray:
        return self.blocks.places(self._entries.keys)

    def _by_block(self, values: np.ndarray) -> np.ndarray:
        """Return a value of each block of W in the arrays of all blocks."""
        return np.bincount(self._places, values, len(self.blocks.keys) + 1)

    def row_squares(self, means: Array) -> Array:
        """Return Σᵢ (rᵢd − μ_cd)² over i in c for the means r of rows within blocks, by block."""
        _, at, r = self._row_means
        deviations, size = r - means[at], len(self.blocks.keys) + 1
        squares, n_rows = np.bincount(at, deviations * deviations, size), np.bincount(at, minlength=size)
        return squares + (self.blocks.m_c - n_rows) * means * means  # the other rows have r = 0

    def row_products(self, other: Grouped, source: Array | None = None) -> Array:
        """Return Σᵢ (rᵢd − μ_cd)(sᵢd − ν_cd) over i in c for the means r and s of rows, by block.

        `source` gives the places of objects in the other, which has the same blocks.
        """
        assert isinstance(other, Occupied)
        r, s = self._row_matrix(), other._row_matrix()
        if source is not None:
            s = s[np.where(source >= 0, source, 0)]
            r = r.multiply((source >= 0)[:, None]).tocsr()
        mu, nu = self.block_means(), other.block_means()
        r_sums, s_sums = (x.sum(axis=0) for x in (r, s))
        return r.multiply(s).sum(axis=0) - mu * s_sums - nu * r_sums + self.blocks.m_c * mu * nu

    def _row_matrix(self) -> Any:
        """Return the means of rows within blocks as a sparse array, objects by blocks."""
        i, at, r = self._row_means
        shape = self.proximity.n, len(self.blocks.keys) + 1
        return scipy.sparse.csr_array((r, (i, at)), shape=shape)
