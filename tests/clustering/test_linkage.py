"""Linkage against SciPy and against merging one closest pair at a time."""

import importlib
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patches import replace_everywhere
from reference import cluster_distance
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

import affect_xp as ax
from affect_xp.array.namespace import is_lazy, to_host
from affect_xp.clustering import linkage as module
from affect_xp.clustering.base import Call
from affect_xp.clustering.linkage import (
    METHODS,
    Dendrogram,
    Linkage,
    linkage,
)
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import align
from affect_xp.proximity import Pair, Proximity
from affect_xp.proximity.dissimilarity import to_dissimilarity, to_similarity

POWER = {"ward": 2}  # the power of heights in which clusters are compared


def naive(d, method):
    """Merge one closest pair at a time, with distances from the definition; return the heights."""
    clusters, heights = [[i] for i in range(len(d))], []
    while len(clusters) > 1:
        between = {
            (a, b): cluster_distance(d, clusters[a], clusters[b], method)
            for a in range(len(clusters))
            for b in range(a)
        }
        a, b = min(between, key=between.get)
        heights.append(between[a, b])
        clusters[b] += clusters.pop(a)
    return np.array(heights) ** (1 / POWER.get(method, 1))


def check_greedy(d, tree):
    """Assert that every merge joins a closest pair; with ties, any of them."""
    n = len(d)
    power = POWER.get(tree.method, 1)
    scale = 1e-12 * (1 + d.max() ** power) * (10 if power > 1 else 1)
    clusters = {i: [i] for i in range(n)}
    for r, (a, b, height, size) in enumerate(tree.merges):
        assert a < b
        names = list(clusters)
        between = [
            cluster_distance(d, clusters[x], clusters[y], tree.method)
            for p, x in enumerate(names)
            for y in names[:p]
        ]
        own = cluster_distance(d, clusters[a], clusters[b], tree.method)
        assert abs(own - height**power) <= scale and abs(min(between) - height**power) <= scale
        clusters[n + r] = clusters.pop(int(a)) + clusters.pop(int(b))
        assert len(clusters[n + r]) == size
    assert np.all(np.diff(tree.heights) >= 0)


def points(n, seed=0, p=3):
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, p))))


def scipys(d, method):
    return hierarchy.linkage(squareform(d, checks=False), method)


def as_on_a_device(x, on_cpu, on_device, reason):
    """Take the way of a device, except with arrays that are not computed yet."""
    return on_cpu(to_host(x, reason=reason)[0]) if is_lazy(x) else on_device(x)


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.fixture
def by_rounds(monkeypatch):
    """Use the device algorithm with every library."""
    monkeypatch.setattr("affect_xp.clustering.linkage.by_device", as_on_a_device)


@pytest.fixture(params=["as it is", "by rounds"])
def way(request, monkeypatch):
    """Use both the default algorithm of a library and that of a device."""
    if request.param == "by rounds":
        monkeypatch.setattr("affect_xp.clustering.linkage.by_device", as_on_a_device)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 90])
def test_same_merge_table_as_scipy(xp, way, small_blocks, method, n):
    d = points(n)
    tree = linkage(xp.array(d), method)
    expected = scipys(d, method)
    assert tree.merges.dtype == np.float64 and tree.method == method and tree.n == n
    np.testing.assert_array_equal(tree.merges[:, [0, 1, 3]], expected[:, [0, 1, 3]])
    np.testing.assert_allclose(tree.heights, expected[:, 2], rtol=1e-12)
    assert hierarchy.is_valid_linkage(tree.merges)


def test_heights_of_the_naive_twin(by_rounds, method):
    d = points(25, seed=1)
    np.testing.assert_allclose(linkage(d, method).heights, naive(d, method), rtol=1e-12)


def test_float32(eager_xp, way, small_blocks, method):
    d = points(80).astype(np.float32)
    d = (d + d.T) / 2
    tree = linkage(eager_xp.array(d), method)
    rtol = {"average": 1e-6, "ward": 1e-5}.get(method, 0)  # the others only compare values
    np.testing.assert_allclose(tree.heights, scipys(d.astype(float), method)[:, 2], rtol=rtol)
    assert hierarchy.is_valid_linkage(tree.merges) and np.all(np.diff(tree.heights) >= 0)


