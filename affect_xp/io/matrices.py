"""Steps that are matrices, frames or graphs: sequences of them, and .npy, .npz and .mat files."""

import itertools
import re
import struct
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.namespace import is_array
from affect_xp.checks import warn_caller
from affect_xp.datasets._npz import read_npz
from affect_xp.exceptions import InputError, InputTypeError, InputWarning
from affect_xp.io.kinds import complete_rows
from affect_xp.io.options import ReadOptions
from affect_xp.io.roles import USUAL
from affect_xp.io.snapshot import Snapshot
from affect_xp.io.sources import is_missing, is_table
from affect_xp.proximity import is_sparse
from affect_xp.proximity.graphs import graph_adjacency, is_graph

MAT_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # of bytes, by the end of the header of version 5
MAT_TYPES, MAT_ARRAY, MAT_COMPRESSED = {*range(1, 8), 9, *range(12, 19)}, 14, 15
Ids = tuple[Hashable, ...]
Timed = Iterator[tuple[Hashable, Any]]  # (time, matrix or graph) of each step


def as_snapshot(time: Hashable, given: Any, options: ReadOptions) -> Snapshot:
    """Return a matrix, a wide frame or a graph as what is observed at a step."""
    if isinstance(given, Snapshot):
        return given
    if is_graph(given):
        return _from_graph(time, given, options)
    if is_table(given):
        return _from_frame(time, given, options)
    if not (is_sparse(given) or is_array(given)):
        how = "pass a matrix, a frame whose index contains the ids, or a networkx graph"
        raise InputTypeError(f"the step at time {time} is of type {type(given).__name__}; {how}")
    if len(given.shape) != 2:
        raise InputError(f"the step at time {time} has shape {tuple(given.shape)}; pass one matrix per step")
    return Snapshot(time, None, given)


def kind_of(snapshot: Snapshot, given: Any) -> str:
    """Return what a step contains: a square matrix with the same names on both sides is proximities."""
    if is_graph(given):
        return "edges"
    n_rows, n_columns = snapshot.values.shape
    same = not is_table(given) or tuple(getattr(given, "columns", ())) == snapshot.ids
    return "proximities" if n_rows == n_columns and same else "features"


def _from_graph(time: Hashable, graph: Any, options: ReadOptions) -> Snapshot:
    """Return the adjacency matrix of a graph, including nodes without edges."""
    if graph.is_directed() and options.directed is None:
        how = "pass directed='sum', directed='mean' or directed='max', or use graph.to_undirected()"
        raise InputError(f"the graph at time {time} is directed, but proximities have no direction; {how}")
    if len({side for _, side in graph.nodes(data="bipartite")} - {None}) > 1:
        what = f"the graph at time {time} is bipartite"
        warn_caller(f"{what}: clusters will contain objects of both sides", InputWarning)
    weight, directed = options.weight or "weight", options.directed or "sum"
    ids, W = graph_adjacency(graph, f"the step at time {time}", weight, directed)
    return Snapshot(time, ids, W.astype(options.dtype))


def _numbers(column: Any, name: str) -> np.ndarray:
    """Return a column as floats, NaN if a value is missing."""
    try:
        for text in (value for value in column if isinstance(value, str) and "_" in value):
            raise ValueError(repr(text))  # for Python, "1_000" is 1000
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
            what = f"the frame at time {time} has no column of ids"
            raise InputError(f"{what}; pass id=, one of {list(columns)}")
        ids = list(columns.pop(id))
    X = np.column_stack([_numbers(column, name) for name, column in columns.items()])
    missing = "error" if [str(id) for id in ids] == list(columns) else options.missing  # proximities need all
    good = complete_rows(time, ids, X, np.ones(len(X), bool), missing)
    return Snapshot(time, tuple(itertools.compress(ids, good)), X[good].astype(options.dtype))


def timed(sequence: Iterable[Any]) -> Timed:
    """Yield (time, step). The keys of a dict are times, sorted unless they are labels; or 0, 1, ..."""
    if isinstance(sequence, dict):
        texts = [key for key in sequence if isinstance(key, str)]
        if not all(re.fullmatch(r"\d{4}(-?(\d\d|Q\d|W\d\d).*)?", text) for text in texts):
            return iter(sequence.items())
        try:
            return iter(sorted(sequence.items(), key=lambda item: item[0]))
        except TypeError as error:
            how = "use times of one type, all with a time zone or all without, or texts"
            raise InputError(f"the keys of the dict are not in an order ({error}); {how}") from error
    if is_array(sequence):
        return ((t, sequence[t, :, :]) for t in range(sequence.shape[0]))  # type: ignore[attr-defined, index]
    return iter(enumerate(sequence))


def npy_steps(path: Path) -> Timed:
    """Return the matrices of a (T, n, n) or (T, n, p) array; only the one needed is read."""
    try:
        stack = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of several kinds, by what the damage hits
        raise InputError(f"{path} cannot be read as an .npy file of numbers: {error}") from error
    return _split(str(path), {"": stack})


