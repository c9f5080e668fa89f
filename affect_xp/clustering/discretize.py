"""From eigenvectors to clusters: k-means, rotation, or pivoted QR on the rows of the embedding.

Each method depends on the span of the eigenvectors, not on the choice of basis.
"""

import numpy as np

from affect_xp.array.namespace import array_namespace, from_host, one_hot, row_blocks, to_host
from affect_xp.array.typing import Array
from affect_xp.clustering.kmeans import kmeans
from affect_xp.clustering.lloyd import draw_mixed
from affect_xp.proximity.factored import Factored

# Numbers that differ by less than this share are considered equal, so that rounding does not matter.
EQUAL = 1e-6
MAX_ROTATIONS = 100
# Objects per cluster on which the starts of k-means are compared, if there are more than twice as many.
SAMPLE = 100
# These runs stop once the sum of squares hardly falls: the final run uses all objects.
SAMPLE_TOL = 1e-3


def unit_rows(vectors: Array, floor: float = 0.0) -> Array:
    """Return the rows scaled to length 1, and zeros for rows shorter than `floor` times the longest."""
    xp = array_namespace(vectors)
    length = xp.linalg.vector_norm(vectors, axis=1, keepdims=True)
    some = length > floor * xp.max(length)
    return xp.where(some, vectors / xp.where(some, length, xp.ones_like(length)), xp.zeros_like(vectors))


def _by_kmeans(vectors: Array, rows: Array, k: int, n_init: int, rng: np.random.Generator) -> Array:
    """Assign labels by k-means on the rows.

    For many objects, starts are compared on a sample, and the best one continues with all objects.
    """
    size, every, xp = k * SAMPLE, Factored.from_features(rows), array_namespace(rows)
    if n_init == 1 or rows.shape[0] <= 2 * size:
        return kmeans(every, k, init="k-means++", n_init=n_init, rng=rng).labels
    # The squared row lengths of each cluster sum to about 1, whatever its size: small ones are sampled too.
    drawn = draw_mixed(xp.sum(vectors * vectors, axis=1), size, rng)
    sample = xp.take(rows, drawn, axis=0)
    tried = Factored.from_features(sample)
    labels = kmeans(tried, k, init="k-means++", n_init=n_init, tol=SAMPLE_TOL, rng=rng).labels
    return kmeans(every, k, init=_nearest(rows, _centroids(sample, labels, k)), rng=rng).labels


def _centroids(rows: Array, labels: Array, k: int) -> Array:
    """Return the mean row of each cluster, (k, r); zero for an empty one."""
    xp, z = array_namespace(rows), one_hot(labels, k, rows.dtype)
    m = xp.sum(z, axis=0)
    return (z.T @ rows) / xp.where(m > 0, m, xp.ones_like(m))[:, None]


def _nearest(rows: Array, centroids: Array) -> Array:
    """Return the index of the nearest centroid of each row, (n,)."""
    xp = array_namespace(rows)
    half = xp.sum(centroids * centroids, axis=1) / 2
    blocks = row_blocks(rows, n_columns=centroids.shape[0])
    return xp.concat([xp.argmin(half - rows[block, :] @ centroids.T, axis=1) for block in blocks])


def _by_rotation(vectors: Array, rows: Array, k: int, n_init: int, rng: np.random.Generator) -> Array:
    """Assign labels by the rotation R that brings unit rows X closest to a membership Z (Yu & Shi).

    Alternate between Z, with its 1 where XR is largest, and R = V Uᵀ with ZᵀX = U S Vᵀ, until Z does not
    change; the largest Σ S wins. All starts run as one batch, each from rows of k objects with large angles.
    """
    x = unit_rows(rows, floor=EQUAL)
    xp = array_namespace(x)
    objects = rng.choice(x.shape[0], size=min(n_init, x.shape[0]), replace=False)
    rotation = _spread_rows(x, k, from_host(objects, x))  # (starts, r, k)
    labels = _first_largest(x @ rotation, axis=2)  # (starts, n)
    for _ in range(MAX_ROTATIONS):
        # A small multiple of the previous rotation keeps the axis of an empty cluster.
        z = one_hot(labels, k, x.dtype)
        overlap = xp.matrix_transpose(z) @ x + EQUAL * xp.matrix_transpose(rotation)  # (starts, k, r)
        u, s, vh = xp.linalg.svd(overlap, full_matrices=False)
        rotation = xp.matrix_transpose(u @ vh)
        before, labels = labels, _first_largest(x @ rotation, axis=2)
        changes = xp.sum(xp.astype(labels != before, xp.int64))
        total, n_changes = to_host(xp.sum(s, axis=1), changes, reason="has the rotation converged?")
        if n_changes == 0:
            break
    winner = int(np.flatnonzero(total >= (1 - 10 * EQUAL) * total.max())[0])
    return _filled(labels[winner, :], x, rows, k, rng)


