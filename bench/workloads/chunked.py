"""Steps on dask arrays, relative to the same steps on NumPy arrays: threads, and two worker processes."""

import atexit
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import affect_xp as ax

from .._data import drifting
from .._measure import over
from .._report import Goal, Row
from .._suite import Case, Measured, Setting, Workload

THREADS, WORKERS, BYTES = Goal(must=1.5, aim=1.1), Goal(must=2, aim=1), Goal(must=0.5)
K, N_STEPS = 8, 3


def features(n: int) -> list[np.ndarray]:
    """Return features of float32, whose dot products are the similarities."""
    return [x.astype(np.float32) for x, _ in drifting(n, N_STEPS, K, spread=1.0)]


def fit() -> Callable[[Any], object]:
    return ax.Affect(ax.KMeans(K), random_state=0).partial_fit


def threads(setting: Setting) -> Case:
    """A dask array in memory, with dask's threads."""
    import dask.array

    n, chunk = setting.rows_at(full=(20_000, 4_000), quick=(4_000, 1_000), tiny=(60, 20))
    host = [x @ x.T for x in features(n)]
    lazy = [dask.array.from_array(w, chunks=chunk, name=False) for w in host]

    def rows(measured: Measured) -> Iterator[Row]:
        ratio = measured.seconds["dask"][1:].sum() / measured.seconds["NumPy"][1:].sum()
        what = f"later steps, dask array, threads, n = {n:,}, float32, k = {K}"
        yield Row(what, "the same steps on NumPy arrays", float(ratio), THREADS)

    return Case({"dask": over(lazy, fit)}, {"NumPy": over(host, fit)}, rows)


def workers(setting: Setting) -> Case:
    """A persisted dask array, with two worker processes of one thread each."""
    import dask.array
    import distributed

    n, chunk = setting.rows_at(full=(20_000, 5_000), quick=(4_000, 1_000), tiny=(60, 20))
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster, set_as_default=False)
    atexit.register(functools.partial(_close, client, cluster))
    given = features(n)
    host = [x @ x.T for x in given]
    with client.as_current():  # workers make W: it is never in the graph
        parts = (dask.array.from_array(x, chunks=(chunk, -1)) for x in given)
        lazy = [(x @ x.T).persist() for x in parts]
        distributed.wait(lazy)
    moved: list[float] = []

    def make() -> Callable[[Any], object]:
        moved[:] = [bytes_moved(client)]
        take_step = fit()

        def take(w: Any) -> None:
            with client.as_current():
                take_step(w)
            moved.append(bytes_moved(client))

        return take

    def rows(measured: Measured) -> Iterator[Row]:
        _close(client, cluster)
        ratio = measured.seconds["dask"][1:].sum() / measured.seconds["NumPy"][1:].sum()
        what = f"later steps, dask array, two workers, n = {n:,}, float32, k = {K}"
        yield Row(what, "the same steps on NumPy arrays", float(ratio), WORKERS)
        share = max(np.diff(moved)[1:]) / host[0].nbytes
        yield Row(f"{what}: bytes moved between workers", "bytes of W", share, BYTES)

    return Case({"dask": over(lazy, make)}, {"NumPy": over(host, fit)}, rows)


def bytes_moved(client: Any) -> float:
    """Return the bytes that workers have received from each other so far."""

    def received(dask_worker: Any) -> int:
        return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)

    return float(sum(client.run(received).values()))


def _close(client: Any, cluster: Any) -> None:
    client.close()
    cluster.close()


WORKLOADS = (
    Workload("dask-threads", threads, needs=("dask",), devices=("cpu",)),
    Workload("dask-workers", workers, needs=("dask", "distributed"), devices=("cpu",)),
)
