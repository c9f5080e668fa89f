"""Static clustering methods as objects that `Affect` applies to the smoothed proximities of each step.

A clusterer has a method `cluster(proximity, call)` that returns a `Clustering`.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from affect_xp.array.namespace import from_host, to_host
from affect_xp.array.threads import blas_threads
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_fraction, check_int, check_n_clusters
from affect_xp.clustering.discretize import ASSIGNMENTS
from affect_xp.clustering.eigen import SOLVERS
from affect_xp.clustering.kmeans import (
    DEFAULT_TOL,
    ROUGH_TOL,
    KMeansResult,
    check_n_init,
    fewer_clusters,
    kmeans,
    kmeans_from,
    lloyd,
)
from affect_xp.clustering.linkage import METHODS, Dendrogram, check_distance_threshold, linkage
from affect_xp.clustering.n_clusters import (
    calinski_harabasz_scores,
    choose,
    eigengap_scores,
    height_gap_scores,
    select,
)
from affect_xp.clustering.seeding import STARTS
from affect_xp.clustering.spectral import COMPONENTS, OBJECTIVES, SpectralResult, SpectralScan
from affect_xp.exceptions import ConvergenceWarning, InputError, InputTypeError
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition, as_partition
from affect_xp.proximity import Blend, Grouped, GroupedPair, Proximity
from affect_xp.proximity.blend import BlendGroups


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
        Iterations; each of k-means waited once for the device, each of an eigensolver twice.
    memory : (n, r) array or None
        What helps to start the next time, with a row for each object (eigenvectors, for instance).
    scores : dict or None
        The score of each number of clusters that was tried, where it was chosen.
    groups : Grouped or None
        The proximity with the labels of the partition, where their product is known.
    rough : bool
        Whether the clusterer would have continued, had the call not asked for rough labels only.
    """

    partition: Partition
    moved: bool | None = None
    n_iter: int = 0
    memory: Array | None = None
    scores: dict[int, float] | None = None
    groups: Grouped | None = None
    rough: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """The context of a call of a clusterer: the step, and what is known of its objects from before.

    Attributes
    ----------
    t : int
        The number of the step.
    start : Partition or None
        The clusters the objects were in, -1 for new ones; None where there is no past.
    memory : (n, r) array or None
        What the last call left, with rows of zeros for new objects.
    rng : None, int, sequence of int, or numpy.random.Generator
    rough : bool
        Whether the labels only serve to estimate α, so that an approximate result is enough.
    groups : GroupedPair or None
        The present and the past of the step with the labels of `start`, where a step has both.
    """

    t: int = 0
    start: Partition | None = None
    memory: Array | None = None
    rng: Seed = None
    rough: bool = False
    groups: GroupedPair | None = None

    def after(self, found: Clustering) -> "Call":
        """Return the next call of the step, which starts from the same labels with a fresher memory."""
        return dataclasses.replace(self, memory=found.memory)

    def from_found(self, found: Clustering) -> "Call":
        """Return the last call of the step, which starts from what was found roughly."""
        groups = found.groups.parts if isinstance(found.groups, BlendGroups) else None
        return dataclasses.replace(
            self, start=found.partition, memory=found.memory, groups=groups, rough=False
        )

    def start_groups(self, proximity: Proximity, k: int) -> Grouped:
        """Return a proximity grouped by the labels to start from, at most k clusters of them."""
        assert self.start is not None
        if isinstance(proximity, Blend) and self.groups is not None and self.groups.k == k:
            return self.groups.at(proximity)
        return proximity.group(fewer_clusters(self.start, k))


FIRST = Call()


