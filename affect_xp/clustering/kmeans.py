"""k-means from proximities alone: batched Lloyd iterations on products W·Z.

With W = XXᵀ, or a blend of such matrices, the squared distance of object i to the centroid of
cluster c needs no features:

    ‖xᵢ − m_c‖² = wᵢᵢ − 2 (WZ)ᵢc / m_c + (ZᵀWZ)cc / m_c²

W may be any symmetric matrix. If it is not positive semi-definite (a blend with new objects need not
be), these "distances" can be negative and Lloyd's iteration need not descend; then the best labels found
are returned. Adding a multiple of the identity to W would make it definite and change the sum of squares
of every partition by the same number, so the best partition is still well defined.
"""

import copy
import dataclasses
import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    from_host,
    is_cupy,
    is_on_device,
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
from affect_xp.clustering.base import (
    FIRST,
    RULES,
    Call,
    Change,
    Clustering,
    NClusters,
    check_clusters,
    clusters_at,
)
from affect_xp.clustering.n_clusters import candidates, select
from affect_xp.clustering.seeding import SAMPLED, STARTS, Drawn, Sample, spread_partitions
from affect_xp.exceptions import ConvergenceWarning, InputError
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition, as_partition, fewer_clusters, labels_by_number
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
# Runs for several numbers of clusters share a batch of at most so many columns.
MAX_COLUMNS = 256
# A new start replaces the previous labels if its sum of squares is smaller by this share, and by more than
# rounding errors, a share of Σ|wᵢᵢ|.
FRESH_GAIN, ROUNDING = 0.01, 1e-12


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
    W, k, generator = start.proximity, start.k, np.random.default_rng(rng)
    batch, drawn = _Batch.start(start), Drawn.of(W, _fresh_size(k), generator, start.labels)
    if is_on_device(start.labels):  # the host waits once for the sample and the first iteration
        batch = batch.assigned(drawn.arrays)
    sample = drawn.read(batch.also or to_host(*drawn.arrays, reason=SAMPLED))
    fresh = _better_on(sample, 0, k, generator)
    if fresh is None:
        return lloyd(batch, max_iter, tol, complete=start.partition.n_outside == 0)
    others = sample.spread(fresh, W.n, W.like)[:, None]
    starts = array_namespace(others).concat([start.labels, others], axis=1)
    return lloyd(W.grouped(starts, k), max_iter, tol, complete=False, margin=FRESH_GAIN)


def _fresh_size(k: int) -> int:
    return min(max(FRESH_OBJECTS * k, FRESH_LIMITS[0]), FRESH_LIMITS[1])


def _better_on(sample: Sample, r: int, k: int, rng: np.random.Generator) -> np.ndarray | None:
    """Return labels of a sample from a new start, if they are clearly better than its labels of run r."""
    assert sample.labels is not None
    starts = spread_partitions(sample.W, k, FRESH_STARTS, rng)
    fresh = lloyd(sample.W.grouped(starts, k), SAMPLE_ITER, ROUGH_TOL)
    before = sample.W.grouped(sample.labels[:, r : r + 1], k)
    inherited = lloyd(before, SAMPLE_ITER, ROUGH_TOL, complete=False)
    gain = inherited.inertia - fresh.inertia
    at_least = max(FRESH_GAIN * abs(inherited.inertia), ROUNDING * float(np.abs(sample.W.diagonal()).sum()))
    return fresh.labels if gain > at_least else None


def check_n_init(n_init: object) -> None:
    """Raise unless `n_init` is "auto" or a positive integer."""
    if isinstance(n_init, str):
        check_choice("n_init, if not a number,", n_init, ("auto",))
    else:
        check_int("n_init", n_init, 1)


