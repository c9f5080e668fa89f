"""Typical calls of a new user, and their results: the correct clusters, or a message with a remedy.

A case is a name, a call, and the expected result: `finds()` the obvious clusters of the data, `returns(...)`
a value, `warns(...)` a warning with this text, `refuses(...)` exactly this error.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import affect_xp as ax
from affect_xp.exceptions import (
    InputError,
    InputTypeError,
    InputWarning,
    NotFittedError,
)

nx = pytest.importorskip("networkx")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
cluster = pytest.importorskip("sklearn.cluster")

# Thirty objects in three groups, seen at six steps.
N, T = 30, 6
TRUTH = np.repeat([0, 1, 2], 10)
NAMES = [f"o{i}" for i in range(N)]
GROUP_OF = dict(zip(NAMES, TRUTH.tolist(), strict=True)) | dict(enumerate(TRUTH.tolist()))
CENTRES = np.array([[0.0, 6.0], [6.0, 0.0], [-6.0, -6.0]])

X = CENTRES[TRUTH] + np.random.default_rng(0).normal(size=(T, N, 2))  # features (T, n, p)
W = X @ X.transpose(0, 2, 1)  # dot products (T, n, n)
D = np.sqrt(((X[:, :, None, :] - X[:, None, :, :]) ** 2).sum(axis=3))  # distances
S = np.exp(-(D**2) / 8)  # similarities between 0 and 1
LINKED = D < 3.5  # pairs of near objects


def affect(clusterer=None, **parameters):
    """A model with a seed, by default k-means with three clusters."""
    return ax.Affect(
        ax.KMeans(3, n_init=10) if clusterer is None else clusterer, **{"random_state": 0} | parameters
    )


def of_features(clusterer=None, **parameters):
    return affect(clusterer, **{"proximity": "dot"} | parameters)


# Expected results of a call.


@dataclasses.dataclass(frozen=True)
class Expectation:
    kind: str
    value: Any = None
    text: str = ""


def finds(at_least=1.0):
    """The call returns a model whose last labels agree with the groups, by the adjusted Rand index."""
    return Expectation("finds", at_least)


def returns(value):
    return Expectation("returns", value)


def refuses(error, text):
    return Expectation("refuses", error, text)


def warns(category, text):
    return Expectation("warns", category, text)


def agreement(model):
    """Compare labels, or those of a model with objects named by `NAMES` or numbers, with the groups."""
    if isinstance(model, np.ndarray):
        return ax.adjusted_rand_index(model, TRUTH)
    return ax.adjusted_rand_index(np.asarray(model.labels_), [GROUP_OF[name] for name in model.ids_])


def fits(message, text):
    """Return whether a message equals the expected text, which may be abbreviated by "..." at the end."""
    return message.startswith(text[:-3]) if text.endswith("...") else message == text


def check(call: Callable[[], Any], expected: Expectation) -> None:
    if expected.kind == "refuses":
        with pytest.raises(expected.value) as raised:
            call()
        assert type(raised.value) is expected.value
        assert fits(str(raised.value), expected.text)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    if expected.kind == "warns":
        assert [w.category for w in caught] == [expected.value]  # once
        assert expected.text in str(caught[0].message)
        return
    assert [str(w.message) for w in caught if not issubclass(w.category, PendingDeprecationWarning)] == []
    if expected.kind == "finds":
        assert agreement(result) >= expected.value
    else:
        assert result == expected.value


# Steps as arrays, lists and generators.

ARRAYS = {
    "a (T, n, n) array": (lambda: affect().fit(W), finds()),
    "a list of matrices": (lambda: affect().fit(list(W)), finds()),
    "a tuple of matrices": (lambda: affect().fit(tuple(W)), finds()),
    "a generator": (lambda: affect().fit(w for w in W), finds()),
    "lists of lists of lists": (lambda: affect().fit(W.tolist()), finds()),
    "a dict of matrices by time": (
        lambda: [r.time for r in affect().fit({2020 + t: w for t, w in enumerate(W)}).history_],
        returns([2020, 2021, 2022, 2023, 2024, 2025]),
    ),
    "a dict of steps with ids": (lambda: affect().fit({2020: W[0], 2021: W[1]}, ids=NAMES), finds()),
    "step by step": (lambda: affect().partial_fit(W[0]).partial_fit(W[1]), finds()),
    "one step only": (lambda: affect().fit(W[:1]), finds()),
    "features (T, n, p)": (lambda: of_features().fit(X), finds()),
    "features of one step": (lambda: of_features().fit(X[0]), finds()),
    "features as lists": (lambda: of_features().fit(X.tolist()), finds()),
    "features of one step as lists": (lambda: of_features().fit(X[0].tolist()), finds()),
    "features, rbf": (lambda: of_features(proximity="rbf").fit(X), finds()),
    "features, cosine": (lambda: of_features(proximity="cosine").fit(X), finds()),
    "features, Euclidean": (lambda: of_features(ax.Linkage(3), proximity="euclidean").fit(X), finds()),
    "features, spectral": (lambda: of_features(ax.Spectral(3), proximity="rbf").fit(X), finds()),
    "fit_predict": (lambda: affect().fit_predict(W), finds()),
    "static clustering": (lambda: ax.Static(ax.KMeans(3, n_init=10), random_state=0).fit(W), finds()),
    "hindsight": (
        lambda: np.asarray(ax.smooth(W, ax.KMeans(3, n_init=10), random_state=0).history_[-1].labels),
        finds(),
    ),
}

# Storage and dtypes of numbers.

STORAGE = {
    "float32": (lambda: affect().fit(W.astype(np.float32)), finds()),
    "float32 after float64": (lambda: affect().fit([W[0], W[1].astype(np.float32)]), finds()),
    "integers": (lambda: affect(ax.Spectral(3)).fit((10 * S).astype(int)), finds()),
    "small integers": (lambda: affect(ax.Spectral(3)).fit((10 * S).astype(np.int8)), finds()),
    "a boolean adjacency": (lambda: affect(ax.Spectral(3)).fit(LINKED), finds()),
    "integer features": (lambda: of_features().fit(X.round().astype(int)), finds()),
    "features that are objects": (lambda: of_features().fit(X.astype(object)), finds()),
    "arrays to be read only": (lambda: affect().fit(read_only(W)), finds()),
    "Fortran order": (lambda: affect().fit([np.asfortranarray(w) for w in W]), finds()),
    "views with strides": (
        lambda: affect().fit(np.repeat(np.repeat(W, 2, axis=1), 2, axis=2)[:, ::2, ::2]),
        finds(),
    ),
    "big-endian numbers": (lambda: affect().fit(W.astype(">f8")), finds()),
    "sparse matrices": (
        lambda: affect(ax.Spectral(3)).fit([sp.csr_array(s * (s > 0.1)) for s in S]),
        finds(),
    ),
    "sparse matrices of the old kind": (
        lambda: affect(ax.Spectral(3)).fit([sp.csr_matrix(s) for s in LINKED]),
        finds(),
    ),
    "sparse matrices as coordinates": (
        lambda: affect(ax.Spectral(3)).fit([sp.coo_array(s) for s in S]),
        finds(),
    ),
    "float16": (
        lambda: affect().fit(W.astype(np.float16)),
        refuses(InputTypeError, "W must be of dtype float32 or float64, got float16; use astype('float32')"),
    ),
    "strings": (
        lambda: affect().fit(W.astype(str)),
        refuses(InputTypeError, "W must be of dtype float32 or float64, got <U32; use astype('float64')"),
    ),
    "complex numbers": (
        lambda: affect().partial_fit(W[0] + 1j),
        refuses(InputTypeError, "W must be real, got dtype complex128; pass its real part or its modulus"),
    ),
    "a masked array": (
        lambda: affect().partial_fit(np.ma.masked_greater(W[0], 50)),
        refuses(InputTypeError, "W is a masked array; fill it with W.filled(0), or leave objects out"),
    ),
    "sparse features": (
        lambda: of_features().fit([sp.csr_array(x) for x in X]),
        refuses(
            InputTypeError,
            "X is a sparse matrix, but features must be a dense array; use X.toarray(), or pass sparse "
            "proximities such as X @ X.T with proximity='precomputed'",
        ),
    ),
    "sparse after dense": (
        lambda: affect().fit([W[0], sp.csr_array(W[1])]),
        refuses(
            InputTypeError,
            "W is Sparse, but the previous steps were Dense; convert it first, for example with to_dense()",
        ),
    ),
}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


# DataFrames and graphs.


def long_table(**columns):
    return {
        "time": np.repeat(range(T), N),
        "id": np.tile(NAMES, T),
        "x": X[..., 0].ravel(),
        "y": X[..., 1].ravel(),
    } | columns


def graph(linked, names=NAMES):
    made = nx.Graph()
    made.add_nodes_from(names)
    made.add_edges_from((names[i], names[j]) for i, j in np.argwhere(np.triu(linked, 1)))
    return made


TABLES = {
    "DataFrames with ids as index": (
        lambda: of_features().fit([pd.DataFrame(x, index=NAMES) for x in X]),
        finds(),
    ),
    "one DataFrame": (
        lambda: of_features().fit(pd.DataFrame(X[0], index=NAMES, columns=["x", "y"])),
        finds(),
    ),
    "a dict of DataFrames": (
        lambda: of_features().fit({t: pd.DataFrame(X[t], index=NAMES) for t in range(T)}),
        finds(),
    ),
    "DataFrames of proximities": (lambda: affect().fit([pd.DataFrame(w, NAMES, NAMES) for w in W]), finds()),
    "DataFrames in another order": (
        lambda: of_features().fit([pd.DataFrame(X[0], NAMES), pd.DataFrame(X[1], NAMES).iloc[::-1]]),
        finds(),
    ),
    "polars": (lambda: of_features().fit([pl.DataFrame(x) for x in X]), finds()),
    "polars with ids": (lambda: of_features().fit([pl.DataFrame(x) for x in X], ids=NAMES), finds()),
    "polars, proximities": (lambda: affect().fit([pl.DataFrame(w) for w in W]), finds()),
    "a long table": (lambda: of_features().fit(ax.io.read_steps(pd.DataFrame(long_table()))), finds()),
    "a long table of polars": (
        lambda: of_features().fit(ax.io.read_steps(pl.DataFrame(long_table()))),
        finds(),
    ),
    "a long table given as it is": (
        lambda: of_features().fit(pd.DataFrame(long_table(id=np.tile(np.arange(N), T)))),
        finds(),
    ),
    "an edge list given as it is": (
        lambda: affect(ax.Spectral(3)).fit(
            pl.DataFrame({"date": [1, 1], "source": [1, 2], "target": [2, 1]})
        ),
        refuses(
            InputError,
            "edges of the DataFrame go both ways, as from 1 to 2 and back at time 1; pass directed='sum' "
            "(the total, as of contacts), directed='mean' or directed='max'",
        ),
    ),
    "a column of names": (
        lambda: of_features().partial_fit(pd.DataFrame({"name": NAMES, "x": X[0, :, 0]})),
        refuses(
            InputTypeError,
            "X contains values that are not numbers: could not convert string to float: 'o0'; keep only the "
            "columns of features, and pass names as the index of the table, or with ids=",
        ),
    ),
    "gaps in a DataFrame": (
        lambda: of_features().partial_fit(pd.DataFrame(np.where(np.arange(N)[:, None] == 3, np.nan, X[0]))),
        refuses(
            InputError, "X must be finite, but X[3, 0] = nan; leave out objects without data or fill it in"
        ),
    ),
    "other names on the two sides": (
        lambda: affect().partial_fit(pd.DataFrame(W[0], NAMES, NAMES[::-1])),
        refuses(
            InputError,
            "W is a DataFrame whose index and columns differ; use the same names for both, as in "
            "W.loc[names, names]",
        ),
    ),
    "a Series": (
        lambda: affect().partial_fit(pd.Series([1.0, 2.0])),
        refuses(
            InputTypeError,
            "W must be a two-dimensional array, a sparse matrix or a Proximity, got Series; convert it with "
            "the asarray of NumPy, CuPy or another array library",
        ),
    ),
    "networkx": (lambda: affect(ax.Spectral(3)).fit([graph(linked) for linked in LINKED]), finds()),
    "networkx, nodes that come and go": (
        lambda: affect(ax.Spectral(3)).fit([graph(LINKED[t][t:, t:], NAMES[t:]) for t in range(T)]),
        finds(),
    ),
    "networkx, one graph": (
        lambda: affect(ax.Spectral(3)).fit(graph(LINKED[0])),
        refuses(
            InputTypeError,
            "sequence must contain one matrix per step, got a single matrix; use partial_fit(W) or fit([W])",
        ),
    ),
    "networkx, directed": (
        lambda: affect(ax.Spectral(3)).partial_fit(graph(LINKED[0]).to_directed()),
        refuses(
            InputError,
            "W is a directed graph, but proximities are symmetric; use graph.to_undirected(), or sum "
            "both directions, W + W.T with W = networkx.to_scipy_sparse_array(graph), ids=list(graph)",
        ),
    ),
    "networkx, no nodes": (
        lambda: affect(ax.Spectral(3)).partial_fit(nx.Graph()),
        refuses(InputError, "W is a graph without nodes; omit steps without observations"),
    ),
}

# Ids, times, and objects that come and go.

OBJECTS = {
    "ids": (lambda: affect().fit(W, ids=NAMES), finds()),
    "ids by step": (lambda: affect().fit(W, ids=[NAMES] * T), finds()),
    "objects that come and go": (
        lambda: affect().fit([W[t][t:, t:] for t in range(T)], ids=[NAMES[t:] for t in range(T)]),
        finds(),
    ),
    "objects in another order": (
        lambda: affect().fit([W[0], W[1][::-1, ::-1]], ids=[NAMES, NAMES[::-1]]),
        finds(),
    ),
    "times": (lambda: affect().fit(W[:2], times=["Mon", "Tue"]).history_[-1].time, returns("Tue")),
    "dates": (
        lambda: affect().fit(W, times=pd.date_range("2024-01-01", periods=T)).history_[-1].time,
        returns(pd.Timestamp("2024-01-06")),
    ),
    "another number of objects": (
        lambda: affect().fit([W[0], W[1][:20, :20]]),
        refuses(
            InputError,
            "ids=None, but the previous step had 30 objects and this one has 20; pass ids= with each step so "
            "that objects can be matched",
        ),
    ),
    "too few ids": (
        lambda: affect().fit(W, ids=NAMES[:5]),
        refuses(InputError, "ids has length 5, but there are 30 objects; give one id for each row"),
    ),
    "an id twice": (
        lambda: affect().fit(W, ids=["a"] * N),
        refuses(InputError, "ids must be unique; 'a' appears more than once"),
    ),
    "ids in the place of labels": (
        lambda: affect().fit(W, NAMES),
        refuses(InputError, "y has a different value for each object, like ids; pass ids by name: ids=..."),
    ),
    "too few times": (
        lambda: affect().fit(W, times=range(3)),
        refuses(InputError, "times has 3 entries, but sequence has more; pass one per step"),
    ),
    "two objects": (
        lambda: sorted(affect(ax.KMeans(2)).fit([np.eye(2)] * 3).labels_.tolist()),
        returns([0, 1]),
    ),
    "one object": (lambda: affect(ax.Spectral(1)).fit([np.eye(1)] * 3).labels_.tolist(), returns([0])),
    "as many clusters as objects": (
        lambda: sorted(affect(ax.Linkage(4)).fit([D[0][:4, :4]] * 2).labels_.tolist()),
        returns([0, 1, 2, 3]),
    ),
    "identical objects": (
        lambda: of_features().fit(np.ones((T, N, 2))),
        warns(InputWarning, "all objects have the same features: there are no clusters"),
    ),
    "nothing but zeros": (
        lambda: affect(ax.Spectral(2)).fit(np.zeros((T, N, N))),
        warns(InputWarning, "all entries of W off the diagonal are 0: there are no clusters"),
    ),
}

# Invalid input.

WRONG = {
    "features without saying so": (
        lambda: affect().fit(X),
        refuses(
            InputError,
            "W must be a square matrix of proximities, got shape (30, 2); from features X compute it first, "
            "for instance X @ X.T, or give the model proximity='dot'",
        ),
    ),
    "one matrix as a sequence": (
        lambda: affect().fit(W[0]),
        refuses(
            InputTypeError,
            "sequence must contain one matrix per step, got a single matrix; use partial_fit(W) or fit([W])",
        ),
    ),
    "the name of a file": (
        lambda: affect().fit("contacts.csv"),
        refuses(
            InputError,
            "path must be a file, but contacts.csv does not exist; check its name and folder",
        ),
    ),
    "nothing": (
        lambda: affect().fit(None),
        refuses(InputTypeError, "sequence must be a list of matrices, got NoneType"),
    ),
    "no steps": (lambda: affect().fit([]), refuses(InputError, "sequence is empty; pass at least one step")),
    "rows of different lengths": (
        lambda: affect().partial_fit([[1, 2], [3]]),
        refuses(InputError, "the rows given differ in length; give a rectangular array"),
    ),
    "four dimensions": (
        lambda: affect().fit(np.ones((2, 2, 2, 2))),
        refuses(
            InputError,
            "sequence must contain one matrix per step, got an array of shape (2, 2, 2, 2); pass a list of "
            "matrices, or a three-dimensional array",
        ),
    ),
    "half a matrix": (
        lambda: affect().partial_fit(np.triu(np.ones((3, 3)))),
        refuses(
            InputError,
            "W is not symmetric: W[0, 1] = 1.0 but W[1, 0] = 0.0; use (W + W.T) / 2 if either half will do",
        ),
    ),
    "half a sparse matrix": (
        lambda: affect().partial_fit(sp.csr_array(np.triu(np.ones((3, 3))))),
        refuses(
            InputError,
            "W is not symmetric: W[0, 1] = 1.0 but W[1, 0] = 0.0; use (W + W.T) / 2 if either half will do, "
            "W.maximum(W.T) if only one half is stored",
        ),
    ),
    "NaN": (
        lambda: affect().partial_fit(np.where(np.eye(3) > 0, np.nan, 1.0)),
        refuses(
            InputError, "W must be finite, but W[0, 0] = nan; leave out objects without data, or fill them in"
        ),
    ),
    "infinity": (
        lambda: affect().partial_fit(np.where(np.eye(3) > 0, np.inf, 1.0)),
        refuses(
            InputError, "W must be finite, but W[0, 0] = inf; leave out objects without data, or fill them in"
        ),
    ),
    "enormous features": (
        lambda: of_features(scale="none").partial_fit(1e200 * X[0]),
        refuses(
            InputError,
            "X has values up to 7.29e+200 with a spread of 4.83e+200: too large for their squares, with "
            "scale='none'; divide X by a constant, or use scale='standard'",
        ),
    ),
    "more clusters than objects": (
        lambda: affect(ax.KMeans(50)).fit(W),
        refuses(InputError, "n_clusters=50 exceeds the number of objects, 30; use at most 30"),
    ),
    "no clusters": (
        lambda: affect(ax.KMeans(0)).fit(W),
        refuses(InputError, "n_clusters must be at least 1, got 0"),
    ),
    "a fraction of a cluster": (
        lambda: affect(ax.KMeans(2.5)).fit(W),
        refuses(InputTypeError, "n_clusters must be an integer, got 2.5"),
    ),
    "too few numbers of clusters": (
        lambda: affect(ax.KMeans([3, 3])).fit(W),
        refuses(InputError, "n_clusters has 2 entries, but this is step 2; give one for each step"),
    ),
    "an unknown rule": (
        lambda: affect(ax.KMeans("elbow")).fit(W),
        refuses(
            InputError,
            "n_clusters, if not a number, must be one of 'silhouette', 'calinski_harabasz', "
            "'modularity', got 'elbow'",
        ),
    ),
    "a rule of another clusterer": (
        lambda: affect(ax.KMeans("gap")).fit(W),
        refuses(
            InputError,
            "n_clusters='gap' is a rule of ax.Linkage('gap'); choose that, or one of 'silhouette', "
            "'calinski_harabasz', 'modularity' here",
        ),
    ),
    "an unknown proximity": (
        lambda: affect(proximity="gaussian").fit(X),
        refuses(
            InputError,
            "proximity, if not a function, must be one of 'precomputed', 'dot', 'rbf', 'cosine', "
            "'euclidean', got 'gaussian'",
        ),
    ),
    "a number of clusters as the clusterer": (
        lambda: affect(3).fit(W),
        refuses(
            InputTypeError,
            "clusterer must be an object such as KMeans(12), or a function from a Proximity to labels; got 3",
        ),
    ),
    "alpha beyond 1": (
        lambda: affect(alpha=2).fit(W),
        refuses(InputError, "alpha must be between 0 and 1, got 2"),
    ),
    "a seed that is text": (
        lambda: affect(random_state="seed").fit(W),
        refuses(
            InputTypeError,
            "random_state must be None, a non-negative int or a numpy.random.Generator, got 'seed'",
        ),
    ),
    "a seed below 0": (
        lambda: affect(random_state=-1).fit(W),
        refuses(
            InputTypeError,
            "random_state must be None, a non-negative int or a numpy.random.Generator, got -1",
        ),
    ),
    "labels before the first step": (
        lambda: affect().labels_,
        refuses(NotFittedError, "this Affect has not taken a step yet; call fit or partial_fit first"),
    ),
    "predict": (
        lambda: affect().fit(W).predict(W[0]),
        refuses(AttributeError, "'Affect' object has no attribute 'predict'"),
    ),
}

# Similarities and distances, mistaken for each other.

KINDS = {
    "distances for linkage": (lambda: affect(ax.Linkage(3)).fit(D), finds()),
    "similarities for spectral clustering": (lambda: affect(ax.Spectral(3)).fit(S), finds()),
    "similarities without a diagonal": (lambda: affect(ax.Spectral(3)).fit(S - np.eye(N)), finds()),
    "dot products for spectral clustering": (
        lambda: affect(ax.Spectral(3, objective="average_association")).fit(W),
        finds(),
    ),
    "dot products for a cut": (
        lambda: affect(ax.Spectral(3)).fit(W),
        refuses(
            InputError,
            "objective='normalized_cut' needs similarities that are not negative, but with those in W an "
            "object has the degree -38.9; make them positive (for instance exp(W), or a kernel), or use "
            "objective='average_association'",
        ),
    ),
    "distances for k-means": (
        lambda: affect().fit(D),
        warns(InputWarning, "KMeans takes similarities, but W looks like distances"),
    ),
    "distances for spectral clustering": (
        lambda: affect(ax.Spectral(3)).fit(D),
        warns(InputWarning, "use ax.Linkage, or convert W with ax.to_similarity(W)"),
    ),
    "distances, converted": (lambda: affect().fit([ax.to_similarity(d) for d in D]), finds()),
    "similarities for linkage": (
        lambda: affect(ax.Linkage(3)).fit(S),
        refuses(
            InputError,
            "D looks like similarities: D[0, 0] = 1.0, but the diagonal of dissimilarities is 0; convert "
            "it first, for example with ax.to_dissimilarity(D)",
        ),
    ),
    "a graph for linkage": (
        lambda: affect(ax.Linkage(3)).fit(S - np.eye(N)),
        warns(InputWarning, "Linkage takes dissimilarities, but W looks like similarities"),
    ),
    "dot products, converted": (
        lambda: affect(ax.Linkage(3)).fit([ax.to_dissimilarity(w) for w in W]),
        finds(),
    ),
    "linkage of features by dot products": (
        lambda: of_features(ax.Linkage(3)).fit(X),
        refuses(
            InputError,
            "proximity='dot' gives a similarity, but Linkage takes a dissimilarity; use "
            "proximity='euclidean', or convert with ax.to_dissimilarity and pass that",
        ),
    ),
    "k-means of features by distances": (
        lambda: of_features(proximity="euclidean").fit(X),
        refuses(
            InputError,
            "proximity='euclidean' gives a dissimilarity, but KMeans takes a similarity; use proximity='dot' "
            "or 'rbf' or 'cosine', or convert with ax.to_similarity and pass that",
        ),
    ),
}

# Other clusterers, and rules for the number of clusters.

CLUSTERERS = {
    "DBSCAN": (lambda: affect(cluster.DBSCAN(eps=2.0, metric="precomputed")).fit(D), finds()),
    "DBSCAN, noise": (
        lambda: affect(cluster.DBSCAN(eps=2.0, metric="precomputed")).fit(far_object(D)).labels_[-1],
        returns(-1),
    ),
    "HDBSCAN": (lambda: affect(cluster.HDBSCAN(metric="precomputed")).fit(D), finds()),
    "scikit-learn's spectral clustering": (
        lambda: affect(cluster.SpectralClustering(3, affinity="precomputed")).fit(S),
        finds(),
    ),
    "scikit-learn's k-means": (
        lambda: affect(cluster.KMeans(3)).fit(W),
        refuses(InputError, "KMeans takes features, not proximities; use ax.KMeans(3)"),
    ),
    "scikit-learn's spectral clustering of features": (
        lambda: affect(cluster.SpectralClustering(3)).fit(S),
        refuses(
            InputError,
            "SpectralClustering is given proximities, but has affinity='rbf'; set affinity='precomputed', or "
            "use ax.Spectral(3)",
        ),
    ),
    "Ward": (
        lambda: affect(cluster.AgglomerativeClustering(3)).fit(D),
        refuses(
            InputError,
            "AgglomerativeClustering has linkage='ward', which needs features; set metric='precomputed' and "
            "linkage to 'average', 'complete' or 'single', or use ax.Linkage(3, method='ward') on "
            "distances",
        ),
    ),
    "a function of an array": (
        lambda: affect(lambda psi: cluster.DBSCAN(eps=2.0, metric="precomputed").fit_predict(psi)).fit(D),
        finds(),
    ),
    "a function that returns a list": (lambda: affect(lambda psi: TRUTH.tolist()).fit(W), finds()),
    "a function of too few labels": (
        lambda: affect(lambda psi: TRUTH[:5]).fit(W),
        refuses(
            InputError,
            "labels returned by the clusterer has length 5, but there are 30 objects; give one label for "
            "each",
        ),
    ),
    "a function that returns text": (
        lambda: affect(lambda psi: np.array(["a", "b", "c"])[TRUTH]).fit(W),
        refuses(
            InputTypeError,
            "labels returned by the clusterer must be integers, got dtype <U1; use astype(int)",
        ),
    ),
    "k by silhouette": (lambda: affect(ax.KMeans("silhouette", n_init=10)).fit(W), finds()),
    "k by Calinski-Harabasz": (lambda: affect(ax.KMeans("calinski_harabasz", n_init=10)).fit(W), finds()),
    "k by modularity": (lambda: affect(ax.Spectral("modularity")).fit(S), finds()),
    "k of a graph": (lambda: affect(ax.Spectral("auto")).fit(S), finds()),
    "k by eigengap": (lambda: affect(ax.Spectral("eigengap")).fit(S), finds()),
    "k by the gap of heights": (lambda: affect(ax.Linkage("gap")).fit(D), finds()),
    "k by a threshold": (lambda: affect(ax.Linkage(distance_threshold=6.0)).fit(D), finds()),
    "k by step": (lambda: affect(ax.KMeans([3] * T, n_init=10)).fit(W), finds()),
}


def far_object(distances):
    """Put the last object far from all others."""
    moved = distances.copy()
    moved[:, -1, :-1] = moved[:, :-1, -1] = 100
    return moved


# Use of the result.


def saved_and_loaded(path):
    affect().fit(W[:3], ids=NAMES).save(path)
    return ax.load(path).partial_fit(W[3], ids=NAMES)


USES = {
    "fit again": (lambda: affect().fit(W).fit(W[:2]).n_steps_, returns(2)),
    "partial_fit after fit": (lambda: affect().fit(W[:3]).partial_fit(W[3]).n_steps_, returns(4)),
    "a run is repeated": (
        lambda: affect().fit(W).labels_.tolist() == affect().fit(W).labels_.tolist(),
        returns(True),
    ),
    "no seed": (lambda: affect(random_state=None).fit(W), finds()),
    "a generator as a seed": (lambda: affect(random_state=np.random.default_rng(0)).fit(W), finds()),
    "a RandomState as a seed": (lambda: affect(random_state=np.random.RandomState(0)).fit(W), finds()),
    "score": (lambda: affect().fit(W[:3]).score(W[3:]) > 0.5, returns(True)),
    "score with labels": (lambda: affect().fit(W[:3]).score(W[3:], TRUTH), returns(1.0)),
    "nothing to score": (
        lambda: affect().fit(W).score([]),
        refuses(
            InputError,
            "sequence has no step that shares an object with the previous one; pass steps with common ids",
        ),
    ),
    "alpha by step": (
        lambda: all(0 <= record.alpha <= 1 for record in affect().fit(W).history_),
        returns(True),
    ),
    "alpha given": (lambda: affect(alpha=0.5).fit(W).alpha_, returns(0.5)),
    "the input is left as it is": (lambda: unchanged(W), returns(True)),
    "a table of steps": (lambda: len(affect().fit(W).history_.to_frame()), returns(T)),
    "a table of labels": (
        lambda: affect().fit(W, ids=NAMES).history_.labels_to_frame().shape,
        returns((T * N, 3)),
    ),
    "parameters": (lambda: affect().set_params(n_iter=5).get_params()["n_iter"], returns(5)),
    "an unknown parameter": (
        lambda: affect().set_params(k=3),
        refuses(InputError, "Affect has no parameter 'k'; valid ones: clusterer, proximity, ..."),
    ),
    "a file that is not there": (
        lambda: ax.load("nothing.affect"),
        refuses(
            InputError,
            "path='nothing.affect' cannot be opened: No such file or directory; check its name and "
            "permissions",
        ),
    ),
}


def unchanged(sequence):
    given = sequence.copy()
    affect().fit(sequence)
    return bool((given == sequence).all())


CASES = ARRAYS | STORAGE | TABLES | OBJECTS | WRONG | KINDS | CLUSTERERS | USES


def test_no_name_stands_twice():
    assert len(CASES) == sum(map(len, (ARRAYS, STORAGE, TABLES, OBJECTS, WRONG, KINDS, CLUSTERERS, USES)))


@pytest.mark.parametrize("call, expected", CASES.values(), ids=CASES)
def test_call(call, expected):
    check(call, expected)


def test_save_and_go_on(tmp_path):
    assert agreement(saved_and_loaded(tmp_path / "model.affect")) == 1


def test_pictures_and_report(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    pytest.importorskip("matplotlib").use("agg")
    model = affect().fit(W, ids=NAMES)
    for draw in (ax.plots.plot_alpha, ax.plots.plot_flow):
        assert draw(model.history_) is not None
    ax.write_report(model, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8").lower().startswith("<!doctype html>")
