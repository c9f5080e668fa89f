"""Proximities: symmetric n×n matrices known through what they can be reduced to.

The letters used in code and comments throughout the package:

======  ==========================================================================
n, k    number of objects, number of clusters
c       labels, (n,): the cluster of each object, -1 for none
Z       one-hot membership, (n, k)
m       sizes of the clusters, Zᵀ1, (k,)
W       proximities observed now, (n, n)
Ψ       smoothed proximities (code: `psi`, or `past` for those of the step before)
N       number of pairs in a block, (k, k)
μ, σ²   mean and variance of the entries of a block, (k, k)
α       forgetting factor: the weight of the past
======  ==========================================================================
"""

from affect_xp.array.device import on_input_device
from affect_xp.array.namespace import as_array, is_array
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputTypeError
from affect_xp.proximity._base import Proximity, log2
from affect_xp.proximity.blend import Blend, GroupedPair, Pair
from affect_xp.proximity.checks import checked_array
from affect_xp.proximity.checks_sparse import checked_sparse
from affect_xp.proximity.chunked import Chunked, is_dask_array
from affect_xp.proximity.dense import Dense
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.grouped import Grouped, column_sums, membership
from affect_xp.proximity.object_blend import ObjectBlend
from affect_xp.proximity.sparse import Sparse, is_sparse

__all__ = [
    "Blend",
    "Chunked",
    "Dense",
    "Factored",
    "Grouped",
    "GroupedPair",
    "ObjectBlend",
    "Pair",
    "Proximity",
    "Sparse",
    "as_proximity",
    "column_sums",
    "is_sparse",
    "membership",
]


@on_input_device
def as_proximity(w: Array | Proximity, name: str = "W") -> Proximity:
    """Return `w` as a proximity, after checking that it is square, symmetric, real and finite.

    A `Proximity` is returned as it is, a dask array becomes `Chunked`, a sparse matrix `Sparse`, any other
    array `Dense`. The checks read the matrix once, make no n×n temporary, and
    on a device wait for the result once.

    Parameters
    ----------
    w : (n, n) array of any library, sparse matrix of SciPy or CuPy, nested lists, or Proximity
        float32 and float64 are kept, integers and booleans become float64. Asymmetry up to 1e-8
        (float32: 1e-4) of the largest entry is taken for rounding.
    name : str
        What messages call it.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.as_proximity(np.eye(3))
    Dense(n=3, dtype=float64, library=numpy)
    >>> ax.as_proximity(np.array([[1.0, 2.0], [3.0, 1.0]]))
    Traceback (most recent call last):
    ...
    affect_xp.exceptions.InputError: W is not symmetric: W[0, 1] = 2.0 but W[1, 0] = 3.0; ...
    """
    if isinstance(w, Proximity):
        return w
    if is_sparse(w):
        matrix, size = checked_sparse(w, name)
        return Sparse(matrix, known_magnitude=log2(size))
    if isinstance(w, list | tuple):
        w = as_array(w)
    if not is_array(w):
        raise InputTypeError(
            f"{name} must be a two-dimensional array, a sparse matrix or a Proximity, got "
            f"{type(w).__name__}; "
            "convert it with the asarray of NumPy, CuPy or another array library"
        )
    w, size = checked_array(w, name)
    return (Chunked if is_dask_array(w) else Dense)(w, known_magnitude=log2(size))
