"""The two-sided estimate of a step in a complete record, from the steps before and after it.

At step t there are three sources for Ψᵗ: the past F = Ψ̂ᵗ⁻¹ of AFFECT run forward, the future B = Ψ̂ᵗ⁺¹ of
AFFECT run backward, and the observation W = Ψᵗ + N. The noise of W is independent of F and B. The combination

    Ψ̂ = a F + b B + (1 − a − b) W

therefore has, over all entries, the expected squared error

    R(a, b) = a² D_F + b² D_B + 2ab C + (1 − a − b)² V

    V = Σ var(n),   D_F = Σ(f − E w)²,   D_B = Σ(b − E w)²,   C = Σ(f − E w)(b − E w)

Minimise R over a, b ≥ 0 and a + b ≤ 1. Let α = a + b be the weight of both neighbours and r = b / α the
share of the future in P = (1 − r) F + r B. Then

    R = α² D + (1 − α)² V,   D = Σ(p − E w)² = (1 − r) D_F + r D_B − r (1 − r) G,   G = Σ(f − b)²

For any D, the best α is that of AFFECT, α = V / (V + D), which is in [0, 1]; it leaves R = V D / (V + D),
which grows with D. So r minimises D, and both have a closed form:

    r = ½ + (D_F − D_B) / 2G, clipped to [0, 1];   α = V / (V + D);   a = (1 − r) α,   b = r α

E w and var(n) are estimated from the clusters, as for AFFECT (see `forgetting_factor`), alternating between
clusters and weights. G does not depend on clusters; it follows from the mean of both neighbours, H = ½F + ½B:

    Σ(h − μ)² = ½ Σ(f − μ)² + ½ Σ(b − μ)² − ¼ G,   for any μ

The correction U of α for entries that share an object (see `noise_and_drift`) is added to V and subtracted
from D_F, D_B and C, hence from D; r does not change.

Without a future this is AFFECT itself, and without a past it is AFFECT run backward: at the last step the
clusters are the causal ones. The same holds for pairs. The weights apply to pairs that both neighbours have;
a pair that one of them has gets the estimate at t of the pass from that side; a pair that neither has keeps
its observed value.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from affect_xp.affect.forgetting import drift_from, share_of_noise
from affect_xp.affect.moments import BlockMoments, mean_variances, moments_of
from affect_xp.affect.step import Options, Past, State
from affect_xp.array.namespace import array_namespace, from_host, to_host
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Call, Clusterer, Clustering
from affect_xp.partition import Alignment, Ids, Partition
from affect_xp.proximity import Pair, Proximity
from affect_xp.proximity.blend import unit_of
from affect_xp.tracking.history import Record


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """The result of one pass at a step: the state before the step, the state after it, and its record."""

    neighbour: State | None
    here: State
    record: Record


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """The two-sided clusters of a step, the weights (a, b) by iteration, and Ψ̂."""

    clustering: Clustering
    weights: Sequence[tuple[float, float]]
    smoothed: Callable[[], Proximity]


def two_sided(
    W: Proximity,
    ids: Ids,
    t: int,
    views: tuple[View, View],
    clusterer: Clusterer,
    options: Options,
) -> Found:
    """Return the two-sided result of step t, given the forward and the backward pass."""
    past, future = (Past.of(view.neighbour, ids, W) for view in views)
    here = [Past.of(view.here, ids, W) for view in views]
    causal = _alone(here[0], views[0].record, [(alpha, 0.0) for alpha in views[0].record.alphas])
    if future.start is None:
        return causal
    if past.start is None:
        return _alone(here[1], views[1].record, [(0.0, alpha) for alpha in views[1].record.alphas])
    calls = [
        Call(t, side.start, side.memory, [options.seed, t], count=view.here.count)
        for side, view in zip(here, views, strict=True)
    ]
    sources = _Sources.of(W, past, future, here, options.correction)
    if isinstance(sources, Proximity):  # no pair has both neighbours
        return Found(clusterer.cluster(sources, calls[0]), [(0.0, 0.0)], lambda: sources)
    return _alternate(sources, calls, clusterer, options.n_iter, options.alpha_tol) or causal


def _alone(here: Past, record: Record, weights: Sequence[tuple[float, float]]) -> Found:
    """Return the result of one pass, if the other has none of the objects."""
    assert here.start is not None
    clustering = Clustering(here.start, n_iter=record.n_iter, scores=record.scores)
    return Found(clustering, weights, lambda: _of_step(here))


def _of_step(here: Past) -> Proximity:
    """Return Ψ̂ of the present objects of a step."""
    assert here.smoothed is not None
    source = here.alignment.source
    return here.smoothed if source is None else here.smoothed.take(source)


def _alternate(
    sources: "_Sources", calls: Sequence[Call], clusterer: Clusterer, n_iter: int, alpha_tol: float
) -> Found | None:
    """Alternate between clusters and weights a few times.

    The first weights use the clusters of both passes. The clusterer starts from those of the pass whose
    neighbour has more weight. Return None if there is neither noise nor drift.
    """
    both = [call.start for call in calls if call.start is not None]
    measured = sources.in_units
    sums = [measured.sums(partition) for partition in both]
    G = measured.difference(both[0], sums[0])
    alpha, r, total = weights_of(sums, G)
    share, size = to_host(r, total, reason="does the future weigh more than the past?")
    if size == 0:
        return None
    on_device, call, before, n_runs = [(alpha, r)], calls[int(share > 0.5)], None, 0
    for i in range(n_iter):
        blend = sources.blend(*on_device[-1])
        found = clusterer.cluster(blend, dataclasses.replace(call, rough=i + 1 < n_iter))
        n_runs += found.n_iter
        if i + 1 == n_iter or (before is not None and _same(found.partition, before)):
            break  # the next weights would be the same
        call, before = call.after(found), found.partition
        weights = weights_of([measured.sums(before)], G)[:2]
        if alpha_tol > 0 and _change(weights, on_device[-1]) <= alpha_tol:
            break
        on_device.append(weights)
    if found.rough:
        found = clusterer.cluster(blend, call.from_found(found))
        n_runs += found.n_iter
    read = to_host(*(x for pair in on_device for x in pair), reason="weights of past and future")
    pairs = zip(map(float, read[::2]), map(float, read[1::2]), strict=True)
    found = dataclasses.replace(found, n_iter=n_runs)
    return Found(found, [((1 - r) * alpha, r * alpha) for alpha, r in pairs], lambda: blend)


def _change(weights: tuple[Array, Array], before: tuple[Array, Array]) -> float:
    """Return the largest change of a and b."""
    read = to_host(*weights, *before, reason="have the weights changed?")
    alpha, r, alpha_before, r_before = map(float, read)
    return max(abs(alpha * r - alpha_before * r_before), abs(alpha * (1 - r) - alpha_before * (1 - r_before)))


def _same(partition: Partition, other: Partition) -> bool:
    xp = array_namespace(partition.labels)
    same = xp.all(partition.labels == other.labels)
    return partition.k == other.k and bool(to_host(same, reason="have labels changed?")[0])


@dataclasses.dataclass(frozen=True, eq=False)
class _Sums:
    """V, D_F, D_B and U for the clusters of a partition, and its block moments."""

    terms: tuple[Array, Array, Array, Array]
    moments: BlockMoments


def weights_of(sums: Sequence[_Sums], G: Array) -> tuple[Array, Array, Array]:
    """Return α, r and V + D from the average of some sums."""
    V, D_F, D_B, U = (sum(terms) / len(sums) for terms in zip(*(s.terms for s in sums), strict=True))
    xp = array_namespace(G)
    zero, one = xp.zeros_like(G), xp.ones_like(G)
    differ = G > 0  # otherwise F = B
    r = 0.5 + xp.where(differ, (D_F - D_B) / (2 * xp.where(differ, G, one)), zero)
    r = xp.minimum(xp.maximum(r, zero), one)
    V, D = (xp.maximum(x, zero) for x in (V, (1 - r) * D_F + r * D_B - r * (1 - r) * G - U))
    return share_of_noise(V, D), r, V + D


@dataclasses.dataclass(frozen=True, eq=False)
class _Sources:
    """W, F and B of the objects that are in all of them.

    If objects come and go, `places` are the positions of these objects in the step, and `rest` holds the
    estimates of all pairs, in which the pairs of these objects are still to be replaced.
    """

    W: Proximity
    past: Proximity
    future: Proximity
    correction: str | None
    places: np.ndarray | None = None
    rest: Proximity | None = None

    @staticmethod
    def of(
        W: Proximity, past: Past, future: Past, here: Sequence[Past], correction: str | None
    ) -> "_Sources | Proximity":
        """Find the objects that are in all sources; if there are none, return the rest."""
        assert past.smoothed is not None and future.smoothed is not None
        if past.alignment.unchanged and future.alignment.unchanged:
            return _Sources(W, past.smoothed, future.smoothed, correction)
        before, after = _source(past, W.n), _source(future, W.n)
        places, known_after = np.flatnonzero((before >= 0) & (after >= 0)), np.flatnonzero(after >= 0)
        index, index_before, index_after, index_known = (
            from_host(x, W.like) for x in (places, before[places], after[places], known_after)
        )
        of_future = _of_step(here[1]).take(index_known)
        rest = _of_step(here[0]).blend(of_future, 1.0, _within(known_after, W.n, W.like))
        if len(places) == 0:
            return rest
        sources = (W.take(index), past.smoothed.take(index_before), future.smoothed.take(index_after))
        return _Sources(*sources, correction, places, rest)

    @functools.cached_property
    def in_units(self) -> "_Sources":
        """The sources in units in which squares of entries neither overflow nor underflow."""
        parts = self.W, self.past, self.future
        unit = unit_of(*parts)
        scaled = parts if unit == 1 else [part.in_units_of(unit) for part in parts]
        return dataclasses.replace(self, W=scaled[0], past=scaled[1], future=scaled[2])

    def sums(self, partition: Partition) -> "_Sums":
        """Return V with the correction, D_F and D_B without it, and the correction U."""
        own = self._own(partition)
        groups = self.W.group(own)
        moments = moments_of(groups)
        drifts = drift_from(self.past.group(own), moments), drift_from(self.future.group(own), moments)
        V = moments.total_variance()
        if self.correction is None:
            return _Sums((V, *drifts, array_namespace(V).zeros_like(V)), moments)
        U = moments.total(*mean_variances(groups, moments))
        return _Sums((moments.total_squares() + U, *drifts, U), moments)

    def difference(self, partition: Partition, sums: "_Sums") -> Array:
        """Return G = Σ(f − b)² = 2 Σ(f − μ)² + 2 Σ(b − μ)² − 4 Σ(h − μ)², with H = ½F + ½B."""
        half = self._between(0.5).group(self._own(partition))
        _, D_F, D_B, _ = sums.terms
        return 2 * (D_F + D_B) - 4 * drift_from(half, sums.moments)

    def blend(self, alpha: Array, r: Array) -> Proximity:
        """Return α P + (1 − α) W, P = (1 − r) F + r B, and the rest for all other pairs."""
        blend = Pair(self.W, self._between(r), self._together).blend(alpha)
        if self.rest is None or self.places is None:
            return blend
        return self.rest.blend(blend.formed(), 1.0, _within(self.places, self.rest.n, self.rest.like))

    def _between(self, r: Array | float) -> Proximity:
        """Return (1 − r) F + r B."""
        return self.past.blend(self.future, r, self._together)

    @property
    def _together(self) -> Alignment:
        return Alignment(None, None, n_common=self.W.n, n_new=0)

    def _own(self, partition: Partition) -> Partition:
        """Return the partition of the objects that are in all sources."""
        if self.places is None:
            return partition
        return partition.take(from_host(self.places, self.W.like), 0)


def _source(past: Past, n: int) -> np.ndarray:
    """Return the position of each object of the step in a neighbour, -1 if it is not there."""
    source = past.alignment.source
    return np.arange(n) if source is None else to_host(source, reason="objects of all sources")[0]


def _within(places: np.ndarray, n: int, like: Array) -> Alignment:
    """Return the alignment of n objects with the subset at `places`."""
    source = np.full(n, -1)
    source[places] = np.arange(len(places))
    return Alignment(from_host(source, like), from_host(places, like), len(places), n - len(places))
