"""The space in which eigenvectors are sought: a basis V that grows, and what is known of it.

V is held as X = SV beside the products WᵢX, by blocks of columns. Whatever is made of it is made a block of
rows at a time, in one pass over all of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    for_each_block,
    from_host,
    is_array,
    thin_product,
    to_host,
)
from affect_xp.array.typing import Array

if TYPE_CHECKING:
    from affect_xp.clustering.eigen import Operator

Blocks = Sequence[Array]  # a thin matrix by blocks of columns

REASON = "products within a space"
# Rows of thin matrices that are worth a thread; on a device all rows are one block.
BLOCK_ROWS = 2**14


@dataclasses.dataclass(frozen=True, eq=False)
class Ritz:
    """The best pairs to be had from a space, on the host."""

    values: np.ndarray  # λ, (p,), largest first
    coefficients: np.ndarray  # y, (p, p)


@dataclasses.dataclass(frozen=True, eq=False)
class Space:
    """A space in which eigenvectors were found, with what is known of it for all θ, s and e."""

    x: tuple[Array, ...]  # X, by blocks of columns
    products: tuple[tuple[Array, ...], ...]  # WᵢX, by blocks
    within: tuple[np.ndarray, ...]  # XᵀWᵢX, (p, p)
    kept: np.ndarray  # coefficients of the vectors most worth keeping, (p, q)
    n_products: int = 0  # by which the space has grown

    @property
    def dtype(self) -> object:
        """The precision of X."""
        return self.x[0].dtype

    def reduced(self) -> "Space":
        """Return the space of the vectors most worth keeping."""
        y = self.kept
        products = tuple(_combined(blocks, y) for blocks in zip(*self.products, strict=True))
        within = tuple(y.T @ g @ y for g in self.within)
        return Space((_combined(self.x, y),), (products,), within, np.eye(y.shape[1]), self.n_products)

    def widened(self, A: "Operator") -> "Space":
        """Return the space of the vectors most worth keeping in the precision of A, without any product."""
        x = array_namespace(A.like).astype(_combined(self.x, self.kept), A.dtype)
        return Space((x,), ((),), (), np.eye(x.shape[1]), self.n_products)

    def completed(self, A: "Operator") -> "Space":
        """Return the space with the products of all parts of A; a smaller one if some were missing."""
        n_known, n_parts = len(self.within), len(A.parts)
        if n_known >= n_parts:
            products = tuple(block[:n_parts] for block in self.products)
            return dataclasses.replace(self, products=products, within=self.within[:n_parts])
        small = self.reduced() if n_known else self
        (x,), (products,) = small.x, small.products
        more = tuple(part(x) for part in A.parts[n_known:])
        found = read(_inner([x], lambda rows: [product[rows, :] for product in more]), REASON)
        within = small.within + tuple(map(_symmetric, np.split(found, len(more), axis=1)))
        return dataclasses.replace(small, products=((*products, *more),), within=within)


@dataclasses.dataclass(eq=False)
class Basis:
    """A basis V of a space that grows, as blocks of X = SV and of the products WᵢX.

    Known eigenvectors C stand in it: others are made orthogonal to them by the choice of coefficients.
    """

    A: "Operator"
    x: list[Array]
    products: list[tuple[Array, ...]]
    within: list[np.ndarray]  # XᵀWᵢX of all parts, VᵀV, and VᵀeV where e is an array, (p, p)
    known: slice = dataclasses.field(default_factory=lambda: slice(0, 0))  # where C stands
    theta: list[float] = dataclasses.field(default_factory=list)  # θᵢ, on the host

    @staticmethod
    def started(A: "Operator", k: int, m: int, start: Array | None) -> "Basis":
        """Return a basis of vectors to start from, and random ones."""
        xp = array_namespace(A.like)
        # Not the caller's generator: what it draws later must not depend on the solver.
        block = np.random.default_rng(0).standard_normal((A.n, m), dtype=np.float32) / A.n**0.5
        v = from_host(block, A.like, dtype=A.dtype)
        if start is not None:
            given = xp.astype(start[:, :k], A.dtype)
            # Where vectors depend on each other, or are zero, random ones take their place.
            gram = read(given.T @ given, "vectors to start from")
            span = whitening(gram, np.full(given.shape[1], True), A.rounding)
            v = xp.concat([given @ from_host(span, v, dtype=A.dtype), v[:, span.shape[1] :]], axis=1)
        basis = Basis(A, [], [], [np.zeros((0, 0))] * (len(A.parts) + len(A.measures)))
        basis._append_known()
        basis.extend(v)
        return basis

    @staticmethod
    def reopened(A: "Operator", space: Space) -> "Basis":
        """Return the basis of a space found for an operator with the same parts, or the first of them."""
        space = space.completed(A)

        def measured(rows: slice) -> list[Array]:
            x = array_namespace(A.like).concat([block[rows, :] for block in space.x], axis=1)
            return _measured(A, x, rows)

        basis = Basis(A, list(space.x), list(space.products), list(space.within))
        found = basis._read(_inner(space.x, measured))
        basis.within += map(_symmetric, np.split(found, len(A.measures), axis=1))
        basis._append_known()
        return basis

    @property
    def width(self) -> int:
        """The number p of vectors."""
        return len(self.gram)

    @property
    def gram(self) -> np.ndarray:
        """M = VᵀV, (p, p)."""
        return self.within[len(self.A.parts)]

    def extend(self, v: Array) -> None:
        """Take some more vectors into the basis, and multiply them."""
        x = self.A.s * v
        self._append(x, self.A.products(x))

    def _append_known(self) -> None:
        """Take C into the basis; its products are known."""
        if self.A.null is not None:
            self.known = slice(self.width, self.width + self.A.n_known)
            self._append(self.A.s * self.A.null, self.A.null_products)

    def _append(self, x: Array, products: tuple[Array, ...]) -> None:
        self.x.append(x)
        self.products.append(products)

        def terms(rows: slice) -> list[Array]:
            return [*(product[rows, :] for product in products), *_measured(self.A, x[rows, :], rows)]

        columns = np.split(self._read(_inner(self.x, terms)), len(self.within), axis=1)
        self.within = [_bordered(g, more) for g, more in zip(self.within, columns, strict=True)]

    def _read(self, products: Array) -> np.ndarray:
        """Return products within the space on the host; θ comes along, not to be waited for apart."""
        weights = [weight for weight in self.A.weights if is_array(weight)]
        found, *theta = to_host(products, *weights, reason=REASON)
        told = iter(theta)
        self.theta = [float(next(told) if is_array(w) else w) for w in self.A.weights]
        return _finite(found)

    def ritz(self) -> Ritz:
        """Solve the small problem; directions that are there already but for rounding are left out.

        H = VᵀAV = Σᵢ θᵢ XᵀWᵢX + VᵀeV
        """
        n_parts = len(self.A.parts)
        h = sum(self.within[n_parts + 1 :], np.zeros_like(self.gram))
        for theta, g in zip(self.theta, self.within[:n_parts], strict=True):
            h = h + theta * g
        t = self._orthogonal_to_known()
        t = t @ whitening(t.T @ self.gram @ t, np.full(t.shape[1], fill_value=True), self.A.rounding)
        values, y = np.linalg.eigh(t.T @ h @ t)
        return Ritz(values[::-1], (t @ y)[:, ::-1])

    def _orthogonal_to_known(self) -> np.ndarray:
        """Return coefficients of all vectors of the space that are orthogonal to C, (p, p − c)."""
        across = self.gram[self.known]  # CᵀV, (c, p)
        return np.linalg.qr(across.T, mode="complete")[0][:, len(across) :]

    def residuals(self, ritz: Ritz, m: int) -> tuple[Array, np.ndarray]:
        """Return the residuals of the first m pairs, (n, m), and their products with each other, (m, m).

        r = S Σᵢ WᵢX θᵢy + (e − λ) ∘ Xy/s
        """
        A, xp, like = self.A, array_namespace(self.A.like), self.x[0]
        y = from_host(ritz.coefficients[:, :m], like, dtype=A.dtype)
        values = from_host(ritz.values[:m], like, dtype=A.dtype)
        weighted = [weight * y for weight in A.weights]
        by_part = list(zip(*self.products, strict=True))
        r = xp.empty((A.n, y.shape[1]), dtype=A.dtype, device=device_of(like))

        def fill(rows: slice) -> Array:
            s, e = some_rows(A.s, rows), some_rows(A.e, rows)
            block = sum(_combine(blocks, rows, c) for blocks, c in zip(by_part, weighted, strict=True))
            block *= s
            block += (e - values) * (_combine(self.x, rows, y) / s)
            r[rows, :] = block
            return block.T @ block

        return r, read(_summed(fill, r), "residuals of eigenvectors")

    def restarted(self, ritz: Ritz, kept: int) -> "Basis":
        """Return the basis of the best vectors."""
        y = ritz.coefficients[:, :kept]
        best = Space(tuple(self.x), tuple(self.products), tuple(self.within), y).reduced()
        basis = Basis(self.A, list(best.x), list(best.products), list(best.within))
        basis._append_known()
        return basis

    def combined(self, coefficients: np.ndarray) -> Array:
        """Return the vectors Vy."""
        return _combined(self.x, coefficients) / self.A.s

    def space(self, ritz: Ritz, m: int, n_products: int) -> Space:
        """Return the space; most worth keeping are the m best vectors, and those it began with."""
        first = np.delete(np.eye(self.width), self.known, axis=1)[:, :m]
        kept = np.concatenate([ritz.coefficients[:, :m], first], axis=1)
        within = tuple(self.within[: len(self.A.parts)])
        return Space(tuple(self.x), tuple(self.products), within, kept, n_products)


class OutOfRangeError(ArithmeticError):
    """Numbers have left the range of the precision in which a space grows."""


def read(x: Array, reason: str) -> np.ndarray:
    """Return a small matrix on the host, in the precision there."""
    return _finite(to_host(x, reason=reason)[0])


def _finite(x: np.ndarray) -> np.ndarray:
    """Return a matrix in float64, if all of it are numbers."""
    if not np.all(np.isfinite(x)):
        raise OutOfRangeError
    return x.astype(np.float64, copy=False)


def whitening(gram: np.ndarray, chosen: np.ndarray, rounding: float) -> np.ndarray:
    """Return coefficients (m, r) that make orthonormal vectors of some of those with this Gram matrix.

    Directions in which they differ by no more than rounding (as the square of a sine) are left out.
    """
    index = np.flatnonzero(chosen)
    lengths = np.sqrt(np.maximum(np.diag(gram)[index], 0.0))
    # What is left of a vector when all but rounding is taken off is not worth having.
    lengths = np.maximum(lengths, rounding * lengths.max(initial=0.0)) + (lengths.max(initial=0.0) == 0)
    values, u = np.linalg.eigh(gram[np.ix_(index, index)] / np.outer(lengths, lengths))
    some = values > rounding
    coefficients = np.zeros((len(gram), int(some.sum())))
    coefficients[index] = u[:, some] / np.sqrt(values[some]) / lengths[:, None]
    return coefficients


def _bordered(a: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix with more columns, and the rows that follow from them."""
    above, corner = columns[: len(a)], columns[len(a) :]
    return np.block([[a, above], [above.T, (corner + corner.T) / 2]])


