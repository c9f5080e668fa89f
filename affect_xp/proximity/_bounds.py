"""Bounds to skip objects that keep their nearest centroid, for W = U diag(s) Uᵀ in NumPy.

With T = UᵀZ and B = −2 s∘T/m, the squared distance of object i to the centroid of cluster c, minus wᵢᵢ, is

    uᵢ·b_c + (ZᵀWZ)cc / m_c²

Threads process blocks of rows, and check only objects whose nearest centroid may have changed. Let s ≥ 0, let
norms be weighted by s, let ρᵢ = ‖uᵢ − r‖ be the distance to a point r, and let centroids move from ū to ū′.
By the Cauchy-Schwarz inequality, the squared distance to c minus that to a decreases by at most

    2ρᵢ (‖ū′_c − ū_c‖ + ‖ū′_a − ū_a‖) − (e_c − e_a),   e = ‖ū′ − r‖² − ‖ū − r‖²

so that an object stays in a while the sum of this bound over iterations is below the gap between its nearest
and second nearest centroid.

Distances to many centroids are first computed in single precision. With U of q columns, the rounding of each
number and of each of the sums by ε = 2⁻²⁴ changes a distance by at most

    2 (q + 8) ε √wᵢᵢ max ‖ū_c‖ + 2ε max ‖ū_c‖²

(again by Cauchy-Schwarz), and a gap by at most twice that. Objects with smaller gaps are compared in double
precision, so that labels are those of double precision.
"""

import numpy as np

from affect_xp.array.threads import run_blocks
from affect_xp.proximity._columns import Factors, combined

# A gap below this share of the largest wᵢᵢ may be due to rounding.
RELATIVE_MARGIN = 1e-10
# From this number of clusters on distances are computed in single precision, if wᵢᵢ and weights s are in a
# range in which products neither overflow nor vanish. Fewer clusters are compared one by one.
MIN_NARROW_CLUSTERS, NARROW_RANGE, ROUNDOFF = 40, (2.0**-80, 2.0**80), 2.0**-24
# If more than this share of a block must be checked, check all of it: contiguous rows are faster.
MAX_CHECKED_SHARE = 0.3


class Bounds:
    """Lower bounds of the gap between the nearest and the second nearest centroid of each object."""

    def __init__(self, s: np.ndarray, w_ii: np.ndarray, t: np.ndarray, sizes: np.ndarray) -> None:
        n = w_ii.shape[0]
        self.gap, self.radius = np.empty(n), np.empty(n)  # the radius is ρ
        self._s, self._w_ii, self._sizes = s, w_ii, sizes
        self._point = t.sum(axis=1) / sizes.sum()  # r, (q,): the mean
        self._centroids = t / sizes  # ū, (q, k)
        self._margin = RELATIVE_MARGIN * np.abs(w_ii).max()
        self._fall = self._slope = sizes  # gaps in each cluster fall by fall + slope·ρ, (k,)
        self._is_new = True

    def follow(self, centroids: np.ndarray) -> None:
        """Bound how far gaps fall when the centroids move to new places."""
        s, before = self._s, self._centroids
        step = centroids - before
        e = s @ (step * (centroids + before - 2 * self._point[:, None]))
        length = np.sqrt(s @ (step * step))
        self._centroids, self._is_new = centroids, False
        self._fall = e + _largest_of_others(-e)
        self._slope = 2 * (length + _largest_of_others(length))

    def doubtful(self, block: slice, labels: np.ndarray) -> slice | np.ndarray:
        """Return the objects of a block whose nearest centroid may differ from their labels."""
        if self._is_new:
            return block
        gap = self.gap[block]
        gap -= self._fall.take(labels)
        gap -= self._slope.take(labels) * self.radius[block]
        rows = np.flatnonzero(~(gap > self._margin))
        return block if rows.shape[0] > MAX_CHECKED_SHARE * gap.shape[0] else rows + block.start

    def record(self, which: slice | np.ndarray, found: "Distances") -> np.ndarray:
        """Return the nearest centroid of some objects, and store their gaps."""
        d, error = found.products(which), found.error(which)
        if self._is_new:  # ρ² = wᵢᵢ − 2⟨uᵢ, r⟩ + ‖r‖²
            r, share = self._point, self._sizes / self._sizes.sum()
            square = (
                d @ share.astype(d.dtype) + self._w_ii[which] + (self._s @ (r * r) + self._margin) + error
            )
            self.radius[which] = np.sqrt(np.maximum(square, self._margin))
        labels, self.gap[which] = found.nearest_two(which, d, error)
        return labels


