"""A step of AFFECT k-means with a fixed amount of work: for growth with n, and for the GPU model.

k = 12, three iterations of AFFECT with at most five Lloyd iterations each. The clusters overlap, so that
k-means has not converged when it stops, for any n.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import affect_xp as ax
from affect_xp.exceptions import ConvergenceWarning

from ._data import drifting

K, LLOYD = 12, 5
INITS = ("auto", "previous")


def features(n: int, n_steps: int = 3, dtype: str = "float32") -> list[np.ndarray]:
    """Return features of overlapping clusters, (n, 15) each."""
    return [x.astype(dtype) for x, _ in drifting(n, n_steps, K, spread=0.7, drift=0.1)]


def model(init: str = "auto", **options: Any) -> Callable[[Any], ax.Affect]:
    """Return a function that takes a step with its input and returns the model."""
    affect = ax.Affect(ax.KMeans(K, max_iter=LLOYD), init=init, random_state=0, **options)

    def take(w: Any, ids: Any = None) -> ax.Affect:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return affect.partial_fit(w, ids)

    return take
