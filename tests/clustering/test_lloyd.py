"""Starts of k-means, and Lloyd's iteration against a naive one on the same starts."""

import numpy as np
import pytest
import reference
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.array.threads import own_threads
from affect_xp.clustering import lloyd as module
from affect_xp.clustering.kmeans import lloyd
from affect_xp.partition import UNCHANGED
from affect_xp.proximity import _factored_groups
from affect_xp.proximity.blend import Pair
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.sparse import Sparse


def clouds(rng, n=40, k=4, p=3):
    return rng.normal(size=(n, p)) + 2.0 * rng.normal(size=(k, p))[np.arange(n) % k]


def test_random_partitions_leave_no_cluster_empty():
    labels = module.random_partitions(ax.Dense(np.eye(7)), 5, 30, np.random.default_rng(0))
    assert labels.shape == (7, 30)
    for column in labels.T:
        assert set(column) == set(range(5))


def test_spread_partitions_draw_far_objects():
    x = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], 10, axis=0)
    x += np.random.default_rng(0).normal(size=x.shape)
    labels = module.spread_partitions(ax.Dense(x @ x.T), 3, 20, np.random.default_rng(1))
    truth = np.repeat([0, 1, 2], 10)
    assert all(ax.rand_index(column, truth) == 1.0 for column in labels.T)


@pytest.mark.parametrize("seed", range(3))
def test_greedy_centres_are_those_of_the_definition(eager_xp, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(25, 2))
    w, k, trials = x @ x.T, 5, 2 + int(np.log(5))
    labels = module.spread_partitions(ax.Dense(eager_xp.array(w)), k, 2, np.random.default_rng(9))
    draws = np.random.default_rng(9).random((k, 2, trials))
    for r, column in enumerate(eager_xp.numpy(labels).T):
        centres = reference.greedy_centres(w, np.argsort(np.diag(w)), draws[:, r, :])
        distance = np.diag(w)[:, None] - 2 * w[:, centres] + np.diag(w)[centres]
        np.testing.assert_array_equal(column, distance.argmin(axis=1))


@pytest.mark.parametrize("kind", ["dense", "float32", "features", "sparse"])
def test_starts_on_the_host_are_those_of_any_library(kind):
    x = np.random.default_rng(3).normal(size=(60, 3))
    w = (x @ x.T).astype(np.float32 if kind == "float32" else np.float64)
    W = {"features": Factored.from_features(x), "sparse": Sparse(scipy.sparse.csr_array(w))}.get(
        kind, ax.Dense(w)
    )
    order, draws = np.argsort(W.diagonal(), kind="stable"), np.random.default_rng(4).random((7, 5, 3))
    found = module._spread_on_host(W, order, draws)
    np.testing.assert_array_equal(found.T, module._spread(W, order, draws))


def test_the_number_of_threads_does_not_change_starts(monkeypatch):
    W = Factored.from_features(np.random.default_rng(5).normal(size=(200, 4)))
    found = []
    monkeypatch.setattr(module, "MIN_THREADED_ENTRIES", 0)
    for size in (1, 5):
        monkeypatch.setattr(module, "STARTS_PER_THREAD", size)
        with own_threads():
            found.append(module.spread_partitions(W, 8, 10, np.random.default_rng(6)))
    np.testing.assert_array_equal(*found)


def test_fewer_distinct_objects_than_centres():
    x = np.repeat([[1.0], [5.0]], 4, axis=0)
    assert set(ax.kmeans(x @ x.T, 3, rng=0).labels) == {0, 1, 2}  # one cluster contains a duplicate


def test_mixed_draws_are_half_uniform_and_half_by_weight(eager_xp):
    weight = np.repeat([1.0, 0.0, 50.0], [500, 400, 10])
    rng = np.random.default_rng(0)
    drawn = eager_xp.numpy(module.draw_mixed(eager_xp.array(weight), 20_000, rng))
    counts = np.bincount(np.repeat([0, 1, 2], [500, 400, 10])[drawn], minlength=3) / 20_000
    expected = np.array([500, 400, 10]) / 910 / 2 + np.array([500, 0, 500]) / 1000 / 2
    np.testing.assert_allclose(counts, expected, atol=0.02)


