"""Choose the labels for the first α of a step: those of the previous step, or static ones.

The previous labels do not depend on W, so noise cannot mislead them; but if objects have changed clusters,
the change looks like noise, α is high and the change is missed. Static labels, found on W alone, follow the
change, but also fit the noise: then the noise seems small, and α is low. Two facts show which of them is
wrong, without the truth.

First, the denominator of α does not depend on labels. The noise of W is independent of the past, so

    D = Σ(wᵢⱼ − ψᵢⱼ)²,   E D = Σ { (ψᵢⱼ − E wᵢⱼ)² + var(nᵢⱼ) }

and the noise V = Σ var(nᵢⱼ) alone gives α = V / D. Second, the past confirms a part of what static labels
explain of W. With μ and ν the means of W and of the past over their blocks, r² the squared correlation
of the two over all entries, and μ̄ the mean of W,

    V = Σ var(wᵢⱼ) + (1 − r²) Σ(μ − μ̄)²

adds to the noise within the blocks the differences between them that the past does not show, up to scale and
shift: a real change of a few objects leaves r² near 1, blocks that fit the noise do not. The labels whose α
is closer to V / D are chosen.

D needs no pass over W and the past: it is a sum over the blocks of the previous labels,

    D = Σ { (w − μ)² + (ψ − μ)² − 2 (w − μ)(ψ − ν) }

where the last product is that of the object effects, the row means within the block; the interaction of pairs
is neglected.
"""

import dataclasses
import math

from affect_xp.affect.forgetting import drift_from, share_of_noise
from affect_xp.affect.moments import MomentsByBlock, moments_of
from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    is_cupy,
    is_on_device,
    not_negative,
    ratio,
    rows_at,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.partition import Alignment, Partition
from affect_xp.proximity import Grouped, GroupedPair, Pair
from affect_xp.proximity.sparse import Sparse


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """Statistics of a step for two labellings; all are 0-d arrays."""

    previous: tuple[Array, Array]  # noise and drift for the previous labels
    static: tuple[Array, Array]  # and for static labels
    noise: Array  # V per entry
    difference: Array  # D per entry

    def stays(self) -> Array:
        """Return whether α of the previous labels is at least as close to V / D as that of static labels."""
        xp, v, d = array_namespace(self.noise), self.noise, self.difference
        if is_cupy(v):
            return cuda.stays(self.previous, self.static, v, d)
        previous, static = share_of_noise(*self.previous), share_of_noise(*self.static)
        return xp.abs(previous * d - v) <= xp.abs(static * d - v)


def judge(previous: GroupedPair, static: GroupedPair) -> Judgement:
    """Return noise and drift for both labellings, and V and D."""
    if previous.has_kernels and static.has_kernels:
        return _judge_by_kernels(previous, static)
    w, psi = previous.common.together(previous.past)
    moments = moments_of(w)
    shared = _shared_effects(w, psi, previous.pair.alignment)
    drift = drift_from(psi, moments)  # from ΨZ, which is known now
    difference = moments.total_squares() + drift - 2 * shared
    by_static, noise = _sums_and_noise(static.common.near(w), static.past)
    by_previous = moments.total_variance(), drift
    return Judgement(by_previous, by_static, noise, ratio(difference, _n_entries(moments)))


def _judge_by_kernels(previous: GroupedPair, static: GroupedPair) -> Judgement:
    """Do the same for CuPy arrays, in few kernel launches."""
    by_labels, given = [], []
    for now, past in ((previous.common, previous.past), (static.common, static.past)):
        moments = moments_of(now)
        sums = past.kernel_residuals(moments.means, moments.diagonal_means)
        drift = cuda.total_squares(sums, now.k)
        by_labels.append((moments.total_variance(), drift))
        given.append((now.kernel_moments, sums, drift))
    return Judgement(*by_labels, *cuda.judge(previous.for_kernels, *given))


def better_labels(
    judgement: Judgement, previous: Partition, static: Partition
) -> tuple[Partition, tuple[Array, Array]]:
    """Return the labels whose α is closer to V / D, and their noise and drift.

    Ties keep the previous labels. The choice is made on the device, without a host sync.
    """
    stays = judgement.stays()
    where = array_namespace(stays).where
    labels = where(stays, previous.labels, static.labels)
    outside = previous.n_outside if previous.n_outside == static.n_outside else None
    (noise, drift), (static_noise, static_drift) = judgement.previous, judgement.static
    sums = where(stays, noise, static_noise), where(stays, drift, static_drift)
    return Partition(labels, max(previous.k, static.k), outside), sums


def _n_entries(moments: MomentsByBlock) -> Array:
    """Return the number of entries of all blocks; the two labellings may exclude different objects."""
    return array_namespace(moments.sizes).sum(moments.sizes) ** 2


def _sums_and_noise(W: Grouped, past: Grouped) -> tuple[tuple[Array, Array], Array]:
    """Return noise and drift for these labels, and the noise V per entry, which includes what r² excludes."""
    W, past = W.together(past)
    moments = moments_of(W)
    noise = moments.total_variance()
    nu, nu_ii = _means(past)
    mu, mu_ii = _centred(moments, moments.means, moments.diagonal_means)
    nu, nu_ii = _centred(moments, nu, nu_ii)
    between = moments.total(mu * mu, mu_ii * mu_ii)
    confirmed = ratio(moments.total(mu * nu, mu_ii * nu_ii) ** 2, moments.total(nu * nu, nu_ii * nu_ii))
    sums = noise, drift_from(past, moments)
    return sums, ratio(noise + between - confirmed, _n_entries(moments))


