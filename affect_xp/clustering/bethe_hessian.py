"""The number of groups of a graph: negative eigenvalues of the Bethe-Hessian.

For a graph with weights w, the Bethe-Hessian at r is

    H = I + diag(D) − M,   Mᵢⱼ = r wᵢⱼ / (r² − wᵢⱼ²),   Dᵢ = Σⱼ wᵢⱼ² / (r² − wᵢⱼ²),   i ≠ j

Each negative eigenvalue is a group that differs from noise (Saade, Krzakala & Zdeborová 2014; Saade,
Lelarge, Krzakala & Zdeborová 2015). r is the radius of the noise, that of the non-backtracking operator of
squared weights:

    r² = Σᵢ sᵢ² / Σᵢ sᵢ,   sᵢ = Σⱼ wᵢⱼ²

Weights of r and more, which have no place in H, are taken for 0.995 r. The unit of W does not matter. M is
multiplied from blocks of W without being stored.
"""

from collections.abc import Callable

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    computed,
    device_of,
    eager_product,
    fill_rows,
    is_cupy,
    on_input_device,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_int
from affect_xp.clustering.eigen import Operator, top_eigenpairs
from affect_xp.proximity import Dense, Proximity, as_proximity

# The largest weight, as a share of r.
MAX_WEIGHT = 0.995


@on_input_device
def bethe_hessian_scores(
    W: Array | Proximity,
    max_clusters: int,
    *,
    solver: str = "auto",
    tol: float = 0.01,
    start: Array | None = None,
) -> dict[int, float]:
    """Return −λ_k of the Bethe-Hessian for each number of clusters k, λ₁ being the smallest eigenvalue.

    The number of groups is the number of positive scores. Scores by the iterative solver are never too large.
    W holds its entries: it is not `Factored`. The other arguments are those of `affect_xp.spectral`.
    """
    W = as_proximity(W).formed()
    most = min(check_int("max_clusters", max_clusters, 1), W.n)
    w_ii = eager_diagonal(W)
    squares = row_sums(W, lambda x: x * x, w_ii)  # s
    xp = array_namespace(squares)
    total, of_squares = to_host(xp.sum(squares), xp.sum(squares * squares), reason="radius of the noise")
    if not total > 0:
        return dict.fromkeys(range(1, most + 1), 0.0)
    r = float(np.sqrt(of_squares / total))
    operator = _operator(W, r, w_ii)
    values = top_eigenpairs(operator, most, solver=solver, tol=tol, start=start).values[:most]
    # Tied eigenvalues at the end may be left out.
    padded = np.append(values, np.full(most - len(values), values[-1] if len(values) else 0.0))
    return {k: float(value) for k, value in enumerate(padded, start=1)}


def _operator(W: Proximity, r: float, w_ii: Array) -> Operator:
    """Return −H = M − I − diag(D)."""

    bound = MAX_WEIGHT * r

    def clipped(w: Array) -> Array:
        xp = array_namespace(w)
        return xp.minimum(xp.maximum(w, xp.full_like(w, -bound)), xp.full_like(w, bound))

    def coupling(w: Array) -> Array:
        if is_cupy(w):
            return cuda.bethe_hessian_term("coupling", w, r, bound)
        w = clipped(w)
        return r * w / (r * r - w * w)

    def damping(w: Array) -> Array:
        if is_cupy(w):
            return cuda.bethe_hessian_term("damping", w, r, bound)
        w = clipped(w)
        return w * w / (r * r - w * w)

    like, multiply = mapped_product(W, coupling)
    D, magnitudes = (row_sums(W, f, w_ii) for f in (damping, lambda w: abs(coupling(w))))
    xp = array_namespace(D)
    e = -(1 + D) - coupling(w_ii)
    # No eigenvalue is larger than the largest row sum of magnitudes.
    top = float(to_host(xp.max(magnitudes - 1 - D), reason="a bound of eigenvalues")[0])
    return Operator(W.n, like, multiply, e=e[:, None], top=max(top, 0.0), scale=1.0)


def eager_diagonal(W: Proximity) -> Array:
    """Return wᵢᵢ, (n,); not lazy."""
    return computed(W.diagonal(), reason="the diagonal of a graph")


def row_sums(W: Proximity, function: Callable[[Array], Array], w_ii: Array) -> Array:
    """Return Σ_{j≠i} f(wᵢⱼ), (n,); f(0) is 0."""
    like, multiply = mapped_product(W, function)
    ones = array_namespace(like).ones((W.n, 1), dtype=wide_dtype(like), device=device_of(like))
    return multiply(ones)[:, 0] - function(w_ii)


def mapped_product(
    W: Proximity, function: Callable[[Array], Array]
) -> tuple[Array, Callable[[Array], Array]]:
    """Return an array to work like, and V ↦ f(W)·V; f(W) is not stored if W is dense."""
    if not isinstance(W, Dense):
        return eager_product(W.mapped(function).matmul, W.like)
    w = W.array

    def multiply(v: Array) -> Array:
        xp = array_namespace(v)
        return fill_rows(v, row_blocks(w), lambda rows: function(xp.astype(w[rows, :], v.dtype)) @ v)

    return eager_product(multiply, W.like)
