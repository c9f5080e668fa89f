"""The objects of a step: their ids, where they were the step before, and their clusters.

A partition into clusters is known by its labels c, membership Z and sizes m.
"""

import dataclasses
import functools
from collections.abc import Hashable, Iterable

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    as_like,
    device_of,
    from_host,
    gather,
    is_array,
    label_counts,
    label_table,
    one_hot,
    places_of,
    rows_at,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_int
from affect_xp.exceptions import InputError, InputTypeError

Ids = tuple[Hashable, ...] | range


def as_ids(ids: Iterable[Hashable] | Array | None, n: int, past_ids: Ids | None = None) -> Ids:
    """Return the ids of n objects, checked; without any, the objects are the rows 0 ... n-1.

    `past_ids` are those of the step before: objects that were named then must be named now.
    """
    if ids is None:
        if past_ids is not None and past_ids != range(n):
            raise InputError(
                f"ids=None, but the step before had {len(past_ids)} objects "
                f"{'with ids' if isinstance(past_ids, tuple) else 'and this one has ' + str(n)}; "
                "pass ids= with each step so that objects can be told apart"
            )
        return range(n)
    if isinstance(ids, range):
        listed: Ids = ids
    elif is_array(ids):
        listed = tuple(to_host(ids, reason="ids are kept on the host")[0].tolist())
    else:
        listed = tuple(getattr(ids, "tolist", lambda: ids)())  # pandas and other indexes know tolist
    if len(listed) != n:
        raise InputError(f"ids has length {len(listed)}, but there are {n} objects; give one id for each row")
    _check_ids(listed)
    return listed


def _check_ids(ids: Ids) -> None:
    if isinstance(ids, range):
        return
    try:
        distinct = len(set(ids))
    except TypeError as error:
        raise InputError(f"ids must be hashable (numbers, strings, tuples), got {ids[0]!r}, ...") from error
    if distinct < len(ids):
        seen: set[Hashable] = set()
        double = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InputError(f"ids must be unique; {double!r} appears more than once")


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """Where the objects of a step stood the step before, and where those of the step before stand now.

    Attributes
    ----------
    source : (n,) int array or None
        Position at t-1 of each object of t, -1 for a new one. None when nothing has changed:
        the same objects in the same order.
    target : (n_past,) int array or None
        Position at t of each object of t-1, -1 for one that left.
    n_common : int
        The number of objects present at both.
    n_new : int
        The number of objects present at t alone.
    """

    source: Array | None
    target: Array | None
    n_common: int
    n_new: int

    @property
    def n_gone(self) -> int:
        """The number of objects present at t-1 alone."""
        return 0 if self.target is None else self.target.shape[0] - self.n_common

    @property
    def unchanged(self) -> bool:
        """Whether the same objects stand there in the same order."""
        return self.source is None

    def new(self) -> Array:
        """Return the positions at t of the objects that were not there before."""
        return places_of(self.source < 0, self.n_new)  # type: ignore[operator]

    def gone(self) -> Array:
        """Return the positions at t-1 of the objects that are there no more."""
        return places_of(self.target < 0, self.n_gone)  # type: ignore[operator]

    def common(self) -> tuple[Array, Array]:
        """Return the positions of the common objects at t and at t-1; only when something has changed."""
        here = places_of(self.source >= 0, self.n_common)  # type: ignore[operator]
        return here, rows_at(self.source, here)


UNCHANGED = Alignment(None, None, n_common=0, n_new=0)


def align(ids: Ids, past_ids: Ids, like: Array) -> Alignment:
    """Find the objects of a step among those of the step before; index arrays go to the device of `like`."""
    if ids == past_ids:
        return Alignment(None, None, n_common=len(ids), n_new=0)
    source = positions(ids, past_ids)
    known = source >= 0
    target = np.full(len(past_ids), -1, dtype=np.int64)
    target[source[known]] = np.flatnonzero(known)
    n_common = int(known.sum())
    return Alignment(from_host(source, like), from_host(target, like), n_common, len(ids) - n_common)


def positions(ids: Ids, past_ids: Ids) -> np.ndarray:
    """Return the position of each id among the past ones, -1 where it is none of them."""
    if isinstance(ids, range) and isinstance(past_ids, range) and ids.step == past_ids.step == 1:
        shifted = np.arange(ids.start - past_ids.start, ids.stop - past_ids.start)
        return np.where((shifted >= 0) & (shifted < len(past_ids)), shifted, -1)
    position = {name: i for i, name in enumerate(past_ids)}
    return np.fromiter((position.get(name, -1) for name in ids), np.int64, len(ids))


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Labels of n objects in clusters 0 ... k-1; an object with the label -1 belongs to none.

    Attributes
    ----------
    labels : (n,) int array
    k : int
        The number of clusters, of which some may be empty.
    n_outside : int or None
        How many objects belong to no cluster, where the host knows.
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
        """The number of objects of each cluster, m = Zᵀ1, (k,), in wide floats."""
        return label_counts(self.labels[:, None], self.k)[0, :]

    def table(self, other: "Partition") -> Array:
        """Return how many objects each cluster shares with each one of another partition, (k, k')."""
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
        """Labels that can be used as indices: 0 in place of -1."""
        xp = array_namespace(self.labels)
        return xp.where(self.labels >= 0, self.labels, xp.zeros_like(self.labels))

    def take(self, index: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the partition of the objects at `index`, -1 standing for an object without a label.

        `n_unknown` tells how many -1 there are, where the host knows.
        """
        if index is None:
            return self
        return Partition(gather(self.labels, index, fill=-1), self.k, self._outside(n_unknown))

    def masked(self, known: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the same partition with the objects at which `known` is negative left unlabelled."""
        if known is None:
            return self
        xp = array_namespace(self.labels)
        labels = xp.where(known >= 0, self.labels, -xp.ones_like(self.labels))
        return Partition(labels, self.k, self._outside(n_unknown))

    def _outside(self, n_unknown: int | None) -> int | None:
        """Return how many objects are unlabelled once `n_unknown` have lost their labels."""
        return n_unknown if self.n_outside == 0 else None

    def at(self, which: slice | Array) -> "Partition":
        """Return the partition of some objects, by slice or by index."""
        return Partition(rows_at(self.labels, which), self.k)

    def by_object(self, values: Array) -> Array:
        """Return for each object the entry of its cluster in `values` (k, ...); any entry if unlabelled."""
        return array_namespace(values).take(values, self.safe_labels, axis=0)


def fewer_clusters(partition: Partition, k: int) -> Partition:
    """Return a partition into at most k clusters: the largest stay, objects of the others are unlabelled."""
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

    The largest label is read to the host, unless `labels` is a Partition already.
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
