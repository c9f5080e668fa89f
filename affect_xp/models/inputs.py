"""Conversion of the input of a model to proximities.

Sequences of steps are lists, stacked arrays, tables, graphs, and the output of `read_steps`. The conversion
to proximities is decided at the first step.
"""

import abc
import dataclasses
import itertools
import numbers
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np

from affect_xp.array.namespace import array_namespace, as_array, device_of, is_array, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice
from affect_xp.clustering.base import as_clusterer
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.io import Snapshot
from affect_xp.io.matrices import timed
from affect_xp.progress import Progress
from affect_xp.proximity import Factored, Proximity, as_proximity, is_sparse
from affect_xp.proximity.chunked import Chunked
from affect_xp.proximity.graphs import graph_adjacency, is_graph
from affect_xp.proximity.kernels import KERNELS, Block, features_to_proximity
from affect_xp.proximity.preparation import Preparation, Request, decide
from affect_xp.tracking.events import DEFAULT_RULES, EventRules
from affect_xp.tracking.history import Record

IdsOrNone = Iterable[Hashable] | Array | None


def steps_of(sequence: Any, *, of_features: bool) -> Iterator[Any]:
    """Return an iterator over the steps of a sequence, of a dict of them by time, or of a (T, n, p) array.

    A table over time or the name of a file is read by `read_steps`. A single matrix is one step if steps are
    features, and an error otherwise.
    """
    sequence = read_if_table(sequence)
    if isinstance(sequence, dict) and not is_sparse(sequence):  # SciPy's dok_matrix is also a dict
        return (Snapshot(time, None, step) for time, step in timed(sequence))
    if _is_matrix(sequence):
        if of_features:
            return iter([sequence])
        raise InputTypeError(
            "sequence must contain one matrix per step, got a single matrix; use partial_fit(W) or fit([W])"
        )
    if is_array(sequence):
        if sequence.ndim != 3:
            raise InputError(
                "sequence must contain one matrix per step, got an array of shape "
                f"{tuple(sequence.shape)}; pass a list of matrices, or a three-dimensional array"
            )
        return (sequence[t, :, :] for t in range(sequence.shape[0]))
    try:
        return iter(sequence)
    except TypeError as error:
        raise InputTypeError(f"sequence must be a list of matrices, got {type(sequence).__name__}") from error


def n_steps_of(sequence: Any) -> int | None:
    """Return the number of steps of a sequence, or None if it is not known before they are read."""
    if _is_matrix(sequence):
        return 1
    if isinstance(sequence, Sized):
        return len(sequence)
    return getattr(sequence, "n_steps", None)  # of `read_steps`


def reporting(shown: Progress, callback: Callable[[Record], object] | None) -> Callable[[Record], None]:
    """Return a function of a record that reports a step, after the function of the caller."""

    def report(record: Record) -> None:
        if callback is not None:
            callback(record)
        shown.advance(str(record))

    return report


def read_if_table(sequence: Any) -> Any:
    """Return the steps of files or of a table over time, as `read_steps` reads them; otherwise the input."""
    if not isinstance(sequence, str | os.PathLike | dict | list | tuple) and not is_feature_table(sequence):
        return sequence
    # The readers are imported when they are first used.
    from affect_xp.io.steps import is_over_time, read_steps

    return read_steps(sequence) if not is_sparse(sequence) and is_over_time(sequence) else sequence


def _is_matrix(given: Any) -> bool:
    """Return whether a sequence is a single matrix."""
    if isinstance(given, Proximity) or is_sparse(given) or is_feature_table(given) or is_graph(given):
        return True
    if isinstance(given, list | tuple) and given:
        row = given[0]
        return isinstance(row, list | tuple) and bool(row) and isinstance(row[0], numbers.Number)
    return is_array(given) and given.ndim == 2


def is_feature_table(given: Any) -> bool:
    """Return whether `given` is a table such as a DataFrame."""
    if hasattr(given, "collect_schema") and hasattr(given, "collect"):
        return True  # a LazyFrame, which warns if its columns are accessed
    return hasattr(given, "to_numpy") and hasattr(given, "columns") and not is_array(given)


def columns_of(given: Any) -> list[str] | None:
    """Return the column names of a DataFrame; None for other types."""
    return [str(name) for name in given.columns] if is_feature_table(given) else None


def of_frame(given: Any, ids: IdsOrNone, *, square: bool) -> tuple[Any, IdsOrNone]:
    """Return the values of a DataFrame, and its index as ids if none are given."""
    if not is_feature_table(given):
        return given, ids
    index, columns = list(getattr(given, "index", ())), list(given.columns)
    if square and index and columns not in (index, list(range(len(columns)))):
        raise InputError(
            "W is a DataFrame whose index and columns differ; use the same names for both, "
            "as in W.loc[names, names]"
        )
    return given.to_numpy(), (index or None) if ids is None else ids


