"""Proximities held as factors, W = U diag(s) Uᵀ: dot products of features, and blends of such."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import final

import numpy as np

from affect_xp import _array
from affect_xp._array import array_namespace, device_of, gather, row_blocks, wide_dtype
from affect_xp._typing import Array
from affect_xp._validation import check_fraction, check_int
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.objects import Alignment
from affect_xp.partition import Partition
from affect_xp.proximity._base import Proximity
from affect_xp.proximity._check import checked_dtype
from affect_xp.proximity.dense import Dense

# Columns whose weight has fallen below this share of the one they came with are rounding.
TOLERANCE = 1e-17


@dataclasses.dataclass(frozen=True, eq=False)
class _Factor:
    """Some columns of U: features, without the rows of some objects."""

    x: Array  # (n, p); other factors may hold the same array
    mask: Array | None = None  # (n,), 0 for the objects whose row is zero in U, else 1; None for all 1
    decay: float = 1.0  # what is left of the weight the columns came with, at most; known to the host

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.x.shape[1]

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of these columns, in wide floats."""
        xp = array_namespace(self.x)
        x = xp.astype(_pick(self.x, which), wide_dtype(self.x), copy=False)
        return x if self.mask is None else x * _pick(self.mask, which)[:, None]

    def without_new(self, source: Array) -> "_Factor":
        """Return the factor with rows of zeros for the objects at which `source` is negative."""
        known = array_namespace(source).astype(source >= 0, wide_dtype(self.x))
        return dataclasses.replace(self, mask=known if self.mask is None else known * self.mask)

    def decayed(self, share: float) -> "_Factor":
        """Return the factor with less of its weight left."""
        return dataclasses.replace(self, decay=self.decay * share)


@dataclasses.dataclass(frozen=True, eq=False)
class _Scatter:
    """Sums of squares of columns of U over all objects, about any centre r."""

    centre: Array  # r, (q,)
    sums: Array  # Σᵢ (uᵢ − r)(uᵢ − r)ᵀ, (q, q)

    @property
    def q(self) -> int:
        """The number of columns."""
        return self.centre.shape[0]

    def columns(self, index: Array) -> "_Scatter":
        """Return the scatter of some of the columns."""
        xp = array_namespace(self.sums)
        return _Scatter(
            xp.take(self.centre, index), xp.take(xp.take(self.sums, index, axis=0), index, axis=1)
        )

    def plus(self, sums: Array) -> "_Scatter":
        """Return the scatter of other rows besides, whose sums about the same centre are given."""
        return _Scatter(self.centre, self.sums + sums)

    def beside(self, mean: Array, products: Array) -> "_Scatter":
        """Return the scatter of further columns besides, given their means and their products with all."""
        xp = array_namespace(self.sums)
        left = xp.concat([self.sums, products[: self.q, :].T])
        return _Scatter(xp.concat([self.centre, mean]), xp.concat([left, products], axis=1))


