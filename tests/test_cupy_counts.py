"""Operations of CuPy, counted by `cupy_cpu`: the real CuPy code executed on a CPU."""

import contextlib
import warnings

import numpy as np
import pytest

cupy_cpu = pytest.importorskip("cupy_cpu", reason="counts need CuPy running on the CPU")
cupy = pytest.importorskip("cupy")

from alphas import estimate  # noqa: E402

import affect_xp as ax  # noqa: E402
from affect_xp.clustering.base import RULES  # noqa: E402
from affect_xp.clustering.n_clusters import select  # noqa: E402
from affect_xp.exceptions import ConvergenceWarning  # noqa: E402
from affect_xp.partition import Partition, align  # noqa: E402
from affect_xp.proximity.grouped import Summed  # noqa: E402
from bench import _gpu_counts  # noqa: E402

N, K = 700, 4  # more than twice the objects on which starts of k-means are compared


def matrix(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3)) + 2 * rng.normal(size=(K, 3))[np.arange(N) % K]
    return ax.Dense(cupy.asarray((x @ x.T).astype(dtype)))


def counted(action):
    action()  # compile the kernels first
    with cupy_cpu.count() as count:
        result = action()
    return result, count


@pytest.fixture(autouse=True)
def many_blocks(monkeypatch):
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 40 * N * 8)


def test_alpha_and_blend_neither_wait_nor_copy():
    w, past, labels = matrix(0), matrix(1), Partition(cupy.asarray(np.arange(N) % K), K)
    same = align(range(N), range(N), w.like)
    alpha, count = counted(lambda: estimate(w, past, labels, labels))
    assert count.sync == count.d2h == 0, count.where
    assert count.largest < N * N * 4
    _, count = counted(lambda: w.blend(past, alpha, same, out=past))
    assert count.sync == count.d2h == 0, count.where
    assert count.largest < N * N * 4


def test_kmeans_waits_once_per_iteration():
    w = matrix(0)
    start = Partition(cupy.asarray(np.random.default_rng(0).integers(0, K, N)), K)
    result, count = counted(lambda: ax.kmeans(w, K, init=start))
    assert result.n_iter > 2
    assert count.d2h == result.n_iter, count.where
    assert count.largest < N * N * 4
    stopped, count = counted(lambda: ax.kmeans(w, K, init=start, max_iter=3, tol=0))
    assert not stopped.converged
    assert count.d2h == stopped.n_iter == 3, count.where


@pytest.mark.parametrize(("max_iter", "n_init"), [(1, 1), (3, 3), (5, "auto")])
def test_the_last_iteration_is_that_of_separate_reads(monkeypatch, max_iter, n_init):
    n, found = 120, []
    dense = [cupy.ascontiguousarray(matrix(t).array[:n, :n]) for t in range(3)]
    rough = cupy.asarray(np.random.default_rng(max_iter).normal(size=(40, 40)))
    for unread in (True, False):
        if not unread:
            monkeypatch.setattr(Summed, "moves_unread", False)
        values = []
        for w, k in ((dense[0], K), (rough + rough.T, 11)):  # the second is indefinite; clusters run empty
            start = np.arange(len(w)) ** 2 % k
            result = ax.kmeans(w, k, init=start, n_init=n_init, max_iter=max_iter, tol=0, rng=0)
            values += [result.labels.tolist(), result.groups.array.tolist()]
            values += [result.inertia, result.n_iter, result.converged, result.moved]
        model = ax.Affect(ax.KMeans(K, max_iter=max_iter, n_init=n_init), random_state=0)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            for t, w in enumerate(dense):
                model.partial_fit(w, range(5 * t, 5 * t + n))
        values += [model.alphas_, model.labels_.tolist(), model.smoothed_.array.tolist()]
        found.append(values)
    assert found[0] == found[1]


def test_a_step_copies_a_few_times_more_than_its_kmeans():
    model = ax.Affect(ax.KMeans(K), random_state=0).partial_fit(matrix(0).array).partial_fit(matrix(1).array)
    w = matrix(2).array
    with cupy_cpu.count() as count:
        model.partial_fit(w)
    record = model.history_[-1]
    # The check of W, the matching, and the α that ends the step.
    assert count.d2h <= record.n_iter + 3, count.where
    assert count.largest < N * N * 4  # the smoothed matrix is overwritten


def launches(count):
    return count.launch + count.gemm + count.blas + count.solver + count.sparse + count.sort


def graph(seed):
    rng = np.random.default_rng(seed)
    own = np.arange(N) % K
    links = np.triu(rng.random((N, N)) < np.where(own[:, None] == own, 0.1, 0.01), 1)
    return cupyx_sparse().csr_matrix(cupy.asarray((links | links.T).astype(np.float32)))


def cupyx_sparse():
    import cupyx.scipy.sparse

    return cupyx.scipy.sparse


