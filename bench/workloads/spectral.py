"""Evolving spectral clustering with warm starts, compared with cold starts at each step."""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh, lobpcg
from scipy.spatial.distance import cdist

import affect_xp as ax

from .._data import communities, drifting
from .._measure import over
from .._report import Goal, Row
from .._suite import Case, Measured, Setting, Workload

DENSE = Goal(must=8, aim=15, at_least=True)
NO_WORSE = Goal(must=1, at_least=True)
LOBPCG = Goal(must=1.4, aim=2, at_least=True)
SAME = Goal(must=0.99, at_least=True)

Maker = Callable[[], Callable[[Any], object]]

K = 12
DEFAULT = "default"
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "3 iterations": {"alpha_tol": 0.0},
}


@dataclasses.dataclass(frozen=True)
class Graphs:
    """Sparse graphs: the number of communities, the share of edges within them, and the goals."""

    k: int
    within: float
    eigsh: Goal
    same: Goal | None


SPARSE = {
    "k = 12": Graphs(12, 0.7, Goal(must=1.6, aim=3, at_least=True), SAME),
    "k = 50": Graphs(50, 0.7, Goal(must=1.6, aim=3, at_least=True), SAME),
    "no gap": Graphs(12, 0.28, Goal(must=2, aim=3, at_least=True), None),
}


def dense(setting: Setting) -> Case:
    """Normalised cut of RBF similarities, relative to a loop of scikit-learn's SpectralClustering."""
    from sklearn.cluster import SpectralClustering

    n, n_steps = setting.rows_at(full=(5_000, 5), quick=(1_500, 3), tiny=(60, 2))
    steps = list(drifting(n, n_steps, K, p=2, spread=4.0, drift=0.2))
    host = [np.exp(-0.5 * cdist(x, x, "sqeuclidean")) for x, _ in steps]
    labels = [labels for _, labels in steps]
    matrices = [setting.device.array(w) for w in host]
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
    """Return the goal of a variant; only the default has one."""
    return goal if name == DEFAULT else None


def _mean_rand(found: list[np.ndarray], labels: list[np.ndarray]) -> float:
    return float(np.mean([ax.rand_index(a, b) for a, b in zip(found, labels, strict=True)]))


def sparse(name: str, setting: Setting) -> Case:
    """Normalised cut of a sparse graph: whole warm steps relative to one eigenvalue problem on the blend.

    SciPy's eigsh starts from a random vector, its LOBPCG from the exact vectors of the previous step.
    """
    n, n_edges, n_steps = setting.rows_at(
        full=(200_000, 2_000_000, 3), quick=(10_000, 100_000, 3), tiny=(400, 4_000, 2)
    )
    graphs = SPARSE[name]
    k, host = graphs.k, [w for w, _ in communities(n, n_edges, n_steps, graphs.k, within=graphs.within)]
    matrices = [setting.device.sparse(w) for w in host]
    start = np.random.default_rng(0).normal(size=n)  # the same in every round
    blends, found = _blends(host, k)

    def cold(step: int) -> object:
        return eigsh(blends[step], k, which="LA", v0=start) if step else None  # warm steps are compared

    exact = [eigsh(w, k, which="LA", v0=start)[1] for w in blends]
    labels = ax.kmeans(ax.Factored.from_features(_unit_rows(exact[-1])), k, rng=0).labels

    def warm(step: int) -> object:
        with warnings.catch_warnings():  # small problems, and problems that did not converge
            warnings.simplefilter("ignore")
            return lobpcg(blends[step], exact[step - 1], tol=1e-3, maxiter=100) if step else None

    def rows(measured: Measured) -> Iterator[Row]:
        what = f"evolving spectral, sparse, {name}, {n:,} nodes, {n_edges:,} edges, warm step"
        seconds = {peer: float(measured.seconds[peer][1:].sum()) for peer in measured.seconds}
        for peer, goal in (("eigsh, cold", graphs.eigsh), ("LOBPCG, warm, 1e-3", LOBPCG)):
            yield Row(f"{what}: times faster", f"SciPy {peer}", seconds[peer] / seconds["ours"], goal)
        agreement = float(ax.adjusted_rand_index(found, labels))
        yield Row(f"{what}: adjusted Rand index", "labels of exact eigenvectors", agreement, graphs.same)

    return Case(
        ours={"ours": over(matrices, lambda: ax.Affect(ax.Spectral(k), random_state=0).partial_fit)},
        peers={
            "eigsh, cold": over(range(n_steps), lambda: cold),
            "LOBPCG, warm, 1e-3": over(range(n_steps), lambda: warm),
        },
        rows=rows,
    )


def _blends(steps: list[scipy.sparse.csr_array], k: int) -> tuple[list[scipy.sparse.csr_array], np.ndarray]:
    """Return the normalised blend of each step, and the labels of the last."""
    model = ax.Affect(ax.Spectral(k), random_state=0)
    return [normalised(model.partial_fit(w).smoothed_.matrix) for w in steps], model.labels_


def _unit_rows(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)


def normalised(w: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return D^{-1/2} W D^{-1/2}."""
    d = w.sum(axis=1)
    scale = scipy.sparse.diags_array(1 / np.sqrt(np.where(d > 0, d, 1.0)))
    return (scale @ w @ scale).tocsr()


WORKLOADS = (
    Workload("spectral-dense", dense, needs=("sklearn",)),
    Workload("spectral-sparse", functools.partial(sparse, "k = 12")),
    Workload("spectral-sparse-50", functools.partial(sparse, "k = 50")),
    Workload("spectral-sparse-no-gap", functools.partial(sparse, "no gap")),
)
