"""Sums by label in one read, against products with the membership."""

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import InputError
from affect_xp.partition import UNCHANGED, Partition
from affect_xp.proximity import as_proximity, checks, dense, grouped, summed_proximity
from affect_xp.proximity.dense import label_sums as sums_of


def symmetric(n: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    w = np.random.default_rng(seed).normal(size=(n, n))
    return (w + w.T).astype(dtype)


def partition(n: int, k: int, *, complete: bool = True) -> Partition:
    labels = np.random.default_rng(1).integers(0 if complete else -1, k, n)
    return Partition(labels, k, 0 if complete else None)


@pytest.fixture(params=[2**18, 40])
def gathered(request, monkeypatch):
    """All rows at once, or few at a time."""
    monkeypatch.setattr(dense, "GATHERED_ENTRIES", request.param)
    monkeypatch.setattr(dense, "MIN_GATHERED_ROWS", 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (30, 1), (31, 4), (40, 25)])
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.usefixtures("gathered")
def test_sums_are_products_with_the_membership(n, k, dtype, complete):
    w, part, v = (
        symmetric(n, dtype),
        partition(n, k, complete=complete),
        np.random.default_rng(2).normal(size=n),
    )
    found, wide = sums_of(w, part, v, squares="blocks"), w.astype(np.float64)
    q, z = wide * wide * (1 - np.eye(n)), part.membership
    np.testing.assert_allclose(found.wz, wide @ z, atol=1e-13 * n)
    np.testing.assert_allclose(found.squares, z.T @ q @ z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.right, wide @ v, atol=1e-13 * n)
    np.testing.assert_allclose(found.down, wide.T @ v, atol=1e-13 * n)
    for squares in ("blocks", "total"):
        total = sums_of(w, part, squares=squares).square_sum
        np.testing.assert_allclose(total, (wide * wide).sum(), rtol=1e-12)


@pytest.mark.parametrize("complete", [True, False])
def test_row_sums_are_those_of_the_matrix(complete):
    w = symmetric(31)
    W = ax.Dense(w).with_sums(partition(31, 4, complete=complete), "none")
    assert W.sums is not None
    np.testing.assert_allclose(W.row_sums(), w.sum(axis=1), atol=1e-12)


