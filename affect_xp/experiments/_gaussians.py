"""Common parts of both Gaussian experiments: the truth, the oracle, and running the methods."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.forgetting import gaussian_mixture_proximity, oracle_forgetting_factor
from affect_xp.clustering.metrics import rand_index, tracking_error
from affect_xp.datasets import GaussianStep
from affect_xp.experiments._models import affect, paper_kmeans
from affect_xp.experiments._report import Measured
from affect_xp.models.affect import Affect
from affect_xp.models.base import Evolving
from affect_xp.models.rg import RG
from affect_xp.plots import plot_scores
from affect_xp.proximity import Dense


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """The expectation and the variance of the proximities at a step, (n, n) each."""

    psi: np.ndarray
    variance: np.ndarray

    @staticmethod
    def of(step: GaussianStep) -> "Truth":
        """Return the moments of the mixture of a step."""
        return Truth(*gaussian_mixture_proximity(step.means, step.covariances, step.labels))


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """One method in one run: Rand index, squared error per entry of Ψ̂, and α, at each step."""

    rand: np.ndarray  # (T,)
    error: np.ndarray  # (T,), NaN if the method has no Ψ̂
    alphas: tuple[tuple[float, ...], ...]  # by step, then by iteration


ORACLE = "oracle"

Maker = Callable[[Sequence[Truth], int], Evolving]  # of the truth of each step and a seed


def oracle(truths: Sequence[Truth], seed: int) -> Affect:
    """Return AFFECT with the forgetting factor of an oracle."""
    return affect(
        paper_kmeans(2), alpha=functools.partial(_oracle_alpha, truths), n_iter=1, random_state=seed
    )


def _oracle_alpha(truths: Sequence[Truth], W: Dense, past: Dense, labels: np.ndarray, t: int) -> Any:
    return oracle_forgetting_factor(truths[t].psi, truths[t].variance, past)


def follow_all(makers: Mapping[str, Maker], steps: Iterable[GaussianStep], seed: int) -> dict[str, Trace]:
    """Run every method on the steps."""
    steps = list(steps)
    truths = [Truth.of(step) for step in steps]
    return {name: _follow(make(truths, seed), steps, truths) for name, make in makers.items()}


def _follow(model: Evolving, steps: Sequence[GaussianStep], truths: Sequence[Truth]) -> Trace:
    rand, error = [], []
    for step, truth in zip(steps, truths, strict=True):
        model.partial_fit(step.X if isinstance(model, RG) else Dense(step.W))
        rand.append(rand_index(model.labels_, step.labels))
        estimate = _estimate(model, step)
        error.append(np.nan if estimate is None else tracking_error(estimate, truth.psi) / truth.psi.size)
    return Trace(np.array(rand), np.array(error), tuple(record.alphas for record in model.history_))


def _estimate(model: Evolving, step: GaussianStep) -> Any:
    """Return Ψ̂: the smoothed proximities, W for a static method, and None for filtered features."""
    if isinstance(model, Affect):
        return model.smoothed_
    return None if isinstance(model, RG) else step.W


Runs = Sequence[Mapping[str, Trace]]  # each method in each run
Curve = Callable[[Trace], np.ndarray]


def rand_of(trace: Trace) -> np.ndarray:
    """Return the Rand index of each step, (T,)."""
    return trace.rand


def error_of(trace: Trace) -> np.ndarray:
    """Return the squared error per entry of Ψ̂ at each step, (T,)."""
    return trace.error


def alpha_of(trace: Trace, iteration: int = -1) -> np.ndarray:
    """Return α of an iteration at each step, (T,), or the last one if the step stopped earlier.

    It is NaN at the first step, which has no past.
    """
    chosen = [alphas[iteration] if iteration < len(alphas) else alphas[-1] for alphas in trace.alphas]
    return np.array([np.nan, *chosen[1:]])


def mean_over_runs(runs: Runs, method: str, curve: Curve) -> np.ndarray:
    """Return a curve of a method, averaged over the runs, (T,)."""
    return np.mean([curve(run[method]) for run in runs], axis=0)


def measure(runs: Runs, method: str, curve: Curve) -> Measured:
    """Return the time average of a curve of a method, with its standard error over the runs."""
    return Measured.of(float(np.mean(curve(run[method]))) for run in runs)


def draw_curves(curves: Mapping[str, np.ndarray], ylabel: str, ax: Any) -> None:
    """Draw curves over time by method, the oracle as a thin black line."""
    plot_scores({method: curve for method, curve in curves.items() if method != ORACLE}, ax=ax, ylabel=ylabel)
    if ORACLE in curves:
        ax.plot(curves[ORACLE], color="black", linestyle="-", linewidth=1, label=ORACLE)
