"""What all pictures share: colours, Axes, and a plain look."""

from collections.abc import Sequence
from typing import Any

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


def axes_or_new(ax: Any, size: tuple[float, float] = (7, 3)) -> Any:
    """Return the given Axes or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'affect_xp[plot]'") from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def plain(ax: Any) -> Any:
    """Take the box away and leave a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.3)
    return ax


def label_steps(ax: Any, shown: Sequence[str], most: int = 8) -> None:
    """Write the times of at most about `most` steps below Axes that count steps from 0."""
    every = max(1, -(-len(shown) // most))
    ticks = range(0, len(shown), every)
    slanted = max((len(shown[t]) for t in ticks), default=0) > 4
    turn = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
    ax.set_xticks(ticks, [shown[t].replace("$", r"\$") for t in ticks], **turn)


def legend_beside(ax: Any) -> Any:
    """Move the legend to the right of the Axes, where it covers no line."""
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return ax
