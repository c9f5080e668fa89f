"""Input on a GPU that is not current: results stay on its device."""

import numpy as np
import pytest

import affect_xp as ax

cupy = pytest.importorskip("cupy")


@pytest.fixture(scope="module")
def second():
    try:
        n_devices = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"CuPy cannot be used here: {error!r}")
    if n_devices < 2:
        pytest.skip("needs two GPUs; the rig in tools/cupy_cpu shows two")
    return cupy.cuda.Device(1)


def steps(n=24, n_steps=3):
    rng = np.random.default_rng(0)
    centres = np.repeat(4 * np.eye(3), n // 3, axis=0)
    return [centres + 0.5 * rng.normal(size=(n, 3)) for _ in range(n_steps)]


def on(device, x):
    with device:
        return cupy.asarray(x)


CLUSTERERS = {"kmeans": ax.KMeans(3), "spectral": ax.Spectral(3), "linkage": ax.Linkage(3)}


@pytest.mark.parametrize("name", CLUSTERERS)
def test_cupy_models_work_on_the_device_of_the_input(second, name, tmp_path):
    X = steps()
    distances = [np.abs(x[:, :1] - x[:, 0]) for x in X]
    matrices = distances if name == "linkage" else [np.exp(x @ x.T / 8) for x in X]
    ids = [list(range(24)), list(range(24)), list(range(4, 24))]
    expected = ax.Affect(CLUSTERERS[name], random_state=0)
    model = ax.Affect(CLUSTERERS[name], random_state=0)
    for w, names in zip(matrices, ids, strict=True):
        w = w[np.ix_(names, names)]
        expected.partial_fit(w, names)
        model.partial_fit(on(second, w), names)
        assert cupy.cuda.Device().id == 0
        assert model.labels_.device.id == model.smoothed_.like.device.id == 1
    assert ax.adjusted_rand_index(model.labels_, expected.labels_) == 1
    np.testing.assert_allclose(model.alpha_, expected.alpha_, rtol=1e-9)
    assert np.isfinite(model.score([on(second, matrices[0])], ids=[ids[0]]))
    model.save(tmp_path / "model.npz")
    assert ax.load(tmp_path / "model.npz").n_steps_ == 3


@pytest.mark.parametrize("make", [ax.Dense, ax.Factored.from_features], ids=["dense", "factored"])
def test_cupy_models_work_on_the_device_of_a_proximity(second, make):
    model = ax.Affect(ax.KMeans(3), random_state=0)
    for x in steps():
        with second:
            given = make(cupy.asarray(x @ x.T if make is ax.Dense else x))
        model.partial_fit(given)
    assert model.labels_.device.id == 1


def test_cupy_models_work_on_the_device_of_features_and_graphs(second):
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    features = ax.Affect(ax.KMeans(3), proximity="rbf", random_state=0)
    graphs = ax.Affect(ax.Spectral(3), random_state=0)
    for x in steps():
        features.partial_fit(on(second, x))
        with second:
            graph = sparse.csr_matrix(cupy.asarray((x @ x.T > 4).astype(float)))
        graphs.partial_fit(graph)
    assert features.labels_.device.id == graphs.labels_.device.id == 1


def test_cupy_functions_work_on_the_device_of_the_input(second):
    x = steps()[0]
    w, labels = on(second, x @ x.T), on(second, np.arange(24) // 8)
    found = [
        ax.kmeans(w, 3, rng=0).labels,
        ax.spectral(abs_on(second, w), 3, rng=0).labels,
        ax.forgetting_factor(w, w, labels),
        ax.block_moments(w, labels).means,
        ax.silhouette(w, labels, kind="similarity"),
        ax.modularity(abs_on(second, w), labels),
        ax.calinski_harabasz(w, labels, kind="similarity"),
        ax.to_dissimilarity(w),
        ax.as_proximity(w).like,
    ]
    assert [result.device.id for result in found] == [1] * len(found)
    assert ax.rand_index(labels, found[0]) == 1
    ax.linkage(ax.to_dissimilarity(w), "average")
    assert ax.smooth([w, w], ax.KMeans(3), random_state=0).history_[-1].labels is not None
    assert cupy.cuda.Device().id == 0


def abs_on(device, x):
    with device:
        return abs(x)
