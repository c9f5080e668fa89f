"""Eigenpairs against a full decomposition by NumPy."""

import dataclasses
import math

import numpy as np
import pytest
from patches import replace_everywhere

import affect_xp as ax
from affect_xp.array.namespace import is_on_device, to_host
from affect_xp.clustering import eigen
from affect_xp.clustering.eigen import Operator, top_eigenpairs
from affect_xp.exceptions import InputError


def kernel(n, seed=0, drift=0.0):
    """Return a normalised Gaussian kernel matrix of points in four groups that have moved by `drift`."""
    rng = np.random.default_rng(seed)
    x = 2.5 * rng.normal(size=(4, 3))[rng.integers(4, size=n)] + rng.normal(size=(n, 3))
    x = x + drift * rng.normal(size=(n, 3))
    w = np.exp(-np.sum((x[:, None] - x[None]) ** 2, axis=2) / 2)
    s = w.sum(axis=1) ** -0.5
    return w * s[:, None] * s


def with_spectrum(values, seed=0):
    q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values),) * 2))[0]
    a = (q * values) @ q.T
    return (a + a.T) / 2


def operator(xp, a, dtype=None):
    return Operator.of(ax.Dense(xp.array(a, dtype=dtype)))


def top(a, r):
    values, vectors = np.linalg.eigh(a)
    return values[::-1][:r], vectors[:, ::-1][:, :r]


def assert_spans_top(vectors, a, r):
    expected = top(a, r)[1]
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-6)


