"""Count transfers from an emulated device to the host: array-api-strict's `device1` emulates a GPU.

Only arrays on this device are observed. On CuPy each of these copies to the host or waits for the device:
float(), int(), bool(), conversion to NumPy, boolean masks, and functions whose result has a data-dependent
size.
"""

import collections
import contextlib
import sys

import array_api_strict as strict
from array_api_strict._array_object import Array

DEVICE = strict.Device("device1")
SCALARS = ("__float__", "__int__", "__bool__", "__index__", "__complex__")
CONVERSIONS = ("__array__", "__dlpack__", "__repr__", "__str__", "__iter__")
DATA_DEPENDENT = ("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values", "repeat")


class Transfers(collections.Counter):
    """The number of transfers by kind, and their locations."""

    def __init__(self):
        super().__init__()
        self.where = []
        self._inside = False

    @contextlib.contextmanager
    def note(self, kind):
        """Count one transfer; nested transfers are not counted."""
        outermost, self._inside = not self._inside, True
        if outermost:
            frame = sys._getframe()
            while frame and any(
                part in frame.f_code.co_filename for part in (__file__, "array_api", "contextlib")
            ):
                frame = frame.f_back
            self[kind] += 1
            self.where.append(f"{kind} {frame.f_code.co_filename}:{frame.f_lineno}")
        try:
            yield
        finally:
            if outermost:
                self._inside = False


@contextlib.contextmanager
def counted():
    """Yield a counter of the transfers from the device within the block."""
    seen, undo = Transfers(), []

    def watch(owner, name, kind, moves=lambda *args, **kwargs: True):
        original = getattr(owner, name)

        def watched(*args, **kwargs):
            here = args and isinstance(args[0], Array) and args[0].device == DEVICE
            if not here or not moves(*args, **kwargs):
                return original(*args, **kwargs)
            with seen.note(kind):
                return original(*args, **kwargs)

        setattr(owner, name, watched)
        undo.append((owner, name, original))

    def has_mask(_, key, *value):
        return any(
            isinstance(k, Array) and k.dtype == strict.bool
            for k in (key if isinstance(key, tuple) else (key,))
        )

    for name in SCALARS + CONVERSIONS:
        if name in Array.__dict__:
            watch(Array, name, name)
    watch(Array, "to_device", "to_device", lambda x, device, **_: device != DEVICE)
    watch(Array, "__getitem__", "mask", has_mask)
    watch(Array, "__setitem__", "mask", has_mask)
    for name in DATA_DEPENDENT:
        watch(strict, name, name)
    try:
        yield seen
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)
