"""The rows of a table in DuckDB: typed by role, checked cell by cell, with numbers for objects."""

import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io import times
from affect_xp.io.engine import IS_MISSING, MISSING, Engine, literal
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import Roles
from affect_xp.io.sources import Source, read_rows
from affect_xp.io.times import NEWEST, OLDEST, SINCE_1970, Freq, shown

SAMPLE = 1000  # rows that suggest how times are written; all rows are checked
NUMBERS = re.compile("U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL|BOOLEAN")
TRIMMED = "nullif(trim({t}, ' \t\r\n\u00a0\u2009\u3000\ufeff'), '')"
# For DuckDB 1_000 is 1000: it gets another character, which is in no number.
NO_UNDERSCORE = "CASE WHEN contains({t}, '_') THEN replace({t}, '_', '\x1f') ELSE {t} END"
DECIMALS = {".": NO_UNDERSCORE, ",": "translate({t}, ',._', '.?\x1f')"}
Cells = dict[str, np.ndarray]  # columns of some rows


class Table:
    """The rows of one or several sources.

    In DuckDB they are the table `raw` with the columns p (time), o0, o1 (the numbers of objects, in the order
    in which they appear) and v (a list of values, or the only one). Labels of times are numbers, too. Rows
    are in the order of `place`: the rowid, or a column.

    Attributes
    ----------
    ids, labels : list
        The names of objects and of times, by number.
    scale : "date", "number" or "label"
        What p is.
    notes, doubts : list of str
        What the user should know; the doubts are also a warning.
    """

    def __init__(self, engine: Engine, sources: Sequence[Source], roles: Roles, options: ReadOptions) -> None:
        more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
        self.run, self.sources, self.title = engine.run, sources, sources[0].title + more
        self.roles, self.options, self.scale = roles, options, "date"
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.place = "rowid"  # the SQL of the number of a row
        self.objects = ["o0", "o1"][: len(roles.objects)]
        texts = self._load()
        name = TRIMMED if texts else "nullif({t}, 'nan'::DOUBLE)"
        self.ids = self._number(self.objects, name) if self.objects else self._originals(roles.values)
        self._check_cells(name)
        self.labels = self._number(["p"], "{t}") if self.scale == "label" else []
        if self.labels:
            what = f"times such as {self.labels[0]!r} are labels, in the order in which they appear"
            doubtful = any(re.search(r"\d\D+\d", str(label)) for label in self.labels)
            doubtful = doubtful or not times.in_order(list(map(str, self.labels)))
            (self.doubts if doubtful else self.notes).append(f"{what}; pass time_format= if they are dates")

    # Rows

    def fetch(self, first: Any, last: Any, *, values: bool) -> Cells:
        """Return the rows from a time to another; v has a row for each.

        Those with values are in the order of the sources.
        """
        rows, given = "FROM raw WHERE p BETWEEN $1 AND $2", (first, last)
        cells = self.run(f"SELECT {', '.join(['p', *self.objects])} {rows}", given=given, fetch="fetchnumpy")
        if values and self.roles.values:
            each = "v" if len(self.roles.values) == 1 else "unnest(v)"
            v = self.run(f"SELECT {each} AS v {rows}", given=given, fetch="fetchnumpy")["v"]
            cells["v"] = np.ma.filled(v, np.nan).reshape(len(cells["p"]), -1)
            if self.place == "place":
                place = self.run(f"SELECT place {rows}", given=given, fetch="fetchnumpy")["place"]
                cells = ordered(cells, place)
        return cells

    def read(self, sql: str) -> Any:
        """Return the result of a query over {rows}, with columns t, o0, o1, and v, a list."""
        rows = " UNION ALL ".join(map(self._select, self.sources))
        return read_rows(self.run, sql.replace("{rows}", f"({rows})"), self.title, self.sources)

    def _used(self, source: Source) -> list[tuple[str, str]]:
        """Return the SQL and the types of the columns of a source that have a role."""
        for name in self.roles.used:
            if name not in source.columns:
                raise InputError(f"{source.title} has no column {name!r}, unlike {self.sources[0].title}")
        return [source.columns[name] for name in self.roles.used]

    def _select(self, source: Source) -> str:
        columns = self._used(source)
        names = ["t", *self.objects]
        if not re.match(f"{NUMBERS.pattern}|TIMESTAMP|DATE|VARCHAR", columns[0][1]):
            columns[0] = f"{columns[0][0]}::VARCHAR", "VARCHAR"
        named = ", ".join(f"{sql} AS {name}" for (sql, _), name in zip(columns, names, strict=False))
        values = columns[len(names) :]
        as_type = "DOUBLE" if all(NUMBERS.match(of) for _, of in values) else "VARCHAR"
        cells = (sql if of == as_type else f"{sql}::{as_type}" for sql, of in values)
        if as_type == "VARCHAR":
            cells = (DECIMALS[self.options.decimal].replace("{t}", cell) for cell in cells)
        return f"SELECT {named}, [{', '.join(cells)}]::{as_type}[] AS v FROM {source.rows}"

    def _load(self) -> bool:
        """Make the table `raw`, with the names of objects; return whether these are texts."""
        types = [[of for _, of in self._used(source)] for source in self.sources]
        if len({"ZONE" in of for of, *_ in types}) > 1:
            what = f"column {self.roles.time!r} has a time zone in some tables only"
            raise InputError(f"{what}; convert all to UTC")
        texts = not all(NUMBERS.match(of) for row in types for of in row[1 : len(self.objects) + 1])
        self.reading = self._reading({of for of, *_ in types})
        ids = "".join(f", {name}{'::VARCHAR' if texts else ''} AS {name}" for name in self.objects)
        each = "v[1] AS DOUBLE" if len(self.roles.values) == 1 else "v AS DOUBLE[]"
        v = f", try_cast({each}) AS v" if self.roles.values else ""
        cells = f"{self.reading.replace('{t}', 't')} AS p{ids}{v}"
        self.read(f"CREATE TEMP TABLE raw AS SELECT {cells} FROM {{rows}}")
        unread = [] if self.run("SELECT 1 FROM raw LIMIT 1") else [s for s in self.sources if s.first]
        for source in unread:
            how = "correct the quotes of its first line, or save it again as UTF-8 text"
            raise InputError(f"no row of {source.title} was read, not even {source.first[:80]!r}; {how}")
        return texts

    def _number(self, columns: Sequence[str], name: str) -> list[Hashable]:
        """Replace names in columns of `raw` by numbers, in the order of appearance; return the names."""
        each = f"SELECT {{}} AS id, 2 * min({self.place}) + {{}} AS place FROM raw GROUP BY 1"
        distinct = " UNION ALL ".join(each.format(column, i) for i, column in enumerate(columns))
        named = f"SELECT {name.replace('{t}', 'id')} AS name, * FROM ({distinct})"
        code = "(row_number() OVER (ORDER BY name IS NULL, min(place)) - 1)::INTEGER AS code"
        trimmed = "bool_or(id::VARCHAR IS DISTINCT FROM name) AS trimmed"
        grouped = f"SELECT name, {code}, {trimmed} FROM ({named}) GROUP BY name"
        self.run(f"CREATE OR REPLACE TEMP TABLE names AS {grouped}")
        found = self.run("SELECT name, trimmed FROM names ORDER BY code")
        text = name if any(trimmed for _, trimmed in found) else "{t}"
        if len(columns) == 2 and self.options.memory_limit is None:
            self._join(text)
        else:
            values = "SELECT name::VARCHAR FROM names WHERE name IS NOT NULL ORDER BY code"
            self.run(f"CREATE TYPE {columns[0]}_names AS ENUM ({values})")
            for column in columns:
                code = f"enum_code({text.replace('{t}', column)}::VARCHAR::{columns[0]}_names)"
                self.run(f"ALTER TABLE raw ALTER {column} TYPE INTEGER USING {code}")
        return self._originals([name for name, _ in found if name is not None])

    def _join(self, text: str) -> None:
        """Replace names of both ends of edges by numbers, on all threads, which changes the order of rows."""
        names = "LEFT JOIN names AS a ON {} = a.name LEFT JOIN names AS b ON {} = b.name"
        names = names.format(*(text.replace("{t}", f"raw.{o}") for o in self.objects))
        columns = "raw.rowid AS place, raw.* REPLACE (a.code AS o0, b.code AS o1)"
        self.run(f"CREATE TEMP TABLE numbered AS SELECT {columns} FROM raw {names}")
        self.run("DROP TABLE raw; ALTER TABLE numbered RENAME TO raw")
        self.place = "place"

    def _originals(self, names: Sequence[Hashable]) -> list[Hashable]:
        """Return names as the caller wrote them."""
        known: dict[Any, Hashable] = {}
        for source in self.sources:
            known |= source.originals
        return [known.get(name, name) for name in names]

    # Cells

    def _check_cells(self, name: str) -> None:
        """Raise at the first time, id or value that is missing or cannot be read, or leave such rows out."""
        drop, n = self.options.missing == "drop", len(self.roles.values)
        tests = {"time": "p IS NULL", "id": " OR ".join(f"{o} IS NULL" for o in self.objects) or "false"}
        if n == 1:
            tests["value"] = "v IS NULL OR NOT isfinite(v)"
        elif n:  # NaN is the largest
            tests["value"] = f"list_count(v) < {n} OR NOT isfinite(list_min(v)) OR NOT isfinite(list_max(v))"
        if not self.run(f"SELECT 1 FROM raw WHERE {' OR '.join(tests.values())} LIMIT 1"):
            return
        given = f" AND NOT {IS_MISSING}" if drop else ""  # those that are missing are left out
        bad = [f"{self.reading} IS NULL{given}".replace("{t}", "t")]
        bad += ["false" if drop else f"{name.replace('{t}', o)} IS NULL" for o in self.objects]
        value = f"NOT coalesce(isfinite(try_cast({{t}} AS DOUBLE)), false){given}".replace("{t}", "x")
        texts = ", ".join(f"{column}::VARCHAR" for column in ("t", *self.objects))
        cells = f"list_concat([{texts}], v::VARCHAR[]) AS texts"
        cells += f", list_concat([{', '.join(bad)}], [{value} FOR x IN v]) AS bad"
        rows = f"(SELECT row_number() OVER () - 1 AS row, {cells} FROM {{rows}})"
        first = f"FROM {rows} WHERE list_contains(bad, true) ORDER BY row LIMIT 1"
        for row, n, text in self.read(f"SELECT row, list_position(bad, true) AS n, texts[n] {first}"):
            raise InputError(self._problem(row, n - 1, text))
        if self.roles.kind == "series" and not self.objects:
            del tests["value"]  # it leaves out the object, not the row
        for what, test in tests.items():
            ((count,),) = self.run(f"DELETE FROM raw WHERE {test}")
            self.notes += [f"rows without a {what} left out: {count}"] if count else []

    def _problem(self, row: int, at: int, text: str | None) -> str:
        """Return the message for a cell that is missing or cannot be read; `at` is its place in `used`."""
        where, column = self._place(row), f"in column {self.roles.used[at]!r}"
        what = "time" if at == 0 else "id" if at <= len(self.objects) else "value"
        if text is None or what == "id" or re.fullmatch(MISSING, text):
            how = "pass missing='drop' to leave such rows out, or fill it in first"
            return f"{where} has no {what} {column}; {how}"
        text = text.replace("\x1f", "_")  # as it was
        if what == "value" and self.options.decimal == ",":
            text = text.translate(str.maketrans(".?", ",."))
        why = self._time_problem(text) if what == "time" else self._value_problem(text)
        return f"{where}: {text.strip()!r} {column} {why}"

    def _time_problem(self, text: str) -> str:
        given = self.options.time_format
        zoned = re.search(r":\d\d.*([Zz]|UTC|[+-]\d\d(:?\d\d)?)$", text.strip())
        if self.scale == "date" and not given and bool(zoned) != ("%z" in self.reading):
            return "mixes times with and without a time zone; convert all to UTC"
        return f"cannot be read {f'by time_format={given!r}' if given else f'as a {self.scale}'}"

    def _value_problem(self, text: str) -> str:
        comma, edges = self.options.decimal == ",", self.roles.kind == "edges"
        if re.fullmatch(r"[-+]?(inf(inity)?|\d[\d.]*e\d+)", text.strip(), re.IGNORECASE):
            return "is not finite; replace it by a number, or leave it empty and pass missing='drop'"
        if not re.search(r"\w", text):
            how = "leave it empty and pass missing='drop' if it stands for a missing value"
        elif re.search(rf"\d[{'.' if comma else ','}'’_\s]\d", text):
            how = "remove separators of thousands"
            how += "" if comma else ", or pass decimal=',' for decimal commas"
        elif edges:
            how = "pass weight= with a column of numbers"
        else:
            how = "name the columns to use with features=[...]"
            how += ", or the ends of edges with source= and target=" if self.options.kind == "auto" else ""
        return f"is not a number; {how}"

    def _place(self, row: int) -> str:
        """Return what messages call a row, counted from 0."""
        for source in self.sources:
            ((count,),) = self.run(f"SELECT count(*) FROM {source.rows}")
            if row < count:
                return source.place(self.run, row)
            row -= count
        raise AssertionError("a row of no source")

    # Times

    def _reading(self, types: set[str]) -> str:
        """Return the SQL of the time {t} of a row; NULL if it is missing or not a time."""
        number, time_format = all(map(NUMBERS.match, types)), self.options.time_format
        if all(of.startswith(("TIMESTAMP", "DATE")) for of in types):
            sql = "make_timestamp(epoch_us({t}))"
        elif time_format in SINCE_1970:
            text = "{t}" if number else "replace({t}, '_', '?')"  # DuckDB takes 1_000 for a number
            sql = times.since_1970(time_format).replace("{t}", f"try_cast({text} AS DOUBLE)")
        elif time_format is not None:
            text = "{t}::BIGINT::VARCHAR" if number else "trim({t})"
            sql = times.strptime([time_format]).replace("{t}", text)
        else:
            self.scale, sql = ("number", times.NUMBER) if number else self._text_reading()
        bounded = f"least(greatest({sql}, {OLDEST}), {NEWEST})"
        return f"nullif(nullif({bounded}, {OLDEST}), {NEWEST})" if self.scale == "date" else sql

    def _text_reading(self) -> tuple[str, str]:
        """Return the scale of times that are texts, and the SQL that reads one of them."""
        rows = f"(SELECT trim(t) AS t FROM {{rows}} WHERE NOT {IS_MISSING.replace('{t}', 't')})"
        sample = [text for (text,) in self.read(f"SELECT t FROM {rows} LIMIT {SAMPLE}")]
        # DuckDB takes 2024_10 for a number. With a function of the text it does not cast while it reads the
        # file, and reject "NA".
        translated = "translate({t}, ',_', '.?')" if self.options.decimal == "," else "replace({t}, '_', '?')"
        number = times.NUMBER.replace("{t}", translated)
        ((numeric,),) = self.run(f"SELECT count({number.replace('{t}', 't')}) FROM {_texts(sample)}")
        if 2 * numeric >= len(sample) > 0:  # the others are errors
            return "number", number
        found = self._fitting(times.date_readings(sample), _texts(list(dict.fromkeys(sample))[:100]))
        if len(found) > 1:
            found = self._fitting(found, rows)
            self._check_unique(found, rows)
        for name, sql in list(found.items())[:1]:
            if not name.startswith("%Y-%m-%d"):
                self.notes.append(f"times such as {sample[0]!r} are read as {name}")
            trimmed = sql.replace("{t}", "trim({t})")  # few have blanks at the ends
            return "date", f"coalesce({sql}, {trimmed})"
        return "label", f"CASE WHEN NOT {IS_MISSING} THEN trim({{t}}) END"

    def _fitting(self, found: dict[str, str], rows: str) -> dict[str, str]:
        """Return the readings that fit most of the texts; none, if none fits."""
        tests = (f"count(nullif({sql.replace('{t}', 't')} >= {OLDEST}, false))" for sql in found.values())
        (counts,) = (self.read if "{rows}" in rows else self.run)(f"SELECT {', '.join(tests)} FROM {rows}")
        return {name: found[name] for name, n in zip(found, counts, strict=True) if n == max(counts) > 0}

    def _check_unique(self, found: dict[str, str], rows: str) -> None:
        """Raise if two ways to read the times give different dates."""
        dates = ", ".join(sql.replace("{t}", "t") for sql in found.values())
        differ = f"SELECT t, [{dates}] AS read FROM {rows} WHERE len(list_distinct(read)) > 1 LIMIT 1"
        for text, read in self.read(differ):
            ways = {date: name for date, name in zip(reversed(read), reversed(found), strict=True) if date}
            (second, other), (first, one) = list(ways.items())[-2:]
            both = f"{text!r} is {first:%d %B %Y} by {one!r} and {second:%d %B %Y} by {other!r}"
            how = f"pass time_format={one!r} or time_format={other!r}"
            raise InputError(f"column {self.roles.time!r} of {self.title} is ambiguous: {both}; {how}")

    def window(self, freq: Freq | None) -> str:
        """Return the SQL of the window of a row, after a check that `freq` suits the times."""
        low, high = self.run("SELECT min(p), max(p) FROM raw")[0]
        if freq is None or freq.unit == "rows" or low is None:
            return "p"
        number, column = freq.unit == "number", f"column {self.roles.time!r} of {self.title}"
        if self.scale == "label" or (self.scale == "date" and number):
            unit = "freq is a number; add a unit, as in '7D'"
            how = unit if number else "for freq, pass time_format='%d/%m/%Y'"
            such = self.labels[0] if self.labels else low
            raise InputError(f"{column} contains {self.scale}s such as {shown(such)!r}; {how}")
        if self.scale == "number" and not number:
            name, sql = times.numbers_as_dates(low, high)
            date, such = sql.replace("{t}", "p"), low
            low, unread = self.run(f"SELECT min({date}), count_if({date} IS NULL) FROM raw")[0]
            if unread:
                how = "pass freq as a number, too, or time_format='s' (since 1970), '%Y%m%d' or '%Y'"
                raise InputError(f"{column} contains numbers such as {such:.12g}, but freq is a time; {how}")
            self.run(f"ALTER TABLE raw ALTER p TYPE TIMESTAMP USING {date}")
            self.scale, what = "date", f"{column} contains {such:.15g}, read as {shown(low)}"
            self.doubts.append(f"{what}; confirm it with time_format={name!r}")
        return freq.window("p", low, self.options.origin)


def _texts(texts: list[str]) -> str:
    """Return the SQL of a table of texts t."""
    return f"(SELECT unnest([{', '.join(map(literal, texts))}]::VARCHAR[]) AS t)"


def ordered(cells: Cells, key: np.ndarray) -> Cells:
    """Return rows in the order of a key; those with equal keys keep their order."""
    if (key[1:] >= key[:-1]).all():
        return cells
    order = np.argsort(key, kind="stable")
    return {name: column[order] for name, column in cells.items()}
