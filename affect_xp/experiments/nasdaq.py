"""NASDAQ stocks in 2008: k-means on the daily changes of prices, compared with the sectors.

Xu, Kliger & Hero, section 5.5: windows of 15 changes, 12 clusters, five starts; and the time of a step.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.metrics import rand_index
from affect_xp.datasets import StockStep, load_nasdaq
from affect_xp.exceptions import InputError
from affect_xp.experiments._models import affect, paper_kmeans, rg, static
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Figure, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.models.affect import Affect
from affect_xp.models.base import Evolving
from affect_xp.models.static import Static
from affect_xp.plots import plot_scores
from affect_xp.progress import progress
from affect_xp.proximity import Dense

RUNS = 5
CLUSTERS = 12
CRASH = 13  # the window at which α falls, counted from 0
SIZES = (100, 250, 500, 1000, 1500)  # of the timing, and all stocks
REPEATS = 3

STATIC, HALF, RG3, RG10 = "static", "α = 0.5", "RG, l = 3", "RG, l = 10"
THREE, ONE = "AFFECT, 3 iterations, init static", "AFFECT, 1 iteration, init static"
THREE_PREVIOUS, ONE_PREVIOUS = "AFFECT, 3 iterations, init previous", "AFFECT, 1 iteration, init previous"
COLD, DEFAULTS = "static, fresh starts", "affect_xp defaults"
PUBLISHED = {
    STATIC: 0.801,
    THREE: 0.808,
    ONE: 0.806,
    THREE_PREVIOUS: 0.808,
    ONE_PREVIOUS: 0.806,
    HALF: 0.806,
    RG3: 0.804,
    RG10: 0.806,
}

Maker = Callable[..., Evolving]
Seconds = Mapping[str, Mapping[int, float]]  # by method and number of stocks


def _affect(**options: Any) -> Affect:
    return affect(paper_kmeans(CLUSTERS), **options)


def _static(**options: Any) -> Static:
    return static(paper_kmeans(CLUSTERS), **options)


METHODS: dict[str, Maker] = {
    STATIC: _static,
    THREE: functools.partial(_affect, init="static", n_iter=3),
    ONE: functools.partial(_affect, init="static", n_iter=1),
    THREE_PREVIOUS: functools.partial(_affect, init="previous", n_iter=3),
    ONE_PREVIOUS: functools.partial(_affect, init="previous", n_iter=1),
    HALF: functools.partial(_affect, alpha=0.5),
    RG3: lambda **options: rg(paper_kmeans(CLUSTERS), order=3, **options),
    RG10: lambda **options: rg(paper_kmeans(CLUSTERS), order=10, **options),
    COLD: functools.partial(_static, warm_start=False),
    DEFAULTS: functools.partial(Affect, KMeans(CLUSTERS), alpha_tol=0.0),
}
TIMED = (STATIC, ONE_PREVIOUS, THREE_PREVIOUS)
WITHOUT_CONSTANT = {f"{method}, without constant prices": method for method in (STATIC, THREE_PREVIOUS)}
STARTS = "The paper names both for the initial labels of a step; its pseudocode has the previous ones."


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The results of one start: the Rand index and α of each window, by method."""

    rand: dict[str, np.ndarray]
    alpha: dict[str, np.ndarray]


def run(options: Options) -> Report:
    """Run the experiment."""
    path = options.data_file("nasdaq2008.npz")
    steps = _windows(path)
    n_runs = options.runs or RUNS
    runs = over_runs(
        functools.partial(one_run, path),
        n_runs,
        options.seed,
        jobs=options.jobs,
        progress="nasdaq" if options.show else None,
    )
    seconds = scaling(steps, SIZES, REPEATS, options.seed, label="nasdaq, timing" if options.show else None)
    table = _rand_table(runs)
    curves = {method: _mean_alpha(runs, method) for method in (THREE, THREE_PREVIOUS)}
    return Report(
        name="nasdaq",
        title="NASDAQ stock prices of 2008",
        settings={
            "runs": n_runs,
            "seed": options.seed,
            "windows": len(steps),
            "changes in a window": steps[0].X.shape[1],
            "stocks": len(steps[0].ids),
            "clusters": CLUSTERS,
            "data": path.name,
        },
        tables=(table, _variants(runs), _time_table(seconds)),
        claims=_claims(table, curves),
        figures=_figures(steps, curves, seconds),
        remarks=(_on_stocks(steps), _on_crash(steps), _on_time(seconds)),
        series={
            f"α, {method}": _mean_alpha(runs, method) for method in (THREE, ONE, THREE_PREVIOUS, ONE_PREVIOUS)
        }
        | {f"Rand index, {method}": np.mean([r.rand[method] for r in runs], axis=0) for method in METHODS},
    )


