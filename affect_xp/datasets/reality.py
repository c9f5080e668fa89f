"""MIT Reality Mining: weekly Bluetooth proximity of the phones of the participants."""

import dataclasses
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.datasets._npz import existing_file, read_npz
from affect_xp.exceptions import InputError

ARRAYS = ("ids", "affiliation", "member_ptr", "member", "edge_ptr", "row", "col", "weight")
CELLS = ("ids", "W", "labels")
FIRST_DAY = datetime.date(2004, 8, 8)


@dataclasses.dataclass(frozen=True, eq=False)
class RealityStep:
    """The participants who were active in a week.

    Attributes
    ----------
    W : (n, n) array
        The number of five-minute intervals that two participants were near each other; zero diagonal.
    ids : list of n str
        The participants; they come and go.
    labels : (n,) int array
        Their affiliation: 1 for the Media Laboratory, 2 for the Sloan business school.
    start : date
        The first day of the week.
    """

    W: np.ndarray
    ids: list[str]
    labels: np.ndarray
    start: datetime.date


def load_reality(path: str | Path) -> list[RealityStep]:
    """Read the weeks of the MIT Reality Mining data, as the authors of AFFECT prepared them.

    Parameters
    ----------
    path : str or Path
        `reality.mat` of the authors' MATLAB toolbox, with the cell arrays `ids`, `W` and `labels`. It is read
        by SciPy, which is not secure against malicious files: use only files from a trusted source.
        Or an .npz file with `ids` and `affiliation` of all participants, and for week t the participants
        `member[member_ptr[t]:member_ptr[t + 1]]` (indices into `ids`) and the entries of W
        `row, col, weight[edge_ptr[t]:edge_ptr[t + 1]]` (indices into these participants).

    Returns
    -------
    list of RealityStep
        46 weeks from 8 August 2004 on, with 94 participants in total.

    References
    ----------
    Eagle, Pentland & Lazer, "Inferring friendship network structure by using mobile phone data", PNAS 106
    (2009) 15274-15278.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = ax.datasets.load_reality("reality.npz")  # doctest: +SKIP
    >>> W, ids = [step.W for step in steps], [step.ids for step in steps]  # doctest: +SKIP
    >>> model = ax.Affect(ax.Spectral(2)).fit(W, ids=ids)  # doctest: +SKIP
    """
    path = existing_file(path)
    readers = {".npz": _from_npz, ".mat": _from_mat}
    if path.suffix.lower() not in readers:
        raise InputError(f"path must end in .npz or .mat, got {path}; rename the file")
    steps = [
        _checked(path, t, W, ids, labels)
        for t, (W, ids, labels) in enumerate(readers[path.suffix.lower()](path))
    ]
    if not steps:
        raise InputError(f"{path} contains no weeks; use a file with at least one")
    return steps


def _checked(path: Path, t: int, W: np.ndarray, ids: list[str], labels: np.ndarray) -> RealityStep:
    """Return a week; raise if its parts are inconsistent."""
    where = f"{path}, week {t + 1}:"
    if len(set(ids)) != len(ids):
        raise InputError(f"{where} a participant appears twice; the file is damaged: fetch it again")
    if labels.shape != (len(ids),) or W.shape != (len(ids), len(ids)):
        raise InputError(
            f"{where} {len(ids)} ids, labels of shape {labels.shape} and W of shape {W.shape} do not match; "
            "the file is damaged: fetch it again"
        )
    if not (np.isfinite(W).all() and (W >= 0).all() and (W == W.T).all()):
        raise InputError(
            f"{where} W must be finite, symmetric and nonnegative; the file is damaged: fetch it again"
        )
    return RealityStep(W, ids, labels, FIRST_DAY + datetime.timedelta(weeks=t))


Parts = Iterator[tuple[np.ndarray, list[str], np.ndarray]]


