"""Names of clusters over time."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.matching import match_clusters


@settings(max_examples=100)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_no_matching_is_better(k_before, k, seed):
    table = np.random.default_rng(seed).integers(0, 6, size=(k_before, k))
    names = match_clusters(table, np.arange(k_before) * 10, fresh=1000)
    common = sum(table[name // 10, c] for c, name in enumerate(names) if name < 1000)
    assert common == reference.best_matching(table)
    assert len(set(names.tolist())) == k


def test_greedy_is_not_enough():
    # Five clusters where taking the largest overlap first gives 8 of 11.
    table = np.diag([0, 0, 0, 0, 0])
    table[0, 0], table[0, 1], table[1, 0] = 3, 2, 3
    table[2, 2], table[3, 3], table[4, 4] = 2, 2, 2
    names = match_clusters(table, np.arange(5), fresh=5)
    assert sum(table[name, c] for c, name in enumerate(names) if name < 5) == 11


def test_clusters_without_a_common_object_get_fresh_names():
    names = match_clusters(np.array([[3, 0, 0], [0, 0, 0]]), np.array([4, 7]), fresh=9)
    assert names.tolist() == [4, 9, 10]


def test_many_clusters_are_quick():
    k = 200
    order = np.random.default_rng(0).permutation(k)
    table = np.zeros((k, k), dtype=int)
    table[order, np.arange(k)] = 5
    np.testing.assert_array_equal(match_clusters(table, np.arange(k), k), order)


def test_labels(eager_xp):
    matched = ax.match_labels(eager_xp.array([1, 1, 0, 0, 2]), eager_xp.array([0, 0, 1, 1, 1]))
    assert eager_xp.owns(matched)
    assert eager_xp.numpy(matched).tolist() == [0, 0, 1, 1, 2]


def test_labels_of_other_objects():
    matched = ax.match_labels([0, 0, 1, 1, -1], [5, 5, 3], ids=list("cxabd"), previous_ids=list("abc"))
    assert matched.tolist() == [3, 3, 5, 5, -1]


def test_nothing_in_common():
    assert ax.match_labels([0, 1], [0, 1], ids="ab", previous_ids="xy").tolist() == [2, 3]


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="pass ids and previous_ids"):
        ax.match_labels([0, 1], [0, 1, 1])