def _means(groups: Grouped) -> tuple[Array, Array]:
    """Return the mean of each block, (k, k), and of each diagonal, (k,)."""
    partition = groups.partition
    return groups.block_means(), ratio(partition.totals(groups.diagonal()), partition.sizes)


def _centred(moments: MomentsByBlock, values: Array, diagonal_values: Array) -> tuple[Array, Array]:
    """Return values of blocks and diagonals minus their mean over all entries."""
    mean = ratio(moments.total(values, diagonal_values), _n_entries(moments))
    return values - mean, diagonal_values - mean


def _shared_effects(W: Grouped, past: Grouped, alignment: Alignment) -> Array:
    """Return Σ(w − μ)(ψ − ν) of the object effects.

    An entry is wᵢⱼ = μ + aᵢ + bⱼ + eᵢⱼ, within a cluster μ + aᵢ + aⱼ + eᵢⱼ. With āᵢ the mean of row i within
    the block minus μ, and a the same of the past, over both (c, d) and (d, c), and within c,

        2 { m_d Σᵢ āᵢaᵢ + m_c Σⱼ b̄ⱼbⱼ },   2 (m − 1)² / (m − 2) Σᵢ āᵢaᵢ
    """
    now, source = W.partition, alignment.source
    xp, same, m = array_namespace(now.sizes), W.blocks.copies - 1, W.blocks.m_d
    weight = same * ratio((m - 1) ** 2, m - 2) + (1 - same) * m
    there = slice(0, now.n) if source is None else not_negative(source)
    diagonal = _diagonal_deviations(W) * rows_at(_diagonal_deviations(past), there)
    return 2 * xp.sum(weight * W.row_products(past, source)) + diagonal @ now.is_member


def _diagonal_deviations(groups: Grouped) -> Array:
    """Return wᵢᵢ minus its mean over the cluster, (n,)."""
    partition, w_ii = groups.partition, groups.diagonal()
    return w_ii - partition.by_object(ratio(partition.totals(w_ii), partition.sizes))


# How much α can depend on the labels it is estimated with. With w = Σwᵢⱼ², p = Σψᵢⱼ², and the means μ of W
# and ν of Ψ over the blocks of some labels,
#
#     α = (w − E) / (w + p − 2c),   E = Σμ²,   c = Σμν
#
# up to the corrections of variances, which are of the order 1/m in clusters of m objects. For k clusters the
# means are projections to k dimensions, so that E is at most K_w, the sum of the k largest squared
# eigenvalues of W, and c² ≤ E K_ψ. If no entry is negative, c ≥ 0. To first order in K, and with
# a = w / (w + p), α by any labels is between
#
#     a − K_w / (w + p)   and   a + a² K_ψ / (w + p)
#
# No eigenvalue is larger than ‖Wʳ1‖_∞^{1/r}, for any r: in large sparse graphs the two are close.
POWERS = (1, 2, 4)  # r: the bound gets tighter with r


def alpha_is_insensitive(pair: Pair, k: int, tol: float) -> bool:
    """Return whether α is known to differ by at most `tol` between any two labellings with k clusters.

    This is known only for sparse W and Ψ of the same objects without negative entries. On a device the host
    waits once.
    """
    current, past = pair.current, pair.past
    if tol == 0 or not pair.alignment.unchanged:
        return False
    if not (isinstance(current, Sparse) and isinstance(past, Sparse)):
        return False
    if current.matrix.nnz == 0 or past.matrix.nnz == 0:
        return False
    if pair.unit != 1:  # squares of entries overflow or underflow
        return False
    xp = array_namespace(current.like)
    low = xp.minimum(xp.min(current.like), xp.min(past.like))
    seen, bounds = [low, _squares(current), _squares(past)], [_SpectralBound(current), _SpectralBound(past)]
    # A device computes all bounds before the host waits, the host one by one.
    steps = [POWERS] if is_on_device(current.like) else [(), *((power,) for power in POWERS)]
    for powers in steps:
        largest = [bound.at(power) for power in powers for bound in bounds]
        read = [float(x) for x in to_host(*seen, *largest, reason="can labels change α?")]
        low, w, p = read[:3]
        if low < 0 or not 0 < w + p < math.inf:
            return False
        for i, power in enumerate(powers):
            top, top_past = (_root(x, power) for x in read[3 + 2 * i : 5 + 2 * i])
            a = w / (w + p)
            if k * (top**2 + a * a * top_past**2) <= tol * (w + p):
                return True
    return False


def _root(x: float, power: int) -> float:
    return x ** (1 / power) if math.isfinite(x) else math.inf


def _squares(W: Sparse) -> Array:
    """Return Σwᵢⱼ²."""
    xp, wide = array_namespace(W.like), wide_dtype(W.like)
    values = xp.astype(W.like, wide, copy=False)
    return values @ values


class _SpectralBound:
    """Upper bounds of the largest eigenvalue of a nonnegative matrix."""

    def __init__(self, W: Sparse) -> None:
        xp, wide = array_namespace(W.like), wide_dtype(W.like)
        self.W, self.power = W, 0
        self.x = xp.ones((W.n, 1), dtype=wide, device=device_of(W.like))

    def at(self, power: int) -> Array:
        """Return ‖Wʳ1‖_∞, 0-d; r must not decrease between calls."""
        while self.power < power:
            self.x, self.power = self.W.matmul(self.x), self.power + 1
        return array_namespace(self.x).max(self.x)
