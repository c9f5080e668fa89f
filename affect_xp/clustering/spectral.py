"""Spectral clustering on products W·V: eigenvectors of a similarity graph, discretized to clusters.

With degrees d = W1 (row sums *with* the diagonal) and D = diag(d), the clusters are derived from

    average association   the top eigenvectors of W
    ratio cut             the bottom ones of L = D − W
    normalised cut        the bottom ones of I − D^{-1/2} W D^{-1/2}, with rows scaled to length 1

The eigenvectors of a cut for the eigenvalue 0 are known: 1 (normalised cut: √d) on one connected component,
and 0 elsewhere. They are constructed directly, and the others are computed orthogonally to them. Each
discretization depends on the span of the eigenvectors, not on the choice of basis, so that the clusters
follow from W and the random numbers, whichever solver is used.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    as_like,
    computed,
    device_of,
    eager_product,
    from_host,
    gather,
    is_on_device,
    on_input_device,
    one_hot,
    to_host,
    wide_dtype,
)
from affect_xp.array.random import as_generator
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_fraction, check_int, check_n_clusters
from affect_xp.clustering.base import (
    FIRST,
    RULES,
    Call,
    Clustering,
    Count,
    NClusters,
    Spectrum,
    check_clusters,
    clusters_at,
)
from affect_xp.clustering.bethe_hessian import bethe_hessian_scores, eager_diagonal, row_sums
from affect_xp.clustering.connectivity import Components, connected_components
from affect_xp.clustering.discretize import ASSIGNMENTS, EQUAL, unit_rows
from affect_xp.clustering.eigen import SOLVERS, Eigenpairs, Operator, top_eigenpairs
from affect_xp.clustering.n_clusters import choose, eigengap_scores, select
from affect_xp.exceptions import ConvergenceWarning, InputError
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition
from affect_xp.proximity import Blend, Factored, Proximity, as_proximity
from affect_xp.proximity.blend import ObjectBlend
from affect_xp.proximity.sparse import Sparse

CUTS = ("normalized_cut", "ratio_cut")
OBJECTIVES = (*CUTS, "average_association")
COMPONENTS = ("joint", "separate")
# Eigenvectors of at most so many numbers are discretized on the host: k-means would be bound by launches.
MAX_HOST_NUMBERS = 2**20
# The tolerance of eigenvectors for labels that only help to estimate α.
ROUGH_TOL = 0.1
# Rules whose number of clusters changes only on the evidence of two steps.
PERSISTENT_RULES = ("auto", "likelihood", "bethe-hessian")
# "auto" takes the likelihood up to this squared coefficient of variation of degrees.
MAX_UNEVENNESS = 0.4
# "auto" takes W for a kernel, not a graph, if more than this share of its pairs have a similarity.
MAX_DENSITY = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class SpectralResult:
    """The result of spectral clustering.

    Attributes
    ----------
    labels : (n,) int array
        Clusters 0 ... k-1, none of them empty, numbered in the order of their first objects.
    vectors : (n, r) array
        The orthonormal eigenvectors that the clusters were derived from; pass them as `start` the next
        time. r is the number of clusters unless that eigenvalue is tied with the next, see
        `affect_xp.clustering.eigen.top_eigenpairs`. Rows of objects in separate components are zero.
    values : (r,) array
        Their eigenvalues: of W, largest first, for average association; of the Laplacian of a cut, smallest
        first.
    n_iter : int
        Products W·V of the iterative solver; 0 if none was needed.
    converged : bool
        Whether the eigenvectors have converged.
    residual : float
        The largest residual of an eigenvector, relative to the largest eigenvalue.
    n_components : int or None
        Connected components of the graph; None if they were not computed.
    guards : (n, g) array or None
        Rough further eigenvectors; appended to `start`, they help to find what the vectors lack.
    """

    labels: Array
    vectors: Array
    values: Array
    n_iter: int
    converged: bool
    residual: float
    n_components: int | None
    guards: Array | None = dataclasses.field(default=None, repr=False)


@on_input_device
def spectral(
    W: Array | Proximity,
    n_clusters: int,
    *,
    objective: str = "normalized_cut",
    assign_labels: str = "kmeans",
    components: str = "joint",
    n_init: int = 10,
    solver: str = "auto",
    tol: float = 0.01,
    start: Array | None = None,
    rng: Seed = None,
) -> SpectralResult:
    """Cluster objects by the eigenvectors of their similarities.

    Parameters
    ----------
    W : (n, n) array or Proximity
        Similarities. For the cuts they must be nonnegative: an error is raised if negative ones make a
        degree or an eigenvalue of the Laplacian negative. Average association accepts any.
    n_clusters : int
    objective : "normalized_cut", "ratio_cut" or "average_association"
    assign_labels : "kmeans", "rotation" or "cluster_qr"
        The discretization of eigenvectors: k-means on their rows; the rotation that brings them closest to
        a membership (Yu & Shi 2003); or QR with column pivoting (Damle, Minden & Ying 2019), which has
        no random start. If either of the latter leaves a cluster empty, k-means continues from its labels.
    components : "joint" or "separate"
        How to cluster a graph that is not connected. "joint": cluster all objects together; if a cut
        has at least as many components as requested clusters, the largest components are a cluster each,
        and the last cluster contains all others. "separate": each component smaller than the largest is a
        cluster (if they are too many, they share one), and the largest, or all of that size together, is
        clustered into the remaining number; "joint" if it has fewer objects than that.
    n_init : int
        Starts of k-means and of the rotation; the best one wins.
    solver : "auto", "full" or "iterative"
        The solver of the eigenvalue problem. "auto" is full for small n, iterative otherwise.
    tol : float
        The largest residual of an eigenvector of a cut by the iterative solver, relative to the first
        excluded eigenvalue of the Laplacian. With 0, and for average association, the solver
        continues to about half of the digits.
    start : (n, r) array, optional
        The `vectors` of a similar problem; rows of zeros for new objects.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> from affect_xp.clustering.spectral import spectral
    >>> W = np.array([[0, 5, 1, 0], [5, 0, 0, 1], [1, 0, 0, 5], [0, 1, 5, 0.0]])
    >>> result = spectral(W, 2, rng=0)
    >>> result.labels, np.round(result.values, 3)
    (array([0, 0, 1, 1]), array([0.   , 0.333]))
    """
    W = as_proximity(W)
    k = check_n_clusters(n_clusters, W.n)
    settings = Spectral(
        k,
        objective=objective,
        assign_labels=assign_labels,
        components=components,
        n_init=n_init,
        solver=solver,
        tol=tol,
    )
    settings.check()
    return SpectralScan(W, k, settings, Call(memory=start, rng=rng)).result(k)


class SpectralScan:
    """Spectral clustering into any number of clusters up to a maximum, with one eigenvalue problem.

    The call has the starting vectors. Rows of eigenvectors have length 1 by default for normalised cut.
    """

    def __init__(
        self,
        W: Proximity,
        max_clusters: int,
        settings: "Spectral",
        call: Call = FIRST,
        *,
        unit_rows: bool | None = None,
    ) -> None:
        self._like, self._rng, self._settings = W.like, call.rng, settings
        self._graph = _Graph.of(W, settings, call)
        if settings.objective in CUTS and not self._graph.checks_later(max_clusters):
            _check_degrees(self._graph, settings.objective)
        if unit_rows is None:
            unit_rows = settings.objective == "normalized_cut"
        start = _checked_start(call if call.spectrum is None else call.spectrum, self._graph.n)
        self._problem = _Problem(self._graph, max_clusters, settings, start, unit_rows, call.t)

    def result(self, k: int) -> SpectralResult:
        """Return the result for k clusters, at most `max_clusters`."""
        cluster = _separate if self._settings.components == "separate" else _joint
        found = cluster(self._problem, k, as_generator(self._rng))
        return _result(found, k, self._like, self._graph.components)

    def spectrum(self, result: SpectralResult) -> Spectrum:
        """Return starting values for the next call of the step."""
        vectors = result.vectors
        if result.guards is not None:
            vectors = array_namespace(vectors).concat([vectors, result.guards], axis=1)
        return Spectrum(vectors, self._graph.components, self._graph.blended)

    def vectors(self) -> Array:
        """Return the eigenvectors of the whole graph for up to `max_clusters` clusters."""
        return self._problem.pairs.vectors

    def eigenvalues(self) -> np.ndarray:
        """Return the first `max_clusters` eigenvalues of the whole graph, and those tied with the last."""
        return self._problem.pairs.values


def _checked_start(given: Call | Spectrum, n: int) -> Array | None:
    """Return the starting vectors, on the host if their library is lazy."""
    start = given.memory if isinstance(given, Call) else given.vectors
    if start is None:
        return None
    if start.ndim != 2 or start.shape[0] != n:
        raise InputError(f"start must have {n} rows, one for each object, got shape {tuple(start.shape)}")
    return computed(start, reason="vectors of a lazy library")


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """Clusters, and the eigenvectors that they were derived from."""

    labels: Array
    pairs: Eigenpairs


@dataclasses.dataclass(frozen=True, eq=False)
class _Graph:
    """Similarities W through products, with the properties that the objectives need.

    All arrays are on the device of the products: on the host for a lazy library.
    """

    n: int
    like: Array
    multiply: Callable[[Array], Array]  # X ↦ WX
    thin_dtype: object  # with the fastest products
    components: Components | None  # None if they were not computed
    blended: bool = False  # whether W is a blend with a nonzero weight of the past
    row_sums: Callable[[], Array] | None = None  # returns W1, if that is faster than a product

    @staticmethod
    def of(W: Proximity, settings: "Spectral", call: Call) -> "_Graph":
        """Return the graph of a proximity; a sparse blend is formed, since the step needs it anyway."""
        blended, components = isinstance(W, Blend) and not W.without_past, None
        is_sparse = isinstance(W, Blend | ObjectBlend) and isinstance(W.pair.current, Sparse)
        formed = W.formed() if is_sparse else W
        if settings.components == "separate" or settings.objective in CUTS:
            components = _known_components(W, call) or _components(W, formed).computed()
        like, multiply = eager_product(formed.matmul, formed.like)
        thin_dtype = formed.thin_dtype if multiply == formed.matmul else None
        sums = W.row_sums if isinstance(W, Blend) and multiply == W.matmul else None
        return _Graph(W.n, like, multiply, thin_dtype, components, blended, sums)

    @functools.cached_property
    def degrees(self) -> Array:
        """The degrees d = W1, (n,)."""
        if self.row_sums is not None:
            return self.row_sums()
        xp, wide = array_namespace(self.like), wide_dtype(self.like)
        return self.multiply(xp.ones((self.n, 1), dtype=wide, device=device_of(self.like)))[:, 0]

    def checks_later(self, k: int) -> bool:
        """Return whether the eigensolver reads the lowest degree, so that the host need not wait for it."""
        return self.parts.count == 1 and k > 1 and self.n > 1 and is_on_device(self.like)

    @property
    def parts(self) -> Components:
        """The connected components, which must have been computed."""
        assert self.components is not None
        return self.components

    def among(self, chosen: np.ndarray, index: Array, places: Array) -> "_Graph":
        """Return the graph of the objects at `index`, which are those of the chosen (c,) components.

        `places` (n,) are the positions of all objects in it, -1 for excluded ones.
        """
        xp = array_namespace(index)
        number = from_host(np.cumsum(chosen) - 1, index)
        parts = Components(xp.take(number, xp.take(self.parts.labels, index)), self.parts.sizes[chosen])

        def multiply(v: Array) -> Array:
            return xp.take(self.multiply(gather(v, places, 0)), index, axis=0)

        return _Graph(index.shape[0], self.like, multiply, self.thin_dtype, parts)


def _components(W: Proximity, formed: Proximity) -> Components:
    """Return the connected components; if the current graph is connected, so is every blend of it."""
    if isinstance(W, Blend) and formed is W and not (isinstance(W.alpha, float) and W.alpha == 1.0):
        found = connected_components(W.pair.current)
        if found.count == 1 or W.without_past:
            return found
    return connected_components(formed)


def _known_components(W: Proximity, call: Call) -> Components | None:
    """Return the connected components, if another call of the step has computed them.

    All blends of a pair with 0 < α < 1 have the same components; one if the current graph is connected.
    """
    only_past = isinstance(W, Blend) and isinstance(W.alpha, float) and W.alpha == 1.0
    if not isinstance(W, Blend) or only_past:
        return None
    blended, before = not W.without_past, call.spectrum
    known = None if before is None or not blended else before.components
    if known is not None and (known.count == 1 or before.blended):  # type: ignore[union-attr]
        return known
    return None


def _check_degrees(graph: _Graph, objective: str) -> None:
    """Raise if a degree is negative, or zero for an object with neighbours."""
    d, parts = graph.degrees, graph.parts
    xp = array_namespace(d)
    size = xp.take(from_host(parts.sizes, d), parts.labels)
    linked = xp.where(size > 1, d, xp.full_like(d, xp.inf))
    low, low_linked = to_host(xp.min(d), xp.min(linked), reason="are all degrees positive?")
    if low < 0:
        low_linked = min(low, low_linked)
    _check_lowest(objective, float(low_linked))


def _check_lowest(objective: str, degree: float) -> None:
    """Raise if the lowest degree of an object with neighbours is not positive."""
    if degree <= 0:
        _raise_negative(objective, f"an object has the degree {degree:.4g}")


def _raise_negative(objective: str, symptom: str) -> None:
    raise InputError(
        f"objective={objective!r} needs similarities that are not negative, but with those in W {symptom}; "
        "make them positive (for instance exp(W), or a kernel), or use objective='average_association'"
    )


def _result(found: _Found, k: int, like: Array, components: Components | None) -> SpectralResult:
    """Return the result, in the library and on the device of `like`."""
    reason, pairs = "vectors of a lazy library", found.pairs
    labels, vectors = as_like(_in_order(found.labels, k), like, reason), as_like(pairs.vectors, like, reason)
    guards = None if pairs.guards is None else as_like(pairs.guards, like, reason)
    return SpectralResult(
        labels=labels,
        vectors=vectors,
        values=from_host(pairs.values, like, dtype=vectors.dtype),
        n_iter=pairs.n_iter,
        converged=pairs.converged,
        residual=pairs.residual,
        n_components=None if components is None else components.count,
        guards=guards,
    )


def _in_order(labels: Array, k: int) -> Array:
    """Number nonempty clusters in the order of their first objects."""
    xp = array_namespace(labels)
    first = xp.argmax(one_hot(labels, k, wide_dtype(labels)), axis=0)
    return xp.take(xp.argsort(xp.argsort(first, stable=True), stable=True), labels)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """A graph, and the settings of its clustering except for the number of clusters."""

    graph: _Graph
    k_max: int
    settings: "Spectral"
    start: Array | None
    unit_rows: bool
    seed: int = 0  # of random starting vectors

    @functools.cached_property
    def pairs(self) -> Eigenpairs:
        """The eigenpairs for up to k_max clusters."""
        graph, k, objective = self.graph, min(self.k_max, self.graph.n), self.settings.objective
        if objective == "average_association":
            operator = Operator(graph.n, graph.like, graph.multiply, thin_dtype=graph.thin_dtype)
            return self.solved(operator, k, self.start)
        if graph.parts.count >= k:
            return _by_component(graph, k, objective).pairs
        return _cut_pairs(self, k)

    @functools.cached_property
    def embedding(self) -> Eigenpairs:
        """The eigenpairs for the discretization: on the host, if they are few numbers."""
        pairs = self.pairs
        if pairs.vectors.shape[0] * pairs.vectors.shape[1] > MAX_HOST_NUMBERS:
            return pairs
        return dataclasses.replace(pairs, vectors=to_host(pairs.vectors, reason="a small embedding")[0])

    def solved(self, a: Operator, k: int, start: Array | None) -> Eigenpairs:
        """Return the top eigenpairs of an operator."""
        settings = self.settings
        return top_eigenpairs(a, k, solver=settings.solver, start=start, tol=settings.tol, seed=self.seed)

    @functools.cached_property
    def giant(self) -> tuple["_Problem", Array]:
        """The problem of the largest component, or all of that size, and the positions of objects in it."""
        parts = self.graph.parts
        giant = parts.sizes == parts.sizes.max()
        component = to_host(parts.labels, reason="objects of the largest component")[0]
        inside, like = giant[component], parts.labels
        index = from_host(np.flatnonzero(inside), like)
        places = from_host(np.where(inside, np.cumsum(inside) - 1, -1), like)
        start = None if self.start is None else array_namespace(like).take(self.start, index, axis=0)
        graph = self.graph.among(giant, index, places)
        return dataclasses.replace(self, graph=graph, start=start), places


def _separate(problem: _Problem, k: int, rng: np.random.Generator) -> _Found:
    """Separate the components smaller than the largest, and cluster the largest."""
    parts = problem.graph.parts
    giant = parts.sizes == parts.sizes.max()
    own = np.cumsum(~giant) - 1 if parts.count <= k else np.zeros_like(parts.sizes)  # clusters of small ones
    k_giant = k - 1 - int(own.max())
    if k == 1 or np.all(giant) or k_giant > parts.sizes[giant].sum():
        return _joint(problem, k, rng)
    inner, places = problem.giant
    found = _joint(inner, k_giant, rng)
    xp = array_namespace(places)
    outside = xp.take(from_host(k_giant + own, places), parts.labels)
    inside = as_like(found.labels, places, reason="labels of a component")
    labels = xp.where(places >= 0, gather(inside, places, 0), outside)
    vectors = gather(found.pairs.vectors, places, 0)
    return _Found(labels, dataclasses.replace(found.pairs, vectors=vectors, guards=None))


def _by_component(graph: _Graph, k: int, objective: str) -> _Found:
    """Make each of the k − 1 largest components a cluster, and put all others into one.

    Every union of components has a cut of 0. Among the partitions into unions this one has the smallest sum
    of squares, if components are points at equal distances.
    """
    parts = graph.parts
    cluster = np.arange(parts.count)
    if parts.count > k:
        component, d = to_host(parts.labels, graph.degrees, reason="which components are the largest?")
        volumes = np.bincount(component.astype(np.int64), d)
        by_size = np.lexsort((cluster, -volumes, -parts.sizes))
        cluster = np.minimum(np.argsort(by_size), k - 1)
    labels = array_namespace(parts.labels).take(from_host(cluster, parts.labels), parts.labels)
    vectors = _null_vectors(graph, labels, k, objective)
    return _Found(labels, Eigenpairs(np.zeros(k), vectors, residual=0.0, n_iter=0, converged=True))


def _null_vectors(graph: _Graph, labels: Array, c: int, objective: str) -> Array:
    """Return orthonormal vectors, each constant (normalised cut: ∝ √d) on one part, (n, c)."""
    d = graph.degrees
    xp = array_namespace(d)
    height = xp.ones_like(d)
    if objective == "normalized_cut":
        height = xp.where(d > 0, xp.sqrt(xp.abs(d)), height)
    vectors = one_hot(labels, c, d.dtype) * height[:, None]
    return vectors / xp.linalg.vector_norm(vectors, axis=0, keepdims=True)


def _joint(problem: _Problem, k: int, rng: np.random.Generator) -> _Found:
    """Cluster all objects by the eigenvectors of the objective."""
    graph, settings = problem.graph, problem.settings
    if settings.objective in CUTS and graph.parts.count >= k:
        return _by_component(graph, k, settings.objective)
    pairs, vectors = problem.pairs.leading(k), problem.embedding.leading(k).vectors
    if vectors.shape[1] == 0:  # all eigenvalues are tied: objects are indistinguishable
        xp = array_namespace(vectors)
        vectors = xp.zeros((graph.n, 1), dtype=vectors.dtype, device=device_of(vectors))
    rows = unit_rows(vectors) if problem.unit_rows else vectors
    return _Found(ASSIGNMENTS[settings.assign_labels](vectors, rows, k, settings.n_init, rng), pairs)


def _cut_pairs(problem: _Problem, k: int) -> Eigenpairs:
    """Return the smallest eigenpairs of the Laplacian: the known ones for the eigenvalue 0, then others.

    They are the largest ones of A, with L = u(l − A), orthogonal to the known ones.
    """
    graph, start, objective = problem.graph, problem.start, problem.settings.objective
    c = graph.parts.count
    null = _null_vectors(graph, graph.parts.labels, c, objective)
    a, unit = LAPLACIANS[objective](graph, null)
    if graph.checks_later(k):
        lowest = array_namespace(graph.degrees).min(graph.degrees)
        a = dataclasses.replace(a, lowest=lowest, check=functools.partial(_check_lowest, objective))
    # Vectors of a similar problem begin with known ones, in place of those of this problem.
    start = start if start is None else start[:, max(0, min(c, start.shape[1] - k + c)) :]
    pairs = problem.solved(a, k - c, start)
    values = unit * (a.top - pairs.values)
    if len(values) and values[0] < -EQUAL * unit:
        _raise_negative(objective, f"the Laplacian has the eigenvalue {values[0]:.4g}")
    return dataclasses.replace(
        pairs,
        values=np.concatenate([np.zeros(c), values]),
        vectors=array_namespace(null).concat([null, pairs.vectors], axis=1),
        tie=unit * pairs.tie,
    )


def _normalized(graph: _Graph, null: Array) -> tuple[Operator, float]:
    """Return A = D^{-1/2} W D^{-1/2} and u = 1, with L = 1·(1 − A)."""
    d = graph.degrees
    xp = array_namespace(d)
    s = 1 / xp.sqrt(xp.where(d > 0, d, xp.ones_like(d)))[:, None]
    return _operator(graph, s, 0.0, null, top=1.0), 1.0


def _unnormalized(graph: _Graph, null: Array) -> tuple[Operator, float]:
    """Return A = (W − D) / u and u = max d, with L = u·(0 − A)."""
    d = graph.degrees
    unit = float(to_host(array_namespace(d).max(d), reason="largest degree")[0])
    s = unit**-0.5 if unit > 0 else 1.0
    return _operator(graph, s, -d[:, None] / (unit or 1.0), null, top=0.0), unit


def _operator(graph: _Graph, s: Array | float, e: Array | float, null: Array, top: float) -> Operator:
    """Return S W S + diag(e), with eigenvalues of magnitude 1."""
    return Operator(graph.n, graph.like, graph.multiply, s, e, null, top, 1.0, graph.thin_dtype)


LAPLACIANS = {"normalized_cut": _normalized, "ratio_cut": _unnormalized}


@dataclasses.dataclass
class Spectral(Parameters):
    """Spectral clustering of similarities.

    Parameters
    ----------
    n_clusters : int, a sequence with one for each step, or a rule
        The rules: "likelihood" (penalised, degree-corrected), "bethe-hessian" (eigenvalues that noise does
        not reach; its entries must be held), "auto" (for graphs the likelihood, or the Bethe-Hessian where
        degrees are uneven: their squared coefficient of variation exceeds 0.4; the silhouette for kernels
        and correlations: more than 90 % of the pairs of a step have a similarity), "eigengap" (the largest
        gap between eigenvalues), "modularity" and "silhouette". The first three change the number only if
        two steps in a row propose it, and on graphs may find that there is one cluster. See
        `affect_xp.clustering.n_clusters` and `affect_xp.clustering.bethe_hessian`.
    objective : "normalized_cut", "ratio_cut" or "average_association"
    assign_labels : "kmeans", "rotation" or "cluster_qr"
    components : "joint" or "separate"
    n_init : int
        The number of starts of k-means and of the rotation; the best one is kept.
    solver : "auto", "full" or "iterative"
        The iterative solver starts from the eigenvectors of the previous step.
    tol : float
        The largest residual of an eigenvector of a cut by the iterative solver.
    max_clusters : int
        The largest number of clusters that a rule may select.

    See Also
    --------
    affect_xp.spectral : the underlying function, which explains the parameters.
    """

    wants: ClassVar[str] = "similarity"
    unit_free: ClassVar[bool] = True
    rules: ClassVar[tuple[str, ...]] = RULES["Spectral"]

    n_clusters: NClusters
    _: dataclasses.KW_ONLY
    objective: str = "normalized_cut"
    assign_labels: str = "kmeans"
    components: str = "joint"
    n_init: int = 10
    solver: str = "auto"
    tol: float = 0.01
    max_clusters: int = 10

    def check(self) -> None:
        """Raise if a parameter is invalid."""
        check_clusters(self.n_clusters, self.max_clusters, self.rules)
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("assign_labels", self.assign_labels, ASSIGNMENTS)
        check_choice("components", self.components, COMPONENTS)
        check_int("n_init", self.n_init, 1)
        check_choice("solver", self.solver, SOLVERS)
        check_fraction("tol", self.tol)

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of step t; the eigensolver starts from the previous eigenvectors."""
        # Labels of W alone only choose the labels for α.
        rough = call.rough and isinstance(proximity, Blend) and proximity.without_past
        settings = dataclasses.replace(self, tol=max(self.tol, ROUGH_TOL)) if rough and self.tol else self
        return cluster_by(settings, lambda k: SpectralScan(proximity, k, settings, call), proximity, call)