@dataclasses.dataclass
class _Start:
    """The progress of one start, on the host."""

    complete: bool = True  # whether it labels all objects
    batch: "_Batch | None" = None  # holds the best labels so far
    place: int = 0  # the index of this run in that batch
    inertia: float = np.inf  # their sum of squares
    n_iter: int = 0
    stalled: int = 0  # iterations since the last decrease of the sum of squares
    is_fixed_point: bool = False  # no label changes
    converged: bool = False  # a fixed point, or the sum of squares hardly falls
    moved: bool = False

    def see(self, batch: "_Batch", r: int, found: "_Assignment", tol: float, *, is_first: bool) -> None:
        """Take note of an iteration."""
        self.n_iter += found.n_reads
        self.is_fixed_point = self.converged = bool(found.n_moved[r] == 0)
        self.moved = self.moved or not self.is_fixed_point
        if not is_first or self.is_fixed_point:
            self.record(batch, r, found.inertia[r], tol)
        elif self.complete:
            # Not a result, since clusters of the start may be empty, but a reference for `tol`.
            self.inertia = float(found.inertia[r])

    def record(self, batch: "_Batch", r: int, inertia: float, tol: float) -> None:
        """Keep the labels of run r if they are a fixed point or the best so far; stop if hardly better."""
        if self.converged or inertia < self.inertia or self.batch is None:
            if np.isfinite(self.inertia) and 0 <= self.inertia - inertia < tol * abs(self.inertia):
                self.converged = True
            self.batch, self.place, self.inertia, self.stalled = batch, r, float(inertia), 0
        else:
            self.stalled += 1

    @property
    def labels(self) -> Array:
        """The best labels so far, (n,)."""
        assert self.batch is not None
        return self.batch.groups.labels[:, self.place]

    @property
    def continues(self) -> bool:
        """Whether another iteration may help."""
        return not self.converged and self.stalled <= MAX_STALLED_ITERATIONS


def lloyd(
    start: "Grouped | _Batch",
    max_iter: int,
    tol: float = 0.0,
    *,
    complete: bool = True,
    margin: float = RELATIVE_TIE,
) -> KMeansResult:
    """Run Lloyd's iteration from each of the R partitions of a start and return the best result.

    `complete` means that the start labels all objects. A later start needs a sum of squares smaller by the
    share `margin` to win.
    """
    batch = start if isinstance(start, _Batch) else _Batch.start(start)
    runs = _iterated(batch, [_Start(complete) for _ in range(batch.groups.n_runs)], max_iter, tol)
    best = _best(runs, margin)
    assert best.batch is not None
    groups = best.batch.groups_of(best.place)
    moved, n_iter = best.moved or best is not runs[0], max(run.n_iter for run in runs)
    return KMeansResult(
        groups.labels[:, 0], best.inertia, n_iter, best.converged, moved, best.is_fixed_point, groups
    )


@own_threads()
@np.errstate(over="ignore", invalid="ignore")  # overflow raises at the end
def _iterated(batch: "_Batch", runs: list[_Start], max_iter: int, tol: float) -> list[_Start]:
    """Run Lloyd's iteration from each of the R partitions of a batch; return the runs."""
    W, active = batch.groups.proximity, runs
    for iteration in range(max_iter):
        is_last = iteration + 1 == max_iter
        assignment = batch.known or (batch.assign_last() if is_last else batch.assign())
        for r, run in enumerate(active):
            if run.continues:
                run.see(batch, r, assignment, tol, is_first=iteration == 0)
        keep = [r for r, run in enumerate(active) if run.continues]
        if not keep:
            break
        n_rows = assignment.n_moved[keep].mean() if W.updates_each_run else assignment.n_rows
        from_scratch = n_rows > min(UPDATE_SHARE, W.max_update_share) * W.n
        if is_cupy(assignment.labels) and 2 * len(keep) > len(active):
            keep = list(range(len(active)))  # launches to leave out a few take longer than their work
        batch, active = batch.move(assignment, keep, from_scratch=from_scratch), [active[r] for r in keep]
    else:
        for r, (run, inertia) in enumerate(zip(active, batch.read_inertia(), strict=True)):
            if run.continues:
                run.record(batch, r, inertia, tol)
    return runs


def _best(runs: Sequence[_Start], margin: float) -> _Start:
    """Return the best run; among starts that are equal up to rounding the first one, on every library."""
    lowest = min(run.inertia for run in runs)
    if not math.isfinite(lowest):
        raise InputError(
            f"W is too large for k-means: the sum of squares is {lowest}; divide W, or the features it "
            "is made of, by a constant"
        )
    return next(run for run in runs if run.inertia <= lowest + margin * abs(lowest))


