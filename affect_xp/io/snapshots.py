"""The steps of a table: its rows in windows of time, as features, adjacency matrices or series."""

import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.io.observed import Snapshot
from affect_xp.io.tables import Table, plain
from affect_xp.io.times import shown

CHUNK_VALUES = 2**21  # fetched at once
COMBINED = {"error": "{}", "mean": "avg({})", "sum": "sum({})", "last": "last({} ORDER BY p, raw.rowid)"}
CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute": lambda before, now: now - before,
    "relative": lambda before, now: now / before - 1,
    "log": lambda before, now: np.log(now) - np.log(before),
}
Cells = dict[str, np.ndarray]  # columns of the rows of one window


class TableSteps:
    """The steps of a table: `cells` in DuckDB has its rows with the number w of their window."""

    def __init__(self, table: Table) -> None:
        self.table, self.run, self.options = table, table.engine.run, table.options
        self.combined, self.group = COMBINED[self.options.aggregate], self.options.aggregate != "error"
        self.ids: list[Hashable] = list(table.roles.values)
        self.times: list[Hashable] = []
        self.counts: list[int] = []
        self.bounds: list[int] = []  # the least w of each window, if w is not its number
        self.prepare()
        self.run("DROP TABLE raw")

    @property
    def n_steps(self) -> int | None:
        """The number of steps, if none of them can be empty."""
        sure = self.table.roles.kind != "series" or not (
            self.options.missing == "drop" or self.options.changes
        )
        return len(self.times) if sure else None

    def prepare(self) -> None:
        """Make the table `cells`."""
        raise NotImplementedError

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        """Return what is observed in a window; None if that is nothing."""
        raise NotImplementedError

    def check_distinct(self, key: str) -> None:
        """Raise if an object has several rows at once."""
        double = (
            f"SELECT w, o, count(*) FROM cells GROUP BY {key}, o HAVING count(*) > 1 ORDER BY w, o LIMIT 1"
        )
        for w, o, count in self.run(double):
            how = "pass aggregate='mean' (or 'sum', 'last') to combine them, or value='price' for a series"
            raise InputError(f"id {self.ids[o]!r} has {count} rows at time {shown(self.times[w])}; {how}")

    def __iter__(self) -> Iterator[Snapshot]:
        size, last = max(CHUNK_VALUES // (len(self.table.values) + 2), 1), 0
        while (first := last) < len(self.times):
            rows = itertools.accumulate(self.counts[first:])
            last = first + max(sum(1 for _ in itertools.takewhile(lambda n: n <= size, rows)), 1)
            bounds = [*self.bounds, 2**62] if self.bounds else range(len(self.times) + 1)
            bounds = bounds[first : last + 1]
            part = f"SELECT * FROM cells WHERE w >= {bounds[0]} AND w < {bounds[-1]}"
            cells = self.run(part, fetch="fetchnumpy")
            if (np.diff(cells["w"]) < 0).any():
                order = np.argsort(cells["w"], kind="stable")
                cells = {name: column[order] for name, column in cells.items()}
            ends = np.searchsorted(cells["w"], bounds).tolist()
            for time, low, high in zip(self.times[first:last], ends[:-1], ends[1:], strict=True):
                snapshot = self.snapshot(time, {name: column[low:high] for name, column in cells.items()})
                if snapshot is not None:
                    yield snapshot


class FeatureSteps(TableSteps):
    """One row per object and time."""

    def prepare(self) -> None:
        self.table.check_values()
        self.ids = self.table.number_objects()
        self.times, self.counts = self.table.number_windows("raw", self.table.window)
        values = ", ".join(f"{self.combined.format(name)} AS {name}" for name in self.table.values)
        rows = f"raw JOIN ids ON ids.id = o0 JOIN windows ON windows.w = {self.table.window}"
        group = "GROUP BY windows.k, ids.k" if self.group else ""
        cells = f"SELECT windows.k AS w, ids.k AS o, {values} FROM {rows} {group} ORDER BY 1, 2"
        self.run(f"CREATE TEMP TABLE cells AS {cells}")
        self.check_distinct("w")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        X = np.column_stack([cells[name] for name in self.table.values])
        ids = tuple(self.ids[k] for k in cells["o"].tolist())
        return Snapshot(time, ids, X.astype(self.options.dtype, copy=False))


class EdgeSteps(TableSteps):
    """One row per edge and time."""

    def prepare(self) -> None:
        self.table.check_values()
        self.ids = self.table.number_objects()
        self.times, self.counts = self.table.number_windows("raw", self.table.window)
        self._note_bipartite()
        self.names = np.fromiter(self.ids, object, len(self.ids))
        key, rows = "windows.k", f"raw JOIN windows ON windows.w = {self.table.window}"
        if self.table.in_order:  # a window is a range of rows
            key, rows, self.bounds = "raw.rowid", "raw", self.table.firsts
        columns = ", ".join([f"{key} AS w, a.k AS i, b.k AS j", *self.table.values])
        ends = "JOIN ids AS a ON a.id = o0 JOIN ids AS b ON b.id = o1"
        order = "" if self.table.in_order else "ORDER BY 1"
        self.run(f"CREATE TEMP TABLE cells AS SELECT {columns} FROM {rows} {ends} {order}")
        if self.options.directed is None:
            self._check_one_way()
        else:
            self.table.notes.append(f"edges that go both ways are combined by their {self.options.directed}")

    def _note_bipartite(self) -> None:
        sides = "(SELECT bool_or(source) AS s, bool_or(target) AS t FROM ids GROUP BY k)"
        n_sources, n_targets, both = self.run(
            f"SELECT count_if(s), count_if(t), count_if(s AND t) FROM {sides}"
        )[0]
        if not both and min(n_sources, n_targets) > 1:
            what = f"the graph of {self.table.title} is bipartite: its {n_sources} sources are not targets"
            self.table.doubts.append(f"{what}; clusters will contain objects of both sides")

    def _check_one_way(self) -> None:
        """Raise if edges between two objects go both ways in a step."""
        back = "EXISTS (FROM cells AS b WHERE b.i = a.j AND b.j = a.i)"
        window = "ASOF JOIN windows ON c.w >= first" if self.table.in_order else "JOIN windows ON k = c.w"
        linked = f"(FROM cells AS a WHERE i <> j AND {back}) AS c"
        pairs = f"SELECT k, least(i, j) AS x, greatest(i, j) AS y, i FROM {linked}"
        both = (
            f"SELECT k, x, y FROM ({pairs} {window}) GROUP BY ALL HAVING min(i) < max(i) ORDER BY ALL LIMIT 1"
        )
        for w, i, j in self.run(both):
            what = f"{self.ids[i]!r} to {self.ids[j]!r} and back at time {shown(self.times[w])}"
            how = "pass directed='sum' (the total, as of contacts), directed='mean' or directed='max'"
            raise InputError(f"edges of {self.table.title} go both ways, as from {what}; {how}")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        seen = np.zeros(len(self.ids), bool)
        seen[cells["i"]] = seen[cells["j"]] = True
        places = np.cumsum(seen, dtype=np.int32) - 1
        ends, weights = (places[cells["i"]], places[cells["j"]]), cells.get("v0", np.ones(len(cells["i"])))
        W = adjacency(ends, weights, int(places[-1]) + 1, self.options.directed or "sum")
        W = W.astype(self.options.dtype, copy=False)
        return Snapshot(time, tuple(self.names[seen]), W if self.options.sparse else W.toarray())


def adjacency(ends: tuple[np.ndarray, np.ndarray], weights: np.ndarray, n: int, directed: str) -> Array:
    """Return the symmetric W of edges: parallel edges are summed, and the two directions are combined.

    With A_ij the sum of the weights from i to j: A + Aᵀ (but A_ii once), (A + Aᵀ) / 2, or max(A, Aᵀ).
    """
    if directed == "sum":
        weights = weights / (1 + (ends[0] == ends[1]))
    A = scipy.sparse.coo_array((weights, ends), shape=(n, n)).tocsr()
    B = A.T.tocsr()
    return A.maximum(B) if directed == "max" else (A + B) / 2 if directed == "mean" else A + B


class SeriesSteps(TableSteps):
    """One row per time and one column per object; or, in a tidy table, one row per object and time."""

    def prepare(self) -> None:
        table, freq, self.tidy = self.table, self.table.freq, bool(self.table.roles.objects)
        assert freq is not None
        if self.options.missing == "error":
            table.check_values()
        self.ids = table.number_objects() if self.tidy else self.ids
        times = "p, min(rowid) AS place FROM raw GROUP BY p" if self.tidy else "p, rowid AS place FROM raw"
        ranked = f"SELECT *, row_number() OVER (ORDER BY {table.p}, place) - 1 AS r FROM (SELECT {times})"
        self.run(f"CREATE TEMP TABLE times AS {ranked}")
        skip = int(self.options.changes is not None)  # the first row is only the start of a change
        window = f"greatest(r - {skip}, 0) // {int(freq.width)}" if freq.unit == "rows" else table.window
        self.times, self.counts = table.number_windows("times", window, "place")
        slots = f"SELECT k AS w, r, p AS q, place FROM times JOIN windows ON windows.w = {window}"
        self.run(f"CREATE TEMP TABLE slots AS {slots}")
        if freq.unit == "rows":
            self._cut_rows(skip, int(freq.width))
        if skip:  # a window starts with the last row of the window before it
            last = "QUALIFY r = max(r) OVER (PARTITION BY w)"
            self.run(f"INSERT INTO slots SELECT w + 1, r, q, place FROM slots {last}")
        columns, rows, group = ", ".join(table.values), "place = raw.rowid", ""
        if self.tidy:
            columns, rows = f"ids.k AS o, {self.combined.format('v0')} AS v0", "q = p JOIN ids ON ids.id = o0"
            group = "GROUP BY slots.w, r, ids.k" if self.group else ""
        cells = f"SELECT slots.w, r, {columns} FROM raw JOIN slots ON {rows} {group} ORDER BY 1, 2"
        self.run(f"CREATE TEMP TABLE cells AS {cells}")
        if self.tidy:
            self.check_distinct("w, r")

    def _cut_rows(self, skip: int, width: int) -> None:
        """Name windows of rows by their first time, and leave out the last one if it is not full."""
        first = f"min(q) FILTER (r >= {skip}), count(*) FILTER (r >= {skip})"
        rows = self.run(f"SELECT {first} FROM slots GROUP BY w ORDER BY w")
        if rows and rows[-1][1] < width:
            what = f"rows at the end of {self.table.title} that do not fill a window of {width} rows"
            self.table.doubts.append(f"{what} were left out: {rows.pop()[1]}")
        self.times, self.counts = [plain(q) for q, _ in rows], [n + skip for _, n in rows]

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        if self.tidy:
            r = cells["r"] - cells["r"][0]
            X = np.full((len(self.ids), int(r[-1]) + 1), np.nan)
            X[cells["o"], r] = cells["v0"]
        else:
            X = np.stack([cells[name] for name in self.table.values])
        there = ~np.isnan(X).all(axis=1) | (not self.tidy)  # objects of a tidy table may be absent
        if self.options.changes is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                X = CHANGES[self.options.changes](X[:, :-1], X[:, 1:])
        good = complete_rows(time, self.ids, X, there, self.options.missing)
        X, ids = X[good].astype(self.options.dtype, copy=False), tuple(itertools.compress(self.ids, good))
        return Snapshot(time, ids, standardized(X) if self.options.standardize else X) if X.size else None


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


KINDS: dict[str, type[TableSteps]] = {"features": FeatureSteps, "edges": EdgeSteps, "series": SeriesSteps}
