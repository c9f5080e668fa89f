"""One AFFECT step as a function of the state before it and of what is observed.

    Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

with αᵗ estimated from the data by the clusters, and the clusters found on Ψ̂ᵗ, in turn, a few times.
"""

import dataclasses
import math
from collections.abc import Hashable, Sequence

import numpy as np

from affect_xp.affect.forgetting import Alpha, alpha_at, noise_and_drift, share_of_noise
from affect_xp.affect.initial_labels import better_labels, judge
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.affect.movers import margin_weight, move_probability, pair_moments
from affect_xp.affect.sensitivity import alpha_is_insensitive
from affect_xp.affect.state import Past, State, Step
from affect_xp.alignment import Ids
from affect_xp.array.namespace import array_namespace, is_array, is_at_hand, smallest_int, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.clustering.base import Call, Clusterer, Clustering
from affect_xp.partition import Partition
from affect_xp.proximity import Blend, Factored, GroupedPair, ObjectBlend, Pair, Proximity
from affect_xp.proximity.blend import unit_of
from affect_xp.tracking.events import DEFAULT_RULES, Clusters, EventRules, follow, members_of

INITS = ("auto", "previous", "static")
FORGETTING = ("global", "objects")


@dataclasses.dataclass(frozen=True, eq=False)
class Options:
    """How a step is taken; see `Affect` for the parameters."""

    alpha: Alpha = "estimate"
    n_iter: int = 3
    init: str = "auto"
    correction: str | None = None
    events: EventRules = DEFAULT_RULES
    forgetting: str = "global"
    alpha_tol: float = 0.0
    seed: int = 0

    @property
    def by_labels(self) -> bool:
        """Whether weights depend on labels, so that clusters and weights are found in turn."""
        return self.by_object or callable(self.alpha) or isinstance(self.alpha, str)

    @property
    def by_object(self) -> bool:
        """Whether objects that have moved forget their past."""
        return self.forgetting == "objects"


DEFAULTS = Options()


@dataclasses.dataclass(frozen=True, eq=False)
class _Seen:
    """The present and the past by the labels that α is estimated with; noise and drift where known."""

    groups: GroupedPair
    sums: tuple[Array, Array] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class _Weights:
    """The weight α of the past, noise and drift, and the probability that objects have moved."""

    alpha: Array | float
    squares: Sequence[Array] = ()
    moved: Array | None = None
    trust: Array | None = None  # of the past of each object; None where it is the same for all

    def blend(self, pair: Pair) -> Blend | ObjectBlend:
        """Return Ψ̂."""
        return pair.blend(self.alpha) if self.trust is None else ObjectBlend(pair, self.alpha, self.trust)


def step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    options: Options = DEFAULTS,
) -> Step:
    """Return what one AFFECT step finds, leaving its arguments as they are.

    On a device the host waits once for each iteration of the clusterer, once for each comparison of α (at
    most n_iter − 1) or of labels (at most n_iter − 2) that may end the loop early, once for a sample of W,
    and once for α and the matching.
    """
    past = Past.of(state, ids, W)
    if past.start is None or past.smoothed is None:
        return _first_step(past, clusterer, options)
    pair = Pair(W, past.smoothed, past.alignment)
    start = pair.group(past.start, past=past.groups)
    call = _call(past, options, start)
    if _labels_hardly_matter(start, clusterer, options):
        options = dataclasses.replace(options, init="previous", n_iter=1)
    seen, n_runs = _first_labels(start, clusterer, call, options)
    weights, alphas = _weights_of(options, seen, past.t), []
    rounds = options.n_iter if options.by_labels else 1
    for i in range(rounds):
        alphas.append(weights.alpha)
        blend = weights.blend(pair)
        found = clusterer.cluster(blend, dataclasses.replace(call, rough=i + 1 < rounds))
        n_runs += found.n_iter
        if i + 1 == rounds or _same_labels(found, seen, start, i, options):  # the next α would be the same
            break
        seen, call = _seen(pair, found), call.after(found)
        before, weights = weights, _weights_of(options, seen, past.t)
        if _same_alpha(weights, before, options):
            weights = before
            break
    if found.rough:
        found = clusterer.cluster(blend, call.from_found(found))
        n_runs += found.n_iter
    moved, lowest = _moved(clusterer, seen) if weights.moved is None else (weights.moved, None)
    unit = pair.unit if weights.squares else 1.0
    result = Iterations(n_runs, alphas, blend, weights.squares, unit, moved, lowest)
    return conclude(past, found, result, options.events)


def static_step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    options: Options = DEFAULTS,
    *,
    warm_start: bool = True,
) -> Step:
    """Cluster what is observed; the past serves to start from and to name the clusters."""
    past = Past.of(state, ids, W)
    call = _call(past, options) if warm_start else Call(past.t, rng=[options.seed, past.t])
    found = clusterer.cluster(W, call)
    return conclude(past, found, Iterations(found.n_iter), options.events)


