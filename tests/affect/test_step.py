"""AFFECT steps against a naive restatement with the conventions of the authors' toolbox."""

import dataclasses
import weakref

import numpy as np
import pytest
import reference
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sequences import churning, compact, drifting

import affect_xp as ax
from affect_xp.affect.step import step
from affect_xp.proximity import Blend


@pytest.mark.parametrize("init", ["previous", "static"])
@pytest.mark.parametrize("n_iter", [1, 3])
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "objects come and go"])
def test_as_the_toolbox(eager_xp, small_blocks, init, n_iter, churn):
    steps, ids = zip(*(churning(4) if churn else ((w, range(30)) for w in drifting(4))), strict=True)
    start = np.random.default_rng(9).integers(0, 3, size=len(ids[0]))
    model = ax.Affect(ax.KMeans(3, init=eager_xp.array(start)), n_iter=n_iter, init=init)
    model.fit([eager_xp.array(w) for w in steps], ids=ids)
    expected = reference.affect(steps, ids, 3, start, n_iter=n_iter, init=init)
    for record, (labels, alphas, _) in zip(model.history_, expected, strict=True):
        assert compact(eager_xp.numpy(record.labels)) == compact(labels)
        if alphas:  # a step that stops early would repeat its last α
            padded = list(record.alphas) + [record.alphas[-1]] * (n_iter - len(record.alphas))
            np.testing.assert_allclose(padded, alphas, atol=1e-10)
    np.testing.assert_allclose(eager_xp.numpy(model.smoothed_.array), expected[-1][2], atol=1e-9)


def test_labels_stay_on_the_device(eager_xp):
    model = ax.Affect(ax.KMeans(3), random_state=0).fit([eager_xp.array(w) for w in drifting(0)])
    assert eager_xp.owns(model.labels_)
    assert eager_xp.owns(model.smoothed_.array)
    assert isinstance(model.alpha_, float)


def test_all_libraries_agree(eager_xp):
    steps, ids = zip(*churning(2), strict=True)
    mine = ax.Affect(ax.KMeans(3), random_state=5).fit([eager_xp.array(w) for w in steps], ids=ids)
    theirs = ax.Affect(ax.KMeans(3), random_state=5).fit(steps, ids=ids)
    for a, b in zip(mine.history_, theirs.history_, strict=True):
        np.testing.assert_array_equal(eager_xp.numpy(a.labels), b.labels)
        np.testing.assert_allclose(a.alphas, b.alphas, atol=1e-10)


def test_float32(eager_xp):
    steps = list(drifting(1))
    single = ax.Affect(ax.KMeans(3), random_state=0).fit([eager_xp.array(w, np.float32) for w in steps])
    double = ax.Affect(ax.KMeans(3), random_state=0).fit(steps)
    assert "float32" in str(single.smoothed_.array.dtype)
    np.testing.assert_array_equal(eager_xp.numpy(single.labels_), double.labels_)
    np.testing.assert_allclose(single.alpha_, double.alpha_, rtol=1e-4)


def test_a_step_changes_nothing_it_was_given():
    first, second = (ax.Dense(w) for w in drifting(0, n_steps=2))
    before = first.array.copy(), second.array.copy()
    clusterer = ax.KMeans(3)
    state = dataclasses.replace(step(None, first, range(30), clusterer).state, smoothed=first)
    results = [step(state, second, range(30), clusterer) for _ in range(2)]
    assert isinstance(results[0].blend, Blend)
    np.testing.assert_array_equal(results[0].labels, results[1].labels)
    np.testing.assert_array_equal(first.array, before[0])
    np.testing.assert_array_equal(second.array, before[1])
    assert results[0].smoothed().array is not second.array


def test_smoothed_is_the_recursion():
    steps = list(drifting(3))
    model = ax.Affect(ax.KMeans(3), random_state=0)
    expected = None
    for w in steps:
        model.partial_fit(w)
        expected = w if expected is None else model.alpha_ * expected + (1 - model.alpha_) * w
        np.testing.assert_allclose(model.smoothed_.array, expected, atol=1e-12)


def test_what_was_looked_at_stays_as_it_is():
    model = ax.Affect(ax.KMeans(3), random_state=0)
    first, second, third = drifting(3, n_steps=3)
    seen = model.partial_fit(first).smoothed_.array
    copy = seen.copy()
    model.partial_fit(second).partial_fit(third)
    np.testing.assert_array_equal(seen, copy)


def test_storage_is_reused_when_nobody_looks():
    model = ax.Affect(ax.KMeans(3), random_state=0)
    first, second, third = drifting(3, n_steps=3)
    model.partial_fit(first).partial_fit(second)
    storage = model._state.smoothed.array
    model.partial_fit(third)
    assert model._state.smoothed.array is storage


def test_what_was_observed_is_let_go():
    model = ax.Affect(ax.KMeans(3), random_state=0)
    for w in drifting(3, n_steps=3):
        seen = weakref.ref(w)
        model.partial_fit(w)
        del w
        assert seen() is None


def test_the_caller_may_reuse_its_array():
    steps = list(drifting(3))
    expected = ax.Affect(ax.KMeans(3), random_state=0).fit(steps)
    model, buffer = ax.Affect(ax.KMeans(3), random_state=0), np.empty((30, 30))
    for w in steps:
        buffer[...] = w
        model.partial_fit(buffer)
    assert [r.alpha for r in model.history_] == [r.alpha for r in expected.history_]


