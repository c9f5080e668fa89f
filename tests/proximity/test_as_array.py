"""`np.asarray(proximity)`: the entries on the host, never copied implicitly from a device."""

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.proximity import Chunked, Factored, Sparse


def test_a_plan_is_not_computed():
    array = pytest.importorskip("dask.array")
    with pytest.raises(InputTypeError, match=r"not computed yet.*use \.array, and its compute\(\)"):
        np.asarray(Chunked(array.eye(4, chunks=2)))


def test_features():
    x = np.random.default_rng(0).normal(size=(6, 2))
    np.testing.assert_allclose(np.asarray(Factored.from_features(x)), x @ x.T)
    assert np.asarray(Factored.from_features(x.astype(np.float32))).dtype == np.float32


def test_arrays_are_shown_and_others_are_written_out():
    w = np.eye(3)
    shown = np.asarray(ax.Dense(w))
    assert np.shares_memory(shown, w) and not shown.flags.writeable and w.flags.writeable
    copied = np.array(ax.Dense(w))
    copied[0, 0] = 7
    assert w[0, 0] == 1
    assert np.shares_memory(np.asarray(ax.Dense(w), copy=False), w)
    with pytest.raises(ValueError):
        np.asarray(ax.Dense(w), dtype=np.float32, copy=False)
    sparse = Sparse(scipy.sparse.csr_array(w))
    assert np.asarray(sparse).flags.writeable
    with pytest.raises(InputError, match=r"Sparse is not stored as an array; .* use to_dense\(\)"):
        np.asarray(sparse, copy=False)
    assert np.asarray(Sparse(scipy.sparse.csr_array((3, 3)))).tolist() == np.zeros((3, 3)).tolist()


def test_a_size_that_is_not_meant():
    x = np.ones((100_000, 2))
    for proximity in (Factored.from_features(x), Sparse(scipy.sparse.eye_array(100_000).tocsr())):
        with pytest.raises(
            InputError, match=r"of 100000 objects takes 80 GB as an array; call its to_dense\(\)"
        ):
            np.asarray(proximity)


def test_a_representation_of_ones_own(monkeypatch):
    monkeypatch.delattr(Sparse, "to_dense")
    with pytest.raises(InputTypeError, match="Sparse cannot be written out"):
        np.asarray(Sparse(scipy.sparse.eye_array(3).tocsr()))


@pytest.mark.parametrize("proximity", ["dot", "euclidean", "rbf"])
def test_functions_of_numpy_arrays_as_clusterers(proximity):
    x = np.repeat([[0.0, 3.0], [6.0, 0.0]], 10, axis=0) + np.random.default_rng(0).normal(
        size=(3, 20, 2), scale=0.3
    )
    cluster = pytest.importorskip("sklearn.cluster")
    methods = {
        "dot": lambda psi: np.linalg.eigh(psi)[1][:, -1] > np.mean(np.linalg.eigh(psi)[1][:, -1]),
        "euclidean": lambda psi: cluster.DBSCAN(eps=1.5, metric="precomputed").fit_predict(psi),
        "rbf": lambda psi: cluster.SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(
            psi
        ),
    }
    model = ax.Affect(lambda psi: np.asarray(methods[proximity](psi)).astype(int), proximity=proximity).fit(x)
    assert ax.rand_index(model.labels_, np.repeat([0, 1], 10)) == 1
