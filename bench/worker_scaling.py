"""Strong scaling: the same steps on 1, 2 and 4 dask workers of one thread.

    python -m bench.worker_scaling                          # 20,000 objects, float32, chunks of 5,000
    python -m bench.worker_scaling --n 8000 --chunk 2000

W is made on the workers and kept in their memory; the model has its default parameters. For a mean step
after the first, the table has the seconds on the clock until the blend is done, the processor seconds of all
workers and of the client with the scheduler, the bytes moved between workers as a share of W, and the tasks
that ran. The first row is NumPy with one thread. Client and scheduler need a core too: with more workers than
free cores the clock says nothing, and processor seconds show what the work costs.
"""

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import dask.array
import distributed
import numpy as np

from ._suite import limited_threads
from .workloads.chunked import K, bytes_moved, features, fit


class TaskCounter(distributed.SchedulerPlugin):
    """Counts the tasks that ran, and notes when the last one ended."""

    n_tasks, ended = 0, 0.0

    def transition(self, key: object, start: str, finish: str, *args: object, **kwargs: object) -> None:
        """Count a task when its result arrives."""
        if (start, finish) == ("processing", "memory"):
            self.n_tasks, self.ended = self.n_tasks + 1, time.perf_counter()


def wait_until_idle(scheduler: distributed.Scheduler) -> None:
    """Wait until no task has run for a tenth of a second: a step does not wait for the blend."""
    n_idle = 0
    while n_idle < 10:
        time.sleep(0.01)
        n_idle = 0 if any(worker.processing for worker in scheduler.workers.values()) else n_idle + 1


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one or more steps cost; also what was spent so far, from any beginning."""

    seconds: float
    workers: float  # processor seconds
    client: float  # processor seconds, with the scheduler
    n_bytes: float
    n_tasks: int

    def since(self, before: Self, n_steps: int) -> "Cost":
        """Return the mean cost of a step."""
        now, then = dataclasses.astuple(self), dataclasses.astuple(before)
        return Cost(*((b - a) / n_steps for a, b in zip(then, now, strict=True)))


def mean_cost(steps: Sequence[Any], take: Callable[[Any], object], spent: Callable[[], Cost]) -> Cost:
    """Return the mean cost of the steps after the first."""
    take(steps[0])
    before = spent()
    for W in steps[1:]:
        take(W)
    return spent().since(before, len(steps) - 1)


def on_numpy(given: Sequence[np.ndarray]) -> Cost:
    """Return the cost of a step on NumPy arrays."""

    def spent() -> Cost:
        return Cost(time.perf_counter(), 0, time.process_time(), 0, 0)

    return mean_cost([x @ x.T for x in given], fit(), spent)


def on_workers(given: Sequence[np.ndarray], chunk: int, n_workers: int) -> Cost:
    """Return the cost of a step on workers of one thread."""
    counter = TaskCounter()
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, memory_limit=0, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.scheduler.add_plugin(counter)
        parts = (dask.array.from_array(x, chunks=(chunk, -1)) for x in given)
        steps = [(x @ x.T).persist() for x in parts]
        distributed.wait(steps)

        def spent() -> Cost:
            wait_until_idle(cluster.scheduler)
            workers = sum(client.run(time.process_time).values())
            return Cost(counter.ended, workers, time.process_time(), bytes_moved(client), counter.n_tasks)

        return mean_cost(steps, fit(), spent)


def shown(name: str, cost: Cost, n_bytes: float) -> str:
    """Return a row of the table."""
    moved = cost.n_bytes / n_bytes
    seconds = f"{cost.seconds:8.2f} {cost.workers:12.2f} {cost.client:12.2f}"
    return f"{name:12} {seconds} {moved:8.2f} {cost.n_tasks:8.0f}"


def main() -> None:
    """Measure each number of workers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=20_000, help="objects")
    parser.add_argument("--chunk", type=int, default=5_000, help="rows and columns of a chunk")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    given, n_bytes = features(options.n), 4 * options.n**2
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before the run")
    print(f"later steps, n = {options.n:,}, float32, k = {K}: seconds and tasks of one step")
    print(f"{'':12} {'clock':>8} {'workers CPU':>12} {'client CPU':>12} {'moved/W':>8} {'tasks':>8}")
    with limited_threads(1):
        print(shown("NumPy", on_numpy(given), n_bytes), flush=True)
    for n_workers in options.workers:
        cost = on_workers(given, options.chunk, n_workers)
        print(shown(f"{n_workers} workers", cost, n_bytes), flush=True)


if __name__ == "__main__":
    main()