@settings(max_examples=80)
@given(st.integers(2, 12), st.integers(0, 2**32 - 1), st.sampled_from(METHODS), st.booleans())
def test_ties(n, seed, method, on_device):
    rng = np.random.default_rng(seed)
    d = np.triu(rng.integers(0, 4, size=(n, n)), 1).astype(float)
    d += d.T
    with pytest.MonkeyPatch.context() as patch:
        if on_device:
            patch.setattr("affect_xp.clustering.linkage.by_device", as_on_a_device)
        tree = linkage(d, method)
    check_greedy(d, tree)
    if method == "single":
        np.testing.assert_array_equal(tree.heights, scipys(d, method)[:, 2])
    for k in range(1, n + 1):
        assert len(np.unique(tree.cut(k))) == k


def test_single_linkage_with_many_ties(by_rounds):
    rng = np.random.default_rng(0)
    for n in range(2, 60):
        d = np.triu(rng.integers(0, 3, size=(n, n)), 1).astype(float)
        tree = linkage(d + d.T, "single")
        np.testing.assert_array_equal(tree.heights, scipys(d + d.T, "single")[:, 2])
        assert hierarchy.is_valid_linkage(tree.merges)


def test_ties_are_broken_alike_everywhere(eager_xp, by_rounds, method):
    d = np.rint(2 * points(60, p=2))
    np.testing.assert_array_equal(linkage(eager_xp.array(d), method).merges, linkage(d, method).merges)


@pytest.mark.parametrize("distance", [0.0, 1.0], ids=["all identical", "all equally far"])
@pytest.mark.parametrize("n", [2, 3, 64, 100])
def test_equal_distances_take_few_rounds(eager_xp, by_rounds, method, n, distance):
    tree = linkage(eager_xp.array(distance * (1 - np.eye(n))), method)
    np.testing.assert_array_equal(tree.heights, np.full(n - 1, distance))
    assert tree.n_rounds <= np.ceil(np.log2(n)) + 3
    assert hierarchy.is_valid_linkage(tree.merges)


def test_single_linkage_of_a_chain_takes_few_rounds(eager_xp, by_rounds):
    x = 1.1 ** np.arange(100.0)  # each is nearest to its predecessor: one pair of reciprocal neighbours
    d = np.abs(x[:, None] - x)
    tree = linkage(eager_xp.array(d), "single")
    np.testing.assert_allclose(tree.heights, scipys(d, "single")[:, 2], rtol=1e-12)
    assert tree.n_rounds <= 7
    assert linkage(d, "complete").n_rounds > 50


@pytest.mark.parametrize("method", ["complete", "average", "ward"])
def test_distances_stay_symmetric_to_the_last_bit(eager_xp, small_blocks, method):
    d = points(11)
    work = eager_xp.array(d.ravel())
    first, second = np.array([0, 2, 3, 5, 6, 8, 9]), np.array([1, 4, 3, 10, 7, 8, 9])
    m = np.arange(1.0, 12.0)
    plan = np.stack([first, second, m[first], m[second] * (first != second), d[first, second]])
    square = eager_xp.xp.reshape(work, (11, 11))
    work = module._merge(work, square, eager_xp.array(plan), eager_xp.array(m), method)
    merged = eager_xp.numpy(work)[:49].reshape(7, 7)
    np.testing.assert_array_equal(merged, merged.T)
    assert merged[2, 5] == d[3, 8]
    x, y, h = d[0, 8], d[1, 8], d[0, 1]  # clusters of 1, 2 and 9 objects
    expected = {"complete": max(x, y), "average": (x + 2 * y) / 3, "ward": (10 * x + 11 * y - 9 * h) / 12}
    np.testing.assert_allclose(merged[0, 5], expected[method])


@settings(max_examples=200)
@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_mean_is_not_rounded_below_the_smaller(x, y, m_a, m_b):
    pair = np.array([[m_a], [m_b], [0.0]], dtype=float)
    mean = module._mean(np.array([x]), np.array([y]), pair, np.ones(1))[0]
    assert mean >= min(x, y)
    np.testing.assert_allclose(mean, (m_a * x + m_b * y) / (m_a + m_b), rtol=1e-9, atol=1e-300)


def test_ward_heights_are_the_increase_of_the_sum_of_squares(eager_xp, way):
    x = np.random.default_rng(0).normal(size=(40, 3))
    tree = linkage(eager_xp.array(squareform(pdist(x))), "ward")
    total = np.sum((x - x.mean(axis=0)) ** 2)
    np.testing.assert_allclose(np.sum(tree.heights**2) / 2, total, rtol=1e-10)


