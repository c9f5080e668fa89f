"""Figures of a run: α, scores, the flow of clusters, and memberships."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from affect_xp.checks import check_int
from affect_xp.plots._style import axes_or_new, history_of, label_steps, plain
from affect_xp.plots.flows import CLUSTER_COLOURS, OTHERS, Flow, flow, gathered
from affect_xp.plots.memberships import ABSENT, memberships
from affect_xp.tracking.change_points import changes_with_note
from affect_xp.tracking.history import History

Run = Any  # a fitted model, or its `history_`

BAR = 0.09  # half the width of a cluster in the flow, in steps
GAP = 0.03  # between clusters, as a share of the largest step
MAX_GAPS = 0.3  # all of them, with many clusters
MIN_RIBBON = 1 / 200  # a share of the largest step: smaller flows are gathered
STUB = 0.12  # their length, in steps
MIN_NAMED = 0.09  # the height of a bar or row that has room for a name, in inches
MAX_NAMED = 60  # objects
MAX_LEGEND = 20  # clusters
GREY = "#BBBBBB"  # of clusters that are gathered

# Markers of events in the flow.
MARKS = {"split": "<", "merge": ">", "birth": "^", "return": "P", "death": "X"}


def plot_run(
    history: Run, *, changes: Sequence[int] | bool = True, events: bool = True, max_clusters: int = 30
) -> Any:
    """Plot the flow of clusters, and below it the forgetting factor; return both Axes.

    The parameters are those of `plot_alpha` and `plot_flow`.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> bikes = ax.datasets.bike_stations()
    >>> model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(bikes.X, times=bikes.weeks)
    >>> above, below = ax.plots.plot_run(model)
    >>> below.get_ylabel()
    'forgetting factor α'
    """
    history = history_of(history)
    figure = axes_or_new(None, (9, 6)).figure
    figure.clear()
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    below.set_prop_cycle(color=[below.xaxis.label.get_color()])  # colours are for clusters
    plot_alpha(history, ax=below, changes=changes)
    plot_flow(history, ax=above, events=events, max_clusters=max_clusters)
    above.tick_params(labelbottom=False)
    above.set_xlabel("")
    return np.array([above, below])


def plot_alpha(
    history: Run, *, ax: Any = None, label: str | None = None, changes: Sequence[int] | bool = False
) -> Any:
    """Plot the forgetting factor over time; the first step has none.

    Parameters
    ----------
    history : fitted model or its `history_`
    ax : matplotlib Axes, optional
    label : str, optional
        Of the line, in a legend.
    changes : bool or list of int
        True marks the change points (see `affect_xp.change_points`), or adds a note if the run is too short
        to find them. A list contains the steps to mark.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> axes = ax.plots.plot_alpha(model, changes=True)
    >>> axes.get_ylabel()
    'forgetting factor α'
    """
    history, ax = history_of(history), axes_or_new(ax)
    ax.plot(range(1, len(history)), history.alpha[1:], marker=".", label=label)
    ax.set(ylabel="forgetting factor α", ylim=(0, 1))
    label_steps(ax, history.times)
    note = ""
    if isinstance(changes, bool):
        changes, note = changes_with_note(history) if changes else ([], "")
    _mark_changes(ax, history, changes)
    if note:
        ax.text(0.5, 0.02, note, transform=ax.transAxes, ha="center", fontsize="small", wrap=True)
    return plain(ax)


def _mark_changes(ax: Any, history: History, changes: Sequence[int]) -> None:
    """Draw a line at each change point, and a triangle at its α."""
    for t in changes:
        ax.axvline(t, color="#D55E00", linestyle="--", linewidth=1, alpha=0.6)
    if len(changes):
        style = {"color": "#D55E00", "linestyle": "none", "label": "change point"}
        ax.plot(list(changes), history.alpha[list(changes)], "v", **style)
        ax.legend(frameon=False)


def plot_scores(
    scores: Mapping[str, Sequence[float] | np.ndarray], *, ax: Any = None, ylabel: str = "Rand index"
) -> Any:
    """Plot one line over time per method, with a legend; `scores` is a dict or a DataFrame.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> from affect_xp.plots import plot_scores
    >>> plot_scores({"static": [0.8, 0.9], "AFFECT": [0.8, 1.0]}).get_ylabel()
    'Rand index'
    """
    ax = axes_or_new(ax)
    for name, values in scores.items():
        ax.plot(np.asarray(values), marker=".", label=name)
    ax.set(xlabel="time step", ylabel=ylabel)
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0)}  # where it covers no line
    ax.legend(frameon=False, ncols=4, borderaxespad=0, **above)
    return plain(ax)


def plot_flow(history: Run, *, ax: Any = None, events: bool = True, max_clusters: int = 30) -> Any:
    """Plot clusters as bars at each step, with ribbons between them for their common objects.

    The width of a ribbon is the number of objects. A cluster keeps its colour over time and is labelled where
    it begins, if there is room. Small flows, of less than 1/200 of the objects, are gathered: only the
    stubs that leave and enter a cluster are drawn.

    Parameters
    ----------
    history : fitted model or its `history_`
    ax : matplotlib Axes, optional
    events : bool
        Whether to mark splits ◂, merges ▸, births ▴, returns ✚ and deaths ✖.
    max_clusters : int
        The number of clusters that are drawn, those that grow largest. All others are one grey bar.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> ax.plots.plot_flow(model).get_xlabel()
    'time step'
    """
    history = history_of(history)
    found = gathered(flow(history), check_int("max_clusters", max_clusters, 1))
    n_clusters = max(map(len, found.sizes), default=0)
    ax = axes_or_new(ax, (min(max(9, 0.15 * len(found.sizes)), 14), min(max(4, 0.25 * n_clusters), 8)))
    largest = max((sum(sizes.values()) for sizes in found.sizes), default=0)
    gap = largest * min(GAP, MAX_GAPS / max(1, n_clusters))
    places = [found.stacked(t, gap) for t in range(len(found.sizes))]
    bars = [_bar(t, *span) for t, place in enumerate(places) for span in place.values()]
    _draw(ax, bars, [_colour(found, name) for place in places for name in place])
    for t in range(1, len(places)):
        _ribbons(ax, found, t, places, MIN_RIBBON * largest)
    _name_clusters(ax, places, gap)
    if events:
        _mark_events(ax, history, places)
    label_steps(ax, history.times)
    ax.set(yticks=[], ylabel="objects")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.margins(y=0.02)
    ax.invert_yaxis()  # the first cluster on top
    return ax


Places = list[dict[int, tuple[float, float]]]  # of each step, where each cluster starts and ends


def _colour(found: Flow, name: int) -> str:
    return GREY if name == OTHERS else CLUSTER_COLOURS[found.colours[name]]


def _draw(ax: Any, shapes: list[Any], colours: list[str], **style: Any) -> None:
    """Draw paths all at once: thousands of single patches take minutes."""
    from matplotlib.collections import PathCollection

    ax.add_collection(PathCollection(shapes, facecolors=colours, linewidths=0, **style))
    ax.autoscale_view()


def _bar(t: float, low: float, high: float, left: float = BAR, right: float = BAR) -> Any:
    """Return the outline of a bar, which reaches from t − left to t + right."""
    from matplotlib.path import Path

    return Path([(t - left, low), (t + right, low), (t + right, high), (t - left, high), (t - left, low)])


def _ribbon(left: float, right: float, low: tuple[float, float], count: float) -> Any:
    """Return the outline of a ribbon: two cubic curves, flat at both ends, `count` apart."""
    from matplotlib.path import Path

    third = (right - left) / 3
    a, b = low
    above = [(left, a), (left + third, a), (right - third, b), (right, b)]
    below = [(x, y + count) for x, y in reversed(above)]
    codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3, Path.CLOSEPOLY]
    return Path([*above, *below, above[0]], codes)


def _ribbons(ax: Any, found: Flow, t: int, places: Places, least: float) -> None:
    """Draw the ribbons from the previous step to this one; those below `least` are gathered.

    Of a cluster with many small flows only the sum is drawn, as stubs that leave and enter it.
    """
    leaves, enters = ({name: low for name, (low, _) in place.items()} for place in places[t - 1 : t + 1])
    rank = {name: i for i, name in enumerate(found.order)}
    ribbons, colours = [], []
    for c, d in sorted(found.links[t], key=lambda link: (rank[link[0]], rank[link[1]])):
        count = found.links[t][c, d]
        if count < least:
            continue
        ribbons.append(_ribbon(t - 1 + BAR / 2, t - BAR / 2, (leaves[c], enters[d]), count))
        colours.append(_colour(found, c))
        leaves[c] += count
        enters[d] += count
    small = {link: count for link, count in found.links[t].items() if count < least}
    for step, side, starts in ((t - 1, 0, leaves), (t, 1, enters)):
        total = Counter[int]()
        for link, count in small.items():
            total[link[side]] += count
        reach = (BAR + STUB, -BAR / 2) if side else (-BAR / 2, BAR + STUB)
        ribbons += [_bar(step, starts[c], starts[c] + count, *reach) for c, count in total.items()]
        colours += [_colour(found, c) for c in total]
    _draw(ax, ribbons, colours, alpha=0.35, zorder=0.5)  # below the bars


def _name_clusters(ax: Any, places: Places, gap: float) -> None:
    """Write the name of each cluster where it begins, if there is room for it."""
    extent = max((high for place in places for _, high in place.values()), default=1.0)
    least = MIN_NAMED / _height(ax) * extent - gap
    size = "small" if max(map(len, places), default=0) <= 12 else "x-small"
    for t, place in enumerate(places):
        for name, (low, high) in place.items():
            if high - low >= least and (t == 0 or name not in places[t - 1]):
                shown = "others" if name == OTHERS else str(name)
                ax.text(t - BAR, (low + high) / 2, f"{shown} ", ha="right", va="center", fontsize=size)


def _height(ax: Any) -> float:
    """Return the height of the Axes in inches."""
    return float(ax.get_window_extent().height / ax.figure.dpi)


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
    style = {"markersize": 9, "color": "black", "markeredgecolor": "white", "linestyle": "none"}
    for kind, (xs, ys) in at.items():
        ax.plot(xs, ys, MARKS[kind], label=kind, **style)
    if at:
        ax.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(at), frameon=False, fontsize="small"
        )


def plot_memberships(history: Run, *, ax: Any = None, max_objects: int = 2000) -> Any:
    """Plot the cluster of each object (rows) at each step (columns); white if the object is absent.

    Objects are sorted by their most frequent cluster, then by their clusters over time.

    Parameters
    ----------
    history : fitted model or its `history_`
    ax : matplotlib Axes, optional
    max_objects : int
        If there are more objects, so many evenly spaced ones are drawn.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = ax.datasets.colliding_gaussians(rng=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> ax.plots.plot_memberships(model).get_ylabel()
    '40 objects'
    """
    from matplotlib.colors import to_rgb

    history = history_of(history)
    found = flow(history)
    shown = memberships(history, found, max_objects)
    ax = axes_or_new(ax, (7, max(4, 0.13 * len(shown.ids)) if len(shown.ids) <= MAX_NAMED else 4))
    rgb = {name: to_rgb(CLUSTER_COLOURS[colour]) for name, colour in found.colours.items()}
    rgb |= {ABSENT: (1.0, 1.0, 1.0), -1: (0.9, 0.9, 0.9)}
    drawn, places = np.unique(shown.labels, return_inverse=True)
    colours = np.array([rgb[name] for name in drawn.tolist()]).reshape(-1, 3)
    if places.size:
        ax.imshow(colours[places.reshape(shown.labels.shape)], aspect="auto", interpolation="nearest")
    if len(found.order) <= MAX_LEGEND:
        handles = [_patch(CLUSTER_COLOURS[found.colours[name]], str(name)) for name in found.order]
        outside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
        ax.legend(handles=handles, title="cluster", ncols=1 + len(handles) // 11, **outside)
    label_steps(ax, history.times)
    of = "" if len(shown.ids) == shown.n_objects else f" of {shown.n_objects}"
    ax.set(ylabel=f"{len(shown.ids)}{of} objects", yticks=[])
    if len(shown.ids) * MIN_NAMED <= _height(ax):
        names = [str(name).replace("$", r"\$") for name in shown.ids]
        ax.set_yticks(range(len(names)), names, fontsize="x-small")
    return ax


def _patch(colour: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)
