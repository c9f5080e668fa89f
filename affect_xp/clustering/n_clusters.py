"""Select the number of clusters by scores of partitions.

Scores use W only through products W·Z and sums by block, without an n×n temporary. Rules compute the scores
of products on a device on the host, from one transfer. Undefined scores are 0, never NaN: for one cluster, or
an object alone in its cluster. Objects labelled -1 are excluded. Distances δᵢⱼ follow from W according to its
kind:

    dissimilarity   δᵢⱼ = dᵢⱼ, or its square for squared distances
    similarity       δᵢⱼ = wᵢᵢ + wⱼⱼ − 2wᵢⱼ, the squared distance ‖xᵢ − xⱼ‖² if W = XXᵀ
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    as_array,
    from_host,
    is_on_device,
    not_zero,
    on_input_device,
    ratio,
    to_host,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice, check_int
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Proximity, as_proximity
from affect_xp.proximity.grouped import identity

KINDS = ("dissimilarity", "similarity")

# Candidates are scored together: one pass over W multiplies about this many columns.
PASS_COLUMNS = 64
# Distances from similarities below this multiple of the rounding of entries are set to 0.
ROUNDING = 4
# Rules for similarities alone.
FOR_GRAPHS = ("modularity", "likelihood")
# The least dispersion of a graph, as a share of the mean weight of a unit of weight.
MIN_DISPERSION = 0.05
# Scores that differ by less are equal, so that rounding does not select the number of clusters.
TIE = 1e-10


class Selection(NamedTuple):
    """The selected number of clusters, its partition, and the score of each number tried."""

    k: int
    partition: Partition
    scores: dict[int, float]


@on_input_device
def silhouette(W: Array | Proximity, labels: Array | Partition, *, kind: str) -> Array:
    """Return the mean silhouette of the objects, between -1 and 1.

        sᵢ = (bᵢ − aᵢ) / max(|aᵢ|, |bᵢ|)

    where a is the mean distance δ of object i to the others of its cluster, and b the smallest mean distance
    to another cluster. An object alone in its cluster scores 0. With dissimilarities this is the silhouette
    of scikit-learn, with dot products that of the squared distances of their features. For a graph with
    a zero diagonal it compares the mean weight to the object's cluster with that to the next one.

    Parameters
    ----------
    W : (n, n) array or Proximity
    labels : (n,) int array or Partition
        Clusters 0 ... k-1, and -1 for excluded objects. A Partition is not read to the host.
    kind : "dissimilarity" or "similarity"
        The kind of W.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.clustering.n_clusters import silhouette
    >>> x = np.array([0.0, 1.0, 9.0, 10.0])
    >>> round(float(silhouette(abs(x[:, None] - x), [0, 0, 1, 1], kind="dissimilarity")), 4)
    0.8885
    >>> round(float(silhouette(np.outer(x, x), [0, 0, 1, 1], kind="similarity")), 4)
    0.9876
    """
    W, partition = _checked(W, labels, kind)
    return _silhouette(W, partition, W.matmul(partition.membership), kind)


def _silhouette(W: Proximity, partition: Partition, wz: Array, kind: str) -> Array:
    z, m = partition.membership, partition.sizes
    xp = array_namespace(z)
    counts = m[None, :] - z  # exclude the object itself
    means = _distance_sums(W, partition, wz, kind) / not_zero(counts)  # (n, k)
    own = xp.sum(z * means, axis=1)
    others = (z == 0) & (m > 0)[None, :]
    nearest = xp.min(xp.where(others, means, xp.full_like(means, xp.inf)), axis=1)
    known = (xp.sum(z * counts, axis=1) > 0) & xp.any(others, axis=1)  # neither alone nor in the only cluster
    nearest = xp.where(known, nearest, own)
    score = (nearest - own) / not_zero(xp.maximum(xp.abs(own), xp.abs(nearest)))
    # Distances from an indefinite W may have either sign.
    score = xp.minimum(xp.maximum(score, -xp.ones_like(score)), xp.ones_like(score))
    return xp.sum(score) / not_zero(xp.sum(m))


def _distance_sums(W: Proximity, partition: Partition, wz: Array, kind: str) -> Array:
    """Return Σ_{j∈c} δᵢⱼ without j = i, (n, k)."""
    z, m, w_ii = partition.membership, partition.sizes, W.diagonal()
    if kind == "dissimilarity":
        return wz - z * w_ii[:, None]
    xp = array_namespace(z)
    # Σⱼ (wᵢᵢ + wⱼⱼ − 2wᵢⱼ) = m wᵢᵢ + Σⱼ wⱼⱼ − 2(WZ)ᵢc, and the term j = i is 0.
    sums = w_ii[:, None] * m[None, :] + (w_ii @ z)[None, :] - 2 * wz
    size = xp.abs(w_ii)
    return _without_rounding(W, sums, size[:, None] * m[None, :] + (size @ z)[None, :])


@on_input_device
def modularity(W: Array | Proximity, labels: Array | Partition) -> Array:
    """Return Newman's modularity of the clusters of a weighted graph, at most 1.

        Q = Σ_c { S_cc / ω − (Σ_d S_cd / ω)² },   S = ZᵀWZ,   ω = ΣS

    One cluster has 0. The diagonal of W is counted once: a self-loop of weight w in networkx is a diagonal
    entry 2w here. Similarities are assumed to be nonnegative; if their sum is not positive, Q is 0.

    Parameters
    ----------
    W : (n, n) array or Proximity
    labels : (n,) int array or Partition

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.clustering.n_clusters import modularity
    >>> float(modularity(np.kron(np.eye(2), np.ones((3, 3))), [0, 0, 0, 1, 1, 1]))
    0.5
    """
    W, partition = _checked(W, labels, "similarity")
    return _modularity(W, partition, W.matmul(partition.membership), "similarity")


def _modularity(W: Proximity, partition: Partition, wz: Array, kind: str) -> Array:
    s = partition.membership.T @ wz  # (k, k)
    xp = array_namespace(s)
    total = xp.sum(s)
    share = xp.sum(s, axis=1) / not_zero(total)
    score = xp.sum(xp.linalg.diagonal(s)) / not_zero(total) - xp.sum(share * share)
    return xp.where(total > 0, score, xp.zeros_like(score))


def likelihood(
    W: Proximity, partition: Partition, wz: Array, kind: str, dispersion: Array | float = 1.0
) -> Array:
    """Return the penalised log-likelihood of the clusters of a weighted graph with degree correction.

        ½ Σ_cd S_cd log(S_cd ω / κ_c κ_d) / φ  −  ¼ k (k + 1) log(n (n − 1) / 2)  −  n log k

    with S = ZᵀWZ without the diagonal, κ_c = Σ_d S_cd and ω = ΣS: the likelihood of counts whose means are
    products of degrees and a number for each block (Karrer & Newman 2011), with variances φ times their
    means. The penalties are those for the numbers and for the labels (Daudin, Picard & Robin 2008).
    """
    z, m = partition.membership, partition.sizes
    xp, eye = array_namespace(z), identity(partition.pair_counts)
    S = z.T @ wz - eye * (W.diagonal() @ z)[None, :]
    S = xp.maximum(S, xp.zeros_like(S))
    kappa, omega = xp.sum(S, axis=1), xp.sum(S)
    expected = kappa[:, None] * kappa[None, :]
    known = (S > 0) & (expected > 0)
    terms = S * xp.log(
        xp.where(known, S * omega, xp.ones_like(S)) / xp.where(known, expected, xp.ones_like(S))
    )
    n, k = xp.sum(m), xp.sum(xp.astype(m > 0, m.dtype))
    pairs = xp.maximum(n * (n - 1) / 2, xp.ones_like(n))
    penalty = k * (k + 1) / 4 * xp.log(pairs) + n * xp.log(xp.maximum(k, xp.ones_like(k)))
    return xp.sum(xp.where(known, terms, xp.zeros_like(terms))) / (2 * dispersion) - penalty


def dispersion_of(W: Proximity, partition: Partition) -> Array:
    """Return φ: the variance of entries within blocks divided by their mean, 0-d.

        φ = Σ N var(w) / Σ w,   at least 0.05 Σ w² / Σ w

    The clusters should be fine rather than coarse: groups that are joined look like noise.
    """
    means, squares = W.block_moments(partition)
    xp, N = array_namespace(means), partition.pair_counts
    total = xp.sum(N * means)
    variance = ratio(squares, N - 1 - identity(N))
    found = xp.stack([xp.sum(N * variance), MIN_DISPERSION * xp.sum(squares + N * means * means)])
    return xp.where(total > 0, xp.max(found) / not_zero(total), xp.ones_like(total))


@on_input_device
def calinski_harabasz(W: Array | Proximity, labels: Array | Partition, *, kind: str) -> Array:
    """Return the ratio of the dispersions between and within clusters, each per degree of freedom.

        within = Σ_c Σ_{i,j∈c} δᵢⱼ / 2m_c,   total = Σᵢⱼ δᵢⱼ / 2n,
        score  = (total − within) / (k − 1)  :  within / (n − k)

    with squared distances δ: those of the features for dot products, d² for dissimilarities. With dot
    products or Euclidean distances this is the score of scikit-learn on the features. It is 0 if k is 1
    or n, and infinite (scikit-learn: 1) if the dispersion within clusters is 0. Similarities should be
    positive semi-definite.

    Parameters
    ----------
    W : (n, n) array or Proximity
    labels : (n,) int array or Partition
    kind : "dissimilarity" or "similarity"

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.clustering.n_clusters import calinski_harabasz
    >>> x = np.array([0.0, 1.0, 9.0, 10.0])
    >>> float(calinski_harabasz(np.outer(x, x), [0, 0, 1, 1], kind="similarity"))
    162.0
    """
    W, partition = _checked(W, labels, kind)
    wz = W.matmul(partition.membership) if kind == "similarity" else None
    return _calinski_harabasz(W, partition, wz, kind)


def _calinski_harabasz(W: Proximity, partition: Partition, wz: Array | None, kind: str) -> Array:
    return _dispersion_ratio(_square_sums(W, partition, wz, kind), partition.sizes)


def _square_sums(W: Proximity, partition: Partition, wz: Array | None, kind: str) -> Array:
    """Return Σ_{i∈c, j∈d} δᵢⱼ of squared distances δ, (k, k)."""
    z, m = partition.membership, partition.sizes
    if kind == "dissimilarity":
        means, squares = W.block_moments(partition)
        return squares + partition.pair_counts * means * means
    # ΣΣ (wᵢᵢ + wⱼⱼ − 2wᵢⱼ) = m_d Σᵢ wᵢᵢ + m_c Σⱼ wⱼⱼ − 2(ZᵀWZ)cd
    w_ii = W.diagonal()
    half = (w_ii @ z)[:, None] * m[None, :] - z.T @ wz
    size = (array_namespace(z).abs(w_ii) @ z)[:, None] * m[None, :]
    return _without_rounding(W, half + half.T, size + size.T)


def _dispersion_ratio(squares: Array, m: Array) -> Array:
    """Return the Calinski-Harabasz score, given sums of squared distances by block and sizes."""
    xp = array_namespace(squares)
    n, k = xp.sum(m), xp.sum(xp.astype(m > 0, m.dtype))
    within = xp.sum(xp.linalg.diagonal(squares) / (2 * not_zero(m)))
    between = xp.sum(squares) / (2 * not_zero(n)) - within
    score = between * (n - k) / not_zero((k - 1) * within)
    none_within = xp.where(between > 0, xp.full_like(score, xp.inf), xp.zeros_like(score))
    score = xp.where(within > 0, score, none_within)
    return xp.where((k > 1) & (k < n), score, xp.zeros_like(score))


def _without_rounding(W: Proximity, sums: Array, size: Array) -> Array:
    """Return differences of sums of this magnitude, with rounding errors set to 0."""
    xp = array_namespace(sums)
    # Entries are rounded when they are stored, and sums of n entries when they are added.
    rounding = ROUNDING * float(xp.finfo(W.like.dtype).eps) + W.n * float(xp.finfo(sums.dtype).eps)
    return xp.where(xp.abs(sums) > rounding * size, sums, xp.zeros_like(sums))


def _checked(W: Array | Proximity, labels: Array | Partition, kind: str) -> tuple[Proximity, Partition]:
    check_choice("kind", kind, KINDS)
    W = as_proximity(W)
    return W, as_partition(labels, W.n, W.like)


RULES: dict[str, Callable[[Proximity, Partition, Array, str], Array]] = {
    "silhouette": _silhouette,
    "modularity": _modularity,
    "likelihood": likelihood,
    "calinski_harabasz": _calinski_harabasz,
}


def select(
    W: Array | Proximity,
    rule: str,
    max_clusters: int,
    cluster_k: Callable[[int], Partition],
    min_clusters: int = 2,
    *,
    kind: str,
) -> Selection:
    """Cluster into each candidate number of clusters, and select the one with the highest score.

    All candidates are scored together, in few passes over W and with one transfer to the host.
    `cluster_k` should share work between candidates (eigenvectors, a dendrogram). Candidates are limited by
    the number of objects: one cluster is the last resort.
    """
    check_choice("rule", rule, RULES)
    if rule in FOR_GRAPHS and kind == "dissimilarity":
        raise InputError(f"rule={rule!r} needs similarities, but kind='dissimilarity'; use 'silhouette'")
    check_choice("kind", kind, KINDS)
    W = as_proximity(W)
    ks = candidates(W.n, min_clusters, max_clusters)
    partitions = [cluster_k(k) for k in ks]
    by_k = dict(zip(ks, _scores(W, rule, partitions, kind), strict=True))
    k = choose(by_k)
    return Selection(k, partitions[k - ks.start], by_k)


def _scores(W: Proximity, rule: str, partitions: list[Partition], kind: str) -> list[float]:
    """Return the score of each partition; products on a device are scored on the host, with one transfer."""
    score, judged = RULES[rule], W
    dispersion = dispersion_of(W, partitions[-1]) if rule == "likelihood" else None
    by_square = rule == "calinski_harabasz" and kind == "dissimilarity"  # uses no products
    if by_square:
        products: Iterable[Array | None] = [None] * len(partitions)
    elif is_on_device(W.like):
        judged, partitions, products, dispersion = _on_host(W, partitions, dispersion)
    else:
        products = _products(W, partitions)
    if dispersion is not None:
        score = functools.partial(likelihood, dispersion=dispersion)
    found = [score(judged, p, wz, kind) for p, wz in zip(partitions, products, strict=True)]
    return to_host(array_namespace(found[0]).stack(found), reason="scores by number of clusters")[0].tolist()


@dataclasses.dataclass(frozen=True, eq=False)
class _Judged:
    """What scores need of W, on the host."""

    like: np.ndarray  # of the dtype of the entries
    w_ii: np.ndarray

    @property
    def n(self) -> int:
        """The number of objects."""
        return len(self.w_ii)

    def diagonal(self) -> np.ndarray:
        """Return wᵢᵢ, (n,)."""
        return self.w_ii


def _on_host(
    W: Proximity, partitions: list[Partition], dispersion: Array | None
) -> tuple[Any, list[Partition], list[np.ndarray], np.ndarray | None]:
    """Return the diagonal of W, the partitions, W·Z of each, and a number, in one transfer.

    All W·Z are computed together: an n×k array for each partition is less work than its scores are launches.
    """
    xp, most = array_namespace(W.like), max(p.k for p in partitions)
    labels = xp.stack([p.labels for p in partitions], axis=1)
    wz = W.grouped(labels, most).rows(slice(0, W.n))  # (n, R·k)
    arrays = [W.diagonal(), labels, wz] + ([] if dispersion is None else [dispersion])
    w_ii, labels, wz, *rest = to_host(*arrays, reason="products to be scored")
    labels, wz = labels.astype(np.int64), wz.reshape(W.n, len(partitions), most)
    dtype = np.float32 if xp.finfo(W.like.dtype).bits == 32 else np.float64
    on_host = [Partition(labels[:, r], p.k) for r, p in enumerate(partitions)]
    products = [wz[:, r, : p.k] for r, p in enumerate(partitions)]
    return _Judged(np.empty(0, dtype), w_ii), on_host, products, rest[0] if rest else None


def candidates(n: int, min_clusters: int, max_clusters: int) -> range:
    """Return the numbers of clusters to try for n objects."""
    least = check_int("min_clusters", min_clusters, 1)
    most = check_int("max_clusters", max_clusters, least)
    return range(min(least, n), min(most, n) + 1)


def _products(W: Proximity, partitions: Iterable[Partition]) -> Iterator[Array]:
    """Yield W·Z of each partition, (n, k); several share one pass over W."""
    xp = array_namespace(W.like)
    for group in _groups(partitions):
        wz = W.matmul(xp.concat([p.membership for p in group], axis=1))
        start = 0
        for p in group:
            yield wz[:, start : start + p.k]
            start += p.k


def _groups(partitions: Iterable[Partition]) -> Iterator[list[Partition]]:
    """Yield the partitions in groups with few clusters in total."""
    group: list[Partition] = []
    for partition in partitions:
        if group and sum(p.k for p in group) + partition.k > PASS_COLUMNS:
            yield group
            group = []
        group.append(partition)
    yield group


def choose(scores: Mapping[int, float]) -> int:
    """Return the number of clusters with the highest score, the smallest one for ties; ignore NaN."""
    known = {k: score for k, score in scores.items() if not math.isnan(score)}
    if not known:
        raise InputError(f"scores must hold a number for at least one number of clusters, got {dict(scores)}")
    best = max(known.values())
    slack = TIE * max(1.0, abs(best)) if math.isfinite(best) else 0.0
    return min(k for k, score in known.items() if score >= best - slack)


def eigengap_scores(values: Array, max_clusters: int) -> dict[int, float]:
    """Return |λ_{k+1} − λ_k| for each number of clusters k; 0 for the last value.

    The eigenvalues are in the order of the objective: all n of them, or at least max_clusters + 1.
    """
    values = to_host(as_array(values), reason="eigengap")[0]
    gaps = np.append(np.abs(np.diff(values)), 0.0)
    return {k: float(gaps[k - 1]) for k in candidates(len(values), 2, max_clusters)}


def height_gap_scores(heights: np.ndarray, max_clusters: int) -> dict[int, float]:
    """Return for each number of clusters of a dendrogram the gap between the next merge and the last one.

    The heights of merges, (n − 1,), are ascending. One cluster has no next merge and scores 0; n clusters
    are at height 0.
    """
    n = len(heights) + 1
    gaps = np.append(np.diff(heights, prepend=0.0), 0.0)  # of n, n − 1, ..., 1 clusters
    return {k: float(gaps[n - k]) for k in candidates(n, 2, max_clusters)}


def calinski_harabasz_scores(
    W: Proximity, labels_of: Callable[[int], np.ndarray], max_clusters: int, *, kind: str
) -> dict[int, float]:
    """Return the Calinski-Harabasz score of each cut of a dendrogram, given its labels on the host.

    One pass over W gives the block sums of the finest cut; those of the other cuts are sums of these.
    """
    ks = candidates(W.n, 2, max_clusters)
    finest, most = labels_of(ks[-1]), ks[-1]
    partition = Partition(from_host(finest, W.like), most)
    wz = W.matmul(partition.membership) if kind == "similarity" else None
    squares = _square_sums(W, partition, wz, kind)
    squares, sizes = to_host(squares, partition.sizes, reason="scores of a dendrogram")
    scores = {}
    for k in ks:
        z = np.zeros((most, k))
        z[finest, labels_of(k)] = 1  # the cluster of each cluster of the finest cut
        scores[k] = float(_dispersion_ratio(z.T @ squares @ z, sizes @ z))
    return scores
