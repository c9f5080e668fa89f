"""How long a step takes here and how much memory it needs, by the number of objects.

Steps of a few small sizes are measured. Beyond them time and memory grow as powers of the number of objects,
with fitted exponents.
"""

import dataclasses
import math
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from scipy.spatial.distance import cdist

from affect_xp.cli.libraries import Memory
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import Linkage
from affect_xp.clustering.spectral import Spectral
from affect_xp.models.affect import Affect

K = 10
N_FEATURES = 15
N_NEIGHBOURS = 20
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DOCTOR_SIZES = (1_000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True)
class Growth:
    """Measured values of a function of n: interpolated between them, and beyond them growing as a power."""

    sizes: tuple[int, ...]
    values: tuple[float, ...]
    # The exponent for large n by theory. Small sizes, which are mostly overhead, show less.
    least: float

    @property
    def exponent(self) -> float:
        """The exponent beyond the measured sizes: that of the last two of them, at least `least`."""
        slope = math.log(self.values[-1] / self.values[-2]) / math.log(self.sizes[-1] / self.sizes[-2])
        return max(slope, self.least)

    def __call__(self, n: float) -> float:
        """Return the value at n.

        Examples
        --------
        >>> growth = Growth((10, 100), (5.0, 500.0), least=1)
        >>> round(growth.exponent, 6), round(growth(20)), round(growth(1000))
        (2.0, 20, 50000)
        >>> round(Growth((10, 100), (5.0, 5.0), least=1)(1000))
        50
        """
        (before, last), (smaller, value), b = self.sizes[-2:], self.values[-2:], self.exponent
        if n > last:
            # c + a·nᵇ, with c the overhead; or without it, where times of small steps show no growth.
            a = (value - smaller) / (last**b - before**b) if value > smaller else value / last**b
            return value + a * (n**b - last**b)
        return float(np.exp(np.interp(np.log(n), np.log(self.sizes), np.log(self.values))))


@dataclasses.dataclass(frozen=True)
class Kind:
    """A representation and a clusterer: how steps are made and clustered, and the sizes that are measured."""

    title: str
    step: Callable[[int, int], Any]  # of n and the number of the step
    clusterer: Any
    sizes: tuple[int, ...]
    power: int  # of n, by which time and memory grow at least


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Time and memory of a step as functions of n."""

    title: str
    seconds: Growth
    n_bytes: Growth


def _features(n: int, t: int) -> np.ndarray:
    rng = np.random.default_rng(t)
    centres = np.random.default_rng(0).normal(scale=3.0, size=(K, N_FEATURES))
    return centres[np.arange(n) % K] + rng.normal(size=(n, N_FEATURES))


def _dense(n: int, t: int) -> np.ndarray:
    X = _features(n, t)
    return X @ X.T


def _positive(n: int, t: int) -> np.ndarray:
    W = _dense(n, t)
    W *= 1 / (4 * N_FEATURES)
    return np.exp(W, out=W)


def _distances(n: int, t: int) -> np.ndarray:
    X = _features(n, t)
    return cdist(X, X)


def _graph(n: int, t: int) -> scipy.sparse.csr_array:
    """Return a graph in which most edges are within communities."""
    rng, n_edges = np.random.default_rng(t), n * N_NEIGHBOURS // 2
    i, j = rng.integers(0, n, (2, n_edges))
    mate = np.minimum(j - j % K + i % K, n - 1)
    j = np.where(rng.random(n_edges) < 0.8, mate, j)
    half = scipy.sparse.coo_array((np.ones(n_edges), (i, j)), shape=(n, n)).tocsr()
    return (half + half.T).tocsr()


KINDS = (
    Kind("dense, k-means", _dense, KMeans(K), (1_000, 2_000, 4_000), 2),
    Kind("dense, spectral", _positive, Spectral(K), (1_000, 2_000, 4_000), 2),
    Kind("dense, linkage", _distances, Linkage(K, method="average"), (1_000, 2_000, 3_000), 2),
    Kind(f"{N_FEATURES} features, k-means", _features, KMeans(K), (1_000, 20_000, 60_000, 180_000), 1),
    Kind(
        f"graph of {N_NEIGHBOURS} neighbours, spectral",
        _graph,
        Spectral(K),
        (1_000, 20_000, 60_000, 180_000),
        1,
    ),
)
# The smallest and the largest size alone.
BRIEF = tuple(dataclasses.replace(kind, sizes=(kind.sizes[0], kind.sizes[-1])) for kind in KINDS)


def measured(kinds: Sequence[Kind] = KINDS, *, scale: float = 1.0, rounds: int = 3) -> list[Prediction]:
    """Measure steps of each kind, at sizes that may be scaled down, and return the fits."""
    smallest = 4 * K
    return [
        _measured(kind, [max(i * smallest, int(scale * n)) for i, n in enumerate(kind.sizes, 1)], rounds)
        for kind in kinds
    ]


def _measured(kind: Kind, sizes: list[int], rounds: int) -> Prediction:
    seconds = [min(_seconds(kind, n) for _ in range(rounds)) for n in sizes]
    peaks = [_peak(kind, n) for n in sizes]
    times, memory = (Growth(tuple(sizes), tuple(values), kind.power) for values in (seconds, peaks))
    return Prediction(kind.title, times, memory)


def _started(kind: Kind, n: int) -> Affect:
    """Return a model after its first step, which has no past."""
    proximity = "dot" if kind.step is _features else "precomputed"
    return Affect(kind.clusterer, proximity=proximity, random_state=0).partial_fit(kind.step(n, 0))


def _seconds(kind: Kind, n: int) -> float:
    """Return the time of a later step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, given = _started(kind, n), kind.step(n, 1)
        start = time.perf_counter()
        model.partial_fit(given)
    return time.perf_counter() - start


