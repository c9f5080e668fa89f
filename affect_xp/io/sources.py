"""What the caller passed, as relations of DuckDB: text files, Parquet, JSON, DataFrames, dicts of columns."""

import csv
import dataclasses
import glob
import gzip
import itertools
import re
import uuid
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.engine import Engine, literal, quoted, reason
from affect_xp.io.options import ReadOptions

TEXT, JSON, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")
DELIMITERS = ",;\t|"  # or blanks, if the first line contains none of these
COMMENTS = ("#", "%", "sep=")  # the last is of Excel
MAX_HEADER_LINES = 10  # over which names of columns may extend
SAMPLE = 100  # lines that show whether both tabs and blanks separate columns
UNREADABLE = (UnicodeError, EOFError, OSError, LookupError, zlib.error, csv.Error)
# Rows that DuckDB rejects go to a table with their line numbers. Its sniffer, which guesses, is off.
CSV = "auto_detect=false, header=false, strict_mode=true, null_padding=false, store_rejects=true"
LINES = f"{CSV}, delim='\x01', quote='', escape=''"
FORGET = "DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans"
REJECTED = (
    "SELECT line, trim(csv_line, '\n '), error_message, file_path FROM reject_errors "
    "JOIN reject_scans USING (scan_id, file_id) ORDER BY file_id, line LIMIT 1"
)


@dataclasses.dataclass(eq=False)
class Source:
    """Rows with named columns."""

    title: str  # its name in messages
    columns: dict[str, tuple[str, str]]  # the SQL and the type of each, by name
    rows: str  # what follows FROM
    too_wide: str = ""  # the same with one column too many, which rejects all rows of a file of lines
    file: str = ""  # the text file that DuckDB reads: the one passed, or a copy that is easier to read
    # Ids that are not texts, by the text that DuckDB has for them.
    originals: dict[str, Hashable] = dataclasses.field(default_factory=dict)
    index: tuple[str, ...] = ()  # columns that were the index of a frame: times or ids, but not values
    first: str = ""  # the first row of a text file, as Python reads it

    def place(self, run: Callable[[str], Any], row: int) -> str:
        """Return what messages call a row, counted from 0: a line of a file with its text, or its number."""
        if self.too_wide:
            run(f"{FORGET}; SELECT count(*) FROM {self.too_wide}")
            for line, text, *_ in run(f"{REJECTED} OFFSET {row}"):
                return f"line {line} of {self.title} ({text[:80]!r})"
        return f"row {row + 1} of {self.title}"


def read_rows(run: Callable[..., Any], sql: str, title: object, sources: Iterable[Source]) -> Any:
    """Return the result of a query over sources; raise at the first line that is not a row."""
    found = run(f"{FORGET}; {sql}", title)
    titles = {source.file: source.title for source in sources if source.file}
    for line, text, why, file in run(REJECTED) if titles else ():
        raise InputError(f"line {line} of {titles[file]} cannot be read: {text[:80]!r}; {reason(why)}")
    return found


def ending(path: Path) -> str:
    """Return the suffix of a file name without .gz or .zst."""
    return next((s.lower() for s in reversed(path.suffixes) if s.lower() not in (".gz", ".zst")), "")


def part_source(
    engine: Engine, part: Any, time: Hashable, options: ReadOptions, *, rewrite: bool = False
) -> Source:
    """Return the rows of a file, by the suffix of its name, or of a frame.

    With `rewrite`, a text file is copied line by line. `time` is that of a frame without a column of times.
    """
    if not isinstance(part, Path):
        return _frame_source(engine, part, time)
    if ending(part) in PARQUET:
        return _described(engine, str(part), f"read_parquet({_file(part)})")
    return (_text_source if ending(part) in TEXT else _json_source)(engine, part, options, rewrite)


def _described(engine: Engine, title: str, rows: str) -> Source:
    columns = {name: (quoted(name), of) for name, of, *_ in engine.run(f"DESCRIBE FROM {rows}", title)}
    for name in (name for name, (_, of) in columns.items() if of == "TIMESTAMPTZ_NS"):
        columns[name] = f"{quoted(name)}::TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"
    return Source(title, columns, rows)


def _file(path: Path) -> str:
    return literal(glob.escape(str(path)))


def _read(engine: Engine, path: Path, options: str, n_columns: int) -> str:
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(n_columns))
    return f"read_csv({_file(path)}, {options}, buffer_size={engine.buffer_size}, columns={{{columns}}})"


