"""The same seed gives the same labels and α: in every run, thread count, chunking and array library.

On one library and number of threads, results are identical to the bit. Otherwise the order of summation
differs, and α may differ in the last digits; labels do not, unless two clusters are equally near to that
precision.
"""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
import threadpoolctl

import affect_xp as ax

K, N_STEPS = 3, 4
DIGITS = 1e-10  # tolerance of α for another order of summation


def steps(n):
    """Yield positive features and ids of some steps; a few objects come and go, others change groups."""
    for t in range(N_STEPS):
        rng = np.random.default_rng(t)
        ids = rng.permutation(np.arange(t * n // 20, t * n // 20 + n))
        groups = (ids + (ids % 10 == t)) % K
        x = np.abs(5 * np.eye(K)[groups] + rng.normal(size=(n, K)))
        yield x, [f"object {i}" for i in ids.tolist()]


def dots(x):
    return x @ x.T


def graph(x):
    w = x @ x.T
    return scipy.sparse.csr_array(np.where(w > 8, w, 0))


def distances(x):
    return np.sqrt(((x[:, None, :] - x[None, :, :]) ** 2).sum(axis=2))


PROBLEMS = {
    "k-means": (lambda: ax.KMeans(K), dots),
    "k-means++": (lambda: ax.KMeans(K, init="k-means++", n_init=3), dots),
    "k-means, k chosen": (lambda: ax.KMeans("silhouette", max_clusters=5), dots),
    "normalised cut": (lambda: ax.Spectral(K), dots),
    "ratio cut": (lambda: ax.Spectral(K, objective="ratio_cut"), dots),
    "association": (lambda: ax.Spectral(K, objective="average_association"), dots),
    "linkage": (lambda: ax.Linkage(K, method="average"), distances),
}
HELD_OTHERWISE = {
    "factored": (lambda: ax.KMeans(K), ax.Factored.from_features),
    "sparse": (lambda: ax.KMeans(K), graph),
    "sparse, normalised cut": (lambda: ax.Spectral(K), graph),
}
ALL = PROBLEMS | HELD_OTHERWISE


def results(problem, n, put=lambda w: w, numpy=np.asarray):
    """Return labels and α by step."""
    clusterer, observed = ALL[problem]
    model = ax.Affect(clusterer(), random_state=7)
    for x, ids in steps(n):
        model.partial_fit(put(observed(x)), ids)
    return [(numpy(record.labels).tolist(), record.alphas) for record in model.history_]


def agree(found, expected):
    """Check that labels are equal, and α up to the last digits."""
    assert [labels for labels, _ in found] == [labels for labels, _ in expected]
    for (_, alphas), (_, expected_alphas) in zip(found, expected, strict=True):
        np.testing.assert_allclose(alphas, expected_alphas, rtol=0, atol=DIGITS)


def digest(n):
    """Return a fingerprint of all bits of the results of each problem."""
    found = {name: repr([(c, [a.hex() for a in alphas]) for c, alphas in results(name, n)]) for name in ALL}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()}


@pytest.mark.parametrize("problem", ALL)
def test_runs(problem):
    assert results(problem, 40) == results(problem, 40)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_libraries(eager_xp, problem):
    expected = results(problem, 40)
    found = results(problem, 40, eager_xp.array, eager_xp.numpy)
    agree(found, expected)
    assert found == results(problem, 40, eager_xp.array, eager_xp.numpy)


@pytest.mark.parametrize("problem", ["k-means", "k-means++"])
def test_chunkings(problem):
    da = pytest.importorskip("dask.array")
    expected = results(problem, 40)
    for chunks in (40, 20, 13, (7, 30, 3)):
        cut = (chunks, chunks) if isinstance(chunks, tuple) else chunks

        def put(w, cut=cut):
            return da.from_array(w, chunks=cut)

        found = results(problem, 40, put)
        agree(found, expected)
        assert found == results(problem, 40, put)  # for any order of threads


@pytest.mark.parametrize("problem", ALL)
def test_numbers_of_threads(problem):
    found = []
    for n_threads in (1, 2):
        with threadpoolctl.threadpool_limits(n_threads):
            found.append(results(problem, 300))
    agree(*found)


def test_processes():
    """Other processes, with other set orders (PYTHONHASHSEED), give the same bits."""
    code = "import json, test_repeatable; print(json.dumps(test_repeatable.digest(40)))"
    found = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        found.append(json.loads(result.stdout))
    assert found[0] == found[1] == digest(40)


def test_another_seed_may_end_otherwise():
    """If the seed were ignored, the tests above would prove nothing."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    ends = {
        tuple(ax.Affect(ax.KMeans(6), random_state=seed).partial_fit(x @ x.T).labels_.tolist())
        for seed in range(5)
    }
    assert len(ends) > 1
