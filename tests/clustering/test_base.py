"""Clusterers inside Affect: the number of clusters by step and by rule."""

import importlib

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.clustering.base import Call
from affect_xp.clustering.spectral import SpectralScan

CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])


def features(k_by_step, n=60, seed=0):
    """Yield samples around the first k of four centres, for each k."""
    rng = np.random.default_rng(seed)
    for k in k_by_step:
        yield CENTRES[np.arange(n) % k] + rng.normal(size=(n, 2))


def distances(x):
    return np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))


def dot(x):
    return x @ x.T


def rbf(x):
    return np.exp(-0.1 * distances(x) ** 2)


def neighbours(x):
    return (distances(x) < 4).astype(float)


def name(value):
    return getattr(value, "__name__", f"{type(value).__name__} {getattr(value, 'n_clusters', '')}")


RULED = [
    (ax.KMeans("silhouette", n_init=10), dot),
    (ax.KMeans("calinski_harabasz", n_init=10), dot),
    (ax.KMeans("modularity", n_init=10), rbf),
    (ax.Spectral("eigengap"), rbf),
    (ax.Spectral("modularity", objective="ratio_cut"), rbf),
    (ax.Spectral("silhouette", assign_labels="rotation"), rbf),
    (ax.Spectral("modularity", components="separate"), neighbours),
    (ax.Linkage("gap"), distances),
    (ax.Linkage("silhouette", method="complete"), distances),
    (ax.Linkage("calinski_harabasz", method="single"), distances),
    (ax.Linkage(distance_threshold=6.0), distances),
]


@pytest.mark.parametrize(("clusterer", "proximities"), RULED, ids=name)
def test_rules_follow_the_number_of_clusters(eager_xp, clusterer, proximities):
    asked = [3, 3, 3]
    model = ax.Affect(clusterer, random_state=0)
    model.fit([eager_xp.array(proximities(x)) for x in features(asked)])
    assert [record.k for record in model.history_] == asked
    for record in model.history_:
        assert ax.rand_index(record.labels, np.arange(60) % 3) == 1.0


@pytest.mark.parametrize(("clusterer", "proximities"), RULED[:-1], ids=name)
def test_scores_are_kept(clusterer, proximities):
    model = ax.Affect(clusterer, random_state=0).fit([proximities(x) for x in features([3, 3])])
    scores = model.history_[-1].scores
    assert max(scores, key=scores.get) == model.history_[-1].k == 3
    assert set(scores) == set(range(2, 11))


def test_the_number_may_change():
    asked = [2, 3, 4, 3, 2]
    steps = [distances(x) for x in features(asked)]
    model = ax.Static(ax.Linkage("gap")).fit(steps)
    assert [record.k for record in model.history_] == asked


@pytest.mark.parametrize("rule", ax.Spectral.rules)
def test_candidates_share_one_eigenvalue_problem(monkeypatch, rule):
    module, calls = importlib.import_module("affect_xp.clustering.spectral"), []
    original = module.top_eigenpairs
    monkeypatch.setattr(module, "top_eigenpairs", lambda *a, **b: calls.append(1) or original(*a, **b))
    x = next(features([3]))
    ax.Static(ax.Spectral(rule)).partial_fit(np.exp(-0.1 * distances(x) ** 2))
    assert len(calls) == 1


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_scan_finds_what_is_found_alone(k):
    w = np.exp(-0.1 * distances(next(features([3]))) ** 2)
    scan = SpectralScan(ax.Dense(w), 8, ax.Spectral(k), Call(rng=0))
    np.testing.assert_array_equal(scan.result(k).labels, ax.spectral(w, k, rng=0).labels)


def test_max_clusters():
    model = ax.Static(ax.Linkage("gap", max_clusters=3)).fit([distances(x) for x in features([4])])
    assert set(model.history_[-1].scores) == {2, 3}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("clusterer", "proximities"), RULED, ids=name)
def test_few_objects(clusterer, proximities, n):
    x = next(features([4]))[:n]
    model = ax.Affect(clusterer, random_state=0).fit([proximities(x)] * 2)
    assert 1 <= model.history_[-1].k <= n


@pytest.mark.parametrize(
    ("clusterer", "message"),
    [
        (ax.Linkage(), "give either n_clusters or distance_threshold, got n_clusters=None"),
        (
            ax.Linkage(3, distance_threshold=1.0),
            "give either n_clusters or distance_threshold, got n_clusters=3",
        ),
        (ax.Linkage(3, method="median"), "method must be one of .*'ward', got 'median'"),
        (ax.Linkage(distance_threshold=-1.0), "distance_threshold must be 0 or more"),
        (
            ax.Linkage("modularity"),
            r"is a rule of ax.KMeans\('modularity'\) or ax.Spectral\('modularity'\); choose that, or one of",
        ),
        (
            ax.KMeans("gap"),
            r"n_clusters='gap' is a rule of ax.Linkage\('gap'\); choose that, or one of 'silhouette'",
        ),
        (ax.KMeans("elbow"), "n_clusters, if not a number, must be one of 'silhouette'"),
        (ax.Spectral(2, objective="cut"), "objective must be one of 'normalized_cut', 'ratio_cut'"),
        (
            ax.Spectral(2, assign_labels="argmax"),
            "assign_labels must be one of 'kmeans', 'rotation', 'cluster_qr'",
        ),
        (ax.Spectral(2, components="giant"), "components must be one of 'joint', 'separate', got 'giant'"),
        (ax.Spectral(2, solver="arpack"), "solver must be one of 'auto', 'full', 'iterative', got 'arpack'"),
        (
            ax.Spectral("gap"),
            r"n_clusters='gap' is a rule of ax.Linkage\('gap'\); choose that, or one of 'eigengap'",
        ),
        (ax.KMeans("silhouette", max_clusters=0), "max_clusters must be at least 1, got 0"),
    ],
)
def test_bad_parameters(clusterer, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ax.Affect(clusterer).partial_fit(np.zeros((4, 4)))


def test_similarities_given_to_linkage_name_the_conversion():
    model = ax.Affect(ax.Linkage(2)).partial_fit(1 - np.eye(4))
    with pytest.raises(ValueError, match=r"looks like similarities: .*ax\.to_dissimilarity"):
        model.partial_fit(np.eye(4))
    assert model.n_steps_ == 1
