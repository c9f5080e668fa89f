"""How well a model follows: its clusters against the next step, and against known labels."""

import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any

from affect_xp.alignment import Ids, align
from affect_xp.array.typing import Array
from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.n_clusters import silhouette
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition
from affect_xp.proximity import Proximity


def silhouette_ahead(
    partition: Partition, past_ids: Ids, W: Proximity, ids: Ids, *, kind: str
) -> Array | None:
    """Return the mean silhouette on W of clusters found before W was seen; None if no object was there.

    Objects that are new belong to no cluster, and take no part.

    Parameters
    ----------
    partition : Partition
        The clusters of the step before.
    past_ids : sequence of hashables
        The objects of the step before.
    W : Proximity
        What is observed now.
    ids : sequence of hashables
        The objects of now.
    kind : "dissimilarity" or "similarity"
        What W holds.

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
    return silhouette(W, dataclasses.replace(start), kind=kind)  # what it computes is not for the caller


def agreements(model: Any, steps: Iterator[tuple[Any, Any, Hashable]], truth: Iterator[Any]) -> list[float]:
    """Take steps (W, ids, time), and return for each the adjusted Rand index of its clusters and labels."""
    scores = []
    for t, (W, ids, time) in enumerate(steps):
        labels = next(truth, None)
        if labels is None:
            raise InputError(f"y has {t} entries, but sequence has more; give labels for each step")
        scores.append(adjusted_rand_index(model.partial_fit(W, ids, time=time).labels_, labels))
    return scores
