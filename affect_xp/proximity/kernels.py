"""Proximities from features, block by block, and features that approximate kernels.

X (n, p) has one row per object. The proximities are written directly to their n×n array, or to the graph of a
dask array; no other array of that size is made. They are exactly symmetric.
"""

import dataclasses
import functools
import math
import numbers
import sys
from collections.abc import Callable

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    check_in_memory,
    device_of,
    fill_rows,
    from_host,
    not_zero,
    put,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.random import as_generator
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_int
from affect_xp.exceptions import InputError, InputTypeError, shown
from affect_xp.proximity import Dense, Proximity
from affect_xp.proximity._base import feature_matrix, reject_not_finite
from affect_xp.proximity.chunked import Chunked, pairwise

IN_MEMORY = "X must be in memory, got a dask array; pass X.compute()"

Block = Callable[[Array, Array], Array]  # (a, p), (b, p) → (a, b)


def _as_they_are(x: Array) -> Array:
    return x


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """A function of two rows of features."""

    kind: str  # "similarity" or "dissimilarity"
    block: Block  # the proximities between two sets of prepared rows
    prepare: Callable[..., Array] = _as_they_are  # applied once to all rows
    diagonal: float | None = None  # the proximity of each object to itself, if it is the same for all
    parameters: tuple[str, ...] = ()  # the other arguments of `prepare`


def features_to_proximity(X: Array, kind: str | Block = "dot", **parameters: float | None) -> Proximity:
    """Return the proximities of objects with features X.

    =============  ===============  ===========================================================
    kind           type             entry (x, y)
    =============  ===============  ===========================================================
    "dot"          similarity       x·y
    "rbf"          similarity       exp(−γ‖x − y‖²), γ = `gamma`, by default 1 / (p · var X)
    "cosine"       similarity       x·y / ‖x‖‖y‖; 0 if either is zero
    "euclidean"    dissimilarity    ‖x − y‖, from differences: accurate for close points
    a function     either           f(A, B), (a, p), (b, p) → (a, b), on blocks of rows of X
    =============  ===============  ===========================================================

    They are computed by blocks of rows, in float64 if the device supports it, and stored in the dtype of X.
    An eager array gives `Dense`, without another n×n array. A dask array gives a lazy `Chunked` with the
    chunks of its rows: one `compute` checks X (and finds γ). A function is called only for the blocks on and
    above the diagonal, so it must be symmetric, and depend only on the two rows.

    Parameters
    ----------
    X : (n, p) array of any library
    kind : str or function
    **parameters
        `gamma` for "rbf".

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.kernels import features_to_proximity
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> features_to_proximity(X, "euclidean").array
    array([[0., 5.],
           [5., 0.]])
    """
    x, kernel, dtype = _prepared(X, kind, parameters)
    if Chunked.can_hold(x):
        return pairwise(x, functools.partial(_chunk, kernel, dtype), dtype)
    return Dense(_filled(x, kernel, dtype))


