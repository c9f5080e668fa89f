"""Records of the steps of a run."""

import dataclasses
import itertools
import math
from collections import Counter, UserList
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from affect_xp import display
from affect_xp.array.namespace import to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction, import_pandas
from affect_xp.partition import Ids
from affect_xp.tracking.events import Event


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """One step.

    Attributes
    ----------
    time : hashable
        The time given with the step, or its number.
    n, k : int
        The number of objects and of clusters.
    alpha : float
        The forgetting factor; 0 at the first step, which has no past.
    alphas : tuple of float
        The forgetting factor by iteration.
    labels : (n,) NumPy array of int
        The cluster of each object; labels copied from a device have the smallest sufficient integer dtype.
    ids : sequence of hashables
        The objects, in the order of the labels.
    events : tuple of Event
        The events of the clusters since the previous step.
    scores : dict or None
        The score of each candidate number of clusters, if a rule chose it.
    n_iter : int
        The total number of iterations of the clusterer.
    noise, drift : float or None
        The quantities of the estimate α = noise² / (noise² + drift²): the standard deviation of an observed
        entry, and the distance of the past from the current expectation, as root mean squares over the
        entries of objects that were present before, in the units of the proximities. None if α was not
        estimated. The first step has only noise.
    noise_of_means : float or None
        The noise of the block means, as a root mean square. Known at the first step, if α is estimated.
    moved : (n,) NumPy array or None
        The probability that each object has changed its cluster since the previous step; 0 for objects
        without a past. Known from the second step on, for similarities none of whose sums over the members of
        a cluster is negative, as in graphs; None for `Factored`, dissimilarities and functions. With
        forgetting="objects" it is always known.
    """

    time: Hashable
    n: int
    k: int
    alpha: float
    alphas: tuple[float, ...]
    labels: Array
    ids: Ids
    events: tuple[Event, ...] = ()
    scores: dict[int, float] | None = None
    n_iter: int = 0
    noise: float | None = None
    drift: float | None = None
    noise_of_means: float | None = None
    moved: np.ndarray | None = None

    def by_id(self) -> dict[Hashable, int]:
        """Return the cluster of each object, on the host."""
        labels = to_host(self.labels, reason="clusters by object")[0].tolist()
        return dict(zip(self.ids, labels, strict=True))

    def __str__(self) -> str:
        """Return one line: the time, the number of objects and clusters, and α."""
        time = display.time_format([self.time])(self.time)
        objects, clusters = display.counted(self.n, "object"), display.counted(self.k, "cluster")
        return f"{time}: {objects}, {clusters}, α = {self.alpha:.3f}"


