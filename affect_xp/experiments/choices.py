"""Choices that the paper leaves open: the labels for the first α of a step, and the correction of α.

Not an experiment of the paper: this repeats its experiments with each value of `init` and `correction`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.clustering.linkage import Linkage
from affect_xp.clustering.metrics import rand_index
from affect_xp.clustering.spectral import Spectral
from affect_xp.datasets import boids, colliding_gaussians, load_nasdaq, load_reality, separated_gaussians
from affect_xp.experiments import boids_variable
from affect_xp.experiments._gaussians import Maker, Trace, follow_all
from affect_xp.experiments._models import affect, paper_kmeans
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.experiments.nasdaq import CLUSTERS
from affect_xp.models.affect import Affect
from affect_xp.proximity import Dense

RUNS = 40
RUNS_ON_DATA = 5  # only the initial labels are random there

INITS = ("previous", "static", "auto")
CHOICES: dict[str, dict[str, Any]] = {init: {"init": init} for init in INITS}
CHOICES |= {f"{init}, corrected": {"init": init, "correction": "objects"} for init in INITS}

Scores = Mapping[str, Mapping[str, float]]  # by measure, then by choice
Trial = Callable[[int], Scores]  # of a seed

RAND, ERROR = "Rand index", "MSE of Ψ̂"


def _separated(n_samples: int, seed: int) -> Scores:
    return {ERROR: _errors(_traces(separated_gaussians(n_samples, rng=seed), seed))}


def _colliding(seed: int) -> Scores:
    traces = _traces(colliding_gaussians(rng=seed), seed)
    return {RAND: {name: float(trace.rand.mean()) for name, trace in traces.items()}, ERROR: _errors(traces)}


def _traces(steps: Any, seed: int) -> dict[str, Trace]:
    def maker(options: dict[str, Any]) -> Maker:
        return lambda truths, seed: affect(paper_kmeans(2), random_state=seed, **options)

    return follow_all({name: maker(options) for name, options in CHOICES.items()}, steps, seed)


def _errors(traces: Mapping[str, Trace]) -> dict[str, float]:
    return {name: float(trace.error.mean()) for name, trace in traces.items()}


def _boids(seed: int) -> Scores:
    steps = list(boids(rng=seed))
    return _rand(
        functools.partial(affect, Linkage(4, method="complete"), proximity="euclidean"),
        [step.X for step in steps],
        [step.labels for step in steps],
        seed,
    )


def _boids_variable(seed: int) -> Scores:
    reading = boids_variable.AS_CHOSEN
    steps = reading.steps(seed)
    given = reading.similarities(steps)
    return _rand(functools.partial(affect, reading.cut()), given, [step.labels for step in steps], seed)


def _reality(path: Path, seed: int) -> Scores:
    steps = load_reality(path)
    given, truth = [step.W for step in steps], [step.labels for step in steps]
    return _rand(functools.partial(affect, Spectral(2)), given, truth, seed, [step.ids for step in steps])


def _nasdaq(path: Path, seed: int) -> Scores:
    steps = load_nasdaq(path)
    given = [Dense(np.asarray(step.X, dtype=float) @ step.X.T) for step in steps]
    make = functools.partial(affect, paper_kmeans(CLUSTERS))
    return _rand(make, given, [step.labels for step in steps], seed)


def _rand(
    make: Callable[..., Affect], given: Sequence[Any], truth: Sequence[np.ndarray], seed: int, ids: Any = None
) -> Scores:
    """Return the mean Rand index of each choice."""
    scores = {}
    for name, options in CHOICES.items():
        history = make(random_state=seed, **options).fit(given, ids=ids).history_
        pairs = zip(history.labels, truth, strict=True)
        scores[name] = float(np.mean([rand_index(labels, own) for labels, own in pairs]))
    return {RAND: scores}


def trials(options: Options) -> dict[str, tuple[Trial, int]]:
    """Return each experiment by name, as a function of a seed, and its number of runs."""
    n_runs = options.runs or RUNS
    found: dict[str, tuple[Trial, int]] = {
        "separated, 40 samples": (functools.partial(_separated, 40), n_runs),
        "separated, 200 samples": (functools.partial(_separated, 200), n_runs),
        "colliding": (_colliding, n_runs),
        "boids": (_boids, n_runs),
        "boids-variable": (_boids_variable, n_runs),
    }
    for name, trial, file in (("reality", _reality, "reality.npz"), ("nasdaq", _nasdaq, "nasdaq2008.npz")):
        path = options.find_data(file)
        if path is not None:
            found[name] = functools.partial(trial, path), min(n_runs, RUNS_ON_DATA)
    return found


def run(options: Options) -> Report:
    """Run every experiment whose data are available with every choice."""
    tables, claims = [], []
    for name, (trial, n_runs) in trials(options).items():
        label = f"choices, {name}" if options.show else None
        results = over_runs(trial, n_runs, options.seed, jobs=options.jobs, progress=label)
        for measure in results[0]:
            scores = {choice: np.array([r[measure][choice] for r in results]) for choice in CHOICES}
            tables.append(_table(name, measure, scores))
            claims.append(_claim(name, measure, scores))
    return Report(
        name="choices",
        title="Choices: init and correction",
        settings={"runs": options.runs or RUNS, "seed": options.seed, "iterations": 3},
        tables=tuple(tables),
        claims=tuple(claims),
        remarks=(
            "`init` selects the labels for the first α of a step; the paper names the previous and the "
            "static ones. `correction` selects whether α is corrected for entries that share an object. All "
            "choices use the same data in each run, so their differences are more precise than the errors in "
            "the tables suggest.",
            'The default is init="auto" without correction. The correction brings α closer to that of an '
            "oracle if the clusters are correct. If members change clusters, it treats the change as noise "
            "slightly longer, which costs more on the colliding Gaussians than it gains.",
        ),
    )


def _table(name: str, measure: str, scores: Mapping[str, np.ndarray]) -> Table:
    """Return the mean of each choice, with its paired difference from the default as a remark."""
    entries = []
    for choice, values in scores.items():
        apart = Measured.of(values - scores["auto"])
        remark = "the default" if choice == "auto" else f"{_signed(apart)} to the default"
        entries.append(Entry(choice, Measured.of(values), remark=remark))
    return Table(name, measure, tuple(entries))


def _signed(apart: Measured) -> str:
    error = "" if apart.error is None else f" ± {apart.error:.4f}"
    return f"{apart.mean:+.4f}{error}"


def _claim(name: str, measure: str, scores: Mapping[str, np.ndarray]) -> Claim:
    """Compare the default with the better of the two labels it chooses from, within two standard errors."""
    sign = -1 if measure == ERROR else 1
    better = max(("previous", "static"), key=lambda choice: sign * scores[choice].mean())
    gain = Measured.of(sign * (scores["auto"] - scores[better]))
    return Claim(
        f'{name}, {measure}: init="auto" is as good as "{better}", the better of the two.',
        gain.mean >= -2 * (gain.error or 0.0) - 1e-9,
    )
