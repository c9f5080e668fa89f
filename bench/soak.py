"""Soak test over thousands of steps with changing objects: memory, time per step, rank and edges stay flat.

    python -m bench.soak                                       # 5,000 steps of each representation
    python -m bench.soak --representation dense --steps 500
    python -m bench.soak --history all                         # growth of an untruncated history

At each step 5 % of the objects are replaced by new ones, and every 25 steps a cluster disappears or returns.
After a warm-up (a tenth of the steps) these are measured a hundred times: the resident size of the process,
the bytes reachable from the model, CPU time per step, the live ids, the rank of `Factored` and the edges of
`Sparse`; during the last tenth, which is slower, also the allocations of Python and NumPy (tracemalloc). Each
must stay flat within the limits below; otherwise the exit code is 1. Time is relative to a fixed workload
timed at each measurement, so that other load on the machine affects both.

A history holds one record per step, with the labels and ids of its objects. It grows by design, and is
truncated after each step here, as in any long run: `model.history_ = model.history_[-10:]`.

Each representation runs in its own process. "capped" is `Factored` with `max_rank`. The rows "dense-options"
and "sparse-options" keep absent objects, rescale similarities, and forget by object.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

import affect_xp as ax
from affect_xp.tracking.events import DEFAULT_RULES

from ._measure import resident

GROUPS, FEATURES = 4, 2
CHURN = 0.05  # the share of objects that are replaced at each step
LONGEST = 25  # steps between deaths and returns of a cluster
RECORDS = 10  # number of records kept in the history
LOOKS = 100  # number of measurements after the warm-up
WARM_UP = 0.1  # share of the steps
TRACED = 0.1  # share of the steps, at the end
MAX_RANK = 16

# Maximum ratio of the median of the last third of the measurements to that of the first third.
LIMITS = {
    "resident": ("bytes", 8 * 2**20),
    "traced": ("bytes", 256 * 2**10),
    "held": ("share", 0.10),
    "effort": ("share", 0.25),
    "rank": ("share", 0.10),
    "links": ("share", 0.10),
}


class Name:
    """An id that supports weak references, so that live ids can be counted."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


