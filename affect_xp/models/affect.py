"""The estimator `Affect`; `affect_xp.models.base` has the base class."""

import dataclasses
from typing import final

import numpy as np

from affect_xp.affect.absence import ABSENT, keep_absent
from affect_xp.affect.forgetting import Alpha, check_alpha, check_correction
from affect_xp.affect.step import FORGETTING, INITS, Options, State, Step, step
from affect_xp.array.namespace import array_namespace, from_host, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice, check_fraction, check_int, warn_caller
from affect_xp.clustering.base import Clusterer
from affect_xp.exceptions import InputError, InputWarning, SkewedWarning
from affect_xp.models.base import Evolving
from affect_xp.partition import Ids
from affect_xp.proximity import Dense, Factored, Proximity, Sparse, summed_proximity
from affect_xp.proximity.kinds import constant_facts, warn_of_constant
from affect_xp.proximity.transforms import (
    Transform,
    check_transform,
    sampled_columns,
    skewness,
    skewness_hint,
    transform,
)


@final
@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Affect(Evolving):
    """Evolutionary clustering with an adaptive forgetting factor.

    Tracks the proximities of objects over time and clusters the estimate at each step:

        Ψ̂⁰ = W⁰,   Ψ̂ᵗ = αᵗ Ψ̂ᵗ⁻¹ + (1 − αᵗ) Wᵗ

    where αᵗ is estimated from the data (see `forgetting_factor`). Objects may come and go: the proximities of
    new ones are used as observed, and do not affect α.

    Parameters
    ----------
    clusterer : KMeans, ... or a function from a Proximity to labels
        The static method applied to Ψ̂ᵗ.
    proximity : "precomputed", "dot", "rbf", "cosine", "euclidean", or function
        The input of a step: proximities, or features from which they are computed. "dot" never forms n×n
        (see `Factored`); the others do (see `affect_xp.proximity.kernels`). "euclidean" gives
        dissimilarities.
    scale : "auto", "none", "center", "standard", "robust", or object with fit and transform
        The scaling of features. "center" subtracts the means of the columns, "standard" also divides by
        their standard deviations, and "robust" uses medians and interquartile ranges / 1.349. "auto"
        subtracts large means for "dot" with `KMeans`, and divides by standard deviations that differ by a
        factor of 10, with a `ScaleWarning`; from a factor of 5, or if this would change the meaning of the
        similarities, it only warns. An object such as scikit-learn's StandardScaler is copied and fitted; it
        takes NumPy arrays, and is not saved. The scaling is decided at the first step and kept; see
        `affect_xp.proximity.preparation`.
    gamma : "first", "each" or float
        γ of proximity="rbf": 1 / (p · var X) of the first step, or of each step, or a number.
    rescale : "auto", None, "log1p", "sqrt", "binary", "volume", "degree", or function
        The transform of the proximities before smoothing; see `affect_xp.proximity.transforms`. Use "log1p"
        for counts with heavy tails, such as contacts. "auto" uses it if the given similarities are skewed at
        the first step, with a `SkewedWarning`.
    absent : "forget" or "keep"
        The treatment of absent objects. "forget": they are new when they return, as in the paper. "keep":
        their smoothed proximities are kept unchanged until they return; pairs that were never present
        together are used as observed. See `affect_xp.affect.absence`.
    max_absence : int
        With absent="keep", the number of consecutive steps after which an absent object is forgotten.
    n_iter : int
        The maximum number of iterations between α and clusters in a step. A step stops earlier if the labels
        do not change, or if α changes by at most `alpha_tol`.
    alpha : "estimate", float, sequence of floats, or function
        The forgetting factor: estimated; fixed; one value per step (the first is not used); or the result of
        `alpha(W, past, labels, t)`, which is called with the objects that were present before.
    init : "auto", "previous" or "static"
        The labels for the first α of a step: the previous labels, those of static clustering at this step, or
        the better of the two. With the previous labels, members that change clusters look like noise and
        raise α. Static labels follow such changes, but also noise, which lowers α. "auto" compares both α
        with a reference that needs no previous labels: the noise of W divided by Σ(w − ψ̂)², where the part
        of W that static clusters explain and the past does not confirm counts as noise. It uses the labels
        whose α is closer. It costs one run of the clusterer and two evaluations of α more than "previous".
        See `affect_xp.affect.initial_labels`.
    correction : None or "objects"
        Whether to correct α for entries that share an object. The corrected α is closer to the optimum if the
        clusters are correct, and reacts more slowly if they are not; see `forgetting_factor`.
    forgetting : "global" or "objects"
        The weight of the past: α for all pairs, as in the paper; or a·sᵢsⱼ, where 1 − sᵢ is the probability
        that object i has changed its cluster, and a is chosen for the labels. "objects" is for graphs whose
        members change clusters one by one, after a transform of heavy tails; for dot products "global" is
        better. See `affect_xp.affect.movers`.
    alpha_tol : float
        The change of an estimated α, or of one given by a function, that ends the iterations of a step; with
        forgetting="objects", a tenth of the share of objects that change clusters. A step of sparse
        similarities whose α is known not to depend on labels by more than this starts from the previous
        labels for any `init`, and has one iteration if forgetting="global". With 0 the number of iterations
        is that of the paper.
    events : EventRules
        The thresholds of events, and how long a missing cluster is remembered.
    random_state : None, int, or numpy.random.Generator

    Attributes
    ----------
    labels_ : (n,) int array
        The cluster of each object at the last step, in the library and on the device of the input.
        A cluster keeps its id from step to step.
    alpha_ : float
        The last forgetting factor; 0 if there is no past.
    alphas_ : tuple of float
        The forgetting factor by iteration.
    smoothed_ : Proximity
        Ψ̂ of the last step.
    history_ : History
        One record per step.
    ids_, n_steps_
        The objects of the last step, and the number of steps.
    preparation_ : Preparation
        The decisions of the first step: `location_`, `scale_`, `gamma_` and `rescale_`.
    n_features_in_ : int
        The number of features of the last step passed to `fit`, if steps are features.

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

    rescale: Transform = "auto"
    absent: str = "forget"
    max_absence: int = 10
    n_iter: int = 3
    alpha: Alpha = "estimate"
    init: str = "auto"
    correction: str | None = None
    forgetting: str = "global"
    alpha_tol: float = 0.01

    def _check(self) -> None:
        if not self._is_auto:
            check_transform(self.rescale, ("auto",))
        check_choice("absent", self.absent, ABSENT)
        check_int("max_absence", self.max_absence, 1)
        check_int("n_iter", self.n_iter, 1)
        check_alpha(self.alpha)
        check_choice("init", self.init, INITS)
        check_correction(self.correction)
        check_choice("forgetting", self.forgetting, FORGETTING)
        if self.forgetting == "objects" and self.correction is not None:
            raise InputError(
                f"correction={self.correction!r} corrects the forgetting factor of the paper; use "
                "forgetting='global' with it"
            )
        if self.forgetting == "objects" and self._kind() == "dissimilarity":
            raise InputError(
                "forgetting='objects' needs similarities, but the clusterer takes dissimilarities; use "
                "forgetting='global'"
            )
        check_fraction("alpha_tol", self.alpha_tol)

    def _untransformed(self, given: Array | Proximity) -> Proximity:
        """Return the input as a proximity; an array is summed by the labels of the step before."""
        before, is_estimated = self._state, isinstance(self.alpha, str)
        if before is None or not (self._takes_proximities and is_estimated and self._rescale is None):
            return super()._untransformed(given)
        return summed_proximity(given, "W", before.partition)

    def _transformed(self, W: Proximity) -> Proximity:
        return W if self._rescale is None else transform(W, self._rescale)

    @property
    def _rescale(self) -> Transform:
        """The transform in use."""
        return self._prepared.rescale if self._is_auto else self.rescale

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.rescale, str) and self.rescale == "auto"

    def _choose_rescale(self, W: Proximity, given: Array | Proximity) -> str | None:
        """Return the transform for the similarities of the first step; warn if a constant dominates them."""
        is_given, kind = self._takes_proximities or isinstance(given, Proximity), self._kind()
        if kind == "dissimilarity":
            return None
        may_skew = self._is_auto and is_given and not isinstance(W, Factored)
        may_drown = (
            self.scale == "auto"
            and isinstance(self.alpha, str)
            and (self._is_auto or self.rescale is None)
            and (self._wishes().translation_free if is_given else callable(self.proximity))
        )
        return _judged(W, kind, skew=may_skew, drown=may_drown) if may_skew or may_drown else None

    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        if self.forgetting == "objects" and self._state is None:
            _warn_of_signs(W)
        return step(self._state, W, ids, clusterer, Options.of(self, seed))

    def _next_state(self, found: Step, out: Proximity | None) -> State:
        if self.absent == "forget":
            return found.commit(out=out)
        return keep_absent(self._state, found, self.max_absence, out=out)

    @property
    def alpha_(self) -> float:
        """The last forgetting factor; 0 if there is no past."""
        return self.alphas_[-1]

    @property
    def alphas_(self) -> tuple[float, ...]:
        """The forgetting factor of the last step by iteration."""
        self._fitted()
        return self.history_[-1].alphas

    @property
    def rescale_(self) -> Transform:
        """The transform of the proximities, given or chosen by rescale="auto"."""
        self._fitted()
        return self._rescale

    @property
    def smoothed_(self) -> Proximity:
        """Ψ̂ of the last step, for the objects that are present.

        Once accessed, it is not modified: the next step writes to new storage.
        """
        state = self._fitted()
        smoothed, n = state.smoothed, len(state.present)
        assert smoothed is not None
        if smoothed.n > n:
            return smoothed.take(from_host(np.arange(n), smoothed.like))
        self._owns_smoothed = False
        return smoothed


def _judged(W: Proximity, kind: str | None, *, skew: bool, drown: bool) -> str | None:
    """Return the recommended transform, and warn about skewness or a constant; the host waits once."""
    columns, places = sampled_columns(W)
    facts = [skewness(W, columns)] if skew else []
    facts += [constant_facts(columns, places)] if drown else []
    read = to_host(*facts, reason="are similarities skewed, or nearly the same?")
    value = float(read[0]) if skew else 0.0
    hint = skewness_hint(value)
    if hint is not None and kind is None:
        warn_caller(hint, SkewedWarning)  # W may contain dissimilarities
    elif hint is not None and _lowest(W) == 0:
        warn_caller(
            f'W is highly skewed (skewness {value:.1f}): a few pairs dominate. Using rescale="log1p"; '
            'pass rescale="log1p" to silence this warning, or rescale=None to use W unchanged',
            SkewedWarning,
        )
        return "log1p"
    elif drown:
        warn_of_constant(read[-1], places.shape[0])
    return None


def _warn_of_signs(W: Proximity) -> None:
    """Warn that objects that move are found in similarities that are not negative."""
    low = _lowest(W)
    if isinstance(W, Factored) or low < 0:
        negative = f"have negative entries (the lowest is {low:.3g})"
        evidence = "are dot products" if isinstance(W, Factored) else negative
        warn_caller(
            f"forgetting='objects' is for graphs, but the similarities {evidence}. The α of the paper, "
            "forgetting='global', is better there: the mean Rand index of colliding Gaussians is 0.985 with "
            "it, and 0.962 with forgetting='objects'",
            InputWarning,
        )


def _lowest(W: Proximity) -> float:
    """Return the smallest entry, or 0 if it is larger; 0 for what does not hold its entries, and chunks."""
    x = W.array if isinstance(W, Dense) else W.matrix.data if isinstance(W, Sparse) else None
    if x is None or 0 in x.shape:
        return 0.0
    return min(0.0, float(to_host(array_namespace(x).min(x), reason="are similarities negative?")[0]))