def one_run(path: Path, seed: int) -> Run:
    """Run every method on all windows from one start."""
    steps = _windows(path)
    kept = np.flatnonzero(np.all([step.X.any(axis=1) for step in steps], axis=0))  # prices that always change
    everything = np.arange(len(steps[0].ids))
    plan = {name: (name, everything) for name in METHODS}
    plan |= {name: (method, kept) for name, method in WITHOUT_CONSTANT.items()}
    rand, alpha = {}, {}
    for name, (method, stocks) in plan.items():
        model = METHODS[method](proximity="dot", random_state=seed).fit(step.X[stocks] for step in steps)
        truth = steps[0].labels[stocks]
        rand[name] = np.array([rand_index(labels, truth) for labels in model.history_.labels])
        alpha[name] = model.history_.alpha
    return Run(rand, alpha)


def _windows(path: Path) -> list[StockStep]:
    steps = load_nasdaq(path)
    if len(steps) <= CRASH or len(steps[0].ids) < CLUSTERS:
        raise InputError(
            f"{path} has {len(steps)} windows of {len(steps[0].ids)} stocks, but the experiment needs more "
            f"than {CRASH} of at least {CLUSTERS}; use the prices of the whole year"
        )
    return steps


def _mean_alpha(runs: Sequence[Run], method: str) -> np.ndarray:
    """Return α over time, mean of all runs, (T,)."""
    return np.mean([run.alpha[method] for run in runs], axis=0)


def _measured(runs: Sequence[Run], method: str) -> Measured:
    return Measured.of(run.rand[method].mean() for run in runs)


def _rand_table(runs: Sequence[Run]) -> Table:
    remarks = dict.fromkeys((THREE, ONE, THREE_PREVIOUS, ONE_PREVIOUS), STARTS)
    entries = [
        Entry(method, _measured(runs, method), PUBLISHED.get(method), remarks.get(method, ""))
        for method in METHODS
        if method != COLD
    ]
    return Table(
        "All windows",
        "Rand index",
        tuple(entries),
        note="The paper compares methods on its 2,049 stocks that are listed for the entire year.",
    )


def _variants(runs: Sequence[Run]) -> Table:
    entries = [Entry(name, _measured(runs, name)) for name in (COLD, *WITHOUT_CONSTANT)]
    return Table("Choices that the paper does not specify", "Rand index", tuple(entries))


def _claims(table: Table, curves: Mapping[str, np.ndarray]) -> tuple[Claim, ...]:
    beaten = [
        Claim(f"{method} beats static.", table[method].mean > table[STATIC].mean)
        for method in (THREE, ONE, THREE_PREVIOUS, ONE_PREVIOUS)
    ]
    drops = [
        Claim(f"α falls to its lowest at t = {CRASH} ({method}).", lowest_window(alpha) == CRASH)
        for method, alpha in curves.items()
    ]
    return (*beaten, *drops)


def lowest_window(alpha: np.ndarray) -> int:
    """Return the window with the lowest α; the first has none."""
    return 1 + int(np.argmin(alpha[1:]))


def scaling(
    steps: Sequence[StockStep], sizes: Sequence[int], repeats: int, seed: int, *, label: str | None = None
) -> Seconds:
    """Return the seconds of a step by method and number of stocks: the minimum over repeats.

    The dense matrices are computed beforehand. The methods alternate at each window, in rotating order, so
    that other load on the machine affects all of them.
    """
    n_all = len(steps[0].ids)
    order = np.random.default_rng(seed).permutation(n_all)
    all_sizes = (*(size for size in sizes if size < n_all), n_all)
    plan = [(n, repeat) for n in all_sizes for repeat in range(repeats)]
    seconds = {method: dict.fromkeys(all_sizes, np.inf) for method in TIMED}
    for n, _ in progress(plan, len(plan), label):
        for method, spent in _timed([step.X[order[:n]] for step in steps], seed).items():
            seconds[method][n] = min(seconds[method][n], spent / len(steps))
    return seconds


