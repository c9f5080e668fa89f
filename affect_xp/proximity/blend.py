"""Current and past proximities of a step, and their blend, which is multiplied without being formed.

With E the embedding of the objects common to both and P = EEᵀ the projection onto them,

    Ψ̂ = W + α (E Ψ Eᵀ − P W P),

which is the convex combination α Ψ + (1 − α) W for pairs of common objects, and W for all others.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from affect_xp.array import cuda
from affect_xp.array.namespace import (
    array_namespace,
    changed_places,
    from_host,
    gather,
    is_cupy,
    keep,
    mixed,
    mixed_pairs,
    not_negative,
    row_blocks,
    rows_at,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.partition import Alignment, Partition
from affect_xp.proximity._base import Computed, Proximity
from affect_xp.proximity.grouped import (
    MAX_UPDATE_SHARE,
    Grouped,
    Moves,
    membership,
    own_sums,
    run_columns,
)

# Sums of squares, and their squares, neither overflow nor underflow for entries between 2⁻²⁰⁰ and 2²⁰⁰.
USUAL_EXPONENT = 200
# Neither 2¹⁰⁰⁰ nor its inverse overflows.
MAX_EXPONENT = 1000
# A blend by objects of more bytes is multiplied by its parts instead of being formed: no third matrix.
MAX_FORMED_BYTES = 2**28
# Up to this share of objects that have moved, products of a blend by objects are those of its parts.
MAX_MOVERS_SHARE = 0.25


def unit_of(*parts: Proximity) -> float:
    """Return 1, or an even power of two near the largest entry if squares would overflow or underflow."""
    magnitude = max(part.magnitude for part in parts)
    if abs(magnitude) <= USUAL_EXPONENT or magnitude == -math.inf:
        return 1.0
    return 4.0 ** round(max(-MAX_EXPONENT, min(MAX_EXPONENT, magnitude)) / 2)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """Current and past proximities of one representation, with the alignment of their objects."""

    current: Proximity  # W
    past: Proximity  # Ψ
    alignment: Alignment  # the positions of the objects of W in Ψ

    def blend(self, alpha: Array | float) -> "Blend":
        """Return Ψ̂, the blend with weight α of the past."""
        return Blend(self, alpha)

    @functools.cached_property
    def unit(self) -> float:
        """The unit in which squares of entries neither overflow nor underflow; usually 1."""
        return unit_of(self.current, self.past)

    @functools.cached_property
    def in_units(self) -> "Pair":
        """The pair in units of `unit`."""
        return Pair(self.current.in_units_of(self.unit), self.past.in_units_of(self.unit), self.alignment)

    def group(
        self, partition: Partition, *, current: Grouped | None = None, past: Grouped | None = None
    ) -> "GroupedPair":
        """Return both with the labels of the current objects; `current` and `past` may be known."""
        known = Known(current, past=past)
        return GroupedPair(self, partition.labels[:, None], partition.k, partition, known)

    def change(self, v: Array, w_v: Array) -> Array:
        """Return (E Ψ Eᵀ − P W P)V, given WV."""
        source, target = self.alignment.source, self.alignment.target
        if source is None or target is None:
            return self.past.matmul(v) - w_v
        if self.alignment.n_new:
            new = self.alignment.new()
            w_v = w_v - self.current.matmul(array_namespace(v).take(v, new, axis=0), new)
        return gather(self.past.matmul(gather(v, target, 0)), source, 0) - keep(w_v, source, 0)

    @functools.cached_property
    def row_sums(self) -> tuple[Array, Array]:
        """W1 and (E Ψ Eᵀ − P W P)1, (n,): the row sums of every blend follow from them."""
        xp, w = array_namespace(self.current.like), self.current.row_sums()
        return w, self.change(xp.ones_like(w)[:, None], w[:, None])[:, 0]

    def rows_change(self, v: Array, rows: Array, w_v: Array | None = None) -> Array:
        """Return (E Ψ Eᵀ − P W P)V for a V that is zero except in some rows; WV may be known."""
        source = self.alignment.source
        if source is None and w_v is None:
            return self.current.change_matmul(self.past, v, rows)
        if source is None:
            return self.past.matmul(v, rows) - w_v
        known, places = _known_rows(v, rows, source)
        if self.alignment.n_new or w_v is None:
            w_v = self.current.matmul(known, rows)
        return gather(self.past.matmul(known, places), source, 0) - keep(w_v, source, 0)


class Known(NamedTuple):
    """Groups of a pair that are known; see `GroupedPair`."""

    current: Grouped | None = None
    common: Grouped | None = None
    past: Grouped | None = None


NOTHING = Known()


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GroupedPair:
    """W and Ψ with the labels (n, R) of the current objects; products are computed when first needed."""

    pair: Pair
    labels: Array
    k: int
    given: Partition | None = None
    known: Known = NOTHING

    @functools.cached_property
    def partition(self) -> Partition:
        """The partition of the current objects, if there is only one."""
        return self.given or Partition(self.labels[:, 0], self.k)

    @functools.cached_property
    def current(self) -> Grouped:
        """W with these labels: W·Z."""
        if self.known.current is not None:
            return _named(self.known.current, self.given)
        return self.pair.current.grouped(self.labels, self.k, self.given)

    @functools.cached_property
    def common(self) -> Grouped:
        """W with the labels of the common objects only: W·PZ."""
        alignment = self.pair.alignment
        if not alignment.n_new:
            return self.current
        given = None if self.given is None else self.given.masked(alignment.source, alignment.n_new)
        if self.known.common is not None:
            return _named(self.known.common, given)
        # W PZ = WZ − W (Z − PZ), and Z − PZ is zero except in the rows of new objects.
        source: Any = alignment.source
        return _named(self.current.regrouped(keep(self.labels, source, -1), alignment.new()), given)

    @functools.cached_property
    def past(self) -> Grouped:
        """Ψ with the labels of the common objects: Ψ·EᵀZ."""
        alignment = self.pair.alignment
        given = None if self.given is None else self.given.take(alignment.target, alignment.n_gone)
        if self.known.past is not None:
            return _named(self.known.past, given)
        labels = self.labels if alignment.target is None else gather(self.labels, alignment.target, -1)
        return self.pair.past.grouped(labels, self.k, given)

    @property
    def has_kernels(self) -> bool:
        """Whether CuPy kernels can read both matrices."""
        w, psi = self.common.kernel_array, self.past.kernel_array
        return w is not None and psi is not None and w.dtype == psi.dtype

    @property
    def for_kernels(self) -> cuda.Both:
        """Both matrices, their products, and the labels of common objects."""
        w, psi, source = self.common, self.past, self.pair.alignment.source
        wz, past_z = w.rows(slice(0, self.pair.current.n)), psi.rows(slice(0, self.pair.past.n))
        labels = w.partition.short_labels
        return cuda.Both(w.kernel_array, psi.kernel_array, wz, past_z, source, labels)

    def products(self) -> tuple[Array, Grouped]:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block of common objects, (k, k), and Ψ by labels."""
        pair, partition = self.pair, self.common.partition
        if pair.alignment.unchanged and self.known.past is None:
            found = pair.current.products_and_past(pair.past, partition)
            if found is not None:
                return found
        if pair.alignment.unchanged:
            differences = pair.current.block_differences(pair.past, partition)
            if differences is not None:  # 2Σwψ = Σw² + Σψ² − Σ(w − ψ)²
                now: Any = self.common
                before: Any = self.past
                return (now.block_sums[1] + before.block_sums[1] - differences) / 2, before
        return pair.current.block_products(pair.past, pair.alignment, partition), self.past

    @property
    def in_units(self) -> "GroupedPair":
        """The pair in units in which squares of entries neither overflow nor underflow."""
        return self if self.pair.unit == 1 else self._rescaled

    @functools.cached_property
    def _rescaled(self) -> "GroupedPair":
        return self.pair.in_units.group(self.partition)

    def at(self, blend: "Blend | ObjectBlend") -> Grouped:
        """Return a blend of the pair with these labels; W if the blend does not use the past."""
        if isinstance(blend, ObjectBlend):
            return ObjectGroups(blend, self.labels, self.k, self.given, self)
        if blend.without_past:
            return self.current
        joined = self.current.joined(self.past, blend) if self.pair.alignment.unchanged else None
        return joined or BlendGroups(blend, self.labels, self.k, self.given, self)

    def near(self, other: "GroupedPair") -> "GroupedPair":
        """Return the same pair, able to reuse sums of W of `other`, whose labels are similar."""
        if self.pair.alignment.n_new:
            return self
        known = Known(self.current.near(other.current), self.known.common, self.past)
        return GroupedPair(self.pair, self.labels, self.k, self.given, known)

    def relabelled(self, partition: Partition, current: Grouped | None = None) -> "GroupedPair":
        """Return the pair with another partition, by which W may be known; update sums if few objects move.

        If W is not known, clusters may get other numbers.
        """
        partition = partition.numbered_like(self.partition) if current is None else partition
        rows = changed_places(self.partition.labels, partition.labels) if self.k == partition.k else None
        most = min(MAX_UPDATE_SHARE, self.pair.past.max_update_share) * partition.n
        if rows is None or len(rows) > most:
            current = current or self.pair.current.summing_squares().group(partition)
            return self.pair.group(partition, current=current)
        labels = partition.labels[:, None]
        moved = self.moved(labels, Moves(rows, self.labels, labels, self.k), current)
        return dataclasses.replace(moved, given=partition)

    def moved(self, labels: Array, moves: Moves, current: Grouped | None = None) -> "GroupedPair":
        """Return the pair with other labels, which differ for some objects; W by them may be known."""
        source, target = self.pair.alignment.source, self.pair.alignment.target
        current, common = current or self.current.moved(labels, moves), None
        if source is None or target is None:
            known = Known(current, past=self.past.moved(labels, moves))
            return GroupedPair(self.pair, labels, self.k, known=known)
        before = array_namespace(labels).take(source, moves.objects)
        if self.pair.alignment.n_new:
            here = dataclasses.replace(moves, places=keep(moves.objects, before, -1))
            common = self.common.moved(keep(labels, source, -1), here)
        there = dataclasses.replace(moves, places=before)
        past = self.past.moved(gather(labels, target, -1), there)
        return GroupedPair(self.pair, labels, self.k, known=Known(current, common, past))

    def of_runs(self, runs: list[int], labels: Array) -> "GroupedPair":
        """Return the pair with some of the partitions, given their labels."""
        common = None if self.common is self.current else self.common.of_runs(runs)
        known = Known(self.current.of_runs(runs), common, self.past.of_runs(runs))
        return GroupedPair(self.pair, labels, self.k, known=known)


