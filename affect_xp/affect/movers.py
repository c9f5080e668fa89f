"""Objects that move between clusters: the probability of a move, and the weight of the past.

The model. Between two steps an object changes its cluster with a small probability π. Entries of the block
(c, d) are

    wᵢⱼ = μ_cd + hᵢⱼ + εᵢⱼ,    ψᵢⱼ = μ'_cd + hᵢⱼ + ηᵢⱼ

where h persists, ε is noise with variance v_cd, and η is the error of the past with mean square e_cd. A
clusterer compares sums of rows over clusters: it distinguishes an object i of c from one of d by its margin
Tᵢ = (WZ)ᵢc/m_c − (WZ)ᵢd/m_d, with m_cd the number of entries of a row within the block.

The weight a. If i stays, var T(W) = ρ(v_cc/m_c + v_cd/m_d), and the mean squared error of T(Ψ) is the same
with e; ρ ≥ 1 because entries of a row are not independent. If i came from d, T(Ψ) is off by
Δ_cd = (μ_cc − μ_cd) + (μ_dd − μ_dc). The blended margin a·T(Ψ) + (1 − a)·T(W) then has the risk
(1 − a)²ρV + a²(ρE + πΔ²). Pooled over c ≠ d with weights inverse to the variance of a margin,
ω_cd = n_c m_cc m_cd/(m_cc + m_cd), it is smallest at

    a = V / (V + E + πK/ρ),   V = Σ ω_cd (v_cc/m_cc + v_cd/m_cd),   E likewise with e,   K = Σ ω_cd Δ_cd² (A)

For clusters of one size that is the paper's α with one more term: π times half the squared number of standard
deviations between two clusters in a single step.

The probability of a move. R = WZ and P = ΨZ are rows of sums. The profile of cluster c is the mean row of its
members, q_c ∝ Q_c + κg with Q = Zᵀ(R + P) and g near the mean profile. As counts with dispersion φ, the rows
give the probabilities u_ic ∝ exp(Σ_d R_id log q_cd / φ) of the current clusters, and b_ic likewise from P;
with sameᵢ = Σ_c b_ic u_ic,

    pᵢ = mᵢ / (mᵢ + (1 − π) sameᵢ),   mᵢ = π (1 − sameᵢ)/(k − 1)    (P)

The blend has the weights a·sᵢsⱼ with s = 1 − p. Without evidence of a move, p ≤ π, it is s = 1: the weight a
allows for unseen moves already. Objects without a past have s = 0.

All sums are over pairs i ≠ j of objects that have a past. Nothing here makes the host wait.
"""

import dataclasses
import functools
from typing import Any

from affect_xp.affect.forgetting import positive_part
from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    host_value,
    not_negative,
    ratio,
    row_blocks,
    rows_at,
)
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition
from affect_xp.proximity import Grouped, GroupedPair, Occupied
from affect_xp.proximity.grouped import identity

# π: the prior probability that an object moves between two steps.
MOVE_RATE = 0.01
# κ: the weight of the mean profile in the profile of a cluster, in units of proximity.
PRIOR_WEIGHT = 1.0
# The share of the uniform profile in the mean profile g.
UNIFORM_SHARE = 0.1
# The smallest dispersion φ of rows.
MIN_DISPERSION = 0.25
# The smallest entry of a profile.
MIN_PROFILE = 1e-9
# Entries of an (n, k) array in a block of rows on the host: a dozen of them stay in cache.
BLOCK_ENTRIES = 2**15


