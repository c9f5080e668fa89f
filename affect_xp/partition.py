"""A partition of objects into clusters: labels c, membership Z, sizes m."""

import dataclasses
import functools

from affect_xp.array.namespace import (
    array_namespace,
    as_like,
    device_of,
    gather,
    label_counts,
    label_table,
    not_negative,
    one_hot,
    rows_at,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_int
from affect_xp.exceptions import InputError, InputTypeError


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Labels of n objects in clusters 0 ... k-1; the label -1 means no cluster.

    Attributes
    ----------
    labels : (n,) int array
    k : int
        The number of clusters; some may be empty.
    n_outside : int or None
        The number of objects in no cluster, if it is known on the host.
    """

    labels: Array
    k: int
    n_outside: int | None = None

    @property
    def n(self) -> int:
        """The number of objects."""
        return self.labels.shape[0]

    @functools.cached_property
    def membership(self) -> Array:
        """The one-hot membership Z, (n, k), in wide floats."""
        return one_hot(self.labels, self.k, wide_dtype(self.labels))

    @functools.cached_property
    def sizes(self) -> Array:
        """The cluster sizes m = Zᵀ1, (k,), in wide floats."""
        return label_counts(self.labels[:, None], self.k)[0, :]

    def table(self, other: "Partition") -> Array:
        """Return the contingency table with another partition, (k, k')."""
        return label_table(self.labels, self.k, other.labels, other.k)

    @functools.cached_property
    def is_member(self) -> Array:
        """1 for objects in a cluster, 0 for others, (n,), in wide floats."""
        return array_namespace(self.labels).astype(self.labels >= 0, wide_dtype(self.labels))

    @functools.cached_property
    def pair_counts(self) -> Array:
        """The number N of pairs i ≠ j in each block: m_c m_d, and m(m − 1) within a cluster, (k, k)."""
        m = self.sizes
        xp = array_namespace(m)
        eye = xp.eye(self.k, dtype=m.dtype, device=device_of(m))
        return m[:, None] * (m[None, :] - eye)

    @functools.cached_property
    def safe_labels(self) -> Array:
        """Labels valid as indices: 0 in place of -1."""
        return not_negative(self.labels)

    def take(self, index: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the partition of the objects at `index`, where -1 stands for an object without a label.

        `n_unknown` is the number of -1 in `index`, if it is known on the host.
        """
        if index is None:
            return self
        return Partition(gather(self.labels, index, fill=-1), self.k, self._outside(n_unknown))

    def masked(self, known: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the same partition without the labels of the objects at which `known` is negative."""
        if known is None:
            return self
        xp = array_namespace(self.labels)
        labels = xp.where(known >= 0, self.labels, -xp.ones_like(self.labels))
        return Partition(labels, self.k, self._outside(n_unknown))

    def _outside(self, n_unknown: int | None) -> int | None:
        """Return the number of unlabelled objects after `n_unknown` labels are removed."""
        return n_unknown if self.n_outside == 0 else None

    def at(self, which: slice | Array) -> "Partition":
        """Return the partition of some objects, by slice or by index."""
        return Partition(rows_at(self.labels, which), self.k)

    def by_object(self, values: Array) -> Array:
        """Return the entry of `values` (k, ...) for each object's cluster; arbitrary if unlabelled."""
        return array_namespace(values).take(values, self.safe_labels, axis=0)


def fewer_clusters(partition: Partition, k: int) -> Partition:
    """Return a partition into at most k clusters: keep the largest, unlabel the objects of the others."""
    if partition.k == k:
        return partition
    if partition.k < k:
        return Partition(partition.labels, k)
    xp = array_namespace(partition.labels)
    rank = xp.argsort(xp.argsort(partition.sizes, descending=True, stable=True), stable=True)
    stays = rank < k  # (partition.k,)
    number = xp.cumulative_sum(xp.astype(stays, xp.int64)) - 1
    number = xp.where(stays, number, -xp.ones_like(number))
    labels = partition.by_object(number)
    return Partition(xp.where(partition.labels >= 0, labels, partition.labels), k)


def as_partition(
    labels: Array | Partition, n: int, like: Array, n_clusters: int | None = None, name: str = "labels"
) -> Partition:
    """Return labels as a checked `Partition` on the device of `like`.

    The largest label is read to the host, unless `labels` already is a Partition.
    """
    known = isinstance(labels, Partition)
    partition = labels if known else _partition_of(labels, like, n_clusters, name)
    if partition.n != n:
        raise InputError(
            f"{name} has length {partition.n}, but there are {n} objects; give one label for each"
        )
    return partition


def _partition_of(labels: Array, like: Array, n_clusters: int | None, name: str) -> Partition:
    labels = as_like(labels, like, reason=f"{name} of a lazy library")
    xp = array_namespace(labels, like)
    if labels.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got shape {tuple(labels.shape)}")
    if not xp.isdtype(labels.dtype, "integral"):
        raise InputTypeError(f"{name} must be integers, got dtype {labels.dtype}; use astype(int)")
    labels = xp.astype(labels, xp.int64)
    if labels.shape[0] == 0:
        raise InputError(f"{name} is empty; there must be at least one object")
    low, high = to_host(xp.stack([xp.min(labels), xp.max(labels)]), reason=f"range of {name}")[0]
    if low < -1:
        raise InputError(f"{name} must be 0 or more, or -1 for objects without a cluster, got {low}")
    k = max(1, int(high) + 1) if n_clusters is None else check_int("n_clusters", n_clusters, 1)
    if high >= k:
        raise InputError(f"{name} holds {high}, but n_clusters={k} allows 0 to {k - 1} only")
    return Partition(labels, k, 0 if low >= 0 else None)