@final
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Factored(Proximity):
    """W = U diag(s) Uᵀ with U of shape (n, q) and weights s of either sign; exact, and never n×n.

    Made from features by `from_features`. A blend appends the columns of the present to those of the
    past, so memory and time grow with the history held, until weights have decayed to nothing or
    `max_rank` is reached. U takes n·q numbers; a product with V (n, r) takes 4nqr operations, the moments
    nkq², and the distance to given means as much as half a product, because the q×q scatter of U is kept
    from step to step.

    Attributes
    ----------
    factors : tuple
        The columns of U. The arrays must not be written to.
    weights : (q,) array
        The weights s, in wide floats.
    max_rank, tolerance
        As given to `from_features`; a blend takes those of the present.
    error : 0-d array or float
        A bound on the Frobenius norm of all that was left out because of `max_rank` and `tolerance`.

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.proximity.factored import Factored
    >>> w = Factored.from_features(np.array([[1.0, 2.0], [3.0, 0.0]]))
    >>> w.to_dense().array
    array([[5., 3.],
           [3., 9.]])
    >>> w.matmul(np.ones((2, 1))).ravel()
    array([ 8., 12.])
    """

    factors: tuple[_Factor, ...]
    weights: Array
    max_rank: int | None = None
    tolerance: float = TOLERANCE
    error: Array | float = 0.0
    leading: _Scatter | None = None  # of the first columns, where it is known

    @staticmethod
    def from_features(
        X: Array, weights: Array | None = None, *, max_rank: int | None = None, tolerance: float = TOLERANCE
    ) -> "Factored":
        """Return the dot products W = X diag(weights) Xᵀ of features, after checking that they are finite.

        Parameters
        ----------
        X : (n, p) array of any library, or nested lists
            float32 and float64 are kept, not copied; integers and booleans become float64.
        weights : (p,) array, optional
            Of either sign; by default 1 for each column.
        max_rank : int, optional
            The largest number of columns a blend may keep, at least p. Beyond it the best approximation
            of this rank is kept, and `error` says how much was left out.
        tolerance : float
            The columns of a step are dropped when the forgetting factors since then, those known as
            Python floats, multiply to less.
        """
        X = _checked_features(_array.as_array(X))
        p, xp, wide = X.shape[1], array_namespace(X), wide_dtype(X)
        if max_rank is not None and check_int("max_rank", max_rank, 1) < p:
            raise InputError(
                f"max_rank={max_rank}, but X has {p} columns; raise it or reduce the features first"
            )
        if weights is None:
            weights = xp.ones((p,), dtype=wide, device=device_of(X))
        if tuple(weights.shape) != (p,):
            shape = tuple(weights.shape)
            raise InputError(f"weights must be of shape ({p},), one for each column of X, got {shape}")
        tolerance = check_fraction("tolerance", tolerance)
        return Factored((_Factor(X),), xp.astype(weights, wide), max_rank, tolerance)

    @property
    def n(self) -> int:
        """The number of objects."""
        return self.factors[0].x.shape[0]

    @property
    def rank(self) -> int:
        """The number q of columns of U."""
        return self.weights.shape[0]

    @property
    def like(self) -> Array:
        """The features of the oldest columns."""
        return self.factors[0].x

    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats; computed once."""
        return self._diagonal

    @functools.cached_property
    def _diagonal(self) -> Array:
        # wᵢᵢ = Σ_a s_a uᵢₐ²
        return self._by_factor(lambda u, columns: _square(u) @ self.weights[columns, None], 1)[:, 0]

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V = U (s ∘ UᵀV), (n, r); with `rows`, W[:, rows]·v."""
        t = self.weights[:, None] * _project(self.factors, v, rows)
        return array_namespace(v).astype(self._expand(t), v.dtype, copy=False)

    def _columns(self) -> Iterator[tuple[_Factor, slice]]:
        """Yield each factor and which columns of U it makes."""
        start = 0
        for factor in self.factors:
            yield factor, slice(start, start + factor.width)
            start += factor.width

    def _rows(self, which: slice | Array) -> Array:
        """Return some rows of U, in wide floats."""
        return array_namespace(self.weights).concat([factor.rows(which) for factor in self.factors], axis=1)

    def _expand(self, t: Array) -> Array:
        """Return U·T, (n, r)."""
        return self._by_factor(lambda u, columns: u @ t[columns, :], t.shape[1])

    def _by_factor(self, term: Callable[[Array, slice], Array], n_columns: int) -> Array:
        """Return the sum over factors of a function of their rows, (n, n_columns), in wide floats."""

        def sum_of_terms(rows: slice) -> Array:
            return functools.reduce(operator.add, (term(f.rows(rows), c) for f, c in self._columns()))

        return self._filled(n_columns, self.weights.dtype, sum_of_terms)

    def _filled(self, n_columns: int, dtype: object, rows_of: Callable[[slice], Array]) -> Array:
        """Return an array with a row for each object, filled by blocks of rows."""
        if _array.is_lazy(self.like):
            return rows_of(slice(0, self.n))
        out = array_namespace(self.like).empty((self.n, n_columns), dtype=dtype, device=device_of(self.like))
        for rows in row_blocks(out):
            out[rows, :] = rows_of(rows)
        return out

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k).

        Rows of U are taken about their centroids, uᵢ = ū_c + dᵢ: then all cross terms vanish, and no
        digits are lost where the mean is large and the spread is small. With C_c = Σ_{i∈c} dᵢdᵢᵀ and all
        products of vectors and matrices weighted by s, over all i in c and j in d (i = j as well):

            w̄ = ⟨ū_c, ū_d⟩,   Σ(w − w̄)² = m_c ū_cᵀC_d ū_c + m_d ū_dᵀC_c ū_d + ⟨C_c, C_d⟩
        """
        s, m, centroids = self.weights, partition.sizes, self._centroids(partition)
        scatters = self._packed_scatters(partition.membership, centroids)  # (k, q(q + 1)/2)
        folded = scatters * _how_often(s)  # an entry off the diagonal stands for two
        weighted = s * centroids
        cross = _pairs(weighted) @ folded.T  # ū_cᵀC_d ū_c, (k, k)
        squares = m[:, None] * cross + m[None, :] * cross.T + (scatters * _pairs(s[None, :])) @ folded.T
        return self._off_diagonal(partition, weighted @ centroids.T, squares)

    def _centroids(self, partition: Partition) -> Array:
        """Return the mean ū of the rows of U in each cluster, (k, q)."""
        m = partition.sizes
        xp = array_namespace(m)
        return _project(self.factors, partition.membership).T / xp.where(m > 0, m, xp.ones_like(m))[:, None]

    def _packed_scatters(self, z: Array, centroids: Array) -> Array:
        """Return C_c of each cluster on and above its diagonal, (k, q(q + 1)/2)."""
        xp = array_namespace(z)
        total = xp.zeros((1, 1), dtype=z.dtype, device=device_of(z))
        for rows in row_blocks(self.like):
            d = self._rows(rows) - z[rows, :] @ centroids
            total = total + xp.concat([z[rows, :].T @ products for products in _products(d)], axis=1)
        return total

    def _off_diagonal(self, partition: Partition, means: Array, squares: Array) -> tuple[Array, Array]:
        """Return μ and Σ(w − μ)² over i ≠ j, given w̄ and Σ(w − w̄)² over all pairs. Within a cluster

        μ = w̄ − Σᵢ(wᵢᵢ − w̄) / m(m − 1),   Σ_{i≠j}(w − μ)² = Σ(w − w̄)² + m²(w̄ − μ)² − Σᵢ(wᵢᵢ − μ)²
        """
        z, m, count = partition.membership, partition.sizes, partition.pair_counts
        xp = array_namespace(m)
        own = xp.eye(partition.k, dtype=m.dtype, device=device_of(m))
        excess = (self.diagonal() - partition.by_object(xp.linalg.diagonal(means))) @ z  # Σ(wᵢᵢ − w̄), (k,)
        shift = own * excess / xp.where(count > 0, count, xp.ones_like(count))  # w̄ − μ
        mu = xp.where(count > 0, means - shift, xp.zeros_like(means))
        deviation = self.diagonal() - partition.by_object(xp.linalg.diagonal(mu))
        squares = squares + _square(m * shift) - own * (_square(deviation) @ z)
        return mu, xp.where((squares > 0) & (count > 0), squares, xp.zeros_like(squares))

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})².

        As in `block_moments`, but summed over all blocks, so that only the scatter C = Σ_c C_c within
        clusters is needed; it follows from the scatter of U, which is known, and from the centroids:

            Σ(w − μ)² = Σ m_c m_d (⟨ū_c, ū_d⟩ − μ_cd)² + 2 Σ m_c ū_cᵀC ū_c + ⟨C, C⟩
            C = Σᵢ (uᵢ − r)(uᵢ − r)ᵀ − Σ m_c (ū_c − r)(ū_c − r)ᵀ

        The host waits once to learn how many objects are unlabelled, if the partition does not say.
        """
        xp, s, m = array_namespace(self.weights), self.weights, partition.sizes
        centroids = self._centroids(partition)
        about = centroids - self._scatter.centre
        scatter = self._labelled_scatter(partition) - (m[:, None] * about).T @ about  # C, (q, q)
        weighted = s * centroids
        between = m @ (_square(weighted @ centroids.T - means) @ m)
        across = m @ xp.sum((weighted @ scatter) * weighted, axis=1)
        within = s @ (_square(scatter) @ s)
        deviation = self.diagonal() - partition.by_object(xp.linalg.diagonal(means))
        on_diagonal = _square(deviation) @ xp.sum(partition.membership, axis=1)
        total = between + 2 * across + within - on_diagonal
        return xp.where(total > 0, total, xp.zeros_like(total))

    @functools.cached_property
    def _scatter(self) -> _Scatter:
        """The scatter of U; only what is not known of it is computed."""
        xp, scatter = array_namespace(self.weights), self.leading
        if scatter is None:
            none = self.weights[:0]
            scatter = _Scatter(none, none[:, None] * none)
        for i, (factor, columns) in enumerate(self._columns()):
            if columns.stop > scatter.q:
                v = factor.rows(slice(0, self.n))
                mean = xp.mean(v, axis=0)
                v = v - mean
                centre = xp.concat([scatter.centre, mean])
                # Σ(u − r)vᵀ = Uᵀv − r·1ᵀv; 1ᵀv is rounding, but a large r makes it count.
                products = _project(self.factors[: i + 1], v) - centre[:, None] * xp.sum(v, axis=0)
                scatter = scatter.beside(mean, products)
        return scatter

    def _labelled_scatter(self, partition: Partition) -> Array:
        """Return the scatter of the rows of labelled objects about the centre of all, (q, q)."""
        xp = array_namespace(self.weights)
        outside, n_outside = xp.astype(partition.labels < 0, xp.int64), partition.n_outside
        if n_outside is None:
            n_outside = int(_array.to_host(xp.sum(outside), reason="how many objects are unlabelled?")[0])
        if n_outside == 0:
            return self._scatter.sums
        order = xp.argsort(outside, descending=True, stable=True)
        if 2 * n_outside > self.n:
            return self._rows_scatter(order[n_outside:])
        return self._scatter.sums - self._rows_scatter(order[:n_outside])

    def _rows_scatter(self, index: Array) -> Array:
        """Return Σ(uᵢ − r)(uᵢ − r)ᵀ over some objects, (q, q)."""
        centre, total = self._scatter.centre, 0
        for block in row_blocks(self.like, index.shape[0]):
            u = self._rows(index[block]) - centre
            total = total + u.T @ u
        return total

    def take(self, index: Array) -> "Factored":
        """Return the proximities among the objects at `index`."""
        xp = array_namespace(self.weights)
        factors = _mapped(self.factors, lambda x: xp.take(x, index, axis=0))
        return dataclasses.replace(self, factors=factors, leading=None)

    def copy(self) -> "Factored":
        """Return the same proximities in storage of their own."""
        return dataclasses.replace(self, factors=_copied(self.factors))

    def to_dense(self) -> Dense:
        """Return the same proximities as an n×n array, in the precision of the features."""
        xp, dtype = array_namespace(self.weights), self.like.dtype
        u = self._rows(slice(0, self.n)).T  # (q, n)
        return Dense(
            self._filled(self.n, dtype, lambda rows: xp.astype((self._rows(rows) * self.weights) @ u, dtype))
        )

    def blend(
        self, past: "Factored", alpha: Array | float, alignment: Alignment, *, overwrite: bool = False
    ) -> "Factored":
        """Return α·past + (1 − α)·W where both objects were there before, and W elsewhere.

        With E the embedding of the common objects, P = EEᵀ, and W = X diag(s) Xᵀ, the columns are EY of
        the past with the weights α s_Y, and X with the weights (1 − α) s; or where there are new objects,
        X with s and PX with −α s. Arrays of the past are shared while the objects stay the same.
        """
        if not isinstance(past, Factored):
            raise InputTypeError(f"cannot blend Factored with {type(past).__name__}; call .to_dense() first")
        xp, s = array_namespace(self.weights, past.weights), self.weights
        is_known = not _array.is_array(alpha)
        a = float(alpha) if is_known else xp.astype(alpha, s.dtype)
        before, leading = past._embedded(alignment)
        before = tuple(f.decayed(a if is_known else 1.0) for f in before)
        now = _copied(self.factors)
        if alignment.n_new:
            now, weights = now + tuple(f.without_new(alignment.source) for f in now), xp.concat([s, -a * s])
        else:
            now, weights = tuple(f.decayed(1 - a if is_known else 1.0) for f in now), (1 - a) * s
        weights = xp.concat([a * past.weights, weights])
        error = a * past.error + self.error
        return Factored(before + now, weights, self.max_rank, self.tolerance, error, leading)._shortened()

    def _embedded(self, alignment: Alignment) -> tuple[tuple[_Factor, ...], _Scatter | None]:
        """Return EU, with zeros for the objects that are new, and what is known of its scatter."""
        source, scatter = alignment.source, vars(self).get("_scatter")
        if source is None:
            return self.factors, scatter
        xp = array_namespace(source)
        if alignment.n_new:
            factors = _mapped(self.factors, lambda x: gather(x, source, 0))
        else:
            factors = _mapped(self.factors, lambda x: xp.take(x, source, axis=0))
        n_left = self.n - alignment.n_common
        if scatter is None or 2 * n_left > self.n:
            return factors, None
        if n_left:
            left = xp.argsort(xp.astype(alignment.target >= 0, xp.int8), stable=True)[:n_left]  # type: ignore[operator]
            scatter = scatter.plus(-self._rows_scatter(left))
        return factors, scatter.plus(alignment.n_new * scatter.centre[:, None] * scatter.centre)

    def _shortened(self) -> "Factored":
        """Return the same without the columns that have decayed, and with at most `max_rank`."""
        stays = [factor.decay >= self.tolerance for factor in self.factors]
        stays[-1] = True  # there must be one
        short = self if all(stays) else self._keep(stays)
        if self.max_rank is None or short.rank <= self.max_rank:
            return short
        return short._truncated(self.max_rank)

    def _keep(self, stays: list[bool]) -> "Factored":
        """Return the same without some factors, and their norms in `error`: ‖s u uᵀ‖ = |s| ‖u‖²."""
        xp, error, leading = array_namespace(self.weights), self.error, self.leading
        for stay, (factor, columns) in zip(stays, self._columns(), strict=True):
            if not stay:
                norms = xp.sum(_square(factor.rows(slice(0, self.n))), axis=0)
                error = error + xp.abs(self.weights[columns]) @ norms
        kept = np.repeat(stays, [factor.width for factor in self.factors]).nonzero()[0]
        if leading is not None:
            leading = leading.columns(_array.from_host(kept[kept < leading.q], self.weights))
        return dataclasses.replace(
            self,
            factors=tuple(factor for stay, factor in zip(stays, self.factors, strict=True) if stay),
            weights=xp.take(self.weights, _array.from_host(kept, self.weights)),
            error=error,
            leading=leading,
        )

    def _truncated(self, rank: int) -> "Factored":
        """Return the nearest matrix of this rank in the Frobenius norm, and its distance in `error`.

        With UᵀU = VDVᵀ the columns of UVD^{-1/2} are orthonormal, so the eigenvalues λ of W are those of
        D^{1/2}VᵀsVD^{1/2}; the largest |λ| stay, and what goes is √Σλ² of the others.
        """
        xp, s = array_namespace(self.weights), self.weights
        d, v = xp.linalg.eigh(self._gram())
        some = d > xp.finfo(d.dtype).eps * self.rank * d[-1]
        root = xp.sqrt(xp.where(some, d, xp.zeros_like(d)))
        half = s[:, None] * v * root
        values, vectors = xp.linalg.eigh((v * root).T @ half)
        order = xp.argsort(xp.abs(values), descending=True, stable=True)
        inverse = xp.where(some, 1 / xp.where(some, root, xp.ones_like(root)), xp.zeros_like(root))
        basis = (v * inverse) @ xp.take(vectors, order[:rank], axis=1)
        lost = xp.sqrt(xp.sum(_square(xp.take(values, order[rank:]))))
        factor = _Factor(xp.astype(self._expand(basis), self.like.dtype, copy=False))
        return dataclasses.replace(
            self,
            factors=(factor,),
            weights=xp.take(values, order[:rank]),
            error=self.error + lost,
            leading=None,
        )

    def _gram(self) -> Array:
        """Return UᵀU = Σ(u − r)(u − r)ᵀ + σrᵀ + rσᵀ − n rrᵀ with σ = Σu, (q, q)."""
        xp, r = array_namespace(self.weights), self._scatter.centre
        ones = xp.ones((self.n, 1), dtype=r.dtype, device=device_of(r))
        shift = _project(self.factors, ones) * r  # σrᵀ, (q, q)
        return self._scatter.sums + shift + shift.T - self.n * r[:, None] * r


