"""Proximities with labels give what the matrix gives, in any representation, however objects moved."""

import numpy as np
import pytest
import reference

import affect_xp as ax
from affect_xp.alignment import align
from affect_xp.partition import Partition
from affect_xp.proximity import Dense, Factored, Pair

N, K = 11, 3
IDS, PAST_IDS = list("abcdefghijk"), list("kxbadycif")


def symmetric(rng, n=N):
    w = rng.normal(size=(n, n))
    return w + w.T


def dense(xp, rng):
    w = symmetric(rng)
    return Dense(xp.array(w)), w


def factored(xp, rng):
    x = rng.normal(size=(N, 4)) + 1
    return Factored.from_features(xp.array(x)), x @ x.T


def blend_of(make, xp, w, past, ids, past_ids, alpha):
    moves = align(tuple(ids), tuple(past_ids), xp.array([0.0]))
    expected = reference.blend(w[1], past[1], alpha, list(ids), list(past_ids))
    return Pair(w[0], past[0], moves).blend(make(alpha)), expected


def blend(xp, rng):
    return blend_of(float, xp, dense(xp, rng), dense(xp, rng), IDS, IDS, 0.3)


def blend_with_new_objects(xp, rng):
    past = symmetric(rng, len(PAST_IDS))
    return blend_of(xp.array, xp, dense(xp, rng), (Dense(xp.array(past)), past), IDS, PAST_IDS, 0.3)


def blend_in_another_order(xp, rng):
    return blend_of(xp.array, xp, dense(xp, rng), dense(xp, rng), IDS, IDS[::-1], 0.3)


def factored_blend_with_new_objects(xp, rng):
    x = rng.normal(size=(len(PAST_IDS), 2))
    past = Factored.from_features(xp.array(x)), x @ x.T
    return blend_of(xp.array, xp, factored(xp, rng), past, IDS, PAST_IDS, 0.3)


MAKERS = [
    dense,
    factored,
    blend,
    blend_with_new_objects,
    blend_in_another_order,
    factored_blend_with_new_objects,
]


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__)
def pair(request, eager_xp, small_blocks):
    return request.param(eager_xp, np.random.default_rng(7))


def one_hot(labels):
    """Return the memberships of several runs side by side, (n, R·k)."""
    return np.concatenate([labels[:, [r]] == np.arange(K) for r in range(labels.shape[1])], axis=1) * 1.0


def assert_product(xp, groups, w, labels):
    z = one_hot(labels)
    rows = np.array([8, 0, 3])
    np.testing.assert_allclose(xp.numpy(groups.rows(slice(0, N))), w @ z, atol=1e-12)
    np.testing.assert_allclose(xp.numpy(groups.rows(slice(2, 7))), (w @ z)[2:7], atol=1e-12)
    np.testing.assert_allclose(xp.numpy(groups.rows(xp.array(rows))), (w @ z)[rows], atol=1e-12)
    own = np.diag(z.T @ w @ z).reshape(-1, K)
    np.testing.assert_allclose(xp.numpy(groups.own()), own, atol=1e-12)


def labels_of(n_runs, seed=0):
    labels = np.random.default_rng(seed).integers(0, K, (N, n_runs))
    labels[4, 0] = -1
    return labels


@pytest.mark.parametrize("n_runs", [1, 2])
def test_rows_and_sums(eager_xp, pair, n_runs):
    proximity, w = pair
    labels = labels_of(n_runs)
    assert_product(eager_xp, proximity.grouped(eager_xp.array(labels), K), w, labels)


def test_objects_that_move(eager_xp, pair):
    proximity, w = pair
    old, new = labels_of(2), labels_of(2)
    rows = np.array([10, 4, 1, 6])
    new[rows] = (new[rows] + 1) % K
    groups = proximity.grouped(eager_xp.array(old), K)
    moved = groups.regrouped(eager_xp.array(new), eager_xp.array(rows))
    assert_product(eager_xp, moved, w, new)
    assert_product(eager_xp, groups, w, old)  # which is left as it was


