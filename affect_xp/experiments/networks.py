"""Contact networks, measured and simulated: AFFECT compared with other methods.

Not an experiment of the paper. People are absent for days, a few pairs have most contacts, and the volume of
contacts varies. Methods that use only the past are distinguished from those that use the whole record.
"""

import dataclasses
import functools
import importlib
import importlib.util
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.clustering.metrics import adjusted_rand_index, rand_index
from affect_xp.datasets import contacts, load_reality
from affect_xp.exceptions import AffectWarning
from affect_xp.experiments._network_methods import (
    CAUSAL,
    HINDSIGHT,
    METHODS,
    PAPER,
    STATIC,
    Labels,
    Method,
    Steps,
)
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Figure, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.plots import legend_beside

RUNS = 5
STEPS = 40
GROUPS = 5

ARI, RAND, STABILITY, SECONDS = "ARI", "Rand", "stability", "seconds"
MEASURES = (ARI, RAND, STABILITY, SECONDS)

# Few contacts, between those of an office and a school: with many, nearly every method succeeds.
SIMULATIONS: dict[str, dict[str, Any]] = {
    "absences": {"absence": 0.2, "churn": 0.02},
    "moves": {"moves": 0.03},
    "heavy tails": {"people_spread": 0.8, "pair_spread": 1.5, "bursts": 4.0, "volume_spread": 1.0},
}
DAILY_CONTACTS = 50.0

OURS = "AFFECT"  # prefix of the names of our methods
# Chosen in advance: the best of many would be biased upward.
CHOSEN = {CAUSAL: "AFFECT, log1p and keep", HINDSIGHT: "AFFECT, two-sided, log1p and keep"}
DRAWN = (STATIC, PAPER, *CHOSEN.values(), "mean of all so far", "Leiden, coupling 10, about k groups")


@dataclasses.dataclass(frozen=True)
class Scores:
    """The scores of a method in one run; Rand indices by step."""

    ari: np.ndarray
    rand: np.ndarray
    stability: float
    seconds: float

    def of(self, measure: str) -> float:
        """Return one of the measures as a mean over the steps."""
        values: dict[str, Any] = {
            ARI: self.ari,
            RAND: self.rand,
            STABILITY: self.stability,
            SECONDS: self.seconds,
        }
        return float(np.mean(values[measure]))


Run = Mapping[str, Scores]  # by method


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set: its steps and its number of groups."""

    steps: Callable[[int], Steps]  # of a seed
    k: int


def _simulated(name: str, seed: int) -> Steps:
    return list(
        contacts(STEPS, n_groups=GROUPS, daily_contacts=DAILY_CONTACTS, rng=seed, **SIMULATIONS[name])
    )


def _measured_weeks(path: Path, seed: int) -> Steps:
    return load_reality(path)


def data_sets(options: Options) -> dict[str, DataSet]:
    """Return the data sets: simulations, and measured contacts if the file exists."""
    found = {name: DataSet(functools.partial(_simulated, name), GROUPS) for name in SIMULATIONS}
    path = options.find_data("reality.npz") or options.find_data("reality.mat")
    return (
        found if path is None else {"reality": DataSet(functools.partial(_measured_weeks, path), 2), **found}
    )


def available() -> dict[str, Method]:
    """Return the methods whose package is installed."""
    return {
        name: method
        for name, method in METHODS.items()
        if not method.needs or importlib.util.find_spec(method.needs) is not None
    }


def one_run(data: DataSet, seed: int) -> Run:
    """Run every method on all steps."""
    steps = data.steps(seed)
    return {name: scored(method, steps, data.k, seed) for name, method in available().items()}


def scored(method: Method, steps: Steps, k: int, seed: int) -> Scores:
    """Return the scores of a method."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AffectWarning)  # other methods may fail to converge on skewed counts
        labels = [np.asarray(own) for own in method.find(steps, k, seed)]
    seconds = time.perf_counter() - began
    pairs = list(zip(labels, (step.labels for step in steps), strict=True))
    return Scores(
        np.array([adjusted_rand_index(own, truth) for own, truth in pairs]),
        np.array([rand_index(own, truth) for own, truth in pairs]),
        stability(labels, [step.ids for step in steps]),
        seconds,
    )


def stability(labels: Labels, ids: Sequence[Sequence[Any]]) -> float:
    """Return the mean adjusted Rand index between consecutive steps, over people present at both."""
    found = []
    for (before, names), (after, next_names) in itertools.pairwise(zip(labels, ids, strict=True)):
        known = dict(zip(names, before, strict=True))
        common = [i for i, name in enumerate(next_names) if name in known]
        found.append(adjusted_rand_index([known[next_names[i]] for i in common], after[common]))
    return float(np.mean(found))


