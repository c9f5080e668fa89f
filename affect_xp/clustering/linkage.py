"""Hierarchical clustering by single, complete, average and Ward linkage, on the CPU and on devices.

On the CPU a compiled library is used, except for single linkage, where reading a square matrix row by row
is faster. On a device the clusters are merged in rounds of whole-array operations, and the host waits once
for each round:

* complete, average and Ward linkage merge all pairs of reciprocal nearest neighbours at once. These
  linkages are reducible, d(a ∪ b, c) ≥ min(d(a, c), d(b, c)): a merged cluster is no nearer to others than
  its parts, so the order of merges does not matter and the dendrogram is that of merging one closest pair at
  a time;
* single linkage is a minimum spanning tree, found by Borůvka's algorithm: in each of at most log₂ n rounds,
  every cluster adds the edge to its nearest neighbour.

Ties. Among clusters at the same distance from cluster i, the nearest is the one with the smallest i XOR j.
This order is symmetric, so nearest neighbours never form cycles, and it pairs many clusters at once even if
all distances are equal. Every merge joins a closest pair, as in any library; the order of equal pairs
differs between libraries. Heights then agree between libraries for single linkage, and for the others if no
two distances are equal.
"""

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    by_device,
    device_of,
    from_host,
    has_kernels,
    on_input_device,
    put,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice, check_n_clusters
from affect_xp.clustering.base import FIRST, RULES, Call, Clustering, NClusters, check_clusters, clusters_at
from affect_xp.clustering.n_clusters import calinski_harabasz_scores, choose, height_gap_scores, select
from affect_xp.exceptions import InputError, InputTypeError, shown
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition
from affect_xp.proximity import Proximity, as_proximity
from affect_xp.proximity.dissimilarity import check_dissimilarities, stored

METHODS = ("single", "complete", "average", "ward")

Combine = Callable[[Array, Array, Array, Array], Array]
Merges = tuple[np.ndarray, np.ndarray, np.ndarray]  # one object of each of the two clusters, and the height