@dataclasses.dataclass(frozen=True, eq=False)
class RowSums:
    """WZ without wᵢᵢ, (n, k), by blocks of rows; zero for objects without a past."""

    groups: Grouped
    partition: Partition  # of the objects of W; -1 for those without a past
    source: Array | None = None  # the rows of the objects in `groups`; None if they are the same

    @functools.cached_property
    def _diagonal(self) -> Array | None:
        """wᵢᵢ, or None if they are known to be 0."""
        w_ii = self.groups.diagonal()
        return None if host_value(array_namespace(w_ii).any(w_ii != 0)) == 0 else w_ii

    @functools.cached_property
    def _is_single(self) -> Array | None:
        """Whether each cluster has one member, (k,), or None if none is known to have one."""
        single = self.partition.sizes == 1
        return None if host_value(array_namespace(single).any(single)) == 0 else single

    def at(self, block: slice) -> Array:
        """Return some rows; do not write to them."""
        rows = block if self.source is None else not_negative(self.source[block])
        sums, w_ii, partition = self.groups.rows(rows), self._diagonal, self.partition
        if w_ii is not None:
            z = partition.membership[block, :]
            sums = sums - rows_at(w_ii, rows)[:, None] * z
            if self._is_single is not None:  # the sum over one alone is wᵢᵢ, up to rounding
                xp = array_namespace(sums)
                sums = xp.where((z > 0) & self._is_single, xp.zeros_like(sums), sums)
        return sums if partition.n_outside == 0 else partition.is_member[block][:, None] * sums


