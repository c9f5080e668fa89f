"""Prepare an unpacked CuPy source tree for the CPU rig.

CuPy can be built without CUDA against its own stub headers (the mode Read the Docs uses). In that mode each
CUDA function is an empty body that reports success. This script turns every such body into a declaration, so
that the linker takes the function from ``libcupy_cpu.so`` instead. A few small edits make the front end
believe what that library says. Nothing of CuPy's own algorithms is touched.

Usage: python patch_cupy.py SOURCE_TREE NAMES_FILE

NAMES_FILE receives the name of every function that CuPy may call; the build script generates, for those that
the rig does not implement, a body that aborts with the function's name.
"""

import pathlib
import re
import sys

STUB_HEADERS = (
    "cupy_backends/stub/cupy_cuda_runtime.h",
    "cupy_backends/stub/cupy_cublas.h",
    "cupy_backends/stub/cupy_cusolver.h",
    "cupy_backends/stub/cupy_cusparse.h",
    "cupy_backends/stub/cupy_curand.h",
    "cupy_backends/stub/cupy_cutensor.h",
    "cupy_backends/stub/cupy_cusparselt.h",
    "cupy_backends/stub/cupy_nccl.h",
    "cupy/cuda/cupy_cufft.h",
    "cupy/cuda/cupy_cub.h",
)

# Files whose functions are looked up by name at run time, with the prefix CuPy puts before the name.
SOFT_LINKS = (
    ("cupy_backends/cuda/api/_driver_extern.pxi", "cu"),
    ("cupy_backends/cuda/libs/_cnvrtc.pxi", "nvrtc"),
    ("cupy_backends/cuda/libs/cusolver.pyx", "cusolver"),
    ("cupy_backends/cuda/libs/cusparse.pyx", "cusparse"),
    ("cupy/cuda/cufft.pyx", "cufft"),
)

STUB_BODY = re.compile(r"^([ \t]*)((?:const )?\w+\*? \*?)(\w+)\(([^)]*)\)[ \t]*\{[^}]*\}", re.MULTILINE)

THRUST_STUBS = """\
#include <cstddef>
#include <cstdint>
#include <vector>
extern "C" {
void thrust_sort(int, void *, size_t *, const std::vector<ptrdiff_t>&, intptr_t, void *);
void thrust_lexsort(int, size_t *, void *, size_t, size_t, intptr_t, void *);
void thrust_argsort(int, size_t *, void *, void *, const std::vector<ptrdiff_t>&, intptr_t, void *);
}

#endif // #ifndef CUPY_NO_CUDA
"""

DEVICE_PROPERTIES = """\
    return {
        'name': b'cupy_cpu', 'major': 8, 'minor': 0, 'warpSize': 32, 'multiProcessorCount': 108,
        'maxThreadsPerBlock': 1024, 'maxThreadsPerMultiProcessor': 2048, 'regsPerBlock': 65536,
        'maxThreadsDim': (1024, 1024, 64), 'maxGridSize': (2147483647, 65535, 65535),
        'sharedMemPerBlock': 49152, 'totalGlobalMem': 80 << 30, 'l2CacheSize': 40 << 20,
        'integrated': 0, 'computeMode': 0, 'concurrentKernels': 1}
    cdef dict properties = {}
"""