def _json_source(engine: Engine, path: Path, options: ReadOptions, rewrite: bool) -> Source:
    """Return the rows of a file with one JSON object per line."""
    file = path
    if rewrite or options.encoding is not None:
        text = _opened(engine, path, options)
        text.rewrite(engine.new_file())
        file = text.file
    rows = f"(SELECT c0 AS json FROM {_read(engine, file, LINES, 1)} WHERE trim(c0) <> '')"
    source = Source(str(path), {}, rows, _read(engine, file, LINES, 2), str(file))
    good = "CASE WHEN json_valid(json) THEN json_type(json) = 'OBJECT' ELSE false END"
    flags = f"SELECT row_number() OVER () - 1 AS row, {good} AS good FROM {rows}"
    first = f"SELECT row FROM ({flags}) WHERE NOT good ORDER BY row LIMIT 1"
    for (row,) in read_rows(engine.run, first, path, [source]):
        what = "it must be a JSON object, one for each row"
        raise InputError(f"{source.place(engine.run, row)} cannot be read: {what}")
    for (name,) in engine.run(f"SELECT DISTINCT unnest(json_keys(json)) AS key FROM {rows} ORDER BY key"):
        if not name:
            raise InputError(f"an object of {path} has a key without a name; rename or remove it")
        source.columns[name] = f"json->>{literal('$.' + quoted(name))}", "VARCHAR"
    return source


def _text_source(engine: Engine, path: Path, options: ReadOptions, rewrite: bool) -> Source:
    """Return the rows of a text file; its first line names the columns, unless `names` does."""
    text = _opened(engine, path, options)
    names = options.names
    head = text.head(names)
    if names is None and _are_numbers(text.header):
        how = f"name its {len(text.header)} columns, as in names=['time', 'source', 'target']"
        raise InputError(f"line {head} of {path} contains numbers, not names of columns; {how}")
    if names is not None and len(names) != len(text.header):
        raise InputError(f"names has {len(names)} entries, but {path} has {len(text.header)} columns")
    below = itertools.islice(text.lines("replace"), head - (names is not None), None)
    first = next((line for line in below if line.strip() and not text.is_comment(line)), "")
    # DuckDB may skip all rows with lines above the names that end in another way.
    rewrite = rewrite or head > 1
    if rewrite or text.delimiter == " " or text.commented or not text.encoding.startswith("utf-8"):
        text.rewrite(engine.new_file())
    delimiter = "\t" if text.delimiter == " " else text.delimiter
    how = f"{CSV}, skip={head - (names is not None)}, quote='\"', escape='\"', delim={literal(delimiter)}"
    how += f", compression={literal(text.compression)}"
    rows, too_wide = (_read(engine, text.file, how, len(text.header) + more) for more in (0, 1))
    found = _stripped(text.title, names or text.header)
    columns = {name: (f"c{i}", "VARCHAR") for i, name in enumerate(found)}
    return Source(text.title, columns, rows, too_wide, str(text.file), first=first)


def _opened(engine: Engine, path: Path, options: ReadOptions) -> "_Text":
    """Return a text file as Python reads it: the one passed, or an unpacked copy."""
    text = _Text(str(path), path, options.encoding or "utf-8-sig")
    if path.suffix.lower() == ".zst":  # which Python 3.13 cannot open
        lines = _read(engine, path, f"{LINES}, encoding={literal(text.encoding.removesuffix('-sig'))}", 1)
        text = _Text(str(path), engine.new_file(), "utf-8-sig")
        how = "(HEADER false, DELIMITER '\x01', QUOTE '')"
        engine.run(f"COPY (FROM {lines}) TO {literal(text.file)} {how}", path)
    return text


