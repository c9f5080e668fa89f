"""Run the benchmarks and print one table."""

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

import affect_xp as ax
from affect_xp.forgetting import estimate
from affect_xp.partition import Partition


def best_of(actions: list[Callable[[], object]], repeats: int) -> list[float]:
    """Return the shortest time of each action, taking turns."""
    times = np.full((repeats, len(actions)), np.inf)
    for r in range(repeats):
        for i, action in enumerate(actions):
            start = time.perf_counter()
            action()
            times[r, i] = time.perf_counter() - start
    return times.min(axis=0).tolist()


def peak_memory(action: Callable[[], object]) -> int:
    """Return the largest number of bytes held at once beyond those held before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def drifting(n: int, n_steps: int, k: int, seed: int = 0) -> list[np.ndarray]:
    """Return dot products of samples around centres that move a little."""
    rng = np.random.default_rng(seed)
    centres, labels = 3 * rng.normal(size=(k, 15)), rng.integers(0, k, n)
    steps = []
    for _ in range(n_steps):
        centres = centres + 0.1 * rng.normal(size=centres.shape)
        x = centres[labels] + rng.normal(size=(n, 15))
        steps.append(x @ x.T)
    return steps


def alpha(n: int, k: int = 12) -> list[tuple[str, str, float]]:
    """Compare the estimate of α with reading both matrices once."""
    w, past = drifting(n, 2, k)
    labels = Partition(np.arange(n) % k, k)

    def run() -> object:
        return estimate(ax.Dense(w), ax.Dense(past), labels, labels)

    ours, read = best_of([run, lambda: (w.sum(), past.sum())], repeats=5)
    name = f"α, dense, n = {n}, k = {k}"
    return [
        (f"{name}: time", "reading W and Ψ̂ once", ours / read),
        (f"{name}: extra memory", "the size of W", peak_memory(run) / w.nbytes),
    ]


def steps(n: int, k: int = 12) -> list[tuple[str, str, float]]:
    """Compare AFFECT k-means with static k-means on the same matrices."""
    matrices = [ax.Dense(w) for w in drifting(n, 6, k)]
    models = [
        ax.Static(ax.KMeans(k), random_state=0),
        ax.Affect(ax.KMeans(k), n_iter=1, random_state=0),
        ax.Affect(ax.KMeans(k), n_iter=3, random_state=0),
    ]
    times = best_of([lambda model=model: model.fit(matrices) for model in models], repeats=3)
    return [
        (f"AFFECT k-means, {i} iterations, n = {n}, k = {k}", "static k-means", t / times[0])
        for i, t in zip((1, 3), times[1:], strict=True)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    quick = parser.parse_args().quick
    with threadpool_limits(2):
        rows = [*alpha(2_000 if quick else 8_000), *steps(500 if quick else 2_000)]
    width = max(len(name) for name, _, _ in rows)
    for name, against, ratio in rows:
        print(f"{name:{width}}  {ratio:8.3f} × {against}")


if __name__ == "__main__":
    main()
