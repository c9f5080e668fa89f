"""What happens to clusters between two steps, and names that outlast a step in which a cluster is missed.

All of it works on few integers on the host: the number of objects that clusters before (rows) and now
(columns) have in common. Objects that came, left, or belong to no cluster do not count as common.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from affect_xp._parameters import Parameters
from affect_xp._validation import check_fraction, check_int
from affect_xp.exceptions import InputError
from affect_xp.matching import match_clusters
from affect_xp.objects import Ids

Members = Callable[[], Sequence[frozenset[Hashable]]]

KINDS = ("split", "merge", "return", "birth", "death", "growth", "shrink", "continuation")


@dataclasses.dataclass(frozen=True)
class EventRules(Parameters):
    """From where on a change is an event.

    split
        At least two clusters now are parts of one before: each holds at least `part` of its common
        objects, and more than `overlap` of their own common objects come from it.
    merge
        At least two clusters before are parts of one now: each sends it more than `overlap` of its
        common objects, and makes up at least `part` of those it has.
    return
        After steps without a cluster one appears of whose objects more than `overlap` belonged to it,
        and which holds more than `overlap` of those of its objects that are in a cluster now. It gets its
        old name.
    birth, death
        A new name that comes from none of these; a name that ends in none of these.
    growth, shrink, continuation
        A name at both steps. It grows or shrinks when the larger size is at least 1 + `growth` times the
        smaller one.

    Parameters
    ----------
    overlap : float
        From 0.5 on, a cluster is part of at most one other.
    part : float
    growth : float
    max_dormant : int
        The number of steps a cluster may be missing and still return; 0 to forget it at once. The
        ids of its objects are kept that long.
    """

    overlap: float = 0.5
    part: float = 0.25
    growth: float = 0.25
    max_dormant: int = 10

    def check(self) -> None:
        """Raise if a parameter is not valid."""
        check_fraction("overlap", self.overlap)
        check_fraction("part", self.part)
        check_int("max_dormant", self.max_dormant, 0)
        if not self.growth > 0:
            raise InputError(f"growth must be more than 0, got {self.growth}")


DEFAULT_RULES = EventRules()


@dataclasses.dataclass(frozen=True)
class Event:
    """What happened to one or more clusters.

    Attributes
    ----------
    kind : str
        "split", "merge", "return", "birth", "death", "growth", "shrink" or "continuation".
    before, after : tuples of int
        The names of the clusters before and now. A cluster that returns stands in both.
    n_common : int
        The objects they have in common.
    size_before, size_after : int
        The number of objects in the clusters before, all told, and in those now.

    Examples
    --------
    >>> from affect_xp.events import Event
    >>> print(Event("split", (3,), (3, 7), n_common=18, size_before=20, size_after=19))
    cluster 3 (20 objects) split into clusters 3 and 7
    """

    kind: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    n_common: int
    size_before: int
    size_after: int

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(
            before=_named(self.before),
            after=_named(self.after),
            n_common=self.n_common,
            size_before=_counted(self.size_before),
            size_after=_counted(self.size_after),
        )


_SENTENCES = {
    "split": "{before} ({size_before}) split into {after}",
    "merge": "{before} ({size_before}) merged into {after}",
    "return": "{after} returned with {n_common} of its {size_before}",
    "birth": "{after} ({size_after}) appeared",
    "death": "{before} ({size_before}) disappeared",
    "growth": "{after} grew from {size_before} to {size_after}",
    "shrink": "{after} shrank from {size_before} to {size_after}",
    "continuation": "{after} went on with {size_after}",
}


def _named(names: tuple[int, ...]) -> str:
    listed = [str(name) for name in names]
    return (
        f"clusters {', '.join(listed[:-1])} and {listed[-1]}"
        if len(listed) > 1
        else f"cluster {''.join(listed)}"
    )


def _counted(n: int) -> str:
    return f"{n} object{'' if n == 1 else 's'}"


@dataclasses.dataclass(frozen=True)
class Dormant:
    """A cluster that is missing.

    Attributes
    ----------
    name : int
    last_seen : int
        The number of the last step at which it was there.
    members : frozenset of hashables
        The ids of its objects at that step.
    """

    name: int
    last_seen: int
    members: frozenset[Hashable]


@dataclasses.dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of a step, as the next one needs to know them.

    Attributes
    ----------
    names : (k,) int array
        The lasting name of each.
    sizes : (k,) int array
        The number of objects of each; a cluster without any is none.
    fresh : int
        The first name that was never given.
    t : int
        The number of the step.
    dormant : tuple of Dormant
        Missing clusters, the last seen first.
    """

    names: np.ndarray
    sizes: np.ndarray
    fresh: int
    t: int
    dormant: tuple[Dormant, ...] = ()

    @staticmethod
    def none() -> "Clusters":
        """Return what there is before the first step."""
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
    """Name the clusters of a step after those before them, and tell what happened.

    Names follow a maximum-weight one-to-one matching on the number of common objects. If that leaves a
    cluster without a name and some clusters are missing, these are matched too, so that the
    parts of two clusters that were taken for one at a step get their two names back.

    Parameters
    ----------
    before : Clusters
        `Clusters.none()` at the first step.
    table : (k_before, k) array
        Common objects of each cluster before and each now; shape (0, k) at the first step.
    sizes : (k,) array
        The number of objects of each cluster now.
    members_before, members : functions without arguments
        Return the ids of the objects of each cluster, before and now. They are called only when a
        cluster has disappeared, and when one may return.
    rules : EventRules

    Returns
    -------
    now : Clusters
    events : tuple of Event
        In the order of `KINDS`, then of names. Each name, before or now, stands in at least one.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.events import Clusters, follow
    >>> first, _ = follow(Clusters.none(), np.zeros((0, 1)), [9], members_before=list, members=list)
    >>> now, events = follow(first, np.array([[5, 4]]), [5, 6], members_before=list, members=list)
    >>> now.names
    array([0, 1])
    >>> print(*events, sep="\\n")
    cluster 0 (9 objects) split into clusters 0 and 1
    cluster 0 shrank from 9 objects to 5 objects
    """
    table = np.asarray(table).astype(np.int64)
    names = match_clusters(table, before.names, before.fresh)
    returned: dict[int, tuple[Dormant, int]] = {}
    if before.dormant and (names >= before.fresh).any():
        common = _recallable(before.dormant, members(), rules.overlap)
        names = _matched_with_dormant(table, common, before)
        returned = {
            d.name: (d, int(common[i, names == d.name][0]))
            for i, d in enumerate(before.dormant)
            if d.name in names
        }
    now = Clusters(names, np.asarray(sizes).astype(np.int64), before.fresh, before.t + 1)
    events = _events(before, now, table, returned, rules)
    dormant = _dormant(before, now, members_before, rules.max_dormant)
    fresh = max(before.fresh, int(names[now.sizes > 0].max(initial=-1)) + 1)
    return dataclasses.replace(now, fresh=fresh, dormant=dormant), events


