"""k-means from proximities alone: batched Lloyd iterations on products W·Z.

With W = XXᵀ, or a blend of such matrices, the squared distance of object i to the centroid of
cluster c needs no features:

    ‖xᵢ − m_c‖² = wᵢᵢ − 2 (WZ)ᵢc / m_c + (ZᵀWZ)cc / m_c²

W may be any symmetric matrix. If it is not positive semi-definite (a blend with new objects need not
be), these "distances" can be negative and Lloyd's iteration need not descend; then the best labels found
are returned. Adding a multiple of the identity to W would make it definite and change the sum of squares
of every partition by the same number, so the best partition is still well defined.
"""

import dataclasses
import functools
import math
import warnings
from typing import Any, ClassVar

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    from_host,
    is_cupy,
    label_counts,
    on_input_device,
    one_hot,
    places_of,
    ratio,
    to_host,
)
from affect_xp.array.random import as_generator
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_fraction, check_int, check_n_clusters
from affect_xp.clustering.base import FIRST, RULES, Call, Clustering, NClusters, check_clusters, clusters_at
from affect_xp.clustering.n_clusters import select
from affect_xp.clustering.seeding import STARTS, Sample, spread_partitions
from affect_xp.exceptions import ConvergenceWarning, InputError
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition, as_partition, fewer_clusters
from affect_xp.proximity import Grouped, Proximity, as_proximity

# Products are updated from the columns of moved objects if these are at most this share of all.
UPDATE_SHARE = 0.5
# Iterations without a smaller sum of squares after which an indefinite W is considered to cycle.
MAX_STALLED_ITERATIONS = 10
# Sums of squares that differ by less than this share are considered equal.
RELATIVE_TIE = 1e-7
# The default tolerance: the relative decrease of the sum of squares at which the iteration stops.
DEFAULT_TOL = 1e-5
# The tolerance and the maximum number of iterations of runs that only compare starts or estimate α.
ROUGH_TOL, SAMPLE_ITER = 1e-3, 30
# The number of starts of n_init="auto", and the size of the sample to compare them on: objects per cluster,
# and limits.
AUTO_STARTS, AUTO_OBJECTS, AUTO_LIMITS = 10, 100, (1000, 4000)
# The same for the new starts that compete with the previous labels.
FRESH_STARTS, FRESH_OBJECTS, FRESH_LIMITS = 3, 30, (300, 1200)
# A new start replaces the previous labels if its sum of squares is smaller by this share.
FRESH_GAIN = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class KMeansResult:
    """The result of k-means.

    Attributes
    ----------
    labels : (n,) int array
        Clusters 0 ... k-1, none of them empty.
    inertia : float
        The sum of squared distances to the centroids.
    n_iter : int
        Lloyd iterations until the last start stopped (all starts run in parallel); an iteration with an
        empty cluster counts twice.
    converged : bool
        Whether the labels are a fixed point, or the sum of squares hardly fell (`tol`). If not, increase
        `max_iter`; if W is not positive semi-definite there may be no fixed point, and these are the
        best labels found.
    moved : bool
        Whether any label differs from the initial labels.
    is_fixed_point : bool
        Whether the labels are a fixed point.
    groups : Grouped
        W with these labels; W·Z need not be computed again.
    """

    labels: Array
    inertia: float
    n_iter: int
    converged: bool
    moved: bool
    is_fixed_point: bool
    groups: Grouped = dataclasses.field(repr=False)