def cluster_by(
    settings: Spectral, scan_up_to: Callable[[int], SpectralScan], judged: Proximity, call: Call
) -> Clustering:
    """Cluster by a scan up to a number of clusters; rules for the number score the similarities `judged`."""
    k, scores, count = clusters_at(settings.n_clusters, call.t, judged.n), None, None
    # The gap after the last candidate needs one more eigenvalue.
    scan = scan_up_to(min(settings.max_clusters + 1, judged.n) if k is None else k)
    if k is None:
        scores, k = _proposal(settings, scan, judged)
        if settings.n_clusters in PERSISTENT_RULES:
            count = Count.of(k, call.count)
            k = min(count.chosen, settings.max_clusters, judged.n)
    result = scan.result(k)
    if not result.converged:
        # The same text at each step, so that Python shows it once.
        warnings.warn(
            f"eigenvectors have not converged after {result.n_iter} products; use solver='full', or "
            "objective='normalized_cut', which is easier to solve",
            ConvergenceWarning,
            stacklevel=5,
        )
    partition, spectrum = Partition(result.labels, k, 0), scan.spectrum(result)
    return Clustering(
        partition, n_iter=result.n_iter, memory=result.vectors, scores=scores, spectrum=spectrum, count=count
    )


def _proposal(settings: Spectral, scan: SpectralScan, judged: Proximity) -> tuple[dict[int, float], int]:
    """Return the score of each number of clusters by the rule, and the number that it proposes."""
    rule, largest = str(settings.n_clusters), settings.max_clusters
    if rule == "auto":
        rule = rule_for(judged)
    if rule == "bethe-hessian":
        scores = bethe_hessian_scores(
            judged, largest, solver=settings.solver, tol=settings.tol, start=scan.vectors()
        )
        return scores, max(1, sum(score > 0 for score in scores.values()))
    if rule == "eigengap":
        scores = eigengap_scores(scan.eigenvalues(), largest)
    else:
        least = 1 if rule == "likelihood" else 2
        scores = select(
            judged, rule, largest, lambda k: Partition(scan.result(k).labels, k), least, kind=settings.wants
        ).scores
    return scores, choose(scores)


