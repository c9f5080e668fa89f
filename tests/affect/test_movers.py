"""Probabilities of moves and the weight of the past: against the slow twin, and their meaning."""

import dataclasses

import numpy as np
import pytest
import reference_movers as twin
from storages import MAKERS, aligned

from affect_xp.affect.movers import margin_weight, move_probability, pair_moments
from affect_xp.partition import UNCHANGED, Partition, align
from affect_xp.proximity import Dense, Factored, Pair, grouped
from affect_xp.proximity.blend import Known

IDS, PAST_IDS = list("abcdefghijklmno"), list("oxbadychifmyznj")


def counts(rng, n, k=3):
    """Counts between the objects of k groups, with some on the diagonal."""
    c = np.arange(n) % k
    upper = np.triu(rng.poisson(np.where(c[:, None] == c, 4.0, 1.0)))
    return (upper + upper.T).astype(float)


LABELS = [np.arange(15) % 3, np.arange(15) % 7, np.zeros(15, dtype=int), np.arange(15) // 14]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "churn"])
def test_both_are_those_of_the_slow_twin(eager_xp, small_blocks, make, labels, churn):
    rng, k = np.random.default_rng(3), int(labels.max()) + 1
    w, past = counts(rng, 15), counts(rng, 15)
    past_ids = PAST_IDS if churn else IDS
    before, M = aligned(past, IDS, past_ids)
    moves = align(tuple(IDS), tuple(past_ids), eager_xp.array([0.0]))
    pair = Pair(make(eager_xp, w), make(eager_xp, past), moves)
    moments = pair_moments(pair.group(Partition(eager_xp.array(labels), k)))
    q = twin.Sums(w, before, M, np.where(M.any(1), labels, -1), k)
    p, a = move_probability(moments), margin_weight(moments)
    assert eager_xp.owns(p) and eager_xp.owns(a)
    np.testing.assert_allclose(eager_xp.numpy(p), twin.move_probability(q), atol=1e-9)
    np.testing.assert_allclose(float(eager_xp.numpy(a)), twin.margin_weight(q), atol=1e-9)


def test_probabilities_need_no_products_with_the_past(eager_xp, monkeypatch):
    rng = np.random.default_rng(0)
    w, past = (Dense(eager_xp.array(counts(rng, 12))) for _ in range(2))
    same = align(range(12), range(12), eager_xp.array([0.0]))
    groups = Pair(w, past, same).group(Partition(eager_xp.array(np.arange(12) % 3), 3))
    expected = move_probability(pair_moments(groups))
    monkeypatch.delattr(Dense, "block_products")
    found = move_probability(pair_moments(groups, products=False))
    np.testing.assert_array_equal(eager_xp.numpy(found), eager_xp.numpy(expected))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_pass_gives_products_and_sums_of_the_past(dtype):
    rng, n, k = np.random.default_rng(2), 70, 13
    w, past = ((x + x.T).astype(dtype) for x in rng.normal(size=(2, n, n)))
    labels = rng.integers(-1, k, size=n)
    products, groups = Dense(w).products_and_past(Dense(past), Partition(labels, k))
    z, off = np.eye(k + 1)[labels][:, :k], 1 - np.eye(n)
    w, past = w.astype(float), past.astype(float)
    np.testing.assert_allclose(products, z.T @ (w * past * off) @ z, atol=1e-10)
    np.testing.assert_allclose(groups.array, past @ z, atol=1e-10)
    np.testing.assert_allclose(groups.block_sums[1], z.T @ (past**2 * off) @ z, atol=1e-10)


def test_differences_of_large_float32_matrices(monkeypatch):
    monkeypatch.setattr(grouped, "MIN_NARROW", 100)
    rng, n, k = np.random.default_rng(2), 130, 3
    w, past = ((1000 + x + x.T).astype("float32") for x in rng.normal(size=(2, n, n)))
    partition = Partition(rng.integers(-1, k, size=n), k)
    z, off = np.eye(k + 1)[partition.labels][:, :k], 1 - np.eye(n)
    expected = z.T @ ((np.float64(w) - past) ** 2 * off) @ z
    W, P = Dense(w), Dense(past)
    np.testing.assert_allclose(W.block_differences(P, partition), expected, rtol=1e-6)
    tiny = Dense(w * np.float32(1e-25)), Dense(past * np.float32(1e-25))  # squares vanish
    assert tiny[0].block_differences(tiny[1], partition) is None
    assert Dense(np.float64(w)).block_differences(Dense(np.float64(past)), partition) is None
    pair = Pair(W, P, UNCHANGED).group(partition)
    products, _ = dataclasses.replace(pair, known=Known(past=P.group(partition))).products()
    np.testing.assert_allclose(products, z.T @ (np.float64(w) * past * off) @ z, rtol=1e-9)


def test_one_who_moves_is_seen(eager_xp):
    rng, n = np.random.default_rng(1), 60
    now, then = np.arange(n) % 3, np.arange(n) % 3
    now[7] = 2

    def draw(c):
        upper = np.triu(rng.poisson(np.where(c[:, None] == c, 3.0, 0.3)), 1)
        return Dense(eager_xp.array((upper + upper.T).astype(float)))

    pair = Pair(draw(now), draw(then), align(range(n), range(n), eager_xp.array([0.0])))
    p = eager_xp.numpy(move_probability(pair_moments(pair.group(Partition(eager_xp.array(now), 3)))))
    assert p[7] > 0.99 and np.delete(p, 7).max() < 0.01


def test_the_sum_over_others_of_one_alone_is_exactly_zero(eager_xp):
    rng = np.random.default_rng(0)
    for x in rng.normal(size=(5, 40, 37)):  # x·x of a product and of a sum are rounded differently
        x[:, 0] += 99
        W = Factored.from_features(eager_xp.array(x))
        pair = Pair(W, W, align(range(40), range(40), eager_xp.array([0.0])))
        labels = Partition(eager_xp.array(np.minimum(np.arange(40), 1)), 2)
        moments = pair_moments(pair.group(labels))
        for rows in moments.rows, moments.past_rows:
            assert eager_xp.numpy(rows.at(slice(0, 1)))[0, 0] == 0
