"""Factored proximities compared with scikit-learn's KMeans on the same features, and growth with n.

Both have their default parameters, except one start of scikit-learn.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import affect_xp as ax

from .. import _scenario
from .._data import STOCKS, WINDOWS, drifting, stock_windows
from .._measure import Action, over
from .._report import Curve, Goal, Row
from .._suite import Case, Measured, Setting, Workload

NASDAQ = Goal(must=2, aim=1)
MILLION = Goal(must=2, aim=1.2)
WIDE = Goal(must=2, aim=1)
GROWTH = Goal(must=1.1)

K = 12
ALL_OBJECTS = "faiss on all objects"  # by default on a sample


def affect(features: Sequence[object], k: int = K, **options: Any) -> Action:
    """Return AFFECT k-means on features, one piece per step."""
    return over(
        features, lambda: ax.Affect(ax.KMeans(k), proximity="dot", random_state=0, **options).partial_fit
    )


def faiss_loop(features: Sequence[np.ndarray], k: int, **options: int) -> Action:
    """Return faiss' Kmeans, one piece per step: float32, and a sample of 256 objects per cluster."""
    import faiss

    def fit(x: np.ndarray) -> object:
        found = faiss.Kmeans(x.shape[1], k, seed=0, **options)
        found.train(x.astype(np.float32))
        return found.assign(x.astype(np.float32))

    return over(features, lambda: fit)


def intelex_loop(features: Sequence[np.ndarray], k: int) -> Action:
    """Return KMeans of the extension for scikit-learn with one start, one piece per step."""
    from sklearnex.cluster import KMeans

    return over(features, lambda: KMeans(k, n_init=1, random_state=0).fit)


def sklearn_loop(features: Sequence[np.ndarray], k: int = K) -> Action:
    """Return scikit-learn's KMeans with one start, one piece per step."""
    from sklearn.cluster import KMeans

    return over(features, lambda: KMeans(k, n_init=1, random_state=0).fit)


def nasdaq(setting: Setting) -> Case:
    """AFFECT on the features of NASDAQ, relative to a loop of scikit-learn."""
    n = setting.rows_at(full=STOCKS, quick=STOCKS, tiny=60)
    host, source = stock_windows(setting.data, n, setting.rows_at(full=WINDOWS, quick=6, tiny=3))
    features = [setting.device.array(x) for x in host]
    ours = {"default": affect(features), "init previous": affect(features, init="previous")}

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scikit-learn KMeans, one start, {len(host)} windows"
        for name in ours:
            goal = NASDAQ if name == "default" else None
            what = f"factored AFFECT, {name}, n = {n:,}"
            yield Row(what, against, measured.ratio(name, "loop"), goal, f"data: {source}")

    return Case(ours, {"loop": sklearn_loop(host)}, rows)


def million(setting: Setting) -> Case:
    """AFFECT on a million objects, relative to a loop of scikit-learn."""
    n = setting.rows_at(full=1_000_000, quick=100_000, tiny=200)
    host = [x for x, _ in drifting(n, setting.rows_at(full=4, quick=4, tiny=2), K, spread=2.0, drift=0.2)]
    features = [setting.device.array(x) for x in host]

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scikit-learn KMeans, one start, {len(host)} steps"
        what = f"factored AFFECT, n = {n:,} × {host[0].shape[1]}"
        yield Row(what, against, measured.ratio("AFFECT", "loop"), MILLION)
        worst = (measured.seconds["AFFECT"] / measured.seconds["loop"]).max()
        yield Row(f"{what}, worst step", against, float(worst))

    return Case({"AFFECT": affect(features)}, {"loop": sklearn_loop(host)}, rows)


def wide(setting: Setting) -> Case:
    """AFFECT on many columns and clusters, relative to loops of k-means of other libraries."""
    n, p, k = setting.rows_at(full=(100_000, 256, 100), quick=(20_000, 64, 30), tiny=(200, 20, 4))
    host = [x for x, _ in drifting(n, 2, k, p, spread=0.5, drift=0.05)]
    features = [setting.device.array(x) for x in host]
    peers = {"scikit-learn": sklearn_loop(host, k)}
    if importlib.util.find_spec("faiss"):
        peers["faiss"] = faiss_loop(host, k)
        peers[ALL_OBJECTS] = faiss_loop(host, k, max_points_per_centroid=n)
    if importlib.util.find_spec("sklearnex"):
        peers["intelex"] = intelex_loop(host, k)

    def rows(measured: Measured) -> Iterator[Row]:
        what = f"factored AFFECT, n = {n:,} × {p}, k = {k}"
        fastest = max(peers, key=lambda name: measured.ratio("AFFECT", name))
        for name in peers:
            goal = WIDE if name in (fastest, ALL_OBJECTS) else None
            against = f"k-means of {name}, one start, {len(host)} steps"
            yield Row(what, against, measured.ratio("AFFECT", name), goal)

    return Case({"AFFECT": affect(features, k)}, peers, rows)


def growth(setting: Setting) -> Case:
    """A factored step by the number of objects."""
    sizes = setting.rows_at(
        full=(10_000, 30_000, 100_000, 300_000, 1_000_000), quick=(10_000, 30_000, 100_000), tiny=(100, 200)
    )

    def fit(n: int) -> Action:
        features = [setting.device.array(x) for x in _scenario.features(n, dtype="float64")]
        return over(features, lambda: _scenario.model(proximity="dot"))

    ours = {f"n = {n}": fit(n) for n in sizes}

    def rows(measured: Measured) -> Iterator[Row]:
        times = Curve("time", sizes, [measured.last(name) for name in ours])
        yield Row.growth("factored step, time", "n", times, GROWTH)
        peaks = Curve("memory", sizes, [int(measured.peaks[name].max()) for name in ours])
        yield Row.growth("factored step besides its features, memory", "n", peaks)

    return Case(ours, {}, rows, watched=list(ours))


def _with_sklearn(name: str, prepare: Callable[[Setting], Case]) -> Workload:
    return Workload(name, prepare, needs=("sklearn",))


WORKLOADS = (
    _with_sklearn("factored-step", nasdaq),
    _with_sklearn("factored-million", million),
    _with_sklearn("factored-wide", wide),
    Workload("factored-growth", growth),
)
