"""Estimators: the loop over time around one step, in the manner of scikit-learn."""

import abc
import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Self, final

import numpy as np

from affect_xp import _array
from affect_xp._random import draw_seed
from affect_xp._typing import Array
from affect_xp._validation import check_choice, check_int
from affect_xp.affect import INITS, Alpha, State, Step, check_alpha, static_step, step
from affect_xp.clusterers import Clusterer
from affect_xp.events import DEFAULT_RULES, EventRules
from affect_xp.exceptions import AffectError, InputError, InputTypeError, NotFittedError
from affect_xp.external import as_clusterer
from affect_xp.forgetting import check_correction
from affect_xp.history import History, Record
from affect_xp.io import Snapshot, Steps
from affect_xp.kernels import KERNELS, Block, features_to_proximity
from affect_xp.objects import Ids, as_ids
from affect_xp.proximity import Factored, Proximity, as_proximity, is_sparse

IdsOrNone = Iterable[Hashable] | Array | None


class Evolving(abc.ABC):
    """A method that clusters objects observed at many time steps, one step after the other.

    `partial_fit` takes one step, `fit` a whole sequence. A step that is rejected leaves the model as it
    was. Models do not disturb each other, whatever the threads. One model takes one step at a time: while a
    thread is at it, `partial_fit`, `fit`, `reset` and `save` raise an `AffectError` in any other thread.
    """

    clusterer: Any
    proximity: str | Block
    events: EventRules
    random_state: Any
    _state: State | None = None
    _seed: int | None = None
    _owns_smoothed = False  # whether nobody else looks at the storage of Ψ̂
    _interrupted = False

    @abc.abstractmethod
    def _check(self) -> None:
        """Raise if a parameter is not valid."""

    @abc.abstractmethod
    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        """Return what a step finds, without changing the model."""

    @abc.abstractmethod
    def _smoothed(self, found: Step, *, overwrite: bool) -> Proximity | None:
        """Return the smoothed proximities to keep."""

    def partial_fit(self, W: Array | Proximity, ids: IdsOrNone = None, *, time: Hashable = None) -> Self:
        """Take one more step.

        Parameters
        ----------
        W : (n, n) array or Proximity
            The proximities observed at this step. An array is checked first, a Proximity is trusted.
            Unless `proximity` is "precomputed", an (n, p) array of features instead. Or a DataFrame, whose
            index holds the ids.
        ids : sequence of n hashables, optional
            Which objects they are, in any order. By default the same as in the step before.
        time : hashable, optional
            What to call the step in `history_`; by default its number.
        """
        with _turn_of(self):
            self._take(W, ids, time)
        return self

    def _take(self, W: Any, ids: IdsOrNone, time: Hashable) -> None:
        self._check_parameters()
        before = self._state
        W, ids = _of_frame(W, ids, square=self.proximity == "precomputed")
        W = self._observed(W)
        names = as_ids(ids, W.n, None if before is None else before.ids)
        self._check_same_library(W)
        with _undrawn_on_failure(self.random_state):
            seed = draw_seed(self.random_state) if self._seed is None else self._seed
            found = self._step(W, names, as_clusterer(self.clusterer), seed)
            self._commit(found, time, seed)

    def fit(
        self,
        sequence: Iterable[Array | Proximity],
        ids: Iterable[IdsOrNone] | None = None,
        *,
        times: Iterable[Hashable] | None = None,
        callback: Callable[[Record], object] | None = None,
    ) -> Self:
        """Forget everything, then take all steps of a sequence.

        Parameters
        ----------
        sequence : iterable of (n, n) arrays or Proximities, one (T, n, n) array, or what `read_steps` returns
            The proximities of each step; a generator is read one step at a time.
        ids : iterable with the ids of each step, or ids that hold for all steps, optional
        times : iterable of hashables, optional
            What to call the steps in `history_`.
        callback : function of a Record, optional
            Called after each step, for instance to show progress.
        """
        self._check_parameters()
        if isinstance(sequence, Steps) and sequence.kind == "features" and self.proximity == "precomputed":
            raise InputError(
                f"{sequence!r} hold features, but the model takes proximities; give it "
                "proximity='dot', 'rbf', 'cosine' or 'euclidean'"
            )
        with _turn_of(self):
            saved = dict(self.__dict__)
            self.reset()
            try:
                with _undrawn_on_failure(self.random_state):
                    self._take_all(_zip_steps(_steps(sequence), ids, times), callback)
            except Exception:
                self.__dict__.clear()
                self.__dict__.update(saved)
                raise
        return self

    def _take_all(
        self, steps: Iterator[tuple[Any, Any, Hashable]], callback: Callable[[Record], object] | None
    ) -> None:
        for t, (W, names, time) in enumerate(steps):
            self.partial_fit(W, names, time=t if time is None else time)
            if callback is not None:
                callback(self.history_[-1])
        if self._state is None:
            raise InputError("sequence is empty; give at least one step")

    def fit_predict(
        self, sequence: Iterable[Array | Proximity], ids: Iterable[IdsOrNone] | None = None
    ) -> Array:
        """Fit a sequence and return the labels of its last step."""
        return self.fit(sequence, ids).labels_

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file in one stroke; see `affect_xp.persistence.save`."""
        from affect_xp.persistence import save  # from above: it knows every estimator

        with _turn_of(self):
            save(self, path)

    def reset(self) -> Self:
        """Forget all steps."""
        with _turn_of(self):
            for name in ("_state", "_seed", "_owns_smoothed", "_interrupted", "history_"):
                self.__dict__.pop(name, None)
        return self

    def _check_parameters(self) -> None:
        if self._interrupted:
            raise AffectError(
                "the last step was interrupted while it wrote the smoothed proximities; "
                "call reset() and start again"
            )
        self._check()
        self._check_kind()
        if not isinstance(self.events, EventRules):
            raise InputTypeError(f"events must be an EventRules, got {self.events!r}")
        self.events.check()
        as_clusterer(self.clusterer).check()

    def _check_kind(self) -> None:
        """Raise if `proximity` gives what the clusterer does not take."""
        if callable(self.proximity):
            return
        check_choice("proximity, where it is not a function,", self.proximity, ("precomputed", *KERNELS))
        if self.proximity == "precomputed":
            return
        gives, wants = KERNELS[self.proximity].kind, getattr(as_clusterer(self.clusterer), "wants", None)
        if wants not in (None, gives):
            fitting = " or ".join(repr(name) for name, kernel in KERNELS.items() if kernel.kind == wants)
            raise InputError(
                f"proximity={self.proximity!r} gives a {gives}, but {type(self.clusterer).__name__} takes a "
                f"{wants}; use proximity={fitting}, or convert with ax.to_{wants} and pass that"
            )

    def _observed(self, given: Array | Proximity) -> Proximity:
        """Return what was given to a step as a proximity."""
        if isinstance(given, Proximity) or self.proximity == "precomputed":
            return as_proximity(given)
        if self.proximity == "dot" and not _array.is_lazy(given):
            return Factored.from_features(given)
        return features_to_proximity(given, self.proximity)

    def _check_same_library(self, W: Proximity) -> None:
        if self._state is None:
            return
        smoothed = self._state.smoothed
        if smoothed is not None and type(W) is not type(smoothed):
            raise InputTypeError(
                f"W is {type(W).__name__}, but the steps before were {type(smoothed).__name__}; "
                "convert it first, for instance with its to_dense()"
            )
        before = self._state.partition.labels
        _array.array_namespace(W.like, before)
        if _array.device_of(W.like) != _array.device_of(before):
            raise InputError(
                f"W is on device {_array.device_of(W.like)}, but the steps before were on "
                f"{_array.device_of(before)}; move it there first"
            )

    def _commit(self, found: Step, time: Hashable, seed: int) -> None:
        overwrite = self._owns_smoothed
        self._interrupted = overwrite  # should anything stop the blend halfway, the past is lost
        smoothed = self._smoothed(found, overwrite=overwrite)
        self._state = found.settled(smoothed)
        self._seed, self._owns_smoothed, self._interrupted = seed, True, False
        if "history_" not in self.__dict__:
            self.history_ = History()
        self.history_.append(
            Record(
                time=found.state.t if time is None else time,
                n=found.labels.shape[0],
                k=found.state.partition.k,
                alpha=found.alphas[-1],
                alphas=found.alphas,
                labels=found.labels,
                ids=found.state.ids,
                events=found.events,
                scores=found.scores,
                n_iter=found.n_iter,
            )
        )

    def _fitted(self) -> State:
        if self._state is None:
            raise NotFittedError(
                f"this {type(self).__name__} has not seen a step yet; call fit or partial_fit first"
            )
        return self._state

    @property
    def labels_(self) -> Array:
        """The cluster of each object at the last step, with ids that last over time."""
        self._fitted()
        return self.history_[-1].labels

    @property
    def ids_(self) -> Ids:
        """The objects of the last step, in the order of the labels."""
        return self._fitted().ids

    @property
    def n_steps_(self) -> int:
        """The number of steps taken."""
        return 0 if self._state is None else self._state.t + 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in self._parameters}

    _parameters: tuple[str, ...] = ()


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

    _parameters = (
        "clusterer",
        "proximity",
        "n_iter",
        "alpha",
        "init",
        "correction",
        "events",
        "random_state",
    )

    def __init__(
        self,
        clusterer: Any,
        *,
        proximity: str | Block = "precomputed",
        n_iter: int = 3,
        alpha: Alpha = "estimate",
        init: str = "auto",
        correction: str | None = None,
        events: EventRules = DEFAULT_RULES,
        random_state: Any = None,
    ) -> None:
        self.clusterer = clusterer
        self.proximity = proximity
        self.n_iter = n_iter
        self.alpha = alpha
        self.init = init
        self.correction = correction
        self.events = events
        self.random_state = random_state

    def _check(self) -> None:
        check_int("n_iter", self.n_iter, 1)
        check_alpha(self.alpha)
        check_choice("init", self.init, INITS)
        check_correction(self.correction)

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
        """Ψ̂ of the last step; once looked at it stays as it is, and the next step writes elsewhere."""
        smoothed = self._fitted().smoothed
        assert smoothed is not None
        self._owns_smoothed = False
        return smoothed


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

    _parameters = ("clusterer", "proximity", "warm_start", "events", "random_state")

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


# The thread that is at work on a model, by the model's id. Not kept in the model: what tells threads apart
# cannot be copied, nor saved. `setdefault` of a dict is one operation to all threads.
_TURNS: dict[int, tuple[int, object]] = {}


@contextlib.contextmanager
def _turn_of(model: Evolving) -> Iterator[None]:
    """Keep other threads from a model; raise if one of them is at it. Turns of one thread may be nested."""
    mine = threading.get_ident(), object()
    first = _TURNS.setdefault(id(model), mine)
    if first[0] != mine[0]:
        raise AffectError(
            "this model is taking a step in another thread; "
            "wait for it, or give each thread a model of its own"
        )
    try:
        yield
    finally:
        if first is mine:
            del _TURNS[id(model)]


@contextlib.contextmanager
def _undrawn_on_failure(random_state: Any) -> Iterator[None]:
    """Set a generator back to where it was if what follows fails: a rejected step draws nothing."""
    legacy = isinstance(random_state, np.random.RandomState)
    bits = getattr(random_state, "bit_generator", random_state)
    drawable = legacy or isinstance(bits, np.random.BitGenerator)
    before = (random_state.get_state() if legacy else bits.state) if drawable else None
    try:
        yield
    except BaseException:
        if legacy:
            random_state.set_state(before)
        elif drawable:
            bits.state = before
        raise


def _of_frame(given: Any, ids: IdsOrNone, *, square: bool) -> tuple[Any, IdsOrNone]:
    """Return the values of a DataFrame, and its index for ids where none are given."""
    if _array.is_array(given) or not hasattr(given, "to_numpy"):
        return given, ids
    index, columns = list(getattr(given, "index", ())), list(given.columns)
    if square and index and columns not in (index, list(range(len(columns)))):
        raise InputError(
            "W is a DataFrame whose index and columns differ; give proximities the same names on both "
            "sides, as in W.loc[names, names]"
        )
    return given.to_numpy(), (index or None) if ids is None else ids


def _steps(sequence: Iterable[Any]) -> Iterator[Any]:
    """Return an iterator over the steps of a sequence or of a (T, n, n) array."""
    single = isinstance(sequence, Proximity) or is_sparse(sequence)
    if single or (_array.is_array(sequence) and sequence.ndim != 3):  # type: ignore[attr-defined]
        raise InputTypeError(
            "sequence must hold one matrix for each step, got a single one; use partial_fit(W) or fit([W])"
        )
    if _array.is_array(sequence):
        return (sequence[t, :, :] for t in range(sequence.shape[0]))  # type: ignore[attr-defined, index]
    try:
        return iter(sequence)
    except TypeError as error:
        raise InputTypeError(f"sequence must be a list of matrices, got {type(sequence).__name__}") from error


def _zip_steps(
    steps: Iterator[Any], ids: Iterable[Any] | None, times: Iterable[Hashable] | None
) -> Iterator[tuple[Any, Any, Hashable]]:
    """Yield (W, ids, time) of each step; ids and times must be as many as the steps."""
    ids_of, times_of = _ids_by_step(ids), None if times is None else iter(times)
    for t, W in enumerate(steps):
        if isinstance(W, Snapshot):  # which brings its own
            yield W.values, W.ids, W.time
            continue
        try:
            yield W, next(ids_of), None if times_of is None else next(times_of)
        except StopIteration:
            short = "times" if times is not None else "ids"
            raise InputError(
                f"{short} has {t} entries, but sequence has more; give one for each step"
            ) from None


def _ids_by_step(ids: Any) -> Iterator[Any]:
    """Return an iterator over the ids of each step; flat ids hold for all steps."""
    if ids is None or isinstance(ids, range):
        return itertools.repeat(ids)
    if _array.is_array(ids) and ids.ndim == 2:
        return iter([ids[t, :] for t in range(ids.shape[0])])
    listed = [ids[i] for i in range(len(ids))] if _array.is_array(ids) else list(ids)
    by_step = any(i is None or (hasattr(i, "__len__") and not isinstance(i, str | tuple)) for i in listed)
    return iter(listed) if by_step else itertools.repeat(listed)