def members_of(labels: np.ndarray, ids: Ids, k: int) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each of k clusters; those labelled -1 are in none.

    Examples
    --------
    >>> from affect_xp.events import members_of
    >>> [sorted(names) for names in members_of([0, 1, -1, 0], "abcd", 2)]
    [['a', 'd'], ['b']]
    """
    groups: list[set[Hashable]] = [set() for _ in range(k)]
    for label, name in zip(np.asarray(labels).tolist(), ids, strict=True):
        if label >= 0:
            groups[label].add(name)
    return [frozenset(group) for group in groups]


def _recallable(
    dormant: Sequence[Dormant], members: Sequence[frozenset[Hashable]], overlap: float
) -> np.ndarray:
    """Return the common objects of each missing cluster and each one now, 0 where they are too few."""
    common = np.array([[len(d.members & group) for group in members] for d in dormant])
    here = common.sum(axis=1, keepdims=True)  # objects of the missing cluster that are in any cluster now
    sizes = np.array([len(group) for group in members])
    return np.where((common > overlap * here) & (common > overlap * sizes), common, 0)


def _matched_with_dormant(table: np.ndarray, common: np.ndarray, before: Clusters) -> np.ndarray:
    """Return names for the clusters now from those before and those missing."""
    names = np.append(before.names, [d.name for d in before.dormant])
    # Among equals the cluster that was there a step before comes first, then the one seen last.
    both = np.concatenate([table, common])
    rank = np.append(np.full(len(table), len(common)), np.arange(len(common))[::-1])
    return match_clusters(both * (len(names) ** 2 + 1) + rank[:, None] * (both > 0), names, before.fresh)


def _dormant(
    before: Clusters, now: Clusters, members_before: Members, max_dormant: int
) -> tuple[Dormant, ...]:
    """Return the clusters that are missing now, the last seen first, but for those missing too long."""
    present = now.names[now.sizes > 0]
    gone = _places((before.sizes > 0) & ~np.isin(before.names, present))
    new: list[Dormant] = []
    if gone and max_dormant > 0:
        members = members_before()
        new = [Dormant(int(before.names[c]), before.t, members[c]) for c in gone]
    old = [d for d in before.dormant if d.name not in present and now.t - d.last_seen <= max_dormant]
    return (*new, *old)


def _events(
    before: Clusters,
    now: Clusters,
    table: np.ndarray,
    returned: dict[int, tuple[Dormant, int]],
    rules: EventRules,
) -> tuple[Event, ...]:
    """Return what happened, from the names on both sides and the table of common objects."""
    out, into = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    part_of_before = (table > rules.overlap * into) & (table >= rules.part * out)
    part_of_now = (table > rules.overlap * out) & (table >= rules.part * into)
    events = [
        _event("split", before, now, [c], _places(part_of_before[c]), table)
        for c in range(len(before.names))
        if part_of_before[c].sum() > 1
    ] + [
        _event("merge", before, now, _places(part_of_now[:, d]), [d], table)
        for d in range(len(now.names))
        if part_of_now[:, d].sum() > 1
    ]
    accounted = {name for event in events for name in (*event.before, *event.after)}
    places = {int(name): c for c, name in enumerate(before.names) if before.sizes[c] > 0}
    for d in _places(now.sizes > 0):
        name, size = int(now.names[d]), int(now.sizes[d])
        if name in returned:
            missed, n_common = returned[name]
            events.append(Event("return", (name,), (name,), n_common, len(missed.members), size))
        elif name in places:
            c = places.pop(name)
            kind = _change(int(before.sizes[c]), size, rules.growth)
            events.append(_event(kind, before, now, [c], [d], table))
        elif name not in accounted:
            events.append(_event("birth", before, now, [], [d], table))
    gone = [c for name, c in places.items() if name not in accounted]
    events += [_event("death", before, now, [c], [], table) for c in gone]
    return tuple(sorted(events, key=lambda event: (KINDS.index(event.kind), event.before, event.after)))


def _places(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


def _change(size_before: int, size: int, growth: float) -> str:
    """Return how to call the change in size of a cluster that goes on."""
    if size >= (1 + growth) * size_before:
        return "growth"
    return "shrink" if size_before >= (1 + growth) * size else "continuation"


def _event(
    kind: str, before: Clusters, now: Clusters, rows: Sequence[int], columns: Sequence[int], table: np.ndarray
) -> Event:
    """Return the event of the clusters at these rows and columns of the table."""
    return Event(
        kind,
        tuple(sorted(int(before.names[c]) for c in rows)),
        tuple(sorted(int(now.names[d]) for d in columns)),
        n_common=sum(int(table[c, d]) for c in rows for d in columns),
        size_before=sum(int(before.sizes[c]) for c in rows),
        size_after=sum(int(now.sizes[d]) for d in columns),
    )
