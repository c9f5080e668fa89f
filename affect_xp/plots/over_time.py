"""Figures of a run: α, scores, the flow of clusters, and memberships."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from affect_xp.display import time_format
from affect_xp.plots._style import axes_or_new, label_steps, plain
from affect_xp.plots.flows import CLUSTER_COLOURS, Flow, flow
from affect_xp.plots.memberships import ABSENT, memberships
from affect_xp.tracking.change_points import told_changes
from affect_xp.tracking.history import History

BAR = 0.09  # half the width of a cluster in the flow, in steps
GAP = 0.03  # between clusters, as a share of the largest step

# Markers of events in the flow.
MARKS = {"split": "<", "merge": ">", "birth": "*", "return": "P", "death": "X"}


def plot_alpha(
    history: History, *, ax: Any = None, label: str | None = None, changes: Sequence[int] | bool = False
) -> Any:
    """Plot the forgetting factor over time; the first step has none.

    `changes=True` marks the change points (see `affect_xp.change_points`), or adds a note if the run is too
    short to find them. Otherwise `changes` lists the steps to mark.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> axes = ax.plots.plot_alpha(model.history_, changes=True)
    >>> axes.get_ylabel()
    'forgetting factor α'
    """
    ax = axes_or_new(ax)
    ax.plot(history.times[1:], history.alpha[1:], marker=".", label=label)
    ax.set(xlabel="time step", ylabel="forgetting factor α", ylim=(0, 1))
    note = ""
    if isinstance(changes, bool):
        changes, note = told_changes(history) if changes else ([], "")
    _mark_changes(ax, history, changes)
    if note:
        ax.text(0.5, 0.02, note, transform=ax.transAxes, ha="center", fontsize="small", wrap=True)
    return plain(ax)


def _mark_changes(ax: Any, history: History, changes: Sequence[int]) -> None:
    """Draw a line at each change point, and a triangle at its α."""
    for t in changes:
        ax.axvline(history.times[t], color="#D55E00", linestyle="--", linewidth=1, alpha=0.6)
    if len(changes):
        ax.plot(
            [history.times[t] for t in changes],
            history.alpha[list(changes)],
            "v",
            color="#D55E00",
            linestyle="none",
            label="change point",
        )
        ax.legend(frameon=False)


def plot_scores(
    scores: Mapping[str, Sequence[float] | np.ndarray], *, ax: Any = None, ylabel: str = "Rand index"
) -> Any:
    """Plot one line over time per method, with a legend."""
    ax = axes_or_new(ax)
    for name, values in scores.items():
        ax.plot(values, marker=".", label=name)
    ax.set(xlabel="time step", ylabel=ylabel)
    ax.legend(frameon=False)
    return plain(ax)


def plot_flow(history: History, *, ax: Any = None, events: bool = True) -> Any:
    """Plot clusters as bars at each step, with ribbons between them for their common objects.

    The width of a ribbon is the number of objects. A cluster keeps its colour over time and is labelled where
    it begins. Markers show events: splits ◂, merges ▸, births ★, returns ✚ and deaths ✖.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> ax.plots.plot_flow(model.history_).get_xlabel()
    'time step'
    """
    ax = axes_or_new(ax, (9, 4))
    found = flow(history)
    gap = GAP * max((sum(sizes.values()) for sizes in found.sizes), default=0)
    named: set[int] = set()
    for t, sizes in enumerate(found.sizes):
        place = found.stacked(t, gap)
        if t:
            _ribbons(ax, found, t, gap)
        for name, (low, high) in place.items():
            colour = CLUSTER_COLOURS[found.colours[name]]
            ax.bar(t, high - low, width=2 * BAR, bottom=low, color=colour, linewidth=0)
            if name not in named or name not in found.sizes[t - 1]:
                ax.text(t - BAR, (low + high) / 2, f"{name} ", ha="right", va="center", fontsize="small")
        named |= sizes.keys()
    if events:
        _mark_events(ax, history, found, gap)
    label_steps(ax, list(map(time_format(history.times), history.times)))
    ax.set(xlabel="time step", yticks=[], ylabel="objects")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.invert_yaxis()  # the first cluster on top
    return ax


def _ribbons(ax: Any, found: Flow, t: int, gap: float) -> None:
    """Draw the ribbons between the clusters of the previous and of this step."""
    before, now = found.stacked(t - 1, gap), found.stacked(t, gap)
    leaves = {name: low for name, (low, _) in before.items()}
    enters = {name: low for name, (low, _) in now.items()}
    x = np.linspace(0, 1, 24)
    ease = x * x * (3 - 2 * x)  # from 0 to 1, flat at both ends
    rank = {name: i for i, name in enumerate(found.order)}
    for (c, d), count in sorted(
        found.links[t].items(), key=lambda link: (rank[link[0][0]], rank[link[0][1]])
    ):
        low = leaves[c] + (enters[d] - leaves[c]) * ease
        across = t - 1 + BAR + x * (1 - 2 * BAR)
        ax.fill_between(
            across, low, low + count, color=CLUSTER_COLOURS[found.colours[c]], alpha=0.35, linewidth=0
        )
        leaves[c] += count
        enters[d] += count


def _mark_events(ax: Any, history: History, found: Flow, gap: float) -> None:
    """Mark clusters that split, merged, appeared, returned or disappeared, and add a legend."""
    at: dict[str, tuple[list[int], list[float]]] = {}
    for t, record in enumerate(history):
        for event in record.events:
            if event.kind not in MARKS or t == 0:
                continue
            leaving = event.kind in ("split", "death")
            step, names = (t - 1, event.before) if leaving else (t, event.after)
            place = found.stacked(step, gap)
            xs, ys = at.setdefault(event.kind, ([], []))
            for name in set(names) & place.keys():
                xs.append(step)
                ys.append(sum(place[name]) / 2)
    for kind, (xs, ys) in at.items():
        ax.plot(
            xs,
            ys,
            MARKS[kind],
            markersize=8,
            color="black",
            markeredgecolor="white",
            linestyle="none",
            label=kind,
        )
    if at:
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, 1.12), ncols=len(at), frameon=False, fontsize="small"
        )


def plot_memberships(history: History, *, ax: Any = None, max_objects: int = 2000) -> Any:
    """Plot the cluster of each object (rows) at each step (columns); white if the object is absent.

    Objects are sorted by their most frequent cluster, then by their clusters over time. If there are more
    than `max_objects`, evenly spaced ones are drawn.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> ax.plots.plot_memberships(model.history_).get_ylabel()
    '40 objects'
    """
    from matplotlib.colors import to_rgb

    ax = axes_or_new(ax, (7, 4))
    found = flow(history)
    shown = memberships(history, found, max_objects)
    rgb = {name: to_rgb(CLUSTER_COLOURS[colour]) for name, colour in found.colours.items()}
    rgb |= {ABSENT: (1.0, 1.0, 1.0), -1: (0.9, 0.9, 0.9)}
    names, places = np.unique(shown.labels, return_inverse=True)
    colours = np.array([rgb[name] for name in names.tolist()]).reshape(-1, 3)
    if places.size:
        ax.imshow(colours[places.reshape(shown.labels.shape)], aspect="auto", interpolation="nearest")
    handles = [_patch(CLUSTER_COLOURS[found.colours[name]], str(name)) for name in found.order[:20]]
    ax.legend(handles=handles, title="cluster", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    label_steps(ax, list(map(time_format(history.times), history.times)))
    of = "" if len(shown.ids) == shown.n_objects else f" of {shown.n_objects}"
    ax.set(xlabel="time step", ylabel=f"{len(shown.ids)}{of} objects", yticks=[])
    if len(shown.ids) <= 40:
        ax.set_yticks(
            range(len(shown.ids)), [str(name).replace("$", r"\$") for name in shown.ids], fontsize="x-small"
        )
    return ax


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)
