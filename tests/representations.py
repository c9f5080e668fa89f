"""Each representation of a proximity beside the matrix it stands for."""

import numpy as np
import pytest
import reference

from affect_xp.alignment import align
from affect_xp.proximity import Dense, Pair, Sparse

N = 11


def symmetric(rng, n=N):
    w = rng.normal(size=(n, n))
    return w + w.T


def dense(xp, rng):
    w = symmetric(rng)
    return Dense(xp.array(w)), w


def dense_float32(xp, rng):
    w = symmetric(rng).astype(np.float32)
    return Dense(xp.array(w)), w.astype(np.float64)


def blend(xp, rng):
    w, past = symmetric(rng), symmetric(rng)
    same = align(range(N), range(N), xp.array([0.0]))
    return Pair(Dense(xp.array(w)), Dense(xp.array(past)), same).blend(0.3), 0.3 * past + 0.7 * w


def blend_with_new_objects(xp, rng):
    w, past = symmetric(rng), symmetric(rng, 9)
    ids, past_ids = list("abcdefghijk"), list("kxbadycif")
    moves = align(tuple(ids), tuple(past_ids), xp.array([0.0]))
    return Pair(Dense(xp.array(w)), Dense(xp.array(past)), moves).blend(0.3), reference.blend(
        w, past, 0.3, ids, past_ids
    )


def sparse(xp, rng):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("sparse matrices are SciPy's and CuPy's")
    module = pytest.importorskip("cupyx.scipy.sparse" if xp.name == "cupy" else "scipy.sparse")
    w = symmetric(rng) * symmetric(rng) * (abs(symmetric(rng)) < 1)
    return Sparse(module.csr_matrix(xp.array(w))), w


# A new representation is one line here: a function that returns it with the matrix it stands for.
MAKERS = [dense, dense_float32, blend, blend_with_new_objects, sparse]
