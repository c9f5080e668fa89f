"""Which labels the first α of a step is estimated with: those of the step before, or static ones.

Labels of the step before know nothing of W, so that noise does not deceive them; but where objects have
changed clusters, the change looks like noise, α is high and the change is missed. Labels found on W alone see
the change, and take noise for clusters as well: then there seems to be little noise, and α is low. Which of
them errs can be told without the truth, from two facts.

The first: what α is to divide by does not depend on labels. The noise of W is independent of the past, so

    D = Σ(wᵢⱼ − ψᵢⱼ)²,   E D = Σ { (ψᵢⱼ − E wᵢⱼ)² + var(nᵢⱼ) }

and the noise V = Σ var(nᵢⱼ) alone gives α = V / D. The second: of what static labels explain of W, the past
confirms a part. With μ and ν the means of W and of the past over their blocks, r² the squared correlation
of the two over all entries, and μ̄ the mean of W,

    V = Σ var(wᵢⱼ) + (1 − r²) Σ(μ − μ̄)²

adds to the noise within the blocks what lies between them and was not so before, up to scale and shift: real
change of a few objects leaves r² near 1, blocks that follow the noise do not. Those of the two labels are
taken whose own α is nearer to V / D.

D takes no pass over W and the past: it is a sum over blocks by the labels before,

    D = Σ { (w − μ)² + (ψ − μ)² − 2 (w − μ)(ψ − ν) }

where the last product is that of the objects' effects, the row means within the block; what pairs of objects
have beyond that is left out.
"""

import dataclasses

from affect_xp.affect.forgetting import drift_from, share_of_noise
from affect_xp.affect.moments import BlockMoments, moments_of, row_deviations
from affect_xp.alignment import Alignment
from affect_xp.array.namespace import array_namespace, device_of, not_negative, ratio, row_blocks, rows_at
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity import Grouped, GroupedPair


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """What two labellings say of a step; all are 0-d arrays.

    Attributes
    ----------
    previous, static
        The noise and the drift by the labels of the step before, and by static labels: α is the share of the
        noise in their sum.
    noise
        V, for each entry.
    difference
        D, for each entry.
    """

    previous: tuple[Array, Array]
    static: tuple[Array, Array]
    noise: Array
    difference: Array

    def stays(self) -> Array:
        """Tell whether α by the labels of the step before is the nearer one to V / D, or as near."""
        xp, v, d = array_namespace(self.noise), self.noise, self.difference
        previous, static = share_of_noise(*self.previous), share_of_noise(*self.static)
        return xp.abs(previous * d - v) <= xp.abs(static * d - v)


def judge(previous: GroupedPair, static: GroupedPair) -> Judgement:
    """Return α by both labels, and V and D to judge them by."""
    w, psi = previous.common, previous.past
    moments = moments_of(w)
    drift = drift_from(psi, moments)
    shared = _shared_effects(w, psi, previous.pair.alignment)
    difference = moments.total_squares() + drift - 2 * shared
    by_static, noise = _sums_and_noise(static.common.near(w), static.past)
    by_previous = moments.total_variance(), drift
    return Judgement(by_previous, by_static, noise, ratio(difference, _n_entries(moments)))


def better_labels(
    judgement: Judgement, previous: Partition, static: Partition
) -> tuple[Partition, tuple[Array, Array]]:
    """Return the labels by which α comes nearer to V / D, and noise and drift by them.

    Where both labels do alike, those of the step before.

    The host does not wait for the answer, and does not learn it.
    """
    stays = judgement.stays()
    where = array_namespace(stays).where
    labels = where(stays, previous.labels, static.labels)
    outside = previous.n_outside if previous.n_outside == static.n_outside else None
    (noise, drift), (static_noise, static_drift) = judgement.previous, judgement.static
    sums = where(stays, noise, static_noise), where(stays, drift, static_drift)
    return Partition(labels, max(previous.k, static.k), outside), sums


def _n_entries(moments: BlockMoments) -> Array:
    """Return the number of entries of all blocks; labels may leave different objects out."""
    return array_namespace(moments.sizes).sum(moments.sizes) ** 2


def _sums_and_noise(W: Grouped, past: Grouped) -> tuple[tuple[Array, Array], Array]:
    """Return noise and drift by these labels, and the noise of an entry with what the past denies."""
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
    diagonal_sums = groups.diagonal() @ partition.membership
    means = ratio(groups.sums() - _same(partition) * diagonal_sums, partition.pair_counts)
    return means, ratio(diagonal_sums, partition.sizes)


def _same(partition: Partition) -> Array:
    """Return 1 for the blocks within a cluster, and 0 for those between two, (k, k)."""
    m = partition.sizes
    return array_namespace(m).eye(partition.k, dtype=m.dtype, device=device_of(m))


def _centred(moments: BlockMoments, values: Array, diagonal_values: Array) -> tuple[Array, Array]:
    """Return values of blocks and diagonals less their mean over all entries."""
    mean = ratio(moments.total(values, diagonal_values), _n_entries(moments))
    return values - mean, diagonal_values - mean


def _shared_effects(W: Grouped, past: Grouped, alignment: Alignment) -> Array:
    """Return Σ(w − μ)(ψ − ν) as far as effects of objects go.

    An entry is wᵢⱼ = μ + aᵢ + bⱼ + eᵢⱼ, within a cluster μ + aᵢ + aⱼ + eᵢⱼ. With āᵢ the mean of row i within
    the block less μ, and a the same of the past, over both (c, d) and (d, c), and within c,

        2 { m_d Σᵢ āᵢaᵢ + m_c Σⱼ b̄ⱼbⱼ },   2 (m − 1)² / (m − 2) Σᵢ āᵢaᵢ
    """
    now, w, psi = W.partition, _Effects(W), _Effects(past)
    z, m, source = now.membership, now.sizes, alignment.source
    xp, same, total = array_namespace(m), _same(now), 0
    weight = same * ratio((m - 1) ** 2, m - 2) + (1 - same) * m
    for rows in row_blocks(z):
        # An object that is new has no row in the past: z being zero for it, any row will do.
        there = rows if source is None else not_negative(source[rows])
        (a, a_ii), (b, b_ii) = w.rows(rows), psi.rows(there)
        total = total + 2 * xp.sum(weight * (z[rows, :].T @ (a * b))) + xp.sum((a_ii * b_ii) @ z[rows, :])
    return total


class _Effects:
    """What rows have beyond the means of their blocks."""

    def __init__(self, groups: Grouped) -> None:
        self.groups, self.partition, self.w_ii = groups, groups.partition, groups.diagonal()
        self.means, self.diagonal_means = _means(groups)

    def rows(self, which: slice | Array) -> tuple[Array, Array]:
        """Return means of some rows less those of the block, (rows, k), and wᵢᵢ less its mean, (rows,)."""
        wz, w_ii, own = self.groups.rows(which), rows_at(self.w_ii, which), self.partition.at(which)
        deviations = row_deviations(wz, w_ii, own, self.partition.sizes, self.means)
        return deviations, w_ii - own.by_object(self.diagonal_means)
