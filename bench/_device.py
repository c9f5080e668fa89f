"""Devices of the benchmarks: the CPU with NumPy, or a GPU with CuPy."""

import dataclasses
import platform
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError

from ._measure import END, Action, Timer, WallTimer, traced_peaks


@dataclasses.dataclass(frozen=True)
class Host:
    """NumPy."""

    name: str = "cpu"
    timer: Timer = dataclasses.field(default_factory=WallTimer)

    def array(self, x: np.ndarray) -> Any:
        """Return an array of this device."""
        return x

    def to_host(self, x: Any) -> np.ndarray:
        """Return an array of this device as one of NumPy."""
        return np.asarray(x)

    def sparse(self, x: Any) -> Any:
        """Return a sparse matrix of this device, given one of SciPy."""
        return x

    def peaks(self, action: Action) -> np.ndarray:
        """Return the peak memory of each piece in bytes, in addition to that allocated before it."""
        return traced_peaks(action)

    def described(self) -> str:
        """Return the name of the processor."""
        try:
            with open("/proc/cpuinfo") as lines:
                return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        except (OSError, StopIteration):
            return platform.processor() or platform.machine()


class EventTimer(WallTimer):
    """A timer that uses events in the stream of a CUDA device."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def start(self) -> tuple[Any, float]:  # type: ignore[override]
        """Wait for pending work, and start the timer."""
        self.cuda.Device().synchronize()
        event = self.cuda.Event()
        event.record()
        return event, self.now()

    def stop(self, started: tuple[Any, float]) -> float:  # type: ignore[override]
        """Wait for the device, and return the seconds between the two events."""
        begin, wall = started
        end = self.cuda.Event()
        end.record()
        end.synchronize()
        # An emulated device returns 0.
        return self.cuda.get_elapsed_time(begin, end) / 1000 or self.now() - wall


class Cuda:
    """CuPy on the current device."""

    name = "cuda"

    def __init__(self) -> None:
        try:
            import cupy

            cupy.zeros(1)
        except Exception as error:  # no CuPy, no driver, or no device: each raises a different exception
            raise InputError(
                f"--device cuda needs CuPy and a GPU ({type(error).__name__}: {error}); "
                "install 'affect_xp[cuda12]' or 'affect_xp[cuda13]', or leave --device out"
            ) from error
        self.cupy = cupy
        self.timer: Timer = EventTimer(cupy.cuda)

    def array(self, x: np.ndarray) -> Any:
        """Return an array of this device."""
        return self.cupy.asarray(x)

    def to_host(self, x: Any) -> np.ndarray:
        """Return an array of this device as one of NumPy."""
        return self.cupy.asnumpy(x)

    def sparse(self, x: Any) -> Any:
        """Return a sparse matrix of this device, given one of SciPy."""
        import cupyx.scipy.sparse

        return cupyx.scipy.sparse.csr_matrix(x)

    def peaks(self, action: Action) -> np.ndarray:
        """Return the peak memory of each piece in CuPy's pool, in addition to that allocated before it."""
        hook, pieces = _pool_hook(self.cupy.cuda.MemoryHook), action()
        peaks: list[int] = []
        with hook:
            while True:
                hook.held = hook.highest = 0
                if next(pieces, END) is END:
                    return np.array(peaks)
                peaks.append(hook.highest)

    def free_bytes(self) -> int:
        """Return the free memory of the device in bytes."""
        self.cupy.get_default_memory_pool().free_all_blocks()
        return int(self.cupy.cuda.runtime.memGetInfo()[0])

    def described(self) -> str:
        """Return the name of the device."""
        properties = self.cupy.cuda.runtime.getDeviceProperties(self.cupy.cuda.Device().id)
        return bytes(properties["name"]).decode()


def _pool_hook(base: type) -> Any:
    """Return a hook that records the memory allocated from the pool."""

    class PoolHook(base):
        name = "bench"
        held = highest = 0

        def malloc_postprocess(self, **event: Any) -> None:
            self.held += event["mem_size"]
            self.highest = max(self.highest, self.held)

        def free_postprocess(self, **event: Any) -> None:
            self.held -= event["mem_size"]

    return PoolHook()


DEVICES = {"cpu": Host, "cuda": Cuda}
