"""Spectral clustering on products W·V: eigenvectors of a similarity graph, rounded to clusters.

With degrees d = W1 (row sums *with* the diagonal) and D = diag(d), the clusters are read from

    average association   the top eigenvectors of W
    ratio cut             the bottom ones of L = D − W
    normalised cut        the bottom ones of I − D^{-1/2} W D^{-1/2}, with rows scaled to length 1

The eigenvectors of a cut for the eigenvalue 0 are known: 1 (normalised cut: √d) on one connected component,
and 0 elsewhere. They are written down, not computed, and the others are sought orthogonal to them. Each way
of rounding depends on the space that the eigenvectors span and not on their choice in it, so that the
clusters follow from W and the random numbers, whichever solver is used.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from affect_xp.array.device import on_input_device
from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    from_host,
    gather,
    is_lazy,
    one_hot,
    to_host,
    wide_dtype,
)
from affect_xp.array.random import as_generator
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_int, check_n_clusters
from affect_xp.clustering.base import FIRST, RULES, Call, Clustering, NClusters, check_clusters, clusters_at
from affect_xp.clustering.connectivity import Components, connected_components
from affect_xp.clustering.discretize import ASSIGNMENTS, EQUAL, refined, unit_rows
from affect_xp.clustering.eigen import SOLVERS, Eigenpairs, Operator, host_product, top_eigenpairs
from affect_xp.clustering.n_clusters import choose, eigengap_scores, select
from affect_xp.exceptions import ConvergenceWarning, InputError
from affect_xp.parameters import Parameters
from affect_xp.partition import Partition
from affect_xp.proximity import Blend, Proximity, as_proximity

CUTS = ("normalized_cut", "ratio_cut")
OBJECTIVES = (*CUTS, "average_association")
COMPONENTS = ("joint", "separate")
# How far, as an angle, the eigenvectors of the iterative solver may be from the space they should span: far
# less than clusters depend on. Average association may have objects without any link, whose rows should be
# zero and nothing else.
ACCURACY = {"normalized_cut": 1e-3, "ratio_cut": 1e-3, "average_association": 0.0}
# Where eigenvectors are found by iteration, clusters that only serve to estimate α are read from vectors with
# such a residual, if they are those of cuts, and with so many starts at most.
ROUGH, ROUGH_STARTS = 5e-3, 3


@dataclasses.dataclass(frozen=True, eq=False)
class SpectralResult:
    """What spectral clustering found.

    Attributes
    ----------
    labels : (n,) int array
        Clusters 0 ... k-1, none of them empty, numbered in the order of their first objects.
    vectors : (n, r) array
        The orthonormal eigenvectors the clusters were read from; give them as `start` the next time. r is
        the number of clusters unless that eigenvalue is tied with the next, see
        `affect_xp.clustering.eigen.top_eigenpairs`. Rows of objects in components set apart are zero.
    values : (r,) array
        Their eigenvalues: of W, largest first, for average association; of the Laplacian of a cut, smallest
        first.
    n_iter : int
        Products W·V of the iterative solver; 0 if none was needed.
    converged : bool
        Whether the eigenvectors have converged.
    residual : float
        The largest residual of an eigenvector, as a share of the largest eigenvalue.
    n_components : int or None
        Connected components of the graph; None where they were not looked for.
    """

    labels: Array
    vectors: Array
    values: Array
    n_iter: int
    converged: bool
    residual: float
    n_components: int | None


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
    start: Array | None = None,
    rng: Seed = None,
) -> SpectralResult:
    """Cluster objects by the eigenvectors of their similarities.

    Parameters
    ----------
    W : (n, n) array or Proximity
        Similarities. For the cuts they must not be negative: an error is raised if negative ones make a
        degree or an eigenvalue of the Laplacian negative. Average association takes any.
    n_clusters : int
    objective : "normalized_cut", "ratio_cut" or "average_association"
    assign_labels : "kmeans", "rotation" or "cluster_qr"
        How eigenvectors become clusters: k-means on their rows; the rotation that brings them nearest to
        a membership (Yu & Shi 2003); or QR with column pivoting (Damle, Minden & Ying 2019), which has
        no random start. Should either of the latter leave a cluster empty, k-means goes on from there.
    components : "joint" or "separate"
        What to do with a graph that is not connected. "joint": cluster all objects together; if a cut
        has at least as many components as clusters to find, the largest components are a cluster each,
        and the last cluster holds all others. "separate": each component smaller than the largest is a
        cluster (if they are too many, they share one), and the largest, or all of that size together, is
        clustered into as many as are left; "joint" if it has not so many objects.
    n_init : int
        Starts of k-means and of the rotation; the best one wins.
    solver : "auto", "full" or "iterative"
        Of the eigenvalue problem. "auto" is full for small n, iterative otherwise.
    start : (n, r) array, optional
        The `vectors` of a similar problem; rows of zeros for objects that it did not have.
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
    scan = SpectralScan(W, k, objective, assign_labels, components, n_init, solver, start, rng)
    return scan.result(k)


