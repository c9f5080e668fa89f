"""From the input of a step to proximities, with the preparation decided at the first step."""

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from affect_xp.array.namespace import is_lazy
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.clustering.external import as_clusterer
from affect_xp.exceptions import InputError
from affect_xp.proximity import Factored, Proximity, as_proximity
from affect_xp.proximity.kernels import KERNELS, Block, features_to_proximity
from affect_xp.proximity.preparation import Preparation, Request, decide


class Observing(abc.ABC):
    """Convert the input of a step to proximities."""

    clusterer: Any
    proximity: str | Block
    scale: Any = "auto"
    gamma: str | float = "first"
    _preparation: Preparation | None = None

    @abc.abstractmethod
    def _fitted(self) -> Any:
        """Return the state after the last step; raise if no step was taken."""

    def _check_kind(self) -> None:
        """Raise if the clusterer does not accept the kind of `proximity`."""
        if callable(self.proximity):
            return
        check_choice("proximity, if not a function,", self.proximity, ("precomputed", *KERNELS))
        if self._takes_proximities:
            return
        gives, wants = KERNELS[self.proximity].kind, getattr(as_clusterer(self.clusterer), "wants", None)
        if wants not in (None, gives):
            fitting = " or ".join(repr(name) for name, kernel in KERNELS.items() if kernel.kind == wants)
            raise InputError(
                f"proximity={self.proximity!r} gives a {gives}, but {type(self.clusterer).__name__} takes a "
                f"{wants}; use proximity={fitting}, or convert with ax.to_{wants} and pass that"
            )

    @property
    def _takes_proximities(self) -> bool:
        return isinstance(self.proximity, str) and self.proximity == "precomputed"

    def _kind(self) -> str | None:
        """Return "similarity" or "dissimilarity", the kind of the proximities; None if unknown."""
        kernel = KERNELS.get(self.proximity) if isinstance(self.proximity, str) else None
        return getattr(as_clusterer(self.clusterer), "wants", None) if kernel is None else kernel.kind

    def _known_kind(self) -> str:
        """Return the kind of the proximities; raise if it is unknown."""
        kind = self._kind()
        if kind is None:
            raise InputError(
                f"without labels y, score must know whether W contains similarities, and clusterer="
                f"{self.clusterer!r} does not say; give it an attribute wants='similarity' or "
                "'dissimilarity'"
            )
        return kind

    def _wishes(self) -> Request:
        """Return the preparation of features that the parameters request."""
        clusterer = as_clusterer(self.clusterer)
        free = (bool(getattr(clusterer, name, False)) for name in ("translation_free", "unit_free"))
        return Request(self.scale, self.gamma, self.proximity, *free)

    def _observed(self, given: Array | Proximity, columns: Sequence[str] | None = None) -> Proximity:
        """Return the input of a step as a proximity; at the first step, decide on the preparation."""
        if self._preparation is not None:
            return self._proximities(given)
        self._decide(given, columns)
        W = self._untransformed(given)
        self._preparation = dataclasses.replace(self._prepared, rescale=self._choose_rescale(W, given))
        return self._transformed(W)

    def _decide(self, given: Array | Proximity, columns: Sequence[str] | None = None) -> None:
        """Decide on the preparation of features, from those of the first step."""
        of_features = not (self._takes_proximities or isinstance(given, Proximity))
        self._preparation = decide(given, self._wishes(), columns) if of_features else Preparation()

    def _choose_rescale(self, W: Proximity, given: Array | Proximity) -> str | None:
        """Return the transform recommended for the proximities of the first step."""
        return None

    def _proximities(self, given: Array | Proximity) -> Proximity:
        """Return the input of a step as transformed proximities."""
        return self._transformed(self._untransformed(given))

    def _transformed(self, W: Proximity) -> Proximity:
        return W

    def _untransformed(self, given: Array | Proximity) -> Proximity:
        if isinstance(given, Proximity) or self._takes_proximities:
            return as_proximity(given)
        return self._kernel(self._prepared.apply(given))

    def _kernel(self, X: Array) -> Proximity:
        """Return the proximities of prepared features."""
        if self.proximity == "dot" and not is_lazy(X):
            return Factored.from_features(X)
        parameters = {"gamma": self._prepared.gamma} if self.proximity == "rbf" else {}
        return features_to_proximity(X, self.proximity, **parameters)

    @property
    def _prepared(self) -> Preparation:
        """The decisions of the first step; empty before it."""
        return self._preparation or Preparation()

    @property
    def preparation_(self) -> Preparation:
        """The preparation of features and similarities, decided at the first step."""
        self._fitted()
        return self._prepared

    @property
    def location_(self) -> np.ndarray | None:
        """The offset subtracted from each feature, (p,); None if nothing is subtracted."""
        return self.preparation_.location

    @property
    def scale_(self) -> np.ndarray | None:
        """The divisor of each feature, (p,); None for 1."""
        return self.preparation_.scale

    @property
    def gamma_(self) -> float | None:
        """γ of proximity="rbf"; None if it is recomputed at each step, or not needed."""
        return self.preparation_.gamma
