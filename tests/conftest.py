"""The fixture `xp`: every available array library, or those selected by AFFECT_XP_BACKENDS.

`AFFECT_XP_BACKENDS=numpy,strict` runs only these; the default is all of numpy, strict, torch, dask and cupy
that are installed and usable. "jax" must be named: it compiles each operation for each shape, which is slow.
"strict" is array-api-strict on a device that is not the CPU, with boolean indexing and data-dependent shapes
forbidden: it emulates a GPU.
"""

import contextlib
import dataclasses
import importlib
import os
import warnings
from typing import Any

import hypothesis
import numpy as np
import pytest

# No deadlines: tests never time anything. CI uses the same examples every time, to blame only the change.
hypothesis.settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("suite")

DEFAULT = ("numpy", "strict", "torch", "dask", "cupy")
KNOWN = (*DEFAULT, "jax")


@dataclasses.dataclass(frozen=True)
class Backend:
    """An array library with helpers for the tests."""

    name: str
    xp: Any
    device: Any = None

    def array(self, values, dtype=None):
        """Copy host values to the library and device."""
        values = np.array(values, dtype=dtype)
        chunks = {"chunks": tuple(max(1, s // 2) for s in values.shape)} if self.name == "dask" else {}
        if self.name == "dask":
            import dask.array

            return dask.array.from_array(values, **chunks)
        return self.xp.asarray(values, device=self.device)

    def numpy(self, x) -> np.ndarray:
        """Copy a result to the host."""
        if isinstance(x, np.ndarray):
            return x
        if self.name == "strict":
            return np.from_dlpack(x, device="cpu", copy=True)
        if self.name == "cupy":
            return x.get()
        return np.asarray(x)

    def owns(self, x) -> bool:
        """Return whether x is an array of this library on this device.

        Results of dask arrays may be arrays of the library of their chunks.
        """
        from array_api_compat import array_namespace, device

        if self.name == "dask" and isinstance(x, np.ndarray | np.generic):
            return True
        return array_namespace(x) is array_namespace(self.array([0.0])) and (
            self.device is None or device(x) == self.device
        )


def _backend(name: str) -> Backend | Exception:
    """Return a backend, or the error that explains why it is unavailable."""
    try:
        if name == "strict":
            strict = importlib.import_module("array_api_strict")
            return Backend(name, strict, strict.Device("device1"))
        if name == "dask":
            return Backend(name, importlib.import_module("array_api_compat.dask.array"))
        if name == "jax":
            importlib.import_module("jax").config.update("jax_enable_x64", True)
            return Backend(name, importlib.import_module("jax.numpy"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns, for example, about several CUDA installations
            xp = importlib.import_module(f"array_api_compat.{name}")
            xp.asarray([0.0]) + 1  # CuPy can be imported without a driver
        return Backend(name, xp, xp.asarray([0.0]).device if name == "cupy" else None)
    except Exception as error:
        return error


def _wanted() -> list[Backend]:
    chosen = [name for name in os.environ.get("AFFECT_XP_BACKENDS", "").split(",") if name]
    unknown = set(chosen) - set(KNOWN)
    if unknown:
        raise pytest.UsageError(f"AFFECT_XP_BACKENDS names {sorted(unknown)}; known are {KNOWN}")
    found = {name: _backend(name) for name in chosen or DEFAULT}
    UNUSABLE.update({name: error for name, error in found.items() if isinstance(error, Exception)})
    if chosen and UNUSABLE:
        raise pytest.UsageError(f"AFFECT_XP_BACKENDS asks for what cannot be used: {UNUSABLE}")
    return [backend for backend in found.values() if isinstance(backend, Backend)]


UNUSABLE: dict[str, Exception] = {}
BACKENDS = _wanted()


def pytest_report_header():
    """Report the libraries the suite runs on, and why an installed one is not used."""
    broken = {name: repr(e) for name, e in UNUSABLE.items() if not isinstance(e, ModuleNotFoundError)}
    used = f"array libraries: {', '.join(b.name for b in BACKENDS)}"
    return [used, *(f"NOT USED: {name}: {error}" for name, error in broken.items())]


def pytest_generate_tests(metafunc):
    """Run tests that use `xp` on every backend, and those that use `eager_xp` on all except dask."""
    for fixture in ("xp", "eager_xp"):
        if fixture in metafunc.fixturenames:
            fitting = [b for b in BACKENDS if fixture == "xp" or b.name != "dask"]
            metafunc.parametrize(fixture, fitting, ids=lambda b: b.name, indirect=True)


@contextlib.contextmanager
def _strictness(backend: Backend):
    if backend.name != "strict":
        yield
        return
    with backend.xp.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False):
        yield


@pytest.fixture
def xp(request):
    """An array library, eager or lazy."""
    with _strictness(request.param):
        yield request.param


@pytest.fixture
def eager_xp(request):
    """An eager array library."""
    with _strictness(request.param):
        yield request.param


@pytest.fixture(params=[False, True], ids=["one block", "many blocks"])
def small_blocks(request, monkeypatch):
    """Run with matrices in one block, and split into blocks of a few rows."""
    if request.param:
        monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_BYTES", 600)
        monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_ROWS", 1)
        monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 600)
        monkeypatch.setattr("affect_xp.clustering.eigen.BLOCK_ROWS", 7)
        monkeypatch.setattr("affect_xp.proximity.sparse.BLOCK_ENTRIES", 8)
        monkeypatch.setattr("affect_xp.proximity.checks.BLOCK_ROWS", 2)
