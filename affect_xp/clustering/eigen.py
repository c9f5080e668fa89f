"""The largest eigenvalues of a symmetric operator that is known through products with thin matrices.

    A = S (Σᵢ θᵢ Wᵢ) S + diag(e),   S = diag(s)

Small operators are formed and decomposed in full. For large ones a space grows until it holds the
eigenvectors. With a basis V of it,

    H = VᵀAV,   M = VᵀV,   H y = λ M y,   r = A V y − λ V y

are the best pairs to be had from it and their residuals, of which those that are still too large join the
basis. (Without restarts this is the block Lanczos method; but V may start with anything.) V is held as
X = SV beside the products WᵢX, one by one (`_krylov`). Thus for other θ, s and e the same space gives other
pairs without any product: the blends of two matrices share one space, whatever their weights.

Where products are faster in float32 and half the digits are enough, the space grows in float32 first. What
cannot be told in that precision, eigenvalues that are nearly tied above all, is settled in the wide one.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    from_host,
    is_array,
    is_lazy,
    to_host,
    wide_dtype,
)
from affect_xp.array.threads import blas_threads, own_threads
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.clustering._krylov import Basis, OutOfRangeError, Space, whitening
from affect_xp.exceptions import InputError
from affect_xp.proximity import Proximity

SOLVERS = ("auto", "full", "iterative")
# Up to this size a full decomposition is quicker than, or about as quick as, the iteration.
FULL_SIZE = 400
# Up to this size "auto" decomposes in full what the iteration could not solve.
RESCUE_SIZE = 3000
# Pairs followed beyond those asked for, at least: they show where eigenvalues are tied.
MIN_GUARDS = 4
LANES = 8
# The basis is made smaller when it has this many times the vectors followed, to this many times.
MAX_DEPTH, MIN_DEPTH = 8, 4
# Products before convergence is believed: vectors to start from may be exact and yet not the largest.
MIN_PRODUCTS = 4
MAX_PRODUCTS = 300
# The same before a precision that is not the widest is given up.
MAX_NARROW_PRODUCTS = 40
# Eigenvalues closer than this many tolerances are tied.
TIE = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric n×n matrix A = S (Σᵢ θᵢ Wᵢ) S + diag(e), known through WᵢX.

    Attributes
    ----------
    n : int
    like : Array
        An array whose library and device are those of X and WᵢX.
    parts : tuple of functions
        Each returns WᵢX for a thin X, in its dtype.
    weights : tuple of floats or 0-d arrays
        θᵢ
    s, e : (n, 1) arrays, optional
        By default 1 and 0. s may be another number.
    null : (n, c) array, optional
        Orthonormal eigenvectors C that are known, and not wanted among those found.
    null_products : tuple of (n, c) arrays
        WᵢSC
    scale : float
        The size of the eigenvalues, where it is known: residuals are a share of this or of the largest
        eigenvalue found.
    thin_dtype : dtype, optional
        The one in which products are fastest, if not in wide floats.
    narrow : bool
        Whether X is of that dtype.
    """

    n: int
    like: Array
    parts: tuple[Callable[[Array], Array], ...]
    weights: tuple[Array | float, ...] = (1.0,)
    s: Array | float = 1.0
    e: Array | float = 0.0
    null: Array | None = None
    null_products: tuple[Array, ...] = ()
    scale: float = 0.0
    thin_dtype: object = None
    narrow: bool = False

    @staticmethod
    def of(W: Proximity) -> "Operator":
        """Return a proximity as an operator; thin matrices of a lazy library are kept on the host."""
        like, multiply = host_product(W)
        thin_dtype = None if is_lazy(W.like) else W.thin_dtype
        return Operator(W.n, like, (multiply,), thin_dtype=thin_dtype)

    @property
    def dtype(self) -> object:
        """The dtype of X."""
        return self.thin_dtype if self.narrow else wide_dtype(self.like)

    @property
    def tolerance(self) -> float:
        """The residual, as a share of the largest eigenvalue, that counts as converged."""
        eps = float(array_namespace(self.like).finfo(self.dtype).eps)
        return 32 * eps if self.narrow else eps**0.5

    @property
    def rounding(self) -> float:
        """Of vectors this near to each other (as the square of a sine) only one is worth keeping."""
        return 1e-5 if self.narrow else 1e-8

    def narrowed(self) -> "Operator":
        """Return the same operator on thin matrices of `thin_dtype`."""
        xp = array_namespace(self.like)

        def cast(x: Array) -> Array:
            return xp.astype(x, self.thin_dtype) if is_array(x) else x

        return dataclasses.replace(
            self,
            weights=tuple(map(cast, self.weights)),
            s=cast(self.s),
            e=cast(self.e),
            null=cast(self.null),
            null_products=tuple(map(cast, self.null_products)),
            narrow=True,
        )

    @functools.cached_property
    def measures(self) -> tuple[Array | float, ...]:
        """1/s², and e/s² where e is an array: with X = SV they make VᵀV and VᵀeV of XᵀX."""
        metric = 1 / (self.s * self.s)
        return (metric, self.e * metric) if is_array(self.e) else (metric,)

    @property
    def n_known(self) -> int:
        """The number of eigenvectors that are known."""
        return 0 if self.null is None else self.null.shape[1]

    def combined(self, v: Array, products: tuple[Array, ...]) -> Array:
        """Return A·V, given V and the products Wᵢ·SV."""
        total = self.weights[0] * products[0]
        for weight, product in zip(self.weights[1:], products[1:], strict=True):
            total = total + weight * product
        return self.s * total + self.e * v

    def products(self, x: Array) -> tuple[Array, ...]:
        """Return WᵢX."""
        return tuple(part(x) for part in self.parts)

    def sunk(self) -> Array:
        """Return A − h CCᵀ as an array, with the known eigenvectors below all others."""
        xp = array_namespace(self.like)
        eye = xp.eye(self.n, dtype=wide_dtype(self.like), device=device_of(self.like))
        a = self.combined(eye, self.products(self.s * eye))
        if self.null is not None:
            # No eigenvalue is larger than the largest sum of magnitudes in a row.
            h = 3 * xp.max(xp.sum(xp.abs(a), axis=1))
            a = a - h * (self.null @ self.null.T)
        return (a + a.T) / 2


