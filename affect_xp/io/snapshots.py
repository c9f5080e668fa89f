"""What is observed at one step, made from the rows of a window."""

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.io.columns import Columns
from affect_xp.io.observed import Snapshot
from affect_xp.io.tables import Chunk
from affect_xp.io.times import shown
from affect_xp.io.values import are_missing, as_numbers
from affect_xp.io.windows import Window


@dataclasses.dataclass(frozen=True)
class Treatment:
    """What to do with rows: see `read_steps`."""

    missing: str = "error"
    aggregate: str = "error"
    standardize: bool = False
    sparse: bool = True
    dtype: str = "float64"


def as_features(window: Window, columns: Columns, treatment: Treatment) -> Snapshot | None:
    """Return the features of the objects of a window; None if there are none."""
    names = window.columns[columns.objects[0]]
    X = np.column_stack(
        [as_numbers(window.columns[name], name, treatment.dtype) for name in columns.values]
    )  # (rows, p)
    bad = are_missing(names)
    if bad.any() and treatment.missing == "error":
        raise InputError(_no_id(window, columns.objects[0]))
    good = ~bad & complete_rows(window.time, names, columns.values, X, treatment.missing)
    return _snapshot(window, *_distinct(window, names[good], X[good], treatment))


def complete_rows(
    time: Hashable, names: Any, columns: Sequence[str], X: np.ndarray, missing: str
) -> np.ndarray:
    """Return which rows of X have all their values; with missing="error" all must."""
    finite = np.isfinite(X)
    good = finite.all(axis=1)
    if not good.all() and missing == "error":
        i = int(np.argmin(good))
        f = int(np.argmin(finite[i]))
        raise InputError(_no_value(time, names[i], columns[f], X[i, f]))
    return good


def as_edges(window: Window, columns: Columns, treatment: Treatment) -> Snapshot | None:
    """Return the links of a window as an adjacency: the sum of the weights in both directions."""
    ends = [window.columns[name] for name in columns.objects]
    weights = np.ones(window.n_rows, treatment.dtype)
    if columns.values:
        weights = as_numbers(window.columns[columns.values[0]], columns.values[0], treatment.dtype)
    nameless = are_missing(ends[0]) | are_missing(ends[1])
    bad = nameless | ~np.isfinite(weights)
    if bad.any() and treatment.missing == "error":
        row = int(np.argmax(bad))
        if nameless[row]:
            raise InputError(_no_id(window, " or ".join(columns.objects)))
        pair = f"{ends[0][row]} - {ends[1][row]}"
        raise InputError(_no_value(window.time, pair, columns.values[0], weights[row]))
    good = ~bad
    codes, ids = _codes(np.concatenate([ends[0][good], ends[1][good]]))
    i, j = np.split(codes, 2)
    return _snapshot(window, ids, adjacency(i, j, weights[good], len(ids), treatment.sparse))


def adjacency(i: np.ndarray, j: np.ndarray, weights: np.ndarray, n: int, sparse: bool) -> Array:
    """Return W with W_ij = W_ji = the sum of the weights between i and j; a loop counts once."""
    between = i != j
    rows, cols = np.concatenate([i, j[between]]), np.concatenate([j, i[between]])
    both = np.concatenate([weights, weights[between]])
    W = scipy.sparse.coo_array((both, (rows, cols)), shape=(n, n)).tocsr()
    return W if sparse else W.toarray()


def as_series(window: Window, columns: Columns, treatment: Treatment) -> Snapshot | None:
    """Return the values of each object in the window as its features, where none is missing."""
    X = np.stack(
        [as_numbers(window.columns[name], name, treatment.dtype) for name in columns.values]
    )  # (n, p)
    good = np.isfinite(X).all(axis=1)
    if not good.all() and treatment.missing == "error":
        i = int(np.argmin(good))
        name = columns.values[i]
        raise InputError(_no_value(window.time, name, name, X[i][~np.isfinite(X[i])][0]))
    ids = [name for name, complete in zip(columns.values, good, strict=True) if complete]
    X = X[good]
    return _snapshot(window, ids, standardized(X) if treatment.standardize else X)


def standardized(X: np.ndarray) -> np.ndarray:
    """Return rows with mean 0 and length 1: their dot products are correlations; constant rows give 0."""
    centred = X - X.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    constant = length <= 10 * np.finfo(X.dtype).eps * np.linalg.norm(X, axis=1, keepdims=True)
    return np.where(constant, 0, centred / np.where(constant, 1, length)).astype(X.dtype, copy=False)


CHANGES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "absolute": lambda before, now: now - before,
    "relative": lambda before, now: now / before - 1,
    "log": lambda before, now: np.log(now) - np.log(before),
}


def changes_of(chunks: Iterator[Chunk], columns: Columns, kind: str, dtype: Any) -> Iterator[Chunk]:
    """Yield the changes of each series from row to row, at the time of the later one."""
    last: dict[str, np.ndarray] = {}
    for chunk in chunks:
        changed = {columns.time: chunk[columns.time] if last else chunk[columns.time][1:]}
        for name in columns.values:
            values = np.concatenate(
                [last.get(name, np.empty(0, dtype)), as_numbers(chunk[name], name, dtype)]
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                changed[name] = CHANGES[kind](values[:-1], values[1:])
            last[name] = values[-1:]
        yield changed


def _snapshot(window: Window, ids: Sequence[Hashable], values: Array) -> Snapshot | None:
    return Snapshot(window.time, tuple(ids), values) if ids else None


def _codes(names: np.ndarray) -> tuple[np.ndarray, list[Hashable]]:
    """Return the position of each name among the distinct ones, in the order of their appearance."""
    position: dict[Hashable, int] = {}
    codes = [position.setdefault(name, len(position)) for name in names.tolist()]
    return np.array(codes, dtype=np.int64), list(position)


def _distinct(
    window: Window, names: np.ndarray, X: np.ndarray, treatment: Treatment
) -> tuple[list[Hashable], np.ndarray]:
    """Return each object once: rows of the same object are put together, or are an error."""
    codes, ids = _codes(names)
    if len(ids) == len(codes):
        return ids, X
    if treatment.aggregate == "error":
        counts = np.bincount(codes)
        most = int(np.argmax(counts))
        raise InputError(
            f"id {ids[most]!r} has {counts[most]} rows at time {shown(window.time)}; give "
            "aggregate='mean' (or 'sum', 'last') to make one of them, or a shorter freq"
        )
    if treatment.aggregate == "last":
        last = np.zeros(len(ids), dtype=np.int64)
        np.maximum.at(last, codes, np.arange(len(codes)))
        return ids, X[last]
    rows = scipy.sparse.csr_array(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(len(ids), len(codes))
    )
    total = rows @ X.astype(np.float64)
    if treatment.aggregate == "mean":
        total = total / np.bincount(codes)[:, None]
    return ids, total.astype(X.dtype)


def _no_id(window: Window, column: str) -> str:
    when = shown(window.time)
    return f"a row at time {when} has no id in column {column}; give missing='drop' to leave it out"


def _no_value(time: Hashable, name: object, column: str, value: float) -> str:
    what = "no value (NaN)" if np.isnan(value) else f"{value}"
    return (
        f"id {str(name)!r} has {what} in column {column!r} at time {shown(time)}; give missing='drop' "
        "to leave the object out of that step, or fill the value in first"
    )
