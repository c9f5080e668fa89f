"""The estimators of this method and of static clustering; see `affect_xp.evolving` for what they share."""

import warnings
from typing import Any, final

import numpy as np

from affect_xp import _array
from affect_xp._typing import Array
from affect_xp._validation import check_choice, check_int
from affect_xp.absence import ABSENT, keep_absent
from affect_xp.affect import INITS, Alpha, State, Step, check_alpha, static_step, step
from affect_xp.clusterers import Clusterer
from affect_xp.events import DEFAULT_RULES, EventRules
from affect_xp.evolving import Evolving, IdsOrNone
from affect_xp.exceptions import InputTypeError, SkewedWarning
from affect_xp.forgetting import check_correction
from affect_xp.kernels import Block
from affect_xp.objects import Ids
from affect_xp.proximity import Factored, Proximity
from affect_xp.transforms import Transform, check_transform, skewness, skewness_hint, transform

__all__ = ["Affect", "Evolving", "IdsOrNone", "Static"]


@final
class Affect(Evolving):
    """Evolutionary clustering with an adaptive forgetting factor.

    Tracks the proximities of objects over time and clusters the estimate at each step:

        Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

    where αᵗ is estimated from the data (see `forgetting_factor`). Objects may come and go: new ones
    follow the present alone, and do not touch α.

    Parameters
    ----------
    clusterer : KMeans, ... or a function from a Proximity to labels
        The static method applied to Ψ̂ᵗ.
    proximity : "precomputed", "dot", "rbf", "cosine", "euclidean", or function
        What a step is given: proximities, or features from which they are made. "dot" never forms n×n
        (see `Factored`); the others do (see `affect_xp.kernels`). "euclidean" gives dissimilarities.
    rescale : None, "log1p", "sqrt", "binary", "volume", "degree", or function
        What is made of the proximities before they are tracked; see `affect_xp.transforms.transform`. Counts
        with heavy tails, such as those of contacts, call for "log1p": without a transform a `SkewedWarning`
        says so at the first step.
    absent : "forget" or "keep"
        What becomes of objects that are not there at a step. "forget": they are new when they return, as in
        the paper. "keep": their smoothed proximities stay as they are until they return; pairs that were
        never there together follow the present. See `affect_xp.absence`.
    max_absence : int
        After so many steps in a row an object that is away is forgotten, too.
    n_iter : int
        How often a step goes from clusters to α to clusters. It stops earlier when nothing changes.
    alpha : "estimate", float, sequence of floats, or function
        The forgetting factor: estimated; fixed; fixed by step (the first is not used); or the result of
        `alpha(W, past, labels, t)`, which gets the objects that were there before.
    init : "auto", "previous" or "static"
        The labels with which the first α of a step is estimated: those of the step before, those of
        static clustering at this step, or the better of these. Labels of the step before are blind to
        members that change clusters, which look like noise and raise α; static labels follow such
        change, and noise as well, which lowers α. "auto" compares both α to one that needs no labels of
        the past: the noise of W divided by Σ(w − ψ̂)², where of what static clusters explain of W only the
        share that the past confirms is not noise. The labels whose α is nearer are taken. It costs one
        run of the clusterer and two evaluations of α more than "previous". See
        `affect_xp.initial_labels`.
    correction : None or "objects"
        Whether α is corrected for entries that share an object. It comes closer to the best α where clusters
        are right, and reacts more slowly where they are not; see `forgetting_factor`.
    events : EventRules
        What counts as a birth, a split and so on, and how long a missing cluster is remembered.
    random_state : None, int, or numpy.random.Generator

    Attributes
    ----------
    labels_ : (n,) int array
        The cluster of each object at the last step, in the library and on the device of the input.
        A cluster keeps its id from step to step.
    alpha_ : float
        The last forgetting factor; 0 where there is no past.
    alphas_ : tuple of float
        The forgetting factor by iteration.
    smoothed_ : Proximity
        Ψ̂ of the last step.
    history_ : History
        A record of each step.
    ids_, n_steps_
        The objects of the last step, and the number of steps.
    n_features_in_ : int
        The number of features of the last step that `fit` was given, where steps are features.

    References
    ----------
    Xu, Kliger & Hero, "Adaptive Evolutionary Clustering", Data Min. Knowl. Disc. 28 (2014) 304-336.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> rng = np.random.default_rng(0)
    >>> centres = np.repeat([[-2.0, 0.0], [2.0, 0.0]], 20, axis=0)
    >>> model = ax.Affect(ax.KMeans(2), random_state=0)
    >>> for t in range(5):
    ...     X = centres + rng.normal(size=(40, 2))
    ...     model = model.partial_fit(X @ X.T)
    >>> model.labels_[:5], model.labels_[-5:]
    (array([0, 0, 0, 0, 0]), array([1, 1, 1, 1, 1]))
    >>> [round(record.alpha, 2) for record in model.history_]
    [0.0, 0.33, 0.61, 0.78, 0.68]
    """

    def __init__(
        self,
        clusterer: Any,
        *,
        proximity: str | Block = "precomputed",
        rescale: Transform = None,
        absent: str = "forget",
        max_absence: int = 10,
        n_iter: int = 3,
        alpha: Alpha = "estimate",
        init: str = "auto",
        correction: str | None = None,
        events: EventRules = DEFAULT_RULES,
        random_state: Any = None,
    ) -> None:
        self.clusterer = clusterer
        self.proximity = proximity
        self.rescale = rescale
        self.absent = absent
        self.max_absence = max_absence
        self.n_iter = n_iter
        self.alpha = alpha
        self.init = init
        self.correction = correction
        self.events = events
        self.random_state = random_state

    def _check(self) -> None:
        check_transform(self.rescale)
        check_choice("absent", self.absent, ABSENT)
        check_int("max_absence", self.max_absence, 1)
        check_int("n_iter", self.n_iter, 1)
        check_alpha(self.alpha)
        check_choice("init", self.init, INITS)
        check_correction(self.correction)

    def _proximities(self, given: Array | Proximity) -> Proximity:
        W = super()._proximities(given)
        if self.rescale is None and self._state is None and self._kind() != "dissimilarity":
            _hint_at_skewness(W)
        return transform(W, self.rescale)

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        return step(
            self._state,
            W,
            ids,
            clusterer,
            alpha=self.alpha,
            n_iter=self.n_iter,
            init=self.init,
            correction=self.correction,
            rules=self.events,
            seed=seed,
        )

    def _smoothed(self, found: Step, *, overwrite: bool) -> Proximity | None:
        return found.smoothed(overwrite=overwrite)

    def _settled(self, found: Step, *, overwrite: bool) -> State:
        if self.absent == "forget":
            return super()._settled(found, overwrite=overwrite)
        return keep_absent(self._state, found, self.max_absence, overwrite=overwrite)

    @property
    def alpha_(self) -> float:
        """The last forgetting factor; 0 where there is no past."""
        return self.alphas_[-1]

    @property
    def alphas_(self) -> tuple[float, ...]:
        """The forgetting factor of the last step by iteration."""
        self._fitted()
        return self.history_[-1].alphas

    @property
    def smoothed_(self) -> Proximity:
        """Ψ̂ of the last step; once looked at it stays as it is, and the next step writes elsewhere.

        Of the objects that were there: those of objects that are away are not shown.
        """
        state = self._fitted()
        smoothed, n = state.smoothed, len(state.present)
        assert smoothed is not None
        if smoothed.n > n:
            return smoothed.take(_array.from_host(np.arange(n), smoothed.like))
        self._owns_smoothed = False
        return smoothed


