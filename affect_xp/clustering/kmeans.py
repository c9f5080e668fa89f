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
import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    from_host,
    is_on_device,
    on_input_device,
    to_host,
)
from affect_xp.array.random import as_generator
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
from affect_xp.clustering.lloyd import STARTS, Batch, Start, best_of, draw_mixed, iterated, spread_partitions
from affect_xp.clustering.n_clusters import candidates, select
from affect_xp.clustering.scan import Scan
from affect_xp.exceptions import ConvergenceWarning
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition, as_partition, fewer_clusters
from affect_xp.proximity import Dense, Factored, Grouped, Proximity, as_proximity

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
# A new start replaces the previous labels if its sum of squares is smaller by this share, and by more than
# rounding errors, a share of Σ|wᵢᵢ|.
FRESH_GAIN, ROUNDING = 0.01, 1e-12
SAMPLED = "a sample on which starts of k-means are compared"


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
    from its centroid, taken from a cluster with at least two objects; of objects that are equally far up to
    rounding, the first. Ties go to the cluster with the lowest number. On a device the host waits once for
    each Lloyd iteration.

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


def lloyd(
    start: Grouped | Batch,
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
    batch = start if isinstance(start, Batch) else Batch.start(start)
    runs = iterated(batch, [Start(complete) for _ in range(batch.groups.n_runs)], max_iter, tol)
    best = best_of(runs, margin)
    assert best.batch is not None
    groups = best.batch.groups_of(best.place)
    moved, n_iter = best.moved or best is not runs[0], max(run.n_iter for run in runs)
    return KMeansResult(
        groups.labels[:, 0], best.inertia, n_iter, best.converged, moved, best.is_fixed_point, groups
    )


def kmeans_from(start: Grouped, max_iter: int, tol: float, rng: Seed = None) -> KMeansResult:
    """Run k-means from the previous labels, or from a new start if that is clearly better.

    The previous labels may be a poor local optimum, which Lloyd's iteration never leaves. On a small
    sample they compete with three starts of k-means++. If one of these has a sum of squares that is smaller
    by 1 %, both run on all objects, and the new start wins if it is also better there by 1 %.
    """
    W, k, generator = start.proximity, start.k, np.random.default_rng(rng)
    batch, drawn = Batch.start(start), Drawn.of(W, _fresh_size(k), generator, start.labels)
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


def _better_on(sample: "Sample", r: int, k: int, rng: np.random.Generator) -> np.ndarray | None:
    """Return labels of a sample from a new start, if they are clearly better than its labels of run r."""
    assert sample.labels is not None
    starts = spread_partitions(sample.W, k, FRESH_STARTS, rng)
    fresh = lloyd(sample.W.grouped(starts, k), SAMPLE_ITER, ROUGH_TOL)
    before = sample.W.grouped(sample.labels[:, r : r + 1], k)
    inherited = lloyd(before, SAMPLE_ITER, ROUGH_TOL, complete=False)
    gain = inherited.inertia - fresh.inertia
    at_least = max(FRESH_GAIN * abs(inherited.inertia), ROUNDING * float(np.abs(sample.W.diagonal()).sum()))
    return fresh.labels if gain > at_least else None


def _better_starts(W: Proximity, scan: Scan, rng: Seed) -> dict[int, np.ndarray]:
    """Return labels from new starts for the numbers of clusters where they are better on a sample.

    Each number competes as in `kmeans_from`.
    """
    fresh: dict[int, np.ndarray] = {}
    for size in sorted({_fresh_size(k) for k in scan.numbers}):
        generator = np.random.default_rng(rng)
        sample = Sample.draw(W, size, generator, scan.labels)
        for r, k in enumerate(scan.numbers):
            if _fresh_size(k) == size:
                better = _better_on(sample, r, k, copy.deepcopy(generator))
                fresh |= {} if better is None else {k: sample.spread_on_host(better, W.n)}
    return fresh


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """A sample of objects, and the proximities among them on the host."""

    index: np.ndarray  # (m,), may contain duplicates
    W: Dense | Factored  # of m objects, NumPy
    labels: np.ndarray | None = None  # (m, ...), if labels of all objects were given

    @staticmethod
    def draw(W: Proximity, size: int, rng: np.random.Generator, labels: Array | None = None) -> "Sample":
        """Draw objects, half of them in proportion to wᵢᵢ; all objects if they are at most twice as many."""
        drawn = Drawn.of(W, size, rng, labels)
        return drawn.read(to_host(*drawn.arrays, reason=SAMPLED))

    def spread(self, labels: Array, n: int, like: Array) -> Array:
        """Return labels of the sample as labels of all n objects, -1 for those not sampled."""
        return from_host(self.spread_on_host(labels, n), like)

    def spread_on_host(self, labels: Array, n: int) -> np.ndarray:
        """Return the same as a NumPy array."""
        spread = np.full(n, -1, dtype=np.int64)
        spread[self.index] = labels
        return spread


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """A sample before it is read: its arrays may be on a device."""

    stored: list[Array]  # proximities among the objects, or their factors and weights
    index: Array | None  # (m,); None for all objects
    labels: Array | None

    @staticmethod
    def of(W: Proximity, size: int, rng: np.random.Generator, labels: Array | None = None) -> "Drawn":
        """Draw objects; see `Sample.draw`."""
        w_ii = W.diagonal()
        xp, index = array_namespace(w_ii), None
        if W.n > 2 * size:
            index = draw_mixed(xp.maximum(w_ii, xp.zeros_like(w_ii)), size, rng)
            labels = None if labels is None else xp.take(labels, index, axis=0)
        # The factors of a few objects are smaller than their proximities, and need no product.
        stored = [W.rows(index), W.weights] if isinstance(W, Factored) else [W.submatrix(index)]
        return Drawn(stored, index, labels)

    @property
    def arrays(self) -> list[Array]:
        """All arrays, to be read together."""
        return [x for x in (*self.stored, self.index, self.labels) if x is not None]

    def read(self, values: Sequence[np.ndarray]) -> Sample:
        """Return the sample, given the values of `arrays`."""
        (first, *weights), rest = values[: len(self.stored)], list(values[len(self.stored) :])
        few = Factored.from_features(first, *weights) if weights else Dense(first)
        place = np.arange(few.n) if self.index is None else rest.pop(0).astype(np.int64)
        return Sample(place, few, rest[0].astype(np.int64) if rest else None)


def check_n_init(n_init: object) -> None:
    """Raise unless `n_init` is "auto" or a positive integer."""
    if isinstance(n_init, str):
        check_choice("n_init, if not a number,", n_init, ("auto",))
    else:
        check_int("n_init", n_init, 1)


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
            memory=Scan.remembered(labels, ks),
            scores=chosen.scores,
            rough=call.rough,
        )

    def cluster_if(self, change: Change, proximity: Proximity, call: Call) -> Clustering | None:
        """Do the same, or return None if a change is small; the first iteration reads it too."""
        k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is None or call.start is None or not call.rough or self.n_init not in ("auto", 1):
            return self.cluster(proximity, call) if change.is_large() else None
        batch = Batch.start(call.start_groups(proximity, k)).assigned([change.now, change.before])
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

    def _run_each(self, proximity: Proximity, ks: range, call: Call) -> tuple[list[Array], int]:
        """Return labels for each number of clusters, and the iterations; on a device all run as one batch."""
        scan, competes = Scan.of(call, ks), self._competes(call) and not call.rough
        if scan is None or self.n_init not in ("auto", 1) or not is_on_device(proximity.like):
            starts = [call.start if scan is None else scan.start(r) for r in range(len(ks))]
            calls = [dataclasses.replace(call, start=start, groups=None) for start in starts]
            found = [self._run(proximity, k, each) for k, each in zip(ks, calls, strict=True)]
            return [result.labels for result in found], sum(result.n_iter for result in found)
        runs: dict[int, Start] = {}
        for some in scan.groups():
            tried = some.competing(_better_starts(proximity, some, call.rng)) if competes else some
            runs |= tried.best(proximity, self.max_iter, self._tol(call), FRESH_GAIN)
        best = [runs[k] for k in ks]
        self._warn_unless(all(run.converged or run.n_iter < self.max_iter for run in best))
        return [run.labels for run in best], max(run.n_iter for run in best)

    def _competes(self, call: Call) -> bool:
        """Return whether the previous labels compete with new starts."""
        automatic = self.n_init == "auto" and isinstance(self.init, str) and self.init == "k-means++"
        return automatic and not call.settled

    def _tol(self, call: Call) -> float:
        return max(self.tol, ROUGH_TOL) if call.rough else self.tol

    def _run(self, proximity: Proximity, k: int, call: Call, begun: Batch | None = None) -> KMeansResult:
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
