"""Factored proximities compared with scikit-learn's KMeans on the same features, and growth with n.

Both use a tolerance of 1e-4: scikit-learn for the shift of the centroids, ours for the decrease of the sum of
squares.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import affect_xp as ax

from .. import _scenario
from .._data import STOCKS, WINDOWS, drifting, stock_windows
from .._measure import Action, over
from .._report import Curve, Goal, Row
from .._suite import Case, Measured, Setting, Workload

NASDAQ = Goal(must=3, aim=1)
MILLION = Goal(must=3, aim=1.5)
GROWTH = Goal(must=1.1)

K, TOL = 12, 1e-4


def affect(features: Sequence[object], **options: Any) -> Action:
    """Return AFFECT k-means on features, one piece per step."""
    clusterer = ax.KMeans(K, init="k-means++", tol=TOL)
    return over(
        features, lambda: ax.Affect(clusterer, proximity="dot", random_state=0, **options).partial_fit
    )


def sklearn_loop(features: Sequence[np.ndarray]) -> Action:
    """Return scikit-learn's KMeans with one start, one piece per step."""
    from sklearn.cluster import KMeans

    return over(features, lambda: KMeans(K, n_init=1, tol=TOL, random_state=0).fit)


def nasdaq(setting: Setting) -> Case:
    """AFFECT on the features of NASDAQ, relative to a loop of scikit-learn."""
    n = setting.rows_at(full=STOCKS, quick=STOCKS, tiny=60)
    host, source = stock_windows(setting.data, n, setting.rows_at(full=WINDOWS, quick=6, tiny=3))
    features = [setting.device.array(x) for x in host]
    ours = {f"init {init}": affect(features, init=init) for init in ("previous", "static", "auto")}

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scikit-learn KMeans, one start, {len(host)} windows"
        for name in ours:
            what = f"factored AFFECT, 3 iterations, {name}, n = {n:,}"
            yield Row(what, against, measured.ratio(name, "loop"), NASDAQ, f"data: {source}")

    return Case(ours, {"loop": sklearn_loop(host)}, rows)


def million(setting: Setting) -> Case:
    """AFFECT on a million objects, relative to a loop of scikit-learn."""
    n = setting.rows_at(full=1_000_000, quick=100_000, tiny=200)
    host = [x for x, _ in drifting(n, setting.rows_at(full=6, quick=4, tiny=2), K, spread=2.0, drift=0.2)]
    features = [setting.device.array(x) for x in host]

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scikit-learn KMeans, one start, {len(host)} steps"
        what = f"factored AFFECT, 3 iterations, n = {n:,} × {host[0].shape[1]}"
        yield Row(what, against, measured.ratio("AFFECT", "loop"), MILLION)
        worst = (measured.seconds["AFFECT"] / measured.seconds["loop"]).max()
        yield Row(f"{what}, worst step", against, float(worst))

    return Case({"AFFECT": affect(features)}, {"loop": sklearn_loop(host)}, rows)


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
    Workload("factored-growth", growth),
)