@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.SkewedWarning")  # drawn at random
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from(["auto", "previous", "static"]))
def test_properties(seed, k, init):
    steps, ids = zip(*churning(seed, n_steps=4, pool=14, k=k), strict=True)
    k = min(k, min(len(i) for i in ids))
    model = ax.Affect(ax.KMeans(k), init=init, random_state=1).fit(steps, ids=ids)
    by_steps = ax.Affect(ax.KMeans(k), init=init, random_state=1)
    for w, i in zip(steps, ids, strict=True):
        by_steps.partial_fit(w, i)
    order = np.random.default_rng(seed).permutation(len(ids[-1]))
    for mine, theirs in zip(model.history_, by_steps.history_, strict=True):
        assert all(0 <= a <= 1 for a in mine.alphas)
        np.testing.assert_array_equal(mine.labels, theirs.labels)
        assert mine.alphas == theirs.alphas
        assert len(np.unique(mine.labels)) == k
    before = dict(zip(ids[-2], model.history_[-2].labels.tolist(), strict=True))
    # An empty cluster gets the farthest object: for a cluster of two objects, the first one.
    assume(len({before[i] for i in ids[-1] if i in before}) == k)
    shuffled = ax.Affect(ax.KMeans(k), init=init, random_state=1).fit(
        [*steps[:-1], steps[-1][np.ix_(order, order)]], ids=[*ids[:-1], [ids[-1][i] for i in order]]
    )
    np.testing.assert_allclose(shuffled.alpha_, model.alpha_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(shuffled.labels_, model.labels_[order])


def test_alpha_zero_is_static_clustering():
    steps = list(drifting(5))
    still = ax.Affect(ax.KMeans(3), alpha=0, random_state=2).fit(steps)
    static = ax.Static(ax.KMeans(3), random_state=2).fit(steps)
    for a, b in zip(still.history_, static.history_, strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(still.smoothed_.array, steps[-1])


def test_alpha_one_never_moves():
    steps = list(drifting(5))
    model = ax.Affect(ax.KMeans(3), alpha=1.0, random_state=2).fit(steps)
    np.testing.assert_allclose(model.smoothed_.array, steps[0])


def test_alpha_by_step_and_by_function():
    steps = list(drifting(5, n_steps=4))
    given_alphas = [0.0, 0.1, 0.2, 0.3]
    listed = ax.Affect(ax.KMeans(3), alpha=given_alphas, random_state=2).fit(steps)
    called = ax.Affect(ax.KMeans(3), alpha=lambda w, past, labels, t: t / 10, random_state=2).fit(steps)
    assert ax.Affect(ax.KMeans(3), alpha=np.array(0.25), random_state=2).fit(steps).alpha_ == 0.25
    assert ax.Affect(ax.KMeans(3), alpha=np.array(given_alphas), random_state=2).fit(steps).alpha_ == 0.3
    np.testing.assert_allclose(listed.history_.alpha, given_alphas)
    np.testing.assert_allclose(called.history_.alpha, given_alphas)
    estimated = ax.Affect(ax.KMeans(3), random_state=2).fit(steps)
    by_function = ax.Affect(
        ax.KMeans(3), alpha=lambda w, past, labels, t: ax.forgetting_factor(w, past, labels), random_state=2
    ).fit(steps)
    np.testing.assert_allclose(by_function.history_.alpha, estimated.history_.alpha, rtol=1e-12)


def test_a_function_for_alpha_gets_the_common_objects():
    (w0, ids0), (w1, ids1) = churning(0, n_steps=2)
    common = set(ids0) & set(ids1)
    here, there = ([i for i, name in enumerate(ids) if name in common] for ids in (ids1, ids0))
    there = [ids0.index(ids1[i]) for i in here]
    seen = []

    def alpha(w, past, labels, t):
        seen.append((w.array, past.array, labels))
        return 0.5

    ax.Affect(ax.KMeans(3), alpha=alpha, n_iter=1, random_state=0).fit([w0, w1], ids=[ids0, ids1])
    (w, past, labels) = seen[0]
    np.testing.assert_array_equal(w, w1[np.ix_(here, here)])
    np.testing.assert_array_equal(past, w0[np.ix_(there, there)])
    assert len(labels) == len(common)


def test_more_and_fewer_clusters():
    steps = list(drifting(1, n_steps=8))
    asked = [2, 3, 3, 5, 4, 4, 2, 1]
    for model in (ax.Affect(ax.KMeans(asked), random_state=0), ax.Static(ax.KMeans(asked), random_state=0)):
        model.fit(steps)
        assert [len(np.unique(record.labels)) for record in model.history_] == asked
        assert [record.k for record in model.history_] == asked


def test_a_cluster_whose_members_all_leave_is_filled_anew():
    w = np.kron(np.eye(3), np.ones((4, 4))) + 0.01 * np.eye(12)
    model = ax.Affect(ax.KMeans(3, init=np.repeat([0, 1, 2], 4))).partial_fit(w, ids=range(12))
    keep = np.arange(8)  # the third cluster leaves
    model.partial_fit(w[np.ix_(keep, keep)], ids=range(8))
    assert len(np.unique(model.labels_)) == 3


def test_nobody_stays():
    a, b = drifting(0, n_steps=2)
    model = ax.Affect(ax.KMeans(3), random_state=0).fit([a, b], ids=[range(30), range(30, 60)])
    assert model.alpha_ == 0.0
    assert len(np.unique(model.labels_)) == 3
    assert set(model.labels_.tolist()) == {3, 4, 5}  # none of the old clusters
    np.testing.assert_array_equal(model.smoothed_.array, b)


def test_one_object():
    model = ax.Affect(ax.KMeans(1)).fit([[[0.0]], [[0.0]], [[3.0]]])
    assert model.labels_.tolist() == [0] and model.history_.alpha.tolist() == [0, 0, 0]


def test_one_common_object_without_a_diagonal():
    a = np.zeros((2, 2))
    model = ax.Affect(ax.KMeans(1)).fit([a, a], ids=[["x", "y"], ["y", "z"]])
    assert model.alpha_ == 0.0


def test_arrivals_can_make_distances_negative_and_kmeans_stays_sane():
    rng = np.random.default_rng(0)
    lowest = 0.0
    for seed in range(20):
        x0, x1 = 3 * rng.normal(size=(20, 2)), 3 * rng.normal(size=(30, 2))
        model = ax.Affect(ax.KMeans(4), alpha=0.9, random_state=seed)
        model.fit([x0 @ x0.T, x1 @ x1.T], ids=[range(20), range(30)])
        lowest = min(lowest, reference.distances(model.smoothed_.array, model.labels_, 4).min())
        assert len(np.unique(model.labels_)) == 4
    assert lowest < -1  # the case occurs


def test_any_function_as_clusterer(eager_xp):
    def halves(proximity):
        return eager_xp.xp.astype(proximity.array[0, :] < 0, eager_xp.xp.int64) * 7

    model = ax.Affect(halves).fit([eager_xp.array(w) for w in drifting(0)])
    assert set(eager_xp.numpy(model.labels_)) == {0, 1}


def test_a_function_may_leave_objects_out():
    def cautious(proximity):
        labels = (proximity.array[0] < 0).astype(int)
        labels[-4:] = -1
        return labels

    model = ax.Affect(cautious).fit(list(drifting(0)))
    assert model.labels_[-4:].tolist() == [-1] * 4
    assert 0 < model.alpha_ < 1


def test_labels_keep_their_meaning():
    centres = np.array([[9.0, 0.0], [0.0, 9.0], [-9.0, -9.0]])
    model, names = ax.Affect(ax.KMeans(3, n_init=10), random_state=0), {}
    for seed in range(5):
        rng = np.random.default_rng(seed)
        order = rng.permutation(30)
        x = centres[order % 3] + rng.normal(size=(30, 2))
        model.partial_fit(x @ x.T, ids=order)
        now = dict(zip(order.tolist(), model.labels_.tolist(), strict=True))
        assert names in ({}, now)
        names = now


@pytest.mark.parametrize("seed", [0, np.random.default_rng(3), np.random.RandomState(3), None])
def test_random_state(seed):
    model = ax.Affect(ax.KMeans(3), random_state=seed).fit(list(drifting(0)))
    assert model.n_steps_ == 6


def test_same_seed_same_labels():
    runs = [ax.Affect(ax.KMeans(3), random_state=8).fit(list(drifting(0))) for _ in range(2)]
    for a, b in zip(*(run.history_ for run in runs), strict=True):
        np.testing.assert_array_equal(a.labels, b.labels)


def test_a_cluster_missed_at_a_step_keeps_its_name(eager_xp):
    labels = [np.repeat([0, 1, 2], 5), np.repeat([0, 1, 1], 5), np.repeat([2, 0, 1], 5)]
    t = iter(labels)
    model = ax.Static(lambda psi: eager_xp.array(next(t)))
    for _ in labels:
        model.partial_fit(eager_xp.array(np.eye(15)))
    found = [eager_xp.numpy(record.labels) for record in model.history_]
    assert np.array_equal(found[0], labels[0]) and np.array_equal(found[2], labels[0])
    assert [e.kind for e in model.history_[2].events] == ["split", "return", "shrink", "continuation"]


def test_events_are_kept():
    steps = list(drifting(1, n_steps=3))
    model = ax.Affect(ax.KMeans([3, 3, 2]), random_state=0).fit(steps)
    assert [event.kind for event in model.history_[0].events] == ["birth"] * 3
    kinds = {event.kind for event in model.history_.events[2]}
    assert kinds & {"merge", "death"} and "birth" not in kinds


def test_alpha_of_a_function_is_a_number_on_every_library(eager_xp):
    x = np.random.default_rng(0).normal(size=(2, 40, 3))  # without clusters, so that labels change
    alphas = iter([0.2, 0.6, 0.61])  # changes by more and by less than alpha_tol
    model = ax.Affect(ax.KMeans(4), alpha=lambda *_: next(alphas), alpha_tol=0.05, random_state=0)
    model.fit([eager_xp.array(w @ w.T) for w in x])
    assert model.history_[1].alphas == (0.2, 0.6)
