"""Decisions of rescale="auto" on weights of many kinds, and their benefit.

Not an experiment of the paper. Each kind of weights is clustered with the choice of "auto" at the first step,
and with the other choice.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.spectral import Spectral
from affect_xp.datasets import colliding_gaussians, contacts, load_football, load_reality
from affect_xp.datasets.football import UNSCORED
from affect_xp.exceptions import SkewedWarning
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.experiments.networks import DAILY_CONTACTS, SIMULATIONS
from affect_xp.models.affect import Affect

RUNS = 5
STEPS = 15
OBJECTS = 60
BLOCKS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedStep:
    """Weights of pairs, and the true groups."""

    W: np.ndarray
    ids: Sequence[Any]
    labels: np.ndarray
    k: int


Steps = Sequence[WeightedStep]


@dataclasses.dataclass(frozen=True)
class Trial:
    """The decision of "auto" in one run, and the mean adjusted Rand index without and with a logarithm."""

    takes_log1p: bool
    plain: float
    log1p: float

    @property
    def gain(self) -> float:
        """The gain of log1p."""
        return self.log1p - self.plain

    @property
    def auto(self) -> float:
        """The score of "auto"."""
        return self.log1p if self.takes_log1p else self.plain


def _in_blocks(draw: Callable[[np.random.Generator, np.ndarray], np.ndarray], seed: int) -> Steps:
    """Return steps of one distribution; `draw` takes a generator and a mask of pairs within a block."""
    rng, labels = np.random.default_rng(seed), np.arange(OBJECTS) % BLOCKS
    steps = []
    for _ in range(STEPS):
        upper = np.triu(draw(rng, labels[:, None] == labels), 1).astype(float)
        steps.append(WeightedStep(upper + upper.T, range(OBJECTS), labels, BLOCKS))
    return steps


def _poisson(inside: float, outside: float) -> Callable[[int], Steps]:
    return functools.partial(_in_blocks, functools.partial(_draw_poisson, inside, outside))


def _draw_poisson(inside: float, outside: float, rng: np.random.Generator, same: np.ndarray) -> np.ndarray:
    return rng.poisson(np.where(same, inside, outside))


def _links(inside: float, outside: float, weights: str) -> Callable[[int], Steps]:
    return functools.partial(_in_blocks, functools.partial(_draw_links, inside, outside, weights))


def _draw_links(
    inside: float, outside: float, weights: str, rng: np.random.Generator, same: np.ndarray
) -> np.ndarray:
    """Connect pairs at random, with weights that do not depend on the blocks."""
    links = rng.random(same.shape) < np.where(same, inside, outside)
    if weights == "log-normal":
        return links * rng.lognormal(1.0, 1.5, size=same.shape)
    return links * (rng.random(same.shape) if weights == "uniform" else 1.0)


def _draw_exponential(rng: np.random.Generator, same: np.ndarray) -> np.ndarray:
    return rng.exponential(np.where(same, 5.0, 4.0))


def _draw_bursts(rng: np.random.Generator, same: np.ndarray) -> np.ndarray:
    """Draw bursty (negative binomial) counts of identically distributed pairs."""
    return rng.poisson(np.where(same, 2.0, 1.0) * rng.gamma(0.5, 2.0, size=same.shape))


def _contacts(options: Mapping[str, Any], seed: int) -> Steps:
    made = contacts(STEPS, rng=seed, **{"daily_contacts": DAILY_CONTACTS, **options})
    return [WeightedStep(s.W, s.ids, s.labels, options.get("n_groups", 5)) for s in made]


def _kernel(width: float, seed: int) -> Steps:
    """Return a Gaussian kernel of the paper's colliding Gaussians."""
    steps = []
    for step in colliding_gaussians(n_steps=STEPS, rng=seed):
        distances = ((step.X[:, None] - step.X) ** 2).sum(axis=2)
        W = np.exp(-distances / width**2)
        steps.append(WeightedStep(W, range(len(W)), step.labels, 2))
    return steps


def _reality(path: Path, seed: int) -> Steps:
    return [WeightedStep(s.W, s.ids, s.labels, 2) for s in load_reality(path)]


def _football(path: Path, seed: int) -> Steps:
    return [WeightedStep(s.W, s.ids, s.labels, s.k) for s in load_football(path)]


