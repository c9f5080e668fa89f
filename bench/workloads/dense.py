"""Dense proximities: α against reading the matrices, AFFECT against static k-means, and growth with n."""

from collections.abc import Callable, Iterator

import affect_xp as ax

from .. import _scenario
from .._data import STOCKS, WINDOWS, drifting, stock_windows
from .._measure import Action, once, over
from .._report import Curve, Goal, Row
from .._suite import Case, Measured, Setting, Workload

ALPHA_TIME = Goal(must=3, aim=2)
ALPHA_MEMORY = Goal(must=0.02)
STEP = {3: Goal(must=1.5, aim=1), 1: Goal(must=1)}  # by the iterations of AFFECT
GROWTH = Goal(must=2.1)
STEP_MEMORY = Goal(must=2.1)

INITS = ("previous", "static", "auto")
K = 12


def alpha(setting: Setting) -> Case:
    """α of W and Ψ̂, against reading both once."""
    n = setting.rows_at(full=8_000, quick=4_000, tiny=60)
    (x, labels), (y, _) = drifting(n, 2, K)
    past, w = setting.device.array(x @ x.T), setting.device.array(y @ y.T)
    labels = setting.device.array(labels)

    def rows(measured: Measured) -> Iterator[Row]:
        name = f"α, dense, n = {n:,}, k = {K}"
        read = "reading W and Ψ̂ once"
        yield Row(f"{name}: time", read, measured.ratio("α", "read"), ALPHA_TIME)
        extra = measured.peaks["α"].max() / w.nbytes
        yield Row(f"{name}: extra memory", "the size of W", extra, ALPHA_MEMORY)

    return Case(
        # Wrapped anew each time: nothing is remembered of the matrices.
        ours={"α": once(lambda: ax.forgetting_factor(ax.Dense(w), ax.Dense(past), labels))},
        peers={"read": once(lambda: (w.sum(), past.sum()))},
        rows=rows,
        watched=["α"],
    )


def step(setting: Setting) -> Case:
    """AFFECT k-means on NASDAQ, against static k-means on the same matrices."""
    n = setting.rows_at(full=STOCKS, quick=STOCKS, tiny=60)
    windows, source = stock_windows(setting.data, n, setting.rows_at(full=WINDOWS, quick=4, tiny=3))
    matrices = [ax.Dense(setting.device.array(x @ x.T)) for x in windows]

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
        # W is the caller's and Ψ̂ the model's; the step itself may add to them.
        held = [2 * n * n * 8 + int(measured.peaks[name][-1]) for n, name in zip(sizes, ours, strict=True)]
        items = held[-1] / (sizes[-1] ** 2 * 8)
        yield Row(f"dense step, peak memory with W and Ψ̂, n = {sizes[-1]:,}", "n² items", items, STEP_MEMORY)
        most = [STEP_MEMORY.must * n * n * 8 for n in sizes]
        memory = Curve("memory", sizes, held, most)
        yield Row.growth("dense step with W and Ψ̂, memory", "n²", memory)

    return Case(ours, {}, rows, watched=list(ours))


WORKLOADS = (Workload("alpha", alpha), Workload("dense-step", step), Workload("dense-growth", growth))
