"""Figures of runs with matplotlib; each function returns its Axes."""

from affect_xp.plots._style import COLOURS, DASHES, legend_beside, style
from affect_xp.plots.flows import CLUSTER_COLOURS, Flow, flow
from affect_xp.plots.one_step import (
    plot_dendrogram,
    plot_eigenvalues,
    plot_proximity,
    plot_scores_by_k,
    plot_smoothing,
)
from affect_xp.plots.over_time import plot_alpha, plot_flow, plot_memberships, plot_run, plot_scores

__all__ = [
    "CLUSTER_COLOURS",
    "COLOURS",
    "DASHES",
    "Flow",
    "flow",
    "legend_beside",
    "plot_alpha",
    "plot_dendrogram",
    "plot_eigenvalues",
    "plot_flow",
    "plot_memberships",
    "plot_proximity",
    "plot_run",
    "plot_scores",
    "plot_scores_by_k",
    "plot_smoothing",
    "style",
]
