"""Tables of all sorts as named columns, a chunk of rows at a time."""

import collections
import contextlib
import csv
import dataclasses
import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.values import is_missing

Chunk = dict[str, np.ndarray]  # columns of equal length

CHUNK_VALUES = 2**17  # read from a file at once
DELIMITERS = ",;\t|"  # or blanks, where there is none of these
COMMENTS = ("#", "%")


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Rows with named columns.

    Attributes
    ----------
    title : str
        What messages call it.
    columns : tuple of str
    chunks : function
        Returns an iterator over the rows from the top, each time it is called.
    in_memory : bool
        Whether all rows are in memory anyway.
    """

    title: str
    columns: tuple[str, ...]
    chunks: Callable[[], Iterator[Chunk]]
    in_memory: bool


def csv_table(path: Path, names: Sequence[str] | None = None) -> Table:
    """Return the rows of a text file; the first line names the columns, unless `names` does.

    The delimiter is that of , ; tab and | which stands in the first line most often, or else blanks. Lines
    that start with # or % are left out.
    """
    with _explained(path, UnicodeDecodeError, EOFError), _opened(path) as file:
        first = next(_lines(file), "")
    if not first.strip():
        raise InputError(f"{path} is empty; give a file with a line of column names and rows below it")
    delimiter = max(DELIMITERS, key=first.count) if any(d in first for d in DELIMITERS) else " "
    header = next(_reader([first], delimiter))
    if names is None and all(_is_number(name) for name in header):
        raise InputError(
            f"the first line of {path} holds numbers, not names of columns: {first.strip()[:60]!r}; "
            f"name its {len(header)} columns, as in names=['time', 'source', 'target']"
        )
    columns = tuple(name.strip() for name in header) if names is None else tuple(names)
    if len(columns) != len(header):
        raise InputError(
            f"names has {len(columns)} entries, but the first line of {path} has {len(header)} values"
        )
    _check_distinct(columns, str(path))

    def chunks() -> Iterator[Chunk]:
        with _explained(path, UnicodeDecodeError, EOFError, csv.Error), _opened(path) as file:
            rows = _reader(_lines(file), delimiter)
            if names is None:
                next(rows)
            yield from _csv_chunks(rows, columns, path)

    return Table(str(path), columns, chunks, in_memory=False)


@contextlib.contextmanager
def _explained(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Say of what kind a file that cannot be read should be."""
    try:
        yield
    except errors as error:
        raise InputError(
            f"{path} cannot be read ({error}); give text in UTF-8 with columns set apart by commas"
        ) from error


def _opened(path: Path) -> Any:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _lines(file: Iterable[str]) -> Iterator[str]:
    return (line for line in file if not line.startswith(COMMENTS))


def _reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    # Lines of a table set with blanks may have several between two values.
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def _csv_chunks(rows: Iterator[list[str]], columns: tuple[str, ...], path: Path) -> Iterator[Chunk]:
    size = max(1, CHUNK_VALUES // len(columns))
    done = 0
    while block := list(itertools.islice(rows, size)):
        full = [row for row in block if row]  # an empty line is no row
        for i, row in enumerate(full):
            if len(row) != len(columns):
                raise InputError(
                    f"{path}: row {done + i + 1} below the names has {len(row)} values, but there are "
                    f"{len(columns)} columns ({', '.join(columns[:5])}{', ...' if len(columns) > 5 else ''})"
                )
        done += len(full)
        if full:
            by_column = zip(*full, strict=True)
            yield {name: _texts(values) for name, values in zip(columns, by_column, strict=True)}


def _texts(values: Sequence[str]) -> np.ndarray:
    """Return texts as an array of objects: NumPy's own texts are all as wide as the longest."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def parquet_table(path: Path) -> Table:
    """Return the rows of a Parquet file, read in batches."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(f"{path}: Parquet files need pyarrow: pip install 'affect_xp[parquet]'") from error
    with _explained(path, pyarrow.ArrowException), pyarrow.parquet.ParquetFile(path) as file:
        columns = tuple(file.schema_arrow.names)
    columns = tuple(name for name in columns if not name.startswith("__index_level_"))

    def chunks() -> Iterator[Chunk]:
        size = max(1, CHUNK_VALUES // len(columns))
        with _explained(path, pyarrow.ArrowException), pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size, columns=list(columns)):
                yield {name: batch[name].to_numpy(zero_copy_only=False) for name in columns}

    return Table(str(path), columns, chunks, in_memory=False)


def frame_table(frame: Any) -> Table:
    """Return the rows of a DataFrame of pandas, polars or a like library, of a pyarrow Table, or of a dict.

    The index of pandas becomes a column where it has a name or holds dates.
    """
    title = f"the {type(frame).__name__}"
    if hasattr(frame, "collect"):  # a LazyFrame of polars
        frame = frame.collect()
    if hasattr(frame, "reset_index"):
        frame = _with_index(frame)
    columns = _names(frame)
    _check_distinct(columns, title)
    keys = list(frame.columns) if hasattr(frame, "reset_index") else columns

    def chunks() -> Iterator[Chunk]:
        yield {name: _values(frame[key]) for name, key in zip(columns, keys, strict=True)}

    return Table(title, columns, chunks, in_memory=True)


def is_frame(table: object) -> bool:
    """Tell whether something is a table with named columns, of which each gives an array."""
    if isinstance(table, dict):
        return bool(table) and all(_is_column(column) for column in table.values())
    # In this order: a LazyFrame warns when it is asked for its columns.
    named = any(hasattr(table, name) for name in ("collect_schema", "column_names", "columns"))
    return named and hasattr(table, "__getitem__")


def _is_column(column: Any) -> bool:
    return len(getattr(column, "shape", (0,) if isinstance(column, list | tuple) else ())) == 1 and not any(
        hasattr(value, "shape") and value.shape for value in column[:1]
    )


def _with_index(frame: Any) -> Any:
    """Return a pandas frame whose index, where it says something, is the first column."""
    named = any(name is not None for name in frame.index.names)
    if named:
        return frame.reset_index()
    return frame.reset_index(names="time") if frame.index.dtype.kind == "M" else frame


def _names(frame: Any) -> tuple[str, ...]:
    names = frame if isinstance(frame, dict) else getattr(frame, "column_names", None)
    return tuple(str(name) for name in (frame.columns if names is None else names))


def _values(column: Any) -> np.ndarray:
    kind = getattr(getattr(column, "dtype", None), "kind", "")
    if kind == "M" and getattr(column.dtype, "tz", None) is not None:
        return column.dt.tz_convert(None).to_numpy()  # in UTC
    return column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)


def _check_distinct(columns: Sequence[str], title: str) -> None:
    if len(set(columns)) < len(columns):
        double = collections.Counter(columns).most_common(1)[0][0]
        raise InputError(f"{title} has more than one column {double!r}; give them distinct names")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return is_missing(text)
    return True
