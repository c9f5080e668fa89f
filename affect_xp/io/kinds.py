"""The steps of a table by the kind of its rows: features, edges or series."""

import abc
import concurrent.futures
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from affect_xp.array.threads import own_threads, run_blocks
from affect_xp.exceptions import InputError
from affect_xp.io.snapshot import Snapshot
from affect_xp.io.tables import Cells, Table, ordered
from affect_xp.io.times import Freq, plain, shown
from affect_xp.proximity.graphs import adjacency

Window = tuple[Hashable, int, int]  # its time, and low and high
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: first bits of multiples are well mixed
CHUNK_VALUES = 2**21  # fetched at once
COMBINED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {  # of rows between places
    "sum": lambda v, at: np.add.reduceat(v, at),
    "mean": lambda v, at: np.add.reduceat(v, at) / np.diff(at, append=len(v))[:, None],
    "last": lambda v, at: v[np.append(at[1:], len(v)) - 1],
}
CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute": lambda before, now: now - before,
    "relative": lambda before, now: now / before - 1,
    "log": lambda before, now: np.log(now) - np.log(before),
}


class TableSteps(abc.ABC):
    """The steps of a table.

    Rows have a place r: the number of their window, or of their time if steps are series. A step has the
    rows with low ≤ r < high.

    Attributes
    ----------
    windows : list of (time, low, high)
    n_steps : int or None
        The number of steps, if it is known before they are made.
    """

    by_time = False  # whether r is the number of a time

    def __init__(self, table: Table, freq: Freq | None) -> None:
        self.table, self.options, self.freq, self.ids = table, table.options, freq, table.ids
        w = table.window(freq)
        columns = f"{w} AS w, min(p) AS first, max(p), count(*), min({table.place}), max({table.place})"
        key = f"{w}, p" if self.by_time else w
        found = table.run(f"SELECT {columns} FROM raw GROUP BY {key} ORDER BY first")
        as_type = "M8[us]" if table.scale == "date" else None
        self.first, self.last = (np.array([row[i] for row in found], as_type) for i in (1, 2))
        self.counts = np.cumsum([row[3] for row in found])
        names = [table.labels[p] if table.labels else plain(w) for w, p, *_ in found]
        self.windows = self.split(names)
        unknown = self.by_time and self.options.missing == "drop"  # it may leave out all objects of a step
        self.n_steps = None if unknown else len(self.windows)
        if any(a[5] > b[4] for a, b in itertools.pairwise(found)):
            table.notes.append("rows are not in the order of time and were sorted")
        self.check()

    def split(self, names: list[Hashable]) -> list[Window]:
        """Return the windows, given the window of each r."""
        return [(name, r, r + 1) for r, name in enumerate(names)]

    @abc.abstractmethod
    def check(self) -> None:
        """Raise if rows do not go together."""

    @abc.abstractmethod
    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        """Return what is observed in a window; None if that is nothing."""

    def __iter__(self) -> Iterator[Snapshot]:
        snapshots = (self.snapshot(time, cells) for time, cells in self.all_cells())
        return (snapshot for snapshot in snapshots if snapshot is not None)

    def all_cells(self) -> Iterator[tuple[Hashable, Cells]]:
        """Yield the time and the rows of each step; a thread fetches the next chunk meanwhile."""
        fetched: list[concurrent.futures.Future] = []
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            for chunk in self.chunks():
                fetched.append(thread.submit(self.cells, chunk))
                yield from fetched.pop(0).result() if len(fetched) > 1 else ()
            yield from fetched.pop().result() if fetched else ()

    def chunks(self) -> list[list[Window]]:
        """Return the windows whose rows are fetched at once."""
        size = max(CHUNK_VALUES // (len(self.table.roles.values) + 2), 1)
        groups = itertools.groupby(self.windows, lambda window: self.counts[window[2] - 1] // size)
        return [list(windows) for _, windows in groups]

    def cells(self, windows: list[Window], *, values: bool = True) -> list[tuple[Hashable, Cells]]:
        """Return the time and the rows of each window of a chunk."""
        cells = self.fetch(windows[0][1], windows[-1][2], values=values)
        places = [slice(*np.searchsorted(cells["r"], (low, high))) for _, low, high in windows]
        rows = ({name: column[at] for name, column in cells.items()} for at in places)
        return [(time, found) for (time, *_), found in zip(windows, rows, strict=True)]

    def fetch(self, low: int, high: int, *, values: bool) -> Cells:
        """Return the rows with low ≤ r < high, in the order of time."""
        cells = self.table.fetch(self.first[low].item(), self.last[high - 1].item(), values=values)
        cells = ordered(cells, cells["p"])
        starts = np.searchsorted(cells["p"], self.first[low:high])
        cells["r"] = np.repeat(np.arange(low, high), np.diff(starts, append=len(cells["p"])))
        return cells


class Features(TableSteps):
    """One row per object and time."""

    def fetch(self, low: int, high: int, *, values: bool) -> Cells:
        """Return the rows in the order of r and of objects; several of one object are combined."""
        cells = super().fetch(low, high, values=values)
        o = cells.setdefault("o0", np.zeros(len(cells["r"]), np.int32))
        cells = ordered(cells, cells["r"] * max(len(self.ids), 1) + o)
        if not values or self.options.aggregate == "error":
            return cells
        at = np.flatnonzero(np.append(True, ~_repeated(cells)))
        return {name: column[at] for name, column in cells.items()} | {
            "v": COMBINED[self.options.aggregate](cells["v"], at)
        }

    def check(self) -> None:
        chunks = self.chunks() if self.options.aggregate == "error" else []
        for time, cells in itertools.chain.from_iterable(self.cells(chunk, values=False) for chunk in chunks):
            for i in np.flatnonzero(_repeated(cells))[:1]:
                r, o = cells["r"][i], cells["o0"][i]
                n = int(np.sum((cells["r"] == r) & (cells["o0"] == o)))
                at = plain(self.first[r].item()) if self.by_time else time
                what = f"{f'id {self.ids[o]!r}' if self.table.objects else self.table.title} has {n} rows"
                how = "pass aggregate='mean' (or 'sum', 'last') to combine them"
                how += "" if self.by_time else ", or value='price' for a series"
                how += "" if self.table.objects else ", or id= with the column of ids"
                raise InputError(f"{what} at time {shown(at)}; {how}")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        ids = tuple(self.ids[k] for k in cells["o0"].tolist())
        return Snapshot(time, ids, cells["v"].astype(self.options.dtype))


class Series(Features):
    """One row per time and one column per object; or, in a tidy table, one row per object and time."""

    by_time = True

    def split(self, names: list[Hashable]) -> list[Window]:
        assert self.freq is not None
        self.skip = int(self.options.changes is not None)  # the first row is only the start of a change
        if self.freq.unit != "rows":
            groups = itertools.groupby(range(self.skip, len(names)), names.__getitem__)
            spans = [(name, list(span)) for name, span in groups]
            return [(name, span[0], span[-1] + 1) for name, span in spans]
        width = int(self.freq.width)
        rest = max(len(names) - self.skip, 0) % width
        if rest:
            what = f"rows at the end of {self.table.title} that do not fill a window of {width} rows"
            self.table.doubts.append(f"{what} were left out: {rest}")
        return [(names[r], r, r + width) for r in range(self.skip, len(names) - width + 1, width)]

    def fetch(self, low: int, high: int, *, values: bool) -> Cells:
        """Return the values of all objects, or their changes, at the times low ≤ r < high."""
        low -= self.skip
        cells = super().fetch(low, high, values=values)
        if not values:
            return cells
        X = np.full((high - low, len(self.ids)), np.nan)
        if self.table.objects:
            X[cells["r"] - low, cells["o0"]] = cells["v"][:, 0]
        else:
            X[cells["r"] - low] = cells["v"]
        there = ~np.isnan(X[self.skip :]) | (not self.table.objects)  # objects of a tidy table may be absent
        if self.options.changes is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                X = CHANGES[self.options.changes](X[:-1], X[1:])
        return {"r": np.arange(low + self.skip, high), "v": X, "there": there}

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        X = cells["v"].T
        good = complete_rows(time, self.ids, X, np.any(cells["there"], axis=0), self.options.missing)
        X, ids = X[good].astype(self.options.dtype), tuple(itertools.compress(self.ids, good))
        return Snapshot(time, ids, standardized(X) if self.options.standardize else X) if X.size else None


class Edges(TableSteps):
    """One row per edge and time."""

    def check(self) -> None:
        """Raise if edges between two objects go both ways in a step, unless `directed` combines them."""
        directed, title, is_end = self.options.directed, self.table.title, np.zeros((2, len(self.ids)), bool)
        found: dict[int, tuple[Hashable, int, int]] = {}

        def check_chunk(windows: list[Window]) -> None:
            for time, cells in self.cells(windows, values=False):
                i, j = cells["o0"], cells["o1"]
                is_end[0, i] = is_end[1, j] = True
                for a, b in _both_ways(i, j)[:1] if directed is None else ():
                    found.setdefault(windows[0][1], (time, a, b))

        with own_threads():
            run_blocks(check_chunk, self.chunks())
        for time, a, b in [found[first] for first in sorted(found)[:1]]:
            what = f"{self.ids[a]!r} to {self.ids[b]!r} and back at time {shown(time)}"
            how = "pass directed='sum' (the total, as of contacts), directed='mean' or directed='max'"
            raise InputError(f"edges of {title} go both ways, as from {what}; {how}")
        if directed is not None:
            self.table.notes.append(f"edges that go both ways are combined by their {directed}")
        if not is_end.all(axis=0).any() and min(is_end.sum(axis=1)) > 1:
            what = f"the graph of {title} is bipartite: its {is_end[0].sum()} sources are not targets"
            self.table.doubts.append(f"{what}; clusters will contain objects of both sides")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        i, j, seen = cells["o0"], cells["o1"], np.zeros(len(self.ids), bool)
        seen[i] = seen[j] = True
        places = np.cumsum(seen, dtype=np.int32) - 1
        weights = cells["v"][:, 0] if self.table.roles.values else np.ones(len(i))
        W = adjacency((places[i], places[j]), weights, int(places[-1]) + 1, self.options.directed or "sum")
        W = W.astype(self.options.dtype, copy=False)
        ids = tuple(itertools.compress(self.ids, seen))
        return Snapshot(time, ids, W if self.options.sparse else W.toarray())


def _both_ways(i: np.ndarray, j: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs i < j for which there are an edge (i, j) and an edge (j, i)."""
    pair = np.minimum(i, j) + (np.maximum(i, j).astype(np.int64) << 32)
    # Equal pairs have equal slots, and few others do: only pairs with a slot of both directions are sorted.
    bits = (8 * len(pair) + 1).bit_length()
    slot = ((pair.view(np.uint64) * GOLDEN) >> np.uint64(64 - bits)).view(np.int64)

    def is_slot_of(edges: np.ndarray) -> np.ndarray:
        taken = np.zeros(2**bits, bool)
        taken[slot[edges]] = True
        return taken[slot]

    back = (i > j) & is_slot_of(i < j)
    forth = (i < j) & is_slot_of(back)
    both = np.intersect1d(pair[back], pair[forth]).tolist()
    return [(code & 0xFFFFFFFF, code >> 32) for code in both]


def _repeated(cells: Cells) -> np.ndarray:
    """Return which rows have the same place and object as the next one."""
    r, o = cells["r"], cells["o0"]
    return (r[1:] == r[:-1]) & (o[1:] == o[:-1])


def complete_rows(time: Hashable, ids: Any, X: np.ndarray, there: np.ndarray, missing: str) -> np.ndarray:
    """Return which rows of X are there and have all their values; with missing="error" all must."""
    finite = np.isfinite(X)
    gaps = there & ~finite.all(axis=1)
    if gaps.any() and missing == "error":
        i = int(np.argmax(gaps))
        what = "no value (NaN)" if np.isnan(X[i]).any() else f"the value {X[i][~finite[i]][0]}"
        how = "pass missing='drop' to leave the object out of that step, or fill it in first"
        raise InputError(f"id {ids[i]!r} has {what} at time {shown(time)}; {how}")
    return there & ~gaps


def standardized(X: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and length 1, so that dot products are correlations; constant rows are 0."""
    centred = X - X.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    constant = length <= 10 * np.finfo(X.dtype).eps * np.linalg.norm(X, axis=1, keepdims=True)
    return np.where(constant, 0, centred / np.where(constant, 1, length)).astype(X.dtype, copy=False)


KINDS: dict[str, type[TableSteps]] = {"features": Features, "edges": Edges, "series": Series}