@on_input_device
def kmeans(
    W: Array | Proximity,
    n_clusters: int,
    *,
    init: str | Array | Partition = "k-means++",
    n_init: int | str = "auto",
    max_iter: int = 300,
    tol: float = DEFAULT_TOL,
    rng: Seed = None,
) -> KMeansResult:
    """Cluster objects into k groups with small squared distances to their centroids, from dot products W.

    All starts run as one batch: they share each pass over W, and each stops when it has converged.
    Between iterations only the columns of moved objects are read. An empty cluster gets the object farthest
    from its centroid, taken from a cluster with at least two objects. Ties go to the cluster with the lowest
    number. On a device the host waits once for each Lloyd iteration.

    Parameters
    ----------
    W : (n, n) array or Proximity
        Similarities: dot products of the features.
    n_clusters : int
    init : "k-means++", "random", or (n,) int array
        Initialise with distant random objects (greedy k-means++), with a random partition into equal parts,
        or with labels. Objects labelled -1 join the nearest cluster in the first iteration.
    n_init : "auto" or int
        The number of starts; the one with the smallest sum of squares wins. With labels as `init`, the
        first start uses the labels and the others are k-means++. "auto" compares ten starts of k-means++,
        on a sample if there are many objects, and continues from the best with all objects; a random
        partition or labels are a single start.
    max_iter : int
    tol : float
        Stop if the sum of squares falls by no more than this share in an iteration. With 0 the
        iteration continues until no label changes, which takes long for very many objects.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> X = np.array([[0.0, 1.0], [0.0, 2.0], [9.0, 1.0], [9.0, 2.0]])
    >>> result = ax.kmeans(X @ X.T, 2, init=[0, -1, 1, -1])
    >>> result.labels, result.inertia, result.converged
    (array([0, 0, 1, 1]), 1.0, True)
    """
    W = as_proximity(W)
    k = check_n_clusters(n_clusters, W.n)
    max_iter, tol = check_int("max_iter", max_iter, 1), check_fraction("tol", tol)
    check_n_init(n_init)
    generator = as_generator(rng)
    if isinstance(init, str):
        check_choice("init", init, STARTS)
        if n_init == "auto" and init == "k-means++":
            return _from_best_start(W, k, max_iter, tol, generator)
        n_starts = 1 if isinstance(n_init, str) else n_init
        return lloyd(W.grouped(STARTS[init](W, k, n_starts, generator), k), max_iter, tol)
    start = fewer_clusters(as_partition(init, W.n, W.like, name="init"), k)
    complete = start.n_outside == 0
    if n_init in ("auto", 1):
        return lloyd(W.group(start), max_iter, tol, complete=complete)
    others = STARTS["k-means++"](W, k, int(n_init) - 1, generator)
    starts = array_namespace(others).concat([start.labels[:, None], others], axis=1)
    return lloyd(W.grouped(starts, k), max_iter, tol, complete=complete)


def _from_best_start(
    W: Proximity, k: int, max_iter: int, tol: float, rng: np.random.Generator
) -> KMeansResult:
    """Compare ten starts after a few iterations, and continue from the best.

    If there are many objects, the starts are compared on a sample, on the host.
    """
    size = min(max(AUTO_OBJECTS * k, AUTO_LIMITS[0]), AUTO_LIMITS[1])
    sample = None if W.n <= 2 * size else Sample.draw(W, size, rng)
    few = W if sample is None else sample.W
    best = lloyd(few.grouped(spread_partitions(few, k, AUTO_STARTS, rng), k), SAMPLE_ITER, ROUGH_TOL)
    if sample is not None:
        start = W.grouped(sample.spread(best.labels, W.n, W.like)[:, None], k)
        return lloyd(start, max_iter, tol, complete=False)
    result = lloyd(best.groups, max_iter, tol)
    return dataclasses.replace(result, n_iter=best.n_iter + result.n_iter, moved=best.moved or result.moved)


def kmeans_from(start: Grouped, max_iter: int, tol: float, rng: Seed = None) -> KMeansResult:
    """Run k-means from the previous labels, or from a new start if that is clearly better.

    The previous labels may be a poor local optimum, which Lloyd's iteration never leaves. On a small
    sample they compete with three starts of k-means++. If one of these has a sum of squares that is smaller
    by 1 %, both run on all objects, and the new start wins if it is also better there by 1 %.
    """
    fresh = _fresh_start(start, np.random.default_rng(rng))
    if fresh is None:
        return lloyd(start, max_iter, tol, complete=start.partition.n_outside == 0)
    starts = array_namespace(fresh).concat([start.labels, fresh[:, None]], axis=1)
    both = start.proximity.grouped(starts, start.k)
    return lloyd(both, max_iter, tol, complete=False, margin=FRESH_GAIN)


