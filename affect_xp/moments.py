"""Block moments: mean and variance of the proximities between each pair of clusters."""

import dataclasses

from affect_xp._array import array_namespace, device_of
from affect_xp._typing import Array
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Proximity, as_proximity


@dataclasses.dataclass(frozen=True, eq=False)
class BlockMoments:
    """Sample moments of the blocks of W: one block for each pair of clusters, and the diagonals apart.

    Attributes
    ----------
    means, variances : (k, k) arrays
        Of the entries wᵢⱼ, i in c, j in d, i ≠ j.
    diagonal_means, diagonal_variances : (k,) arrays
        Of the entries wᵢᵢ, i in c.
    pair_counts : (k, k) array
        The number of entries in each block.
    sizes : (k,) array
        The number of objects in each cluster.
    """

    means: Array
    variances: Array
    diagonal_means: Array
    diagonal_variances: Array
    pair_counts: Array
    sizes: Array

    def total_variance(self) -> Array:
        """Return Σᵢⱼ var(nᵢⱼ): the variances summed over all entries of W."""
        xp = array_namespace(self.means)
        return xp.sum(self.pair_counts * self.variances) + xp.sum(self.sizes * self.diagonal_variances)


def block_moments(
    W: Array | Proximity, labels: Array | Partition, n_clusters: int | None = None
) -> BlockMoments:
    """Return the mean and the unbiased variance of each block of W.

        within cluster c:    μ = Σ_{i≠j} wᵢⱼ / m(m − 1),     σ² = Σ(w − μ)² / (m(m − 1) − 2)
        diagonal of c:       μ = Σᵢ wᵢᵢ / m,                 σ² = Σ(w − μ)² / (m − 1)
        clusters c ≠ d:      μ = Σ wᵢⱼ / m_c m_d,            σ² = Σ(w − μ)² / (m_c m_d − 1)

    Within a cluster each value stands twice, hence the 2. A block without degrees of freedom (a
    singleton, the off-diagonal of a pair) has variance 0; an empty block has mean 0 too.

    Parameters
    ----------
    W : (n, n) array or Proximity
    labels : (n,) int array or Partition
        Clusters 0 ... k-1; objects with -1 take no part.
    n_clusters : int, optional
        k, where it is more than the largest label says.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> W = np.array([[1.0, 4.0, 0.0], [4.0, 3.0, 2.0], [0.0, 2.0, 1.0]])
    >>> moments = ax.block_moments(W, [0, 0, 1])
    >>> moments.means
    array([[4., 1.],
           [1., 0.]])
    >>> moments.variances
    array([[0., 2.],
           [2., 0.]])
    >>> moments.diagonal_means
    array([2., 1.])
    """
    W = as_proximity(W)
    return moments_of(W, as_partition(labels, W.n, W.like, n_clusters))


def moments_of(W: Proximity, partition: Partition) -> BlockMoments:
    """Return the block moments of a proximity by a partition, both known to be in order."""
    m, z, count = partition.sizes, partition.membership, partition.pair_counts
    xp = array_namespace(m)
    means, squares = W.block_moments(partition)
    twice = (
        xp.eye(partition.k, dtype=m.dtype, device=device_of(m)) + 1
    )  # how often each value stands in its block
    variances = _ratio(squares, count - twice)
    w_ii = W.diagonal()
    diagonal_means = _ratio(w_ii @ z, m)
    deviation = w_ii - partition.by_object(diagonal_means)
    diagonal_variances = _ratio((deviation * deviation) @ z, m - 1)
    return BlockMoments(means, variances, diagonal_means, diagonal_variances, count, m)


def _ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where there is nothing to divide by."""
    xp = array_namespace(total)
    some = count > 0
    return xp.where(some, total / xp.where(some, count, xp.ones_like(count)), xp.zeros_like(total))
