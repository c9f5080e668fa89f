"""Absent objects keep their proximities in every representation, as in the full matrices."""

import logging
import tracemalloc

import numpy as np
import pytest
from representations import N, between_groups_twin, symmetric, with_absent_twin
from scipy.sparse import csr_array

from affect_xp.partition import Partition, align
from affect_xp.proximity import Chunked, Dense, Sparse
from affect_xp.proximity.factored import Factored

pytest_plugins = ["chunked_fixtures"]

N_PAST = 13
MOVES = [3, -1, 0, 7, 12, -1, 5, 1, 2, 8, -1], [11, 4, 10]  # some absent, some new, some gone
GROUPS = np.array([0, 2, 1, 0, 2, 2, 1, 0, 0, 2, 1])
TABLES = {
    "some pairs": np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]]),
    "between two": np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
    "all": np.ones((3, 3), dtype=int),
    "none": np.zeros((3, 3), dtype=int),
}


def index(xp, values):
    return xp.array(np.array(values, dtype=np.int64))


def test_the_precision_is_that_of_the_present(eager_xp, small_blocks):
    xp, rng = eager_xp, np.random.default_rng(0)
    w, past = symmetric(rng, N, np.float32), symmetric(rng, N_PAST)
    source, away = MOVES
    found = Dense(xp.array(w)).with_absent(Dense(xp.array(past)), index(xp, source), index(xp, away))
    np.testing.assert_array_equal(
        xp.numpy(found.array), with_absent_twin(w, past.astype(np.float32), source, away), strict=True
    )
    found = Dense(xp.array(w)).add_between_groups(
        Dense(xp.array(past[:N, :N])), index(xp, GROUPS), TABLES["some pairs"]
    )
    expected = between_groups_twin(w.astype(float), past[:N, :N], GROUPS, TABLES["some pairs"])
    assert xp.numpy(found.array).dtype == np.float32
    np.testing.assert_allclose(xp.numpy(found.array), expected, rtol=1e-6, atol=1e-6)


def test_dense_results_make_no_other_matrix_of_their_size():
    n, m = 1_000, 50
    w = Dense(np.ones((n, n)))
    source, away, groups = np.arange(n - m), np.arange(n - m, n), np.arange(n) % 3
    here = w.take(source)
    for call in (
        lambda: here.with_absent(w, source, away),
        lambda: w.add_between_groups(w, groups, TABLES["some pairs"]),
    ):
        tracemalloc.start()
        size = call().array.nbytes
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.7 * size  # plus a few blocks of a megabyte


def test_dense_results_make_no_host_wait(eager_xp, caplog):
    xp, rng = eager_xp, np.random.default_rng(0)
    w, past = Dense(xp.array(symmetric(rng, N))), Dense(xp.array(symmetric(rng, N_PAST)))
    source, away = (index(xp, part) for part in MOVES)
    with caplog.at_level(logging.DEBUG, "affect_xp"):
        w.with_absent(past, source, away)
        w.add_between_groups(w, index(xp, GROUPS), TABLES["all"])
    assert not caplog.records


def test_entries_that_cancel_are_not_stored():
    rng = np.random.default_rng(3)
    w = symmetric(rng, N)
    found = Sparse(csr_array(w)).add_between_groups(Sparse(csr_array(-w)), GROUPS, TABLES["some pairs"])
    assert found.matrix.nnz == (TABLES["some pairs"][np.ix_(GROUPS, GROUPS)] == 0).sum()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_sums_between_groups_of_chunks_that_are_cut_otherwise(da, library, table):
    rng = np.random.default_rng(2)
    w, other = symmetric(rng, N), symmetric(rng, N)
    found = Chunked(da.from_array(library.array(w), chunks=4)).add_between_groups(
        Chunked(da.from_array(library.array(other), chunks=3)), index(library, GROUPS), table
    )
    expected = between_groups_twin(w, other, GROUPS, table)
    np.testing.assert_array_equal(library.numpy(found.array.compute()), expected, strict=True)


def test_chunks_are_kept(da, library, computes):
    w = Chunked(da.from_array(library.array(symmetric(np.random.default_rng(2), N)), chunks=4))
    source, away = (index(library, part) for part in (range(N - 2), (N - 2, N - 1)))
    here = w.take(source)
    del computes[:]
    found = here.with_absent(w, source, away)
    assert len(computes) == 1
    found = found.add_between_groups(w, index(library, GROUPS), TABLES["all"])
    assert len(computes) == 2


