"""AFFECT on proximities larger than the memory of the workers: time and memory of a step.

    python bench/chunked_cluster.py                         # 40,000 objects, float32: 6.4 GB per snapshot
    python bench/chunked_cluster.py --n 10000 --chunk 2000  # a sixteenth of that
    python bench/chunked_cluster.py --n 10000 --chunk 2000 --churn 0.01   # 1 % of the objects are replaced

This starts a local dask.distributed cluster of worker processes, each killed by its nanny if it exceeds its
share of memory. The proximities are dot products of features, computed chunk by chunk when they are first
read. They and the smoothed ones are kept in a store on disk; with `--keep memory` the workers keep the
smoothed ones, and the others are recomputed in each pass.

After each step two passes measure the current speed of the machine: one computes the chunks on and right of
the diagonal and sums their entries, the other sums the stored smoothed proximities. Passes that read all
these chunks are counted by operation; those that read only the rows of objects moved by k-means, or the
diagonal, are counted separately. Memory is the peak resident size of each process since its start. Linux
only.
"""

import argparse
import collections
import itertools
import logging
import os
import tempfile
import time
from collections.abc import Iterator

import dask
import dask.array
import distributed
import numpy as np

import affect_xp as ax
from affect_xp.proximity.chunked.chunked import PASS, Chunked
from affect_xp.proximity.kernels import features_to_proximity

# dask makes workers return freed memory to the system at once. The blocks of a few megabytes in which a chunk
# is processed are then allocated again page by page, which took longer than the sums themselves.
KEEP_FREED_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**27,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}

# Operations that do not read all chunks.
PARTIAL = {
    "product with some rows": "objects that moved",
    "squares of some rows": "their squares",
    "entries of some objects": "a sample",
    "diagonal": "the diagonal",
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


class PassCounter(logging.Handler):
    """Counts the passes over chunks by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a log record if it reports a pass."""
        if record.msg == PASS:
            self.counts[record.args[0]] += 1

    def summary(self) -> str:
        """Return the counts, and reset them."""
        some = [f"{self.counts.pop(name, 0)} for {label}" for name, label in PARTIAL.items()]
        whole = [f"{count} {name}" for name, count in sorted(self.counts.items())]
        total = self.counts.total()
        self.counts.clear()
        return f"{total} passes ({', '.join(whole)}); in part: {', '.join(some)}"


def time_of_sum(array: dask.array.Array) -> float:
    """Return the seconds to sum the entries on and right of the diagonal, chunk by chunk."""
    chunks = array.to_delayed()
    places = itertools.combinations_with_replacement(range(len(chunks)), 2)
    start = time.perf_counter()
    dask.compute(*[dask.delayed(np.sum)(chunks[place], dtype=np.float64) for place in places])
    return time.perf_counter() - start


def processor_time(client: distributed.Client) -> float:
    """Return the CPU time of client and workers, in seconds."""
    return time.process_time() + sum(client.run(time.process_time).values())


def highest_memory() -> int:
    """Return the peak resident size of this process, in bytes."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def folder_size(path: str) -> int:
    """Return the total size of all files in a folder, in bytes."""
    return sum(
        os.path.getsize(os.path.join(place, file)) for place, _, files in os.walk(path) for file in files
    )


def run(options: argparse.Namespace, client: distributed.Client, store: str | None) -> None:
    """Take the steps and print the cost of each."""
    workers = set(client.run(os.getpid).values())
    passes = PassCounter()
    logging.getLogger("affect_xp").addHandler(passes)
    logging.getLogger("affect_xp").setLevel(logging.DEBUG)
    clusterer = ax.KMeans(options.k, init="k-means++", tol=options.tol)
    model = ax.Affect(clusterer, n_iter=options.n_iter, init=options.init, random_state=0)
    for t, (x, ids) in enumerate(snapshots(options)):
        start, start_processors = time.perf_counter(), processor_time(client)
        lazy = features_to_proximity(dask.array.from_array(x, chunks=(options.chunk, options.p)))
        model.partial_fit(Chunked(lazy.array, store=store), ids)
        took, processors = time.perf_counter() - start, processor_time(client) - start_processors
        print(f"step {t}: {took:.1f} s ({processors:.0f} s of processors); {shown(model, ids % options.k)}")
        print(f"  {passes.summary()}")
        made, read = time_of_sum(lazy.array), time_of_sum(model.smoothed_.array)
        ratio = f"the step took {took / (made + read):.1f} times both"
        print(f"  limits: {made:.1f} s to make W and add it up, {read:.1f} s for what is kept; {ratio}")
        print(f"  {memory(client, store)}", flush=True)
    lost = len(workers - set(client.run(os.getpid).values()))
    print(f"workers lost on the way: {lost}")


def shown(model: ax.Affect, truth: np.ndarray) -> str:
    """Return α and the agreement of the clusters with the truth."""
    rand, adjusted = ax.rand_index(model.labels_, truth), ax.adjusted_rand_index(model.labels_, truth)
    alphas = ", ".join(f"{alpha:.4f}" for alpha in model.alphas_)
    return f"α {alphas}; Rand index {rand:.4f}, adjusted {adjusted:.4f}"


def memory(client: distributed.Client, store: str | None) -> str:
    """Return the memory of workers and client, and the size of the store."""
    highest = [f"{size / 1e9:.2f}" for size in client.run(highest_memory).values()]
    kept = "" if store is None else f", store {folder_size(store) / 1e9:.2f} GB"
    return f"workers {', '.join(highest)} GB, client {highest_memory() / 1e9:.2f} GB{kept}"


def main() -> None:
    """Parse the options, start the cluster, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=40_000, help="objects")
    parser.add_argument("--p", type=int, default=15, help="features")
    parser.add_argument("--k", type=int, default=12, help="clusters")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--init", default="previous", help="labels of the first α of a step")
    parser.add_argument("--tol", type=float, default=0.0, help="of k-means")
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
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, load {load:.1f} before the run; ", end="")
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
