"""Clusterers of other libraries: functions, and scikit-learn estimators with precomputed input."""

import copy
import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from affect_xp.array.namespace import device_of, from_host, host_view, to_host
from affect_xp.array.random import as_generator
from affect_xp.array.threads import blas_threads
from affect_xp.array.typing import Array, Seed
from affect_xp.clustering.base import FIRST, Call, Clusterer, Clustering, is_estimator
from affect_xp.exceptions import InputError, InputTypeError, shown
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Dense, Proximity

# The parameters of estimators for precomputed proximities, and their kind.
PRECOMPUTED = {"metric": "dissimilarity", "affinity": "similarity", "kernel": "similarity"}

# Clusterers of features by name, and our class for the same method on proximities.
OURS = {
    "KMeans": "KMeans",
    "MiniBatchKMeans": "KMeans",
    "BisectingKMeans": "KMeans",
    "Birch": "KMeans",
    "MeanShift": "KMeans",
    "GaussianMixture": "KMeans",
    "BayesianGaussianMixture": "KMeans",
    "SpectralClustering": "Spectral",
    "AgglomerativeClustering": "Linkage",
}

# A diagonal below this multiple of √eps, relative to the largest entry, is considered zero: distances are
# often square roots of differences.
ZERO_DIAGONAL = 10


@dataclasses.dataclass
class FunctionClusterer(Parameters):
    """A clusterer from any function of a proximity that returns labels.

    The function receives a stored `Proximity` and returns one integer for each object, -1 for none. Functions
    of NumPy arrays accept the proximity directly, unless it is on a device: `np.asarray(psi)` is a read-only
    array of its entries.
    """

    function: Callable[[Proximity], Array]

    def check(self) -> None:
        """Accept any function."""

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Call the function and number its clusters from 0."""
        with blas_threads():
            labels = self.function(proximity.formed())
        partition = as_partition(labels, proximity.n, proximity.like, name="labels returned by the clusterer")
        host = to_host(partition.labels, reason="numbering the clusters of a function")[0]
        names, compact = np.unique(host, return_inverse=True)
        compact = compact - int(names[0] == -1)
        k = max(1, int(compact.max()) + 1)
        return Clustering(Partition(from_host(compact, proximity.like), k))


@dataclasses.dataclass
class ExternalClusterer:
    """A clusterer for `Affect` from an estimator with precomputed input.

    At each step a new copy of the estimator is fitted to the smoothed proximities, as a NumPy array;
    the estimator itself is not modified. Objects that it labels -1 (noise) belong to no cluster. If
    its `random_state` is None, it is seeded by the model. See `as_external`.
    """

    estimator: Any
    _: dataclasses.KW_ONLY
    host_copy: bool = False

    @property
    def wants(self) -> str | None:
        """The kind of input: "similarity", "dissimilarity", or None if unknown."""
        parameters = self.estimator.get_params(deep=False)
        return next(
            (kind for name, kind in PRECOMPUTED.items() if parameters.get(name) == "precomputed"), None
        )

    def check(self) -> None:
        """Raise if the estimator does not take precomputed proximities."""
        name, parameters = type(self.estimator).__name__, self.estimator.get_params(deep=False)
        ours = equivalent_of(self.estimator)
        if parameters.get("linkage") == "ward":
            ward = f"{(ours or 'ax.Linkage(3)')[:-1]}, method='ward')"
            raise InputError(
                f"{name} has linkage='ward', which needs features; set metric='precomputed' and linkage to "
                f"'average', 'complete' or 'single', or use {ward} on distances"
            )
        if self.wants is not None or _is_pairwise(self.estimator):
            return
        settable = next((p for p in PRECOMPUTED if p in parameters), None)
        if settable is None:
            other = "give a clusterer whose metric or affinity can be 'precomputed', or a function"
            remedy = f"use {ours}" if ours else f"{other} from a proximity to labels"
            raise InputError(f"{name} takes features, not proximities; {remedy}")
        raise InputError(
            f"{name} is given proximities, but has {settable}={parameters[settable]!r}; "
            f"set {settable}='precomputed'" + (f", or use {ours}" if ours else "")
        )

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Fit a copy of the estimator, and number its clusters from 0."""

        def labels(stored: Proximity) -> np.ndarray:
            matrix = self._matrix(stored)
            return np.asarray(self._copy(call.rng).fit_predict(matrix))

        return FunctionClusterer(labels).cluster(proximity)

    def _matrix(self, stored: Proximity) -> np.ndarray:
        """Return the proximities as a NumPy array; raise if that is not allowed or the kind is wrong."""
        name = type(self.estimator).__name__
        if not isinstance(stored, Dense):
            raise InputTypeError(
                f"{name} needs all proximities as an array, got {type(stored).__name__}; "
                "give W as an array, or a clusterer of this library"
            )
        if not self.host_copy:
            try:
                host_view(stored.array, "W")
            except InputTypeError as error:
                raise InputError(
                    f"{name} runs on the host, but W is on device {device_of(stored.array)} or not "
                    f"computed yet; allow the copy with as_external({name}(...), host_copy=True)"
                ) from error
        matrix = to_host(stored.array, reason=f"{name} runs on the host")[0]
        if self.wants == "dissimilarity":
            _check_dissimilarities(matrix, name)
        return matrix

    def _copy(self, rng: Seed) -> Any:
        """Return a seeded estimator with the same parameters that does not modify its input."""
        parameters = copy.deepcopy(self.estimator.get_params(deep=False))
        if "random_state" in parameters and parameters["random_state"] is None:
            parameters["random_state"] = int(as_generator(rng).integers(2**31))
        if "copy" in parameters:  # HDBSCAN and AffinityPropagation may overwrite their input
            parameters["copy"] = True
        return type(self.estimator)(**parameters)


def as_external(estimator: Any, *, host_copy: bool = False) -> ExternalClusterer:
    """Return a scikit-learn estimator as a clusterer for `Affect`.

    `Affect` does this automatically; call it to allow a copy from a device to the host.

    Parameters
    ----------
    estimator : object with get_params and fit_predict
        It must accept precomputed proximities.
    host_copy : bool
        Whether arrays that are on a device or lazy may be copied to the host. If the estimator accepts
        such arrays itself, pass a function instead: `lambda psi: estimator.fit_predict(psi.array)`.

    Examples
    --------
    >>> from sklearn.cluster import DBSCAN
    >>> from affect_xp.clustering.external import as_external
    >>> as_external(DBSCAN(metric="precomputed"), host_copy=True).wants
    'dissimilarity'
    """
    if isinstance(estimator, type) or not is_estimator(estimator):
        raise InputTypeError(
            "estimator must be a scikit-learn estimator such as DBSCAN(metric='precomputed'), "
            f"got {shown(estimator)}"
        )
    return ExternalClusterer(estimator, host_copy=host_copy)


def wrapped(clusterer: Any) -> Clusterer:
    """Return an estimator or a function as a clusterer."""
    if not isinstance(clusterer, type):
        if is_estimator(clusterer):
            return as_external(clusterer)
        if callable(clusterer):
            return FunctionClusterer(clusterer)
    raise InputTypeError(
        "clusterer must be an object such as KMeans(12), or a function from a Proximity to labels; "
        f"got {shown(clusterer)}"
    )


def equivalent_of(estimator: Any) -> str | None:
    """Return the equivalent clusterer of this library as a string; None if there is none."""
    names = [OURS[kind.__name__] for kind in type(estimator).__mro__ if kind.__name__ in OURS]
    if not names:
        return None
    parameters = estimator.get_params(deep=False)
    k = parameters.get("n_clusters", parameters.get("n_components"))
    if isinstance(k, numbers.Integral):
        return f"ax.{names[0]}({k})"
    threshold = parameters.get("distance_threshold")
    given = "'silhouette'" if threshold is None else f"distance_threshold={threshold}"
    return f"ax.{names[0]}({given})"


def _is_pairwise(estimator: Any) -> bool:
    """Return whether an estimator declares that its input is a square matrix of proximities."""
    tags = getattr(estimator, "__sklearn_tags__", None)
    return tags is not None and bool(tags().input_tags.pairwise)


def _check_dissimilarities(matrix: np.ndarray, name: str) -> None:
    """Raise if the diagonal is not zero."""
    largest = max(matrix.max(), -matrix.min())
    self_distance = np.abs(np.diagonal(matrix)).max()
    if self_distance > ZERO_DIAGONAL * np.sqrt(np.finfo(matrix.dtype).eps) * largest:
        raise InputError(
            f"{name} takes dissimilarities, but W has {self_distance:.6g} on its diagonal, as similarities "
            "have; convert it with ax.to_dissimilarity(W)"
        )
