"""Checks of a sparse proximity matrix."""

import copy
import math

import numpy as np

from affect_xp.array.namespace import array_namespace, can_sum_rows, to_host
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError
from affect_xp.proximity._base import TOLERANCE, check_square, checked_dtype
from affect_xp.proximity.sparse import Matrix, canonical, row_numbers, with_values

# The difference of Wv and Wᵀv, as a share of the largest entry, up to which W counts as exactly symmetric.
MAX_ROUNDING = 1e-12


def checked_sparse(w: Matrix, name: str) -> tuple[Matrix, float]:
    """Return w as a real, finite, square, symmetric CSR matrix, and the largest |wᵢⱼ|; raise otherwise.

    Integers and booleans become float64 before duplicate entries are summed. Asymmetry within the
    rounding tolerance for arrays is averaged out. Stored zeros are removed. The input is not changed;
    the check temporarily needs memory for the transpose.
    """
    check_square(w, name, "it needs a row and a column for each object")
    w = w.astype(np.float64) if w.dtype.kind in "iub" else w
    w = canonical(_checked_indices(w, name))
    checked_dtype(w.data, name)
    if w.nnz == 0:
        return w, 0.0
    smallest, largest = _range(w.data)
    if not math.isfinite(largest):
        i, j = _first(w, ~array_namespace(w.data).isfinite(w.data))
        raise InputError(
            f"{name} must be finite, but {name}[{i}, {j}] = {_entry(w, i, j)}; "
            "leave such entries out of the matrix, or the objects they belong to"
        )
    if smallest == 0:
        w = w.copy()
        w.eliminate_zeros()
    return _checked_symmetry(w, largest, name), largest


def _checked_indices(w: Matrix, name: str) -> Matrix:
    """Return w if its indices are within its shape: with others, SciPy would read invalid memory."""
    if not hasattr(w, "check_format"):
        return w
    w = copy.copy(w)  # the check modifies it
    try:
        w.check_format(full_check=True)
    except ValueError as error:
        raise InputError(
            f"{name} is not a valid sparse matrix: {error}; rebuild it with indices that do not overflow"
        ) from error
    return w


def _looks_symmetric(w: Matrix, largest: float) -> bool:
    """Tell whether Wv = Wᵀv up to rounding for a random v; only of matrices on the host.

    An asymmetric pair changes one of the sums by at least its difference, as 1 ≤ |vⱼ| < 2.
    """
    if not can_sum_rows(w.data):
        return False
    v = np.random.default_rng(0).uniform(-1, 1, w.shape[0])
    v += np.sign(v)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.abs(w @ v - w.T @ v).max() <= MAX_ROUNDING * largest)


def _checked_symmetry(w: Matrix, largest: float, name: str) -> Matrix:
    """Return w made exactly symmetric, if it is symmetric up to rounding."""
    if _looks_symmetric(w, largest):
        return w
    mirrored = canonical(w.T)
    gap = w - mirrored
    asymmetry = _range(gap.data)[1] if gap.nnz else 0.0
    tolerance = TOLERANCE[str(w.dtype)] * largest
    if asymmetry > tolerance:
        i, j = _first(gap, abs(gap.data) > tolerance)
        raise InputError(
            f"{name} is not symmetric: {name}[{i}, {j}] = {_entry(w, i, j)} but "
            f"{name}[{j}, {i}] = {_entry(w, j, i)}; use ({name} + {name}.T) / 2 if either half will do, "
            f"{name}.maximum({name}.T) if only one half is stored"
        )
    if asymmetry == 0:
        return w
    total = w + mirrored
    return with_values(total, total.data / 2)


def _range(values: Array) -> tuple[float, float]:
    """Return min |x| and max |x| as numbers; NaN propagates to both."""
    xp = array_namespace(values)
    size = xp.abs(values)
    smallest, largest = to_host(xp.stack([xp.min(size), xp.max(size)]), reason="checking a matrix")[0]
    return float(smallest), float(largest)


def _first(w: Matrix, bad: Array) -> tuple[int, int]:
    """Return the row and the column of the first bad stored entry; there must be one."""
    places = (bad, row_numbers(w.indptr, slice(0, w.nnz)), w.indices)
    bad, rows, columns = (to_host(a, reason="finding the bad entry")[0] for a in places)
    place = np.argmax(bad)
    return int(rows[place]), int(columns[place])


def _entry(w: Matrix, i: int, j: int) -> float:
    """Return wᵢⱼ as a number."""
    return float(to_host(w[i : i + 1, :].toarray(), reason="showing the bad entry")[0][0, j])
