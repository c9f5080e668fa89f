"""A table in DuckDB: its rows typed by role, checked, with objects and windows numbered, taken by window."""

import abc
import itertools
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.engine import Engine, literal, reason
from affect_xp.io.observed import Snapshot
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import Roles, is_index
from affect_xp.io.sources import FORGET, REJECTED, Source
from affect_xp.io.times import SINCE_1970, Freq, numbers_as_dates, readings, shown, since_1970, strptime

CHUNK_VALUES = 2**21  # fetched at once
SAMPLE = 1000  # rows that suggest how times are written; all rows are checked
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
# No list: IN may become a join, which changes the order of rows, and many lists take long to plan.
IS_MISSING = r"({t} IS NULL OR regexp_full_match({t}::VARCHAR, '(?i)\s*(na|n/a|nan|nat|<na>|null|none)?\s*'))"
TRIMMED = "nullif(trim({t}, ' \t\r\n\u00a0\u2009\u3000\ufeff'), '')"
NUMBER = "CASE WHEN isfinite(try_cast({t} AS DOUBLE)) THEN try_cast({t} AS DOUBLE) END"
COMMA = "CASE WHEN NOT contains({t}, '.') THEN replace({t}, ',', '.') END"
OLDEST = "TIMESTAMP '1000-01-01'"  # %Y takes 24 for a year, too
Cells = dict[str, np.ndarray]  # columns of the rows of one window


