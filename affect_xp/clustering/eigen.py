"""The largest eigenvalues of a symmetric operator that is accessed through products with thin matrices.

    A = S W S + diag(e),   S = diag(s)

Small operators are formed and decomposed in full, large ones by LOBPCG (Knyazev 2001). With X the current
vectors, P the part of the previous vectors orthogonal to X, and R the residuals of unconverged vectors,

    V = [X P R],   G = VᵀV,   H = VᵀAV,   H y = λ G y,   X ← V y,   R ← A X − X λ

V and AV are updated in place, one block of rows at a time. The small problem is solved on the host.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    eager_product,
    for_each_block,
    from_host,
    is_array,
    is_cupy,
    is_on_device,
    not_zero,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import blas_threads, own_threads
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError
from affect_xp.proximity import Proximity

SOLVERS = ("auto", "full", "iterative")
# Beyond this size the workspace of cuSOLVER exceeds its index range.
MAX_CUSOLVER_SIZE = 25_000
# Up to this size a full decomposition is at least about as fast as the iteration.
FULL_SIZE = 400
# Up to this size "auto" uses a full decomposition if the iteration fails.
RESCUE_SIZE = 3000
# The minimum number of additional pairs, which reveal ties, and large eigenvalues that the start lacks.
MIN_GUARDS = 4
# Products before convergence is accepted: starting vectors may be exact but not the largest.
MIN_PRODUCTS = 3
MAX_PRODUCTS = 300
# Products before float32 is abandoned.
MAX_NARROW_PRODUCTS = 100
# Eigenvalues closer than this many tolerances are tied.
TIE = 10
# Squared residuals estimated from products have an error of at most this multiple of their rounding.
ROUGH_SQUARE = 40
# Rows of thin matrices that fit into a cache; on a device all rows are one block.
BLOCK_ROWS = 2**12


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric n×n matrix A = S W S + diag(e), accessed through WX."""

    n: int
    like: Array  # an array with the library and device of X and WX
    multiply: Callable[[Array], Array]  # returns WX for a thin X, in the dtype of X
    s: Array | float = 1.0  # (n, 1), or a number
    e: Array | float = 0.0  # (n, 1)
    null: Array | None = None  # known orthonormal eigenvectors, (n, c), to be excluded from the result
    top: float | None = None  # of the spectrum, if known: residuals are then relative to the distance to it
    scale: float = 0.0  # of the eigenvalues, if known: residuals are relative to it or to the largest one
    thin_dtype: object = None  # the dtype with the fastest products, if it is not wide floats
    is_narrow: bool = False  # whether X has that dtype
    lowest: Array | None = None  # a number to be read with the first products, and its check
    check: Callable[[float], None] | None = None

    @staticmethod
    def of(W: Proximity) -> "Operator":
        """Return a proximity as an operator; thin matrices of a lazy library are kept on the host."""
        like, multiply = eager_product(W.matmul, W.like)
        return Operator(W.n, like, multiply, thin_dtype=W.thin_dtype if multiply == W.matmul else None)

    @property
    def n_wanted(self) -> int:
        """The number of unknown eigenvectors."""
        return self.n - (0 if self.null is None else self.null.shape[1])

    def astype(self, dtype: object) -> "Operator":
        """Return the same operator with its vectors in another dtype."""

        def cast(x: Array | float | None) -> Array:
            return array_namespace(x).astype(x, dtype, copy=False) if is_array(x) else x

        is_narrow = dtype != wide_dtype(self.like)
        return dataclasses.replace(
            self, s=cast(self.s), e=cast(self.e), null=cast(self.null), is_narrow=is_narrow
        )

    @property
    def tolerance(self) -> float:
        """The smallest attainable residual in the dtype of X, relative to the largest eigenvalue."""
        xp = array_namespace(self.like)
        if self.is_narrow:
            return 32 * float(xp.finfo(self.thin_dtype).eps)
        return float(xp.finfo(wide_dtype(self.like)).eps) ** 0.5

    def scale_of(self, values: np.ndarray) -> float:
        """Return the number to which residuals are relative, given the largest eigenvalues."""
        return max(self.scale, float(np.abs(values).max(initial=0.0))) or 1.0

    def matmul(self, x: Array) -> Array:
        """Return A·X."""
        product = self.s * self.multiply(self.s * x)
        return product + self.e * x if is_array(self.e) else product

    def orthogonal(self, x: Array) -> Array:
        """Return X projected orthogonally to the known eigenvectors."""
        return x if self.null is None else x - self.null @ (self.null.T @ x)

    def deflated(self) -> Array:
        """Return A − h CCᵀ as an array, so that the known eigenvectors C have the smallest eigenvalues."""
        xp = array_namespace(self.like)
        a = self.matmul(xp.eye(self.n, dtype=wide_dtype(self.like), device=device_of(self.like)))
        if self.null is not None:
            # No eigenvalue exceeds the largest sum of absolute values in a row.
            h = 3 * xp.max(xp.sum(xp.abs(a), axis=1))
            a = a - h * (self.null @ self.null.T)
        return (a + a.T) / 2