def random_fourier_features(
    X: Array, n_features: int, *, gamma: float | None = None, rng: Seed = None
) -> Array:
    """Return features whose dot products approximate exp(−γ‖x − y‖²).

    With q/2 frequencies ω drawn from N(0, 2γ I), the dot products of the features √(2/q)·[cos ω·x, sin ω·x]
    have the kernel as expectation and 1 on the diagonal; the error of an entry is about 1/√q. Use them for a
    factored approximation of the rbf kernel that never forms n×n.

    Parameters
    ----------
    X : (n, p) array
    n_features : int
        q, even.
    gamma : float, optional
        γ, by default 1 / (p · var X).
    rng : None, int or numpy.random.Generator

    References
    ----------
    Rahimi & Recht, "Random Features for Large-Scale Kernel Machines", NIPS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.kernels import random_fourier_features
    >>> F = random_fourier_features(np.array([[0.0], [1.0]]), 2000, gamma=0.5, rng=0)
    >>> bool(abs((F @ F.T)[0, 1] - np.exp(-0.5)) < 0.05)
    True
    """
    q = check_int("n_features", n_features, 2)
    if q % 2:
        raise InputError(f"n_features must be even (a cosine and a sine per frequency), got {q}")
    check_in_memory(X, IN_MEMORY)
    x, size = _checked_features(X)
    xp, p = array_namespace(x), x.shape[1]
    size.check_squares(p, "rbf")
    gamma = _checked_gamma(gamma, p, size.variance)
    frequencies = as_generator(rng).normal(scale=math.sqrt(2 * gamma), size=(p, q // 2))
    wide = xp.astype(x, wide_dtype(x), copy=False)
    angles = wide @ from_host(frequencies, x, dtype=wide.dtype)  # (n, q/2)
    features = xp.concat([xp.cos(angles), xp.sin(angles)], axis=1) * math.sqrt(2 / q)
    return xp.astype(features, _storage_dtype(x), copy=False)


def nystroem_features(
    X: Array, n_features: int, kind: str | Block = "rbf", *, rng: Seed = None, **parameters: float | None
) -> Array:
    """Return features whose dot products approximate the similarities of X: exact to q random objects.

    With K (n, q) the similarities to these objects, and K_q = VΛVᵀ those among them, the features are
    K V Λ^{-1/2}, and their dot products K K_q⁻¹ Kᵀ. The columns of directions in which K_q is numerically
    zero are 0. The approximation is better than random Fourier features if the kernel is smooth (few
    large eigenvalues). The similarity must be positive semi-definite.

    Parameters
    ----------
    X : (n, p) array
    n_features : int
        q, at most n.
    kind, **parameters
        As for `features_to_proximity`, except "euclidean".
    rng : None, int or numpy.random.Generator

    References
    ----------
    Williams & Seeger, "Using the Nyström Method to Speed Up Kernel Machines", NIPS 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.kernels import nystroem_features
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> F = nystroem_features(X, 3, gamma=0.5)
    >>> bool(np.allclose(F @ F.T, np.exp(-0.5 * (X - X.T) ** 2)))
    True
    """
    q = check_int("n_features", n_features, 1)
    check_in_memory(X, IN_MEMORY)
    x, kernel, dtype = _prepared(X, kind, parameters)
    xp, n = array_namespace(x), x.shape[0]
    if kernel.kind != "similarity":
        raise InputError(f"kind={kind!r} is a dissimilarity, not a dot product; use 'rbf'")
    if q > n:
        raise InputError(f"n_features={q} exceeds the number of objects, {n}; use at most {n}")
    drawn = xp.take(x, from_host(as_generator(rng).permutation(n)[:q], x), axis=0)
    values, vectors = xp.linalg.eigh(_symmetric(kernel.block(drawn, drawn), kernel.diagonal))  # Λ, V
    least = q * xp.finfo(values.dtype).eps * xp.max(values)
    some = values > least
    scale = xp.where(some, 1 / xp.sqrt(xp.where(some, values, xp.ones_like(values))), xp.zeros_like(values))
    root = vectors * scale[None, :]  # VΛ^{-1/2}, (q, q)
    blocks = [kernel.block(x[rows, :], drawn) @ root for rows in row_blocks(drawn, n)]
    return xp.astype(xp.concat(blocks), dtype, copy=False)


def _dot(a: Array, b: Array) -> Array:
    return a @ b.T


def _unit_rows(x: Array) -> Array:
    """Return the rows divided by their norms; rows of zeros are kept."""
    xp = array_namespace(x)
    largest = xp.max(xp.abs(x), axis=1, keepdims=True)  # so that no square overflows
    x = x / not_zero(largest)
    length = xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))
    return x / not_zero(length)


def _scaled(x: Array, gamma: float) -> Array:
    """Return √γ (x − x̄): rows with squared distances γ‖x − y‖², centered to reduce cancellation."""
    xp = array_namespace(x)
    return (x - xp.mean(x, axis=0, keepdims=True)) * math.sqrt(gamma)


def _gaussian(a: Array, b: Array) -> Array:
    """Return exp(−‖a − b‖²), with ‖a − b‖² = ‖a‖² − 2 a·b + ‖b‖²."""
    xp = array_namespace(a)
    square = xp.sum(a * a, axis=1)[:, None] - 2 * (a @ b.T) + xp.sum(b * b, axis=1)[None, :]
    return xp.exp(-xp.where(square > 0, square, xp.zeros_like(square)))


def _euclidean(a: Array, b: Array) -> Array:
    """Return ‖a − b‖, feature by feature: without cancellation, and without an (a, b, p) array."""
    xp = array_namespace(a)
    square = xp.zeros((a.shape[0], b.shape[0]), dtype=a.dtype, device=device_of(a))
    for f in range(a.shape[1]):
        difference = a[:, f][:, None] - b[:, f][None, :]
        square = square + difference * difference
    return xp.sqrt(square)


KERNELS: dict[str, Kernel] = {
    "dot": Kernel("similarity", _dot),
    "rbf": Kernel("similarity", _gaussian, _scaled, diagonal=1.0, parameters=("gamma",)),
    "cosine": Kernel("similarity", _dot, _unit_rows),
    "euclidean": Kernel("dissimilarity", _euclidean, diagonal=0.0),
}


def _as_kernel(kind: str | Block, parameters: dict[str, float | None]) -> Kernel:
    """Return the requested kernel; raise if it does not take these parameters."""
    kernel = Kernel("similarity", kind) if callable(kind) else KERNELS[check_choice("kind", kind, KERNELS)]
    for name in parameters:
        if name not in kernel.parameters:
            taken = ", ".join(kernel.parameters) or "none"
            raise InputTypeError(f"kind={kind!r} has no parameter {name}; valid ones: {taken}")
    return kernel


