"""Profiles and densities of clusters, against their definitions object by object."""

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.exceptions import InputError

LABELS = np.array([7, 2, 2, -1, 7, 2, 2, 9])


def expected_densities(W, labels, c):
    inside = [W[i, j] for i in range(len(W)) for j in range(len(W)) if i != j and labels[i] == labels[j] == c]
    outside = [
        W[i, j] for i in range(len(W)) for j in range(len(W)) if labels[i] == c and labels[j] not in (c, -1)
    ]
    return (np.mean(inside) if inside else 0.0), (np.mean(outside) if outside else 0.0)


def test_profiles_are_means_and_standard_deviations(xp):
    X = np.random.default_rng(0).normal(1e4, [1.0, 5.0, 0.1], (8, 3))
    X[LABELS == 2, 1] += 30
    found = ax.cluster_profiles(xp.array(X), LABELS, ["a", "b", "c"])
    assert found.clusters.tolist() == [2, 7, 9] and found.sizes.tolist() == [4, 2, 1]
    for row, c in enumerate(found.clusters):
        np.testing.assert_allclose(found.means[row], X[c == LABELS].mean(axis=0))
        np.testing.assert_allclose(found.stds[row], X[c == LABELS].std(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.mean_of_all, X.mean(axis=0))
    np.testing.assert_allclose(found.std_of_all, X.std(axis=0))
    difference = (X[LABELS == 2].mean(axis=0) - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(found.differences[0], difference, rtol=1e-7)
    assert found.top(1)[0].tolist() == [np.argmax(np.abs(difference))]


def test_a_feature_that_a_cluster_lacks_is_0():
    X = np.random.default_rng(0).random((8, 1)) * (LABELS != 2)[:, None]
    found = ax.cluster_profiles(X, LABELS)
    assert found.means[0, 0] == 0 and found.stds[0, 0] == 0


def test_profiles_take_frames_and_labels_of_a_device(xp):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [0.0, 1.0, 5.0], "y": [2.0, 2.0, 2.0]})
    found = ax.cluster_profiles(frame, xp.array([1, 1, 4]))
    assert found.feature_names == ("x", "y")
    table = found.to_frame()
    assert table["feature"].tolist() == ["x", "y", "x", "y"]
    assert table["difference"][1] == 0  # a feature without spread
    np.testing.assert_array_equal(table["mean"], [0.5, 2.0, 5.0, 2.0])


@pytest.mark.parametrize("kind", ["similarity", "dissimilarity"])
def test_densities_are_mean_proximities(xp, kind):
    W = np.random.default_rng(1).random((8, 8))
    W += W.T
    found = ax.cluster_densities(xp.array(W), LABELS, "abcdefgh", kind=kind, n_central=2)
    assert found.clusters.tolist() == [2, 7, 9] and found.sizes.tolist() == [4, 2, 1]
    for row, c in enumerate(found.clusters):
        np.testing.assert_allclose((found.inside[row], found.outside[row]), expected_densities(W, LABELS, c))
    sums = {
        name: sum(W[i, j] for j in range(8) if j != i and LABELS[j] == 2)
        for i, name in enumerate("abcdefgh")
        if LABELS[i] == 2
    }
    ranked = sorted(sums, key=sums.__getitem__, reverse=kind == "similarity")
    assert found.central[0] == ranked[:2] and found.central[2] == ["h"]


def test_densities_of_graphs_and_features():
    W = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((3, 3))) - np.eye(6))
    found = ax.cluster_densities(W, [0, 0, 0, 1, 1, 1])
    assert found.inside.tolist() == [1, 1] and found.outside.tolist() == [0, 0]
    X = np.random.default_rng(0).normal(size=(8, 3))
    factored = ax.cluster_densities(ax.Factored.from_features(X), LABELS)
    np.testing.assert_allclose(factored.inside, ax.cluster_densities(X @ X.T, LABELS).inside)
    assert factored.central[0] == ax.cluster_densities(X @ X.T, LABELS).central[0]


def test_no_clusters():
    assert ax.cluster_profiles(np.ones((2, 3)), [-1, -1]).means.shape == (0, 3)
    assert ax.cluster_densities(np.ones((2, 2)), [-1, -1]).central == []


def test_rejects():
    with pytest.raises(InputError, match="feature_names has 1 names, but X has 3 columns"):
        ax.cluster_profiles(np.ones((2, 3)), [0, 0], ["a"])
    with pytest.raises(InputError, match=r"labels has shape \(3,\), but there are 2 objects"):
        ax.cluster_profiles(np.ones((2, 3)), [0, 0, 0])
    with pytest.raises(InputError, match="kind must be one of"):
        ax.cluster_densities(np.ones((2, 2)), [0, 0], kind="distance")
