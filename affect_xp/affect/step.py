"""One AFFECT step as a function of the state before it and of what is observed.

    Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

with αᵗ estimated from the data by the clusters, and the clusters found on Ψ̂ᵗ, in turn, a few times.
"""

import dataclasses
import math
from collections.abc import Hashable, Sequence

import numpy as np

from affect_xp.affect.forgetting import Alpha, alpha_at, in_range, noise_and_drift, share_of_noise
from affect_xp.affect.initial_labels import better_labels, judge
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.affect.sensitivity import alpha_is_insensitive
from affect_xp.affect.state import Past, State, Step
from affect_xp.alignment import Ids
from affect_xp.array.namespace import array_namespace, is_array, is_lazy, on_host, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.clustering.base import Call, Clusterer, Clustering
from affect_xp.partition import Partition, relabel
from affect_xp.proximity import Blend, GroupedPair, Pair, Proximity
from affect_xp.proximity._scale import in_units_of_their_own
from affect_xp.proximity.blend import BlendGroups
from affect_xp.tracking.events import DEFAULT_RULES, Clusters, EventRules, follow, members_of

INITS = ("auto", "previous", "static")


@dataclasses.dataclass(frozen=True, eq=False)
class Options:
    """How a step is taken; see `Affect` for the parameters."""

    alpha: Alpha = "estimate"
    n_iter: int = 3
    init: str = "auto"
    correction: str | None = None
    alpha_tol: float = 0.0
    events: EventRules = DEFAULT_RULES
    seed: int = 0

    @property
    def by_labels(self) -> bool:
        """Whether α depends on labels, so that clusters and α are found in turn."""
        return callable(self.alpha) or isinstance(self.alpha, str)


DEFAULTS = Options()


@dataclasses.dataclass(frozen=True, eq=False)
class _Seen:
    """The present and the past by the labels that α is estimated with; noise and drift where known."""

    groups: GroupedPair
    sums: tuple[Array, Array] | None = None


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
    return conclude(state, found, past.start, ids, Iterations(found.n_iter), W, options.events)


