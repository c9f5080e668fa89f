"""Detection rate and false alarms of `change_points`, by size of the change and length of the run.

Not an experiment of the paper. The constants of `change_points` were chosen on other settings and seeds.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.spectral import Spectral
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.models.affect import Affect
from affect_xp.tracking.change_points import LEVEL, RELIABLE, change_points

RUNS = 12
LENGTHS = {8: 3, 20: 3, 100: 1}  # steps of a run, and the number of such runs per seed
CHANGES = {"1/10 move": 0.1, "1/4 move": 0.25, "1/2 move": 0.5, "1/4 split off": 0.25}
NONE, SPLIT = "no change", "1/4 split off"
LARGE = ("1/4 move", SPLIT)  # changes that should be found
GAP = 16  # steps from one change to the next, on average, in runs of 100
CLUSTERS = 3

Observe = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]  # of labels and the number of a step
Key = tuple[str, Any, str]  # data, length of the run, change


@dataclasses.dataclass(frozen=True)
class Setting:
    """A kind of data and a clusterer for it."""

    n: int
    prepare: Callable[[np.random.Generator], Observe]
    clusterer: Callable[[Any], Any]  # of the number of clusters, or one per step
    proximity: str = "precomputed"


def _gaussians(p: int, apart: float, speed: float = 0.0) -> Callable[[np.random.Generator], Observe]:
    """Normal features of variance 1 about centres at distance `apart`, which may move."""

    def prepare(rng: np.random.Generator) -> Observe:
        turned = np.linalg.qr(rng.normal(size=(p, p)))[0]
        angles = 2 * math.pi * np.arange(CLUSTERS + 1) / (CLUSTERS + 1)
        plane = np.stack([np.cos(angles), np.sin(angles)], axis=1) * apart / math.sqrt(2)
        centres = plane @ turned[:2]
        ways = rng.normal(size=centres.shape)
        ways *= speed / np.linalg.norm(ways, axis=1, keepdims=True)
        return lambda labels, t, rng: (centres + t * ways)[labels] + rng.normal(size=(len(labels), p))

    return prepare


def _counts(within: float, between: float) -> Callable[[np.random.Generator], Observe]:
    """Poisson counts of contacts."""

    def observe(labels: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
        upper = np.triu(rng.poisson(np.where(labels[:, None] == labels, within, between)), 1)
        return (upper + upper.T).astype(float)

    return lambda rng: observe


def _correlations(n_times: int, common: float) -> Callable[[np.random.Generator], Observe]:
    """Correlations of series that share a part of their variance within a cluster."""

    def observe(labels: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
        shared = rng.normal(size=(CLUSTERS + 1, n_times))[labels]
        own = rng.normal(size=shared.shape)
        return np.corrcoef(math.sqrt(common) * shared + math.sqrt(1 - common) * own)

    return lambda rng: observe


def _kmeans(k: Any) -> KMeans:
    return KMeans(k, init="k-means++", n_init=10)


SETTINGS = {
    "features, k-means": Setting(90, _gaussians(3, 4.5), _kmeans, "dot"),
    "counts, spectral": Setting(60, _counts(2.0, 0.4), Spectral),
    "correlations, k-means": Setting(75, _correlations(50, 0.35), _kmeans),
    "features that move slowly": Setting(75, _gaussians(2, 5.0, speed=0.15), _kmeans, "dot"),
}


def _times(length: int, rng: np.random.Generator) -> list[int]:
    """Return the steps at which something changes: one, or several in a long run."""
    if length < 100:
        return [int(rng.integers(RELIABLE, length - 1))]
    return [int(start + rng.integers(GAP - 4)) for start in range(RELIABLE, length - GAP, GAP)]


def _truth(n: int, length: int, change: str, times: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Return the cluster of each object at each step, (length, n)."""
    labels = rng.permutation(np.arange(n) % CLUSTERS)
    if change == SPLIT:  # of a cluster with half of the objects
        labels = rng.permutation(np.where(np.arange(n) < n // 2, 0, 1 + np.arange(n) % (CLUSTERS - 1)))
    leaving = np.flatnonzero(labels == 0)[: n // 4]
    found = []
    for t in range(length):
        if t in times and change == SPLIT:
            labels = labels.copy()
            labels[leaving] = CLUSTERS - labels[leaving]  # they leave, and return at the next change
        elif t in times:
            who = rng.choice(n, round(CHANGES[change] * n), replace=False)
            labels = labels.copy()
            labels[who] = (labels[who] + rng.integers(1, CLUSTERS, len(who))) % CLUSTERS
        found.append(labels)
    return np.array(found)


def examined(
    setting: Setting, length: int, change: str, times: Sequence[int], seed: Sequence[int]
) -> Counter[str]:
    """Count the changes and the quiet steps of a run, and those that were reported as change points."""
    rng = np.random.default_rng(seed)
    truth, observe = _truth(setting.n, length, change, times, rng), setting.prepare(rng)
    k = [len(set(labels.tolist())) for labels in truth] if change == SPLIT else CLUSTERS
    model_seed = int(rng.integers(2**31))
    model = Affect(setting.clusterer(k), proximity=setting.proximity, alpha_tol=0.0, random_state=model_seed)
    for t, labels in enumerate(truth):
        model.partial_fit(observe(labels, t, rng))
    found = change_points(model)
    near = {t + late for t in times for late in (0, 1)}
    return Counter(
        changes=len(times),
        found=sum(not {t, t + 1}.isdisjoint(found) for t in times),
        quiet=len(set(range(1, length)) - near),
        false=len(set(found) - near),
    )


def trial(seed: int) -> dict[Key, Counter[str]]:
    """Return the counts of runs of each setting, length and change, and of changes at the first steps."""
    counts: dict[Key, Counter[str]] = {}
    for i, (data, setting) in enumerate(SETTINGS.items()):
        for j, change in enumerate([NONE, *CHANGES]):
            for length, n_runs in LENGTHS.items():
                total = Counter[str]()
                for run in range(n_runs):
                    own = [seed, i, j, length, run]
                    times = [] if change == NONE else _times(length, np.random.default_rng([*own, 0]))
                    total += examined(setting, length, change, times, own)
                counts[data, length, change] = total
            if change in LARGE:
                for t in range(1, RELIABLE):
                    counts[data, f"step {t}", change] = examined(setting, t + 2, change, [t], [seed, i, j, t])
    return counts


def run(options: Options) -> Report:
    """Simulate runs with changes of all sizes, and without."""
    label = "changes" if options.show else None
    results = over_runs(trial, options.runs or RUNS, options.seed, jobs=options.jobs, progress=label)
    counts = {key: sum((result[key] for result in results), Counter[str]()) for key in results[0]}
    return Report(
        name="changes",
        title="Change points: how many are found",
        settings={"seeds": options.runs or RUNS, "seed": options.seed, "level": LEVEL},
        tables=(
            *(_found(counts, length) for length in LENGTHS),
            _found_early(counts),
            _false_alarms(counts),
        ),
        claims=tuple(_claims(counts)),
        remarks=(
            f"Changes are at a random step, not before step {RELIABLE}; in runs of 100 steps there are six, "
            f"{GAP} steps apart on average. A change counts as found if its step or the next one is "
            "reported.",
            "A part of the objects moves, each to a random other cluster; or a quarter of them, half of the "
            "largest cluster, splits off, and returns at the next change.",
            "At step 2 a change looks like persistent structure within clusters: unless the change is "
            "large, a third observation is needed to distinguish them.",
        ),
    )


def _rate(count: int, of: int, scale: float = 1.0) -> Measured:
    """Return a share with the standard error of a binomial distribution."""
    p = count / max(of, 1)
    return Measured(scale * p, scale * math.sqrt(p * (1 - p) / max(of, 1)))


def _found(counts: dict[Key, Counter[str]], length: int) -> Table:
    entries = [
        Entry(f"{data}: {change}", _rate(cell["found"], cell["changes"]))
        for (data, steps, change), cell in counts.items()
        if steps == length and change != NONE
    ]
    return Table(f"Runs of {length} steps", "share of changes found", tuple(entries))


def _found_early(counts: dict[Key, Counter[str]]) -> Table:
    entries = [
        Entry(f"{data}: {change} at {step}", _rate(cell["found"], cell["changes"]))
        for (data, step, change), cell in counts.items()
        if isinstance(step, str)
    ]
    return Table("Changes at the first steps", "share of changes found", tuple(entries))


def _false_alarms(counts: dict[Key, Counter[str]]) -> Table:
    entries = []
    for data in SETTINGS:
        for length in LENGTHS:
            cell = counts[data, length, NONE]
            entries.append(
                Entry(f"{data}: {length} steps, no change", _rate(cell["false"], cell["quiet"], 100))
            )
        cells = [counts[data, length, change] for length in LENGTHS for change in CHANGES]
        both = sum(cells, Counter[str]())
        entries.append(Entry(f"{data}: other steps, with changes", _rate(both["false"], both["quiet"], 100)))
    return Table("False alarms", "in 100 steps", tuple(entries))


def _claims(counts: dict[Key, Counter[str]]) -> list[Claim]:
    claims = []
    for length in LENGTHS:
        large = sum((counts[data, length, change] for data in SETTINGS for change in LARGE), Counter[str]())
        quiet = sum((counts[data, length, NONE] for data in SETTINGS), Counter[str]())
        found, false = _rate(large["found"], large["changes"]), _rate(quiet["false"], quiet["quiet"], 100)
        claims += [
            Claim(
                f"Runs of {length} steps: of changes of a quarter of the objects, 90 % or more are found "
                f"({100 * found.mean:.1f} % of {large['changes']}).",
                found.mean >= 0.9,
            ),
            Claim(
                f"Runs of {length} steps: at most 1 false alarm in 100 steps ({false.mean:.2f}).",
                false.mean <= 1,
            ),
        ]
    return claims