@dataclasses.dataclass(frozen=True, eq=False)
class BlendGroups(Grouped):
    """Ψ̂Z = WZ + α (E ΨEᵀZ − P W PZ), computed from the groups of its parts."""

    proximity: Any
    parts: GroupedPair = None  # type: ignore[assignment]

    def rows(self, which: slice | Array) -> Array:
        is_all = isinstance(which, slice) and which == slice(0, self.labels.shape[0])
        if type(self) is BlendGroups and is_all and is_cupy(self.labels):
            return cuda.blended(self.for_kernels())
        w = self.parts.current.rows(which)
        change = self.change(which, w)
        change *= self.proximity.alpha
        change += w
        return change

    def change(self, which: slice | Array, w: Array) -> Array:
        """Return some rows of (E Ψ Eᵀ − P W P)Z, given those of WZ."""
        parts, source = self.parts, self.parts.pair.alignment.source
        if source is None:
            return parts.past.rows(which) - w
        places = rows_at(source, which)
        base = w if parts.common is parts.current else parts.common.rows(which)
        return keep(parts.past.rows(not_negative(places)) - base, places, 0)

    def own(self) -> Array:
        parts, w = self.parts, self.parts.current.own()
        base = w if parts.common is parts.current else parts.common.own()
        return w + self.proximity.alpha * (parts.past.own() - base)

    def for_kernels(self) -> cuda.Product:
        parts, (n, m) = self.parts, (self.labels.shape[0], self.parts.pair.past.n)
        base = None if parts.common is parts.current else parts.common.rows(slice(0, n))
        w, psi = parts.current.rows(slice(0, n)), parts.past.rows(slice(0, m))
        return cuda.Product(w, psi, self.proximity.alpha, base, parts.pair.alignment.source)

    @property
    def moves_unread(self) -> bool:
        parts = self.parts
        return type(self) is BlendGroups and parts.current.moves_unread and parts.past.moves_unread

    def moved(self, labels: Array, moves: Moves) -> "BlendGroups":
        return BlendGroups(self.proximity, labels, self.k, parts=self.parts.moved(labels, moves))

    def of_runs(self, runs: list[int]) -> "BlendGroups":
        if len(runs) == self.n_runs:
            return self
        labels = array_namespace(self.labels).take(self.labels, from_host(runs, self.labels), axis=1)
        return dataclasses.replace(self, labels=labels, given=None, parts=self.parts.of_runs(runs, labels))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ObjectGroups(BlendGroups):
    """Ψ̂Z = WZ + a S (DZ − D(I − S)Z), D = E Ψ Eᵀ − P W P: the last term is of the few movers alone."""

    lost: Array | None = None  # D(I − S)Z, (n, R·k), if known
    earlier: tuple[Partition, Array] | None = None  # labels and their Σ ψ̂ᵢⱼ² of each block, if known

    def handed_over(self) -> tuple[Partition, Array] | None:
        return self.earlier

    @functools.cached_property
    def _lost(self) -> Array:
        if self.lost is not None:
            return self.lost
        movers = self.proximity.movers
        z = membership(rows_at(self.labels, movers), self.k, wide_dtype(self.labels))
        return self.proximity.lost(z, movers)

    def change(self, which: slice | Array, w: Array) -> Array:
        """Return some rows of S D S Z, given those of WZ."""
        change = super().change(which, w)
        change -= rows_at(self._lost, which)
        change *= rows_at(self.proximity.trust, which)[:, None]
        return change

    def own(self) -> Array:
        blocks = row_blocks(self.labels, n_columns=self.n_runs * self.k)
        return sum(own_sums(self.rows(rows), self.labels[rows, :], self.k) for rows in blocks)

    def moved(self, labels: Array, moves: Moves) -> "ObjectGroups":
        lost, known = self._lost, dataclasses.replace(moves, places=None)
        among = np.flatnonzero(self.proximity.trust[moves.objects] < 1)
        if len(among):
            lost = lost + self.proximity.lost(known.v[among], moves.objects[among])
        return ObjectGroups(self.proximity, labels, self.k, parts=self.parts.moved(labels, moves), lost=lost)

    def of_runs(self, runs: list[int]) -> "ObjectGroups":
        lost = array_namespace(self._lost).take(self._lost, run_columns(runs, self.k, self.labels), axis=1)
        few = super().of_runs(runs)
        return ObjectGroups(self.proximity, few.labels, self.k, parts=few.parts, lost=lost)


