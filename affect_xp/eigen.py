"""The largest eigenvalues of a symmetric operator A that is known through products with thin matrices.

Small operators are formed and decomposed in full. Large ones are left to a block Lanczos iteration with
full orthogonalisation and thick restarts: with an orthonormal basis Q = [Q₁ ... Q_j] of blocks of width m,

    A Q = Q H + Q_{j+1} B Eⱼᵀ,   H s = θ s,   ‖A (Qs) − θ (Qs)‖ = ‖B (last m entries of s)‖

so that each product A·Q_j is used in full, the residuals are known without another one, and all that the
host needs is the small matrix H. When the basis is full, the best half of the Ritz vectors Qs replaces it.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from affect_xp import _array
from affect_xp._array import array_namespace, device_of, wide_dtype
from affect_xp._typing import Array
from affect_xp._validation import check_choice
from affect_xp.proximity import Proximity

SOLVERS = ("auto", "full", "iterative")
# Up to this size a full decomposition is quicker than, or about as quick as, the iteration.
FULL_SIZE = 400
# Up to this size "auto" decomposes in full what the iteration could not solve.
RESCUE_SIZE = 3000
# Vectors iterated beyond those asked for: they speed up convergence and show where eigenvalues are tied.
MIN_GUARDS = 4
# Blocks in the basis of the iteration when it restarts, with half as many.
DEPTH = 8
# Products before convergence is believed: vectors to start from may be exact and yet not the largest.
MIN_PRODUCTS = 4
MAX_PRODUCTS = 300
# Eigenvalues closer than this many tolerances are tied.
TIE = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric n×n matrix A, known through A·V.

    Attributes
    ----------
    n : int
    like : Array
        An array whose library and device are those of V and A·V.
    matmul : function
        Returns A·V for a thin V, in wide floats.
    n_sunk : int
        The dimension of a known eigenspace that has been moved below all other eigenvalues.
    """

    n: int
    like: Array
    matmul: Callable[[Array], Array]
    n_sunk: int = 0

    @staticmethod
    def of(W: Proximity) -> "Operator":
        """Return a proximity as an operator; thin matrices of a lazy library are kept on the host."""
        if not _array.is_lazy(W.like):
            return Operator(W.n, W.like, W.matmul)
        wide = wide_dtype(W.like)

        def matmul(v: np.ndarray) -> np.ndarray:
            product = W.matmul(_array.from_host(v, W.like, dtype=wide))
            return _array.to_host(product, reason="a product of a lazy proximity")[0]

        return Operator(W.n, np.zeros(1), matmul)


