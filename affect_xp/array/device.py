"""The device of an input is made current while a public call computes on it.

CuPy computes on the current device, whatever the device of its arrays. Other libraries follow their arrays.
"""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def current_device_of(*given: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the device of the first CuPy array among the arguments is current.

    Arrays, sparse matrices and proximities are looked at. Without a CuPy array nothing changes.
    """
    if "cupy" in sys.modules:  # otherwise there cannot be such an array
        for x in given:
            x = getattr(x, "like", x)
            library = type(x).__module__.partition(".")[0]
            if library in ("cupy", "cupyx"):
                return (x.data if library == "cupyx" else x).device  # of the entries of a sparse matrix
    return contextlib.nullcontext()


def on_input_device(function: Callable[P, R]) -> Callable[P, R]:
    """Make the device of the arguments current while the function runs."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with current_device_of(*args, *kwargs.values()):
            return function(*args, **kwargs)

    return run
