"""Lloyd's iteration on the host, for one start and proximities known by their columns, W = U diag(s) Uᵀ.

With T = UᵀZ and B = −2 s∘T/m, the squared distance of object i to the centroid of cluster c, less wᵢᵢ, is

    uᵢ·b_c + (ZᵀWZ)cc / m_c²

Of few objects calls are what takes time, so they are few here. Many are cut into blocks of rows, which
threads share, and only those are looked at whose nearest centroid may have changed. Let s ≥ 0, lengths be
those by the weights s, ρᵢ = ‖uᵢ − r‖ the distance to some point r, and centroids move from ū to ū′. By Cauchy
and Schwarz, the squared distance to c less that to a falls by no more than

    2ρᵢ (‖ū′_c − ū_c‖ + ‖ū′_a − ū_a‖) − (e_c − e_a),   e = ‖ū′ − r‖² − ‖ū − r‖²

so that an object stays in a while this, summed over iterations, has not used up the gap between its nearest
centroid and the next one.
"""

import dataclasses
import functools

import numpy as np

from affect_xp.array.namespace import row_blocks
from affect_xp.array.threads import run_blocks
from affect_xp.clustering._assignment import Assignment, Members, repaired
from affect_xp.proximity import Grouped, GroupedPair
from affect_xp.proximity._columns import Factors, combined, project
from affect_xp.proximity._factored_groups import FactoredGroups
from affect_xp.proximity.blend import BlendGroups

# A gap below this share of the largest wᵢᵢ may be rounding.
RELATIVE_MARGIN = 1e-10
# Where more than this share of a block is to be looked at, all of it is: it stands in order.
MAX_CHECKED_SHARE = 0.3


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """W = U diag(s) Uᵀ, in NumPy."""

    factors: Factors  # of U
    s: np.ndarray  # (q,)
    w_ii: np.ndarray  # (n,)

    @functools.cached_property
    def total(self) -> float:
        """Σ wᵢᵢ."""
        return float(self.w_ii.sum())


def columns_of(groups: Grouped) -> tuple[Columns, np.ndarray] | None:
    """Return W by its columns, and T, if that is how the groups are known, in NumPy, of the same objects."""
    if isinstance(groups, FactoredGroups):
        parts: list[Grouped] = [groups]
        weights: list[float | np.ndarray] = [1.0]
    elif isinstance(groups, BlendGroups) and groups.proximity.alignment.source is None:
        alpha = groups.proximity.alpha
        parts, weights = [groups.parts.past, groups.parts.current], [alpha, 1 - alpha]
    else:
        return None
    factors: Factors = ()
    s, t = [], []
    for part, weight in zip(parts, weights, strict=True):
        if not isinstance(part, FactoredGroups) or not isinstance(part.labels, np.ndarray):
            return None
        factors += part.proximity.joined
        s.append(weight * part.proximity.weights)
        t.append(part.t)
    return Columns(factors, np.concatenate(s), groups.diagonal()), np.concatenate(t)


def with_columns(groups: Grouped, labels: np.ndarray, t: np.ndarray) -> Grouped:
    """Return the same W with other labels, given T."""
    if isinstance(groups, FactoredGroups):
        return groups.relabelled(labels, t)
    assert isinstance(groups, BlendGroups)
    past, current = groups.parts.past, groups.parts.current
    assert isinstance(past, FactoredGroups)
    assert isinstance(current, FactoredGroups)
    q = past.t.shape[0]
    known = {"past": past.relabelled(labels, t[:q, :]), "current": current.relabelled(labels, t[q:, :])}
    parts = GroupedPair(groups.parts.pair, labels, groups.k, known=known)  # type: ignore[arg-type]
    return BlendGroups(groups.proximity, labels, groups.k, parts=parts)


