"""PCM: evolutionary spectral clustering that preserves cluster membership (Chi et al.)."""

import dataclasses
from typing import final

from affect_xp.affect.forgetting import alpha_at
from affect_xp.affect.step import Options, Step, static_step
from affect_xp.array.namespace import array_namespace, not_zero
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.clustering.base import Clusterer
from affect_xp.models.base import Evolving
from affect_xp.models.relaxed import (
    Combined,
    Expanded,
    Projection,
    Quality,
    Relaxed,
    Weights,
    check_settings,
    degrees,
    with_means,
)
from affect_xp.partition import Ids, Partition, align
from affect_xp.proximity import Proximity


@final
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class PCM(Evolving):
    """Spectral clustering whose clusters are similar to the previous ones.

    The clusters are computed from the top eigenvectors of

        α Zᵗ⁻¹ Zᵗ⁻¹ᵀ + (1 − α) M(Wᵗ)

    with M as for `PCQ`, and Zᵗ⁻¹ the previous orthonormal solution. α depends on units: the eigenvalues of
    ZZᵀ are 1, and so is the largest of M for normalised cut; for the other objectives the eigenvalues of M
    have the units of W, so α has a different meaning for similarities twice as large. For normalised cut
    the past outweighs the present from about α = 0.5 on, and the first solution then hardly changes.

    Objects that left are dropped from Zᵗ⁻¹, and new ones get the mean row of those that stayed. If no
    object stayed, the step is static. A rule for the number of clusters is evaluated on Wᵗ.

    Parameters
    ----------
    clusterer : Spectral
        With components="joint".
    alpha : float, or sequence with one value per step
        The weight of the past; not used at the first step.
    membership : "relaxed" or "discrete"
        The choice of Zᵗ⁻¹: the eigenvectors, or the membership matrix of the discretized clusters with
        columns of length 1 (for normalised cut, where eigenvectors scale as √d, its rows are scaled by √d).
    proximity, scale, gamma, events, random_state
        As for `Affect`, with similarities: `proximity` is not "euclidean".

    References
    ----------
    Chi, Song, Zhou, Hino & Tseng, "On Evolutionary Spectral Clustering", ACM TKDD 3 (2009) 17.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.models.pcm import PCM
    >>> W = np.kron(np.eye(2), np.ones((3, 3))) + 0.1
    >>> PCM(ax.Spectral(2), alpha=0.3, random_state=0).fit([W, W]).labels_
    array([0, 0, 0, 1, 1, 1])
    """

    alpha: Weights = 0.5
    membership: str = "relaxed"

    def _check(self) -> None:
        check_settings(self.clusterer, self.alpha, "PCM")
        check_choice("membership", self.membership, ("relaxed", "discrete"))

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        state = self._state
        alignment = None if state is None else align(ids, state.ids, W.like)
        if state is None or state.memory is None or alignment is None or alignment.n_common == 0:
            return self._kept(static_step(state, W, ids, clusterer, Options(events=self.events, seed=seed)))
        alpha = alpha_at(self.alpha, state.t + 1)
        now = Quality.of(Expanded(W), self.clusterer.objective, W.n)
        z = with_means(state.memory, alignment)  # (n, r)
        combined = Combined(now, Projection(z), alpha, W.n, W.like)
        relaxed = Relaxed(self.clusterer, W)
        found = static_step(state, combined, ids, relaxed, Options(events=self.events, seed=seed))
        return self._kept(dataclasses.replace(found, observed=W, alphas=(alpha,)))

    def _kept(self, found: Step) -> Step:
        """Return the step with its solution Zᵗ as memory."""
        if self.membership == "relaxed":
            return found
        z = discrete_solution(found.observed, found.state.partition, self.clusterer.objective)
        return dataclasses.replace(found, state=dataclasses.replace(found.state, memory=z))


def discrete_solution(W: Proximity, partition: Partition, objective: str) -> Array:
    """Return clusters as orthonormal columns (n, k): H (HᵀH)^{-1/2}, H = Z; for normalised cut D^{1/2} Z."""
    h = partition.membership
    xp = array_namespace(h)
    if objective == "normalized_cut":
        h = h * xp.sqrt(degrees(Expanded(W), objective, W.n))
    length = xp.sqrt(xp.sum(h * h, axis=0, keepdims=True))
    return h / not_zero(length)
