"""Starts of k-means, and Lloyd's iteration from a batch of them.

A start is a partition: random, or made of the objects nearest to distant random ones (k-means++). The
iteration needs W only through products W·Z; see `affect_xp.clustering.kmeans` for the distances.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    device_of,
    fill_rows,
    from_host,
    is_cupy,
    label_counts,
    not_zero,
    one_hot,
    places_of,
    rank_keys,
    ratio,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import own_threads, run_blocks
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.proximity import Dense, Grouped, Proximity

# Distances, and their sums, that differ by less than this share are equal: rounding does not matter.
SEEDING_TIE = 1e-9
# A thread of the host makes at most so many starts together, since products of many columns are faster; one
# thread makes all if there are fewer distances than this to each further centre.
STARTS_PER_THREAD, MIN_THREADED_ENTRIES = 5, 2**14
# Products are updated from the columns of moved objects if these are at most this share of all.
UPDATE_SHARE = 0.5
# Iterations without a smaller sum of squares after which an indefinite W is considered to cycle.
MAX_STALLED_ITERATIONS = 10
# Where a cluster is empty, distances are compared in multiples of the largest term of a distance divided by
# this number, for W of float64 and of float32, so that rounding does not select the object to move.
PARTS, PARTS_FLOAT32 = 2**30, 2**20


def random_partitions(W: Proximity, k: int, n_init: int, rng: np.random.Generator) -> Array:
    """Return labels of random partitions into parts of equal size, (n, n_init)."""
    balanced = np.tile(np.arange(W.n) % k, (n_init, 1))
    return from_host(rng.permuted(balanced, axis=1).T, W.like)


@np.errstate(over="ignore", invalid="ignore")  # k-means raises on overflow
def spread_partitions(W: Proximity, k: int, n_init: int, rng: np.random.Generator) -> Array:
    """Return labels of the nearest of k distant random objects (greedy k-means++), (n, n_init).

    For each further centre 2 + ⌊ln k⌋ objects are drawn with probabilities proportional to their squared
    distances to the nearest centre. The one with the smallest resulting sum of squares becomes a centre.
    Objects are drawn in the order of wᵢᵢ, so that the order of the rows matters only for ties (Arthur &
    Vassilvitskii, "k-means++: The Advantages of Careful Seeding", SODA 2007).
    """
    like, n_trials = W.like, 2 + int(math.log(k))
    draws = from_host(rng.random((k, n_init, n_trials)), like, dtype=wide_dtype(like))
    order = _order(W.diagonal())
    if not can_sum_rows(like):
        return _spread(W, order, draws)
    labels = np.empty((W.n, n_init), dtype=np.int64)

    def fill(some: slice) -> None:
        labels[:, some] = _spread_on_host(W, order, draws[:, some]).T

    is_little = W.n * n_init * n_trials < MIN_THREADED_ENTRIES
    step = n_init if is_little else min(STARTS_PER_THREAD, -(-n_init // 2))
    run_blocks(fill, [slice(r, r + step) for r in range(0, n_init, step)])
    return labels


def _spread(W: Proximity, order: Array, draws: Array) -> Array:
    """Return labels, (n, R), given the order of objects and random numbers, (k, R, n_trials)."""
    like, w_ii, (k, n_init, n_trials) = W.like, W.diagonal(), draws.shape
    xp, wide = array_namespace(like), wide_dtype(like)
    unit = xp.eye(n_init * n_trials, dtype=wide, device=device_of(like))
    weight = xp.ones((W.n, n_init), dtype=wide, device=device_of(like))
    nearest = xp.full_like(weight, xp.inf)  # squared distance to the nearest centre
    labels = xp.zeros((W.n, n_init), dtype=xp.int64, device=device_of(like))
    for c in range(k):
        tried = xp.reshape(_draw(weight, order, draws[c, :, :]), (-1,))  # (n_init · n_trials,)
        columns = W.matmul(unit, rows=tried)
        add = cuda.add_centre if is_cupy(columns) else _add_centre
        nearest, labels = add(columns, w_ii, tried, nearest, labels, c, SEEDING_TIE)
        weight = nearest
    return labels


def _spread_on_host(W: Proximity, order: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Do the same in NumPy, in place and with a row for each start: labels (R, n)."""
    w_ii, (k, n_init, n_trials) = W.diagonal(), draws.shape
    unit, runs = np.eye(n_init * n_trials), np.arange(n_init)
    weight, nearest = np.ones((n_init, W.n)), np.full((n_init, W.n), np.inf)
    labels = np.zeros((n_init, W.n), dtype=np.int64)
    for c in range(k):
        tried = _draw(weight.T, order, draws[c]).reshape(-1)
        if isinstance(W, Dense):  # rows are columns
            distance = np.take(W.array, tried, axis=0).astype(np.float64, copy=False)
        else:
            distance = W.matmul(unit, rows=tried).T.copy()
        # ‖xᵢ − xⱼ‖² = wᵢᵢ − 2 wᵢⱼ + wⱼⱼ
        distance *= -2
        distance += w_ii
        distance += w_ii[tried, None]
        np.fmax(distance, 0, out=distance)
        closest = distance.reshape(n_init, n_trials, -1)
        np.minimum(closest, nearest[:, None, :], out=closest)
        left = closest.sum(axis=2)
        best = np.argmax(left <= (1 + SEEDING_TIE) * left.min(axis=1, keepdims=True), axis=1)
        closest = closest[runs, best]
        labels[closest < (1 - SEEDING_TIE) * nearest] = c
        weight = nearest = closest
    return labels


