"""The number of groups of networks over time, by each rule of `Spectral`.

Not an experiment of the paper. Teams of college football play in about twelve conferences, simulated contacts
have five groups, and the people of MIT Reality Mining two.
"""

import dataclasses
import functools
import warnings

import numpy as np

from affect_xp.clustering.spectral import Spectral
from affect_xp.exceptions import AffectWarning
from affect_xp.experiments._models import affect
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Measured, Report
from affect_xp.experiments._runs import over_runs
from affect_xp.experiments.movers import DataSet, Grid, data_sets, scored

RUNS = 1
MAX_CLUSTERS = 20
RULES = ("likelihood", "bethe-hessian", "auto", "eigengap", "modularity", "silhouette")
OTHERS = RULES[3:]
MEASURES = {"error": "error of the number of clusters", "ari": "adjusted Rand index"}
DATA = (
    "football, seasons",
    "football, half of the games",
    "contacts, absences",
    "contacts, moves",
    "contacts, heavy tails",
    "MIT Reality Mining",
)


@dataclasses.dataclass(frozen=True)
class Found:
    """Means over the steps: the number of clusters, its error, and the adjusted Rand index."""

    k: float
    error: float
    ari: float


def one_run(data: DataSet, seed: int) -> dict[str, Found]:
    """Run every rule on all steps."""
    steps, found = data.steps(seed), {}
    truth = np.array([step.k for step in steps])
    for rule in RULES:
        cut = Spectral(rule, max_clusters=MAX_CLUSTERS, solver="full")
        model = affect(cut, random_state=seed, forgetting="objects", **data.prepared)
        history = model.fit([step.W for step in steps], ids=[step.ids for step in steps]).history_
        k = np.array([record.k for record in history])
        ari = scored(history.labels, steps).ari
        found[rule] = Found(float(k.mean()), float(np.abs(k - truth).mean()), ari)
    return found


def run(options: Options) -> Report:
    """Run all rules on every available data set."""
    n_runs = options.runs or RUNS
    results: dict[str, list[dict[str, Found]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AffectWarning)
        for name, data in data_sets(options).items():
            if name in DATA:
                label = f"groups, {name}" if options.show else None
                count = n_runs if data.random else 1
                run_one = functools.partial(one_run, data)
                results[name] = over_runs(run_one, count, options.seed, jobs=options.jobs, progress=label)
    return Report(
        name="groups",
        title="The number of groups of a network",
        settings={"runs": n_runs, "seed": options.seed, "most clusters": MAX_CLUSTERS},
        tables=tuple(_table(results, *which) for which in (("k", 1), ("error", 1), ("ari", 3))),
        claims=tuple(_claims(results)),
        remarks=(
            "No rule is best on all data sets. A rule that is chosen before the data are known should have a "
            "small error over many of them, so the claims are about the mean and the worst data set.",
            "Normalised cut on the estimate of AFFECT by objects; contacts after log1p, with absent='keep'. "
            "Football has 12.1 conferences in the mean, contacts 5 groups, Reality Mining 2.",
            '"auto" takes the likelihood, or the Bethe-Hessian where the squared coefficient of variation of '
            "degrees exceeds 0.4. The threshold was chosen on simulated block models, while the values of "
            "these data sets were known: below it the likelihood found the number of groups, above it the "
            "Bethe-Hessian was mostly better. It takes the silhouette where more than 90 % of the pairs have "
            "a similarity.",
        ),
    )


def _table(results: dict[str, list[dict[str, Found]]], measure: str, places: int) -> Grid:
    titles = {
        "k": "Number of clusters, mean over the steps",
        "error": "Mean error of the number of clusters",
        "ari": "Adjusted Rand index",
    }
    values = {
        name: {rule: Measured.of(getattr(run[rule], measure) for run in runs) for rule in RULES}
        for name, runs in results.items()
    }
    return Grid.of(titles[measure], measure, values, places)


def _claims(results: dict[str, list[dict[str, Found]]]) -> list[Claim]:
    """Compare "auto" over all data sets with the rules that need no model."""
    claims = []
    for measure, better in (("error", "lower"), ("ari", "higher")):
        by_data = {
            rule: np.array(
                [np.mean([getattr(run[rule], measure) for run in runs]) for runs in results.values()]
            )
            for rule in RULES
        }
        sign = 1 if better == "lower" else -1
        for how, summary in (("mean", np.mean), ("worst", np.max if sign == 1 else np.min)):
            value = {rule: float(summary(by_data[rule])) for rule in RULES}
            best = min(OTHERS, key=lambda rule: sign * value[rule])
            numbers = (
                f'{value["auto"]:.2f} with "auto", {value[best]:.2f} with "{best}", the best of the others'
            )
            text = f'The {how} {MEASURES[measure]} over the data sets is {better} with "auto": {numbers}.'
            claims.append(Claim(text, sign * value["auto"] <= sign * value[best]))
    return claims
