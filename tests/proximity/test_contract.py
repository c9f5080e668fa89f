"""Every representation answers as the matrix it stands for, on every array library."""

import numpy as np
import pytest
import reference
from representations import MAKERS, N, dense, dense_float32, symmetric

from affect_xp.alignment import align
from affect_xp.partition import Partition
from affect_xp.proximity import Dense, Pair


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__)
def pair(request, xp, small_blocks):
    return request.param(xp, np.random.default_rng(7))


def partition(xp, labels, k):
    return Partition(xp.array(labels), k)


LABELS = [
    np.arange(N) % 3,
    np.array([0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3]),  # a pair and a singleton
    np.array([0, 2, 2, 0, 0, 2, 0, 2, 2, 0, 2]),  # an empty cluster
    np.array([0, -1, 1, 0, 1, -1, 0, 1, 0, -1, 1]),  # objects without a cluster
    np.zeros(N, dtype=int),
    np.arange(N),
]


@pytest.mark.parametrize("index", [None, [3, 0, 10, 3]], ids=["all", "some"])
def test_entries(xp, pair, index):
    proximity, w = pair
    given = None if index is None else xp.array(np.array(index))
    index = range(N) if index is None else index
    np.testing.assert_allclose(xp.numpy(proximity.submatrix(given)), w[np.ix_(index, index)], atol=1e-12)


def test_size_and_library(xp, pair):
    proximity, w = pair
    assert proximity.n == len(w)
    assert xp.owns(proximity.diagonal())


def test_diagonal(xp, pair):
    proximity, w = pair
    np.testing.assert_allclose(xp.numpy(proximity.diagonal()), np.diag(w), rtol=1e-14)


def test_product(xp, pair):
    proximity, w = pair
    v = np.random.default_rng(1).normal(size=(N, 4))
    product = proximity.matmul(xp.array(v))
    assert xp.owns(product)
    np.testing.assert_allclose(xp.numpy(product), w @ v, rtol=1e-12, atol=1e-13)


def test_product_with_a_few_rows(xp, pair):
    proximity, w = pair
    rows = np.array([2, 9, 5])
    v = np.random.default_rng(1).normal(size=(3, 4))
    product = proximity.matmul(xp.array(v), xp.array(rows))
    np.testing.assert_allclose(xp.numpy(product), w[:, rows] @ v, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_block_moments(xp, pair, labels):
    proximity, w = pair
    k = int(labels.max()) + 1
    means, squares = proximity.block_moments(partition(xp, labels, k))
    for c, d, pairs in reference.blocks(labels):
        if d is not None:
            mean, _ = reference.mean_and_variance([w[i, j] for i, j in pairs])
            if pairs:
                np.testing.assert_allclose(xp.numpy(means)[c, d], mean, rtol=1e-12, atol=1e-14)
            expected = sum((w[i, j] - mean) ** 2 for i, j in pairs)
            np.testing.assert_allclose(xp.numpy(squares)[c, d], expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_square_distance(xp, pair, labels):
    proximity, w = pair
    k = int(labels.max()) + 1
    means = symmetric(np.random.default_rng(3), k)
    inside = labels >= 0
    off_diagonal = np.outer(inside, inside) & ~np.eye(N, dtype=bool)
    expected = ((w - means[np.ix_(labels, labels)]) ** 2)[off_diagonal].sum()
    found = proximity.square_distance(partition(xp, labels, k), xp.array(means))
    np.testing.assert_allclose(float(xp.numpy(found)), expected, rtol=1e-12)


def test_take(xp, pair):
    proximity, w = pair
    index = np.array([3, 0, 7, 8])
    taken = proximity.take(xp.array(index))
    assert taken.n == 4
    np.testing.assert_allclose(
        xp.numpy(taken.matmul(xp.array(np.eye(4)))), w[np.ix_(index, index)], rtol=1e-12
    )


def test_copy_has_its_own_storage(eager_xp, small_blocks):
    for maker in (dense, dense_float32):
        proximity, w = maker(eager_xp, np.random.default_rng(7))
        copy = proximity.copy()
        proximity.array[0, 0] = 99.0
        np.testing.assert_allclose(eager_xp.numpy(copy.diagonal()), np.diag(w))


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_blend_is_the_convex_combination(xp, small_blocks, alpha):
    rng = np.random.default_rng(5)
    w, past = symmetric(rng), symmetric(rng, 9)
    ids, past_ids = list("abcdefghijk"), list("kxbadycif")
    moves = align(tuple(ids), tuple(past_ids), xp.array([0.0]))
    formed = Dense(xp.array(w)).blend(Dense(xp.array(past)), xp.array(alpha), moves)
    expected = reference.blend(w, past, alpha, ids, past_ids)
    np.testing.assert_allclose(xp.numpy(formed.array), expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blend_keeps_the_dtype_and_can_overwrite_the_past(eager_xp, small_blocks, dtype):
    rng = np.random.default_rng(5)
    w, past = symmetric(rng).astype(dtype), symmetric(rng).astype(dtype)
    same = align(range(N), range(N), eager_xp.array([0.0]))
    now, before = Dense(eager_xp.array(w)), Dense(eager_xp.array(past))
    formed = now.blend(before, eager_xp.array(0.25), same)
    assert formed.array.dtype == now.array.dtype
    np.testing.assert_allclose(eager_xp.numpy(formed.array), 0.25 * past + 0.75 * w, rtol=1e-6)
    np.testing.assert_array_equal(eager_xp.numpy(before.array), past)
    written = now.blend(before, eager_xp.array(0.25), same, out=before)
    assert written.array is before.array
    np.testing.assert_array_equal(eager_xp.numpy(written.array), eager_xp.numpy(formed.array))


def test_blend_shares_the_products_of_its_parts(eager_xp):
    calls = []
    w, past = (Dense(eager_xp.array(symmetric(np.random.default_rng(s)))) for s in (0, 1))

    def counted(name, proximity):
        def matmul(v, rows=None):
            calls.append(name)
            return Dense.matmul(proximity, v, rows)

        return matmul

    object.__setattr__(w, "matmul", counted("W", w))
    object.__setattr__(past, "matmul", counted("past", past))
    both = Pair(w, past, align(range(N), range(N), eager_xp.array([0.0])))
    groups = both.group(partition(eager_xp, LABELS[0], 3))
    groups.at(both.blend(0.0)).rows(slice(0, N))
    assert calls == ["W"]  # without weight the past is not looked at
    for alpha in (0.1, 0.2, 0.3):
        groups.at(both.blend(alpha)).rows(slice(0, N))
    assert sorted(calls) == ["W", "past"]