def _timed(features: Sequence[np.ndarray], seed: int) -> dict[str, float]:
    """Return the seconds that each method takes for all steps."""
    models = {method: METHODS[method](random_state=seed) for method in TIMED}
    spent = dict.fromkeys(TIMED, 0.0)
    for t, x in enumerate(features):
        first = t % len(TIMED)
        for method in (*TIMED[first:], *TIMED[:first]):
            W = Dense(x @ x.T)
            start = time.perf_counter()
            models[method].partial_fit(W)
            spent[method] += time.perf_counter() - start
    return spent


def _time_table(seconds: Seconds) -> Table:
    entries = [
        Entry(f"{n} stocks, {method}", Measured(seconds[method][n]))
        for n in seconds[STATIC]
        for method in TIMED
    ]
    note = f"The least of {REPEATS} repeats, mean of all windows; the matrices are made beforehand."
    return Table("Time of a step, dense matrices", "seconds", tuple(entries), note)


def _on_stocks(steps: Sequence[StockStep]) -> str:
    constant = [int((~step.X.any(axis=1)).sum()) for step in steps]
    return (
        'W are dot products, stored as features (`proximity="dot"`): the same result as the dense matrix. '
        f"A price that does not change in a window ({min(constant)} to {max(constant)} stocks) has no "
        "standard deviation: the stock is kept with zeros."
    )


def _on_crash(steps: Sequence[StockStep]) -> str:
    return (
        f"The paper relates the fall of α at t = {CRASH} to the crash of late September 2008. Counted from "
        f"0, that window begins on {steps[CRASH].start:%d %B}, and the one before on "
        f"{steps[CRASH - 1].start:%d %B}."
    )


def _on_time(seconds: Seconds) -> str:
    n = max(seconds[STATIC])
    one, three = (seconds[method][n] / seconds[STATIC][n] for method in (ONE_PREVIOUS, THREE_PREVIOUS))
    return (
        f"With all {n} stocks a step of AFFECT takes {one:.1f} (1 iteration) and {three:.1f} (3) times "
        "as long as a static one; in the paper, less than 1 and less than 3 times. The paper takes the "
        "stocks with the largest market capitalisation, which these data do not have; here they are random."
    )


def _figures(
    steps: Sequence[StockStep],
    curves: Mapping[str, np.ndarray],
    seconds: Seconds,
) -> tuple[Figure, ...]:
    crash = steps[CRASH]
    return (
        Figure(
            "alpha",
            f"The forgetting factor by window, mean of all starts. Window {CRASH} goes from "
            f"{crash.start:%d %B} to {crash.end:%d %B %Y}.",
            functools.partial(_draw_alpha, curves),
        ),
        Figure(
            "time",
            "The time of a step by the number of stocks, with dense matrices.",
            functools.partial(_draw_time, seconds),
        ),
    )


def _draw_alpha(curves: Mapping[str, np.ndarray], figure: Any) -> None:
    """Fill a figure with α over time and the window of the crash as a labelled line."""
    ax = figure.subplots()
    shown = {method: np.concatenate([[np.nan], alpha[1:]]) for method, alpha in curves.items()}
    plot_scores(shown, ax=ax, ylabel="forgetting factor α")
    ax.axvline(CRASH, color="0.5", linestyle=":", linewidth=1)
    ax.annotate("crash", (CRASH, 0.05), xytext=(4, 0), textcoords="offset points", fontsize=8)
    ax.set(ylim=(0, 1))


def _draw_time(seconds: Seconds, figure: Any) -> None:
    """Fill a figure with the time of a step by the number of stocks, both on logarithmic axes."""
    ax = figure.subplots()
    for method, by_size in seconds.items():
        ax.plot(list(by_size), list(by_size.values()), marker=".", label=method)
    ax.set(xscale="log", yscale="log", xlabel="stocks", ylabel="seconds a step")
    ax.set_xticks(list(seconds[STATIC]), [str(n) for n in seconds[STATIC]])
    ax.minorticks_off()
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