def _hint_at_skewness(W: Proximity) -> None:
    """Warn of similarities of which a few rule the others; entries of `Factored` cannot be rescaled."""
    if isinstance(W, Factored):
        return
    value = float(_array.to_host(skewness(W), reason="are similarities skewed?")[0])
    hint = skewness_hint(value)
    if hint is not None:
        warnings.warn(hint, SkewedWarning, stacklevel=6)  # at the call of `partial_fit`


@final
class Static(Evolving):
    """Static clustering at each step, with cluster ids that last over time.

    What AFFECT is compared with: the past serves only to start from and to name the clusters.

    Parameters
    ----------
    clusterer : KMeans, ... or a function from a Proximity to labels
    proximity : "precomputed", "dot", "rbf", "cosine", "euclidean", or function
        What a step is given: proximities, or features from which they are made.
    warm_start : bool
        Whether a step starts from the labels of the step before.
    events : EventRules
        What counts as a birth, a split and so on, and how long a missing cluster is remembered.
    random_state : None, int, or numpy.random.Generator

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> W = np.kron(np.eye(2), np.ones((3, 3)))
    >>> ax.Static(ax.KMeans(2), random_state=0).fit([W, W]).labels_
    array([1, 1, 1, 0, 0, 0])
    """

    def __init__(
        self,
        clusterer: Any,
        *,
        proximity: str | Block = "precomputed",
        warm_start: bool = True,
        events: EventRules = DEFAULT_RULES,
        random_state: Any = None,
    ) -> None:
        self.clusterer = clusterer
        self.proximity = proximity
        self.warm_start = warm_start
        self.events = events
        self.random_state = random_state

    def _check(self) -> None:
        if not isinstance(self.warm_start, bool):
            raise InputTypeError(f"warm_start must be True or False, got {self.warm_start!r}")

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        return static_step(
            self._state, W, ids, clusterer, warm_start=self.warm_start, rules=self.events, seed=seed
        )

    def _smoothed(self, found: Step, *, overwrite: bool) -> Proximity | None:
        return None
