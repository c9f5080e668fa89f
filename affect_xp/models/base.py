"""Base class of all estimators: the loop over time, with the interface of scikit-learn."""

import abc
import contextlib
import copy
import dataclasses
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Self

import numpy as np

from affect_xp import display
from affect_xp.affect.step import State, Step
from affect_xp.array.namespace import as_like, current_device_of, is_array, to_host
from affect_xp.array.random import draw_seed
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Clusterer, as_clusterer
from affect_xp.clustering.metrics import adjusted_rand_index
from affect_xp.clustering.n_clusters import silhouette
from affect_xp.exceptions import AffectError, InputError, InputTypeError, NotFittedError
from affect_xp.models.inputs import (
    IdsOrNone,
    Observing,
    as_features,
    by_step,
    check_alike,
    check_are_labels,
    columns_of,
    n_steps_of,
    of_frame,
    of_graph,
    read_if_table,
    reporting,
    steps_of,
    zip_steps,
)
from affect_xp.models.sklearn import SklearnEstimator
from affect_xp.parameters import defaults_of
from affect_xp.partition import Ids, align, as_ids
from affect_xp.progress import Progress
from affect_xp.proximity import Proximity
from affect_xp.proximity.kinds import hint_at_kind
from affect_xp.tracking.events import EventRules
from affect_xp.tracking.history import History, Record

__all__ = ["Evolving", "IdsOrNone"]

Given = Iterable[Array | Proximity] | Array

# Attributes of a model that are not parameters.
FITTED = ("_state", "_preparation", "_seed", "_owns_smoothed", "_interrupted", "history_", "n_features_in_")


