"""AFFECT on proximities larger than the memory of the workers: the time of a step and the memory it takes.

    python bench/chunked_cluster.py                         # 40,000 objects, float32: 6.4 GB a snapshot
    python bench/chunked_cluster.py --n 10000 --chunk 2000  # a sixteenth of that
    python bench/chunked_cluster.py --n 10000 --chunk 2000 --churn 0.01   # 1 % of the objects are replaced

Starts a local dask.distributed cluster of worker processes, each killed by its nanny if it needs more than
its share of memory. The proximities are dot products of features, made chunk by chunk when they are read,
for each pass anew. The smoothed ones are kept in a store on disk, or with `--keep memory` by the workers.
Memory is the highest resident size of each process since it started. Linux only.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator

import dask
import dask.array
import distributed
import numpy as np

import affect_xp as ax
from affect_xp.kernels import features_to_proximity
from affect_xp.proximity.chunked import Chunked

# dask makes workers return freed memory to the system at once; the blocks of a few megabytes in which a chunk
# is worked on are then fetched back page by page, which took longer than the sums themselves.
KEEP_FREED_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**27,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}


def snapshots(options: argparse.Namespace) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield features in slowly moving clusters (id modulo k), and the ids of the objects."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(options.k, options.p))
    left = round(options.churn * options.n)
    for t in range(options.steps):
        ids = np.arange(options.n) + t * left
        centres += 0.1 * rng.normal(size=centres.shape)
        noise = 2 * rng.normal(size=(options.n, options.p))
        yield (centres[ids % options.k] + noise).astype(np.float32), ids


def highest_memory() -> int:
    """Return the highest resident size of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def folder_size(path: str) -> int:
    """Return the bytes of all files in a folder."""
    return sum(
        os.path.getsize(os.path.join(place, file)) for place, _, files in os.walk(path) for file in files
    )


def run(options: argparse.Namespace, client: distributed.Client, store: str | None) -> None:
    """Take the steps and print what each of them cost."""
    workers = set(client.run(os.getpid).values())
    model = ax.Affect(ax.KMeans(options.k, init="k-means++"), n_iter=options.n_iter, random_state=0)
    for t, (x, ids) in enumerate(snapshots(options)):
        start = time.perf_counter()
        lazy = features_to_proximity(dask.array.from_array(x, chunks=(options.chunk, options.p)))
        model.partial_fit(Chunked(lazy.array, store=store), ids)
        took = time.perf_counter() - start
        truth = ax.adjusted_rand_index(model.labels_, ids % options.k)
        alphas = ", ".join(f"{alpha:.4f}" for alpha in model.alphas_)
        print(f"step {t}: {took:.1f} s, α {alphas}, adjusted Rand index {truth:.3f}", flush=True)
        highest = [f"{size / 1e9:.2f}" for size in client.run(highest_memory).values()]
        kept = "" if store is None else f", store {folder_size(store) / 1e9:.2f} GB"
        print(f"  workers {', '.join(highest)} GB, client {highest_memory() / 1e9:.2f} GB{kept}", flush=True)
    lost = len(workers - set(client.run(os.getpid).values()))
    print(f"workers lost on the way: {lost}")


def main() -> None:
    """Read the options, start the cluster, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=40_000, help="objects")
    parser.add_argument("--p", type=int, default=15, help="features")
    parser.add_argument("--k", type=int, default=12, help="clusters")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--n-iter", type=int, default=3, help="iterations of AFFECT a step")
    parser.add_argument("--churn", type=float, default=0.0, help="share of the objects replaced at each step")
    parser.add_argument("--chunk", type=int, default=4_000, help="rows and columns of a chunk")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="1.5GB", help="of each worker")
    parser.add_argument("--keep", choices=("store", "memory"), default="store")
    parser.add_argument(
        "--scratch", help="folder for the store and for what workers spill; by default a temporary one"
    )
    options = parser.parse_args()
    print(f"a snapshot: {4 * options.n**2 / 1e9:.2f} GB; workers: {options.workers} of {options.memory}")
    with (
        dask.config.set(KEEP_FREED_MEMORY),
        tempfile.TemporaryDirectory(dir=options.scratch) as scratch,
        distributed.LocalCluster(
            n_workers=options.workers,
            threads_per_worker=1,
            memory_limit=options.memory,
            dashboard_address=None,
            local_directory=scratch,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        run(options, client, os.path.join(scratch, "store") if options.keep == "store" else None)


if __name__ == "__main__":
    main()
