"""Figures of one step: proximities, dendrogram, eigenvalues, and scores by number of clusters."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from affect_xp.array.namespace import array_namespace, as_array, device_of, from_host, to_host, wide_dtype
from affect_xp.array.typing import Array
from affect_xp.clustering.linkage import Dendrogram
from affect_xp.exceptions import InputError
from affect_xp.plots._style import axes_or_new, plain
from affect_xp.plots.flows import CLUSTER_COLOURS
from affect_xp.proximity import Proximity, as_proximity

MAX_DRAWN = 1000  # objects: a figure has no more pixels


def plot_proximity(W: Array | Proximity, labels: Array, *, ax: Any = None, title: str = "") -> Any:
    """Plot proximities with objects ordered by cluster, and lines between clusters.

    If there are more than 1000 objects, 1000 evenly spaced ones are drawn.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> step = next(ax.datasets.colliding_gaussians(rng=0))
    >>> ax.plots.plot_proximity(step.W, step.labels, title="at first").get_title()
    'at first'
    """
    proximity = as_proximity(W)
    assigned = to_host(as_array(labels), reason="labels for a figure")[0]
    if assigned.shape != (proximity.n,):
        raise InputError(
            f"labels has shape {assigned.shape}, but W has {proximity.n} objects; pass one per object"
        )
    order = np.argsort(assigned, kind="stable")
    if len(order) > MAX_DRAWN:
        order = order[np.arange(MAX_DRAWN) * len(order) // MAX_DRAWN]
    ax = axes_or_new(ax, (4, 3.4))
    image = ax.imshow(_entries(proximity, order), cmap="viridis", interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    for border in np.flatnonzero(np.diff(assigned[order])) + 0.5:
        ax.axhline(border, color="white", linewidth=0.8)
        ax.axvline(border, color="white", linewidth=0.8)
    ax.set(title=title, xticks=[], yticks=[], xlabel="objects, by cluster")
    return ax


def plot_smoothing(W: Array | Proximity, smoothed: Array | Proximity, labels: Array) -> Any:
    """Plot observed and smoothed proximities by cluster, on the same scale; return both Axes.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.colliding_gaussians(rng=0))
    >>> model = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    >>> panels = ax.plots.plot_smoothing(steps[-1].W, model.smoothed_, model.labels_)
    >>> [panel.get_title() for panel in panels]
    ['observed W', 'smoothed Ψ']
    """
    figure = axes_or_new(None, (8, 3.4)).figure
    figure.clear()
    panels = figure.subplots(1, 2)
    plot_proximity(W, labels, ax=panels[0], title="observed W")
    plot_proximity(smoothed, labels, ax=panels[1], title="smoothed Ψ")
    images = [panel.images[0] for panel in panels]
    low, high = zip(*(image.get_clim() for image in images), strict=True)
    for image in images:
        image.set_clim(min(low), max(high))
    return panels


def _entries(proximity: Proximity, order: np.ndarray) -> np.ndarray:
    """Return the proximities of the given objects, in this order, as a NumPy array."""
    index = from_host(order, proximity.like)
    few = proximity.take(index)
    xp = array_namespace(few.like)
    unit = xp.eye(few.n, dtype=wide_dtype(few.like), device=device_of(few.like))
    return to_host(few.matmul(unit), reason="proximities for a figure")[0]


def plot_dendrogram(
    tree: Dendrogram, *, n_clusters: int | None = None, ax: Any = None, max_leaves: int = 60
) -> Any:
    """Plot a dendrogram; with `n_clusters`, also the height of the cut.

    If there are more than `max_leaves` objects, only the last merges are drawn: the leaves are then clusters,
    with their sizes in brackets.

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

    ax = axes_or_new(ax)
    if tree.n > 1:
        hierarchy.dendrogram(
            tree.merges,
            ax=ax,
            p=max_leaves,
            truncate_mode="lastp" if tree.n > max_leaves else None,
            color_threshold=0,
            above_threshold_color=CLUSTER_COLOURS[0],
        )
    if n_clusters is not None and 1 < n_clusters <= tree.n:
        heights = np.concatenate([[0.0], tree.heights])
        cut = (heights[tree.n - n_clusters] + heights[tree.n - n_clusters + 1]) / 2
        ax.axhline(cut, color="#D55E00", linestyle="--", linewidth=1, label=f"{n_clusters} clusters")
        ax.legend(frameon=False)
    ax.set(ylabel=f"height ({tree.method} linkage)", xlabel="objects")
    return plain(ax)


def plot_eigenvalues(values: Array, *, n_clusters: int | None = None, ax: Any = None) -> Any:
    """Plot eigenvalues by rank; with `n_clusters`, a line after the first `n_clusters`.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> import affect_xp as ax
    >>> step = next(ax.datasets.colliding_gaussians(rng=0))
    >>> found = ax.spectral(ax.as_proximity(step.W), 3, objective="average_association", rng=0)
    >>> ax.plots.plot_eigenvalues(found.values, n_clusters=2).get_ylabel()
    'eigenvalue'
    """
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


def plot_scores_by_k(scores: Mapping[int, float], *, chosen: int | None = None, ax: Any = None) -> Any:
    """Plot the score of each candidate number of clusters, as in `history_[t].scores`; `chosen` is circled.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> from affect_xp.plots import plot_scores_by_k
    >>> plot_scores_by_k({2: 0.4, 3: 0.7, 4: 0.5}, chosen=3).get_xlabel()
    'number of clusters k'
    """
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
