"""Agreement of partitions, and tracking error."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

import affect_xp as ax

labellings = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-1, 3), min_size=n, max_size=n)] * 2)
)


@given(labellings)
def test_rand_index_counts_pairs(two):
    a, b = map(np.array, two)
    assert ax.rand_index(a, b) == pytest.approx(reference.rand_index(a, b), abs=1e-15)


@given(labellings)
def test_as_scikit_learn(two):
    metrics = pytest.importorskip("sklearn.metrics")
    a, b = map(np.array, two)
    if len(a) > 1:
        assert ax.rand_index(a, b) == pytest.approx(metrics.rand_score(a, b))
        assert ax.adjusted_rand_index(a, b) == pytest.approx(metrics.adjusted_rand_score(a, b))


@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [0, 1, 2], [4, 4, 1]])
def test_a_partition_agrees_with_itself(labels):
    assert ax.rand_index(labels, labels) == 1.0
    assert ax.adjusted_rand_index(labels, labels) == 1.0


def test_random_labels_are_worth_nothing():
    rng = np.random.default_rng(0)
    scores = [ax.adjusted_rand_index(rng.integers(0, 3, 60), rng.integers(0, 3, 60)) for _ in range(200)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(200)


def test_large_counts_are_exact():
    a = np.repeat([0, 1], 2**17)
    assert ax.adjusted_rand_index(a, a) == 1.0 and ax.rand_index(a, a) == 1.0


def test_device_labels(eager_xp):
    assert ax.rand_index(eager_xp.array([0, 0, 1, 1]), eager_xp.array([1, 1, 0, 2])) == pytest.approx(5 / 6)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="of one length, got shapes"):
        ax.rand_index([0, 1], [0, 1, 1])


def test_tracking_error(eager_xp, small_blocks):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(9, 9)), rng.normal(size=(9, 9))
    expected = ((a - b) ** 2).sum()
    assert ax.tracking_error(eager_xp.array(a), eager_xp.array(b)) == pytest.approx(expected)
    assert ax.tracking_error(ax.Dense(eager_xp.array(a)), eager_xp.array(b)) == pytest.approx(expected)


def test_tracking_error_shapes_must_agree():
    with pytest.raises(ValueError, match="of one shape"):
        ax.tracking_error(np.eye(2), np.eye(3))