def test_ward_of_dissimilarities_that_are_not_euclidean(eager_xp, by_rounds):
    rng = np.random.default_rng(3)
    d = np.triu(rng.exponential(size=(60, 60)), 1)
    d += d.T
    tree = linkage(eager_xp.array(d), "ward")
    np.testing.assert_allclose(tree.heights, scipys(d, "ward")[:, 2], rtol=1e-9)
    assert np.all(np.diff(tree.heights) >= 0)


def test_ward_of_distances_too_large_to_be_squared(way):
    with (
        np.errstate(all="ignore"),
        pytest.raises(InputError, match="method='ward' squares distances, but D contains"),
    ):
        linkage(1e200 * points(5), "ward")


def test_copies_of_objects(eager_xp, way, method):
    d = points(20)[np.ix_(np.arange(60) % 20, np.arange(60) % 20)]
    tree = linkage(eager_xp.array(d), method)
    np.testing.assert_array_equal(tree.heights[:40], np.zeros(40))
    factor = np.sqrt(3) if method == "ward" else 1.0  # each object has the weight of three
    np.testing.assert_allclose(tree.heights[40:], factor * linkage(d[:20, :20], method).heights, rtol=1e-12)
    np.testing.assert_array_equal(eager_xp.numpy(tree.cut(20)), np.arange(60) % 20)


def test_heights_do_not_depend_on_the_order_of_objects(way, method):
    d = points(70)
    order = np.random.default_rng(5).permutation(70)
    tree, permuted = linkage(d, method), linkage(d[np.ix_(order, order)], method)
    np.testing.assert_allclose(permuted.heights, tree.heights, rtol=1e-12)
    assert ax.rand_index(permuted.cut(6), tree.cut(6)[order]) == 1.0


def test_the_upper_triangle_counts(eager_xp, way, method):
    d = points(40)
    noisy = d + 1e-9 * np.tril(np.random.default_rng(0).normal(size=d.shape), -1)
    tree = linkage(eager_xp.array(noisy), method)
    np.testing.assert_allclose(tree.heights, scipys(d, method)[:, 2], rtol=1e-12)


def test_nothing_is_written_to_the_input(eager_xp, way, method):
    d = eager_xp.array(points(30))
    linkage(d, method)
    np.testing.assert_array_equal(eager_xp.numpy(d), points(30))


def test_one_object(xp, way, method):
    tree = linkage(xp.array([[0.0]]), method)
    assert tree.merges.shape == (0, 4) and tree.n == 1
    np.testing.assert_array_equal(xp.numpy(tree.cut(1)), [0])
    np.testing.assert_array_equal(xp.numpy(tree.cut_at(0.0)), [0])


def test_rounding_below_zero_is_zero(eager_xp, way, method):
    d = points(10)
    d[2, 7] = d[7, 2] = -1e-12
    assert linkage(eager_xp.array(d), method).heights[0] == 0.0


def test_cuts(xp, method):
    d = points(50)
    tree, table = linkage(xp.array(d), method), scipys(d, method)
    for k in (1, 2, 7, 49, 50):
        labels = tree.cut(k)
        assert xp.owns(labels)
        labels = xp.numpy(labels)
        assert ax.rand_index(labels, hierarchy.fcluster(table, k, "maxclust")) == 1.0
        _, first = np.unique(labels, return_index=True)
        assert len(first) == k and np.all(np.diff(first) > 0)  # numbered by first appearance
    for threshold in (0.0, 0.5, float(table[20, 2]), 1.5, 100.0):
        labels = xp.numpy(tree.cut_at(threshold))
        assert ax.rand_index(labels, hierarchy.fcluster(table, threshold, "distance")) == 1.0


def test_a_table_of_scipy_can_be_cut():
    np.testing.assert_array_equal(Dendrogram(scipys(points(9), "single"), "single").cut(9), np.arange(9))


@pytest.mark.parametrize("bad, error", [(-1.0, InputError), (np.nan, InputError), ("1", InputTypeError)])
def test_bad_thresholds(bad, error):
    with pytest.raises(error, match="distance_threshold must be"):
        linkage(points(4)).cut_at(bad)