# (file, text, replacement). Each text must occur exactly once: a different CuPy release fails here, loudly.
EDITS = (
    # Functions looked up by name come from the rig's library (already loaded, found by its soname).
    (
        "cupy_backends/cuda/_softlink.pyx",
        "        self._libname = libname\n",
        "        if libname is None and handle == 0:\n"
        "            libname = 'libcupy_cpu.so'\n"
        "        self._libname = libname\n",
    ),
    # No search for NVIDIA's libraries.
    (
        "cupy_backends/cuda/libs/__init__.py",
        "    if not _runtime.is_hip and name in _submodules:\n",
        "    if False:  # cupy_cpu\n",
    ),
    (
        "cupy/cuda/__init__.py",
        "        if not runtime.is_hip:\n            from cuda import pathfinder\n",
        "        if False:  # cupy_cpu\n            from cuda import pathfinder\n",
    ),
    # The rig's own few CUDA headers instead of a CUDA toolkit's.
    (
        "cupy/_core/core.pyx",
        "            from cuda.pathfinder import find_nvidia_header_directory\n"
        "            _cuda_include_dir = find_nvidia_header_directory('cudart')\n",
        "            import cupy_cpu\n            _cuda_include_dir = cupy_cpu._INCLUDE\n",
    ),
    # A device whose properties are known, and pointers that know whether they are on it.
    (
        "cupy_backends/cuda/api/runtime.pyx",
        "    cdef dict properties = {'name': b'UNAVAILABLE'}  # for RTD\n",
        DEVICE_PROPERTIES,
    ),
    (
        "cupy_backends/cuda/api/_runtime_typedef.pxi",
        "        ctypedef struct _PointerAttributes 'cudaPointerAttributes':\n            pass  # for RTD\n",
        "        ctypedef struct _PointerAttributes 'cudaPointerAttributes':\n"
        "            int device\n            void* devicePointer\n            void* hostPointer\n",
    ),
    (
        "cupy_backends/cuda/api/runtime.pyx",
        "    ELSE:  # for RTD\n        return None\n\n\ncpdef int pointerGetMemoryType",
        "    ELSE:  # cupy_cpu\n        return PointerAttributes(\n"
        "            attrs.device, <intptr_t>attrs.devicePointer,\n"
        "            <intptr_t>attrs.hostPointer, 2 if attrs.devicePointer != NULL else 0)\n"
        "\n\ncpdef int pointerGetMemoryType",
    ),
    (
        "cupy_backends/cuda/api/runtime.pyx",
        "        raise ValueError('Fetching memory unsupported.')\n",
        "        return 2 if attrs.devicePointer != NULL else 0\n",
    ),
    # The cuSPARSE of CUDA 12: CuPy then uses the generic interface, which is what the rig implements.
    (
        "cupy_backends/stub/cupy_cusparse.h",
        "#define CUSPARSE_VERSION -1\n",
        "#define CUSPARSE_VERSION 12700\n",
    ),
    # A plain `import cupy` first applies the rig's settings (kernel cache, no CUB).
    (
        "cupy/__init__.py",
        "import functools as _functools\n",
        "import cupy_cpu as _cupy_cpu  # settings of the CPU rig  # NOQA\nimport functools as _functools\n",
    ),
)


def declare_stubs(path):
    """Turn the stub bodies of one header into declarations; return the functions' names."""
    names = []

    def declaration(match):
        indent, result, name, arguments = match.groups()
        if name.startswith("make_"):  # builds a struct, calls nothing
            return match.group()
        names.append(name)
        c_linkage = 'extern "C" ' if name.startswith("cub_") else ""
        return f"{indent}{c_linkage}{result}{name}({arguments});"

    text = path.read_text()
    # Headers shared with CUDA and HIP keep their stubs in the last branch.
    *head, tail = re.split(r"(#else\s+// (?:defined\()?CUPY_NO_CUDA.*)", text)
    path.write_text("".join(head) + STUB_BODY.sub(declaration, tail))
    return names


def edit(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        raise SystemExit(f"patch_cupy: expected one occurrence in {path} of:\n{old}")
    path.write_text(text.replace(old, new))


def main(tree, names_file):
    tree = pathlib.Path(tree)
    names = [name for header in STUB_HEADERS for name in declare_stubs(tree / header)]
    for file, prefix in SOFT_LINKS:
        names += [
            prefix + name for name in re.findall(r"_(?:L|lib)\.get\(f?'(\w+)", (tree / file).read_text())
        ]
    for file, old, new in EDITS:
        edit(tree / file, old, new)
    thrust = tree / "cupy/cuda/cupy_thrust.h"
    head, tail = thrust.read_text().split("void thrust_sort(...)")
    thrust.write_text(head + THRUST_STUBS + tail[tail.index("\n#endif // INCLUDE_GUARD") :])
    names += ["thrust_sort", "thrust_lexsort", "thrust_argsort"]
    pathlib.Path(names_file).write_text("\n".join(sorted(set(names))) + "\n")
    print(f"patch_cupy: {len(set(names))} functions declared, {len(EDITS)} edits")


if __name__ == "__main__":
    main(*sys.argv[1:])