@pytest.fixture(params=["update the moved", "multiply again"])
def update(request, monkeypatch):
    if request.param == "multiply again":
        monkeypatch.setattr(module, "UPDATE_SHARE", -1.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_same_labels_as_the_naive_iteration(eager_xp, small_blocks, update, dtype):
    rng = np.random.default_rng(0)
    x = clouds(rng)
    w, start = (x @ x.T).astype(dtype), rng.integers(0, 4, size=40)
    start[:5] = -1
    result = ax.kmeans(eager_xp.array(w), 4, init=eager_xp.array(start))
    expected = reference.kmeans(w.astype(float), start, 4)
    assert eager_xp.owns(result.labels)
    np.testing.assert_array_equal(eager_xp.numpy(result.labels), expected)
    np.testing.assert_allclose(result.inertia, reference.inertia(w.astype(float), expected), rtol=1e-6)
    assert result.converged and result.moved and result.n_iter > 1


@settings(max_examples=60)
@given(st.integers(1, 14), st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
@example(n=12, k=2, seed=2**32 - 1, indefinite=False)
def test_any_start(n, k, seed, indefinite):
    rng = np.random.default_rng(seed)
    k = min(n, k)
    x = rng.integers(-3, 4, size=(n, 2)).astype(float)  # many ties
    w = x @ x.T if not indefinite else np.rint(4 * (s := rng.normal(size=(n, n))) + 4 * s.T)
    start = rng.integers(-1, k, size=n)
    result = ax.kmeans(w, k, init=start, max_iter=50)
    assert len(np.unique(result.labels)) == k  # no cluster is empty
    assert np.isfinite(result.inertia)
    np.testing.assert_allclose(result.inertia, reference.inertia(w, result.labels), rtol=1e-9, atol=1e-9)
    if result.is_fixed_point:  # no object is nearer to another centroid
        distance = reference.distances(w, result.labels, k)
        own = distance[np.arange(n), result.labels]
        assert np.all(own <= distance.min(axis=1) + 1e-9 * (1 + abs(w).max()))
    if not indefinite:  # no worse than the centroids of the start; after ties the twin may end elsewhere
        nearest = reference.distances(w, start, k).min(axis=1)
        assert result.inertia <= np.sum(nearest) + 1e-9 * (1 + abs(w).max())


def test_each_restart_converges_on_its_own(eager_xp, small_blocks):
    rng = np.random.default_rng(3)
    x = clouds(rng, n=60, k=6)
    w = x @ x.T
    starts = module.random_partitions(ax.Dense(w), 6, 8, np.random.default_rng(0))
    alone = [lloyd(ax.Dense(w).grouped(starts[:, [r]], 6), 300) for r in range(8)]
    best = min(alone, key=lambda result: result.inertia)
    together = ax.kmeans(eager_xp.array(w), 6, init="random", n_init=8, tol=0, rng=0)
    np.testing.assert_array_equal(eager_xp.numpy(together.labels), best.labels)
    assert together.n_iter >= best.n_iter
    assert len({result.n_iter for result in alone}) > 1  # they stop at different iterations


def test_identical_objects(eager_xp):
    for init in ("random", "k-means++", eager_xp.array([0, 0, 0, 0, 0])):
        result = ax.kmeans(eager_xp.array(np.ones((5, 5))), 3, init=init, rng=0)
        assert set(eager_xp.numpy(result.labels)) == {0, 1, 2}
        assert result.inertia == pytest.approx(0.0, abs=1e-12)


def test_an_emptied_cluster_takes_the_farthest_object(eager_xp):
    x = np.array([[0.0], [1.0], [2.0], [30.0], [100.0]])
    start = [0, 0, 0, 0, 0]  # cluster 1 is empty from the start
    result = ax.kmeans(eager_xp.array(x @ x.T), 2, init=eager_xp.array(start))
    np.testing.assert_array_equal(eager_xp.numpy(result.labels), [0, 0, 0, 0, 1])


def test_indefinite_matrix_that_goes_in_circles():
    rng = np.random.default_rng(0)
    stuck = None
    for _ in range(2000):
        w = rng.normal(size=(6, 6))
        w += w.T
        result = ax.kmeans(w, 3, init=rng.integers(0, 3, size=6), max_iter=300)
        if not result.converged:
            stuck = result
            break
    assert stuck is not None, "no example found: is the search wide enough?"
    assert stuck.n_iter < 300  # it gives up early
    np.testing.assert_allclose(stuck.inertia, reference.inertia(w, stuck.labels), rtol=1e-9)


def test_max_iter(eager_xp):
    x = clouds(np.random.default_rng(0))
    w = x @ x.T
    start = np.random.default_rng(1).integers(0, 4, size=40)
    result = ax.kmeans(eager_xp.array(w), 4, init=eager_xp.array(start), max_iter=1)
    assert not result.converged and result.n_iter == 1
    expected = reference.kmeans(w, start, 4, max_iter=1)
    np.testing.assert_array_equal(eager_xp.numpy(result.labels), expected)
    np.testing.assert_allclose(result.inertia, reference.inertia(w, expected), rtol=1e-10)


def test_tolerance_stops_early(eager_xp):
    x = np.random.default_rng(0).normal(size=(300, 2))  # no clusters: the iteration takes long
    w, start = x @ x.T, eager_xp.array(np.random.default_rng(1).integers(0, 8, size=300))
    exact = ax.kmeans(eager_xp.array(w), 8, init=start)
    early = ax.kmeans(eager_xp.array(w), 8, init=start, tol=0.05)
    assert early.converged and exact.converged
    assert early.n_iter < exact.n_iter
    assert exact.inertia < early.inertia < 1.5 * exact.inertia
    np.testing.assert_allclose(early.inertia, reference.inertia(w, eager_xp.numpy(early.labels)), rtol=1e-9)


def by_columns(rng, kind, n=300, k=5):
    """Proximities given by their columns, with overlapping clusters: k-means takes many iterations."""
    weights = np.array([1.0, 2.0, -0.1]) if kind == "indefinite" else None
    past, now = (Factored.from_features(5.0 + clouds(rng, n, k), weights) for _ in range(2))
    return Pair(now, past, UNCHANGED).blend(0.4) if kind == "blend" else now


@pytest.fixture(params=["few calls", "bounds"])
def search(request, monkeypatch):
    """Both ways to search for the nearest centroid."""
    if request.param == "bounds":
        monkeypatch.setattr(_factored_groups, "MIN_BOUNDED_WORK", 0)


@pytest.mark.parametrize("kind", ["features", "blend", "indefinite"])
@pytest.mark.parametrize("seed", range(4))
def test_columns_give_the_labels_of_the_matrix(small_blocks, update, search, kind, seed):
    rng = np.random.default_rng(seed)
    W = by_columns(rng, kind)
    start = rng.integers(-1, 5, size=300)
    dense = (W.formed() if kind == "blend" else W).to_dense()
    found, expected = ax.kmeans(W, 5, init=start), ax.kmeans(dense, 5, init=start)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_allclose(found.inertia, expected.inertia, rtol=1e-9)
    assert (found.n_iter, found.converged, found.moved) == (expected.n_iter, expected.converged, True)
    z = np.eye(5)[found.labels]
    np.testing.assert_allclose(found.groups.rows(slice(0, 300)), dense.array @ z, rtol=1e-9)


@pytest.mark.parametrize("kind", ["features", "blend", "indefinite"])
def test_several_starts_of_columns_are_those_of_the_matrix(update, search, kind):
    rng = np.random.default_rng(0)
    W = by_columns(rng, kind)
    W = W.formed() if kind == "blend" else W
    starts = rng.integers(-1, 5, size=(300, 3))
    columns, matrix = (lloyd(V.grouped(starts, 5), 300) for V in (W, W.to_dense()))
    np.testing.assert_array_equal(columns.labels, matrix.labels)
    assert (columns.n_iter, columns.converged) == (matrix.n_iter, matrix.converged)


def test_columns_fill_clusters_that_run_empty(small_blocks, search):
    x = np.concatenate([np.zeros((30, 1)), np.full((30, 1), 9.0), [[20.0]]])
    result = ax.kmeans(Factored.from_features(x), 3, init=np.where(x[:, 0] > 0, 1, 0))
    assert result.converged and result.inertia == pytest.approx(0.0, abs=1e-9)
    assert len(np.unique(result.labels)) == 3


def test_objects_that_stay_are_not_looked_at_again(monkeypatch):
    monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_BYTES", 2**12)
    monkeypatch.setattr(_factored_groups, "MIN_BOUNDED_WORK", 0)
    rng, n, seen = np.random.default_rng(0), 4000, []
    x = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [4.5, 0.2]], [1200, 1200, 1200, 400], axis=0)
    x += rng.normal(size=(n, 2)) + 100.0
    combined = _factored_groups.combined

    def watched(factors, which, b):
        rows = combined(factors, which, b)
        seen.append(rows.shape[0])
        return rows

    monkeypatch.setattr(_factored_groups, "combined", watched)
    start = np.repeat([0, 1, 2, 0], [1200, 1200, 1200, 400])
    result = ax.kmeans(Factored.from_features(x), 3, init=start)
    assert result.n_iter > 3 and sum(seen) < 2 * n