def _named(groups: Grouped, partition: Partition | None) -> Grouped:
    """Return groups with their partition, which may know how many objects are unlabelled."""
    if partition is None or groups.given is not None:
        return groups
    return dataclasses.replace(groups, given=partition)


def _known_rows(v: Array, rows: Array, source: Array) -> tuple[Array, Array]:
    """Return rows of V with those of new objects set to zero, and their positions in the past.

    A new object has no position; since its row of V is zero, position 0 is used.
    """
    xp = array_namespace(v)
    places = xp.take(source, rows)
    return keep(v, places, 0), not_negative(places)


class _PairBlend(Computed):
    """A blend of a pair, formed once for methods that need a stored matrix."""

    def __init__(self, pair: Pair, alpha: Array | float) -> None:
        self.pair, self.alpha = pair, alpha
        self._formed: Proximity | None = None

    @property
    def n(self) -> int:
        return self.pair.current.n

    @property
    def like(self) -> Array:
        return self.pair.current.like

    @property
    def is_formed(self) -> bool:
        """Whether the blend is already stored."""
        return self._formed is not None

    @property
    def max_update_share(self) -> float:  # type: ignore[override]
        return self.pair.current.max_update_share

    @property
    def thin_dtype(self) -> object:
        """The `thin_dtype` of both parts, if they agree."""
        now, before = self.pair.current.thin_dtype, self.pair.past.thin_dtype
        return now if now == before else wide_dtype(self.like)


