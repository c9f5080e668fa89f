"""Block moments against their definition, entry by entry."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.partition import as_partition

LABELS = [
    np.array([0, 0, 0, 1, 1, 2, 1, 0, 2]),
    np.array([0, 0, 0, 0, 0, 0, 1, 2, 2]),  # a singleton and a pair
    np.array([3, 3, 0, 0, 0, 3, 0, 3, 3]),  # empty clusters
    np.array([0, -1, 0, 1, -1, 1, 1, 0, 1]),
    np.zeros(9, dtype=int),
    np.arange(9),
]


def matrix(seed=0, n=9):
    w = np.random.default_rng(seed).normal(size=(n, n))
    return w + w.T


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_moments(eager_xp, small_blocks, labels):
    w, k = matrix(), int(labels.max()) + 1
    moments = ax.block_moments(eager_xp.array(w), eager_xp.array(labels))
    expected = reference.block_moments(w, labels, k)
    found = (moments.means, moments.variances, moments.diagonal_means, moments.diagonal_variances)
    some = np.asarray(eager_xp.numpy(moments.pair_counts)) > 0
    for mine, theirs in zip(found, expected, strict=True):
        assert eager_xp.owns(mine)
        mine = eager_xp.numpy(mine)
        if mine.ndim == 2:  # the mean of an empty block is never used
            mine, theirs = np.where(some, mine, 0), np.where(some, theirs, 0)
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shift", [0, 1e10])  # 1e10: most blocks lose digits
def test_blocks_that_lose_digits_are_summed_again(eager_xp, small_blocks, shift):
    labels = np.random.default_rng(0).integers(-1, 4, size=60)
    w = 1e6 * matrix(n=60) + shift
    for c, d in ((0, 0), (1, 2)):
        tight = np.outer(labels == c, labels == d)
        tight |= tight.T
        w[tight] = 1e6 + matrix(1, 60)[tight]
    w[np.arange(60), np.arange(60)] += 1e7
    with pytest.MonkeyPatch.context() as patch:
        if eager_xp.name == "numpy" and not shift:
            patch.delattr(ax.Dense, "centred_moments")  # which would read all of W
        moments = ax.block_moments(eager_xp.array(w), eager_xp.array(labels))
    means, variances, *_ = reference.block_moments(w, labels, 4)
    np.testing.assert_allclose(eager_xp.numpy(moments.means), means, rtol=1e-9)
    np.testing.assert_allclose(eager_xp.numpy(moments.variances), variances, rtol=1e-9)


@pytest.mark.parametrize("block", [(2, 1), (1, 2), (1, 1)])
def test_digits_may_be_lost_in_one_of_two_equal_blocks(block):
    W, partition = ax.Dense(matrix()), as_partition(LABELS[0], 9, np.empty(0))
    exact, lost = W.centred_moments(partition), np.zeros((3, 3), dtype=bool)
    lost[block] = True
    found = tuple(np.where(lost | lost.T, -1.0, x) for x in exact)
    np.testing.assert_allclose(W.with_centred(partition, found, lost), exact, rtol=1e-12)


def test_blocks_without_freedom_have_no_variance(eager_xp):
    moments = ax.block_moments(eager_xp.array(matrix(n=3)), eager_xp.array([0, 0, 1]))
    variances = eager_xp.numpy(moments.variances)
    assert variances[0, 0] == 0 and variances[1, 1] == 0 and variances[0, 1] > 0
    assert eager_xp.numpy(moments.diagonal_variances)[1] == 0


def test_empty_clusters_are_finite(eager_xp):
    moments = ax.block_moments(eager_xp.array(matrix()), eager_xp.array(np.zeros(9, dtype=int)), n_clusters=4)
    for values in vars(moments).values():
        assert np.all(np.isfinite(eager_xp.numpy(values)))


def test_total_variance(eager_xp):
    w, labels = matrix(), LABELS[0]
    _, variances, _, diagonal_variances = reference.block_moments(w, labels, 3)
    expected = sum(
        len(pairs) * (diagonal_variances[c] if d is None else variances[c, d])
        for c, d, pairs in reference.blocks(labels)
    )
    total = ax.block_moments(eager_xp.array(w), eager_xp.array(labels)).total_variance()
    np.testing.assert_allclose(float(eager_xp.numpy(total)), expected, rtol=1e-12)


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_any_partition(n, k, seed):
    rng = np.random.default_rng(seed)
    w, labels = matrix(seed, n), rng.integers(-1, k, size=n)
    moments = ax.block_moments(w, labels, n_clusters=k)
    means, variances, diagonal_means, diagonal_variances = reference.block_moments(w, labels, k)
    some = moments.pair_counts > 0
    np.testing.assert_allclose(moments.means[some], means[some], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moments.variances, variances, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moments.diagonal_means, diagonal_means, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(moments.diagonal_variances, diagonal_variances, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "labels has length 2, but there are 3 objects"),
        ([0, 1, -2], "labels must be 0 or more, or -1 for objects without a cluster, got -2"),
        ([0.0, 1.0, 1.0], "labels must be integers"),
        ([[0, 1, 1]], "labels must be one-dimensional"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ax.block_moments(np.eye(3), np.array(labels))


def test_too_few_clusters():
    with pytest.raises(ValueError, match="labels holds 2, but n_clusters=2 allows 0 to 1 only"):
        ax.block_moments(np.eye(3), [0, 1, 2], n_clusters=2)


@pytest.mark.parametrize("n_moved", [0, 1, 4, 20])
def test_squares_are_brought_up_to_date(eager_xp, small_blocks, n_moved):
    rng = np.random.default_rng(n_moved)
    w = rng.normal(size=(30, 30))
    w += w.T
    labels = rng.integers(-1, 4, size=30)
    W = ax.Dense(eager_xp.array(w))
    partitions = [as_partition(labels, 30, W.like, 4)]
    for _ in range(3):
        labels = labels.copy()
        labels[rng.permutation(30)[:n_moved]] = rng.integers(-1, 4, size=n_moved)
        partitions.append(as_partition(labels, 30, W.like, 4))
    groups = W.group(partitions[0])
    for partition in partitions:  # as in k-means: regrouping reuses the cached squares
        groups = groups.regrouped(partition.labels[:, None], eager_xp.array(np.arange(30)))
        for found, expected in zip(groups.moments(), W.centred_moments(partition), strict=True):
            np.testing.assert_allclose(eager_xp.numpy(found), eager_xp.numpy(expected), rtol=1e-9, atol=1e-9)