@dataclasses.dataclass(frozen=True, eq=False)
class _Assignment:
    """The nearest centroid of each object, and summaries for the host."""

    labels: Array  # (n, R)
    sizes: Array  # (R, k), none of them 0 that the run has
    n_moved: np.ndarray  # (R,), how many labels have changed
    n_rows: int  # how many objects moved in any run
    n_reads: int  # how often the host waited
    inertia: np.ndarray  # (R,), of the labels before
    bounds: Any = None  # for the next search
    rows: Array | None = None  # the moved objects, if known
    also: tuple[np.ndarray, ...] = ()  # the values of other arrays, read at the same time
    after: "_Batch | None" = None  # the batch with these labels, if it is known


@dataclasses.dataclass(frozen=True, eq=False)
class _Batch:
    """R parallel runs of Lloyd's iteration."""

    groups: Grouped
    known_sizes: Array | None
    w_ii: Array  # (n,)
    bounds: Any = None  # of the last search for the nearest centroids
    numbers: np.ndarray | None = None  # of clusters of each run, (R,), if they are not all k
    known: _Assignment | None = None  # the nearest centroids, if they are known
    inertia: np.ndarray | None = None  # the sum of squares of each run, (R,), if it is known

    @staticmethod
    def start(groups: Grouped, numbers: np.ndarray | None = None) -> "_Batch":
        """Return the batch for the initial labels; runs may have fewer clusters than k."""
        kind = _FewCalls if groups.is_few and numbers is None else _Batch
        return kind(groups, None, groups.diagonal(), numbers=numbers)

    @property
    def n_absent(self) -> int:
        """The number of clusters that runs do not have."""
        return 0 if self.numbers is None else int(np.sum(self.groups.k - self.numbers))

    @functools.cached_property
    def sizes(self) -> Array:
        """The cluster sizes m, (R, k)."""
        known = self.known_sizes
        return label_counts(self.groups.labels, self.groups.k) if known is None else known

    def groups_of(self, run: int) -> Grouped:
        """Return W with the labels of one run."""
        return self.groups.of_runs([run])

    def assigned(self, also: Sequence[Array]) -> "_Batch":
        """Return the batch with the nearest centroids, and the values of other arrays, read together."""
        return dataclasses.replace(self, known=self.assign(also))

    @property
    def also(self) -> tuple[np.ndarray, ...]:
        """The values that were read with the nearest centroids."""
        return () if self.known is None else self.known.also

    def assign(self, also: Sequence[Array] = ()) -> _Assignment:
        """Find the nearest centroid of each object; one host sync, two if a cluster is empty."""
        if self._has_kernels:
            return self._assign_by_kernels(also)
        m, own, k = self.sizes, self.groups.own(), self.groups.k
        labels, bounds = self.groups.nearest(m, own, self.bounds)
        sizes, xp = label_counts(labels, k), array_namespace(m)
        n_empty = xp.sum(xp.astype(sizes == 0, sizes.dtype))
        seen = *self._moves(labels), n_empty, self._inertia(own)
        n_moved, n_rows, n_empty, inertia, *read = to_host(*seen, *also, reason="has k-means converged?")
        if n_empty == self.n_absent:
            return _Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, bounds, also=tuple(read))
        return self._repair(labels, own, inertia, tuple(read))

    @property
    def _has_kernels(self) -> bool:
        groups = self.groups
        return is_cupy(groups.labels) and groups.n_runs * groups.k <= cuda.MAX_COUNTS

    def _repair(
        self, labels: Array, own: Array, inertia: np.ndarray, also: tuple[np.ndarray, ...] = ()
    ) -> _Assignment:
        """Fill empty clusters."""
        distance = self.groups.distances(slice(0, labels.shape[0]), self.sizes, own)
        labels = _repaired(labels, distance, self.w_ii, self.numbers)
        n_moved, n_rows = to_host(*self._moves(labels), reason="has k-means converged after a repair?")
        sizes = label_counts(labels, self.groups.k)
        return _Assignment(labels, sizes, n_moved, int(n_rows), 2, inertia, also=also)

    def assign_last(self) -> _Assignment:
        """Do the same; with CuPy the host reads the sum of squares after the moves at the same time."""
        if not (self._has_kernels and self.groups.moves_unread):
            return self.assign()
        (labels, rows, sizes), _ = self._by_kernels
        after = type(self)(self.groups.regrouped(labels, rows), sizes, self.w_ii, numbers=self.numbers)
        found = self.assign([after._by_kernels[1]])
        if found.labels is not labels:  # an empty cluster was filled
            return found
        inertia = found.also[0][-self.groups.n_runs :]
        return dataclasses.replace(found, after=dataclasses.replace(after, inertia=inertia))

    def _assign_by_kernels(self, also: Sequence[Array]) -> _Assignment:
        """Do the same with CuPy in three kernel launches."""
        groups, n_runs = self.groups, self.groups.n_runs
        (labels, rows, sizes), report = self._by_kernels
        report, *read = to_host(report, *also, reason="has k-means converged?")
        n_moved, (n_rows, n_empty), inertia = np.split(report, [n_runs, n_runs + 2])
        if n_empty > self.n_absent:
            return self._repair(labels, groups.own(), inertia, tuple(read))
        rows = rows[: int(n_rows)]
        return _Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, rows=rows, also=tuple(read))

    @functools.cached_property
    def _by_kernels(self) -> tuple[list[Array], Array]:
        """Return new labels, moved objects and sizes, and a report for the host; see `cuda.lloyd_assign`."""
        groups = self.groups
        *found, report = cuda.lloyd_assign(groups.for_kernels(), self.w_ii, groups.labels, groups.k)
        return found, report

    def _inertia(self, own: Array) -> Array:
        """Return Σ wᵢᵢ − Σ_c (ZᵀWZ)cc / m_c of each run, (R,)."""
        xp, labels = array_namespace(own), self.groups.labels
        in_cluster = xp.astype(labels >= 0, self.w_ii.dtype)
        return self.w_ii @ in_cluster - xp.sum(ratio(own, self.sizes), axis=1)

    def read_inertia(self) -> np.ndarray:
        """Return the sum of squares of each run on the host, (R,)."""
        if self.inertia is not None:
            return self.inertia
        if self._has_kernels:
            inertia = self._by_kernels[1][-self.groups.n_runs :]
        else:
            inertia = self._inertia(self.groups.own())
        return to_host(inertia, reason="sum of squares of k-means")[0]

    def _moves(self, labels: Array) -> tuple[Array, Array]:
        """Return how many objects move in each run, (R,), and how many in any."""
        xp = array_namespace(labels)
        moved = labels != self.groups.labels
        n_moved = xp.sum(xp.astype(moved, xp.int64), axis=0)
        return n_moved, n_moved[0] if moved.shape[1] == 1 else xp.sum(xp.astype(_in_any_run(moved), xp.int64))

    def move(self, found: _Assignment, keep: list[int], *, from_scratch: bool) -> "_Batch":
        """Return the batch of the runs `keep` with new labels; multiply everything, or only the changes."""
        if found.after is not None and len(keep) == self.groups.n_runs and not from_scratch:
            return found.after
        new, sizes, groups, numbers = found.labels, found.sizes, self.groups, self.numbers
        xp = array_namespace(new)
        if len(keep) < groups.n_runs:
            numbers = None if numbers is None else numbers[keep]
            runs = from_host(keep, new)
            new, sizes = xp.take(new, runs, axis=1), xp.take(sizes, runs, axis=0)
            groups = groups.of_runs(keep)
        if from_scratch:
            return type(self)(groups.from_scratch(new), sizes, self.w_ii, found.bounds, numbers)
        rows = found.rows
        if rows is None:
            rows = places_of(_in_any_run(found.labels != self.groups.labels), found.n_rows)
        return type(self)(groups.regrouped(new, rows), sizes, self.w_ii, found.bounds, numbers)