def _add_centre(
    columns: Array, w_ii: Array, tried: Array, nearest: Array, labels: Array, c: int, tie: float
) -> tuple[Array, Array]:
    """Return nearest squared distances and labels, (n, R), with the best of the objects tried as centre c.

    `columns` are those of W for the objects tried, (n, R·m).
    """
    xp, (n, n_init) = array_namespace(w_ii), nearest.shape
    # ‖xᵢ − xⱼ‖² = wᵢᵢ − 2 wᵢⱼ + wⱼⱼ, with a row for each object tried: sums of long rows are fast.
    distance = -2 * columns.T
    distance += w_ii[None, :]
    distance += xp.take(w_ii, tried)[:, None]
    distance = xp.reshape(xp.where(distance > 0, distance, xp.zeros_like(distance)), (n_init, -1, n))
    closest = xp.minimum(distance, nearest.T[:, None, :])
    left = xp.sum(closest, axis=2)  # (n_init, n_trials)
    smallest = xp.min(left, axis=1, keepdims=True)
    best = xp.argmax(xp.astype(left <= (1 + tie) * smallest, xp.int8), axis=1)  # (n_init,)
    chosen = xp.broadcast_to(best[:, None, None], (n_init, 1, n))
    closest = xp.take_along_axis(closest, chosen, axis=1)[:, 0, :]
    labels = xp.where(closest < (1 - tie) * nearest.T, xp.full_like(labels.T, c), labels.T)
    return closest.T, labels.T


def _order(values: Array) -> Array:
    """Return the order of some values, (n,); values that differ only by rounding keep their order."""
    return array_namespace(values).argsort(rank_keys(values), stable=True)


def _draw(weight: Array, order: Array, draws: Array) -> Array:
    """Return rows drawn with the weights of each column (n, R), given numbers in [0, 1), (R, m).

    The number 0 gives the first row of `order`, 1 the last one.
    """
    if is_cupy(weight):
        return cuda.draw(weight, order, draws)
    xp = array_namespace(weight)
    ladders = xp.cumulative_sum(xp.take(weight, order, axis=0).T, axis=1)  # (R, n)
    place = xp.stack(
        [
            xp.searchsorted(ladders[r, :], draws[r, :] * ladders[r, -1], side="right")
            for r in range(weight.shape[1])
        ]
    )
    place = xp.minimum(place, xp.full_like(place, weight.shape[0] - 1))
    return xp.reshape(xp.take(order, xp.reshape(place, (-1,))), place.shape)


STARTS: dict[str, Callable[[Proximity, int, int, np.random.Generator], Array]] = {
    "k-means++": spread_partitions,
    "random": random_partitions,
}


def draw_mixed(weight: Array, size: int, rng: np.random.Generator) -> Array:
    """Draw objects with replacement, (size,): half uniformly and half in proportion to a weight, (n,).

    Uniform draws represent large clusters; weighted draws include small distant ones (Bachem, Lucic &
    Krause, "Scalable k-Means Clustering via Lightweight Coresets", KDD 2018).
    """
    xp, n = array_namespace(weight), weight.shape[0]
    share = ratio(weight, xp.sum(weight))
    draws = from_host(rng.random((1, size)), weight, dtype=weight.dtype)
    return _draw(share[:, None] + 1 / n, _order(weight), draws)[0, :]


@dataclasses.dataclass
class Start:
    """The progress of one start, on the host."""

    complete: bool = True  # whether it labels all objects
    batch: "Batch | None" = None  # holds the best labels so far
    place: int = 0  # the index of this run in that batch
    inertia: float = np.inf  # their sum of squares
    n_iter: int = 0
    stalled: int = 0  # iterations since the last decrease of the sum of squares
    is_fixed_point: bool = False  # no label changes
    converged: bool = False  # a fixed point, or the sum of squares hardly falls
    moved: bool = False

    def see(self, batch: "Batch", r: int, found: "Assignment", tol: float, *, is_first: bool) -> None:
        """Take note of an iteration."""
        self.n_iter += found.n_reads
        self.is_fixed_point = self.converged = bool(found.n_moved[r] == 0)
        self.moved = self.moved or not self.is_fixed_point
        if not is_first or self.is_fixed_point:
            self.record(batch, r, found.inertia[r], tol)
        elif self.complete:
            # Not a result, since clusters of the start may be empty, but a reference for `tol`.
            self.inertia = float(found.inertia[r])

    def record(self, batch: "Batch", r: int, inertia: float, tol: float) -> None:
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


