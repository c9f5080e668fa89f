"""What a step asks of a GPU, counted without one: CuPy's own code executed on a CPU, by `tools/cupy_cpu`."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from affect_xp.array import cuda, namespace
from affect_xp.clustering import kmeans

from . import _scenario

if TYPE_CHECKING:
    import affect_xp as ax

ITEM = 4  # bytes of a float32
SAMPLE = 60  # objects
MATRICES = {"blend": 3}  # that a kernel reads and writes, where it is not one


@dataclasses.dataclass(frozen=True)
class Asked:
    """What CuPy asks of the device in a step, the check of W included.

    Attributes
    ----------
    n : int
    launches : int
        Kernels, and calls of libraries.
    waits : int
        Of the host.
    n_bytes : int
        Read and written by kernels and products, temporaries included.
    entries : int
        Of W and Ψ̂, read and written by the kernels of this package.
    peak : int
        The most bytes held at once beside W and Ψ̂.
    lloyd : int
        Lloyd iterations.
    """

    n: int
    launches: int
    waits: int
    n_bytes: int
    entries: int
    peak: int
    lloyd: int


def count_asked(n: int, init: str, *, churn: int = 0, blocks: int = 1) -> Asked:
    """Return what CuPy asks of the device; `churn` objects leave and come, n×n arrays are cut into blocks."""
    import cupy
    import cupy_cpu

    arrays = [cupy.asarray(x) for x in _scenario.features(n)]
    arrays = [x @ x.T for x in arrays]
    with (
        mock.patch.object(namespace, "DEVICE_BLOCK_BYTES", 8 * n * -(-n // blocks)),
        # Of so few objects, the sample on which starts are compared would be all; of many it is a small part.
        mock.patch.object(kmeans, "FRESH_LIMITS", (SAMPLE, SAMPLE)),
    ):
        _last_step(arrays, init, churn, contextlib.nullcontext())  # compiles the kernels
        (seen, traffic), lloyd = _last_step(arrays, init, churn, _watch(cupy_cpu.count()))
    launches = seen.launch + seen.gemm + seen.blas + seen.solver + seen.sparse + seen.sort
    n_bytes = seen.moved_bytes + 2 * seen.d2d_bytes + traffic["bytes"]
    return Asked(n, launches, seen.sync, n_bytes, traffic["entries"], seen.peak_bytes, lloyd)


def _last_step(arrays: list[Any], init: str, churn: int, watch: Any) -> tuple[Any, int]:
    """Take steps, the last of them watched; return what was seen and its Lloyd iterations."""
    take = _scenario.model(init, scale="none", rescale=None)
    n = arrays[0].shape[0]
    for t, w in enumerate(arrays):
        ids = range(t * churn, t * churn + n)
        with watch if t + 1 == len(arrays) else contextlib.nullcontext() as seen:
            fitted: ax.Affect = take(w, ids)
    return seen, fitted.history_[-1].n_iter


@contextlib.contextmanager
def _watch(count: Any) -> Iterator[tuple[Any, dict[str, int]]]:
    with count as seen, _kernel_traffic() as traffic:
        yield seen, traffic


@contextlib.contextmanager
def _kernel_traffic() -> Iterator[dict[str, int]]:
    """Add up what the kernels of this package read and write, which the rig cannot know."""
    total, run = {"bytes": 0, "entries": 0}, cuda._run

    def counted(name: str, w: Any, grid: Any, block: Any, n_bins: int, given: tuple[Any, ...]) -> None:
        arrays = [x for x in given if hasattr(x, "nbytes") and hasattr(x, "data")]
        if w is not None:
            entries = given[0].shape[0] * w.shape[0] if name == "regroup" else w.size
            total["entries"] += MATRICES.get(name, 1) * entries
            total["bytes"] += entries * w.itemsize
        total["bytes"] += sum(x.nbytes for x in arrays)
        run(name, w, grid, block, n_bins, given)

    with mock.patch.object(cuda, "_run", counted):
        yield total
