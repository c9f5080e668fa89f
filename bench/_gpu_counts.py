"""Count the GPU operations of a step without a GPU: CuPy executed on a CPU by `tools/cupy_cpu`."""

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
WHOLE = ("products", "residuals", "blend", "extremes")  # kernels that read a whole matrix
MATRICES = {"blend": 3}  # number of matrices that a kernel reads and writes; 1 by default


@dataclasses.dataclass(frozen=True)
class Asked:
    """The device operations of CuPy in a step, including the check of W.

    Attributes
    ----------
    n : int
    launches : int
        Kernel launches and library calls.
    waits : int
        Number of times the host waits.
    n_bytes : int
        Bytes read and written by kernels and products, including temporaries.
    entries : int
        Entries of W and Ψ̂ read and written by the kernels of this package.
    peak : int
        Peak memory in bytes, in addition to W and Ψ̂.
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
    """Return the counts of a step that replaces `churn` objects, with n×n arrays split into blocks."""
    import cupy
    import cupy_cpu

    arrays = [cupy.asarray(x) for x in _scenario.features(n)]
    arrays = [x @ x.T for x in arrays]
    with (
        mock.patch.object(namespace, "DEVICE_BLOCK_BYTES", 8 * n * -(-n // blocks)),
        # Limit the sample on which starts are compared: with so few objects it would contain all of them.
        mock.patch.object(kmeans, "FRESH_LIMITS", (SAMPLE, SAMPLE)),
    ):
        _last_step(arrays, init, churn, contextlib.nullcontext())  # compiles the kernels
        (seen, traffic), lloyd = _last_step(arrays, init, churn, _watch(cupy_cpu.count()))
    launches = seen.launch + seen.gemm + seen.blas + seen.solver + seen.sparse + seen.sort
    n_bytes = seen.moved_bytes + 2 * seen.d2d_bytes + traffic["bytes"]
    return Asked(n, launches, seen.sync, n_bytes, traffic["entries"], seen.peak_bytes, lloyd)


def _last_step(arrays: list[Any], init: str, churn: int, watch: Any) -> tuple[Any, int]:
    """Take all steps; return the counts and the number of Lloyd iterations of the last step."""
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


def _entries_read(name: str, w: Any, grid: Any, given: tuple[Any, ...]) -> int:
    """Return how many entries of W a kernel reads: all, some rows, or the diagonal."""
    if name in WHOLE:
        return int(w.size)
    n_rows = given[0].shape[0] if name == "regroup" else grid if name == "guess_means" else 1
    return int(n_rows * w.shape[0])


@contextlib.contextmanager
def _kernel_traffic() -> Iterator[dict[str, int]]:
    """Count the bytes read and written by the kernels of this package, which `cupy_cpu` cannot count."""
    total, run = {"bytes": 0, "entries": 0}, cuda._run

    def counted(name: str, w: Any, grid: Any, block: Any, n_bins: int, given: tuple[Any, ...]) -> None:
        arrays = [x for x in given if hasattr(x, "nbytes") and hasattr(x, "data")]
        if w is not None:
            entries = _entries_read(name, w, grid, given)
            total["entries"] += MATRICES.get(name, 1) * entries
            total["bytes"] += entries * w.itemsize
        total["bytes"] += sum(x.nbytes for x in arrays)
        run(name, w, grid, block, n_bins, given)

    with mock.patch.object(cuda, "_run", counted):
        yield total
