"""k-means from proximities: its results, competition with new starts, and the clusterer."""

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.clustering.base import Call, Change
from affect_xp.clustering.kmeans import Sample, kmeans_from
from affect_xp.partition import Partition


def clouds(rng, n=40, k=4, p=3):
    return rng.normal(size=(n, p)) + 2.0 * rng.normal(size=(k, p))[np.arange(n) % k]


def test_more_starts_are_no_worse():
    x = clouds(np.random.default_rng(1), n=60, k=6)
    few, many = (ax.kmeans(x @ x.T, 6, n_init=r, rng=0).inertia for r in (1, 20))
    assert many <= few


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_libraries_agree(eager_xp, init):
    x = clouds(np.random.default_rng(5))
    w = x @ x.T
    mine = ax.kmeans(eager_xp.array(w), 4, init=init, n_init=3, rng=11)
    theirs = ax.kmeans(w, 4, init=init, n_init=3, rng=11)
    np.testing.assert_array_equal(eager_xp.numpy(mine.labels), theirs.labels)
    np.testing.assert_allclose(mine.inertia, theirs.inertia, rtol=1e-10)


def test_one_object_and_one_cluster(eager_xp):
    assert eager_xp.numpy(ax.kmeans(eager_xp.array([[2.0]]), 1).labels).tolist() == [0]
    x = clouds(np.random.default_rng(0), n=9)
    assert set(eager_xp.numpy(ax.kmeans(eager_xp.array(x @ x.T), 1).labels)) == {0}
    assert sorted(eager_xp.numpy(ax.kmeans(eager_xp.array(x @ x.T), 9, rng=0).labels)) == list(range(9))


def test_fewer_clusters_than_the_start_keeps_the_largest(eager_xp):
    x = np.repeat([[0.0, 0.0], [50.0, 0.0], [50.0, 3.0]], [4, 3, 1], axis=0)
    x += np.random.default_rng(0).normal(size=x.shape) * 0.1
    start = np.repeat([0, 1, 2], [4, 3, 1])
    result = ax.kmeans(eager_xp.array(x @ x.T), 2, init=eager_xp.array(start))
    np.testing.assert_array_equal(eager_xp.numpy(result.labels), [0, 0, 0, 0, 1, 1, 1, 1])


def test_same_as_scikit_learn_on_features():
    cluster = pytest.importorskip("sklearn.cluster")
    x = clouds(np.random.default_rng(2), n=200)
    start = np.random.default_rng(3).integers(0, 4, size=200)
    centres = np.stack([x[start == c].mean(axis=0) for c in range(4)])
    theirs = cluster.KMeans(4, init=centres, n_init=1, tol=0, algorithm="lloyd").fit(x)
    mine = ax.kmeans(x @ x.T, 4, init=start)
    np.testing.assert_array_equal(mine.labels, theirs.labels_)
    np.testing.assert_allclose(mine.inertia, theirs.inertia_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_clusters": 4}, "n_clusters=4 exceeds the number of objects, 3"),
        ({"n_clusters": 0}, "n_clusters must be at least 1, got 0"),
        ({"n_clusters": 1.5}, "n_clusters must be an integer, got 1.5"),
        (
            {"n_clusters": 2, "init": "nearest"},
            "init must be one of 'k-means\\+\\+', 'random', got 'nearest'",
        ),
        ({"n_clusters": 2, "init": [0, 1]}, "init has length 2, but there are 3 objects"),
        ({"n_clusters": 2, "n_init": 0}, "n_init must be at least 1, got 0"),
        ({"n_clusters": 2, "tol": -1.0}, "tol must be between 0 and 1, got -1.0"),
        ({"n_clusters": 2, "max_iter": 0}, "max_iter must be at least 1, got 0"),
        (
            {"n_clusters": 2, "rng": "seed"},
            "rng must be None, a non-negative int or a numpy.random.Generator",
        ),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ax.kmeans(np.eye(3), **arguments)


@pytest.mark.parametrize("rough", [True, False])
@pytest.mark.parametrize("n_clusters", [4, "silhouette"])
def test_a_call_that_depends_on_a_change(eager_xp, rough, n_clusters):
    rng = np.random.default_rng(0)
    x = clouds(rng)
    W, start = ax.Dense(eager_xp.array(x @ x.T)), rng.integers(0, 4, size=40)
    call = Call(1, Partition(eager_xp.array(start), 4, 0), rng=0, rough=rough)
    numbers = [eager_xp.array(np.asarray(value)) for value in (0.5, 0.51)]
    clusterer = ax.KMeans(n_clusters)
    assert clusterer.cluster_if(Change(*numbers, 0.02), W, call) is None
    found, expected = clusterer.cluster_if(Change(*numbers, 0.0), W, call), clusterer.cluster(W, call)
    np.testing.assert_array_equal(
        eager_xp.numpy(found.partition.labels), eager_xp.numpy(expected.partition.labels)
    )
    assert (found.n_iter, found.moved, found.rough) == (expected.n_iter, expected.moved, expected.rough)


def blobs(k, seed, n=None, n_steps=1, separation=8.0):
    """Yield features of k separated blobs at each step, and the truth."""
    rng = np.random.default_rng(seed)
    centres, side = [], 1.2 * separation * np.sqrt(k)
    while len(centres) < k:
        centre = rng.uniform(-side, side, 2)
        if all(np.linalg.norm(centre - other) >= separation for other in centres):
            centres.append(centre)
    labels = np.arange(n or 15 * k) % k
    for _ in range(n_steps):
        yield np.array(centres)[labels] + rng.normal(size=(len(labels), 2)), labels


def is_right(found, truth):
    return ax.adjusted_rand_index(found, truth) > 0.95


@pytest.mark.parametrize("n", [30, 5000], ids=["all objects", "a sample"])
def test_a_sample_holds_the_proximities_of_its_objects(eager_xp, n):
    x = np.random.default_rng(0).normal(size=(n, 3))
    W = ax.Factored.from_features(eager_xp.array(x))
    labels = eager_xp.array(np.arange(n))
    sample = Sample.draw(W, 200, np.random.default_rng(1), labels)
    assert len(sample.index) == (n if n == 30 else 200)
    np.testing.assert_allclose(sample.W.submatrix(), x[sample.index] @ x[sample.index].T, atol=1e-12)
    np.testing.assert_array_equal(sample.labels, sample.index)
    spread = eager_xp.numpy(sample.spread(sample.index, n, W.like))
    np.testing.assert_array_equal(spread[spread >= 0], np.unique(sample.index))


def test_a_small_cluster_far_away_is_found():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(6000, 2)), rng.normal([40.0, 0.0], size=(4, 2))])
    labels = ax.kmeans(ax.Factored.from_features(x), 2, rng=0).labels
    assert ax.adjusted_rand_index(labels, np.arange(6004) >= 6000) == 1.0