def _from_npz(path: Path) -> Parts:
    """Yield (W, ids, labels) of each week."""
    data = read_npz(path, ARRAYS)
    for name, array in data.items():
        kinds = {"ids": "U", "weight": "fiu"}.get(name, "iu")
        if array.ndim != 1 or array.dtype.kind not in kinds:
            raise InputError(
                f"{path}: {name} has shape {array.shape} and dtype {array.dtype}, not as documented; "
                "the file is damaged: fetch it again"
            )
    ids, member, row, col = (data[name] for name in ("ids", "member", "row", "col"))
    n_weeks = len(data["member_ptr"]) - 1
    fits = (
        len(data["affiliation"]) == len(ids)
        and len(row) == len(col) == len(data["weight"])
        and len(data["edge_ptr"]) == n_weeks + 1
        and _splits(data["member_ptr"], len(member))
        and _splits(data["edge_ptr"], len(row))
        and _within(member, len(ids))
    )
    if not fits:
        raise InputError(
            f"{path}: the arrays are inconsistent, or their indices are out of range; the file is damaged: "
            "fetch it again"
        )
    for t in range(n_weeks):
        of_week = member[data["member_ptr"][t] : data["member_ptr"][t + 1]]
        edges = slice(data["edge_ptr"][t], data["edge_ptr"][t + 1])
        n = len(of_week)
        # If n exceeds the number of participants, some appear twice: do not allocate a matrix.
        if n > len(ids) or not (_within(row[edges], n) and _within(col[edges], n)):
            raise InputError(
                f"{path}, week {t + 1}: row or col points beyond its {n} participants; the file is damaged: "
                "fetch it again"
            )
        W = np.zeros((n, n))
        W[row[edges], col[edges]] = data["weight"][edges]
        yield W, [str(name) for name in ids[of_week]], data["affiliation"][of_week].astype(np.int64)


def _splits(pointers: np.ndarray, length: int) -> bool:
    """Return whether pointers increase from 0 to a length."""
    ends = len(pointers) > 0 and pointers[0] == 0 and pointers[-1] == length
    return ends and bool((pointers[1:] >= pointers[:-1]).all())


def _within(positions: np.ndarray, length: int) -> bool:
    """Return whether all indices are between 0 and length - 1."""
    return bool(((positions >= 0) & (positions < length)).all())


def _from_mat(path: Path) -> Parts:
    """Yield (W, ids, labels) of each week of the toolbox's file."""
    ids, W, labels = _read_cells(path)
    if not len(ids) == len(W) == len(labels):
        raise InputError(
            f"{path}: ids, W and labels have {len(ids)}, {len(W)} and {len(labels)} cells, but need one per "
            "week; the file is damaged: fetch it again"
        )
    for t in range(len(ids)):
        names = _strings(ids[t])
        try:
            if W[t].shape != (len(names), len(names)):  # before a sparse matrix grows to this shape
                raise ValueError(f"W of shape {W[t].shape} for {len(names)} ids")
            dense = W[t].toarray() if hasattr(W[t], "toarray") else W[t]
            weights, affiliation = np.asarray(dense, dtype=np.float64), np.asarray(labels[t]).ravel()
            yield weights, names, affiliation.astype(np.int64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"{path}, week {t + 1}: {error}; W must be a square matrix with one row per id, and "
                "labels must be integers: fetch the file again"
            ) from error


def _read_cells(path: Path) -> list[np.ndarray]:
    """Return the cells of ids, W and labels."""
    from scipy.io import loadmat, whosmat

    try:
        found = [name for name, _, _ in whosmat(path)]
        data: dict[str, Any] = loadmat(path, variable_names=CELLS, spmatrix=False)
    except NotImplementedError as error:
        raise InputError(
            f"{path} has MATLAB version 7.3, which is not supported; save it again with "
            "save('reality.mat', 'ids', 'W', 'labels', '-v7')"
        ) from error
    except Exception as error:  # many kinds, depending on the damage
        raise InputError(
            f"{path} cannot be read as a .mat file ({type(error).__name__}: {error}); it may be truncated or "
            "of another kind: fetch it again"
        ) from error
    cells = [data.get(name) for name in CELLS]
    if any(getattr(cell, "dtype", None) != np.dtype(object) for cell in cells):
        raise InputError(
            f"{path} must contain the cell arrays {', '.join(CELLS)} with one cell per week; it contains "
            f"{', '.join(found) or 'no variables'}; rename them in MATLAB and save it again"
        )
    return [cell.ravel() for cell in cells if cell is not None]


def _strings(cell: Any) -> list[str]:
    """Return the ids of a week: a cell array of strings, or a character matrix."""
    parts = np.asarray(cell).ravel()
    return ["".join(str(c) for c in np.asarray(part).ravel()).strip() for part in parts]