# An iteration of Lloyd takes five launches, of two labellings of changed objects twelve; α takes nine.
STEPS = {
    "previous": (lambda t: matrix(t).array, 0, {"init": "previous"}, 75, 5),
    "auto": (lambda t: matrix(t).array, 0, {}, 110, 5),
    "objects come and go": (lambda t: matrix(t).array, 5, {}, 120, 12),
    "sparse": (graph, 0, {}, 260, 7),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_needs_few_launches(name):
    make, churn, options, fixed, by_iteration = STEPS[name]
    arrays = [make(t) for t in range(3)]

    def last_step(watch):
        model = ax.Affect(ax.KMeans(K), random_state=0, scale="none", rescale=None, **options)
        for t, w in enumerate(arrays):
            with watch if t == 2 else contextlib.nullcontext() as count:
                model.partial_fit(w, range(churn * t, churn * t + N))
        return model.history_[-1], count

    last_step(contextlib.nullcontext())  # compiles the kernels
    record, count = last_step(cupy_cpu.count())
    assert launches(count) <= fixed + by_iteration * record.n_iter, (launches(count), record.n_iter)


@pytest.mark.parametrize("method", ["single", "complete", "average", "ward"])
def test_a_round_of_linkage_needs_few_launches(method):
    x = np.random.default_rng(0).normal(size=(90, 3))
    d = cupy.asarray(np.linalg.norm(x[:, None] - x, axis=2))
    tree, count = counted(lambda: ax.linkage(d, method))
    assert tree.n_rounds >= 3
    assert launches(count) <= 12 * tree.n_rounds, (launches(count), tree.n_rounds)


@pytest.mark.parametrize("kind", _gpu_counts.SPECTRAL)
def test_a_spectral_step_needs_few_launches_and_waits(kind):
    # One wait for each product of the eigensolver; discretizing on the host takes one more.
    assert (count := _gpu_counts.count_spectral(kind, N)).met, count


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name, rules in RULES.items() for rule in rules])
def test_a_rule_for_the_number_of_clusters_costs_a_few_clusterings(name, rule):
    assert (count := _gpu_counts.count_rule(name, rule)).met, count


# Launches of a step with 12 clusters, at most, and bytes for each entry of W; its waits are counted below.
DENSE = {"previous": (120, 65), "auto": (300, 90)}


@pytest.mark.parametrize("init", DENSE)
def test_a_dense_step_is_within_its_goals(init):
    most_launches, most_bytes = DENSE[init]
    count = _gpu_counts.count_asked(400, init)
    assert count.launches <= most_launches, count
    assert _gpu_counts.ITEM * count.entries <= most_bytes * count.n**2, count
    # The check, the matching, and the α that ends the step. The sample and other α are read by k-means.
    assert count.waits <= count.lloyd + 3, count
    churn = _gpu_counts.count_asked(400, init, churn=8)
    assert churn.launches <= 250, churn
    # A new start of k-means is better on the sample, so that the iteration read with it is repeated.
    assert churn.waits <= churn.lloyd + 4, churn


def test_a_dense_step_needs_little_memory_beside_w_and_its_past():
    few, many = (_gpu_counts.count_asked(n, "auto").peak for n in (400, 500))
    at_10_000 = few + (many - few) / 100 * (10_000 - 400)  # arrays of shape (n, k)
    assert at_10_000 <= 0.03 * 2 * 4 * 10_000**2


def test_scores_of_all_numbers_of_clusters_are_read_together():
    w = matrix(0)
    parts = {k: Partition(cupy.asarray(np.arange(N) % k), k) for k in range(2, 9)}
    chosen, count = counted(lambda: select(w, "silhouette", 8, parts.__getitem__, kind="similarity"))
    assert launches(count) <= 10
    assert count.sync == 1, count.where
    host = {k: Partition(np.arange(N) % k, k) for k in parts}
    expected = select(ax.Dense(w.array.get()), "silhouette", 8, host.__getitem__, kind="similarity")
    assert chosen.scores == pytest.approx(expected.scores, rel=1e-9)


def test_sums_of_a_sparse_matrix_do_not_depend_on_the_order_of_threads(monkeypatch):
    def forbidden(number, values, n_numbers):
        raise AssertionError("atomic additions of floats")

    monkeypatch.setattr("affect_xp.proximity.sparse.sums_by_number", forbidden)
    w, past, labels = ax.Sparse(graph(0)), ax.Sparse(graph(1)), Partition(cupy.arange(N) % K, K, 0)
    means, _ = w.block_moments(labels)
    found = w.square_distance(labels, means)
    w.block_products(past, align(range(N), range(N), w.like), labels)
    for clusterer, forgetting in ((ax.KMeans(K), "objects"), (ax.Spectral("likelihood"), "global")):
        model = ax.Affect(clusterer, random_state=0, forgetting=forgetting)
        model.partial_fit(graph(0)).partial_fit(graph(1), range(5, N + 5))
    host = ax.Dense(graph(0).toarray().get())
    expected = host.square_distance(Partition(labels.labels.get(), K), means.get())
    np.testing.assert_allclose(float(found), expected, rtol=1e-10)
