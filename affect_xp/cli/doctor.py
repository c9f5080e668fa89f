"""`affect-xp doctor`: what is installed here, whether it computes the same as NumPy, and how much fits."""

import dataclasses
import json
import math
import platform
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import affect_xp
from affect_xp.array.namespace import array_namespace, to_host
from affect_xp.array.typing import Namespace
from affect_xp.cli import how_long
from affect_xp.cli.gpu_check import gpu_check
from affect_xp.cli.libraries import (
    LIBRARIES,
    Device,
    Library,
    Memory,
    first_line,
    host_memory,
    installed_version,
    nvidia_driver,
)
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.spectral import Spectral
from affect_xp.models.affect import Affect

TOLERANCE = 1e-9  # of α, which is about 1
IN_USE = 0.9  # of the free memory, at most
MATRICES = 2  # W and Ψ̂
BREAK_EVEN = 2_100  # objects, by the model of docs/gpu.md
DOCTOR_SCALE = 0.5  # of the smallest and the largest size that `affect-xp bench --mine` measures
MATRICES_OF_CHANGE = 3  # the next Ψ̂ too, where objects come and go

Result = tuple[float, np.ndarray]  # α and labels

# Optional packages: module, purpose, and what to install if it has another name.
EXTRAS = (
    ("duckdb", "tables in files", "'affect_xp[io]'"),
    ("pandas", "frames", None),
    ("networkx", "graphs", None),
    ("sklearn", "clusterers of scikit-learn", "'affect_xp[sklearn]'"),
    ("fastcluster", "faster linkage", "'affect_xp[linkage]'"),
    ("matplotlib", "pictures", "'affect_xp[plot]'"),
    ("rich", "progress bars", "'affect_xp[cli]'"),
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """The status of a library on a device."""

    library: str
    status: str
    version: str | None = None
    device: str | None = None
    detail: str = ""  # in plain words
    memory: Memory | None = None


def diagnose(require: Sequence[str], *, as_json: bool) -> int:
    """Print what works here, and return the exit code."""
    findings = examine()
    if not as_json:
        print(f"{in_words(findings)}\n", flush=True)  # before the steps, which take some seconds
    steps = how_long.measured(how_long.BRIEF, scale=DOCTOR_SCALE, rounds=1)
    if as_json:
        print(json.dumps(in_numbers(findings) | {"step": _predicted(steps)}, indent=2))
    else:
        print(_times_in_words(steps))
    works = {finding.library for finding in findings if finding.status == "ok"}
    wrong = any(finding.status == "wrong" for finding in findings)
    return 1 if wrong or not {"numpy", *require} <= works else 0


def _predicted(steps: Sequence[how_long.Prediction]) -> dict[str, Any]:
    """Return the fits of time and memory of a step as plain values, and predictions from them."""
    return {
        step.title: {
            "seconds": {str(n): step.seconds(n) for n in how_long.DOCTOR_SIZES},
            "bytes": {str(n): step.n_bytes(n) for n in how_long.DOCTOR_SIZES},
            "exponents": {"seconds": step.seconds.exponent, "bytes": step.n_bytes.exponent},
        }
        for step in steps
    }


def _times_in_words(steps: Sequence[how_long.Prediction]) -> str:
    """Return the predicted time and memory of a step."""
    sizes = ", ".join(f"{n:,}" for n in how_long.DOCTOR_SIZES)
    lines = [f"time and memory of a step with {sizes} objects, predicted from small ones"]
    width, host = max(len(step.title) for step in steps), host_memory()
    for step in steps:
        cells = (how_long.cell(step, n, host) for n in how_long.DOCTOR_SIZES)
        lines.append(f"  {step.title:{width}}  {'; '.join(cells)}")
    return "\n".join([*lines, "  (affect-xp bench --mine measures more closely)"])


def check_gpu(path: Path) -> int:
    """Check the GPU, write what is found to a JSON file, print the verdict, and return the exit code."""
    found = gpu_check(progress=lambda part: print(f"checking {part} ..."))
    path.write_text(json.dumps(found, indent=2), encoding="utf-8")
    print(f"{found['verdict']}\nAll that was found is in {path}; please attach it to an issue.")
    return 0 if found["ok"] else 1


def examine() -> list[Finding]:
    """Return the status of each library on each of its devices."""
    expected = _core(array_namespace(np.empty(0)), None)
    return [finding for library in LIBRARIES.values() for finding in _findings(library, expected)]


def _findings(library: Library, expected: list[Result]) -> list[Finding]:
    version = library.version()
    if version is None:
        return [Finding(library.name, "missing", detail=f"for {library.purpose}: {library.install}")]
    try:
        xp, devices = library.load(), library.devices()
    except Exception as error:  # libraries fail in their own ways where a driver is missing
        return [Finding(library.name, "unusable", version, detail=first_line(error))]
    return [_checked(library, version, xp, device, expected) for device in devices]


def _checked(
    library: Library, version: str, xp: Namespace, device: Device, expected: list[Result]
) -> Finding:
    try:
        results = _core(xp, device.handle)
    except Exception as error:  # whatever it is, the user should read it here
        return Finding(library.name, "unusable", version, device.title, first_line(error), device.memory)
    off = max(abs(a - b) for (a, _), (b, _) in zip(results, expected, strict=True))
    same = all(adjusted_rand_index(a, b) == 1 for (_, a), (_, b) in zip(results, expected, strict=True))
    ok, detail = same and off <= TOLERANCE, "the same results as NumPy"
    if off or not same:
        detail = f"{'the same' if same else 'OTHER'} clusters as NumPy, α off by {off:.0e}"
    return Finding(library.name, "ok" if ok else "wrong", version, device.title, detail, device.memory)


def _core(xp: Namespace, device: object) -> list[Result]:
    """Run two steps of AFFECT with k-means, and with spectral clustering."""
    rng = np.random.default_rng(0)
    centres = np.repeat(3 * np.eye(3, 4), 20, axis=0)  # (60, 4)
    W = []
    for _ in range(2):
        X = centres + rng.normal(scale=0.7, size=centres.shape)
        W.append(X @ X.T)
    results = []
    for clusterer, matrices in ((KMeans(3), W), (Spectral(3, n_init=2), [np.exp(w / 10) for w in W])):
        model = Affect(clusterer, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for w in matrices:
                model.partial_fit(xp.asarray(w, device=device))
        results.append((model.alpha_, to_host(model.labels_, reason="comparing with NumPy")[0]))
    return results


def largest_n(memory: Memory, itemsize: int, matrices: int = MATRICES) -> int:
    """Return how many objects have dense proximities that fit: by default W and Ψ̂, and a tenth to spare.

    Examples
    --------
    >>> largest_n(Memory(free=16 * 2**30, total=16 * 2**30), 8)
    31086
    """
    return math.isqrt(int(IN_USE * memory.free) // (matrices * itemsize))


def _memories(findings: list[Finding]) -> dict[str, Memory]:
    """Return the memory of the computer and of each GPU."""
    host = host_memory()
    found = {} if host is None else {"cpu": host}
    for finding in findings:
        if finding.device is not None and finding.memory is not None:
            found.setdefault(finding.device, finding.memory)
    return found


def in_numbers(findings: list[Finding]) -> dict[str, Any]:
    """Return the findings as plain values."""
    return {
        "affect_xp": affect_xp.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "libraries": [dataclasses.asdict(finding) for finding in findings],
        "memory": {
            name: {
                **dataclasses.asdict(memory),
                "largest_n_float64": largest_n(memory, 8),
                "largest_n_float32": largest_n(memory, 4),
                "largest_n_float64_of_change": largest_n(memory, 8, MATRICES_OF_CHANGE),
                "largest_n_float32_of_change": largest_n(memory, 4, MATRICES_OF_CHANGE),
            }
            for name, memory in _memories(findings).items()
        },
        "packages": {module: installed_version(module) for module, _, _ in EXTRAS},
    }


def in_words(findings: list[Finding]) -> str:
    """Return the findings as text."""
    lines = [
        f"affect_xp {affect_xp.__version__}, Python {platform.python_version()}, {platform.platform()}",
        "",
        "array libraries, each with a run of the core",
    ]
    for finding in findings:
        name = " ".join(filter(None, (LIBRARIES[finding.library].title, finding.version)))
        where = f"on {finding.device}: " if finding.device else ""
        lines.append(f"  {finding.status:9} {name:26} {where}{finding.detail}")
    lines += ["", "memory, and the largest number of objects with dense proximities"]
    memories = _memories(findings)
    width = max(map(len, memories), default=0)
    for title, memory in memories.items():
        lines.append(
            f"  {title:{width}}  {_gigabytes(memory.free)} free of {_gigabytes(memory.total)}: "
            f"{_largest(memory, MATRICES)}; where objects come and go {_largest(memory, MATRICES_OF_CHANGE)}"
        )
    lines += [
        "  (W and the smoothed matrix; where objects come and go, the next one is a third for a moment)",
        "  (features with proximity='dot' and sparse graphs are not dense: millions of objects fit)",
        "",
        "optional packages",
    ]
    for module, purpose, extra in EXTRAS:
        version = installed_version(module)
        status, how = ("ok", "") if version else ("missing", f": pip install {extra or module}")
        lines.append(f"  {status:9} {f'{module} {version or str()}':26} {purpose}{how}")
    return "\n".join([*lines, "", *_advice(findings)])


def _largest(memory: Memory, matrices: int) -> str:
    return f"{largest_n(memory, 8, matrices):,} in float64, {largest_n(memory, 4, matrices):,} in float32"


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GB"


def _advice(findings: list[Finding]) -> list[str]:
    """Return the conclusion, and what to do."""
    wrong = [LIBRARIES[f.library].title for f in findings if f.status == "wrong"]
    if wrong:
        return [
            f"Do not trust {' and '.join(wrong)} here: its results differ from those of NumPy. "
            "Install another version of it, and please report this."
        ]
    gpus = [f for f in findings if f.status == "ok" and f.memory is not None]
    if gpus:
        best = LIBRARIES[gpus[0].library]
        return [
            f"A GPU works: pass arrays of {best.title}, or use `affect-xp run ... --backend {best.name}`. "
            f"With fewer than about {BREAK_EVEN:,} objects the CPU is likely to be faster."
        ]
    return ["Computations run on the CPU, with NumPy.", *_gpu_advice(findings)]


def _gpu_advice(findings: list[Finding]) -> list[str]:
    """Return why there is no GPU, and what would help."""
    cuda = nvidia_driver()
    cupy = next(f for f in findings if f.library == "cupy")
    if cuda is None:
        broken = " CuPy is installed, but needs one." if cupy.status == "unusable" else ""
        return [f"No GPU of NVIDIA with a driver was found.{broken}"]
    extra = "cuda13" if cuda.split(".")[0] >= "13" else "cuda12"
    if cupy.status == "missing":
        return [f"A GPU of NVIDIA is here (CUDA {cuda}): pip install 'affect_xp[{extra}]' to use it."]
    return [
        f"A GPU of NVIDIA is here (CUDA {cuda}), but CuPy {cupy.version} does not work with it "
        f"({cupy.detail}): pip uninstall it, then pip install 'affect_xp[{extra}]'."
    ]