def of_graph(given: Any, ids: IdsOrNone, *, square: bool) -> tuple[Any, IdsOrNone]:
    """Return the weights of a networkx graph as a sparse matrix, and its nodes as ids if none are given."""
    if not is_graph(given):
        return given, ids
    if not square:
        raise InputError("W is a graph, but the model takes features; set proximity='precomputed'")
    if given.is_directed():
        raise InputError(
            "W is a directed graph, but proximities are symmetric; use graph.to_undirected(), or sum "
            "both directions, W + W.T with W = networkx.to_scipy_sparse_array(graph), ids=list(graph)"
        )
    if len(given) == 0:
        raise InputError("W is a graph without nodes; omit steps without observations")
    nodes, W = graph_adjacency(given, "W")
    return W, nodes if ids is None else ids


def as_features(given: Any) -> Array:
    """Return features as an array after checking its type and shape; values are checked later."""
    if is_sparse(given):
        raise InputTypeError(
            "X is a sparse matrix, but features must be a dense array; use X.toarray(), or pass sparse "
            "proximities such as X @ X.T with proximity='precomputed'"
        )
    X = as_array(given)
    kind = getattr(X.dtype, "kind", "")  # of NumPy and CuPy
    if kind == "O":  # a table with mixed columns
        try:
            return X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputTypeError(
                f"X contains values that are not numbers: {error}; keep only the columns of features, and "
                "pass names as the index of the table, or with ids="
            ) from error
    if kind == "c":
        raise InputError(
            f"Complex data not supported: X must be real, got dtype {X.dtype}; pass its real part or its "
            "modulus"
        )
    if X.ndim == 2 and X.shape[1] == 0:
        raise InputError(f"X has 0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
    return X


def dot_products(X: Array) -> Proximity:
    """Return the dot products of features, without n×n entries if the library allows."""
    return features_to_proximity(X, "dot") if Chunked.can_hold(X) else Factored.from_features(X)


def check_alike(W: Proximity, smoothed: Proximity | None, labels: Array) -> None:
    """Raise if W differs in representation, library or device from the previous steps."""
    if smoothed is not None and type(W) is not type(smoothed):
        raise InputTypeError(
            f"W is {type(W).__name__}, but the previous steps were {type(smoothed).__name__}; "
            "convert it first, for example with to_dense()"
        )
    array_namespace(W.like, labels)
    if device_of(W.like) != device_of(labels):
        raise InputError(
            f"W is on device {device_of(W.like)}, but the previous steps were on "
            f"{device_of(labels)}; move it there first"
        )


def zip_steps(
    steps: Iterator[Any], ids: Iterable[Any] | None, times: Iterable[Hashable] | None = None
) -> Iterator[tuple[Any, Any, Hashable]]:
    """Yield (W, ids, time) of each step; ids and times must have one entry per step."""
    ids_of, times_of = by_step(ids), None if times is None else iter(times)
    for t, W in enumerate(steps):
        if isinstance(W, Snapshot) and W.ids is not None:  # a Snapshot with its own ids
            yield W.values, W.ids, W.time
            continue
        try:
            if isinstance(W, Snapshot):
                yield W.values, next(ids_of), W.time
            else:
                yield W, next(ids_of), None if times_of is None else next(times_of)
        except StopIteration:
            short = "times" if times is not None else "ids"
            raise InputError(f"{short} has {t} entries, but sequence has more; pass one per step") from None


def by_step(values: Any) -> Iterator[Any]:
    """Return an iterator over the ids or labels of each step; a flat list is repeated for all steps."""
    if values is None or isinstance(values, range):
        return itertools.repeat(values)
    if is_array(values) and values.ndim == 2:
        return iter([values[t, :] for t in range(values.shape[0])])
    if is_array(values):
        values = to_host(values, reason="ids and labels are kept on the host")[0]
    listed = list(values)
    return iter(listed) if any(_is_of_step(value) for value in listed) else itertools.repeat(listed)


def _is_of_step(value: Any) -> bool:
    """Return whether an entry describes all objects of a step rather than one object."""
    return value is None or (hasattr(value, "__len__") and not isinstance(value, str | tuple))


def check_are_labels(y: Any) -> None:
    """Raise if `y` has a different value for each object, as ids have."""
    if is_array(y):
        y = to_host(y, reason="are these labels, or ids?")[0]
    if not hasattr(y, "__getitem__") or len(y) == 0 or isinstance(y, str | dict):
        return
    labels: Any = y[0] if _is_of_step(y[0]) else y
    if labels is None or any(isinstance(label, float | np.floating) for label in labels):
        return
    try:
        apart = len(set(labels)) == len(labels) > 2
    except TypeError:  # not hashable: arrays of a device
        return
    if apart:
        raise InputError("y has a different value for each object, like ids; pass ids by name: ids=...")


@dataclasses.dataclass(eq=False, repr=False)
class ModelParameters:
    """The parameters of all models; see `Affect`."""

    clusterer: Any
    _: dataclasses.KW_ONLY
    proximity: str | Block = "precomputed"
    scale: Any = "auto"
    gamma: str | float = "first"
    events: EventRules = DEFAULT_RULES
    random_state: Any = None


class Observing(ModelParameters, abc.ABC):
    """Convert the input of a step to proximities."""

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

    def _check_preparation(self) -> None:
        """Raise if the parameters request a preparation that is invalid."""
        is_default = all(isinstance(x, str) and x in ("auto", "first") for x in (self.scale, self.gamma))
        if not (self._takes_proximities and is_default):
            self._wishes().check()

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
        if self.proximity == "dot":
            return dot_products(X)
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