def _symmetric(a: np.ndarray) -> np.ndarray:
    return (a + a.T) / 2


def some_rows(x: Array, rows: slice) -> Array:
    """Return some rows of a column; a number stands for equal rows."""
    return x[rows, :] if is_array(x) else x


def _measured(A: "Operator", x: Array, rows: slice) -> list[Array]:
    """Return some rows of X/s², and of (e/s²)X where e is an array."""
    return [some_rows(measure, rows) * x for measure in A.measures]


def _row_blocks(like: Array) -> list[slice]:
    """Return blocks of rows of a thin matrix."""
    n = like.shape[0]
    height = BLOCK_ROWS if isinstance(like, np.ndarray) else n
    return [slice(start, min(start + height, n)) for start in range(0, n, height)]


def _summed(function: Callable[[slice], Array], like: Array) -> Array:
    """Return the sum of what a function returns for blocks of rows, in their order."""
    blocks, found = _row_blocks(like), {}

    def work(rows: slice) -> None:
        found[rows.start] = function(rows)

    for_each_block(work, blocks, like)
    total = found[0]
    for rows in blocks[1:]:
        total += found[rows.start]
    return total


def _inner(blocks: Blocks, terms: Callable[[slice], list[Array]]) -> Array:
    """Return XᵀY, with X by blocks of columns and Y by what is given for some rows, side by side."""

    def inner(rows: slice) -> Array:
        xp, y = array_namespace(blocks[0]), terms(rows)
        right = xp.concat(y, axis=1) if len(y) > 1 else y[0]
        return xp.concat([block[rows, :].T @ right for block in blocks], axis=0)

    return _summed(inner, blocks[0])


def _combine(blocks: Blocks, rows: slice, y: Array) -> Array:
    """Return some rows of Xy for an X given by blocks of columns."""
    total, end = None, 0
    for block in blocks:
        begin, end = end, end + block.shape[1]
        part = thin_product(block[rows, :], y[begin:end, :])
        if total is None:
            total = part
        else:
            total += part
    return total


def _combined(blocks: Blocks, coefficients: np.ndarray) -> Array:
    """Return Xy for an X given by blocks of columns."""
    like = blocks[0]
    y = from_host(coefficients, like, dtype=like.dtype)
    out = array_namespace(like).empty((like.shape[0], y.shape[1]), dtype=like.dtype, device=device_of(like))

    def fill(rows: slice) -> None:
        out[rows, :] = _combine(blocks, rows, y)

    for_each_block(fill, _row_blocks(out), out)
    return out