@dataclasses.dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Eigenvalues, largest first, and their eigenvectors."""

    values: np.ndarray  # (r,)
    vectors: Array  # (n, r), orthonormal
    residual: float  # the largest ‖Av − λv‖, relative to the largest eigenvalue found
    n_iter: int  # the number of products A·V; 0 for a full decomposition
    converged: bool  # whether the residual is within the tolerance
    tie: float = 0.0  # eigenvalues that differ by at most this are tied
    guards: Array | None = None  # rough further eigenvectors, (n, g), for the start of a similar problem

    def leading(self, k: int) -> "Eigenpairs":
        """Return the first k pairs, and those tied with the last of them."""
        gaps = np.abs(np.diff(self.values)) > self.tie
        ends = [*(np.flatnonzero(gaps) + 1).tolist(), len(self.values)]
        r = next((r for r in ends if r >= k), len(self.values))
        return dataclasses.replace(self, values=self.values[:r], vectors=self.vectors[:, :r])


def top_eigenpairs(
    A: Operator,
    k: int,
    *,
    solver: str = "auto",
    start: Array | None = None,
    tol: float = 0.0,
    seed: int = 0,
) -> Eigenpairs:
    """Return the eigenpairs of the k largest eigenvalues, extended to a unique eigenspace.

    If eigenvalue k is tied with the next ones, k eigenvectors are an arbitrary choice. Then all those tied
    with it are returned, or, if they are too many to be found, none of them: the number r of pairs may
    differ from k. Their span is a function of A alone.

    The full decomposition takes memory for n² numbers. The iteration uses only products, waits once for the
    device for each, or twice at the limit of the precision, and falls back to the full decomposition if n is
    not much larger than k. `start` are k approximate eigenvectors, and `guards` after them, with rows of
    zeros for unknown objects; `seed` gives further random vectors, and should differ between similar
    problems. `tol` bounds the residuals relative to the distance from A.top to the first excluded
    eigenvalue; with 0, or without A.top, it continues to about half of the digits.
    """
    check_choice("solver", solver, SOLVERS)
    m = min(k + max(MIN_GUARDS, k // 8), A.n_wanted)
    if solver == "full" or (solver == "auto" and A.n <= FULL_SIZE) or A.n < 4 * m:
        return _full(A, k, m)
    try:
        found = _iterated(A, k, m, start, tol, seed)
    except OutOfRangeError as error:
        raise InputError(
            "the proximities in W are too large or too small to find eigenvectors: sums of their squares "
            "overflow or underflow; divide W by its largest entry"
        ) from error
    if solver == "auto" and not found.converged and A.n <= RESCUE_SIZE:
        return _full(A, k, m)
    return found


def _complete(values: np.ndarray, k: int, tie: float, n_available: int) -> int:
    """Return how many of the values, largest first, to keep so that none is tied with an excluded one.

    The smallest such number from k on; if the last values are tied, the largest below k.
    """
    ends = [r for r in range(1, len(values)) if values[r - 1] - values[r] > tie]
    if len(values) == n_available:
        ends.append(n_available)
    return next((r for r in ends if r >= k), max((r for r in ends if r < k), default=0))


@blas_threads()
def _full(A: Operator, k: int, m: int) -> Eigenpairs:
    """Compute a full decomposition of the operator."""
    if is_cupy(A.like) and A.n > MAX_CUSOLVER_SIZE:
        raise InputError(
            f"solver='full' decomposes at most {MAX_CUSOLVER_SIZE:,} objects on a GPU, got {A.n:,}; "
            "use solver='iterative'"
        )
    xp = array_namespace(A.like)
    a = A.deflated()
    values, vectors = (xp.flip(x, axis=-1) for x in xp.linalg.eigh(a))
    vectors = vectors[:, :m]
    residuals = xp.linalg.vector_norm(a @ vectors - vectors * values[None, :m], axis=0)
    arrays = [values, residuals] + ([] if A.lowest is None else [A.lowest])
    values, residuals, *lowest = to_host(*arrays, reason="eigenvalues")
    if lowest and A.check is not None:
        A.check(float(lowest[0]))
    values = values[: A.n_wanted]
    status = _Status.of(A, k, values[:m], residuals, 0.0)
    return _pairs(A, k, values[:m], vectors, status, n_iter=0)


@own_threads()
def _iterated(A: Operator, k: int, m: int, start: Array | None, tol: float, seed: int) -> Eigenpairs:
    """Solve by LOBPCG: first in the fastest precision, if the tolerance allows it."""
    wide, n_narrow = wide_dtype(A.like), 0
    if A.thin_dtype not in (None, wide) and tol > 0 and A.top is not None:
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                found, is_reliable = _lobpcg(A, k, _start(A, k, m, start, seed, A.thin_dtype), tol)
            if is_reliable:
                return found
            start, n_narrow = found.vectors, found.n_iter
        except OutOfRangeError:
            pass
    found, _ = _lobpcg(A, k, _start(A, k, m, start, seed, wide), tol)
    return dataclasses.replace(found, n_iter=n_narrow + found.n_iter)


def _start(A: Operator, k: int, m: int, start: Array | None, seed: int, dtype: object) -> Array:
    """Return the first X, (n, m): starting vectors, guards of a similar problem, and random ones."""
    xp, given = array_namespace(A.like), []
    if start is not None:
        known = start[:, : min(k, m - 1)], start[:, max(k, start.shape[1] - _n_kept(k, m)) :]
        given = [xp.astype(x, dtype) for x in known]
    n_random = m - sum(x.shape[1] for x in given)
    # Not the caller's generator, whose later draws must not depend on the solver.
    block = np.random.default_rng(seed).standard_normal((A.n, n_random), dtype=np.float32) / A.n**0.5
    return xp.concat([*given, from_host(block, A.like, dtype=dtype)], axis=1)


def _n_kept(k: int, m: int) -> int:
    """Return how many guards a similar problem starts from.

    They are the last ones, which have converged least. Over a few problems they find an eigenvector that the
    starting vectors lack, even if its eigenvalue is small; the random ones find a large one at once.
    """
    return (m - k) // 2


def _lobpcg(A: Operator, k: int, x: Array, tol: float) -> tuple[Eigenpairs, bool]:
    """Return the top k pairs found from X, and whether the precision of X was sufficient."""
    (n, m), A, xp = x.shape, A.astype(x.dtype), array_namespace(x)
    v, av = (xp.empty((n, 3 * m), dtype=x.dtype, device=device_of(x)) for _ in range(2))
    eps, most = float(xp.finfo(x.dtype).eps), MAX_NARROW_PRODUCTS if A.is_narrow else MAX_PRODUCTS
    v[:, :m] = A.orthogonal(x)
    av[:, :m] = A.matmul(v[:, :m])
    end, n_iter = m, 1  # columns of V in use, and products
    while True:
        g, h, f = _grams(A, v[:, :end], av[:, :end], is_first=n_iter == 1)
        values, c = _ritz(g, h, min(m, end), eps)
        found = _advance(A, v, av, c, values)
        residuals, status = _judged(A, k, values, tol, _estimated(c[:, : len(values)], f, values), found)
        active = np.flatnonzero(residuals > status.enough)
        if (status.converged and n_iter >= MIN_PRODUCTS) or len(active) == 0 or n_iter >= most:
            pairs = _pairs(A, k, values, v, status, n_iter)
            return pairs, status.converged and status.reliable
        end, n_iter = c.shape[1] + len(active), n_iter + 1
        _join(A, v, av, c.shape[1], active, found)


def _grams(
    A: Operator, v: Array, av: Array, *, is_first: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return VᵀV and VᵀAV on the host, from a device with (AV)ᵀAV, in one transfer."""
    xp, with_squares, width = array_namespace(v), is_on_device(v), v.shape[1]

    def grams(rows: slice) -> Array:
        block = v[rows, :]
        both = xp.concat([block, av[rows, :]], axis=1)
        return (both if with_squares else block).T @ both

    arrays = [_summed(grams, v)] + ([A.lowest] if is_first and A.lowest is not None else [])
    both, *lowest = to_host(*arrays, reason="products within a space")
    if lowest and A.check is not None:
        A.check(float(lowest[0]))
    if not np.all(np.isfinite(both)):
        raise OutOfRangeError
    both = both.astype(np.float64, copy=False)
    g, h = np.split(both[:width], 2, axis=1)
    return g, (h + h.T) / 2, both[width:, width:] if with_squares else None


