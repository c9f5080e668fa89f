"""Common style of all figures: colours, Axes and ticks."""

from collections.abc import Sequence
from typing import Any

# The colour-blind safe palette of Okabe & Ito; lines also differ in their dashes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
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


def axes_or_new(ax: Any, size: tuple[float, float] = (7, 3)) -> Any:
    """Return the given Axes or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'affect_xp[plot]'") from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def plain(ax: Any) -> Any:
    """Remove the frame and draw a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    return ax


def label_steps(ax: Any, shown: Sequence[str], most: int = 8) -> None:
    """Label at most about `most` steps with their times, on an x axis that counts steps from 0."""
    every = max(1, -(-len(shown) // most))
    ticks = range(0, len(shown), every)
    slanted = max((len(shown[t]) for t in ticks), default=0) > 4
    turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    ax.set_xticks(ticks, [shown[t].replace("$", r"\$") for t in ticks], **turn)


def legend_beside(ax: Any) -> Any:
    """Place the legend to the right of the Axes, where it covers no line."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax
