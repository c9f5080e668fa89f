"""What is observed at each step, as the few numbers that the page shows of it."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from affect_xp.array.namespace import on_input_device, to_host
from affect_xp.clustering.base import as_clusterer
from affect_xp.clustering.n_clusters import modularity, silhouette
from affect_xp.clustering.profiles import (
    ClusterDensities,
    ClusterProfiles,
    cluster_densities,
    cluster_profiles,
    named_partition,
)
from affect_xp.clustering.spectral import Spectral
from affect_xp.exceptions import InputError
from affect_xp.models.base import Evolving
from affect_xp.models.inputs import columns_of, dot_products, read_if_table, zip_steps
from affect_xp.proximity import Proximity, as_proximity
from affect_xp.tracking.history import History, Record

MAX_CENTRAL = 5  # members


@dataclasses.dataclass(frozen=True, eq=False)
class DescribedStep:
    """A step without its proximities or features."""

    clusters: ClusterProfiles | ClusterDensities
    cohesion: float | None  # None if it is not known whether the proximities are similarities
    measure: str  # of cohesion: "modularity" for graphs, otherwise the mean "silhouette"


@on_input_device
def describe_step(
    model: Evolving,
    record: Record,
    given: Any,
    *,
    feature_names: Sequence[str] | None = None,
    of_series: bool = False,
) -> DescribedStep:
    """Describe the clusters of a step by what the model was given.

    Features are described as given, and their cohesion is that of the features as the model scales them.
    The values of a series (`of_series`), whose columns differ from step to step, are described by their dot
    products.
    """
    values, _ = model._read(given, record.ids)
    of_features = not (model._takes_proximities or isinstance(values, Proximity))
    W = dot_products(model.preparation_.apply(values)) if of_features else as_proximity(values)
    if W.n != record.n:
        raise InputError(
            f"steps has {W.n} objects at time {record.time}, but the model was given {record.n}; pass the "
            "steps that were passed to fit"
        )
    kind = "similarity" if of_features else model._kind()
    clusters: ClusterProfiles | ClusterDensities
    if of_features and not of_series:
        clusters = cluster_profiles(values, record.labels, feature_names or columns_of(given))
    else:
        clusters = cluster_densities(
            W, record.labels, record.ids, kind=kind or "similarity", n_central=MAX_CENTRAL
        )
    is_graph = not of_features and isinstance(as_clusterer(model.clusterer), Spectral)
    return DescribedStep(clusters, _cohesion(W, record, kind, is_graph), MEASURES[is_graph])


MEASURES = ("silhouette", "modularity")


def _cohesion(W: Proximity, record: Record, kind: str | None, is_graph: bool) -> float | None:
    if kind is None:
        return None
    partition = named_partition(record.labels, W.like, W.n)[1]
    score = modularity(W, partition) if is_graph else silhouette(W, partition, kind=kind)
    value = float(to_host(score, reason="cohesion of a step")[0])
    return value if math.isfinite(value) else None


def describe_steps(
    source: Any, history: History, steps: Iterable[Any], feature_names: Sequence[str] | None = None
) -> list[DescribedStep]:
    """Describe all steps of a run; steps that are described already stay as they are."""
    if isinstance(steps, list) and all(isinstance(step, DescribedStep) for step in steps):
        described = steps
    else:
        model = getattr(source, "causal", source)  # of `smooth`
        if not isinstance(model, Evolving):
            raise InputError("steps need the model that they were passed to; pass it instead of its history")
        steps = read_if_table(steps)
        names = (getattr(steps, "names", None) or None) if feature_names is None else list(feature_names)
        of_series = getattr(steps, "of_series", False)
        given = zip_steps(model._steps_of(steps), None)
        described = [
            describe_step(model, record, values, feature_names=names, of_series=of_series)
            for record, (values, _, _) in zip(history, given, strict=False)
        ]
        described += [None for _ in given]  # steps that are too many
    if len(described) != len(history):
        raise InputError(
            f"steps has {len(described)} entries, but the run has {len(history)} steps; pass the steps that "
            "were passed to fit"
        )
    return described