def _prepared(
    X: Array, kind: str | Block, parameters: dict[str, float | None]
) -> tuple[Array, Kernel, object]:
    """Return X checked and prepared for the kernel, the kernel, and the dtype of the results."""
    kernel = _as_kernel(kind, parameters)
    x, size = _checked_features(X)
    xp = array_namespace(x)
    if kind in ("rbf", "euclidean"):
        size.check_squares(x.shape[1], str(kind))
    dtype = _storage_dtype(x)
    if not callable(kind):
        x = xp.astype(x, wide_dtype(x), copy=False)
    if "gamma" in kernel.parameters:
        parameters = {"gamma": _checked_gamma(parameters.get("gamma"), x.shape[1], size.variance)}
    return kernel.prepare(x, **parameters), kernel, dtype


@dataclasses.dataclass(frozen=True)
class _Size:
    """The magnitude of features: max |x|, and the variance of x / max |x|."""

    largest: float
    relative: float

    @property
    def variance(self) -> float:
        """The variance of all entries; 0 or inf if it underflows or overflows."""
        return self.relative * self.largest * self.largest

    def check_squares(self, p: int, kind: str) -> None:
        """Raise if squared distances overflow or underflow."""
        if self.relative > 0 and not sys.float_info.min < self.variance < sys.float_info.max / (8 * p):
            how = "divide" if self.largest > 1 else "multiply"
            raise InputError(
                f"X has values up to {self.largest:.3g}, whose squares, which kind={kind!r} needs, "
                f"are out of the floating-point range; {how} X by a constant first"
            )


def _checked_features(X: Array) -> tuple[Array, _Size]:
    """Return X as a finite array of floats, and its magnitude, read with one transfer."""
    x = feature_matrix(X)
    if x.shape[1] == 0:
        raise InputError(f"X has no features, got shape {tuple(x.shape)}")
    xp = array_namespace(x)
    wide = xp.astype(x, wide_dtype(x), copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = xp.max(xp.abs(wide))
        unit = not_zero(largest)  # so that no square overflows
        facts = to_host(xp.stack([largest, xp.var(wide / unit)]), reason="checking features")[0]
    if not np.isfinite(facts[0]):
        reject_not_finite(x)
    return x, _Size(float(facts[0]), float(facts[1]))


def _storage_dtype(x: Array) -> object:
    xp = array_namespace(x)
    return xp.float32 if x.dtype == xp.float32 else wide_dtype(x)


def _checked_gamma(gamma: object, p: int, variance: float) -> float:
    """Return γ, by default 1 / (p · var X); any value if all features are equal."""
    if gamma is None:
        return 1 / (p * variance) if variance > 0 else 1.0
    if isinstance(gamma, bool) or not isinstance(gamma, numbers.Real):
        raise InputTypeError(f"gamma must be a positive number, got {shown(gamma)}")
    value = float(gamma)
    if not 0 < value < math.inf:
        raise InputError(f"gamma must be positive and finite, got {gamma}")
    return value


def _chunk(kernel: Kernel, dtype: object, a: Array, b: Array | None) -> Array:
    """Return the proximities between the rows of two chunks of X, or (b=None) within one chunk."""
    if b is None:
        return _filled(a, kernel, dtype)
    w = array_namespace(a, b).empty((a.shape[0], b.shape[0]), dtype=dtype, device=device_of(a))
    return fill_rows(w, row_blocks(w), lambda rows: _block(kernel, a[rows, :], b, dtype), w)


def _filled(x: Array, kernel: Kernel, dtype: object) -> Array:
    """Return all proximities of the rows of x: each block above the diagonal, and its transpose."""
    xp, n = array_namespace(x), x.shape[0]
    w = xp.empty((n, n), dtype=dtype, device=device_of(x))
    for rows in row_blocks(w):
        block = _block(kernel, x[rows, :], x[rows.start :, :], dtype)
        width = rows.stop - rows.start
        w = put(w, (rows, rows), _symmetric(block[:, :width], kernel.diagonal))
        w = put(w, (rows, slice(rows.stop, n)), block[:, width:])
        w = put(w, (slice(rows.stop, n), rows), block[:, width:].T)
    return w


def _block(kernel: Kernel, a: Array, b: Array, dtype: object) -> Array:
    """Return the proximities between two sets of rows in the dtype of the result."""
    block, expected = kernel.block(a, b), (a.shape[0], b.shape[0])
    if tuple(getattr(block, "shape", ())) != expected:
        raise InputError(
            f"the function passed as kind must return shape {expected} for rows of shapes {tuple(a.shape)}, "
            f"{tuple(b.shape)}, got {getattr(block, 'shape', type(block).__name__)}"
        )
    return array_namespace(block, a).astype(block, dtype, copy=False)


def _symmetric(block: Array, diagonal: float | None) -> Array:
    """Return a square block whose lower triangle mirrors the upper one."""
    xp = array_namespace(block)
    right = xp.triu(block, k=1)
    own = xp.eye(block.shape[0], dtype=xp.bool, device=device_of(block))
    on_diagonal = block if diagonal is None else xp.full_like(block, diagonal)
    return xp.where(own, on_diagonal, right + right.T)
