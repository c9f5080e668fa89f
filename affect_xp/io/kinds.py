"""The steps of a table by the kind of its rows: features, edges or series."""

import itertools
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.snapshot import Snapshot
from affect_xp.io.tables import Cells, TableOverTime
from affect_xp.io.times import shown
from affect_xp.proximity.graphs import adjacency

RAW = "(SELECT p, rowid AS place, rowid AS r FROM raw)"
COMBINED = {
    "error": ("", ""),
    "mean": ("avg", ""),
    "sum": ("sum", ""),
    "last": ("last", " ORDER BY raw.p, raw.rowid"),
}
CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute": lambda before, now: now - before,
    "relative": lambda before, now: now / before - 1,
    "log": lambda before, now: np.log(now) - np.log(before),
}


class Features(TableOverTime):
    """One row per object and time."""

    def prepare(self) -> None:
        self.number_windows(RAW, self.window)
        self.bounds = list(range(len(self.times) + 1))
        self.combine("windows.k", f"windows ON windows.w = {self.window}")

    def combine(self, r: str, join: str) -> None:
        """Make `cells` of the rows of each object and r, which are combined, or an error if several."""
        function, order = COMBINED[self.options.aggregate]
        n, group = len(self.roles.values), "GROUP BY 1, 2" if function else ""
        values = ", ".join(f"{function}(v[{i + 1}]{order})" for i in range(n))
        v = f"{function}(v{order})" if n == 1 else f"[{values}]" if function else "v"
        rows = f"raw JOIN ids ON ids.id = o0 JOIN {join} {group} ORDER BY {'ALL' if n == 1 else '1, 2'}"
        self.run(f"CREATE TEMP TABLE cells AS SELECT {r} AS r, ids.k AS o, {v} AS v FROM {rows}")
        pairs = "SELECT r, o, lag(r) OVER () AS r0, lag(o) OVER () AS o0 FROM cells"  # fast, as it is sorted
        if function or not self.run(f"SELECT 1 FROM ({pairs}) WHERE r = r0 AND o = o0 LIMIT 1"):
            return
        several = "FROM cells GROUP BY r, o HAVING count(*) > 1 ORDER BY r, o LIMIT 1"
        for r, o, n in self.run(f"SELECT r, o, count(*) {several}"):
            time = self.times[np.searchsorted(self.bounds, r, side="right") - 1]
            how = "pass aggregate='mean' (or 'sum', 'last') to combine them, or value='price' for a series"
            raise InputError(f"id {self.ids[o]!r} has {n} rows at time {shown(time)}; {how}")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        ids = tuple(self.ids[k] for k in cells["o"].tolist())
        return Snapshot(time, ids, cells["v"].astype(self.options.dtype))


class Series(Features):
    """One row per time and one column per object; or, in a tidy table, one row per object and time."""

    def prepare(self) -> None:
        assert self.freq is not None
        self.skip = int(self.options.changes is not None)  # the first row is only the start of a change
        in_rows, width = self.freq.unit == "rows", int(self.freq.width)
        times = "p, min(rowid) AS place FROM raw GROUP BY p" if self.objects else "p, rowid AS place FROM raw"
        order = "place" if self.scale == "label" else "p, place"
        ranked = f"SELECT *, row_number() OVER (ORDER BY {order}) - 1 AS r FROM (SELECT {times})"
        self.run(f"CREATE TEMP TABLE times AS {ranked}")
        window = f"(r - {self.skip}) // {width}" if in_rows else self.window
        self.number_windows(f"(FROM times WHERE r >= {self.skip})", window, "q" if in_rows else "w")
        if in_rows and self.counts and self.counts[-1] < width:
            what = f"rows at the end of {self.title} that do not fill a window of {width} rows"
            self.doubts.append(f"{what} were left out: {self.counts.pop()}")
            del self.times[-1], self.bounds[-1]
        if self.objects:
            self.combine("times.r", "times ON times.p = raw.p")
        else:
            rows = "SELECT r, v FROM raw JOIN times ON place = raw.rowid ORDER BY r"
            self.run(f"CREATE TEMP TABLE cells AS {rows}")

    def fetch(self, low: int, high: int) -> Cells:
        """Return the values of all objects, or their changes, at the times low ≤ r < high."""
        cells = super().fetch(low - self.skip, high)
        X, r = cells["v"], cells["r"] - low + self.skip
        if self.objects:
            X = np.full((r[-1] + 1, len(self.ids)), np.nan)
            X[r, cells["o"]] = cells["v"][:, 0]
        there = ~np.isnan(X[self.skip :]) | (not self.objects)  # objects of a tidy table may be absent
        if self.options.changes is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                X = CHANGES[self.options.changes](X[:-1], X[1:])
        return {"r": np.arange(low, low + len(X)), "v": X, "there": there}

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        X = cells["v"].T
        good = complete_rows(time, self.ids, X, np.any(cells["there"], axis=0), self.options.missing)
        X, ids = X[good].astype(self.options.dtype), tuple(itertools.compress(self.ids, good))
        return Snapshot(time, ids, standardized(X) if self.options.standardize else X) if X.size else None