KINDS: dict[str, Callable[[int], Steps]] = {
    **{f"contacts, {name}": functools.partial(_contacts, how) for name, how in SIMULATIONS.items()},
    "contacts, a school": functools.partial(
        _contacts,
        {**SIMULATIONS["heavy tails"], "daily_contacts": 250.0, "n_groups": 10, "group_size": 23},
    ),
    "contacts, 30 people": functools.partial(_contacts, {"n_groups": 3, "group_size": 10}),
    "log-normal weights": _links(0.3, 0.15, "log-normal"),
    "log-normal weights, sparse": _links(0.1, 0.03, "log-normal"),
    "uniform weights": _links(0.3, 0.2, "uniform"),
    "exponential weights": functools.partial(_in_blocks, _draw_exponential),
    "bursts, identical pairs": functools.partial(_in_blocks, _draw_bursts),
    "Poisson counts about 20": _poisson(20, 17.5),
    "Poisson counts about 2": _poisson(2, 1.5),
    "Poisson counts about 0.1": _poisson(0.1, 0.03),
    "graph of 0 and 1": _links(0.5, 0.4, "one"),
    "kernel, narrow": functools.partial(_kernel, 1.0),
    "kernel, wide": functools.partial(_kernel, 5.0),
}


def kinds(options: Options) -> dict[str, Callable[[int], Steps]]:
    """Return the data sets: simulations, and measured networks if their files exist."""
    found = {}
    for name, file, read in (
        ("MIT Reality Mining", "reality.npz", _reality),
        ("college football", "football.npz", _football),
    ):
        path = options.find_data(file)
        if path is not None:
            found[name] = functools.partial(read, path)
    return {**found, **KINDS}


def one_run(make: Callable[[int], Steps], seed: int) -> Trial:
    """Cluster with the choice of "auto", and with the other one."""
    steps = make(seed)
    decided, score = _score(steps, "auto", seed)
    takes_log1p = decided == "log1p"
    _, other = _score(steps, None if takes_log1p else "log1p", seed)
    return Trial(takes_log1p, other, score) if takes_log1p else Trial(takes_log1p, score, other)


def _score(steps: Steps, rescale: str | None, seed: int) -> tuple[Any, float]:
    """Return the transform in use, and the mean adjusted Rand index."""
    cut = Spectral([min(step.k, len(step.ids)) for step in steps], solver="full")
    model = Affect(cut, rescale=rescale, alpha_tol=0.0, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkewedWarning)
        model.fit([step.W for step in steps], ids=[step.ids for step in steps])
    found = []
    for labels, step in zip(model.history_.labels, steps, strict=True):
        scored = step.labels != UNSCORED
        found.append(adjusted_rand_index(np.asarray(labels)[scored], step.labels[scored]))
    return model.rescale_, float(np.mean(found))


@dataclasses.dataclass(frozen=True)
class Decisions(Table):
    """For each kind of weights, how often "auto" takes a logarithm, and the gain."""

    trials: Mapping[str, Sequence[Trial]] = dataclasses.field(default_factory=dict)

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the heading and the rows as text."""
        rows = []
        for kind, runs in self.trials.items():
            number = sum(run.takes_log1p for run in runs)
            measured = (Measured.of(v) for v in zip(*((r.plain, r.log1p, r.gain) for r in runs), strict=True))
            rows.append([kind, f"{number} of {len(runs)}", *(value.text(3) for value in measured)])
        return ["", '"auto" takes log1p', "ARI without", "ARI with log1p", "gain of log1p"], rows


def run(options: Options) -> Report:
    """Run both choices on every available kind of weights."""
    n_runs, trials = options.runs or RUNS, {}
    for name, make in kinds(options).items():
        label = f"counts, {name}" if options.show else None
        trials[name] = over_runs(
            functools.partial(one_run, make),
            n_runs if name in KINDS else 1,
            options.seed,
            jobs=options.jobs,
            progress=label,
        )
    entries = tuple(Entry(name, Measured.of(run.auto for run in runs)) for name, runs in trials.items())
    title = 'Adjusted Rand index, mean over the steps, with rescale=None and "log1p"'
    return Report(
        name="counts",
        title='What rescale="auto" decides',
        settings={"runs": n_runs, "seed": options.seed, "steps": STEPS, "objects": OBJECTS},
        tables=(Decisions(title, "ARI of auto", entries, trials=trials),),
        claims=tuple(_claim(name, runs) for name, runs in trials.items()),
        remarks=(
            '"auto" looks at the first step alone: whether its positive weights are skewed, and their '
            "logarithms much less so. Both choices see the same steps: the gain is known better than either "
            "index.",
            "All are given the number of groups and cluster by normalised cut. Absent objects are forgotten.",
        ),
    )


def _claim(name: str, runs: Sequence[Trial]) -> Claim:
    """Check that "auto" is not significantly worse than either choice."""
    lost = Measured.of(max(run.plain, run.log1p) - run.auto for run in runs)
    worth = Measured.of(run.auto - run.plain for run in runs)
    better = worth.mean >= -2 * (worth.error or 0.0) - 1e-9
    return Claim(
        f'{name}: "auto" is as good as rescale=None; it loses {lost.mean:.3f} to the better one.', better
    )
