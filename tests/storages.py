"""The same proximities in each kind of storage, and the past in the current order."""

import numpy as np
import pytest

from affect_xp.proximity import Dense, Factored, Sparse


def aligned(past, ids, past_ids):
    """Return the past in the current order, and the mask of pairs that have a past."""
    source = np.array([past_ids.index(x) if x in past_ids else -1 for x in ids])
    known = source >= 0
    M = known[:, None] & known & ~np.eye(len(ids), dtype=bool)
    return np.where(M, past[np.ix_(source, source)], 0.0), M


def as_dense(xp, w):
    return Dense(xp.array(w))


def as_sparse(xp, w):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("sparse matrices are SciPy's and CuPy's")
    module = pytest.importorskip("cupyx.scipy.sparse" if xp.name == "cupy" else "scipy.sparse")
    return Sparse(module.csr_matrix(xp.array(w)))


def as_factored(xp, w):
    values, vectors = np.linalg.eigh(w)
    return Factored.from_features(xp.array(vectors), xp.array(values))


def as_chunked(xp, w):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("chunks are NumPy's and CuPy's")
    da = pytest.importorskip("dask.array")
    from affect_xp.proximity.chunked import Chunked

    return Chunked(da.from_array(xp.array(w), chunks=4))


MAKERS = [as_dense, as_sparse, as_factored, as_chunked]