class Table(abc.ABC):
    """The rows of one or several sources.

    In DuckDB they are first the table `raw`, with columns p (time), o0, o1 (ids) and v0, v1, ... (values, NaN
    if missing), in the order of the sources. `ids` numbers the objects and `windows` the windows. `cells` has
    the rows of all steps, with the number w of their window.

    Attributes
    ----------
    scale : "date", "number" or "label"
        What p is.
    p, window : str
        The SQL of the time of a row, and of the start of its window.
    notes, doubts : list of str
        What to tell the user; the doubts also as a warning.
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
        self.values = [f"v{i}" for i in range(len(roles.values))]
        self._load()
        self.check("time", {roles.time: "p"}, "{x} IS NULL")
        self.check("value", dict(zip(roles.values, self.values, strict=True)), "isnan({x})")
        self._set_window()
        self.ids: list[Hashable] = self._number_objects() if self.objects else list(roles.values)
        self.prepare()
        self.run("DROP TABLE raw")

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the table `cells`."""

    @abc.abstractmethod
    def snapshot(self, time: Hashable, cells: Cells) -> Snapshot | None:
        """Return what is observed in a window; None if that is nothing."""

    @property
    def n_steps(self) -> int | None:
        """The number of steps, if it is known before they are made."""
        return len(self.times)

    def __iter__(self) -> Iterator[Snapshot]:
        size = max(CHUNK_VALUES // (len(self.values) + 2), 1)
        starts = np.flatnonzero(np.diff(np.cumsum(self.counts) // size, prepend=-1)).tolist()
        for first, last in itertools.pairwise([*starts, len(self.times)]):
            bounds = self.bounds[first : last + 1]
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

    # Rows

    def read(self, sql: str) -> Any:
        """Return the result of a query over {rows}, with columns t, o0, o1, v0, v1, ..."""
        rows = " UNION ALL ".join(map(self._select, self.sources))
        found = self.run(f"{FORGET}; {sql.replace('{rows}', f'({rows})')}", self.title)
        titles = {source.file: source.title for source in self.sources if source.file}
        for line, text, why, file in self.run(REJECTED) if titles else ():
            raise InputError(f"line {line} of {titles[file]} cannot be read: {text[:80]!r}; {reason(why)}")
        return found

    def _select(self, source: Source) -> str:
        lacking = [name for name in self.roles.used if name not in source.columns]
        if lacking:
            raise InputError(f"{source.title} has no column {lacking[0]!r}, unlike {self.sources[0].title}")
        pairs = zip(self.roles.used, ("t", *self.objects, *self.values), strict=True)
        columns = ", ".join(f"{source.columns[name]} AS {role}" for name, role in pairs)
        return f"SELECT {columns} FROM {source.rows}"

    def _load(self) -> None:
        types: dict[str, set[str]] = {}
        for source in self.sources:
            for name, of, *_ in self.run(f"DESCRIBE {self._select(source)}", source.title):
                types.setdefault(name, set()).add(of)
        if len({"ZONE" in of for of in types["t"]}) > 1:
            what = f"column {self.roles.time!r} has a time zone in some tables only"
            raise InputError(f"{what}; convert all to UTC")
        self.reading = self._reading(types["t"])
        self.texts = any(re.match("VARCHAR|ENUM", of) for name in self.objects for of in types[name])
        typed = {"t": self.reading.replace("{t}", "t")}
        for name in self.values:
            commas = self.options.decimal == "," and "VARCHAR" in types[name]
            typed[name] = f"try_cast({COMMA.replace('{t}', name) if commas else name} AS DOUBLE)"
        ids = {name: f"{name}{'::VARCHAR' if self.texts else ''}" for name in self.objects}
        cells = ", ".join(f"{sql} AS {name.replace('t', 'p')}" for name, sql in (typed | ids).items())
        self.read(f"CREATE TEMP TABLE raw AS SELECT {cells} FROM {{rows}}")
        self._check_read(typed)

    def _check_read(self, typed: dict[str, str]) -> None:
        """Raise at the first time or value that is there but cannot be read. `typed`: the SQL of each."""
        counts = ", ".join(f"count({name.replace('t', 'p')})" for name in typed)
        total, *found = self.run(f"SELECT count(*), {counts} FROM raw")[0]
        gaps = [name for name, count in zip(typed, found, strict=True) if count < total]
        for part in _batches(gaps, 50):  # all at once take long to plan
            tests = (f"{typed[name]} IS NULL AND NOT {IS_MISSING.replace('{t}', name)}" for name in part)
            flags = ", ".join(f"{test} AS is_{name}" for name, test in zip(part, tests, strict=True))
            rows = f"(SELECT row_number() OVER () - 1 AS row, {flags} FROM {{rows}})"
            some = " OR ".join(f"is_{name}" for name in part)
            for row, *bad in self.read(f"SELECT * FROM {rows} WHERE {some} ORDER BY row LIMIT 1"):
                raise InputError(self._unread(row, part[bad.index(True)]))
            missing = ", ".join(f"{name} = coalesce({name}, 'nan'::DOUBLE)" for name in part if name != "t")
            self.run(f"UPDATE raw SET {missing}" if missing else "SELECT 1")

    def check(self, what: str, columns: dict[str, str], missing: str) -> None:
        """Raise at the first row without a time, id or value, or leave such rows out.

        `columns`: the columns in `raw`, by name. `missing`: the SQL that tests a column {x}.
        """
        kept = what == "value" and self.roles.kind == "series" and self.options.missing == "drop"
        for part in _batches(list(columns), 100):
            if what == "value" and not self._first("NOT isfinite({x})", columns, part):
                continue
            for row, column in self._first("isinf({x})", columns, part) if what == "value" else ():
                raise InputError(self._unread(row, columns[column]))
            for row, column in () if kept else self._first(missing, columns, part):
                if self.options.missing == "error":
                    how = "pass missing='drop' to leave such rows out, or fill it in first"
                    raise InputError(f"{self._place(row)} has no {what} in column {column!r}; {how}")
                tests = " OR ".join(missing.replace("{x}", columns[name]) for name in part)
                ((count,),) = self.run(f"DELETE FROM raw WHERE {tests}")
                self.notes.append(f"rows without a {what} left out: {count}")

    def _first(self, test: str, columns: dict[str, str], part: list[str]) -> list[tuple[int, str]]:
        """Return the first row of `raw` for which a test of one of the columns is true, and the column."""
        tests = [f"({test.replace('{x}', columns[name])})" for name in part]
        sql = f"SELECT rowid, {', '.join(tests)} FROM raw WHERE {' OR '.join(tests)} ORDER BY rowid LIMIT 1"
        return [(row, part[flags.index(True)]) for row, *flags in self.run(sql)]

    def _unread(self, row: int, name: str) -> str:
        """Return the message for a time or a value that cannot be read; `name` is that in {rows}."""
        column = self.roles.time if name == "t" else self.roles.values[self.values.index(name)]
        ((text,),) = self.read(f"SELECT {name}::VARCHAR FROM {{rows}} LIMIT 1 OFFSET {row}")
        where, given = self._place(row), self.options.time_format
        if name != "t" and re.fullmatch(r"\s*[-+]?inf(inity)?\s*", text, re.IGNORECASE):
            how = "replace it by a number, or leave it empty and pass missing='drop'"
            return f"{where} has the value {text.strip()} in column {column!r}; {how}"
        if name != "t":
            how = "name the columns to use with features=[...]"
            how += ", or the ends of edges with source= and target=" if self.options.kind == "auto" else ""
            how = "pass decimal=',' for decimal commas" if re.search(r"\d,\d", text) else how
            return f"{where} has no number in column {column!r}; {how}"
        zoned = bool(re.search(r":\d\d.*([Zz]|UTC|[+-]\d\d(:?\d\d)?)$", text.strip()))
        why = f"cannot be read {f'by time_format={given!r}' if given else f'as a {self.scale}'}"
        if self.scale == "date" and not given and zoned != ("%z" in self.reading):
            why = "mixes times with and without a time zone; convert all to UTC"
        return f"{where}: {text!r} in column {column!r} {why}"

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
        number, time_format = (
            all(of.lstrip("U").startswith(NUMBERS) for of in types),
            self.options.time_format,
        )
        if all(of.startswith(("TIMESTAMP", "DATE")) for of in types):
            sql = "make_timestamp(epoch_us({t}))"
        elif time_format in SINCE_1970:
            sql = since_1970(time_format).replace("{t}", "try_cast({t} AS DOUBLE)")
        elif time_format is not None:
            sql = strptime([time_format]).replace("{t}", "{t}::BIGINT::VARCHAR" if number else "trim({t})")
        else:
            self.scale, sql = ("number", NUMBER) if number else self._text_reading()
        if self.scale == "label":
            return f"CASE WHEN NOT {IS_MISSING} THEN trim({{t}}) END"
        return f"nullif(greatest({sql}, {OLDEST}), {OLDEST})" if self.scale == "date" else sql

    def _text_reading(self) -> tuple[str, str]:
        """Return the scale of times that are texts, and the SQL that reads one of them."""
        rows = f"(SELECT trim(t) AS t FROM {{rows}} WHERE NOT {IS_MISSING.replace('{t}', 't')})"
        sample = [text for (text,) in self.read(f"SELECT t FROM {rows} LIMIT {SAMPLE}")]
        if 2 * len(self.run(_values(sample, f"{NUMBER} IS NOT NULL"))) > len(sample):  # others are errors
            return "number", NUMBER
        few = _values(list(dict.fromkeys(sample))[:100], "true")
        found = self._fitting(readings(sample), lambda sql: self.run(f"{sql} FROM ({few})"))
        if len(found) > 1:
            found = self._fitting(found, lambda sql: self.read(f"{sql} FROM {rows}"))
            self._check_unique(found, rows)
        for name, sql in list(found.items())[:1]:
            if not name.startswith("%Y-%m-%d"):
                self.notes.append(f"times such as {sample[0]!r} are read as {name}")
            return "date", sql.replace("{t}", "trim({t})")
        if sample:
            dated = any(re.search(r"\d\D+\d", text) for text in sample)
            what = f"times such as {sample[0]!r} are labels, in the order in which they appear"
            (self.doubts if dated else self.notes).append(f"{what}; pass time_format= if they are dates")
        return "label", ""

    @staticmethod
    def _fitting(found: dict[str, str], run: Any) -> dict[str, str]:
        """Return the readings that fit most of the texts; none, if none fits."""
        tests = (f"count(nullif({sql.replace('{t}', 't')} >= {OLDEST}, false))" for sql in found.values())
        fits = list(zip(found, *run(f"SELECT {', '.join(tests)}"), strict=True))
        most = max(count for _, count in fits)
        return {name: found[name] for name, count in fits if count == most > 0}

    def _check_unique(self, found: dict[str, str], rows: str) -> None:
        """Raise if two ways to read the times give different dates."""
        for (one, a), (other, b) in itertools.combinations(found.items(), 2):
            a, b = a.replace("{t}", "t"), b.replace("{t}", "t")
            for text, first, second in self.read(f"SELECT t, {a}, {b} FROM {rows} WHERE {a} <> {b} LIMIT 1"):
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
            ways = numbers_as_dates(low, high)
            if len(ways) != 1:
                how = "pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'"
                raise InputError(f"{column} contains numbers such as {low:.12g}, but freq is a time; {how}")
            ((name, sql),) = ways.items()
            what, self.p, self.scale = f"{column} contains {low:.15g}", sql.replace("{t}", "p"), "date"
            low = self.run(f"SELECT min({self.p}) FROM raw")[0][0]
            self.doubts.append(f"{what}, read as {shown(low)}; confirm it with time_format={name!r}")
        self.window = self.freq.window(self.p, low, self.options.origin)

    # Objects and windows

    def _number_objects(self) -> list[Hashable]:
        """Make the table `ids`: id, name, and the number k in the order of appearance. Return the ids."""
        name = TRIMMED.replace("{t}", "id") if self.texts else "id"
        side = "SELECT o{0} AS id, 2 * min(rowid) + {0} AS r, {0} AS side FROM raw GROUP BY 1"
        sides = " UNION ALL ".join(side.format(i) for i in range(len(self.objects)))
        columns = f"id, {name} AS name, min(min(r)) OVER (PARTITION BY {name}) AS first"
        ends = "bool_or(side = 0) AS source, bool_or(side = 1) AS target"
        grouped = f"SELECT {columns}, {ends} FROM ({sides}) GROUP BY id"
        ranked = f"SELECT *, (dense_rank() OVER (ORDER BY first) - 1)::INT AS k FROM ({grouped})"
        self.run(f"CREATE OR REPLACE TEMP TABLE ids AS {ranked}")
        if self.run("SELECT 1 FROM ids WHERE name IS NULL LIMIT 1"):
            missing = f"{name.replace('id', '{x}')} IS NULL"
            self.check("id", dict(zip(self.roles.objects, self.objects, strict=True)), missing)
            return self._number_objects()
        names = self.run("SELECT any_value(name) FROM ids GROUP BY k ORDER BY k")
        originals = {text: id for source in self.sources for text, id in source.originals.items()}
        return [originals.get(name, name) for (name,) in names]

    def number_windows(self, rows: str, window: str, place: str = "rowid") -> None:
        """Make the table `windows`: start w and number k; set the starts and the numbers of rows."""
        counts = f"count(*) AS n, min({place}) AS first, max({place}) AS last"
        grouped = f"SELECT {window} AS w, {counts} FROM {rows} GROUP BY 1"
        order = "first" if self.scale == "label" else "w"
        numbered = f"SELECT *, (row_number() OVER (ORDER BY {order}) - 1)::INT AS k FROM ({grouped})"
        self.run(f"CREATE TEMP TABLE windows AS {numbered}")
        found = self.run("SELECT w, n, first, last FROM windows ORDER BY k")
        self.times: list[Hashable] = [plain(w) for w, *_ in found]
        self.counts, self.firsts = [n for _, n, *_ in found], [first for *_, first, _ in found]
        self.bounds: Sequence[int] = range(len(found) + 1)
        self.in_order = all(a[3] < b[2] for a, b in itertools.pairwise(found))
        if not self.in_order:
            self.notes.append("rows are not in the order of time and were sorted")


def _batches(names: list[str], size: int) -> Iterator[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _values(texts: list[str], test: str) -> str:
    """Return the SQL of the texts t for which a test of {t} is true."""
    rows = ", ".join(f"({literal(text)})" for text in texts) or "(NULL)"
    return f"SELECT t FROM (VALUES {rows}) AS texts(t) WHERE {test.replace('{t}', 't')}"


def plain(time: Any) -> Hashable:
    """Return a time as the caller would write it: 3, not 3.0."""
    return int(time) if isinstance(time, float) and time.is_integer() else time


def dated_index(engine: Engine, source: Source) -> str | None:
    """Return the index column of a saved DataFrame, if it contains dates."""
    for name in filter(is_index, source.columns):
        sql = f"SELECT trim({source.columns[name]}::VARCHAR) FROM {source.rows} LIMIT 1"
        if re.match(r"\d+[-/.]\d+[-/.]\d|\d+[- ][A-Z]", "".join(text or "" for (text,) in engine.run(sql))):
            return name
    return None