class _FewCalls(_Batch):
    """The same in NumPy, with few calls: these take longer than the sums if there are few objects."""

    def assign(self, also: Sequence[Array] = ()) -> _Assignment:
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


@dataclasses.dataclass(frozen=True, eq=False)
class _Scan:
    """Starts of k-means for several numbers of clusters, which run as one batch of Lloyd iterations."""

    numbers: list[int]  # the number of clusters of each run
    labels: Array  # (n, runs)
    complete: list[bool]  # whether a run labels all objects

    @staticmethod
    def of(call: Call, ks: Sequence[int]) -> "_Scan | None":
        """Return the previous labels for each number, else the largest of the previous clusters, if any."""
        start, memory = call.start, call.memory
        if start is None:
            return None
        known = start.n_outside == 0
        # The numbers follow from how many they are, except for a single object.
        if memory is not None and memory.shape[1] == len(ks) and ks[-1] > 1 and _is_integral(memory):
            return _Scan(list(ks), memory - 1, [known] * len(ks))
        return _Scan(list(ks), labels_by_number(start, ks), [known and start.k == k for k in ks])

    @staticmethod
    def remembered(labels: Sequence[Array]) -> Array:
        """Return labels as memory for the next step, (n, R); 0 is for objects without a label."""
        return array_namespace(labels[0]).stack(labels, axis=1) + 1

    def start(self, r: int) -> Partition:
        """Return the start of one run."""
        return Partition(self.labels[:, r], self.numbers[r], 0 if self.complete[r] else None)

    def groups(self) -> "Iterator[_Scan]":
        """Yield the runs in groups whose memberships have few columns together."""
        begin = 0
        for end, k in enumerate([*self.numbers[1:], math.inf], start=1):
            if (end + 1 - begin) * k > MAX_COLUMNS:
                some = slice(begin, end)
                yield _Scan(self.numbers[some], self.labels[:, some], self.complete[some])
                begin = end

    def competing(self, W: Proximity, rng: Seed) -> "_Scan":
        """Add new starts that are better on a sample, as `kmeans_from` does."""
        fresh: dict[int, np.ndarray] = {}
        for size in sorted({_fresh_size(k) for k in self.numbers}):
            generator = np.random.default_rng(rng)
            sample = Sample.draw(W, size, generator, self.labels)
            for r, k in enumerate(self.numbers):
                if _fresh_size(k) == size:
                    better = _better_on(sample, r, k, copy.deepcopy(generator))
                    fresh |= {} if better is None else {k: sample.spread_on_host(better, W.n)}
        if not fresh:
            return self
        more = from_host(np.stack(list(fresh.values()), axis=1), W.like)
        labels = array_namespace(more).concat([self.labels, more], axis=1)
        complete = [known and k not in fresh for k, known in zip(self.numbers, self.complete, strict=True)]
        return _Scan([*self.numbers, *fresh], labels, complete + [False] * len(fresh))

    def best(self, W: Proximity, max_iter: int, tol: float) -> dict[int, _Start]:
        """Run all starts; return the best run of each number of clusters."""
        batch = _Batch.start(W.grouped(self.labels, max(self.numbers)), np.asarray(self.numbers))
        by_number: dict[int, list[_Start]] = {}
        runs = _iterated(batch, [_Start(complete) for complete in self.complete], max_iter, tol)
        for k, run in zip(self.numbers, runs, strict=True):
            by_number.setdefault(k, []).append(run)
        return {k: _best(some, FRESH_GAIN) for k, some in by_number.items()}


