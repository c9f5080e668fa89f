"""k-means for several numbers of clusters, as one batch of Lloyd iterations."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from affect_xp.array.namespace import array_namespace, from_host
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Call
from affect_xp.clustering.lloyd import Batch, Start, best_of, iterated
from affect_xp.partition import Partition, labels_by_number
from affect_xp.proximity import Proximity

# Runs for several numbers of clusters share a batch of at most so many columns.
MAX_COLUMNS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Scan:
    """Starts of k-means for several numbers of clusters, which run as one batch of Lloyd iterations."""

    numbers: list[int]  # the number of clusters of each run
    labels: Array  # (n, runs)
    complete: list[bool]  # whether a run labels all objects

    @staticmethod
    def of(call: Call, ks: range) -> "Scan | None":
        """Return the previous labels for each number, else the largest of the previous clusters, if any."""
        start, memory = call.start, call.memory
        if start is None:
            return None
        known = start.n_outside == 0
        if memory is not None and ks == range(2, 2 + memory.shape[1]) and _is_integral(memory):
            return Scan(list(ks), memory - 1, [known] * len(ks))
        return Scan(list(ks), labels_by_number(start, ks), [known and start.k == k for k in ks])

    @staticmethod
    def remembered(labels: Sequence[Array], ks: range) -> Array | None:
        """Return labels as memory for the next step, (n, R); 0 is for objects without a label.

        Column j belongs to j + 2 clusters. The one cluster of a single object is not remembered.
        """
        return array_namespace(labels[0]).stack(labels, axis=1) + 1 if ks[0] == 2 else None

    def start(self, r: int) -> Partition:
        """Return the start of one run."""
        return Partition(self.labels[:, r], self.numbers[r], 0 if self.complete[r] else None)

    def groups(self) -> "Iterator[Scan]":
        """Yield the runs in groups whose memberships have few columns together."""
        begin = 0
        for end, k in enumerate([*self.numbers[1:], math.inf], start=1):
            if (end + 1 - begin) * k > MAX_COLUMNS:
                some = slice(begin, end)
                yield Scan(self.numbers[some], self.labels[:, some], self.complete[some])
                begin = end

    def competing(self, fresh: Mapping[int, np.ndarray]) -> "Scan":
        """Add new starts for some numbers of clusters, labels (n,) on the host."""
        if not fresh:
            return self
        more = from_host(np.stack(list(fresh.values()), axis=1), self.labels)
        labels = array_namespace(more).concat([self.labels, more], axis=1)
        complete = [known and k not in fresh for k, known in zip(self.numbers, self.complete, strict=True)]
        return Scan([*self.numbers, *fresh], labels, complete + [False] * len(fresh))

    def best(self, W: Proximity, max_iter: int, tol: float, margin: float) -> dict[int, Start]:
        """Run all starts; return the best run of each number of clusters. See `best_of` for the margin."""
        batch = Batch.start(W.grouped(self.labels, max(self.numbers)), np.asarray(self.numbers))
        by_number: dict[int, list[Start]] = {}
        runs = iterated(batch, [Start(complete) for complete in self.complete], max_iter, tol)
        for k, run in zip(self.numbers, runs, strict=True):
            by_number.setdefault(k, []).append(run)
        return {k: best_of(some, margin) for k, some in by_number.items()}


def _is_integral(x: Array) -> bool:
    return bool(array_namespace(x).isdtype(x.dtype, "integral"))
