"""The objects of a step: their ids, where they were the step before, and their clusters.

A partition into clusters is known by its labels c, membership Z and sizes m.
"""

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array.namespace import (
    MANY_CLUSTERS,
    array_namespace,
    as_like,
    can_sum_rows,
    device_of,
    from_host,
    gather,
    is_array,
    keep,
    label_counts,
    label_table,
    label_totals,
    not_negative,
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
    """Return the checked ids of n objects; by default, the row numbers 0 ... n-1.

    `past_ids` are the ids of the previous step: if it had ids, this one needs them too.
    """
    if ids is None:
        if past_ids is not None and past_ids != range(n):
            raise InputError(
                f"ids=None, but the previous step had {len(past_ids)} objects "
                f"{'with ids' if isinstance(past_ids, tuple) else 'and this one has ' + str(n)}; "
                "pass ids= with each step so that objects can be matched"
            )
        return range(n)
    if isinstance(ids, range):
        listed: Ids = ids
    elif is_array(ids):
        listed = tuple(to_host(ids, reason="ids are kept on the host")[0].tolist())
    else:
        listed = tuple(getattr(ids, "tolist", lambda: ids)())  # such as a pandas Index
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
    """Positions of the objects of step t in step t-1, and the reverse."""

    # Position at t-1 of each object of t, (n,), -1 for a new one. None if objects and order are the same.
    source: Array | None
    target: Array | None  # position at t of each object of t-1, (n_past,), -1 for one that left
    n_common: int  # the number of objects present at both steps
    n_new: int  # the number of objects present only at t
    new_places: Array | None = None  # the positions of objects present only at t, if known
    gone_places: Array | None = None  # the positions of objects present only at t-1, if known

    @property
    def n_gone(self) -> int:
        """The number of objects present only at t-1."""
        return 0 if self.target is None else self.target.shape[0] - self.n_common

    @property
    def unchanged(self) -> bool:
        """Whether the objects and their order are the same at both steps."""
        return self.source is None

    def new(self) -> Array:
        """Return the positions at t of the new objects."""
        known = self.new_places
        return places_of(self.source < 0, self.n_new) if known is None else known  # type: ignore[operator]

    def gone(self) -> Array:
        """Return the positions at t-1 of the objects that left."""
        known = self.gone_places
        return places_of(self.target < 0, self.n_gone) if known is None else known  # type: ignore[operator]

    def common(self) -> tuple[Array, Array]:
        """Return the positions of the common objects at t and at t-1; requires that something changed."""
        here = places_of(self.source >= 0, self.n_common)  # type: ignore[operator]
        return here, rows_at(self.source, here)


UNCHANGED = Alignment(None, None, n_common=0, n_new=0)


def align(ids: Ids, past_ids: Ids, like: Array) -> Alignment:
    """Match the objects of a step with those of the previous step; indices go to the device of `like`."""
    if ids == past_ids:
        return Alignment(None, None, n_common=len(ids), n_new=0)
    source = positions(ids, past_ids)
    known = source >= 0
    target = np.full(len(past_ids), -1, dtype=np.int64)
    target[source[known]] = np.flatnonzero(known)
    n_common = int(known.sum())
    places = (from_host(np.flatnonzero(x < 0), like) for x in (source, target))
    return Alignment(from_host(source, like), from_host(target, like), n_common, len(ids) - n_common, *places)


def positions(ids: Ids, past_ids: Ids) -> np.ndarray:
    """Return the position of each id among the past ids, -1 if it is not among them."""
    if isinstance(ids, range) and isinstance(past_ids, range) and ids.step == past_ids.step == 1:
        shifted = np.arange(ids.start - past_ids.start, ids.stop - past_ids.start)
        return np.where((shifted >= 0) & (shifted < len(past_ids)), shifted, -1)
    position = {name: i for i, name in enumerate(past_ids)}
    return np.fromiter((position.get(name, -1) for name in ids), np.int64, len(ids))


@dataclasses.dataclass(frozen=True, eq=False)
class Partition:
    """Labels of n objects in clusters 0 ... k-1; the label -1 means no cluster."""

    labels: Array  # (n,)
    k: int  # the number of clusters; some may be empty
    n_outside: int | None = None  # the number of objects in no cluster, if it is known on the host

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

    def totals(self, values: Array) -> Array:
        """Return the sum of a value of each object, (n,), over each cluster, (k,)."""
        if can_sum_rows(self.labels) or self.k > MANY_CLUSTERS:
            return label_totals(values, self.labels, self.k)
        return values @ self.membership

    def table(self, other: "Partition") -> Any:
        """Return the contingency table with another partition, (k, k'); sparse for many clusters."""
        return label_table(self.labels, self.k, other.labels, other.k)

    def equals(self, other: "Partition") -> bool:
        """Return whether all labels are the same; on a device the host waits once."""
        same = array_namespace(self.labels).all(self.labels == other.labels)
        return self.k == other.k and bool(to_host(same, reason="have labels changed?")[0])

    def agreement(self, other: "Partition") -> float:
        """Return the share of objects that are with most of their cluster in the other partition too.

        It is the smaller one of both directions, over the objects with labels in both, and does not depend on
        the numbers of clusters. On a device the host waits once.
        """
        table = self.table(other)
        if is_array(table):  # otherwise sparse, on the host
            table = to_host(table, reason="have labels changed?")[0]
        kept = min(table.max(axis=1).sum(), table.max(axis=0).sum())
        return float(kept) / max(1.0, float(table.sum()))

    def numbered_like(self, other: "Partition") -> "Partition":
        """Return the same clusters with the numbers of those that they share most objects with.

        Unchanged for libraries other than NumPy, where the host would wait, and for many clusters.
        """
        if not can_sum_rows(self.labels) or self.k != other.k or self.k > MANY_CLUSTERS:
            return self
        _, number = scipy.optimize.linear_sum_assignment(self.table(other), maximize=True)
        return Partition(np.where(self.labels < 0, -1, number[self.labels]), self.k, self.n_outside)

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
    def short_labels(self) -> Array:
        """Labels as 16-bit integers, which kernels keep in cache."""
        xp = array_namespace(self.labels)
        return xp.astype(self.labels, xp.int16)

    @functools.cached_property
    def safe_labels(self) -> Array:
        """Labels valid as indices: 0 in place of -1."""
        return not_negative(self.labels)

    def take(self, index: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the partition of the objects at `index`, where -1 means an object without a label.

        `n_unknown` is the number of -1 in `index`, if it is known on the host.
        """
        if index is None:
            return self
        return Partition(gather(self.labels, index, fill=-1), self.k, self._outside(n_unknown))

    def masked(self, known: Array | None, n_unknown: int | None = None) -> "Partition":
        """Return the same partition without the labels of the objects at which `known` is negative."""
        if known is None:
            return self
        return Partition(keep(self.labels, known, -1), self.k, self._outside(n_unknown))

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
    return Partition(labels_by_number(partition, [k])[:, 0], k)


def labels_by_number(partition: Partition, numbers: Sequence[int]) -> Array:
    """Return the labels of `fewer_clusters` for each of R numbers of clusters, (n, R)."""
    xp, m = array_namespace(partition.labels), partition.sizes
    rank = xp.argsort(xp.argsort(m, descending=True, stable=True), stable=True)
    stays = rank[:, None] < from_host(numbers, m)[None, :]  # (partition.k, R)
    number = xp.cumulative_sum(xp.astype(stays, xp.int64), axis=0) - 1
    number = xp.where(stays, number, -xp.ones_like(number))
    return keep(partition.by_object(number), partition.labels, -1)


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
