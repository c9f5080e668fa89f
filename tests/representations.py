"""Each representation of a proximity with its full matrix, and twins of its methods."""

import functools

import numpy as np
import pytest
import reference

from affect_xp.partition import Partition, align
from affect_xp.proximity import Chunked, Dense, Factored, Pair, Sparse

N = 11
IDS, PAST_IDS = (
    tuple("abcdefghijk"),
    tuple("kxbadycif"),
)  # objects change positions; some are new, some have left


def symmetric(rng, n=N, dtype=float):
    w = rng.normal(size=(n, n))
    return (w + w.T).astype(dtype)


def only_on(xp, *libraries):
    """Skip other array libraries."""
    if xp.name not in libraries:
        pytest.skip(f"only on {' and '.join(libraries)}")


# The representations: functions of a library, a generator and n. They return a proximity and its full matrix,
# in float64.


def dense(xp, rng, n=N):
    w = symmetric(rng, n)
    return Dense(xp.array(w)), w


def dense_float32(xp, rng, n=N):
    w = symmetric(rng, n, np.float32)
    return Dense(xp.array(w)), w.astype(float)


def sparse(xp, rng, n=N, dtype=float, density=0.4):
    """Most entries are zero, including a whole row."""
    only_on(xp, "numpy", "cupy")
    module = pytest.importorskip("cupyx.scipy.sparse" if xp.name == "cupy" else "scipy.sparse")
    w = np.where(np.triu(rng.random((n, n)) < density), symmetric(rng, n), 0)
    w = np.triu(w) + np.triu(w, 1).T
    w[n // 2, :] = w[:, n // 2] = 0 if density < 1 else 3
    w = w.astype(dtype)
    return Sparse(module.csr_matrix(xp.array(w)), prune=1e-3), w.astype(float)


def sparse_float32(xp, rng, n=N):
    return sparse(xp, rng, n, np.float32)


def sparse_without_entries(xp, rng, n=N):
    return sparse(xp, rng, n, density=0)


def sparse_without_zeros(xp, rng, n=N):
    return sparse(xp, rng, n, density=1)


def factored(xp, rng, n=N):
    x = rng.normal(size=(n, 3)) + 1
    return Factored.from_features(xp.array(x)), x @ x.T


def factored_float32(xp, rng, n=N):
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return Factored.from_features(xp.array(x)), x.astype(float) @ x.T.astype(float)


def factored_with_weights(xp, rng, n=N):
    x, s = rng.normal(size=(n, 4)) + 1, np.array([1.0, -2.0, 0.0, 0.5])
    return Factored.from_features(xp.array(x), xp.array(s)), x * s @ x.T


def factored_without_features(xp, rng, n=N):
    only_on(xp, "numpy", "strict", "torch", "cupy")
    return Factored.from_features(xp.array(np.zeros((n, 0)))), np.zeros((n, n))


def factored_after_two_blends(xp, rng, n=N):
    """Objects come and go in both blends; the scatter is cached and updated."""
    only_on(xp, "numpy", "strict", "torch", "cupy")
    psi, w, before = *factored(xp, rng, n), list(range(n))
    for alpha, ids in ((0.6, [*range(3, n), *range(n, n + 3)]), (0.3, [*range(n + 2, 2, -1)])):
        assert psi._scatter.q == psi.rank
        now, now_w = factored(xp, rng, n)
        psi = now.blend(psi, xp.array(alpha), align(tuple(ids), tuple(before), xp.array([0.0])))
        w, before = reference.blend(now_w, w, alpha, ids, before), ids
    return psi, w


def chunked(xp, rng, n=N, chunks=4, dtype=float):
    only_on(xp, "numpy", "cupy")
    w = symmetric(rng, n, dtype)
    array = pytest.importorskip("dask.array")
    return Chunked(array.from_array(xp.array(w), chunks=chunks, asarray=False)), w.astype(float)


def chunked_float32(xp, rng, n=N):
    return chunked(xp, rng, n, dtype=np.float32)


def chunked_in_other_columns(xp, rng, n=N):
    return chunked(xp, rng, n, (3, 5))


def chunked_unevenly(xp, rng, n=N):
    return chunked(xp, rng, n, ((2, 5, n - 7), (n,)))


def chunked_in_one(xp, rng, n=N):
    return chunked(xp, rng, n, n)


def blend_of(make, past_ids=PAST_IDS, alpha=0.3):
    """Return a function that makes an unformed blend."""

    @functools.wraps(make)
    def blend(xp, rng, n=N):
        only_on(xp, *(("numpy", "strict", "torch", "cupy") if make is factored else (xp.name,)))
        ids = tuple(IDS[i] if i < N else i for i in range(n))
        (w, w_host), (past, past_host) = make(xp, rng, n), make(xp, rng, len(past_ids))
        moves = align(ids, past_ids, xp.array([0.0]))
        expected = reference.blend(w_host, past_host, alpha, list(ids), list(past_ids))
        return Pair(w, past, moves).blend(xp.array(alpha)), expected

    blend.__name__ = f"blend_of_{make.__name__}"
    return blend


def named(name, maker):
    maker.__name__ = name
    return maker


# Add a line for each new representation.
STORED = [
    dense,
    dense_float32,
    sparse,
    sparse_float32,
    sparse_without_entries,
    sparse_without_zeros,
    factored,
    factored_float32,
    factored_with_weights,
    factored_without_features,
    factored_after_two_blends,
    chunked,
    chunked_float32,
    chunked_in_other_columns,
    chunked_unevenly,
    chunked_in_one,
]
BLENDS = [
    blend_of(dense),
    named("blend_of_dense_of_the_same_objects", blend_of(dense, IDS)),
    named("blend_of_dense_in_another_order", blend_of(dense, IDS[::-1])),
    blend_of(sparse),
    blend_of(factored),
    blend_of(chunked),
]
MAKERS = STORED + BLENDS


def entries(xp, proximity):
    """Return all entries on the host, in their stored dtype."""
    stored = proximity.formed()
    if isinstance(stored, Sparse):
        host = stored.matrix.get() if xp.name == "cupy" else stored.matrix
        assert host.has_canonical_format
        return host.toarray()
    array = (stored.to_dense() if isinstance(stored, Factored) else stored).array
    return xp.numpy(array.compute() if isinstance(stored, Chunked) else array)


# Twins, entry by entry


def moments_twin(w, labels, k):
    """Return the mean of each block and the sum of squares about it, both (k, k)."""
    means, squares = np.zeros((k, k)), np.zeros((k, k))
    for c, d, pairs in reference.blocks(labels):
        if d is not None and pairs:
            values = np.array([w[i, j] for i, j in pairs])
            means[c, d], squares[c, d] = values.mean(), ((values - values.mean()) ** 2).sum()
    return means, squares


def distance_twin(w, labels, means):
    """Return Σ (wᵢⱼ − μ)² over the pairs i ≠ j of objects in a cluster."""
    inside = labels >= 0
    pairs = np.outer(inside, inside) & ~np.eye(len(w), dtype=bool)
    return ((w - means[np.ix_(labels, labels)]) ** 2)[pairs].sum()


def membership_twin(labels, k):
    """Return the memberships of several partitions (n, R) side by side, (n, R·k)."""
    return np.concatenate([labels[:, [r]] == np.arange(k) for r in range(labels.shape[1])], axis=1) * 1.0


def with_absent_twin(w, past, source, away):
    n, m = len(w), len(away)
    expected = np.zeros((n + m, n + m), dtype=w.dtype)
    expected[:n, :n] = w
    for j, b in enumerate(away):
        for i, a in enumerate([*source, *away]):
            expected[i, n + j] = expected[n + j, i] = past[a, b] if a >= 0 else 0
    return expected


def between_groups_twin(w, other, groups, table):
    expected = w.copy()
    for i, j in np.ndindex(w.shape):
        expected[i, j] += table[groups[i], groups[j]] * other[i, j]
    return expected


def assert_answers(xp, proximity, w, labels, tolerance=1e-12):
    """Compare entries, diagonal, products, moments and distances of a proximity with those of its matrix."""
    k, scale = max(1, int(labels.max()) + 1), tolerance * max(1.0, np.abs(w).max())

    def compare(found, expected, atol=scale):
        np.testing.assert_allclose(xp.numpy(found), expected, rtol=10 * tolerance, atol=atol)

    rng, n = np.random.default_rng(3), len(w)
    v, rows, means = rng.normal(size=(n, 4)), rng.permutation(n)[:3], symmetric(rng, k)
    groups = proximity.group(Partition(xp.array(labels), k))
    expected_means, expected_squares = moments_twin(w, labels, k)
    found_means, found_squares = groups.moments()
    np.testing.assert_allclose(entries(xp, proximity), w, rtol=tolerance, atol=scale)
    compare(proximity.diagonal(), np.diag(w))
    compare(proximity.matmul(xp.array(v)), w @ v)
    compare(proximity.matmul(xp.array(v[rows]), xp.array(rows)), w[:, rows] @ v[rows])
    compare(found_means, expected_means)
    compare(found_squares, expected_squares, atol=n * scale * np.abs(w).max() + scale)
    compare(groups.distance_to(xp.array(means)), distance_twin(w, labels, means))