@final
class Blend(_PairBlend):
    """Ψ̂ = α·Ψ + (1 − α)·W, computed from the products of its two parts.

    Methods that need a stored matrix use `formed()`, which forms the blend once. With the number 0.0 as
    `alpha` the past is not used.
    """

    def at(self, alpha: Array | float) -> "Blend":
        """Return the blend of the same pair with another α."""
        return Blend(self.pair, alpha)

    @property
    def without_past(self) -> bool:
        """Whether α is the number 0.0, so that the past is not used."""
        return isinstance(self.alpha, float) and self.alpha == 0.0

    def diagonal(self) -> Array:
        return self._diagonal

    @functools.cached_property
    def _diagonal(self) -> Array:
        pair = self.pair
        return mixed(pair.current.diagonal(), pair.past.diagonal(), self.alpha, pair.alignment.source)

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return Ψ̂·V = WV + α (E Ψ Eᵀ − P W P)V."""
        pair = self.pair
        w_v = pair.current.matmul(v, rows)
        if self.without_past:
            return w_v
        product = pair.change(v, w_v) if rows is None else pair.rows_change(v, rows, w_v)
        product *= (
            self.alpha if isinstance(self.alpha, float) else array_namespace(v).astype(self.alpha, v.dtype)
        )
        product += w_v
        return product

    def row_sums(self) -> Array:
        """Return Ψ̂1, (n,); products with the parts are computed once for all α."""
        w, change = self.pair.row_sums
        return w if self.without_past else w + self.alpha * change

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Grouped:
        return GroupedPair(self.pair, labels, k, given).at(self)

    def from_parts(self, groups: GroupedPair) -> Grouped:
        """Return Ψ̂ with the labels of its parts."""
        return groups.at(self)

    @property
    def alignment(self) -> Alignment:
        """The positions of the objects of W in Ψ."""
        return self.pair.alignment

    def formed(self, *, out: Proximity | None = None) -> Proximity:
        """Return the blend as a stored proximity, formed once; it may use the storage of `out`.

        A blend without a past is W itself, not a copy, unless `out` is given.
        """
        pair = self.pair
        if self.without_past and out is None:
            return pair.current
        if self._formed is None:
            self._formed = pair.current.blend(pair.past.formed(), self.alpha, pair.alignment, out=out)
        return self._formed

    def submatrix(self, index: Array | None = None) -> Array:
        """Return the blend among the objects at `index`, by default all; no other entries are formed."""
        pair, source = self.pair, self.pair.alignment.source
        w = pair.current.submatrix(index)
        if self.without_past:
            return w
        if source is None:
            return mixed(w, pair.past.submatrix(index), self.alpha)
        places = source if index is None else array_namespace(w).take(source, index)
        return mixed_pairs(w, pair.past.submatrix(not_negative(places)), self.alpha, places)


@final
class ObjectBlend(_PairBlend):
    """Ψ̂ = W + a S (E Ψ Eᵀ − W) S with S = diag(s): the weight of the past is a·sᵢsⱼ.

    `alpha` is a, and `trust` is s, (n,), between 0 and 1; 0 for objects without a past. `sums` are labels and
    their Σw², Σψ² and Σwψ over i ≠ j of each block, if known.
    """

    def __init__(
        self,
        pair: Pair,
        alpha: Array | float,
        trust: Array,
        sums: tuple[Partition, Array, Array, Array] | None = None,
    ) -> None:
        super().__init__(pair, alpha)
        self.trust, self.sums = trust, sums

    def at(self, alpha: Array | float) -> "ObjectBlend":
        """Return the blend of the same pair with another a."""
        return ObjectBlend(self.pair, alpha, self.trust)

    def diagonal(self) -> Array:
        w, psi, source = self.pair.current.diagonal(), self.pair.past.diagonal(), self.pair.alignment.source
        psi = psi if source is None else gather(psi, source, 0)
        return w + self.alpha * (self.trust * self.trust * (psi - w))

    @functools.cached_property
    def movers(self) -> np.ndarray | None:
        """The objects with a past that have s < 1; None if they are many, or if one would wait for them."""
        source, n = self.pair.alignment.source, self.trust.shape[0]
        suspect = self.trust < 1 if source is None else (self.trust < 1) & (source >= 0)
        places = changed_places(False, suspect)
        return None if places is None or len(places) > MAX_MOVERS_SHARE * n else places

    def lost(self, v: Array, rows: Array) -> Array:
        """Return D(I − S)V, D = E Ψ Eᵀ − P W P, for a V that is zero except in some rows."""
        xp = array_namespace(v)
        share = xp.astype(1 - xp.take(self.trust, rows), v.dtype, copy=False)
        return self.pair.rows_change(share[:, None] * v, rows)

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return Ψ̂·V = WV + a S D S V."""
        return _product([self], v, rows)

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Grouped:
        """Return Ψ̂ with the labels of its objects; it is formed if that is not slower, and not too large."""
        if self._by_parts:
            return GroupedPair(self.pair, labels, k, given).at(self)
        if self._formed is None and self.pair.current.stored_bytes > MAX_FORMED_BYTES:
            return super().grouped(labels, k, given)
        return self.formed().grouped(labels, k, given)

    def from_parts(self, groups: GroupedPair) -> Grouped:
        """Return Ψ̂ with the labels of its parts."""
        if self.movers is None:
            return self.grouped(groups.labels, groups.k, groups.given)
        grouped = groups.at(self)
        return grouped if self._by_parts else self.formed().carried(grouped) or grouped

    @property
    def _by_parts(self) -> bool:
        """Whether products are those of the parts: sparse blends are formed, since the step needs them."""
        return self._formed is None and self.movers is not None and self.pair.current.carries_products

    def block_squares(self) -> tuple[Partition, Array] | None:
        """Return labels and their Σψ̂² over i ≠ j of each block; None if all entries would have to be read.

        Σψ̂² = a²Σψ² + 2a(1 − a)Σwψ + (1 − a)²Σw² + change by movers
        """
        a, pair = self.alpha, self.pair
        if self.sums is None or self.movers is None or not pair.alignment.unchanged or pair.unit != 1:
            return None
        partition, now, before, both = self.sums
        change = pair.current.change_by_trust(pair.past, a, self.trust, self.movers, partition)
        if change is None:
            return None
        return partition, a * a * before + 2 * a * (1 - a) * both + (1 - a) ** 2 * now + change

    def submatrix(self, index: Array | None = None) -> Array:
        """Return the blend among the objects at `index`, by default all; no other entries are formed."""
        if self._formed is not None:
            return self._formed.submatrix(index)
        pair, source, s = self.pair, self.pair.alignment.source, self.trust
        w = pair.current.submatrix(index)
        xp, places = array_namespace(w), index
        if index is not None:
            s = xp.take(s, index)
        if source is not None:
            places = not_negative(source if index is None else xp.take(source, index))
        return w + self.alpha * (s[:, None] * s[None, :]) * (pair.past.submatrix(places) - w)

    def formed(self, *, out: Proximity | None = None) -> Proximity:
        """Return the blend as a stored proximity, formed once; it may use the storage of `out`."""
        if self._formed is None:
            current, past, alignment = self.pair.current, self.pair.past, self.pair.alignment
            self._formed = current.blend_by_object(past, self.alpha, self.trust, alignment, out=out)
        return self._formed