def _spread_rows(x: Array, k: int, first: Array) -> Array:
    """Return rows of k objects as columns, each as orthogonal as possible to the previous, (starts, r, k)."""
    xp = array_namespace(x)
    length = xp.sum(x * x, axis=1)  # 1, or 0 for a zero row, which is not chosen
    first = xp.where(xp.take(length, first) > 0, first, _first_largest(length, axis=0))
    chosen = [xp.take(x, first, axis=0)]  # (starts, r)
    closeness = k * (1 - length[:, None]) * xp.ones_like(chosen[0][:, 0])  # (n, starts)
    for _ in range(k - 1):
        closeness = closeness + xp.abs(x @ chosen[-1].T)
        chosen.append(xp.take(x, _first_largest(-closeness, axis=0), axis=0))
    return xp.stack(chosen, axis=2)


def _by_qr(vectors: Array, rows: Array, k: int, n_init: int, rng: np.random.Generator) -> Array:
    """Assign labels by QR with column pivoting of Vᵀ (Damle, Minden & Ying).

    Choose k pivots, each the object with the longest row after the previous pivots' rows are projected out;
    with U S Pᵀ the SVD of the transposed pivot rows, the label is where |V U Pᵀ| is largest.
    """
    xp, rest, pivots = array_namespace(vectors), vectors, []
    nothing = EQUAL * xp.max(xp.linalg.vector_norm(vectors, axis=1))
    for _ in range(k):
        length = xp.linalg.vector_norm(rest, axis=1, keepdims=True)
        pivot = _first_largest(xp.where(length > nothing, length, xp.zeros_like(length)), axis=0)  # (1,)
        pivots.append(pivot)
        row = unit_rows(xp.take(rest, pivot, axis=0))  # (1, r)
        rest = rest - (rest @ row.T) @ row
    u, _, ph = xp.linalg.svd(xp.take(vectors, xp.concat(pivots), axis=0).T, full_matrices=False)
    x = unit_rows(rows, floor=EQUAL)  # scaling a row does not change its label
    return _filled(_first_largest(xp.abs(x @ (u @ ph)), axis=1), x, rows, k, rng)


def _first_largest(x: Array, axis: int) -> Array:
    """Return the first index along an axis whose value equals the maximum up to rounding."""
    xp = array_namespace(x)
    margin = EQUAL * xp.max(xp.abs(x), axis=axis, keepdims=True)
    return xp.argmax(xp.astype(x >= xp.max(x, axis=axis, keepdims=True) - margin, xp.int8), axis=axis)


def _filled(labels: Array, x: Array, rows: Array, k: int, rng: np.random.Generator) -> Array:
    """Return labels without empty clusters.

    An object with a zero row of X, which the eigenvectors do not locate, goes to the cluster with the
    centroid closest to zero, as in k-means. If a cluster is empty, k-means continues from these labels.
    """
    xp = array_namespace(x)
    known = xp.sum(x * x, axis=1) > 0
    z = one_hot(labels, k, x.dtype) * xp.astype(known, x.dtype)[:, None]
    m = xp.sum(z, axis=0)
    centroids = (z.T @ rows) / xp.where(m > 0, m, xp.ones_like(m))[:, None]  # (k, r)
    distance = xp.where(m > 0, xp.sum(centroids * centroids, axis=1), xp.full_like(m, xp.inf))
    labels = xp.where(known, labels, xp.argmin(distance))
    if not to_host(xp.any(m == 0), reason="is a cluster empty?")[0]:
        return labels
    return kmeans(Factored.from_features(rows), k, init=labels, rng=rng).labels


ASSIGNMENTS = {"kmeans": _by_kmeans, "rotation": _by_rotation, "cluster_qr": _by_qr}
