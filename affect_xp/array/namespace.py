"""The only access to array libraries: namespaces, devices, precision, and transfers to the host.

The rest of the package is written to the array API standard and never names a library. This module
decides what the standard leaves open: the precision of sums, the size of row blocks, and the conversion
to NumPy. Arrays are transferred to the host only by `to_host`.
"""

import contextlib
import functools
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import array_api_compat
import array_api_compat.numpy
import numpy as np
import scipy  # imports its submodules lazily
from array_api_compat import is_array_api_obj

from affect_xp.array import blas, cuda
from affect_xp.array.threads import run_blocks
from affect_xp.array.typing import Array, Namespace
from affect_xp.exceptions import InputError, InputTypeError, PrecisionWarning

T = TypeVar("T")

log = logging.getLogger("affect_xp")

P = ParamSpec("P")
R = TypeVar("R")

_NUMPY = (np.ndarray, np.generic)  # includes zero-dimensional arrays

# A block of rows should fit into a CPU's cache, but have enough rows for fast products; a device needs
# few launches instead.
HOST_BLOCK_BYTES = 2**20
HOST_BLOCK_ROWS = 48
WIDENED_ROWS = 32  # they stay in cache during several products
DEVICE_BLOCK_BYTES = 128 * 2**20
# On a device many threads add to few sums; each sum is kept in so many parts that they seldom meet.
N_PARTIAL_SUMS = 256
# With more clusters, n×k and k×k arrays are avoided where possible.
MANY_CLUSTERS = 1000
MAX_KERNEL_CLUSTERS = 2**15 - 1  # labels in kernels are 16-bit integers: they stay in cache


def is_array(x: object) -> bool:
    """Return whether x is an array of some library (a list or a number is not)."""
    return is_array_api_obj(x)


def array_namespace(*arrays: Array) -> Namespace:
    """Return the array API namespace that the arrays share."""
    for a in arrays:
        if not isinstance(a, _NUMPY):
            break
    else:  # fast path for the most common case
        return array_api_compat.numpy
    try:
        return array_api_compat.array_namespace(*arrays)
    except TypeError as error:
        kinds = ", ".join(sorted({f"{type(a).__module__}.{type(a).__name__}" for a in arrays}))
        raise InputTypeError(
            f"arrays of different libraries, or no arrays, were given together: {kinds}; "
            "convert them to one library first, for instance with its asarray"
        ) from error


def as_array(values: object) -> Array:
    """Return arrays unchanged, and lists or numbers as a NumPy array."""
    if is_array(values):
        return values
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError("the rows given differ in length; give a rectangular array") from error


def device_of(x: Array) -> object:
    """Return the device of x."""
    return "cpu" if isinstance(x, _NUMPY) else array_api_compat.device(x)


def current_device_of(*given: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context that makes the device of the first CuPy array among the arguments current.

    It considers arrays, sparse matrices and proximities. Without a CuPy array nothing changes.
    """
    if "cupy" in sys.modules:
        for x in given:
            x = getattr(x, "like", x)
            library = type(x).__module__.partition(".")[0]
            if library in ("cupy", "cupyx"):
                return (x.data if library == "cupyx" else x).device  # cupyx: a sparse matrix
    return contextlib.nullcontext()


def on_input_device(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function to run with the device of its arguments as the current one."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with current_device_of(*args, *kwargs.values()):
            return function(*args, **kwargs)

    return run


def is_cupy(x: Array) -> bool:
    """Return whether x is an array of CuPy, which is not imported for it."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def has_kernels(w: Array, k: int = 1) -> bool:
    """Return whether `cuda` can read W: of CuPy, float32 or float64, with adjacent entries in a row."""
    return (
        is_cupy(w)
        and w.dtype.kind == "f"
        and w.dtype.itemsize in (4, 8)
        and w.strides[-1] == w.dtype.itemsize
        and k <= MAX_KERNEL_CLUSTERS
    )


def can_sum_rows(*arrays: object) -> bool:
    """Return whether rows of the arrays can be gathered and summed in place, as those of NumPy."""
    return all(isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray) for x in arrays)


def is_lazy(x: Array) -> bool:
    """Return whether x is only a plan of a computation (dask): no writing into it, no loops over it."""
    return not isinstance(x, _NUMPY) and array_api_compat.is_dask_array(x)


