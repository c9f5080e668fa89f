"""What the caller passed, as relations of DuckDB: text files, Parquet, JSON, DataFrames, dicts of columns."""

import contextlib
import csv
import dataclasses
import glob
import gzip
import uuid
import zlib
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.engine import Engine, literal, quoted

TEXT, JSON, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet", ".pq")
FILES = (*TEXT, *JSON, *PARQUET)
DELIMITERS = ",;\t|"  # or blanks, if the first line contains none of these
COMMENTS = ("#", "%")
UNREADABLE = (UnicodeError, EOFError, OSError, LookupError, zlib.error, csv.Error)
# Rows that DuckDB rejects go to a table with their line numbers. Its sniffer, which guesses, is off.
CSV = "auto_detect=false, header=false, strict_mode=true, null_padding=false, store_rejects=true"
FORGET = "DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans"
REJECTED = (
    "SELECT line, trim(csv_line, '\n '), error_message, file_path FROM reject_errors "
    "JOIN reject_scans USING (scan_id, file_id) ORDER BY file_id, line LIMIT 1"
)
LINES = f"{CSV}, delim='\x01', quote='', escape=''"


@dataclasses.dataclass(eq=False)
class Source:
    """Rows with named columns.

    Attributes
    ----------
    title : str
        Its name in messages.
    columns : dict
        The SQL of each column, by name.
    rows : str
        What follows FROM.
    too_wide : str
        What follows FROM to read a file of lines with one column too many, which rejects all rows.
    originals : dict
        Ids that are not texts, by the text that DuckDB has for them.
    """

    title: str
    columns: dict[str, str]
    rows: str
    too_wide: str = ""
    originals: dict[str, Hashable] = dataclasses.field(default_factory=dict)

    def place(self, engine: Engine, row: int) -> str:
        """Return what messages call a row, counted from 0: a line of a file with its text, or its number."""
        engine.run(f"{FORGET}; SELECT count(*) FROM {self.too_wide}" if self.too_wide else "SELECT 1")
        for line, text, *_ in engine.run(f"{REJECTED} OFFSET {row}") if self.too_wide else ():
            return f"line {line} of {self.title} ({text[:80]!r})"
        return f"row {row + 1} of {self.title}"

    def rewrite(self, engine: Engine) -> bool:
        """Write the rows again in a form that is easier to read; return whether that was possible."""
        return False


def ending(path: Path) -> str:
    """Return the suffix of a file name without .gz or .zst."""
    return next((s.lower() for s in reversed(path.suffixes) if s.lower() not in (".gz", ".zst")), "")


def file_source(engine: Engine, path: Path, names: Sequence[str] | None, encoding: str | None) -> Source:
    """Return the rows of a file, by the suffix of its name."""
    if ending(path) in TEXT:
        return TextSource(engine, path, names, encoding)
    if ending(path) in PARQUET:
        return _described(engine, str(path), f"read_parquet({_file(path)})")
    objects = f"read_json_objects({_file(path)}, format='auto', maximum_object_size=100000000)"
    keys = engine.run(
        f"SELECT DISTINCT unnest(json_keys(json)) AS key FROM {objects} ORDER BY key", str(path)
    )
    columns = {name: f"json->>{literal('$.' + quoted(name))}" for (name,) in keys}
    lines = f"read_csv({_file(path)}, {LINES}, columns={_texts(2)})"
    return Source(str(path), columns, objects, "" if ending(path) == ".json" else lines)


def _described(engine: Engine, title: str, rows: str) -> Source:
    names = [name for name, *_ in engine.run(f"DESCRIBE FROM {rows}", title)]
    return Source(title, {name: quoted(name) for name in names}, rows)


def _file(path: Path) -> str:
    return literal(glob.escape(str(path)))


def _texts(count: int) -> str:
    return "{" + ", ".join(f"'c{i}': 'VARCHAR'" for i in range(count)) + "}"


