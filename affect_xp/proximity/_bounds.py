"""Bounds to skip objects that keep their nearest centroid, for W = U diag(s) Uᵀ in NumPy.

With T = UᵀZ and B = −2 s∘T/m, the squared distance of object i to the centroid of cluster c, minus wᵢᵢ, is

    uᵢ·b_c + (ZᵀWZ)cc / m_c²

Threads process blocks of rows, and check only objects whose nearest centroid may have changed. Let s ≥ 0, let
norms be weighted by s, let ρᵢ = ‖uᵢ − r‖ be the distance to a point r, and let centroids move from ū to ū′.
By the Cauchy-Schwarz inequality, the squared distance to c minus that to a decreases by at most

    2ρᵢ (‖ū′_c − ū_c‖ + ‖ū′_a − ū_a‖) − (e_c − e_a),   e = ‖ū′ − r‖² − ‖ū − r‖²

so that an object stays in a while the sum of this bound over iterations is below the gap between its nearest
and second nearest centroid.
"""

from collections.abc import Callable

import numpy as np

from affect_xp.array.threads import run_blocks

# A gap below this share of the largest wᵢᵢ may be due to rounding.
RELATIVE_MARGIN = 1e-10
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

    def record(self, which: slice | np.ndarray, d: np.ndarray, centre: np.ndarray) -> np.ndarray:
        """Return the nearest centroid of some objects and store their gaps, given uᵢ·b_c, (k, rows)."""
        if self._is_new:  # ρ² = wᵢᵢ − 2⟨uᵢ, r⟩ + ‖r‖²
            r = self._point
            square = (
                self._sizes @ d / self._sizes.sum() + self._w_ii[which] + (self._s @ (r * r) + self._margin)
            )
            self.radius[which] = np.sqrt(np.maximum(square, self._margin))
        labels, self.gap[which] = _nearest_two(d, centre)
        return labels


def nearest_by_blocks(
    old: np.ndarray,
    blocks: list[slice],
    distances: Callable[[slice | np.ndarray], np.ndarray],
    centre: np.ndarray,
    bounds: Bounds | None,
) -> np.ndarray:
    """Return the nearest centroid of each object; `distances` gives uᵢ·b_c of some objects, (rows, k)."""
    labels = np.empty_like(old)

    def fill(block: slice) -> None:
        which: slice | np.ndarray = block
        if bounds is not None:
            labels[block], which = old[block], bounds.doubtful(block, old[block])
        d = np.ascontiguousarray(distances(which).T)  # (k, rows)
        labels[which] = _nearest_two(d, centre)[0] if bounds is None else bounds.record(which, d, centre)

    with np.errstate(over="ignore", invalid="ignore"):  # NaN gaps are always checked
        run_blocks(fill, blocks)
    return labels


def _nearest_two(d: np.ndarray, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest centroid of each object and the gap to the next one; overwrites d, (k, rows)."""
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


def _largest_of_others(x: np.ndarray) -> np.ndarray:
    """Return for each entry the maximum of the others, (k,)."""
    first, second = np.argsort(-x, kind="stable")[:2]
    others = np.full_like(x, x[first])
    others[first] = x[second]
    return others
