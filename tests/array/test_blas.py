"""Products with thin matrices equal plain ones, for any shape and number of threads."""

import numpy as np
import pytest

from affect_xp.array import blas
from affect_xp.array import threads as module

SHAPES = [
    (1, 1, 1),
    (30, 20, 3),
    (700, 700, 12),
    (2100, 2100, 2),
    (1000, 3000, 16),
    (1000, 3000, 15),
    (500, 2100, 4),
    (5001, 90, 13),
    (300, 5000, 41),
]


@pytest.fixture(params=["one thread", "three threads"])
def threads(request, monkeypatch):
    """Use one thread, or three."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1" if request.param == "one thread" else "3")
    module._forget()
    with module.own_threads():
        yield
    module._forget()


def draw(*shape, dtype):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m", "c"), SHAPES)
def test_times(n, m, c, dtype, threads):
    w, x = draw(n, m, dtype=dtype), draw(m, c, dtype=dtype)
    found = blas.times(w, x)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, w.astype(float) @ x, atol=100 * np.finfo(dtype).eps * m**0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n", "p", "c"), [(1, 1, 1), (50, 7, 3), (70_000, 12, 16), (300_001, 5, 2), (900, 1200, 3)]
)
def test_across(n, p, c, dtype, threads):
    a, b = draw(n, p, dtype=dtype), draw(n, c, dtype=dtype)
    found = blas.gram(a, b)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, a.astype(float).T @ b, atol=100 * np.finfo(dtype).eps * n**0.5)


@pytest.mark.parametrize("order", ["columns first", "every other row", "every other column"])
def test_arrays_of_any_strides(order):
    w, x = draw(1400, 1400, dtype=float), draw(1400, 24, dtype=float)
    w = {"columns first": w.T, "every other row": w[::2], "every other column": w[:, ::2]}[order]
    x = x[: w.shape[1], ::2]
    np.testing.assert_allclose(blas.times(w, x), w @ x, atol=1e-11)
    tall = draw(200_000, 16, dtype=float)[::2, ::2]
    np.testing.assert_allclose(blas.gram(tall, tall), tall.T @ tall, rtol=1e-11, atol=1e-9)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch):
    w, x, tall = draw(2000, 2000, dtype=float), draw(2000, 12, dtype=float), draw(300_000, 8, dtype=float)
    found = []
    for threads in "1235":
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        module._forget()
        with module.own_threads():
            found.append(blas.times(w, x).tobytes() + blas.gram(tall, tall).tobytes())
    module._forget()
    assert len(set(found)) == 1


@pytest.mark.parametrize("n", [4, 2**15])
@pytest.mark.parametrize("n_added", [30, 200, 1000])  # 1000: every row
@pytest.mark.parametrize(("dtype", "cached"), [(np.float64, 2**24), (np.float64, 0), (np.float32, 2**24)])
def test_added_rows(monkeypatch, dtype, cached, n_added, n):
    monkeypatch.setattr(blas, "CACHED_BYTES", cached)
    w, rng = draw(50, 70, dtype=dtype), np.random.default_rng(1)
    rows, numbers = rng.integers(0, 50, n_added), rng.integers(0, n, n_added)
    signs, expected = rng.choice([-1.0, 1.0], n_added), np.zeros((70, n))
    for row, number, sign in zip(rows, numbers, signs, strict=True):
        expected[:, number] += sign * w[row]
    np.testing.assert_allclose(blas.added_rows(w, rows, numbers, signs, n), expected, atol=1e-12)