def dense(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return dot products."""
    return x @ x.T


def factored(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> ax.Factored:
    """Return dot products, represented by the features."""
    return ax.Factored.from_features(x)


def capped(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> ax.Factored:
    """Return dot products whose blends are of bounded rank."""
    return ax.Factored.from_features(x, max_rank=MAX_RANK)


def chunked(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> object:
    """Return dot products as a dask array of two by two chunks."""
    import dask.array

    return dask.array.from_array(x @ x.T, chunks=-(-len(x) // 2))


def sparse(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Return counts of meetings: five per object, most of them within a group."""
    n = len(groups)
    order = np.argsort(groups, kind="stable")
    near = order[(np.argsort(order)[:, None] + rng.integers(1, n // GROUPS, size=(n, 5))) % n]
    met = np.where(rng.random((n, 5)) < 0.1, rng.integers(0, n, size=(n, 5)), near)
    w = scipy.sparse.coo_array((np.ones(5 * n), (np.repeat(np.arange(n), 5), met.ravel())), shape=(n, n))
    return (w + w.T).tocsr()


def graph(x: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return similarities between 0 and 1."""
    return np.exp(-np.square(x[:, None] - x[None]).sum(axis=2) / 8)


REPRESENTATIONS: dict[str, Callable[..., object]] = {
    "dense": dense,
    "factored": factored,
    "capped": capped,
    "sparse": sparse,
    "chunked": chunked,
    "dense-options": graph,
    "sparse-options": sparse,
}

# Of the rows that end in "-options". Absent objects are kept no longer than records.
OPTIONS = {"absent": "keep", "max_absence": 5, "rescale": "log1p", "forgetting": "objects"}


def steps(kind: str, n: int, n_steps: int) -> Iterator[tuple[object, list[Name]]]:
    """Yield the input and the ids of each step; keep no reference to the ids of objects that left."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(GROUPS, FEATURES))
    names, n_new = [Name(i) for i in range(n)], max(1, round(CHURN * n))
    for t in range(n_steps):
        groups = np.array([name.number for name in names]) % clusters_at(t)
        x = centres[groups] + rng.normal(size=(n, FEATURES))
        yield REPRESENTATIONS[kind](x, groups, rng), names
        names = names[n_new:] + [Name(n + t * n_new + i) for i in range(n_new)]


def clusters_at(t: int) -> int:
    """Return the number of clusters at a step: one of them comes and goes."""
    return GROUPS - t // LONGEST % 2


def bytes_held(root: object) -> int:
    """Return the bytes of all arrays and Python containers reachable from an object."""
    seen: set[int] = set()
    stack, total = [root], 0
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(value))
        total += sys.getsizeof(value)
        if isinstance(value, np.ndarray):  # not tracked by the garbage collector
            stack += [] if value.base is None else [value.base]
        else:
            stack += gc.get_referents(value)
    return total


def look(model: ax.Affect) -> dict[str, float]:
    """Return the measurements of the model."""
    smoothed = model._state.smoothed  # accessing smoothed_ would make the next step allocate new storage
    found = {"held": bytes_held(vars(model))}
    if isinstance(smoothed, ax.Factored):
        found["rank"] = smoothed.rank
    if isinstance(smoothed, ax.Sparse):
        found["links"] = smoothed.matrix.nnz
    return found


def yardstick() -> float:
    """Return the CPU time of a fixed workload: the minimum of five runs."""
    x = np.ones((150, 150))
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(20):
            sum(range(2000))
            x @ x
        seconds.append(time.process_time() - start)
    return min(seconds)


def forget_names_of_dask() -> None:
    """Clear a cache of dask, which grows up to the last 100,000 task names."""
    utils = sys.modules.get("dask.utils")
    if utils is not None:
        utils.key_split.cache_clear()


class Measurements:
    """The measurements over time, by quantity."""

    def __init__(self, n_traced: int) -> None:
        self.seen: dict[str, list[float]] = {}
        self._patience = n_traced // 4  # steps until everything held was allocated during tracing

    def take(self, t: int, model: ax.Affect, spent: list[float], n_ids: int) -> None:
        """Measure the model after step t; `spent` are the seconds of the steps since the last measurement."""
        forget_names_of_dask()
        gc.collect()
        found = {"step": t + 1, "resident": resident(), "ids": n_ids, **look(model)}
        if not tracemalloc.is_tracing():
            found["seconds"] = float(np.median(spent))
            found["effort"] = found["seconds"] / yardstick()
        elif self._patience > 0:
            self._patience -= len(spent)
        else:
            found["traced"] = tracemalloc.get_traced_memory()[0]
        for name, value in found.items():
            self.seen.setdefault(name, []).append(value)


def soak(
    kind: str, n: int, n_steps: int, n_looks: int, *, cut: bool = True, traced: float = TRACED
) -> dict[str, list[float]]:
    """Take the steps and return all measurements, by quantity."""
    counts, options = [clusters_at(t) for t in range(n_steps)], OPTIONS if kind.endswith("options") else {}
    model = ax.Affect(ax.KMeans(counts), random_state=0, **options)
    warm_up, n_traced = int(WARM_UP * n_steps), int(traced * n_steps)
    every, born = max(1, (n_steps - warm_up) // n_looks), weakref.WeakSet()
    looks, spent = Measurements(n_traced), []
    gc.freeze()  # exclude existing objects from garbage collection at each measurement
    for t, (observed, ids) in enumerate(steps(kind, n, n_steps)):
        born.update(ids)
        start = time.process_time()
        model.partial_fit(observed, ids)
        spent.append(time.process_time() - start)
        if cut:
            model.history_ = model.history_[-RECORDS:]
        if t >= warm_up and (t + 1 - warm_up) % every == 0:
            looks.take(t, model, spent, len(born))
            spent = []
        if n_traced and t + 1 == n_steps - n_traced:
            tracemalloc.start()
    tracemalloc.stop()
    gc.unfreeze()
    return looks.seen


def most_ids(n: int) -> int:
    """Return the maximum number of live ids: those present, in records, and in clusters that may return."""
    return n + max(1, round(CHURN * n)) * (max(RECORDS, DEFAULT_RULES.max_dormant + 1) + 1)


def ends(values: list[float]) -> tuple[float, float]:
    """Return the medians of the first and of the last third."""
    third = max(1, len(values) // 3)
    return float(np.median(values[:third])), float(np.median(values[-third:]))


def failures(looks: dict[str, list[float]], n: int) -> list[str]:
    """Return the quantities that are not flat."""
    found = []
    for name, (unit, limit) in LIMITS.items():
        if name in looks:
            first, last = ends(looks[name])
            if last - first > (limit if unit == "bytes" else limit * first):
                found.append(name)
    return found + (["ids"] if max(looks["ids"]) > most_ids(n) else [])


def row(kind: str, options: argparse.Namespace, looks: dict[str, list[float]]) -> str:
    """Return the table row of one representation."""

    def both(name: str, unit: float, digits: int) -> str:
        if name not in looks:
            return ""
        return " → ".join(f"{value / unit:.{digits}f}" for value in ends(looks[name]))

    cells = [
        kind,
        f"{options.steps}",
        f"{options.n}",
        both("resident", 2**20, 1),
        both("traced", 2**10, 0),
        both("held", 2**10, 0),
        both("seconds", 1e-3, 2),
        f"{max(looks['ids']):.0f} ≤ {most_ids(options.n)}",
        both("rank", 1, 0) or both("links", 1, 0),
        ", ".join(failures(looks, options.n)) or "flat",
    ]
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| representation | steps | objects | resident, MiB | traced, KiB | held by the model, KiB | ms per step "
    "| ids alive | rank or links | |\n|---|---|---|---|---|---|---|---|---|---|"
)


def in_a_process(kind: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Run one representation in a new process, and return its measurements."""
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder) / "looks.json"
        arguments = ["--steps", options.steps, "--n", options.n, "--history", options.history]
        command = [sys.executable, "-m", "bench.soak", "--representation", kind, "--looks-to", measured]
        subprocess.run([str(word) for word in command + arguments], check=True)
        return json.loads(measured.read_text())


def main() -> int:
    """Run the representations one after the other; return 1 if a quantity grows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--representation", choices=[*REPRESENTATIONS, "all"], default="all")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--n", type=int, default=200, help="objects")
    parser.add_argument("--history", choices=["cut", "all"], default="cut")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--looks-to", type=Path, help=argparse.SUPPRESS)  # for the child process
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("memory is read from /proc: this runs on Linux only")
    if options.looks_to is not None:
        looks = soak(options.representation, options.n, options.steps, LOOKS, cut=options.history == "cut")
        options.looks_to.write_text(json.dumps(looks))
        return 0
    seen = {}
    print(HEADER)
    for kind in REPRESENTATIONS if options.representation == "all" else [options.representation]:
        seen[kind] = in_a_process(kind, options)
        print(row(kind, options, seen[kind]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({"steps": options.steps, "n": options.n, "looks": seen}, indent=1))
    return int(any(failures(looks, options.n) for looks in seen.values()))


if __name__ == "__main__":
    sys.exit(main())