def rule_for(W: Proximity) -> str:
    """Return the rule of "auto".

    The likelihood assumes independent entries. Those of a kernel or a correlation matrix are functions of
    the features of two objects, so that the fine structure of features looks like groups.
    """
    if density(W) > MAX_DENSITY:
        return "silhouette"
    return "likelihood" if unevenness(W) <= MAX_UNEVENNESS else "bethe-hessian"


def density(W: Proximity) -> float:
    """Return the share of pairs whose similarity is not 0, of a blend those observed; 1 for dot products."""
    W = W.pair.current if isinstance(W, Blend | ObjectBlend) else W
    if isinstance(W, Factored) or W.n < 2:
        return 1.0
    degrees = row_sums(W, lambda w: array_namespace(w).astype(w != 0, w.dtype), eager_diagonal(W))
    total = to_host(array_namespace(degrees).sum(degrees), reason="is it a graph?")[0]
    return float(total) / (W.n * (W.n - 1))


def unevenness(W: Proximity) -> float:
    """Return the squared coefficient of variation of the degrees of a graph, without the diagonal."""
    xp, d = array_namespace(W.like), W.row_sums() - W.diagonal()
    mean, square = to_host(xp.mean(d), xp.mean(d * d), reason="are degrees uneven?")
    return float(square / mean**2 - 1) if mean > 0 else 0.0
