"""Hindsight: the clusters of each step of a complete record, given all steps."""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from affect_xp.affect.hindsight import Found, Products, View, two_sided
from affect_xp.affect.step import Iterations, Options, Past, State, Step, conclude, trust_of
from affect_xp.array.namespace import current_device_of, from_host, wide_dtype
from affect_xp.array.random import draw_seed
from affect_xp.array.threads import own_threads
from affect_xp.array.typing import Array
from affect_xp.clustering.base import Call, Clusterer, Clustering, as_clusterer
from affect_xp.exceptions import InputError
from affect_xp.models.affect import Affect
from affect_xp.models.base import Given, IdsOrNone, rng_restored_on_error
from affect_xp.models.inputs import check_alike, columns_of, reporting, zip_steps
from affect_xp.partition import as_ids
from affect_xp.progress import Progress
from affect_xp.proximity import Dense, ObjectBlend, Pair, Proximity
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
        """The cluster of each object at each step, NumPy arrays; ids are consistent over time."""
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

    It takes about 2.4 times as long as AFFECT. It holds the given steps, and the smoothed proximities of
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
        `absent`, `max_absence`, `n_iter`, `init`, `correction`, `forgetting`, `alpha_tol`, `events`,
        `random_state`. Both passes also share the decisions of the first step. `alpha` is always estimated.

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
    if not isinstance(forward.alpha, str):  # the only valid string is "estimate"
        raise InputError(
            f"smooth estimates the weights of past and future, got alpha={forward.alpha!r}; omit alpha"
        )
    steps = list(zip_steps(forward._steps_of(sequence), ids, times))
    if not steps:
        raise InputError("sequence is empty; pass at least one step")
    history, weights, kept = History(), [], []
    with (
        current_device_of(steps[0][0]),
        rng_restored_on_error(forward.random_state),
        own_threads(),
        Progress(2 * len(steps), show=verbose) as shown,  # backward and forward
    ):
        forward._seed = draw_seed(forward.random_state)
        report = reporting(shown, callback)
        for found, record in _records(forward, steps, shown, keep=keep):
            history.append(record)
            weights.append(found.weights[-1])
            kept += [found.smoothed().formed()] if keep else []
            report(record)
    return Smoothed(history, np.array(weights), forward, tuple(kept) if keep else None)


GivenStep = tuple[Any, Any, Hashable]  # observation, ids and time of a step


def _records(
    forward: Affect, steps: Sequence[GivenStep], shown: Progress, *, keep: bool
) -> Iterator[tuple[Found, Record]]:
    """Run the forward model through the steps, and yield the smoothed result of each, perhaps to be kept."""
    first = forward._observed(forward._read(*steps[0][:2])[0], columns_of(steps[0][0]))
    # The preparation is decided by now, and both passes share it.
    backward, clusterer = _Backward(forward, steps, shown), as_clusterer(forward.clusterer)
    seed = forward._seed
    assert seed is not None
    options = Options.of(forward, seed)
    named: State | None = None  # the smoothed clusters of the previous step
    spare: Proximity | None = None  # storage of the step before it, which is not read any more
    for t, (given, given_ids, time) in enumerate(steps):
        neighbour = forward._state
        values, names = forward._read(given, given_ids)
        W = first if t == 0 else forward._observed(values)
        taken = _advance(forward, W, names, t if time is None else time, out=spare)
        ids, products = taken.state.ids, Products.of(taken.groups)
        views = View(neighbour, forward._fitted(), forward.history_[-1], products), backward.at(t)
        found = two_sided(W, ids, t, views, clusterer, options)
        spare = None if neighbour is None or keep else neighbour.smoothed
        alphas, clustering = [a + b for a, b in found.weights], found.clustering
        result = Iterations(clustering.n_iter, alphas)
        step = conclude(Past.of(named, ids, W), clustering, result, forward.events)
        named = step.state
        yield found, dataclasses.replace(views[0].record, **step.facts)
        if not keep:
            backward.take_back(views[1])


def _advance(
    model: Affect, W: Proximity, names: IdsOrNone, time: Hashable, out: Proximity | None = None
) -> Step:
    """Take one more step, without modifying the previous state, and return it; `out` may be overwritten."""
    before, seed = model._state, model._seed
    assert seed is not None
    ids = as_ids(names, W.n, None if before is None else before.present)
    if before is not None:
        check_alike(W, before.smoothed, before.partition.labels)
    step = model._step(W, ids, as_clusterer(model.clusterer), seed)
    model._commit(step, time, seed, out)
    model._owns_smoothed = False  # this state is still needed
    return step