@dataclasses.dataclass(frozen=True)
class WideTable(Table):
    """Several numbers per method, in columns; `entries` contain the first."""

    columns: tuple[tuple[str, tuple[Measured, ...]], ...] = ()

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the rows as text, with the steps each method uses in the second column."""
        heading = ["", "sees", *(name for name, _ in self.columns)]
        rows = [[entry.method, METHODS[entry.method].sees] for entry in self.entries]
        for name, measured in self.columns:
            for row, value in zip(rows, measured, strict=True):
                row.append(value.text(1 if name == SECONDS else 3))
        return heading, rows


Results = Mapping[str, Sequence[Run]]  # by data set


def run(options: Options) -> Report:
    """Run every method on every available data set."""
    sets, n_runs = data_sets(options), options.runs or RUNS
    results = {
        name: over_runs(
            functools.partial(one_run, data),
            n_runs,
            options.seed,
            jobs=options.jobs,
            progress=f"networks, {name}" if options.show else None,
        )
        for name, data in sets.items()
    }
    return Report(
        name="networks",
        title="Networks of contacts",
        settings={"runs": n_runs, "seed": options.seed, "steps": STEPS, "groups": GROUPS},
        tables=(_summary(results), *(_details(name, runs) for name, runs in results.items())),
        claims=_claims(results),
        figures=_figures(results),
        remarks=_remarks(sets),
        series={
            f"{ARI}, {name}, {method}": np.mean([run[method].ari for run in runs], axis=0)
            for name, runs in results.items()
            for method in runs[0]
        },
    )


def _measured(runs: Sequence[Run], method: str, measure: str) -> Measured:
    return Measured.of(run[method].of(measure) for run in runs)


def _wide(title: str, columns: Mapping[str, Mapping[str, Measured]], note: str = "") -> WideTable:
    """Return a table of columns, each with one number per method."""
    first = next(iter(columns.values()))
    entries = tuple(Entry(method, value) for method, value in first.items())
    filled = tuple((name, tuple(column.values())) for name, column in columns.items())
    return WideTable(title, next(iter(columns)), entries, note, columns=filled)


def _summary(results: Results) -> WideTable:
    """Return the adjusted Rand index of every method on every data set."""
    columns = {
        name: {method: _measured(runs, method, ARI) for method in runs[0]} for name, runs in results.items()
    }
    return _wide("Adjusted Rand index against the truth, mean over the steps", columns)


def _details(name: str, runs: Sequence[Run]) -> WideTable:
    columns = {m: {method: _measured(runs, method, m) for method in runs[0]} for m in MEASURES}
    return _wide(name, columns)


def _claims(results: Results) -> tuple[Claim, ...]:
    """Compare our chosen method with the best other one, among methods that use the same steps."""
    claims = []
    for (name, runs), (sees, ours) in itertools.product(results.items(), CHOSEN.items()):
        means = {method: _measured(runs, method, ARI).mean for method in runs[0]}
        rivals = [m for m in means if METHODS[m].sees == sees and not m.startswith(OURS)]
        if ours in means and rivals:
            best = max(rivals, key=lambda method: means[method])
            text = f"{name} ({sees}): {ours} ({means[ours]:.3f}) is ahead of the best other method, "
            claims.append(Claim(f"{text}{best} ({means[best]:.3f}).", means[ours] >= means[best]))
    return tuple(claims)


def _remarks(sets: Mapping[str, DataSet]) -> tuple[str, ...]:
    remarks = [
        "All methods except Leiden are given the number of groups and cluster by normalised cut. Leiden "
        "finds the number by modularity with resolution 1, or with a resolution for which it finds about as "
        "many. Its coupling connects a person to themselves at the next step, in units of contacts.",
        "Stability is the adjusted Rand index between consecutive steps, over the people present at both. "
        "The true groups have 1 if nobody changes groups.",
        "The mean over steps uses, for two people, the steps at which both were present, so that absent "
        "people are remembered. With log1p, other methods also get ln(1 + W).",
        f"Simulated contacts: {GROUPS} groups of 20, {STEPS} steps of two hours, {DAILY_CONTACTS:g} contacts "
        "of a person a day; absences of a fifth of the people; moves of 3 % to other groups each day; "
        "counts with heavy tails and volume that varies by a factor of e.",
    ]
    if "reality" not in sets:
        remarks.append("MIT Reality Mining is skipped: set the folder of reality.npz by --data.")
    missing = {method.needs for name, method in METHODS.items() if name not in available()}
    remarks += [f"Some methods need {name} and are skipped: pip install {name}." for name in sorted(missing)]
    return tuple(remarks)


def _figures(results: Results) -> tuple[Figure, ...]:
    return (
        Figure(
            "ari",
            "The adjusted Rand index of every method, mean over steps and runs. Hollow: sees all steps.",
            functools.partial(_draw_methods, results),
            size=(7.5, 4.6),
        ),
        Figure(
            "steps",
            "The adjusted Rand index of some methods over time, mean over runs.",
            functools.partial(_draw_steps, results),
            size=(8, 5),
        ),
    )


def _draw_methods(results: Results, figure: Any) -> None:
    """Fill a figure with one row per method and one marker per data set."""
    ax = figure.subplots()
    methods = list(next(iter(results.values()))[0])
    for (name, runs), marker in zip(results.items(), "osD^", strict=False):
        means = [_measured(runs, method, ARI).mean for method in methods]
        (line,) = ax.plot(means, range(len(methods)), marker, linestyle="none", label=name)
        hollow = [i for i, method in enumerate(methods) if METHODS[method].sees == HINDSIGHT]
        ax.plot([means[i] for i in hollow], hollow, marker, linestyle="none", color="white", markersize=3)
        line.set_alpha(0.9)
    ax.set_yticks(range(len(methods)), methods)
    ax.invert_yaxis()
    ax.set(xlabel="adjusted Rand index", xlim=(None, 1.01))
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    legend_beside(ax)


def _draw_steps(results: Results, figure: Any) -> None:
    """Fill a figure with one panel per data set."""
    panels = figure.subplots(2, 2, sharey=True).ravel()
    for ax, (name, runs) in zip(panels, results.items(), strict=False):
        for method in DRAWN:
            if method in runs[0]:
                ax.plot(np.mean([run[method].ari for run in runs], axis=0), label=method)
        ax.set(title=name, xlabel="step")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.3)
    for ax in panels[len(results) :]:
        ax.set_axis_off()
    for ax in panels[::2]:
        ax.set_ylabel("adjusted Rand index")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
