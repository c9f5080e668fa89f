"""Figures of a run: α, scores, the flow of clusters, and memberships."""

from collections import Counter
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
MAX_GAPS = 0.3  # all of them, with many clusters
MIN_RIBBON = 1 / 400  # a share of the largest step, about a pixel: smaller flows are gathered
STUB = 0.12  # their length, in steps
MIN_NAMED = 0.07  # the height of a bar that has room for a name, in inches

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

    The width of a ribbon is the number of objects. Flows of less than 1/400 of the objects are gathered: only
    the stubs that leave and enter a cluster are drawn. A cluster keeps its colour over time and is labelled
    where it begins, if there is room. Markers show events: splits ◂, merges ▸, births ★, returns ✚ and
    deaths ✖.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> ax.plots.plot_flow(model.history_).get_xlabel()
    'time step'
    """
    found = flow(history)
    n_clusters = max(map(len, found.sizes), default=0)
    ax = axes_or_new(ax, (max(9, 0.25 * len(found.sizes)), min(max(4, 0.12 * n_clusters), 16)))
    largest = max((sum(sizes.values()) for sizes in found.sizes), default=0)
    gap = largest * min(GAP, MAX_GAPS / max(1, n_clusters))
    places = [found.stacked(t, gap) for t in range(len(found.sizes))]
    _draw(
        ax, [_bar(t, *span) for t, place in enumerate(places) for span in place.values()], 1.0
    ).set_facecolor([CLUSTER_COLOURS[found.colours[name]] for place in places for name in place])
    for t in range(1, len(places)):
        _ribbons(ax, found, t, places, MIN_RIBBON * largest)
    _name_clusters(ax, places, largest)
    if events:
        _mark_events(ax, history, places)
    label_steps(ax, list(map(time_format(history.times), history.times)))
    ax.set(xlabel="time step", yticks=[], ylabel="objects")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.invert_yaxis()  # the first cluster on top
    return ax


Places = list[dict[int, tuple[float, float]]]  # of each step, where each cluster starts and ends


def _draw(ax: Any, shapes: list[np.ndarray], alpha: float) -> Any:
    """Draw polygons all at once: thousands of single patches take minutes."""
    from matplotlib.collections import PolyCollection

    drawn = ax.add_collection(PolyCollection(shapes, alpha=alpha, linewidths=0))
    ax.autoscale_view()
    return drawn


def _bar(t: float, low: float, high: float, left: float = BAR, right: float = BAR) -> np.ndarray:
    """Return the corners of a bar, which reaches from t − left to t + right."""
    return np.array([(t - left, low), (t + right, low), (t + right, high), (t - left, high)])


def _ribbons(ax: Any, found: Flow, t: int, places: Places, least: float) -> None:
    """Draw the ribbons from the previous step to this one; those below `least` are gathered.

    Of a cluster with many small flows only the sum is drawn, as stubs that leave and enter it.
    """
    leaves, enters = ({name: low for name, (low, _) in place.items()} for place in places[t - 1 : t + 1])
    x = np.linspace(0, 1, 24)
    ease = x * x * (3 - 2 * x)  # from 0 to 1, flat at both ends
    across = t - 1 + BAR + x * (1 - 2 * BAR)
    rank = {name: i for i, name in enumerate(found.order)}
    ribbons, colours = [], []
    for c, d in sorted(found.links[t], key=lambda link: (rank[link[0]], rank[link[1]])):
        count = found.links[t][c, d]
        if count < least:
            continue
        low = leaves[c] + (enters[d] - leaves[c]) * ease
        upper, lower = np.column_stack([across, low]), np.column_stack([across, low + count])
        ribbons.append(np.concatenate([upper, lower[::-1]]))
        colours.append(CLUSTER_COLOURS[found.colours[c]])
        leaves[c] += count
        enters[d] += count
    small = {link: count for link, count in found.links[t].items() if count < least}
    for step, side, starts in ((t - 1, 0, leaves), (t, 1, enters)):
        total = Counter[int]()
        for link, count in small.items():
            total[link[side]] += count
        reach = (BAR + STUB, -BAR) if side else (-BAR, BAR + STUB)
        ribbons += [_bar(step, starts[c], starts[c] + count, *reach) for c, count in total.items()]
        colours += [CLUSTER_COLOURS[found.colours[c]] for c in total]
    _draw(ax, ribbons, 0.35).set_facecolor(colours)


def _name_clusters(ax: Any, places: Places, largest: float) -> None:
    """Write the name of each cluster where it begins, if there is room for it."""
    height = ax.get_window_extent().height / ax.figure.dpi  # in inches
    for t, place in enumerate(places):
        for name, (low, high) in place.items():
            begins = t == 0 or name not in places[t - 1]
            if begins and (high - low) * height >= MIN_NAMED * largest:
                ax.text(t - BAR, (low + high) / 2, f"{name} ", ha="right", va="center", fontsize="small")


def _mark_events(ax: Any, history: History, places: Places) -> None:
    """Mark clusters that split, merged, appeared, returned or disappeared, and add a legend."""
    at: dict[str, tuple[list[int], list[float]]] = {}
    for t, record in enumerate(history):
        for event in record.events:
            if event.kind not in MARKS or t == 0:
                continue
            leaving = event.kind in ("split", "death")
            step, names = (t - 1, event.before) if leaving else (t, event.after)
            place = places[step]
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
