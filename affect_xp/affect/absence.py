"""Temporarily absent objects: what is kept of them, and for how long.

The risk of a step is a sum over the observed pairs,

    Σᵢⱼ E(ψ̂ᵢⱼ − ψᵢⱼ)²,   ψ̂ᵢⱼ = α ψ̂ᵢⱼ⁻ + (1 − α) wᵢⱼ

A pair with an absent object has no wᵢⱼ, and no term: there is no new information about it, and its estimate
is unchanged. It does not decay: a smaller value would be a different estimate, not a more cautious one. Its
error grows by the drift of each step that is not observed. When both objects are present again, the pair is
in the sum like all others, with its error in Σ(ψ̂⁻ − E w)², and the one α that minimises the risk of all
pairs is smaller the more has changed in the meantime.

Two objects that were never present together have no estimate. Their entry is 0 until they meet, and then
that of W. Groups of objects that were present at the same steps record which objects have met: usually there
is one group, and all have met.
"""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from affect_xp.array.namespace import array_namespace, device_of, from_host
from affect_xp.array.typing import Array
from affect_xp.partition import Alignment, Partition, positions
from affect_xp.proximity import Proximity

if TYPE_CHECKING:
    from affect_xp.affect.step import State, Step

ABSENT = ("forget", "keep")


@dataclasses.dataclass(frozen=True, eq=False)
class Meetings:
    """Which objects were ever observed together, by groups of objects.

    Examples
    --------
    >>> from affect_xp.affect.absence import Meetings
    >>> first = Meetings.of_all(3)  # a, b, c; next, b and a new object d are present
    >>> second = first.after(here=np.array([1, -1]), away=np.array([0, 2]))
    >>> second.groups, second.met.tolist()
    (array([2, 1, 0, 0]), [[True, False, True], [False, True, True], [True, True, True]])
    """

    groups: np.ndarray  # the group of each object, (n,)
    met: np.ndarray  # whether the objects of two groups have met, (G, G); always within a group

    @staticmethod
    def of_all(n: int) -> "Meetings":
        """Return the meetings after a step at which n objects are present."""
        return Meetings(np.zeros(n, dtype=np.int64), np.ones((1, 1), dtype=bool))

    def among(self, places: np.ndarray) -> "Meetings":
        """Return the meetings of some of the objects."""
        return Meetings(self.groups[places], self.met)._merged()

    def after(self, here: np.ndarray, away: np.ndarray) -> "Meetings":
        """Return the meetings after a step, of the present objects followed by the absent ones.

        Both arguments are positions among the known objects, -1 for a new one.
        """
        known, n_groups = here >= 0, len(self.met)
        # A group of new objects, then the earlier groups, once for present and once for absent objects.
        met = np.zeros((n_groups + 1, n_groups + 1), dtype=bool)
        met[1:, 1:] = self.met
        both = np.tile(met, (2, 2))
        both[: n_groups + 1, : n_groups + 1] = True  # present together
        there = np.where(known, self.groups[here] + 1, 0)
        groups = np.concatenate([there, self.groups[away] + n_groups + 2])
        return Meetings(groups, both)._merged()

    @property
    def all_met(self) -> bool:
        """Whether all objects have met each other."""
        return bool(self.met.all())

    def _merged(self) -> "Meetings":
        """Return the same meetings with as few groups as possible: groups with equal rows are merged."""
        used, groups = np.unique(self.groups, return_inverse=True)
        met = self.met[np.ix_(used, used)]
        rows, first, number = np.unique(met, axis=0, return_index=True, return_inverse=True)
        return Meetings(np.reshape(number, -1)[groups], rows[:, first])


@dataclasses.dataclass(frozen=True, eq=False)
class Away:
    """The absent objects of a state, which follow the present ones."""

    last_seen: np.ndarray  # the step at which each of the m absent objects was last present, (m,)
    meetings: Meetings  # the meetings of all objects, present and absent

    @property
    def n(self) -> int:
        """The number of absent objects."""
        return len(self.last_seen)


def fill_unmet_pairs(
    smoothed: Proximity, away: Away, W: Proximity, source: np.ndarray, alignment: Alignment
) -> tuple[Proximity, Alignment]:
    """Return the past of the objects of W, with W for pairs that have not met, and its alignment.

    `source`, (n,), and `alignment` are the positions of the objects in the past, on the host and on the
    device. Both the past and its alignment are unchanged if all objects have met.
    """
    here = np.flatnonzero(source >= 0)
    meetings = away.meetings.among(source[here])
    if meetings.all_met:
        return smoothed, alignment
    index, places, groups = (from_host(x, W.like) for x in (here, source[here], meetings.groups))
    strangers = np.where(meetings.met, 0.0, 1.0)
    past = smoothed.take(places).add_between_groups(W.take(index), groups, strangers)
    if len(here) == W.n:
        return past, Alignment(None, None, n_common=W.n, n_new=0)
    found = np.where(source >= 0, np.cumsum(source >= 0) - 1, -1)
    return past, dataclasses.replace(alignment, source=from_host(found, W.like), target=index)


def keep_absent(
    before: "State | None", found: "Step", max_absence: int, *, out: Proximity | None = None
) -> "State":
    """Return the state after a step, including objects that are absent for at most `max_absence` steps."""
    if before is None or before.smoothed is None:
        return found.commit(out=out)
    source = positions(found.state.ids, before.ids)
    gone = np.setdiff1d(np.arange(len(before.ids)), source)
    seen = _last_seen(before)
    kept = gone[found.state.t - seen[gone] <= max_absence]
    if len(kept) == 0:
        return found.commit(out=out)
    like = found.observed.like
    smoothed = found.smoothed().with_absent(before.smoothed, from_host(source, like), from_host(kept, like))
    meetings = Meetings.of_all(len(before.ids)) if before.away is None else before.away.meetings
    state = found.state
    return dataclasses.replace(
        state,
        smoothed=smoothed,
        partition=_with_unlabelled(state.partition, len(kept)),
        ids=(*state.ids, *(before.ids[i] for i in kept.tolist())),
        memory=None if state.memory is None else _with_rows(state.memory, len(kept), 0),
        groups=None,
        away=Away(seen[kept], meetings.after(source, kept)),
    )


def _last_seen(state: "State") -> np.ndarray:
    """Return the step at which each object of a state was last present."""
    away = np.empty(0, dtype=np.int64) if state.away is None else state.away.last_seen
    return np.concatenate([np.full(len(state.ids) - len(away), state.t), away])


def _with_unlabelled(partition: Partition, n_more: int) -> Partition:
    """Return a partition with further objects that are in no cluster."""
    outside = None if partition.n_outside is None else partition.n_outside + n_more
    return Partition(_with_rows(partition.labels, n_more, -1), partition.k, outside)


def _with_rows(x: Array, n_more: int, fill: int) -> Array:
    """Return an array with additional rows, filled with a number."""
    xp = array_namespace(x)
    return xp.concat([x, xp.full((n_more, *x.shape[1:]), fill, dtype=x.dtype, device=device_of(x))])
