"""Two well-separated Gaussians: the estimated forgetting factor compared with that of an oracle.

The clusters are always found, so that only the estimate of α matters. Xu, Kliger & Hero, section 5.1.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from affect_xp.clustering.kmeans import KMeans
from affect_xp.datasets import separated_gaussians
from affect_xp.experiments._gaussians import (
    ORACLE,
    Maker,
    Runs,
    Trace,
    alpha_of,
    draw_curves,
    error_of,
    follow_all,
    mean_over_runs,
    measure,
    oracle,
)
from affect_xp.experiments._models import affect, paper_kmeans
from affect_xp.experiments._options import Options
from affect_xp.experiments._report import Claim, Entry, Figure, Measured, Report, Table
from affect_xp.experiments._runs import over_runs
from affect_xp.models.affect import Affect
from affect_xp.plots import legend_beside

RUNS = 100
SIZES = (40, 200)
CONSTANTS = ("α = 0.25", "α = 0.5", "α = 0.75")
ESTIMATED, DEFAULTS = "AFFECT, 1 iteration", "affect_xp defaults"
PUBLISHED: dict[str, float] = {}  # the paper draws curves and prints no numbers

METHODS: dict[str, Maker] = {
    ESTIMATED: lambda truths, seed: affect(paper_kmeans(2), init="static", n_iter=1, random_state=seed),
    "α = 0.25": lambda truths, seed: affect(paper_kmeans(2), alpha=0.25, random_state=seed),
    "α = 0.5": lambda truths, seed: affect(paper_kmeans(2), alpha=0.5, random_state=seed),
    "α = 0.75": lambda truths, seed: affect(paper_kmeans(2), alpha=0.75, random_state=seed),
    ORACLE: oracle,
    DEFAULTS: lambda truths, seed: Affect(KMeans(2), alpha_tol=0.0, random_state=seed),
}


def run(options: Options) -> Report:
    """Run the experiment for each number of samples."""
    n_runs = options.runs or RUNS
    by_size = {
        n: over_runs(
            functools.partial(one_run, n),
            n_runs,
            options.seed,
            jobs=options.jobs,
            progress=f"separated, {n} samples" if options.show else None,
        )
        for n in SIZES
    }
    errors = {n: _error_table(n, runs) for n, runs in by_size.items()}
    distances = _distance_table(by_size)
    return Report(
        name="separated",
        title="Two well-separated Gaussians",
        settings={"runs": n_runs, "seed": options.seed, "samples": SIZES, "steps": 40},
        tables=(*errors.values(), distances),
        claims=_claims(errors, distances),
        figures=(
            Figure(
                "alpha",
                "The forgetting factor over time, mean of all runs. The noise grows at step 19.",
                functools.partial(_draw, by_size, (ESTIMATED, ORACLE), "alpha", "forgetting factor α"),
            ),
            Figure(
                "mse",
                "The mean squared error of an entry of Ψ̂ over time, mean of all runs.",
                functools.partial(
                    _draw, by_size, (ESTIMATED, *CONSTANTS, ORACLE), "MSE", r"MSE of $\hat\Psi$"
                ),
            ),
        ),
        remarks=(
            "The error is per entry, ‖Ψ̂ − Ψ‖² / n², so that both numbers of samples are comparable.",
            "The text does not say whether both means take the same random step; here their steps are "
            "independent.",
        ),
        series={name: curve for n in SIZES for name, curve in _curves(n, by_size[n]).items()},
    )


def one_run(n_samples: int, seed: int) -> dict[str, Trace]:
    """Run every method on one simulation."""
    return follow_all(METHODS, separated_gaussians(n_samples, rng=seed), seed)


def _error_table(n: int, runs: Runs) -> Table:
    entries = [Entry(method, measure(runs, method, error_of), PUBLISHED.get(method)) for method in METHODS]
    return Table(f"{n} samples", "MSE of Ψ̂", tuple(entries))


def _distance_table(by_size: Mapping[int, Runs]) -> Table:
    """Return the time average of the distance between the estimated α and the oracle's, both run means."""
    entries = []
    for n, runs in by_size.items():
        for method in (ESTIMATED, DEFAULTS):
            apart = mean_over_runs(runs, method, alpha_of) - mean_over_runs(runs, ORACLE, alpha_of)
            entries.append(Entry(f"{method}, {n} samples", Measured(float(np.abs(apart[1:]).mean()))))
    return Table("Distance of α from the oracle's", "|α − α*|", tuple(entries))


def excess(errors: Table) -> float:
    """Return the relative excess of the error with estimated α over that of the oracle."""
    return errors[ESTIMATED].mean / errors[ORACLE].mean - 1


def _claims(errors: Mapping[int, Table], distances: Table) -> tuple[Claim, ...]:
    few, many = SIZES
    beaten = {n: all(errors[n][ESTIMATED].mean < errors[n][c].mean for c in CONSTANTS) for n in SIZES}
    over = {n: excess(errors[n]) for n in SIZES}
    apart = [distances[f"{ESTIMATED}, {n} samples"].mean for n in SIZES]
    return (
        *(Claim(f"With {n} samples the estimated α beats every constant.", beaten[n]) for n in SIZES),
        *(
            Claim(
                f"With {n} samples its error is within 15 % of the oracle's ({over[n]:.1%}).", over[n] < 0.15
            )
            for n in SIZES
        ),
        Claim(f"The excess over the oracle shrinks from {few} to {many} samples.", over[many] < over[few]),
        Claim(
            f"So does the distance of α from the oracle's: {apart[0]:.3f}, {apart[1]:.3f}.",
            apart[1] < apart[0],
        ),
    )


def _curves(n: int, runs: Runs) -> dict[str, np.ndarray]:
    """Return α and error over time of every method, averaged over the runs."""
    kinds = {"alpha": alpha_of, "MSE": error_of}
    return {
        f"{kind}, {n} samples, {method}": mean_over_runs(runs, method, curve)
        for kind, curve in kinds.items()
        for method in METHODS
    }


def _draw(by_size: Mapping[int, Runs], methods: Sequence[str], kind: str, ylabel: str, figure: Any) -> None:
    """Fill a figure with one panel per number of samples."""
    panels = figure.subplots(1, len(by_size), sharey=True)
    for ax, (n, runs) in zip(panels, by_size.items(), strict=True):
        curves = _curves(n, runs)
        draw_curves({m: curves[f"{kind}, {n} samples, {m}"] for m in methods}, ylabel, ax)
        ax.set_title(f"{n} samples")
        ax.label_outer()
        ax.get_legend().remove()
    legend_beside(panels[-1])