class HostBatch:
    """One run of Lloyd's iteration: labels, and W·Z known through T = UᵀZ."""

    def __init__(
        self, columns: Columns, groups: Grouped, labels: np.ndarray, t: np.ndarray, sizes: np.ndarray
    ) -> None:
        self.columns, self.labels, self.t, self.sizes = columns, labels, t, sizes  # (n, 1), (q, k), (k,)
        self._groups = groups  # of W, by any labels
        self._gaps: _Gaps | None = None

    @staticmethod
    def start(groups: Grouped) -> "HostBatch | None":
        """Return the batch of a start, if it can be handled here."""
        known = columns_of(groups) if groups.n_runs == 1 else None
        if known is None:
            return None
        columns, t = known
        sizes = np.bincount(groups.labels[:, 0] + 1, minlength=groups.k + 1)[1:].astype(t.dtype)
        return HostBatch(columns, groups, groups.labels, t, sizes)

    def groups_of(self, run: int) -> Grouped:
        """Return W with the labels of the run."""
        return with_columns(self._groups, self.labels, self.t)

    def read_inertia(self) -> np.ndarray:
        """Return the sum of squares, (1,)."""
        return self._inertia(self.columns.s @ (self.t * self.t), np.maximum(self.sizes, 1.0))

    def _inertia(self, own: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return Σ wᵢᵢ − Σ_c (ZᵀWZ)cc / m_c, (1,)."""
        w_ii, total = self.columns.w_ii, self.columns.total
        if self.sizes.sum() < w_ii.shape[0]:
            total = float(w_ii @ (self.labels[:, 0] >= 0))
        return np.asarray([total - (own / m).sum()])

    def assign(self) -> Assignment:
        """Find the nearest centroid of each object."""
        s, t, k = self.columns.s, self.t, self.sizes.shape[0]
        own, m = s @ (t * t), np.maximum(self.sizes, 1.0)
        centre = np.where(self.sizes > 0, own / (m * m), np.inf)
        b = s[:, None] * t
        b *= -2 / m
        everywhere, blocks = slice(0, self.labels.shape[0]), list(row_blocks(self.labels, n_columns=k))
        if len(blocks) == 1:
            distance = combined(self.columns.factors, everywhere, b)
            distance += centre
            labels = distance.argmin(axis=1)
        else:
            labels = self._nearest_by_blocks(b, centre, blocks)
        sizes, n_reads = np.bincount(labels, minlength=k), 1
        if sizes.min() == 0:
            distance = combined(self.columns.factors, everywhere, b) + centre
            labels = repaired(labels[:, None], distance[:, None, :], self.columns.w_ii)[:, 0]
            sizes, n_reads, self._gaps = np.bincount(labels, minlength=k), 2, None
        n_moved = int(np.count_nonzero(labels != self.labels[:, 0]))
        return Assignment(
            labels[:, None],
            Members(sizes.astype(t.dtype)[None, :], None),
            np.asarray([n_moved]),
            n_moved,
            n_reads,
            self._inertia(own, m),
        )

    def _nearest_by_blocks(self, b: np.ndarray, centre: np.ndarray, blocks: list[slice]) -> np.ndarray:
        """Return the nearest centroid of each object; threads share the blocks."""
        columns, old = self.columns, self.labels[:, 0]
        labels, known = np.empty_like(old), self._gaps is not None
        gaps = self._gaps = self._followed_gaps()

        def fill(block: slice) -> None:
            which: slice | np.ndarray = block
            if known and gaps is not None:
                labels[block], which = old[block], gaps.doubtful(block, old[block])
            d = np.ascontiguousarray(combined(columns.factors, which, b).T)  # (k, rows)
            if gaps is not None and not known:
                gaps.measure(block, self.sizes @ d)
            labels[which], gap = _nearest_two(d, centre)
            if gaps is not None:
                gaps.gap[which] = gap

        with np.errstate(over="ignore", invalid="ignore"):  # what is no number is looked at
            run_blocks(fill, blocks)
        return labels

    def _followed_gaps(self) -> "_Gaps | None":
        """Return the gaps, brought to where the centroids are now, if there can be any."""
        if self.sizes.shape[0] == 1 or self.sizes.min() == 0 or self.columns.s.min() < 0:
            return None
        if self._gaps is None:
            return _Gaps(self.columns, self.t, self.sizes)
        self._gaps.follow(self.t / self.sizes)
        return self._gaps

    def move(self, assignment: Assignment, keep: list[int], *, anew: bool) -> "HostBatch":
        """Return the batch with the new labels; T is made anew or brought up to date."""
        k, factors = self.sizes.shape[0], self.columns.factors
        old, new = self.labels[:, 0], assignment.labels[:, 0]
        membership = np.eye(k + 1, k)  # by label; the last row is for -1
        if anew:
            t = project(factors, membership.take(new, axis=0))
        else:
            rows = np.flatnonzero(new != old)
            change = membership.take(new[rows], axis=0)
            change -= membership.take(old[rows], axis=0)
            t = self.t + project(factors, change, rows)
        batch = HostBatch(self.columns, self._groups, assignment.labels, t, assignment.members.sizes[0])
        batch._gaps = self._gaps
        return batch


def _nearest_two(d: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centroid of each object, and how much farther the next is; d (k, rows) is lost."""
    small = np.int8 if len(centre) < 2**7 else np.int64
    best, label = d[0], np.zeros(d.shape[1], dtype=small)
    best += centre[0]
    second = np.full_like(best, np.inf)
    for c in range(1, len(centre)):
        here = d[c]
        here += centre[c]
        np.maximum(label, (here < best) * small(c), out=label)
        np.minimum(second, np.maximum(here, best), out=second)
        np.minimum(best, here, out=best)
    second -= best
    return label, second


class _Gaps:
    """How much farther than its nearest centroid the next one is from each object, at least."""

    def __init__(self, columns: Columns, t: np.ndarray, sizes: np.ndarray) -> None:
        n = columns.w_ii.shape[0]
        self.gap, self.radius = np.empty(n), np.empty(n)  # the radius is ρ
        self._columns, self._n_members = columns, sizes.sum()
        self._point = t.sum(axis=1) / self._n_members  # r, (q,): the mean
        self._centroids = t / sizes  # ū, (q, k)
        self._sure = RELATIVE_MARGIN * np.abs(columns.w_ii).max()
        self._fall = self._slope = sizes  # of the gaps in each cluster: fall + slope·ρ, (k,)

    def measure(self, block: slice, sums: np.ndarray) -> None:
        """Find ρ² = wᵢᵢ − 2⟨uᵢ, r⟩ + ‖r‖², given −2⟨uᵢ, r⟩ times the number of objects."""
        r = self._point
        square = sums / self._n_members
        square += self._columns.w_ii[block]
        square += self._columns.s @ (r * r) + self._sure
        self.radius[block] = np.sqrt(np.maximum(square, self._sure))

    def follow(self, centroids: np.ndarray) -> None:
        """Find how far gaps fall when centroids move there."""
        s, before = self._columns.s, self._centroids
        step = centroids - before
        e = s @ (step * (centroids + before - 2 * self._point[:, None]))
        length = np.sqrt(s @ (step * step))
        self._centroids = centroids
        self._fall = e + _largest_of_others(-e)
        self._slope = 2 * (length + _largest_of_others(length))

    def doubtful(self, block: slice, labels: np.ndarray) -> slice | np.ndarray:
        """Return the objects of a block, labelled so before, whose nearest centroid may be another now."""
        gap = self.gap[block]
        gap -= self._fall.take(labels)
        gap -= self._slope.take(labels) * self.radius[block]
        rows = np.flatnonzero(~(gap > self._sure))
        return block if rows.shape[0] > MAX_CHECKED_SHARE * gap.shape[0] else rows + block.start


def _largest_of_others(x: np.ndarray) -> np.ndarray:
    """Return for each entry the largest of the others, (k,)."""
    first, second = np.argsort(-x, kind="stable")[:2]
    others = np.full_like(x, x[first])
    others[first] = x[second]
    return others