class TextSource(Source):
    """The rows of a text file; its first line names the columns, unless `names` does."""

    def __init__(self, engine: Engine, path: Path, names: Sequence[str] | None, encoding: str | None) -> None:
        self.title, self.file, self.encoding = str(path), path, encoding or "utf-8-sig"
        if path.suffix.lower() == ".zst":  # which Python 3.13 cannot open
            self.file = engine.folder / f"{uuid.uuid4().hex}.csv"
            lines = (
                f"COPY (FROM read_csv({_file(path)}, {LINES}, columns={_texts(1)})) TO {literal(self.file)}"
            )
            engine.run(f"{lines} (HEADER false, DELIMITER '\x01', QUOTE '')", self.title)
        head = self._head()
        self.commented = any(line.startswith(COMMENTS) for line in head[:-1])
        self.delimiter = (
            max(DELIMITERS, key=head[-1].count) if any(d in head[-1] for d in DELIMITERS) else " "
        )
        self.skip = len(head) - (names is not None)
        header = self._cells(head[-1])
        if names is None and all(name.strip("-").replace(".", "").isdecimal() for name in header):
            how = f"name its {len(header)} columns, as in names=['time', 'source', 'target']"
            raise InputError(f"line {len(head)} of {path} contains numbers, not names of columns; {how}")
        names = header if names is None else names
        if len(names) != len(header):
            raise InputError(f"names has {len(names)} entries, but {path} has {len(header)} columns")
        super().__init__(self.title, _columns(self.title, names, [f"c{i}" for i in range(len(names))]), "")
        self._relate()
        if self.delimiter == " " or self.commented or encoding not in (None, "utf-8"):
            self.rewrite(engine)

    def _relate(self) -> None:
        delimiter = literal("\t" if self.delimiter == " " else self.delimiter)
        options = f"{_file(self.file)}, {CSV}, skip={self.skip}, delim={delimiter}, quote='\"', escape='\"'"
        self.rows, self.too_wide = (
            f"read_csv({options}, columns={_texts(len(self.columns) + more)})" for more in (0, 1)
        )

    @contextlib.contextmanager
    def _open(self, errors: str) -> Iterator[Any]:
        opened = gzip.open if self.file.suffix.lower() == ".gz" else open
        try:
            with opened(self.file, "rt", encoding=self.encoding, errors=errors) as file:
                yield file
        except UNREADABLE as error:
            how = f"as {self.encoding} text ({error}); pass its encoding, as in encoding='utf-16'"
            raise InputError(f"{self.title} cannot be read {how}") from error

    def _head(self) -> list[str]:
        """Return the lines up to the first that is neither blank nor a comment."""
        lines = []
        with self._open("replace") as file:
            for line in file:
                lines.append(line.rstrip("\r\n"))
                if "\0" in line or "\ufffd" in line:
                    raise InputError(
                        f"line {len(lines)} of {self.title} is not {self.encoding}; pass its encoding"
                    )
                if line.strip() and not line.startswith(COMMENTS):
                    return lines
        raise InputError(f"{self.title} is empty; it needs a line of column names and rows below it")

    def _cells(self, line: str) -> list[str]:
        if self.delimiter == " " and '"' not in line:
            return line.split()
        return next(csv.reader([line.strip("\n")], delimiter=self.delimiter, skipinitialspace=True), [])

    def rewrite(self, engine: Engine) -> bool:
        """Write the file again, line by line: in UTF-8, without comments, with tabs for blanks."""
        if self.encoding == "utf-8":  # it was written before
            return False
        file = engine.folder / f"{uuid.uuid4().hex}.csv"
        with self._open("surrogateescape") as lines, file.open("w", encoding="utf-8", newline="\n") as out:
            for number, line in enumerate(lines, 1):
                line = "\n" if self.commented and line.startswith(COMMENTS) else line
                line = "\t".join(self._cells(line)) + "\n" if self.delimiter == " " else line
                try:
                    out.write(line)
                except UnicodeEncodeError as error:
                    raise InputError(f"line {number} of {self.title} is not {self.encoding}") from error
        self.file, self.encoding = file, "utf-8"
        self._relate()
        return True


