"""Scores of a model: its clusters against the next step, and against known labels."""

import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any

from affect_xp.array.typing import Array
from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.n_clusters import silhouette
from affect_xp.exceptions import InputError
from affect_xp.partition import Ids, Partition, align
from affect_xp.proximity import Proximity


def silhouette_ahead(
    partition: Partition, past_ids: Ids, W: Proximity, ids: Ids, *, kind: str
) -> Array | None:
    """Return the mean silhouette on W of the previous clusters; None if there are no common objects.

    New objects belong to no cluster and are ignored.

    Parameters
    ----------
    partition : Partition
        The clusters of the previous step.
    past_ids : sequence of hashables
        The objects of the previous step.
    W : Proximity
        The current observation.
    ids : sequence of hashables
        The current objects.
    kind : "dissimilarity" or "similarity"
        The kind of W.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.partition import as_partition
    >>> from affect_xp.models.scoring import silhouette_ahead
    >>> W = ax.Dense(np.kron(np.eye(2), np.ones((2, 2))))
    >>> before = as_partition(np.array([0, 0, 1, 1]), 4, W.like)
    >>> float(silhouette_ahead(before, range(4), W, range(4), kind="similarity"))
    1.0
    """
    alignment = align(ids, past_ids, W.like)
    if alignment.n_common == 0:
        return None
    start = partition.take(alignment.source, alignment.n_new)
    return silhouette(W, dataclasses.replace(start), kind=kind)  # a copy: no caching in `start`


def agreements(model: Any, steps: Iterator[tuple[Any, Any, Hashable]], truth: Iterator[Any]) -> list[float]:
    """Take steps (W, ids, time), and return the adjusted Rand index of each step with the true labels."""
    scores = []
    for t, (W, ids, time) in enumerate(steps):
        labels = next(truth, None)
        if labels is None:
            raise InputError(f"y has {t} entries, but sequence has more; pass labels for each step")
        scores.append(adjusted_rand_index(model.partial_fit(W, ids, time=time).labels_, labels))
    return scores