def test_threads_do_not_change_a_bit(monkeypatch, search):
    monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_BYTES", 2**12)
    results = []
    for n_threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        W = by_columns(np.random.default_rng(0), "blend", n=3000)
        results.append(ax.kmeans(W, 5, init=np.arange(3000) % 5))
    one, three = results
    np.testing.assert_array_equal(one.labels, three.labels)
    assert one.inertia == three.inertia
    everywhere = slice(0, 3000)
    np.testing.assert_array_equal(one.groups.rows(everywhere), three.groups.rows(everywhere))


# Features, initial labels and the number of clusters: one is empty, and objects have the same distance.
PAIRS = np.array([[-1.0], [1.0], [7.0], [9.0], [8.0]])
TIES = [
    (PAIRS, [0, 0, 1, 1, 1], 3),
    (PAIRS, [0, 0, 1, 1, 1], 4),
    (np.array([[0.3, 0.1], [0.1, 0.3], [0.2, 0.2], [5.0, 5.0], [5.1, 5.1]]), [0, 0, 0, 1, 1], 4),
    (np.eye(6) / 3, [0] * 6, 3),
    (np.array([[1e6], [-1.0], [1.0]]), [0, 1, 1], 3),  # the distant object stays
    (np.array([[2.0, 1.0], [-2.0, -1.0], [1.0, 2.0], [-1.0, -2.0]]), [-1] * 4, 2),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("x", "start", "k"), TIES)
