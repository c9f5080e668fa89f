"""Static clustering methods as objects that `Affect` applies to the smoothed proximities of each step.

A clusterer has one method, `cluster(proximity, t=, start=, rng=)`, that returns a `Clustering`.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from affect_xp import _array
from affect_xp._typing import Array, Seed
from affect_xp._validation import check_choice, check_int, check_n_clusters
from affect_xp.exceptions import ConvergenceWarning, InputError, InputTypeError
from affect_xp.kmeans import STARTS, kmeans
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Proximity


@dataclasses.dataclass(frozen=True, eq=False)
class Clustering:
    """What a clusterer found.

    Attributes
    ----------
    partition : Partition
        No cluster is empty.
    moved : bool or None
        Whether any label differs from those it started from; None if that is not known.
    n_iter : int
        Iterations, each of which waited once for the device.
    memory : (n, r) array or None
        What helps to start the next time, with a row for each object (eigenvectors, for instance).
    scores : dict or None
        The score of each number of clusters that was tried, where it was chosen.
    """

    partition: Partition
    moved: bool | None = None
    n_iter: int = 0
    memory: Array | None = None
    scores: dict[int, float] | None = None


class Clusterer(Protocol):
    """What `Affect` needs of a static clustering method."""

    def check(self) -> None:
        """Raise if a parameter is not valid."""

    def cluster(
        self,
        proximity: Proximity,
        *,
        t: int = 0,
        start: Partition | None = None,
        memory: Array | None = None,
        rng: Seed = None,
    ) -> Clustering:
        """Cluster the objects of time step t.

        `start` are the labels they had the step before, -1 for new ones; `memory` is what the last call
        left, with rows of zeros for new objects. Both are None where there is no past.
        """


def clusters_at(n_clusters: int | Sequence[int], t: int, n: int) -> int:
    """Return the number of clusters asked for at step t, for n objects."""
    if isinstance(n_clusters, Sequence | np.ndarray) and not isinstance(n_clusters, str):
        if t >= len(n_clusters):
            raise InputError(
                f"n_clusters has {len(n_clusters)} entries, but this is step {t}; give one for each step"
            )
        return check_n_clusters(n_clusters[t], n, name=f"n_clusters[{t}]")
    return check_n_clusters(n_clusters, n)


def check_clusters(n_clusters: object) -> None:
    """Raise unless `n_clusters` is a positive integer or a sequence of such."""
    listed = n_clusters if isinstance(n_clusters, Sequence | np.ndarray) else [n_clusters]
    if isinstance(n_clusters, str) or len(listed) == 0:
        raise InputTypeError(f"n_clusters must be an integer, or one for each step, got {n_clusters!r}")
    for value in listed:
        check_int("n_clusters", value, 1)


@dataclasses.dataclass
class KMeans:
    """k-means on similarities (dot products of features), without the features.

    Parameters
    ----------
    n_clusters : int, or a sequence with one for each step
    init : "random", "k-means++" or (n,) int array
        How the first step starts. Later steps start from the labels of the step before: new objects join
        the nearest cluster, a cluster that lost all its objects is filled anew, and when
        `n_clusters` falls the largest clusters stay.
    n_init : int
        The number of starts at each step, of which the best is kept.
    max_iter : int
        The largest number of Lloyd iterations.

    See Also
    --------
    affect_xp.kmeans : the function underneath.
    """

    n_clusters: int | Sequence[int]
    _: dataclasses.KW_ONLY
    init: str | Array = "random"
    n_init: int = 1
    max_iter: int = 300

    def check(self) -> None:
        """Raise if a parameter is not valid."""
        check_clusters(self.n_clusters)
        check_int("n_init", self.n_init, 1)
        check_int("max_iter", self.max_iter, 1)
        if isinstance(self.init, str):
            check_choice("init", self.init, STARTS)

    def cluster(
        self,
        proximity: Proximity,
        *,
        t: int = 0,
        start: Partition | None = None,
        memory: Array | None = None,
        rng: Seed = None,
    ) -> Clustering:
        """Cluster the objects of step t, from the labels of the step before where there are any."""
        k = clusters_at(self.n_clusters, t, proximity.n)
        init = self.init if start is None else start
        result = kmeans(proximity, k, init=init, n_init=self.n_init, max_iter=self.max_iter, rng=rng)
        if not result.converged and result.n_iter >= self.max_iter:
            warnings.warn(
                f"k-means stopped at max_iter={self.max_iter} at step {t}, before it converged; raise it",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Clustering(Partition(result.labels, k), result.moved, result.n_iter)


@dataclasses.dataclass
class FunctionClusterer:
    """Any function from a proximity to labels, as a clusterer.

    The function gets a stored `Proximity` and returns one integer for each object, -1 for none.
    """

    function: Callable[[Proximity], Array]

    def check(self) -> None:
        """Accept any function."""

    def cluster(
        self,
        proximity: Proximity,
        *,
        t: int = 0,
        start: Partition | None = None,
        memory: Array | None = None,
        rng: Seed = None,
    ) -> Clustering:
        """Call the function and number the clusters it names from 0."""
        labels = self.function(proximity.formed())
        partition = as_partition(labels, proximity.n, proximity.like, name="labels returned by the clusterer")
        host = _array.to_host(partition.labels, reason="numbering the clusters of a function")[0]
        names, compact = np.unique(host, return_inverse=True)
        compact = compact - int(names[0] == -1)
        k = max(1, int(compact.max()) + 1)
        return Clustering(Partition(_array.from_host(compact, proximity.like), k))


def as_clusterer(clusterer: Any) -> Clusterer:
    """Return what was given to `Affect` as a clusterer."""
    if not isinstance(clusterer, type):
        if hasattr(clusterer, "cluster"):
            return clusterer
        if callable(clusterer):
            return FunctionClusterer(clusterer)
    raise InputTypeError(
        f"clusterer must be one such as KMeans(12), or function from a Proximity to labels; got {clusterer!r}"
    )