def _first_step(past: Past, clusterer: Clusterer, options: Options) -> Step:
    """Return a step of objects without a past; where α is estimated, its noise is read with the rest."""
    found = clusterer.cluster(past.W, _call(past, options))
    if not isinstance(options.alpha, str):
        return conclude(past, found, Iterations(found.n_iter), options.events)
    unit = unit_of(past.W)
    W = past.W if unit == 1 else past.W.in_units_of(unit)
    groups = W.group(found.partition) if found.groups is None or unit != 1 else found.groups
    moments = moments_of(groups)
    squares = moments.total_variance(), moments.total(*mean_variances(groups, moments))
    return conclude(past, found, Iterations(found.n_iter, squares=squares, unit=unit), options.events)


@dataclasses.dataclass(frozen=True, eq=False)
class Iterations:
    """What the iterations of a step have found; α and sums of squares may still be on the device."""

    n_iter: int
    alphas: Sequence[Array | float] = (0.0,)
    blend: Blend | ObjectBlend | None = None
    # Sums over all entries of objects in clusters, in squares of `unit`: noise and drift of which the last α
    # is a share; or, without a past, noise and the noise of the means of blocks.
    squares: Sequence[Array] = ()
    unit: float = 1.0
    moved: Array | None = None  # the probability that each object has changed its cluster
    lowest: Array | None = None  # a sum of similarities: if it is negative, the probability has no meaning

    def levels(self, squares: Sequence[float], m: float) -> dict[str, float]:
        """Return noise and drift as root mean squares over the m² entries of common objects.

        √(Σ var(nᵢⱼ)) / m,   √(Σ(ψᵢⱼ − E wᵢⱼ)²) / m
        """
        if m == 0 or not squares or not math.isfinite(sum(squares)):
            return {}
        noise, other = (self.unit * (math.sqrt(max(total, 0.0)) / m) for total in squares)
        if self.blend is not None:
            return {"noise": noise, "drift": other}
        return {"noise": noise, "noise_of_means": other} if noise > 0 else {}


def _call(past: Past, options: Options, groups: GroupedPair | None = None) -> Call:
    """Return the first call of a clusterer at a step; all calls of a step draw the same random numbers."""
    count = None if past.before is None else past.before.count
    return Call(past.t, past.start, past.memory, rng=[options.seed, past.t], groups=groups, count=count)


def _first_labels(
    start: GroupedPair, clusterer: Clusterer, call: Call, options: Options
) -> tuple[_Seen, int]:
    """Return the labels of the first α, and the iterations it took to find them."""
    if options.init == "previous" or not options.by_labels:
        return _Seen(start), 0
    found = clusterer.cluster(start.pair.blend(0.0), dataclasses.replace(call, rough=True))
    if found.moved is False:  # both labels are the same
        return _Seen(start), found.n_iter
    static = start.pair.group(found.partition, current=found.groups)
    by_static = options.init == "static" or options.by_object
    seen = _Seen(static) if by_static else _better(start, static)
    return seen, found.n_iter


def _better(previous: GroupedPair, static: GroupedPair) -> _Seen:
    """Return the labels whose α is the better one, and noise and drift by them."""
    judgement = judge(previous.in_units, static.in_units)
    if is_at_hand(static.labels):
        if judgement.stays():
            return _Seen(previous, judgement.previous)
        return _Seen(static, judgement.static)
    labels, sums = better_labels(judgement, previous.partition, static.partition)
    return _Seen(previous.pair.group(labels), sums)


def _seen(pair: Pair, found: Clustering) -> _Seen:
    """Return the present and the past by the labels that were found."""
    parts = None if found.groups is None else found.groups.parts
    if parts is None:
        return _Seen(pair.group(found.partition))
    return _Seen(parts if parts.given is not None else dataclasses.replace(parts, given=found.partition))


def _weights_of(options: Options, seen: _Seen, t: int) -> _Weights:
    """Return the weights of a step, from the objects present now and before."""
    if not options.by_object:
        return _Weights(*_alpha_of(options, seen, t))
    moments = pair_moments(seen.groups.in_units)
    estimated = isinstance(options.alpha, str)
    alpha = margin_weight(moments) if estimated else _alpha_of(options, seen, t)[0]
    moved, source = move_probability(moments), seen.groups.pair.alignment.source
    trust = 1 - moved
    if source is not None:
        trust = array_namespace(trust).where(source >= 0, trust, 0 * trust)
    return _Weights(alpha, moments.noise_and_drift() if estimated else (), moved, trust)


def _moved(clusterer: Clusterer, seen: _Seen) -> tuple[Array | None, Array | None]:
    """Return the probability that each object has moved, and the smallest sum of a row over a cluster.

    None where proximities are not known to be similarities, or are dot products.
    """
    groups = seen.groups
    if getattr(clusterer, "wants", None) != "similarity" or isinstance(groups.pair.current, Factored):
        return None, None
    moments = pair_moments(groups.in_units, products=False)
    xp = array_namespace(moments.rows)
    lowest = xp.minimum(xp.min(moments.rows), xp.min(moments.past_rows))
    return move_probability(moments), lowest


