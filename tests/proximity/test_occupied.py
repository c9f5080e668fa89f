"""Sparse graphs with many clusters: only occupied blocks are stored. The twin has arrays of all blocks."""

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp import partition
from affect_xp.affect.moments import mean_variances, moments_of
from affect_xp.array import namespace
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition
from affect_xp.proximity import Occupied, sparse
from affect_xp.proximity.sparse import Sparse

N, K = 60, 12


@pytest.fixture
def few_are_many(monkeypatch):
    """Return a function that makes two clusters many."""

    def apply():
        monkeypatch.setattr(partition, "MANY_CLUSTERS", 1)
        monkeypatch.setattr(namespace, "MANY_CLUSTERS", 1)
        monkeypatch.setattr(sparse, "MANY_CLUSTERS", 1)

    return apply


def graph(rng, n=N, mean=1.0, density=0.1):
    w = np.where(rng.random((n, n)) < density, mean + rng.random((n, n)), 0.0)
    return scipy.sparse.csr_array(np.triu(w) + np.triu(w, 1).T)


def labels_of(rng, n=N):
    labels = rng.integers(-1, K, n)
    labels[labels == 3] = 4  # 3 is empty
    labels[labels == 5] = 4
    labels[0] = 5  # 5 is a singleton
    return labels


@pytest.mark.parametrize("mean", [1.0, 1e6])
def test_block_moments(few_are_many, mean):
    rng = np.random.default_rng(0)
    w, labels = graph(rng, mean=mean), labels_of(rng)
    expected = ax.block_moments(w, labels, K)
    few_are_many()
    found = ax.block_moments(w, labels, K)
    np.testing.assert_allclose(found.means.toarray(), expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.variances.toarray(), expected.variances, rtol=1e-9)
    occupied = found.means.toarray() != 0
    np.testing.assert_array_equal(found.pair_counts.toarray()[occupied], expected.pair_counts[occupied])
    np.testing.assert_allclose(found.diagonal_means, expected.diagonal_means)
    np.testing.assert_allclose(found.diagonal_variances, expected.diagonal_variances)
    assert float(found.total_variance()) == pytest.approx(float(expected.total_variance()))


@pytest.mark.parametrize("correction", [None, "objects"])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
def test_forgetting_factor(few_are_many, correction, density):
    rng = np.random.default_rng(1)
    w, past, labels = graph(rng, density=density), graph(rng), labels_of(rng)
    expected = ax.forgetting_factor(w, past, labels, K, correction=correction)
    few_are_many()
    found = ax.forgetting_factor(w, past, labels, K, correction=correction)
    assert float(found) == pytest.approx(float(expected), rel=1e-10)


def test_mean_variances_of_occupied_blocks(few_are_many):
    rng = np.random.default_rng(2)
    w, given = Sparse(graph(rng)), Partition(labels_of(rng), K)
    groups = w.group(given)
    expected = mean_variances(groups, moments_of(groups))[0]
    few_are_many()
    groups = w.group(given)
    moments = moments_of(groups)
    found = moments.blocks.matrix(mean_variances(groups, moments)[0]).toarray()
    occupied = moments.blocks.matrix(moments.means).toarray() != 0
    np.testing.assert_allclose(found[occupied], expected[occupied], rtol=1e-9)


def test_products_with_memberships(few_are_many):
    rng = np.random.default_rng(3)
    w, given = Sparse(graph(rng)), Partition(labels_of(rng), K)
    expected = w.group(given)
    few_are_many()
    found = w.group(given)
    assert isinstance(found, Occupied)
    np.testing.assert_allclose(found.rows(slice(3, 40)), expected.rows(slice(3, 40)))
    np.testing.assert_allclose(found.own(), expected.own())


def steps_of(rng, n_steps=4):
    ids = np.arange(N)
    for t in range(n_steps):
        ids = np.concatenate([ids[3:], N + 3 * t + np.arange(3)])  # three leave, three come
        yield graph(rng, mean=0.0, density=0.3), ids


def by_degree(psi):
    return np.argsort(np.argsort(psi.matrix.sum(axis=0))) // 6 - 1


@pytest.mark.parametrize("clusterer", [by_degree, ax.KMeans(4), ax.Spectral(4)])
@pytest.mark.parametrize("options", [{}, {"init": "static"}, {"correction": "objects"}])
def test_affect(few_are_many, clusterer, options):
    def run():
        model = ax.Affect(clusterer, random_state=0, **options)
        for w, ids in steps_of(np.random.default_rng(4)):
            model.partial_fit(w, ids=ids)
        return model.history_

    expected = run()
    few_are_many()
    for found, record in zip(run(), expected, strict=True):
        # Ids of equally similar clusters may differ.
        pairs = set(zip(found.labels.tolist(), record.labels.tolist(), strict=True))
        assert len(pairs) == len(set(found.labels.tolist())) == len(set(record.labels.tolist()))
        np.testing.assert_allclose(found.alphas, record.alphas, rtol=1e-9)
        assert found.noise == pytest.approx(record.noise)


def test_forgetting_by_objects_is_refused(few_are_many):
    few_are_many()
    model = ax.Affect(by_degree, forgetting="objects")
    w, _ = next(steps_of(np.random.default_rng(5)))
    model.partial_fit(w)
    with pytest.raises(InputError, match="forgetting='global'"):
        model.partial_fit(w)


def test_no_array_of_all_blocks():
    """With 5,000 clusters a (k, k) array takes 200 MB, an (n, k) array 400 MB."""
    import tracemalloc

    rng, n, k = np.random.default_rng(6), 10_000, 5_000
    i, j = rng.integers(n, size=(2, 20_000))
    w = scipy.sparse.coo_array((np.ones(20_000), (i, j)), shape=(n, n)).tocsr()
    w, labels = w + w.T, np.arange(n) % k
    tracemalloc.start()
    try:
        alpha = ax.forgetting_factor(w, 2 * w, labels, correction="objects")
        ax.block_moments(w, labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 <= float(alpha) <= 1
    assert peak < 2e7