def _estimated(y: np.ndarray, f: np.ndarray | None, values: np.ndarray) -> np.ndarray | None:
    """Return the squared residuals ‖AVy − λVy‖² = yᵀ(AV)ᵀAVy − λ², if the products are known."""
    return None if f is None else np.sum(y * (f @ y), axis=0) - values**2


def _judged(
    A: Operator, k: int, values: np.ndarray, tol: float, estimated: np.ndarray | None, found: Array
) -> tuple[np.ndarray, "_Status"]:
    """Return the residuals and the convergence; they are read unless estimates are precise enough for it."""
    if estimated is not None:
        eps, scale = float(array_namespace(found).finfo(found.dtype).eps), A.scale_of(values)
        rough = (ROUGH_SQUARE * eps) ** 0.5 * scale
        residuals = np.sqrt(np.maximum(estimated, rough**2))
        status = _Status.of(A, k, values, residuals, tol)
        if status.enough > rough or status.residual * scale > 2 * rough:
            return residuals, status
    squares = to_host(found[0, :], reason="residuals of eigenvectors")[0].astype(np.float64, copy=False)
    if not np.all(np.isfinite(squares)):
        raise OutOfRangeError
    residuals = np.sqrt(squares)
    return residuals, _Status.of(A, k, values, residuals, tol)


