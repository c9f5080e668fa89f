"""`affect-xp doctor --gpu`: one command that proves, or disproves, that this library works on a GPU.

CuPy is compared with NumPy, the kernels with their twins, a run with its repetition, the memory with what the
documentation promises, and the time with that of the CPU. All of it goes into one JSON file.
"""

import dataclasses
import functools
import importlib
import importlib.util
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

import affect_xp
from affect_xp.affect.moments import moments_of
from affect_xp.array import cuda
from affect_xp.array.namespace import to_host
from affect_xp.cli.libraries import first_line, nvidia_driver
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import METHODS, Linkage
from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.spectral import Spectral
from affect_xp.models.affect import Affect
from affect_xp.partition import Partition
from affect_xp.proximity import Dense, Factored

ALPHA_TOLERANCE = {"float64": 1e-9, "float32": 1e-6}
KERNEL_TOLERANCE = 1e-11
EXTRA_MEMORY = 0.03  # of W and Ψ̂ together, in addition to blocks of fixed size
FIXED_BYTES = 64 * 2**20
SIZES = (1_000, 5_000, 20_000)  # of the times
CPU_SIZE = 5_000  # the largest that is timed on the CPU too
BEYOND = 46_400  # n² passes 2³¹ at 46,341
EMULATED = 60, 300  # objects of comparisons, and of times, at most if CuPy is executed on a CPU


@dataclasses.dataclass(frozen=True)
class Case:
    """A clusterer, a storage and options to be compared with NumPy."""

    name: str
    clusterer: Any
    storage: str = "dense"
    comes_and_goes: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES = (
    *(Case(f"k-means, {storage}", KMeans(3), storage) for storage in ("dense", "factored", "sparse")),
    Case("k-means, objects come and go", KMeans(3), comes_and_goes=True),
    Case("k-means, init='previous'", KMeans(3), options={"init": "previous"}),
    Case("k-means, init='static'", KMeans(3), options={"init": "static"}),
    Case("k-means, correction='objects'", KMeans(3), options={"correction": "objects"}),
    Case("k-means, alpha=0.3", KMeans(3), options={"alpha": 0.3}),
    Case("k-means, forgetting='objects'", KMeans(3), options={"forgetting": "objects"}),
    Case("k-means, absent='keep'", KMeans(3), comes_and_goes=True, options={"absent": "keep"}),
    Case("k-means, silhouette", KMeans("silhouette", max_clusters=4)),
    *(Case(f"spectral, {storage}", Spectral(3), storage) for storage in ("dense", "sparse")),
    *(
        Case(f"spectral, {objective}", Spectral(3, objective=objective))
        for objective in ("average_association", "ratio_cut")
    ),
    *(
        Case(f"spectral, {assign}", Spectral(3, assign_labels=assign))
        for assign in ("rotation", "cluster_qr")
    ),
    Case("spectral, modularity", Spectral("modularity", max_clusters=4)),
    Case("spectral, objects come and go", Spectral(3), comes_and_goes=True),
    *(Case(f"linkage, {method}", Linkage(3, method=method)) for method in METHODS),
)