@final
class TwoSidedBlend(Computed):
    """Ψ̂ = W + a S (F − W) S + b U (B − W) U: blends by objects of W with its past and with its future."""

    def __init__(self, sides: Sequence[ObjectBlend]) -> None:
        self.sides, self.W = sides, sides[0].pair.current

    @property
    def n(self) -> int:
        return self.W.n

    @property
    def like(self) -> Array:
        return self.W.like

    @property
    def thin_dtype(self) -> object:
        return self.sides[0].thin_dtype

    def diagonal(self) -> Array:
        return sum(side.diagonal() for side in self.sides) - self.W.diagonal()

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        return _product(self.sides, v, rows)

    def submatrix(self, index: Array | None = None) -> Array:
        return sum(side.submatrix(index) for side in self.sides) - self.W.submatrix(index)

    def formed(self) -> Proximity:
        return self._formed

    @functools.cached_property
    def _formed(self) -> Proximity:
        return self.W.blend_two_sided([(side.pair.past, side.alpha, side.trust) for side in self.sides])


def _product(blends: Sequence[ObjectBlend], v: Array, rows: Array | None) -> Array:
    """Return WV + Σ a S D S V of blends of the same W, with one pass over W."""
    xp, W, r = array_namespace(v), blends[0].pair.current, v.shape[1]
    trusts = [xp.astype(blend.trust, v.dtype, copy=False)[:, None] for blend in blends]
    if rows is None and all(blend.movers is not None for blend in blends):
        product = w_v = W.matmul(v)
        for blend, s in zip(blends, trusts, strict=True):
            change = blend.pair.change(v, w_v)
            change -= blend.lost(v[blend.movers, :], blend.movers)
            product = product + blend.alpha * (s * change)
        return product
    trusted = [(s if rows is None else xp.take(s, rows, axis=0)) * v for s in trusts]
    both = W.matmul(xp.concat([v, *trusted], axis=1), rows)
    product = both[:, :r]
    for i, (blend, s, s_v) in enumerate(zip(blends, trusts, trusted, strict=True), start=1):
        w_v = both[:, i * r : (i + 1) * r]
        pair = blend.pair
        change = pair.change(s_v, w_v) if rows is None else pair.rows_change(s_v, rows, w_v)
        product = product + blend.alpha * (s * change)
    return product