def _checked_features(X: Array) -> Array:
    """Return features as a real, finite array with a row for each object, or say what is wrong where."""
    if X.ndim != 2 or X.shape[0] == 0:
        raise InputError(
            f"X must have a row for each object and a column for each feature, got shape {tuple(X.shape)}"
        )
    X = checked_dtype(X, "X")
    xp = array_namespace(X)
    if X.shape[1] == 0:
        return X
    with np.errstate(invalid="ignore"):
        largest = float(_array.to_host(xp.max(xp.abs(X)), reason="are the features finite?")[0])
    if not math.isfinite(largest):
        host = _array.to_host(X, reason="finding the bad entry")[0]
        i, j = np.argwhere(~np.isfinite(host))[0]
        raise InputError(
            f"X must be finite, but X[{i}, {j}] = {host[i, j]}; leave out objects without data or fill it in"
        )
    return X


def _pick(x: Array, which: slice | Array) -> Array:
    """Return some rows of x."""
    return x[which, ...] if isinstance(which, slice) else array_namespace(x).take(x, which, axis=0)


def _project(factors: tuple[_Factor, ...], v: Array, rows: Array | None = None) -> Array:
    """Return UᵀV, (q, r); with `rows`, U[rows]ᵀ·v."""
    wide = wide_dtype(v)
    xp = array_namespace(v)
    sums = [xp.zeros((factor.width, v.shape[1]), dtype=wide, device=device_of(v)) for factor in factors]
    for block in row_blocks(v):
        which = block if rows is None else rows[block]
        part = xp.astype(v[block, :], wide, copy=False)
        sums = [t + factor.rows(which).T @ part for t, factor in zip(sums, factors, strict=True)]
    return xp.concat(sums)


