"""The Python side of the CPU rig for CuPy: settings, and counts of device operations.

``import cupy`` imports this module; import it explicitly to count::

    import cupy_cpu

    with cupy_cpu.count() as c:
        step(psi, w, labels)
    assert c.sync == 0 and c.d2h == 0, c.where
    assert c.largest < n * n * 8  # no n x n temporary
"""

import collections
import contextlib
import ctypes
import os
import sys

__all__ = ["Count", "count"]

_HOME = os.path.dirname(sys.prefix)  # the environment is <home>/venv
_INCLUDE = os.path.join(_HOME, "include")  # replaces the headers of a CUDA toolkit

# CUB is not emulated: CuPy's own reduction kernels are used. Compiled kernels are cached.
os.environ.setdefault("CUPY_ACCELERATORS", "")
os.environ.setdefault("CUPY_CACHE_DIR", os.path.join(_HOME, "kernels", "cupy"))

_COUNTERS = (
    "launch", "gemm", "blas", "solver", "sparse", "sort", "h2d", "d2h", "d2d", "sync", "memset", "malloc",
    "compile", "h2d_bytes", "d2h_bytes", "d2d_bytes", "moved_bytes",
)  # fmt: skip

try:
    _library = ctypes.CDLL(os.path.join(_HOME, "lib", "libcupy_cpu.so"))
except OSError as error:
    raise ImportError(
        "cupy_cpu works only in the environment made by its `build`: use `run python ...`"
    ) from error
_library.cupy_cpu_get.restype = ctypes.c_longlong
_library.cupy_cpu_kernels.restype = ctypes.c_char_p
_EventCallback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


@_EventCallback
def _on_missing(name):
    """Abort from a "file" named after the call: pytest swallows stderr, but shows the stack of an abort."""
    exec(compile("import os; os.abort()", f"cupy_cpu: NOT EMULATED: {name.decode()}", "exec"))


_library.cupy_cpu_on_missing(_on_missing)


def _totals():
    return {name: _library.cupy_cpu_get(name.encode()) for name in _COUNTERS}


def _kernel_totals():
    lines = _library.cupy_cpu_kernels().decode().splitlines()
    return collections.Counter(
        {name: int(launches) for name, launches in (line.split("\t") for line in lines)}
    )


def _caller():
    """File and line of the innermost frame outside CuPy and the array API packages."""
    frame = sys._getframe(1)
    inside = (
        os.path.join(_HOME, "site", ""),
        f"{os.sep}array_api_compat{os.sep}",
        f"{os.sep}array_api_extra{os.sep}",
    )
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith("<frozen") and not any(part in name for part in inside):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


class Count:
    """The device operations in a ``with count()`` block.

    Attributes
    ----------
    launch, gemm, blas, solver, sparse, sort : int
        Kernel launches; cuBLAS matrix products; other cuBLAS calls; cuSOLVER, cuSPARSE and Thrust calls.
    h2d, d2h, d2d, h2d_bytes, d2h_bytes, d2d_bytes : int
        Copies between host and device.
    moved_bytes : int
        Bytes that CuPy's kernels and products read and write; plain pointers of a RawKernel are not counted.
    sync : int
        Number of times the host waited for the device.
    alloc, alloc_bytes, largest : int
        Arrays allocated (results and temporaries), their bytes, the bytes of the largest one.
    peak_bytes : int
        Peak memory in the block, in addition to the memory in use on entry.
    memset, malloc, compile : int
        Fills; ``cudaMalloc`` calls behind CuPy's memory pool; kernels compiled.
    kernels : dict
        Launches by kernel name.
    where : list of str
        ``"d2h file:line"`` or ``"sync file:line"`` for each such event, in order.
    """

    def __init__(self):
        self.alloc = self.alloc_bytes = self.largest = self.peak_bytes = 0
        self.where = []
        self._in_use = 0
        self._start, self._start_kernels = _totals(), _kernel_totals()
        self._end = self._end_kernels = None

    def __getattr__(self, name):
        if name not in _COUNTERS:
            raise AttributeError(name)
        return (self._end or _totals())[name] - self._start[name]

    @property
    def kernels(self):
        end = self._end_kernels if self._end is not None else _kernel_totals()
        return dict(end - self._start_kernels)

    def __repr__(self):
        names = (*_COUNTERS, "alloc", "alloc_bytes", "largest", "peak_bytes")
        counts = " ".join(f"{name}={getattr(self, name)}" for name in names if getattr(self, name))
        return f"Count({counts})"

    def _allocated(self, size):
        self.alloc += 1
        self.alloc_bytes += size
        self.largest = max(self.largest, size)
        self._in_use += size
        self.peak_bytes = max(self.peak_bytes, self._in_use)

    def _freed(self, size):
        self._in_use -= size

    def _stop(self):
        self._end, self._end_kernels = _totals(), _kernel_totals()


_active = []  # the counts of the open blocks, outermost first


@_EventCallback
def _on_event(kind):
    line = f"{kind.decode()} {_caller()}"
    for open_count in _active:
        open_count.where.append(line)


@contextlib.contextmanager
def count():
    """Count the device operations inside the block; blocks may be nested."""
    hook = _memory_hook()
    result = Count()
    _active.append(result)
    _library.cupy_cpu_on_event(_on_event)
    try:
        if len(_active) == 1:
            with hook:
                yield result
        else:  # the outermost block's hook serves all
            yield result
    finally:
        result._stop()
        _active.remove(result)
        if not _active:
            _library.cupy_cpu_on_event(_EventCallback())


def _memory_hook():
    import cupy

    class Hook(cupy.cuda.MemoryHook):
        """Records every allocation from CuPy's memory pool, also those served without ``cudaMalloc``."""

        name = "cupy_cpu"

        def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
            for open_count in _active:
                open_count._allocated(mem_size)

        def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
            for open_count in _active:
                open_count._freed(mem_size)

    return Hook()