def _ritz(g: np.ndarray, h: np.ndarray, m: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the m largest Ritz values λ, and the coefficients of the new X and P in V.

    T is an orthonormal basis of V without numerically dependent directions. In it the new X is Y, and P is
    the part of the old X, the first m columns of V, orthogonal to Y.
    """
    length = np.sqrt(np.diag(g))
    length[length == 0] = 1.0
    lengths, u = np.linalg.eigh(g / np.outer(length, length))
    some = lengths > eps**0.5
    t = u[:, some] / np.sqrt(lengths[some]) / length[:, None]
    values, y = np.linalg.eigh(t.T @ h @ t)
    values, y = values[::-1][:m], y[:, ::-1][:, :m]
    old = t.T @ g[:, :m]
    p, sizes, _ = np.linalg.svd(old - y @ (y.T @ old), full_matrices=False)
    p = p[:, sizes > 100 * eps]
    p = np.linalg.qr(p - y @ (y.T @ p))[0]  # small differences need orthogonalising again
    return values, t @ np.concatenate([y, p], axis=1)


def _advance(A: Operator, v: Array, av: Array, c: np.ndarray, values: np.ndarray) -> Array:
    """Write the new X, P and R into V, and AX and AP into AV; return the squared norms of R, and CᵀR."""
    xp, n_x, (end, width) = array_namespace(v), len(values), c.shape
    c, values = from_host(c, v, dtype=v.dtype), from_host(values, v, dtype=v.dtype)

    def advance(rows: slice) -> Array:
        x, ax = v[rows, :end] @ c, av[rows, :end] @ c
        r = ax[:, :n_x] - x[:, :n_x] * values
        v[rows, :width], av[rows, :width], v[rows, width : width + n_x] = x, ax, r
        squares = xp.sum(r * r, axis=0)[None, :]
        return squares if A.null is None else xp.concat([squares, A.null[rows, :].T @ r], axis=0)

    return _summed(advance, v)


def _join(A: Operator, v: Array, av: Array, begin: int, active: np.ndarray, found: Array) -> None:
    """Append the active columns of R, scaled to length 1 and orthogonal to C, to X and P; multiply them."""
    xp, end = array_namespace(v), begin + len(active)
    found, index = xp.take(found, from_host(active, v), axis=1), from_host(begin + active, v)
    scales = 1 / xp.sqrt(not_zero(found[0, :]))
    overlaps = found[1:, :] * scales
    sr = xp.empty((A.n, len(active)), dtype=v.dtype, device=device_of(v))

    def join(rows: slice) -> None:
        r = xp.take(v[rows, :], index, axis=1) * scales
        if A.null is not None:
            r = r - A.null[rows, :] @ overlaps
        v[rows, begin:end], sr[rows, :] = r, _rows_of(A.s, rows) * r

    def multiplied(rows: slice) -> None:
        part = _rows_of(A.s, rows) * product[rows, :]
        av[rows, begin:end] = part + _rows_of(A.e, rows) * v[rows, begin:end] if is_array(A.e) else part

    for_each_block(join, row_blocks(v, host_rows=BLOCK_ROWS), v)
    product = A.multiply(sr)
    for_each_block(multiplied, row_blocks(v, host_rows=BLOCK_ROWS), v)


def _rows_of(x: Array, rows: slice) -> Array:
    """Return some rows of a column, or a number unchanged."""
    return x[rows, :] if is_array(x) else x


@dataclasses.dataclass(frozen=True, eq=False)
class _Status:
    """The convergence of the current pairs."""

    tie: float
    residual: float  # of the required pairs, relative to the largest eigenvalue
    enough: float  # the residual at which a pair has converged
    converged: bool
    reliable: bool  # whether the precision allows the tolerance

    @staticmethod
    def of(A: Operator, k: int, values: np.ndarray, residuals: np.ndarray, tol: float) -> "_Status":
        """Check the first k pairs, and those tied with the last.

        Ties need full accuracy: in a symmetric problem, the smallest difference between its halves would
        otherwise affect the result. A value with residual r may rise by about r². In a large graph without
        structure eigenvalues are close by chance, so ties are not considered.
        """
        scale = A.scale_of(values)
        tolerance = A.tolerance * scale
        tie, n = TIE * tolerance, len(values)
        margins = np.maximum(tie, residuals if tol == 0 else TIE * residuals**2 / scale)
        is_small = tol == 0 or A.n <= RESCUE_SIZE
        r = next((r for r in range(k, n) if values[r - 1] - values[r] > margins[r]), n) if is_small else k
        asked = 0.0
        if A.top is not None and r == k:
            asked = tol * (A.top - float(values[min(r, n - 1)]))
        largest, enough = float(residuals[:r].max(initial=0.0)), max(tolerance, asked)
        return _Status(tie, largest / scale, enough, largest <= enough, asked >= tolerance)


def _pairs(
    A: Operator, k: int, values: np.ndarray, vectors: Array, status: _Status, n_iter: int
) -> Eigenpairs:
    """Return the first k pairs and those tied with the last, in wide floats and with fixed signs."""
    xp, r = array_namespace(vectors), _complete(values, k, status.tie, A.n_wanted)
    m = len(values)
    guards = xp.astype(vectors[:, max(r, m - _n_kept(k, m)) : m], wide_dtype(A.like))
    vectors = xp.astype(vectors[:, :r], wide_dtype(A.like))
    weights = from_host(np.random.default_rng(0).standard_normal(A.n), vectors, dtype=vectors.dtype)
    ones = xp.ones(r, dtype=vectors.dtype, device=device_of(vectors))
    vectors *= xp.where((weights @ vectors) < 0, -ones, ones)
    return Eigenpairs(values[:r], vectors, status.residual, n_iter, status.converged, status.tie, guards)


class OutOfRangeError(ArithmeticError):
    """A number overflowed in the precision of the computation."""


def _summed(function: Callable[[slice], Array], like: Array) -> Array:
    """Return the sum of function(rows) over blocks of rows, in order."""
    blocks, found = list(row_blocks(like, host_rows=BLOCK_ROWS)), {}

    def work(rows: slice) -> None:
        found[rows.start] = function(rows)

    for_each_block(work, blocks, like)
    return sum(found[rows.start] for rows in blocks)
