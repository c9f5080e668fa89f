"""Choose a fixed α from known clusters, for the baseline methods in comparisons."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_fraction
from affect_xp.clustering.metrics import rand_index
from affect_xp.exceptions import InputError
from affect_xp.models.base import Evolving, IdsOrNone

GRID = tuple(i / 10 for i in range(10))

Maker = Callable[[float], Evolving]


@dataclasses.dataclass(frozen=True, eq=False)
class Tuning:
    """The chosen α, and the mean Rand index of each candidate."""

    alpha: float
    scores: dict[float, float]


@dataclasses.dataclass(frozen=True, eq=False)
class CrossValidation:
    """The α of the first and the second fold, and the Rand index of each step, (T,)."""

    alphas: tuple[float, float]
    rand: np.ndarray

    @property
    def mean(self) -> float:
        """The mean Rand index of all steps."""
        return float(self.rand.mean())


def tune_alpha(
    make: Maker,
    sequence: Iterable[Any],
    truth: Iterable[Array],
    grid: Sequence[float] = GRID,
    *,
    ids: Iterable[IdsOrNone] | None = None,
) -> Tuning:
    """Choose the α with the highest mean Rand index on a training run; the smallest one in case of ties.

    Parameters
    ----------
    make : function of α
        Returns a new model, for example `lambda alpha: PCQ(Spectral(2), alpha=alpha, random_state=0)`.
    sequence : iterable
        The input of `fit`: one matrix per step.
    truth : iterable of (n,) int arrays
        The true cluster of each object at each step.
    grid : sequence of floats
        The candidates, by default 0, 0.1, ..., 0.9.
    ids : as for `fit`, optional

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.models.tuning import tune_alpha
    >>> steps = list(ax.datasets.colliding_gaussians(n_steps=10, rng=0))
    >>> make = lambda alpha: ax.Affect(ax.KMeans(2), alpha=alpha, random_state=0)
    >>> tune_alpha(make, [s.W for s in steps], [s.labels for s in steps], [0.0, 0.5]).alpha
    0.5
    """
    table = _rand_table(make, sequence, truth, grid, ids)
    means = table.mean(axis=1)
    scores = {float(a): float(mean) for a, mean in zip(grid, means, strict=True)}
    return Tuning(_best(grid, means), scores)


def cross_validate_alpha(
    make: Maker,
    sequence: Iterable[Any],
    truth: Iterable[Array],
    grid: Sequence[float] = GRID,
    *,
    ids: Iterable[IdsOrNone] | None = None,
    rng: Seed = None,
) -> CrossValidation:
    """Score a method whose α is chosen by two-fold cross-validation over the steps.

    Each fold uses the α that is best on the other fold. Every α runs through all steps once, so that each
    step has a past; the folds only determine which steps are scored.

    Parameters
    ----------
    make, sequence, truth, grid, ids
        As for `tune_alpha`; at least two steps.
    rng : None, int or numpy.random.Generator
        Draws the steps of the first fold, half of all. By default it is the first half of the sequence, so
        that α must be good at other times than those on which it is chosen.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.models.tuning import cross_validate_alpha
    >>> steps = list(ax.datasets.colliding_gaussians(n_steps=10, rng=0))
    >>> make = lambda alpha: ax.Affect(ax.KMeans(2), alpha=alpha, random_state=0)
    >>> cross_validate_alpha(make, [s.W for s in steps], [s.labels for s in steps], [0.0, 0.5]).rand.shape
    (10,)
    """
    table = _rand_table(make, sequence, truth, grid, ids)  # (α, T)
    n_steps = table.shape[1]
    if n_steps < 2:
        raise InputError("sequence has 1 step, but cross-validation needs at least 2; use tune_alpha")
    order = np.arange(n_steps) if rng is None else as_generator(rng).permutation(n_steps)
    in_first = order < n_steps // 2
    first, second = (_best(grid, table[:, other].mean(axis=1)) for other in (~in_first, in_first))
    of_first, of_second = (table[list(grid).index(alpha)] for alpha in (first, second))
    return CrossValidation((first, second), np.where(in_first, of_first, of_second))


def _best(grid: Sequence[float], scores: np.ndarray) -> float:
    """Return the α with the highest score, the smallest one in case of ties."""
    return min(float(a) for a, score in zip(grid, scores, strict=True) if score == scores.max())


def _rand_table(
    make: Maker,
    sequence: Iterable[Any],
    truth: Iterable[Array],
    grid: Sequence[float],
    ids: Iterable[IdsOrNone] | None,
) -> np.ndarray:
    """Return the Rand index of each α at each step, (α, T)."""
    if len(grid) == 0:
        raise InputError("grid is empty; pass at least one α")
    steps, labels = list(sequence), list(truth)
    names = list(ids) if ids is not None else None  # iterated once per α
    if len(steps) != len(labels):
        raise InputError(f"truth has {len(labels)} entries, but sequence has {len(steps)}; pass one per step")
    models = [make(check_fraction("an α of grid", alpha)).fit(steps, ids=names) for alpha in grid]
    return np.array(
        [[rand_index(a, b) for a, b in zip(m.history_.labels, labels, strict=True)] for m in models]
    )
