"""The rows of a table in DuckDB, typed by role, with their times, ids and windows numbered."""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Hashable, Sequence
from typing import Any

from affect_xp.exceptions import InputError
from affect_xp.io.engine import Engine, literal, reason
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import Roles, is_index
from affect_xp.io.sources import FORGET, REJECTED, Source, TextSource
from affect_xp.io.times import SINCE_1970, numbers_as_dates, parse_freq, readings, shown, since_1970, strptime

SAMPLE = 1000  # rows that suggest how times are written; all rows are checked
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
# No list: IN may become a join, which changes the order of rows, and many lists take long to plan.
IS_MISSING = r"({t} IS NULL OR regexp_full_match({t}, '(?i)\s*(na|n/a|nan|nat|<na>|null|none)?\s*'))"
TRIMMED = "nullif(trim({t}, ' \t\r\n\u00a0\u2009\u3000\ufeff'), '')"
NUMBER = "CASE WHEN isfinite(try_cast({t} AS DOUBLE)) THEN try_cast({t} AS DOUBLE) END"
NAN = "'nan'::DOUBLE"
OLDEST = "TIMESTAMP '1000-01-01'"  # %Y takes 24 for a year, too


@dataclasses.dataclass(eq=False)
class Table:
    """The rows of one or several sources.

    In DuckDB they are the table `raw`, with columns p (time), o0, o1 (ids) and v0, v1, ... (values, NaN if
    missing), in the order of the sources; `ids` numbers the objects, and `windows` the windows.

    Attributes
    ----------
    scale : "date", "number" or "label"
        What p is.
    p, window : str
        The SQL of the time of a row, and of the start of its window.
    notes, doubts : list of str
        What to tell the user; the doubts also as a warning.
    """

    engine: Engine
    sources: Sequence[Source]
    roles: Roles
    options: ReadOptions
    notes: list[str] = dataclasses.field(default_factory=list)
    doubts: list[str] = dataclasses.field(default_factory=list)
    scale: str = "date"
    p: str = "p"
    window: str = "p"

    def __post_init__(self) -> None:
        more = f" and {len(self.sources) - 1} more" if len(self.sources) > 1 else ""
        self.title, self.freq = self.sources[0].title + more, parse_freq(self.options.freq)
        self.objects = [f"o{i}" for i in range(len(self.roles.objects))]
        self.values = [f"v{i}" for i in range(len(self.roles.values))]
        self._load()
        self._check_times()
        self._check_numbers()
        self._set_windows()

    def read(self, sql: str) -> Any:
        """Return the result of a query over {rows}, with columns t, o0, o1, v0, v1, ..."""
        rows = " UNION ALL ".join(map(self._select, self.sources))
        try:
            self.engine.run(FORGET)
            found = self.engine.run(sql.replace("{rows}", f"({rows})"), self.title)
        except InputError as error:  # lines may end in several ways
            if "state machine" not in str(error) or not sum(s.rewrite(self.engine) for s in self.sources):
                raise
            return self.read(sql)
        texts = {str(source.file): source.title for source in self.sources if isinstance(source, TextSource)}
        for line, text, why, path in self.engine.run(REJECTED) if texts and "DESC" not in sql else ():
            raise InputError(f"line {line} of {texts[path]} cannot be read: {text[:80]!r}; {reason(why)}")
        return found

    def _select(self, source: Source) -> str:
        lacking = [name for name in self.roles.used if name not in source.columns]
        if lacking:
            raise InputError(f"{source.title} has no column {lacking[0]!r}, unlike {self.sources[0].title}")
        pairs = zip(self.roles.used, ("t", *self.objects, *self.values), strict=True)
        columns = ", ".join(f"{source.columns[name]} AS {role}" for name, role in pairs)
        return f"SELECT {columns} FROM {source.rows}"

    def place(self, row: int) -> str:
        """Return what messages call a row, counted from 0."""
        for source in self.sources:
            ((count,),) = self.engine.run(f"SELECT count(*) FROM {source.rows}")
            if row < count:
                return source.place(self.engine, row)
            row -= count
        raise AssertionError("a row of no source")

    def _load(self) -> None:
        types = {name: of for name, of, *_ in self.read("DESCRIBE FROM {rows}")}
        of_time = (f"DESCRIBE SELECT {s.columns[self.roles.time]} FROM {s.rows}" for s in self.sources)
        if len({"ZONE" in self.engine.run(sql)[0][1] for sql in of_time}) > 1:
            raise InputError(
                f"column {self.roles.time!r} has a time zone in some tables only; convert all to UTC"
            )
        self.reading = self._reading(types["t"])
        self.texts = any(re.match("VARCHAR|ENUM", types[name]) for name in self.objects)
        cells = [f"{self.reading.replace('{t}', 't')} AS p"]
        cells += [f"{name}{'::VARCHAR' if self.texts else ''} AS {name}" for name in self.objects]
        cells += [f"{self._number(name, types[name])} AS {name}" for name in self.values]
        self.read(f"CREATE TEMP TABLE raw AS SELECT {', '.join(cells)} FROM {{rows}}")

    def _number(self, name: str, of: str = "VARCHAR") -> str:
        """Return the SQL of a value; NULL if it is missing or not a number."""
        if self.options.decimal == "," and of == "VARCHAR":
            name = f"CASE WHEN NOT contains({name}, '.') THEN replace({name}, ',', '.') END"
        return f"try_cast({name} AS DOUBLE)"

    def _check_numbers(self) -> None:
        """Raise at the first value that is not a number; make missing values NaN."""
        counts = ", ".join(["count(*)", *(f"count({name})" for name in self.values)])
        total, *found = self.engine.run(f"SELECT {counts} FROM raw")[0]
        gaps = [i for i, count in enumerate(found) if count < total]
        for batch in (gaps[start : start + 50] for start in range(0, len(gaps), 50)):
            present = {i: f"NOT {IS_MISSING.replace('{t}', f'v{i}::VARCHAR')}" for i in batch}
            bad = ", ".join(f"{self._number(f'v{i}')} IS NULL AND {present[i]} AS b{i}" for i in batch)
            rows = f"(SELECT row_number() OVER () - 1 AS row, {bad} FROM {{rows}})"
            some = " OR ".join(f"b{i}" for i in batch)
            for row, *flags in self.read(f"SELECT * FROM {rows} WHERE {some} ORDER BY row LIMIT 1"):
                column = self.roles.values[batch[flags.index(True)]]
                how = "name the columns to use with features=[...], or pass decimal=',' for decimal commas"
                raise InputError(f"{self.place(row)} has no number in column {column!r}; {how}")
            self.engine.run(f"UPDATE raw SET {', '.join(f'v{i} = coalesce(v{i}, {NAN})' for i in batch)}")

    def require(self, what: str, lacking: dict[str, str]) -> None:
        """Raise at the first row that lacks something, or leave such rows out. `lacking`: SQL by column."""
        test = " OR ".join(lacking.values())
        for row, *lacks in self.engine.run(
            f"SELECT rowid, {', '.join(lacking.values())} FROM raw WHERE {test} LIMIT 1"
        ):
            if self.options.missing == "error":
                how = "pass missing='drop' to leave such rows out, or fill it in first"
                column = list(lacking)[lacks.index(True)]
                raise InputError(f"{self.place(row)} has no {what} in column {column!r}; {how}")
            ((count,),) = self.engine.run(f"DELETE FROM raw WHERE {test}")
            self.notes.append(f"rows without a {what} left out: {count}")

    def check_values(self) -> None:
        """Raise at the first row without a value, or leave such rows out."""
        lacking = {name: f"NOT isfinite(v{i})" for i, name in enumerate(self.roles.values)}
        for i in range(0, len(lacking), 100):
            self.require("value", dict(list(lacking.items())[i : i + 100]))

    # Times

    def _reading(self, of: str) -> str:
        """Return the SQL that reads the time {t} of a row; NULL if it is missing or not a time."""
        number, time_format = of.lstrip("U").startswith(NUMBERS), self.options.time_format
        if of.startswith(("TIMESTAMP", "DATE")):
            return "make_timestamp(epoch_us({t}))"
        if time_format in SINCE_1970:
            return since_1970(time_format).replace("{t}", "try_cast({t} AS DOUBLE)")
        if time_format is not None:
            return strptime([time_format]).replace("{t}", "{t}::BIGINT::VARCHAR" if number else "trim({t})")
        self.scale = "number" if number else self.scale
        return NUMBER if number else self._text_reading()

    def _text_reading(self) -> str:
        rows = f"(SELECT trim(t) AS t FROM {{rows}} WHERE NOT {IS_MISSING.replace('{t}', 't')})"
        sample = [text for (text,) in self.read(f"SELECT t FROM {rows} LIMIT {SAMPLE}")]
        if 2 * sum(map(_is_finite, sample)) > len(sample):  # the others are errors
            self.scale = "number"
            return NUMBER
        found = best_readings(self.engine, sample)
        if len(found) > 1:
            found = _fitting(found, lambda sql: self.read(f"{sql} FROM {rows}"))
            self._check_unique(found, rows)
        for name, sql in list(found.items())[:1]:
            if not name.startswith("%Y-%m-%d"):
                self.notes.append(f"times such as {sample[0]!r} are read as {name}")
            return sql.replace("{t}", "trim({t})")
        self.scale = "label"
        if sample:
            dated = any(re.search(r"\d\D+\d", text) for text in sample)
            what = f"times such as {sample[0]!r} are labels, in the order in which they appear"
            (self.doubts if dated else self.notes).append(f"{what}; pass time_format= if they are dates")
        return f"CASE WHEN NOT {IS_MISSING} THEN trim({{t}}) END"

    def _check_unique(self, found: dict[str, str], rows: str) -> None:
        """Raise if two ways to read the times give different dates."""
        for (one, a), (other, b) in itertools.combinations(found.items(), 2):
            a, b = a.replace("{t}", "t"), b.replace("{t}", "t")
            for text, first, second in self.read(f"SELECT t, {a}, {b} FROM {rows} WHERE {a} <> {b} LIMIT 1"):
                both = f"{text!r} is {first:%d %B %Y} by {one!r} and {second:%d %B %Y} by {other!r}"
                how = f"pass time_format={one!r} or time_format={other!r}"
                raise InputError(f"column {self.roles.time!r} of {self.title} is ambiguous: {both}; {how}")

    def _check_times(self) -> None:
        """Raise at the first time that cannot be read; raise at rows without a time, or leave them out."""
        unread = f"(p IS NULL OR p < {OLDEST})" if self.scale == "date" else "p IS NULL"
        if self.engine.run(f"SELECT count(*) FROM raw WHERE {unread}") == [(0,)]:
            return
        p = self.reading.replace("{t}", "t")
        rows = f"SELECT row_number() OVER () - 1 AS row, t::VARCHAR AS t, {p} AS p"
        bad = f"{unread} AND NOT {IS_MISSING.replace('{t}', 't')} ORDER BY row LIMIT 1"
        for row, text in self.read(f"SELECT row, t FROM ({rows} FROM {{rows}}) WHERE {bad}"):
            zoned = bool(re.search(r":\d\d.*([Zz]|UTC|[+-]\d\d(:?\d\d)?)$", text.strip()))
            given = self.options.time_format
            what = f"cannot be read {f'by time_format={given!r}' if given else f'as a {self.scale}'}"
            if self.scale == "date" and not given and zoned != ("%z" in self.reading):
                what = "mixes times with and without a time zone; convert all to UTC"
            raise InputError(f"{self.place(row)}: {text!r} in column {self.roles.time!r} {what}")
        self.require("time", {self.roles.time: unread})

    def _set_windows(self) -> None:
        """Set the SQL of windows, after a check that `freq` suits the times."""
        low, high = self.engine.run("SELECT min(p), max(p) FROM raw")[0]
        if self.freq is None or self.freq.unit == "rows" or low is None:
            return
        number, column = self.freq.unit == "number", f"column {self.roles.time!r} of {self.title}"
        if self.scale == "label" or (self.scale == "date" and number):
            how = (
                "freq is a number; add a unit, as in '7D'"
                if number
                else "for freq, pass time_format='%d/%m/%Y'"
            )
            raise InputError(f"{column} contains {self.scale}s such as {shown(low)!r}; {how}")
        if self.scale == "number" and not number:
            ways = numbers_as_dates(low, high)
            if len(ways) != 1:
                how = "pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'"
                raise InputError(f"{column} contains numbers such as {low:.12g}, but freq is a time; {how}")
            ((name, sql),) = ways.items()
            self.p, self.scale, number = sql.replace("{t}", "p"), "date", low
            low = self.engine.run(f"SELECT min({self.p}) FROM raw")[0][0]
            what = f"{column} contains {number:.15g}, read as {shown(low)}"
            self.doubts.append(f"{what}; confirm it with time_format={name!r}")
        self.window = self.freq.window(self.p, low, self.options.origin)

    # Objects and windows

    def number_objects(self) -> list[Hashable]:
        """Make the table `ids`: id, name, and the number k in the order of appearance. Return the ids."""
        name = TRIMMED.replace("{t}", "id") if self.texts else "id"
        side = "SELECT o{0} AS id, 2 * min(rowid) + {0} AS r, {0} AS side FROM raw GROUP BY 1"
        sides = " UNION ALL ".join(side.format(i) for i in range(len(self.objects)))
        columns = f"id, {name} AS name, min(min(r)) OVER (PARTITION BY {name}) AS first"
        ends = "bool_or(side = 0) AS source, bool_or(side = 1) AS target"
        grouped = f"SELECT {columns}, {ends} FROM ({sides}) GROUP BY id"
        ranked = f"SELECT *, (dense_rank() OVER (ORDER BY first) - 1)::INT AS k FROM ({grouped})"
        self.engine.run(f"CREATE OR REPLACE TEMP TABLE ids AS {ranked}")
        if self.engine.run("SELECT 1 FROM ids WHERE name IS NULL LIMIT 1"):
            pairs = zip(self.roles.objects, self.objects, strict=True)
            self.require("id", {column: f"{name.replace('id', o)} IS NULL" for column, o in pairs})
            return self.number_objects()
        names = self.engine.run("SELECT any_value(name) FROM ids GROUP BY k ORDER BY k")
        originals = {text: id for source in self.sources for text, id in source.originals.items()}
        return [originals.get(name, name) for (name,) in names]

    def number_windows(
        self, rows: str, window: str, place: str = "rowid"
    ) -> tuple[list[Hashable], list[int]]:
        """Make the table `windows`: start w and number k. Return the starts and numbers of rows."""
        counts = f"count(*) AS n, min({place}) AS first, max({place}) AS last"
        grouped = f"SELECT {window} AS w, {counts} FROM {rows} GROUP BY 1"
        order = "first" if self.scale == "label" else "w"
        numbered = f"SELECT *, (row_number() OVER (ORDER BY {order}) - 1)::INT AS k FROM ({grouped})"
        self.engine.run(f"CREATE TEMP TABLE windows AS {numbered}")
        found = self.engine.run("SELECT w, n, first, last FROM windows ORDER BY k")
        self.in_order = all(a[3] < b[2] for a, b in itertools.pairwise(found))
        self.firsts = [first for _, _, first, _ in found]
        if not self.in_order:
            self.notes.append("rows are not in the order of time and were sorted")
        return [plain(w) for w, *_ in found], [n for _, n, *_ in found]


