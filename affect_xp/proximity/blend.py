"""The blend of a proximity with its past, multiplied without being formed."""

import dataclasses
from typing import Any, final

from affect_xp.alignment import Alignment
from affect_xp.array.namespace import array_namespace, gather, wide_dtype
from affect_xp.array.typing import Array
from affect_xp.partition import Partition
from affect_xp.proximity._base import Proximity
from affect_xp.proximity.product import Product


class _Parts:
    """The present W and the past Ψ of a blend, and their products, which do not depend on α.

    The products with the last membership are remembered, recognised by identity: every iteration of a step
    starts k-means from the same one.
    """

    def __init__(self, current: Proximity, past: Proximity, alignment: Alignment) -> None:
        self.current, self.past, self.alignment = current, past, alignment
        self._z: Array = None
        self._products: dict[str, Product] = {}
        self.notes: dict[str, Any] = {}

    def forget(self) -> None:
        """Let go of the products; those of the past are void once it is overwritten."""
        self._z, self._products, self.notes = None, {}, {}

    def know(self, z: Array, past: Product) -> None:
        """Take Ψ·EᵀZ as known."""
        self._z, self._products = z, {"past": past}

    def product(self, name: str, z: Array) -> Product:
        """Return WZ ("current"), W·PZ ("common") or Ψ·EᵀZ ("past")."""
        if z is not self._z:
            self._z, self._products = z, {}
        if name not in self._products:
            self._products[name] = self._multiply(name, z)
        return self._products[name]

    def _multiply(self, name: str, z: Array) -> Product:
        alignment = self.alignment
        if name == "past":
            return self.past.product(z if alignment.target is None else gather(z, alignment.target, 0))
        if name == "current":
            return self.current.product(z)
        if not alignment.n_new:
            return self.product("current", z)
        # W PZ = WZ − W (Z − PZ), and Z − PZ is zero but for the rows of new objects.
        new = alignment.new()
        return self.product("current", z).moved(-array_namespace(z).take(z, new, axis=0), new)

    def products_at(self, z: Array, current: Product | None) -> tuple[Product, Product]:
        """Return W·PZ and Ψ·EᵀZ, given WZ where it is known; they are not remembered."""
        common = self.current.product(z) if current is None else current
        if self.alignment.n_new:
            new = self.alignment.new()
            common = common.moved(-array_namespace(z).take(z, new, axis=0), new)
        return common, self._multiply("past", z)

    def change(self, v: Array, w_v: Array) -> Array:
        """Return (E Ψ Eᵀ − P W P)V, given WV."""
        source, target = self.alignment.source, self.alignment.target
        if source is None or target is None:
            return self.past.matmul(v) - w_v
        if self.alignment.n_new:
            new = self.alignment.new()
            w_v = w_v - self.current.matmul(array_namespace(v).take(v, new, axis=0), new)
        return gather(self.past.matmul(gather(v, target, 0)), source, 0) - _project(w_v, source)

    def rows_change(self, v: Array, rows: Array, w_v: Array) -> Array:
        """Return (E Ψ Eᵀ − P W P)V for a V that is zero but for some rows, given WV."""
        source = self.alignment.source
        if source is None:
            return self.past.matmul(v, rows) - w_v
        known, places = _known_rows(v, rows, source)
        if self.alignment.n_new:
            w_v = self.current.matmul(known, rows)
        return gather(self.past.matmul(known, places), source, 0) - _project(w_v, source)


