"""`read_steps`: the steps of files, tables, graphs and matrices."""

import dataclasses
import glob
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.array.namespace import is_array
from affect_xp.checks import warn_caller
from affect_xp.datasets._npz import existing_file
from affect_xp.exceptions import InputError, InputTypeError, InputWarning
from affect_xp.io import matrices
from affect_xp.io.engine import Engine
from affect_xp.io.kinds import KINDS
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import find_roles, has_times, is_edge_list, named_as
from affect_xp.io.snapshot import Snapshot
from affect_xp.io.sources import JSON, PARQUET, TEXT, ending, has_dates, is_table, names_of, part_source
from affect_xp.io.tables import Table
from affect_xp.io.times import Freq, parse_freq
from affect_xp.proximity import is_sparse
from affect_xp.proximity.graphs import is_graph


@dataclasses.dataclass(eq=False, repr=False)
class Steps:
    """The steps of an input, one `Snapshot` per step; see `read_steps`.

    It can be iterated repeatedly, unless it was made from an iterator. `read_steps` reads and checks a
    table completely; its steps are made during the iteration.

    Attributes
    ----------
    kind : "features", "edges" or "proximities"
        What the steps contain: features, for a model with a `proximity` such as "dot"; the adjacency matrix
        of a graph, which is a similarity; or proximities of any kind.
    snapshots : callable
        Returns an iterator over the steps.
    title : str
        The input as messages call it.
    names : tuple of str
        The columns of features, if they have names.
    n_steps : int or None
        The number of steps, if it is known before they are read.
    of_series : bool
        Whether features are the values of a series in a window, with other columns at each step.
    notes : tuple of str
        What was decided: the columns used and not used, rows left out or sorted, how times were read.
    """

    snapshots: Callable[[], Iterator[Snapshot]]
    kind: str
    title: str
    names: tuple[str, ...] = ()
    n_steps: int | None = None
    of_series: bool = False
    notes: Sequence[str] = ()

    def __iter__(self) -> Iterator[Snapshot]:
        return self.snapshots()

    def __repr__(self) -> str:
        return f"Steps({self.kind} of {self.title})"


