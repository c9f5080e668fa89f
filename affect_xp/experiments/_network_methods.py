"""The methods compared on contact networks: ours and alternatives."""

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from affect_xp.clustering.spectral import Spectral
from affect_xp.experiments._models import affect, static
from affect_xp.models.base import Evolving
from affect_xp.models.pcm import PCM
from affect_xp.models.pcq import PCQ
from affect_xp.models.smooth import smooth

WINDOW = 5  # steps of the shorter running mean
TRIES = 6  # number of resolutions tried until Leiden finds about k groups

STATIC, PAPER = "static", "AFFECT as in the paper"
CAUSAL, HINDSIGHT = "past", "all steps"  # the steps that a method uses


Steps = Sequence[Any]  # each with W, ids, and the true labels
Labels = Sequence[np.ndarray]  # by step
Find = Callable[[Steps, int, int], Labels]  # of steps, k and a seed


@dataclasses.dataclass(frozen=True)
class Method:
    """The function of a method, and the steps that it uses."""

    find: Find
    sees: str = CAUSAL
    needs: str = ""  # an optional package


def _evolving(make: Callable[..., Evolving], **options: Any) -> Method:
    """Return a method of this library, with normalised cut."""

    def find(steps: Steps, k: int, seed: int) -> Labels:
        model = make(_cut(steps, k), random_state=seed, **options)
        return model.fit([step.W for step in steps], ids=[step.ids for step in steps]).history_.labels

    return Method(find)


def _cut(steps: Steps, k: int) -> Spectral:
    return Spectral([min(k, len(step.ids)) for step in steps], solver="full")


def _running_mean(window: int | None = None) -> Method:
    """Return static clustering of the mean of the last steps, or of all steps so far."""

    def find(steps: Steps, k: int, seed: int) -> Labels:
        model = static(_cut(steps, k), warm_start=False, random_state=seed)
        return model.fit(running_means(steps, window), ids=[step.ids for step in steps]).history_.labels

    return Method(find)


def running_means(steps: Steps, window: int | None) -> list[np.ndarray]:
    """Return the running mean of W; for two people over the steps at which both were present."""
    place = {name: i for i, name in enumerate(dict.fromkeys(name for step in steps for name in step.ids))}
    pairs = [np.ix_(at, at) for at in ([place[name] for name in step.ids] for step in steps)]
    means = []
    for t, here in enumerate(pairs):
        total, number = np.zeros((2, len(place), len(place)))
        for s in range(0 if window is None else max(0, t + 1 - window), t + 1):
            total[pairs[s]] += steps[s].W
            number[pairs[s]] += 1
        means.append(total[here] / number[here])
    return means


def _of_logarithms(method: Method) -> Method:
    """Return the method on ln(1 + W), which may also improve alternatives."""

    def find(steps: Steps, k: int, seed: int) -> Labels:
        return method.find([dataclasses.replace(step, W=np.log1p(step.W)) for step in steps], k, seed)

    return dataclasses.replace(method, find=find)


def _leiden(coupling: float, *, match_k: bool = False) -> Method:
    """Return the Leiden partition of all steps, with resolution 1 or one that gives about k groups."""

    def find(steps: Steps, k: int, seed: int) -> Labels:
        optimise = functools.partial(_temporal_partition, _graphs(steps), coupling, seed)
        return _matched(optimise, k) if match_k else optimise(1.0)

    return Method(find, HINDSIGHT, needs="leidenalg")


def _graphs(steps: Steps) -> list[Any]:
    igraph = importlib.import_module("igraph")
    graphs = []
    for step in steps:
        i, j = np.nonzero(np.triu(step.W, 1))
        graph = igraph.Graph(n=len(step.ids), edges=np.stack([i, j], axis=1).tolist())
        graph.vs["id"] = list(step.ids)
        graph.es["weight"] = step.W[i, j].tolist()
        graphs.append(graph)
    return graphs


def leiden_per_step(steps: Steps, seed: int) -> Labels:
    """Return the Leiden partition of each step alone, with resolution 1."""
    leidenalg = importlib.import_module("leidenalg")
    kind = leidenalg.RBConfigurationVertexPartition
    found = [leidenalg.find_partition(g, kind, weights="weight", seed=seed % 2**31) for g in _graphs(steps)]
    return [np.array(partition.membership) for partition in found]


def _temporal_partition(graphs: Sequence[Any], coupling: float, seed: int, resolution: float) -> Labels:
    leidenalg = importlib.import_module("leidenalg")
    memberships, _ = leidenalg.find_partition_temporal(
        graphs,
        leidenalg.RBConfigurationVertexPartition,  # modularity, with a resolution
        interslice_weight=coupling,
        resolution_parameter=resolution,
        seed=seed % 2**31,
    )
    return [np.array(membership) for membership in memberships]


def _matched(optimise: Callable[[float], Labels], k: int) -> Labels:
    """Return the labels whose mean number of groups per step is closest to k, by bisection."""
    low, high = 0.0, np.inf
    resolution, found = 1.0, []
    for _ in range(TRIES):
        labels = optimise(resolution)
        excess = float(np.mean([len(np.unique(own)) for own in labels])) - k
        found.append((abs(excess), labels))
        if abs(excess) < 0.5:
            break
        low, high = (low, resolution) if excess > 0 else (resolution, high)
        resolution = (low + high) / 2 if np.isfinite(high) else 2 * low
    return min(found, key=lambda pair: pair[0])[1]


def _smoothed(**options: Any) -> Method:
    """Return the two-sided estimate, with normalised cut."""

    def find(steps: Steps, k: int, seed: int) -> Labels:
        given, ids = [step.W for step in steps], [step.ids for step in steps]
        return smooth(
            given, _cut(steps, k), ids=ids, random_state=seed, **{"rescale": None, **options}
        ).history_.labels

    return Method(find, HINDSIGHT)


METHODS: dict[str, Method] = {
    STATIC: _evolving(static, warm_start=False),
    PAPER: _evolving(affect, init="static"),
    "AFFECT, defaults": _evolving(affect),
    "AFFECT, keep": _evolving(affect, absent="keep"),
    "AFFECT, log1p": _evolving(affect, rescale="log1p"),
    "AFFECT, log1p and keep": _evolving(affect, absent="keep", rescale="log1p"),
    "AFFECT, two-sided": _smoothed(),
    "AFFECT, two-sided, log1p and keep": _smoothed(absent="keep", rescale="log1p"),
    "α = 0.5": _evolving(affect, alpha=0.5),
    "α = 0.75": _evolving(affect, alpha=0.75),
    f"mean of the last {WINDOW}": _running_mean(WINDOW),
    "mean of all so far": _running_mean(),
    "PCQ, α = 0.25": _evolving(PCQ, alpha=0.25),
    "PCQ, α = 0.5": _evolving(PCQ, alpha=0.5),
    "PCM, α = 0.25": _evolving(PCM, alpha=0.25),
    "PCM, α = 0.5": _evolving(PCM, alpha=0.5),
    "Leiden, coupling 0.01": _leiden(0.01),
    "Leiden, coupling 0.1": _leiden(0.1),
    "Leiden, coupling 1": _leiden(1.0),
    "Leiden, coupling 10": _leiden(10.0),
    "Leiden, coupling 1, about k groups": _leiden(1.0, match_k=True),
    "Leiden, coupling 10, about k groups": _leiden(10.0, match_k=True),
}
METHODS |= {
    f"{name}, log1p": _of_logarithms(METHODS[name])
    for name in (STATIC, "mean of all so far", "PCM, α = 0.5", "Leiden, coupling 1, about k groups")
}
