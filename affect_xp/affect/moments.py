"""Block moments: mean and variance of the proximities between each pair of clusters.

How uncertain is the mean μ̂ of a block? Its N entries are not independent: those of a row share an object.
Assume that the objects of a cluster are independent and identically distributed. Then each entry is a sum of
uncorrelated terms of its two objects and of the pair (Hoeffding's decomposition):

    clusters c ≠ d:     wᵢⱼ = μ + aᵢ + bⱼ + eᵢⱼ     var μ̂ = var(a)/m_c + var(b)/m_d + var(e)/(m_c m_d)
    within c, i ≠ j:    wᵢⱼ = μ + aᵢ + aⱼ + eᵢⱼ     var μ̂ = 4 var(a)/m + 2 var(e)/(m(m − 1))

Least squares estimates aᵢ by the mean of row i within the block minus μ̂, times (m − 1)/(m − 2) within a
cluster, where the rest of the row contains the other aⱼ. Let V_cd be the sample variance of these âᵢ over i
in c, and T = Σ(w − μ̂)² over the block. Their expectations

    c ≠ d:    E V_cd = var(a) + var(e)/m_d
              E {T − m_d (m_c − 1) V_cd − m_c (m_d − 1) V_dc} = (m_c − 1)(m_d − 1) var(e)
    within:   E V_cc = var(a) + var(e)/(m − 2)
              E {T − 2 (m − 2)(m − 1) V_cc} = m(m − 3) var(e)

can be solved for var(a), var(b) and var(e), and give unbiased estimates whenever they have a solution:

    c ≠ d:    var μ̂ = V_cd/m_c + V_dc/m_d − var(e)/(m_c m_d)
    within:   var μ̂ = 4 V_cc/m − 2 var(e)/((m − 1)(m − 2))

The last terms correct for e, which rows and columns both count. If var(e) cannot be estimated (with a
singleton; within three objects or fewer), and on the diagonal, entries are assumed to be independent: var μ̂
is σ² divided by the number of distinct entries. In all cases E T = N (var w − var μ̂): the variance of an
entry is T/N + var μ̂. For independent entries this is the sample variance T/(N − 1).
"""

import dataclasses
from typing import Any

from affect_xp.array.namespace import array_namespace, on_input_device, ratio
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Grouped, Proximity, as_proximity


@dataclasses.dataclass(frozen=True, eq=False)
class BlockMoments:
    """Sample moments of the blocks of W, one for each pair of clusters, and of the diagonals.

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

    Notes
    -----
    For a sparse W with more than 1,000 clusters the (k, k) arrays are sparse arrays of SciPy, with the blocks
    in which W has entries. In all other blocks means and variances are 0.
    """

    means: Array
    variances: Array
    diagonal_means: Array
    diagonal_variances: Array
    pair_counts: Array
    sizes: Array

    def total_variance(self) -> Array:
        """Return Σᵢⱼ var(nᵢⱼ): the variances summed over all entries of W."""
        return self.total(self.variances, self.diagonal_variances)

    def total(self, values: Array, diagonal_values: Array) -> Array:
        """Return the sum over all entries of W of a value for each block, (k, k), and diagonal, (k,)."""
        xp = array_namespace(self.sizes)
        return xp.sum(self.pair_counts * values) + xp.sum(self.sizes * diagonal_values)


