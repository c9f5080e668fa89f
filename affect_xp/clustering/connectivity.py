"""Connected components of the graph with an edge for each nonzero proximity."""

import dataclasses
import math

import numpy as np
import scipy.sparse

from affect_xp.array.namespace import (
    array_namespace,
    computed,
    from_host,
    one_hot,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.proximity import Dense, Proximity, as_proximity
from affect_xp.proximity.sparse import Sparse

# Number of simultaneous sources of a search: a product with this many columns costs little more than one.
SOURCES = 32
# Generations of a search after which a stored matrix is passed to SciPy.
PATIENCE = 16
# Edges of each node that a search of a sparse graph reads first.
SAMPLED_EDGES = 2


@dataclasses.dataclass(frozen=True, eq=False)
class Components:
    """The connected components of a graph, numbered in the order of their first objects."""

    labels: Array  # of each object, (n,)
    sizes: np.ndarray  # the number of objects in each, (c,)

    def computed(self) -> "Components":
        """Return the same with the labels of a lazy library on the host."""
        labels = computed(self.labels, reason="components of a lazy graph")
        return dataclasses.replace(self, labels=labels)

    @property
    def count(self) -> int:
        """The number c of components."""
        return len(self.sizes)


def connected_components(W: Array | Proximity) -> Components:
    """Return the connected components of the graph with an edge for each pair i ≠ j with wᵢⱼ ≠ 0.

    The graph is searched by products that read each row at most once, and no more rows than needed, so that
    a dense graph costs a few of its rows. On a device the host waits once for each generation of a search.
    If many generations would be needed and the matrix is sparse, SciPy searches on the host; a device
    transfers the nonzero pattern.
    """
    W = as_proximity(W)
    found = None if isinstance(W, Sparse) else _by_products(W, PATIENCE)
    if found is None:
        pattern = _pattern(W.formed())
        found = _by_products(W) if pattern is None else _sparse_components(pattern)
    assert found is not None  # patience is infinite
    if not np.any(found):
        return Components(from_host(found.astype(np.int64), W.like), np.array([W.n]))
    _, first, labels = np.unique(found, return_index=True, return_inverse=True)
    labels = np.argsort(np.argsort(first))[labels]
    return Components(from_host(labels, W.like), np.bincount(labels))


def _pattern(W: Proximity) -> scipy.sparse.csr_array | None:
    """Return the nonzero pattern of a stored W, on the host, built from blocks of rows; otherwise None."""
    reason = "components of a graph"
    if isinstance(W, Sparse):
        if not scipy.sparse.issparse(W.matrix):
            w = W.matrix
            ends, columns, some = to_host(w.indptr, w.indices, w.data != 0, reason=reason)
            pattern = scipy.sparse.csr_array(
                (some != 0, columns.astype(int), ends.astype(int)), shape=w.shape
            )
            pattern.eliminate_zeros()
            return pattern
        if np.all(W.matrix.data):
            return W.matrix
        pattern = W.matrix.astype(bool)
        pattern.eliminate_zeros()
        return pattern
    if isinstance(W, Dense):
        blocks = (to_host(W.array[rows, :] != 0, reason=reason)[0] for rows in row_blocks(W.array))
        return scipy.sparse.vstack([scipy.sparse.csr_array(block) for block in blocks], format="csr")
    return None


def _sparse_components(w: scipy.sparse.csr_array) -> np.ndarray:
    """Return the component of each node of a large graph, by neighbour sampling.

    The components of a few edges of each node are merged along the other edges. Edges within the largest
    component are not read: an edge between two components has an end outside of it (Sutton, Ben-Nun & Barak,
    "Optimizing Parallel Graph Connectivity Computation via Subgraph Sampling", IPDPS 2018).
    """
    counts = np.diff(w.indptr)
    ends = np.concatenate([[0], np.cumsum(np.minimum(counts, SAMPLED_EDGES))])
    place = np.repeat(w.indptr[:-1] - ends[:-1], np.diff(ends)) + np.arange(ends[-1])
    found = _grouped(_edges(w.indices[place], ends, w.shape[0]), symmetric=False)
    outside = np.flatnonzero(found != np.argmax(np.bincount(found)))
    if len(outside) == 0:
        return found
    part = w[outside, :]
    n_found = int(found.max()) + 1
    between = np.repeat(found[outside], np.diff(part.indptr)), found[part.indices]
    edges = scipy.sparse.coo_array((np.ones(part.nnz, bool), between), shape=(n_found, n_found)).tocsr()
    return _grouped(edges, symmetric=False)[found]


def _edges(columns: np.ndarray, ends: np.ndarray, n: int) -> scipy.sparse.csr_array:
    """Return a graph of n nodes, given the neighbours of each."""
    return scipy.sparse.csr_array((np.ones(len(columns), bool), columns, ends), shape=(n, n))


def _grouped(pattern: np.ndarray | scipy.sparse.csr_array, *, symmetric: bool = True) -> np.ndarray:
    """Return the component of each node of a small or sparse graph.

    If the graph is symmetric, these are the strong components, for which SciPy needs no transpose.
    """
    from scipy.sparse import csgraph  # slow to import

    connection = "strong" if symmetric else "weak"
    return csgraph.connected_components(pattern, directed=True, connection=connection)[1]


def _by_products(W: Proximity, patience: float = math.inf) -> np.ndarray | None:
    """Return the same number for all objects of a component, (n,); None if patience is exhausted."""
    # Random weights prevent similarities of opposite sign from cancelling.
    weights = np.random.default_rng(0).uniform(1.0, 2.0, W.n)
    found, first = np.full(W.n, -1), True
    while np.any(found < 0):
        reached, generations = _search(W, np.flatnonzero(found < 0)[:SOURCES], weights, patience)
        found, patience = np.where(reached >= 0, reached, found), patience - generations
        if patience <= 0:
            return None
        if first and np.any(found < 0):
            lonely = (found < 0) & _isolated(W, weights)
            found[lonely] = np.flatnonzero(lonely)
        first = False
    return found


def _isolated(W: Proximity, weights: np.ndarray) -> np.ndarray:
    """Return which objects have no edge, (n,)."""
    u = from_host(weights, W.like, dtype=wide_dtype(W.like))
    return to_host(W.matmul(u[:, None])[:, 0] == W.diagonal() * u, reason="isolated objects")[0]


def _search(
    W: Proximity, sources: np.ndarray, weights: np.ndarray, patience: float
) -> tuple[np.ndarray, int]:
    """Return one source per component for each object, -1 if not reached, and the number of generations."""
    r = len(sources)
    owner = np.full(W.n, -1)  # the number of the source that reached an object first
    owner[sources] = np.arange(r)
    meet = np.zeros((r, r))  # how often two sources have reached the same object
    frontier, group, generations = sources, np.arange(r), 0
    while len(frontier) and generations < patience and (np.any(owner < 0) or np.any(group)):
        v = np.zeros((len(frontier), r))
        v[np.arange(len(frontier)), owner[frontier]] = weights[frontier]
        reached, met = _neighbours(W, v, frontier, owner)
        frontier = np.flatnonzero((owner < 0) & (reached >= 0))
        owner[frontier] = reached[frontier]
        meet, generations = meet + met, generations + 1
        group = _grouped(meet > 0)
    first = np.unique(group, return_index=True)[1]  # the first source of each group
    return np.where(owner >= 0, sources[first[group[owner]]], -1), generations


def _neighbours(
    W: Proximity, v: np.ndarray, frontier: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first source adjacent to each object, (n,), and counts of shared objects, (r, r)."""
    like = W.like
    xp, wide = array_namespace(like), wide_dtype(like)
    y = W.matmul(from_host(v, like, dtype=wide), from_host(frontier, like))  # (n, r)
    own = one_hot(from_host(owner, like), v.shape[1], wide)
    touched = xp.astype((y != 0) | (own > 0), wide)
    some = xp.sum(touched, axis=1) > 0
    first = xp.argmax(touched, axis=1)
    reached, met = to_host(
        xp.where(some, first, -xp.ones_like(first)), touched.T @ touched, reason="objects reached by a search"
    )
    return reached.astype(np.int64), met