def read_steps(
    table: Any,
    *,
    kind: str = "auto",
    freq: Any = None,
    time: str | None = None,
    id: str | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    value: str | None = None,
    features: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    time_format: str | None = None,
    origin: Any = None,
    encoding: str | None = None,
    decimal: str = ".",
    missing: str = "error",
    aggregate: str = "error",
    directed: str | None = None,
    changes: str | None = None,
    standardize: bool = False,
    sparse: bool = True,
    dtype: str = "float64",
    memory_limit: str | int | None = None,
) -> Steps:
    """Return the steps in a table, a file, or a sequence of matrices, frames or graphs.

    ===============  ========================================  ====================================
    kind             a row contains                            a step is
    ===============  ========================================  ====================================
    "features"       time, id, and a column for each feature   the features X (n, p) of the objects
    "edges"          time, source, target, and optionally a    the adjacency W (n, n) of the objects
                     weight                                    linked in it, weights summed
    "series"         time, and a column for each object, such  X (n, p): the p values of each object
                     as prices; or time, id and `value`        in the window are its features
    ===============  ========================================  ====================================

    DuckDB reads tables: `pip install 'affect-xp[io]'`. Rows may be in any order. A table is read and checked
    completely, and an error names the line. `notes` of the result say how it was read; what is probably not
    intended is also an `InputWarning`.

    Parameters
    ----------
    table : path, table, or sequence
        A file: .csv, .tsv, .txt, .jsonl (also .gz, .zst), .parquet, .npy (T, n, n) or (T, n, p), .npz, or
        .mat of the authors' toolbox; a list of files, or a pattern (`"2024-*.csv"`). A DataFrame of pandas or
        polars, a LazyFrame, a pyarrow Table or any object with `__arrow_c_stream__`, or a dict of columns.
        A list of frames with a column of times. Or a sequence of steps, or a dict of steps by time:
        matrices, sparse matrices, networkx graphs, frames whose index contains the ids. A frame such as
        `returns.rolling(60).corr()`, with times and ids in its index, contains proximities for each time.
    kind : "auto", "features", "edges", "series"; for matrices also "proximities"
        "auto" uses the names of the columns: source and target make edges, an id makes features, and a
        time alone or `value` makes series. Without a name of an id, the only column of texts or with a name
        such as user_id is the id if there are several rows for a time. A square matrix contains proximities.
    freq : str, timedelta or number, optional
        The length of a step: "7D", "12h", "30min", "2W", "W-FRI", "1M" (month), "1Q", "1Y", or another
        alias of pandas or polars ("ME", "QS", "1mo"); for series also "15 rows"; or a number, if times are
        numbers. The time of a step is the start of its window. A window without rows is not a step. The
        first and the last window of time are kept even if the rows cover only a part of them; with
        "15 rows", last rows that do not fill a window are left out with a warning. By default each
        distinct time is a step.
    time, id, source, target, weight : str, optional
        The names of the columns. By default usual names are looked for, such as time, date, t; id, name,
        ticker; source, from; target, to; weight. It is an error if several columns match.
    value : str, optional
        The column of values of a tidy table of series, with one row per time and `id`.
    features : list of str, optional
        The columns of features, or the objects of a series; by default all others, except the index of a
        saved DataFrame ("" or "Unnamed: 0").
    names : list of str, optional
        The names of the columns of a text file that does not start with them.
    time_format : str, optional
        The format of the times, such as "%d/%m/%Y"; or "s", "ms", "us", "ns" for numbers since 1970. By
        default, ISO 8601 or any format that fits all rows; it is an error if two formats fit and differ.
        Times with a zone are converted to UTC.
    origin : date or number, optional
        Where windows start. By default at midnight of the first day, weeks on Monday, months in January,
        and numbers at 0.
    encoding : str, optional
        The encoding of a text file; by default UTF-8.
    decimal : "." or ","
        The decimal separator of a text file.
    missing : "error" or "drop"
        What to do with rows that have no time, id or value (NaN, an empty field): an error, or left out.
        Infinite values are always an error. In a series, an object with a missing value is left out of the
        step. An object without any row in a step is absent from it in either case.
    aggregate : "error", "mean", "sum" or "last"
        How to combine several rows of one object in a step of features, or at one time of a tidy series.
    directed : "sum", "mean" or "max", optional
        How to combine edges that go both ways within a step. By default they are an error, and so are
        directed graphs. Repeated edges of one direction are always summed, and a self-loop is on the
        diagonal once.
    changes : "absolute", "relative" or "log", optional
        For series: use the changes from row to row instead of the values.
    standardize : bool
        For series: scale the values of each object in a window to mean 0 and length 1, so that dot products
        are correlations.
    sparse : bool
        Whether edges are sparse matrices. Arrays are better for small graphs with many edges.
    dtype : "float64" or "float32"
        The data type of values from tables, frames and graphs. Arrays keep theirs.
    memory_limit : str or int, optional
        How much memory DuckDB may use, such as "2GB" or a number of bytes; what does not fit goes to a
        temporary folder. By default 80 % of the memory of the machine. It must be at least some 20 MB, and
        160 kB for each column.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.io import read_steps
    >>> contacts = {
    ...     "day": ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-09"],
    ...     "source": ["ann", "bob", "cy", "ann"],
    ...     "target": ["bob", "ann", "dee", "cy"],
    ... }
    >>> for step in read_steps(contacts, freq="7D", directed="sum"):
    ...     print(step.time.date(), step.ids, step.values.toarray().tolist())
    2024-01-01 ('ann', 'bob', 'cy', 'dee') [[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, ...], ...]
    2024-01-08 ('ann', 'cy') [[0.0, 1.0], [1.0, 0.0]]

    For features, the model needs a `proximity`:

    >>> prices = {"day": [1, 2, 3, 4], "A": [1, 2, 3, 4], "B": [2, 4, 6, 8], "C": [9, 7, 5, 1]}
    >>> steps = read_steps(prices, freq="2 rows")
    >>> steps
    Steps(features of the dict)
    >>> steps.notes
    ("series: time 'day', values 'A', 'B', 'C'",)
    >>> ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(steps).ids_
    ('A', 'B', 'C')
    """
    options = ReadOptions(**{name: given for name, given in locals().items() if name != "table"})
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):  # a Series
        table = table.to_frame()
    freq, parts = parse_freq(options.freq), _parts(table)
    if not parts:
        return _matrix_steps(table, options)
    try:
        return _table_steps(parts, options, freq)
    except InputError as error:
        if "lines end in several ways" not in str(error):
            raise
        return _table_steps(parts, options, freq, rewrite=True)


def _table_steps(
    parts: list[tuple[Hashable, Any]], options: ReadOptions, freq: Freq | None, *, rewrite: bool = False
) -> Steps:
    engine = Engine(options.memory_limit)
    sources = [part_source(engine, part, time, options, rewrite=rewrite) for time, part in parts]
    roles = find_roles(engine, sources[0], options)
    _check_suited(roles.kind, sources[0].title, options, freq)
    table = Table(engine, sources, roles, options)
    steps = KINDS[roles.kind](table, freq)
    if table.doubts:
        warn_caller("; ".join(table.doubts), InputWarning)
    kind = "edges" if roles.kind == "edges" else "features"
    names = roles.values if roles.kind == "features" else ()
    notes = (str(roles), *table.notes, *table.doubts)
    return Steps(steps.__iter__, kind, table.title, names, steps.n_steps, roles.kind == "series", notes)