def test_rounding_does_not_select_the_object_of_an_empty_cluster(eager_xp, x, start, k, dtype):
    rng, w = np.random.default_rng(0), x @ x.T
    expected = reference.kmeans(w, start, k, max_iter=1)
    last_digits = 1e-13 if dtype == np.float64 else 3e-8
    for _ in range(10):
        noise = 1 + last_digits * rng.uniform(-1, 1, size=w.shape)
        near = eager_xp.array((w * (noise + noise.T) / 2).astype(dtype))
        found = ax.kmeans(near, k, init=eager_xp.array(np.array(start)), max_iter=1)
        np.testing.assert_array_equal(eager_xp.numpy(found.labels), expected)


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-150, 1e150, 1e300])
def test_an_empty_cluster_is_filled_in_any_units(eager_xp, scale):
    x = np.array([[-1.0], [1.0], [7.0], [9.5]])
    found = ax.kmeans(eager_xp.array(scale * (x @ x.T)), 3, init=eager_xp.array(np.array([0, 0, 1, 1])))
    assert len(np.unique(eager_xp.numpy(found.labels))) == 3


@settings(max_examples=100, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(3, 40), st.booleans())
def test_empty_clusters_are_filled_on_the_host_as_on_any_library(seed, n, integral):
    rng, n_runs, k = np.random.default_rng(seed), 3, 6
    labels = rng.integers(0, rng.integers(1, k + 1), (n, n_runs))
    numbers = np.maximum(rng.integers(1, k + 1, n_runs), labels.max(axis=0) + 1)
    numbers = np.minimum(numbers, n)
    distance = rng.normal(size=(n, n_runs, k))
    distance = distance.round() if integral else distance  # with ties
    w_ii = rng.integers(1, 4, n).astype(float)
    labels = np.minimum(labels, numbers - 1)
    expected = module._repaired(labels, distance, w_ii, module.PARTS, numbers)
    own = np.take_along_axis(distance, labels[:, :, None], axis=2)[:, :, 0]
    found = module._repaired_on_host(labels, own, w_ii, module.PARTS, numbers)
    np.testing.assert_array_equal(found, expected)
    for r in range(n_runs):
        assert set(found[:, r]) == set(range(numbers[r]))
