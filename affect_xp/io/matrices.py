"""Steps that are matrices, frames or graphs already: sequences of them, and .npy, .npz and .mat files."""

import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.namespace import is_array
from affect_xp.array.typing import Array
from affect_xp.datasets._npz import read_npz
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.io.columns import IDS
from affect_xp.io.observed import Snapshot
from affect_xp.io.snapshots import adjacency, complete_rows
from affect_xp.io.tables import frame_table, is_frame
from affect_xp.io.values import as_numbers
from affect_xp.proximity import is_sparse

Timed = Iterator[tuple[Hashable, Any]]  # (time, matrix or graph) of each step


def as_snapshot(
    time: Hashable, given: Any, *, id: str | None, weight: str | None, missing: str, dtype: str
) -> Snapshot:
    """Return a matrix, a wide frame or a graph as what is observed at a step."""
    if isinstance(given, Snapshot):
        return given
    if is_graph(given):
        return _from_graph(time, given, weight, dtype)
    if is_frame(given):
        return _from_frame(time, given, id, missing, dtype)
    if is_sparse(given) or is_array(given):
        if len(given.shape) != 2:
            raise InputError(
                f"the step at time {time} has shape {tuple(given.shape)}; give one matrix for each step"
            )
        return Snapshot(time, None, given)
    raise InputTypeError(
        f"the step at time {time} is of type {type(given).__name__}; give a matrix, a wide frame whose index "
        "holds the ids, or a networkx graph"
    )


def is_graph(given: object) -> bool:
    """Tell whether something is a graph of networkx."""
    return hasattr(given, "adjacency") and hasattr(given, "nodes") and hasattr(given, "edges")


def kind_of(snapshot: Snapshot, given: Any) -> str:
    """Return what a step holds: a square matrix, with the same names on both sides, holds proximities."""
    if is_graph(given):
        return "edges"
    n_rows, n_columns = snapshot.values.shape
    named = getattr(given, "columns", None)
    same = not is_frame(given) or (named is not None and tuple(named) == snapshot.ids)
    return "proximities" if n_rows == n_columns and same else "features"


def _from_graph(time: Hashable, graph: Any, weight: str | None, dtype: str) -> Snapshot:
    """Return the adjacency of a graph, directions summed; nodes without links are there too."""
    ids, W = graph_adjacency(graph, weight or "weight", dtype)
    return Snapshot(time, ids, W)


def graph_adjacency(
    graph: Any, weight: str = "weight", dtype: str = "float64"
) -> tuple[tuple[Hashable, ...], Array]:
    """Return the nodes of a graph, and the sum of the weights between each two of them, sparse.

    An edge without a weight counts 1. Parallel edges are summed, and so are the two directions.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data=weight, default=1))
    i, j = (np.array([position[edge[end]] for edge in edges], dtype=np.int64) for end in (0, 1))
    weights = np.empty(len(edges), dtype=object)
    weights[:] = [edge[2] for edge in edges]
    numbers = as_numbers(weights, weight, dtype)
    return tuple(position), adjacency(i, j, numbers, len(position), sparse=True)


def _from_frame(time: Hashable, frame: Any, id: str | None, missing: str, dtype: str) -> Snapshot:
    """Return the values in a wide frame: a row for each object, named by the index or a column of ids."""
    if id is None and hasattr(frame, "index") and hasattr(frame, "reset_index"):
        ids: list[Hashable] = frame.index.tolist()
        columns = {str(name): np.asarray(frame[name]) for name in frame.columns}
        square = ids == frame.columns.tolist()
    else:
        columns = next(frame_table(frame).chunks())
        name = id if id is not None else next((name for name in columns if name.lower() in IDS), None)
        if name not in columns:
            raise InputError(
                f"the frame at time {time} has no column of ids; name it with id=, one of {list(columns)}"
            )
        ids = columns.pop(name).tolist()
        square = ids == list(columns)
    X = np.column_stack([as_numbers(column, name, dtype) for name, column in columns.items()])
    # Of proximities no row can be left out without its column.
    good = complete_rows(time, ids, list(columns), X, "error" if square else missing)
    return Snapshot(time, tuple(i for i, there in zip(ids, good, strict=True) if there), X[good])


def timed(sequence: Iterable[Any]) -> Timed:
    """Yield (time, step): the keys of a dict are times, those of other sequences are 0, 1, ..."""
    if isinstance(sequence, dict):
        return iter(sequence.items())
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