def test_bad_arguments(eager_xp):
    d = eager_xp.array(points(4))
    with pytest.raises(InputError, match=r"method must be one of 'single', .*'ward', got 'centroid'"):
        linkage(d, "centroid")
    with pytest.raises(InputError, match="n_clusters=5 exceeds the number of objects, 4"):
        linkage(d).cut(5)
    with pytest.raises(
        InputError, match=r"D looks like similarities: D\[1, 1\] = -2.0, .* ax.to_dissimilarity"
    ):
        linkage(eager_xp.array(np.diag([1.0, -2.0])))
    with pytest.raises(InputError, match=r"D contains -3.0, .* ax.to_dissimilarity"):
        linkage(eager_xp.array([[0.0, -3.0], [-3.0, 0.0]]))
    with pytest.raises(InputError, match="D is not symmetric"):
        linkage(eager_xp.array([[0.0, 1.0], [2.0, 0.0]]))


def test_blends_and_other_representations(eager_xp, way):
    w, past = points(12), points(12, seed=1)
    parts = ax.Dense(eager_xp.array(w)), ax.Dense(eager_xp.array(past))
    blend = Pair(*parts, align(range(12), range(12), parts[0].like)).blend(0.25)
    expected = scipys(0.75 * w + 0.25 * past, "average")[:, 2]
    np.testing.assert_allclose(linkage(blend).heights, expected, rtol=1e-12)

    class Products(Proximity):
        """A representation that supports only products."""

        n, like = 12, parts[0].like[:1, 0]
        diagonal = block_moments = square_distance = take = blend = copy = None

        def matmul(self, v, rows=None):
            return parts[0].matmul(v, rows)

    np.testing.assert_allclose(linkage(Products()).heights, scipys(w, "average")[:, 2], rtol=1e-12)


def test_fastcluster_is_used_where_it_is_installed(monkeypatch, method):
    d = points(30)

    def fake(condensed, name, preserve_input):
        assert name == method and not preserve_input
        return hierarchy.linkage(condensed, name) + 1.0

    module = types.SimpleNamespace(linkage=fake)
    monkeypatch.setattr(
        importlib.import_module("affect_xp.clustering.linkage"), "_fastcluster", lambda: module
    )
    added = 0.0 if method == "single" else 1.0  # single linkage needs no library
    np.testing.assert_allclose(linkage(d, method).merges, scipys(d, method) + added)


def test_scipy_is_used_without_fastcluster(monkeypatch, method):
    monkeypatch.setattr(importlib.import_module("affect_xp.clustering.linkage"), "_fastcluster", lambda: None)
    np.testing.assert_allclose(linkage(points(30), method).merges, scipys(points(30), method))


def test_fastcluster_agrees(method):
    fastcluster = pytest.importorskip("fastcluster")
    d = points(100)
    np.testing.assert_allclose(fastcluster.linkage(squareform(d), method), scipys(d, method), rtol=1e-12)
    for small in (points(2), points(3), np.zeros((5, 5))):
        np.testing.assert_allclose(linkage(small, method).heights, scipys(small, method)[:, 2], rtol=1e-12)


def test_one_read_for_each_round(method):
    strict = pytest.importorskip("array_api_strict")
    from transfers import DEVICE, counted

    d = ax.Dense(strict.asarray(points(60), device=DEVICE))
    with (
        strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False),
        counted() as seen,
    ):
        tree = linkage(d, method)
    assert 2 < tree.n_rounds < 30
    assert seen.total() == tree.n_rounds + 1, seen.where  # plus the check of the diagonal


def test_the_working_copy_is_the_only_large_array(monkeypatch, method):
    torch = pytest.importorskip("torch")
    from large_arrays import Large, N

    def made_up(*arrays, reason):
        """Made-up host values: all checks pass, and every other cluster is nearest to its neighbour."""
        if "round" not in reason:
            return tuple(np.zeros(a.shape) for a in arrays)
        p = arrays[0].shape[0]
        return np.minimum(np.arange(p) ^ 1, p - 1).astype(float), np.arange(p) // 2 + 1.0

    replace_everywhere(monkeypatch, "to_host", made_up)
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 2_000 * N * 8)
    monkeypatch.setattr(module, "_roots", lambda parent: np.zeros_like(parent))
    monkeypatch.setattr(module, "_merge_table", lambda i, j, heights: np.zeros((N - 1, 4)))
    d = ax.Dense(torch.empty((N, N), dtype=torch.float32, device="meta"))
    with Large() as large:
        linkage(d, method)
    assert large.found == ([] if method == "single" else [("empty", (N * N,))])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_distances_from_dot_products_and_back(xp, small_blocks, dtype):
    x = np.random.default_rng(0).normal(size=(30, 4))
    x -= x.mean(axis=0)
    w, d, tolerance = (x @ x.T).astype(dtype), squareform(pdist(x)), 1e-12 if dtype is np.float64 else 3e-3
    for kind, expected in (("distance", d), ("squared_distance", d * d)):
        found = to_dissimilarity(xp.array(w), kind)
        assert xp.owns(found) and found.dtype == xp.array(w).dtype
        np.testing.assert_allclose(xp.numpy(found), expected, atol=tolerance)
        assert not np.any(np.diag(xp.numpy(found)))
        back = to_similarity(found, kind)
        np.testing.assert_allclose(xp.numpy(back), w, atol=4 * tolerance)
    np.testing.assert_allclose(
        linkage(to_dissimilarity(w)).heights, scipys(d, "average")[:, 2], rtol=10 * tolerance
    )


