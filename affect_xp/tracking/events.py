"""Names of clusters that keep their meaning over time, and events of clusters between two steps.

The functions work on a small table on the host: t_cd counts the objects that were in cluster c and are now in
cluster d. Objects that arrived, left, or belong to no cluster do not count. A name passes from c to d only if
the two are similar enough (see `matching_weights`), and survives steps in which its cluster is missing.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array.namespace import as_array, from_host, on_input_device, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction, check_int
from affect_xp.exceptions import InputError
from affect_xp.parameters import Parameters
from affect_xp.partition import Ids, as_ids

# Chosen by simulation: bench/cluster_ids.py.
CONTINUITY = 0.4
MIN_SHARE = 0.1


@on_input_device
def match_labels(
    labels: Array,
    previous_labels: Array,
    ids: Iterable[Hashable] | None = None,
    previous_ids: Iterable[Hashable] | None = None,
    *,
    continuity: float = CONTINUITY,
    min_share: float = MIN_SHARE,
) -> Array:
    """Rename clusters after the previous clusters with which they share most objects.

    Ids follow a maximum-weight one-to-one matching on the number of common objects, over the pairs of
    clusters that are similar enough. An unmatched cluster gets a new id, larger than all previous ones.
    Labels of -1 (no cluster) are kept. The labels are copied to the host.

    Parameters
    ----------
    labels, previous_labels : (n,) and (n_previous,) int arrays
    ids, previous_ids : sequences of hashables, optional
        The ids of the objects; by default the same objects in the same order.
    continuity : float
        The minimum similarity of two clusters with the same id, from 0 to 1: the number of common objects
        divided by the geometric mean of both sizes. Only objects that are in a cluster at both
        steps count.
    min_share : float
        The minimum share of common objects in the smaller of the two clusters. All of its objects count here,
        including those that arrived, left, or were in no cluster at the other step.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.match_labels(np.array([1, 1, 0, 0, 2]), np.array([0, 0, 1, 1, 1]))
    array([0, 0, 1, 1, 2])

    Three objects of the first cluster join the third; half of the second splits off and is joined by the
    fourth object of the first. One object of four is not enough to keep an id:

    >>> before = np.repeat([0, 1, 2], [4, 6, 6])
    >>> now = np.repeat([0, 2, 0, 1, 2], [1, 3, 3, 3, 6])
    >>> ax.match_labels(now, before)
    array([3, 2, 2, 2, 3, 3, 3, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    """
    continuity, min_share = check_fraction("continuity", continuity), check_fraction("min_share", min_share)
    now, before = (to_host(as_array(a), reason="matching")[0] for a in (labels, previous_labels))
    now_ids, before_ids = as_ids(ids, len(now)), as_ids(previous_ids, len(before))
    if (ids is None or previous_ids is None) and len(now) != len(before):
        raise InputError(
            f"labels has length {len(now)} and previous_labels {len(before)}; "
            "pass ids and previous_ids if the objects differ"
        )
    position = {name: i for i, name in enumerate(before_ids)}
    common = [(i, position[name]) for i, name in enumerate(now_ids) if name in position]
    here, there = np.array(common, dtype=np.int64).reshape(-1, 2).T
    clusters, c = np.unique(now, return_inverse=True)
    names, p = np.unique(before, return_inverse=True)
    table = np.zeros((len(names), len(clusters)), dtype=np.int64)
    np.add.at(table, (p[there], c[here]), 1)
    known, wanted = names >= 0, clusters >= 0
    fresh = int(names.max(initial=-1)) + 1
    renamed = np.where(wanted, 0, clusters)
    sizes_before, sizes = np.bincount(p, minlength=len(names)), np.bincount(c, minlength=len(clusters))
    table = table[known][:, wanted]
    weights = _weights(table, sizes_before[known], sizes[wanted], continuity, min_share)
    renamed[wanted] = match_clusters(weights, names[known], fresh)
    return from_host(renamed[c], as_array(labels))


def totals(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of common objects of each previous, (k_before, 1), and current cluster, (1, k)."""
    return table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)


def matching_weights(
    table: np.ndarray,
    out: np.ndarray,
    into: np.ndarray,
    smaller: np.ndarray,
    continuity: float,
    min_share: float,
    n_matched: int | None = None,
) -> np.ndarray:
    """Return the weight of each pair of clusters in the matching, 0 if the id must not continue.

    An id passes from c to d only if

        s_cd = t_cd / √(a_c b_d) ≥ continuity   and   t_cd ≥ min_share · min(n_c, n_d)

    where a_c and b_d are the numbers of objects of c and d that are in a cluster at both steps, and n_c and
    n_d are their sizes. s is the cosine similarity of the two clusters as vectors of zeros and ones (the
    Ochiai coefficient). It is 1/√m for a cluster and one of the m equal parts into which it splits, and for a
    cluster that is the union of m equal ones and each of them. It is 1 - p for two clusters of the same size
    that differ in a share p of their objects.

    The weight is t_cd plus a term that sums to less than 1 over a matching. It breaks ties in favour of the
    most similar clusters. `table`, `out`, `into` and `smaller` are t, a, b and min(n_c, n_d). If they list
    pairs and are not tables, `n_matched` is the largest number of pairs in a matching.
    """
    scale = np.sqrt(out * into)
    may_go_on = (table > 0) & (table >= continuity * scale) & (table >= min_share * smaller)
    similarity = table / np.maximum(scale, 1)
    n_matched = min(table.shape) if n_matched is None else n_matched
    return np.where(may_go_on, table + similarity / (1 + n_matched), 0)


def _weights(
    table: Any, sizes_before: np.ndarray, sizes: np.ndarray, continuity: float, min_share: float
) -> Any:
    """Return `matching_weights` of a table; those of a sparse table are sparse."""
    if not scipy.sparse.issparse(table):
        smaller = np.minimum(sizes_before[:, None], sizes)
        return matching_weights(table, *totals(table), smaller, continuity, min_share)
    c, d = table.nonzero()
    out, into = table.sum(axis=1)[c], table.sum(axis=0)[d]
    smaller, most = np.minimum(sizes_before[c], sizes[d]), min(table.shape)
    values = matching_weights(table.data, out, into, smaller, continuity, min_share, most)
    allowed = values > 0
    return scipy.sparse.csr_array((values[allowed], (c[allowed], d[allowed])), shape=table.shape)


def match_clusters(weights: np.ndarray, names: np.ndarray, fresh: int) -> np.ndarray:
    """Return a name for each current cluster, by a one-to-one matching of maximum weight.

    The weights (k_before, k) are those of giving a cluster (column) the name of a previous one (row), 0 if
    not allowed. Clusters that are not matched get new names from `fresh` on.
    """
    matched = np.full(weights.shape[1], -1, dtype=np.int64)
    for rows, columns, part in _independent_parts(weights):
        r, c = scipy.optimize.linear_sum_assignment(part, maximize=True)
        chosen = part[r, c] > 0
        matched[columns[c[chosen]]] = names[rows[r[chosen]]]
    new = matched < 0
    matched[new] = fresh + np.arange(new.sum())
    return matched


def _independent_parts(weights: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows, columns and weights of the parts of a table that can be matched separately."""
    if not scipy.sparse.issparse(weights):
        yield np.arange(weights.shape[0]), np.arange(weights.shape[1]), weights
        return
    k = weights.shape[0]
    rows, columns = weights.nonzero()
    size = sum(weights.shape)
    links = scipy.sparse.coo_array((weights.data, (rows, k + columns)), shape=(size, size))
    _, part = scipy.sparse.csgraph.connected_components(links, directed=False)
    order = np.argsort(part[rows], kind="stable")
    for entries in np.split(order, np.flatnonzero(np.diff(part[rows][order])) + 1):
        some_rows, r = np.unique(rows[entries], return_inverse=True)
        some_columns, c = np.unique(columns[entries], return_inverse=True)
        dense = np.zeros((len(some_rows), len(some_columns)))
        dense[r, c] = weights.data[entries]
        yield some_rows, some_columns, dense


Members = Callable[[], Sequence[frozenset[Hashable]]]

KINDS = ("split", "merge", "return", "birth", "death", "growth", "shrink", "move", "continuation")


@dataclasses.dataclass(frozen=True)
class EventRules(Parameters):
    """Rules for when a cluster keeps its name, and when a change is an event.

    A name passes to a cluster that is similar enough, by `continuity` and `min_share`; a cluster that is
    similar to no previous one gets a new name. The events are

    split
        At least two current clusters are parts of one previous cluster: each contains at least `part` of the
        common objects of the previous cluster, and more than `overlap` of its own common objects come from
        it. One part may keep the name; the others get new names.
    merge
        At least two previous clusters are parts of one current cluster: each sends more than `overlap` of its
        common objects to it, and makes up at least `part` of its common objects. The current cluster may have
        the name of one of them; the other names end.
    return
        A missing cluster returns: more than `overlap` of the objects of a current cluster belonged to it, and
        the current cluster contains more than `overlap` of its objects that are in a cluster now, and at
        least `min_share` of all its objects. It gets its old name.
    birth, death
        A new name, or the end of a name, outside the events above.
    growth, shrink, continuation
        A name at both steps. The cluster grows or shrinks if the larger size is at least 1 + `growth` times
        the smaller one, and larger by at least `min_objects`.
    move
        Objects change from one cluster to another, and the probability that each of them has moved is larger
        than `move`. There is one event for each pair of clusters, and none if probabilities are not known;
        see `Record.moved`.

    Parameters
    ----------
    overlap : float
        At 0.5 or more, a cluster is part of at most one other.
    part : float
    growth : float
    max_dormant : int
        The number of steps a cluster may be missing and still return; 0 to forget it at once. The
        ids of its objects are kept that long.
    continuity : float
        The minimum similarity of consecutive clusters with the same name: the number of common objects,
        divided by the geometric mean of both sizes. Only objects that are in a cluster at both steps count.
        With 0 any common object is enough.
    min_share : float
        The minimum share of common objects in the smaller of the two clusters. All of its objects count here.
    min_objects : int
        The minimum number of objects in a part of a split or a merge, and the minimum change in size of a
        growth or a shrink. With 1, a single object can cause an event.
    move : float
        The probability above which the change of a single object is an event. With 1 there are none.

    Examples
    --------
    >>> import affect_xp as ax
    >>> model = ax.Affect(ax.KMeans(2), events=ax.EventRules(continuity=0.5, max_dormant=0))
    >>> model.events.continuity
    0.5
    """

    overlap: float = 0.5
    part: float = 0.15
    growth: float = 0.25
    max_dormant: int = 10
    continuity: float = CONTINUITY
    min_share: float = MIN_SHARE
    min_objects: int = 2
    move: float = 0.9

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        for name in ("overlap", "part", "continuity", "min_share", "move"):
            check_fraction(name, getattr(self, name))
        check_int("max_dormant", self.max_dormant, 0)
        check_int("min_objects", self.min_objects, 1)
        if not self.growth > 0:
            raise InputError(f"growth must be greater than 0, got {self.growth}")


DEFAULT_RULES = EventRules()


@dataclasses.dataclass(frozen=True)
class Event:
    """An event of one or more clusters.

    Attributes
    ----------
    kind : str
        "split", "merge", "return", "birth", "death", "growth", "shrink", "move" or "continuation".
    before, after : tuples of int
        The names of the previous and the current clusters. A cluster that returns appears in both.
    n_common : int
        The number of common objects. For a birth, the number of its objects that were in some cluster before;
        for a death, the number that are in some cluster now.
    size_before, size_after : int
        The total number of objects in the previous and in the current clusters.
    objects : tuple of hashables
        The ids of the objects of a move, the most probable first; empty for other events.
    probabilities : tuple of float
        The probability that each of them has moved.

    Examples
    --------
    >>> from affect_xp.tracking.events import Event
    >>> print(Event("split", (3,), (3, 7), n_common=18, size_before=20, size_after=19))
    cluster 3 (20 objects) split into clusters 3 and 7
    >>> print(Event("move", (3,), (7,), 2, 20, 19, objects=("ann", "bob"), probabilities=(0.99, 0.95)))
    ann and bob moved from cluster 3 to cluster 7
    """

    kind: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    n_common: int
    size_before: int
    size_after: int
    objects: tuple[Hashable, ...] = ()
    probabilities: tuple[float, ...] = ()

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(
            before=_named(self.before),
            after=_named(self.after),
            n_common=self.n_common,
            came=f", {self.n_common} from other clusters" if self.n_common else "",
            went=f", {self.n_common} now in other clusters" if self.n_common else "",
            size_before=_counted(self.size_before),
            size_after=_counted(self.size_after),
            who=_listed(self.objects),
        )


_SENTENCES = {
    "split": "{before} ({size_before}) split into {after}",
    "merge": "{before} ({size_before}) merged into {after}",
    "return": "{after} returned with {n_common} of its {size_before}",
    "birth": "{after} ({size_after}{came}) appeared",
    "death": "{before} ({size_before}{went}) disappeared",
    "growth": "{after} grew from {size_before} to {size_after}",
    "shrink": "{after} shrank from {size_before} to {size_after}",
    "move": "{who} moved from {before} to {after}",
    "continuation": "{after} continued with {size_after}",
}


MAX_LISTED = 4  # objects in the text of an event


def _named(names: tuple[int, ...]) -> str:
    return f"cluster{'s' if len(names) > 1 else ''} {_joined([str(name) for name in names])}"


def _listed(objects: tuple[Hashable, ...]) -> str:
    listed, n_others = [str(name) for name in objects[:MAX_LISTED]], len(objects) - MAX_LISTED
    return _joined([*listed, f"{n_others} other{'s' if n_others > 1 else ''}"] if n_others > 0 else listed)


def _joined(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""


def _counted(n: int) -> str:
    return f"{n} object{'' if n == 1 else 's'}"


@dataclasses.dataclass(frozen=True)
class Dormant:
    """A cluster that is missing."""

    name: int
    last_seen: int  # the number of the last step at which it was present
    members: frozenset[Hashable]  # the ids of its objects at that step


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of a step, as needed by the next step."""

    names: np.ndarray  # the persistent name of each cluster, (k,)
    sizes: np.ndarray  # the number of objects of each cluster; empty clusters do not count, (k,)
    fresh: int  # the first unused name
    t: int  # the number of the step
    dormant: tuple[Dormant, ...] = ()  # missing clusters, the most recently seen first

    @staticmethod
    def none() -> "Clusters":
        """Return the state before the first step."""
        return Clusters(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), fresh=0, t=-1)


def follow(
    before: Clusters,
    table: np.ndarray,
    sizes: np.ndarray,
    *,
    members_before: Members,
    members: Members,
    rules: EventRules = DEFAULT_RULES,
) -> tuple[Clusters, tuple[Event, ...]]:
    """Name the clusters of a step after the previous ones, and return the events.

    Names follow a maximum-weight one-to-one matching on the number of common objects, over the pairs of
    clusters that are similar enough. If a cluster remains without a name and some clusters are missing,
    the missing ones are matched as well. Two clusters that were merged by mistake at one step thus get both
    names back.

    `table`, (k_before, k), counts the common objects of each previous and each current cluster. The functions
    `members_before` and `members` return the ids of the objects of each of them, and are called only if a
    cluster has disappeared, or may return. Events are in the order of `KINDS`, then of names; each name
    appears in at least one.
    """
    table = (table if scipy.sparse.issparse(table) else np.asarray(table)).astype(np.int64)
    sizes = np.asarray(sizes).astype(np.int64)
    weights = _weights(table, before.sizes, sizes, rules.continuity, rules.min_share)
    names = match_clusters(weights, before.names, before.fresh)
    returned: dict[int, tuple[Dormant, int]] = {}
    if before.dormant and (names >= before.fresh).any():
        common, recalled = _recallable(before.dormant, members(), rules)
        names = _matched_with_dormant(weights, recalled, before)
        returned = {
            d.name: (d, int(common[i, names == d.name][0]))
            for i, d in enumerate(before.dormant)
            if d.name in names
        }
    now = Clusters(names, sizes, before.fresh, before.t + 1)
    events = _events(before, now, table, returned, rules)
    dormant = _dormant(before, now, members_before, rules.max_dormant)
    fresh = max(before.fresh, int(names[now.sizes > 0].max(initial=-1)) + 1)
    return dataclasses.replace(now, fresh=fresh, dormant=dormant), events


def move_events(
    before: Clusters, now: Clusters, labels: tuple[np.ndarray, np.ndarray], moved: np.ndarray, ids: Ids
) -> tuple[Event, ...]:
    """Return one event for each pair of clusters with names that differ, of the objects with moved > 0.

    `labels` are the numbers of the previous and of the current cluster of each object, -1 for none.
    """
    places = np.flatnonzero((moved > 0) & (labels[0] >= 0) & (labels[1] >= 0))
    places = places[np.argsort(-moved[places], kind="stable")]
    old, new = labels[0][places], labels[1][places]
    between: dict[tuple[int, int], list[int]] = {}
    for c, d, i in zip(old.tolist(), new.tolist(), places.tolist(), strict=True):
        if before.names[c] != now.names[d]:
            between.setdefault((c, d), []).append(i)
    events = [
        Event(
            "move",
            (int(before.names[c]),),
            (int(now.names[d]),),
            n_common=len(who),
            size_before=int(before.sizes[c]),
            size_after=int(now.sizes[d]),
            objects=tuple(ids[i] for i in who),
            probabilities=tuple(float(moved[i]) for i in who),
        )
        for (c, d), who in between.items()
    ]
    return tuple(events)


def members_of(labels: np.ndarray, ids: Ids, k: int) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each of k clusters; objects labelled -1 are omitted."""
    groups: list[set[Hashable]] = [set() for _ in range(k)]
    for label, name in zip(np.asarray(labels).tolist(), ids, strict=True):
        if label >= 0:
            groups[label].add(name)
    return [frozenset(group) for group in groups]


def _recallable(
    dormant: Sequence[Dormant], members: Sequence[frozenset[Hashable]], rules: EventRules
) -> tuple[np.ndarray, np.ndarray]:
    """Return the common objects of each missing and each current cluster, and their matching weights."""
    common = np.array([[len(d.members & group) for group in members] for d in dormant])
    here = common.sum(axis=1, keepdims=True)  # objects of the missing cluster that are in any cluster now
    sizes = np.array([len(group) for group in members])
    known = np.array([[len(d.members)] for d in dormant])
    weights = matching_weights(common, here, sizes, known, rules.continuity, rules.min_share)
    most = (common > rules.overlap * here) & (common > rules.overlap * sizes)
    return common, np.where(most, weights, 0)


def _matched_with_dormant(weights: np.ndarray, recalled: np.ndarray, before: Clusters) -> np.ndarray:
    """Return the names of the current clusters, from the previous and the missing ones."""
    names = np.append(before.names, [d.name for d in before.dormant])
    # Ties: clusters of the previous step come first, then the most recently seen one.
    rank = np.append(np.full(weights.shape[0], len(recalled)), np.arange(len(recalled))[::-1])

    def ranked(both: np.ndarray, rank: np.ndarray) -> np.ndarray:
        by_number = np.floor(both) * (len(names) ** 2 + 1) + rank
        return np.where(both > 0, by_number + both % 1 / 2, 0)

    if scipy.sparse.issparse(weights):
        both = scipy.sparse.vstack([weights, scipy.sparse.csr_array(recalled)]).tocsr()
        both.data = ranked(both.data, rank[both.nonzero()[0]])
        return match_clusters(both, names, before.fresh)
    return match_clusters(ranked(np.concatenate([weights, recalled]), rank[:, None]), names, before.fresh)


def _dormant(
    before: Clusters, now: Clusters, members_before: Members, max_dormant: int
) -> tuple[Dormant, ...]:
    """Return the missing clusters, the most recently seen first, without those that are missing too long."""
    present = now.names[now.sizes > 0]
    gone = _places((before.sizes > 0) & ~np.isin(before.names, present))
    new: list[Dormant] = []
    if gone and max_dormant > 0:
        members = members_before()
        new = [Dormant(int(before.names[c]), before.t, members[c]) for c in gone]
    old = [d for d in before.dormant if d.name not in present and now.t - d.last_seen <= max_dormant]
    return (*new, *old)


class _Common:
    """The numbers of common objects of previous and current clusters, from a table or a sparse table."""

    def __init__(self, table: Any) -> None:
        self.table, self.is_sparse = table, scipy.sparse.issparse(table)
        self.out, self.into = np.asarray(table.sum(axis=1)), np.asarray(table.sum(axis=0))

    @functools.cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs of clusters that have common objects, and the numbers of these."""
        c, d = self.table.nonzero()
        return c, d, self.table.data if self.is_sparse else self.table[c, d]

    def between(self, rows: Sequence[int], columns: Sequence[int]) -> int:
        """Return the number of common objects of some clusters; of all, if one side is empty."""
        if not rows:
            return int(self.into[list(columns)].sum())
        if not columns:
            return int(self.out[list(rows)].sum())
        if not self.is_sparse:
            return int(self.table[rows][:, columns].sum())
        total, (indptr, indices) = 0, (self.table.indptr, self.table.indices)
        for c in rows:
            entries = slice(indptr[c], indptr[c + 1])
            total += int(self.table.data[entries][np.isin(indices[entries], columns)].sum())
        return total


def _events(
    before: Clusters,
    now: Clusters,
    table: np.ndarray,
    returned: dict[int, tuple[Dormant, int]],
    rules: EventRules,
) -> tuple[Event, ...]:
    """Return the events, from the names on both sides and the table of common objects."""
    common = _Common(table)
    is_part, has_part = _parts(before, now, common, rules)
    events = [_event("split", before, now, [c], parts, common) for c, parts in _several(is_part)]
    events += [_event("merge", before, now, parts, [d], common) for d, parts in _several(has_part[:, ::-1])]
    accounted = {name for event in events for name in (*event.before, *event.after)}
    places = {int(name): c for c, name in enumerate(before.names) if before.sizes[c] > 0}
    for d in _places(now.sizes > 0):
        name, size = int(now.names[d]), int(now.sizes[d])
        if name in returned:
            missed, n_common = returned[name]
            events.append(Event("return", (name,), (name,), n_common, len(missed.members), size))
        elif name in places:
            c = places.pop(name)
            kind = _change(int(before.sizes[c]), size, rules)
            events.append(_event(kind, before, now, [c], [d], common))
        elif name not in accounted:
            events.append(_event("birth", before, now, [], [d], common))
    gone = [c for name, c in places.items() if name not in accounted]
    events += [_event("death", before, now, [c], [], common) for c in gone]
    return in_order(events)


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events in the order of `KINDS`, then of names."""
    return tuple(sorted(events, key=lambda event: (KINDS.index(event.kind), event.before, event.after)))


def _parts(
    before: Clusters, now: Clusters, common: "_Common", rules: EventRules
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of a previous and a current cluster of which one is a part of the other, two (m, 2).

    First the pairs in which the current one is a part, then those in which the previous one is. A cluster
    that has the name of a third one is never a part, even if it gained or lost many objects.
    """
    out, into, (c, d, t) = common.out, common.into, common.pairs
    enough, same = t >= rules.min_objects, before.names[c] == now.names[d]
    new = ~np.isin(now.names, before.names[before.sizes > 0])
    ended = ~np.isin(before.names, now.names[now.sizes > 0])
    part_of_before = (t > rules.overlap * into[d]) & (t >= rules.part * out[c])
    part_of_now = (t > rules.overlap * out[c]) & (t >= rules.part * into[d])
    pairs = np.stack([c, d], axis=1)
    return pairs[enough & part_of_before & (same | new[d])], pairs[enough & part_of_now & (same | ended[c])]


def _several(pairs: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """Yield each first number of the pairs (m, 2) that occurs more than once, with its second numbers."""
    found: dict[int, list[int]] = {}
    for first, second in pairs.tolist():
        found.setdefault(first, []).append(second)
    yield from ((first, sorted(found[first])) for first in sorted(found) if len(found[first]) > 1)


def _places(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _change(size_before: int, size: int, rules: EventRules) -> str:
    """Return the kind of the change in size of a cluster that continues."""
    smaller, larger = sorted((size_before, size))
    if larger < (1 + rules.growth) * smaller or larger - smaller < rules.min_objects:
        return "continuation"
    return "growth" if size > size_before else "shrink"


def _event(
    kind: str, before: Clusters, now: Clusters, rows: Sequence[int], columns: Sequence[int], common: _Common
) -> Event:
    """Return the event of these rows and columns of the table; `n_common` counts all of an empty side."""
    return Event(
        kind,
        tuple(sorted(int(before.names[c]) for c in rows)),
        tuple(sorted(int(now.names[d]) for d in columns)),
        n_common=common.between(rows, columns),
        size_before=sum(int(before.sizes[c]) for c in rows),
        size_after=sum(int(now.sizes[d]) for d in columns),
    )
