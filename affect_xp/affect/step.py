"""One AFFECT step as a function of the state before it and of what is observed.

    Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

with αᵗ estimated from the data by the clusters, and the clusters found on Ψ̂ᵗ, in turn, a few times.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.absence import Away, introduced
from affect_xp.affect.forgetting import in_range, noise_and_drift, share_of_noise
from affect_xp.affect.initial_labels import better_labels, judge
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.alignment import UNCHANGED, Alignment, Ids, align, positions
from affect_xp.array.namespace import (
    array_namespace,
    gather,
    is_array,
    is_lazy,
    on_host,
    one_hot,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.clustering.base import Clusterer, Clustering, Moment
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition, relabel
from affect_xp.proximity import Blend, Product, Proximity, parts_of
from affect_xp.proximity._scale import Scaled, in_units_of_their_own
from affect_xp.tracking.events import DEFAULT_RULES, Clusters, Event, EventRules, follow, members_of

Alpha = (
    str | float | Sequence[float] | np.ndarray | Callable[[Proximity, Proximity, Array, int], Array | float]
)
INITS = ("auto", "previous", "static")


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
    product : Product or None
        Ψ̂ᵗ times the membership of the partition, where it is known.
    away : Away or None
        What is known of objects that are away, where there are any: they stand behind the others in all of
        the above, and are in no cluster.
    """

    smoothed: Proximity | None
    partition: Partition
    clusters: Clusters
    ids: Ids
    memory: Array | None = None
    product: Product | None = None
    away: Away | None = None

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
    blend : Blend or None
        Ψ̂ᵗ as a blend of Wᵗ and Ψ̂ᵗ⁻¹; None where there is no past.
    product : Product or None
        Ψ̂ᵗ times the membership of the partition, where it is known.
    totals : tuple of float
        The sum of noise and drift of which α is a share, by iteration, where α was estimated.
    noise, drift : float or None
        The last noise and drift as root mean squares over entries, in the units of W; None where α is not
        estimated. Without a past there is noise alone.
    noise_of_means : float or None
        The noise that is left in the means of blocks, alike; known at steps without a past.
    """

    state: State
    labels: Array
    alphas: tuple[float, ...]
    events: tuple[Event, ...]
    n_iter: int
    scores: dict[int, float] | None
    observed: Proximity
    blend: Blend | None = None
    product: Product | None = None
    totals: tuple[float, ...] = ()
    noise: float | None = None
    drift: float | None = None
    noise_of_means: float | None = None

    def settled(self, smoothed: Proximity | None) -> State:
        """Return the state after the step, given the smoothed proximities that are kept."""
        known = smoothed is not None and self.product is not None
        product = smoothed.carried(self.product) if known else None  # type: ignore[union-attr, arg-type]
        return dataclasses.replace(self.state, smoothed=smoothed, product=product)

    def smoothed(self, *, overwrite: bool = False) -> Proximity:
        """Return Ψ̂ᵗ in storage of its own, or in that of Ψ̂ᵗ⁻¹ with `overwrite`."""
        formed = self.observed
        if self.blend is not None:
            # By now α is known as a number, which lets a representation drop what has decayed.
            blend = self.blend if self.blend.is_formed else self.blend.at(self.alphas[-1])
            formed = blend.formed(overwrite=overwrite)
        # Not the observed array itself: the caller may fill it again for the next step.
        return formed.copy() if formed is self.observed else formed


def static_step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    *,
    warm_start: bool = True,
    rules: EventRules = DEFAULT_RULES,
    seed: int = 0,
) -> Step:
    """Cluster what is observed, without the past but for the start and the names of the clusters."""
    past = Past.of(state, ids, W)
    found = past.cluster(clusterer, W, seed) if warm_start else past.forgotten().cluster(clusterer, W, seed)
    return finished(state, found, past.start, ids, [0.0], found.n_iter, W, None, rules)


def step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    *,
    alpha: Alpha = "estimate",
    n_iter: int = 3,
    init: str = "auto",
    correction: str | None = None,
    rules: EventRules = DEFAULT_RULES,
    seed: int = 0,
    compared: Scaled | None = None,
) -> Step:
    """Return what one AFFECT step finds, leaving its arguments as they are.

    Where squares of W or of the past leave the range of numbers, the step is taken again with α estimated
    from `compared`: both in other units.

    On a device the host waits once for each iteration of the clusterer, once for each comparison of
    labels that may end the loop early (at most n_iter − 2), and once for α and the matching.
    """
    past = Past.of(state, ids, W)
    if past.start is None or past.smoothed is None:
        return _first_step(state, W, ids, clusterer, rules, seed, measured=isinstance(alpha, str))

    in_same_units = compared is None
    *pair, unit = compared or (W, past.smoothed, 1.0)
    partition, n_runs, known, sums = past.start, 0, None, None
    blend = Blend(W, past.smoothed, 0.0, past.alignment)
    if past.product is not None:
        blend.know(partition.membership, past.product)
        known = blend.parts(partition.membership) if in_same_units else None
    by_labels = callable(alpha) or isinstance(alpha, str)
    rounds = n_iter if by_labels else 1
    if init != "previous" and by_labels:
        found = past.cluster(clusterer, blend, seed, rough=True)
        n_runs = found.n_iter
        if found.moved is not False:  # otherwise both labels are the same
            other = blend if in_same_units else Blend(pair[0], pair[1], 0.0, past.alignment)
            product = found.product if in_same_units else None
            partition, known, sums = _initial(init, past, other, found.partition, product)
    alphas: list[Array | float] = []
    totals: list[Array] = []
    for i in range(rounds):
        found_alpha, total = _alpha(alpha, pair, past, partition, known, correction, sums)
        alphas.append(found_alpha)
        totals += [] if total is None else [total]
        blend = blend.at(alphas[-1])
        last = i + 1 == rounds
        found = past.cluster(clusterer, blend, seed, rough=not last)
        n_runs += found.n_iter
        if not last and _settled(found, partition, past.start, i):
            last = True  # the next α would be the same
            if found.rough:
                found = past.at(found).cluster(clusterer, blend, seed)
                n_runs += found.n_iter
        if last:
            break
        partition, past, sums = found.partition, past.with_memory(found.memory), None
        known = parts_of(found.product) if in_same_units else None
    result = finished(state, found, past.start, ids, alphas, n_runs, W, blend, rules, totals)
    result = _with_noise_and_drift(result, past.alignment.n_common, unit)
    if not in_same_units or all(in_range(total) for total in result.totals):
        return result
    # Squares were lost, or there is neither noise nor drift: the size of the entries tells which.
    scaled = in_units_of_their_own(*pair)
    if scaled[0] is W:
        return result
    options = {"alpha": alpha, "n_iter": n_iter, "init": init, "correction": correction}
    return step(state, W, ids, clusterer, **options, rules=rules, seed=seed, compared=scaled)  # type: ignore[arg-type]


def _first_step(
    state: State | None,
    W: Proximity,
    ids: Ids,
    clusterer: Clusterer,
    rules: EventRules,
    seed: int,
    *,
    measured: bool,
) -> Step:
    """Return a step of objects without a past, and if `measured` its noise, read together with the rest."""
    past = Past.of(state, ids, W)
    found = past.cluster(clusterer, W, seed)
    sums = list(_noise(found, W)) if measured else []
    result = finished(state, found, past.start, ids, [0.0], found.n_iter, W, None, rules, sums)
    if not sums or not in_range(result.totals[0]):
        return dataclasses.replace(result, totals=())
    m = _n_members(result, W.n)
    noise, of_means = (math.sqrt(max(total, 0.0)) / m for total in result.totals)
    return dataclasses.replace(result, totals=(), noise=noise, noise_of_means=of_means)


def _noise(found: Clustering, W: Proximity) -> tuple[Array, Array]:
    """Return Σ var(nᵢⱼ), and Σ var μ̂ of the means of blocks over the same entries."""
    partition, known = found.partition, W if found.product is None else found.product
    with np.errstate(over="ignore", invalid="ignore"):  # the first tells, if it is not in range
        moments = moments_of(known, partition)
        return moments.total_variance(), moments.total(*mean_variances(known, partition, moments))


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


@dataclasses.dataclass(frozen=True, eq=False)
class Past:
    """What the objects of this step bring along from the step before."""

    t: int  # the number of this step
    alignment: Alignment = UNCHANGED
    start: Partition | None = None  # the clusters they were in; None if none of them was there
    smoothed: Proximity | None = None  # Ψ̂ᵗ⁻¹
    memory: Array | None = None
    product: Product | None = None  # Ψ̂ᵗ⁻¹ times the membership of those of them that are still there

    @staticmethod
    def of(state: State | None, ids: Ids, W: Proximity) -> "Past":
        """Find the objects of this step in the state left by the one before."""
        if state is None:
            return Past(0)
        alignment, memory = align(ids, state.ids, W.like), state.memory
        if alignment.n_common == 0:
            return Past(state.t + 1)
        if memory is not None and alignment.source is not None:
            memory = gather(memory, alignment.source, fill=0)
        start = state.partition.take(alignment.source, alignment.n_new)
        product, smoothed = _without_gone(state, alignment), state.smoothed
        if state.away is not None and smoothed is not None:
            source = positions(ids, state.ids)
            smoothed, alignment = introduced(smoothed, state.away, W, source, alignment)
        return Past(state.t + 1, alignment, start, smoothed, memory, product)

    def with_memory(self, memory: Array | None) -> "Past":
        """Return the same with a fresher memory."""
        return dataclasses.replace(self, memory=memory)

    def at(self, found: Clustering) -> "Past":
        """Return the same, starting from what has been found."""
        return dataclasses.replace(self, start=found.partition, memory=found.memory)

    def forgotten(self) -> "Past":
        """Return the same without anything to start from."""
        return Past(self.t)

    def cluster(
        self, clusterer: Clusterer, proximity: Proximity, seed: int, *, rough: bool = False
    ) -> Clustering:
        """Cluster from here; every call of a step draws the same random numbers."""
        moment = Moment(self.t, self.start, self.memory, rng=[seed, self.t], rough=rough)
        return clusterer.cluster(proximity, moment)


def _initial(
    init: str, past: Past, blend: Blend, static: Partition, product: Product | None
) -> tuple[Partition, tuple[Product, Product] | None, tuple[Array, Array] | None]:
    """Return the labels of the first α, and if known the products with them, and noise and drift by them.

    Given are the static clusters, and the product of W with them if it is known.
    """
    previous = past.start
    assert previous is not None
    static_products = blend.parts_at(static.membership, product)
    if init == "static":
        return static, static_products, None
    products = blend.parts(previous.membership)
    with np.errstate(over="ignore", invalid="ignore"):  # the sum of which α is a share will tell
        judgement = judge(past.alignment, previous, static, products, static_products)
    if on_host(static.labels) and not is_lazy(blend.like):
        if judgement.stays():
            return previous, products, judgement.previous
        return static, static_products, judgement.static
    labels, sums = better_labels(judgement, previous, static)
    return labels, None, sums


def _without_gone(state: State, alignment: Alignment) -> Product | None:
    """Return Ψ̂ᵗ⁻¹ times the membership without the objects that left, where the product is known."""
    if state.product is None or not alignment.n_gone:
        return state.product
    gone, labels = alignment.gone(), state.partition.labels
    z = one_hot(array_namespace(labels).take(labels, gone), state.partition.k, wide_dtype(labels))
    return state.product.moved(-z, gone)


def _alpha(
    alpha: Alpha,
    compared: Sequence[Proximity],
    past: Past,
    partition: Partition,
    known: tuple[Product, Product] | None,
    correction: str | None,
    sums: tuple[Array, Array] | None,
) -> tuple[Array | float, Array | None]:
    """Return the forgetting factor by the rule `alpha`, from the objects present now and before.

    `known` are the products of W and of the past with their memberships, and `sums` noise and drift without
    correction, where they are known. An α that is estimated comes with the sum of which it is a share.
    """
    alignment, (W, smoothed) = past.alignment, compared
    if isinstance(alpha, str) and sums is not None and correction is None:
        return share_of_noise(*sums), sums[0] + sums[1]
    if isinstance(alpha, str):
        now = partition.only(alignment.source, alignment.n_new)
        before = partition.take(alignment.target, alignment.n_gone)
        observed, tracked = known or compared
        with np.errstate(over="ignore", invalid="ignore"):  # the sum tells
            noise, drift = noise_and_drift(observed, tracked, now, before, correction)
            return share_of_noise(noise, drift), noise + drift
    if not callable(alpha):
        return alpha_at(alpha, past.t), None
    labels = partition.labels
    if not alignment.unchanged:
        here, there = alignment.common()
        W, smoothed, labels = W.take(here), smoothed.take(there), array_namespace(labels).take(labels, here)
    given = alpha(W, smoothed, labels, past.t)
    if is_array(given):
        given = to_host(given, reason="α of a function")[0].item()
    return check_fraction("the forgetting factor returned by alpha", given), None


def _by_step(alpha: object) -> bool:
    """Tell whether α is given as one number for each step."""
    return isinstance(alpha, Sequence) or (isinstance(alpha, np.ndarray) and alpha.ndim > 0)


def alpha_at(alpha: Any, t: int) -> float:
    """Return the fixed forgetting factor of step t."""
    if not _by_step(alpha):
        return check_fraction("alpha", alpha.item() if isinstance(alpha, np.ndarray) else alpha)
    if t >= len(alpha):
        raise InputError(f"alpha has {len(alpha)} entries, but this is step {t}; give one for each step")
    return check_fraction(f"alpha[{t}]", alpha[t])


def check_alpha(alpha: Any) -> None:
    """Raise unless `alpha` is "estimate", a number, a sequence of numbers, or a function."""
    if callable(alpha) or (isinstance(alpha, str) and alpha == "estimate"):
        return
    if isinstance(alpha, str) or alpha is None:
        raise InputError(
            f"alpha must be 'estimate', a number, one for each step, or a function, got {alpha!r}"
        )
    for t in range(len(alpha) if _by_step(alpha) else 1):
        alpha_at(alpha, t)


def _settled(found: Clustering, partition: Partition, start: Partition, iteration: int) -> bool:
    """Tell whether the clusters are those α was estimated with: another iteration would change nothing."""
    if iteration == 0:
        # Known for nothing if both are the start; too unlikely otherwise to wait for an answer.
        return partition is start and found.moved is False
    xp = array_namespace(found.partition.labels)
    same = xp.all(found.partition.labels == partition.labels)
    return found.partition.k == partition.k and bool(to_host(same, reason="have labels changed?")[0])


def finished(
    state: State | None,
    found: Clustering,
    start: Partition | None,
    ids: Ids,
    alphas: Sequence[Array | float],
    n_iter: int,
    W: Proximity,
    blend: Blend | None,
    rules: EventRules,
    totals: Sequence[Array] = (),
) -> Step:
    """Give clusters the names of those before them, tell what happened, read α, and return the step."""
    before = Clusters.none() if state is None else state.clusters
    table, sizes, read_alphas, read_totals = _read(start, found.partition, len(before.names), alphas, totals)
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
        alphas=tuple(read_alphas),
        events=events,
        n_iter=n_iter,
        scores=found.scores,
        observed=W,
        blend=blend,
        product=found.product if W.carries_products else None,
        totals=tuple(read_totals),
    )


def _members(partition: Partition, ids: Ids) -> list[frozenset[Hashable]]:
    """Return the ids of the objects of each cluster; asked only when a cluster disappears or may return."""
    labels = to_host(partition.labels, reason="members of a cluster that comes or goes")[0]
    return members_of(labels, ids, partition.k)


def _read(
    start: Partition | None,
    partition: Partition,
    k_before: int,
    alphas: Sequence[Array | float],
    totals: Sequence[Array],
) -> tuple[np.ndarray, np.ndarray, list[float], list[float]]:
    """Read in one go the overlap of clusters before and now, (k_before, k), the sizes, and all α and sums."""
    reason = "matching clusters, and α"
    on_device = [a for a in alphas if is_array(a)]  # all of them, or none
    arrays = [partition.sizes, *on_device, *totals]
    if start is None:
        sizes, *read = to_host(*arrays, reason=reason)
        table = np.zeros((k_before, partition.k))
    else:
        table, sizes, *read = to_host(start.table(partition), *arrays, reason=reason)
    numbers = [float(a) for a in read]
    n = len(on_device)
    return table, sizes, numbers[:n] if on_device else [float(a) for a in alphas], numbers[n:]
