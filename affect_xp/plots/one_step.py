"""Figures of one step: proximities, dendrogram, eigenvalues, and scores by number of clusters."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from affect_xp.array.namespace import as_array, from_host, to_host
from affect_xp.clustering.linkage import Dendrogram, Linkage, linkage
from affect_xp.clustering.spectral import Spectral, spectral
from affect_xp.exceptions import InputError, InputTypeError, shown
from affect_xp.plots._style import axes_or_new, history_of, plain
from affect_xp.plots.flows import CLUSTER_COLOURS, flow, host_labels
from affect_xp.proximity import Proximity, as_proximity
from affect_xp.tracking.history import History

Settings = TypeVar("Settings", Linkage, Spectral)

MAX_DRAWN = 1000  # objects: a figure has no more pixels
MAX_NAMES = 20  # of clusters next to a matrix
STRIP = 0.025  # the width of the strip of clusters, as a share of the matrix
SIGNED = 1e-6  # negative entries above this share of the largest are rounding errors


def plot_proximity(W: Any, labels: Any, *, ax: Any = None, title: str = "") -> Any:
    """Plot proximities with objects ordered by cluster, and lines between clusters.

    Proximities of both signs, such as correlations, are drawn in diverging colours with white at 0. The strip
    on the left shows the colour of each cluster, the same as in `plot_flow`. If there are more than 1000
    objects, 1000 evenly spaced ones are drawn.

    Parameters
    ----------
    W : (n, n) array, DataFrame, sparse matrix or Proximity
    labels : (n,) array or Series of int, fitted model, or its `history_`
        Of a model, the labels of the last step are used.
    ax : matplotlib Axes, optional
    title : str

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> step = next(ax.datasets.colliding_gaussians(rng=0))
    >>> ax.plots.plot_proximity(step.W, step.labels, title="at first").get_title()
    'at first'
    """
    proximity = _proximity(W)
    assigned, colours = _clusters(labels)
    if assigned.shape != (proximity.n,):
        raise InputError(
            f"labels has shape {assigned.shape}, but W has {proximity.n} objects; pass one per object"
        )
    order = np.argsort(assigned, kind="stable")
    if len(order) > MAX_DRAWN:
        order = order[np.arange(MAX_DRAWN) * len(order) // MAX_DRAWN]
    ax = axes_or_new(ax, (4.8, 3.4))
    drawn = proximity.submatrix(from_host(order, proximity.like))
    entries = to_host(drawn, reason="proximities for a figure")[0]
    image = ax.imshow(entries, interpolation="nearest")
    _colour_scale([image])
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    ax.set(title=title, xticks=[], yticks=[], xlabel="objects, by cluster")
    _mark_clusters(ax, assigned[order], colours)
    return ax


def plot_smoothing(W: Any, smoothed: Any, labels: Any = None) -> Any:
    """Plot observed and smoothed proximities by cluster, on the same scale; return both Axes.

    Parameters
    ----------
    W : as for `plot_proximity`
        The proximities of the last step.
    smoothed : as W, or a fitted model
        Of a model, the smoothed proximities and the labels of the last step are used.
    labels : as for `plot_proximity`, optional
        Needed unless `smoothed` is a model.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.colliding_gaussians(rng=0))
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> panels = ax.plots.plot_smoothing(steps[-1].W, model)
    >>> [panel.get_title() for panel in panels]
    ['observed W', 'smoothed Ψ']
    """
    if labels is None:
        labels, smoothed = smoothed, getattr(smoothed, "smoothed_", smoothed)
    figure = axes_or_new(None, (9, 3.4)).figure
    figure.clear()
    panels = figure.subplots(1, 2)
    plot_proximity(W, labels, ax=panels[0], title="observed W")
    plot_proximity(smoothed, labels, ax=panels[1], title="smoothed Ψ")
    _colour_scale([panel.images[0] for panel in panels])
    return panels


def _proximity(W: Any) -> Proximity:
    """Return proximities as such; of a DataFrame its values."""
    return as_proximity(W.to_numpy() if hasattr(W, "to_numpy") else W)


def _clusters(labels: Any) -> tuple[np.ndarray, dict[int, str]]:
    """Return the labels of a step, on the host, and the colour of each cluster; see `Flow.colours`."""
    if isinstance(labels, History) or hasattr(labels, "history_"):
        history = history_of(labels)
        return host_labels(history[-1]), {c: CLUSTER_COLOURS[i] for c, i in flow(history).colours.items()}
    assigned = to_host(as_array(labels), reason="labels for a figure")[0]
    n = len(CLUSTER_COLOURS)
    return assigned, {c: CLUSTER_COLOURS[c % n] for c in np.unique(assigned).tolist()}


def _colour_scale(images: list[Any]) -> None:
    """Give images one scale: diverging and symmetric about 0 if both signs occur, else sequential."""
    values = [image.get_array() for image in images]
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    signed = low < -SIGNED * high < 0
    if signed:
        low, high = -max(-low, high), max(-low, high)
    for image in images:
        image.set_cmap("RdBu_r" if signed else "viridis")
        image.set_clim(low, high)


def _mark_clusters(ax: Any, ordered: np.ndarray, colours: dict[int, str]) -> None:
    """Draw lines between clusters, and a strip with the colour and the name of each."""
    n, borders = len(ordered), np.flatnonzero(np.diff(ordered)) + 1
    for border in borders - 0.5:
        ax.plot([-0.5, n - 0.5], [border, border], color="0.3", linewidth=0.8)
        ax.plot([border, border], [-0.5, n - 0.5], color="0.3", linewidth=0.8)
    edges = np.array([0, *borders, n]) - 0.5
    middles, named = (edges[1:] + edges[:-1]) / 2, ordered[np.array([0, *borders], dtype=int)].tolist()
    colour = [colours.get(name, "0.9") for name in named]
    ax.barh(middles, STRIP * n, np.diff(edges), -0.5 - 2 * STRIP * n, color=colour)
    ax.set(xlim=(-0.5 - 2 * STRIP * n, n - 0.5), ylim=(n - 0.5, -0.5))
    ax.spines[:].set_visible(False)
    ax.tick_params(axis="y", length=0)
    if len(named) <= MAX_NAMES:
        ax.set_yticks(middles, ["" if name < 0 else str(name) for name in named], fontsize="small")


def plot_dendrogram(tree: Any, *, n_clusters: int | None = None, ax: Any = None, max_leaves: int = 60) -> Any:
    """Plot a dendrogram; with `n_clusters`, also the height of the cut and the colours of the clusters.

    Parameters
    ----------
    tree : Dendrogram, or a fitted `Affect` with a `Linkage`
        Of a model, the tree of the last step, with its clusters in the colours of `plot_flow`.
    n_clusters : int, optional
        By default that of the model.
    ax : matplotlib Axes, optional
    max_leaves : int
        If there are more objects, only the last merges are drawn: the leaves are then clusters, with their
        sizes in brackets.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import numpy as np, affect_xp as ax
    >>> x = np.array([0.0, 1.0, 5.0, 7.0])
    >>> tree = ax.linkage(np.abs(x[:, None] - x), method="complete")
    >>> ax.plots.plot_dendrogram(tree, n_clusters=2).get_ylabel()
    'height (complete linkage)'
    """
    from scipy.cluster import hierarchy

    ax, model = axes_or_new(ax), None
    if not isinstance(tree, Dendrogram):
        model, settings = tree, _clusterer_of(tree, Linkage)
        tree = linkage(model.smoothed_, settings.method)
    of_model = model is not None and n_clusters is None
    n_clusters = history_of(model)[-1].k if of_model else n_clusters
    cut_into = n_clusters if n_clusters is not None and 1 < n_clusters <= tree.n else 1
    if tree.n > 1:
        colours = _branch_colours(tree, *_clusters(model if of_model else tree.cut(cut_into)))
        hierarchy.dendrogram(
            tree.merges,
            ax=ax,
            p=max_leaves,
            truncate_mode="lastp" if tree.n > max_leaves else None,
            link_color_func=colours.__getitem__,
        )
    if cut_into > 1:
        heights = np.concatenate([[0.0], tree.heights])
        cut = (heights[tree.n - cut_into] + heights[tree.n - cut_into + 1]) / 2
        ax.axhline(cut, color="0.3", linestyle="--", linewidth=1, label=f"{cut_into} clusters")
        ax.legend(frameon=False)
    ax.set(ylabel=f"height ({tree.method} linkage)", xlabel="objects")
    return plain(ax)


def _branch_colours(tree: Dendrogram, labels: np.ndarray, colours: Mapping[int, str]) -> list[str]:
    """Return the colour of each node: that of its cluster, grey above the cut."""
    nodes = labels.tolist()
    for left, right in tree.merges[:, :2].astype(int).tolist():
        nodes.append(nodes[left] if nodes[left] == nodes[right] else -1)
    return [colours.get(c, "0.5") for c in nodes]


def _clusterer_of(model: Any, kind: type[Settings]) -> Settings:
    """Return the settings of the clusterer of a fitted `Affect`."""
    clusterer = getattr(model, "clusterer", None)
    if not isinstance(clusterer, kind) or not hasattr(model, "smoothed_"):
        raise InputTypeError(f"pass a fitted Affect with a {kind.__name__} as clusterer, got {shown(model)}")
    return clusterer


def plot_eigenvalues(values: Any, *, n_clusters: int | None = None, ax: Any = None) -> Any:
    """Plot eigenvalues by rank; with `n_clusters`, a line after the first `n_clusters`.

    Of a fitted `Affect` with a `Spectral`, these are the first `max_clusters` eigenvalues of the smoothed
    similarities of the last step, and its number of clusters.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> step = next(ax.datasets.colliding_gaussians(rng=0))
    >>> found = ax.spectral(ax.as_proximity(step.W), 3, objective="average_association", rng=0)
    >>> ax.plots.plot_eigenvalues(found.values, n_clusters=2).get_ylabel()
    'eigenvalue'
    """
    if hasattr(values, "history_"):
        settings, smoothed, k = _clusterer_of(values, Spectral), values.smoothed_, values.history_[-1].k
        n_clusters = k if n_clusters is None else n_clusters
        r = min(smoothed.n, max(settings.max_clusters, n_clusters + 1))
        values = spectral(smoothed, r, objective=settings.objective, tol=settings.tol, rng=0).values[:r]
    drawn = to_host(as_array(values), reason="eigenvalues for a figure")[0]
    ax = axes_or_new(ax)
    ax.plot(range(1, len(drawn) + 1), drawn, "o-", color=CLUSTER_COLOURS[0])
    if n_clusters is not None:
        ax.axvline(
            n_clusters + 0.5, color="#D55E00", linestyle="--", linewidth=1, label=f"{n_clusters} clusters"
        )
        ax.legend(frameon=False)
    ax.set(xlabel="rank", ylabel="eigenvalue")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return plain(ax)


def plot_scores_by_k(scores: Any, *, chosen: int | None = None, ax: Any = None) -> Any:
    """Plot the score of each candidate number of clusters, as in `history_[t].scores`; `chosen` is circled.

    Of a fitted model or its `history_`, the scores of the last step and its number of clusters are used.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> from affect_xp.plots import plot_scores_by_k
    >>> plot_scores_by_k({2: 0.4, 3: 0.7, 4: 0.5}, chosen=3).get_xlabel()
    'number of clusters k'
    """
    if isinstance(scores, History) or hasattr(scores, "history_"):
        record = history_of(scores)[-1]
        scores, chosen = record.scores or {}, record.k if chosen is None else chosen
    scores = dict(scores)  # also of a Series
    if not scores:
        raise InputError("scores is empty: the number of clusters was given; use a rule such as 'silhouette'")
    ax = axes_or_new(ax)
    tried = sorted(scores)
    ax.plot(tried, [scores[k] for k in tried], "o-", color=CLUSTER_COLOURS[0])
    if chosen is not None:
        ax.plot([chosen], [scores[chosen]], "o", markersize=14, markerfacecolor="none", color="#D55E00")
    ax.set(xlabel="number of clusters k", ylabel="score")
    ax.xaxis.get_major_locator().set_params(integer=True)
    return plain(ax)