@dataclasses.dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Eigenvalues, largest first, and their eigenvectors.

    Attributes
    ----------
    values : (r,) NumPy array
    vectors : (n, r) array, orthonormal
    residual : float
        The largest ‖Av − λv‖ among them, as a share of the largest eigenvalue found.
    n_iter : int
        The number of products A·V; 0 for a full decomposition.
    converged : bool
        Whether the residual is as small as was asked for.
    tie : float
        Eigenvalues that differ by no more than this are tied.
    """

    values: np.ndarray
    vectors: Array
    residual: float
    n_iter: int
    converged: bool
    tie: float = 0.0

    def leading(self, k: int) -> "Eigenpairs":
        """Return the first k pairs, and those tied with the last of them."""
        gaps = np.abs(np.diff(self.values)) > self.tie
        ends = [*(np.flatnonzero(gaps) + 1).tolist(), len(self.values)]
        r = next((r for r in ends if r >= k), len(self.values))
        return dataclasses.replace(self, values=self.values[:r], vectors=self.vectors[:, :r])


def top_eigenpairs(A: Operator, k: int, *, solver: str = "auto", start: Array | None = None) -> Eigenpairs:
    """Return the eigenpairs of the k largest eigenvalues, as a space that does not depend on chance.

    Where the eigenvalue k is tied with the next ones, k eigenvectors are an arbitrary choice. Then those
    tied with it are returned as well, or, if they are too many to be seen, none of that value: the
    number r of pairs may differ from k. Their span is a function of A alone.

    Parameters
    ----------
    A : Operator
    k : int
        From 1 to n less the dimension sunk.
    solver : "auto", "full", "iterative"
        A full decomposition takes memory for n² numbers. The iteration uses products alone, waits for
        the device once for each, and falls back to the full one where n is not much larger than k.
    start : (n, r) array, optional
        Guesses of eigenvectors; rows of zeros stand for objects of which nothing is known.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.eigen import Operator, top_eigenpairs
    >>> top_eigenpairs(Operator.of(ax.Dense(np.diag([3.0, 7.0, 5.0]))), 2).values
    array([7., 5.])
    """
    check_choice("solver", solver, SOLVERS)
    m = min(k + max(MIN_GUARDS, k // 3), A.n - A.n_sunk)
    if solver == "full" or (solver == "auto" and A.n <= FULL_SIZE) or A.n < 3 * m:
        return _full(A, k, m)
    found = _iterate(A, k, m, start)
    if solver == "auto" and not found.converged and A.n <= RESCUE_SIZE:
        return _full(A, k, m)
    return found


def _tolerance(like: Array) -> float:
    """Return the residual, as a share of the largest eigenvalue, that counts as converged."""
    return float(array_namespace(like).finfo(wide_dtype(like)).eps) ** 0.5


def _complete(values: np.ndarray, k: int, tie: float, n_available: int) -> int:
    """Return how many of the values, largest first, to keep so that none of them is tied with one left out.

    The smallest such number from k on; if ties go on to the end of the values, the largest below k.
    """
    ends = [r for r in range(1, len(values)) if values[r - 1] - values[r] > tie]
    if len(values) == n_available:
        ends.append(n_available)
    return next((r for r in ends if r >= k), max((r for r in ends if r < k), default=0))


def _full(A: Operator, k: int, m: int) -> Eigenpairs:
    """Decompose the operator in full."""
    xp, wide = array_namespace(A.like), wide_dtype(A.like)
    a = A.matmul(xp.eye(A.n, dtype=wide, device=device_of(A.like)))
    values, vectors = (xp.flip(x, axis=-1) for x in xp.linalg.eigh((a + a.T) / 2))
    vectors = vectors[:, :m]
    residuals = xp.linalg.vector_norm(a @ vectors - vectors * values[None, :m], axis=0)
    values, residuals = _array.to_host(values, residuals, reason="eigenvalues")
    scale, tolerance = float(np.abs(values).max()), _tolerance(A.like)
    tie = TIE * tolerance * scale
    r = _complete(values[:m], k, tie, A.n - A.n_sunk)
    residual = _largest(residuals[:r]) / (scale or 1.0)
    return Eigenpairs(values[:r], vectors[:, :r], residual, 0, residual <= tolerance, tie)


def _iterate(A: Operator, k: int, m: int, start: Array | None) -> Eigenpairs:
    """Iterate from `start` and random vectors until the largest pairs have converged."""
    tolerance, depth = _tolerance(A.like), min(DEPTH, A.n // m - 1)
    basis, ritz = _Basis.start(A, m, start if start is None else start[:, :k]).multiplied(A, 1)
    n_iter, residual = 1, ritz.residual(k, tolerance)
    while n_iter < MIN_PRODUCTS or (n_iter < MAX_PRODUCTS and residual > tolerance):
        full = basis.width >= depth * m
        basis = basis.restarted(ritz, depth // 2 * m) if full else basis.extended()
        n_iter += 1
        basis, ritz = basis.multiplied(A, n_iter)
        residual = ritz.residual(k, tolerance)
    tie = TIE * tolerance * ritz.scale
    r = _complete(ritz.values[:m], k, tie, A.n - A.n_sunk)
    vectors = basis.combined(ritz.coefficients[:, :r])
    return Eigenpairs(ritz.values[:r], vectors, residual, n_iter, residual <= tolerance, tie)


def _largest(residuals: np.ndarray) -> float:
    return float(residuals.max(initial=0.0))


@dataclasses.dataclass(frozen=True, eq=False)
class _Ritz:
    """Eigenpairs of H, on the host: what is known of those of A."""

    values: np.ndarray  # θ, (p,), largest first
    coefficients: np.ndarray  # s, (p, p)
    residuals: np.ndarray  # (m,)

    @property
    def scale(self) -> float:
        """The largest eigenvalue found, by magnitude."""
        return float(np.abs(self.values).max())

    def residual(self, k: int, tolerance: float) -> float:
        """Return the largest residual among k pairs and those that may be tied with the last of them."""
        m, values, tie = len(self.residuals), self.values, TIE * tolerance * self.scale
        apart = (r for r in range(k, m) if values[r - 1] - values[r] > max(tie, self.residuals[r]))
        return _largest(self.residuals[: next(apart, m)]) / (self.scale or 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class _Basis:
    """An orthonormal basis Q of blocks of m vectors, H = QᵀAQ as far as known, and the next block."""

    q: Array  # Q, (n, p)
    h: np.ndarray  # H, (p - m, p - m) before a product with the last block, (p, p) after it
    spare: Array  # random directions, (n, m), for when the products bring nothing new
    following: Array = None  # Q_{j+1}, (n, m)

    @staticmethod
    def start(A: Operator, m: int, start: Array | None) -> "_Basis":
        """Return a basis of one block: vectors to start from, and random ones."""
        xp, wide = array_namespace(A.like), wide_dtype(A.like)
        # Not the caller's generator: what it draws later must not depend on the solver.
        draws = np.random.default_rng(0).standard_normal((2, A.n, m)) / A.n**0.5
        block, spare = (_array.from_host(d, A.like, dtype=wide) for d in draws)
        if start is not None:
            block = xp.concat([xp.astype(start, wide), block[:, start.shape[1] :]], axis=1)
        return _Basis(xp.linalg.qr(block).Q, np.zeros((0, 0)), spare)

    @property
    def width(self) -> int:
        """The number p of vectors."""
        return self.q.shape[1]

    def multiplied(self, A: Operator, n_iter: int) -> "tuple[_Basis, _Ritz]":
        """Multiply A with the last block and solve the small problem on the host."""
        q, m = self.q, self.spare.shape[1]
        xp = array_namespace(q)
        product = A.matmul(q[:, -m:])
        scale = xp.max(xp.linalg.vector_norm(product, axis=0))
        h = q.T @ product
        rest = product - q @ h
        correction = q.T @ rest
        rest = rest - q @ correction
        # Where the rest vanishes, a block that is orthogonal to Q is still needed: let a random one in
        # at the level of rounding. The basis need not be a Krylov basis for the Ritz pairs to be right.
        noise = float(xp.finfo(q.dtype).eps) * xp.where(scale > 0, scale, xp.ones_like(scale))
        following = _orthonormal(rest + noise * xp.roll(self.spare, n_iter, axis=0), q)
        column, b = _array.to_host(h + correction, following.T @ rest, reason="eigenvalues of a Krylov space")
        grown = np.block([[self.h, column[:-m]], [column[:-m].T, (column[-m:] + column[-m:].T) / 2]])
        values, s = np.linalg.eigh(grown)
        values, s = values[::-1], s[:, ::-1]
        residuals = np.linalg.norm(b @ s[-m:, :m], axis=0)
        return _Basis(q, grown, self.spare, following), _Ritz(values, s, residuals)

    def extended(self) -> "_Basis":
        """Return the basis with one block more."""
        q = array_namespace(self.q).concat([self.q, self.following], axis=1)
        return dataclasses.replace(self, q=q, following=None)

    def restarted(self, ritz: _Ritz, kept: int) -> "_Basis":
        """Return the basis of the best Ritz vectors and one block more."""
        q = self.combined(ritz.coefficients[:, :kept])
        return dataclasses.replace(self, q=q, h=np.diag(ritz.values[:kept])).extended()

    def combined(self, coefficients: np.ndarray) -> Array:
        """Return the vectors Qs."""
        return self.q @ _array.from_host(coefficients, self.q, dtype=self.q.dtype)


def _orthonormal(block: Array, q: Array) -> Array:
    """Return an orthonormal basis of the block that is orthogonal to Q, as the block nearly is.

    The second pass is for columns that depend on each other: what is left of them is rounding, which
    points anywhere.
    """
    qr = array_namespace(block).linalg.qr
    block = qr(block).Q
    return qr(block - q @ (q.T @ block)).Q
