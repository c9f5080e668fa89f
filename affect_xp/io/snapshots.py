"""The steps of a table by the kind of its rows: features, edges or series."""

import itertools
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.io.observed import Snapshot
from affect_xp.io.tables import Cells, Table, plain
from affect_xp.io.times import shown

COMBINED = {"error": "{}", "mean": "avg({})", "sum": "sum({})", "last": "last({} ORDER BY p, raw.rowid)"}
CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute": lambda before, now: now - before,
    "relative": lambda before, now: now / before - 1,
    "log": lambda before, now: np.log(now) - np.log(before),
}


class Features(Table):
    """One row per object and time."""

    def prepare(self) -> None:
        self.number_windows("raw", self.window)
        self.combine("windows.k", "w", f"JOIN windows ON windows.w = {self.window}")

    def combine(self, key: str, names: str, join: str) -> None:
        """Make `cells` from the rows of each object and key, which are combined or an error if several."""
        combined = COMBINED[self.options.aggregate]
        values = ", ".join(f"{combined.format(name)} AS {name}" for name in self.values)
        group = "" if self.options.aggregate == "error" else f"GROUP BY {key}, ids.k"
        rows = f"SELECT {key}, ids.k, {values} FROM raw JOIN ids ON ids.id = o0 {join} {group} ORDER BY ALL"
        self.run(f"CREATE TEMP TABLE cells AS FROM ({rows}) AS cells({names}, o)")
        double = f"FROM cells GROUP BY {names}, o HAVING count(*) > 1 ORDER BY w, o LIMIT 1"
        for w, o, count in self.run(f"SELECT w, o, count(*) {double}"):
            how = "pass aggregate='mean' (or 'sum', 'last') to combine them, or value='price' for a series"
            raise InputError(f"id {self.ids[o]!r} has {count} rows at time {shown(self.times[w])}; {how}")

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        X = np.column_stack([cells[name] for name in self.values])
        ids = tuple(self.ids[k] for k in cells["o"].tolist())
        return Snapshot(time, ids, X.astype(self.options.dtype, copy=False))


class Series(Features):
    """One row per time and one column per object; or, in a tidy table, one row per object and time."""

    @property
    def n_steps(self) -> int | None:
        return None if self.options.missing == "drop" or self.options.changes else len(self.times)

    def prepare(self) -> None:
        assert self.freq is not None
        self.tidy, in_rows, width = bool(self.objects), self.freq.unit == "rows", int(self.freq.width)
        times = "p, min(rowid) AS place FROM raw GROUP BY p" if self.tidy else "p, rowid AS place FROM raw"
        ranked = f"SELECT *, row_number() OVER (ORDER BY {self.p}, place) - 1 AS r FROM (SELECT {times})"
        self.run(f"CREATE TEMP TABLE times AS {ranked}")
        skip = int(self.options.changes is not None)  # the first row is only the start of a change
        window = f"greatest(r - {skip}, 0) // {width}" if in_rows else self.window
        self.number_windows("times", window, "place")
        slots = f"SELECT k AS w, r, p AS q, place FROM times JOIN windows ON windows.w = {window}"
        self.run(f"CREATE TEMP TABLE slots AS {slots}")
        if in_rows:
            self._cut_rows(skip, width)
        if skip:  # a window starts with the last row of the window before it
            last = "QUALIFY r = max(r) OVER (PARTITION BY w)"
            self.run(f"INSERT INTO slots SELECT w + 1, r, q, place FROM slots {last}")
        if self.tidy:
            self.combine("slots.w, r", "w, r", "JOIN slots ON q = p")
        else:
            rows = f"SELECT slots.w, r, {', '.join(self.values)} FROM raw JOIN slots ON place = raw.rowid"
            self.run(f"CREATE TEMP TABLE cells AS {rows} ORDER BY 1, 2")

    def _cut_rows(self, skip: int, width: int) -> None:
        """Name windows of rows by their first time, and leave out the last one if it is not full."""
        first = f"min(q) FILTER (r >= {skip}), count(*) FILTER (r >= {skip})"
        rows = self.run(f"SELECT {first} FROM slots GROUP BY w ORDER BY w")
        if rows and rows[-1][1] < width:
            what = f"rows at the end of {self.title} that do not fill a window of {width} rows"
            self.doubts.append(f"{what} were left out: {rows.pop()[1]}")
        self.times, self.counts = [plain(q) for q, _ in rows], [n + skip for _, n in rows]

    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        if self.tidy:
            r = cells["r"] - cells["r"][0]
            X = np.full((len(self.ids), int(r[-1]) + 1), np.nan)
            X[cells["o"], r] = cells["v0"]
        else:
            X = np.stack([cells[name] for name in self.values])
        there = ~np.isnan(X).all(axis=1) | (not self.tidy)  # objects of a tidy table may be absent
        if self.options.changes is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                X = CHANGES[self.options.changes](X[:, :-1], X[:, 1:])
        good = complete_rows(time, self.ids, X, there, self.options.missing)
        X, ids = X[good].astype(self.options.dtype, copy=False), tuple(itertools.compress(self.ids, good))
        return Snapshot(time, ids, standardized(X) if self.options.standardize else X) if X.size else None


