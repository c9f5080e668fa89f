"""Counts of partitions, on every library."""

import numpy as np
import pytest

from affect_xp.array import namespace
from affect_xp.array.namespace import MANY_CLUSTERS
from affect_xp.partition import Partition

LABELS = [
    (np.array([0, 2, 2, -1, 0, 1]), 3),
    (np.array([-1, -1, -1, -1, -1, -1]), 1),
    (np.array([0, 0, 0, 0, 0, 0]), 4),  # empty clusters
]


@pytest.mark.parametrize(("labels", "k"), LABELS, ids=str)
def test_sizes(eager_xp, labels, k):
    sizes = eager_xp.numpy(Partition(eager_xp.array(labels), k).sizes)
    assert sizes.dtype == np.float64
    assert sizes.tolist() == [np.sum(labels == c) for c in range(k)]


@pytest.mark.parametrize(("labels", "k"), LABELS, ids=str)
@pytest.mark.parametrize(("others", "k_others"), LABELS, ids=str)
def test_objects_in_common(eager_xp, labels, k, others, k_others):
    one, other = Partition(eager_xp.array(labels), k), Partition(eager_xp.array(others), k_others)
    table = eager_xp.numpy(one.table(other))
    assert table.dtype == np.float64
    expected = [[np.sum((labels == c) & (others == d)) for d in range(k_others)] for c in range(k)]
    assert table.tolist() == expected


@pytest.mark.parametrize("k", [3, MANY_CLUSTERS + 1])
def test_totals(eager_xp, k):
    labels, values = np.array([0, 2, 2, -1, 0, 1]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    totals = eager_xp.numpy(Partition(eager_xp.array(labels), k).totals(eager_xp.array(values)))
    assert totals.tolist() == [17, 32, 6] + [0] * (k - 3)


@pytest.mark.parametrize(
    ("labels", "others", "expected"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),  # other numbers
        ([0, 0, 1, 1], [0, 1, 1, 1], 0.75),
        ([0, 0, 1, 1], [0, 0, 0, 0], 0.5),  # merged
        ([0, 0, 0, 0], [0, 0, 1, 1], 0.5),  # split
        ([0, 0, 1, -1], [0, 0, 1, 1], 1.0),  # objects without a label do not count
        ([-1, -1], [0, 0], 0.0),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_agreement(eager_xp, monkeypatch, labels, others, expected, many):
    if many:
        monkeypatch.setattr(namespace, "MANY_CLUSTERS", 0)
    a, b = (Partition(eager_xp.array(np.array(x)), max(1, max(x) + 1)) for x in (labels, others))
    assert a.agreement(b) == expected


def test_clusters_take_the_numbers_of_similar_ones(eager_xp):
    before, labels = [0, 0, 1, 1, 2, 2, -1, 0], [1, 1, 2, 2, 0, 0, 0, -1]
    before, now = (Partition(eager_xp.array(np.array(x)), 3) for x in (before, labels))
    found = eager_xp.numpy(now.numbered_like(before).labels)
    is_numpy = isinstance(now.labels, np.ndarray)
    np.testing.assert_array_equal(found, [0, 0, 1, 1, 2, 2, 2, -1] if is_numpy else labels)
    other = Partition(before.labels, 4)  # clusters of another number cannot be matched one to one
    np.testing.assert_array_equal(eager_xp.numpy(now.numbered_like(other).labels), labels)