def _is_integral(x: Array) -> bool:
    return bool(array_namespace(x).isdtype(x.dtype, "integral"))


def _repaired(labels: Array, distance: Array, w_ii: Array, numbers: np.ndarray | None = None) -> Array:
    """Give each empty cluster the object farthest from its centroid, given distances minus wᵢᵢ, (n, R, k).

    The nearest object of each cluster stays, so that filling one cluster does not empty another. Runs may
    have fewer clusters than k.
    """
    xp = array_namespace(labels)
    n, _, k = distance.shape
    z = one_hot(labels, k, distance.dtype)
    far = xp.full_like(distance, xp.inf)
    own = xp.min(xp.where(z > 0, distance, far), axis=2) + w_ii[:, None]  # (n, R)
    nearest = xp.argmin(xp.where(z > 0, own[:, :, None], far), axis=0)  # (R, k)
    occupied = xp.sum(z, axis=0) > 0
    empty = ~occupied
    if numbers is not None:
        empty = empty & from_host(np.arange(k) < numbers[:, None], labels)
    objects = xp.arange(n, dtype=nearest.dtype, device=device_of(labels))
    stays = xp.any((objects[:, None, None] == nearest[None, :, :]) & occupied[None, :, :], axis=2)
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
            return self._found(self._run(proximity, k, call), k, call)
        ks = candidates(proximity.n, 2, self.max_clusters)
        labels, n_iter = self._run_each(proximity, ks, call)
        partitions = {k: Partition(x, k, 0) for k, x in zip(ks, labels, strict=True)}
        rule = str(self.n_clusters)
        chosen = select(proximity, rule, self.max_clusters, partitions.__getitem__, kind="similarity")
        return Clustering(
            chosen.partition,
            n_iter=n_iter + 1,
            memory=_Scan.remembered(labels),
            scores=chosen.scores,
            rough=call.rough,
        )

    def cluster_if(self, change: Change, proximity: Proximity, call: Call) -> Clustering | None:
        """Do the same, or return None if a change is small; the first iteration reads it too."""
        k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is None or call.start is None or not call.rough or self.n_init not in ("auto", 1):
            return self.cluster(proximity, call) if change.is_large() else None
        batch = _Batch.start(call.start_groups(proximity, k)).assigned([change.now, change.before])
        if not change.is_large(*batch.also):
            return None
        return self._found(self._run(proximity, k, call, batch), k, call)

    def _found(self, result: KMeansResult, k: int, call: Call) -> Clustering:
        return Clustering(
            Partition(result.labels, k, 0),
            result.moved,
            result.n_iter,
            groups=result.groups,
            rough=call.rough and (self._competes(call) or not result.is_fixed_point),
        )

    def _run_each(self, proximity: Proximity, ks: Sequence[int], call: Call) -> tuple[list[Array], int]:
        """Return labels for each number of clusters, and the iterations; on a device all run as one batch."""
        scan, competes = _Scan.of(call, ks), self._competes(call) and not call.rough
        if scan is None or self.n_init not in ("auto", 1) or not is_on_device(proximity.like):
            starts = [call.start if scan is None else scan.start(r) for r in range(len(ks))]
            calls = [dataclasses.replace(call, start=start, groups=None) for start in starts]
            found = [self._run(proximity, k, each) for k, each in zip(ks, calls, strict=True)]
            return [result.labels for result in found], sum(result.n_iter for result in found)
        runs: dict[int, _Start] = {}
        for some in scan.groups():
            tried = some.competing(proximity, call.rng) if competes else some
            runs |= tried.best(proximity, self.max_iter, self._tol(call))
        best = [runs[k] for k in ks]
        self._warn_unless(all(run.converged or run.n_iter < self.max_iter for run in best))
        return [run.labels for run in best], max(run.n_iter for run in best)

    def _competes(self, call: Call) -> bool:
        """Return whether the previous labels compete with new starts."""
        automatic = self.n_init == "auto" and isinstance(self.init, str) and self.init == "k-means++"
        return automatic and not call.settled

    def _tol(self, call: Call) -> float:
        return max(self.tol, ROUGH_TOL) if call.rough else self.tol

    def _run(self, proximity: Proximity, k: int, call: Call, begun: _Batch | None = None) -> KMeansResult:
        tol = self._tol(call)
        if call.start is not None and self._competes(call) and not call.rough:
            result = kmeans_from(call.start_groups(proximity, k), self.max_iter, tol, call.rng)
        elif call.start is not None and self.n_init in ("auto", 1):
            complete = call.start.n_outside == 0 and call.start.k <= k
            start = begun or call.start_groups(proximity, k)
            result = lloyd(start, self.max_iter, tol, complete=complete)
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
        self._warn_unless(result.converged or result.n_iter < self.max_iter)
        return result

    def _warn_unless(self, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"k-means did not converge in max_iter={self.max_iter} iterations; increase max_iter",
                ConvergenceWarning,
                stacklevel=3,
            )
