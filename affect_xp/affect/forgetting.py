"""The forgetting factor α: estimated from the data, or computed from the true proximities."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.moments import MomentsByBlock, mean_variances, moments_of
from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    is_array,
    is_cupy,
    on_input_device,
    ratio,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.exceptions import InputError, shown
from affect_xp.partition import UNCHANGED, Partition, as_partition
from affect_xp.proximity import Dense, Grouped, Pair, Proximity, as_proximity, is_plain, summed_proximity

# A rule for α: "estimate", a number, one for each step, or a function.
Alpha = (
    str | float | Sequence[float] | np.ndarray | Callable[[Proximity, Proximity, Array, int], Array | float]
)


@on_input_device
@own_threads()
def forgetting_factor(
    W: Array | Proximity,
    past: Array | Proximity,
    labels: Array | Partition,
    n_clusters: int | None = None,
    *,
    correction: str | None = None,
) -> Array:
    """Return the estimated forgetting factor: the weight of the past in the best blend.

        α = Σᵢⱼ var(nᵢⱼ) / Σᵢⱼ { (ψᵢⱼ − E wᵢⱼ)² + var(nᵢⱼ) }

    minimises the expected squared error of α·past + (1 − α)·W. The expectation E wᵢⱼ and the noise
    var(nᵢⱼ) are estimated by the sample mean and variance of the block of (i, j). If there is neither
    noise nor drift, all blends are equal and α is 0.

    Parameters
    ----------
    W, past : (n, n) arrays or Proximities
        Current proximities, and the smoothed ones of the previous step, of the same objects.
    labels : (n,) int array or Partition
        The clusters that define the blocks; objects with -1 are excluded.
    n_clusters : int, optional
        k, if it exceeds the largest label plus one.
    correction : None or "objects"
        With "objects", α is corrected for entries of a block that share an object. They make its mean
        less certain than their number suggests, and that uncertainty looks like drift: without the
        correction α is too low for small clusters. The correction needs correct clusters: objects in a
        wrong cluster look like noise, which the correction increases.

    Returns
    -------
    0-d array, between 0 and 1, in the library and on the device of W

    References
    ----------
    Xu, Kliger & Hero, "Adaptive Evolutionary Clustering", Data Min. Knowl. Disc. 28 (2014), section 3.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> rng = np.random.default_rng(0)
    >>> truth = np.kron(np.eye(2), np.ones((20, 20)))
    >>> noise = rng.normal(size=(2, 40, 40))
    >>> past, W = truth + 0.1 * (noise + noise.swapaxes(1, 2))
    >>> alpha = ax.forgetting_factor(W, past, [0] * 20 + [1] * 20)
    >>> round(float(alpha), 2)  # both are equally noisy: about one half
    0.52
    """
    check_correction(correction)
    if is_plain(W):
        partition = as_partition(labels, W.shape[0], np.empty(0), n_clusters)
        W, past = summed_proximity(W, "W", partition), summed_proximity(past, "past", partition, "total")
    else:
        W, past = as_proximity(W), as_proximity(past, "past")
        partition = as_partition(labels, W.n, W.like, n_clusters)
        if isinstance(W, Dense) and isinstance(past, Dense):
            W, past = W.with_sums(partition, "blocks"), past.with_sums(partition, "total")
    if W.n != past.n:
        raise InputError(
            f"past has {past.n} objects, but W has {W.n}; pass the same objects in the same order"
        )
    array_namespace(W.like, past.like)
    groups = Pair(W, past, UNCHANGED).group(partition).in_units
    return share_of_noise(*noise_and_drift(groups.common, groups.past, correction))


def check_correction(correction: object) -> str | None:
    """Return `correction` if it is "objects" or None."""
    if correction is not None and (not isinstance(correction, str) or correction != "objects"):
        raise InputError(f"correction must be 'objects' or None, got {correction!r}")
    return correction


def noise_and_drift(W: Grouped, past: Grouped, correction: str | None = None) -> tuple[Array, Array]:
    """Return the noise and drift sums; α = noise / (noise + drift).

    Both are sums of squares of proximities, which must not overflow (see `Pair.in_units`).

    The correction: the sample mean μ̂ of a block deviates from the expectation μ independently of the past, so
    that over the N entries of the block

        E Σ(ψ − μ̂)² = Σ(ψ − μ)² + N var μ̂,   E Σ(w − μ̂)² = N var w − N var μ̂

    The same quantity U = ΣN var μ̂ is added to the noise and subtracted from the drift. It is estimated with
    objects as sampling units (see `affect_xp.affect.moments`). With T = Σ(w − μ̂)² and D = Σ(ψ − μ̂)² over all
    blocks,

        α = (T + U) / (T + D),   and 1 if U > D
    """
    moments = moments_of(W)
    drift = drift_from(past, moments)
    if correction is None:
        return moments.total_variance(), drift
    uncertainty = moments.total(*mean_variances(W, moments))  # U
    return positive_part(moments.total_squares() + uncertainty), positive_part(drift - uncertainty)


def drift_from(past: Grouped, moments: MomentsByBlock) -> Array:
    """Return Σ(ψ − μ)², off and on the diagonal."""
    sums = past.kernel_residuals(moments.means, moments.diagonal_means)
    if sums is not None:
        return cuda.total_squares(sums, past.k)
    partition = past.partition
    deviation = past.diagonal() - partition.by_object(moments.diagonal_means)
    deviation = deviation * partition.is_member
    return past.on(moments.blocks).distance_to(moments.means) + deviation @ deviation


def positive_part(x: Array) -> Array:
    """Return x with negative values replaced by 0."""
    xp = array_namespace(x)
    return xp.maximum(x, xp.zeros_like(x))


def share_of_noise(noise: Array, drift: Array) -> Array:
    """Return noise / (noise + drift), and 0 if both are 0 or either is NaN."""
    xp = array_namespace(noise)
    if is_cupy(noise):
        return cuda.share(noise, drift)
    both = noise + drift
    return xp.where(both < xp.inf, ratio(noise, both), xp.zeros_like(both))


@on_input_device
def oracle_forgetting_factor(psi: Array, noise_variance: Array, past: Array) -> Array:
    """Return the optimal forgetting factor, given the true proximities and the noise variance.

        α* = Σᵢⱼ var(nᵢⱼ) / Σᵢⱼ { (ψ̂ᵢⱼ − ψᵢⱼ)² + var(nᵢⱼ) }

    Parameters
    ----------
    psi : (n, n) array
        The true proximities Ψᵗ.
    noise_variance : (n, n) array
        The variance of each entry of the noise.
    past : (n, n) array or Dense
        The smoothed proximities Ψ̂ᵗ⁻¹.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> float(ax.oracle_forgetting_factor(np.zeros((2, 2)), np.full((2, 2), 3.0), np.ones((2, 2))))
    0.75
    """
    past = getattr(past, "array", past)
    if not psi.shape == noise_variance.shape == past.shape:
        raise InputError(
            f"psi, noise_variance and past must be of one shape, got {tuple(psi.shape)}, "
            f"{tuple(noise_variance.shape)} and {tuple(past.shape)}"
        )
    xp = array_namespace(psi, noise_variance, past)
    wide = wide_dtype(psi)
    noise = drift = xp.zeros((), dtype=wide, device=device_of(psi))
    for rows in row_blocks(psi):
        noise = noise + xp.sum(noise_variance[rows, :], dtype=wide)
        drift = drift + xp.sum(xp.astype(past[rows, :] - psi[rows, :], wide) ** 2)
    return share_of_noise(noise, drift)


@on_input_device
def gaussian_mixture_proximity(means: Array, covariances: Array, labels: Array) -> tuple[Array, Array]:
    """Return the expectation and the variance of the dot products of samples of a Gaussian mixture.

    For xᵢ ~ N(μ_c, Σ_c) and xⱼ ~ N(μ_d, Σ_d), i ≠ j:

        E xᵢ·xⱼ = μ_c·μ_d,            var xᵢ·xⱼ = tr(Σ_c Σ_d) + μ_dᵀ Σ_c μ_d + μ_cᵀ Σ_d μ_c
        E xᵢ·xᵢ = tr Σ_c + ‖μ_c‖²,    var xᵢ·xᵢ = 2 tr(Σ_c²) + 4 μ_cᵀ Σ_c μ_c

    Parameters
    ----------
    means : (k, p) array
    covariances : (k, p, p) array
    labels : (n,) int array
        The component of each sample.

    Returns
    -------
    psi, noise_variance : (n, n) arrays
        The first two arguments of `oracle_forgetting_factor`.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> one = np.ones((1, 1, 1))
    >>> psi, variance = ax.gaussian_mixture_proximity(2 * one[0], one, np.array([0, 0]))
    >>> psi
    array([[5., 4.],
           [4., 5.]])
    >>> variance
    array([[18.,  9.],
           [ 9., 18.]])
    """
    xp = array_namespace(means, covariances, labels)
    k, n = means.shape[0], labels.shape[0]
    flat = xp.reshape(covariances, (k, -1))
    spread = xp.sum(means[None, :, None, :] * covariances[:, None, :, :], axis=-1)  # Σ_c μ_d, (k, k, p)
    spread = xp.sum(spread * means[None, :, :], axis=-1)  # μ_dᵀ Σ_c μ_d
    trace = flat @ flat.T  # tr(Σ_c Σ_d)
    expectation, variance = means @ means.T, trace + spread + spread.T
    own_spread, own_trace = xp.linalg.diagonal(spread), xp.linalg.diagonal(trace)
    own_expectation = xp.linalg.trace(covariances) + xp.linalg.diagonal(expectation)
    own_variance = 2 * own_trace + 4 * own_spread
    same = xp.eye(n, dtype=xp.bool, device=device_of(means))

    def spread_out(between: Array, on_diagonal: Array) -> Array:
        entries = xp.take(xp.take(between, labels, axis=0), labels, axis=1)
        return xp.where(same, xp.take(on_diagonal, labels)[:, None], entries)

    return spread_out(expectation, own_expectation), spread_out(variance, own_variance)


def _by_step(alpha: object) -> bool:
    """Return whether α is given as one number per step."""
    return isinstance(alpha, Sequence) or getattr(alpha, "ndim", 0) > 0


def alpha_at(alpha: Any, t: int) -> float:
    """Return the fixed forgetting factor of step t."""
    if not _by_step(alpha):
        return check_fraction(
            "alpha", to_host(alpha, reason="a given α")[0].item() if is_array(alpha) else alpha
        )
    if t >= len(alpha):
        raise InputError(f"alpha has {len(alpha)} entries, but this is step {t}; give one for each step")
    return check_fraction(f"alpha[{t}]", alpha[t])


def check_alpha(alpha: Any) -> None:
    """Raise unless `alpha` is "estimate", a number, a sequence of numbers, or a function."""
    if callable(alpha) or (isinstance(alpha, str) and alpha == "estimate"):
        return
    if isinstance(alpha, str) or alpha is None:
        raise InputError(
            f"alpha must be 'estimate', a number, one for each step, or a function, got {shown(alpha)}"
        )
    for t in range(len(alpha) if _by_step(alpha) else 1):
        alpha_at(alpha, t)