@dataclasses.dataclass(frozen=True, eq=False)
class PairMoments:
    """Statistics of W and Ψ by clusters, over pairs i ≠ j of objects that have a past."""

    partition: Partition  # -1 for objects without a past
    rows: RowSums  # R = WZ without wᵢᵢ
    past_rows: RowSums  # P = ΨZ without ψᵢᵢ
    means: Array  # μ of each block, (k, k)
    squares: Array  # Σ(w − μ)²
    # None if only the probability of moves is needed: μ', Σ(ψ − μ')² and Σ(w − μ)(ψ − μ').
    past_means: Array | None = None
    past_squares: Array | None = None
    products: Array | None = None

    @property
    def blocks(self) -> list[slice]:
        """Blocks of rows."""
        return list(
            row_blocks(self.partition.membership, host_rows=max(1, BLOCK_ENTRIES // self.partition.k))
        )

    @functools.cached_property
    def profiles_and_lowest(self) -> tuple[Array, Array]:
        """Q = Zᵀ(R₊ + P₊), (k, k), and the smallest entry of R and P, 0-d."""
        xp, z = array_namespace(self.means), self.partition.membership
        Q, lowest = 0 * self.means, []
        for block in self.blocks:
            R, P = self.rows.at(block), self.past_rows.at(block)
            Q = Q + z[block, :].T @ (positive_part(R) + positive_part(P))
            lowest.append(xp.min(xp.minimum(R, P)))
        return Q, xp.min(xp.stack(lowest))

    @property
    def sizes(self) -> Array:
        """n_c: the number of members of each cluster that have a past, (k,)."""
        return self.partition.sizes

    @property
    def counts(self) -> Array:
        """N: the number of entries of each block, (k, k)."""
        return self.partition.pair_counts

    @functools.cached_property
    def is_used(self) -> Array:
        """Whether a block has enough entries for a variance, (k, k)."""
        return self.counts > 2

    def variance(self, squares: Array) -> Array:
        """Return the variance of entries, given the sums of squares of blocks."""
        xp = array_namespace(squares)
        # Pairs within a cluster are counted twice.
        found = ratio(squares, self.counts - 1 - identity(self.counts))
        return xp.where(self.is_used, found, xp.zeros_like(found))

    def plain_sums(self) -> tuple[Array, Array, Array]:
        """Return Σw², Σψ² and Σwψ of each block, (k, k)."""
        assert self.past_squares is not None and self.past_means is not None and self.products is not None
        N, mu, nu = self.counts, self.means, self.past_means
        return self.squares + N * mu * mu, self.past_squares + N * nu * nu, self.products + N * mu * nu

    def noise_and_drift(self) -> tuple[Array, Array]:
        """Return Σ var(wᵢⱼ) and Σ(ψᵢⱼ − μ)²; the paper's α is the share of the first in their sum."""
        assert self.past_squares is not None and self.past_means is not None
        xp, N = array_namespace(self.squares), self.counts
        shift = self.means - self.past_means
        noise = xp.sum(N * ratio(self.squares, N - 1 - identity(N)))
        return noise, xp.sum(self.past_squares + N * shift * shift)

    @property
    def shift(self) -> Array:
        """μ − μ' of each block with enough entries, 0 for others, (k, k)."""
        xp = array_namespace(self.means)
        return xp.where(self.is_used, self.means - self.past_means, xp.zeros_like(self.means))

    @functools.cached_property
    def noise_and_error(self) -> tuple[Array, Array]:
        """v and e: the noise of a current entry, and the mean squared error of the past, (k, k)."""
        assert self.past_squares is not None and self.products is not None
        now, before = self.variance(self.squares), self.variance(self.past_squares)
        # The persistent part h is in both, and is neither noise nor error.
        persistent = _clipped(self.variance(self.products), now, before)
        return now - persistent, before - persistent + self.shift * self.shift


def pair_moments(groups: GroupedPair, *, products: bool = True) -> PairMoments:
    """Return the statistics of a step by clusters; without `products`, only those from W, WZ and ΨZ."""
    now, partition = groups.common, groups.common.partition
    if isinstance(now, Occupied):
        raise InputError(
            f"forgetting='objects' compares each object with each of {groups.k} clusters, which needs too "
            "much memory; use forgetting='global', or fewer clusters"
        )
    sums, before = groups.products() if products else (None, groups.past)  # Σwψ
    rows = RowSums(now, partition), RowSums(before, partition, groups.pair.alignment.source)
    means, squares = now.moments()
    if sums is None:
        return PairMoments(partition, *rows, means, squares)
    past_means, past_squares = before.moments()
    covariances = sums - partition.pair_counts * means * past_means
    return PairMoments(partition, *rows, means, squares, past_means, past_squares, covariances)


def margin_weight(moments: PairMoments, move_rate: float = MOVE_RATE) -> Array:
    """Return the weight a of the past, (A), 0-d; with one cluster ΣNv/ΣN(v + e)."""
    V, error = margin_errors(moments, move_rate)
    return ratio(V, V + error)


def margin_errors(moments: PairMoments, move_rate: float = MOVE_RATE) -> tuple[Array, Array]:
    """Return V and E + πK/ρ: the squared errors of margins now, and of margins of the past, 0-d."""
    v, e = moments.noise_and_error
    xp, mu, margins = array_namespace(v), moments.means, Margins.of(moments)
    contrast = _diagonal(mu)[:, None] - mu + _diagonal(mu)[None, :] - mu.T  # Δ
    K = xp.sum(margins.omega * contrast * contrast)  # 0 with one cluster
    return margins.pooled(v), margins.pooled(e) + move_rate * K / row_inflation(moments, v)


@dataclasses.dataclass(frozen=True, eq=False)
class Margins:
    """The weights ω of the margins between clusters, and m, the entries of a row in a block, both (k, k)."""

    omega: Array
    m: Array
    counts: Array

    @staticmethod
    def of(moments: PairMoments) -> "Margins":
        """Return the weights of the margins of members with a past."""
        n, N = moments.sizes, moments.counts
        xp, is_cluster = array_namespace(N), _diagonal(moments.is_used)
        off = moments.is_used & ~(identity(N) > 0) & is_cluster[:, None] & is_cluster[None, :]
        m = ratio(N, xp.broadcast_to(n[:, None], N.shape))
        m_cc = _diagonal(m)[:, None]
        omega = xp.where(off, n[:, None] * ratio(m_cc * m, m_cc + m), xp.zeros_like(m))
        return Margins(omega, m, N)

    def pooled(self, x: Array) -> Array:
        """Return Σ ω_cd (x_cc/m_cc + x_cd/m_cd) of errors x of entries; with one cluster ΣNx."""
        xp, by_entries = array_namespace(x), ratio(x, self.m)
        pooled = xp.sum(self.omega * (_diagonal(by_entries)[:, None] + by_entries))
        return xp.where(xp.any(self.omega > 0), pooled, xp.sum(self.counts * x))


def row_inflation(moments: PairMoments, v: Array) -> Array:
    """Return ρ ≥ 1: the noise of row means divided by that of means of as many independent entries.

    A row of cluster c has m_cd entries in cluster d, so that its mean there is R_id/m_cd.
    """
    xp, n, N, partition = array_namespace(v), moments.sizes[:, None], moments.counts, moments.partition
    m, z = ratio(N, xp.broadcast_to(n, N.shape)), partition.membership
    sums = [xp.zeros_like(v)] * 3
    for block in moments.blocks:
        own = partition.at(block)
        now = moments.rows.at(block) - own.by_object(m * moments.means)
        before = moments.past_rows.at(block) - own.by_object(m * moments.past_means)
        parts = now * now, before * before, now * before
        sums = [total + z[block, :].T @ part for total, part in zip(sums, parts, strict=True)]
    freedom = xp.broadcast_to(n - 1, N.shape)
    var, past_var, both = (ratio(total, freedom * m * m) for total in sums)
    used = moments.is_used & (freedom > 0)
    observed = xp.where(used, N * (var - _clipped(both, var, past_var)), xp.zeros_like(N))
    expected = xp.where(used, n * v, xp.zeros_like(N))
    rho = ratio(xp.sum(observed), xp.sum(expected))
    return xp.where(rho > 1, rho, xp.ones_like(rho))


def move_probability(moments: PairMoments, move_rate: float = MOVE_RATE) -> Array:
    """Return p, (P), (n,): 0 without a past, for an empty row, and with a single cluster."""
    partition, k = moments.partition, moments.partition.k
    xp, z = array_namespace(moments.means), partition.membership
    if k < 2:
        return xp.zeros((partition.n,), dtype=z.dtype, device=device_of(z))
    Q, ones = moments.profiles_and_lowest[0], xp.ones((k,), dtype=z.dtype, device=device_of(z))
    g = (1 - UNIFORM_SHARE) * ratio(xp.sum(Q, axis=0), xp.sum(Q)) + UNIFORM_SHARE / k
    profiles = Q + PRIOR_WEIGHT * g
    log_q, phi = _log_shares(profiles), _dispersion(moments)

    def probability(block: slice) -> Array:
        R, P = positive_part(moments.rows.at(block)), positive_part(moments.past_rows.at(block))
        own_z, S = xp.permute_dims(z[block, :], (1, 0)), R + P
        # Exclude the object itself from the profile of its cluster.
        own = xp.maximum(partition.at(block).by_object(profiles) - S, xp.full_like(S, MIN_PROFILE))
        log_own = _log_shares(own)

        def posterior(rows: Array) -> Array:  # (k, rows): reductions over the first axis are faster
            score = log_q @ xp.permute_dims(rows, (1, 0))
            score += own_z * (((rows * log_own) @ ones)[None, :] - score)
            weight = xp.exp((score - xp.max(score, axis=0)[None, :]) / phi)
            return weight / (ones @ weight)[None, :]

        same = ones @ (posterior(P) * posterior(R))
        stays, moves = (1 - move_rate) * same, positive_part(move_rate * (1 - same) / (k - 1))
        known = (partition.labels[block] >= 0) & (R @ ones > 0) & (P @ ones > 0)
        return xp.where(known, ratio(moves, stays + moves), xp.zeros_like(same))

    return xp.concat([probability(block) for block in moments.blocks])


def move_probability_by_kernels(groups: GroupedPair, move_rate: float = MOVE_RATE) -> tuple[Array, Array]:
    """Return p, (n,), and the lowest sum of a row over a cluster, in few kernel launches; k ≥ 2."""
    prior, least = (PRIOR_WEIGHT, UNIFORM_SHARE), (MIN_DISPERSION, MIN_PROFILE)
    moments: Any = groups.common.kernel_moments
    return cuda.move_probability(groups.for_kernels, moments, move_rate, prior, least)


def _dispersion(moments: PairMoments) -> Array:
    """Return φ = ΣN var(w) / Σw, at least `MIN_DISPERSION`."""
    xp, N = array_namespace(moments.means), moments.counts
    variance = ratio(moments.squares, N - 1 - identity(N))
    phi = ratio(xp.sum(N * variance), xp.sum(N * moments.means))
    return xp.maximum(phi, xp.full_like(phi, MIN_DISPERSION))


def _clipped(both: Array, var: Array, other: Array) -> Array:
    """Return a covariance clipped to between 0 and the smaller of the variances."""
    xp = array_namespace(both)
    return positive_part(xp.minimum(both, xp.minimum(var, other)))


def _log_shares(x: Array) -> Array:
    xp = array_namespace(x)
    ones = xp.ones((x.shape[1],), dtype=x.dtype, device=device_of(x))
    return xp.log(x) - xp.log(x @ ones)[:, None]  # products add short rows faster than sums


def _diagonal(x: Array) -> Array:
    return array_namespace(x).linalg.diagonal(x)