@dataclasses.dataclass(frozen=True, eq=False)
class MomentsByBlock(BlockMoments):
    """Block moments as arrays for `blocks`: all of them, (k, k), or those of a sparse W that have entries."""

    blocks: Any

    def squares(self) -> Array:
        """Return Σ(w − μ)² over each block, (k, k)."""
        return (self.pair_counts - self.blocks.copies) * self.variances

    def total_squares(self) -> Array:
        """Return Σ(w − μ)² over all entries of W."""
        xp = array_namespace(self.sizes)
        return xp.sum(self.squares()) + xp.sum((self.sizes - 1) * self.diagonal_variances)

    def public(self) -> BlockMoments:
        """Return the moments as matrices."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(BlockMoments)}
        for name in ("means", "variances", "pair_counts"):
            given[name] = self.blocks.matrix(given[name])
        return BlockMoments(**given)


@dataclasses.dataclass(frozen=True, eq=False)
class _SummedMoments(MomentsByBlock):
    """Block moments with the two sums over all entries, by kernels."""

    noise: Array
    all_squares: Array

    def total_variance(self) -> Array:
        return self.noise

    def total_squares(self) -> Array:
        return self.all_squares


@on_input_device
@own_threads()
def block_moments(
    W: Array | Proximity, labels: Array | Partition, n_clusters: int | None = None
) -> BlockMoments:
    """Return the mean and the unbiased variance of each block of W.

        within cluster c:    μ = Σ_{i≠j} wᵢⱼ / m(m − 1),     σ² = Σ(w − μ)² / (m(m − 1) − 2)
        diagonal of c:       μ = Σᵢ wᵢᵢ / m,                 σ² = Σ(w − μ)² / (m − 1)
        clusters c ≠ d:      μ = Σ wᵢⱼ / m_c m_d,            σ² = Σ(w − μ)² / (m_c m_d − 1)

    Within a cluster each value occurs twice, hence the 2. A block without degrees of freedom (a
    singleton, the off-diagonal of a pair) has variance 0; an empty block also has mean 0.

    Parameters
    ----------
    W : (n, n) array or Proximity
    labels : (n,) int array or Partition
        Clusters 0 ... k-1; objects with -1 are excluded.
    n_clusters : int, optional
        k, if it exceeds the largest label plus one.

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
    return moments_of(W.group(as_partition(labels, W.n, W.like, n_clusters))).public()


def moments_of(groups: Grouped) -> MomentsByBlock:
    """Return the block moments of a proximity with labels."""
    partition, blocks, known = groups.partition, groups.blocks, groups.kernel_moments
    if known is not None:
        (means, _, variances, counts), (sizes, *diagonal) = known.blocks(), known.diagonals()
        by_cluster = diagonal[0], diagonal[1], counts, sizes
        return _SummedMoments(means, variances, *by_cluster, blocks, *known.totals())
    m = partition.sizes
    means, squares = groups.moments()
    variances = ratio(squares, blocks.counts - blocks.copies)
    w_ii = groups.diagonal()
    diagonal_means = ratio(partition.totals(w_ii), m)
    deviation = w_ii - partition.by_object(diagonal_means)
    diagonal_variances = ratio(partition.totals(deviation * deviation), m - 1)
    return MomentsByBlock(means, variances, diagonal_means, diagonal_variances, blocks.counts, m, blocks)


def mean_variances(groups: Grouped, moments: MomentsByBlock) -> tuple[Array, Array]:
    """Return var μ̂ of each block, (k, k), and of each diagonal, (k,), with objects as sampling units.

    Derived at the top of this module. The estimate is unbiased, so it may be negative. It needs W·Z.
    """
    m, blocks = moments.sizes, moments.blocks
    xp, copies = array_namespace(m), blocks.copies
    m_c, m_d, same = blocks.m_c, blocks.m_d, copies > 1
    freedom = xp.where(same, m_c * (m_c - 3), (m_c - 1) * (m_d - 1))
    effects = _effects(groups, moments.means)  # (m_c − 1) V_cd
    explained = xp.where(same, m_d - 2, m_d) * effects
    e = ratio(moments.squares() - explained - blocks.transposed(explained), freedom)  # var(e)
    by_rows = ratio(effects, m_c * (m_c - 1))  # V_cd / m_c
    share_of_e = ratio(e, xp.where(same, (m_c - 1) * (m_c - 2), m_c * m_d))
    solved = copies * (by_rows + blocks.transposed(by_rows) - share_of_e)
    independent = ratio(copies * moments.variances, moments.pair_counts)
    return xp.where(freedom > 0, solved, independent), ratio(moments.diagonal_variances, m)


def _effects(groups: Grouped, means: Array) -> Array:
    """Return Σâᵢ² over i in c, for the rows of each block (c, d), (k, k)."""
    blocks, squares = groups.blocks, groups.row_squares(means)
    scale = ratio((blocks.m_c - 1) ** 2, (blocks.m_c - 2) ** 2)
    return array_namespace(squares).where(blocks.copies > 1, scale * squares, squares)
