"""The values in a table: numbers, names, and what stands for a missing one."""

from typing import Any

import numpy as np

from affect_xp.exceptions import InputError

MISSING = {"", "na", "n/a", "nan", "null", "none"}


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for a missing one: None, NaN, NaT, NA, an empty text and the like."""
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # the NA of pandas does not say
        return True


def are_missing(values: np.ndarray) -> np.ndarray:
    """Tell which values of a column are missing."""
    if values.dtype.kind in "iub":
        return np.zeros(len(values), bool)
    if values.dtype.kind in "fmM":
        return np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
    listed = values.tolist()
    distinct = {value: is_missing(value) for value in set(listed)}  # names come again and again
    if not any(distinct.values()):
        return np.zeros(len(values), bool)
    return np.fromiter((distinct[value] for value in listed), bool, len(values))


def as_numbers(values: np.ndarray, column: str, dtype: Any = np.float64) -> np.ndarray:
    """Return a column as floats, NaN where it is missing."""
    if values.dtype.kind not in "mM":
        try:
            return np.asarray(values, dtype=dtype)
        except (TypeError, ValueError):
            pass  # a missing value, or a bad one: look at each
    return np.array([_number(value, column) for value in values.tolist()], dtype=dtype)


def _number(value: Any, column: str) -> float:
    if is_missing(value):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"column {column!r} holds {str(value)!r}, which is not a number; name the columns to use with "
            "features=[...], or say what the columns are with kind=, time=, id=, source=, target="
        ) from None
