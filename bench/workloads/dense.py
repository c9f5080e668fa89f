"""Dense proximities: α relative to reading the matrices, AFFECT to static k-means, and growth with n."""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import affect_xp as ax

from .. import _scenario
from .._data import STOCKS, WINDOWS, drifting, stock_windows
from .._measure import Action, once, over
from .._report import Curve, Goal, Row
from .._suite import Case, Measured, Setting, Workload

CHECK = Goal(must=2)
SMOOTH = Goal(must=2.5, aim=2)
ALPHA_TIME = Goal(must=3, aim=2)
ALPHA_MEMORY = Goal(must=0.02)
WHOLE_STEP = {"default": Goal(must=12, aim=8), "1 iteration, init previous": Goal(must=8, aim=6)}
FIRST_STEP = Goal(must=1.5)
KERNEL = Goal(must=10, aim=50, at_least=True)
STEP = {3: Goal(must=1.5, aim=1), 1: Goal(must=1)}  # by the iterations of AFFECT
GROWTH = Goal(must=2.1)
STEP_MEMORY = Goal(must=2.1)

INITS = ("previous", "static", "auto")
K = 12


def check(setting: Setting) -> Case:
    """The check of a raw array, relative to reading it once."""
    n = setting.rows_at(full=8_000, quick=4_000, tiny=60)
    x, _ = next(drifting(n, 1, K))
    given = {name: setting.device.array((x @ x.T).astype(name)) for name in ("float64", "float32")}

    def rows(measured: Measured) -> Iterator[Row]:
        for name in given:
            ratio = measured.ratio(name, f"sum, {name}")
            yield Row(f"as_proximity(W), n = {n:,}, {name}", "reading W once", ratio, CHECK)

    return Case(
        ours={name: once(functools.partial(ax.as_proximity, w)) for name, w in given.items()},
        peers={f"sum, {name}": once(w.sum) for name, w in given.items()},
        rows=rows,
    )


def smooth(setting: Setting) -> Case:
    """Hindsight, relative to a causal run of the same steps."""
    n, n_steps = setting.rows_at(full=(2_000, 25), quick=(1_000, 16), tiny=(60, 4))
    steps = [setting.device.array(x @ x.T) for x, _ in drifting(n, n_steps, K, spread=1.0)]

    def rows(measured: Measured) -> Iterator[Row]:
        what = f"smooth, dense, n = {n:,}, {n_steps} steps"
        yield Row(what, "a causal run", measured.ratio("smooth", "causal"), SMOOTH)

    return Case(
        ours={"smooth": once(lambda: ax.smooth(steps, ax.KMeans(K), random_state=0))},
        peers={"causal": once(lambda: ax.Affect(ax.KMeans(K), random_state=0).fit(steps))},
        rows=rows,
    )


def alpha(setting: Setting) -> Case:
    """α of raw arrays W and Ψ̂, relative to reading both once."""
    n = setting.rows_at(full=8_000, quick=4_000, tiny=60)
    (x, labels), (y, _) = drifting(n, 2, K)
    past, w = setting.device.array(x @ x.T), setting.device.array(y @ y.T)
    labels = setting.device.array(labels)

    def rows(measured: Measured) -> Iterator[Row]:
        name = f"α, dense, n = {n:,}, k = {K}"
        read = "reading W and Ψ̂ once"
        yield Row(f"{name}: time", read, measured.ratio("α", "read"), ALPHA_TIME)
        yield Row(
            f"{name}: time without the check", read, measured.ratio("unchecked", "read"), note="ax.Dense"
        )
        extra = measured.peaks["α"].max() / w.nbytes
        yield Row(f"{name}: extra memory", "the size of W", extra, ALPHA_MEMORY)

    return Case(
        ours={
            "α": once(lambda: ax.forgetting_factor(w, past, labels)),
            # Wrap the matrices each time, so that nothing is cached.
            "unchecked": once(lambda: ax.forgetting_factor(ax.Dense(w), ax.Dense(past), labels)),
        },
        peers={"read": once(lambda: (w.sum(), past.sum()))},
        rows=rows,
        watched=["α"],
    )


def step(setting: Setting) -> Case:
    """AFFECT k-means on NASDAQ, relative to static k-means on the same matrices."""
    n = setting.rows_at(full=STOCKS, quick=STOCKS, tiny=60)
    windows, source = stock_windows(setting.data, n, setting.rows_at(full=WINDOWS, quick=4, tiny=3))
    matrices = [setting.device.array(x @ x.T) for x in windows]

    def fit(make: type, **options: object) -> Action:
        return over(matrices, lambda: make(ax.KMeans(K), random_state=0, **options).partial_fit)

    ours = {
        f"{n_iter} iteration{'s' * (n_iter > 1)}, init {init}": fit(ax.Affect, n_iter=n_iter, init=init)
        for n_iter in STEP
        for init in INITS
    }
    peers = {"static": fit(ax.Static), "static, fresh starts": fit(ax.Static, warm_start=False)}

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"static k-means, {len(matrices)} windows, n = {n:,}"
        for name in ours:
            ratio = measured.ratio(name, "static")
            yield Row(f"AFFECT k-means, {name}", against, ratio, STEP[int(name[0])], f"data: {source}")
        cold = measured.ratio("static, fresh starts", "static")
        yield Row("static k-means with fresh starts", against, cold)

    return Case(ours, peers, rows)


