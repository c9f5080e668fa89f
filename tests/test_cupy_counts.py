"""Operations of CuPy, counted by `cupy_cpu`: the real CuPy code executed on a CPU."""

import contextlib

import numpy as np
import pytest

cupy_cpu = pytest.importorskip("cupy_cpu", reason="counts need CuPy running on the CPU")
cupy = pytest.importorskip("cupy")

from alphas import estimate  # noqa: E402

import affect_xp as ax  # noqa: E402
from affect_xp.clustering.n_clusters import select  # noqa: E402
from affect_xp.partition import Partition, align  # noqa: E402

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


def test_a_step_copies_a_few_times_more_than_its_kmeans():
    model = ax.Affect(ax.KMeans(K), random_state=0).partial_fit(matrix(0).array).partial_fit(matrix(1).array)
    w = matrix(2).array
    with cupy_cpu.count() as count:
        model.partial_fit(w)
    record = model.history_[-1]
    # The check of W, the sample, the matching, and each α, which decides whether to stop.
    assert count.d2h <= record.n_iter + 3 + len(record.alphas), count.where
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


def similarities(t):
    x = np.random.default_rng(t).normal(size=(N, 3)) + 4 * np.eye(K, 3)[np.arange(N) % K]
    return cupy.asarray(np.exp(-np.sum((x[:, None] - x) ** 2, axis=2) / 8).astype(np.float32))


@pytest.mark.parametrize(("make", "most"), [(similarities, 600), (graph, 1000)], ids=["dense", "sparse"])
def test_a_spectral_step_discretizes_on_the_host(make, most):
    arrays = [make(t) for t in range(3)]
    for watch in (contextlib.nullcontext(), cupy_cpu.count()):
        model = ax.Affect(ax.Spectral(K), random_state=0, scale="none", rescale=None)
        model.partial_fit(arrays[0]).partial_fit(arrays[1])
        with watch as count:
            model.partial_fit(arrays[2])
    assert launches(count) <= most
    # Two for each product of the eigensolver, and some for each of the clusterings.
    assert count.sync <= 2 * model.history_[-1].n_iter + 24, count.where


def test_scores_of_all_numbers_of_clusters_are_read_together():
    w = matrix(0)
    parts = {k: Partition(cupy.asarray(np.arange(N) % k), k) for k in range(2, 9)}
    chosen, count = counted(lambda: select(w, "silhouette", 8, parts.__getitem__, kind="similarity"))
    assert launches(count) <= 10
    assert count.sync == 1, count.where
    host = {k: Partition(np.arange(N) % k, k) for k in parts}
    expected = select(ax.Dense(w.array.get()), "silhouette", 8, host.__getitem__, kind="similarity")
    assert chosen.scores == pytest.approx(expected.scores, rel=1e-9)