SEGMENT = 8  # minimum number of steps whose states the backward pass holds


@dataclasses.dataclass(frozen=True, eq=False)
class _Taken:
    """A step of the backward pass without its proximities, which can be recomputed, unless W is an input."""

    step: Step
    record: Record
    products: Products | None
    by_object: bool
    W: Dense | None

    @staticmethod
    def of(step: Step, record: Record, given: Any) -> "_Taken":
        """Return the step without its proximities; W is kept where it takes no memory."""
        W, by_object = step.observed, isinstance(step.blend, ObjectBlend)
        light = dataclasses.replace(step, observed=None, blend=None, groups=None)  # type: ignore[arg-type]
        kept = dataclasses.replace(W, sums=None) if isinstance(W, Dense) and W.array is given else None
        return _Taken(light, record, Products.of(step.groups), by_object, kept)

    def again(self, before: State | None, W: Proximity) -> Step:
        """Return the step with its proximities, given the state before it."""
        past = Past.of(before, self.step.state.ids, W)
        if past.start is None or past.smoothed is None:
            return dataclasses.replace(self.step, observed=W)
        pair, alpha, moved = Pair(W, past.smoothed, past.alignment), self.step.alphas[-1], self.step.moved
        if not self.by_object or moved is None:
            return dataclasses.replace(self.step, observed=W, blend=pair.blend(alpha))
        moved = from_host(moved, W.like, wide_dtype(W.like))
        blend = ObjectBlend(pair, alpha, trust_of(moved, past.alignment))
        return dataclasses.replace(self.step, observed=W, blend=blend)


class _Backward:
    """The states of the backward pass, in forward order.

    Only the smoothed proximities of about every √T-th step are held. Those of the segment in between are
    recomputed on demand, with the known α.
    """

    def __init__(self, forward: Affect, steps: Sequence[GivenStep], shown: Progress) -> None:
        self._steps, n = steps, len(steps)
        self._length = max(SEGMENT, math.isqrt(n - 1) + 1)
        reversed_clusterer = _Reversed(as_clusterer(forward.clusterer), n)
        model = Affect(**{**forward.get_params(deep=False), "clusterer": reversed_clusterer})
        model._seed, model._preparation = forward._seed, forward._preparation
        self._model, self._taken = model, dict[int, _Taken]()
        self._put_aside: dict[int, State | None] = {n: None}
        self._views: dict[int, View] = {}
        self._spares: list[Proximity] = []
        spare: Proximity | None = None  # storage of a state that is not needed any more
        for t in range(n - 1, -1, -1):
            before, step = model._state, _advance(model, *self._observed(t), None, out=spare)
            spare = None
            shown.advance(f"backward pass, {n - t} of {n}")
            if t < self._length:  # the segment that is needed first
                self._views[t] = View(before, model._fitted(), model.history_[-1], Products.of(step.groups))
                continue
            self._taken[t] = _Taken.of(step, model.history_[-1], steps[t][0])
            if before is not None and t + 1 not in self._put_aside:
                spare = before.smoothed
            if t % self._length == 0:
                self._put_aside[t] = model._state

    def _observed(self, t: int) -> tuple[Proximity, IdsOrNone]:
        values, names = self._model._read(*self._steps[t][:2])
        return self._model._observed(values), names

    def at(self, t: int) -> View:
        """Return the state of the pass at step t; call it for all steps, in order."""
        if not self._views:
            top = min(t + self._length, len(self._steps))
            state = self._put_aside.pop(top)
            for u in range(top - 1, t - 1, -1):
                taken = self._taken.pop(u)
                before, self._model._state = state, state
                W = taken.W or self._observed(u)[0]
                out = self._spares.pop() if self._spares else None
                state = self._model._next_state(taken.again(before, W), out)
                self._views[u] = View(before, state, taken.record, taken.products)
        return self._views.pop(t)

    def take_back(self, view: View) -> None:
        """Use the storage of a state that is not read any more for one that is recomputed."""
        if self._taken and isinstance(view.here.smoothed, Dense):
            self._spares.append(view.here.smoothed)


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