@pytest.mark.parametrize("in_store", ["present", "past"])
def test_chunks_go_to_the_store(da, library, store, in_store):
    rng = np.random.default_rng(2)
    w, past = symmetric(rng, N), symmetric(rng, N_PAST)
    stores = {in_store: store}
    current = Chunked(da.from_array(library.array(w), chunks=4), stores.get("present"))
    before = Chunked(da.from_array(library.array(past), chunks=5), stores.get("past")).copy()
    current.diagonal()  # also writes it to the store, if there is one
    source, away = MOVES
    found = current.with_absent(before, index(library, source), index(library, away))
    del before
    expected = with_absent_twin(w, past, source, away)
    assert found.store is not None
    assert found._spill is not None
    np.testing.assert_array_equal(library.numpy(found.array.compute()), expected)
    groups = np.append(GROUPS, [1, 0, 2])
    found = found.add_between_groups(found, index(library, groups), TABLES["some pairs"])
    assert found._spill is not None
    v = np.random.default_rng(1).normal(size=(len(expected), 2))
    expected = between_groups_twin(expected, expected, groups, TABLES["some pairs"])
    np.testing.assert_allclose(library.numpy(found.matmul(library.array(v))), expected @ v, atol=1e-12)


def visits(rng, n, n_steps, share):
    """Yield the objects of each step; with this probability an object is absent for one to three steps."""
    back = np.zeros(n, dtype=int)
    for t in range(n_steps):
        leaves = (back <= t) & (rng.random(n) < share)
        back[leaves] = t + rng.integers(1, 4, size=n)[leaves]
        yield np.flatnonzero(back <= t)


def keep_track(n, p, n_steps, rng, max_rank=None):
    """Track proximities of features, keeping those of absent objects; yield factors and dense twin."""
    psi, psi_dense, order = None, np.zeros((n, n)), np.arange(0)
    for here in visits(rng, n, n_steps, 0.03):
        x = np.eye(p)[here % p] + rng.normal(size=(len(here), p))
        w = Factored.from_features(x, max_rank=max_rank)
        alpha = rng.uniform(0.3, 0.8)
        known = np.isin(here, order)
        past_dense, both = psi_dense.copy(), here[known]
        psi_dense[np.ix_(here, here)] = x @ x.T
        blended = alpha * past_dense[np.ix_(both, both)] + (1 - alpha) * (x @ x.T)[np.ix_(known, known)]
        psi_dense[np.ix_(both, both)] = blended
        if psi is None:
            psi, order = w, here
        else:
            source = align(tuple(here), tuple(order), x)
            away = np.flatnonzero(~np.isin(order, here))
            now = w.blend(psi, alpha, source)
            where = np.arange(len(order)) if source.source is None else source.source
            psi, order = now.with_absent(psi, where, away), np.concatenate([here, order[away]])
        yield psi, psi_dense[np.ix_(order, order)]


def test_the_rank_stays_bounded_and_the_factors_exact():
    n = 60
    ranks = []
    for t, (psi, expected) in enumerate(keep_track(n, 3, 60, np.random.default_rng(0))):
        ranks.append(psi.rank)
        if t % 10 == 9:
            np.testing.assert_allclose(psi.to_dense().array, expected, rtol=1e-9, atol=1e-10)
    assert max(ranks[20:]) <= 2 * n
    assert float(psi.error) < 1e-9


def test_moments_of_compressed_factors_are_those_of_the_matrix():
    *_, (psi, expected) = keep_track(30, 2, 12, np.random.default_rng(1))
    partition = Partition(np.arange(psi.n) % 3, 3)
    for found, twin in zip(
        psi.block_moments(partition), Dense(expected).block_moments(partition), strict=True
    ):
        np.testing.assert_allclose(found, twin, rtol=1e-9, atol=1e-9)


def test_max_rank_holds_and_error_bounds_what_is_lost():
    for psi, expected in keep_track(40, 3, 20, np.random.default_rng(2), max_rank=12):
        assert psi.rank <= 12
        assert np.linalg.norm(psi.to_dense().array - expected) <= float(psi.error) + 1e-9
    assert float(psi.error) > 1e-3
