"""Argument checks, with messages that name the argument, its value and the remedy."""

import numbers
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError, InputTypeError, shown


def check_int(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InputTypeError(f"{name} must be an integer, got {shown(value)}")
    if value < minimum:
        raise InputError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of the strings `choices`."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name} must be one of {listed}, got {shown(value)}")
    return value


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputTypeError(f"{name} must be a number between 0 and 1, got {shown(value)}")
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be between 0 and 1, got {value}")
    return float(value)


def check_n_clusters(value: object, n_objects: int, name: str = "n_clusters") -> int:
    """Return `value` as a number of clusters of at most `n_objects`."""
    k = check_int(name, value, 1)
    if k > n_objects:
        raise InputError(f"{name}={k} exceeds the number of objects, {n_objects}; use at most {n_objects}")
    return k


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the calling line outside this library."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "affect_xp":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def import_pandas() -> Any:
    """Return pandas, or raise with the remedy if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: pip install pandas") from error
    return pandas