def _fresh_start(start: Grouped, rng: np.random.Generator) -> Array | None:
    """Return labels of a new start, -1 for objects not sampled, if it is better on a sample; else None."""
    W, k = start.proximity, start.k
    size = min(max(FRESH_OBJECTS * k, FRESH_LIMITS[0]), FRESH_LIMITS[1])
    sample = Sample.draw(W, size, rng, start.labels[:, 0])
    assert sample.labels is not None
    starts = spread_partitions(sample.W, k, FRESH_STARTS, rng)
    fresh = lloyd(sample.W.grouped(starts, k), SAMPLE_ITER, ROUGH_TOL)
    before = sample.W.grouped(sample.labels[:, None], k)
    inherited = lloyd(before, SAMPLE_ITER, ROUGH_TOL, complete=False)
    if fresh.inertia >= inherited.inertia - FRESH_GAIN * abs(inherited.inertia):
        return None
    return sample.spread(fresh.labels, W.n, W.like)


def check_n_init(n_init: object) -> None:
    """Raise unless `n_init` is "auto" or a positive integer."""
    if isinstance(n_init, str):
        check_choice("n_init, if not a number,", n_init, ("auto",))
    else:
        check_int("n_init", n_init, 1)


@dataclasses.dataclass
class _Start:
    """The progress of one start, on the host."""

    batch: "_Batch | None" = None  # holds the best labels so far
    place: int = 0  # the index of this run in that batch
    inertia: float = np.inf  # their sum of squares
    n_iter: int = 0
    stalled: int = 0  # iterations since the last decrease of the sum of squares
    is_fixed_point: bool = False  # no label changes
    converged: bool = False  # a fixed point, or the sum of squares hardly falls
    moved: bool = False

    def record(self, batch: "_Batch", r: int, inertia: float, tol: float) -> None:
        """Keep the labels of run r if they are a fixed point or the best so far; stop if hardly better."""
        if self.converged or inertia < self.inertia or self.batch is None:
            if np.isfinite(self.inertia) and 0 <= self.inertia - inertia < tol * abs(self.inertia):
                self.converged = True
            self.batch, self.place, self.inertia, self.stalled = batch, r, float(inertia), 0
        else:
            self.stalled += 1

    @property
    def continues(self) -> bool:
        """Whether another iteration may help."""
        return not self.converged and self.stalled <= MAX_STALLED_ITERATIONS


