"""Proximities: symmetric n×n matrices, accessed only through reductions and products.

The letters used in code and comments throughout the package:

======  ==========================================================================
n, k    number of objects, number of clusters
c       labels, (n,): the cluster of each object, -1 for none
Z       one-hot membership, (n, k)
m       cluster sizes, Zᵀ1, (k,)
W       current proximities, (n, n)
Ψ       smoothed proximities (code: `psi`, or `past` for those of the previous step)
N       number of pairs in a block, (k, k)
μ, σ²   mean and variance of the entries of a block, (k, k)
α       forgetting factor: the weight of the past
======  ==========================================================================
"""

from affect_xp.proximity._base import Proximity
from affect_xp.proximity._occupied import Occupied
from affect_xp.proximity.blend import Blend, GroupedPair, ObjectBlend, Pair, TwoSidedBlend
from affect_xp.proximity.checks import as_proximity, is_plain, summed_proximity
from affect_xp.proximity.chunked import Chunked
from affect_xp.proximity.dense import Dense
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.grouped import Grouped, column_sums, membership
from affect_xp.proximity.sparse import Sparse, is_sparse

__all__ = [
    "Blend",
    "Chunked",
    "Dense",
    "Factored",
    "Grouped",
    "GroupedPair",
    "ObjectBlend",
    "Occupied",
    "Pair",
    "Proximity",
    "Sparse",
    "TwoSidedBlend",
    "as_proximity",
    "column_sums",
    "is_plain",
    "is_sparse",
    "membership",
    "summed_proximity",
]

Proximity.dense_type = Dense