def gpu_check(
    sizes: tuple[int, ...] = SIZES, *, n: int = 120, progress: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Return all that was found on the current GPU as plain values, with a verdict in words.

    Parameters
    ----------
    sizes : tuple of int
        The numbers of objects whose steps are timed, as far as they fit.
    n : int
        The number of objects of the comparisons with NumPy. If CuPy is executed on a CPU, it and `sizes` are
        reduced to `EMULATED`, and the verdict says so.
    progress : function of a str
        Called before each part.
    """
    try:
        cupy = importlib.import_module("cupy")
        cupy.zeros(1)
    except Exception as error:  # no CuPy, no driver, no device: each fails in its own way
        verdict = f"FAILED: CuPy cannot be used here: {first_line(error)}; see `affect-xp doctor`"
        return {"machine": _machine(None), "ok": False, "verdict": verdict}
    found: dict[str, Any] = {"machine": _machine(cupy)}
    if found["machine"]["emulated"]:
        n, sizes = min(n, EMULATED[0]), tuple(min(size, EMULATED[1]) for size in sizes[:1])
    found["sizes"] = {"results": n, "times": list(sizes)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part, check in (
            ("results", lambda: [_compared(cupy, c, t, n) for c in CASES for t in ALPHA_TOLERANCE]),
            ("kernels", lambda: list(_kernels(cupy))),
            ("large", lambda: _large(cupy)),
            ("times", lambda: [_timed(cupy, size) for size in sizes if _fits(cupy, size, 3)]),
            (
                "memory",
                lambda: [_memory(cupy, n, come) for n in sizes if _fits(cupy, n, 4) for come in (0, n // 50)],
            ),
        ):
            progress(part)
            found[part] = check()
    return {**found, **_verdict(found)}


def _machine(cupy: Any) -> dict[str, Any]:
    """Return what is installed, and the devices."""
    known: dict[str, Any] = {
        "affect_xp": affect_xp.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "driver": nvidia_driver(),
    }
    if cupy is None:
        return known
    runtime = cupy.cuda.runtime
    known |= {
        "cupy": cupy.__version__,
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
        "nvrtc": list(cupy.cuda.nvrtc.getVersion()),
        "emulated": importlib.util.find_spec("cupy_cpu") is not None,
    }
    devices = []
    for i in range(runtime.getDeviceCount()):
        properties = runtime.getDeviceProperties(i)
        free, total = cupy.cuda.Device(i).mem_info
        name = bytes(properties["name"]).decode()
        capability = f"{properties['major']}.{properties['minor']}"
        devices.append({"name": name, "capability": capability, "free": int(free), "total": int(total)})
    return {**known, "devices": devices}


# ---- results against NumPy


def _steps(case: Case, dtype: str, n: int) -> Iterator[tuple[Any, list[int]]]:
    """Yield what is observed at three steps, for NumPy, and the objects."""
    rng = np.random.default_rng(0)
    for t in range(3):
        ids = list(range(t, n - 3 * t)) if case.comes_and_goes else list(range(n))
        X = 4 * np.eye(3)[np.array(ids) % 3] + rng.normal(scale=0.6, size=(len(ids), 3))
        if case.storage == "factored":
            yield X.astype(dtype), ids
            continue
        square = np.sum(X * X, axis=1)
        distance = np.maximum(square[:, None] + square - 2 * (X @ X.T), 0)
        W = distance if isinstance(case.clusterer, Linkage) else np.exp(X @ X.T / 8)
        if case.storage == "sparse":
            W = np.where(distance < np.quantile(distance, 0.4), W, 0)
        yield ((W + W.T) / 2).astype(dtype), ids


def _stored(W: np.ndarray, storage: str, cupy: Any) -> Any:
    """Return what is observed in a storage of NumPy, or of CuPy."""
    if storage == "sparse":
        if cupy is None:
            return scipy.sparse.csr_array(W)
        return importlib.import_module("cupyx.scipy.sparse").csr_matrix(cupy.asarray(W))
    there = W if cupy is None else cupy.asarray(W)
    return Factored.from_features(there) if storage == "factored" else there


def _run(case: Case, dtype: str, n: int, cupy: Any) -> tuple[list[float], list[np.ndarray]]:
    """Return α and the labels of each step."""
    model = Affect(case.clusterer, random_state=0, **case.options)
    alphas, labels = [], []
    for W, ids in _steps(case, dtype, n):
        model.partial_fit(_stored(W, case.storage, cupy), ids)
        alphas.append(model.alpha_)
        labels.append(to_host(model.labels_, reason="comparing with NumPy")[0])
    return alphas, labels


def _compared(cupy: Any, case: Case, dtype: str, n: int) -> dict[str, Any]:
    """Return how a case on the device differs from NumPy and from its repetition."""
    outcome: dict[str, Any] = {"case": case.name, "dtype": dtype}
    try:
        alphas, labels = _run(case, dtype, n, None)
        first, second = (_run(case, dtype, n, cupy) for _ in range(2))
    except Exception as error:  # whatever it is, it should be sent in
        return {**outcome, "ok": False, "error": first_line(error)}
    off = max(abs(a - b) for a, b in zip(first[0], alphas, strict=True))
    same = all(adjusted_rand_index(a, b) == 1 for a, b in zip(first[1], labels, strict=True))
    bits = first[0] == second[0] and all(map(np.array_equal, first[1], second[1]))
    ok = same and off <= ALPHA_TOLERANCE[dtype]
    return {**outcome, "ok": ok, "same_clusters": same, "alpha_error": off, "same_bits_twice": bits}


# ---- kernels against their twins


def _kernels(cupy: Any) -> Iterator[dict[str, Any]]:
    """Yield the error of each kernel relative to its twin in NumPy."""
    rng = np.random.default_rng(0)
    for n, k in ((1, 1), (65, 7), (500, 12), (300, 200)):
        for dtype in (np.float32, np.float64):
            w = rng.normal(3.0, 1.0, (n, n))
            w, labels = (w + w.T).astype(dtype), rng.integers(-1, k, n)
            for name, found, expected in _kernel_results(cupy, w, labels, k):
                scale = max(1.0, float(np.abs(expected).max()))
                off = float(np.abs(found - expected).max()) / scale
                tolerance = KERNEL_TOLERANCE if name != "blend" else 4 * float(np.finfo(dtype).eps)
                known = {"kernel": name, "dtype": np.dtype(dtype).name, "n": n, "k": k}
                yield {**known, "error": off, "ok": off <= tolerance}


def _kernel_results(
    cupy: Any, w: np.ndarray, labels: np.ndarray, k: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name of a kernel, its result, and that of NumPy."""
    wide, z = w.astype(float), (labels[:, None] == np.arange(k)).astype(float)
    on_device, there = cupy.asarray(w), cupy.asarray(labels)
    yield "products", cuda.products(on_device, there[:, None], k).get(), wide @ z
    guess = np.full((k, k), 6.0)
    d = np.where(np.eye(len(w)) > 0, 0, 6.0 - wide)
    sums = cuda.residual_sums(on_device, there, cupy.asarray(guess)).get()[: 2 * k * k].reshape(k, 2 * k)
    yield "residual_sums", sums, np.concatenate([z.T @ d @ z, z.T @ (d * d) @ z], axis=1)
    found, expected = (
        moments_of(Dense(x).group(Partition(c, k))) for x, c in ((on_device, there), (w, labels))
    )
    yield "moments", found.variances.get(), expected.variances
    yield "extremes", cuda.extremes(on_device).get(), np.array([np.abs(wide).max(), 0.0])
    past = cupy.asarray(w[::-1, ::-1].copy())
    _, product = cuda.blend(on_device, past, 0.25, out=past, labels=there, k=k)
    yield "blend", past.get().astype(float), 0.25 * wide[::-1, ::-1] + 0.75 * wide
    assert product is not None
    yield "blend, products", product.get(), past.get().astype(float) @ z


# ---- sizes, memory and time


def _fits(cupy: Any, n: int, n_matrices: float) -> bool:
    """Tell whether so many n×n matrices of float32 fit."""
    cupy.get_default_memory_pool().free_all_blocks()
    return n_matrices * 4 * n * n < 0.9 * cupy.cuda.runtime.memGetInfo()[0]


def _large(cupy: Any) -> dict[str, Any]:
    """Compare the product with Z at an n whose square needs 64 bits; the expected product is X(XᵀZ)."""
    emulated = _machine(cupy)["emulated"]
    if emulated or not _fits(cupy, BEYOND, 1.5):
        return {"n": BEYOND, "skipped": "CuPy is executed on a CPU" if emulated else "W does not fit"}
    X = cupy.asarray(np.random.default_rng(0).normal(size=(BEYOND, 3)).astype(np.float32))
    labels = cupy.arange(BEYOND) % 12
    found = cuda.products(X @ X.T, labels[:, None], 12)
    wide = X.astype(cupy.float64)
    z = (labels[:, None] == cupy.arange(12)).astype(cupy.float64)
    expected = wide @ (wide.T @ z)
    off = float(cupy.abs(found - expected).max() / cupy.abs(expected).max())
    return {"n": BEYOND, "error": off, "ok": off < 1e-5}


@functools.cache
def _features(n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (3 * np.eye(12)[np.arange(n) % 12] + rng.normal(size=(n, 12))).astype(np.float32)


def _model(put: Callable[[np.ndarray], Any], n: int) -> tuple[Affect, Any]:
    """Return a model after two steps, and the matrix of the next one."""
    model, X = Affect(KMeans(12), random_state=0), put(_features(n))
    W = X @ X.T
    return model.partial_fit(W).partial_fit(W), W


def _timed(cupy: Any, n: int) -> dict[str, Any]:
    """Return the seconds of a step with float32 on the device and, for few objects, on the CPU."""

    def seconds(put: Callable[[np.ndarray], Any]) -> float:
        model, W = _model(put, n)
        best = float("inf")
        for _ in range(3):
            cupy.cuda.Device().synchronize()
            began = time.perf_counter()
            model.partial_fit(W)
            cupy.cuda.Device().synchronize()
            best = min(best, time.perf_counter() - began)
        return best

    times: dict[str, Any] = {"n": n, "gpu_seconds": seconds(cupy.asarray)}
    if n <= CPU_SIZE:
        times["cpu_seconds"] = seconds(np.asarray)
        times["ratio"] = times["cpu_seconds"] / times["gpu_seconds"]
    return times


def _memory(cupy: Any, n: int, n_new: int) -> dict[str, Any]:
    """Return the most memory that a step needs in addition to W and Ψ̂, and what is promised.

    If objects come and go, the next Ψ̂ is a third matrix.
    """
    held = highest = 0

    class Hook(cupy.cuda.MemoryHook):
        name = "affect_xp"

        def malloc_postprocess(self, **block: Any) -> None:
            nonlocal held, highest
            held += block["mem_size"]
            highest = max(highest, held)

        def free_postprocess(self, **block: Any) -> None:
            nonlocal held
            held -= block["mem_size"]

    model, W = _model(cupy.asarray, n)
    with Hook():
        model.partial_fit(W, range(n_new, n_new + n))
    promised = int(EXTRA_MEMORY * 2 * W.nbytes) + FIXED_BYTES + (W.nbytes if n_new else 0)
    ok = highest <= promised
    return {"n": n, "n_new": n_new, "extra_bytes": highest, "promised_bytes": promised, "ok": ok}


def _verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Return whether all is well, and the verdict in words."""
    parts = [("results", "case"), ("kernels", "kernel"), ("memory", "n")]
    failed = [f"{part}: {x[name]} {x.get('dtype', '')}".strip()
              for part, name in parts for x in found[part] if not x["ok"]]  # fmt: skip
    failed += [] if found["large"].get("ok", True) else [f"large: n = {BEYOND:,}"]
    varying = sorted({x["case"] for x in found["results"] if x["ok"] and not x["same_bits_twice"]})
    device = found["machine"]["devices"][0]["name"]
    lines = [
        f"FAILED on {device}: {'; '.join(failed)}"
        if failed
        else f"PASSED on {device}: {len(found['results'])} comparisons with NumPy and "
        f"{len(found['kernels'])} of kernels agree, the memory is as promised"
    ]
    lines += [f"Bits differ between two runs of: {', '.join(varying)}"] if varying else []
    lines += [_in_words(x) for x in found["times"]]
    if found["machine"]["emulated"]:
        largest = max(found["sizes"]["times"], default=0)
        lines.append(
            "This CuPy is executed on a CPU: times mean nothing, and sizes are reduced "
            f"(comparisons n = {found['sizes']['results']}, times n = {largest})."
        )
    return {"ok": not failed, "verdict": "\n".join(lines)}


def _in_words(times: dict[str, Any]) -> str:
    ratio = times.get("ratio")
    versus = "" if ratio is None else f", {ratio:.1f} times as fast as the CPU"
    hint = "; use the CPU for so few objects" if ratio is not None and ratio < 1 else ""
    return f"n = {times['n']:,}: {1000 * times['gpu_seconds']:.1f} ms a step{versus}{hint}"
