"""Common style of all figures: colours, Axes and ticks."""

import numbers
from collections.abc import Hashable, Sequence
from typing import Any

from affect_xp.display import time_format
from affect_xp.exceptions import InputTypeError, shown
from affect_xp.tracking.history import History

# The colour-blind safe palette of Okabe & Ito; lines also differ in their dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MAX_TICKS = 12
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)), (0, (8, 2)))


def style() -> dict[str, Any]:
    """Return settings for `matplotlib.rc_context`: small fonts and colour-blind safe colours.

    Examples
    --------
    >>> from affect_xp.plots import style
    >>> style()["font.size"]
    9
    """
    from matplotlib.rcsetup import cycler

    return {"font.size": 9, "axes.prop_cycle": cycler(color=COLOURS, linestyle=DASHES)}


def history_of(run: Any) -> History:
    """Return the history of a model, or the history itself."""
    history = getattr(run, "history_", run)
    if not isinstance(history, History):
        raise InputTypeError(f"history must be a fitted model or its history_, got {shown(run)}")
    return history


def axes_or_new(ax: Any, size: tuple[float, float] = (7, 3)) -> Any:
    """Return the given Axes, or new ones with the colours of the library."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'affect_xp[plot]'") from error
    axes = plt.subplots(figsize=size, layout="constrained")[1]
    axes.set_prop_cycle(color=COLOURS)
    return axes


def plain(ax: Any) -> Any:
    """Remove the frame and draw a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    return ax


def label_steps(ax: Any, times: Sequence[Hashable]) -> None:
    """Label as many steps with their times as fit, on an x axis that counts steps from 0."""
    shown = list(map(time_format(times), times))
    width = ax.get_window_extent().width / ax.figure.dpi  # in inches
    room = int(width / (0.25 + 0.08 * max(map(len, shown), default=0)))
    every = max(1, -(-len(shown) // min(max(2, room), MAX_TICKS)))
    ticks = range(0, len(shown), every)
    ax.set_xticks(ticks, [shown[t].replace("$", r"\$") for t in ticks])
    counted = all(isinstance(time, numbers.Number) for time in times)
    ax.set_xlabel("time step" if counted else "")


def legend_beside(ax: Any) -> Any:
    """Place the legend to the right of the Axes, where it covers no line."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax
