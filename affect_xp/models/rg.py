"""RG: clustering of features filtered over time, with adaptive coefficients (Rosswog & Ghose)."""

import dataclasses
from collections.abc import Sequence
from typing import final

from affect_xp.affect.step import Options, State, Step, static_step
from affect_xp.array.namespace import array_namespace, check_in_memory, gather, not_zero, one_hot, wide_dtype
from affect_xp.array.typing import Array
from affect_xp.checks import check_int
from affect_xp.clustering.base import Clusterer
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import Linkage
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.models.base import Evolving
from affect_xp.partition import Ids, align
from affect_xp.proximity import Factored, Proximity
from affect_xp.proximity.kernels import Block


@final
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RG(Evolving):
    """k-means or hierarchical clustering of features filtered over the last steps.

    The features of each object pass through a finite impulse response filter of order l,

        yᵗ = b₀ xᵗ + b₁ xᵗ⁻¹ + … + b_l xᵗ⁻ˡ,   Σ b = 1

    and the proximities of the y are clustered. Steps with well-separated clusters get more weight: bᵢ is
    proportional to the separation at t − i. The objects and the number of clusters are fixed.

    The source leaves details open. Here the separation of a step is the mean squared distance between pairs
    of centroids of its unfiltered features x, with the clusters found at that step. The current step, whose
    clusters are not known yet, uses the previous clusters. With fewer than l past steps, the filter is
    shorter. If all centroids coincide, the coefficients are equal.

    Parameters
    ----------
    clusterer : KMeans or Linkage
        With a fixed number of clusters.
    order : int
        l, the number of past steps in the filter; 0 is static clustering.
    power : int
        The power of the distances between centroids whose mean is the separation of a step. The default is
        2: squared distances are the dissimilarities of k-means, and come closest to the published results
        (Xu, Kliger & Hero, section 5.2). 1 gives distances, 0 equal coefficients.
    proximity : "dot", "rbf", "cosine", "euclidean", or function
        The proximity of the filtered features: similarities for k-means, dissimilarities for `Linkage`.
    scale, gamma, events, random_state
        As for `Affect`.

    References
    ----------
    Rosswog & Ghose, "Detecting and Tracking Spatio-Temporal Clusters with Adaptive History Filtering",
    ICDM Workshops 2008; "Detecting and Tracking Coordinated Groups in Dense, Systematically Moving,
    Crowds", SDM 2012.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.models.rg import RG
    >>> steps = list(ax.datasets.colliding_gaussians(n_steps=5, rng=0))
    >>> model = RG(ax.KMeans(2), order=3, random_state=0).fit(step.X for step in steps)
    >>> ax.rand_index(model.labels_, steps[-1].labels)
    1.0
    """

    order: int = 3
    power: int = 2
    proximity: str | Block = "dot"

    def _check(self) -> None:
        check_int("order", self.order, 0)
        check_int("power", self.power, 0)
        if not isinstance(self.clusterer, KMeans | Linkage):
            raise InputTypeError(f"RG takes KMeans or Linkage as clusterer, got {self.clusterer!r}")
        if isinstance(self.clusterer.n_clusters, bool) or not isinstance(self.clusterer.n_clusters, int):
            raise InputError(
                f"RG needs the same number of clusters at all steps, got n_clusters="
                f"{self.clusterer.n_clusters!r}; pass an integer, or use Affect, which lets it change"
            )
        if self.proximity == "precomputed":
            raise InputError(
                "RG filters features, got proximity='precomputed'; pass features with proximity='dot' for "
                "KMeans or 'euclidean' for Linkage"
            )

    def _observed(self, given: Array | Proximity, columns: Sequence[str] | None = None) -> Proximity:
        """Return the given features, prepared, as a factored proximity."""
        message = (
            f"RG takes an (n, p) array of features in memory, got {type(given).__name__}; pass features, "
            "and compute lazy arrays first"
        )
        if isinstance(given, Proximity):
            raise InputTypeError(message)
        check_in_memory(given, message)
        if self._preparation is None:
            self._decide(given, columns)
        return Factored.from_features(self._prepared.apply(given))

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        x, state = W.like, self._state
        past = () if state is None else _past_frames(state, ids, x, self.order)
        # The current clusters are not known yet: use the previous ones.
        frames = (Frame(x, past[0].labels), *past) if past else ()
        y = filtered(frames, self.clusterer.n_clusters, self.power) if past else x
        found = static_step(state, self._kernel(y), ids, clusterer, Options(events=self.events, seed=seed))
        kept = (Frame(x, found.state.partition.labels), *past)[: self.order]
        return dataclasses.replace(found, state=dataclasses.replace(found.state, memory=_packed(kept)))


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """The features of a step, (n, p), and its clusters, (n,)."""

    x: Array
    labels: Array


