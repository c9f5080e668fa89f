"""The estimator `Static`: a baseline that clusters each step on its own."""

import dataclasses
from typing import final

from affect_xp.affect.step import Options, Step, static_step
from affect_xp.clustering.base import Clusterer
from affect_xp.exceptions import InputTypeError
from affect_xp.models.base import Evolving
from affect_xp.partition import Ids
from affect_xp.proximity import Proximity


@final
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Static(Evolving):
    """Static clustering at each step, with cluster ids that are consistent over time.

    A baseline for `Affect`: the past is used only to initialise the clusterer and to match cluster ids.

    Parameters
    ----------
    clusterer : KMeans, ... or a function from a Proximity to labels
    warm_start : bool
        Whether a step starts from the previous labels.
    proximity, scale, gamma, events, random_state
        As for `Affect`.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> W = np.kron(np.eye(2), np.ones((3, 3)))
    >>> ax.Static(ax.KMeans(2), random_state=0).fit([W, W]).labels_
    array([1, 1, 1, 0, 0, 0])
    """

    warm_start: bool = True

    def _check(self) -> None:
        if not isinstance(self.warm_start, bool):
            raise InputTypeError(f"warm_start must be True or False, got {self.warm_start!r}")

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        options = Options(events=self.events, seed=seed)
        return static_step(self._state, W, ids, clusterer, options, warm_start=self.warm_start)
