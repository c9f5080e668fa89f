"""k-means for several numbers of clusters at once."""

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.clustering import kmeans, scan
from affect_xp.clustering.base import Call
from affect_xp.partition import Partition, fewer_clusters, labels_by_number


def drifting_steps(n=60, n_steps=4, seed=5):
    centres = 2 * np.random.default_rng(seed).normal(size=(6, 4))
    for t in range(n_steps):
        rng = np.random.default_rng([seed, t])
        x = centres[np.arange(n) % (3 + (seed + t) % 4)] + rng.normal(size=(n, 4))
        yield x @ x.T


@pytest.mark.parametrize("limits", [(300, 1200), (20, 30)], ids=["all objects", "a sample"])
@pytest.mark.parametrize("columns", [256, 20], ids=["one batch", "some batches"])
def test_all_numbers_of_clusters_at_once_are_those_one_by_one(eager_xp, monkeypatch, limits, columns):
    monkeypatch.setattr(kmeans, "FRESH_LIMITS", limits)
    monkeypatch.setattr(scan, "MAX_COLUMNS", columns)
    models = {}
    for one_batch in (True, False):
        monkeypatch.setattr(kmeans, "is_on_device", lambda like, one_batch=one_batch: one_batch)
        models[one_batch] = ax.Affect(ax.KMeans("silhouette", max_clusters=7), random_state=0)
        for t, w in enumerate(drifting_steps()):
            models[one_batch].partial_fit(eager_xp.array(w), range(3 * t, 3 * t + 60))
    for at_once, one_by_one in zip(models[True].history_, models[False].history_, strict=True):
        assert np.array_equal(at_once.labels, one_by_one.labels)
        assert at_once.scores == pytest.approx(one_by_one.scores, rel=1e-9)
        assert at_once.alpha == pytest.approx(one_by_one.alpha, rel=1e-9)


def test_each_number_of_clusters_continues_from_its_own_labels(eager_xp):
    first, second = (ax.Dense(eager_xp.array(w)) for w in drifting_steps(n_steps=2))
    rule, fixed = ax.KMeans("silhouette", max_clusters=5), ax.KMeans(4)
    before = rule.cluster(first, Call(rng=1))
    labels = eager_xp.numpy(before.memory) - 1
    assert labels.shape == (60, 4) and labels.max(axis=0).tolist() == [1, 2, 3, 4]
    found = rule.cluster(second, Call(1, before.partition, before.memory, rng=1))
    start = Partition(eager_xp.array(labels[:, 2]), 4, 0)
    expected = fixed.cluster(second, Call(1, start, rng=1))
    assert np.array_equal(eager_xp.numpy(found.memory)[:, 2] - 1, eager_xp.numpy(expected.partition.labels))


def test_memory_of_another_clusterer_is_not_a_start():
    (w,) = drifting_steps(n_steps=1)
    rule, start = ax.KMeans("silhouette", max_clusters=3), Partition(np.arange(60) % 2, 2, 0)
    found = [rule.cluster(ax.Dense(w), Call(1, start, memory, rng=1)) for memory in (None, np.ones((60, 2)))]
    assert np.array_equal(found[0].memory, found[1].memory)


@pytest.mark.parametrize("k_before", [1, 4, 6])
def test_starts_for_several_numbers_of_clusters(eager_xp, k_before):
    given = np.random.default_rng(0).integers(-1, k_before, 30)
    start = Partition(eager_xp.array(given), k_before)
    found = eager_xp.numpy(labels_by_number(start, [2, 3, 4, 5, 6]))
    sizes = np.bincount(given[given >= 0], minlength=k_before)
    for column, k in zip(found.T, [2, 3, 4, 5, 6], strict=True):
        kept = np.sort(np.argsort(-sizes, kind="stable")[:k])
        assert column.tolist() == [list(kept).index(c) if c in kept else -1 for c in given]
        assert np.array_equal(eager_xp.numpy(fewer_clusters(start, k).labels), column)


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("proximity", ["precomputed", "dot"])
def test_a_rule_for_two_objects_and_then_one(eager_xp, proximity, left):
    model = ax.Affect(ax.KMeans("silhouette"), proximity=proximity, scale="none", random_state=0)
    for x, ids in (([[-1.0], [2.0]], [0, 1]), ([[2.0]], [left]), ([[1.0]], [left])):
        x = np.array(x)
        model.partial_fit(eager_xp.array(x @ x.T if proximity == "precomputed" else x), ids=ids)
    assert [len(labels) for labels in model.history_.labels] == [2, 1, 1]


def test_a_single_object_is_not_remembered(eager_xp):
    rule = ax.KMeans("silhouette")
    one, two = (ax.Dense(eager_xp.array(np.eye(n))) for n in (1, 2))
    assert rule.cluster(one, Call(rng=1)).memory is None
    assert rule.cluster(two, Call(rng=1)).memory.shape == (2, 1)  # of two clusters
