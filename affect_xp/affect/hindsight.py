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

By objects, both passes have weights for each object (see `affect_xp.affect.movers`). The forward pass gives
the probability p that an object has moved since the step before, the backward pass the probability q that it
moves until the next one. The past of an object counts by s = 1 − p and its future by u = 1 − q:

    Ψ̂ = W + a S (F − W) S + b U (B − W) U,   S = diag(s),   U = diag(u)

so that a move cuts it off from the steps on the other side. The margins of rows have the risk R with

    D_F = E_F + πK/ρ,   D_B = E_B + πK/ρ,   C = Σ ω_cd (δ_cc δ'_cc / m_cc + δ_cd δ'_cd / m_cd)

where δ = μ − μ_F and δ' = μ − μ_B: the errors of F and B about their block means are independent, since they
come from other steps, and it is improbable that an object moves twice. V is the mean of its two estimates.
R is minimised as above, with G = D_F + D_B − 2C.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.forgetting import drift_from, share_of_noise
from affect_xp.affect.moments import MomentsByBlock, mean_variances, moments_of
from affect_xp.affect.movers import Margins, margin_errors, pair_moments
from affect_xp.affect.step import Options, Past, State, labels_agree, trust_of
from affect_xp.array.namespace import array_namespace, can_sum_rows, from_host, to_host
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Call, Clusterer, Clustering
from affect_xp.partition import UNCHANGED, Alignment, Ids, Partition
from affect_xp.proximity import (
    Blend,
    Dense,
    Grouped,
    GroupedPair,
    ObjectBlend,
    Pair,
    Proximity,
    TwoSidedBlend,
)
from affect_xp.proximity.blend import unit_of
from affect_xp.proximity.grouped import MAX_UPDATE_SHARE, Summed
from affect_xp.tracking.history import Record


@dataclasses.dataclass(frozen=True, eq=False)
class Products:
    """W·Z and Ψ·Z of a step with a dense W, Z by its clusters, and earlier sums of squares of W."""

    w: Array
    psi: Array
    earlier: tuple[Partition, Array] | None

    @staticmethod
    def of(groups: Grouped | None) -> "Products | None":
        """Return the products a step has left, where it had a past with the same objects."""
        parts = None if groups is None else groups.parts
        if parts is None or not parts.pair.alignment.unchanged or not isinstance(parts.pair.current, Dense):
            return None
        return Products(parts.current.array, parts.past.array, parts.current.handed_over())


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """The result of one pass at a step: the states before and after the step, its record, and products."""

    neighbour: State | None
    here: State
    record: Record
    products: Products | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """The two-sided clusters of a step, the weights (a, b) by iteration, and Ψ̂."""

    clustering: Clustering
    weights: Sequence[tuple[float, float]]
    smoothed: Callable[[], Proximity]