def _split(title: str, arrays: dict[str, np.ndarray], name: str = "") -> Timed:
    """Yield the matrices of a stack, with its ids and times."""
    stack, ids = arrays[name], arrays.get("ids")
    if stack.ndim != 3:
        raise InputError(f"{title} has shape {stack.shape}; it must be (steps, n, n) or (steps, n, features)")
    times = arrays.get("times", np.arange(len(stack)))
    if len(times) != len(stack) or (ids is not None and ids.shape != stack.shape[1:2]):
        counts = f"{len(stack)} steps of {stack.shape[1]} objects"
        raise InputError(f"{title} has {counts}, but ids or times are not as many")
    times = times.astype("datetime64[us]") if times.dtype.kind == "M" else times
    for time, matrix in zip(times.tolist(), stack, strict=True):
        yield time, Snapshot(time, None if ids is None else tuple(ids.tolist()), np.array(matrix))


def npz_steps(path: Path) -> Timed:
    """Return the steps of an .npz file.

    It may contain `W` (T, n, n) or `X` (T, n, p), with `ids` (n,) and `times` (T,); or one matrix for
    each step under names of their own, as `np.savez(path, *matrices)` writes them; or one sparse matrix,
    or the layout of `load_reality`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        read_npz(path, ())  # which says what is wrong
        raise InputError(f"{path} is not an .npz file; rename it to what it is") from error
    if "member_ptr" in names:
        from affect_xp.datasets import load_reality  # one of many; most readers need none of them

        return ((step.start, Snapshot(step.start, tuple(step.ids), step.W)) for step in load_reality(path))
    if {"format", "shape", "data"} <= set(names):
        try:
            return iter([(0, scipy.sparse.load_npz(path))])
        except Exception as error:  # many kinds, depending on the damage
            raise InputError(f"{path} cannot be read as a sparse matrix: {error}") from error
    if {"W", "X"} <= set(names):
        raise InputError(f"{path} contains W and X; store one of them in a file")
    for name in {"W", "X"}.intersection(names):
        more = [other for other in ("ids", "times") if other in names]
        return _split(f"{path}: {name}", read_npz(path, (name, *more)), name)
    arrays = read_npz(path, names)
    for name, matrix in arrays.items():
        if matrix.ndim != 2:
            how = "store one matrix for each step, or W (steps, n, n) or X (steps, n, features)"
            raise InputError(f"{path}: {name} has shape {matrix.shape}; {how} with ids and times")
    numbered = all(name.removeprefix("arr_").isdecimal() for name in names)
    return ((int(name.removeprefix("arr_")) if numbered else name, arrays[name]) for name in names)


def mat_steps(path: Path) -> Timed:
    """Yield the steps of a file of the authors' MATLAB toolbox: cells `W`, and cells `ids` if it has them.

    `W` may also be one (n, n, T) array.
    """
    from scipy.io import loadmat

    try:
        content = path.read_bytes()
        if content[124:128] in MAT_ORDERS:
            _check_mat(content[128:], MAT_ORDERS[content[124:128]])
        stored: dict[str, Any] = loadmat(path, variable_names=("ids", "W"), spmatrix=False)
    except NotImplementedError as error:
        raise InputError(f"{path} is of MATLAB version 7.3, which is not read; save it with '-v7'") from error
    except Exception as error:  # of a dozen kinds, by what the damage hits
        raise InputError(f"{path} cannot be read as a .mat file ({type(error).__name__}: {error})") from error
    if "W" not in stored:
        raise InputError(f"{path} has no variable W; store the proximities of each step in the cells of W")
    W, cells = stored["W"], stored.get("ids")
    cells = None if cells is None else cells.ravel()
    if not is_sparse(W):
        W = W.ravel() if W.dtype == object else np.moveaxis(np.atleast_3d(W), 2, 0)
    matrices = [W] if is_sparse(W) else list(W)
    by_step = cells is not None and len(cells) == len(matrices) and not isinstance(cells[0], str)
    for t, matrix in enumerate(matrices):
        ids = None if cells is None else _names(cells[t] if by_step else cells)
        if ids is not None and len(ids) != matrix.shape[0]:
            counts = f"W of step {t} has {matrix.shape[0]} rows, but there are {len(ids)} ids"
            raise InputError(f"{path}: {counts}; store as many")
        yield t, Snapshot(t, ids, matrix)


def _check_mat(data: bytes, order: str) -> None:
    """Raise if a part of a .mat file of version 5 is of no known type or longer than what contains it.

    SciPy would crash. Parts are a type, a length and data, padded to 8 bytes; up to 4 bytes are in the tag.
    """
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, at)
        short = kind >> 16
        kind, size, start = (kind & 0xFFFF, short, at + 4) if short else (kind, size, at + 8)
        if kind not in MAT_TYPES or start + size > len(data) or (short and size > 4):
            raise ValueError(f"a part at byte {at} is damaged")
        if kind == MAT_ARRAY:
            _check_mat(data[start : start + size], order)
        at = at + 8 if short else start + size + (-size % 8 if kind != MAT_COMPRESSED else 0)


def _names(cell: Any) -> Ids:
    """Return ids stored as numbers, as a character matrix, or as cells of text."""
    parts = np.asarray(cell).ravel()
    if parts.dtype.kind in "iuf":
        return tuple(int(part) if float(part).is_integer() else float(part) for part in parts.tolist())
    return tuple("".join(str(c) for c in np.asarray(part).ravel()).strip() for part in parts)


READERS: dict[str, Callable[[Path], Timed]] = {".npy": npy_steps, ".npz": npz_steps, ".mat": mat_steps}
