"""Pictures of runs, with matplotlib; each function returns its Axes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from affect_xp.history import History

# The colours of Okabe & Ito, which colour-blind readers can tell apart; lines differ in their dashes too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), (0, (8, 2)))


def style() -> dict[str, Any]:
    """Return settings for `matplotlib.rc_context`: small type, colours for colour-blind readers.

    Examples
    --------
    >>> from affect_xp.plots import style
    >>> style()["font.size"]
    9
    """
    from matplotlib.rcsetup import cycler

    return {"font.size": 9, "axes.prop_cycle": cycler(color=COLOURS, linestyle=DASHES)}


def _axes(ax: Any) -> Any:
    """Return the given Axes or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'affect_xp[plot]'") from error
    return plt.subplots(figsize=(7, 3), layout="constrained")[1]


def _plain(ax: Any) -> Any:
    """Take the box away and leave a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    return ax


def plot_alpha(history: History, *, ax: Any = None, label: str | None = None) -> Any:
    """Draw the forgetting factor over time; the first step has none.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> axes = ax.plots.plot_alpha(model.history_)
    >>> axes.get_ylabel()
    'forgetting factor α'
    """
    ax = _axes(ax)
    ax.plot(history.times[1:], history.alpha[1:], marker=".", label=label)
    ax.set(xlabel="time step", ylabel="forgetting factor α", ylim=(0, 1))
    return _plain(ax)


def plot_scores(
    scores: Mapping[str, Sequence[float] | np.ndarray], *, ax: Any = None, ylabel: str = "Rand index"
) -> Any:
    """Draw one line over time for each method, named in a legend."""
    ax = _axes(ax)
    for name, values in scores.items():
        ax.plot(values, marker=".", label=name)
    ax.set(xlabel="time step", ylabel=ylabel)
    ax.legend(frameon=False)
    return _plain(ax)


def legend_beside(ax: Any) -> Any:
    """Move the legend to the right of the Axes, where it covers no line."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax
