"""Clusters from the top eigenvectors of a weighted sum of matrices that is never formed.

PCQ and PCM maximise tr Xᵀ A X over orthonormal X, where A is the sum of a term for the present and one for
the past. Each spectral clustering objective has a matrix M(W), with degrees d = W1 and D = diag(d):

    average association   M = W
    ratio cut             M = W − D
    normalised cut        M = D^{-1/2} W D^{-1/2}
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol, final

import numpy as np

from affect_xp.affect.forgetting import alpha_at
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    gather,
    one_hot,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.clustering.base import FIRST, Call, Clustering
from affect_xp.clustering.spectral import CUTS, Spectral, SpectralScan, cluster_by
from affect_xp.exceptions import InputError, InputTypeError, shown
from affect_xp.partition import UNCHANGED, Alignment
from affect_xp.proximity import Dense, Proximity
from affect_xp.proximity._base import Computed

Weights = float | Sequence[float] | np.ndarray


class Term(Protocol):
    """A symmetric n×n matrix, one term of a sum."""

    def matmul(self, v: Array) -> Array:
        """Return its product with a thin V, (n, r)."""

    def diagonal(self) -> Array:
        """Return its diagonal, (n,)."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Expanded:
    """Ŵ = J W Jᵀ: the previous similarities for the current objects.

    A row of J selects the object; for a new object it averages all objects that stayed, so that its
    similarities are their mean. Objects that left are ignored.
    """

    W: Proximity
    alignment: Alignment = UNCHANGED

    def matmul(self, v: Array) -> Array:
        """Return J W (Jᵀ V)."""
        target = self.alignment.target
        if target is None:
            return self.W.matmul(v)
        xp = array_namespace(v)
        known = xp.astype(target >= 0, v.dtype)[:, None]  # (n_past, 1)
        of_new = xp.sum(v, axis=0, keepdims=True) - xp.sum(gather(v, target, 0), axis=0, keepdims=True)
        collected = gather(v, target, 0) + known * of_new / self.alignment.n_common  # JᵀV, (n_past, r)
        return with_means(self.W.matmul(collected), self.alignment)

    def diagonal(self) -> Array:
        """Return ŵᵢᵢ, (n,); for new objects the mean of all ŵ."""
        w_ii, source = self.W.diagonal(), self.alignment.source
        if source is None:
            return w_ii
        xp = array_namespace(w_ii)
        share = xp.astype(source >= 0, w_ii.dtype)[:, None] / self.alignment.n_common  # (n, 1)
        mean = xp.sum(share * self.matmul(share))
        return xp.where(source >= 0, gather(w_ii, source, 0), mean)


def with_means(x: Array, alignment: Alignment) -> Array:
    """Return J X, (n, r): the rows of X (n_past, r), and for new objects the mean of those that stayed."""
    source = alignment.source
    if source is None:
        return x
    rows, xp = gather(x, source, 0), array_namespace(x)
    mean = xp.sum(rows, axis=0, keepdims=True) / alignment.n_common
    return xp.where((source >= 0)[:, None], rows, mean)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Quality:
    """The matrix M of an objective, diag(s) Ŵ diag(s) − diag(o)."""

    similarities: Expanded
    scale: Array | None = None  # s, (n, 1); None for 1
    offset: Array | None = None  # o, (n, 1); None for 0

    @staticmethod
    def of(similarities: Expanded, objective: str, n: int) -> "Quality":
        """Return the matrix of an objective for n objects; a cut copies the smallest degree to the host."""
        if objective not in CUTS:
            return Quality(similarities)
        d = degrees(similarities, objective, n)
        if objective == "ratio_cut":
            return Quality(similarities, offset=d)
        xp = array_namespace(d)
        s = xp.where(d > 0, 1 / xp.sqrt(xp.where(d > 0, d, xp.ones_like(d))), xp.zeros_like(d))
        return Quality(similarities, scale=s)

    def matmul(self, v: Array) -> Array:
        """Return s ∘ Ŵ (s ∘ V) − o ∘ V."""
        if self.scale is not None:
            return self.scale * self.similarities.matmul(self.scale * v)
        product = self.similarities.matmul(v)
        return product if self.offset is None else product - self.offset * v

    def diagonal(self) -> Array:
        """Return s² ∘ diag Ŵ − o, (n,)."""
        w_ii = self.similarities.diagonal()
        if self.scale is not None:
            return self.scale[:, 0] ** 2 * w_ii
        return w_ii if self.offset is None else w_ii - self.offset[:, 0]


def degrees(similarities: Expanded, objective: str, n: int) -> Array:
    """Return d = Ŵ1, (n, 1); raise if a degree is negative."""
    like = similarities.W.like
    xp = array_namespace(like)
    d = similarities.matmul(xp.ones((n, 1), dtype=wide_dtype(like), device=device_of(like)))
    low = float(to_host(xp.min(d), reason="are all degrees positive?")[0])
    if low < 0:
        raise InputError(
            f"objective={objective!r} needs nonnegative similarities, but W has an object of degree "
            f"{low:.4g}; make them positive, or use objective='average_association'"
        )
    return d


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Projection:
    """X Xᵀ for a thin X, (n, r)."""

    x: Array

    def matmul(self, v: Array) -> Array:
        """Return X (Xᵀ V)."""
        return self.x @ (self.x.T @ v)

    def diagonal(self) -> Array:
        """Return Σ_c x²ᵢc, (n,)."""
        return array_namespace(self.x).sum(self.x * self.x, axis=1)


@final
class Combined(Computed):
    """α·P + (1 − α)·M, the weighted sum of a past and a present term, never formed."""

    def __init__(self, current: Term, past: Term, alpha: float, n: int, like: Array) -> None:
        self._current, self._past, self.alpha, self._n, self._like = current, past, alpha, n, like

    @property
    def n(self) -> int:
        return self._n

    @property
    def like(self) -> Array:
        return self._like

    def diagonal(self) -> Array:
        return self.alpha * self._past.diagonal() + (1 - self.alpha) * self._current.diagonal()

    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return α P V + (1 − α) M V."""
        if rows is not None:
            v = one_hot(rows, self.n, v.dtype).T @ v
        return self.alpha * self._past.matmul(v) + (1 - self.alpha) * self._current.matmul(v)

    @functools.cached_property
    def _formed(self) -> Dense:
        xp, wide, device = array_namespace(self.like), wide_dtype(self.like), device_of(self.like)
        places = xp.arange(self.n, dtype=xp.int64, device=device)
        row = xp.empty((1, self.n), dtype=wide, device=device)  # `like` may have another width
        blocks = row_blocks(row, self.n)
        return Dense(xp.concat([self.matmul(one_hot(places[b], self.n, wide).T).T for b in blocks]))

    def formed(self) -> Dense:
        return self._formed


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Relaxed:
    """Clusters from the top eigenvectors of a matrix, with the settings of a `Spectral`.

    Rules for the number of clusters, except "eigengap", are evaluated on the similarities `judged`.
    """

    settings: Spectral
    judged: Proximity

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        self.settings.check()

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of step t, starting from the previous eigenvectors."""
        settings = dataclasses.replace(self.settings, objective="average_association")
        scaled = self.settings.objective == "normalized_cut"

        def scan_up_to(k: int) -> SpectralScan:
            return SpectralScan(proximity, k, settings, call, unit_rows=scaled)

        return cluster_by(settings, scan_up_to, self.judged, call)


def check_settings(clusterer: Any, alpha: Any, name: str) -> None:
    """Raise unless the clusterer is a joint `Spectral`, and α a number or a sequence with one per step."""
    if not isinstance(clusterer, Spectral):
        raise InputTypeError(
            f"{name} takes a Spectral as clusterer, such as Spectral(2), got {shown(clusterer)}"
        )
    if clusterer.components != "joint":
        raise InputError(
            f"{name} clusters all connected components together; use Spectral(..., components='joint'), "
            f"got components={clusterer.components!r}"
        )
    if isinstance(alpha, str) or not hasattr(alpha, "__len__"):
        check_fraction("alpha", alpha)
    else:
        for t in range(len(alpha)):
            alpha_at(alpha, t)