def test_the_number_of_threads_does_not_change_the_sums(monkeypatch):
    w, part, found = symmetric(300), partition(300, 3), []
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(sums_of(w, part, np.ones(300), squares="blocks"))
    for name in ("wz", "squares", "square_sum", "right", "down"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_checked_array_knows_its_sums(dtype, order):
    w, part = np.asarray(symmetric(50, dtype), order=order), partition(50, 4)
    W, twin = summed_proximity(w, "W", part), as_proximity(w)
    assert W.array is w
    for found, expected in zip(W.group(part).moments(), twin.group(part).moments(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert W.group(part).is_multiplied and not W.group(partition(50, 5)).is_multiplied
    other = partition(50, 4, complete=False)
    np.testing.assert_allclose(W.group(other).moments()[1], twin.group(other).moments()[1], rtol=1e-9)


@pytest.mark.parametrize("squares", ["blocks", "total"])
def test_a_bad_array_is_refused_as_without_labels(squares):
    part = partition(30, 3)
    for i, j, value in [(3, 4, np.nan), (3, 4, np.inf), (5, 2, 7.0), (29, 0, 1e-6)]:
        w = symmetric(30)
        w[i, j] += value
        with pytest.raises(InputError) as expected:
            as_proximity(w, "past")
        with pytest.raises(InputError) as found:
            summed_proximity(w, "past", part, squares)
        assert str(found.value) == str(expected.value)


def test_rounding_is_not_asymmetry():
    w = symmetric(30)
    w[3, 4] *= 1 + 1e-9
    assert summed_proximity(w, "W", partition(30, 3)).n == 30


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_alpha_of_arrays_is_that_of_proximities(dtype):
    w, past, labels = (
        symmetric(60, dtype),
        symmetric(60, dtype, seed=5),
        partition(60, 5, complete=False).labels,
    )
    expected = ax.forgetting_factor(ax.Dense(w), ax.Dense(past), labels)
    np.testing.assert_allclose(ax.forgetting_factor(w, past, labels), expected, rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("complete", [True, False])
def test_many_clusters_are_summed_by_label(dtype, complete, monkeypatch):
    n, k = 200, 2 * max(dense.MIN_SUMMED_CLUSTERS.values())
    W, part, found = ax.Dense(symmetric(n, dtype)), partition(n, k, complete=complete), []
    for fewest in (1, n):
        monkeypatch.setattr(dense, "MIN_SUMMED_CLUSTERS", {4: fewest, 8: fewest})
        found.append([W.group(part).rows(slice(0, n)), *W.block_sums(part), W.block_squares(part)])
    for by_label, by_product in zip(*found, strict=True):
        np.testing.assert_allclose(by_label, by_product, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("ids", [None, "changed"])
def test_a_step_from_an_array_is_one_from_a_proximity(ids):
    rng = np.random.default_rng(3)
    x = [rng.normal(size=(40, 3)) + 4 * np.eye(3)[np.arange(40) % 3] for _ in range(4)]
    models = [ax.Affect(ax.KMeans(3), random_state=0, rescale=None) for _ in range(2)]
    for t, features in enumerate(x):
        names = None if ids is None else [f"{i + t}" for i in range(40)]
        models[0].partial_fit(features @ features.T, names)
        models[1].partial_fit(ax.Dense(features @ features.T), names)
        assert np.array_equal(models[0].labels_, models[1].labels_)
        np.testing.assert_allclose(models[0].alpha_, models[1].alpha_, rtol=1e-11)


def test_alpha_of_dense_is_one_pass_over_each_matrix(monkeypatch):
    rng = np.random.default_rng(0)
    w, past = (x + x.T for x in rng.normal(size=(2, 40, 40)))
    labels = rng.integers(-1, 4, 40)
    expected = ax.forgetting_factor(w, past, labels)
    read = []
    monkeypatch.setattr(dense, "label_sums", lambda w, *a, **k: read.append(w) or sums_of(w, *a, **k))
    found = ax.forgetting_factor(ax.Dense(w), ax.Dense(past), labels)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert [x is w for x in read] == [True, False] and read[1] is past


@pytest.fixture
def narrow(monkeypatch):
    """Rows of float32 are summed in float32, few at a time, however small W is."""
    monkeypatch.setattr(grouped, "MIN_NARROW", 1)
    monkeypatch.setattr(dense, "GATHERED_ENTRIES", 1000)


def in_blocks(n: int, k: int, mean: float, seed: int = 0) -> tuple[np.ndarray, Partition]:
    """Entries of spread 1 about a mean of each block, and a diagonal that is far larger."""
    rng, part = np.random.default_rng(seed), partition(n, k, complete=False)
    means, noise = rng.normal(size=(k + 1, k + 1)), rng.normal(size=(n, n)) / 2**0.5
    w = mean * (means + means.T)[np.ix_(part.labels, part.labels)] + noise + noise.T
    return w + np.diag(1000 * mean + 1000 * rng.random(n)), part


@pytest.mark.parametrize("mean", [0.0, 3.0, 300.0])
@pytest.mark.parametrize("unit", [1.0, 1e-12, 1e25])
@pytest.mark.usefixtures("narrow")
def test_sums_in_float32_are_relative_to_the_spread(mean, unit):
    w, part = in_blocks(200, 4, mean)
    w = (unit * w).astype(np.float32)
    W, twin = summed_proximity(w, "W", part), ax.Dense(w.astype(np.float64))
    assert W.sums is not None
    groups, wz = W.group(part), twin.array @ part.membership
    np.testing.assert_allclose(groups.rows(slice(0, 200)), wz, rtol=1e-6, atol=1e-5 * unit)
    for found, expected in zip(groups.moments(), twin.group(part).moments(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=3e-7, atol=3e-7 * unit)
    np.testing.assert_allclose(W.square_sum, np.sum(twin.array**2), rtol=1e-7)
    product = twin.array @ checks._probe_vector(200)
    for found in (W.sums.right, W.sums.down):
        np.testing.assert_allclose(found, product, rtol=1e-6, atol=1e-5 * unit * (1 + mean))


@pytest.mark.parametrize("mean", [0.0, 3.0, 300.0])
@pytest.mark.usefixtures("narrow")
def test_alpha_of_float32_within_1e_6(mean):
    (w, part), (past, _) = (in_blocks(200, 4, mean, seed) for seed in (0, 0))
    past = past + np.cos(np.add.outer(np.arange(200), np.arange(200)))
    w, past = w.astype(np.float32), past.astype(np.float32)
    found = ax.forgetting_factor(w, past, part.labels)
    expected = ax.forgetting_factor(w.astype(np.float64), past.astype(np.float64), part.labels)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("noise", [1e-3, 0.1])
@pytest.mark.usefixtures("narrow")
def test_alpha_of_float32_within_1e_6_after_moves(noise):
    """Little is left of sums from which the rows of moved objects are subtracted."""
    rng, labels = np.random.default_rng(0), np.arange(400) % 4
    models = [ax.Affect(ax.KMeans(4), random_state=0) for _ in range(2)]
    for _ in range(3):
        labels = np.where(rng.random(400) < 0.02, rng.integers(0, 4, 400), labels)
        e, distance = rng.normal(size=(400, 400)), np.abs(np.subtract.outer(labels, labels))
        w = (10.0 ** (-4 * distance) * (1 + noise * (e + e.T))).astype(np.float32)
        for model, dtype in zip(models, (np.float32, np.float64), strict=True):
            model.partial_fit(w.astype(dtype))
        np.testing.assert_allclose(models[0].alpha_, models[1].alpha_, rtol=1e-6)


@pytest.mark.usefixtures("narrow")
def test_a_run_in_float32_stays_near_one_in_float64():
    """Products, squares and Σψ̂² are updated from step to step."""
    rng = np.random.default_rng(0)
    models = [ax.Affect(ax.KMeans(3), random_state=0, rescale=None) for _ in range(2)]
    for _ in range(30):
        x = 2.5 * np.eye(3)[np.arange(90) % 3] + rng.normal(size=(90, 3))
        w = (x @ x.T).astype(np.float32)
        models[0].partial_fit(w)
        models[1].partial_fit(w.astype(np.float64))
        assert np.array_equal(models[0].labels_, models[1].labels_)
        np.testing.assert_allclose(models[0].alpha_, models[1].alpha_, rtol=1e-6)
        psi = models[0]._state.smoothed
        np.testing.assert_allclose(psi.square_sum, np.sum(psi.array.astype(np.float64) ** 2), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_blend_knows_its_squares(dtype, alpha, known, is_large):
    unit = np.finfo(dtype).max / 16 if is_large else dtype(1)
    w, psi = (symmetric(40, dtype, seed) * unit for seed in (0, 1))
    given = [x.astype(np.float64) for x in (w, psi)]
    with np.errstate(over="ignore"):
        sums = [float(np.sum(x * x)) if known else None for x in given]
        blend = ax.Dense(w, square_sum=sums[0]).blend(ax.Dense(psi, square_sum=sums[1]), alpha, UNCHANGED)
        expected = alpha * given[1] + (1 - alpha) * given[0]
        np.testing.assert_allclose(blend.array, expected, rtol=2e-5, atol=1e-5 * unit)
        np.testing.assert_allclose(blend.square_sum, np.sum(expected**2), rtol=1e-6)
    assert np.array_equal(blend.array, blend.array.T)
    if alpha in (0.0, 1.0):
        assert np.array_equal(blend.array, (w, psi)[int(alpha)])


def test_runs_are_updated_each_by_its_own_objects():
    W, rng = ax.Dense(symmetric(40)), np.random.default_rng(0)
    before, after = rng.integers(-1, 3, (2, 40, 5))
    groups = W.grouped(before, 3)
    assert W.updates_each_run
    found = groups.regrouped(after, np.arange(40)).rows(slice(0, 40))
    np.testing.assert_allclose(found, W.grouped(after, 3).rows(slice(0, 40)), atol=1e-12)


def test_the_first_step_sums_squares_with_products(monkeypatch):
    k, n, rng = max(dense.MIN_SUMMED_CLUSTERS.values()), 2500, np.random.default_rng(0)
    x = 9 * rng.normal(size=(k, 4))[np.arange(n) % k] + rng.normal(size=(n, 4))
    monkeypatch.setattr(ax.Dense, "block_squares", None)  # would be another pass
    model = ax.Affect(ax.KMeans(k), random_state=0).partial_fit(x @ x.T)
    monkeypatch.undo()
    moments = ax.block_moments(x @ x.T, model.labels_)
    np.testing.assert_allclose(model.history_[0].noise, moments.total_variance() ** 0.5 / n, rtol=1e-9)
    np.testing.assert_allclose(model.smoothed_.square_sum, np.sum((x @ x.T) ** 2), rtol=1e-11)
