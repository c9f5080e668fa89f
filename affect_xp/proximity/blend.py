"""The blend of a proximity with its past, multiplied without being formed."""

from typing import final

from affect_xp._array import array_namespace, gather
from affect_xp._typing import Array
from affect_xp.objects import Alignment
from affect_xp.partition import Partition
from affect_xp.proximity._base import Proximity


class _Parts:
    """The present W and the past Ψ of a blend, and their products, which do not depend on α.

    The products with the last thin matrix are remembered, recognised by identity: every iteration of a
    step starts k-means from the same membership.
    """

    def __init__(self, current: Proximity, past: Proximity, alignment: Alignment) -> None:
        self.current, self.past, self.alignment = current, past, alignment
        self._v: Array = None
        self._w_v: Array = None
        self._change: Array = None

    def forget(self) -> None:
        """Let go of the products; those of the past are void once it is overwritten."""
        self._v = self._w_v = self._change = None

    def product(self, v: Array) -> Array:
        """Return WV."""
        if v is not self._v:
            self._v, self._w_v, self._change = v, self.current.matmul(v), None
        return self._w_v

    def change(self, v: Array) -> Array:
        """Return (E Ψ Eᵀ − P W P)V."""
        w_v = self.product(v)
        if self._change is None:
            self._change = self._multiply_change(v, w_v)
        return self._change

    def _multiply_change(self, v: Array, w_v: Array) -> Array:
        source, target = self.alignment.source, self.alignment.target
        if source is None or target is None:
            return self.past.matmul(v) - w_v
        if self.alignment.n_new:
            # W PV = WV − W (V − PV), and V − PV is zero but for the rows of new objects.
            new = self.alignment.new()
            w_v = w_v - self.current.matmul(array_namespace(v).take(v, new, axis=0), new)
        return gather(self.past.matmul(gather(v, target, 0)), source, 0) - _project(w_v, source)

    def rows_product(self, v: Array, rows: Array) -> Array:
        """Return WV for a V that is zero but for some rows."""
        return self.current.matmul(v, rows)

    def rows_change(self, v: Array, rows: Array, w_v: Array) -> Array:
        """Return (E Ψ Eᵀ − P W P)V for a V that is zero but for some rows, given WV."""
        source = self.alignment.source
        if source is None:
            return self.past.matmul(v, rows) - w_v
        xp = array_namespace(v)
        places = xp.take(source, rows)
        if self.alignment.n_new:
            v = _project(v, places)
            w_v = self.current.matmul(v, rows)
            # A new object has no row in Ψ: its row of PV is zero, so any row will do.
            places = xp.where(places >= 0, places, xp.zeros_like(places))
        return gather(self.past.matmul(v, places), source, 0) - _project(w_v, source)


@final
class Blend(Proximity):
    """Ψ̂ = α·Ψ + (1 − α)·W, known through the products of its two parts.

    With E the embedding of the common objects and P = EEᵀ the projection onto them,

        Ψ̂ = W + α (E Ψ Eᵀ − P W P),

    which is the convex combination where both objects were there before, and W elsewhere. What only a
    stored matrix can answer is asked of `formed()`, which forms the blend once.

    Parameters
    ----------
    current, past : Proximity
        W and Ψ, of one representation.
    alpha : 0-d array or float
        The weight of the past. With the number 0.0 the past is not looked at.
    alignment : Alignment
        Where the objects of W stand in Ψ.
    """

    def __init__(
        self, current: Proximity, past: Proximity, alpha: Array | float, alignment: Alignment
    ) -> None:
        self._parts = _Parts(current, past, alignment)
        self.alpha = alpha
        self._formed: Proximity | None = None

    def at(self, alpha: Array | float) -> "Blend":
        """Return the blend of the same parts with another α; it shares their products."""
        other = object.__new__(Blend)
        other._parts, other.alpha, other._formed = self._parts, alpha, None
        return other

    @property
    def n(self) -> int:
        """The number of objects."""
        return self._parts.current.n

    @property
    def like(self) -> Array:
        """An array whose library and device are those of all results."""
        return self._parts.current.like

    @property
    def is_formed(self) -> bool:
        """Whether the blend is stored already."""
        return self._formed is not None

    @property
    def _without_past(self) -> bool:
        return isinstance(self.alpha, float) and self.alpha == 0.0

    def diagonal(self) -> Array:
        """Return the diagonal of the blend, (n,)."""
        w, psi = self._parts.current.diagonal(), self._parts.past.diagonal()
        source = self._parts.alignment.source
        if source is None:
            return w + self.alpha * (psi - w)
        return array_namespace(w).where(source >= 0, w + self.alpha * (gather(psi, source, 0) - w), w)

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return Ψ̂·V = WV + α (E Ψ Eᵀ − P W P)V."""
        parts = self._parts
        w_v = parts.product(v) if rows is None else parts.rows_product(v, rows)
        if self._without_past:
            return w_v
        product = self.alpha * (parts.change(v) if rows is None else parts.rows_change(v, rows, w_v))
        product += w_v
        return product

    def formed(self, *, overwrite: bool = False) -> Proximity:
        """Return the blend as a stored proximity, formed once.

        With `overwrite` it may take the storage of the past. A blend without a past is W itself, not a
        copy, unless it overwrites.
        """
        parts = self._parts
        if self._without_past and not overwrite:
            return parts.current
        if self._formed is None:
            if overwrite:
                parts.forget()
            self._formed = parts.current.blend(parts.past, self.alpha, parts.alignment, overwrite=overwrite)
        return self._formed

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k)."""
        return self.formed().block_moments(partition)

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (ψ̂ᵢⱼ − μ_{cᵢcⱼ})²."""
        return self.formed().square_distance(partition, means)

    def take(self, index: Array) -> Proximity:  # type: ignore[override]
        """Return the proximities among the objects at `index`."""
        return self.formed().take(index)

    def copy(self) -> Proximity:  # type: ignore[override]
        """Return the blend in storage of its own."""
        return self.formed().copy()

    def blend(  # type: ignore[override]
        self, past: Proximity, alpha: Array | float, alignment: Alignment, *, overwrite: bool = False
    ) -> Proximity:
        """Return the blend of this blend with a past."""
        return self.formed().blend(past, alpha, alignment, overwrite=overwrite)


def _project(v: Array, source: Array) -> Array:
    """Return P·V: V with the rows of new objects set to zero."""
    xp = array_namespace(v)
    return xp.where((source >= 0)[:, None], v, xp.zeros_like(v))
