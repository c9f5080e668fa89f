"""From what people have, files, tables and graphs, to the steps a model takes."""

import dataclasses
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.array.namespace import is_array
from affect_xp.checks import check_choice
from affect_xp.datasets._npz import existing_file
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.io import matrices
from affect_xp.io.columns import KINDS, Columns, Names, find_columns
from affect_xp.io.observed import Snapshot
from affect_xp.io.snapshots import (
    CHANGES,
    Treatment,
    as_edges,
    as_features,
    as_series,
    changes_of,
)
from affect_xp.io.tables import Table, csv_table, frame_table, is_frame, parquet_table
from affect_xp.io.times import Clock, parse_freq
from affect_xp.io.windows import Window, read_windows
from affect_xp.proximity import is_sparse

TEXT_FILES = (".csv", ".tsv", ".txt")
PARQUET_FILES = (".parquet", ".pq")
ASSEMBLERS: dict[str, Callable[[Window, Columns, Treatment], Snapshot | None]] = {
    "features": as_features,
    "edges": as_edges,
    "series": as_series,
}


class Steps:
    """The steps read from an input, one `Snapshot` after the other; see `read_steps`.

    Iterate over it as often as you like (but once only if it was made from an iterator). A file that is in
    the order of time is read as the loop goes on, and no more of it is in memory than one step.

    Attributes
    ----------
    kind : "features", "edges" or "proximities"
        What the steps hold: features, which need a model with a `proximity` such as "dot"; the adjacency of
        a graph, which is a similarity; or proximities of any kind.
    names : tuple of str
        The columns of features, where they have names.
    n_steps : int or None
        How many there are, where that is known before they are read.
    of_series : bool
        Whether features are the values of a series in a window: other columns at each step.
    """

    def __init__(
        self,
        snapshots: Callable[[], Iterator[Snapshot]],
        kind: str,
        title: str,
        *,
        names: tuple[str, ...] = (),
        n_steps: int | None = None,
        of_series: bool = False,
    ) -> None:
        self.kind = kind
        self.names = names
        self.n_steps = n_steps
        self.of_series = of_series
        self._snapshots = snapshots
        self._title = title

    def __iter__(self) -> Iterator[Snapshot]:
        return self._snapshots()

    def __repr__(self) -> str:
        return f"Steps({self.kind} of {self._title})"


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
    features: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    time_format: str | None = None,
    origin: Any = None,
    missing: str = "error",
    aggregate: str = "error",
    changes: str | None = None,
    standardize: bool = False,
    sort: bool = False,
    sparse: bool = True,
    dtype: str = "float64",
) -> Steps:
    """Return the steps in a table, a file, or a sequence of matrices, frames or graphs.

    ===============  ========================================  ====================================
    kind             what a row is                             what a step is
    ===============  ========================================  ====================================
    "features"       time, id, and a column for each feature   the features X (n, p) of the objects
    "edges"          time, source, target, and a weight or     the adjacency W (n, n) of the objects
                     none                                      linked in it, weights summed
    "series"         time, and a column for each object:       X (n, p): the p values of each object
                     prices, say                               in the window are its features
    ===============  ========================================  ====================================

    Parameters
    ----------
    table : path, table, or sequence
        A file: .csv, .tsv or .txt (also .gz), .parquet, .npy (T, n, n) or (T, n, p), .npz, or .mat of the
        authors' toolbox. A DataFrame of pandas, polars or a like library, a pyarrow Table, or a dict of
        columns. Or a sequence of steps, or a dict of them by time: matrices, sparse matrices, networkx
        graphs, wide frames whose index holds the ids.
    kind : "auto", "features", "edges", "series"; for matrices also "proximities"
        "auto" goes by the names of the columns: source and target make edges, an id makes features, and
        a time alone makes series. A square matrix is taken for proximities.
    freq : str, timedelta or number, optional
        The length of a step: "7D", "12h", "30min", "2W", "1M" (month), "1Q", "1Y", for series also
        "15 rows"; or a number, where times are numbers. A window without rows is no step. By default each
        distinct time is a step.
    time, id, source, target, weight : str, optional
        The names of the columns. By default usual ones are looked for, such as time, date, t; id, name,
        ticker; source, from; target, to; weight.
    features : list of str, optional
        The columns of features, or the objects of a series; by default all others.
    names : list of str, optional
        The names of the columns of a text file that does not start with them.
    time_format : str, optional
        How to read dates that are not ISO 8601 (2008-12-31, 2008-12-31T23:59:59Z), such as "%d/%m/%Y".
    origin : date or number, optional
        Where windows start. By default at midnight of the first day, with months in January, with
        numbers at 0.
    missing : "error" or "drop"
        An object that is missing from a step is simply not there. This is about rows with gaps (NaN, an
        empty field): an error, or left out. In a series, an object with a gap is left out of the step.
    aggregate : "error", "mean", "sum" or "last"
        What to do with several rows of one object in a step of features.
    changes : "absolute", "relative" or "log", optional
        For series: take the changes from row to row instead of the values.
    standardize : bool
        For series: give the values of each object in a window mean 0 and length 1, so that dot products are
        correlations.
    sort : bool
        Read all of a file and sort it by time. By default it must be in order, and is read step by step.
    sparse : bool
        Whether edges give sparse matrices. Arrays are better for small graphs that have many links.
    dtype : "float64" or "float32"
        Of what is made from tables, frames and graphs. Arrays keep theirs.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.io import read_steps
    >>> contacts = {
    ...     "day": ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-09"],
    ...     "source": ["ann", "bob", "cy", "ann"],
    ...     "target": ["bob", "ann", "dee", "cy"],
    ... }
    >>> for step in read_steps(contacts, freq="7D"):
    ...     print(step.time.date(), step.ids, step.values.toarray().tolist())
    2024-01-01 ('ann', 'bob', 'cy', 'dee') [[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, ...], ...]
    2024-01-08 ('ann', 'cy') [[0.0, 1.0], [1.0, 0.0]]

    With features the model is told which proximities to make of them:

    >>> prices = {"day": [1, 2, 3, 4], "A": [1, 2, 3, 4], "B": [2, 4, 6, 8], "C": [9, 7, 5, 1]}
    >>> steps = read_steps(prices, freq="2 rows")
    >>> steps
    Steps(features of the dict)
    >>> ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(steps).ids_
    ('A', 'B', 'C')
    """
    check_choice("kind", kind, ("auto", *KINDS, "proximities"))
    check_choice("missing", missing, ("error", "drop"))
    check_choice("aggregate", aggregate, ("error", "mean", "sum", "last"))
    check_choice("dtype", dtype, ("float64", "float32"))
    if changes is not None:
        check_choice("changes", changes, CHANGES)
    parse_freq(freq)
    read = _opened(table, names)
    if not isinstance(read, Table):
        return _matrix_steps(read, kind, id=id, weight=weight, missing=missing, dtype=dtype)
    columns = find_columns(read, kind, Names(time, id, source, target, weight, features))
    plan = _Plan(
        read,
        columns,
        Treatment(missing, aggregate, standardize, sparse, dtype),
        lambda: Clock(freq, origin, time_format),
        changes,
        sort or read.in_memory,
    )
    plan.check(freq)
    features_named = columns.values if columns.kind == "features" else ()
    step_kind = "edges" if columns.kind == "edges" else "features"
    of_series = columns.kind == "series"
    return Steps(plan.snapshots, step_kind, read.title, names=features_named, of_series=of_series)


