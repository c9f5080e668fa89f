"""Features with labels: sums by label, distances, and sums of squares equal those of the definition."""

import numpy as np
import pytest
import scipy.spatial

from affect_xp.array import blas
from affect_xp.partition import UNCHANGED, Partition
from affect_xp.proximity import _bounds as bounds
from affect_xp.proximity import _columns as columns
from affect_xp.proximity import factored, grouped
from affect_xp.proximity._columns import Factor, Scatter, Spread, label_sums, project
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.grouped import Grouped, membership


@pytest.fixture(params=["by product", "by label"])
def summing(request, monkeypatch):
    """Multiply rows by Z, and add them by label."""
    monkeypatch.setattr(columns, "MIN_SUMMED_WORK", 0 if request.param == "by label" else 10**9)
    monkeypatch.setattr(columns, "SUMMED_ROWS", 7)


def factors(xp, rng, n=40):
    mask = rng.random(n).round()
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(n, 2)).astype(np.float32)
    return (Factor(xp.array(x)), Factor(xp.array(y), xp.array(mask)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_runs", [1, 3])
def test_sums_by_label_are_products_with_the_membership(eager_xp, small_blocks, summing, n_runs, weighted):
    rng = np.random.default_rng(0)
    u, labels = factors(eager_xp, rng), rng.integers(-1, 4, (40, n_runs))
    weights = rng.normal(size=40) if weighted else np.ones(40)
    z = membership(labels, 4, np.float64) * weights[:, None]
    rows = eager_xp.numpy(columns.rows_of(u, slice(0, 40)))
    given = eager_xp.array(weights) if weighted else None
    found = label_sums(u, eager_xp.array(labels), 4, weights=given)
    np.testing.assert_allclose(eager_xp.numpy(found), rows.T @ z, atol=1e-12)


def test_sums_of_some_rows_by_label(eager_xp, small_blocks, summing):
    rng = np.random.default_rng(1)
    u, labels, which = factors(eager_xp, rng), rng.integers(-1, 4, (9, 2)), rng.permutation(40)[:9]
    found = label_sums(u, eager_xp.array(labels), 4, eager_xp.array(which))
    z = eager_xp.array(membership(labels, 4, np.float64))
    np.testing.assert_allclose(
        eager_xp.numpy(found), eager_xp.numpy(project(u, z, eager_xp.array(which))), atol=1e-12
    )


@pytest.mark.parametrize("n", [5, 2**15 + 1])  # numbers that need more than 16 bits
def test_sums_by_number(n):
    rng = np.random.default_rng(2)
    w, numbers = rng.normal(size=(30, 4)), rng.integers(-1, n, (30, 2))
    expected = np.zeros((n, 4))
    for row, both in zip(w, numbers, strict=True):
        for number in both[both >= 0]:
            expected[number] += row
    np.testing.assert_allclose(blas.sums_by_number(w, numbers, n), expected, atol=1e-13)


def clustered(rng, k, n=600, q=6, offset=0.0):
    """Return objects about k centres, and labels of which a few are wrong."""
    labels = rng.integers(0, k, n)
    labels[:k] = np.arange(k)
    x = (3 * rng.normal(size=(k, q)))[labels] + rng.normal(size=(n, q)) + offset
    wrong = rng.random(n) < 0.1
    wrong[:k] = False
    labels[wrong] = rng.integers(0, k, int(wrong.sum()))
    return x, labels


def nearest(x, labels, k):
    """Return the nearest centroid of each object by the definition."""
    centroids = np.stack([x[labels == c].mean(axis=0) for c in range(k)])
    return scipy.spatial.distance.cdist(x, centroids).argmin(axis=1)


def found_nearest(x, labels, k, before=None):
    groups = Factored.from_features(x).grouped(labels[:, None], k)
    return groups.nearest(np.bincount(labels, minlength=k)[None, :].astype(float), groups.own(), before)


@pytest.mark.parametrize("offset", [0.0, 1e3])  # 1e3: no digit of a gap in single precision is right
@pytest.mark.parametrize("k", [3, bounds.MIN_NARROW_CLUSTERS, 90])
def test_nearest_centroids_in_single_precision_are_those_of_double(small_blocks, k, offset):
    x, labels = clustered(np.random.default_rng(3), k, offset=offset)
    found, _ = found_nearest(x, labels, k)
    np.testing.assert_array_equal(found[:, 0], nearest(x, labels, k))


def test_gaps_below_single_precision_are_compared_in_double():
    k, q = bounds.MIN_NARROW_CLUSTERS, 4
    centres = 4.0 * np.random.default_rng(4).normal(size=(k, q))
    centres[0] = 50.0
    centres[1] = centres[0] + np.eye(q)[0]
    middle = (centres[0] + centres[1]) / 2
    shift = 1e-9 * (centres[1] - centres[0])
    # Pairs about each centre keep the centroids; two objects are near the middle of two centroids.
    x = np.concatenate(
        [centres + 0.1, centres - 0.1, [middle - shift, middle + shift, 2 * centres[0] - middle]]
    )
    x = np.concatenate([x, [2 * centres[1] - middle]])
    labels = np.concatenate([np.tile(np.arange(k), 2), [0, 1, 0, 1]])
    found, _ = found_nearest(x, labels, k)
    np.testing.assert_array_equal(found[-4:-2, 0], [0, 1])


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_single_precision_is_not_used_out_of_its_range(scale):
    x, labels = clustered(np.random.default_rng(5), 50)
    assert not bounds.can_narrow((scale * x**2).sum(axis=1) * scale, np.ones(6), 50)
    found, _ = found_nearest(scale * x, labels, 50)
    np.testing.assert_array_equal(found[:, 0], nearest(x, labels, 50))


def test_bounds_from_single_precision_skip_no_object_that_moves(small_blocks):
    k, rng = 60, np.random.default_rng(6)
    x, labels = clustered(rng, k)
    seen = None
    for _ in range(6):
        expected = nearest(x, labels, k)
        found, seen = found_nearest(x, labels, k, seen)
        np.testing.assert_array_equal(found[:, 0], expected)
        if np.bincount(expected, minlength=k).min() == 0:
            break
        labels = expected
    assert seen is not None


@pytest.fixture(params=["features", "blend"])
def pair_of(request):
    """Return functions that make current and past proximities, as factors and as arrays."""

    def make(xp, rng, n=30):
        x, y = rng.normal(size=(n, 3)) + 1, rng.normal(size=(n, 4))
        w, psi = Factored.from_features(xp.array(x)), Factored.from_features(xp.array(y))
        if request.param == "features":
            return (w, psi), (x @ x.T, y @ y.T)
        return (w.blend(psi, 0.3, UNCHANGED), psi), (0.7 * x @ x.T + 0.3 * y @ y.T, y @ y.T)

    return make


LABELS = np.array(
    [0, 0, 1, 2, 2, 2, -1, 4, 4, 0, 1, 1, 2, 4, 4, 4, 5, 5, 5, 5, 0, 1, -1, 2, 4, 5, 0, 0, 1, 2]
)


def by_definition(w, labels, k):
    """Return means of rows within blocks minus the mean of the block, (n, k)."""
    off, deviations = ~np.eye(len(w), dtype=bool), np.zeros((len(w), k))
    for i, c in enumerate(labels):
        for d in range(k):
            block = np.ix_(labels == c, labels == d)
            here = off[i] & (labels == d)
            if c >= 0 and here.any():
                deviations[i, d] = w[i, here].mean() - w[block][off[block]].mean()
    return deviations


@pytest.mark.parametrize("min_added", [0, 10**9])  # add rows by label, or multiply by Z
def test_effects_of_objects_are_those_of_the_definition(
    eager_xp, small_blocks, pair_of, min_added, monkeypatch
):
    monkeypatch.setattr(grouped, "MIN_ADDED", min_added)
    monkeypatch.setattr(grouped, "ADDED_ROWS", 7)
    (w, psi), (dense_w, dense_psi) = pair_of(eager_xp, np.random.default_rng(7))
    partition = Partition(eager_xp.array(LABELS), 6)
    a, b = by_definition(dense_w, LABELS, 6), by_definition(dense_psi, LABELS, 6)
    z = membership(LABELS[:, None], 6, np.float64)
    now, past = w.group(partition), psi.group(partition)
    squares = now.row_squares(now.moments()[0])
    np.testing.assert_allclose(eager_xp.numpy(squares), z.T @ a**2, atol=1e-9)
    np.testing.assert_allclose(eager_xp.numpy(now.row_products(past)), z.T @ (a * b), atol=1e-9)
    # The same by the formulas for any W.
    np.testing.assert_allclose(
        eager_xp.numpy(Grouped.row_squares(now, now.block_means())), z.T @ a**2, atol=1e-9
    )


def test_spread_is_updated_for_moved_objects(pair_of):
    rng = np.random.default_rng(8)
    w, _ = pair_of(NumPy, rng, n=60)[0]
    labels = np.tile(LABELS, 2)
    before, after = Partition(labels, 6), labels.copy()
    after[[0, 3, 6, 8]] = [4, 0, 1, -1]
    after[labels == 5] = 1  # leaves a cluster empty
    now = Partition(after, 6)
    known = w.spread(before)
    rows = np.flatnonzero(after != labels)
    expected = w.spread(now)
    found = known.moved(w.joined, w.weights, rows, before, now, expected.centroids)
    for name in ("across", "within", "total", "scatters"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10)


class NumPy:
    """Arrays of NumPy."""

    array = staticmethod(np.asarray)


def test_similar_groups_share_their_spread(monkeypatch):
    w = Factored.from_features(np.random.default_rng(9).normal(size=(30, 3)))
    before, after = Partition(LABELS, 6), LABELS.copy()
    after[3] = 0
    monkeypatch.setattr(factored, "MIN_UPDATED_WORK", 0)
    first = w.group(before)
    second = w.group(Partition(after, 6)).near(first)
    first.moments()  # after `near`: it is known when it is needed
    expected = w.block_moments(Partition(after, 6))
    monkeypatch.setattr(Spread, "of", None)
    for found, value in zip(second.moments(), expected, strict=True):
        np.testing.assert_allclose(found, value, atol=1e-12)


@pytest.mark.parametrize("n_outside", [0, 1])
def test_scatter_follows_from_the_spread(n_outside):
    w = Factored.from_features(np.random.default_rng(10).normal(size=(30, 3)) + 5)
    labels = np.maximum(LABELS, 0)
    labels[:n_outside] = -1
    groups = w.group(Partition(labels, 6))
    assert w.with_squares_of(groups) is w  # nothing is known yet
    groups.moments()
    known = w.with_squares_of(groups)
    if n_outside:
        assert known is w
        return
    assert isinstance(known.leading, Scatter)
    np.testing.assert_allclose(known.leading.centre, w._scatter.centre, rtol=1e-13)
    np.testing.assert_allclose(known.leading.sums, w._scatter.sums, rtol=1e-12)


def test_scatters_larger_than_the_features_are_not_kept():
    x = np.random.default_rng(11).normal(size=(30, 8))
    assert Factored.from_features(x).spread(Partition(LABELS, 6)).scatters is None
    assert Factored.from_features(x[:, :5]).spread(Partition(LABELS, 6)).scatters is not None
