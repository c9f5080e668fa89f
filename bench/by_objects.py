"""The time of a step with `forgetting="objects"` relative to a default step.

    python -m bench.by_objects --threads 2

One hundredth of the objects changes its cluster at each step. Both models take the same steps in turn, in one
process. The first two steps are left out; of the others the ratio of medians is printed.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import affect_xp as ax

from ._data import communities
from ._suite import limited_threads

N_STEPS = 14
# n, k, dtype, and the standard deviation of a cluster in each of four dimensions; with 0.15 some overlap.
DENSE = [
    (1000, 12, "float64", 0.05),
    (2000, 3, "float64", 0.05),
    (2000, 12, "float64", 0.05),
    (4000, 3, "float64", 0.05),
    (4000, 12, "float64", 0.05),
    (4000, 30, "float64", 0.05),
    (4000, 12, "float64", 0.15),
    (2000, 12, "float32", 0.05),
    (4000, 12, "float32", 0.05),
    (4000, 12, "float32", 0.15),
]
SPECTRAL = [(500, 5, "float64", 0.05), (1000, 8, "float64", 0.05), (2000, 8, "float64", 0.05)]


def similarities(n: int, k: int, dtype: str, spread: float) -> Iterator[np.ndarray]:
    """Yield Gaussian similarities of objects in k clusters, of which a hundredth moves at each step."""
    rng = np.random.default_rng(0)
    centres, labels = rng.normal(size=(k, 4)) / 2, np.arange(n) % k
    for _ in range(N_STEPS):
        labels[rng.integers(0, n, n // 100)] = rng.integers(0, k, n // 100)
        x = centres[labels] + rng.normal(scale=spread, size=(n, 4))
        squares = (x * x).sum(axis=1)
        yield np.exp(-(squares[:, None] + squares - 2 * x @ x.T)).astype(dtype)


def seconds(model: ax.Affect, W: Any) -> float:
    """Return the time of one step."""
    start = time.perf_counter()
    model.partial_fit(W)
    return time.perf_counter() - start


def compare(name: str, clusterer: Callable[[], Any], steps: Iterator[Any]) -> None:
    """Print the medians of both kinds of steps, and their ratio."""
    kinds = ("global", "objects")
    models = [ax.Affect(clusterer(), forgetting=kind, random_state=0) for kind in kinds]
    times = []
    for t, W in enumerate(steps):
        both = [seconds(model, W) for model in models[:: 1 - 2 * (t % 2)]]
        times.append(both[:: 1 - 2 * (t % 2)])
    plain, by_objects = np.median(times[2:], axis=0)
    print(f"{name:50} {1e3 * plain:8.1f} {1e3 * by_objects:8.1f} {by_objects / plain:6.2f}", flush=True)


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    options = parser.parse_args()
    print(f"{'':50} {'default':>8} {'objects':>8}  ratio   (ms, {options.threads} threads)")
    with limited_threads(options.threads):
        for n, k, dtype, spread in DENSE:
            name = f"k-means, n = {n:,}, k = {k}, {dtype}, deviation {spread}"
            compare(name, lambda k=k: ax.KMeans(k), similarities(n, k, dtype, spread))
        for n, k, dtype, spread in SPECTRAL:
            name = f"spectral, n = {n:,}, k = {k}, {dtype}, deviation {spread}"
            compare(name, lambda k=k: ax.Spectral(k), similarities(n, k, dtype, spread))
        for title, make in (("k-means", ax.KMeans), ("spectral", ax.Spectral)):
            graphs = (W for W, _ in communities(50_000, 500_000, N_STEPS))
            compare(f"{title}, sparse, n = 50,000, 10⁶ entries, k = 12", lambda make=make: make(12), graphs)


if __name__ == "__main__":
    main()
