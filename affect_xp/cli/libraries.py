"""The array libraries a user may have: whether they are installed, their devices, and their memory.

Only this module and `affect_xp.array.namespace` know them by name; none is imported before it is asked for.
"""

import dataclasses
import functools
import importlib
import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import scipy.sparse

from affect_xp.array.typing import Array, Namespace
from affect_xp.exceptions import InputError
from affect_xp.proximity import is_sparse


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of a device that are free, and all of them."""

    free: int
    total: int


@dataclasses.dataclass(frozen=True, eq=False)
class Device:
    """A place to compute."""

    title: str  # the first word is its name on the command line
    handle: Any = None  # of its library
    memory: Memory | None = None


@dataclasses.dataclass(frozen=True)
class Library:
    """An array library."""

    name: str  # on the command line
    title: str
    module: str
    namespace: str  # the module of its functions that follow the standard
    purpose: str
    install: str

    def version(self) -> str | None:
        """Return the installed version, None if there is none; the library is not imported."""
        return installed_version(self.module)

    def load(self) -> Namespace:
        """Import it, and return its namespace of the array API standard."""
        importlib.import_module(self.module)
        return importlib.import_module(self.namespace)

    def devices(self) -> list[Device]:
        """Return its devices, GPUs first; raise an error of any kind if there is none."""
        return _DEVICES[self.name]() if self.name in _DEVICES else [Device("cpu")]


STRICT, LARGER = "array_api_strict", "matrices larger than memory"
LIBRARIES = {
    name: Library(name, title, module, namespace, purpose, f"pip install {install}")
    for name, title, module, namespace, purpose, install in (
        ("numpy", "NumPy", "numpy", "array_api_compat.numpy", "the CPU", "numpy"),
        ("cupy", "CuPy", "cupy", "array_api_compat.cupy", "GPUs of NVIDIA", "'affect_xp[cuda12]'"),
        ("torch", "PyTorch", "torch", "array_api_compat.torch", "the CPU and GPUs", "'affect_xp[torch]'"),
        ("dask", "dask", "dask.array", "array_api_compat.dask.array", LARGER, "'affect_xp[dask]'"),
        ("strict", "array-api-strict", STRICT, STRICT, "tests of this library", "array-api-strict"),
    )
}


def installed_version(module: str) -> str | None:
    """Return the version of the distribution that a module comes from, None if there is none."""
    top = module.split(".")[0]
    for distribution in _distributions().get(top, ()):
        return importlib.metadata.version(distribution)
    return None


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each module; slow, since all installed ones are read."""
    return importlib.metadata.packages_distributions()


@dataclasses.dataclass(frozen=True, eq=False)
class Backend:
    """A library and a device, as the place where a run computes."""

    name: str
    xp: Namespace
    device: object

    def put(self, values: Array) -> Array:
        """Return host values on the device. Sparse matrices stay sparse with SciPy and CuPy."""
        if not is_sparse(values):
            return self.xp.asarray(values, device=self.device)
        if self.name == "cupy":
            return importlib.import_module("cupyx.scipy.sparse").csr_matrix(scipy.sparse.csr_matrix(values))
        return values if self.name == "numpy" else self.xp.asarray(values.toarray(), device=self.device)


def open_backend(name: str, device: str | None = None) -> Backend:
    """Return the requested backend; by default on its first GPU, if it has one."""
    library = LIBRARIES[name]
    try:
        xp, devices = library.load(), library.devices()
    except Exception as error:  # libraries fail in their own ways where a driver is missing
        raise InputError(
            f"{library.title} cannot be used here ({first_line(error)}); {library.install}, or see what "
            "`affect-xp doctor` says"
        ) from error
    known = {found.title.split()[0]: found for found in devices}
    if device is not None and device not in known:
        raise InputError(f"{library.title} has no device {device!r} here; it has {', '.join(known)}")
    chosen = devices[0] if device is None else known[device]
    if name == "cupy":
        chosen.handle.use()  # CuPy makes arrays on the device in use, unless another is named
    return Backend(name, xp, chosen.handle)


def first_line(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0].removesuffix(": ")


def _strict_devices() -> list[Device]:
    strict = importlib.import_module("array_api_strict")
    return [Device("device1", strict.Device("device1"))]


def _cupy_devices() -> list[Device]:
    cuda = importlib.import_module("cupy").cuda
    devices = []
    for i in range(cuda.runtime.getDeviceCount()):
        name = cuda.runtime.getDeviceProperties(i)["name"].decode()
        free, total = cuda.Device(i).mem_info
        devices.append(Device(f"cuda:{i} {name}".strip(), cuda.Device(i), Memory(free, total)))
    if not devices:
        raise InputError("no GPU is found")
    return devices


def _torch_devices() -> list[Device]:
    torch = importlib.import_module("torch")
    devices = []
    for i in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(i)
        devices.append(Device(f"cuda:{i}", torch.device("cuda", i), Memory(free, total)))
    return [*devices, Device("cpu", torch.device("cpu"))]


_DEVICES: dict[str, Callable[[], list[Device]]] = {
    "cupy": _cupy_devices,
    "torch": _torch_devices,
    "strict": _strict_devices,
}


def host_memory() -> Memory | None:
    """Return the memory of the computer, or of the container if that has less; None if it is unknown."""
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory.current")
    if limit.isdecimal() and used.isdecimal() and int(limit) < total:
        total, free = int(limit), min(free, max(0, int(limit) - int(used)))
    return Memory(free, total)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def nvidia_driver() -> str | None:
    """Return the CUDA version of the NVIDIA driver, "" if it does not say, None if there is no driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done: Any = subprocess.run([program], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return done.stdout.partition("CUDA Version:")[2].strip().partition(" ")[0]