def two_sided(
    W: Proximity, ids: Ids, t: int, views: tuple[View, View], clusterer: Clusterer, options: Options
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
        Call(t, side.start, side.memory, [options.seed, t], count=view.here.count, settled=True)
        for side, view in zip(here, views, strict=True)
    ]
    sources = _Sources.of(W, past, future, here, options.correction)
    if isinstance(sources, Proximity):  # no pair has both neighbours
        return Found(clusterer.cluster(sources, calls[0]), [(0.0, 0.0)], lambda: sources)
    if options.by_object:
        return _alternate_by_object(sources, views, calls, clusterer, options) or causal
    return _alternate(sources, views, calls, clusterer, options) or causal


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
    sources: "_Sources",
    views: tuple[View, View],
    calls: Sequence[Call],
    clusterer: Clusterer,
    options: Options,
) -> Found | None:
    """Alternate between clusters and weights a few times.

    The first weights use the clusters of both passes. The clusterer starts from those of the pass whose
    neighbour has more weight. Return None if there is neither noise nor drift.
    """
    measured, n_iter = sources.in_units, options.n_iter
    known = [view.products if measured.W is sources.W else None for view in views]
    both = [measured.group(calls[i].start, known, of_future=i == 1, other=calls[1 - i].start) for i in (0, 1)]
    sums = [measured.sums(groups) for groups in both]
    G = measured.difference(both[0], sums[0])
    alpha, r, total = weights_of(sums, G)
    share, size = to_host(r, total, reason="does the future weigh more than the past?")
    if size == 0:
        return None
    side, on_device, before, n_runs = int(share > 0.5), [(alpha, r)], None, 0
    call = calls[side]
    for i in range(n_iter):
        blend = sources.blend(*on_device[-1])
        call = dataclasses.replace(call, rough=i + 1 < n_iter, groups=sources.start(blend, both[side]))
        found = clusterer.cluster(blend, call)
        n_runs += found.n_iter
        if i + 1 == n_iter or (before is not None and found.partition.equals(before)):
            break  # the next weights would be the same
        call, before = call.after(found), found.partition
        weights = weights_of([measured.sums(sources.found(found) or measured.group(before))], G)[:2]
        if options.alpha_tol > 0 and _change(weights, on_device[-1]) <= options.alpha_tol:
            break
        on_device.append(weights)
    if found.rough:
        found = clusterer.cluster(blend, call.from_found(found))
        n_runs += found.n_iter
    return _found(dataclasses.replace(found, n_iter=n_runs), on_device, blend)


def _alternate_by_object(
    sources: "_Sources",
    views: tuple[View, View],
    calls: Sequence[Call],
    clusterer: Clusterer,
    options: Options,
) -> Found | None:
    """Alternate between clusters and weights by objects, as `_alternate` does."""
    measured, tol, n_runs = sources.in_units, options.alpha_tol, 0
    terms = [measured.margin_terms(call.start) for call in calls]
    alpha, r, total = least_risk(*(sum(parts) / 2 for parts in zip(*terms, strict=True)))
    share, size = to_host(r, total, reason="does the future weigh more than the past?")
    if size == 0:
        return None
    call, weights, before = calls[int(share > 0.5)], [(alpha, r)], None
    moved = [from_host(view.record.moved, r, r.dtype) for view in views]
    trusts = [sources.at_places(trust_of(p, UNCHANGED)) for p in moved]
    for i in range(options.n_iter):
        blend = sources.blend_by_object(*weights[-1], trusts)
        found = clusterer.cluster(blend, dataclasses.replace(call, rough=i + 1 < options.n_iter))
        n_runs += found.n_iter
        if i + 1 == options.n_iter or (before is not None and labels_agree(found.partition, before, tol)):
            break
        call, before = call.after(found), found.partition
        weights.append(least_risk(*measured.margin_terms(before))[:2])
    if found.rough:
        found = clusterer.cluster(blend, call.from_found(found))
        n_runs += found.n_iter
    return _found(dataclasses.replace(found, n_iter=n_runs), weights, blend)


def _found(found: Clustering, weights: Sequence[tuple[Array, Array]], blend: Proximity) -> Found:
    """Return the result with the weights a and b on the host."""
    read = to_host(*(x for pair in weights for x in pair), reason="weights of past and future")
    pairs = zip(map(float, read[::2]), map(float, read[1::2]), strict=True)
    return Found(found, [((1 - r) * alpha, r * alpha) for alpha, r in pairs], lambda: blend)