def _alpha_of(options: Options, seen: _Seen, t: int) -> tuple[Array | float, Sequence[Array]]:
    """Return the forgetting factor of a step, from the objects present now and before.

    An α that is estimated comes with the sum of which it is a share.
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


def _labels_hardly_matter(start: GroupedPair, clusterer: Clusterer, options: Options) -> bool:
    """Tell whether α by labels of as many clusters as before is known to be the same up to `alpha_tol`."""
    k = getattr(clusterer, "n_clusters", None)
    is_estimate = isinstance(options.alpha, str) and options.correction is None and not options.by_object
    if not is_estimate or not isinstance(k, int):
        return False
    return alpha_is_insensitive(start.pair, max(k, start.k), options.alpha_tol)


def _same_alpha(weights: _Weights, before: _Weights, options: Options) -> bool:
    """Tell whether the weights are the same as before up to `alpha_tol`; with 0 they are not looked at."""
    if options.alpha_tol == 0:
        return False
    changes = [abs(weights.alpha - before.alpha)]
    if weights.trust is not None and before.trust is not None:
        xp = array_namespace(weights.trust)
        changes.append(xp.max(xp.abs(weights.trust - before.trust)))
    if any(is_array(change) for change in changes):
        on_device = [change for change in changes if is_array(change)]
        changes = [c for c in changes if not is_array(c)] + [*to_host(*on_device, reason="has α changed?")]
    return all(bool(change <= options.alpha_tol) for change in changes)


def _same_labels(
    found: Clustering, seen: _Seen, start: GroupedPair, iteration: int, options: Options
) -> bool:
    """Tell whether the clusters are those α was estimated with: another iteration would change nothing."""
    before = seen.groups.partition
    if iteration == 0 or options.alpha_tol > 0:
        # Known without waiting if both are the start. Otherwise it is too unlikely to wait for an answer, or
        # α gives it.
        return before is start.partition and found.moved is False
    same = array_namespace(before.labels).all(found.partition.labels == before.labels)
    return found.partition.k == before.k and bool(to_host(same, reason="have labels changed?")[0])


def conclude(past: Past, found: Clustering, result: Iterations, rules: EventRules) -> Step:
    """Give clusters the names of those before them, tell what happened, read α, and return the step."""
    state, partition, n, blend = past.before, found.partition, past.W.n, result.blend
    before = Clusters.none() if state is None else state.clusters
    table, sizes, alphas, squares, labels, lowest = _read(past.start, partition, len(before.names), result)
    clusters, events = follow(
        before,
        table,
        sizes,
        members_before=lambda: [] if state is None else _members(state.partition, state.ids),
        members=lambda: members_of(labels, past.ids, partition.k),
        rules=rules,
    )
    # The share of objects in clusters is taken to be the same for those that were there before.
    n_members = (n if blend is None else past.alignment.n_common) * float(sizes.sum()) / n
    return Step(
        # The membership is let go: it would be the largest array of a sparse state.
        state=State(
            None, dataclasses.replace(partition), clusters, past.ids, found.memory, count=found.count
        ),
        labels=_named(labels, clusters.names, partition),
        alphas=tuple(alphas),
        events=events,
        n_iter=result.n_iter,
        scores=found.scores,
        observed=past.W,
        blend=blend,
        groups=found.groups if past.W.carries_products and not isinstance(blend, ObjectBlend) else None,
        moved=result.moved if lowest >= 0 else None,
        **result.levels(squares, n_members),
    )


def _members(partition: Partition, ids: Ids) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each cluster; asked only when a cluster disappears or may return."""
    labels = to_host(partition.labels, reason="members of a cluster that comes or goes")[0]
    return members_of(labels, ids, partition.k)


def _named(labels: np.ndarray, names: np.ndarray, partition: Partition) -> np.ndarray:
    """Return labels on the host with the names of clusters; of a device, in the smallest integers."""
    named = np.where(labels >= 0, names[labels], -1)
    return named if isinstance(partition.labels, np.ndarray) else smallest_int(named)


def _read(
    start: Partition | None, partition: Partition, k_before: int, result: Iterations
) -> tuple[np.ndarray, np.ndarray, list[float], list[float], np.ndarray, float]:
    """Read in one go the overlap of clusters before and now, (k_before, k), sizes, all α, squares, labels.

    Last comes the lowest sum of similarities, 0 where it was not asked for.
    """
    reason = "matching clusters, and α"
    on_device = [a for a in result.alphas if is_array(a)]  # all of them, or none
    lowest = [] if result.lowest is None else [result.lowest]
    arrays = [partition.labels, partition.sizes, *on_device, *result.squares, *lowest]
    if start is None:
        labels, sizes, *read = to_host(*arrays, reason=reason)
        table = np.zeros((k_before, partition.k))
    else:
        table, labels, sizes, *read = to_host(start.table(partition), *arrays, reason=reason)
    numbers, n = [float(a) for a in read], len(on_device)
    alphas = numbers[:n] if on_device else [float(a) for a in result.alphas]
    squares, low = numbers[n : n + len(result.squares)], numbers[-1] if lowest else 0.0
    return table, sizes, alphas, squares, labels.astype(np.int64, copy=False), low
