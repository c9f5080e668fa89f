"""Connected components against SciPy on the whole matrix."""

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse import csgraph

import affect_xp as ax
from affect_xp.clustering import connectivity
from affect_xp.clustering.connectivity import connected_components
from affect_xp.partition import align
from affect_xp.proximity import Pair
from affect_xp.proximity.sparse import Sparse


def symmetric(w):
    return (w + w.T) / 2


def random_graph(n, n_edges, seed):
    rng = np.random.default_rng(seed)
    w = np.zeros((n, n))
    i, j = rng.integers(n, size=(2, n_edges))
    w[i, j] = rng.normal(size=n_edges)
    return symmetric(w)


GRAPHS = {
    "one object": np.zeros((1, 1)),
    "no edges": np.zeros((5, 5)),
    "diagonal alone": np.eye(70),
    "dense": np.ones((50, 50)),
    "pairs": np.kron(np.eye(40), np.ones((2, 2))),
    "path": np.eye(60, k=1) + np.eye(60, k=-1),
    "giant and singletons": np.pad(np.ones((20, 20)), (0, 60)),
    "two blocks, apart": np.kron(np.ones((30, 30)), np.eye(2)),
    "signed, few edges": random_graph(90, 60, 0),
    "signed, some edges": random_graph(90, 120, 1),
    "opposite similarities": np.array([[0, 0, 1.0], [0, 0, -1.0], [1.0, -1.0, 0]]),
}


def twin(w):
    """Return labels in the order of first objects, by SciPy."""
    found = csgraph.connected_components(w != 0, directed=False)[1]
    order = list(dict.fromkeys(found.tolist()))
    return np.array([order.index(c) for c in found])


@pytest.mark.parametrize("name", GRAPHS)
def test_components_are_those_of_scipy(xp, name):
    w = GRAPHS[name]
    found = connected_components(xp.array(w))
    assert xp.owns(found.labels)
    np.testing.assert_array_equal(xp.numpy(found.labels), twin(w))
    np.testing.assert_array_equal(found.sizes, np.bincount(twin(w)))
    assert found.count == len(found.sizes)


def test_without_stored_matrix_many_generations_are_searched(eager_xp, monkeypatch):
    monkeypatch.setattr("affect_xp.clustering.connectivity._pattern", lambda W: None)
    path = GRAPHS["path"].copy()
    assert connected_components(eager_xp.array(path)).count == 1
    path[30, 29] = path[29, 30] = 0
    np.testing.assert_array_equal(connected_components(eager_xp.array(path)).sizes, [30, 30])


def test_long_paths_are_left_to_scipy(eager_xp):
    w = eager_xp.array(np.eye(300, k=1) + np.eye(300, k=-1))
    assert connected_components(w).count == 1


def test_a_long_path_on_cupy_waits_once():
    cupy_cpu = pytest.importorskip("cupy_cpu")
    import cupyx.scipy.sparse

    path = cupyx.scipy.sparse.diags([1.0, 1.0], [-1, 1], shape=(3000, 3000)).tocsr()
    W = Sparse(path)
    with cupy_cpu.count() as count:
        assert connected_components(W).count == 1
    assert count.sync <= 1, count.where


def test_blocks_of_rows_on_the_host(small_blocks):
    w = GRAPHS["pairs"]
    np.testing.assert_array_equal(connected_components(w).labels, twin(w))


def test_sparse_entries_stored_as_zero_are_no_edges():
    w = scipy.sparse.coo_array(([1.0, 1.0, 0.0, 0.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    np.testing.assert_array_equal(connected_components(Sparse(w)).labels, [0, 0, 1])


def test_blend_has_the_edges_of_both(eager_xp):
    now, past = random_graph(60, 25, 2), random_graph(60, 25, 3)
    now[0, :] = now[:, 0] = 0
    ids, before = tuple(range(60)), tuple(range(10, 70))
    alignment = align(ids, before, eager_xp.array(now))
    blend = Pair(ax.Dense(eager_xp.array(now)), ax.Dense(eager_xp.array(past)), alignment).blend(0.5)
    formed = eager_xp.numpy(blend.formed().array)
    np.testing.assert_array_equal(eager_xp.numpy(connected_components(blend).labels), twin(formed))


def test_dense_graph_costs_a_few_rows(monkeypatch):
    asked = []
    matmul = ax.Dense.matmul

    def counted(self, v, rows=None):
        asked.append(self.n if rows is None else rows.shape[0])
        return matmul(self, v, rows)

    monkeypatch.setattr(ax.Dense, "matmul", counted)
    assert connected_components(np.ones((500, 500))).count == 1
    assert sum(asked) <= 32


@pytest.mark.parametrize("n_edges", [0, 50, 200, 350, 700, 3000])
@pytest.mark.parametrize("sampled", [1, 2])
def test_sampling_edges_first_finds_the_same_components(n_edges, sampled, monkeypatch):
    monkeypatch.setattr(connectivity, "SAMPLED_EDGES", sampled)
    i, j = np.random.default_rng(n_edges).integers(0, 400, (2, n_edges))
    half = scipy.sparse.coo_array((np.ones(n_edges), (i, j)), shape=(400, 400)).tocsr()
    graph = (half + half.T).tocsr()
    expected, found = connectivity._grouped(graph), connectivity._sparse_components(graph)
    assert len(set(zip(expected, found, strict=True))) == expected.max() + 1 == found.max() + 1