class Clusterer(Protocol):
    """What `Affect` needs of a static clustering method."""

    def check(self) -> None:
        """Raise if a parameter is not valid."""

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of a step."""


NClusters = int | Sequence[int] | str


def clusters_at(n_clusters: NClusters, t: int, n: int) -> int | None:
    """Return the number of clusters asked for at step t, for n objects; None if a rule is to choose it."""
    if isinstance(n_clusters, str):
        return None
    if isinstance(n_clusters, Sequence | np.ndarray):
        if t >= len(n_clusters):
            raise InputError(
                f"n_clusters has {len(n_clusters)} entries, but this is step {t}; give one for each step"
            )
        return check_n_clusters(n_clusters[t], n, name=f"n_clusters[{t}]")
    return check_n_clusters(n_clusters, n)


def check_clusters(n_clusters: object, max_clusters: int, rules: Sequence[str]) -> None:
    """Raise unless `n_clusters` is a positive integer, a sequence of such, or a rule."""
    if isinstance(n_clusters, str):
        if n_clusters not in rules:
            _check_rule_of_another(n_clusters, rules)
        check_choice("n_clusters, where it is not a number,", n_clusters, rules)
    elif isinstance(n_clusters, Sequence | np.ndarray):
        if len(n_clusters) == 0:
            raise InputError("n_clusters is an empty sequence; give one for each step")
        for value in n_clusters:
            check_int("n_clusters", value, 1)
    else:
        check_int("n_clusters", n_clusters, 1)
    check_int("max_clusters", max_clusters, 1)


def _check_rule_of_another(rule: str, rules: Sequence[str]) -> None:
    """Raise if a rule is one of another clusterer, which is named."""
    others = [kind.__name__ for kind in (KMeans, Spectral, Linkage) if rule in kind.rules]
    if others:
        listed = ", ".join(repr(choice) for choice in rules)
        named = " or ".join(f"ax.{name}({rule!r})" for name in others)
        raise InputError(f"n_clusters={rule!r} is a rule of {named}; choose that, or one of {listed} here")


@dataclasses.dataclass
class KMeans(Parameters):
    """k-means on similarities (dot products of features), without the features.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule
        The rules "silhouette", "calinski_harabasz" and "modularity" choose the number at each step: the one
        with the best score among 2 ... `max_clusters`. See `affect_xp.clustering.n_clusters`.
    init : "k-means++", "random" or (n,) int array
        How the first step starts, and any other without a past: greedy k-means++, a random partition into
        equal parts (the paper's setting), or labels. Later steps start from the labels of the step before:
        new objects join the nearest cluster, a cluster that lost all its objects gets the object farthest
        from its centroid, and when `n_clusters` falls the largest clusters stay.
    n_init : "auto" or int
        The number of starts at each step, of which the best is kept. "auto": ten at the first step; at
        later ones the labels of the step before compete, on a small sample, with three starts of k-means++,
        and are given up where one of these has a sum of squares smaller by 1 %. With init="random" or labels
        "auto" is 1.
    max_iter : int
        The largest number of Lloyd iterations.
    tol : float
        Stop once the sum of squares falls by no more than this share; with 0, when no label changes.
    max_clusters : int
        The largest number of clusters a rule may choose.

    Notes
    -----
    The paper starts from one random partition: `KMeans(k, init="random", n_init=1, tol=0)`. With many
    clusters that ends in a poor local optimum more often than not, and each later step inherits it.

    See Also
    --------
    affect_xp.kmeans : the function underneath.
    """

    wants: ClassVar[str] = "similarity"
    unit_free: ClassVar[bool] = True  # the same clusters for features of other units
    rules: ClassVar[tuple[str, ...]] = ("silhouette", "calinski_harabasz", "modularity")

    n_clusters: NClusters
    _: dataclasses.KW_ONLY
    init: str | Array = "k-means++"
    n_init: int | str = "auto"
    max_iter: int = 300
    tol: float = DEFAULT_TOL
    max_clusters: int = 10

    @property
    def translation_free(self) -> bool:
        """Whether features that are all moved alike have the same clusters: their distances count alone."""
        return not (isinstance(self.n_clusters, str) and self.n_clusters == "modularity")

    def check(self) -> None:
        """Raise if a parameter is not valid."""
        check_clusters(self.n_clusters, self.max_clusters, self.rules)
        check_n_init(self.n_init)
        check_int("max_iter", self.max_iter, 1)
        check_fraction("tol", self.tol)
        if isinstance(self.init, str):
            check_choice("init", self.init, STARTS)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of step t, from the labels of the step before where there are any."""
        k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is not None:
            result = self._run(proximity, k, call)
            return Clustering(
                Partition(result.labels, k, 0),
                result.moved,
                result.n_iter,
                groups=result.groups,
                rough=call.rough and (self._competes or not result.is_fixed_point),
            )
        n_iter = []

        def cluster_k(k: int) -> Partition:
            result = self._run(proximity, k, call)
            n_iter.append(result.n_iter)
            return Partition(result.labels, k, 0)

        chosen = select(proximity, str(self.n_clusters), self.max_clusters, cluster_k, kind="similarity")
        return Clustering(chosen.partition, n_iter=sum(n_iter) + 1, scores=chosen.scores, rough=call.rough)

    @property
    def _competes(self) -> bool:
        """Whether labels of the step before compete with fresh starts."""
        return self.n_init == "auto" and isinstance(self.init, str) and self.init == "k-means++"

    def _run(self, proximity: Proximity, k: int, call: Call) -> KMeansResult:
        tol = max(self.tol, ROUGH_TOL) if call.rough else self.tol
        if call.start is not None and self._competes and not call.rough:
            result = kmeans_from(call.start_groups(proximity, k), self.max_iter, tol, call.rng)
        elif call.start is not None and self.n_init in ("auto", 1):
            complete = call.start.n_outside == 0 and call.start.k <= k
            result = lloyd(call.start_groups(proximity, k), self.max_iter, tol, complete=complete)
        else:
            result = kmeans(
                proximity,
                k,
                init=self.init if call.start is None else call.start,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=tol,
                rng=call.rng,
            )
        if not result.converged and result.n_iter >= self.max_iter:
            warnings.warn(
                f"k-means did not converge in max_iter={self.max_iter} iterations; increase max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        return result


@dataclasses.dataclass
class Spectral(Parameters):
    """Spectral clustering of similarities.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule
        The rules: "eigengap" (the largest gap between eigenvalues), "modularity" and "silhouette"; all
        share one eigenvalue problem. See `affect_xp.clustering.n_clusters`.
    objective : "normalized_cut", "ratio_cut" or "average_association"
    assign_labels : "kmeans", "rotation" or "cluster_qr"
    components : "joint" or "separate"
    n_init : int
        The number of starts of k-means and of the rotation, of which the best is kept.
    solver : "auto", "full" or "iterative"
        The iterative solver starts from the eigenvectors of the step before.
    max_clusters : int
        The largest number of clusters a rule may choose.

    See Also
    --------
    affect_xp.spectral : the function underneath, which explains the parameters.
    """

    wants: ClassVar[str] = "similarity"
    unit_free: ClassVar[bool] = True
    rules: ClassVar[tuple[str, ...]] = ("eigengap", "modularity", "silhouette")

    n_clusters: NClusters
    _: dataclasses.KW_ONLY
    objective: str = "normalized_cut"
    assign_labels: str = "kmeans"
    components: str = "joint"
    n_init: int = 10
    solver: str = "auto"
    max_clusters: int = 10

    def check(self) -> None:
        """Raise if a parameter is not valid."""
        check_clusters(self.n_clusters, self.max_clusters, self.rules)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("assign_labels", self.assign_labels, ASSIGNMENTS)
        check_choice("components", self.components, COMPONENTS)
        check_int("n_init", self.n_init, 1)
        check_choice("solver", self.solver, SOLVERS)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of step t; eigenvectors start from those of the step before."""
        k, scores = clusters_at(self.n_clusters, call.t, proximity.n), None
        # The gap after the last candidate needs one eigenvalue more.
        k_max = min(self.max_clusters + 1, proximity.n) if k is None else k
        scan = SpectralScan(
            proximity,
            k_max,
            self.objective,
            self.assign_labels,
            self.components,
            self.n_init,
            self.solver,
            call.memory,
            call.rng,
            rough=call.rough,
        )
        if k is None:
            scores = self._scores(proximity, scan)
            k = choose(scores)
        result = scan.result(k)
        self._warn(result)
        return Clustering(
            Partition(result.labels, k, 0),
            n_iter=result.n_iter,
            memory=result.vectors,
            scores=scores,
            rough=scan.is_rough,
        )

    def _scores(self, proximity: Proximity, scan: SpectralScan) -> dict[int, float]:
        """Return the score of each number of clusters by the rule."""
        if self.n_clusters == "eigengap":
            return eigengap_scores(scan.eigenvalues(), self.max_clusters)
        return select(
            proximity,
            str(self.n_clusters),
            self.max_clusters,
            lambda k: Partition(scan.result(k).labels, k),
            kind=self.wants,
        ).scores

    def _warn(self, result: SpectralResult) -> None:
        if not result.converged:
            # The same text at each step: then Python shows it once.
            warnings.warn(
                f"eigenvectors have not converged after {result.n_iter} products; use solver='full', or "
                "objective='normalized_cut', which is easier to solve",
                ConvergenceWarning,
                stacklevel=4,
            )


@dataclasses.dataclass
class Linkage(Parameters):
    """Hierarchical clustering of dissimilarities.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule, optional
        The rules: "gap" (the largest gap between the heights of merges), "calinski_harabasz", and
        "silhouette"; all share one dendrogram. See `affect_xp.clustering.n_clusters`.
    distance_threshold : float, optional
        Instead of `n_clusters`: merge up to this height.
    method : "single", "complete" or "average"
    max_clusters : int
        The largest number of clusters a rule may choose.

    See Also
    --------
    affect_xp.linkage : the function underneath, which returns the dendrogram.
    """

    wants: ClassVar[str] = "dissimilarity"
    rules: ClassVar[tuple[str, ...]] = ("gap", "calinski_harabasz", "silhouette")

    n_clusters: NClusters | None = None
    _: dataclasses.KW_ONLY
    distance_threshold: float | None = None
    method: str = "average"
    max_clusters: int = 10

    @property
    def unit_free(self) -> bool:
        """Whether features of other units have the same clusters: not where a threshold is in their units."""
        return self.distance_threshold is None

    def check(self) -> None:
        """Raise if a parameter is not valid."""
        if (self.n_clusters is None) == (self.distance_threshold is None):
            raise InputError(
                f"give either n_clusters or distance_threshold, got n_clusters={self.n_clusters!r} and "
                f"distance_threshold={self.distance_threshold!r}"
            )
        if self.n_clusters is not None:
            check_clusters(self.n_clusters, self.max_clusters, self.rules)
        else:
            check_distance_threshold(self.distance_threshold)
        check_choice("method", self.method, METHODS)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cut the dendrogram of the objects of step t."""
        tree, scores = linkage(proximity, self.method), None
        if self.n_clusters is None:
            k: int | None = tree.n_clusters_at(check_distance_threshold(self.distance_threshold))
        else:
            k = clusters_at(self.n_clusters, call.t, proximity.n)
        if k is None:
            scores = self._scores(proximity, tree)
            k = choose(scores)
        return Clustering(Partition(tree.cut(k), k, 0), n_iter=tree.n_rounds, scores=scores)

    def _scores(self, proximity: Proximity, tree: Dendrogram) -> dict[int, float]:
        """Return the score of each number of clusters by the rule."""
        if self.n_clusters == "gap":
            return height_gap_scores(tree.merges, self.max_clusters)
        if self.n_clusters == "calinski_harabasz":
            return calinski_harabasz_scores(proximity, tree.merges, self.max_clusters, kind=self.wants)
        return select(
            proximity, "silhouette", self.max_clusters, lambda k: Partition(tree.cut(k), k), kind=self.wants
        ).scores


@dataclasses.dataclass
class FunctionClusterer(Parameters):
    """Any function from a proximity to labels, as a clusterer.

    The function gets a stored `Proximity` and returns one integer for each object, -1 for none. What takes
    NumPy arrays takes the proximity as it is, unless it is on a device: `np.asarray(psi)` has its entries, to
    be read only.
    """

    function: Callable[[Proximity], Array]

    def check(self) -> None:
        """Accept any function."""

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Call the function and number the clusters it names from 0."""
        with blas_threads():
            labels = self.function(proximity.formed())
        partition = as_partition(labels, proximity.n, proximity.like, name="labels returned by the clusterer")
        host = to_host(partition.labels, reason="numbering the clusters of a function")[0]
        names, compact = np.unique(host, return_inverse=True)
        compact = compact - int(names[0] == -1)
        k = max(1, int(compact.max()) + 1)
        return Clustering(Partition(from_host(compact, proximity.like), k))


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