@dataclasses.dataclass(frozen=True, eq=False)
class _Plan:
    """How to read a table: which columns, which windows, what to do with gaps."""

    table: Table
    columns: Columns
    treatment: Treatment
    clock: Callable[[], Clock]
    changes: str | None
    sort: bool

    def check(self, freq: Any) -> None:
        """Raise if something is asked for that this kind of table does not have."""
        kind, by = self.columns.kind, parse_freq(freq)
        asked = {
            "changes": self.changes is not None,
            "standardize": self.treatment.standardize,
            "freq in rows": by is not None and by.unit == "rows",
        }
        for name, wanted in asked.items():
            if wanted and kind != "series":
                raise InputError(f"{name} is for series, but {self.table.title} holds {kind}; leave it out")
        if kind == "series" and by is None:
            raise InputError(
                f"{self.table.title} holds series, whose values in a window are the features of an object; "
                "say how long a window is, as in freq='30D' or freq='20 rows'"
            )

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the steps, reading the table from the top."""
        clock = self.clock()
        read = read_windows(
            self.table,
            self._chunks(),
            self.columns.time,
            clock,
            sort=self.sort,
            missing=self.treatment.missing,
        )
        whole = int(clock.freq.width) if clock.freq is not None and clock.freq.unit == "rows" else 0
        for window in read:
            if window.n_rows < whole:
                return  # the last rows fill no window
            snapshot = ASSEMBLERS[self.columns.kind](window, self.columns, self.treatment)
            if snapshot is not None:
                yield snapshot

    def _chunks(self) -> Iterator[dict[str, np.ndarray]]:
        wanted = (self.columns.time, *self.columns.objects, *self.columns.values)
        chunks = ({name: chunk[name] for name in wanted} for chunk in self.table.chunks())
        if self.changes is None:
            return chunks
        return changes_of(chunks, self.columns, self.changes, self.treatment.dtype)


def _opened(
    table: Any, names: Sequence[str] | None
) -> Table | tuple[str, Callable[[], matrices.Timed], int | None]:
    """Return a table; or the name, the reader and the number of steps that are matrices."""
    if isinstance(table, str | os.PathLike):
        path = existing_file(Path(table))
        suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
        suffix = suffixes[-1] if suffixes else ""
        if suffix in TEXT_FILES:
            return csv_table(path, names)
        if suffix in PARQUET_FILES:
            return parquet_table(path)
        if suffix in matrices.READERS:
            return str(path), lambda: matrices.READERS[suffix](path), None
        known = ", ".join([*TEXT_FILES, *PARQUET_FILES, *matrices.READERS])
        raise InputError(f"{path} must end in one of {known}; rename the file to what it is")
    if is_frame(table):
        return frame_table(table)
    if isinstance(table, Steps):
        return table._title, lambda: ((step.time, step) for step in table), table.n_steps
    return _opened_sequence(table)


def _opened_sequence(table: Any) -> tuple[str, Callable[[], matrices.Timed], int | None]:
    title = f"the {type(table).__name__}"
    if is_sparse(table) or matrices.is_graph(table) or (is_array(table) and table.ndim != 3):
        raise InputTypeError(f"{title} is one step; give a list with one for each step")
    if not isinstance(table, Iterable):
        raise InputTypeError(
            f"table must be a path, a table with named columns, or a sequence of steps, got {title}"
        )
    if isinstance(table, Iterator):
        once = enumerate(table)
        return title, lambda: once, None
    return title, lambda: matrices.timed(table), len(table) if isinstance(table, Sized) else None


def _matrix_steps(
    opened: tuple[str, Callable[[], matrices.Timed], int | None], kind: str, **options: Any
) -> Steps:
    title, read, n_steps = opened
    if kind in ("edges", "series"):
        raise InputError(f"kind={kind!r} is for tables, but {title} holds matrices; leave it out")
    first_read = read()
    first = next(first_read, None)
    if first is None:
        raise InputError(f"{title} holds no steps; give at least one")

    def snapshot(time: Hashable, given: Any) -> Snapshot:
        return matrices.as_snapshot(time, given, **options)

    if kind == "auto":
        kind = matrices.kind_of(snapshot(*first), first[1])
    once = read() is first_read  # an iterator: its first step is taken already
    taken: list[bool] = []

    def snapshots() -> Iterator[Snapshot]:
        if once and taken:
            raise InputError(f"{title} is read already, and can be read once only; give a list")
        taken.append(True)
        return (snapshot(*pair) for pair in (itertools.chain([first], first_read) if once else read()))

    return Steps(snapshots, kind, title, n_steps=n_steps)