def _check_suited(kind: str, title: str, options: ReadOptions, freq: Freq | None) -> None:
    """Raise if an option does not suit a kind of input."""
    unfit = {} if kind == "series" else {"changes": "series", "standardize": "series"}
    unfit |= {} if kind in ("edges", "matrices") else {"directed": "edges"}
    unfit |= {"freq": "tables", "value": "tables"} if kind == "matrices" else {}
    unfit |= {"freq": "series"} if freq is not None and freq.unit == "rows" and kind != "series" else {}
    for name, suited in unfit.items():
        if (value := getattr(options, name)) not in (None, False):
            raise InputError(f"{name}={value!r} is for {suited}, but {title} contains {kind}; omit it")
    if kind == "series" and freq is None:
        how = "pass the length of a window, as in freq='30D' or freq='20 rows'"
        raise InputError(f"{title} contains series, whose values in a window are features; {how}")


def is_over_time(given: Any) -> bool:
    """Return whether something is a file or a table over time, which `read_steps` splits into steps."""
    if is_table(given):
        dated = has_dates(getattr(given, "index", None)) or matrices.is_stacked(given)
        return dated or has_times(names_of(given), alone=True)
    return isinstance(given, str | os.PathLike) or bool(_parts(given))


def _parts(table: Any) -> list[tuple[Hashable, Any]]:
    """Return the files or frames of a table, with the time of a frame; none, if it contains matrices."""
    if isinstance(table, str | os.PathLike):
        table = [table]
    if is_table(table):
        return [] if matrices.is_stacked(table) else [(None, table)]
    parts = list(table.values()) if isinstance(table, dict) else table
    if not isinstance(parts, list | tuple) or not parts:
        return []
    if all(isinstance(part, str | os.PathLike) for part in parts) and not isinstance(table, dict):
        paths = [path for part in parts for path in _files(part)]
        alone = len(paths) == 1 and ending(paths[0]) in matrices.READERS
        return [] if alone else [(None, path) for path in paths]
    if not all(map(is_table, parts)):
        return []
    if has_times(names := names_of(parts[0]), alone=False):
        return [(None, frame) for frame in parts]
    return list(matrices.timed(table)) if is_edge_list(names) and not _has_float_ends(parts[0]) else []


def _has_float_ends(frame: Any) -> bool:
    """Return whether the columns named as ends of edges contain fractions: u and v are then features."""
    if hasattr(frame, "collect"):  # lazy
        return False
    columns = getattr(frame, "column_names", None) or list(getattr(frame, "columns", frame))
    ends = [name for role in ("source", "target") for name in named_as(role, map(str, columns))]
    values = [np.asarray(frame[name]) for name in ends if name in columns]
    return any(column.dtype.kind == "f" and bool(np.any(column % 1 != 0)) for column in values)


def _files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the file with a name, or the files that match a pattern, in the order of their names."""
    if glob.has_magic(text := os.fspath(path)) and not Path(text).exists():
        found = [Path(name) for name in sorted(glob.glob(text, recursive=True))]
    else:
        found = [existing_file(text)]
    if not found:
        raise InputError(f"path must match a file, but no file matches {text}; check its name and folder")
    for file in found:
        if ending(file) not in (*TEXT, *JSON, *PARQUET, *(matrices.READERS if len(found) == 1 else ())):
            known = ", ".join([*TEXT, *JSON, *PARQUET, *matrices.READERS])
            raise InputError(f"{file} must end in one of {known}; unpack, convert or rename it")
    return found


def _matrix_steps(table: Any, options: ReadOptions) -> Steps:
    title = str(table) if isinstance(table, str | os.PathLike) else f"the {type(table).__name__}"
    title = table.title if isinstance(table, Steps) else title
    _check_suited("matrices", title, options, None)
    if options.kind in ("edges", "series"):
        raise InputError(f"kind={options.kind!r} is for tables, but {title} contains matrices; omit it")
    table = matrices.stacked(table) if is_table(table) else table
    if is_sparse(table) or is_graph(table) or (is_array(table) and table.ndim != 3):
        raise InputTypeError(f"{title} is one step; pass a list with one entry per step")
    begun = _pairs(table, title)
    first = next(begun, None)
    if first is None:
        raise InputError(f"{title} contains no steps; pass at least one")
    unread = [itertools.chain([first], begun)]

    def snapshots() -> Iterator[Snapshot]:
        if not unread and isinstance(table, Iterator):
            raise InputError(f"{title} was read already, and can be read only once; pass a list")
        pairs = unread.pop() if unread else _pairs(table, title)
        return (matrices.as_snapshot(*pair, options) for pair in pairs)

    kind = matrices.kind_of(matrices.as_snapshot(*first, options), first[1])
    sized = isinstance(table, Sized) and not isinstance(table, str)
    n_steps = len(table) if sized else getattr(table, "n_steps", None)
    return Steps(snapshots, kind if options.kind == "auto" else options.kind, title, n_steps=n_steps)


def _pairs(table: Any, title: str) -> matrices.Timed:
    """Return an iterator over the times and the matrices of an input."""
    if isinstance(table, str | os.PathLike):
        return matrices.READERS[ending(Path(table))](Path(table))
    if isinstance(table, Steps):
        return ((step.time, step) for step in table)
    if not isinstance(table, Iterable):
        what = "a path, a table with named columns, or a sequence of steps"
        raise InputTypeError(f"table must be {what}, got {title}")
    return matrices.timed(table)