def host_product(W: Proximity) -> tuple[Array, Callable[[Array], Array]]:
    """Return an array to work like, and X ↦ WX: both on the host for a lazy library."""
    if not is_lazy(W.like):
        return W.like, W.matmul
    wide = wide_dtype(W.like)

    def on_host(v: np.ndarray) -> np.ndarray:
        product = W.matmul(from_host(v, W.like, dtype=wide))
        return to_host(product, reason="a product of a lazy proximity")[0]

    return np.zeros(1), on_host


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
    space : Space or None
        The space they were found in, for similar problems.
    grown : bool
        Whether they were found by iteration.
    """

    values: np.ndarray
    vectors: Array
    residual: float
    n_iter: int
    converged: bool
    tie: float = 0.0
    space: "Space | None" = None
    grown: bool = False

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
    start: "Array | Space | None" = None,
    accuracy: float = 0.0,
    residual: float = 0.0,
) -> Eigenpairs:
    """Return the eigenpairs of the k largest eigenvalues, as a space that does not depend on chance.

    Where the eigenvalue k is tied with the next ones, k eigenvectors are an arbitrary choice. Then those
    tied with it are returned as well, or, if they are too many to be seen, none of that value: the
    number r of pairs may differ from k. Their span is a function of A alone.

    Parameters
    ----------
    A : Operator
    k : int
        From 1 to n less the number of known eigenvectors.
    solver : "auto", "full", "iterative"
        A full decomposition takes memory for n² numbers. The iteration uses products alone, waits for
        the device twice for each, and falls back to the full one where n is not much larger than k.
    start : (n, r) array or Space, optional
        Guesses of eigenvectors; rows of zeros stand for objects of which nothing is known. Or the `space`
        of an operator with the same parts.
    accuracy : float
        The iteration may end when the sine of the angle between the space found and that of the
        eigenvectors is at most this. With 0 it goes on to about half the digits in every residual.
    residual : float
        The iteration may end as well when every residual is at most this share of the largest eigenvalue,
        whatever the angle: of eigenvectors whose values are close, mixtures will do.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.clustering.eigen import Operator, top_eigenpairs
    >>> top_eigenpairs(Operator.of(ax.Dense(np.diag([3.0, 7.0, 5.0]))), 2).values
    array([7., 5.])
    """
    check_choice("solver", solver, SOLVERS)
    m = k + max(MIN_GUARDS, k // 3)
    if solver == "full" or (solver == "auto" and A.n <= FULL_SIZE) or A.n < 3 * m:
        return _full(A, k, min(m, A.n - A.n_known))
    # As many as fill the lanes of a processor: a product with fewer vectors takes as long.
    m = min(-(-m // LANES) * LANES, A.n - A.n_known)
    try:
        found = _grown(A, k, m, start, accuracy, residual)
    except OutOfRangeError as error:
        raise InputError(
            "the proximities in W are too large or too small to find eigenvectors: sums of their squares "
            "leave the range of numbers; divide W by its largest entry"
        ) from error
    if solver == "auto" and not found.converged and A.n <= RESCUE_SIZE:
        return _full(A, k, m)
    return found


def _complete(values: np.ndarray, k: int, tie: float, n_available: int) -> int:
    """Return how many of the values, largest first, to keep so that none of them is tied with one left out.

    The smallest such number from k on; if ties go on to the end of the values, the largest below k.
    """
    ends = [r for r in range(1, len(values)) if values[r - 1] - values[r] > tie]
    if len(values) == n_available:
        ends.append(n_available)
    return next((r for r in ends if r >= k), max((r for r in ends if r < k), default=0))


@blas_threads()
def _full(A: Operator, k: int, m: int) -> Eigenpairs:
    """Decompose the operator in full."""
    xp = array_namespace(A.like)
    a = A.sunk()
    values, vectors = (xp.flip(x, axis=-1) for x in xp.linalg.eigh(a))
    vectors = vectors[:, :m]
    residuals = xp.linalg.vector_norm(a @ vectors - vectors * values[None, :m], axis=0)
    values, residuals = to_host(values, residuals, reason="eigenvalues")
    values = values[: A.n - A.n_known]
    scale, tolerance = max(A.scale, float(np.abs(values).max())), A.tolerance
    tie = TIE * tolerance * scale
    r = _complete(values[:m], k, tie, A.n - A.n_known)
    residual = _largest(residuals[:r]) / (scale or 1.0)
    return Eigenpairs(values[:r], vectors[:, :r], residual, 0, residual <= tolerance, tie)


@own_threads()
def _grown(
    A: Operator, k: int, m: int, start: "Array | Space | None", accuracy: float, residual: float
) -> Eigenpairs:
    """Find the largest pairs in a space that grows: in the fastest precision, if that is enough."""
    wide = wide_dtype(A.like)
    if A.thin_dtype in (None, wide) or max(accuracy, residual) == 0 or _is_wide(start, wide):
        return _iterate(A, k, m, start, accuracy, residual)[0]
    n_iter = 0
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found, reliable = _iterate(A.narrowed(), k, m, start, accuracy, residual)
        if not reliable:
            assert found.space is not None
            start, n_iter = found.space.widened(A), found.n_iter
    except OutOfRangeError:
        reliable, start = False, None if isinstance(start, Space) else start
    if not reliable:
        found, _ = _iterate(A, k, m, start, accuracy, residual)
    vectors = array_namespace(A.like).astype(found.vectors, wide, copy=False)
    return dataclasses.replace(found, vectors=vectors, n_iter=n_iter + found.n_iter)


def _is_wide(start: "Array | Space | None", wide: object) -> bool:
    """Tell whether this is a space that was needed in wide floats before."""
    return isinstance(start, Space) and bool(start.dtype == wide)


def _iterate(
    A: Operator, k: int, m: int, start: "Array | Space | None", accuracy: float, residual: float
) -> tuple[Eigenpairs, bool]:
    """Let a space grow from `start` and random vectors; tell whether its precision is enough."""
    n_iter, n_before = 0, 0
    if isinstance(start, Space):
        basis, n_before = Basis.reopened(A, start), start.n_products
    else:
        basis, n_iter = Basis.started(A, k, m, start), 1
    while True:
        ritz = basis.ritz()
        residuals, gram = basis.residuals(ritz, m)
        state = _State.of(A, ritz.values[:m], np.sqrt(np.maximum(np.diag(gram), 0)), k, accuracy, residual)
        trusted = n_before + n_iter >= MIN_PRODUCTS
        # A product of a dense matrix with all of them takes hardly longer than with those that are needed.
        joining = whitening(gram, state.residuals > state.tolerance, A.rounding)
        most = MAX_NARROW_PRODUCTS if A.narrow else MAX_PRODUCTS
        if n_iter >= most or joining.shape[1] == 0 or (trusted and state.converged):
            break
        if basis.width + joining.shape[1] > min(MAX_DEPTH * m, A.n - A.n_known):
            basis = basis.restarted(ritz, MIN_DEPTH * m)
        basis.extend(residuals @ from_host(joining, residuals, dtype=residuals.dtype))
        n_iter += 1
    tie = TIE * A.tolerance * state.scale
    r = _complete(ritz.values[:m], k, tie, A.n - A.n_known)
    vectors = basis.combined(ritz.coefficients[:, :r])
    space = basis.space(ritz, m, n_before + n_iter)
    found = Eigenpairs(ritz.values[:r], vectors, state.residual, n_iter, state.converged, tie, space, True)
    return found, state.converged and state.within_reach


def _largest(residuals: np.ndarray) -> float:
    return float(residuals.max(initial=0.0))


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """How far the pairs that are followed have converged."""

    residuals: np.ndarray  # (m,)
    n_needed: int  # k pairs, and those that may be tied with the last of them
    scale: float  # of the eigenvalues
    tolerance: float
    enough: np.ndarray  # the largest residual with which a pair has converged, (m,)
    within_reach: bool  # whether the precision allows for what was asked for

    @staticmethod
    def of(
        A: Operator, values: np.ndarray, residuals: np.ndarray, k: int, accuracy: float, rough: float
    ) -> "_State":
        """Judge the m pairs that are followed.

        The angle between a vector and the space sought is at most ‖r‖ / gap, with the gap between its
        eigenvalue and the first one outside. Ties call for full accuracy: where a problem is symmetric,
        the least difference between its halves would seem to mean something.
        """
        m, scale = len(values), max(A.scale, float(np.abs(values).max()))
        tolerance = A.tolerance * (scale or 1.0)
        apart = (r for r in range(k, m) if values[r - 1] - values[r] > max(TIE * tolerance, residuals[r]))
        r = k if rough else next(apart, m)
        gaps = values - values[r] - residuals[r] if r == k < m else np.zeros(m)
        asked = np.maximum(rough * scale, accuracy * gaps)
        within_reach = r == k and float(asked[:k].min()) >= tolerance
        return _State(residuals, r, scale, tolerance, np.maximum(tolerance, asked), within_reach)

    @property
    def open(self) -> np.ndarray:
        """Which pairs are needed and have not converged, (m,)."""
        return (self.residuals > self.enough) & (np.arange(len(self.residuals)) < self.n_needed)

    @property
    def converged(self) -> bool:
        """Whether all pairs needed have converged."""
        return not np.any(self.open)

    @property
    def residual(self) -> float:
        """The largest residual of a pair that is needed, as a share of the largest eigenvalue."""
        return _largest(self.residuals[: self.n_needed]) / (self.scale or 1.0)