def _change(weights: tuple[Array, Array], before: tuple[Array, Array]) -> float:
    """Return the largest change of a and b."""
    read = to_host(*weights, *before, reason="have the weights changed?")
    alpha, r, alpha_before, r_before = map(float, read)
    return max(abs(alpha * r - alpha_before * r_before), abs(alpha * (1 - r) - alpha_before * (1 - r_before)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Groups:
    """W, F and B by the same labels."""

    W: Grouped
    past: Grouped
    future: Grouped


@dataclasses.dataclass(frozen=True, eq=False)
class _Sums:
    """V, D_F, D_B and U for the clusters of a partition, and its block moments."""

    terms: tuple[Array, Array, Array, Array]
    moments: MomentsByBlock


def weights_of(sums: Sequence[_Sums], G: Array) -> tuple[Array, Array, Array]:
    """Return α, r and V + D from the average of some sums."""
    V, D_F, D_B, U = (sum(terms) / len(sums) for terms in zip(*(s.terms for s in sums), strict=True))
    return least_risk(V, D_F, D_B, G, U)


def least_risk(
    V: Array, D_F: Array, D_B: Array, G: Array, U: Array | float = 0.0
) -> tuple[Array, Array, Array]:
    """Return α and r of the smallest R, and V + D."""
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

    def group(
        self,
        partition: Partition | None,
        known: Sequence[Products | None] = (None, None),
        *,
        of_future: bool = False,
        other: Partition | None = None,
    ) -> _Groups:
        """Return the sources by labels, for the objects in all of them.

        Products of W and of a neighbour may be known: by these labels, those of one pass, and by the `other`
        ones, those of the other pass.
        """
        assert partition is not None
        partition = self.at_places(partition)
        W, past, future = self.W, self.past, self.future
        if not (isinstance(W, Dense) and isinstance(past, Dense) and isinstance(future, Dense)):
            return _Groups(*(part.group(partition) for part in (W, past, future)))
        own, across = known[::-1] if of_future else known
        if own is None or self.places is not None:
            neighbours = (part.summed(partition, squares=False) for part in (past, future))
            return _Groups(W.summed(partition), *neighbours)
        given = partition.labels[:, None], partition.k, partition
        near, far = (future, past) if of_future else (past, future)
        found = None if across is None or other is None else _renumbered(far, partition, other, across.psi)
        sides = [Summed(near, *given, wz=own.psi), found or far.summed(partition, squares=False)]
        ordered = sides[::-1] if of_future else sides
        return _Groups(Summed(W, *given, wz=own.w, earlier=own.earlier), *ordered)

    def sums(self, groups: _Groups) -> "_Sums":
        """Return V, with the correction, D_F and D_B without it, and the correction U."""
        moments = moments_of(groups.W)
        drifts = drift_from(groups.past, moments), drift_from(groups.future, moments)
        V = moments.total_variance()
        if self.correction is None:
            return _Sums((V, *drifts, array_namespace(V).zeros_like(V)), moments)
        U = moments.total(*mean_variances(groups.W, moments))
        return _Sums((moments.total_squares() + U, *drifts, U), moments)

    def difference(self, groups: _Groups, sums: "_Sums") -> Array:
        """Return G = Σ(f − b)² = 2 Σ(f − μ)² + 2 Σ(b − μ)² − 4 Σ(h − μ)², with H = ½F + ½B."""
        if isinstance(self.past, Dense) and isinstance(self.future, Dense) and self.places is None:
            return self.past.squared_difference(self.future)
        half = self.past.blend(self.future, 0.5, self._together).group(groups.past.partition)
        _, D_F, D_B, _ = sums.terms
        return 2 * (D_F + D_B) - 4 * drift_from(half, sums.moments)

    def blend(self, alpha: Array, r: Array) -> Proximity:
        """Return α P + (1 − α) W, P = (1 − r) F + r B, and the rest for all other pairs."""
        neighbours = Pair(self.past, self.future, self._together).blend(r)
        blend = Pair(self.W, neighbours if self._is_lazy else neighbours.formed(), self._together).blend(
            alpha
        )
        return self._with_rest(blend)

    def margin_terms(self, partition: Partition | None) -> tuple[Array, Array, Array, Array]:
        """Return V, D_F, D_B and G of the margins of rows between the clusters of a partition."""
        assert partition is not None
        partition = self.at_places(partition)
        past, future = (
            pair_moments(Pair(self.W, side, self._together).group(partition))
            for side in (self.past, self.future)
        )
        (V, D_F), (V_B, D_B) = margin_errors(past), margin_errors(future)
        C = Margins.of(past).pooled(past.shift * future.shift)
        return (V + V_B) / 2, D_F, D_B, D_F + D_B - 2 * C

    def blend_by_object(self, alpha: Array, r: Array, trusts: Sequence[Array]) -> Proximity:
        """Return W + a S (F − W) S + b U (B − W) U, and the rest for all other pairs."""
        sides = zip((self.past, self.future), ((1 - r) * alpha, r * alpha), trusts, strict=True)
        blend = TwoSidedBlend([ObjectBlend(Pair(self.W, side, self._together), a, s) for side, a, s in sides])
        return self._with_rest(blend if self._is_lazy else blend.formed())

    def at_places(self, of_step: Any) -> Any:
        """Return a partition or an array of the objects of the step, for those in all sources."""
        if self.places is None:
            return of_step
        index = from_host(self.places, self.W.like)
        if isinstance(of_step, Partition):
            return of_step.take(index, 0)
        return array_namespace(of_step).take(of_step, index)

    def _with_rest(self, blend: Proximity) -> Proximity:
        """Return a blend of the objects in all sources, and the rest for all other pairs."""
        if self.rest is None or self.places is None:
            return blend
        return self.rest.blend(blend.formed(), 1.0, _within(self.places, self.rest.n, self.rest.like))

    @property
    def _is_lazy(self) -> bool:
        """Whether P is multiplied without being formed: that saves a pass of writing."""
        return self.places is None and isinstance(self.W, Dense)

    def start(self, blend: Proximity, groups: _Groups) -> GroupedPair | None:
        """Return W and P by labels, given W, F and B by them, to start from."""
        if not self._is_lazy or self.in_units.W is not self.W:
            return None
        assert isinstance(blend, Blend) and isinstance(blend.pair.past, Blend)
        neighbours, partition = blend.pair.past, groups.W.partition
        P = neighbours.pair.group(partition, current=groups.past, past=groups.future).at(neighbours)
        return blend.pair.group(partition, current=groups.W, past=P)

    def found(self, found: Clustering) -> _Groups | None:
        """Return the sources by the labels that were found, where their products are known."""
        pair = None if found.groups is None else found.groups.parts
        if pair is None or not self._is_lazy or self.in_units.W is not self.W:
            return None
        neighbours = pair.past.parts  # None where r is 0: then only F was multiplied
        return None if neighbours is None else _Groups(pair.current, neighbours.current, neighbours.past)

    @property
    def _together(self) -> Alignment:
        return Alignment(None, None, n_common=self.W.n, n_new=0)


def _renumbered(W: Dense, partition: Partition, other: Partition, wz: Array) -> Grouped | None:
    """Return W by labels, given W·Z by other ones, if these are nearly the same clusters in another order."""
    k, table = partition.k, other.table(partition)
    if k != other.k or not can_sum_rows(table, wz):  # many clusters, or another library
        return None
    number = table.argmax(axis=1)  # of each other cluster in the partition
    labels = np.append(number, -1)[other.labels]
    rows = np.flatnonzero(labels != partition.labels)
    if len(np.unique(number)) < k or len(rows) > MAX_UPDATE_SHARE * partition.n:
        return None
    renumbered = Summed(W, labels[:, None], k, wz=wz[:, np.argsort(number)])
    return dataclasses.replace(renumbered.regrouped(partition.labels[:, None], rows), given=partition)


def _source(past: Past, n: int) -> np.ndarray:
    """Return the position of each object of the step in a neighbour, -1 if it is not there."""
    source = past.alignment.source
    return np.arange(n) if source is None else to_host(source, reason="objects of all sources")[0]


def _within(places: np.ndarray, n: int, like: Array) -> Alignment:
    """Return the alignment of n objects with the subset at `places`."""
    source = np.full(n, -1)
    source[places] = np.arange(len(places))
    return Alignment(from_host(source, like), from_host(places, like), len(places), n - len(places))