class SpectralScan:
    """Spectral clustering into any number of clusters up to a largest one, with one eigenvalue problem.

    The parameters are those of `spectral`, `max_clusters`, and `rough`: where eigenvectors are found by
    iteration, fewer starts are tried, and those of cuts are found no more closely than ROUGH.
    """

    def __init__(
        self,
        W: Proximity,
        max_clusters: int,
        objective: str = "normalized_cut",
        assign_labels: str = "kmeans",
        components: str = "joint",
        n_init: int = 10,
        solver: str = "auto",
        start: Array | None = None,
        rng: Seed = None,
        *,
        rough: bool = False,
    ) -> None:
        check_choice("objective", objective, OBJECTIVES)
        check_choice("assign_labels", assign_labels, ASSIGNMENTS)
        check_choice("components", components, COMPONENTS)
        check_choice("solver", solver, SOLVERS)
        check_int("n_init", n_init, 1)
        self._like, self._rng = W.like, rng
        self._graph = _Graph.of(W, searched=components == "separate" or objective in CUTS)
        if objective in CUTS:
            _check_degrees(self._graph, objective)
        accuracy, residual = ACCURACY[objective], ROUGH if rough and objective in CUTS else 0.0
        self._task = _Task(
            objective, ASSIGNMENTS[assign_labels], n_init, solver, max_clusters, accuracy, residual, rough
        )
        self._start = _checked_start(start, self._graph)
        self._cluster = _separate if components == "separate" else _joint

    def result(self, k: int) -> SpectralResult:
        """Return the result for k clusters, at most `max_clusters`."""
        task = dataclasses.replace(self._task, rng=as_generator(self._rng))
        found = self._cluster(self._graph, k, task, self._start)
        return _result(found, k, self._like, self._graph.components)

    @property
    def is_rough(self) -> bool:
        """Whether clusters would have been found more closely, had they not been asked for roughly."""
        return self._task.rough and any(pairs.grown for pairs in self._task.solved.values())

    def eigenvalues(self) -> np.ndarray:
        """Return the first `max_clusters` eigenvalues of the whole graph, and those tied with the last."""
        return self._task.solve(self._graph, self._start).values


def _checked_start(start: Array | None, graph: "_Graph") -> Array | None:
    """Return the vectors to start from, on the host if their library is lazy."""
    if start is None:
        return None
    if start.ndim != 2 or start.shape[0] != graph.n:
        raise InputError(
            f"start must have {graph.n} rows, one for each object, got shape {tuple(start.shape)}"
        )
    return to_host(start, reason="vectors of a lazy library")[0] if is_lazy(start) else start


@dataclasses.dataclass(frozen=True, eq=False)
class _Task:
    """What is asked for, besides the number of clusters."""

    objective: str
    assign: Callable[[Array, Array, int, int, np.random.Generator], Array]
    n_init: int
    solver: str
    k_max: int
    accuracy: float  # of eigenvectors, as an angle
    residual: float  # of eigenpairs; the larger one of what both ask for is enough
    rough: bool
    rng: np.random.Generator = dataclasses.field(default_factory=np.random.default_rng)
    solved: dict[int, Eigenpairs] = dataclasses.field(default_factory=dict)  # by size of the graph

    def solve(self, graph: "_Graph", start: Array | None) -> Eigenpairs:
        """Return the eigenpairs for up to k_max clusters, solving each graph once."""
        if graph.n not in self.solved:
            k = min(self.k_max, graph.n)
            if self.objective in CUTS and graph.parts.count >= k:
                self.solved[graph.n] = _by_component(graph, k, self.objective).pairs
            else:
                self.solved[graph.n] = PROBLEMS[self.objective](graph, k, self, start)
        return self.solved[graph.n]


@dataclasses.dataclass(frozen=True, eq=False)
class _Found:
    """Clusters, and the eigenvectors they were read from."""

    labels: Array
    pairs: Eigenpairs


