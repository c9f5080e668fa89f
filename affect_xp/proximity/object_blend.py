"""The blend of current and past proximities with a weight for each pair of objects.

With E the embedding of the objects common to both and S = diag(s), where s is 0 for objects without a past,

    Ψ̂ = W + a S (E Ψ Eᵀ − W) S,

so that the weight of the past is a·sᵢsⱼ.
"""

from typing import final

from affect_xp.array.namespace import array_namespace, gather
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity._base import Computed, Proximity
from affect_xp.proximity.blend import Pair
from affect_xp.proximity.grouped import Grouped, Stored


@final
class ObjectBlend(Computed):
    """Ψ̂ = W + a S (E Ψ Eᵀ − W) S, multiplied without being formed.

    Parameters
    ----------
    pair : Pair
        W and Ψ.
    alpha : 0-d array or float
        The weight a.
    trust : (n,) array
        The weights s of the objects of W, between 0 and 1; 0 for those without a past.
    """

    def __init__(self, pair: Pair, alpha: Array | float, trust: Array) -> None:
        self.pair, self.alpha, self.trust = pair, alpha, trust
        self._formed: Proximity | None = None

    def at(self, alpha: Array | float) -> "ObjectBlend":
        """Return the blend of the same pair with another a."""
        return ObjectBlend(self.pair, alpha, self.trust)

    @property
    def n(self) -> int:
        """The number of objects."""
        return self.pair.current.n

    @property
    def like(self) -> Array:
        """An array with the library and device of all results."""
        return self.pair.current.like

    @property
    def is_formed(self) -> bool:
        """Whether the blend is already stored."""
        return self._formed is not None

    def diagonal(self) -> Array:
        """Return the diagonal of the blend, (n,)."""
        w, psi, source = self.pair.current.diagonal(), self.pair.past.diagonal(), self.pair.alignment.source
        psi = psi if source is None else gather(psi, source, 0)
        return w + self.alpha * (self.trust * self.trust * (psi - w))

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return Ψ̂·V = WV + a S (E Ψ Eᵀ − W) SV, with one pass over W."""
        xp, alignment, r = array_namespace(v), self.pair.alignment, v.shape[1]
        trust = xp.astype(self.trust, v.dtype, copy=False)
        s = trust if rows is None else xp.take(trust, rows)
        sv = s[:, None] * v
        both = self.pair.current.matmul(xp.concat([v, sv], axis=1), rows)
        source, target = alignment.source, alignment.target
        if source is None or target is None:
            psi = self.pair.past.matmul(sv, rows)
        elif rows is None:
            psi = gather(self.pair.past.matmul(gather(sv, target, 0)), source, 0)
        else:  # rows of new objects are zero: use any position
            places = xp.take(source, rows)
            places = xp.where(places >= 0, places, xp.zeros_like(places))
            psi = gather(self.pair.past.matmul(sv, places), source, 0)
        return both[:, :r] + self.alpha * (trust[:, None] * (psi - both[:, r:]))

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Grouped:
        """Return Ψ̂ with the labels of its objects."""
        return Stored(self, labels, k, given)

    def formed(self, *, out: Proximity | None = None) -> Proximity:
        """Return the blend as a stored proximity, formed once; it may use the storage of `out`."""
        if self._formed is None:
            current, past, alignment = self.pair.current, self.pair.past, self.pair.alignment
            self._formed = current.blend_by_object(past, self.alpha, self.trust, alignment, out=out)
        return self._formed