class Edges(Table):
    """One row per edge and time."""

    def prepare(self) -> None:
        self.number_windows("raw", self.window)
        self._note_bipartite()
        self.names = np.fromiter(self.ids, object, len(self.ids))
        key, rows, order = "windows.k", f"raw JOIN windows ON windows.w = {self.window}", "ORDER BY 1"
        if self.in_order:  # a window is a range of rows
            key, rows, order, self.bounds = "raw.rowid", "raw", "", [*self.firsts, 2**62]
        columns = ", ".join([f"{key} AS w, a.k AS i, b.k AS j", *self.values])
        ends = "JOIN ids AS a ON a.id = o0 JOIN ids AS b ON b.id = o1"
        self.run(f"CREATE TEMP TABLE cells AS SELECT {columns} FROM {rows} {ends} {order}")
        if self.options.directed is None:
            self._check_one_way()
        else:
            self.notes.append(f"edges that go both ways are combined by their {self.options.directed}")

    def _note_bipartite(self) -> None:
        sides = "(SELECT bool_or(source) AS s, bool_or(target) AS t FROM ids GROUP BY k)"
        counts = self.run(f"SELECT count_if(s), count_if(t), count_if(s AND t) FROM {sides}")[0]
        if counts[2] == 0 and min(counts[:2]) > 1:
            what = f"the graph of {self.title} is bipartite: its {counts[0]} sources are not targets"
            self.doubts.append(f"{what}; clusters will contain objects of both sides")

    def _check_one_way(self) -> None:
        """Raise if edges between two objects go both ways in a step."""
        back = "EXISTS (FROM cells AS b WHERE b.i = a.j AND b.j = a.i)"
        half = back.replace(")", " AND b.i > b.j)")  # which is fast, and mostly finds nothing
        if not self.run(f"SELECT 1 FROM cells AS a WHERE i < j AND {half} LIMIT 1"):
            return
        window = "ASOF JOIN windows ON c.w >= first" if self.in_order else "JOIN windows ON k = c.w"
        linked = f"(FROM cells AS a WHERE i <> j AND {back}) AS c"
        pairs = f"SELECT k, least(i, j) AS x, greatest(i, j) AS y, i FROM {linked} {window}"
        both = f"FROM ({pairs}) GROUP BY ALL HAVING min(i) < max(i) ORDER BY ALL LIMIT 1"
        for w, i, j in self.run(f"SELECT k, x, y {both}"):
            what = f"{self.ids[i]!r} to {self.ids[j]!r} and back at time {shown(self.times[w])}"
            how = "pass directed='sum' (the total, as of contacts), directed='mean' or directed='max'"
            raise InputError(f"edges of {self.title} go both ways, as from {what}; {how}")

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


KINDS: dict[str, type[Table]] = {"features": Features, "edges": Edges, "series": Series}
