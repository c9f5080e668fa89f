"""What an iteration of Lloyd's finds: each object in a cluster, and no cluster empty."""

import dataclasses

import numpy as np

from affect_xp.array.namespace import array_namespace, device_of, one_hot, row_blocks
from affect_xp.array.typing import Array
from affect_xp.proximity import column_sums, membership


@dataclasses.dataclass(frozen=True, eq=False)
class Members:
    """How many objects are in each cluster, and who, where that is small enough to keep."""

    sizes: Array  # m, (R, k)
    z: Array | None  # (n, R·k)

    @staticmethod
    def of(labels: Array, k: int, dtype: object) -> "Members":
        """Count the objects of each cluster, a block of rows at a time."""
        xp, n_runs = array_namespace(labels), labels.shape[1]
        z, sizes = None, xp.zeros((n_runs * k,), dtype=dtype, device=device_of(labels))
        for rows in row_blocks(labels, n_columns=n_runs * k):
            z = membership(labels[rows, :], k, dtype)
            sizes = sizes + column_sums(z)
        whole = z if z is not None and z.shape[0] == labels.shape[0] else None
        return Members(xp.reshape(sizes, (n_runs, k)), whole)

    def of_runs(self, runs: Array) -> "Members":
        """Return the same for some of the runs."""
        return Members(array_namespace(runs).take(self.sizes, runs, axis=0), None)


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
    """Each object in the cluster of its nearest centroid, and what the host needs to know of it."""

    labels: Array  # (n, R)
    members: Members
    n_moved: np.ndarray  # (R,), how many labels have changed
    n_rows: int  # how many objects have moved in any run
    n_reads: int  # how often the host waited
    inertia: np.ndarray  # (R,), of the labels before


def repaired(labels: Array, distance: Array, w_ii: Array) -> Array:
    """Give each empty cluster the object farthest from its centroid, given distances less wᵢᵢ, (n, R, k).

    The nearest object of each cluster stays, so that filling one does not empty another.
    """
    xp = array_namespace(labels)
    n, _, k = distance.shape
    z = one_hot(labels, k, distance.dtype)
    far = xp.full_like(distance, xp.inf)
    own = xp.min(xp.where(z > 0, distance, far), axis=2) + w_ii[:, None]  # (n, R)
    nearest = xp.argmin(xp.where(z > 0, own[:, :, None], far), axis=0)  # (R, k)
    empty = xp.sum(z, axis=0) == 0
    objects = xp.arange(n, dtype=nearest.dtype, device=device_of(labels))
    stays = xp.any((objects[:, None, None] == nearest[None, :, :]) & ~empty[None, :, :], axis=2)
    order = xp.argsort(xp.where(stays, -far[:, :, 0], own), axis=0, descending=True, stable=True)
    rank = xp.argsort(order, axis=0, stable=True)  # (n, R); 0 is the farthest
    n_empty = xp.sum(xp.astype(empty, rank.dtype), axis=1)
    gaps = xp.argsort(xp.astype(~empty, rank.dtype), axis=1, stable=True)  # the empty clusters first
    place = xp.where(rank < k, rank, xp.zeros_like(rank))
    filled = xp.take_along_axis(gaps, place.T, axis=1).T
    return xp.where(rank < n_empty[None, :], xp.astype(filled, labels.dtype), labels)