def test_complements(xp, small_blocks):
    w = 1 - points(20) / 100
    np.fill_diagonal(w, 0.5)  # the diagonal of similarities is ignored
    d = to_dissimilarity(xp.array(w), "complement")
    np.testing.assert_allclose(xp.numpy(d), points(20) / 100, atol=1e-15)
    np.testing.assert_allclose(
        xp.numpy(to_similarity(d, "complement")), np.where(np.eye(20), 1, w), atol=1e-15
    )


def test_conversions_of_a_proximity_give_one(eager_xp):
    d = ax.Dense(eager_xp.array(points(8)))
    back = to_dissimilarity(to_similarity(d))
    assert isinstance(back, ax.Dense)
    np.testing.assert_allclose(eager_xp.numpy(back.array), points(8), atol=1e-7)


def test_indefinite_similarities_have_no_negative_distances(eager_xp):
    w = eager_xp.array([[1.0, 3.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(
        eager_xp.numpy(to_dissimilarity(w, "squared_distance")), [[0, 0, 2], [0, 0, 2], [2, 2, 0]]
    )


def test_bad_conversions(eager_xp):
    w = eager_xp.array([[1.0, 3.0], [3.0, 1.0]])
    with pytest.raises(InputError, match="kind must be one of"):
        to_dissimilarity(w, "dot")
    with pytest.raises(InputError, match=r"W has entries from 1.0 to 3.0, but .* use kind='distance'"):
        to_dissimilarity(w, "complement")
    with pytest.raises(InputError, match="D looks like similarities"):
        to_similarity(w)
    with pytest.raises(InputError, match=r"D has entries from 0\.0 to 3\.0"):
        to_similarity(eager_xp.array([[0.0, 3.0], [3.0, 0.0]]), "complement")


def test_the_clusterer(eager_xp, way, method):
    d = points(30)
    table = scipys(d, method)
    proximity = ax.Dense(eager_xp.array(d))
    by_number, by_height = Linkage([4, 3], method=method), Linkage(distance_threshold=1.0, method=method)
    by_number.check()
    by_height.check()
    found = by_number.cluster(proximity, Call(t=1))
    assert found.partition.k == 3
    expected = hierarchy.fcluster(table, 3, "maxclust")
    assert ax.rand_index(eager_xp.numpy(found.partition.labels), expected) == 1.0
    found, expected = by_height.cluster(proximity), hierarchy.fcluster(table, 1.0, "distance")
    assert found.partition.k == expected.max()
    assert ax.rand_index(eager_xp.numpy(found.partition.labels), expected) == 1.0


def test_the_clusterer_in_affect(eager_xp, way):
    rng = np.random.default_rng(0)
    truth = np.arange(30) % 3
    steps = [squareform(pdist(4.0 * np.eye(3)[truth] + rng.normal(size=(30, 3)))) for _ in range(4)]
    model = ax.Affect(Linkage(3, method="average"), random_state=0).fit([eager_xp.array(d) for d in steps])
    assert eager_xp.owns(model.labels_)
    assert ax.rand_index(eager_xp.numpy(model.labels_), truth) > 0.9
    assert 0 < model.alpha_ < 1


@pytest.mark.parametrize("given", [{}, {"n_clusters": 2, "distance_threshold": 1.0}])
def test_the_clusterer_wants_one_of_two(given):
    with pytest.raises(InputError, match="give either n_clusters or distance_threshold"):
        Linkage(**given).check()


def test_the_clusterer_checks_its_parameters():
    with pytest.raises(InputError, match="method must be one of"):
        Linkage(2, method="centroid").check()
    with pytest.raises(InputTypeError, match="n_clusters must be an integer"):
        Linkage(2.5).check()
    with pytest.raises(InputError, match="distance_threshold must be 0 or more"):
        Linkage(distance_threshold=-1.0).check()