def _mapped(factors: tuple[_Factor, ...], change: Callable[[Array], Array]) -> tuple[_Factor, ...]:
    """Return the factors with their arrays changed; arrays that were shared still are."""
    changed = {id(factor.x): factor.x for factor in factors}
    changed = {key: change(x) for key, x in changed.items()}
    return tuple(
        dataclasses.replace(
            factor, x=changed[id(factor.x)], mask=None if factor.mask is None else change(factor.mask)
        )
        for factor in factors
    )


def _copied(factors: tuple[_Factor, ...]) -> tuple[_Factor, ...]:
    """Return the factors in storage of their own: the caller may fill the features anew for the next step."""
    return _mapped(factors, lambda x: array_namespace(x).asarray(x, copy=True))


def _square(x: Array) -> Array:
    return x * x


def _products(x: Array) -> Iterator[Array]:
    """Yield for each column a of x the products x_a·x_b with the columns b ≥ a."""
    q = x.shape[1]
    for a in range(max(1, q)):  # without columns, one empty product
        yield x[:, a : min(a + 1, q)] * x[:, a:]


def _pairs(x: Array) -> Array:
    """Return the products of all pairs of columns of x in that order, (…, q(q + 1)/2)."""
    return array_namespace(x).concat(list(_products(x)), axis=1)


def _how_often(s: Array) -> Array:
    """Return how often each pair of columns stands in a symmetric matrix: 1 on the diagonal, else 2."""
    a, b = np.triu_indices(s.shape[0])
    return _array.from_host(np.where(a == b, 1.0, 2.0), s, dtype=s.dtype)
