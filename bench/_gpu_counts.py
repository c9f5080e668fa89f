"""What a step asks of a device, counted without one.

With torch, which can watch every operation: the bytes that operations read and write, at sizes that a CPU can
hold, and the memory that they take at the true size, on tensors that have a shape and no content. With
`cupy_cpu`, CuPy's own code executed on a CPU: launches, waits and copies.
"""

import contextlib
import dataclasses
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

import affect_xp as ax
from affect_xp.array import namespace
from affect_xp.exceptions import InputWarning

from . import _scenario

ITEM = 4  # bytes of a float32
GATHERS = ("index_select", "index", "gather", "take")  # read no more than they return


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What operations read and write in a step.

    Attributes
    ----------
    n : int
    passes : float
        Entries of W and Ψ̂ read and written, in units of n².
    n_bytes : int
        Bytes read and written in all, temporaries included.
    lloyd : int
        Lloyd iterations.
    """

    n: int
    passes: float
    n_bytes: int
    lloyd: int


@dataclasses.dataclass(frozen=True)
class Asked:
    """What CuPy asks of the device in a step."""

    blocks: int  # into which an n×n array is cut
    launches: int  # kernels, and calls of libraries
    waits: int  # of the host
    copies: int  # to the host


def n_blocks(n: int, block_bytes: int | None = None) -> int:
    """Return into how many blocks of rows an n×n array is cut on a device."""
    width = (namespace.DEVICE_BLOCK_BYTES if block_bytes is None else block_bytes) // (8 * n)
    return math.ceil(n / max(1, width))


@contextlib.contextmanager
def replaced(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of the package in each module that has imported it."""
    modules = [
        m for key, m in sys.modules.items() if key.partition(".")[0] == "affect_xp" and hasattr(m, name)
    ]
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(mock.patch.object(module, name, function))
        yield


@contextlib.contextmanager
def as_on_device(block_bytes: int | None = None) -> Iterator[None]:
    """Let arrays on the host be treated like those of a device."""
    size = namespace.DEVICE_BLOCK_BYTES if block_bytes is None else block_bytes
    with (
        replaced("on_host", lambda x: False),
        mock.patch.object(namespace, "DEVICE_BLOCK_BYTES", size),
    ):
        yield


def watched_step(arrays: list[Any], init: str, watch: Callable[[], Any]) -> tuple[Any, ax.Affect]:
    """Take steps, the last of them watched; return what was seen and the model."""
    take = _scenario.model(init, scale="none", rescale=None)  # nothing is decided from what is made up
    *before, last = (ax.Dense(w) for w in arrays)
    for w in before:
        take(w)
    with watch() as seen:
        fitted = take(last)
    return seen, fitted


def count_traffic(n: int, init: str) -> Traffic:
    """Return what the operations of a step read and write."""
    import torch

    features = [torch.asarray(x) for x in _scenario.features(n)]
    # Blocks as large a share of the matrix as at n = 20,000.
    with as_on_device(namespace.DEVICE_BLOCK_BYTES * n**2 // 20_000**2):
        seen, fitted = watched_step([x @ x.T for x in features], init, lambda: _watch(n))
    return Traffic(n, seen.entries / n**2, seen.n_bytes, fitted.history_[-1].n_iter)


def peak_bytes(n: int, init: str) -> int:
    """Return the most bytes a step holds at once besides W and Ψ̂.

    What the host would read is made up: some objects move, and a cluster runs empty.
    """
    import torch

    arrays = [torch.empty((n, n), dtype=torch.float32, device="meta") for _ in range(3)]

    def made_up(*arrays: Any, reason: str) -> tuple[np.ndarray, ...]:
        return tuple(np.ones(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in arrays)

    with as_on_device(), replaced("to_host", made_up), warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # made up, W looks like nothing
        return watched_step(arrays, init, lambda: _watch(n))[0].highest


def _watch(n: int) -> Any:
    """Return a context that watches torch's operations."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    def tensors(values: Any) -> list[Any]:
        nested = values if isinstance(values, tuple | list) else (values,)
        flat = [y for x in nested for y in (x if isinstance(x, tuple | list) else (x,))]
        return [x for x in flat if isinstance(x, torch.Tensor)]

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.entries = self.n_bytes = self.highest = 0
            self.living: dict[Any, int] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            given, made = tensors(args), tensors(out)
            name = func.overloadpacket.__name__
            known = {x.untyped_storage()._cdata for x in given}
            in_place = name.endswith("_")
            if made and not in_place and all(x.untyped_storage()._cdata in known for x in made):
                return out  # a view
            for x in [] if name.startswith("empty") else made:
                self._moved(x, x.numel())
            for x in given[1:] if name == "copy_" else given:
                self._moved(x, made[0].numel() if name in GATHERS and made else x.numel())
            if not in_place:
                self._allocated(made)
            return out

        def _moved(self, x: Any, items: int) -> None:
            self.n_bytes += items * x.element_size()
            if x.untyped_storage().nbytes() >= n * n * ITEM:
                self.entries += items

        def _allocated(self, made: list[Any]) -> None:
            self.living = {ref: size for ref, size in self.living.items() if not ref.expired()}
            self.living |= {StorageWeakRef(x.untyped_storage()): x.untyped_storage().nbytes() for x in made}
            self.highest = max(self.highest, sum(self.living.values()))

    return Watch()


def count_asked(n: int, blocks: int, init: str) -> Asked:
    """Return what CuPy asks of the device, with n×n arrays cut into so many blocks."""
    import cupy
    import cupy_cpu

    features = [cupy.asarray(x) for x in _scenario.features(n)]
    block_bytes = 8 * n * math.ceil(n / blocks)
    with mock.patch.object(namespace, "DEVICE_BLOCK_BYTES", block_bytes):
        arrays = [x @ x.T for x in features]
        watched_step(arrays, init, contextlib.nullcontext)  # compiles the kernels
        seen, _ = watched_step(arrays, init, cupy_cpu.count)
    launches = seen.launch + seen.gemm + seen.blas + seen.solver + seen.sparse + seen.sort
    return Asked(n_blocks(n, block_bytes), launches, seen.sync, seen.d2h)
