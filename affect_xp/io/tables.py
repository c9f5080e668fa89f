"""A table over time in DuckDB: rows typed by role and checked, objects and windows numbered."""

import abc
import itertools
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io import times
from affect_xp.io.engine import Engine, literal, reason
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import Roles
from affect_xp.io.snapshot import Snapshot
from affect_xp.io.sources import FORGET, REJECTED, Source
from affect_xp.io.times import OLDEST, SINCE_1970, Freq, shown

CHUNK_VALUES = 2**21  # fetched at once
SAMPLE = 1000  # rows that suggest how times are written; all rows are checked
NUMBERS = re.compile("U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL|BOOLEAN")
MISSING = r"(?i)\s*(na|#?n/a|nan|nat|<na>|null|none)?\s*"
# No list: IN may become a join, which changes the order of rows, and many lists take long to plan.
IS_MISSING = f"({{t}} IS NULL OR regexp_full_match({{t}}::VARCHAR, '{MISSING}'))"
TRIMMED = "nullif(trim({t}, ' \t\r\n\u00a0\u2009\u3000\ufeff'), '')"
Cells = dict[str, np.ndarray]  # columns of the rows of one window


class TableOverTime(abc.ABC):
    """The rows of one or several sources.

    In DuckDB they are first the table `raw`, with columns p (time), o0, o1 (ids) and v (a list of values, or
    the only one, which needs less memory), in the order of the sources. `ids` numbers the objects and
    `windows` the windows. `cells` has the rows of all steps, with a place r; a step has the rows between two
    entries of `bounds`.

    Attributes
    ----------
    scale : "date", "number" or "label"
        What p is.
    p, window : str
        The SQL of the time of a row, and of the start of its window.
    notes, doubts : list of str
        What the user should know; the doubts are also a warning.
    """

    def __init__(
        self, engine: Engine, sources: Sequence[Source], roles: Roles, options: ReadOptions, freq: Freq | None
    ) -> None:
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        self.engine, self.sources, self.title = engine, sources, sources[0].title + more
        self.roles, self.options, self.freq, self.run = roles, options, freq, engine.run
        self.scale, self.p, self.window = "date", "p", "p"
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.objects = [f"o{i}" for i in range(len(roles.objects))]
        self._load()
        self.ids = self._number_objects() if self.objects else self._originals(roles.values)
        self._check_cells()
        self._set_window()
        self.prepare()
        self.run("DROP TABLE raw")

    @property
    def n_steps(self) -> int | None:
        """The number of steps, if it is known before they are made."""
        return None if self.roles.kind == "series" and self.options.missing == "drop" else len(self.times)

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the table `cells`."""

    @abc.abstractmethod
    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        """Return what is observed in a window; None if that is nothing."""

    def __iter__(self) -> Iterator[Snapshot]:
        size = max(CHUNK_VALUES // (len(self.roles.values) + 2), 1)
        starts = np.flatnonzero(np.diff(np.cumsum(self.counts) // size, prepend=-1)).tolist()
        for first, last in itertools.pairwise([*starts, len(self.times)]):
            bounds = self.bounds[first : last + 1]
            cells = self.fetch(bounds[0], bounds[-1])
            ends = np.searchsorted(cells["r"], bounds).tolist()
            for time, low, high in zip(self.times[first:last], ends[:-1], ends[1:], strict=True):
                snapshot = self.snapshot(time, {name: column[low:high] for name, column in cells.items()})
                if snapshot is not None:
                    yield snapshot

    def fetch(self, low: int, high: int) -> Cells:
        """Return the rows of `cells` with low ≤ r < high, in the order of r; v has a row for each."""
        rows = f"FROM cells WHERE r >= {low} AND r < {high}"
        cells = self.run(f"SELECT COLUMNS('[^v]') {rows}", fetch="fetchnumpy")
        if self.roles.values:
            each = "v" if len(self.roles.values) == 1 else "unnest(v)"
            v = self.run(f"SELECT {each} AS v {rows}", fetch="fetchnumpy")["v"]
            cells["v"] = np.ma.filled(v, np.nan).reshape(len(cells["r"]), -1)
        if (np.diff(cells["r"]) >= 0).all():
            return cells
        order = np.argsort(cells["r"], kind="stable")
        return {name: column[order] for name, column in cells.items()}

    # Rows

    def read(self, sql: str) -> Any:
        """Return the result of a query over {rows}, with columns t, o0, o1, and v, a list."""
        rows = " UNION ALL ".join(map(self._select, self.sources))
        found = self.run(f"{FORGET}; {sql.replace('{rows}', f'({rows})')}", self.title)
        titles = {source.file: source.title for source in self.sources if source.file}
        for line, text, why, file in self.run(REJECTED) if titles else ():
            raise InputError(f"line {line} of {titles[file]} cannot be read: {text[:80]!r}; {reason(why)}")
        return found

    def _used(self, source: Source) -> list[tuple[str, str]]:
        """Return the SQL and the types of the columns of a source that have a role."""
        for name in self.roles.used:
            if name not in source.columns:
                raise InputError(f"{source.title} has no column {name!r}, unlike {self.sources[0].title}")
        return [source.columns[name] for name in self.roles.used]

    def _select(self, source: Source) -> str:
        columns = self._used(source)
        pairs = zip(columns[: len(self.objects) + 1], ["t", *self.objects], strict=True)
        values = columns[len(self.objects) + 1 :]
        as_type = "DOUBLE" if all(NUMBERS.match(of) for _, of in values) else "VARCHAR"
        cells = (sql if of == as_type else f"{sql}::{as_type}" for sql, of in values)
        if self.options.decimal == "," and as_type == "VARCHAR":
            cells = (f"translate({cell}, ',.', '.?')" for cell in cells)
        v = f"[{', '.join(cells)}]" if values else "NULL::DOUBLE[]"
        return (
            f"SELECT {', '.join(f'{sql} AS {name}' for (sql, _), name in pairs)}, {v} AS v FROM {source.rows}"
        )

    def _load(self) -> None:
        types = [[of for _, of in self._used(source)] for source in self.sources]
        if len({"ZONE" in of for of, *_ in types}) > 1:
            what = f"column {self.roles.time!r} has a time zone in some tables only"
            raise InputError(f"{what}; convert all to UTC")
        texts = not all(NUMBERS.match(of) for row in types for of in row[1 : len(self.objects) + 1])
        self.name = TRIMMED if texts else "nullif({t}, 'nan'::DOUBLE)"  # the SQL of an id
        self.reading = self._reading({of for of, *_ in types})
        ids = "".join(f", {name}{'::VARCHAR' if texts else ''} AS {name}" for name in self.objects)
        each = "v[1] AS DOUBLE" if len(self.roles.values) == 1 else "v AS DOUBLE[]"
        v = f", try_cast({each}) AS v" if self.roles.values else ""
        cells = f"{self.reading.replace('{t}', 't')} AS p{ids}{v}"
        self.read(f"CREATE TEMP TABLE raw AS SELECT {cells} FROM {{rows}}")

    def _check_cells(self) -> None:
        """Raise at the first time, id or value that is missing or cannot be read, or leave such rows out."""
        drop, given = self.options.missing == "drop", f"NOT {IS_MISSING}"
        blanks = [f"{self.name.replace('{t}', name)} IS NULL" for name in self.objects]
        tests = {"time": "p IS NULL", "id": " OR ".join(blanks) if None in self.ids else "false"}
        if len(self.roles.values) == 1:
            tests["value"] = "v IS NULL OR NOT isfinite(v)"
        elif self.roles.values:
            tests["value"] = f"list_count(v) < {len(self.roles.values)} OR NOT isfinite(list_min(v))"
            tests["value"] += " OR NOT isfinite(list_max(v))"  # NaN is the largest
        if not self.run(f"SELECT 1 FROM raw WHERE {' OR '.join(tests.values())} LIMIT 1"):
            return
        bad = [f"{self.reading} IS NULL{f' AND {given}' if drop else ''}".replace("{t}", "t")]
        bad += ["false"] * len(blanks) if drop else blanks
        value = f"NOT coalesce(isfinite(try_cast({{t}} AS DOUBLE)), false){f' AND {given}' if drop else ''}"
        texts = ", ".join(f"{name}::VARCHAR" for name in ("t", *self.objects))
        cells = f"list_concat([{texts}], v::VARCHAR[]) AS texts"
        cells += f", list_concat([{', '.join(bad)}], [{value.replace('{t}', 'x')} FOR x IN v]) AS bad"
        rows = f"(SELECT row_number() OVER () - 1 AS row, {cells} FROM {{rows}})"
        first = f"FROM {rows} WHERE list_contains(bad, true) ORDER BY row LIMIT 1"
        for row, n, text in self.read(f"SELECT row, list_position(bad, true) AS n, texts[n] {first}"):
            raise InputError(self._problem(row, n - 1, text))
        for what, test in tests.items() if drop else ():
            if what != "value" or self.roles.kind != "series":  # series leave out the object, not the row
                ((count,),) = self.run(f"DELETE FROM raw WHERE {test}")
                self.notes += [f"rows without a {what} left out: {count}"] if count else []

    def _problem(self, row: int, at: int, text: str | None) -> str:
        """Return the message for a cell that is missing or cannot be read; `at` is its place in `used`."""
        column, where, given = self.roles.used[at], self._place(row), self.options.time_format
        what = "time" if at == 0 else "id" if at <= len(self.objects) else "value"
        if text is None or what == "id" or re.fullmatch(MISSING, text):
            how = "pass missing='drop' to leave such rows out, or fill it in first"
            return f"{where} has no {what} in column {column!r}; {how}"
        if what == "time":
            zoned = bool(re.search(r":\d\d.*([Zz]|UTC|[+-]\d\d(:?\d\d)?)$", text.strip()))
            why = f"cannot be read {f'by time_format={given!r}' if given else f'as a {self.scale}'}"
            if self.scale == "date" and not given and zoned != ("%z" in self.reading):
                why = "mixes times with and without a time zone; convert all to UTC"
            return f"{where}: {text!r} in column {column!r} {why}"
        if re.fullmatch(r"\s*[-+]?inf(inity)?\s*", text, re.IGNORECASE):
            how = "replace it by a number, or leave it empty and pass missing='drop'"
            return f"{where} has the value {text.strip()} in column {column!r}; {how}"
        how = "name the columns to use with features=[...]"
        how += ", or the ends of edges with source= and target=" if self.options.kind == "auto" else ""
        how = "pass weight= with a column of numbers" if self.roles.kind == "edges" else how
        comma = "pass decimal=',' for decimal commas, or remove separators of thousands"
        how = comma if re.search(r"\d,\d", text) else how
        return f"{where} has no number in column {column!r}; {how}"

    def _place(self, row: int) -> str:
        """Return what messages call a row, counted from 0."""
        for source in self.sources:
            ((count,),) = self.run(f"SELECT count(*) FROM {source.rows}")
            if row < count:
                return source.place(self.engine, row)
            row -= count
        raise AssertionError("a row of no source")

    # Times

    def _reading(self, types: set[str]) -> str:
        """Return the SQL of the time {t} of a row; NULL if it is missing or not a time."""
        number, time_format = all(map(NUMBERS.match, types)), self.options.time_format
        if all(of.startswith(("TIMESTAMP", "DATE")) for of in types):
            sql = "make_timestamp(epoch_us({t}))"
        elif time_format in SINCE_1970:
            sql = times.since_1970(time_format).replace("{t}", "try_cast({t} AS DOUBLE)")
        elif time_format is not None:
            sql = times.strptime([time_format]).replace(
                "{t}", "{t}::BIGINT::VARCHAR" if number else "trim({t})"
            )
        else:
            self.scale, sql = ("number", times.NUMBER) if number else self._text_reading()
        return f"nullif(greatest({sql}, {OLDEST}), {OLDEST})" if self.scale == "date" else sql

    def _text_reading(self) -> tuple[str, str]:
        """Return the scale of times that are texts, and the SQL that reads one of them."""
        rows = f"(SELECT trim(t) AS t FROM {{rows}} WHERE NOT {IS_MISSING.replace('{t}', 't')})"
        sample = [text for (text,) in self.read(f"SELECT t FROM {rows} LIMIT {SAMPLE}")]
        ((numeric,),) = self.run(f"SELECT count({times.NUMBER.replace('{t}', 't')}) FROM {_texts(sample)}")
        if 2 * numeric > len(sample):  # the others are errors
            return "number", times.NUMBER
        found = self._fitting(times.date_readings(sample), _texts(list(dict.fromkeys(sample))[:100]))
        if len(found) > 1:
            found = self._fitting(found, rows)
            self._check_unique(found, rows)
        for name, sql in list(found.items())[:1]:
            if not name.startswith("%Y-%m-%d"):
                self.notes.append(f"times such as {sample[0]!r} are read as {name}")
            return (
                "date",
                f"coalesce({sql}, {sql.replace('{t}', 'trim({t})')})",
            )  # few have blanks at the ends
        if sample:
            dated = any(re.search(r"\d\D+\d", text) for text in sample)
            what = f"times such as {sample[0]!r} are labels, in the order in which they appear"
            (self.doubts if dated else self.notes).append(f"{what}; pass time_format= if they are dates")
        return "label", f"CASE WHEN NOT {IS_MISSING} THEN trim({{t}}) END"

    def _fitting(self, found: dict[str, str], rows: str) -> dict[str, str]:
        """Return the readings that fit most of the texts; none, if none fits."""
        tests = (f"count(nullif({sql.replace('{t}', 't')} >= {OLDEST}, false))" for sql in found.values())
        (counts,) = (self.read if "{rows}" in rows else self.run)(f"SELECT {', '.join(tests)} FROM {rows}")
        return {name: found[name] for name, n in zip(found, counts, strict=True) if n == max(counts) > 0}

    def _check_unique(self, found: dict[str, str], rows: str) -> None:
        """Raise if two ways to read the times give different dates."""
        dates = ", ".join(sql.replace("{t}", "t") for sql in found.values())
        for text, read in self.read(
            f"SELECT t, [{dates}] AS read FROM {rows} WHERE len(list_distinct(read)) > 1 LIMIT 1"
        ):
            ways = {date: name for date, name in zip(reversed(read), reversed(found), strict=True) if date}
            (second, other), (first, one) = list(ways.items())[-2:]
            both = f"{text!r} is {first:%d %B %Y} by {one!r} and {second:%d %B %Y} by {other!r}"
            how = f"pass time_format={one!r} or time_format={other!r}"
            raise InputError(f"column {self.roles.time!r} of {self.title} is ambiguous: {both}; {how}")

    def _set_window(self) -> None:
        """Set the SQL of windows, after a check that `freq` suits the times."""
        low, high = self.run("SELECT min(p), max(p) FROM raw")[0]
        if self.freq is None or self.freq.unit == "rows" or low is None:
            return
        number, column = self.freq.unit == "number", f"column {self.roles.time!r} of {self.title}"
        if self.scale == "label" or (self.scale == "date" and number):
            unit = "freq is a number; add a unit, as in '7D'"
            how = unit if number else "for freq, pass time_format='%d/%m/%Y'"
            raise InputError(f"{column} contains {self.scale}s such as {shown(low)!r}; {how}")
        if self.scale == "number" and not number:
            name, sql = times.numbers_as_dates(low, high)
            self.p, first = sql.replace("{t}", "p"), low
            low, unread = self.run(f"SELECT min({self.p}), count_if({self.p} IS NULL) FROM raw")[0]
            if unread:
                how = "pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'"
                raise InputError(f"{column} contains numbers such as {first:.12g}, but freq is a time; {how}")
            self.scale, what = "date", f"{column} contains {first:.15g}, read as {shown(low)}"
            self.doubts.append(f"{what}; confirm it with time_format={name!r}")
        self.window = self.freq.window(self.p, low, self.options.origin)

    # Objects and windows

    def _number_objects(self) -> list[Hashable]:
        """Make the table `ids`: id, name, and the number k in the order of appearance. Return the names."""
        side = "SELECT o{0} AS id, 2 * min(rowid) + {0} AS r, {0} AS side FROM raw GROUP BY 1"
        sides = " UNION ALL ".join(side.format(i) for i in range(len(self.objects)))
        name = self.name.replace("{t}", "id")
        columns = f"id, {name} AS name, min(min(r)) OVER (PARTITION BY {name}) AS first"
        ends = "bool_or(side = 0) AS source, bool_or(side = 1) AS target"
        grouped = f"SELECT {columns}, {ends} FROM ({sides}) GROUP BY id"
        ranked = f"SELECT *, (dense_rank() OVER (ORDER BY first) - 1)::INT AS k FROM ({grouped})"
        self.run(f"CREATE TEMP TABLE ids AS {ranked}")
        names = self.run("SELECT any_value(name) FROM ids GROUP BY k ORDER BY k")
        return self._originals([name for (name,) in names])

    def _originals(self, names: Sequence[Hashable]) -> list[Hashable]:
        """Return ids as the caller wrote them."""
        known: dict[Any, Hashable] = {}
        for source in self.sources:
            known |= source.originals
        return [known.get(name, name) for name in names]

    def number_windows(self, rows: str, window: str, time: str = "w") -> None:
        """Make the table `windows`: start w, number k and first r; set the times and the bounds.

        `rows` have a time p, the row `place` of the sources, and r.
        """
        columns = "count(*) AS n, min(r) AS first, min(place) AS low, max(place) AS high, min(p) AS q"
        grouped = f"SELECT {window} AS w, {columns} FROM {rows} GROUP BY 1"
        order = "first" if self.scale == "label" else "w"
        numbered = f"SELECT *, (row_number() OVER (ORDER BY {order}) - 1)::INT AS k FROM ({grouped})"
        self.run(f"CREATE TEMP TABLE windows AS {numbered}")
        found = self.run(f"SELECT {time}, n, first, low, high FROM windows ORDER BY k")
        self.times: list[Hashable] = [plain(start) for start, *_ in found]
        self.counts, self.bounds = [row[1] for row in found], [*(row[2] for row in found), 2**62]
        self.in_order = all(a[4] < b[3] for a, b in itertools.pairwise(found))
        self.notes += [] if self.in_order else ["rows are not in the order of time and were sorted"]


def _texts(texts: list[str]) -> str:
    """Return the SQL of a table of texts t."""
    return f"(SELECT unnest([{', '.join(map(literal, texts))}]::VARCHAR[]) AS t)"


def plain(time: Any) -> Hashable:
    """Return a time as the caller would write it: 3, not 3.0."""
    return int(time) if isinstance(time, float) and time.is_integer() else time
