"""Initialisation of k-means, and recovery from a poor start."""

import numpy as np
import pytest
import reference

import affect_xp as ax
from affect_xp.clustering import seeding
from affect_xp.clustering.kmeans import kmeans_from
from affect_xp.partition import Partition


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


@pytest.mark.parametrize("seed", range(3))
def test_greedy_centres_are_those_of_the_definition(eager_xp, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(25, 2))
    w, k, trials = x @ x.T, 5, 2 + int(np.log(5))
    labels = seeding.spread_partitions(ax.Dense(eager_xp.array(w)), k, 2, np.random.default_rng(9))
    draws = np.random.default_rng(9).random((k, 2, trials))
    for r, column in enumerate(eager_xp.numpy(labels).T):
        centres = reference.greedy_centres(w, np.argsort(np.diag(w)), draws[:, r, :])
        distance = np.diag(w)[:, None] - 2 * w[:, centres] + np.diag(w)[centres]
        np.testing.assert_array_equal(column, distance.argmin(axis=1))


def test_fewer_distinct_objects_than_centres():
    x = np.repeat([[1.0], [5.0]], 4, axis=0)
    assert set(ax.kmeans(x @ x.T, 3, rng=0).labels) == {0, 1, 2}  # one cluster contains a duplicate


def test_mixed_draws_are_half_uniform_and_half_by_weight(eager_xp):
    weight = np.repeat([1.0, 0.0, 50.0], [500, 400, 10])
    rng = np.random.default_rng(0)
    drawn = eager_xp.numpy(seeding.draw_mixed(eager_xp.array(weight), 20_000, rng))
    counts = np.bincount(np.repeat([0, 1, 2], [500, 400, 10])[drawn], minlength=3) / 20_000
    expected = np.array([500, 400, 10]) / 910 / 2 + np.array([500, 0, 500]) / 1000 / 2
    np.testing.assert_allclose(counts, expected, atol=0.02)


@pytest.mark.parametrize("n", [30, 5000], ids=["all objects", "a sample"])
def test_a_sample_holds_the_proximities_of_its_objects(eager_xp, n):
    x = np.random.default_rng(0).normal(size=(n, 3))
    W = ax.Factored.from_features(eager_xp.array(x))
    labels = eager_xp.array(np.arange(n))
    sample = seeding.Sample.draw(W, 200, np.random.default_rng(1), labels)
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
