"""Groups of a pair of present and past, and products reused from step to step."""

import numpy as np
import pytest
from representations import BLENDS, N

import affect_xp as ax
from affect_xp.partition import Partition, align
from affect_xp.proximity import Dense, Factored, Pair
from affect_xp.proximity.grouped import own_sums

K = 3
PARTS = [m for m in BLENDS if "dense" in m.__name__ or "factored" in m.__name__]


def labels_of(n_runs, seed=0):
    labels = np.random.default_rng(seed).integers(0, K, (N, n_runs))
    labels[4, 0] = -1
    return labels


@pytest.mark.parametrize("maker", PARTS, ids=lambda m: m.__name__)
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


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("n_moved", [0, 2, N])
@pytest.mark.parametrize("maker", BLENDS, ids=lambda m: m.__name__)
def test_a_pair_with_other_labels_is_one_grouped_anew(eager_xp, maker, n_moved, is_known):
    proximity, _ = maker(eager_xp, np.random.default_rng(7))
    before, after = labels_of(1)[:, 0], labels_of(1)[:, 0]
    after[:n_moved] = (after[:n_moved] + 1) % K
    before, after = (Partition(eager_xp.array(labels), K) for labels in (before, after))
    start = proximity.pair.group(before)
    found = start.relabelled(after, start.pair.current.group(after) if is_known else None)
    assert found.partition.agreement(after) == 1  # numbers may differ
    anew = proximity.pair.group(found.partition)
    for name in ("current", "common", "past"):
        groups, expected = getattr(found, name), getattr(anew, name)
        rows = (eager_xp.numpy(g.rows(slice(0, g.partition.n))) for g in (groups, expected))
        np.testing.assert_allclose(*rows, atol=1e-12)
        np.testing.assert_array_equal(
            *(eager_xp.numpy(g.partition.labels) for g in (groups, expected)), strict=True
        )


@pytest.mark.parametrize("n_runs", [1, 3])
def test_own_sums_are_those_of_the_definition(eager_xp, n_runs):
    wz, labels = np.random.default_rng(0).normal(size=(N, n_runs * K)), labels_of(n_runs)
    expected = np.zeros((n_runs, K))
    for i, r in np.argwhere(labels >= 0):
        expected[r, labels[i, r]] += wz[i, r * K + labels[i, r]]
    found = own_sums(eager_xp.array(wz), eager_xp.array(labels), K)
    np.testing.assert_allclose(eager_xp.numpy(found), expected, atol=1e-12)


@pytest.mark.parametrize("cached_bytes", [0, 2**24])
@pytest.mark.parametrize("k", [K, 9, 14])
def test_products_of_several_runs_are_those_of_each(monkeypatch, k, cached_bytes):
    monkeypatch.setattr("affect_xp.array.blas.CACHED_BYTES", cached_bytes)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4))
    W, before, after = Dense(x @ x.T), *rng.integers(-1, k, (2, N, 3))
    start = W.grouped(before, k)
    moved = start.regrouped(after, np.flatnonzero((before != after).any(axis=1)))
    for groups, labels in ((start, before), (moved, after)):
        z = labels[:, :, None] == np.arange(k)
        np.testing.assert_allclose(groups.array, W.array @ z.reshape(N, -1), atol=1e-12)


def test_a_product_is_not_carried_where_columns_were_dropped():
    x = np.random.default_rng(0).normal(size=(N, 2))
    w, past = (Factored.from_features(x + i, tolerance=0.5) for i in range(2))
    lazy = Pair(w, past, align(range(N), range(N), x)).blend(0.25)
    formed = lazy.formed()
    assert formed.rank == 2
    assert formed.carried(lazy.grouped(labels_of(1), K)) is None


@pytest.mark.parametrize("kind", ["precomputed", "dot"])
def test_a_long_run_stays_with_one_that_multiplies_anew(kind):
    """Objects come, go and change positions; every step of the second model starts without a product."""
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