@own_threads()
@np.errstate(over="ignore", invalid="ignore")  # overflow raises at the end
def iterated(batch: "Batch", runs: list[Start], max_iter: int, tol: float) -> list[Start]:
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


def best_of(runs: Sequence[Start], margin: float) -> Start:
    """Return the best run; among starts that are equal up to rounding the first one, on every library."""
    lowest = min(run.inertia for run in runs)
    if not math.isfinite(lowest):
        raise InputError(
            f"W is too large for k-means: the sum of squares is {lowest}; divide W, or the features it "
            "is made of, by a constant"
        )
    return next(run for run in runs if run.inertia <= lowest + margin * abs(lowest))


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
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
    after: "Batch | None" = None  # the batch with these labels, if it is known


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """R parallel runs of Lloyd's iteration."""

    groups: Grouped
    known_sizes: Array | None
    w_ii: Array  # (n,)
    bounds: Any = None  # of the last search for the nearest centroids
    numbers: np.ndarray | None = None  # of clusters of each run, (R,), if they are not all k
    known: Assignment | None = None  # the nearest centroids, if they are known
    inertia: np.ndarray | None = None  # the sum of squares of each run, (R,), if it is known

    @staticmethod
    def start(groups: Grouped, numbers: np.ndarray | None = None) -> "Batch":
        """Return the batch for the initial labels; runs may have fewer clusters than k."""
        kind = FewCalls if groups.is_few and numbers is None else Batch
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

    def assigned(self, also: Sequence[Array]) -> "Batch":
        """Return the batch with the nearest centroids, and the values of other arrays, read together."""
        return dataclasses.replace(self, known=self.assign(also))

    @property
    def also(self) -> tuple[np.ndarray, ...]:
        """The values that were read with the nearest centroids."""
        return () if self.known is None else self.known.also

    def assign(self, also: Sequence[Array] = ()) -> Assignment:
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
            return Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, bounds, also=tuple(read))
        return self._repair(labels, own, inertia, tuple(read))

    @property
    def _has_kernels(self) -> bool:
        groups = self.groups
        return is_cupy(groups.labels) and groups.n_runs * groups.k <= cuda.MAX_COUNTS

    def _repair(
        self, labels: Array, own: Array, inertia: np.ndarray, also: tuple[np.ndarray, ...] = ()
    ) -> Assignment:
        """Fill empty clusters."""
        like = self.groups.proximity.like
        parts = PARTS_FLOAT32 if like.dtype == array_namespace(like).float32 else PARTS
        if can_sum_rows(labels):
            distance = self._distances_of(labels, own)
            numbers = np.full(labels.shape[1], self.groups.k) if self.numbers is None else self.numbers
            labels = _repaired_on_host(labels, distance, self.w_ii, parts, numbers)
        else:
            distance = self.groups.distances(slice(0, labels.shape[0]), self.sizes, own)
            labels = _repaired(labels, distance, self.w_ii, parts, self.numbers)
        n_moved, n_rows = to_host(*self._moves(labels), reason="has k-means converged after a repair?")
        sizes = label_counts(labels, self.groups.k)
        return Assignment(labels, sizes, n_moved, int(n_rows), 2, inertia, also=also)

    def _distances_of(self, labels: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return the distances of objects to their new centroids minus wᵢᵢ, (n, R), in NumPy."""

        def rows_of(rows: slice) -> np.ndarray:
            distance = self.groups.distances(rows, self.sizes, own)
            return np.take_along_axis(distance, labels[rows, :, None], axis=2)[:, :, 0]

        blocks = row_blocks(labels, n_columns=self.sizes.size)
        return fill_rows(labels, blocks, rows_of, np.empty(labels.shape))

    def assign_last(self) -> Assignment:
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

    def _assign_by_kernels(self, also: Sequence[Array]) -> Assignment:
        """Do the same with CuPy in three kernel launches."""
        groups, n_runs = self.groups, self.groups.n_runs
        (labels, rows, sizes), report = self._by_kernels
        report, *read = to_host(report, *also, reason="has k-means converged?")
        n_moved, (n_rows, n_empty), inertia = np.split(report, [n_runs, n_runs + 2])
        if n_empty > self.n_absent:
            return self._repair(labels, groups.own(), inertia, tuple(read))
        rows = rows[: int(n_rows)]
        return Assignment(labels, sizes, n_moved, int(n_rows), 1, inertia, rows=rows, also=tuple(read))

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

    def move(self, found: Assignment, keep: list[int], *, from_scratch: bool) -> "Batch":
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


class FewCalls(Batch):
    """The same in NumPy, with few calls: these take longer than the sums if there are few objects."""

    def assign(self, also: Sequence[Array] = ()) -> Assignment:
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
        return Assignment(labels, sizes, n_moved, len(rows), 1, inertia, rows=rows)


def _repaired(
    labels: Array, distance: Array, w_ii: Array, parts: int, numbers: np.ndarray | None = None
) -> Array:
    """Give each empty cluster the object farthest from its centroid, given distances minus wᵢᵢ, (n, R, k).

    The nearest object of each cluster stays, so that filling one cluster does not empty another. Among
    objects at the same distance up to rounding (see `_rounded`) the first one stays, or is moved first. Runs
    may have fewer clusters than k.
    """
    xp = array_namespace(labels)
    n, _, k = distance.shape
    z = one_hot(labels, k, distance.dtype)
    far, zero = xp.full_like(distance, xp.inf), xp.zeros_like(distance)
    own = xp.min(xp.where(z > 0, distance, far), axis=2)  # (n, R)
    term = xp.maximum(xp.abs(own), xp.abs(w_ii)[:, None])
    own = own + w_ii[:, None]
    by_cluster = xp.where(z > 0, own[:, :, None], far), xp.where(z > 0, term[:, :, None], zero)
    nearest = xp.argmin(_rounded(*by_cluster, parts), axis=0)  # (R, k)
    occupied = xp.sum(z, axis=0) > 0
    empty = ~occupied
    if numbers is not None:
        empty = empty & from_host(np.arange(k) < numbers[:, None], labels)
    objects = xp.arange(n, dtype=nearest.dtype, device=device_of(labels))
    stays = xp.any((objects[:, None, None] == nearest[None, :, :]) & occupied[None, :, :], axis=2)
    own, term = (xp.where(stays, zero[:, :, 0], x) for x in (own, term))
    distant = xp.where(stays, -far[:, :, 0], _rounded(own, term, parts))
    order = xp.argsort(distant, axis=0, descending=True, stable=True)
    rank = xp.argsort(order, axis=0, stable=True)  # (n, R); 0 is the farthest
    n_empty = xp.sum(xp.astype(empty, rank.dtype), axis=1)
    gaps = xp.argsort(xp.astype(~empty, rank.dtype), axis=1, stable=True)  # the empty clusters first
    place = xp.where(rank < k, rank, xp.zeros_like(rank))
    filled = xp.take_along_axis(gaps, place.T, axis=1).T
    return xp.where(rank < n_empty[None, :], xp.astype(filled, labels.dtype), labels)


def _repaired_on_host(
    labels: np.ndarray, distance: np.ndarray, w_ii: np.ndarray, parts: int, numbers: np.ndarray
) -> np.ndarray:
    """Do the same in NumPy, given only distances to the own centroid minus wᵢᵢ, (n, R): no n×k array."""
    labels = labels.copy()
    for r, k in enumerate(numbers.tolist()):
        label, d = labels[:, r], distance[:, r] + w_ii
        empty = np.flatnonzero(np.bincount(label, minlength=k) == 0)
        term = np.maximum(np.abs(distance[:, r]), np.abs(w_ii))
        largest, least = np.zeros(k), np.full(k, np.inf)
        np.maximum.at(largest, label, np.where(np.isfinite(term), term, 0))
        in_parts = np.round(d / not_zero(largest)[label] * parts)
        np.minimum.at(least, label, in_parts)
        nearest = np.flatnonzero(in_parts == least[label])
        stays = nearest[np.unique(label[nearest], return_index=True)[1]]
        d[stays] = term[stays] = 0
        distant = _rounded(d, term, parts)
        distant[stays] = -np.inf
        label[np.argsort(-distant, kind="stable")[: len(empty)]] = empty
    return labels


def _rounded(distance: Array, term: Array, parts: int) -> Array:
    """Return distances, (n, ...), as whole multiples of a part of the largest finite term of each column.

    Terms wᵢᵢ and −2 (WZ)ᵢc / m_c + (ZᵀWZ)cc / m_c² are added to distances, so that these are exact only up to
    a small share of the terms.
    """
    xp = array_namespace(distance)
    largest = xp.max(xp.where(xp.isfinite(term), term, xp.zeros_like(term)), axis=0)
    return xp.round(distance / not_zero(largest) * parts)


def _in_any_run(moved: Array) -> Array:
    """Return a mask of the objects that moved in any run, (n,)."""
    return moved[:, 0] if moved.shape[1] == 1 else array_namespace(moved).any(moved, axis=1)