def _columns(title: str, names: Sequence[Any], columns: Sequence[Any]) -> dict[str, Any]:
    """Return columns by their names, which must be distinct."""
    found = {str(name).strip(): column for name, column in zip(names, columns, strict=True)}
    if len(found) < len(names):
        twice = next(name for name in found if [str(other).strip() for other in names].count(name) > 1)
        raise InputError(f"{title} has more than one column {twice!r}; use distinct names")
    return found


class _Stream:
    """The Arrow stream of an object, without its other methods, for which DuckDB would import pyarrow."""

    def __init__(self, frame: Any) -> None:
        self.__arrow_c_stream__ = frame.__arrow_c_stream__


def frame_source(engine: Engine, frame: Any, time: Hashable = None) -> Source:
    """Return the rows of a DataFrame of any library, an Arrow table, or a dict of columns.

    `time` is the time of all rows, if the frame has no column of times.
    """
    title, table = f"the {type(frame).__name__}", f"frame_{uuid.uuid4().hex}"
    originals: dict[str, Hashable] = {}
    zoned: list[str] = []
    frame = frame.collect() if hasattr(frame, "collect") else frame  # a LazyFrame of polars
    if hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "reset_index"):
        given: Any = _Stream(frame)
    else:
        names, columns = zip(
            *(_with_index(frame) if hasattr(frame, "reset_index") else frame).items(), strict=True
        )
        given = _columns(title, names, [_array(column, originals) for column in columns])
        zoned = [str(name) for name, column in zip(names, columns, strict=True) if _has_zone(column)]
        if len({len(array) for array in given.values()}) > 1:
            raise InputError(f"the columns of {title} differ in length; use one value for each row")
    engine.connection.register("given", given)
    constant = "" if time is None else f"{literal(time)} AS time, "
    zones = ", ".join(f"timezone('UTC', {quoted(name)}) AS {quoted(name)}" for name in zoned)
    replaced = f"* REPLACE ({zones})" if zones else "*"
    engine.run(f"CREATE TEMP TABLE {table} AS SELECT {constant}{replaced} FROM given", title)
    engine.connection.unregister("given")
    return dataclasses.replace(_described(engine, title, table), originals=originals)


def _with_index(frame: Any) -> Any:
    """Return a pandas frame with its index, if it is named or contains times, in its first columns."""
    names, dated = frame.index.names, frame.index.nlevels == 1 and frame.index.dtype.kind == "M"
    if len(names) == 1 and names[0] is None and not dated:
        return frame
    usual = ("time", "id", *names[2:])
    return frame.reset_index(names=[usual[i] if name is None else name for i, name in enumerate(names)])


def _has_zone(column: Any) -> bool:
    return getattr(getattr(column, "dtype", None), "tz", None) is not None


def _array(column: Any, originals: dict[str, Hashable]) -> np.ndarray:
    """Return a column as numbers, as dates in UTC, or as texts; `originals` gets other objects by text."""
    if _has_zone(column):
        column = column.dt.tz_convert(None)
    if not hasattr(column, "dtype"):
        plain = {type(value) for value in column} <= {int, float, bool}
        column = np.asarray(column) if plain else np.fromiter(column, object, len(column))
    values = column.to_numpy() if hasattr(column, "to_numpy") else column
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


def is_frame(table: Any) -> bool:
    """Return whether something is a table with named columns."""
    if isinstance(table, dict):
        parts = [list(part[:1]) if isinstance(part, list | tuple) else part for part in table.values()]
        return bool(parts) and all(np.ndim(part) == 1 and not hasattr(part, "nodes") for part in parts)
    # In this order: a LazyFrame warns when asked for its columns.
    named = any(hasattr(table, name) for name in ("collect_schema", "column_names", "columns"))
    return (named and hasattr(table, "__getitem__")) or hasattr(table, "__arrow_c_stream__")
