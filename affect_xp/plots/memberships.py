"""The clusters of each object over time, as a matrix with similar objects in adjacent rows."""

import dataclasses
from collections import Counter
from collections.abc import Hashable

import numpy as np

from affect_xp.checks import check_int
from affect_xp.partition import Ids
from affect_xp.plots.flows import Flow, host_labels
from affect_xp.tracking.history import History

ABSENT = -2  # the object is absent at the step; -1 means present, but in no cluster


@dataclasses.dataclass(frozen=True, eq=False)
class Memberships:
    """Objects × steps."""

    ids: list[Hashable]  # the objects shown
    labels: np.ndarray  # the cluster of each object at each step, `ABSENT` if it is absent, (len(ids), T)
    n_objects: int  # in the history


def memberships(history: History, found: Flow, max_objects: int = 2000) -> Memberships:
    """Return the clusters of at most `max_objects` evenly spaced objects at each step.

    Objects are sorted by the cluster they are in most often, then by their clusters from step to step.
    `found` is the flow of the history, which gives the order of clusters.
    """
    check_int("max_objects", max_objects, 1)
    everyone = list(dict.fromkeys(name for ids in _distinct(history) for name in ids))
    chosen = _evenly(everyone, max_objects)
    labels = np.full((len(chosen), len(history)), ABSENT, dtype=np.int64)
    row_of = {name: row for row, name in enumerate(chosen)}
    ids: Ids | None = None
    for t, record in enumerate(history):
        if record.ids != ids:
            ids = record.ids
            there = [(row_of[name], place) for place, name in enumerate(ids) if name in row_of]
            rows, places = np.array(there, dtype=np.int64).reshape(-1, 2).T
        labels[rows, t] = host_labels(record)[places]
    sort = _sorting(labels, found)
    return Memberships([chosen[i] for i in sort], labels[sort], len(everyone))


def _distinct(history: History) -> list[Ids]:
    """Return the ids of the steps at which they changed."""
    kept: list[Ids] = []
    for record in history:
        if not kept or record.ids != kept[-1]:
            kept.append(record.ids)
    return kept


def _evenly(names: list[Hashable], most: int) -> list[Hashable]:
    if len(names) <= most:
        return names
    return [names[i * len(names) // most] for i in range(most)]


def _sorting(labels: np.ndarray, found: Flow) -> list[int]:
    """Return the order of the rows that places objects with the same clusters next to each other."""
    place = {name: i for i, name in enumerate(found.order)} | {
        -1: len(found.order),
        ABSENT: len(found.order) + 1,
    }
    by_place = [[place[label] for label in row] for row in labels.tolist()]
    home = [_most_frequent(row, len(found.order)) for row in by_place]
    return sorted(range(len(by_place)), key=lambda i: (home[i], by_place[i]))


def _most_frequent(row: list[int], n_clusters: int) -> int:
    """Return the most frequent cluster of each row; no cluster only if there is none."""
    times = Counter(row)
    return min(times, key=lambda p: (p >= n_clusters, -times[p], p))