@own_threads()
@np.errstate(over="ignore", invalid="ignore")  # overflow raises at the end
def lloyd(
    start: Grouped, max_iter: int, tol: float = 0.0, *, complete: bool = True, margin: float = RELATIVE_TIE
) -> KMeansResult:
    """Run Lloyd's iteration from each of the R partitions of a start and return the best result.

    `complete` means that the start labels all objects. A later start needs a sum of squares smaller by the
    share `margin` to win.
    """
    W, runs = start.proximity, [_Start() for _ in range(start.n_runs)]
    batch, active = _Batch.start(start), runs
    for iteration in range(max_iter):
        assignment = batch.assign()
        for r, run in enumerate(active):
            run.n_iter += assignment.n_reads
            run.is_fixed_point = run.converged = bool(assignment.n_moved[r] == 0)
            run.moved = run.moved or not run.is_fixed_point
            if iteration > 0 or run.is_fixed_point:
                run.record(batch, r, assignment.inertia[r], tol)
            elif complete:
                # Not a result, since clusters of the start may be empty, but a reference for `tol`.
                run.inertia = float(assignment.inertia[r])
        if not any(run.continues for run in active):
            break
        keep = [r for r, run in enumerate(active) if run.continues]
        n_rows = assignment.n_moved[keep].mean() if W.updates_each_run else assignment.n_rows
        from_scratch = n_rows > min(UPDATE_SHARE, W.max_update_share) * W.n
        batch, active = batch.move(assignment, keep, from_scratch=from_scratch), [active[r] for r in keep]
    else:
        for r, (run, inertia) in enumerate(zip(active, batch.read_inertia(), strict=True)):
            run.record(batch, r, inertia, tol)
    # Among starts that are equal up to rounding the first one wins, on every library.
    lowest = min(run.inertia for run in runs)
    if not math.isfinite(lowest):
        raise InputError(
            f"W is too large for k-means: the sum of squares is {lowest}; divide W, or the features it "
            "is made of, by a constant"
        )
    best = next(run for run in runs if run.inertia <= lowest + margin * abs(lowest))
    assert best.batch is not None
    groups = best.batch.groups_of(best.place)
    moved, n_iter = best.moved or best is not runs[0], max(run.n_iter for run in runs)
    return KMeansResult(
        groups.labels[:, 0], best.inertia, n_iter, best.converged, moved, best.is_fixed_point, groups
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Assignment:
    """The nearest centroid of each object, and summaries for the host."""

    labels: Array  # (n, R)
    sizes: Array  # (R, k), none of them 0
    n_moved: np.ndarray  # (R,), how many labels have changed
    n_rows: int  # how many objects moved in any run
    n_reads: int  # how often the host waited
    inertia: np.ndarray  # (R,), of the labels before
    bounds: Any = None  # for the next search
    rows: Array | None = None  # the moved objects, if known


@dataclasses.dataclass(frozen=True, eq=False)
class _Batch:
    """R parallel runs of Lloyd's iteration."""

    groups: Grouped
    known_sizes: Array | None
    w_ii: Array  # (n,)
    bounds: Any = None  # of the last search for the nearest centroids

    @staticmethod
    def start(groups: Grouped) -> "_Batch":
        """Return the batch for the initial labels."""
        kind = _FewCalls if groups.is_few else _Batch
        return kind(groups, None, groups.diagonal())

    @functools.cached_property
    def sizes(self) -> Array:
        """The cluster sizes m, (R, k)."""
        known = self.known_sizes
        return label_counts(self.groups.labels, self.groups.k) if known is None else known

    def groups_of(self, run: int) -> Grouped:
        """Return W with the labels of one run."""
        return self.groups.of_runs([run])

    def assign(self) -> _Assignment:
        """Find the nearest centroid of each object; one host sync, two if a cluster is empty."""
        if self._has_kernels:
            return self._assign_by_kernels()
        m, own, k = self.sizes, self.groups.own(), self.groups.k
        labels, bounds = self.groups.nearest(m, own, self.bounds)
        sizes, xp = label_counts(labels, k), array_namespace(m)
        n_moved, n_rows, smallest, inertia = to_host(
            *self._moves(labels), xp.min(sizes), self._inertia(own), reason="has k-means converged?"
        )
        if smallest > 0:
            return _Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, bounds)
        return self._repair(labels, own, inertia)

    @property
    def _has_kernels(self) -> bool:
        groups = self.groups
        return is_cupy(groups.labels) and groups.n_runs * groups.k <= cuda.MAX_COUNTS

    def _repair(self, labels: Array, own: Array, inertia: np.ndarray) -> _Assignment:
        """Fill empty clusters."""
        distance = self.groups.distances(slice(0, labels.shape[0]), self.sizes, own)
        labels = _repaired(labels, distance, self.w_ii)
        n_moved, n_rows = to_host(*self._moves(labels), reason="has k-means converged after a repair?")
        return _Assignment(labels, label_counts(labels, self.groups.k), n_moved, int(n_rows), 2, inertia)

    def _assign_by_kernels(self) -> _Assignment:
        """Do the same with CuPy in three kernel launches."""
        groups, n_runs = self.groups, self.groups.n_runs
        (labels, rows, sizes), read = self._read_by_kernels()
        n_moved, (n_rows, n_empty), inertia = np.split(read, [n_runs, n_runs + 2])
        if n_empty > 0:
            return self._repair(labels, groups.own(), inertia)
        return _Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, rows=rows[: int(n_rows)])

    def _read_by_kernels(self) -> tuple[tuple[Array, Array, Array], np.ndarray]:
        """Return new labels, moved objects and sizes, and a report on the host; see `cuda.lloyd_assign`."""
        groups = self.groups
        *found, report = cuda.lloyd_assign(groups.for_kernels(), self.w_ii, groups.labels, groups.k)
        return tuple(found), to_host(report, reason="has k-means converged?")[0]

    def _inertia(self, own: Array) -> Array:
        """Return Σ wᵢᵢ − Σ_c (ZᵀWZ)cc / m_c of each run, (R,)."""
        xp, labels = array_namespace(own), self.groups.labels
        in_cluster = xp.astype(labels >= 0, self.w_ii.dtype)
        return self.w_ii @ in_cluster - xp.sum(ratio(own, self.sizes), axis=1)

    def read_inertia(self) -> np.ndarray:
        """Return the sum of squares of each run on the host, (R,)."""
        if self._has_kernels:
            return self._read_by_kernels()[1][-self.groups.n_runs :]
        return to_host(self._inertia(self.groups.own()), reason="sum of squares of k-means")[0]

    def _moves(self, labels: Array) -> tuple[Array, Array]:
        """Return how many objects move in each run, (R,), and how many in any."""
        xp = array_namespace(labels)
        moved = labels != self.groups.labels
        n_moved = xp.sum(xp.astype(moved, xp.int64), axis=0)
        return n_moved, n_moved[0] if moved.shape[1] == 1 else xp.sum(xp.astype(_in_any_run(moved), xp.int64))

    def move(self, found: _Assignment, keep: list[int], *, from_scratch: bool) -> "_Batch":
        """Return the batch of the runs `keep` with new labels; multiply everything, or only the changes."""
        new, sizes, groups = found.labels, found.sizes, self.groups
        xp = array_namespace(new)
        if len(keep) < groups.n_runs:
            runs = from_host(keep, new)
            new, sizes = xp.take(new, runs, axis=1), xp.take(sizes, runs, axis=0)
            groups = groups.of_runs(keep)
        if from_scratch:
            return type(self)(groups.from_scratch(new), sizes, self.w_ii, found.bounds)
        rows = found.rows
        if rows is None:
            rows = places_of(_in_any_run(found.labels != self.groups.labels), found.n_rows)
        return type(self)(groups.regrouped(new, rows), sizes, self.w_ii, found.bounds)


