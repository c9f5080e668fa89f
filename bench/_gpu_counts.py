"""Count the GPU operations of a step without a GPU: CuPy executed on a CPU by `tools/cupy_cpu`."""

import contextlib
import ctypes
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from affect_xp.array import cuda, namespace
from affect_xp.clustering import kmeans
from affect_xp.clustering.base import RULES

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
    n_bytes = seen.moved_bytes + 2 * seen.d2d_bytes + traffic["bytes"]
    return Asked(n, _launches(seen), seen.sync, n_bytes, traffic["entries"], seen.peak_bytes, lloyd)


def _last_step(arrays: list[Any], init: str, churn: int, watch: Any) -> tuple[Any, int]:
    """Take all steps; return the counts and the number of Lloyd iterations of the last step."""
    take = _scenario.model(init, scale="none", rescale=None)
    n = arrays[0].shape[0]
    for t, w in enumerate(arrays):
        ids = range(t * churn, t * churn + n)
        with watch if t + 1 == len(arrays) else contextlib.nullcontext() as seen:
            fitted: ax.Affect = take(w, ids)
    return seen, fitted.history_[-1].n_iter


@dataclasses.dataclass(frozen=True)
class Other:
    """The operations of another step, and their goal."""

    name: str
    launches: int
    waits: int
    most_launches: int
    most_waits: int

    @property
    def met(self) -> bool:
        """Whether the counts are within the goal."""
        return self.launches <= self.most_launches and self.waits <= self.most_waits


SPECTRAL = {"dense": (600, 12), "sparse": (1000, 20)}  # launches and waits of a step, at most
RULE = 3  # times the counts of one clustering, at most


def count_others(n: int) -> list[Other]:
    """Return the counts of steps of spectral clustering, and of the rules for the number of clusters."""
    steps = [count_spectral(kind, n) for kind in SPECTRAL]
    return steps + [count_rule(name, rule) for name, rules in RULES.items() for rule in rules]


def count_spectral(kind: str, n: int) -> Other:
    """Count a later step of spectral clustering of a kernel or a graph."""
    import affect_xp as ax

    make = {"dense": _kernel, "sparse": _graph}[kind]
    counts = _count_step(ax.Spectral(_scenario.K), [make(n, t) for t in range(3)])
    return Other(f"`Spectral({_scenario.K})`, {kind}", *counts, *SPECTRAL[kind])


def count_rule(name: str, rule: str) -> Other:
    """Count a later step by a rule; the goal is a multiple of that with a fixed number of clusters."""
    import affect_xp as ax

    most, n = 10, 450 if name == "Spectral" else 150  # more than are decomposed in full
    makers = {"KMeans": ax.KMeans, "Spectral": ax.Spectral, "Linkage": ax.Linkage}
    matrices = [(_distances if name == "Linkage" else _kernel)(n, t) for t in range(3)]
    fixed, chosen = (_count_step(makers[name](k, max_clusters=most), matrices) for k in (most, rule))
    return Other(f'`{name}("{rule}")`, dense', *chosen, *(RULE * count for count in fixed))


def _count_step(clusterer: Any, matrices: list[Any]) -> tuple[int, int]:
    """Return launches and waits of the last step; a first run compiles the kernels."""
    import cupy_cpu

    import affect_xp as ax

    for watch in (contextlib.nullcontext(), cupy_cpu.count()):
        model = ax.Affect(clusterer, random_state=0, scale="none", rescale=None)
        for w in matrices[:-1]:
            model.partial_fit(w)
        with watch as seen, mock.patch.object(kmeans, "FRESH_LIMITS", (SAMPLE, SAMPLE)):
            model.partial_fit(matrices[-1])
    return _launches(seen), seen.sync


def _points(n: int, t: int) -> Any:
    rng = np.random.default_rng([0, t])
    return 4 * np.eye(_scenario.K)[np.arange(n) % _scenario.K] + rng.normal(size=(n, _scenario.K))


def _distances(n: int, t: int) -> Any:
    import cupy

    x = _points(n, t)
    return cupy.asarray(np.linalg.norm(x[:, None, :] - x, axis=2).astype(np.float32))


def _kernel(n: int, t: int) -> Any:
    import cupy

    d = _distances(n, t)
    return cupy.exp(-d * d / 30)


def _graph(n: int, t: int) -> Any:
    import cupy
    import cupyx.scipy.sparse

    own, rng = np.arange(n) % _scenario.K, np.random.default_rng([1, t])
    share = np.where(own[:, None] == own, 200 / n, 12 / n)
    links = np.triu(rng.random((n, n)) < share, 1)
    return cupyx.scipy.sparse.csr_matrix(cupy.asarray((links | links.T).astype(np.float32)))


def _launches(seen: Any) -> int:
    return int(seen.launch + seen.gemm + seen.blas + seen.solver + seen.sparse + seen.sort)


@contextlib.contextmanager
def _watch(count: Any) -> Iterator[tuple[Any, dict[str, int]]]:
    with count as seen, _kernel_traffic() as traffic:
        yield seen, traffic


def _entries_read(name: str, w: Any, grid: Any, given: tuple[Any, ...]) -> int:
    """Return how many entries of W a kernel reads: all, some rows, or the diagonal."""
    if name in WHOLE:
        return int(w.size)
    n_rows = _n_objects(given[0]) if name == "regroup" else grid if name == "guess_means" else 1
    return int(n_rows * w.shape[0])


def _n_objects(x: Any) -> int:
    """Return how many positions are before the first -1; read in place, since a copy would be counted."""
    x = np.frombuffer((ctypes.c_char * x.nbytes).from_address(x.data.ptr), np.int64)
    return int(np.sum(x >= 0))


@contextlib.contextmanager
def _kernel_traffic() -> Iterator[dict[str, int]]:
    """Count what `cupy_cpu` cannot: bytes that the package's own kernels move."""
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
