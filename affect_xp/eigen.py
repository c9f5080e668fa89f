"""The largest eigenvalues of a symmetric operator that is known through products with thin matrices.

    A = S (Σᵢ θᵢ Wᵢ) S + diag(e),   S = diag(s)

Small operators are formed and decomposed in full. For large ones a space grows until it holds the
eigenvectors. With a basis V of it,

    H = VᵀAV,   M = VᵀV,   H y = λ M y,   r = A V y − λ V y

are the best pairs to be had from it and their residuals, of which those that are still too large join the
basis. (Without restarts this is the block Lanczos method; but V may start with anything.) V is held as
X = SV beside the products WᵢX, one by one. Thus for other θ, s and e the same space gives other
pairs without any product: the blends of two matrices share one space, whatever their weights.
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
# Pairs followed beyond those asked for: they show where eigenvalues are tied.
MIN_GUARDS = 4
# The basis is made smaller when it has this many times the vectors followed, to this many times.
MAX_DEPTH, MIN_DEPTH = 8, 4
# Products before convergence is believed: vectors to start from may be exact and yet not the largest.
MIN_PRODUCTS = 4
MAX_PRODUCTS = 300
# Eigenvalues closer than this many tolerances are tied.
TIE = 10
# Of vectors this near to each other (as the square of a sine) only one is kept.
ROUNDING = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """A symmetric n×n matrix A = S (Σᵢ θᵢ Wᵢ) S + diag(e), known through WᵢX.

    Attributes
    ----------
    n : int
    like : Array
        An array whose library and device are those of X and WᵢX.
    parts : tuple of functions
        Each returns WᵢX for a thin X, in wide floats.
    weights : tuple of floats or 0-d arrays
        θᵢ
    s, e : (n, 1) arrays, optional
        By default 1 and 0.
    null : (n, c) array, optional
        Orthonormal eigenvectors C that are known, and not wanted among those found.
    null_products : tuple of (n, c) arrays
        WᵢSC
    scale : float
        The size of the eigenvalues, where it is known: residuals are a share of this or of the largest
        eigenvalue found.
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

    @staticmethod
    def of(W: Proximity) -> "Operator":
        """Return a proximity as an operator; thin matrices of a lazy library are kept on the host."""
        like, multiply = host_product(W)
        return Operator(W.n, like, (multiply,))

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

    def without_null(self, v: Array) -> Array:
        """Return V less what the known eigenvectors have in it."""
        return v if self.null is None else v - self.null @ (self.null.T @ v)

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
    if not _array.is_lazy(W.like):
        return W.like, W.matmul
    wide = wide_dtype(W.like)

    def on_host(v: np.ndarray) -> np.ndarray:
        product = W.matmul(_array.from_host(v, W.like, dtype=wide))
        return _array.to_host(product, reason="a product of a lazy proximity")[0]

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
    """

    values: np.ndarray
    vectors: Array
    residual: float
    n_iter: int
    converged: bool
    tie: float = 0.0
    space: "Space | None" = None

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
    >>> from affect_xp.eigen import Operator, top_eigenpairs
    >>> top_eigenpairs(Operator.of(ax.Dense(np.diag([3.0, 7.0, 5.0]))), 2).values
    array([7., 5.])
    """
    check_choice("solver", solver, SOLVERS)
    m = min(k + max(MIN_GUARDS, k // 3), A.n - A.n_known)
    if solver == "full" or (solver == "auto" and A.n <= FULL_SIZE) or A.n < 3 * m:
        return _full(A, k, m)
    found = _iterate(A, k, m, start, accuracy, residual)
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
    xp = array_namespace(A.like)
    a = A.sunk()
    values, vectors = (xp.flip(x, axis=-1) for x in xp.linalg.eigh(a))
    vectors = vectors[:, :m]
    residuals = xp.linalg.vector_norm(a @ vectors - vectors * values[None, :m], axis=0)
    values, residuals = _array.to_host(values, residuals, reason="eigenvalues")
    values = values[: A.n - A.n_known]
    scale, tolerance = max(A.scale, float(np.abs(values).max())), _tolerance(A.like)
    tie = TIE * tolerance * scale
    r = _complete(values[:m], k, tie, A.n - A.n_known)
    residual = _largest(residuals[:r]) / (scale or 1.0)
    return Eigenpairs(values[:r], vectors[:, :r], residual, 0, residual <= tolerance, tie)


def _iterate(
    A: Operator, k: int, m: int, start: "Array | Space | None", accuracy: float, residual: float
) -> Eigenpairs:
    """Let a space grow from `start` and random vectors until it holds the largest pairs."""
    tolerance, n_iter, n_before = _tolerance(A.like), 0, 0
    if isinstance(start, Space):
        basis, n_before = _Basis.reopened(A, start), start.n_products
    else:
        basis, n_iter = _Basis.started(A, k, m, start), 1
    while True:
        ritz = basis.ritz()
        residuals, gram = basis.residuals(ritz, m)
        state = _State.of(A, ritz.values[:m], np.sqrt(np.diag(gram)), k, accuracy, residual)
        trusted = n_before + n_iter >= MIN_PRODUCTS
        joining = _whitening(gram, state.open if trusted else state.open | state.guards)
        if n_iter >= MAX_PRODUCTS or joining.shape[1] == 0 or (trusted and state.converged):
            break
        if basis.width + joining.shape[1] > min(MAX_DEPTH * m, A.n - A.n_known):
            basis = basis.restarted(ritz, MIN_DEPTH * m)
        basis.extend(residuals @ _array.from_host(joining, residuals, dtype=residuals.dtype))
        n_iter += 1
    tie = TIE * tolerance * state.scale
    r = _complete(ritz.values[:m], k, tie, A.n - A.n_known)
    vectors = basis.combined(ritz.coefficients[:, :r])
    space = basis.space(ritz, m, n_before + n_iter)
    return Eigenpairs(ritz.values[:r], vectors, state.residual, n_iter, state.converged, tie, space)


def _largest(residuals: np.ndarray) -> float:
    return float(residuals.max(initial=0.0))


def _whitening(gram: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return coefficients (m, r) that make orthonormal vectors of some of those with this Gram matrix.

    Directions in which they hardly differ are left out.
    """
    index = np.flatnonzero(chosen)
    lengths = np.sqrt(np.diag(gram)[index])
    # What is left of a vector when all but rounding is taken off is not worth having.
    lengths = np.maximum(lengths, ROUNDING * lengths.max(initial=0.0)) + (lengths.max(initial=0.0) == 0)
    values, u = np.linalg.eigh(gram[np.ix_(index, index)] / np.outer(lengths, lengths))
    some = values > ROUNDING
    coefficients = np.zeros((len(gram), int(some.sum())))
    coefficients[index] = u[:, some] / np.sqrt(values[some]) / lengths[:, None]
    return coefficients


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    """How far the pairs that are followed have converged."""

    residuals: np.ndarray  # (m,)
    k: int
    n_needed: int  # k pairs, and those that may be tied with the last of them
    scale: float  # of the eigenvalues
    tolerance: float
    enough: np.ndarray  # the largest residual with which a pair has converged, (m,)

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
        tolerance = _tolerance(A.like) * (scale or 1.0)
        apart = (r for r in range(k, m) if values[r - 1] - values[r] > max(TIE * tolerance, residuals[r]))
        r = k if rough else next(apart, m)
        gaps = values - values[r] - residuals[r] if r == k < m else np.zeros(m)
        enough = np.maximum(max(tolerance, rough * scale), accuracy * gaps)
        return _State(residuals, k, r, scale, tolerance, enough)

    @property
    def guards(self) -> np.ndarray:
        """Which pairs beyond the first k have not converged as far as they can, (m,)."""
        return (self.residuals > self.tolerance) & (np.arange(len(self.residuals)) >= self.k)

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


@dataclasses.dataclass(frozen=True, eq=False)
class _Ritz:
    """The best pairs to be had from a space, on the host."""

    values: np.ndarray  # λ, (p,), largest first
    coefficients: np.ndarray  # y, (p, p)


@dataclasses.dataclass(frozen=True, eq=False)
class Space:
    """A space in which eigenvectors were found, with the products that are known of it."""

    x: tuple[Array, ...]  # X, by blocks of columns
    products: tuple[tuple[Array, ...], ...]  # WᵢX, by blocks
    kept: np.ndarray  # coefficients of the vectors worth keeping, (p, q)
    n_products: int  # by which the space has grown


@dataclasses.dataclass(eq=False)
class _Basis:
    """A basis V of a space that grows, as blocks of X = SV and of the products WᵢX."""

    A: Operator
    x: list[Array] = dataclasses.field(default_factory=list)
    products: list[tuple[Array, ...]] = dataclasses.field(default_factory=list)
    h: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    gram: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))

    @staticmethod
    def started(A: Operator, k: int, m: int, start: Array | None) -> "_Basis":
        """Return a basis of vectors to start from, and random ones."""
        xp, wide = array_namespace(A.like), wide_dtype(A.like)
        # Not the caller's generator: what it draws later must not depend on the solver.
        block = np.random.default_rng(0).standard_normal((A.n, m)) / A.n**0.5
        v = _array.from_host(block, A.like, dtype=wide)
        if start is not None:
            known = A.without_null(xp.astype(start[:, :k], wide))
            # Where vectors depend on each other, or are zero, random ones take their place.
            span = _whitening(_read(known.T @ known, "vectors to start from"), np.full(known.shape[1], True))
            v = xp.concat([known @ _array.from_host(span, v, dtype=wide), v[:, span.shape[1] :]], axis=1)
        basis = _Basis(A)
        basis.extend(v)
        return basis

    @staticmethod
    def reopened(A: Operator, space: Space) -> "_Basis":
        """Return the basis of a space found for an operator with the same parts, or the first of them."""
        x = _combine(space.x, space.kept)
        shared = tuple(zip(*space.products, strict=True))[: len(A.parts)]
        products = tuple(_combine(blocks, space.kept) for blocks in shared)
        products += tuple(part(x) for part in A.parts[len(shared) :])
        v = x / A.s
        if A.null is not None:
            along = A.null.T @ v  # (c, q)
            v, x = v - A.null @ along, x - A.s * (A.null @ along)
            products = tuple(p - c @ along for p, c in zip(products, A.null_products, strict=True))
        basis = _Basis(A)
        basis._append(v, x, products)
        return basis

    @property
    def width(self) -> int:
        """The number p of vectors."""
        return len(self.h)

    def extend(self, v: Array) -> None:
        """Take some more vectors into the basis, and multiply them."""
        v = self.A.without_null(v)
        x = self.A.s * v
        self._append(v, x, self.A.products(x))

    def _append(self, v: Array, x: Array, products: tuple[Array, ...]) -> None:
        A, xp, r = self.A, array_namespace(v), v.shape[1]
        self.x.append(x)
        self.products.append(products)
        # VᵀAV' = Xᵀ (AV' / s) and VᵀV' = Xᵀ (V' / s)
        both = xp.concat([A.combined(v, products), v], axis=1) / A.s
        read = _read(xp.concat([block.T @ both for block in self.x], axis=0), "products within a space")
        self.h, self.gram = _bordered(self.h, read[:, :r]), _bordered(self.gram, read[:, r:])

    def ritz(self) -> _Ritz:
        """Solve the small problem; directions that are there already but for rounding are left out."""
        t = _whitening(self.gram, np.full(self.width, fill_value=True))
        values, y = np.linalg.eigh(t.T @ self.h @ t)
        return _Ritz(values[::-1], (t @ y)[:, ::-1])

    def residuals(self, ritz: _Ritz, m: int) -> tuple[Array, np.ndarray]:
        """Return the residuals of the first m pairs, (n, m), and their products with each other, (m, m)."""
        A, y = self.A, ritz.coefficients[:, :m]
        v = self.combined(y)
        products = tuple(_combine(blocks, y) for blocks in zip(*self.products, strict=True))
        values = _array.from_host(ritz.values[:m], v, dtype=v.dtype)
        r = A.combined(v, products) - v * values
        return r, _read(r.T @ r, "residuals of eigenvectors")

    def restarted(self, ritz: _Ritz, kept: int) -> "_Basis":
        """Return the basis of the best vectors."""
        y = ritz.coefficients[:, :kept]
        x = _combine(self.x, y)
        products = tuple(_combine(blocks, y) for blocks in zip(*self.products, strict=True))
        return _Basis(self.A, [x], [products], np.diag(ritz.values[:kept]), np.eye(y.shape[1]))

    def combined(self, coefficients: np.ndarray) -> Array:
        """Return the vectors Vy."""
        return _combine(self.x, coefficients) / self.A.s

    def space(self, ritz: _Ritz, m: int, n_products: int) -> Space:
        """Return the space of the m best vectors, and of those it began with."""
        first = np.eye(self.width)[:, : min(m, self.x[0].shape[1])]
        coefficients = np.concatenate([ritz.coefficients[:, :m], first], axis=1)
        return Space(tuple(self.x), tuple(self.products), coefficients, n_products)


def _read(x: Array, reason: str) -> np.ndarray:
    """Return a small matrix on the host, in the precision there."""
    return _array.to_host(x, reason=reason)[0].astype(np.float64, copy=False)


def _bordered(a: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix with more columns, and the rows that follow from them."""
    above, corner = columns[: len(a)], columns[len(a) :]
    return np.block([[a, above], [above.T, (corner + corner.T) / 2]])


def _combine(blocks: "tuple[Array, ...] | list[Array]", coefficients: np.ndarray) -> Array:
    """Return Xy for an X given by blocks of columns."""
    y = _array.from_host(coefficients, blocks[0], dtype=blocks[0].dtype)
    total, end = None, 0
    for block in blocks:
        begin, end = end, end + block.shape[1]
        part = block @ y[begin:end, :]
        if total is None:
            total = part
        else:
            total += part
    return total
