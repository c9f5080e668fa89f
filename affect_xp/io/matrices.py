"""Steps that are matrices, frames or graphs: sequences of them, and .npy, .npz and .mat files."""

import datetime
import itertools
import numbers
import re
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.namespace import is_array
from affect_xp.array.typing import Array
from affect_xp.checks import warn_caller
from affect_xp.datasets._npz import read_npz
from affect_xp.exceptions import InputError, InputTypeError, InputWarning
from affect_xp.io.observed import Snapshot
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import USUAL
from affect_xp.io.snapshots import adjacency, complete_rows
from affect_xp.io.sources import is_frame, is_missing
from affect_xp.proximity import is_sparse

Timed = Iterator[tuple[Hashable, Any]]  # (time, matrix or graph) of each step


def as_snapshot(time: Hashable, given: Any, options: ReadOptions) -> Snapshot:
    """Return a matrix, a wide frame or a graph as what is observed at a step."""
    if isinstance(given, Snapshot):
        return given
    if is_graph(given):
        return _from_graph(time, given, options)
    if is_frame(given):
        return _from_frame(time, given, options)
    if not (is_sparse(given) or is_array(given)):
        raise InputTypeError(
            f"the step at time {time} is of type {type(given).__name__}; pass a matrix, a frame whose index "
            "contains the ids, or a networkx graph"
        )
    if len(given.shape) != 2:
        raise InputError(f"the step at time {time} has shape {tuple(given.shape)}; pass one matrix per step")
    return Snapshot(time, None, given)


def is_graph(given: object) -> bool:
    """Return whether something is a networkx graph."""
    return hasattr(given, "adjacency") and hasattr(given, "nodes") and hasattr(given, "edges")


def kind_of(snapshot: Snapshot, given: Any) -> str:
    """Return what a step contains: a square matrix with the same names on both sides is proximities."""
    if is_graph(given):
        return "edges"
    n_rows, n_columns = snapshot.values.shape
    named = getattr(given, "columns", None)
    same = not is_frame(given) or (named is not None and tuple(named) == snapshot.ids)
    return "proximities" if n_rows == n_columns and same else "features"


def _from_graph(time: Hashable, graph: Any, options: ReadOptions) -> Snapshot:
    """Return the adjacency matrix of a graph, including nodes without edges."""
    if graph.is_directed() and options.directed is None:
        how = "pass directed='sum', directed='mean' or directed='max', or use graph.to_undirected()"
        raise InputError(f"the graph at time {time} is directed, but proximities have no direction; {how}")
    if len({side for _, side in graph.nodes(data="bipartite")} - {None}) > 1:
        what = f"the graph at time {time} is bipartite"
        warn_caller(f"{what}: clusters will contain objects of both sides", InputWarning)
    ids, W = graph_adjacency(graph, options.weight or "weight", options.directed or "sum")
    return Snapshot(time, ids, W.astype(options.dtype))