class _FewCalls(_Batch):
    """The same in NumPy, with few calls: these take longer than the sums if there are few objects."""

    def assign(self) -> _Assignment:
        """Find the nearest centroid of each object."""
        groups, before, m = self.groups, self.groups.labels, self.sizes
        own, some = groups.own(), np.maximum(m, 1)
        distance = groups.inner_products(-2 / some)  # (n, R, k)
        distance += np.where(m > 0, own / (some * some), np.inf)
        labels = distance.argmin(axis=2)
        places = labels + groups.k * np.arange(groups.n_runs)
        sizes = np.bincount(places.reshape(-1), minlength=m.size).reshape(m.shape).astype(np.float64)
        moved = labels != before
        inertia = self.w_ii @ (before >= 0).astype(np.float64) - (own / some).sum(axis=1)
        if sizes.min() == 0:
            return self._repair(labels, own, inertia)
        n_moved, rows = np.count_nonzero(moved, axis=0), np.flatnonzero(_in_any_run(moved))
        return _Assignment(labels, sizes, n_moved, len(rows), 1, inertia, rows=rows)


def _repaired(labels: Array, distance: Array, w_ii: Array) -> Array:
    """Give each empty cluster the object farthest from its centroid, given distances minus wᵢᵢ, (n, R, k).

    The nearest object of each cluster stays, so that filling one cluster does not empty another.
    """
    xp = array_namespace(labels)
    n, _, k = distance.shape
    z = one_hot(labels, k, distance.dtype)
    far = xp.full_like(distance, xp.inf)
    own = xp.min(xp.where(z > 0, distance, far), axis=2) + w_ii[:, None]  # (n, R)
    nearest = xp.argmin(xp.where(z > 0, own[:, :, None], far), axis=0)  # (R, k)
    empty = xp.sum(z, axis=0) == 0
    objects = xp.arange(n, dtype=nearest.dtype, device=device_of(labels))
    stays = xp.any((objects[:, None, None] == nearest[None, :, :]) & ~empty[None, :, :], axis=2)
    order = xp.argsort(xp.where(stays, -far[:, :, 0], own), axis=0, descending=True, stable=True)
    rank = xp.argsort(order, axis=0, stable=True)  # (n, R); 0 is the farthest
    n_empty = xp.sum(xp.astype(empty, rank.dtype), axis=1)
    gaps = xp.argsort(xp.astype(~empty, rank.dtype), axis=1, stable=True)  # the empty clusters first
    place = xp.where(rank < k, rank, xp.zeros_like(rank))
    filled = xp.take_along_axis(gaps, place.T, axis=1).T
    return xp.where(rank < n_empty[None, :], xp.astype(filled, labels.dtype), labels)


def _in_any_run(moved: Array) -> Array:
    """Return a mask of the objects that moved in any run, (n,)."""
    return moved[:, 0] if moved.shape[1] == 1 else array_namespace(moved).any(moved, axis=1)


