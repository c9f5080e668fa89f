"""Hindsight: the clusters of each step of a complete record, given all steps."""

import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.hindsight import Found, View, two_sided
from affect_xp.affect.state import Past, State, Step
from affect_xp.affect.step import Iterations, conclude
from affect_xp.alignment import Ids, as_ids
from affect_xp.array.namespace import current_device_of
from affect_xp.array.random import draw_seed
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Call, Clusterer, Clustering, as_clusterer
from affect_xp.exceptions import InputError
from affect_xp.models.affect import Affect
from affect_xp.models.base import Given, IdsOrNone, rng_restored_on_error
from affect_xp.models.inputs import check_alike, columns_of, reporting, zip_steps
from affect_xp.progress import Progress
from affect_xp.proximity import Proximity
from affect_xp.tracking.history import History, Record


@dataclasses.dataclass(frozen=True, eq=False)
class Smoothed:
    """The result of `smooth`.

    Attributes
    ----------
    history_ : History
        One record per step, as in `Affect`; its alpha is a + b, the weight of both neighbours.
    weights : (T, 2) NumPy array
        The weights a of the past and b of the future at each step.
    causal : Affect
        The forward pass: the estimates from the past alone. It can continue with `partial_fit`.
    smoothed : tuple of Proximity, or None
        Ψ̂ of each step, if keep=True.
    """

    history_: History
    weights: np.ndarray
    causal: Affect
    smoothed: tuple[Proximity, ...] | None = None

    @property
    def labels(self) -> list[Array]:
        """The cluster of each object at each step; ids are consistent over time."""
        return self.history_.labels

    def __repr__(self) -> str:
        return f"Smoothed({self.causal!r})"


def smooth(
    sequence: Given,
    clusterer: Any,
    *,
    ids: Iterable[IdsOrNone] | None = None,
    times: Iterable[Hashable] | None = None,
    callback: Callable[[Record], object] | None = None,
    verbose: bool = False,
    keep: bool = False,
    **options: Any,
) -> Smoothed:
    """Return the clusters of each step of a complete record, given all steps.

    AFFECT uses only the past. This function runs it forward and backward, and combines the past of the
    forward pass, the future of the backward pass and the observation with the weights that minimise the
    expected error; `affect_xp.affect.hindsight` has the derivation. The last step has the
    clusters of AFFECT.

    It takes three to five times as long as AFFECT. It holds the given steps, and the smoothed proximities of
    about 2√T of the T steps.

    Parameters
    ----------
    sequence, ids, times : as for `Affect.fit`
    clusterer : KMeans, ... or a function from a Proximity to labels
        As for `Affect`. Labels passed as `init` of `KMeans` are used for the first and for the last step.
    callback : function of a Record, optional
        Called after each step is smoothed, in order.
    verbose : bool
        Whether to show the progress of both passes on stderr, as in `Affect.fit`.
    keep : bool
        Whether to return Ψ̂ of all steps.
    **options
        Parameters of `Affect` for both passes: `proximity`, `scale`, `gamma`, `rescale`,
        `absent`, `max_absence`, `n_iter`, `init`, `correction`, `alpha_tol`, `events`, `random_state`. Both
        passes also share the decisions of the first step. `alpha` is always estimated.

    Examples
    --------
    >>> import affect_xp as ax
    >>> from affect_xp.models.smooth import smooth
    >>> steps = list(ax.datasets.colliding_gaussians(rng=1))
    >>> found = smooth([step.W for step in steps], ax.KMeans(2), random_state=0)
    >>> found.weights[[0, 1, 12, 24]].round(2)  # of the past, of the future
    array([[0.  , 0.53],
           [0.32, 0.34],
           [0.3 , 0.53],
           [0.8 , 0.  ]])
    >>> def right(history):
    ...     return sum(ax.rand_index(r.labels, step.labels) == 1 for r, step in zip(history, steps))
    >>> right(found.history_), right(found.causal.history_)
    (23, 19)
    """
    forward = Affect(clusterer, **options)
    forward._check_parameters()
    if not isinstance(forward.alpha, str):  # which is "estimate" then
        raise InputError(
            f"smooth estimates the weights of past and future, got alpha={forward.alpha!r}; omit alpha"
        )
    steps = list(zip_steps(forward._steps_of(sequence), ids, times))
    if not steps:
        raise InputError("sequence is empty; pass at least one step")
    history, weights, kept = History(), [], []
    total = len(steps) + max(0, len(steps) - _segment(len(steps)))  # forward and backward
    with (
        current_device_of(steps[0][0]),
        rng_restored_on_error(forward.random_state),
        Progress(total, show=verbose) as shown,
    ):
        forward._seed = draw_seed(forward.random_state)
        report = reporting(shown, callback)
        for found, record in _records(forward, steps, shown):
            history.append(record)
            weights.append(found.weights[-1])
            kept += [found.smoothed().formed()] if keep else []
            report(record)
    return Smoothed(history, np.array(weights), forward, tuple(kept) if keep else None)


