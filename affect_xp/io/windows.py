"""The rows of a table, window by window: no more of a file is in memory than one window and one chunk."""

import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError
from affect_xp.io.tables import Chunk, Table
from affect_xp.io.times import Clock, shown


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """The rows of one window of time, in the order of time."""

    time: Hashable
    columns: Chunk
    n_rows: int


def read_windows(
    table: Table, chunks: Iterator[Chunk], time: str, clock: Clock, *, sort: bool, missing: str
) -> Iterator[Window]:
    """Yield the windows that hold rows. With `sort`, all rows are read first and put in order."""
    reader = _Reader(table, time, clock, missing)
    dated = (reader.dated(chunk) for chunk in chunks)
    parts: list[_Rows] = []
    for rows in _sorted(dated) if sort else dated:
        for part in reader.parts(rows):
            if parts and part.window != parts[0].window:
                yield reader.window(parts)
                parts = []
            parts.append(part)
    if parts:
        yield reader.window(parts)


@dataclasses.dataclass(frozen=True, eq=False)
class _Rows:
    """Some rows, their positions in time, and the window they are in where it is one."""

    columns: Chunk
    positions: np.ndarray
    window: Any = None

    def __getitem__(self, rows: Any) -> "_Rows":
        return _Rows({name: column[rows] for name, column in self.columns.items()}, self.positions[rows])


def _joined(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
    return _Rows(columns, np.concatenate([part.positions for part in parts]))


def _in_order(rows: _Rows) -> _Rows:
    """Return rows in the order of time; rows of the same time stay as they are."""
    if bool((rows.positions[1:] >= rows.positions[:-1]).all()):
        return rows
    return rows[np.argsort(rows.positions, kind="stable")]


def _sorted(dated: Iterator[_Rows]) -> Iterator[_Rows]:
    parts = list(dated)
    if parts:
        yield _in_order(_joined(parts))


class _Reader:
    """Dates rows, and cuts them where the window changes."""

    def __init__(self, table: Table, time: str, clock: Clock, missing: str) -> None:
        self.table, self.time, self.clock, self.missing = table, time, clock, missing
        self._n_read = 0
        self._last: Any = None

    def dated(self, chunk: Chunk) -> _Rows:
        """Return the rows of a chunk that have a time."""
        positions, known = self.clock.read(chunk[self.time], self.time)
        rows = _Rows({name: column for name, column in chunk.items() if name != self.time}, positions)
        if not known.all():
            if self.missing != "drop":
                row = self._n_read + int(np.argmin(known)) + 1
                raise InputError(
                    f"row {row} of {self.table.title} has no time in column {self.time!r}; "
                    "give missing='drop' to leave such rows out"
                )
            rows = rows[known]
        self._n_read += len(positions)
        return rows

    def parts(self, rows: _Rows) -> Iterator[_Rows]:
        """Yield the rows of each window; windows must not come back."""
        window = self.clock.windows(rows.positions)
        if not len(window):
            return
        first = window[:1] if self._last is None else np.array([self._last], dtype=window.dtype)
        falls = np.diff(window, prepend=first) < 0
        if falls.any():
            i = int(np.argmax(falls))
            raise InputError(
                f"the rows of {self.table.title} are not in the order of time: "
                f"{self._name(rows, window, i)} comes after {self._name(rows, window, i - 1)}; "
                "give sort=True to read all of it and sort it, or sort the file"
            )
        self._last = window[-1]
        ends = [*(np.flatnonzero(np.diff(window)) + 1), len(window)]
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            yield dataclasses.replace(rows[start:end], window=window[start])

    def _name(self, rows: _Rows, window: np.ndarray, i: int) -> str:
        return shown(self.clock.name(window[i], rows.positions[i])) if i >= 0 else "a later one"

    def window(self, parts: list[_Rows]) -> Window:
        rows = _in_order(_joined(parts))
        return Window(self.clock.name(parts[0].window, rows.positions[0]), rows.columns, len(rows.positions))