def whole_step(setting: Setting) -> Case:
    """A whole step on raw arrays, relative to reading W once."""
    n = setting.rows_at(full=6_000, quick=2_000, tiny=60)
    features = [x for x, _ in drifting(n, 3, K, spread=1.0)]
    dtypes = ("float64", "float32")
    matrices = {name: [setting.device.array((x @ x.T).astype(name)) for x in features] for name in dtypes}
    options = {"default": {}, "1 iteration, init previous": {"n_iter": 1, "init": "previous"}}

    def fit(given: list[Any], **options: Any) -> Action:
        return over(given, lambda: ax.Affect(ax.KMeans(K), random_state=0, **options).partial_fit)

    def rows(measured: Measured) -> Iterator[Row]:
        for dtype in dtypes:
            what, read = f"dense k-means, n = {n:,}, k = {K}, {dtype}", measured.last(f"sum, {dtype}")
            for name in options:
                ratio = measured.last(f"{name}, {dtype}") / read
                yield Row(f"{what}: a later step, {name}", "reading W once", ratio, WHOLE_STEP[name])
            first = float(measured.seconds[f"default, {dtype}"][0]) / measured.last(f"default, {dtype}")
            yield Row(f"{what}: the first step", "a later step", first, FIRST_STEP)

    return Case(
        ours={f"{name}, {d}": fit(matrices[d], **options[name]) for d in dtypes for name in options},
        peers={f"sum, {d}": once(matrices[d][0].sum) for d in dtypes},
        rows=rows,
    )


def _unit_gram(n: int, k: int) -> np.ndarray:
    """Return dot products of unit vectors around k centres: tslearn assumes that w_ii = 1.

    With fewer columns, or other lengths, it finds no 100 clusters.
    """
    x, _ = next(drifting(n, 1, k, 100, spread=1.0))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


def kernel(setting: Setting) -> Case:
    """k-means of a Gram matrix, relative to tslearn's KernelKMeans."""
    with warnings.catch_warnings():  # optional libraries that are not installed
        warnings.simplefilter("ignore")
        from tslearn.clustering import KernelKMeans

    n, counts = setting.rows_at(full=(5_000, (12, 100)), quick=(1_000, (12,)), tiny=(60, (3,)))
    matrices = {k: _unit_gram(n, k) for k in counts}
    given = {k: setting.device.array(w) for k, w in matrices.items()}

    def rows(measured: Measured) -> Iterator[Row]:
        for k in counts:
            ratio = measured.ratio(f"tslearn, {k}", f"ours, {k}")
            what = f"k-means of a Gram matrix, n = {n:,}, k = {k}: times faster"
            yield Row(what, "tslearn KernelKMeans, one start", ratio, KERNEL)

    def fit(k: int) -> None:
        with warnings.catch_warnings():  # it takes the rows for time series
            warnings.simplefilter("ignore")
            found = KernelKMeans(k, kernel="precomputed", random_state=0).fit(matrices[k])
        if found.labels_ is None or found.inertia_ is None:
            raise RuntimeError(f"tslearn found no {k} clusters: all its attempts ended with an empty one")

    return Case(
        ours={f"ours, {k}": once(functools.partial(ax.kmeans, given[k], k, rng=0)) for k in counts},
        peers={f"tslearn, {k}": once(functools.partial(fit, k)) for k in counts},
        rows=rows,
    )


def growth(setting: Setting) -> Case:
    """A dense step by the number of objects: time and memory."""
    sizes = setting.rows_at(
        full=(1_000, 2_000, 4_000, 8_000, 12_000), quick=(500, 1_000, 2_000, 3_000), tiny=(40, 80)
    )
    models: dict[int, ax.Affect] = {}

    def fit(n: int) -> Action:
        x, y = _scenario.features(n, 2, "float64")
        first, second = ax.Dense(setting.device.array(x @ x.T)), ax.Dense(setting.device.array(y @ y.T))

        def make() -> Callable[[ax.Dense], None]:
            take = _scenario.model()
            return lambda w: models.__setitem__(n, take(w))

        return over([first, second], make)

    ours = {f"n = {n}": fit(n) for n in sizes}

    def rows(measured: Measured) -> Iterator[Row]:
        lloyd = ", ".join(f"{models[n].history_[-1].n_iter} (n = {n:,})" for n in sizes)
        times = Curve("time", sizes, [measured.last(name) for name in ours])
        yield Row.growth("dense step, time", "n²", times, GROWTH, f"Lloyd iterations {lloyd}")
        # W belongs to the caller and Ψ̂ to the model; the step may allocate more.
        held = [2 * n * n * 8 + int(measured.peaks[name][-1]) for n, name in zip(sizes, ours, strict=True)]
        items = held[-1] / (sizes[-1] ** 2 * 8)
        yield Row(f"dense step, peak memory with W and Ψ̂, n = {sizes[-1]:,}", "n² items", items, STEP_MEMORY)
        most = [STEP_MEMORY.must * n * n * 8 for n in sizes]
        memory = Curve("memory", sizes, held, most)
        yield Row.growth("dense step with W and Ψ̂, memory", "n²", memory)

    return Case(ours, {}, rows, watched=list(ours))


WORKLOADS = (
    Workload("check", check),
    Workload("smooth", smooth),
    Workload("alpha", alpha),
    Workload("dense-step", step),
    Workload("dense-whole-step", whole_step),
    Workload("kernel-kmeans", kernel, needs=("tslearn",)),
    Workload("dense-growth", growth),
)