GivenStep = tuple[Any, Any, Hashable]  # observation, ids and time of a step


def _records(forward: Affect, steps: Sequence[GivenStep], shown: Progress) -> Iterator[tuple[Found, Record]]:
    """Run the forward model through the steps, and yield the smoothed result of each."""
    first = forward._observed(forward._read(*steps[0][:2])[0], columns_of(steps[0][0]))
    # The preparation is decided by now, and both passes share it.
    backward, clusterer = _Backward(forward, steps, shown), as_clusterer(forward.clusterer)
    seed = forward._seed
    assert seed is not None
    named: State | None = None  # the smoothed clusters of the previous step
    for t, (given, given_ids, time) in enumerate(steps):
        neighbour = forward._state
        values, names = forward._read(given, given_ids)
        W = first if t == 0 else forward._observed(values)
        ids = _advance(forward, W, names, t if time is None else time)
        views = View(neighbour, forward._fitted(), forward.history_[-1]), backward.at(t)
        found = two_sided(
            W, ids, t, views, clusterer, n_iter=forward.n_iter, correction=forward.correction, seed=seed
        )
        alphas, clustering = [a + b for a, b in found.weights], found.clustering
        result = Iterations(clustering.n_iter, alphas)
        step = conclude(Past.of(named, ids, W), clustering, result, forward.events)
        named = step.state
        yield found, _record(views[0].record, step)


def _record(causal: Record, step: Step) -> Record:
    """Return the smoothed record of a step, given that of the forward pass."""
    return dataclasses.replace(
        causal,
        k=step.state.partition.k,
        alpha=step.alphas[-1],
        alphas=step.alphas,
        labels=step.labels,
        events=step.events,
        scores=step.scores,
        n_iter=step.n_iter,
    )


def _advance(model: Affect, W: Proximity, names: IdsOrNone, time: Hashable) -> Ids:
    """Take one more step, without modifying the previous state."""
    before, seed = model._state, model._seed
    assert seed is not None
    ids = as_ids(names, W.n, None if before is None else before.present)
    if before is not None:
        check_alike(W, before.smoothed, before.partition.labels)
    model._commit(model._step(W, ids, as_clusterer(model.clusterer), seed), time, seed)
    model._owns_smoothed = False  # this state is still needed
    return ids


SEGMENT = 8  # minimum number of steps whose states the backward pass holds


def _segment(n_steps: int) -> int:
    """Return the number of steps whose states the backward pass holds."""
    return max(SEGMENT, math.isqrt(n_steps - 1) + 1)


class _Backward:
    """The states of the backward pass, in forward order.

    Not all states are held: the model is stored every √T steps or so, and the states of a segment are
    recomputed from there on demand.
    """

    def __init__(self, forward: Affect, steps: Sequence[GivenStep], shown: Progress) -> None:
        self._steps, n = steps, len(steps)
        self._length = _segment(n)
        reversed_clusterer = _Reversed(as_clusterer(forward.clusterer), n)
        model = Affect(**{**forward.get_params(deep=False), "clusterer": reversed_clusterer})
        model._seed, model._preparation = forward._seed, forward._preparation
        self._put_aside = {n: copy.copy(model)}
        self._views: dict[int, View] = {}
        for t in range(n - 1, self._length - 1, -1):
            self._take(model, t)
            shown.advance(f"backward pass, {n - t} of {n}")
            if t % self._length == 0:
                self._put_aside[t] = copy.copy(model)
                model.history_ = History()

    def _take(self, model: Affect, t: int) -> View:
        neighbour, (given, ids, _) = model._state, self._steps[t]
        values, names = model._read(given, ids)
        _advance(model, model._observed(values), names, None)
        return View(neighbour, model._fitted(), model.history_[-1])

    def at(self, t: int) -> View:
        """Return the state of the pass at step t; call it for all steps, in order."""
        if not self._views:
            top = min(t + self._length, len(self._steps))
            model = self._put_aside.pop(top)
            self._views = {u: self._take(model, u) for u in range(top - 1, t - 1, -1)}
        return self._views.pop(t)


@dataclasses.dataclass(frozen=True, eq=False)
class _Reversed:
    """A clusterer wrapper that passes on the number of the step in the record, for the backward pass."""

    clusterer: Clusterer
    n_steps: int

    @property
    def wants(self) -> str | None:
        """The kind of proximity that the clusterer takes; None if unknown."""
        return getattr(self.clusterer, "wants", None)

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        self.clusterer.check()

    def cluster(self, proximity: Proximity, call: Call) -> Clustering:
        """Cluster the objects of a step."""
        return self.clusterer.cluster(proximity, dataclasses.replace(call, t=self.n_steps - 1 - call.t))
