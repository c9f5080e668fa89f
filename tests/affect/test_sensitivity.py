"""The sensitivity of α to labels, against α for many labellings."""

import itertools

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.affect.sensitivity import _SpectralBound, alpha_is_insensitive
from affect_xp.alignment import align
from affect_xp.proximity import Pair
from affect_xp.proximity.sparse import Sparse


def graph(n, degree, k, seed, within=0.7):
    """Return a graph with k communities, and the community of each node."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    i, j = rng.integers(0, n, (2, n * degree // 2))
    mate = np.minimum(j - j % k + i % k, n - 1)
    j = np.where(rng.random(len(i)) < within, mate, j)
    half = scipy.sparse.coo_array((rng.uniform(0.5, 1.5, len(i)), (i, j)), shape=(n, n)).tocsr()
    return half + half.T, labels


def pair_of(now, past, ids=None):
    now, past = Sparse(now), Sparse(past)
    return Pair(now, past, align(range(now.n) if ids is None else ids, range(past.n), now.like))


def smallest_tolerance(pair, k):
    """Return the smallest tolerance at which α is known not to depend on labels."""
    return next(tol for tol in np.geomspace(1e-4, 1, 200) if alpha_is_insensitive(pair, k, tol))


@pytest.mark.parametrize("k", [2, 5])
def test_no_labels_change_alpha_by_more(k):
    (now, truth), (past, _) = graph(600, 12, k, seed=0), graph(600, 12, k, seed=1)
    rng = np.random.default_rng(2)
    labellings = [truth, np.zeros(600, dtype=int), *rng.integers(0, k, (10, 600))]
    labellings += [np.where(rng.random(600) < share, truth, labellings[2]) for share in (0.5, 0.9)]
    # Labels that follow the noise of W, and of the past.
    labellings += [ax.spectral(w, k, objective="average_association", rng=0).labels for w in (now, past)]
    alphas = [float(ax.forgetting_factor(now, past, labels, k)) for labels in labellings]
    tol = smallest_tolerance(pair_of(now, past), k)
    assert np.ptp(alphas) <= tol < 1
    assert tol < 0.4  # the bound is informative


def test_bounds_of_eigenvalues():
    w, _ = graph(300, 8, 3, seed=0)
    largest = np.linalg.eigvalsh(w.toarray())[-1]
    bound = _SpectralBound(Sparse(w))
    bounds = [bound.at(power) for power in (1, 2, 4)]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[-1] > largest
    assert bounds[0] == pytest.approx(w.sum(axis=1).max())


def test_what_is_not_known():
    (now, _), (past, _) = graph(600, 12, 2, seed=0), graph(600, 12, 2, seed=1)
    assert alpha_is_insensitive(pair_of(now, past), 2, 1.0)
    assert not alpha_is_insensitive(pair_of(now, past), 2, 0.0)
    assert not alpha_is_insensitive(pair_of(now, past, ids=range(1, 601)), 2, 1.0)  # different objects
    assert not alpha_is_insensitive(pair_of(-now, past), 2, 1.0)
    assert not alpha_is_insensitive(pair_of(scipy.sparse.csr_array((600, 600)), past), 2, 1.0)
    dense = Pair(ax.Dense(now.toarray()), ax.Dense(past.toarray()), align(range(600), range(600), now.data))
    assert not alpha_is_insensitive(dense, 2, 1.0)


def steps(n_steps=4, n=3000):
    return [graph(n, 10, 3, seed=seed)[0] for seed in range(n_steps)]


def test_a_sparse_step_solves_one_problem(monkeypatch):
    asked, cluster = [], ax.Spectral.cluster
    monkeypatch.setattr(
        ax.Spectral, "cluster", lambda self, W, call: asked.append(call.rough) or cluster(self, W, call)
    )
    model = ax.Affect(ax.Spectral(3), alpha_tol=0.05, random_state=0)
    paper = ax.Affect(ax.Spectral(3), alpha_tol=0.0, random_state=0)
    for w in steps():
        asked.clear()
        model.partial_fit(w)
        assert asked == [False] or len(model.history_) == 1
        asked.clear()
        paper.partial_fit(w)
        assert len(asked) > 1 or len(paper.history_) == 1
        assert model.alpha_ == pytest.approx(paper.alpha_, abs=0.05)
        assert ax.adjusted_rand_index(model.labels_, paper.labels_) > 0.98


def test_iterations_end_when_alpha_stays(eager_xp):
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(3, 2))[np.arange(60) % 3]
    xs = [centres + rng.normal(size=(60, 2)) for _ in range(6)]
    n_stopped = 0
    for x, y in itertools.pairwise(xs):
        pair = [eager_xp.array(z @ z.T) for z in (x, y)]
        a, b = (
            ax.Affect(ax.KMeans(3), init="previous", n_iter=6, alpha_tol=tol, random_state=0)
            .fit(pair)
            .alphas_
            for tol in (0.01, 0.0)
        )
        # α by iteration is the same until it changes by at most the tolerance.
        np.testing.assert_allclose(a, b[: len(a)], atol=1e-12)
        assert np.all(np.abs(np.diff(a)) > 0.01)
        if len(a) < len(b):
            assert abs(b[len(a)] - a[-1]) <= 0.01
            n_stopped += 1
    assert n_stopped


@pytest.mark.parametrize("tol", [-0.1, 2, "a"])
def test_bad_tolerances(tol):
    with pytest.raises((ValueError, TypeError), match="alpha_tol must be"):
        ax.Affect(ax.KMeans(2), alpha_tol=tol).partial_fit(np.eye(3))