@dataclasses.dataclass(frozen=True, eq=False)
class Dendrogram:
    """The tree of merges from `linkage`, from n clusters of one object to one cluster of n.

    Attributes
    ----------
    merges : (n − 1, 4) NumPy array of float64
        The merge table of SciPy: each row contains the two merged clusters (objects are 0 ... n−1, and
        row r creates cluster n + r), the height, and the number of objects in the new cluster. Heights
        are nondecreasing. All functions of `scipy.cluster.hierarchy` accept it.
    method : str
        The linkage.
    like : array
        Labels are returned in the library and on the device of this array.
    n_rounds : int
        How often the host waited for the device; 0 on the CPU.
    """

    merges: np.ndarray
    method: str
    like: Array = dataclasses.field(default_factory=lambda: np.empty(0), repr=False)
    n_rounds: int = 0

    @property
    def n(self) -> int:
        """The number of objects."""
        return len(self.merges) + 1

    @property
    def heights(self) -> np.ndarray:
        """The height of each merge, (n − 1,), in ascending order."""
        return self.merges[:, 2]

    def n_clusters_at(self, distance_threshold: float) -> int:
        """Return the number of clusters after all merges up to this height."""
        threshold = check_distance_threshold(distance_threshold)
        return self.n - int(np.searchsorted(self.heights, threshold, side="right"))

    def cut_at(self, distance_threshold: float) -> Array:
        """Return labels, (n,), of the clusters after all merges up to this height."""
        return self.cut(self.n_clusters_at(distance_threshold))

    def cut(self, n_clusters: int) -> Array:
        """Return labels, (n,), of exactly this many clusters, numbered by their first objects.

        Among merges of the same height, the first rows of the table are merged first.
        """
        return from_host(self.host_labels(n_clusters), self.like)

    def host_labels(self, n_clusters: int) -> np.ndarray:
        """Return the labels of `cut` as a NumPy array."""
        n_merges = self.n - check_n_clusters(n_clusters, self.n)
        parent = np.arange(self.n + n_merges)
        pairs = self.merges[:n_merges, :2].astype(np.int64)
        parent[pairs] = np.arange(self.n, self.n + n_merges)[:, None]
        _, first, labels = np.unique(_roots(parent)[: self.n], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[labels]


def check_distance_threshold(value: object) -> float:
    """Return `value` as a nonnegative distance."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputTypeError(f"distance_threshold must be a number, got {shown(value)}")
    threshold = float(value)
    if not threshold >= 0:
        raise InputError(f"distance_threshold must be 0 or more, got {value}")
    return threshold


@on_input_device
def linkage(D: Array | Proximity, method: str = "average") -> Dendrogram:
    """Repeatedly merge the two closest clusters, and return the tree of merges.

    The distance of two clusters is that of their closest objects (single), of their farthest objects
    (complete), the mean over all pairs (average), or √(2 m_a m_b / (m_a + m_b)) times the distance of
    their centroids (ward): Ward's method merges the pair with the smallest increase of the sum of squares
    within clusters. Its input is distances, not squared distances, as in SciPy. If they are not Euclidean,
    the distances of clusters are defined by the Lance–Williams recurrence of the squared distances.

    Arrays in CPU memory are passed to fastcluster if it is installed, otherwise to SciPy (except for single
    linkage). On a device, rounds of whole-array operations need one working copy of D (single linkage needs
    none). Dask arrays are computed and clustered on the CPU.

    Parameters
    ----------
    D : (n, n) array or Proximity
        Dissimilarities: zero on the diagonal, nonnegative elsewhere. See `to_dissimilarity`.
    method : "single", "complete", "average" or "ward"
        On a device the working copy has the precision of D: float32 averages are accurate to six digits,
        Ward distances to five.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.clustering.linkage import linkage
    >>> x = np.array([0.0, 1.0, 5.0, 7.0])
    >>> tree = linkage(np.abs(x[:, None] - x), method="complete")
    >>> tree.heights
    array([1., 2., 7.])
    >>> tree.cut(2), tree.cut_at(1.5)
    (array([0, 0, 1, 1]), array([0, 0, 1, 2]))
    """
    check_choice("method", method, METHODS)
    proximity = as_proximity(D, name="D")
    given, some = stored(proximity), proximity.like  # for dask: an array of the library of its chunks
    like = array_namespace(some).zeros(0, dtype=some.dtype, device=device_of(some))
    if proximity.n == 1:
        check_dissimilarities(given)
        return Dendrogram(np.empty((0, 4)), method, like)

    def on_cpu(d: np.ndarray) -> Dendrogram:
        if method != "single":  # checks D on the way
            return Dendrogram(_by_library(d, method), method, like)
        check_dissimilarities(d)
        return Dendrogram(_merge_table(*_grown_tree(d)), method, like)

    def on_device(d: Array) -> Dendrogram:
        _check_squares(check_dissimilarities(d), d, method)
        rounds = _spanning_tree(d) if method == "single" else _reciprocal_merges(d, method)
        joined = tuple(np.concatenate(part) for part in zip(*rounds, strict=True))
        return Dendrogram(_merge_table(*joined), method, like, n_rounds=len(rounds))

    return by_device(given, on_cpu, on_device, reason="linkage of arrays on the CPU")


def _check_squares(highest: float, d: Array, method: str) -> None:
    """Raise if Ward's sums of squares would overflow."""
    largest = math.sqrt(array_namespace(d).finfo(d.dtype).max / d.shape[0])
    if method == "ward" and not highest < largest:
        raise InputError(
            f"method='ward' squares distances, but D contains {highest}; divide D, for example by its maximum"
        )


def _condensed(d: np.ndarray) -> np.ndarray:
    """Return dᵢⱼ, i < j, row by row in float64; raise unless d is a matrix of dissimilarities."""
    n = d.shape[0]
    condensed, stop = np.empty(n * (n - 1) // 2), 0
    negative = bool(np.any(np.diagonal(d)))
    for rows in row_blocks(d):
        start = stop
        for i in range(rows.start, rows.stop):
            begin, stop = stop, stop + n - 1 - i
            condensed[begin:stop] = d[i, i + 1 :]
        negative = negative or (start < stop and condensed[start:stop].min() < 0)  # while in cache
    if negative:  # may be rounding
        check_dissimilarities(d)
        np.maximum(condensed, 0, out=condensed)
    return condensed


def _by_library(d: np.ndarray, method: str) -> np.ndarray:
    """Return the merge table from a CPU library, given the upper triangle of d."""
    condensed = _condensed(d)
    if method == "ward":
        _check_squares(float(condensed.max()), condensed, method)
    fastcluster = _fastcluster()
    if fastcluster is None:
        return scipy.cluster.hierarchy.linkage(condensed, method)
    return fastcluster.linkage(condensed, method, preserve_input=False)


@functools.cache
def _fastcluster() -> Any:
    """Return the module, or None if it is not installed; cached because a failed import is slow."""
    try:
        import fastcluster
    except ImportError:
        return None
    return fastcluster


def _grown_tree(d: np.ndarray) -> Merges:
    """Return the edges of a minimum spanning tree, by Prim's algorithm; d is not modified."""
    n = d.shape[0]
    least, near = np.full(n, math.inf, dtype=d.dtype), np.zeros(n, dtype=np.int64)  # to the tree, and its end
    row, inside = np.empty_like(least), np.full_like(least, -math.inf)
    ends = np.empty((2, n - 1), dtype=np.int64)
    i = 0
    for edge in range(n - 1):
        least[i] = inside[i] = math.inf
        np.maximum(d[i, :], inside, out=row)
        np.copyto(near, i, where=row < least)
        np.minimum(least, row, out=least)
        i = int(np.argmin(least))
        ends[:, edge] = near[i], i
    ends.sort(axis=0)
    return ends[0], ends[1], d[ends[0], ends[1]].astype(np.float64)  # from the upper triangle


def _spanning_tree(d: Array) -> list[Merges]:
    """Return the edges of a minimum spanning tree, by Borůvka's algorithm; d is not modified.

    Edges are strictly ordered by (dᵢⱼ, i XOR j, min(i, j)), so that the edges chosen by different clusters
    form no cycle: at most two clusters choose each other, by the same edge.
    """
    places = np.arange(d.shape[0])
    cluster, n_clusters, rounds = places, len(places), []
    while n_clusters > 1:
        group = from_host(cluster, d)
        near, least = _nearest(d, group)
        order = np.lexsort((np.minimum(places, near), places ^ near, least))
        _, first = np.unique(cluster[order], return_index=True)
        i = order[first]  # start of the shortest edge of each cluster, (n_clusters,)
        target, own = cluster[near[i]], np.arange(n_clusters)
        target = np.where((target[target] == own) & (own < target), own, target)
        kept = i[target != own]
        rounds.append((kept, near[kept], least[kept]))
        names, renamed = np.unique(_roots(target), return_inverse=True)
        cluster, n_clusters = renamed[cluster], len(names)
    return rounds


def _reciprocal_merges(d: Array, method: str) -> list[Merges]:
    """Return the merges of reciprocal nearest neighbours, in rounds.

    The distances of the p clusters of a round (squared for Ward) are the first p² entries of the working
    copy.
    """
    power = COMBINE[method][1]
    p, wide, xp = d.shape[0], wide_dtype(d), array_namespace(d)
    work = xp.empty(p * p, dtype=d.dtype, device=device_of(d))
    zero = xp.zeros((), dtype=d.dtype, device=device_of(d))
    work = _fill(work, p, row_blocks(d), lambda rows: xp.maximum(_upper(d, rows), zero) ** power)
    objects, m, rounds = np.arange(p), np.ones(p), []  # one object of each cluster, and the size
    heights = np.zeros(p)  # of the merges that created the clusters
    while p > 1:
        square = xp.reshape(work[: p * p], (p, p))
        own = np.arange(p)
        near, least = _nearest(square, None)
        paired = near[near] == own
        first = own[~paired | (own < near)]  # the first cluster of a pair is kept
        second = np.where(paired, near, own)[first]
        joins = first != second
        plan = from_host(np.stack([first, second, m[first], m[second] * joins, least[first]]), d, dtype=wide)
        sizes = from_host(m, d, dtype=wide)
        a, b = first[joins], second[joins]
        heights[a] = np.max([least[a], heights[a], heights[b]], axis=0)  # rounding must not decrease them
        rounds.append((objects[a], objects[b], heights[a] ** (1 / power)))
        m[a] += m[b]
        objects, m, heights, p = objects[first], m[first], heights[first], len(first)
        work = _merge(work, square, plan, sizes, method)
    return rounds


def _merge(work: Array, square: Array, plan: Array, sizes: Array, method: str) -> Array:
    """Merge the clusters plan[1] into the clusters plan[0], rows and columns, and compact in place.

    `sizes` are those of the old clusters; plan[2:] are m_a, m_b (0 if nothing is merged) and d(a, b). A
    new row never follows the old rows it is computed from, so nothing is overwritten before it is read.
    """
    xp, q, combine = array_namespace(work), plan.shape[1], COMBINE[method][0]
    if has_kernels(square):
        number = list(COMBINE).index(method)
        work = _fill(
            work,
            q,
            row_blocks(square, q),
            lambda rows: cuda.merge_clusters(square, plan, sizes, rows, number),
        )
        cuda.mirror_upper(xp.reshape(work[: q * q], (q, q)))
        return work
    first, second = (xp.astype(plan[i, :], xp.int64) for i in (0, 1))
    pairs, new_sizes = plan[2:, :], plan[2, :] + plan[3, :]

    def merged(rows: slice) -> Array:
        x, y = xp.take(square, first[rows], axis=0), xp.take(square, second[rows], axis=0)
        x = combine(x, y, pairs[:, rows, None], sizes[None, :])  # (rows, p)
        x, y = xp.take(x, first, axis=1), xp.take(x, second, axis=1)
        return combine(x, y, pairs[:, None, :], new_sizes[rows, None])  # (rows, q)

    work = _fill(work, q, row_blocks(square, q), merged)
    # A mean of means rounds differently above and below the diagonal: mirror the upper triangle.
    square = xp.reshape(work[: q * q], (q, q))
    return _fill(work, q, row_blocks(square), lambda rows: _upper(square, rows))


def _farthest(x: Array, y: Array, pair: Array, m_c: Array) -> Array:
    """Return d(a ∪ b, c) = max(d(a, c), d(b, c))."""
    return array_namespace(x).maximum(x, y)


def _mean(x: Array, y: Array, pair: Array, m_c: Array) -> Array:
    """Return d(a ∪ b, c) = (m_a d(a, c) + m_b d(b, c)) / (m_a + m_b).

    Heights are nondecreasing because the mean is at least the smaller distance. In this form rounding
    preserves that: an inexact y − x is much larger than its error, and 1/n of it remains.
    """
    m_a, m_b = pair[0, ...], pair[1, ...]
    x, y = _widened(x, y, m_b)
    return x + m_b / (m_a + m_b) * (y - x)


def _ward(x: Array, y: Array, pair: Array, m_c: Array) -> Array:
    """Return d²(a ∪ b, c) = {(m_a + m_c) d²(a, c) + (m_b + m_c) d²(b, c) − m_c d²(a, b)} / (m_a + m_b + m_c).

    With x = d²(a, c), y = d²(b, c) and h = d²(a, b) it is x + {(m_b + m_c)(y − x) + m_c(x − h)} / m.
    """
    xp, m_a, m_b, h = array_namespace(x), pair[0, ...], pair[1, ...], pair[2, ...]
    x, y = _widened(x, y, m_b)
    rise = (m_b + m_c) * (y - x) + m_c * (x - h)
    return xp.where(m_b > 0, x + rise / (m_a + m_b + m_c), x)


def _widened(x: Array, y: Array, like: Array) -> tuple[Array, Array]:
    xp = array_namespace(x)
    return xp.astype(x, like.dtype, copy=False), xp.astype(y, like.dtype, copy=False)


# Functions for the distance to a union of two clusters, and the power of distances they apply to.
COMBINE: dict[str, tuple[Combine, int]] = {
    "complete": (_farthest, 1),
    "average": (_mean, 1),
    "ward": (_ward, 2),
}


def _nearest(d: Array, group: Array | None) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row the nearest column of another group and its distance, with one transfer.

    Without groups, d is symmetric and each row is its own; otherwise its upper triangle is used.
    """
    if has_kernels(d):
        found = cuda.nearest_other(d, group, upper=group is not None)
        read = to_host(*found, reason="nearest neighbours in a linkage round")
        return read[0].astype(np.int64), read[1]
    xp, rows_of = array_namespace(d), _rows if group is None else _upper
    group = xp.arange(d.shape[0], dtype=xp.int64, device=device_of(d)) if group is None else group
    places = xp.arange(d.shape[0], dtype=xp.int32, device=device_of(d))
    infinite = xp.full((), math.inf, dtype=d.dtype, device=device_of(d))
    last = xp.full((), 2**31 - 1, dtype=xp.int32, device=device_of(d))
    near, least = [], []
    for rows in row_blocks(d):
        x = xp.where(group[rows, None] == group[None, :], infinite, rows_of(d, rows))  # (rows, n)
        low = xp.min(x, axis=1, keepdims=True)
        code = xp.where(x == low, xp.bitwise_xor(places[rows, None], places[None, :]), last)
        near.append(xp.argmin(code, axis=1))
        least.append(low[:, 0])
    read = to_host(xp.concat(near), xp.concat(least), reason="nearest neighbours in a linkage round")
    return read[0].astype(np.int64), read[1].astype(np.float64)


def _rows(d: Array, rows: slice) -> Array:
    return d[rows, :]


def _upper(d: Array, rows: slice) -> Array:
    """Return some rows of d mirrored from its upper triangle, which removes asymmetry by rounding."""
    xp = array_namespace(d)
    places = xp.arange(d.shape[0], dtype=xp.int64, device=device_of(d))
    return xp.where(places[None, :] >= places[rows, None], d[rows, :], d[:, rows].T)


def _fill(work: Array, q: int, blocks: Iterator[slice], rows_of: Callable[[slice], Array]) -> Array:
    """Write a q×q matrix to the first q² entries of `work`, by blocks of rows, and return it."""
    xp = array_namespace(work)
    for rows in blocks:
        block = xp.astype(rows_of(rows), work.dtype, copy=False)
        work = put(work, slice(rows.start * q, rows.stop * q), xp.reshape(block, (-1,)))
    return work


def _roots(parent: np.ndarray) -> np.ndarray:
    """Return the root of the tree of each node; a root is its own parent."""
    while True:
        grandparent = parent[parent]
        if np.array_equal(grandparent, parent):
            return parent
        parent = grandparent


def _merge_table(i: np.ndarray, j: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Return SciPy's merge table, given the heights at which the clusters of objects i and j merge.

    Merges of equal height keep their order, so that clusters are created before they merge.
    """
    n = len(heights) + 1
    order = np.argsort(heights, kind="stable")
    parent, size = list(range(2 * n - 1)), [1] * n
    table = np.empty((n - 1, 4))
    for r, (x, y) in enumerate(zip(i[order].tolist(), j[order].tolist(), strict=True)):
        a, b = sorted((_root(parent, x), _root(parent, y)))
        parent[a] = parent[b] = n + r
        size.append(size[a] + size[b])
        table[r, 0], table[r, 1], table[r, 3] = a, b, size[-1]
    table[:, 2] = np.maximum(heights[order], 0)
    return table


def _root(parent: list[int], node: int) -> int:
    """Return the root of a node, with path halving."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@dataclasses.dataclass
class Linkage(Parameters):
    """Hierarchical clustering of dissimilarities.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule, optional
        The rules: "gap" (the largest gap between merge heights), "calinski_harabasz", and
        "silhouette"; all share one dendrogram. See `affect_xp.clustering.n_clusters`.
    distance_threshold : float, optional
        Instead of `n_clusters`: merge up to this height.
    method : "single", "complete", "average" or "ward"
        Ward squares its input. With `Affect` the input is the blend α·ψᵢⱼ + (1 − α)·dᵢⱼ of
        distances, not of their squares.
    max_clusters : int
        The largest number of clusters that a rule may select.

    See Also
    --------
    affect_xp.linkage : the underlying function, which returns the dendrogram.
    """

    wants: ClassVar[str] = "dissimilarity"
    rules: ClassVar[tuple[str, ...]] = RULES["Linkage"]

    n_clusters: NClusters | None = None
    _: dataclasses.KW_ONLY
    distance_threshold: float | None = None
    method: str = "average"
    max_clusters: int = 10

    @property
    def unit_free(self) -> bool:
        """Whether the units of features do not matter; a threshold is in these units."""
        return self.distance_threshold is None

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        if (self.n_clusters is None) == (self.distance_threshold is None):
            raise InputError(
                f"give either n_clusters or distance_threshold, got n_clusters={self.n_clusters!r} and "
                f"distance_threshold={self.distance_threshold!r}"
            )
        if self.n_clusters is not None:
            check_clusters(self.n_clusters, self.max_clusters, self.rules)
        else:
            check_distance_threshold(self.distance_threshold)
        check_choice("method", self.method, METHODS)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cut the dendrogram of the objects of step t."""
        tree, scores = linkage(proximity, self.method), None
        if self.n_clusters is None:
            k: int | None = tree.n_clusters_at(check_distance_threshold(self.distance_threshold))
        else:
            k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is None:
            scores = self._scores(proximity, tree)
            k = choose(scores)
        return Clustering(Partition(tree.cut(k), k, 0), n_iter=tree.n_rounds, scores=scores)

    def _scores(self, proximity: Proximity, tree: Dendrogram) -> dict[int, float]:
        """Return the score of each number of clusters for the rule."""
        if self.n_clusters == "gap":
            return height_gap_scores(tree.heights, self.max_clusters)
        if self.n_clusters == "calinski_harabasz":
            return calinski_harabasz_scores(proximity, tree.host_labels, self.max_clusters, kind=self.wants)
        return select(
            proximity, "silhouette", self.max_clusters, lambda k: Partition(tree.cut(k), k), kind=self.wants
        ).scores
