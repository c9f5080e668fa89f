"""How much α can depend on the labels it is estimated with: hardly at all in large sparse graphs.

With w = Σwᵢⱼ², p = Σψᵢⱼ², and the means μ of W and ν of Ψ over the blocks of some labels,

    α = (w − E) / (w + p − 2c),   E = Σμ²,   c = Σμν

up to the corrections of variances, which are of the order 1/m in clusters of m objects. For k clusters the
means are projections to k dimensions, so that E is at most K_w, the sum of the k largest squared eigenvalues
of W, and c² ≤ E K_ψ. If no entry is negative, c ≥ 0. To first order in K, and with a = w / (w + p), α is for
any labels between

    a − K_w / (w + p)   and   a + a² K_ψ / (w + p)

No eigenvalue is larger than ‖Wʳ1‖_∞^{1/r}, for any r.
"""

import math

from affect_xp.array.namespace import array_namespace, device_of, to_host, wide_dtype
from affect_xp.array.typing import Array
from affect_xp.proximity import Pair
from affect_xp.proximity.sparse import Sparse

POWERS = (1, 2, 4)  # r: the bound gets tighter with r


def alpha_is_insensitive(pair: Pair, k: int, tol: float) -> bool:
    """Return whether α is known to differ by at most `tol` between any two labellings with k clusters.

    This is known only for sparse W and Ψ of the same objects without negative entries. On a device the host
    waits once for each power that is tried, and once more.
    """
    current, past = pair.current, pair.past
    if tol == 0 or not pair.alignment.unchanged:
        return False
    if not (isinstance(current, Sparse) and isinstance(past, Sparse)):
        return False
    if current.matrix.nnz == 0 or past.matrix.nnz == 0:
        return False
    if pair.unit != 1:  # squares of entries overflow or underflow
        return False
    xp = array_namespace(current.like)
    low = xp.minimum(xp.min(current.like), xp.min(past.like))
    low, w, p = to_host(low, _squares(current), _squares(past), reason="can labels change α?")
    if low < 0 or not 0 < w + p < math.inf:
        return False
    a = w / (w + p)
    bounds = [(_SpectralBound(W), factor) for W, factor in ((current, 1.0), (past, a * a))]
    for power in POWERS:
        explained = sum(factor * k * bound.at(power) ** 2 for bound, factor in bounds)
        if explained <= tol * (w + p):
            return True
    return False


def _squares(W: Sparse) -> Array:
    """Return Σwᵢⱼ²."""
    xp, wide = array_namespace(W.like), wide_dtype(W.like)
    values = xp.astype(W.like, wide, copy=False)
    return values @ values


class _SpectralBound:
    """Upper bounds of the largest eigenvalue of a nonnegative matrix."""

    def __init__(self, W: Sparse) -> None:
        xp, wide = array_namespace(W.like), wide_dtype(W.like)
        self.W, self.power = W, 0
        self.x = xp.ones((W.n, 1), dtype=wide, device=device_of(W.like))

    def at(self, power: int) -> float:
        """Return ‖Wʳ1‖_∞^{1/r}; r must not decrease between calls."""
        xp = array_namespace(self.x)
        while self.power < power:
            self.x, self.power = self.W.matmul(self.x), self.power + 1
        largest = float(to_host(xp.max(self.x), reason="bound of the largest eigenvalue")[0])
        return largest ** (1 / self.power) if math.isfinite(largest) else math.inf