@dataclasses.dataclass(frozen=True, eq=False)
class _Graph:
    """Similarities W = Σᵢ θᵢ Wᵢ through products, with what the objectives need to know of them.

    All arrays are where the products are: on the host for a lazy library.
    """

    n: int
    like: Array
    products: tuple[Callable[[Array], Array], ...]  # X ↦ WᵢX
    weights: tuple[Array | float, ...]  # θᵢ
    part_degrees: tuple[Array, ...]  # Wᵢ1, (n,)
    components: Components | None  # None if they were not looked for
    notes: dict[str, Any]  # what is known of all graphs with the same parts
    thin_dtype: object  # in which products are fastest

    @staticmethod
    def of(W: Proximity, *, searched: bool) -> "_Graph":
        """Return the graph of a proximity.

        A blend is taken as (1 − α) W₀ + α W₁, of the blends with α = 0 and with α = 1: what is found out
        about these serves for every α. (Not so for a lazy one, which is computed as a whole.)
        """
        kinds: tuple[Proximity, ...] = (W,)
        weights: tuple[Array | float, ...] = (1.0,)
        notes: dict[str, Any] = {}
        if isinstance(W, Blend) and not is_lazy(W.like):
            notes, kinds = W.notes, (W.at(0.0), W.at(1.0))
            weights = (1.0,) if _is_zero(W.alpha) else (1 - W.alpha, W.alpha)
        like = host_product(W)[0]
        products = tuple(_multiply(kind) for kind in kinds[: len(weights)])
        degrees = notes.get("degrees", ())
        ones = array_namespace(like).ones((W.n, 1), dtype=wide_dtype(like), device=device_of(like))
        notes["degrees"] = degrees + tuple(product(ones)[:, 0] for product in products[len(degrees) :])
        components = _components(W, len(weights), notes) if searched else None
        thin_dtype = wide_dtype(like) if is_lazy(W.like) else W.thin_dtype
        degrees = notes["degrees"][: len(weights)]
        return _Graph(W.n, like, products, weights, degrees, components, notes, thin_dtype)

    @property
    def degrees(self) -> Array:
        """The degrees d = Σᵢ θᵢ Wᵢ1, (n,)."""
        return sum(weight * d for weight, d in zip(self.weights, self.part_degrees, strict=True))

    @property
    def parts(self) -> Components:
        """The connected components, which were looked for."""
        assert self.components is not None
        return self.components

    def operator(self, **scaled: Any) -> Operator:
        """Return W as an operator."""
        return Operator(self.n, self.like, self.products, self.weights, thin_dtype=self.thin_dtype, **scaled)

    def among(self, chosen: np.ndarray, index: Array, places: Array) -> "_Graph":
        """Return the graph of the objects at `index`, those of the chosen (c,) components.

        `places` (n,) are the positions of all objects in it, -1 for those left out.
        """
        xp = array_namespace(index)
        number = from_host(np.cumsum(chosen) - 1, index)
        parts = Components(xp.take(number, xp.take(self.parts.labels, index)), self.parts.sizes[chosen])

        def among(product: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return lambda v: xp.take(product(gather(v, places, 0)), index, axis=0)

        products = tuple(among(product) for product in self.products)
        degrees = tuple(xp.take(d, index) for d in self.part_degrees)
        return _Graph(index.shape[0], self.like, products, self.weights, degrees, parts, {}, self.thin_dtype)


def _multiply(W: Proximity) -> Callable[[Array], Array]:
    """Return X ↦ WX; the parts of a blend share their products with the same X."""
    if not isinstance(W, Blend) or is_lazy(W.like):
        return host_product(W)[1]
    if W.only_part is not None:
        return W.only_part.matmul
    return W.matmul


def _is_zero(alpha: Array | float) -> bool:
    """Tell whether α is the number 0: then a blend does not look at its past."""
    return isinstance(alpha, float) and alpha == 0.0


def _components(W: Proximity, n_parts: int, notes: dict[str, Any]) -> Components:
    """Return the connected components; those of blends with the same parts are the same for all 0 < α < 1.

    Where the present is connected, so is every such blend of it.
    """
    now = W
    if isinstance(W, Blend) and isinstance(W.alpha, float) and W.alpha == 1.0:
        return _on_host_if_lazy(connected_components(W))
    if isinstance(W, Blend) and (n_parts == 2 or _is_zero(W.alpha)):
        now = W.at(0.0).formed()
    for graph, name in ((now, "components of 1"), (W, "components of 2"))[:n_parts]:
        if name not in notes:
            notes[name] = _on_host_if_lazy(connected_components(graph))
        if notes[name].count == 1:
            break
    return notes[name]


def _on_host_if_lazy(found: Components) -> Components:
    if not is_lazy(found.labels):
        return found
    return Components(to_host(found.labels, reason="components of a lazy graph")[0], found.sizes)


def _check_degrees(graph: _Graph, objective: str) -> None:
    """Raise if a degree is negative, or zero although the object has neighbours."""
    d, parts = graph.degrees, graph.parts
    xp = array_namespace(d)
    size = xp.take(from_host(parts.sizes, d), parts.labels)
    linked = xp.where(size > 1, d, xp.full_like(d, xp.inf))
    low, low_linked = to_host(xp.min(d), xp.min(linked), reason="are all degrees positive?")
    if low < 0 or low_linked <= 0:
        _raise_negative(objective, f"an object has the degree {float(min(low, low_linked)):.4g}")


def _raise_negative(objective: str, symptom: str) -> None:
    raise InputError(
        f"objective={objective!r} needs similarities that are not negative, but with those in W {symptom}; "
        "make them positive (for instance exp(W), or a kernel), or use objective='average_association'"
    )


def _result(found: _Found, k: int, like: Array, components: Components | None) -> SpectralResult:
    """Return what was found, in the library and on the device of `like`."""
    labels, pairs = _in_order(found.labels, k), found.pairs
    vectors = pairs.vectors
    if is_lazy(like):
        labels, vectors = from_host(labels, like), from_host(vectors, like)
    return SpectralResult(
        labels=labels,
        vectors=vectors,
        values=from_host(pairs.values, like, dtype=vectors.dtype),
        n_iter=pairs.n_iter,
        converged=pairs.converged,
        residual=pairs.residual,
        n_components=None if components is None else components.count,
    )


def _in_order(labels: Array, k: int) -> Array:
    """Number the clusters, none of which is empty, in the order of their first objects."""
    xp = array_namespace(labels)
    first = xp.argmax(one_hot(labels, k, wide_dtype(labels)), axis=0)
    return xp.take(xp.argsort(xp.argsort(first, stable=True), stable=True), labels)


def _separate(graph: _Graph, k: int, task: _Task, start: Array | None) -> _Found:
    """Set the components smaller than the largest apart, and cluster the largest."""
    parts = graph.parts
    giant = parts.sizes == parts.sizes.max()
    own = np.cumsum(~giant) - 1 if parts.count <= k else np.zeros_like(parts.sizes)  # clusters of small ones
    k_giant = k - 1 - int(own.max())
    if k == 1 or np.all(giant) or k_giant > parts.sizes[giant].sum():
        return _joint(graph, k, task, start)
    component = to_host(parts.labels, reason="objects of the largest component")[0]
    inside, like = giant[component], parts.labels
    index = from_host(np.flatnonzero(inside), like)
    places = from_host(np.where(inside, np.cumsum(inside) - 1, -1), like)
    xp = array_namespace(like)
    start = start if start is None else xp.take(start, index, axis=0)
    found = _joint(graph.among(giant, index, places), k_giant, task, start)
    outside = from_host(k_giant + own[component], like)
    labels = xp.where(places >= 0, gather(found.labels, places, 0), outside)
    vectors = gather(found.pairs.vectors, places, 0)
    return _Found(labels, dataclasses.replace(found.pairs, vectors=vectors))


def _by_component(graph: _Graph, k: int, objective: str) -> _Found:
    """Make a cluster of each of the k − 1 largest components, and one of all others.

    No union of components has anything to cut. Of the partitions into such unions this is the one with the
    smallest sum of squares, if components are points at equal distances.
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
    """Return orthonormal vectors that are constant (normalised cut: ∝ √d) on a part each, (n, c)."""
    d = graph.degrees
    xp = array_namespace(d)
    height = xp.ones_like(d)
    if objective == "normalized_cut":
        height = xp.where(d > 0, xp.sqrt(xp.abs(d)), height)
    vectors = one_hot(labels, c, d.dtype) * height[:, None]
    return vectors / xp.linalg.vector_norm(vectors, axis=0, keepdims=True)


def _joint(graph: _Graph, k: int, task: _Task, start: Array | None) -> _Found:
    """Cluster all objects by the eigenvectors of the objective."""
    if task.objective in CUTS and graph.parts.count >= k:
        return _by_component(graph, k, task.objective)
    pairs = task.solve(graph, start).leading(k)
    vectors = pairs.vectors
    if vectors.shape[1] == 0:  # all eigenvalues are tied: nothing tells one object from another
        vectors = array_namespace(vectors).zeros_like(graph.degrees)[:, None]
    rows = unit_rows(vectors) if task.objective == "normalized_cut" else vectors
    if not (task.rough and pairs.grown):
        return _Found(task.assign(vectors, rows, k, task.n_init, task.rng), pairs)
    name = f"clusters for {k}"
    if name in graph.notes and task.assign is ASSIGNMENTS["kmeans"]:
        # Of blends with the same parts, the clusters of one are nearly those of the next.
        labels = refined(graph.notes[name], rows, k)
    else:
        labels = task.assign(vectors, rows, k, min(task.n_init, ROUGH_STARTS), task.rng)
    graph.notes[name] = labels
    return _Found(labels, pairs)


def _association_vectors(graph: _Graph, k: int, task: _Task, start: Array | None) -> Eigenpairs:
    """Return the top eigenpairs of W."""
    return _solved(graph, graph.operator(), k, task, start)


def _solved(graph: _Graph, a: Operator, k: int, task: _Task, start: Array | None) -> Eigenpairs:
    """Return the top eigenpairs, starting in the space found for another blend of the same parts."""
    name = f"space for {k}"
    start = graph.notes.get(name, start)
    pairs = top_eigenpairs(
        a, k, solver=task.solver, start=start, accuracy=task.accuracy, residual=task.residual
    )
    if pairs.space is not None:
        graph.notes[name] = pairs.space
    return dataclasses.replace(pairs, space=None)


def _cut_vectors(graph: _Graph, k: int, task: _Task, start: Array | None) -> Eigenpairs:
    """Return the bottom eigenpairs of the Laplacian: those of the eigenvalue 0, which are known, then others.

    They are the top ones of A, with L = u(l − A), orthogonal to those known.
    """
    c = graph.parts.count
    null = _null_vectors(graph, graph.parts.labels, c, task.objective)
    a, level, unit = LAPLACIANS[task.objective](graph)
    a = dataclasses.replace(a, null=null, null_products=_null_products(graph, a.s * null))
    # The vectors of a similar problem end with those that were not known.
    start = start if start is None else start[:, -min(k - c, start.shape[1]) :]
    pairs = _solved(graph, a, k - c, task, start)
    values = unit * (level - pairs.values)
    if len(values) and values[0] < -EQUAL * unit:
        _raise_negative(task.objective, f"the Laplacian has the eigenvalue {values[0]:.4g}")
    return dataclasses.replace(
        pairs,
        values=np.concatenate([np.zeros(c), values]),
        vectors=array_namespace(null).concat([null, pairs.vectors], axis=1),
        tie=unit * pairs.tie,
    )


def _null_products(graph: _Graph, x: Array) -> tuple[Array, ...]:
    """Return WᵢX for an X that is constant on each component, and 0 on all but one."""
    if graph.parts.count == 1:
        return tuple(d[:, None] * x for d in graph.part_degrees)
    return tuple(product(x) for product in graph.products)


def _normalized(graph: _Graph) -> tuple[Operator, float, float]:
    """Return A = D^{-1/2} W D^{-1/2}, and L = 1·(1 − A)."""
    d = graph.degrees
    xp = array_namespace(d)
    s = 1 / xp.sqrt(xp.where(d > 0, d, xp.ones_like(d)))[:, None]
    return graph.operator(s=s, scale=1.0), 1.0, 1.0


def _unnormalized(graph: _Graph) -> tuple[Operator, float, float]:
    """Return A = (W − D) / max d, and L = max d·(0 − A)."""
    d = graph.degrees
    unit = float(to_host(array_namespace(d).max(d), reason="largest degree")[0])
    return graph.operator(s=unit**-0.5 if unit > 0 else 1.0, e=-d[:, None] / unit, scale=1.0), 0.0, unit


LAPLACIANS = {"normalized_cut": _normalized, "ratio_cut": _unnormalized}
PROBLEMS = dict.fromkeys(CUTS, _cut_vectors) | {"average_association": _association_vectors}


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
    is_for_graphs: ClassVar[bool] = True  # similarities are not negative
    rules: ClassVar[tuple[str, ...]] = RULES["Spectral"]

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