@pytest.mark.parametrize("k", [3, 8, 20])
def test_separated_blobs_are_found_at_once(k):
    starts = [next(blobs(k, seed)) for seed in range(10)]
    assert all(is_right(ax.kmeans(x @ x.T, k, rng=0).labels, truth) for x, truth in starts)


def test_separated_blobs_are_found_on_a_sample(eager_xp):
    x, truth = next(blobs(12, 0, n=4000))
    result = ax.kmeans(ax.Factored.from_features(eager_xp.array(x)), 12, rng=0)
    assert is_right(eager_xp.numpy(result.labels), truth)
    assert result.converged
    alone = ax.kmeans(x @ x.T, 12, rng=0)
    np.testing.assert_allclose(result.inertia, alone.inertia, rtol=1e-4)


def spoilt(truth):
    """Return labels in which two clusters are merged, and another is halved."""
    labels = np.where(truth == 1, 0, truth)
    labels[np.flatnonzero(truth == 2)[::2]] = 1
    return labels


@pytest.mark.parametrize("k", [3, 8, 20])
@pytest.mark.parametrize("make", [lambda x: x @ x.T, ax.Factored.from_features], ids=["dense", "factored"])
def test_a_poor_start_is_left_within_two_steps(k, make):
    steps = list(blobs(k, 1, n_steps=3))
    poor = ax.KMeans(k, init=spoilt(steps[0][1]), n_init=1)
    model = ax.Affect(poor, random_state=0).partial_fit(make(steps[0][0]))
    model.set_params(clusterer=ax.KMeans(k))
    for x, _ in steps[1:]:
        model.partial_fit(make(x))
    assert is_right(model.labels_, steps[0][1])


def test_the_paper_keeps_a_poor_start():
    steps = list(blobs(3, 1, n_steps=3))
    paper = ax.KMeans(3, init=spoilt(steps[0][1]), n_init=1, tol=0.0)
    model = ax.Affect(paper, random_state=0).fit(x @ x.T for x, _ in steps)
    assert not is_right(model.labels_, steps[0][1])  # otherwise the test above would prove nothing


def test_a_fresh_start_wins_only_where_it_is_clearly_better(eager_xp):
    x, truth = next(blobs(5, 0))
    W = ax.Dense(eager_xp.array(x @ x.T))
    for start, moved in ((truth, False), (spoilt(truth), True)):
        result = kmeans_from(W.group(Partition(eager_xp.array(start), 5, 0)), 300, 0.0, rng=0)
        assert result.moved is moved
        assert is_right(eager_xp.numpy(result.labels), truth)


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5)) * [3, 2, 1, 1, 1]
    order = rng.permutation(200)
    labels = ax.kmeans(x @ x.T, 6, rng=3).labels
    shuffled = ax.kmeans(x[order] @ x[order].T, 6, rng=3).labels
    assert ax.adjusted_rand_index(shuffled, labels[order]) == 1.0


def test_growing_k_starts_again_where_that_is_better():
    steps = [x for x, _ in blobs(8, 2, n_steps=2)]
    truth = next(blobs(8, 2))[1]
    model = ax.Affect(ax.KMeans([3, 8]), random_state=0).fit(x @ x.T for x in steps)
    assert is_right(model.labels_, truth)


@pytest.mark.parametrize(
    ("n_init", "message"),
    [("many", "n_init, if not a number, must be one of 'auto', got 'many'"), (0, "n_init must be")],
)
def test_bad_numbers_of_starts(n_init, message):
    for call in (
        lambda: ax.kmeans(np.eye(4), 2, n_init=n_init),
        lambda: ax.Affect(ax.KMeans(2, n_init=n_init)).fit([np.eye(4)]),
    ):
        with pytest.raises(ax.exceptions.AffectError, match=message):
            call()


def test_a_new_start_does_not_win_by_rounding(eager_xp):
    start = np.array([2, 0, 1])
    for seed, x in enumerate(np.random.default_rng(0).normal(size=(30, 3, 3))):
        for W in (ax.Factored.from_features(eager_xp.array(x)), ax.Dense(eager_xp.array(x @ x.T))):
            result = kmeans_from(W.group(Partition(eager_xp.array(start), 3, 0)), 300, 0.0, rng=seed)
            np.testing.assert_array_equal(eager_xp.numpy(result.labels), start)  # all sums of squares are 0