def filtered(frames: Sequence[Frame], k: int, power: int) -> Array:
    """Return y = Σ bᵢ xᵗ⁻ⁱ, (n, p), for frames from the newest to the oldest."""
    b, x = coefficients(frames, k, power), frames[0].x
    y = sum((b[i] * frame.x for i, frame in enumerate(frames[1:], start=1)), start=b[0] * x)
    return array_namespace(x).astype(y, x.dtype, copy=False)


def coefficients(frames: Sequence[Frame], k: int, power: int) -> Array:
    """Return b, (l + 1,): the separation of each frame divided by their sum."""
    xp = array_namespace(frames[0].x)
    separations = xp.stack([separation(frame, k, power) for frame in frames])
    total = xp.sum(separations)
    equal = xp.full_like(separations, 1 / len(frames))
    return xp.where(total > 0, separations / not_zero(total), equal)


def separation(frame: Frame, k: int, power: int) -> Array:
    """Return the mean power of the distances between pairs of centroids."""
    wide = wide_dtype(frame.x)
    xp = array_namespace(frame.x)
    z = one_hot(frame.labels, k, wide)  # (n, k)
    m = xp.sum(z, axis=0)
    sums = z.T @ xp.astype(frame.x, wide, copy=False)  # (k, p)
    centroids = sums / not_zero(m)[:, None]
    apart = centroids[:, None, :] - centroids[None, :, :]  # (k, k, p)
    return xp.sum(xp.sum(apart * apart, axis=2) ** (power / 2)) / max(1, k * (k - 1))


def _packed(frames: Sequence[Frame]) -> Array | None:
    """Return frames as one array with one row per object: its features and labels, (n, l (p + 1))."""
    if not frames:
        return None
    xp = array_namespace(frames[0].x)
    columns = [(f.x, xp.astype(f.labels, f.x.dtype)[:, None]) for f in frames]
    return xp.concat([part for pair in columns for part in pair], axis=1)


def _past_frames(state: State, ids: Ids, x: Array, order: int) -> tuple[Frame, ...]:
    """Return the frames of the last `order` steps, newest first, for the current objects."""
    alignment = align(ids, state.ids, x)
    if alignment.n_new or alignment.n_gone:
        raise InputError(
            f"RG needs the same ids at all steps, but {alignment.n_new} are new and {alignment.n_gone} left; "
            "use Affect, which lets objects come and go"
        )
    count = min(order, state.t + 1)
    if count == 0 or state.memory is None:
        return ()
    memory = state.memory if alignment.source is None else gather(state.memory, alignment.source, 0)
    width, xp = memory.shape[1] // count, array_namespace(memory)
    if width != x.shape[1] + 1:
        raise InputError(
            f"X has {x.shape[1]} features, but the previous steps had {width - 1}; pass the same ones"
        )
    starts = range(0, count * width, width)
    return tuple(
        Frame(memory[:, i : i + width - 1], xp.astype(memory[:, i + width - 1], xp.int64)) for i in starts
    )
