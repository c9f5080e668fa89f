"""networkx graphs as steps of a model."""

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax

networkx = pytest.importorskip("networkx")

GROUPS = {f"{group}{i}": group for group in "abc" for i in range(10)}


def planted(seed, absent=()):
    """Return a graph of three groups with many edges within and few between them."""
    rng = np.random.default_rng(seed)
    graph = networkx.Graph()
    names = [name for name in GROUPS if name not in absent]
    graph.add_nodes_from(names)
    for i, u in enumerate(names):
        for v in names[:i]:
            if rng.random() < (0.8 if GROUPS[u] == GROUPS[v] else 0.03):
                graph.add_edge(u, v)
    return graph


def agreement(model):
    groups = [ord(GROUPS[name]) - ord("a") for name in model.ids_]
    return ax.adjusted_rand_index(model.labels_, groups)


def test_nodes_that_come_and_go():
    graphs = [planted(0), planted(1, absent=("a0", "b1")), planted(2, absent=("c2",))]
    model = ax.Affect(ax.Spectral(3), random_state=0).fit(graphs)
    assert [record.ids for record in model.history_] == [tuple(graph) for graph in graphs]
    assert agreement(model) == 1
    stepwise = ax.Affect(ax.Spectral(3), random_state=0)
    for graph in graphs:
        stepwise.partial_fit(graph)
    np.testing.assert_array_equal(stepwise.labels_, model.labels_)


def test_the_same_as_its_matrix():
    graphs = [planted(seed) for seed in range(3)]
    for seed, graph in enumerate(graphs):
        rng = np.random.default_rng(seed)
        networkx.set_edge_attributes(graph, {edge: rng.uniform(1, 2) for edge in graph.edges}, "weight")
        graph.add_edge("a0", "a0", weight=3.0)
    matrices = [networkx.to_scipy_sparse_array(graph) for graph in graphs]
    model = ax.Affect(ax.Spectral(3), random_state=0).fit(graphs)
    expected = ax.Affect(ax.Spectral(3), random_state=0).fit(matrices, ids=list(GROUPS))
    assert isinstance(model.smoothed_, ax.Sparse) and scipy.sparse.issparse(model.smoothed_.matrix)
    assert [record.alphas for record in model.history_] == [record.alphas for record in expected.history_]
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.smoothed_.matrix.toarray(), expected.smoothed_.matrix.toarray())


def test_weights_loops_and_parallel_edges():
    graph = networkx.MultiGraph([("a", "b", {"weight": 2.0}), ("a", "b"), ("b", "c", {"weight": 5})])
    graph.add_edge("c", "c", weight=4.0)
    graph.add_node("alone")
    model = ax.Affect(ax.Spectral(2), random_state=0).partial_fit(graph)
    assert model.ids_ == ("a", "b", "c", "alone")
    expected = [[0, 3, 0, 0], [3, 0, 5, 0], [0, 5, 4, 0], [0, 0, 0, 0]]
    assert model.smoothed_.to_dense().array.tolist() == expected


def test_ids_given_by_name_come_first():
    model = ax.Affect(ax.Spectral(1)).partial_fit(networkx.path_graph(3), ids=["x", "y", "z"])
    assert model.ids_ == ("x", "y", "z")


def test_scores_and_smoothing_take_graphs():
    graphs = [planted(seed, absent=(f"a{seed}",)) for seed in range(4)]
    model = ax.Affect(ax.Spectral(3), random_state=0).fit(graphs[:2])
    assert model.score(graphs[2:]) > 0.3
    smoothed = ax.smooth(graphs, ax.Spectral(3), random_state=0)
    assert [record.ids for record in smoothed.history_] == [tuple(graph) for graph in graphs]


REFUSED = {
    "no nodes": (networkx.Graph(), "W is a graph without nodes; omit steps"),
    "directed": (networkx.DiGraph([(0, 1)]), r"W is a directed graph.*to_undirected\(\).*W \+ W\.T"),
    "directed, parallel": (networkx.MultiDiGraph([(0, 1)]), "W is a directed graph"),
    "a weight that is missing": (
        networkx.Graph([(0, 1, {"weight": None})]),
        "edge 0 - 1 has weight=None; set",
    ),
    "a weight that is text": (networkx.Graph([("u", "v", {"weight": "x"})]), "edge 'u' - 'v' has weight='x'"),
    "a weight that is not finite": (
        networkx.Graph([(0, 1, {"weight": np.nan})]),
        "edge 0 - 1 has weight=nan",
    ),
}


@pytest.mark.parametrize("graph, message", REFUSED.values(), ids=REFUSED)
def test_graphs_that_cannot_be_used(graph, message):
    model = ax.Affect(ax.Spectral(1)).partial_fit(networkx.path_graph(3))
    with pytest.raises(ax.exceptions.InputError, match=message):
        model.partial_fit(graph)
    assert model.n_steps_ == 1


def test_one_graph_is_not_a_sequence():
    with pytest.raises(
        ax.exceptions.InputTypeError, match=r"got a single matrix; use partial_fit\(W\) or fit\(\[W\]\)"
    ):
        ax.Affect(ax.Spectral(1)).fit(networkx.path_graph(3))


def test_a_model_of_features_takes_no_graph():
    with pytest.raises(ax.exceptions.InputError, match="W is a graph, but the model takes features"):
        ax.Affect(ax.KMeans(1), proximity="dot").partial_fit(networkx.path_graph(3))