@dataclasses.dataclass(eq=False)
class _Text:
    """A text file as Python reads it."""

    title: str
    file: Path
    encoding: str
    delimiter: str = ""
    header: list[str] = dataclasses.field(default_factory=list)
    commented: bool = False
    compression: str = "none"

    def lines(self, errors: str) -> Iterator[str]:
        try:
            with self.file.open("rb") as start:
                self.compression = "gzip" if start.read(2) == b"\x1f\x8b" else "none"
            opened: Any = gzip.open if self.compression == "gzip" else open
            with opened(self.file, "rt", encoding=self.encoding, errors=errors) as file:
                yield from file
        except UNREADABLE as error:
            how = f"as {self.encoding} text ({error}); pass its encoding, as in encoding='utf-16'"
            raise InputError(f"{self.title} cannot be read {how}") from error

    def head(self, names: Sequence[str] | None) -> int:
        """Find the delimiter and the cells of the first line that is no comment; return its number."""
        for number, line in enumerate(lines := self.lines("replace"), 1):
            if "\0" in line or "\ufffd" in line:
                raise InputError(self.other_encoding(number, "utf-16"))
            if line.strip() and not line.startswith(COMMENTS):
                plain = re.sub('"[^"]*"', "", line)
                self.delimiter = max(" " + DELIMITERS, key=lambda d: plain.count(d) * (d != " "))
                if self.delimiter == "\t":
                    more = (row for row in lines if row.strip() and not row.startswith(COMMENTS))
                    rows = [line, *itertools.islice(more, SAMPLE)]
                    self.delimiter = " " if _has_blanks_too(rows, names) else "\t"
                self.header = self.cells(line)
                if names is None and line.count('"') % 2:
                    self.check_quotes(number, [line, *itertools.islice(lines, MAX_HEADER_LINES)])
                return number
            self.commented = self.commented or bool(line.strip())
        raise InputError(f"{self.title} is empty; it needs a line of column names and rows below it")

    def cells(self, line: str) -> list[str]:
        if self.delimiter == " " and '"' not in line:
            return line.split()
        return next(csv.reader([line.strip("\r\n")], delimiter=self.delimiter, skipinitialspace=True), [])

    def check_quotes(self, number: int, lines: list[str]) -> None:
        """Raise if a quote in the line of column names is not closed there or soon after."""
        try:
            next(csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True, strict=True))
        except csv.Error as error:
            raise InputError(f"line {number} of {self.title} has a quote that is not closed") from error

    def is_comment(self, line: str) -> bool:
        """Return whether a line is a comment; one with as many cells as there are columns is a row."""
        return line.startswith(COMMENTS) and len(self.cells(line)) != len(self.header)

    def rewrite(self, file: Path) -> None:
        """Write a copy, line by line: in UTF-8, without comments, with tabs for blanks."""
        with file.open("w", encoding="utf-8", newline="\n") as out:
            for number, line in enumerate(self.lines("surrogateescape"), 1):
                line = "\n" if self.commented and self.is_comment(line) else line
                line = "\t".join(self.cells(line)) + "\n" if self.delimiter == " " else line
                try:
                    out.write(line)
                except UnicodeEncodeError as error:
                    raise InputError(self.other_encoding(number, "latin-1")) from error
        self.file, self.compression = file, "none"

    def other_encoding(self, number: int, such: str) -> str:
        """Return the message for a line that is not in the encoding."""
        what = f"line {number} of {self.title} is not {self.encoding.removesuffix('-sig').upper()}"
        return f"{what}; pass its encoding, as in encoding={such!r}"


def _has_blanks_too(lines: list[str], names: Sequence[str] | None) -> bool:
    """Return whether both tabs and blanks separate columns: only then all lines have the same number."""
    tabs, blanks = ({len(line.split(delimiter)) for line in lines} for delimiter in ("\t", None))
    if len(blanks) > 1 or blanks == tabs or (names is not None and {len(names)} != blanks):
        return False
    if names is not None and len(tabs) == 1:
        return True
    rows = lines[names is None and not _are_numbers(lines[0].split()) :]
    cells = [cell.split() for row in rows for cell in row.split("\t")]
    numbers = all(_are_numbers(cell) for cell in cells if len(cell) > 1)  # text may contain blanks
    return numbers and (len(tabs) > 1 or rows == lines)


def _are_numbers(cells: Iterable[str]) -> bool:
    return all(cell.strip("-").replace(".", "").isdecimal() for cell in cells)


def _stripped(title: str, names: Iterable[Any]) -> list[str]:
    """Return the names of columns without blanks at the ends; they must be distinct."""
    texts = [str(name).strip() for name in names]
    for i, name in enumerate(texts):
        if name in texts[:i] and name:
            how = "use distinct names, or pass names=[...] if its first line contains values"
            raise InputError(f"{title} has more than one column {name!r}; {how}")
    return [name or f"Unnamed: {i}" if "" in texts[:i] else name for i, name in enumerate(texts)]


class _Stream:
    """The Arrow stream of an object, without its other methods, for which DuckDB would import pyarrow."""

    def __init__(self, frame: Any) -> None:
        self.__arrow_c_stream__ = frame.__arrow_c_stream__