class Evolving(Observing, SklearnEstimator):
    """Base class of methods that cluster objects over a sequence of time steps.

    `partial_fit` takes one step, `fit` a whole sequence. A rejected step leaves the model unchanged. Models
    in different threads are independent. One model takes one step at a time: while a thread is using it,
    `partial_fit`, `fit`, `score`, `reset` and `save` raise an `AffectError` in any other thread.
    """

    _state: State | None = None
    _seed: int | None = None
    _owns_smoothed = False  # whether the storage of Ψ̂ is not shared
    _interrupted = False

    @abc.abstractmethod
    def _check(self) -> None:
        """Raise if a parameter is invalid."""

    @abc.abstractmethod
    def _step(self, W: Proximity, ids: Ids, clusterer: Clusterer, seed: int) -> Step:
        """Return the result of a step without changing the model."""

    def _next_state(self, found: Step, out: Proximity | None) -> State:
        """Return the state after a step; the smoothed proximities, if any, may take the storage of `out`."""
        return found.state

    def partial_fit(self, W: Array | Proximity, ids: IdsOrNone = None, *, time: Hashable = None) -> Self:
        """Take one more step.

        Parameters
        ----------
        W : (n, n) array or Proximity
            The proximities observed at this step. An array is checked; a Proximity is not. Unless
            `proximity` is "precomputed", an (n, p) array of features. A DataFrame is also accepted, with
            the ids as its index, and an undirected networkx graph, with the ids as its nodes: edges
            without a weight have weight 1, parallel edges are summed, and it becomes a sparse matrix.
        ids : sequence of n hashables, optional
            The ids of the objects, in any order. By default those of the previous step.
        time : hashable, optional
            The name of the step in `history_`; by default its number.
        """
        with exclusive(self, W), decisions_restored_on_error(self):
            self._take(W, ids, time)
        return self

    def _take(self, W: Any, ids: IdsOrNone, time: Hashable) -> None:
        self._check_parameters()
        before = self._state
        given, ids, columns = *self._read(W, ids), columns_of(W)
        W = self._observed(given, columns)
        if before is None:
            hint_at_kind(W, as_clusterer(self.clusterer), known=not self._takes_proximities)
        names = as_ids(ids, W.n, None if before is None else before.present)
        if before is not None:
            check_alike(W, before.smoothed, before.partition.labels)
        with rng_restored_on_error(self.random_state):
            seed = draw_seed(self.random_state) if self._seed is None else self._seed
            with own_threads():
                found = self._step(W, names, as_clusterer(self.clusterer), seed)
                self._commit(found, time, seed)

    def fit(
        self,
        sequence: Given,
        y: object = None,
        *,
        ids: Iterable[IdsOrNone] | None = None,
        times: Iterable[Hashable] | None = None,
        callback: Callable[[Record], object] | None = None,
        verbose: bool = False,
    ) -> Self:
        """Reset the model, then take all steps of a sequence.

        Parameters
        ----------
        sequence : iterable of (n, n) arrays or Proximities, one (T, n, n) array, or result of `read_steps`
            The proximities of each step. A generator is read one step at a time; a dict maps times to steps.
            Unless `proximity` is "precomputed", the features of each step; then a single (n, p) array is
            one step.
        y : ignored
            Present for compatibility with scikit-learn; only `score` uses labels.
        ids : iterable with the ids of each step, or ids of all steps, optional
        times : iterable of hashables, optional
            The names of the steps in `history_`.
        callback : function of a Record, optional
            Called after each step, for example with `callback=print`.
        verbose : bool
            Whether to show progress on stderr: on a terminal a bar with the time left (with the extra
            `cli`), elsewhere one line per step. It is an argument and not a parameter of the model, because
            it does not change the result: models with equal parameters give equal results.
        """
        self._check_parameters()
        if ids is None:
            check_are_labels(y)
        sequence = read_if_table(sequence)
        steps = self._steps_of(sequence)
        with exclusive(self):
            saved = dict(self.__dict__)
            self.reset()
            shown = Progress(n_steps_of(sequence), show=verbose)
            try:
                with rng_restored_on_error(self.random_state), shown:
                    self._take_all(zip_steps(steps, ids, times), reporting(shown, callback))
            except Exception:
                self.__dict__.clear()
                self.__dict__.update(saved)
                raise
        return self

    def _steps_of(self, sequence: Any) -> Iterator[Any]:
        """Return the steps of a sequence; raise if they are features and the model takes proximities."""
        sequence = read_if_table(sequence)
        if getattr(sequence, "kind", None) == "features" and self._takes_proximities:  # of `read_steps`
            raise InputError(
                f"{sequence!r} are features, but the model takes proximities; set "
                "proximity='dot', 'rbf', 'cosine' or 'euclidean'"
            )
        return steps_of(sequence, of_features=not self._takes_proximities)

    def _take_all(
        self, steps: Iterator[tuple[Any, Any, Hashable]], callback: Callable[[Record], object]
    ) -> None:
        for t, (W, names, time) in enumerate(steps):
            self.partial_fit(W, names, time=t if time is None else time)
            callback(self.history_[-1])
        if self._state is None:
            raise InputError("sequence is empty; pass at least one step")
        if not self._takes_proximities and not isinstance(W, Proximity):
            self.n_features_in_ = np.shape(W)[1]  # of the last step; others may have had more or fewer

    def fit_predict(self, sequence: Given, y: object = None, **options: Any) -> Array:
        """Fit a sequence with the options of `fit`, and return the labels of its last step."""
        return self.fit(sequence, y, **options).labels_

    def score(self, sequence: Given, y: Any = None, *, ids: Iterable[IdsOrNone] | None = None) -> float:
        """Return a score of the model on the following steps, without changing the model.

        A copy of the model processes the sequence. Without labels, the score of a step is the mean silhouette
        on Wᵗ of the clusters found at t − 1; neither following noise nor ignoring change makes it large.
        With labels `y`, it is the adjusted Rand index of the clusters found at the step. The result is the
        mean over all steps, at most 1.

        In scikit-learn's `GridSearchCV` the samples are the steps: split them with `TimeSeriesSplit`, so that
        a model is fitted to the first steps and scored on the following ones.

        Parameters
        ----------
        sequence : as for `fit`
            The steps that follow those already taken.
        y : iterable with (n,) labels for each step, or labels of all steps, optional
            The true clusters, in the order of the objects of the step.
        ids : as for `fit`, optional

        Examples
        --------
        >>> import affect_xp as ax
        >>> steps = list(ax.datasets.colliding_gaussians(n_steps=20, rng=0))
        >>> W, truth = [step.W for step in steps], [step.labels for step in steps]
        >>> models = [ax.Affect(ax.KMeans(k), random_state=0).fit(W[:10]) for k in (2, 3)]
        >>> [round(model.score(W[10:]), 2) for model in models]
        [0.57, 0.16]
        >>> [round(model.score(W[10:], truth[10:]), 2) for model in models]
        [0.97, 0.5]
        """
        self._fitted()
        with exclusive(self):
            model = self._fork()
        steps = zip_steps(self._steps_of(sequence), ids)
        scores = (
            model._scores_ahead(steps, self._known_kind())
            if y is None
            else model._agreements(steps, by_step(y))
        )
        if not scores:
            raise InputError(
                "sequence has no step that shares an object with the previous one; pass steps with common ids"
            )
        return float(np.mean(scores))

    def _fork(self) -> Self:
        """Return an independent copy of the model that continues from the current state."""
        fork = copy.copy(self)
        state = self._fitted()
        # Copy only the labels of the partition, not its cached results.
        partition, groups = dataclasses.replace(state.partition), state.groups
        groups = None if groups is None else dataclasses.replace(groups, given=partition)
        fork._state = dataclasses.replace(state, partition=partition, groups=groups)
        fork.history_ = self.history_[-1:]
        fork._owns_smoothed = False
        return fork

    def _agreements(self, steps: Iterator[tuple[Any, Any, Hashable]], truth: Iterator[Any]) -> list[float]:
        """Take steps, and return the adjusted Rand index of each with the true labels."""
        scores = []
        for t, (W, ids, time) in enumerate(steps):
            labels = next(truth, None)
            if labels is None:
                raise InputError(f"y has {t} entries, but sequence has more; pass labels for each step")
            scores.append(adjusted_rand_index(self.partial_fit(W, ids, time=time).labels_, labels))
        return scores

    def _scores_ahead(self, steps: Iterator[tuple[Any, Any, Hashable]], kind: str) -> list[float]:
        """Take steps, and return the silhouette on each of the previous clusters of its objects, if any."""
        scores: list[Array] = []
        for given, names, time in steps:
            state = self._fitted()
            values, known = self._read(given, names)
            with current_device_of(values, self._like):
                W = self._proximities(values)
            ids = as_ids(known, W.n, state.present)
            check_alike(W, state.smoothed, state.partition.labels)
            with current_device_of(W):
                alignment = align(ids, state.ids, W.like)
                if alignment.n_common > 0:
                    start = state.partition.take(alignment.source, alignment.n_new)
                    # A copy: nothing is cached in the partition of the state.
                    scores.append(silhouette(W, dataclasses.replace(start), kind=kind))
            self.partial_fit(values, known, time=time)
        return [float(score) for score in to_host(*scores, reason="scores")] if scores else []

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file atomically; see `affect_xp.persistence.save`."""
        from affect_xp.persistence import save  # a higher layer: it imports every estimator

        with exclusive(self):
            save(self, path)

    def reset(self) -> Self:
        """Forget all steps."""
        with exclusive(self):
            for name in FITTED:
                self.__dict__.pop(name, None)
        return self

    def _check_parameters(self) -> None:
        if self._interrupted:
            raise AffectError(
                "the last step was interrupted while it overwrote the smoothed proximities; "
                "call reset() and start again"
            )
        self._check()
        self._check_kind()
        if not isinstance(self.events, EventRules):
            raise InputTypeError(f"events must be an EventRules, got {self.events!r}")
        self.events.check()
        self._check_preparation()
        as_clusterer(self.clusterer).check()

    def _read(self, given: Any, ids: IdsOrNone) -> tuple[Any, IdsOrNone]:
        """Return the input of a step as an array or a proximity; convert tables and graphs."""
        values, names = given, ids
        if not is_array(given):
            values, names = of_graph(values, names, square=self._takes_proximities)
            values, names = of_frame(values, names, square=self._takes_proximities)
        trusted = self._takes_proximities or isinstance(values, Proximity)
        return values if trusted else as_features(values), names

    def _commit(self, found: Step, time: Hashable, seed: int, out: Proximity | None = None) -> None:
        out = self._fitted().smoothed if self._owns_smoothed else out
        self._interrupted = out is not None  # if the blend is interrupted, the past is lost
        self._state = self._next_state(found, out)
        self._seed, self._owns_smoothed, self._interrupted = seed, True, False
        if "history_" not in self.__dict__:
            self.history_ = History()
        self.history_.append(
            Record(
                time=found.state.t if time is None else time,
                n=found.labels.shape[0],
                ids=found.state.ids,
                noise=found.noise,
                drift=found.drift,
                noise_of_means=found.noise_of_means,
                moved=found.moved,
                **found.facts,
            )
        )

    def _fitted(self) -> State:
        if self._state is None:
            raise NotFittedError(
                f"this {type(self).__name__} has not taken a step yet; call fit or partial_fit first"
            )
        return self._state

    @property
    def labels_(self) -> Array:
        """The cluster of each object at the last step; ids are consistent over time."""
        like = self._fitted().partition.labels
        return as_like(self.history_[-1].labels, like, reason="labels")

    @property
    def _like(self) -> Array | None:
        """An array of the library and on the device of the model; None before the first step."""
        return None if self._state is None else self._state.partition.labels

    @property
    def ids_(self) -> Ids:
        """The objects of the last step, in the order of the labels."""
        return self._fitted().present

    @property
    def n_steps_(self) -> int:
        """The number of steps taken."""
        return 0 if self._state is None else self._state.t + 1

    def __repr__(self) -> str:
        parameters = self.get_params(deep=False).items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in parameters)})"

    def _repr_html_(self) -> str:
        parameters = display.parameters(self.get_params(deep=False), defaults_of(type(self)))
        return display.box(type(self).__name__, self._summary(), parameters)

    def _summary(self) -> str:
        """Return a one-line summary of the steps taken."""
        if self._state is None:
            return "not fitted"
        last, count = self.history_[-1], display.counted
        seen = f"{count(self.n_steps_, 'step')}; at the last {count(last.n, 'object')}"
        return f"{seen} in {count(last.k, 'cluster')}, α = {last.alpha:.3g}"


# The thread that is using a model, by the id of the model. It is not an attribute of the model, because it
# must not be copied or saved. `dict.setdefault` is atomic.
OWNERS: dict[int, tuple[int, object]] = {}


@contextlib.contextmanager
def exclusive(model: Any, *given: object) -> Iterator[None]:
    """Raise if another thread is using the model, and lock it otherwise. One thread may nest calls.

    The device of the input is current in the block, or that of the model if there is no input.
    """
    mine = threading.get_ident(), object()
    first = OWNERS.setdefault(id(model), mine)
    if first[0] != mine[0]:
        raise AffectError(
            "this model is taking a step in another thread; "
            "wait for it, or use a separate model in each thread"
        )
    try:
        with current_device_of(*given, getattr(model, "_like", None)):
            yield
    finally:
        if first is mine:
            del OWNERS[id(model)]


@contextlib.contextmanager
def rng_restored_on_error(random_state: Any) -> Iterator[None]:
    """Restore the state of a random generator if the block raises, so that a rejected step draws nothing."""
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


@contextlib.contextmanager
def decisions_restored_on_error(model: Any) -> Iterator[None]:
    """Discard the decisions that a model made at its first step if the step fails."""
    first = "_preparation" not in model.__dict__
    try:
        yield
    except BaseException:
        if first:
            model.__dict__.pop("_preparation", None)
        raise
