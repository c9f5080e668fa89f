"""Initialisation of k-means: random partitions, greedy k-means++, and samples to compare starts."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    can_sum_rows,
    device_of,
    from_host,
    is_cupy,
    rank_keys,
    ratio,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.proximity import Dense, Factored, Proximity

# Distances, and their sums, that differ by less than this share are equal: rounding does not matter.
RELATIVE_TIE = 1e-9
SAMPLED = "a sample on which starts of k-means are compared"


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
    like, w_ii, n_trials = W.like, W.diagonal(), 2 + int(math.log(k))
    xp, wide = array_namespace(like), wide_dtype(like)
    draws = from_host(rng.random((k, n_init, n_trials)), like, dtype=wide)
    unit = xp.eye(n_init * n_trials, dtype=wide, device=device_of(like))
    weight = xp.ones((W.n, n_init), dtype=wide, device=device_of(like))
    order, nearest = _order(w_ii), xp.full_like(weight, xp.inf)  # squared distance to the nearest centre
    labels = xp.zeros((W.n, n_init), dtype=xp.int64, device=device_of(like))
    for c in range(k):
        tried = xp.reshape(_draw(weight, order, draws[c, :, :]), (-1,))  # (n_init · n_trials,)
        if isinstance(W, Dense) and can_sum_rows(W.array):  # rows are columns
            columns = np.take(W.array, tried, axis=0).astype(np.float64, copy=False).T
        else:
            columns = W.matmul(unit, rows=tried)
        add = cuda.add_centre if is_cupy(columns) else _add_centre
        nearest, labels = add(columns, w_ii, tried, nearest, labels, c, RELATIVE_TIE)
        weight = nearest
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
