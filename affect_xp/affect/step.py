"""One AFFECT step as a function of the previous state and the current proximities.

    Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

αᵗ is estimated from the data and the clusters, and the clusters are found on Ψ̂ᵗ, alternating a few times.
"""

import dataclasses
import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.absence import Away, fill_unmet_pairs
from affect_xp.affect.forgetting import Alpha, alpha_at, noise_and_drift, share_of_noise
from affect_xp.affect.initial_labels import alpha_is_insensitive, better_labels, judge
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.affect.movers import (
    MOVE_RATE,
    PairMoments,
    margin_weight,
    move_probability,
    move_probability_by_kernels,
    pair_moments,
)
from affect_xp.array.namespace import (
    array_namespace,
    gather,
    host_value,
    is_array,
    is_on_device,
    keep,
    recorded_labels,
    to_host,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.clustering.base import Call, Change, Clusterer, Clustering, Count
from affect_xp.partition import UNCHANGED, Alignment, Ids, Partition, align, positions
from affect_xp.proximity import Blend, Factored, Grouped, GroupedPair, ObjectBlend, Occupied, Pair, Proximity
from affect_xp.proximity.blend import ObjectGroups, unit_of
from affect_xp.tracking.events import (
    DEFAULT_RULES,
    Clusters,
    Event,
    EventRules,
    follow,
    in_order,
    members_of,
    move_events,
)

INITS = ("auto", "previous", "static")
FORGETTING = ("global", "objects")
# By objects, a step ends when at most this multiple of `alpha_tol` is the share of objects whose cluster
# changes: weights depend on labels only through means over clusters.
LABELS_PER_WEIGHT = 10


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The state after a step, input of the next one. Absent objects follow the others, without a cluster."""

    smoothed: Proximity | None  # Ψ̂ᵗ; None for a method without a past
    partition: Partition
    clusters: Clusters  # their persistent ids and sizes, the number of the step, and missing clusters
    ids: Ids
    memory: Array | None = None  # starting values of the clusterer, (n, r)
    groups: Grouped | None = None  # Ψ̂ᵗ with the labels of the partition, if their product is known
    away: Away | None = None  # the absent objects, if any
    count: Count | None = None  # the number of clusters, if the rule that chose it needs it again

    @property
    def present(self) -> Ids:
        """The objects present at the step."""
        return self.ids if self.away is None else self.ids[: len(self.ids) - self.away.n]

    @property
    def t(self) -> int:
        """The number of the step, from 0."""
        return self.clusters.t


@dataclasses.dataclass(frozen=True, eq=False)
class Options:
    """Options of a step; see `Affect` for the parameters."""

    alpha: Alpha = "estimate"
    n_iter: int = 3
    init: str = "auto"
    correction: str | None = None
    events: EventRules = DEFAULT_RULES
    forgetting: str = "global"
    alpha_tol: float = 0.0
    seed: int = 0

    @staticmethod
    def of(model: Any, seed: int) -> "Options":
        """Return the parameters of a model."""
        names = (field.name for field in dataclasses.fields(Options) if field.name != "seed")
        return Options(**{name: getattr(model, name) for name in names}, seed=seed)

    @property
    def by_labels(self) -> bool:
        """Whether weights depend on labels, so that the step alternates between clusters and weights."""
        return self.by_object or callable(self.alpha) or isinstance(self.alpha, str)

    @property
    def rounds(self) -> int:
        """How often clusters are found, at most."""
        return self.n_iter if self.by_labels else 1

    def is_rough(self, i: int) -> bool:
        """Whether rough clusters are enough in round i: not if another round is improbable."""
        return i + 1 < self.rounds and not (self.by_object and self.init == "previous")

    @property
    def by_object(self) -> bool:
        """Whether objects that have moved forget their past."""
        return self.forgetting == "objects"


DEFAULTS = Options()


def step(
    state: State | None, W: Proximity, ids: Ids, clusterer: Clusterer, options: Options = DEFAULTS
) -> "Step":
    """Return the result of one AFFECT step; arguments are not modified.

    On a device the host waits once for each iteration of the clusterer, once for each comparison of α (at
    most n_iter − 1) or of labels (at most n_iter − 2) that may end the loop early, and once for α and the
    matching. k-means compares α in its first iteration, except in the last round.
    """
    past = Past.of(state, ids, W)
    if past.start is None or past.smoothed is None:
        return _first_step(past, clusterer, options)
    pair = Pair(W, past.smoothed, past.alignment)
    start = pair.group(past.start, past=past.groups)
    call, options = _call(past, options, start), _shortened(options, start, clusterer)
    seen, call, n_iter = _first_labels(start, clusterer, call, options)
    used: list[_Weights] = []
    for i in range(options.rounds):
        weights = _weights_of(options, seen, past.t)
        smoothed, again = weights.blend(pair), dataclasses.replace(call, rough=options.is_rough(i))
        clusters = _clustered(clusterer, smoothed, again, _change(weights, used, options))
        if clusters is None:
            break  # α is the same
        used.append(weights)
        blend, found, n_iter = smoothed, clusters, n_iter + clusters.n_iter
        if i + 1 == options.rounds or _same_labels(found, seen, start, i, options):
            break  # the next weights would be the same
        seen, call = _seen(seen, found), call.after(found)
    if found.rough:
        found = clusterer.cluster(blend, call.from_found(found))
        n_iter += found.n_iter
    alphas, moves = [weights.alpha for weights in used], _moves(clusterer, seen, used[-1])
    return conclude(past, found, Iterations(n_iter, alphas, blend, used[-1].squares, *moves), options.events)


def static_step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    options: Options = DEFAULTS,
    *,
    warm_start: bool = True,
) -> "Step":
    """Cluster the current proximities; the past gives initial labels and cluster ids."""
    past = Past.of(state, ids, W)
    call = _call(past, options) if warm_start else Call(past.t, rng=[options.seed, past.t])
    # The memory of PCM is the eigenvectors alone.
    found = dataclasses.replace(clusterer.cluster(W, call), spectrum=None)
    return conclude(past, found, Iterations(found.n_iter), options.events)


def _first_step(past: "Past", clusterer: Clusterer, options: Options) -> "Step":
    """Return a step of objects without a past; if α is estimated, include the noise."""
    is_estimated = isinstance(options.alpha, str)
    found = clusterer.cluster(past.W.summing_squares() if is_estimated else past.W, _call(past, options))
    if not is_estimated:
        return conclude(past, found, Iterations(found.n_iter), options.events)
    unit = unit_of(past.W)
    W = past.W if unit == 1 else past.W.in_units_of(unit)
    groups = W.group(found.partition) if found.groups is None or unit != 1 else found.groups
    moments = moments_of(groups)
    squares = moments.total_variance(), moments.total(*mean_variances(groups, moments))
    past = dataclasses.replace(past, W=past.W.with_squares_of(groups) if unit == 1 else past.W)
    return conclude(past, found, Iterations(found.n_iter, squares=squares, unit=unit), options.events)


@dataclasses.dataclass(frozen=True, eq=False)
class Past:
    """The objects of a step, and their past."""

    W: Proximity
    ids: Ids
    before: State | None  # the state after the previous step
    t: int = 0  # the number of this step
    alignment: Alignment = UNCHANGED
    start: Partition | None = None  # their previous clusters; None if all objects are new
    smoothed: Proximity | None = None  # Ψ̂ᵗ⁻¹
    memory: Array | None = None
    groups: Grouped | None = None  # Ψ̂ᵗ⁻¹ with the labels of common objects

    @staticmethod
    def of(state: State | None, ids: Ids, W: Proximity) -> "Past":
        """Find the objects of this step in the state after the previous one."""
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
    """Return Ψ̂ᵗ⁻¹ without the labels of objects that left, if its product with the labels is known."""
    if state.groups is None or not alignment.n_gone:
        return state.groups
    labels: Array = state.groups.labels
    target: Any = alignment.target
    return state.groups.regrouped(keep(labels, target, -1), alignment.gone())


@dataclasses.dataclass(frozen=True, eq=False)
class _Seen:
    """Current and past proximities with the labels for α; noise and drift if known."""

    groups: GroupedPair
    sums: tuple[Array, Array] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class _Weights:
    """The weight α of the past, noise and drift, and the probability that objects have moved."""

    alpha: Array | float
    squares: Sequence[Array] = ()
    moved: Array | None = None
    trust: Array | None = None  # in the past of each object; None if equal for all
    moments: PairMoments | None = None

    def blend(self, pair: Pair) -> Blend | ObjectBlend:
        """Return Ψ̂."""
        if self.trust is None:
            return pair.blend(self.alpha)
        sums = None if self.moments is None else (self.moments.partition, *self.moments.plain_sums())
        return ObjectBlend(pair, self.alpha, self.trust, sums)


def _call(past: Past, options: Options, groups: GroupedPair | None = None) -> Call:
    """Return the first call of a clusterer at a step; all calls of a step use the same seed."""
    count = None if past.before is None else past.before.count
    return Call(past.t, past.start, past.memory, rng=[options.seed, past.t], groups=groups, count=count)


def _first_labels(
    start: GroupedPair, clusterer: Clusterer, call: Call, options: Options
) -> tuple[_Seen, Call, int]:
    """Return the labels for the first α, the next call, and the iterations used to find the labels."""
    if options.init == "previous" or not options.by_labels:
        return _Seen(start), call, 0
    found = clusterer.cluster(start.pair.blend(0.0), dataclasses.replace(call, rough=True))
    call = call.knowing(found)
    if found.moved is False:  # static and previous labels are equal
        return _Seen(start), call, found.n_iter
    static = start.relabelled(found.partition, found.groups)
    by_static = options.init == "static" or options.by_object
    seen = _Seen(static) if by_static else _better(start, static)
    return seen, call, found.n_iter


def _better(previous: GroupedPair, static: GroupedPair) -> _Seen:
    """Return the labels with the better α, and their noise and drift."""
    static = static.near(previous)
    judgement = judge(previous.in_units, static.in_units)
    stays = host_value(judgement.stays())
    if stays is not None:
        return _Seen(previous, judgement.previous) if stays else _Seen(static, judgement.static)
    labels, sums = better_labels(judgement, previous.partition, static.partition)
    return _Seen(previous.pair.group(labels), sums)


def _seen(before: _Seen, found: Clustering) -> _Seen:
    """Return current and past proximities with the labels that were found."""
    parts = None if found.groups is None else found.groups.parts
    if parts is None:
        return _Seen(before.groups.relabelled(found.partition))
    return _Seen(parts if parts.given is not None else dataclasses.replace(parts, given=found.partition))


def _weights_of(options: Options, seen: _Seen, t: int) -> _Weights:
    """Return the weights of a step, from the common objects."""
    if not options.by_object:
        return _Weights(*_alpha_of(options, seen, t))
    moments = pair_moments(seen.groups.in_units)
    estimated = isinstance(options.alpha, str)
    alpha = margin_weight(moments) if estimated else _alpha_of(options, seen, t)[0]
    moved = move_probability(moments)
    trust = trust_of(moved, seen.groups.pair.alignment)
    return _Weights(alpha, moments.noise_and_drift() if estimated else (), moved, trust, moments)


def trust_of(moved: Array, alignment: Alignment) -> Array:
    """Return s = 1 − p, (n,): 1 for p ≤ π, which the weight a allows for, and 0 without a past."""
    xp, source = array_namespace(moved), alignment.source
    trust = xp.where(moved > MOVE_RATE, 1 - moved, xp.ones_like(moved))
    return trust if source is None else xp.where(source >= 0, trust, xp.zeros_like(trust))


def labels_agree(found: Partition, before: Partition, alpha_tol: float) -> bool:
    """Return whether weights by objects would hardly change with the labels that were found."""
    return before.agreement(found) >= 1 - LABELS_PER_WEIGHT * alpha_tol


def _moves(clusterer: Clusterer, seen: _Seen, weights: _Weights) -> tuple[Array | None, Array | None]:
    """Return the probability that each object has moved, and the smallest sum of a row over a cluster.

    None if the proximities are not known to be similarities, or are dot products.
    """
    groups = seen.groups
    if weights.moved is not None:
        return weights.moved, None
    if getattr(clusterer, "wants", None) != "similarity" or isinstance(groups.pair.current, Factored):
        return None, None
    if groups.in_units.has_kernels and groups.k > 1:
        return move_probability_by_kernels(groups.in_units)
    if isinstance(groups.current, Occupied):  # too many clusters for n×k arrays
        return None, None
    sums = groups.current.rows(slice(0, groups.pair.current.n))
    xp = array_namespace(sums)
    lowest = host_value(xp.min(sums))
    if lowest is not None and lowest < 0:
        return None, None
    moments = pair_moments(groups.in_units, products=False)
    return move_probability(moments), moments.profiles_and_lowest[1]


def _alpha_of(options: Options, seen: _Seen, t: int) -> tuple[Array | float, Sequence[Array]]:
    """Return the forgetting factor of a step, from the common objects.

    An estimated α is returned with its noise and drift.
    """
    alpha, groups = options.alpha, seen.groups
    if isinstance(alpha, str):
        sums = seen.sums if options.correction is None else None
        if sums is None:
            sums = noise_and_drift(groups.in_units.common, groups.in_units.past, options.correction)
        return share_of_noise(*sums), sums
    if not callable(alpha):
        return alpha_at(alpha, t), ()
    W, past, alignment = groups.pair.current, groups.pair.past, groups.pair.alignment
    labels = groups.partition.labels
    if not alignment.unchanged:
        here, there = alignment.common()
        W, past, labels = W.take(here), past.take(there), array_namespace(labels).take(labels, here)
    given = alpha(W, past, labels, t)
    if is_array(given):
        given = to_host(given, reason="α of a function")[0].item()
    return check_fraction("the forgetting factor returned by alpha", given), ()


def _shortened(options: Options, start: GroupedPair, clusterer: Clusterer) -> Options:
    """Return options without iterations if α is known to vary by at most `alpha_tol` between labels."""
    k = getattr(clusterer, "n_clusters", None)
    is_estimate = isinstance(options.alpha, str) and options.correction is None
    if not is_estimate or not isinstance(k, int):
        return options
    if not alpha_is_insensitive(start.pair, max(k, start.k), options.alpha_tol):
        return options
    return dataclasses.replace(options, init="previous", n_iter=options.n_iter if options.by_object else 1)


def _change(weights: _Weights, used: Sequence[_Weights], options: Options) -> Change | None:
    """Return the change of α, if one up to `alpha_tol` ends the step: not with 0, nor by objects."""
    if not used or options.alpha_tol == 0 or options.by_object:
        return None
    return Change(weights.alpha, used[-1].alpha, options.alpha_tol)


def _clustered(
    clusterer: Clusterer, blend: Blend | ObjectBlend, call: Call, change: Change | None
) -> Clustering | None:
    """Return the clusters of a blend, or None if the change of α is small."""
    if change is None:
        return clusterer.cluster(blend, call)
    if is_array(change.now) and is_on_device(change.now) and hasattr(clusterer, "cluster_if"):
        return clusterer.cluster_if(change, blend, call)
    return clusterer.cluster(blend, call) if change.is_large() else None


def _same_labels(
    found: Clustering, seen: _Seen, start: GroupedPair, iteration: int, options: Options
) -> bool:
    """Return whether the clusters are those α was estimated with: another iteration would change nothing."""
    before = seen.groups.partition
    if options.by_object and options.alpha_tol > 0:
        return labels_agree(found.partition, before, options.alpha_tol)
    if iteration == 0 or options.alpha_tol > 0:
        # Known without waiting if both are the start. Otherwise equality is too unlikely to wait for, or
        # the comparison of α covers it.
        return before is start.partition and found.moved is False
    return found.partition.numbered_like(before).equals(before)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """The result of a step. Ψ̂ᵗ is not formed before `smoothed()` is called."""

    state: State  # after the step, without Ψ̂ᵗ
    labels: Array  # the persistent id of the cluster of each object, (n,)
    alphas: tuple[float, ...]  # α by iteration; (0.0,) if there is no past
    events: tuple[Event, ...]  # the changes of clusters since the previous step
    n_iter: int  # the total number of iterations of the clusterer
    scores: dict[int, float] | None  # of each number of clusters that was tried, if it was selected
    observed: Proximity  # Wᵗ
    blend: Blend | ObjectBlend | None = None  # Ψ̂ᵗ of Wᵗ and Ψ̂ᵗ⁻¹; None if there is no past
    groups: Grouped | None = None  # Ψ̂ᵗ with the labels of the partition, if their product is known
    # Root mean squares over entries, in the units of W, if α is estimated. Without a past there is no drift,
    # and `noise_of_means` is the noise that remains in block means.
    noise: float | None = None
    drift: float | None = None
    noise_of_means: float | None = None
    # The probability that each object has changed its cluster, (n,), if known; on the host.
    moved: np.ndarray | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What a record contains of the clusters and of α, by name."""
        names = "alphas", "labels", "events", "scores", "n_iter"
        return {"k": self.state.partition.k, "alpha": self.alphas[-1]} | {n: getattr(self, n) for n in names}

    def commit(self, *, out: Proximity | None = None) -> State:
        """Return the state after the step, with Ψ̂ᵗ; see `smoothed`."""
        smoothed = self.smoothed(out=out)
        groups = None if self.groups is None else smoothed.carried(self.groups, self.state.partition)
        return dataclasses.replace(self.state, smoothed=smoothed, groups=groups)

    def smoothed(self, *, out: Proximity | None = None) -> Proximity:
        """Return Ψ̂ᵗ in new storage, or in that of `out`, which may be Ψ̂ᵗ⁻¹."""
        formed = self.observed
        if self.blend is not None:
            # α is now known as a number, so a representation can drop negligible terms.
            blend = self.blend if self.blend.is_formed else self.blend.at(self.alphas[-1])
            formed = blend.formed(out=out)
        # Copy the observed array: the caller may overwrite it for the next step.
        return formed.copy() if formed is self.observed else formed


@dataclasses.dataclass(frozen=True, eq=False)
class Iterations:
    """The results of the iterations of a step; α and sums of squares may still be on the device."""

    n_iter: int
    alphas: Sequence[Array | float] = (0.0,)
    blend: Blend | ObjectBlend | None = None
    # Sums over all entries of objects in clusters: noise and drift of the last α, in the units of the blend;
    # or, without a past, noise and the noise of block means, in units of `unit` squared.
    squares: Sequence[Array] = ()
    moved: Array | None = None  # the probability that each object has changed its cluster
    lowest: Array | None = None  # a sum of similarities: if it is negative, the probability has no meaning
    unit: float = 1.0

    def levels(self, squares: Sequence[float], m: float) -> dict[str, float]:
        """Return noise and drift as root mean squares over the m² entries of common objects.

        √(Σ var(nᵢⱼ)) / m,   √(Σ(ψᵢⱼ − E wᵢⱼ)²) / m
        """
        if m == 0 or not squares or not math.isfinite(sum(squares)):
            return {}
        unit = self.unit if self.blend is None else self.blend.pair.unit
        noise, other = (unit * (math.sqrt(max(total, 0.0)) / m) for total in squares)
        if self.blend is not None:
            return {"noise": noise, "drift": other}
        return {"noise": noise, "noise_of_means": other} if noise > 0 else {}


def conclude(past: Past, found: Clustering, result: Iterations, rules: EventRules) -> Step:
    """Match clusters with the previous ones, find events, read α, and return the step."""
    state, partition, n, blend = past.before, found.partition, past.W.n, result.blend
    before = Clusters.none() if state is None else state.clusters
    read = _read(past.start, partition, len(before.names), result)
    labels, sizes = read.labels, read.sizes
    clusters, events = follow(
        before,
        read.table,
        sizes,
        members_before=lambda: [] if state is None else _members(state.partition, state.ids),
        members=lambda: members_of(labels, past.ids, partition.k),
        rules=rules,
    )
    if read.moved is not None:
        sure = np.where(read.moved > rules.move, read.moved, 0)
        moves = move_events(before, clusters, (read.labels_before, labels), sure, past.ids)
        events = in_order((*events, *moves))
    # Assume the same share of objects in clusters for the objects that have a past.
    n_members = (n if blend is None else past.alignment.n_common) * float(sizes.sum()) / n
    memory = found.memory if found.spectrum is None else found.spectrum.vectors  # with guards
    return Step(
        # Drop the cached membership: it would be the largest array of a sparse state.
        state=State(None, dataclasses.replace(partition), clusters, past.ids, memory, count=found.count),
        labels=recorded_labels(np.where(labels >= 0, clusters.names[labels], -1), partition.labels),
        alphas=tuple(read.alphas),
        events=events,
        n_iter=result.n_iter,
        scores=found.scores,
        observed=past.W,
        blend=blend,
        groups=_with_squares(found.groups, blend) if past.W.carries_products else None,
        moved=None if read.moved is None else read.moved.copy(),  # a part of all that was read
        **result.levels(read.squares, n_members),
    )


def _with_squares(groups: Grouped | None, blend: Blend | ObjectBlend | None) -> Grouped | None:
    """Return groups with sums of squares of a blend by objects, which the next step needs, if known."""
    if not isinstance(blend, ObjectBlend) or not isinstance(groups, ObjectGroups):
        return groups
    return dataclasses.replace(groups, earlier=blend.block_squares())


def _members(partition: Partition, ids: Ids) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each cluster; needed only if a cluster disappears or may return."""
    labels = to_host(partition.labels, reason="members of a cluster that comes or goes")[0]
    return members_of(labels, ids, partition.k)


@dataclasses.dataclass(frozen=True, eq=False)
class _Read:
    """The results of a step on the host: of each object, of each cluster, and by iteration."""

    labels: np.ndarray
    labels_before: np.ndarray
    moved: np.ndarray | None  # None if probabilities are not known
    table: Any  # (k_before, k), an array or sparse
    sizes: np.ndarray
    alphas: list[float]
    squares: list[float]


def _read(start: Partition | None, partition: Partition, k_before: int, result: Iterations) -> _Read:
    """Read the contingency table, sizes, all α, squares, labels, and who moved, in one transfer."""
    parts = {"labels": partition.labels, "sizes": partition.sizes}
    table: Any = np.zeros((k_before, partition.k)) if start is None else start.table(partition)
    if start is not None and is_array(table):  # otherwise sparse, on the host
        parts["table"] = table
    if start is not None and result.moved is not None:
        parts |= {"labels_before": start.labels, "moved": result.moved}
    if result.lowest is not None:
        parts["lowest"] = result.lowest
    alphas = [alpha for alpha in result.alphas if is_array(alpha)]  # all of them, or none
    values = to_host(*parts.values(), *alphas, *result.squares, reason="matching clusters, and α")
    read = dict(zip(parts, values, strict=False))
    numbers = [float(value) for value in values[len(parts) :]]
    labels = read["labels"].astype(np.int64, copy=False)
    return _Read(
        labels,
        read.get("labels_before", labels).astype(np.int64, copy=False),
        read.get("moved") if read.get("lowest", 0) >= 0 else None,
        read.get("table", table),
        read["sizes"],
        numbers[: len(alphas)] if alphas else [float(alpha) for alpha in result.alphas],
        numbers[len(alphas) :],
    )