@dataclasses.dataclass
class KMeans(Parameters):
    """k-means on similarities (dot products of features), without the features.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule
        The rules "silhouette", "calinski_harabasz" and "modularity" select at each step the number with the
        best score among 2 ... `max_clusters`. See `affect_xp.clustering.n_clusters`.
    init : "k-means++", "random" or (n,) int array
        The initial labels of the first step, and of any other without a past: greedy k-means++, a random
        partition into equal parts (the paper's setting), or labels. Later steps start from the previous
        labels: new objects join the nearest cluster, a cluster that lost all its objects gets the object
        farthest from its centroid, and if `n_clusters` decreases the largest clusters are kept.
    n_init : "auto" or int
        The number of starts at each step; the best one is kept. "auto": ten at the first step; at later
        steps the previous labels compete, on a small sample, with three starts of k-means++, and are
        replaced if one of these has a sum of squares smaller by 1 %. With init="random" or labels "auto"
        is 1.
    max_iter : int
        The maximum number of Lloyd iterations.
    tol : float
        Stop if the sum of squares falls by no more than this share; with 0, if no label changes.
    max_clusters : int
        The largest number of clusters that a rule may select.

    Notes
    -----
    The paper starts from one random partition: `KMeans(k, init="random", n_init=1, tol=0)`. With many
    clusters that usually ends in a poor local optimum, which each later step inherits.

    See Also
    --------
    affect_xp.kmeans : the underlying function.
    """

    wants: ClassVar[str] = "similarity"
    unit_free: ClassVar[bool] = True  # the same clusters for features of other units
    rules: ClassVar[tuple[str, ...]] = RULES["KMeans"]

    n_clusters: NClusters
    _: dataclasses.KW_ONLY
    init: str | Array = "k-means++"
    n_init: int | str = "auto"
    max_iter: int = 300
    tol: float = DEFAULT_TOL
    max_clusters: int = 10

    @property
    def translation_free(self) -> bool:
        """Whether translated features give the same clusters, because only distances matter."""
        return not (isinstance(self.n_clusters, str) and self.n_clusters == "modularity")

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        check_clusters(self.n_clusters, self.max_clusters, self.rules)
        check_n_init(self.n_init)
        check_int("max_iter", self.max_iter, 1)
        check_fraction("tol", self.tol)
        if isinstance(self.init, str):
            check_choice("init", self.init, STARTS)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of step t, starting from the previous labels if there are any."""
        k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is not None:
            result = self._run(proximity, k, call)
            return Clustering(
                Partition(result.labels, k, 0),
                result.moved,
                result.n_iter,
                groups=result.groups,
                rough=call.rough and (self._competes(call) or not result.is_fixed_point),
            )
        n_iter = []

        def cluster_k(k: int) -> Partition:
            result = self._run(proximity, k, call)
            n_iter.append(result.n_iter)
            return Partition(result.labels, k, 0)

        chosen = select(proximity, str(self.n_clusters), self.max_clusters, cluster_k, kind="similarity")
        return Clustering(chosen.partition, n_iter=sum(n_iter) + 1, scores=chosen.scores, rough=call.rough)

    def _competes(self, call: Call) -> bool:
        """Return whether the previous labels compete with new starts."""
        automatic = self.n_init == "auto" and isinstance(self.init, str) and self.init == "k-means++"
        return automatic and not call.settled

    def _run(self, proximity: Proximity, k: int, call: Call) -> KMeansResult:
        tol = max(self.tol, ROUGH_TOL) if call.rough else self.tol
        if call.start is not None and self._competes(call) and not call.rough:
            result = kmeans_from(call.start_groups(proximity, k), self.max_iter, tol, call.rng)
        elif call.start is not None and self.n_init in ("auto", 1):
            complete = call.start.n_outside == 0 and call.start.k <= k
            result = lloyd(call.start_groups(proximity, k), self.max_iter, tol, complete=complete)
        else:
            result = kmeans(
                proximity,
                k,
                init=self.init if call.start is None else call.start,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=tol,
                rng=call.rng,
            )
        if not result.converged and result.n_iter >= self.max_iter:
            warnings.warn(
                f"k-means did not converge in max_iter={self.max_iter} iterations; increase max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        return result
