"""What passes from step to step: the state a step leaves, what it found, and what its objects bring along."""

import dataclasses
from typing import Any

from affect_xp.affect.absence import Away, fill_unmet_pairs
from affect_xp.alignment import UNCHANGED, Alignment, Ids, align, positions
from affect_xp.array.namespace import array_namespace, gather
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Count
from affect_xp.partition import Partition
from affect_xp.proximity import Blend, Grouped, ObjectBlend, Proximity
from affect_xp.tracking.events import Clusters, Event


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """What a step leaves for the next.

    Attributes
    ----------
    smoothed : Proximity or None
        Ψ̂ᵗ; None for a method that keeps no past.
    partition : Partition
        The clusters, numbered from 0.
    clusters : Clusters
        Their lasting ids and sizes, the number of the step, and clusters that are missing.
    ids : sequence of hashables
        The objects.
    memory : (n, r) array or None
        What the clusterer left to start from the next time.
    groups : Grouped or None
        Ψ̂ᵗ with the labels of the partition, where their product is known.
    away : Away or None
        What is known of objects that are away, where there are any: they stand behind the others in all of
        the above, and are in no cluster.
    count : Count or None
        The number of clusters, where it was chosen by a rule that needs it at the next step.
    """

    smoothed: Proximity | None
    partition: Partition
    clusters: Clusters
    ids: Ids
    memory: Array | None = None
    groups: Grouped | None = None
    away: Away | None = None
    count: Count | None = None

    @property
    def present(self) -> Ids:
        """The objects that were there."""
        return self.ids if self.away is None else self.ids[: len(self.ids) - self.away.n]

    @property
    def t(self) -> int:
        """The number of the step, from 0."""
        return self.clusters.t


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """What a step found. Ψ̂ᵗ is not formed before `smoothed()` is called.

    Attributes
    ----------
    state : State
        The state after the step, but for Ψ̂ᵗ.
    labels : (n,) int array
        The lasting id of the cluster of each object.
    alphas : tuple of float
        α by iteration; (0.0,) where there is no past.
    events : tuple of Event
        What happened to the clusters since the step before.
    n_iter : int
        Iterations of the clusterer, all told.
    scores : dict or None
        The score of each number of clusters that was tried, where it was chosen.
    observed : Proximity
        Wᵗ.
    blend : Blend, ObjectBlend or None
        Ψ̂ᵗ as a blend of Wᵗ and Ψ̂ᵗ⁻¹; None where there is no past.
    groups : Grouped or None
        Ψ̂ᵗ with the labels of the partition, where their product is known.
    noise, drift : float or None
        The last noise and drift as root mean squares over entries, in the units of W; None where α is not
        estimated. Without a past there is noise alone.
    noise_of_means : float or None
        The noise that is left in the means of blocks, alike; known at steps without a past.
    moved : (n,) array or None
        The probability that each object has changed its cluster since the step before, where it is known.
    """

    state: State
    labels: Array
    alphas: tuple[float, ...]
    events: tuple[Event, ...]
    n_iter: int
    scores: dict[int, float] | None
    observed: Proximity
    blend: Blend | ObjectBlend | None = None
    groups: Grouped | None = None
    noise: float | None = None
    drift: float | None = None
    noise_of_means: float | None = None
    moved: Array | None = None

    def commit(self, *, out: Proximity | None = None) -> State:
        """Return the state after the step, with Ψ̂ᵗ; see `smoothed`."""
        smoothed = self.smoothed(out=out)
        groups = None if self.groups is None else smoothed.carried(self.groups)
        if groups is not None:
            groups = dataclasses.replace(groups, given=self.state.partition)
        return dataclasses.replace(self.state, smoothed=smoothed, groups=groups)

    def smoothed(self, *, out: Proximity | None = None) -> Proximity:
        """Return Ψ̂ᵗ in storage of its own, or in that of `out`, which may be Ψ̂ᵗ⁻¹."""
        formed = self.observed
        if self.blend is not None:
            # By now α is known as a number, which lets a representation drop what has decayed.
            blend = self.blend if self.blend.is_formed else self.blend.at(self.alphas[-1])
            formed = blend.formed(out=out)
        # Not the observed array itself: the caller may fill it again for the next step.
        return formed.copy() if formed is self.observed else formed


@dataclasses.dataclass(frozen=True, eq=False)
class Past:
    """The objects of a step, and what they bring along from the step before."""

    W: Proximity
    ids: Ids
    before: State | None  # the state left by the step before
    t: int = 0  # the number of this step
    alignment: Alignment = UNCHANGED
    start: Partition | None = None  # the clusters they were in; None if none of them was there
    smoothed: Proximity | None = None  # Ψ̂ᵗ⁻¹
    memory: Array | None = None
    groups: Grouped | None = None  # Ψ̂ᵗ⁻¹ with the labels of those that are still there

    @staticmethod
    def of(state: State | None, ids: Ids, W: Proximity) -> "Past":
        """Find the objects of this step in the state left by the one before."""
        if state is None:
            return Past(W, ids, None)
        alignment, memory = align(ids, state.ids, W.like), state.memory
        if alignment.n_common == 0:
            return Past(W, ids, state, state.t + 1)
        if memory is not None and alignment.source is not None:
            memory = gather(memory, alignment.source, fill=0)
        start = state.partition.take(alignment.source, alignment.n_new)
        groups, smoothed = _without_gone(state, alignment), state.smoothed
        if state.away is not None and smoothed is not None:
            source = positions(ids, state.ids)
            smoothed, alignment = fill_unmet_pairs(smoothed, state.away, W, source, alignment)
        return Past(W, ids, state, state.t + 1, alignment, start, smoothed, memory, groups)


def _without_gone(state: State, alignment: Alignment) -> Grouped | None:
    """Return Ψ̂ᵗ⁻¹ without the labels of the objects that left, where its product with them is known."""
    if state.groups is None or not alignment.n_gone:
        return state.groups
    labels: Array = state.groups.labels
    target: Any = alignment.target
    xp = array_namespace(labels)
    there = xp.where((target >= 0)[:, None], labels, -xp.ones_like(labels))
    return state.groups.regrouped(there, alignment.gone())