class Distances:
    """Squared distances of objects to centroids minus wᵢᵢ, uᵢ·b_c + ‖ū_c‖²."""

    def __init__(
        self, factors: Factors, b: np.ndarray, centre: np.ndarray, w_ii: np.ndarray, *, narrow: bool
    ) -> None:
        self._factors, self._b, self._centre, self._w_ii = factors, b, centre, w_ii  # b is (q, k)
        self._narrow_b = b.astype(np.float32) if narrow else None
        largest = centre.max()
        self._slope, self._least = 4 * (len(b) + 8) * ROUNDOFF * np.sqrt(largest), 4 * ROUNDOFF * largest

    def products(self, which: slice | np.ndarray) -> np.ndarray:
        """Return uᵢ·b_c of some objects, (rows, k), in single precision if there are many clusters."""
        return combined(self._factors, which, self._b if self._narrow_b is None else self._narrow_b)

    def error(self, which: slice | np.ndarray) -> np.ndarray | float:
        """Return a bound of the errors of gaps in single precision."""
        if self._narrow_b is None:
            return 0.0
        return self._slope * np.sqrt(np.abs(self._w_ii[which])) + self._least

    def nearest_two(
        self, which: slice | np.ndarray, d: np.ndarray, error: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest centroid and a lower bound of the gap to the next one; overwrites d."""
        labels, gap = _nearest_two(d, self._centre)
        if self._narrow_b is None:
            return labels, gap
        gap = gap - error
        unsure = np.flatnonzero(~(gap > 0))
        rows = unsure + which.start if isinstance(which, slice) else which[unsure]
        labels[unsure], gap[unsure] = _nearest_two(combined(self._factors, rows, self._b), self._centre)
        return labels, gap


def can_narrow(w_ii: np.ndarray, s: np.ndarray, k: int) -> bool:
    """Return whether distances to k centroids may be computed in single precision."""
    low, high = NARROW_RANGE
    return k >= MIN_NARROW_CLUSTERS and bool(low < w_ii.max() < high and low < s.min() and s.max() < high)


def nearest_by_blocks(
    old: np.ndarray, blocks: list[slice], distances: Distances, bounds: Bounds | None
) -> np.ndarray:
    """Return the nearest centroid of each object."""
    labels = np.empty_like(old)

    def fill(block: slice) -> None:
        if bounds is None:
            labels[block] = distances.nearest_two(block, distances.products(block), 0.0)[0]
            return
        labels[block], which = old[block], bounds.doubtful(block, old[block])
        labels[which] = bounds.record(which, distances)

    with np.errstate(over="ignore", invalid="ignore"):  # NaN gaps are always checked
        run_blocks(fill, blocks)
    return labels


def _nearest_two(d: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centroid of each object and the gap to the next one; overwrites d, (rows, k)."""
    if len(centre) < MIN_NARROW_CLUSTERS:
        return _nearest_two_of_few(np.ascontiguousarray(d.T), centre)
    d += centre.astype(d.dtype)
    labels, i = d.argmin(axis=1), np.arange(len(d))
    best = d[i, labels]
    d[i, labels] = np.inf
    return labels, d.min(axis=1).astype(np.float64) - best


def _nearest_two_of_few(d: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Do the same with a loop over clusters; d is (k, rows)."""
    best, label = d[0], np.zeros(d.shape[1], dtype=np.int8)
    best += centre[0]
    second = np.full_like(best, np.inf)
    for c in range(1, len(centre)):
        here = d[c]
        here += centre[c]
        np.maximum(label, (here < best) * np.int8(c), out=label)
        np.minimum(second, np.maximum(here, best), out=second)
        np.minimum(best, here, out=best)
    second -= best
    return label, second


def _largest_of_others(x: np.ndarray) -> np.ndarray:
    """Return for each entry the maximum of the others, (k,)."""
    first, second = np.argsort(-x, kind="stable")[:2]
    others = np.full_like(x, x[first])
    others[first] = x[second]
    return others
