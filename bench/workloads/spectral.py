"""Evolving spectral clustering, warm from step to step, against what starts cold at each of them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

import affect_xp as ax

from .._data import communities, drifting
from .._measure import over
from .._report import Goal, Row
from .._suite import Case, Measured, Setting, Workload

DENSE = Goal(must=5, aim=10, at_least=True)
NO_WORSE = Goal(must=1, at_least=True)
SPARSE = Goal(must=2, aim=4, at_least=True)

Maker = Callable[[], Callable[[Any], object]]

K = 12
DEFAULT = "3 iterations"
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "1 iteration, init previous": {"n_iter": 1, "init": "previous"},
}


def dense(setting: Setting) -> Case:
    """Normalised cut of RBF similarities, against a loop of scikit-learn's SpectralClustering."""
    from sklearn.cluster import SpectralClustering

    n, n_steps = setting.rows_at(full=(5_000, 5), quick=(1_500, 3), tiny=(60, 2))
    steps = list(drifting(n, n_steps, K, p=2, spread=4.0, drift=0.2))
    host = [np.exp(-0.5 * cdist(x, x, "sqeuclidean")) for x, _ in steps]
    labels = [labels for _, labels in steps]
    matrices = [ax.Dense(setting.device.array(w)) for w in host]
    models: dict[str, ax.Affect] = {}
    found: list[np.ndarray] = []

    def fit(name: str) -> Maker:
        def make() -> Callable[[Any], object]:
            models[name] = ax.Affect(ax.Spectral(K), random_state=0, **VARIANTS[name])
            return models[name].partial_fit

        return make

    def rival() -> Callable[[np.ndarray], object]:
        found.clear()
        peer = SpectralClustering(K, affinity="precomputed", random_state=0)
        return lambda w: found.append(peer.fit(w).labels_)

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scikit-learn SpectralClustering, {n_steps} steps"
        theirs = _mean_rand(found, labels)
        for name in VARIANTS:
            what = f"evolving spectral, {name}, dense, n = {n:,}"
            yield Row(f"{what}: times faster", against, measured.ratio("loop", name), _goal(DENSE, name))
            ours = _mean_rand([setting.device.to_host(c) for c in models[name].history_.labels], labels)
            note = f"Rand index {ours:.4f} against {theirs:.4f}"
            yield Row(f"{what}: Rand index", against, ours / theirs, _goal(NO_WORSE, name), note)

    return Case(
        ours={name: over(matrices, fit(name)) for name in VARIANTS},
        peers={"loop": over(host, rival)},
        rows=rows,
    )


def _goal(goal: Goal, name: str) -> Goal | None:
    """Return the goal of a variant: only the default has one."""
    return goal if name == DEFAULT else None


def _mean_rand(found: list[np.ndarray], labels: list[np.ndarray]) -> float:
    return float(np.mean([ax.rand_index(a, b) for a, b in zip(found, labels, strict=True)]))


def sparse(setting: Setting) -> Case:
    """Normalised cut of a sparse graph, against SciPy's eigsh from a random start at each step."""
    n, n_edges, n_steps = setting.rows_at(
        full=(200_000, 2_000_000, 4), quick=(10_000, 100_000, 3), tiny=(200, 2_000, 2)
    )
    host = [w for w, _ in communities(n, n_edges, n_steps, K)]
    matrices = [setting.device.sparse(w) for w in host]
    normalised = [_normalised(w) for w in host]
    start = np.random.default_rng(0).normal(size=n)  # the same in every round

    def fit(name: str) -> Maker:
        return lambda: ax.Affect(ax.Spectral(K), random_state=0, **VARIANTS[name]).partial_fit

    def rows(measured: Measured) -> Iterator[Row]:
        against = f"scipy eigsh, cold, {n_steps} steps"
        for name in VARIANTS:
            what = f"evolving spectral, {name}, sparse, {n:,} nodes, {n_edges:,} edges: times faster"
            yield Row(what, against, measured.ratio("eigsh", name), _goal(SPARSE, name))

    return Case(
        ours={name: over(matrices, fit(name)) for name in VARIANTS},
        peers={"eigsh": over(normalised, lambda: lambda w: eigsh(w, K, which="LA", v0=start))},
        rows=rows,
    )


def _normalised(w: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return D^{-1/2} W D^{-1/2}."""
    scale = scipy.sparse.diags_array(1 / np.sqrt(w.sum(axis=1)))
    return (scale @ w @ scale).tocsr()


WORKLOADS = (Workload("spectral-dense", dense, needs=("sklearn",)), Workload("spectral-sparse", sparse))