def plain(time: Any) -> Hashable:
    """Return a time as the caller would write it: 3, not 3.0."""
    return int(time) if isinstance(time, float) and time.is_integer() else time


def _fitting(found: dict[str, str], run: Any) -> dict[str, str]:
    """Return the readings that fit most of the texts; none, if none fits."""
    tests = (f"count(nullif({sql.replace('{t}', 't')} >= {OLDEST}, false))" for sql in found.values())
    counts = run(f"SELECT {', '.join(tests)}")[0]
    return {name: sql for (name, sql), n in zip(found.items(), counts, strict=True) if n == max(counts) > 0}


def best_readings(engine: Engine, sample: list[str]) -> dict[str, str]:
    """Return the ways to read texts as dates that fit most of a sample."""
    rows = ", ".join(f"({literal(text)})" for text in list(dict.fromkeys(sample))[:100]) or "(NULL)"
    return _fitting(readings(sample), lambda sql: engine.run(f"{sql} FROM (VALUES {rows}) AS sample(t)"))


def _is_finite(text: str) -> bool:
    try:
        return abs(float(text)) < float("inf")
    except ValueError:
        return False


def dated_index(engine: Engine, source: Source) -> str | None:
    """Return the index column of a saved DataFrame, if it contains dates."""
    for name in filter(is_index, source.columns):
        with contextlib.suppress(InputError):  # which comes again when all rows are read
            ((text,),) = engine.run(
                f"SELECT trim({source.columns[name]}::VARCHAR) FROM {source.rows} LIMIT 1"
            ) or [("",)]
            if text and not _is_finite(text) and best_readings(engine, [text]):
                return name
    return None