class Edges(TableOverTime):
    """One row per edge and time."""

    def prepare(self) -> None:
        self.number_windows(RAW, self.window)
        r, rows, order = "raw.rowid", "raw", ""
        if not self.in_order:  # otherwise a window is a range of rows
            self.run("UPDATE windows SET first = k")
            self.bounds = list(range(len(self.times) + 1))
            r, rows, order = "windows.k", f"raw JOIN windows ON windows.w = {self.window}", "ORDER BY 1"
        ends = "JOIN ids AS a ON a.id = o0 JOIN ids AS b ON b.id = o1"
        columns = f"{r} AS r, a.k AS i, b.k AS j{', v' if self.roles.values else ''}"
        self.run(f"CREATE TEMP TABLE cells AS SELECT {columns} FROM {rows} {ends} {order}")
        self.names = np.fromiter(self.ids, object, len(self.ids))
        self._check_directions()

    def _check_directions(self) -> None:
        """Raise if edges between two objects go both ways in a step, unless `directed` combines them."""
        sides = "(SELECT bool_or(source) AS s, bool_or(target) AS t FROM ids GROUP BY k)"
        counts = self.run(f"SELECT count_if(s), count_if(t), count_if(s AND t) FROM {sides}")[0]
        if counts[2] == 0 and min(counts[:2]) > 1:
            what = f"the graph of {self.title} is bipartite: its {counts[0]} sources are not targets"
            self.doubts.append(f"{what}; clusters will contain objects of both sides")
        if self.options.directed is not None:
            self.notes.append(f"edges that go both ways are combined by their {self.options.directed}")
            return
        back = "EXISTS (FROM cells AS b WHERE b.i = a.j AND b.j = a.i AND b.i > b.j)"
        if not self.run(f"SELECT 1 FROM cells AS a WHERE i < j AND {back} LIMIT 1"):  # fast, and usual
            return
        edges = (
            "SELECT DISTINCT k, i, j FROM cells ASOF JOIN windows ON cells.r >= windows.first WHERE i <> j"
        )
        both = f"({edges}) AS a JOIN ({edges}) AS b ON a.k = b.k AND a.i = b.j AND a.j = b.i"
        for w, i, j in self.run(f"SELECT a.k, a.i, a.j FROM {both} WHERE a.i < a.j ORDER BY ALL LIMIT 1"):
            what = f"{self.ids[i]!r} to {self.ids[j]!r} and back at time {shown(self.times[w])}"
            how = "pass directed='sum' (the total, as of contacts), directed='mean' or directed='max'"
            raise InputError(f"edges of {self.title} go both ways, as from {what}; {how}")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        seen = np.zeros(len(self.ids), bool)
        seen[cells["i"]] = seen[cells["j"]] = True
        places = np.cumsum(seen, dtype=np.int32) - 1
        weights = cells["v"][:, 0] if self.roles.values else np.ones(len(cells["i"]))
        ends = places[cells["i"]], places[cells["j"]]
        W = adjacency(ends, weights, int(places[-1]) + 1, self.options.directed or "sum")
        W = W.astype(self.options.dtype, copy=False)
        return Snapshot(time, tuple(self.names[seen]), W if self.options.sparse else W.toarray())


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


KINDS: dict[str, type[TableOverTime]] = {"features": Features, "edges": Edges, "series": Series}
