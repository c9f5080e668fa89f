"""AFFECT on a graph of a million nodes: the time of α relative to one product W·Z, and the memory of a run.

    python -m bench.sparse_million                            # 1,000,000 nodes, 10,000,000 edges, 5 snapshots
    python -m bench.sparse_million --n 100000 --edges 1000000   # a tenth of the size
    python -m bench.sparse_million --kept 0.8 --churn 0.01    # most edges stay; 1 % of the nodes are replaced
    python -m bench.sparse_million --kept 0.8 --spectral      # spectral steps, and SciPy's eigensolvers

By default no edge persists to the next snapshot: the worst case for memory, because the smoothed proximities
then store the edges of all snapshots. α and the product are timed alternately, and the minimum counts. Memory
is the peak resident size during the steps, with all snapshots held by the caller, minus that before they were
created, relative to the bytes of these snapshots. Linux only.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh, lobpcg

import affect_xp as ax
from affect_xp.partition import Partition
from affect_xp.proximity.sparse import Sparse

from ._measure import forget_the_highest, memory, seconds_of
from .workloads.spectral import normalised

WITHIN = 0.7  # the share of edges within a community


def snapshots(options: argparse.Namespace) -> Iterator[scipy.sparse.csr_array]:
    """Yield graphs with communities (node id modulo k); some edges persist to the next snapshot.

    Snapshot t contains the nodes with ids from t·churn·n on, in order.
    """
    rng = np.random.default_rng(0)
    n, k = options.n, options.k
    a = b = np.empty(0, dtype=np.int32)  # ids of the two ends of each edge
    for t in range(options.steps):
        low = t * int(options.churn * n)
        stay = (rng.random(len(a)) < options.kept) & (a >= low) & (b >= low)
        i, j = rng.integers(low, low + n, (2, options.edges - int(stay.sum())), dtype=np.int32)
        mate = np.clip(j - j % k + i % k, low, low + n - 1)
        j = np.where(rng.random(len(i)) < WITHIN, mate, j)
        a, b = np.concatenate([a[stay], i]), np.concatenate([b[stay], j])
        weights = rng.gamma(2.0, 0.5, len(a)).astype(options.dtype)
        half = scipy.sparse.coo_array((weights, (a - low, b - low)), shape=(n, n)).tocsr()
        yield half + half.T


def n_bytes(matrix: scipy.sparse.csr_array) -> int:
    """Return the bytes of a matrix."""
    return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes


def compare_times(now: Sparse, past: Sparse, options: argparse.Namespace) -> None:
    """Print the time of α relative to one product W·Z."""
    labels = np.arange(options.n) % options.k
    z = Partition(labels, options.k).membership
    # Use a new partition each time: the cost of α includes its sizes and membership.
    alone = [
        (
            seconds_of(lambda: now.matmul(z)),
            seconds_of(lambda: ax.forgetting_factor(now, past, Partition(labels, options.k))),
        )
        for _ in range(options.repeats)
    ]
    product, alpha = np.min(alone, axis=0)
    print(f"W·Z {product:.2f} s, α {alpha:.2f} s: {alpha / product:.2f} products (at most 5)")


def compare_eigensolvers(options: argparse.Namespace) -> None:
    """Print the processor time of spectral steps, and of one eigenvalue problem on the blend of each.

    eigsh starts from a random vector, LOBPCG from the exact vectors of the previous step.
    """
    model, vectors = ax.Affect(ax.Spectral(options.k), random_state=0), None
    start = np.random.default_rng(0).normal(size=options.n)
    for t, matrix in enumerate(snapshots(options)):
        taken = processor_seconds(lambda w=matrix: model.partial_fit(w))[0]
        rand = ax.adjusted_rand_index(model.labels_, np.arange(options.n) % options.k)
        blend = normalised(model.smoothed_.matrix)
        cold, exact = processor_seconds(lambda w=blend: eigsh(w, options.k, which="LA", v0=start)[1])
        print(f"step {t}: {taken:.1f} s, ARI {rand:.5f}")
        print(f"step {t}: eigsh, cold: {cold:.1f} s = {cold / taken:.2f} ×", flush=True)
        if vectors is not None:
            warm = processor_seconds(lambda w=blend, x=vectors: lobpcg(w, x, tol=1e-3, maxiter=100))[0]
            print(f"step {t}: LOBPCG, warm, 1e-3: {warm:.1f} s = {warm / taken:.2f} ×", flush=True)
        vectors = exact


def processor_seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call, and its result."""
    start = time.process_time()
    found = function()
    return time.process_time() - start, found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1_000_000, help="nodes")
    parser.add_argument(
        "--edges", type=int, default=10_000_000, help="edges of a snapshot, each stored twice"
    )
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--k", type=int, default=12)
    parser.add_argument("--kept", type=float, default=0.0, help="share of edges kept in the next snapshot")
    parser.add_argument("--churn", type=float, default=0.0, help="share of nodes replaced at each step")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--n-iter", type=int, default=3, help="iterations of a step")
    parser.add_argument("--max-iter", type=int, default=5, help="maximum number of Lloyd iterations")
    parser.add_argument("--spectral", action="store_true", help="spectral steps, and SciPy's eigensolvers")
    options = parser.parse_args()
    if options.spectral:
        compare_eigensolvers(options)
        return

    before = memory("VmRSS")
    held = list(snapshots(options))
    size = sum(map(n_bytes, held))
    print(f"{options.steps} snapshots of {held[0].nnz:,} stored entries: {size / 1e9:.2f} GB")
    compare_times(Sparse(held[1]), Sparse(held[0]), options)

    clusterer = ax.KMeans(options.k, init=np.arange(options.n) % options.k, max_iter=options.max_iter)
    model = ax.Affect(clusterer, n_iter=options.n_iter)
    forget_the_highest()
    for t, matrix in enumerate(held):
        start = time.perf_counter()
        first = t * int(options.churn * options.n)
        model.partial_fit(ax.as_proximity(matrix), range(first, first + options.n))
        taken, highest = time.perf_counter() - start, memory("VmHWM") - before
        print(
            f"step {t}: {taken:5.1f} s, α = {model.alpha_:.3f}, "
            f"peak {highest / 1e9:.2f} GB = {highest / size:.2f} × snapshots held (at most 3)"
        )
    print(f"{model.smoothed_.matrix.nnz:,} entries in the smoothed proximities")


if __name__ == "__main__":
    main()