@pytest.mark.parametrize("solver", ["full", "iterative"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_and_space(xp, solver, dtype):
    a = kernel(90).astype(dtype).astype(float)
    pairs = top_eigenpairs(operator(xp, a, dtype), 4, solver=solver)
    vectors = pairs.vectors if xp.name == "dask" else xp.numpy(pairs.vectors)
    np.testing.assert_allclose(pairs.values, top(a, 4)[0], atol=1e-10)
    assert_spans_top(vectors, a, 4)
    assert pairs.converged and pairs.residual < 1e-7
    assert (pairs.n_iter > 0) == (solver == "iterative")
    assert xp.name == "dask" or xp.owns(pairs.vectors)


def test_the_residual_is_what_it_says():
    a = kernel(200)
    pairs = top_eigenpairs(Operator.of(ax.Dense(a)), 5, solver="iterative")
    actual = np.linalg.norm(a @ pairs.vectors - pairs.vectors * pairs.values, axis=0).max()
    np.testing.assert_allclose(pairs.residual * pairs.values[0], actual, rtol=1e-3)


def test_last_vectors_are_a_good_start(eager_xp):
    a = kernel(300, drift=0.01)
    before = top_eigenpairs(operator(eager_xp, kernel(300)), 4, solver="iterative")
    cold = top_eigenpairs(operator(eager_xp, a), 4, solver="iterative")
    warm = top_eigenpairs(operator(eager_xp, a), 4, solver="iterative", start=before.vectors)
    assert warm.n_iter < cold.n_iter
    assert_spans_top(eager_xp.numpy(warm.vectors), a, 4)


def test_start_without_rows_for_new_objects():
    a = kernel(300)
    start = top(a, 4)[1].copy()
    start[::10] = 0
    pairs = top_eigenpairs(Operator.of(ax.Dense(a)), 4, solver="iterative", start=start)
    assert_spans_top(pairs.vectors, a, 4)


@pytest.mark.parametrize("width", [0, 1, 4, 9])
def test_start_of_any_width(width):
    a = kernel(120)
    start = np.zeros((120, width))
    pairs = top_eigenpairs(Operator.of(ax.Dense(a)), 4, solver="iterative", start=start)
    assert_spans_top(pairs.vectors, a, 4)


def test_start_of_vectors_that_depend_on_each_other():
    # Twelve vectors restricted to three objects.
    a, start = kernel(300), np.zeros((300, 12))
    start[:3] = np.random.default_rng(0).normal(size=(3, 12))
    pairs = top_eigenpairs(Operator.of(ax.Dense(a)), 12, solver="iterative", start=start)
    np.testing.assert_allclose(pairs.values, top(a, 12)[0], atol=1e-9)
    assert_spans_top(pairs.vectors, a, 12)


def test_start_that_is_exact_but_not_the_top():
    # New objects form a separate block: the old eigenvectors are still exact, but no longer the largest.
    old, new = kernel(80, seed=1), 3 * kernel(80, seed=2)
    a = np.block([[old, np.zeros((80, 80))], [np.zeros((80, 80)), new]])
    start = np.concatenate([top(old, 3)[1], np.zeros((80, 3))])
    pairs = top_eigenpairs(Operator.of(ax.Dense(a)), 3, solver="iterative", start=start)
    np.testing.assert_allclose(pairs.values, top(a, 3)[0], atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_a_vector_that_a_large_problem_did_not_start_from_is_found(monkeypatch, seed):
    # Fewer guards would be faster, but would miss it.
    monkeypatch.setattr(eigen, "RESCUE_SIZE", 100)
    rng, n = np.random.default_rng(seed), 600
    q = np.linalg.qr(rng.normal(size=(n, n // 3)))[0]
    a = (q * np.r_[0.95, 0.93, 0.92, 0.91, 0.9, np.linspace(0.4, -0.4, n // 3 - 5)]) @ q.T
    A = dataclasses.replace(Operator.of(ax.Dense((a + a.T) / 2)), top=1.0)
    pairs = top_eigenpairs(A, 5, solver="iterative", start=q[:, [0, 1, 2, 3, 5]], tol=0.01)
    np.testing.assert_allclose(pairs.values[4], 0.9, atol=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_guards_find_a_small_eigenvalue_in_a_few_steps(monkeypatch, seed):
    monkeypatch.setattr(eigen, "RESCUE_SIZE", 100)
    rng, n = np.random.default_rng(seed), 600
    q = np.linalg.qr(rng.normal(size=(n, n // 3)))[0]
    a = (q * np.r_[0.95, 0.93, 0.92, 0.91, 0.5, np.linspace(0.4, -0.4, n // 3 - 5)]) @ q.T
    A = dataclasses.replace(Operator.of(ax.Dense((a + a.T) / 2)), top=1.0)

    def last_value(guards):
        start = q[:, [0, 1, 2, 3, 5]]
        for t in range(5):
            pairs = top_eigenpairs(A, 5, solver="iterative", start=start, tol=0.01, seed=t)
            start = np.concatenate([pairs.vectors, pairs.guards], axis=1) if guards else q[:, [0, 1, 2, 3, 5]]
        return pairs.values[4]

    assert last_value(guards=False) < 0.45
    assert last_value(guards=True) > 0.49


@pytest.mark.parametrize("copies, k", [(2, 3), (4, 10), (8, 5)])
def test_repeated_eigenvalues_are_all_found(eager_xp, copies, k):
    block = with_spectrum(np.linspace(1, 0, 40))
    a = np.kron(np.eye(copies), block)
    complete = -(-k // copies) * copies  # all copies of the k-th value
    values = np.repeat(top(block, complete // copies)[0], copies)
    for solver in ("full", "iterative"):
        pairs = top_eigenpairs(operator(eager_xp, a), k, solver=solver)
        assert pairs.converged and len(pairs.values) == complete
        np.testing.assert_allclose(pairs.values, values, atol=1e-9)
        assert_spans_top(eager_xp.numpy(pairs.vectors), a, complete)


@pytest.mark.parametrize("solver", ["full", "iterative"])
@pytest.mark.parametrize(
    "values, k, kept",
    [
        (np.ones(60), 3, 0),  # all equal
        (np.zeros(60), 3, 0),
        (np.r_[3, 2, np.ones(58)], 4, 2),  # too many are tied with number 4
        (np.r_[3, 2, 2, 2, np.linspace(1, 0, 56)], 2, 4),
        (np.r_[-np.linspace(1, 2, 60)], 3, 3),  # all negative
        (np.r_[1, 0.999999, 0.999998, np.linspace(0.5, 0, 57)], 2, 2),  # close, and not tied
    ],
)
def test_spaces_are_complete(eager_xp, solver, values, k, kept):
    a = with_spectrum(values) if len(set(values)) > 1 else np.diag(values)
    pairs = top_eigenpairs(operator(eager_xp, a), k, solver=solver)
    assert pairs.converged
    np.testing.assert_allclose(pairs.values, np.sort(values)[::-1][:kept], atol=1e-9)
    assert tuple(pairs.vectors.shape) == (60, kept)


@pytest.mark.parametrize("solver", ["auto", "full", "iterative"])
@pytest.mark.parametrize("n, k", [(1, 1), (2, 1), (2, 2), (3, 2), (20, 19), (20, 20)])
def test_nearly_all_pairs(eager_xp, solver, n, k):
    a = with_spectrum(np.linspace(1, -1, n))
    pairs = top_eigenpairs(operator(eager_xp, a), k, solver=solver)
    np.testing.assert_allclose(pairs.values, top(a, k)[0], atol=1e-12)
    assert_spans_top(eager_xp.numpy(pairs.vectors), a, k)


@pytest.mark.parametrize("solver", ["full", "iterative"])
@pytest.mark.parametrize("k", [3, 38])
def test_known_vectors_are_not_returned(eager_xp, solver, k):
    a = with_spectrum(np.r_[9, 9, np.linspace(1, 0, 38)])
    null = top(a, 2)[1]
    known = dataclasses.replace(operator(eager_xp, a), null=eager_xp.array(null))
    pairs = top_eigenpairs(known, k, solver=solver)
    np.testing.assert_allclose(pairs.values, np.linspace(1, 0, 38)[:k], atol=1e-12)
    np.testing.assert_allclose(eager_xp.numpy(pairs.vectors).T @ null, 0, atol=1e-9)


@pytest.mark.parametrize("solver", ["full", "iterative"])
def test_scaled_operators(eager_xp, solver):
    w, s, e = kernel(150), np.linspace(1, 2, 150)[:, None], -np.linspace(0, 1, 150)[:, None]
    a = dataclasses.replace(operator(eager_xp, w), s=eager_xp.array(s), e=eager_xp.array(e))
    formed = s * w * s.T + np.diag(e[:, 0])
    pairs = top_eigenpairs(a, 4, solver=solver)
    np.testing.assert_allclose(pairs.values, top(formed, 4)[0], atol=1e-9)
    assert_spans_top(eager_xp.numpy(pairs.vectors), formed, 4)


def narrow_operator(a, seen):
    """Return an operator that prefers float32, and records the precision of its products."""

    def multiply(x):
        seen.append(x.dtype)
        return a.astype(x.dtype) @ x

    return Operator(len(a), a, multiply, top=1.0, thin_dtype=np.dtype(np.float32))


def largest_sine(found, expected):
    return np.linalg.norm(found - expected @ (expected.T @ found), 2)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_float32_serves_where_half_the_digits_are_enough(tol):
    a, seen = 0.9 * kernel(300), []
    quick = top_eigenpairs(narrow_operator(a, seen), 4, solver="iterative", tol=tol)
    assert set(seen) == {np.dtype(np.float32)}
    assert quick.converged and quick.vectors.dtype == np.float64
    values, expected = top(a, 5)
    asked = tol * (1 - values[4])
    assert np.linalg.norm(a @ quick.vectors - quick.vectors * quick.values, axis=0).max() < 1.1 * asked
    assert largest_sine(quick.vectors, expected[:, :4]) < 2 * asked / (values[3] - values[4])
    seen.clear()
    exact = top_eigenpairs(narrow_operator(a, seen), 4, solver="iterative")
    assert set(seen) == {np.dtype(np.float64)}  # full accuracy was requested
    assert exact.n_iter > quick.n_iter


def test_what_float32_cannot_give_is_found_in_wide_floats():
    a, seen = 0.9 * kernel(300), []
    found = top_eigenpairs(narrow_operator(a, seen), 4, solver="iterative", tol=1e-6)
    assert seen[0] == np.float32 and seen[-1] == np.float64
    assert found.converged and found.residual < 1e-6 and found.n_iter == len(seen)
    assert largest_sine(found.vectors, top(a, 4)[1]) < 1e-5


@pytest.mark.parametrize("scale", [1e-60, 1e60])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_numbers_beyond_the_range_of_float32_are_left_to_wide_floats(scale):
    a, seen = scale * kernel(300), []
    known = dataclasses.replace(narrow_operator(a, seen), top=2 * scale)
    found = top_eigenpairs(known, 4, solver="iterative", tol=1e-3)
    assert found.converged and seen[-1] == np.float64
    assert largest_sine(found.vectors, top(a, 4)[1]) < 1e-2


@pytest.mark.filterwarnings("ignore:.*encountered in")
def test_numbers_beyond_every_range_are_refused():
    with pytest.raises(InputError, match=r"too large or too small .* divide W by its largest entry"):
        top_eigenpairs(Operator.of(ax.Dense(1e300 * kernel(300))), 4, solver="iterative")


def test_exact_ties_are_all_found_from_float32():
    values = np.concatenate([[1.0, 0.9, 0.8, 0.8], np.linspace(0.5, 0.0, 146)])
    found = top_eigenpairs(narrow_operator(with_spectrum(values), []), 3, solver="iterative", tol=1e-3)
    np.testing.assert_allclose(found.values, values[:4], atol=1e-9)


def test_signs_do_not_depend_on_the_solver(eager_xp):
    full, iterative = (
        eager_xp.numpy(top_eigenpairs(operator(eager_xp, kernel(150)), 4, solver=solver).vectors)
        for solver in ("full", "iterative")
    )
    np.testing.assert_allclose(full, iterative, atol=1e-6)


def test_same_as_scipy(eager_xp):
    from scipy.sparse.linalg import lobpcg

    a, start = kernel(300), np.random.default_rng(0).normal(size=(300, 4))
    values, vectors = lobpcg(a, start, tol=1e-9, maxiter=200)
    found = top_eigenpairs(operator(eager_xp, a), 4, solver="iterative", start=eager_xp.array(start))
    np.testing.assert_allclose(found.values, values, atol=1e-9)
    np.testing.assert_allclose(largest_sine(eager_xp.numpy(found.vectors), vectors), 0, atol=1e-6)


def test_failure_is_reported_and_auto_recovers(monkeypatch):
    monkeypatch.setattr(eigen, "MAX_PRODUCTS", 5)
    path = np.eye(500, k=1) + np.eye(500, k=-1)
    failed = top_eigenpairs(Operator.of(ax.Dense(path)), 3, solver="iterative")
    assert not failed.converged and failed.residual > 1e-6 and failed.n_iter == 5
    assert np.all(np.isfinite(failed.vectors))
    rescued = top_eigenpairs(Operator.of(ax.Dense(path)), 3)
    assert rescued.converged and rescued.n_iter == 0
    np.testing.assert_allclose(rescued.values, 2 * np.cos(np.pi * np.arange(1, 4) / 501), atol=1e-12)


@pytest.mark.parametrize("tol", [0.01, 0.0])
def test_host_waits_once_for_each_product(eager_xp, monkeypatch, tol):
    sizes = []

    def counted(*arrays, reason):
        sizes.append(sum(math.prod(x.shape) for x in arrays))
        return to_host(*arrays, reason=reason)

    replace_everywhere(monkeypatch, "to_host", counted)
    a = dataclasses.replace(operator(eager_xp, kernel(150)), top=1.0)
    pairs = top_eigenpairs(a, 4, solver="iterative", tol=tol)
    on_device = is_on_device(a.like)
    # Residuals at the limit of precision are read, others are estimated; on the host they are known.
    assert len(sizes) <= pairs.n_iter + ((5 if tol == 0 else 0) if on_device else pairs.n_iter)
    assert max(sizes) <= (4 if on_device else 2) * (3 * 8) ** 2  # VᵀV, VᵀAV and (AV)ᵀAV


@pytest.mark.parametrize("dtype", [None, "float32"], ids=["float64", "float32"])
def test_residuals_estimated_from_products(monkeypatch, eager_xp, dtype):
    found = []
    judged = eigen._judged

    def compared(A, k, values, tol, estimated, squares):
        if estimated is not None:
            errors = np.abs(estimated - eager_xp.numpy(squares)[0])
            found.append(errors.max() / np.abs(values).max() ** 2)
        return judged(A, k, values, tol, estimated, squares)

    monkeypatch.setattr(eigen, "_judged", compared)
    monkeypatch.setattr(eigen, "is_on_device", lambda like: True)
    a = dataclasses.replace(operator(eager_xp, kernel(150)), top=1.0)
    if dtype is not None:
        a = dataclasses.replace(a, thin_dtype=eager_xp.xp.float32)
    pairs = top_eigenpairs(a, 4, solver="iterative", tol=0.01)
    assert pairs.converged and len(found) == pairs.n_iter
    assert max(found) <= eigen.ROUGH_SQUARE * (1e-7 if dtype else 2e-16)
    full = top_eigenpairs(a, 4, solver="full")
    np.testing.assert_allclose(pairs.values, full.values, rtol=1e-3)


@pytest.mark.parametrize("solver", ["full", "iterative"])
def test_a_number_is_read_with_the_first_products(eager_xp, solver):
    seen = []
    lowest = eager_xp.array(0.25)
    a = dataclasses.replace(operator(eager_xp, kernel(150)), lowest=lowest, check=seen.append)
    top_eigenpairs(a, 4, solver=solver)
    assert seen == [0.25]


def test_unknown_solver():
    with pytest.raises(ax.exceptions.InputError, match="solver must be one of 'auto', 'full', 'iterative'"):
        top_eigenpairs(Operator.of(ax.Dense(np.eye(2))), 1, solver="lanczos")