def _known_rows(v: Array, rows: Array, source: Array) -> tuple[Array, Array]:
    """Return the rows of a V with those of new objects set to zero, and where they stand in the past.

    A new object has no row there: its row of V being zero, any will do.
    """
    xp = array_namespace(v)
    places = xp.take(source, rows)
    return _project(v, places), xp.where(places >= 0, places, xp.zeros_like(places))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class BlendProduct(Product):
    """Ψ̂Z = WZ + α (E ΨEᵀZ − P W PZ), known through the products of its parts."""

    proximity: "Blend"
    current: Product  # WZ
    common: Product  # W·PZ; the same as `current` where no object is new
    past: Product  # Ψ·EᵀZ, with a row for each object of the past

    @property
    def alpha(self) -> Array | float:
        """The weight of the past."""
        return self.proximity.alpha

    @property
    def alignment(self) -> Alignment:
        """Where the objects of W stand in Ψ."""
        return self.proximity.alignment

    def rows(self, which: slice | Array) -> Array:
        """Return some rows of Ψ̂Z."""
        w, source = self.current.rows(which), self.alignment.source
        if source is None:
            change = self.past.rows(which) - w
        else:
            xp = array_namespace(w)
            places = source[which] if isinstance(which, slice) else xp.take(source, which)
            known = places >= 0
            psi = self.past.rows(xp.where(known, places, xp.zeros_like(places)))
            base = w if self.common is self.current else self.common.rows(which)
            change = _project(psi - base, places)
        change *= self.alpha
        change += w
        return change

    def own(self, labels: Array, k: int, z: Array | None = None) -> Array:
        """Return the diagonal of ZᵀΨ̂Z for each partition, (R, k)."""
        source, target = self.alignment.source, self.alignment.target
        w = base = self.current.own(labels, k, z)
        if source is None or target is None:
            return w + self.alpha * (self.past.own(labels, k, z) - w)
        if self.common is not self.current:
            xp = array_namespace(labels)
            base = self.common.own(xp.where((source >= 0)[:, None], labels, -xp.ones_like(labels)), k)
        return w + self.alpha * (self.past.own(gather(labels, target, -1), k) - base)

    def moved(self, v: Array, rows: Array) -> "BlendProduct":
        """Return Ψ̂·(Z + V)."""
        current = common = self.current.moved(v, rows)
        if self.alignment.source is not None:
            v, places = _known_rows(v, rows, self.alignment.source)
            if self.common is not self.current:
                common = self.common.moved(v, rows)
            rows = places
        return dataclasses.replace(self, current=current, common=common, past=self.past.moved(v, rows))

    def columns(self, index: Array) -> "BlendProduct":
        """Return some columns of Ψ̂Z."""
        current, past = self.current.columns(index), self.past.columns(index)
        common = current if self.common is self.current else self.common.columns(index)
        return dataclasses.replace(self, current=current, common=common, past=past)


def parts_of(product: Product | None) -> tuple[Product, Product] | None:
    """Return the products of W and of Ψ with the objects common to both, where a blend's product tells."""
    return (product.common, product.past) if isinstance(product, BlendProduct) else None


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
    def few(self) -> float:  # type: ignore[override]
        """That of its parts."""
        return self._parts.current.few

    @property
    def thin_dtype(self) -> object:
        """That of both parts, if they agree."""
        now, before = self._parts.current.thin_dtype, self._parts.past.thin_dtype
        return now if now == before else wide_dtype(self.like)

    @property
    def only_part(self) -> Proximity | None:
        """W or Ψ, where the blend is one of them: with the number 0.0; with 1.0 if no object changed."""
        if self._without_past:
            return self._parts.current
        only_past = isinstance(self.alpha, float) and self.alpha == 1.0 and self.alignment.source is None
        return self._parts.past if only_past else None

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
        w_v = parts.current.matmul(v, rows)
        if self._without_past:
            return w_v
        product = self.alpha * (parts.change(v, w_v) if rows is None else parts.rows_change(v, rows, w_v))
        product += w_v
        return product

    def product(self, z: Array) -> Product:
        """Return Ψ̂·Z for memberships Z; its parts are those of every blend of the same W and Ψ."""
        if self._without_past:
            return self._parts.product("current", z)
        current, common, past = (self._parts.product(name, z) for name in ("current", "common", "past"))
        return BlendProduct(self, current, common, past)

    def know(self, z: Array, past: Product) -> None:
        """Take the product of the past with a membership Z as known from before."""
        self._parts.know(z, past)

    def parts(self, z: Array) -> tuple[Product, Product]:
        """Return the products of W and of Ψ with the membership Z of the objects common to both."""
        return self._parts.product("common", z), self._parts.product("past", z)

    @property
    def notes(self) -> dict[str, Any]:
        """What algorithms remember of the parts, for blends of them with another α."""
        return self._parts.notes

    def parts_at(self, z: Array, current: Product | None = None) -> tuple[Product, Product]:
        """Return the same for a membership that will not be asked for again; WZ may be known."""
        return self._parts.products_at(z, current)

    @property
    def alignment(self) -> Alignment:
        """Where the objects of W stand in Ψ."""
        return self._parts.alignment

    def formed(self, *, overwrite: bool = False) -> Proximity:
        """Return the blend as a stored proximity, formed once.

        With `overwrite` it may take the storage of the past. A blend without a past is W itself, not a
        copy, unless it overwrites.
        """
        parts = self._parts
        if self._without_past and not overwrite:
            return parts.current
        if self._formed is None:
            parts.forget()  # void if the past is overwritten, and in the way if not
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

    def submatrix(self, index: Array | None = None) -> Array:
        """Return the blend among the objects at `index`, by default all; nothing else is formed."""
        parts, source = self._parts, self._parts.alignment.source
        w = parts.current.submatrix(index)
        if self._without_past:
            return w
        xp = array_namespace(w)
        if source is None:
            return w + self.alpha * (parts.past.submatrix(index) - w)
        places = source if index is None else xp.take(source, index)
        known = places >= 0
        psi = parts.past.submatrix(xp.where(known, places, xp.zeros_like(places)))
        return xp.where(known[:, None] & known[None, :], w + self.alpha * (psi - w), w)

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
