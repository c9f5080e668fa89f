"""Hierarchical clustering compared with compiled libraries."""

import functools
import importlib.util
from collections.abc import Iterator

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

import affect_xp as ax

from .._data import drifting
from .._measure import Action, once
from .._report import Goal, Row
from .._suite import Case, Measured, Setting, Workload

LINKAGE = Goal(must=1.15, aim=1.05)
METHODS = ("single", "complete", "average", "ward")


def linkage(setting: Setting) -> Case:
    """Each linkage of a square array, relative to the faster of SciPy and fastcluster on a condensed one."""
    n = setting.rows_at(full=5_000, quick=2_000, tiny=60)
    x, _ = next(drifting(n, 1))
    condensed = pdist(x)
    given = setting.device.array(squareform(condensed))
    peers = {"SciPy": hierarchy.linkage}
    if importlib.util.find_spec("fastcluster") is not None:
        import fastcluster

        peers["fastcluster"] = fastcluster.linkage

    def rows(measured: Measured) -> Iterator[Row]:
        for method in METHODS:
            by_peer = {name: measured.ratio(method, f"{name}, {method}") for name in peers}
            best = max(by_peer, key=by_peer.__getitem__)
            against = f"{best}, the faster of {' and '.join(peers)}" if len(peers) > 1 else best
            note = "" if len(peers) > 1 else "fastcluster is not installed"
            yield Row(f"{method} linkage, n = {n:,}", against, by_peer[best], LINKAGE, note)

    return Case(
        ours={method: once(functools.partial(ax.linkage, given, method)) for method in METHODS},
        peers={
            f"{name}, {method}": _peer(peers[name], condensed, method) for name in peers for method in METHODS
        },
        rows=rows,
    )


def _peer(function: object, condensed: np.ndarray, method: str) -> Action:
    return once(lambda: function(condensed, method))  # type: ignore[operator]


WORKLOADS = (Workload("linkage", linkage),)
