"""The command `affect-xp doctor`."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from affect_xp.cli import doctor, libraries, main
from affect_xp.cli.libraries import LIBRARIES, Library, Memory


@pytest.fixture(autouse=True)
def _tiny_steps(monkeypatch):
    """Measure tiny steps: their times are not looked at."""
    monkeypatch.setattr(doctor, "DOCTOR_SCALE", 0.001)


@pytest.fixture(scope="module")
def findings():
    return doctor.examine()


def test_what_is_here_computes_as_numpy_does(findings):
    by_name = {finding.library: finding for finding in findings}
    assert set(by_name) == set(LIBRARIES)
    assert by_name["numpy"].status == "ok" and by_name["numpy"].version == np.__version__
    for name in ("torch", "dask", "strict"):
        if LIBRARIES[name].version() is not None:
            assert by_name[name].status == "ok" and "NumPy" in by_name[name].detail


def only(monkeypatch, *names):
    monkeypatch.setattr(doctor, "LIBRARIES", {name: LIBRARIES[name] for name in names})


def test_in_words(monkeypatch, capsys):
    only(monkeypatch, "numpy", "cupy")
    monkeypatch.setattr(Library, "version", lambda self: "1.0" if self.name == "numpy" else None)
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: None)
    monkeypatch.setattr(doctor, "host_memory", lambda: Memory(2**30, 2**31))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "ok        NumPy 1.0" in printed
    assert (
        "missing   CuPy                       for GPUs of NVIDIA: pip install 'affect_xp[cuda12]'" in printed
    )
    assert "1.0 GB free of 2.0 GB: 7,771 in float64, 10,990 in float32" in printed
    assert "; where objects come and go 6,345 in float64, 8,973 in float32" in printed
    assert "Computations run on the CPU, with NumPy.\nNo GPU of NVIDIA with a driver was found." in printed


def test_for_machines(monkeypatch, capsys):
    only(monkeypatch, "numpy", "cupy")
    monkeypatch.setattr(doctor, "host_memory", lambda: Memory(3200, 6400))
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["libraries"][0]["status"] == "ok"
    assert told["memory"]["cpu"] == {
        "free": 3200,
        "total": 6400,
        "largest_n_float64": 13,
        "largest_n_float32": 18,
        "largest_n_float64_of_change": 10,
        "largest_n_float32_of_change": 15,
    }
    assert "pandas" in told["packages"]
    predicted = told["step"]["dense, k-means"]
    assert predicted["exponents"]["seconds"] >= 2
    assert predicted["seconds"]["100000"] > predicted["seconds"]["1000"] > 0


def test_the_break_even_is_that_of_the_page():
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    (found,) = {n for line in re.findall("break-even with the CPU: n = (.*)", page)
                for n in re.findall(r"([\d,]+) \(", line)}  # fmt: skip
    assert int(found.replace(",", "")) == doctor.BREAK_EVEN


def test_the_largest_n_fits_and_the_next_does_not():
    memory = Memory(10**10, 10**10)
    for itemsize in (4, 8):
        n = doctor.largest_n(memory, itemsize)
        assert 2 * itemsize * n**2 <= 0.9 * 10**10 < 2 * itemsize * (n + 1) ** 2


def test_a_library_that_computes_something_else(monkeypatch, capsys):
    only(monkeypatch, "numpy", "strict")
    core = doctor._core

    def wrong(xp, device):
        results = core(xp, device)
        if device is None:
            return results
        return [(alpha + 1e-3, labels) for alpha, labels in results]

    pytest.importorskip("array_api_strict")
    monkeypatch.setattr(doctor, "_core", wrong)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "wrong     array-api-strict" in printed and "α off by 1e-03" in printed
    assert "Do not trust array-api-strict here" in printed


def test_a_library_that_fails(monkeypatch, capsys):
    only(monkeypatch, "numpy", "cupy")

    def fail(self):
        raise RuntimeError("CUDA driver version is insufficient\nand more")

    monkeypatch.setattr(Library, "version", lambda self: "1.0")
    load = Library.load
    monkeypatch.setattr(Library, "load", lambda self: fail(self) if self.name == "cupy" else load(self))
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: "13.1")
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "unusable  CuPy 1.0" in printed and "and more" not in printed
    assert "CUDA 13.1), but CuPy 1.0 does not work with it" in printed and "affect_xp[cuda13]" in printed
    assert main(["doctor", "--require", "cupy"]) == 1


def test_a_gpu_without_a_library(monkeypatch, capsys):
    only(monkeypatch, "numpy", "cupy")
    monkeypatch.setattr(Library, "version", lambda self: "1.0" if self.name == "numpy" else None)
    monkeypatch.setattr(doctor, "nvidia_driver", lambda: "12.4")
    assert main(["doctor"]) == 0
    assert "A GPU of NVIDIA is here (CUDA 12.4): pip install 'affect_xp[cuda12]'" in capsys.readouterr().out


def test_a_gpu_that_works(monkeypatch, capsys):
    only(monkeypatch, "numpy", "cupy")
    monkeypatch.setattr(Library, "version", lambda self: "1.0")
    monkeypatch.setattr(Library, "load", lambda self: np)
    device = libraries.Device("cuda:0 Some GPU", None, Memory(2**34, 2**35))
    monkeypatch.setattr(
        Library, "devices", lambda self: [device] if self.name == "cupy" else [libraries.Device("cpu")]
    )
    assert main(["doctor", "--require", "cupy"]) == 0
    printed = capsys.readouterr().out
    assert "A GPU works: pass arrays of CuPy" in printed and "--backend cupy" in printed
    assert "cuda:0 Some GPU  16.0 GB free of 32.0 GB" in printed


def test_memory_of_a_container(monkeypatch):
    told = {
        "/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  4000 kB",
        "/sys/fs/cgroup/memory.max": "3000000",
        "/sys/fs/cgroup/memory.current": "1000000",
    }
    monkeypatch.setattr(libraries, "_read", lambda path: told[path])
    monkeypatch.setattr("os.sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 2000, raising=False)
    assert libraries.host_memory() == Memory(2_000_000, 3_000_000)
    told["/sys/fs/cgroup/memory.max"] = "max"
    assert libraries.host_memory() == Memory(4000 * 1024, 2000 * 4096)


@pytest.mark.skipif(os.name == "nt", reason="the program is a script")
def test_the_driver_is_asked(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '| Driver Version: 550.1   CUDA Version: 12.4     |'\n")
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(program))
    assert libraries.nvidia_driver() == "12.4"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert libraries.nvidia_driver() is None
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert libraries.nvidia_driver() is None