def is_immutable(x: Array) -> bool:
    """Return whether entries of x cannot be assigned (JAX)."""
    return not isinstance(x, _NUMPY) and array_api_compat.is_jax_array(x)


def put(x: Array, index: slice | tuple[int | slice, ...], values: Array) -> Array:
    """Return x with values at an index: in place, or a copy if x is immutable."""
    if is_immutable(x):
        return x.at[index].set(values)
    x[index] = values
    return x


def on_host(x: Array) -> bool:
    """Return whether x is in CPU memory."""
    return isinstance(x, _NUMPY) or str(device_of(x)).lower().startswith("cpu")


def is_on_device(x: Array) -> bool:
    """Return whether x is in the memory of a device."""
    return not on_host(x) and not is_lazy(x)


def is_host_value(x: Array) -> bool:
    """Return whether the values of x can be read without waiting for them."""
    return on_host(x) and not is_lazy(x)


def wide_dtype(x: Array) -> object:
    """Return the dtype in which sums over x are accumulated: float64 if the device has it."""
    if isinstance(x, _NUMPY):
        return np.float64
    xp, device = array_namespace(x), device_of(x)
    known = (xp, str(device))  # CuPy's devices cannot be hashed
    if known not in _WIDE_DTYPES:
        _WIDE_DTYPES[known] = _find_wide_dtype(xp, device)
    return _WIDE_DTYPES[known]


_WIDE_DTYPES: dict[tuple[Namespace, str], object] = {}


def _find_wide_dtype(xp: Namespace, device: object) -> object:
    if array_api_compat.is_cupy_namespace(xp) and os.environ.get("CUPY_TF32", "0") != "0":
        warnings.warn(
            "CUPY_TF32 is set: CuPy rounds products of float32 to 10 bits, and eigenvectors do not reach "
            "their tolerance; unset it before Python starts",
            PrecisionWarning,
            stacklevel=4,
        )
    if array_api_compat.is_jax_namespace(xp) and not sys.modules["jax"].config.jax_enable_x64:
        raise InputError(
            "JAX has no 64-bit numbers by default, and labels and sums need them; call "
            'jax.config.update("jax_enable_x64", True) before arrays are made'
        )
    if "float64" in xp.__array_namespace_info__().dtypes(device=device, kind="real floating"):
        return xp.float64
    warnings.warn(
        f"device {device} has no float64: sums are accumulated in float32 and lose digits; "
        "use another device where that matters",
        PrecisionWarning,
        stacklevel=3,
    )
    return xp.float32


