"""PCQ: evolutionary spectral clustering that preserves cluster quality (Chi et al.)."""

import dataclasses
from typing import final

from affect_xp.affect.forgetting import alpha_at
from affect_xp.affect.step import Options, State, Step, static_step
from affect_xp.clustering.base import Clusterer
from affect_xp.models.base import Evolving
from affect_xp.models.relaxed import Combined, Expanded, Quality, Relaxed, Weights, check_settings
from affect_xp.partition import Ids, align
from affect_xp.proximity import Proximity


@final
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class PCQ(Evolving):
    """Spectral clustering whose clusters also have a good objective on the previous step.

    The clusters are computed from the top eigenvectors of

        α M(Wᵗ⁻¹) + (1 − α) M(Wᵗ)

    with M(W) = W for average association, W − D for ratio cut (minus its Laplacian), and D^{-1/2} W D^{-1/2}
    for normalised cut. The past is the previous observation.

    Objects that left are dropped from Wᵗ⁻¹. New ones get the mean row of those that stayed, and among
    themselves the mean of all entries. If no object stayed, the step is static. A rule for the number
    of clusters is evaluated on αWᵗ⁻¹ + (1 − α)Wᵗ.

    Parameters
    ----------
    clusterer : Spectral
        With components="joint".
    alpha : float, or sequence with one value per step
        The weight of the past; not used at the first step.
    proximity, scale, gamma, events, random_state
        As for `Affect`, with similarities: `proximity` is not "euclidean".

    References
    ----------
    Chi, Song, Zhou, Hino & Tseng, "On Evolutionary Spectral Clustering", ACM TKDD 3 (2009) 17.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> from affect_xp.models.pcq import PCQ
    >>> W = np.kron(np.eye(2), np.ones((3, 3))) + 0.1
    >>> PCQ(ax.Spectral(2), alpha=0.3, random_state=0).fit([W, W]).labels_
    array([0, 0, 0, 1, 1, 1])
    """

    alpha: Weights = 0.5

    def _check(self) -> None:
        check_settings(self.clusterer, self.alpha, "PCQ")

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        state = self._state
        alignment = None if state is None else align(ids, state.ids, W.like)
        if state is None or state.smoothed is None or alignment is None or alignment.n_common == 0:
            return static_step(state, W, ids, clusterer, Options(events=self.events, seed=seed))
        alpha, objective = alpha_at(self.alpha, state.t + 1), self.clusterer.objective
        now, before = Expanded(W), Expanded(state.smoothed, alignment)
        combined = Combined(
            Quality.of(now, objective, W.n), Quality.of(before, objective, W.n), alpha, W.n, W.like
        )
        relaxed = Relaxed(self.clusterer, Combined(now, before, alpha, W.n, W.like))
        found = static_step(state, combined, ids, relaxed, Options(events=self.events, seed=seed))
        return dataclasses.replace(found, observed=W, alphas=(alpha,))

    def _next_state(self, found: Step, out: Proximity | None) -> State:
        return found.commit()  # stores Wᵗ, which the next step combines with its own W
