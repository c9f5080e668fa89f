"""Clusterers inside Affect: the number of clusters by step and by rule."""

import numpy as np
import pytest

import affect_xp as ax

CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])


def features(k_by_step, n=60, seed=0):
    """Yield samples around the first k of four centres, for each k."""
    rng = np.random.default_rng(seed)
    for k in k_by_step:
        yield CENTRES[np.arange(n) % k] + rng.normal(size=(n, 2))


def distances(x):
    return np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))


RULED = [
    (ax.KMeans("silhouette", n_init=10), lambda x: x @ x.T),
    (ax.KMeans("calinski_harabasz", n_init=10), lambda x: x @ x.T),
    (ax.KMeans("modularity", n_init=10), lambda x: np.exp(-0.1 * distances(x) ** 2)),
    (ax.Linkage("gap"), distances),
    (ax.Linkage("silhouette", method="complete"), distances),
    (ax.Linkage("calinski_harabasz", method="single"), distances),
    (ax.Linkage(distance_threshold=6.0), distances),
]


@pytest.mark.parametrize(("clusterer", "proximities"), RULED, ids=lambda value: repr(value)[:40])
def test_rules_follow_the_number_of_clusters(eager_xp, clusterer, proximities):
    asked = [3, 3, 3]
    model = ax.Affect(clusterer, random_state=0)
    model.fit([eager_xp.array(proximities(x)) for x in features(asked)])
    assert [record.k for record in model.history_] == asked
    for record in model.history_:
        assert ax.rand_index(record.labels, np.arange(60) % 3) == 1.0


@pytest.mark.parametrize(("clusterer", "proximities"), RULED[:-1], ids=lambda value: repr(value)[:40])
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


def test_max_clusters():
    model = ax.Static(ax.Linkage("gap", max_clusters=3)).fit([distances(x) for x in features([4])])
    assert set(model.history_[-1].scores) == {2, 3}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("clusterer", "proximities"), RULED, ids=lambda value: repr(value)[:40])
def test_few_objects(clusterer, proximities, n):
    x = next(features([4]))[:n]
    model = ax.Affect(clusterer, random_state=0).fit([proximities(x)] * 2)
    assert 1 <= model.history_[-1].k <= n


@pytest.mark.parametrize(
    ("clusterer", "message"),
    [
        (ax.Linkage(), "give either n_clusters or distance_threshold, got n_clusters=None"),
        (ax.Linkage(3, distance_threshold=1.0), "give either n_clusters or distance_threshold, got n_clusters=3"),
        (ax.Linkage(3, method="ward"), "method must be one of 'single', 'complete', 'average', got 'ward'"),
        (ax.Linkage(distance_threshold=-1.0), "distance_threshold must be 0 or more"),
        (ax.Linkage("modularity"), "n_clusters, where it is not a number, must be one of 'gap'"),
        (ax.KMeans("gap"), "n_clusters, where it is not a number, must be one of 'silhouette'"),
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