def graph_adjacency(
    graph: Any, weight: str = "weight", directed: str = "sum"
) -> tuple[tuple[Hashable, ...], Array]:
    """Return the nodes of a graph and its weights as a symmetric sparse matrix.

    An edge without a weight counts 1, parallel edges are summed, and `directed` combines both directions.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    edges = [(position[u], position[v], w) for u, v, w in graph.edges(data=weight, default=1)]
    ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2)
    if not graph.is_directed():  # an edge may be listed from either end
        ends, directed = np.sort(ends, axis=1), "sum"
    weights = _numbers([edge[2] for edge in edges], weight)
    return tuple(position), adjacency((ends[:, 0], ends[:, 1]), weights, len(position), directed)


def _numbers(column: Any, name: str) -> np.ndarray:
    """Return a column as floats, NaN if a value is missing."""
    try:
        return np.array([np.nan if is_missing(value) else float(value) for value in column], np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name!r} contains a value that is not a number: {error}") from error


def is_stacked(frame: Any) -> bool:
    """Return whether a pandas frame contains a square matrix per time, as `returns.rolling(60).corr()`."""
    index: Any = getattr(frame, "index", None)
    return getattr(index, "nlevels", 1) == 2 and set(index.get_level_values(1)) == set(frame.columns)


def stacked(frame: Any) -> dict[Hashable, Any]:
    """Return the matrix of each time; times without any value are left out with a warning."""
    squares = {time: block.droplevel(0) for time, block in frame.groupby(level=0)}
    found = {time: square[square.index] for time, square in squares.items() if square.notna().any(axis=None)}
    if len(found) < len(squares):
        warn_caller(f"{len(squares) - len(found)} times without any value are left out", InputWarning)
    return {time.to_pydatetime() if hasattr(time, "to_pydatetime") else time: found[time] for time in found}


def _from_frame(time: Hashable, frame: Any, options: ReadOptions) -> Snapshot:
    """Return the values of a wide frame: a row per object, named by the index or a column of ids."""
    columns = {str(name): frame[name] for name in frame.columns}
    if options.id is None and hasattr(frame, "reset_index"):
        ids: list[Hashable] = frame.index.tolist()
    else:
        id = options.id or next((name for name in columns if name.lower() in USUAL["id"]), None)
        if id not in columns:
            raise InputError(
                f"the frame at time {time} has no column of ids; pass id=, one of {list(columns)}"
            )
        ids = list(columns.pop(id))
    X = np.column_stack([_numbers(column, name) for name, column in columns.items()])
    missing = "error" if [str(id) for id in ids] == list(columns) else options.missing  # proximities need all
    good = complete_rows(time, ids, X, np.ones(len(X), bool), missing)
    return Snapshot(time, tuple(itertools.compress(ids, good)), X[good].astype(options.dtype))


def timed(sequence: Iterable[Any]) -> Timed:
    """Yield (time, step). The keys of a dict are times, sorted if they are numbers or dates; or 0, 1, ..."""
    if isinstance(sequence, dict):
        iso = all(isinstance(key, str) and re.match(r"\d{4}-\d\d", key) for key in sequence)
        kinds = (numbers.Real, datetime.datetime, datetime.date, np.datetime64)
        alike = iso or any(all(isinstance(key, kind) for key in sequence) for kind in kinds)
        return iter(sorted(sequence.items(), key=lambda item: item[0]) if alike else sequence.items())
    if is_array(sequence):
        return ((t, sequence[t, :, :]) for t in range(sequence.shape[0]))  # type: ignore[attr-defined, index]
    return iter(enumerate(sequence))


def npy_steps(path: Path) -> Timed:
    """Yield the matrices of a (T, n, n) or (T, n, p) array; only the one needed is read."""
    try:
        stack = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of several kinds, by what the damage hits
        raise InputError(f"{path} cannot be read as an .npy file of numbers: {error}") from error
    if stack.ndim != 3:
        raise InputError(f"{path} has shape {stack.shape}; it must be (steps, n, n) or (steps, n, features)")
    yield from ((t, np.array(stack[t])) for t in range(len(stack)))


def npz_steps(path: Path) -> Timed:
    """Yield the steps of an .npz file.

    It may hold `W` (T, n, n) or `X` (T, n, p), and beside it `ids` (n,) and `times` (T,); or one matrix for
    each step under names of their own, as `np.savez(path, *matrices)` writes them; or one sparse matrix,
    or the layout of `load_reality`.
    """
    names = _npz_names(path)
    if "member_ptr" in names:
        yield from _reality(path)
    elif {"format", "shape", "data"} <= set(names):
        yield 0, scipy.sparse.load_npz(path)
    elif "W" in names or "X" in names:
        yield from _stacked(path, "W" if "W" in names else "X", names)
    else:
        yield from _each(path, names)


def _each(path: Path, names: list[str]) -> Timed:
    arrays = read_npz(path, names)
    for name, matrix in arrays.items():
        if matrix.ndim != 2:
            raise InputError(
                f"{path}: {name} has shape {matrix.shape}; store one matrix for each step, or W "
                "(steps, n, n) or X (steps, n, features) with ids and times"
            )
    yield from ((_number(name), matrix) for name, matrix in arrays.items())


def _npz_names(path: Path) -> list[str]:
    if not zipfile.is_zipfile(path):
        read_npz(path, ())  # which says what is wrong
        raise InputError(f"{path} is not an .npz file; rename it to what it is")
    with zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _number(name: str) -> Hashable:
    """Return 3 for "arr_3", and other names as they are."""
    digits = name.removeprefix("arr_")
    return int(digits) if digits.isdecimal() else name


def _stacked(path: Path, name: str, names: list[str]) -> Timed:
    beside = [other for other in ("ids", "times") if other in names]
    arrays = read_npz(path, (name, *beside))
    stack = arrays[name]
    if stack.ndim != 3:
        raise InputError(
            f"{path}: {name} has shape {stack.shape}; it must be (steps, n, n) or (steps, n, features)"
        )
    T, n = stack.shape[:2]
    ids, times = arrays.get("ids"), arrays.get("times", np.arange(T))
    if len(times) != T or (ids is not None and ids.shape != (n,)):
        raise InputError(f"{path}: {name} has {T} steps of {n} objects, but ids or times are not as many")
    if times.dtype.kind == "M":
        times = times.astype("datetime64[us]")
    for time, matrix in zip(times.tolist(), stack, strict=True):
        yield time, matrix if ids is None else Snapshot(time, tuple(ids.tolist()), matrix)


def _reality(path: Path) -> Timed:
    from affect_xp.datasets import load_reality  # one of many; most readers need none of them

    for step in load_reality(path):
        yield step.start, Snapshot(step.start, tuple(step.ids), step.W)


def mat_steps(path: Path) -> Timed:
    """Yield the steps of a file of the authors' MATLAB toolbox: cells `W`, and cells `ids` if it has them.

    `W` may also be one (n, n, T) array.
    """
    from scipy.io import loadmat

    try:
        stored: dict[str, Any] = loadmat(path, variable_names=("ids", "W"), spmatrix=False)
    except NotImplementedError as error:
        raise InputError(f"{path} is of MATLAB version 7.3, which is not read; save it with '-v7'") from error
    except Exception as error:  # of a dozen kinds, by what the damage hits
        raise InputError(f"{path} cannot be read as a .mat file ({type(error).__name__}: {error})") from error
    if "W" not in stored:
        raise InputError(f"{path} has no variable W; store the proximities of each step in the cells of W")
    W = stored["W"]
    if is_sparse(W):
        matrices = [W]
    else:
        matrices = list(W.ravel()) if W.dtype == object else list(np.moveaxis(np.atleast_3d(W), 2, 0))
    cells = stored["ids"].ravel() if "ids" in stored else None
    by_step = cells is not None and len(cells) == len(matrices) and not isinstance(cells[0], str | np.str_)
    for t, matrix in enumerate(matrices):
        if cells is None:
            yield t, matrix
            continue
        ids = _names(cells[t] if by_step else cells)
        if len(ids) != matrix.shape[0]:
            raise InputError(
                f"{path}: W of step {t} has {matrix.shape[0]} rows, but there are {len(ids)} ids"
            )
        yield t, Snapshot(t, ids, matrix)


def _names(cell: Any) -> tuple[Hashable, ...]:
    """Return ids stored as numbers, as a character matrix, or as cells of text."""
    parts = np.asarray(cell).ravel()
    if parts.dtype.kind in "iuf":
        return tuple(int(part) if float(part).is_integer() else float(part) for part in parts.tolist())
    return tuple("".join(str(c) for c in np.asarray(part).ravel()).strip() for part in parts)


READERS: dict[str, Callable[[Path], Timed]] = {".npy": npy_steps, ".npz": npz_steps, ".mat": mat_steps}