def test_some_of_the_runs(eager_xp, pair):
    proximity, w = pair
    labels = labels_of(3)
    groups = proximity.grouped(eager_xp.array(labels), K).of_runs([0, 2])
    assert_product(eager_xp, groups, w, labels[:, [0, 2]])


def test_moments_of_the_one_partition(eager_xp, pair):
    proximity, _ = pair
    partition = Partition(eager_xp.array(labels_of(1)[:, 0]), K)
    groups = proximity.group(partition)
    groups.rows(slice(0, N))  # from now on W·Z is known
    means = eager_xp.array(symmetric(np.random.default_rng(1), K))
    for found, expected in zip(
        (*groups.moments(), groups.distance_to(means), groups.diagonal()),
        (
            *proximity.block_moments(partition),
            proximity.square_distance(partition, means),
            proximity.diagonal(),
        ),
        strict=True,
    ):
        np.testing.assert_allclose(eager_xp.numpy(found), eager_xp.numpy(expected), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("maker", [m for m in MAKERS if "blend" in m.__name__], ids=lambda m: m.__name__)
def test_parts_of_a_blend_are_those_of_the_common_objects(eager_xp, maker):
    proximity, _ = maker(eager_xp, np.random.default_rng(7))
    partition = Partition(eager_xp.array(labels_of(1)[:, 0]), K)
    alignment = proximity.alignment
    now, before = partition.masked(alignment.source), partition.take(alignment.target)
    parts = proximity.pair.group(partition)
    for groups, own in zip((parts.common, parts.past), (now, before), strict=True):
        direct = groups.proximity.matmul(own.membership)
        found = groups.rows(slice(0, own.n))
        np.testing.assert_allclose(eager_xp.numpy(found), eager_xp.numpy(direct), atol=1e-12)
        np.testing.assert_array_equal(eager_xp.numpy(groups.partition.labels), eager_xp.numpy(own.labels))
    assert parts.at(proximity.at(0.0)) is parts.current


@pytest.mark.parametrize("maker", MAKERS[2:], ids=lambda m: m.__name__)
def test_the_product_of_a_blend_is_carried_to_the_stored_one(eager_xp, maker):
    proximity, w = maker(eager_xp, np.random.default_rng(7))
    labels = labels_of(1)
    groups = proximity.grouped(eager_xp.array(labels), K)
    formed = proximity.formed()
    carried = formed.carried(groups)
    assert carried.proximity is formed
    assert_product(eager_xp, carried, w, labels)


def test_it_is_not_carried_where_columns_were_dropped():
    x = np.random.default_rng(0).normal(size=(N, 2))
    w, past = (Factored.from_features(x + i, tolerance=0.5) for i in range(2))
    lazy = Pair(w, past, align(range(N), range(N), x)).blend(0.25)
    formed = lazy.formed()
    assert formed.rank == 2
    assert formed.carried(lazy.grouped(labels_of(1), K)) is None


@pytest.mark.parametrize("kind", ["precomputed", "dot"])
def test_a_long_run_stays_with_one_that_multiplies_anew(kind):
    """Objects come, go and change places; every step of the second model starts without a product."""
    rng = np.random.default_rng(0)
    models = [ax.Affect(ax.KMeans(3), proximity=kind, random_state=0) for _ in range(2)]
    centres = 3 * rng.normal(size=(3, 2))
    for t in range(12):
        ids = rng.permutation(np.arange(2 * (t // 3), 2 * (t // 3) + 30))
        x = centres[ids % 3] + rng.normal(size=(30, 2))
        for model, forgets in zip(models, (False, True), strict=True):
            model.partial_fit(x if kind == "dot" else x @ x.T, ids=ids)
            if forgets:
                object.__setattr__(model._state, "groups", None)
        assert models[0]._state.groups is not None
        np.testing.assert_array_equal(models[0].labels_, models[1].labels_)
        np.testing.assert_allclose(models[0].alphas_, models[1].alphas_, rtol=1e-10)
