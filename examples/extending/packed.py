"""A custom representation: the upper triangle of W, with half the memory of `affect_xp.Dense`."""

import dataclasses
from typing import final

import numpy as np

from affect_xp import Proximity


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Packed(Proximity):
    """The entries on and above the diagonal, row by row, as one NumPy array of float64."""

    entries: np.ndarray  # (n(n + 1)/2,)
    size: int

    @staticmethod
    def of(W):
        """Return a symmetric matrix as `Packed`."""
        return Packed(W[np.triu_indices(len(W))].astype(np.float64), len(W))

    def rows(self, index):
        """Return rows of W, (r, n); all other methods use this one."""
        i, j = np.meshgrid(index, np.arange(self.n), indexing="ij")
        low, high = np.minimum(i, j), np.maximum(i, j)
        return self.entries[low * self.n - low * (low - 1) // 2 + high - low]

    def blocks(self, size=256):
        """Yield the indices of blocks of rows."""
        for start in range(0, self.n, size):
            yield np.arange(start, min(start + size, self.n))

    @property
    def n(self):
        """The number of objects."""
        return self.size

    @property
    def like(self):
        """An array that sets the library and device of all results."""
        return self.entries

    def diagonal(self):
        """Return wᵢᵢ, (n,)."""
        i = np.arange(self.n)
        return self.entries[i * self.n - i * (i - 1) // 2]

    def matmul(self, v, rows=None):
        """Return W·V, (n, r); with `rows`, W[:, rows]·v."""
        if rows is not None:
            return self.rows(rows).T @ v
        return np.concatenate([self.rows(block) @ v for block in self.blocks()])

    def block_moments(self, partition):
        """Return μ and Σ(w − μ)² over i ≠ j of each block, both (k, k)."""
        sums = partition.membership.T @ self.matmul(partition.membership)
        sums -= np.diag(self.diagonal() @ partition.membership)
        means = sums / np.maximum(partition.pair_counts, 1)
        return means, self._squares(partition, means)

    def square_distance(self, partition, means):
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})²."""
        return self._squares(partition, means).sum()

    def _squares(self, partition, means):
        """Return Σ_{i≠j} (wᵢⱼ − μ)² of each block, (k, k)."""
        z = partition.membership  # its rows are zero for objects in no cluster
        total = np.zeros((partition.k, partition.k))
        for block in self.blocks():
            x = (
                self.rows(block)
                - means[np.ix_(partition.safe_labels[block], partition.safe_labels)]
            )
            x[np.arange(len(block)), block] = 0  # i ≠ j
            total += z[block].T @ (x * x) @ z
        return total

    def take(self, index):
        """Return the proximities among the objects at `index`."""
        return Packed.of(self.rows(index)[:, index])

    def blend(self, past, alpha, alignment, *, out=None):
        """Return α·past + (1 − α)·W for pairs with a past, and W for the others."""
        if alignment.unchanged:
            return Packed(alpha * past.entries + (1 - alpha) * self.entries, self.n)
        here, there = (
            alignment.common()
        )  # indices of the objects that stayed, now and before
        W = self.rows(np.arange(self.n))
        before = past.rows(there)[:, there]
        W[np.ix_(here, here)] = alpha * before + (1 - alpha) * W[np.ix_(here, here)]
        return Packed.of(W)

    def copy(self):
        """Return a copy with its own storage."""
        return Packed(self.entries.copy(), self.n)