def _peak(kind: Kind, n: int) -> int:
    """Return the most bytes that arrays take during a later step, with W and Ψ̂."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, given = _started(kind, n), kind.step(n, 1)
            tracemalloc.reset_peak()
            model.partial_fit(given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def report(memory: Memory | None) -> str:
    """Measure, and return the table with an explanation."""
    return (
        f"Time and memory (with W and Ψ̂) of a step after the first: {K} clusters, float64, defaults.\n"
        "Fitted to small sizes measured here. Clusters that are hard to find take more iterations.\n\n"
        f"{table(measured(), memory)}"
    )


def table(found: Sequence[Prediction], memory: Memory | None, sizes: Sequence[int] = SIZES) -> str:
    """Return time and memory of a step by the number of objects, as a table in Markdown."""
    lines = [
        "| step | " + " | ".join(f"n = {n:,}" for n in sizes) + " | time grows as | memory as |",
        "|---|" + "--:|" * (len(sizes) + 2),
    ]
    for each in found:
        cells = [cell(each, n, memory) for n in sizes]
        growth = f"n^{each.seconds.exponent:.1f} | n^{each.n_bytes.exponent:.1f}"
        lines.append(f"| {each.title} | {' | '.join(cells)} | {growth} |")
    return "\n".join(lines)


def cell(found: Prediction, n: int, memory: Memory | None) -> str:
    """Return time and memory at size n in words; only the memory if this computer has less."""
    size = found.n_bytes(n)
    if memory is not None and size > memory.total:
        return f"needs {_bytes(size)}"
    return f"{_time(found.seconds(n))}, {_bytes(size)}"


def _time(seconds: float) -> str:
    """Return a time with two digits.

    Examples
    --------
    >>> _time(0.0123), _time(2.34), _time(600), _time(40_000)
    ('12 ms', '2.3 s', '10 min', '11 h')
    """
    for limit, unit, name in ((1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{_two_digits(seconds / unit)} {name}"
    return f"{_two_digits(seconds / 3600)} h"


def _bytes(size: float) -> str:
    return f"{_two_digits(size / 1e6)} MB" if size < 1e9 else f"{_two_digits(size / 1e9)} GB"


def _two_digits(x: float) -> str:
    digits = max(0, 1 - math.floor(math.log10(x))) if x > 0 else 0
    return f"{x:.{digits}f}" if digits else f"{round(x, 1 - math.floor(math.log10(x))):,.0f}"