def _frame_source(engine: Engine, frame: Any, time: Hashable) -> Source:
    """Return the rows of a DataFrame of any library, an Arrow table, or a dict of columns."""
    title, table = f"the {type(frame).__name__}", f"frame_{uuid.uuid4().hex}"
    originals: dict[str, Hashable] = {}
    zones: list[str] = []
    frame = frame.collect() if hasattr(frame, "collect") else frame  # a LazyFrame of polars
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "reset_index"):
        given: Any = _Stream(frame)
    else:
        items = list((_with_index(frame) if hasattr(frame, "reset_index") else frame).items())
        columns = dict(zip(_stripped(title, [key for key, _ in items]), [c for _, c in items], strict=True))
        zones = [quoted(name) for name, column in columns.items() if _has_zone(column)]
        given = {name: _array(column, originals) for name, column in columns.items()}
        if len({len(array) for array in given.values()}) != 1:
            raise InputError(f"the columns of {title} must be of one length, with one value for each row")
        originals = {str(key).strip(): key for key, _ in items} | originals
    engine.connection.register("given", given)
    constant = "" if time is None else f"{literal(time)} AS time, "
    aware = ", ".join(f"timezone('UTC', {name}) AS {name}" for name in zones)
    selected = f"{constant}*{f' REPLACE ({aware})' if aware else ''}"
    engine.run(f"CREATE TEMP TABLE {table} AS SELECT {selected} FROM given", title)
    engine.connection.unregister("given")
    index = tuple(map(str, frame.index.names)) if hasattr(frame, "reset_index") else ()
    return dataclasses.replace(_described(engine, title, table), originals=originals, index=index)


def _with_index(frame: Any) -> Any:
    """Return a pandas frame with its index, if it is named or contains times, in its first columns."""
    if frame.columns.nlevels > 1:
        how = f"choose one, as in frame[{frame.columns[0][0]!r}]"
        raise InputError(f"the columns of the DataFrame have {frame.columns.nlevels} levels; {how}")
    names = frame.index.names
    if names == [None] and not has_dates(frame.index):
        return frame
    usual = ("time", "id", *names[2:])
    return frame.reset_index(names=[usual[i] if name is None else name for i, name in enumerate(names)])


def has_dates(index: Any) -> bool:
    """Return whether the index of a frame contains dates or periods."""
    kind = str(getattr(index, "dtype", ""))
    return getattr(index, "nlevels", 1) == 1 and kind.startswith(("datetime64", "period"))


def _has_zone(column: Any) -> bool:
    return getattr(getattr(column, "dtype", None), "tz", None) is not None


def _array(column: Any, originals: dict[str, Hashable]) -> np.ndarray:
    """Return a column as numbers, dates in UTC or texts; `originals` gets other objects by their text."""
    if not hasattr(column, "dtype"):
        plain = {type(value) for value in column} <= {int, float, bool}
        column = np.asarray(column) if plain else np.fromiter(column, object, len(column))
    column = column.dt.tz_convert(None) if _has_zone(column) else column
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype.kind in "biufM":
        return values.astype("datetime64[us]") if values.dtype.kind == "M" else values
    texts = np.empty(len(values), dtype=object)
    for row, value in enumerate(values.tolist()):
        if isinstance(value, str) or not is_missing(value):
            texts[row] = text = str(value)
            if originals.setdefault(text, value) != value:
                raise InputError(f"{value!r} and {originals[text]!r} are both written {text!r}; rename one")
    return texts


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA of pandas
        return True


def names_of(frame: Any) -> list[str]:
    """Return the names of the columns of a frame, and of its index."""
    if hasattr(frame, "collect_schema"):
        return list(frame.collect_schema().names())
    columns: Any = frame if isinstance(frame, dict) else getattr(frame, "column_names", None)
    columns = getattr(frame, "columns", ()) if columns is None else columns
    return [str(name) for name in (*getattr(getattr(frame, "index", None), "names", ()), *columns)]


def is_table(given: Any) -> bool:
    """Return whether something is a table with named columns: a dict of them, or a frame."""
    if isinstance(given, dict):  # a dok_matrix of SciPy is one, too
        return not hasattr(given, "shape") and bool(given) and all(map(_is_column, given.values()))
    # In this order: a LazyFrame warns when asked for its columns.
    named = any(hasattr(given, name) for name in ("collect_schema", "column_names", "columns"))
    return (named and hasattr(given, "__getitem__")) or hasattr(given, "__arrow_c_stream__")


def _is_column(given: Any) -> bool:
    if isinstance(given, list | tuple):  # of values, not of rows
        return not any(isinstance(value, list) for value in given[:1])
    return np.ndim(given) == 1 and not hasattr(given, "nodes")
