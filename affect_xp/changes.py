"""Sudden drops of the forgetting factor: when the past stopped telling about the present."""

import math
from collections.abc import Sequence

import numpy as np

from affect_xp._validation import check_fraction, check_int
from affect_xp.exceptions import InputError

# The median absolute deviation of normal numbers times this is their standard deviation.
MAD_TO_SIGMA = 1.4826


def change_points(
    alpha: Sequence[float] | np.ndarray,
    *,
    threshold: float = 3.5,
    min_drop: float = 0.1,
    warm_up: int = 6,
) -> list[int]:
    """Return the steps at which the forgetting factor fell suddenly, compared with its own past.

        dᵗ = αᵗ⁻¹ − αᵗ,   zᵗ = (dᵗ − m) / s

    m being the median of the drops before t, and s their median absolute deviation times 1.4826, which
    estimates the standard deviation but does not heed earlier change points. Step t is a change point if
    zᵗ > `threshold` and dᵗ ≥ `min_drop`. Nothing after t matters, so that a change is known at once.

    Drops are compared, not α itself, because α climbs through the first steps of a run. Where it only wavers,
    with normal noise, fewer than one step in a hundred is called a change; where it wavers much, changes are
    missed.

    Parameters
    ----------
    alpha : (T,) array
        The forgetting factors of a run, such as `history_.alpha`. The first is not looked at: the first
        step has no past to forget.
    threshold : float
        Lower finds more.
    min_drop : float
        A smaller drop is none, however steady α was before.
    warm_up : int
        The number of drops that must be known before one can be called sudden.

    Examples
    --------
    >>> from affect_xp.changes import change_points
    >>> change_points([0, 0.80, 0.82, 0.79, 0.81, 0.80, 0.83, 0.82, 0.35, 0.60, 0.78, 0.80])
    [8]
    """
    check_fraction("min_drop", min_drop)
    check_int("warm_up", warm_up, 1)
    if not threshold > 0:
        raise InputError(f"threshold must be more than 0, got {threshold}")
    values = np.asarray(alpha, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise InputError(
            "alpha must be a sequence of finite numbers, one for each step, such as history_.alpha"
        )
    drops = -np.diff(values[1:])  # drops[i] is that of step i + 2
    return [
        i + 2
        for i in range(warm_up, len(drops))
        if drops[i] >= min_drop and _robust_z(drops[i], drops[:i]) > threshold
    ]


def _robust_z(drop: float, past: np.ndarray) -> float:
    """Return how far a drop lies above past ones, in their robust standard deviations."""
    m = float(np.median(past))
    s = MAD_TO_SIGMA * float(np.median(np.abs(past - m)))
    return (drop - m) / s if s > 0 else math.copysign(math.inf, drop - m)
