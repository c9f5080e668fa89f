"""Sums of a NumPy array by the labels of its objects, in one read, whatever the number of clusters.

Rows of the same cluster are gathered, a few at a time, and summed while they are in cache:

    (ZᵀW)_c = Σ_{i in c} wᵢ,    (ZᵀQ)_c = Σ_{i in c} qᵢ  with qᵢⱼ = wᵢⱼ²

W is symmetric, so that WZ = (ZᵀW)ᵀ. A product with the one-hot Z takes k multiplications for each entry.
For a given vector v, Wv and Wᵀv are summed in the same pass: they tell whether W is symmetric.
"""

import dataclasses

import numpy as np

from affect_xp.array.threads import own_threads, run_blocks
from affect_xp.partition import Partition

# Rows are gathered so many entries at a time: they stay in cache, and BLAS multiplies them without a copy.
GATHERED_ENTRIES, MIN_GATHERED_ROWS = 2**18, 8
# Independent sums over rows, which threads may make in any order.
N_SUMS = 8


@dataclasses.dataclass(frozen=True, eq=False)
class LabelSums:
    """Sums by label, in float64.

    Attributes
    ----------
    partition : Partition
    wz : (n, k) array
        WZ.
    squares : (k, k) array or None
        Σ wᵢⱼ² over i ≠ j of each block, where it was asked for.
    square_sum : float or None
        Σ wᵢⱼ² over all entries, where squares were asked for.
    right, down : (n,) arrays
        Wv and Wᵀv.
    """

    partition: Partition
    wz: np.ndarray
    squares: np.ndarray | None
    square_sum: float | None
    right: np.ndarray
    down: np.ndarray


@own_threads()
@np.errstate(over="ignore", invalid="ignore")  # where entries, or their squares, are not finite
def label_sums(
    w: np.ndarray, partition: Partition, v: np.ndarray | None = None, *, squares: str = "none"
) -> LabelSums:
    """Return sums of W by label, and of squares those of "blocks", the "total", or "none"."""
    n, k = partition.n, partition.k
    w = w.T if w.flags.f_contiguous else w  # whole rows are quick to fetch
    task = _Task(w, np.where(partition.labels < 0, k, partition.labels), v, squares)  # k: in no cluster
    parts = task.parts(k + 1)  # of each label the same number
    wz, q = np.zeros((len(parts), n)), np.zeros((len(parts), k + 1))
    right, down, totals = np.zeros(n), np.zeros((N_SUMS, n)), np.zeros(N_SUMS)

    n_summed = len(parts) if v is not None or squares != "none" else len(parts) * k // (k + 1)

    def add(s: int) -> None:
        buffers = task.buffers()
        for p in range(s, n_summed, N_SUMS):
            q_p, total = task.add(parts[p], buffers, wz[p], right, down[s])
            q[p] = np.bincount(task.labels, weights=q_p, minlength=k + 1)
            totals[s] += total

    run_blocks(add, range(N_SUMS))
    shape = k + 1, len(parts) // (k + 1)
    wz, q = (x.reshape(*shape, -1).sum(axis=1) for x in (wz, q))
    w_ii = np.diagonal(w).astype(np.float64)
    known = squares == "blocks"
    blocks = q[:k, :k] - np.diag((w_ii * w_ii) @ partition.membership) if known else None
    total = float((q if known else totals).sum()) if squares != "none" else None
    return LabelSums(partition, np.ascontiguousarray(wz[:k].T), blocks, total, right, down.sum(axis=0))


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """What is summed by which labels."""

    w: np.ndarray
    labels: np.ndarray
    v: np.ndarray | None
    squares: str

    @property
    def height(self) -> int:
        """The number of rows that are gathered at a time."""
        return max(MIN_GATHERED_ROWS, GATHERED_ENTRIES // len(self.labels))

    def parts(self, n_labels: int) -> list[np.ndarray]:
        """Return the rows with each label, in several parts where labels are few."""
        order = np.argsort(self.labels, kind="stable")
        ends = np.cumsum(np.bincount(self.labels, minlength=n_labels))
        n_parts = -(-N_SUMS // n_labels)
        return [part for rows in np.split(order, ends[:-1]) for part in np.array_split(rows, n_parts)]

    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return memory for some rows as they are, and in float64."""
        shape = min(self.height, len(self.labels)), len(self.labels)
        narrow = np.empty(shape, self.w.dtype)
        return narrow, narrow if narrow.dtype == np.float64 else np.empty(shape)

    def add(
        self,
        rows: np.ndarray,
        buffers: tuple[np.ndarray, np.ndarray],
        wz: np.ndarray,
        right: np.ndarray,
        down: np.ndarray,
    ) -> tuple[np.ndarray, float]:
        """Add the sum of some rows and its products with v; return the sums of squares by column, and all."""
        q, total, (narrow, wide) = np.zeros_like(wz), 0.0, buffers
        sums = np.empty((1 if self.v is None else 2, len(wz)))
        for start in range(0, len(rows), len(wide)):
            some = rows[start : start + len(wide)]
            x = np.take(self.w, some, axis=0, out=narrow[: len(some)], mode="clip")  # fastest
            if narrow is not wide:
                x = wide[: len(some)]
                np.copyto(x, narrow[: len(some)])
            weights = np.ones((len(sums), len(some)))
            if self.v is not None:
                right[some] = x @ self.v
                weights[1] = self.v[some]
            np.matmul(weights, x, out=sums)
            wz += sums[0]
            if self.v is not None:
                down += sums[1]
            if self.squares == "blocks":
                x *= x
                np.matmul(weights[0], x, out=sums[0])
                q += sums[0]
            elif self.squares == "total":
                flat = x.reshape(-1)
                total += float(flat @ flat)
        return q, total