def step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    options: Options = DEFAULTS,
) -> Step:
    """Return what one AFFECT step finds, leaving its arguments as they are.

    On a device the host waits once for each iteration of the clusterer, once for each comparison of
    labels that may end the loop early (at most n_iter − 2), once for a sample of W, and once for α and the
    matching.
    """
    past = Past.of(state, ids, W)
    if past.start is None or past.smoothed is None:
        return _first_step(state, W, ids, clusterer, options)
    pair = Pair(W, past.smoothed, past.alignment)
    result = _in_turn(pair, past, clusterer, options, pair)
    found = conclude(state, result.found, past.start, ids, result, W, options.events)
    if not all(in_range(total) for total in found.totals):
        # Squares were lost, or there is neither noise nor drift: the size of the entries tells which.
        scaled = in_units_of_their_own(W, past.smoothed)
        if scaled[0] is not W:
            result = _in_turn(pair, past, clusterer, options, Pair(*scaled[:2], past.alignment))
            found = conclude(state, result.found, past.start, ids, result, W, options.events)
            return _with_noise_and_drift(found, past.alignment.n_common, scaled[2])
    return _with_noise_and_drift(found, past.alignment.n_common, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Iterations:
    """What the iterations of a step have found; α and its sums may still be on the device."""

    n_iter: int
    alphas: Sequence[Array | float] = (0.0,)
    totals: Sequence[Array] = ()
    blend: Blend | None = None
    clustering: Clustering | None = None

    @property
    def found(self) -> Clustering:
        """The clusters."""
        assert self.clustering is not None
        return self.clustering


def _in_turn(pair: Pair, past: Past, clusterer: Clusterer, options: Options, measured: Pair) -> Iterations:
    """Go from clusters to α to clusters a few times.

    α is estimated from `measured`: the pair, or the same in units in which squares are numbers.
    """
    assert past.start is not None
    start = pair.group(past.start, past=past.groups)
    call = _call(past, options, start)
    once = not options.by_labels or _labels_hardly_matter(measured, clusterer, past.start.k, options)
    first = dataclasses.replace(options, init="previous") if once else options
    seen, n_runs = _first_labels(start, clusterer, call, first, measured)
    alphas: list[Array | float] = []
    totals: list[Array] = []
    alpha, total = _alpha_of(options, seen, past.t)
    for i in range(1 if once else options.n_iter):
        alphas.append(alpha)
        totals += [] if total is None else [total]
        blend, last = pair.blend(alpha), once or i + 1 == options.n_iter
        found = clusterer.cluster(blend, dataclasses.replace(call, rough=not last))
        n_runs += found.n_iter
        if last:
            break
        if not _same_labels(found, seen, start, i, options):
            seen, call = _seen(pair, found, measured), call.after(found)
            alpha, total = _alpha_of(options, seen, past.t)
            if not _same_alpha(alpha, alphas[-1], options.alpha_tol):
                continue
        if found.rough:  # labels that are kept are not rough ones
            found = clusterer.cluster(blend, call.from_found(found))
            n_runs += found.n_iter
        break
    return Iterations(n_runs, alphas, totals, blend, found)


def _labels_hardly_matter(pair: Pair, clusterer: Clusterer, k: int, options: Options) -> bool:
    """Tell whether α by labels of as many clusters as before is known to be the same up to alpha_tol."""
    asked = getattr(clusterer, "n_clusters", None)
    if not isinstance(options.alpha, str) or options.correction is not None or not isinstance(asked, int):
        return False
    return alpha_is_insensitive(pair, max(k, asked), options.alpha_tol)


def _same_alpha(alpha: Array | float, before: Array | float, tol: float) -> bool:
    """Tell whether α is the same as before up to a tolerance; with 0 it is not even looked at."""
    if tol == 0:
        return False
    change = abs(alpha - before)
    return bool(to_host(change, reason="has α changed?")[0] <= tol) if is_array(change) else change <= tol


def _call(past: Past, options: Options, groups: GroupedPair | None = None) -> Call:
    """Return the first call of a clusterer at a step; all calls of a step draw the same random numbers."""
    return Call(past.t, past.start, past.memory, rng=[options.seed, past.t], groups=groups)


def _first_labels(
    start: GroupedPair, clusterer: Clusterer, call: Call, options: Options, measured: Pair
) -> tuple[_Seen, int]:
    """Return the labels of the first α, and the iterations it took to find them."""
    same = measured is start.pair
    previous = start if same else measured.group(start.partition)
    if options.init == "previous" or not options.by_labels:
        return _Seen(previous), 0
    found = clusterer.cluster(start.pair.blend(0.0), dataclasses.replace(call, rough=True))
    if found.moved is False:  # both labels are the same
        return _Seen(previous), found.n_iter
    static = measured.group(found.partition, current=found.groups if same else None)
    if options.init == "static":
        return _Seen(static), found.n_iter
    return _better(previous, static), found.n_iter


def _better(previous: GroupedPair, static: GroupedPair) -> _Seen:
    """Return the labels whose α is the better one, and noise and drift by them."""
    with np.errstate(over="ignore", invalid="ignore"):  # the sum of which α is a share will tell
        judgement = judge(previous, static)
    if on_host(static.labels) and not is_lazy(previous.pair.current.like):
        if judgement.stays():
            return _Seen(previous, judgement.previous)
        return _Seen(static, judgement.static)
    labels, sums = better_labels(judgement, previous.partition, static.partition)
    return _Seen(previous.pair.group(labels), sums)


def _seen(pair: Pair, found: Clustering, measured: Pair) -> _Seen:
    """Return the present and the past by the labels that were found."""
    if measured is not pair or not isinstance(found.groups, BlendGroups):
        return _Seen(measured.group(found.partition))
    parts = found.groups.parts
    return _Seen(parts if parts.given is not None else dataclasses.replace(parts, given=found.partition))


def _alpha_of(options: Options, seen: _Seen, t: int) -> tuple[Array | float, Array | None]:
    """Return the forgetting factor of a step, from the objects present now and before.

    An α that is estimated comes with the sum of which it is a share.
    """
    alpha, groups = options.alpha, seen.groups
    if isinstance(alpha, str):
        sums = seen.sums if options.correction is None else None
        if sums is None:
            with np.errstate(over="ignore", invalid="ignore"):  # the sum tells
                sums = noise_and_drift(groups.common, groups.past, options.correction)
        return share_of_noise(*sums), sums[0] + sums[1]
    if not callable(alpha):
        return alpha_at(alpha, t), None
    W, past, alignment = groups.pair.current, groups.pair.past, groups.pair.alignment
    labels = groups.partition.labels
    if not alignment.unchanged:
        here, there = alignment.common()
        W, past, labels = W.take(here), past.take(there), array_namespace(labels).take(labels, here)
    given = alpha(W, past, labels, t)
    if is_array(given):
        given = to_host(given, reason="α of a function")[0].item()
    return check_fraction("the forgetting factor returned by alpha", given), None


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


def _first_step(state: State | None, W: Proximity, ids: Ids, clusterer: Clusterer, options: Options) -> Step:
    """Return a step of objects without a past; where α is estimated, its noise is read with the rest."""
    past = Past.of(state, ids, W)
    found = clusterer.cluster(W, _call(past, options))
    sums = _noise(found, W) if isinstance(options.alpha, str) else ()
    result = Iterations(found.n_iter, totals=sums)
    step = conclude(state, found, past.start, ids, result, W, options.events)
    if not sums or not in_range(step.totals[0]):
        return dataclasses.replace(step, totals=())
    m = _n_members(step, W.n)
    noise, of_means = (math.sqrt(max(total, 0.0)) / m for total in step.totals)
    return dataclasses.replace(step, totals=(), noise=noise, noise_of_means=of_means)


def _noise(found: Clustering, W: Proximity) -> tuple[Array, Array]:
    """Return Σ var(nᵢⱼ), and Σ var μ̂ of the means of blocks over the same entries."""
    groups = W.group(found.partition) if found.groups is None else found.groups
    with np.errstate(over="ignore", invalid="ignore"):  # the first tells, if it is not in range
        moments = moments_of(groups)
        return moments.total_variance(), moments.total(*mean_variances(groups, moments))


def _with_noise_and_drift(found: Step, n_common: int, unit: float) -> Step:
    """Return a step that knows noise and drift as root mean squares over the m² entries of common objects.

        √(Σ var(nᵢⱼ)) / m,   √(Σ(ψᵢⱼ − E wᵢⱼ)²) / m

    α was estimated in units of `unit`.
    """
    m = _n_members(found, n_common)
    if not found.totals or m == 0 or not math.isfinite(found.totals[-1]):
        return found
    alpha, size = found.alphas[-1], unit * (math.sqrt(found.totals[-1]) / m)
    return dataclasses.replace(found, noise=math.sqrt(alpha) * size, drift=math.sqrt(1 - alpha) * size)


def _n_members(found: Step, n: int) -> float:
    """Return how many of n objects are in clusters, if the share is that of all objects of the step."""
    return n * float(found.state.clusters.sizes.sum()) / found.labels.shape[0]


def conclude(
    state: State | None,
    found: Clustering,
    start: Partition | None,
    ids: Ids,
    result: Iterations,
    W: Proximity,
    rules: EventRules,
) -> Step:
    """Give clusters the names of those before them, tell what happened, read α, and return the step."""
    before = Clusters.none() if state is None else state.clusters
    table, sizes, alphas, totals = _read(start, found.partition, len(before.names), result)
    clusters, events = follow(
        before,
        table,
        sizes,
        members_before=lambda: [] if state is None else _members(state.partition, state.ids),
        members=lambda: _members(found.partition, ids),
        rules=rules,
    )
    return Step(
        # The membership is let go: it would be the largest array of a sparse state.
        state=State(None, dataclasses.replace(found.partition), clusters, ids, found.memory),
        labels=relabel(found.partition, clusters.names),
        alphas=tuple(alphas),
        events=events,
        n_iter=result.n_iter,
        scores=found.scores,
        observed=W,
        blend=result.blend,
        groups=found.groups if W.carries_products else None,
        totals=tuple(totals),
    )


def _members(partition: Partition, ids: Ids) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each cluster; asked only when a cluster disappears or may return."""
    labels = to_host(partition.labels, reason="members of a cluster that comes or goes")[0]
    return members_of(labels, ids, partition.k)


def _read(
    start: Partition | None, partition: Partition, k_before: int, result: Iterations
) -> tuple[np.ndarray, np.ndarray, list[float], list[float]]:
    """Read in one go the overlap of clusters before and now, (k_before, k), the sizes, and all α and sums."""
    reason = "matching clusters, and α"
    on_device = [a for a in result.alphas if is_array(a)]  # all of them, or none
    arrays = [partition.sizes, *on_device, *result.totals]
    if start is None:
        sizes, *read = to_host(*arrays, reason=reason)
        table = np.zeros((k_before, partition.k))
    else:
        table, sizes, *read = to_host(start.table(partition), *arrays, reason=reason)
    numbers = [float(a) for a in read]
    n = len(on_device)
    return table, sizes, numbers[:n] if on_device else [float(a) for a in result.alphas], numbers[n:]
