"""The only access to array libraries: namespaces, devices, precision, and transfers to the host.

The rest of the package is written to the array API standard and never names a library. This module
decides what the standard leaves open: the precision of sums, the size of row blocks, and the conversion
to NumPy. Arrays are transferred to the host only by `to_host`.
"""

import contextlib
import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import array_api_compat
import array_api_compat.numpy
import numpy as np
from array_api_compat import is_array_api_obj

from affect_xp.array import blas, cuda
from affect_xp.array.threads import run_blocks
from affect_xp.array.typing import Array, Namespace
from affect_xp.exceptions import InputError, InputTypeError, PrecisionWarning

__all__ = [
    "array_namespace",
    "as_array",
    "current_device_of",
    "device_of",
    "for_each_block",
    "from_host",
    "gather",
    "is_array",
    "is_at_hand",
    "is_lazy",
    "label_counts",
    "not_negative",
    "on_host",
    "on_input_device",
    "one_hot",
    "ratio",
    "row_blocks",
    "rows_at",
    "smallest_int",
    "thin_product",
    "to_host",
    "wide_dtype",
]

T = TypeVar("T")

log = logging.getLogger("affect_xp")

P = ParamSpec("P")
R = TypeVar("R")

_NUMPY = (np.ndarray, np.generic)  # includes zero-dimensional arrays

# A block of rows should fit into a CPU's cache, but have enough rows for fast products; a device needs
# few launches instead.
HOST_BLOCK_BYTES = 2**20
HOST_BLOCK_ROWS = 48
DEVICE_BLOCK_BYTES = 128 * 2**20


def is_array(x: object) -> bool:
    """Return whether x is an array of some library (a list or a number is not)."""
    return is_array_api_obj(x)


def array_namespace(*arrays: Array) -> Namespace:
    """Return the array API namespace that the arrays share."""
    if all(isinstance(a, _NUMPY) for a in arrays):  # fast path for the most common case
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


def is_lazy(x: Array) -> bool:
    """Return whether x is lazy (dask, JAX): it cannot be written to, and should not be looped over."""
    return not isinstance(x, _NUMPY) and (
        array_api_compat.is_dask_array(x) or array_api_compat.is_jax_array(x)
    )


def on_host(x: Array) -> bool:
    """Return whether x is in CPU memory."""
    return isinstance(x, _NUMPY) or str(device_of(x)).lower().startswith("cpu")


def is_at_hand(x: Array) -> bool:
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
    if "float64" in xp.__array_namespace_info__().dtypes(device=device, kind="real floating"):
        return xp.float64
    warnings.warn(
        f"device {device} has no float64: sums are accumulated in float32 and lose digits; "
        "use another device where that matters",
        PrecisionWarning,
        stacklevel=3,
    )
    return xp.float32


def row_blocks(x: Array, n_rows: int | None = None, *, n_columns: int | None = None) -> Iterator[slice]:
    """Yield slices of rows such that each block, in wide precision, is small.

    Small means about 1 MB on the host (it fits into cache) and 128 MB on a device (few launches).
    A lazy array is one block: its library splits it itself.
    """
    n_rows = x.shape[0] if n_rows is None else n_rows
    n_columns = max(1, x.shape[1] if n_columns is None else n_columns)
    if is_lazy(x):
        width = n_rows
    elif on_host(x):
        width = max(HOST_BLOCK_ROWS, HOST_BLOCK_BYTES // (8 * n_columns))
    else:
        width = DEVICE_BLOCK_BYTES // (8 * n_columns)
    width = max(1, width)
    for start in range(0, n_rows, width):
        yield slice(start, min(start + width, n_rows))


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
    if is_lazy(like):
        return xp.concat([rows_of(rows) for rows in blocks])
    filled = xp.empty_like(like) if out is None else out

    def fill(rows: slice) -> None:
        filled[rows, :] = xp.astype(rows_of(rows), filled.dtype, copy=False)

    for_each_block(fill, blocks, like)
    return filled


def tall_gram(a: Array, b: Array) -> Array:
    """Return aᵀ·b for tall a and b of the same dtype."""
    return blas.tall_gram(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a.T @ b


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
    if cuda.is_cupy(labels):
        return cuda.one_hot(labels, k, dtype)
    xp = array_namespace(labels)
    clusters = xp.arange(k, dtype=labels.dtype, device=device_of(labels))
    return xp.astype(labels[..., None] == clusters, dtype)


def label_counts(labels: Array, k: int) -> Array:
    """Return the count of each label 0 ... k-1 in each column of `labels`, (R, k), in wide floats."""
    if isinstance(labels, np.ndarray):
        counts = [np.bincount(column + 1, minlength=k + 1)[1:] for column in labels.T]
        return np.stack(counts).astype(np.float64)
    xp = array_namespace(labels)
    wide, blocks = wide_dtype(labels), row_blocks(labels, n_columns=labels.shape[1] * k)
    return sum(xp.sum(one_hot(labels[rows, :], k, wide), axis=0) for rows in blocks)


def label_table(labels: Array, k: int, others: Array, k_others: int) -> Array:
    """Return the contingency table of two labelings, (k, k'); -1 does not count."""
    if not isinstance(labels, np.ndarray) or not isinstance(others, np.ndarray):
        wide = wide_dtype(labels)
        return one_hot(labels, k, wide).T @ one_hot(others, k_others, wide)
    shape = k + 1, k_others + 1
    counts = np.bincount((labels + 1) * shape[1] + (others + 1), minlength=shape[0] * shape[1])
    return counts.astype(np.float64).reshape(shape)[1:, 1:]


def ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where the count is not positive."""
    if cuda.is_cupy(total) and cuda.is_cupy(count) and total.dtype == count.dtype:
        return cuda.ratio(total, count)
    xp = array_namespace(total)
    return xp.where(count > 0, total / not_zero(count), xp.zeros_like(total))


def not_zero(count: Array) -> Array:
    """Return divisors: counts or sizes, with 0 replaced by 1."""
    if cuda.is_cupy(count):
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
    if cuda.is_cupy(x) and index.ndim == 1:
        return cuda.gather(x, index, fill)
    xp = array_namespace(x)
    rows = xp.take(x, not_negative(index), axis=0)
    known = xp.reshape(index >= 0, (-1,) + (1,) * (x.ndim - 1))
    return xp.where(known, rows, xp.asarray(fill, dtype=x.dtype, device=device_of(x)))


def not_negative(index: Array) -> Array:
    """Return an index with negative numbers replaced by 0."""
    if cuda.is_cupy(index):
        return cuda.not_negative(index)
    xp = array_namespace(index)
    return xp.where(index >= 0, index, xp.zeros_like(index))


def smallest_int(values: np.ndarray) -> np.ndarray:
    """Return integers in the smallest dtype that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    sizes = (np.int8, np.int16, np.int32, np.int64)
    return values.astype(next(d for d in sizes if np.iinfo(d).min <= low and high <= np.iinfo(d).max))


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


def to_host(*arrays: Array, reason: str) -> tuple[np.ndarray, ...]:
    """Transfer arrays to NumPy in one copy; `reason` is logged at level DEBUG.

    On a device this waits for all queued work. Several arrays are packed into one array of wide
    floats, so integers are exact up to 2^53.
    """
    log.debug("device to host: %s", reason)
    if len(arrays) == 1 or all(isinstance(a, _NUMPY) for a in arrays):
        return tuple(_to_numpy(a) for a in arrays)
    xp = array_namespace(*arrays)
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
    return np.from_dlpack(x, device="cpu", copy=True)