class History(UserList[Record]):
    """The steps of a run, in order: a list of `Record`."""

    @property
    def times(self) -> list[Hashable]:
        """The times of the steps."""
        return [record.time for record in self]

    @property
    def alpha(self) -> np.ndarray:
        """The forgetting factor of each step."""
        return np.array([record.alpha for record in self])

    @property
    def labels(self) -> list[Array]:
        """The labels of each step."""
        return [record.labels for record in self]

    @property
    def events(self) -> list[tuple[Event, ...]]:
        """The events of each step."""
        return [record.events for record in self]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per step: time, n, k, alpha."""
        rows = [(record.time, record.n, record.k, record.alpha) for record in self]
        return import_pandas().DataFrame(rows, columns=["time", "n", "k", "alpha"])

    def labels_to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per object and step: time, id, cluster."""
        pandas = import_pandas()
        parts = [
            pandas.DataFrame(
                {
                    "time": record.time,
                    "id": list(record.ids),
                    "cluster": to_host(record.labels, reason="labels as a table")[0],
                }
            )
            for record in self
        ]
        empty = pandas.DataFrame({"time": [], "id": [], "cluster": []})
        return pandas.concat(parts, ignore_index=True) if parts else empty

    def moves_to_frame(self, min_probability: float = 0.5) -> Any:
        """Return a pandas DataFrame with one row per object that moved: time, id, from, to, probability.

        An object has moved if its cluster differs from that of the previous step. If the probability of a
        move is known, it decides instead: it must be at least `min_probability`, and "from" and "to" may
        then be the same cluster. The most probable moves of a step come first.

        Parameters
        ----------
        min_probability : float
        """
        rows = list(self.moves(min_probability))
        return import_pandas().DataFrame(rows, columns=["time", "id", "from", "to", "probability"])

    def moves(self, min_probability: float = 0.5) -> Iterator[tuple[Hashable, Hashable, int, int, float]]:
        """Yield (time, id, from, to, probability) of each object that moved; see `moves_to_frame`.

        The probability is NaN if it is not known.
        """
        check_fraction("min_probability", min_probability)
        for before, record in itertools.pairwise(self):
            was, now = before.by_id(), record.by_id()
            moved = dict.fromkeys(now, math.nan)
            if record.moved is not None:
                moved = dict(zip(record.ids, record.moved.tolist(), strict=True))
            found = [
                (record.time, name, was[name], to, moved[name])
                for name, to in now.items()
                if name in was
                and (was[name] != to if math.isnan(moved[name]) else moved[name] >= min_probability)
            ]
            yield from sorted(found, key=lambda row: 0 if math.isnan(row[-1]) else -row[-1])

    def events_to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per event of the clusters; see `Event`.

        The columns are time, kind, before, after (names of clusters), n_common, size_before, size_after, and
        for moves the ids of the objects and their probabilities.
        """
        names = [field.name for field in dataclasses.fields(Event)]
        rows = [
            (record.time, *(getattr(event, name) for name in names))
            for record in self
            for event in record.events
        ]
        return import_pandas().DataFrame(rows, columns=["time", *names])

    def stability(self) -> Any:
        """Return a pandas DataFrame with one row per cluster and step: time, cluster, size, kept.

        "kept" is the share of the previous members of the cluster, without objects that left, that are still
        in it; missing if the cluster did not exist at the previous step.
        """
        rows: list[tuple] = []
        for record, kept in zip(self, self.kept(), strict=True):
            for cluster, size in sorted(Counter(c for c in record.by_id().values() if c >= 0).items()):
                stayed, present = kept.get(cluster, (0, 0))
                rows.append((record.time, cluster, size, stayed / present if present else math.nan))
        return import_pandas().DataFrame(rows, columns=["time", "cluster", "size", "kept"])

    def kept(self) -> list[dict[int, tuple[int, int]]]:
        """Return for each step the number of previous members that each cluster kept.

        The values are (stayed, present): the previous members that are still in the cluster, and those that
        are present. The dict of the first step is empty.
        """
        found: list[dict[int, tuple[int, int]]] = []
        was: dict[Hashable, int] = {}
        for record in self:
            now = record.by_id()
            present = Counter(c for name, c in was.items() if c >= 0 and name in now)
            stayed = Counter(c for name, c in was.items() if c >= 0 and now.get(name) == c)
            found.append({cluster: (stayed[cluster], n) for cluster, n in present.items()})
            was = now
        return found

    def __repr__(self) -> str:
        title = f"History({display.counted(len(self), 'step')})"
        lines = [[name for name, _ in COLUMNS]] if len(self) else []
        lines += [["…"] * len(COLUMNS) if record is None else _shown(record) for record in self._ends(5)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))] if lines else []
        aligned = [
            "  ".join(
                text.rjust(width) if kind == "number" else text.ljust(width)
                for text, width, (_, kind) in zip(line, widths, COLUMNS, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([title, *aligned])

    def _repr_html_(self) -> str:
        rows = []
        for record in self._ends(10):
            texts = ["…"] * len(COLUMNS) if record is None else _shown(record)
            cells = [display.cell(text, kind) for text, (_, kind) in zip(texts, COLUMNS, strict=True)]
            rows.append(f"<tr>{''.join(cells)}</tr>")
        table = display.table(rows, COLUMNS) if rows else ""
        return display.box("History", display.counted(len(self), "step"), table)

    def _ends(self, count: int) -> list[Record | None]:
        """Return the first and the last records with a gap in between, or all if there are few."""
        if len(self) <= 2 * count:
            return list(self)
        return [*self[:count], None, *self[-count:]]


COLUMNS = (("time", ""), ("n", "number"), ("k", "number"), ("α", "number"), ("events", ""))


def _shown(record: Record) -> list[str]:
    """Return a record as one text per column; continuations are omitted from the events."""
    counts = Counter(event.kind for event in record.events if event.kind != "continuation")
    events = ", ".join(kind if count == 1 else f"{count} × {kind}" for kind, count in counts.items())
    return [str(record.time), str(record.n), str(record.k), f"{record.alpha:.3f}", events]
