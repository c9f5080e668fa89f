"""Proximities from edges and graphs."""

import math
import numbers
from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError


def is_graph(given: object) -> bool:
    """Return whether something is a networkx graph."""
    return hasattr(given, "adjacency") and hasattr(given, "nodes") and hasattr(given, "edges")


def graph_adjacency(
    graph: Any, title: str, weight: str = "weight", directed: str = "sum"
) -> tuple[tuple[Hashable, ...], Array]:
    """Return the nodes of a graph and its weights as a symmetric sparse matrix.

    An edge without a weight counts 1, parallel edges are summed, self-loops go on the diagonal, and
    `directed` combines both directions. `title` is the name of the graph in messages.
    """
    position = {node: i for i, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data=weight, default=1))
    for u, v, w in edges:
        if not isinstance(w, numbers.Real) or not math.isfinite(w):
            what = f"{title} is a graph whose edge {u!r} - {v!r} has {weight}={w!r}"
            raise InputError(f"{what}; set a finite weight, or remove the edge")
    ends = np.array([(position[u], position[v]) for u, v, _ in edges], dtype=np.int64).reshape(-1, 2)
    if not graph.is_directed():  # an edge may be listed from either end
        ends, directed = np.sort(ends, axis=1), "sum"
    weights = np.array([float(w) for *_, w in edges])
    return tuple(position), adjacency((ends[:, 0], ends[:, 1]), weights, len(position), directed)


def adjacency(ends: tuple[np.ndarray, np.ndarray], weights: np.ndarray, n: int, directed: str) -> Array:
    """Return the symmetric W of edges: parallel edges are summed, and the two directions are combined.

    With A_ij the sum of the weights from i to j: A + Aᵀ (but A_ii once), (A + Aᵀ) / 2, or max(A, Aᵀ).
    """
    if directed == "sum":
        weights = weights / (1 + (ends[0] == ends[1]))
    A = scipy.sparse.coo_array((weights, ends), shape=(n, n)).tocsr()
    B = A.T.tocsr()
    return A.maximum(B) if directed == "max" else (A + B) / 2 if directed == "mean" else A + B
