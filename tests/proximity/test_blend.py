"""The blend with a weight for each pair of objects: against the formula, entry by entry."""

import numpy as np
import pytest
from storages import MAKERS, aligned

from affect_xp.partition import align
from affect_xp.proximity import ObjectBlend, Pair

IDS, PAST_IDS, GONE = list("abcdefghijk"), list("kxbadyciezf"), list("abcdefghijkxyz")


def symmetric(rng, n=11):
    w = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.6)
    return w + w.T


@pytest.fixture(params=["same objects", "other order", "churn"])
def case(request, eager_xp):
    """A function that makes the blend in a storage, and the full matrix."""
    rng = np.random.default_rng(0)
    past_ids = {"same objects": IDS, "other order": IDS[::-1], "churn": PAST_IDS}[request.param]
    w, past, s, a = symmetric(rng), symmetric(rng), rng.random(11), 0.6
    before, M = aligned(past, IDS, past_ids)
    source = np.array([past_ids.index(x) if x in past_ids else 0 for x in IDS])
    before = before + np.diag(np.where(M.any(1), np.diag(past)[source], 0.0))
    s = np.where(M.any(1), s, 0.0)
    expected = w + a * np.outer(s, s) * (before - w)

    def make(maker, alpha=a):
        moves = align(tuple(IDS), tuple(past_ids), eager_xp.array([0.0]))
        pair = Pair(maker(eager_xp, w), maker(eager_xp, past), moves)
        return ObjectBlend(pair, alpha, eager_xp.array(s))

    return make, expected


def entries(library, proximity):
    return library.numpy(proximity.matmul(library.array(np.eye(proximity.n))))


@pytest.mark.parametrize("maker", MAKERS)
class TestAgainstTheFormula:
    def test_products(self, eager_xp, case, maker):
        make, expected = case
        np.testing.assert_allclose(entries(eager_xp, make(maker)), expected, atol=1e-12)

    def test_products_with_some_rows(self, eager_xp, case, maker):
        make, expected = case
        rows, v = np.array([1, 4, 9]), np.random.default_rng(1).normal(size=(3, 2))
        found = make(maker).matmul(eager_xp.array(v), eager_xp.array(rows))
        np.testing.assert_allclose(eager_xp.numpy(found), expected[:, rows] @ v, atol=1e-12)

    def test_row_sums_of_a_common_weight(self, eager_xp, case, maker):
        pair = case[0](maker).pair
        for alpha in (0.0, 0.3, 0.8):
            found = eager_xp.numpy(pair.blend(alpha).row_sums())
            expected = entries(eager_xp, pair.blend(alpha)).sum(axis=1)
            np.testing.assert_allclose(found, expected, atol=1e-12)

    def test_diagonal(self, eager_xp, case, maker):
        make, expected = case
        np.testing.assert_allclose(eager_xp.numpy(make(maker).diagonal()), np.diag(expected), atol=1e-12)

    @pytest.mark.parametrize("formed", [False, True])
    def test_entries_of_some_objects(self, eager_xp, case, maker, formed):
        make, expected = case
        blend, index = make(maker), np.array([9, 1, 4])
        if formed:
            blend.formed()
        found = blend.submatrix(eager_xp.array(index))
        assert blend.is_formed is formed
        np.testing.assert_allclose(eager_xp.numpy(found), expected[np.ix_(index, index)], atol=1e-12)
        np.testing.assert_allclose(eager_xp.numpy(blend.submatrix()), expected, atol=1e-12)

    def test_sums_by_labels(self, eager_xp, case, maker):
        make, expected = case
        labels = np.arange(11) % 3
        found = make(maker).grouped(eager_xp.array(labels[:, None]), 3).rows(slice(0, 11))
        np.testing.assert_allclose(eager_xp.numpy(found), expected @ np.eye(3)[labels], atol=1e-12)

    @pytest.mark.parametrize("overwrite", [False, True])
    @pytest.mark.parametrize("on_device", [False, True])
    def test_stored(self, eager_xp, small_blocks, case, maker, overwrite, on_device):
        make, expected = case
        blend = make(maker, eager_xp.array(0.6) if on_device else 0.6)
        found = entries(eager_xp, blend.formed(out=blend.pair.past if overwrite else None))
        np.testing.assert_allclose(found, expected, atol=1e-12)
        if maker.__name__ in ("as_dense", "as_sparse", "as_chunked"):
            np.testing.assert_array_equal(found, found.T)
        assert blend.is_formed


def test_the_present_is_left_as_it_is(eager_xp, case):
    make, _ = case
    blend = make(MAKERS[0])
    before = np.array(eager_xp.numpy(blend.pair.current.array))
    blend.formed(out=blend.pair.past)
    np.testing.assert_array_equal(eager_xp.numpy(blend.pair.current.array), before)