def row_blocks(
    x: Array, n_rows: int | None = None, *, n_columns: int | None = None, host_rows: int | None = None
) -> Iterator[slice]:
    """Yield slices of rows such that one block of them, in wide precision, is small.

    Small means a megabyte on the host (it stays in cache), or `host_rows` rows if given, and a hundred on a
    device (few launches). A lazy array is one block: its library cuts it by itself.
    """
    n_rows = x.shape[0] if n_rows is None else n_rows
    n_columns = max(1, x.shape[1] if n_columns is None else n_columns)
    if is_lazy(x):
        width = n_rows
    elif on_host(x):
        width = host_rows or max(HOST_BLOCK_ROWS, HOST_BLOCK_BYTES // (8 * n_columns))
    else:
        width = DEVICE_BLOCK_BYTES // (8 * n_columns)
    width = max(1, width)
    for start in range(0, n_rows, width):
        yield slice(start, min(start + width, n_rows))


def square_tiles(w: Array) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of square tiles on and right of the diagonal; a lazy array is one tile."""
    n = w.shape[0]
    width = max(1, n if is_lazy(w) else math.isqrt(block_bytes(w) // 8))
    for i in range(0, n, width):
        for j in range(i, n, width):
            yield slice(i, min(i + width, n)), slice(j, min(j + width, n))


def for_each_block(work: Callable[[T], object], blocks: Iterable[T], like: Array) -> None:
    """Call `work` on each block of rows; NumPy blocks run in threads."""
    if isinstance(like, _NUMPY):
        run_blocks(work, blocks)
        return
    for block in blocks:
        work(block)


def fill_rows(
    like: Array, blocks: Iterable[slice], rows_of: Callable[[slice], Array], out: Array | None = None
) -> Array:
    """Return an array like another (or `out`), filled by blocks of rows; NumPy blocks run in threads."""
    xp = array_namespace(like)
    if is_lazy(like) or is_immutable(like):
        dtype = (like if out is None else out).dtype
        return xp.concat([xp.astype(rows_of(rows), dtype, copy=False) for rows in blocks])
    filled = xp.empty_like(like) if out is None else out

    def fill(rows: slice) -> None:
        filled[rows, :] = xp.astype(rows_of(rows), filled.dtype, copy=False)

    for_each_block(fill, blocks, like)
    return filled


def widened_product(w: Array, v: Array) -> Array:
    """Return w·v in the dtype of v; a product of mixed precision would copy w, so blocks are widened."""
    if w.dtype == v.dtype or is_lazy(w):
        return symmetric_product(w, v)
    xp = array_namespace(w, v)
    product = xp.empty((w.shape[0], v.shape[1]), dtype=v.dtype, device=device_of(w))
    return fill_rows(w, row_blocks(w), lambda rows: xp.astype(w[rows, :], v.dtype) @ v, product)


def widened_blocks(w: Array, dtype: object) -> Iterator[tuple[slice, Array]]:
    """Yield blocks of rows in another precision; NumPy blocks share a buffer that the next one overwrites."""
    if not isinstance(w, np.ndarray):
        xp = array_namespace(w)
        yield from ((rows, xp.astype(w[rows, :], dtype, copy=False)) for rows in row_blocks(w))
        return
    shape = WIDENED_ROWS, w.shape[1]
    buffer = None if w.dtype == dtype else np.empty(shape, dtype=dtype)  # type: ignore[call-overload]
    for rows in row_blocks(w, host_rows=WIDENED_ROWS):
        x = w[rows]
        if buffer is not None:
            x = buffer[: len(x)]
            np.copyto(x, w[rows])
        yield rows, x


def eager_product(product: Callable[[Array], Array], like: Array) -> tuple[Array, Callable[[Array], Array]]:
    """Return an array to work like, and a function X ↦ WX on such arrays.

    They are NumPy's if the library is lazy, or if its arrays are immutable: the solver updates them in place.
    """
    if not is_lazy(like) and not is_immutable(like):
        return like, product

    def on_numpy(v: np.ndarray) -> np.ndarray:
        planned = product(from_host(v, like, dtype=wide_dtype(like)))
        return to_host(planned, reason="a product of a lazy proximity")[0]

    return np.zeros(1), on_numpy


def tall_gram(a: Array, b: Array) -> Array:
    """Return aᵀ·b for tall a and b of the same dtype."""
    return blas.gram(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a.T @ b


def symmetric_product(w: Array, v: Array) -> Array:
    """Return w·v for a large symmetric w and a thin v of the same dtype."""
    return thin_product(w, v) if isinstance(w, np.ndarray) else transposed_product(w, v)


def transposed_product(w: Array, v: Array) -> Array:
    """Return wᵀ·v as (vᵀw)ᵀ, in row-major order: BLAS reads a large w faster this way."""
    return array_namespace(w, v).asarray((v.T @ w).T, copy=True)


def block_bytes(x: Array) -> int:
    """Return the block size in bytes: it fits into a CPU's cache, or keeps a device busy."""
    return HOST_BLOCK_BYTES if on_host(x) else DEVICE_BLOCK_BYTES


def thin_product(w: Array, x: Array) -> Array:
    """Return w·x for a thin x of the same dtype."""
    is_large = w.shape[0] * w.shape[1] * x.shape[1] >= blas.MIN_TILED_WORK
    return blas.times(w, x) if is_large and isinstance(w, np.ndarray) and isinstance(x, np.ndarray) else w @ x


def one_hot(labels: Array, k: int, dtype: object) -> Array:
    """Return the membership Z, labels along its first axes and clusters along the last; -1 gives zeros."""
    if is_cupy(labels):
        return cuda.one_hot(labels, k, dtype)
    if isinstance(labels, np.ndarray) and labels.size > k:  # -1 is the last row, of zeros
        return np.take(np.eye(k + 1, k, dtype=dtype), labels, axis=0, mode="wrap")  # type: ignore[call-overload]
    xp = array_namespace(labels)
    clusters = xp.arange(k, dtype=labels.dtype, device=device_of(labels))
    return xp.astype(labels[..., None] == clusters, dtype)


def label_counts(labels: Array, k: int) -> Array:
    """Return the count of each label 0 ... k-1 in each column of `labels`, (R, k), in wide floats."""
    if isinstance(labels, np.ndarray):
        n_runs = labels.shape[1]
        numbers = (k + 1) * np.arange(n_runs) + labels + 1  # 0 of each column for no label
        counts = np.bincount(numbers.reshape(-1), minlength=n_runs * (k + 1)).reshape(n_runs, k + 1)
        return counts[:, 1:].astype(np.float64)
    if is_cupy(labels):
        return cuda.label_counts(labels, k)
    xp = array_namespace(labels)
    wide, blocks = wide_dtype(labels), row_blocks(labels, n_columns=labels.shape[1] * k)
    return sum(xp.sum(one_hot(labels[rows, :], k, wide), axis=0) for rows in blocks)


def label_totals(values: Array, labels: Array, k: int) -> Array:
    """Return the sum of the values with each label, (k,); -1 is no label."""
    if isinstance(values, _NUMPY):
        return np.bincount(labels + 1, values, k + 1)[1:]
    return values @ one_hot(labels, k, values.dtype)


def label_table(labels: Array, k: int, others: Array, k_others: int) -> Any:
    """Return the contingency table of two labelings, (k, k'); -1 does not count.

    Of many clusters on the host it is a sparse array of SciPy.
    """
    if is_cupy(labels) and is_cupy(others):
        return cuda.label_table(labels, k, others, k_others)
    if not isinstance(labels, np.ndarray) or not isinstance(others, np.ndarray):
        wide = wide_dtype(labels)
        return one_hot(labels, k, wide).T @ one_hot(others, k_others, wide)
    if min(k, k_others) > MANY_CLUSTERS:
        both = (labels >= 0) & (others >= 0)
        pairs = np.ones(int(both.sum())), (labels[both], others[both])
        return scipy.sparse.coo_array(pairs, shape=(k, k_others)).tocsr()
    shape = k + 1, k_others + 1
    counts = np.bincount((labels + 1) * shape[1] + (others + 1), minlength=shape[0] * shape[1])
    return counts.astype(np.float64).reshape(shape)[1:, 1:]


def changed_places(before: Array, after: Array) -> np.ndarray | None:
    """Return the places at which labels differ; None for libraries other than NumPy, where one would wait."""
    return np.flatnonzero(before != after) if isinstance(after, np.ndarray) else None


def sorted_segments(labels: Array, sizes: Array) -> tuple[Array, np.ndarray] | None:
    """Return the order of objects by cluster, and where each cluster ends in it.

    Objects without a cluster are left out. None where the host would have to wait for the sizes.
    """
    if not is_host_value(labels):
        return None
    xp, k = array_namespace(labels), sizes.shape[0]
    small = xp.int16 if k < 2**15 else xp.int64  # NumPy sorts small integers in one sweep
    ends = np.cumsum(to_host(sizes, reason="sizes of clusters")[0].astype(int))
    order = xp.argsort(xp.astype(labels, small), stable=True)
    return order[labels.shape[0] - int(ends[-1]) :], ends


def sums_by_number(number: Array, values: Array, n_numbers: int) -> Array:
    """Return the sum of the values with each number, (n_numbers,), without making the host wait."""
    if on_host(values):
        return np.bincount(number, values, n_numbers)
    xp = array_namespace(values)
    lanes = max(1, min(N_PARTIAL_SUMS, values.shape[0] // n_numbers))
    lane = xp.arange(values.shape[0], dtype=number.dtype, device=device_of(values)) % lanes
    sums = xp.zeros(lanes * n_numbers, dtype=values.dtype, device=device_of(values))
    xp.add.at(sums, lane * n_numbers + number, values)
    return xp.sum(xp.reshape(sums, (lanes, n_numbers)), axis=0)


def ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where the count is not positive."""
    if is_cupy(total) and is_cupy(count) and total.dtype == count.dtype:
        return cuda.ratio(total, count)
    xp = array_namespace(total)
    return xp.where(count > 0, total / not_zero(count), xp.zeros_like(total))


def not_zero(count: Array) -> Array:
    """Return divisors: counts or sizes, with 0 replaced by 1."""
    if is_cupy(count):
        return cuda.not_zero(count)
    xp = array_namespace(count)
    return xp.where(count > 0, count, xp.ones_like(count))


def places_of(mask: Array, count: int) -> Array:
    """Return the positions where a mask is true, in order; `count` is their number."""
    if isinstance(mask, np.ndarray):
        return np.flatnonzero(mask)
    xp = array_namespace(mask)
    return xp.argsort(xp.astype(mask, xp.int8), descending=True, stable=True)[:count]


def rows_at(x: Array, which: slice | Array) -> Array:
    """Return some rows of x, by slice or by index."""
    return x[which, ...] if isinstance(which, slice) else array_namespace(x).take(x, which, axis=0)


def gather(x: Array, index: Array, fill: float) -> Array:
    """Return x[index] along the first axis, and `fill` where index is -1."""
    if is_cupy(x) and index.ndim == 1:
        return cuda.gather(x, index, fill)
    xp = array_namespace(x)
    return keep(xp.take(x, not_negative(index), axis=0), index, fill)


def keep(x: Array, known: Array, fill: float) -> Array:
    """Return x, and `fill` where `known`, along the first axis, is negative."""
    if is_cupy(x):
        return cuda.keep(x, known, fill)
    xp = array_namespace(x)
    known = xp.reshape(known >= 0, (-1,) + (1,) * (x.ndim - 1))
    return xp.where(known, x, xp.asarray(fill, dtype=x.dtype, device=device_of(x)))


def mixed(w: Array, psi: Array, alpha: Array | float, source: Array | None = None) -> Array:
    """Return w + α (ψ − w), (n,), in wide floats, with ψ at `source`; w where the source is -1."""
    if is_cupy(w):
        return cuda.mixed(w, psi, alpha, source)
    if source is None:
        return w + alpha * (psi - w)
    return array_namespace(w).where(source >= 0, w + alpha * (gather(psi, source, 0) - w), w)


def mixed_pairs(w: Array, psi: Array, alpha: Array | float, places: Array) -> Array:
    """Return w + α (ψ − w), (m, m), and w for pairs with a negative place."""
    if is_cupy(w):
        return cuda.mixed_pairs(w, psi, alpha, places)
    known = places >= 0
    return array_namespace(w).where(known[:, None] & known[None, :], w + alpha * (psi - w), w)


def rank_keys(values: Array) -> Array:
    """Return values as multiples of 2⁻²⁰ of the largest |value|, rounded: equal if they are nearly equal."""
    xp = array_namespace(values)
    largest = xp.max(xp.abs(values))
    if is_cupy(values):
        return cuda.rank_keys(values, largest)
    return xp.round(values / not_zero(largest) * 2**20)


def not_negative(index: Array) -> Array:
    """Return an index with negative numbers replaced by 0."""
    if is_cupy(index):
        return cuda.not_negative(index)
    xp = array_namespace(index)
    return xp.where(index >= 0, index, xp.zeros_like(index))


def smallest_int(values: np.ndarray) -> np.ndarray:
    """Return integers in the smallest dtype that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    sizes = (np.int8, np.int16, np.int32, np.int64)
    return values.astype(next(d for d in sizes if np.iinfo(d).min <= low and high <= np.iinfo(d).max))


def recorded_labels(labels: np.ndarray, like: Array) -> np.ndarray:
    """Return labels on the host: those of NumPy as they are, copies of others in the smallest dtype."""
    return labels if isinstance(like, np.ndarray) else smallest_int(labels)


def native(x: Array) -> Array:
    """Return x in the byte order of this machine; arrays from files may have the other."""
    is_foreign = isinstance(x, np.ndarray) and x.dtype.kind == "f" and not x.dtype.isnative
    return x.astype(x.dtype.newbyteorder("=")) if is_foreign else x


def is_by_columns(x: Array) -> bool:
    """Return whether a matrix on the host is stored by columns."""
    if x.ndim != 2 or not is_host_value(x):
        return False
    flags = _to_numpy(x).flags
    return flags.f_contiguous and not flags.c_contiguous


def from_host(values: object, like: Array, dtype: object | None = None) -> Array:
    """Copy host values to the library and device of `like`."""
    xp = array_namespace(like)
    return xp.asarray(np.array(values), dtype=dtype, device=device_of(like))


def as_like(values: object, like: Array, reason: str) -> Array:
    """Return values as an array; NumPy and lazy values are converted to the library and device of `like`."""
    values = values if is_array(values) else np.asarray(values)
    if is_lazy(values) and not is_lazy(like):
        values = to_host(values, reason=reason)[0]
    if isinstance(values, np.ndarray) and not isinstance(like, np.ndarray):
        return from_host(values.astype(np.int64) if values.dtype.kind in "iu" else values, like)
    return values


def computed(x: Array, reason: str) -> Array:
    """Return the values of a lazy or immutable array on the host, and any other array as it is."""
    return to_host(x, reason=reason)[0] if is_lazy(x) or is_immutable(x) else x


def host_value(x: Array) -> bool | float | None:
    """Return the value of a 0-d array, or None if the host would have to wait for it."""
    return _to_numpy(x).item() if is_host_value(x) else None


def host_view(x: Array, name: str) -> np.ndarray:
    """Return an array in the memory of the host as a NumPy array, without a copy; raise for any other."""
    if is_lazy(x):
        raise InputTypeError(
            f"{name} is not computed yet, and NumPy must not compute it implicitly; use .array, and its "
            "compute() if there is memory for n×n numbers"
        )
    if not on_host(x):
        raise InputTypeError(
            f"{name} is on device {device_of(x)}, and NumPy must not copy it implicitly; use "
            ".array with functions of its library, or copy that to the host"
        )
    return to_host(x, reason="asked for as a NumPy array")[0]


def check_in_memory(x: Array, message: str) -> None:
    """Raise if x is lazy."""
    if is_lazy(x):
        raise InputTypeError(message)


def check_is_numpy(x: Array, message: str) -> None:
    """Raise if x is an array of a library other than NumPy."""
    if not isinstance(x, np.ndarray):
        raise InputTypeError(message)


def by_device(
    x: Array, on_cpu: Callable[[np.ndarray], R], on_device: Callable[[Array], R], *, reason: str
) -> R:
    """Return what one function makes of x as a NumPy array, or, if x is on a device, another of x itself."""
    if on_host(x) or is_lazy(x):
        return on_cpu(to_host(x, reason=reason)[0])
    return on_device(x)


def to_host(*arrays: Array, reason: str) -> tuple[np.ndarray, ...]:
    """Transfer arrays to NumPy in one copy; `reason` is logged at level DEBUG.

    On a device this waits for all queued work. Several arrays are packed into one array of wide
    floats, so integers are exact up to 2^53.
    """
    log.debug("device to host: %s", reason)
    if len(arrays) == 1 or all(isinstance(a, _NUMPY) for a in arrays):
        return tuple(_to_numpy(a) for a in arrays)
    xp = array_namespace(*arrays)
    if is_cupy(arrays[0]) and len(arrays) <= cuda.MAX_PARTS:
        flat = _to_numpy(cuda.pack(arrays))
    else:
        wide = wide_dtype(arrays[0])
        flat = _to_numpy(xp.concat([xp.reshape(xp.astype(a, wide), (-1,)) for a in arrays]))
    ends = np.cumsum([int(np.prod(a.shape)) for a in arrays])
    parts = np.split(flat, ends[:-1])
    return tuple(part.reshape(a.shape) for part, a in zip(parts, arrays, strict=True))


def _to_numpy(x: Array) -> np.ndarray:
    if array_api_compat.is_numpy_array(x):
        return np.asarray(x)
    if array_api_compat.is_dask_array(x):
        return _to_numpy(x.compute())
    if array_api_compat.is_torch_array(x):
        return x.detach().cpu().numpy()
    if array_api_compat.is_cupy_array(x):
        return x.get()
    if array_api_compat.is_jax_array(x):
        return np.array(x)
    return np.from_dlpack(x, device="cpu", copy=True)
