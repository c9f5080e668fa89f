"""Names of clusters over time."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.tracking.matching import match_clusters, matching_weights, totals


@settings(max_examples=100)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_no_matching_is_better(k_before, k, seed):
    table = np.random.default_rng(seed).integers(0, 6, size=(k_before, k))
    names = match_clusters(table, np.arange(k_before) * 10, fresh=1000)
    common = sum(table[name // 10, c] for c, name in enumerate(names) if name < 1000)
    assert common == reference.best_matching(table)
    assert len(set(names.tolist())) == k


def test_greedy_is_not_enough():
    # Five clusters for which greedy matching gives 8 of 11.
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


# Names continue only if clusters are similar enough.


def labelled(table):
    """Return previous and current labels with the given number of objects in each pair of clusters."""
    table = np.asarray(table)
    pairs = np.argwhere(table >= 0).repeat(table.ravel(), axis=0)
    return pairs[:, 0], pairs[:, 1]


def kept(table, **rules):
    """Return the previous id of each current cluster, None for a new one."""
    before, now = labelled(table)
    matched = ax.match_labels(now, before, **rules)
    names = [int(matched[now == d][0]) for d in range(np.shape(table)[1])]
    assert len(set(names)) == len(names)
    return [name if name < np.shape(table)[0] else None for name in names]


def test_one_object_of_many_does_not_keep_an_id():
    # Cluster 2 keeps 1 of its 16 objects and gains 24 from cluster 1; the others join cluster 0.
    table = [[40, 0, 0], [0, 36, 24], [15, 0, 1]]
    assert kept(table) == [0, 1, None]
    assert kept(table, continuity=0.0, min_share=0.0) == [0, 1, 2]


def test_pairs_that_are_not_alike_do_not_distort_the_others():
    # Two objects of cluster 1 in the first cluster would pass the id of cluster 0 to its smaller half.
    table = [[31, 30, 0], [2, 0, 60], [0, 0, 200]]
    assert kept(table, continuity=0.0, min_share=0.0) == [1, 0, 2]
    assert kept(table) == [0, None, 2]


@pytest.mark.parametrize("m", range(2, 7))
def test_a_part_of_a_split_and_the_result_of_a_merge_keep_an_id(m):
    parts = np.full(m, 6)
    parts[1] += 1
    split = np.zeros((3, m + 2), dtype=int)
    split[0, :m], split[1, m], split[2, m + 1] = parts, 20, 9
    names = kept(split)
    assert names[1] == 0 and names[m:] == [1, 2] and names.count(None) == m - 1
    assert kept(split.T)[0] == 1  # the largest of the merged clusters


def test_a_cluster_in_seven_equal_parts_is_none_of_them():
    assert kept([[6] * 7]) == [None] * 7
    assert kept([[6] * 7], continuity=0.3).count(0) == 1


@pytest.mark.parametrize("share", [10, 20, 30, 50])
def test_turnover(share):
    k = 5
    table = np.full((k, k), share // 4)
    np.fill_diagonal(table, 100 - share // 4 * (k - 1))
    assert kept(table) == list(range(k))


@pytest.mark.parametrize("continuity, goes_on", [(0.4, True), (0.41, False)])
def test_at_the_threshold_an_id_goes_on(continuity, goes_on):
    table = np.ones((4, 4), dtype=int) + np.eye(4, dtype=int)  # two of five stay
    assert kept(table, continuity=continuity) == (list(range(4)) if goes_on else [None] * 4)
    assert kept(5 * np.eye(4, dtype=int), continuity=1.0) == list(range(4))


def test_clusters_that_swap_their_objects_swap_their_labels():
    assert kept([[2, 18, 0], [18, 2, 0], [0, 0, 9]]) == [1, 0, 2]


def test_of_equal_overlaps_the_more_similar_cluster_keeps_the_id():
    for order in ([0, 1, 2], [2, 1, 0]):
        table = np.array([[5, 5, 0], [0, 6, 9]])[:, order]
        assert [kept(table)[order.index(d)] for d in range(3)] == [0, None, 1]


@pytest.mark.parametrize(
    "table, expected",
    [
        ([[1]], [0]),
        ([[1, 0], [0, 1]], [0, 1]),
        ([[1, 1]], [0, None]),  # a pair splits
        ([[1], [1]], [0]),
        ([[1, 1], [1, 1]], [0, 1]),  # half of a pair exceeds 0.4
        ([[2, 1, 0], [0, 2, 1], [1, 0, 2]], [0, 1, 2]),  # two of three stay
        ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], [None] * 3),  # one of three stays
    ],
)
def test_tiny_clusters(table, expected):
    assert sorted(kept(table), key=str) == sorted(expected, key=str)


class TestObjectsThatComeAndGo:
    """Only common objects are compared; they must be a sufficient share of the smaller cluster."""

    @pytest.mark.parametrize("n_common, goes_on", [(2, False), (4, False), (5, True), (50, True)])
    def test_few_are_left_among_newcomers(self, n_common, goes_on):
        before, now = range(50), [*range(n_common), *range(100, 150 - n_common)]
        matched = ax.match_labels([0] * 50, [0] * 50, ids=now, previous_ids=before)
        assert (matched[0] == 0) == goes_on

    @pytest.mark.parametrize("big_first", [True, False])
    def test_two_of_two_are_all_there_is(self, big_first):
        ids = [range(50), range(2)] if big_first else [range(2), range(50)]
        matched = ax.match_labels([0] * len(ids[1]), [0] * len(ids[0]), ids=ids[1], previous_ids=ids[0])
        assert matched[0] == 0

    def test_objects_of_no_cluster_are_not_common(self):
        # One object of 16 is in a cluster at both steps; the other current members were noise before.
        before = np.array([0] * 16 + [-1] * 24)
        now = np.array([0] + [-1] * 15 + [0] * 24)
        assert ax.match_labels(now, before)[0] == 1
        assert ax.match_labels(now, before, min_share=0.0)[0] == 0


@pytest.mark.parametrize("name", ["continuity", "min_share"])
def test_thresholds_are_checked(name):
    with pytest.raises(ax.exceptions.InputError, match=f"{name} must be between 0 and 1, got 1.5"):
        ax.match_labels([0], [0], **{name: 1.5})


THRESHOLDS = st.integers(0, 10).map(lambda tenths: tenths / 10)


@st.composite
def cases(draw, largest=4):
    """Draw a table of common objects, the sizes of clusters, and thresholds."""
    k_before, k = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    numbers = st.integers(0, draw(st.sampled_from([1, 3, 12])))
    table = np.array(draw(st.lists(numbers, min_size=k * k_before, max_size=k * k_before))).reshape(
        k_before, k
    )
    others = st.integers(0, 30)
    sizes_before = table.sum(axis=1) + draw(st.lists(others, min_size=k_before, max_size=k_before))
    sizes = table.sum(axis=0) + draw(st.lists(others, min_size=k, max_size=k))
    return table, sizes_before, sizes, draw(THRESHOLDS), draw(THRESHOLDS)


def matched(table, sizes_before, sizes, continuity, min_share):
    """Return the matching, from columns to rows, by way of weights."""
    smaller = np.minimum.outer(sizes_before, sizes)
    weights = matching_weights(table, *totals(table), smaller, continuity, min_share)
    names = match_clusters(weights, np.arange(len(table)), fresh=len(table))
    return {d: int(name) for d, name in enumerate(names) if name < len(table)}


def worth(table, matching):
    """Return the number of common objects, then the similarity of clusters."""
    out, into = totals(table)
    pairs = [(c, d) for d, c in matching.items()]
    return (
        sum(int(table[p]) for p in pairs),
        round(sum(table[c, d] / np.sqrt(out[c, 0] * into[0, d]) for c, d in pairs), 9),
    )


@settings(max_examples=300)
@given(cases())
def test_the_matching_is_the_best_over_the_pairs_that_may_be(case):
    table = case[0]
    allowed = reference.may_go_on(*case)
    found = matched(*case)
    assert all(allowed[c][d] for d, c in found.items())
    assert worth(table, found) == max(worth(table, m) for m in reference.matchings(allowed))


@settings(max_examples=200)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_clusters_does_not_matter(case, random):
    table, sizes_before, sizes, *rules = case
    rows, columns = (random.sample(range(n), n) for n in table.shape)
    found = matched(table[rows][:, columns], sizes_before[rows], sizes[columns], *rules)
    found = {columns[d]: rows[c] for d, c in found.items()}
    assert worth(table, found) == worth(table, matched(*case))
    best = worth(table, found)
    if sum(worth(table, m) == best for m in reference.matchings(reference.may_go_on(*case))) == 1:
        assert found == matched(*case)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_objects_does_not_matter(case, random):
    before, now = labelled(case[0])
    order = np.array(random.sample(range(len(now)), len(now)), dtype=int)
    rules = {"continuity": case[3], "min_share": case[4]}
    there = np.array(
        random.sample(range(len(now)), len(now)), dtype=int
    )  # the previous objects, in another order
    names = ax.match_labels(now[order], before[there], order, there, **rules)
    np.testing.assert_array_equal(names, ax.match_labels(now, before, **rules)[order])
