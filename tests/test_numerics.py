"""α and labels do not depend on the units of proximities, even if these are very large or small."""

from fractions import Fraction

import numpy as np
import pytest
import reference
import scipy.sparse

import affect_xp as ax

N, K, N_STEPS = 12, 3, 4
# Powers of two, so that the bits are the same: about 1e-150 ... 1e150, and beyond.
EXPONENTS = (-660, -500, -250, 250, 500, 660)


def features(t):
    rng = np.random.default_rng(t)
    return 4 * np.eye(K)[np.arange(N) % K] + rng.normal(size=(N, K))


def products(t):
    x = features(t)
    return (x @ x.T + (x @ x.T).T) / 2


def dense(t, exponent):
    return products(t) * 2.0**exponent


def sparse(t, exponent):
    w = products(t)
    return scipy.sparse.csr_array(np.where(abs(w) > 2, w, 0) * 2.0**exponent)


def factored(t, exponent):
    return ax.Factored.from_features(features(t) * 2.0 ** (exponent // 2))


def weighted(t, exponent):
    return ax.Factored.from_features(features(t), np.full(K, 2.0**exponent))


def chunked(t, exponent):
    return pytest.importorskip("dask.array").from_array(dense(t, exponent), chunks=5)


MAKERS = (dense, sparse, factored, weighted, chunked)


def run(put, exponent, ids=None, **parameters):
    model = ax.Affect(ax.KMeans(K), random_state=0, **parameters)
    for t in range(N_STEPS):
        model.partial_fit(put(t, exponent), ids)
    return model


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("correction", [None, "objects"])
@pytest.mark.parametrize("put", MAKERS)
def test_units_do_not_matter(put, correction, exponent):
    usual, model = (run(put, e, correction=correction) for e in (0, exponent))
    np.testing.assert_allclose(model.history_.alpha, usual.history_.alpha, rtol=1e-10)
    for found, expected in zip(model.history_.labels, usual.history_.labels, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_on_every_library(eager_xp, exponent):
    usual, model = (run(lambda t, e: eager_xp.array(dense(t, e)), e) for e in (0, exponent))
    np.testing.assert_allclose(model.history_.alpha, usual.history_.alpha, rtol=1e-10)
    np.testing.assert_array_equal(eager_xp.numpy(model.labels_), eager_xp.numpy(usual.labels_))


def test_the_smoothed_proximities_keep_their_units():
    usual, model = (run(dense, e).smoothed_.array for e in (0, 660))
    np.testing.assert_allclose(model, usual * 2.0**660, rtol=1e-12)


@pytest.mark.parametrize("put", MAKERS[:3])
def test_objects_come_and_go_in_large_units(put):
    names = [range(N), range(3, N + 3), range(3, N + 3), range(4, N + 1)]
    usual, model = (ax.Affect(ax.KMeans(K), random_state=0) for _ in range(2))
    for t, ids in enumerate(names):
        some = np.arange(len(ids))
        usual.partial_fit(ax.as_proximity(put(t, 0)).take(some), ids)
        model.partial_fit(ax.as_proximity(put(t, 600)).take(some), ids)
    assert usual.alpha_ > 0
    np.testing.assert_allclose(model.history_.alpha, usual.history_.alpha, rtol=1e-10)
    np.testing.assert_array_equal(model.labels_, usual.labels_)


def test_units_that_change_between_steps():
    model = ax.Affect(ax.KMeans(K), random_state=0).fit([dense(0, 500), dense(1, 0), dense(2, -500)])
    assert all(0 <= alpha <= 1 for alpha in model.history_.alpha)
    assert np.all(np.isfinite(model.smoothed_.array))


@pytest.mark.parametrize("exponent", (0, *EXPONENTS))
@pytest.mark.parametrize("put", MAKERS)
def test_against_exact_arithmetic(put, exponent):
    labels = np.arange(N) % K
    w, past = (put(t, exponent) for t in (0, 1))
    exactly = [[[Fraction(float(x)) for x in row] for row in to_array(p)] for p in (w, past)]
    expected = reference.forgetting_factor(*(np.array(p, dtype=object) for p in exactly), labels)
    found = float(ax.forgetting_factor(w, past, labels))
    assert abs(found - expected) <= 1e-12 * expected


def to_array(w):
    if isinstance(w, ax.Factored):
        return w.to_dense().array
    return w.toarray() if scipy.sparse.issparse(w) else np.asarray(w)
