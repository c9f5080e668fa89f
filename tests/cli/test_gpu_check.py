"""`affect-xp doctor --gpu`, with CuPy if available."""

import json
import sys

import pytest

from affect_xp.cli import doctor, gpu_check
from affect_xp.cli.app import main


def test_what_is_found_on_cupy(monkeypatch):
    cupy = pytest.importorskip("cupy")
    try:
        cupy.zeros(1)
    except Exception as error:
        pytest.skip(f"CuPy cannot be used here: {error!r}")
    chosen = ("k-means, dense", "k-means, sparse", "k-means, objects come and go", "linkage, complete")
    monkeypatch.setattr(gpu_check, "CASES", [case for case in gpu_check.CASES if case.name in chosen])
    parts = []
    found = gpu_check.gpu_check((60, 70), n=30, progress=parts.append)
    assert parts == ["results", "kernels", "large", "times", "memory"]
    assert found["ok"], found["verdict"]
    assert len(found["results"]) == 2 * len(chosen) and found["times"][0]["ratio"] > 0
    assert [x["n"] for x in found["times"]] == ([60] if found["machine"]["emulated"] else [60, 70])
    assert json.loads(json.dumps(found))["machine"]["devices"][0]["capability"]
    assert found["verdict"].startswith("PASSED on ")
    assert ("sizes are reduced" in found["verdict"]) == found["machine"]["emulated"]
    assert found["sizes"] == {"results": 30, "times": [x["n"] for x in found["times"]]}


def test_results_that_differ_on_cupy_are_told(monkeypatch):
    pytest.importorskip("cupy_cpu")
    import cupy

    monkeypatch.setattr(gpu_check, "CASES", gpu_check.CASES[:1])
    run = gpu_check._run

    def wrong(case, dtype, n, library):
        alphas, labels = run(case, dtype, n, library)
        return [alpha + (1e-3 if library is cupy else 0) for alpha in alphas], labels

    monkeypatch.setattr(gpu_check, "_run", wrong)
    monkeypatch.setattr(gpu_check, "_kernels", lambda cupy: iter(()))
    found = gpu_check.gpu_check((), n=30)
    assert not found["ok"] and "results: k-means, dense float32" in found["verdict"]
    monkeypatch.setattr(gpu_check, "_run", lambda *given: 1 / 0)
    assert "ZeroDivisionError" in gpu_check.gpu_check((), n=30)["results"][0]["error"]


@pytest.mark.parametrize("emulated", [True, False])
def test_sizes_are_reduced_only_if_cupy_is_emulated(monkeypatch, emulated):
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("cupy_cpu")
    machine = {**gpu_check._machine(cupy), "emulated": emulated}
    monkeypatch.setattr(gpu_check, "CASES", gpu_check.CASES[:1])
    monkeypatch.setattr(gpu_check, "_machine", lambda cupy: machine)
    monkeypatch.setattr(gpu_check, "_kernels", lambda cupy: iter(()))
    monkeypatch.setattr(gpu_check, "_large", lambda cupy: {})
    seen = []

    def compared(cupy, case, dtype, n):
        seen.append(n)
        return {"case": case.name, "ok": True, "same_bits_twice": True}

    def timed(cupy, n):
        seen.append(n)
        return {"n": n, "gpu_seconds": 1.0}

    monkeypatch.setattr(gpu_check, "_compared", compared)
    monkeypatch.setattr(gpu_check, "_timed", timed)
    monkeypatch.setattr(gpu_check, "_memory", lambda cupy, n, n_new: {"n": n, "ok": True})
    verdict = gpu_check.gpu_check((1_000, 5_000))["verdict"]
    assert seen == ([60, 60, 300] if emulated else [120, 120, 1_000, 5_000])
    assert ("sizes are reduced" in verdict) == emulated


def test_why_cupy_cannot_be_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    found = gpu_check.gpu_check()
    assert not found["ok"] and "CuPy cannot be used here: ModuleNotFoundError" in found["verdict"]


@pytest.mark.parametrize("ok", [True, False])
def test_the_command(monkeypatch, capsys, tmp_path, ok):
    monkeypatch.setattr(doctor, "gpu_check", lambda **given: {"ok": ok, "verdict": "As it is."})
    path = tmp_path / "found.json"
    assert main(["doctor", "--gpu", "--gpu-file", str(path)]) == (0 if ok else 1)
    assert json.loads(path.read_text()) == {"ok": ok, "verdict": "As it is."}
    assert "As it is.\nAll that was found is in" in capsys.readouterr().out
