"""Every representation gives the results of its full matrix: each method of `Proximity`, on every library.

The representations and blends are `MAKERS` of tests/representations.py. Each test holds for all of them;
properties of a single one (passes over chunks, pruning, rank, digits) are tested in the file of its name.
"""

import itertools

import numpy as np
import pytest
import reference
from representations import (
    IDS,
    MAKERS,
    PAST_IDS,
    STORED,
    N,
    between_groups_twin,
    blend_of,
    chunked,
    dense,
    dense_float32,
    distance_twin,
    entries,
    factored,
    factored_float32,
    membership_twin,
    moments_twin,
    sparse,
    sparse_float32,
    symmetric,
    with_absent_twin,
)

from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Partition, align
from affect_xp.proximity import Blend, Chunked, Dense, Factored, Pair, Sparse

LABELS = [
    np.arange(N) % 3,
    np.array([0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3]),  # a pair and a singleton
    np.array([0, 2, 2, 0, 0, 2, 0, 2, 2, 0, 2]),  # an empty cluster
    np.array([0, -1, 1, 0, 1, -1, 0, 1, 0, -1, 1]),  # a few objects without a cluster
    np.array([0, -1, -1, -1, 1, -1, 0, 1, -1, -1, -1]),  # most objects without a cluster
    np.full(N, -1),
    np.zeros(N, dtype=int),
    np.arange(N),
]
ROWS = {"some": [2, 9, 5], "one": [0], "repeated": [10, 10, 0], "all": list(range(N)), "none": []}
K = 3


@pytest.fixture(autouse=True)
def one_thread_of_dask():
    """Compute chunks sequentially: the tasks here are too small for threads."""
    try:
        import dask
    except ImportError:
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(params=MAKERS, ids=lambda maker: maker.__name__)
def pair(request, xp, small_blocks):
    """A proximity and its full matrix."""
    return request.param(xp, np.random.default_rng(7))


@pytest.fixture(params=STORED, ids=lambda maker: maker.__name__)
def make(request, xp, small_blocks):
    """A function that makes proximities of n objects in one representation."""
    rng = np.random.default_rng(7)
    return lambda n=N: request.param(xp, rng, n)


def index(xp, values):
    return xp.array(np.array(values, dtype=np.int64))


def partition(xp, labels):
    return Partition(xp.array(labels), n_clusters(labels))


def n_clusters(labels):
    return max(1, int(labels.max()) + 1)


def assert_close(xp, found, expected, tolerance=1e-12, power=1):
    """Compare values with the rounding error of the largest entry."""
    assert xp.owns(found)
    scale = max(1.0, np.abs(expected).max(initial=0)) ** power
    np.testing.assert_allclose(xp.numpy(found), expected, rtol=tolerance, atol=tolerance * scale)


def rounding(proximity):
    """Return the tolerance for entries that were rounded to the dtype of a proximity."""
    return 2e-6 if dtype_of(proximity) == np.float32 else 1e-12


def dtype_of(proximity):
    return np.dtype(np.float32 if "float32" in str(proximity.like.dtype) else np.float64)


def assert_entries(xp, proximity, expected):
    """Compare the entries and their dtype with a matrix in float64, rounded to this dtype."""
    found, tolerance = entries(xp, proximity), rounding(proximity)
    assert found.dtype == dtype_of(proximity)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=repr(proximity))


# Products


def test_size_and_library(xp, pair):
    proximity, _ = pair
    assert proximity.n == N
    assert xp.owns(proximity.like)
    assert proximity.thin_dtype in (xp.array([0], np.float32).dtype, xp.array([0], np.float64).dtype)


def test_the_diagonal_is_in_wide_floats(xp, pair):
    proximity, w = pair
    assert "float64" in str(proximity.diagonal().dtype)
    assert_close(xp, proximity.diagonal(), np.diag(w))


def test_the_product_with_a_thin_matrix_is_in_its_dtype(xp, pair):
    proximity, w = pair
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        for r in (1, 4, 16, 17, 40):
            v = np.random.default_rng(1).normal(size=(N, r)).astype(dtype)
            product = proximity.matmul(xp.array(v))
            if xp.name != "dask":  # dask promotes; dask arrays of users become `Chunked`
                assert np.dtype(dtype).name in str(product.dtype)
            assert_close(xp, product, w @ v, tolerance)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_the_product_with_a_few_rows(xp, pair, rows):
    proximity, w = pair
    if xp.name == "dask" and len(rows) == 1 and isinstance(proximity, Blend):
        pytest.skip("dask does not take single rows; users' dask arrays become `Chunked`")
    v = np.random.default_rng(1).normal(size=(len(rows), 4))
    product = proximity.matmul(xp.array(v), index(xp, rows))
    assert_close(xp, product, w[:, rows] @ v)


@pytest.mark.parametrize("chosen", [None, [3, 0, 10, 3]], ids=["all", "some"])
def test_a_submatrix_holds_the_entries(xp, pair, chosen):
    proximity, w = pair
    found = proximity.submatrix(None if chosen is None else index(xp, chosen))
    chosen = range(N) if chosen is None else chosen
    assert_close(xp, found, w[np.ix_(chosen, chosen)])


def test_take_holds_the_entries_of_some_objects(xp, pair):
    proximity, w = pair
    chosen = [3, 0, 7, 8]
    taken = proximity.take(index(xp, chosen))
    assert taken.n == 4
    assert type(taken) is type(proximity.formed())
    assert_entries(xp, taken, w[np.ix_(chosen, chosen)])


# Groups


def test_block_moments(xp, pair):
    proximity, w = pair
    for labels in LABELS:
        means, squares = proximity.group(partition(xp, labels)).moments()
        expected_means, expected_squares = moments_twin(w, labels, n_clusters(labels))
        sizes = np.bincount(labels[labels >= 0], minlength=n_clusters(labels))
        known = np.outer(sizes, sizes) - np.diag(sizes) > 0  # the mean of an empty block is arbitrary
        assert_close(xp, means * xp.array(known * 1.0), expected_means)
        assert_close(xp, squares, expected_squares, 1e-11)


def test_the_square_distance_to_block_means(xp, pair):
    proximity, w = pair
    for labels in LABELS:
        means = symmetric(np.random.default_rng(3), n_clusters(labels))
        found = proximity.group(partition(xp, labels)).distance_to(xp.array(means))
        assert found.shape == ()
        assert_close(xp, found, distance_twin(w, labels, means))


def test_sums_of_blocks(xp, pair):
    proximity, w = pair
    for labels in LABELS:
        z = membership_twin(labels[:, None], n_clusters(labels))
        groups = proximity.group(partition(xp, labels))
        assert_close(xp, groups.sums(), z.T @ w @ z)
        assert_close(xp, groups.diagonal(), np.diag(w))


def labels_of(n_runs, seed=0):
    labels = np.random.default_rng(seed).integers(0, K, (N, n_runs))
    labels[4, 0] = -1
    return labels


def assert_grouped(xp, groups, w, labels):
    """Compare W·Z, by slices and by rows, and the diagonal of ZᵀWZ."""
    z, rows = membership_twin(labels, K), [8, 0, 3]
    assert_close(xp, groups.rows(slice(0, N)), w @ z)
    assert_close(xp, groups.rows(slice(2, 7)), (w @ z)[2:7])
    assert_close(xp, groups.rows(index(xp, rows)), (w @ z)[rows])
    assert_close(xp, groups.own(), np.diag(z.T @ w @ z).reshape(-1, K))


@pytest.mark.parametrize("n_runs", [1, 2])
def test_sums_over_clusters(xp, pair, n_runs):
    proximity, w = pair
    labels = labels_of(n_runs)
    assert_grouped(xp, proximity.grouped(xp.array(labels), K), w, labels)


def test_sums_over_clusters_follow_objects_that_move(xp, pair):
    proximity, w = pair
    old, new, rows = labels_of(2), labels_of(2), [10, 4, 1, 6]
    new[rows] = (new[rows] + 1) % K
    groups = proximity.grouped(xp.array(old), K)
    moved = groups.regrouped(xp.array(new), index(xp, rows))
    assert_grouped(xp, moved, w, new)
    assert_grouped(xp, groups, w, old)  # unchanged


def test_sums_over_clusters_of_some_partitions(xp, pair):
    proximity, w = pair
    labels = labels_of(3)
    groups = proximity.grouped(xp.array(labels), K).of_runs([0, 2])
    assert_grouped(xp, groups, w, labels[:, [0, 2]])


def test_moments_follow_objects_that_move(xp, pair):
    """Six times in a row: updated sums do not accumulate errors, nor do those of similar labels."""
    proximity, w = pair
    rng, labels = np.random.default_rng(5), LABELS[0]
    groups, before = proximity.group(partition(xp, labels)), None
    for _ in range(6):
        rows = rng.choice(N, 3, replace=False)
        labels = labels.copy()
        labels[rows] = rng.integers(-1, K, size=3)
        groups.rows(slice(0, N))
        groups.moments()
        groups, before = groups.regrouped(xp.array(labels[:, None]), index(xp, rows)), groups
        means = symmetric(rng, K)
        for grouped in (groups, proximity.group(Partition(xp.array(labels), K)).near(before)):
            expected_means, expected_squares = moments_twin(w, labels, K)
            found_means, found_squares = grouped.moments()
            assert_close(xp, found_squares, expected_squares, 1e-10)
            sizes = np.bincount(labels[labels >= 0], minlength=K)
            known = np.outer(sizes, sizes) - np.diag(sizes) > 0
            assert_close(xp, found_means * xp.array(known * 1.0), expected_means, 1e-11)
            expected = distance_twin(w, labels, means)
            assert_close(xp, grouped.distance_to(xp.array(means)), expected, 1e-11)


def test_sums_of_a_blend_are_carried_to_the_formed_blend(xp, pair):
    proximity, w = pair
    if not isinstance(proximity, Blend):
        pytest.skip("not a blend")
    labels, formed = labels_of(1), proximity.formed()
    carried = formed.carried(proximity.grouped(xp.array(labels), K))
    assert carried is not None and carried.proximity is formed
    assert_grouped(xp, carried, w, labels)


# Blends and copies

CHANGES = {
    "same objects": IDS,
    "another order": IDS[::-1],
    "some have left": ("x", *IDS, "y"),
    "some are new": IDS[3:-2],
    "all at once": PAST_IDS,
    "one in common": ("z", "y", "a"),
    "none in common": ("x", "y", "z"),
}


@pytest.mark.parametrize("past_ids", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_a_blend_is_the_convex_combination(eager_xp, past_ids, alpha):
    xp = eager_xp
    for maker in (dense, dense_float32, sparse, sparse_float32, factored, factored_float32, chunked):
        if maker in (sparse, sparse_float32, chunked) and xp.name not in ("numpy", "cupy"):
            continue
        rng = np.random.default_rng(5)
        (w, w_host), (past, past_host) = maker(xp, rng), maker(xp, rng, len(past_ids))
        expected = reference.blend(w_host, past_host, alpha, list(IDS), list(past_ids))
        moves = align(IDS, past_ids, xp.array([0.0]))
        for given in (alpha, xp.array(alpha)):
            formed = w.blend(past, given, moves)
            assert type(formed) is type(w)
            assert_entries(xp, formed, expected)
        assert_entries(xp, w, w_host)
        assert_entries(xp, past, past_host)
        assert_entries(xp, w.blend(past, alpha, moves, out=past), expected)  # the last use of the past


@pytest.mark.parametrize("past_ids", [IDS, IDS[::-1]], ids=["same objects", "another order"])
def test_a_blend_with_a_wide_past_keeps_the_dtype_of_the_present(eager_xp, small_blocks, past_ids):
    xp = eager_xp
    for narrow, wide in ((dense_float32, dense), (sparse_float32, sparse), (factored_float32, factored)):
        if narrow is sparse_float32 and xp.name not in ("numpy", "cupy"):
            continue
        (w, w_host), (past, past_host) = (m(xp, np.random.default_rng(5)) for m in (narrow, wide))
        blended = w.blend(past, xp.array(0.25), align(IDS, past_ids, xp.array([0.0])))
        expected = reference.blend(w_host, past_host, 0.25, list(IDS), list(past_ids))
        if narrow is not factored_float32:  # its columns keep their dtypes
            assert entries(xp, blended).dtype == np.float32
        np.testing.assert_allclose(entries(xp, blended), expected, rtol=1e-5, atol=1e-5)


def test_any_sequence_of_blends_is_that_of_the_matrices(eager_xp):
    """Objects come, go and change positions; some operations between the blends cache results."""
    xp = eager_xp
    for maker in (dense, sparse, factored, chunked):
        if maker in (sparse, chunked) and xp.name not in ("numpy", "cupy"):
            continue
        rng, psi, psi_host, before = np.random.default_rng(3), None, None, []
        for _ in range(6):
            ids = rng.permutation(15)[: rng.integers(7, 12)].tolist()
            w, w_host = maker(xp, rng, len(ids))
            if psi is not None:
                alpha = float(rng.choice([0.0, 0.3, 1.0, rng.random()]))
                moves = align(tuple(ids), tuple(before), xp.array([0.0]))
                w = w.blend(psi, alpha if rng.random() < 0.5 else xp.array(alpha), moves)
                w_host = reference.blend(w_host, psi_host, alpha, ids, before)
            psi, psi_host, before = w, w_host, ids
            labels = rng.integers(-1, K, len(ids))
            if rng.random() < 0.5:
                psi.group(Partition(xp.array(labels), K)).distance_to(xp.array(np.zeros((K, K))))
        _, squares = psi.group(Partition(xp.array(labels), K)).moments()
        assert_close(xp, squares, moments_twin(psi_host, labels, K)[1], 1e-8)
        np.testing.assert_allclose(
            entries(xp, psi), psi_host, rtol=1e-4, atol=2e-3 if maker is sparse else 1e-9
        )


def storage(proximity):
    """Return the arrays in which a proximity is stored."""
    if isinstance(proximity, Sparse):
        return [proximity.matrix.data]
    if isinstance(proximity, Factored):
        return [factor.x for factor in proximity.factors]
    return [proximity.array]


def test_a_copy_has_its_own_storage(eager_xp, small_blocks):
    for maker in (*STORED[:10], blend_of(dense)):
        if maker.__name__.startswith("sparse") and eager_xp.name not in ("numpy", "cupy"):
            continue
        proximity, w = maker(eager_xp, np.random.default_rng(7))
        copy = proximity.copy()
        for array in storage(proximity.formed()):
            array[...] = 99.0
        assert_entries(eager_xp, copy, w)


def test_only_blends_are_not_stored(xp, pair):
    proximity, w = pair
    formed = proximity.formed()
    assert (formed is proximity) is not isinstance(proximity, Blend)
    assert proximity.formed() is formed
    assert_entries(xp, formed, w)


def test_a_dense_matrix_of_the_entries(xp, make):
    proximity, w = make()
    if not isinstance(proximity, Sparse | Factored):
        pytest.skip("has an array")
    written_out = proximity.to_dense()
    assert isinstance(written_out, Dense)
    assert_entries(xp, written_out, w)


# Entries that change


def test_a_function_of_entries(xp, make):
    proximity, w = make()
    if isinstance(proximity, Factored):
        with pytest.raises(InputError, match=r"Factored does not hold the entries of W.*to_dense"):
            proximity.mapped(lambda x: 2 * x)
        return
    found = proximity.mapped(lambda x: x * x * x)
    assert type(found) is type(proximity)
    assert_entries(xp, found, w * w * w)
    np.testing.assert_array_equal(entries(xp, proximity), w)


def test_scaled_rows_and_columns(xp, make):
    proximity, w = make()
    s = np.random.default_rng(1).normal(size=N)
    found = proximity.scaled(xp.array(s))
    assert type(found) is type(proximity)
    assert_entries(xp, found, s[:, None] * w * s)


# Absent objects

N_PAST = 13
MOVES = {
    "some away, some new, some gone": ([3, -1, 0, 7, 12, -1, 5, 1, 2, 8, -1], [11, 4, 10]),
    "all are new": ([-1] * N, [2, 0, 6]),
    "more away than here": ([-1] * (N - 1) + [4], [0, 12, 3, 8, 9, 1, 5, 2, 10, 7, 6, 11]),
    "nobody away": (list(range(N)), []),
    "in the same places": (list(range(N)), [11, 12]),
}
GROUPS = [0, 2, 1, 0, 2, 2, 1, 0, 0, 2, 1]
TABLES = {
    "some pairs": np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]]),
    "between two": np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]),
    "all": np.ones((3, 3), dtype=int),
    "none": np.zeros((3, 3), dtype=int),
}


def assert_is(xp, proximity, expected):
    """Compare entries, dtype, diagonal and products."""
    tolerance = 10 * rounding(proximity)
    assert_entries(xp, proximity, expected)
    assert_close(xp, proximity.diagonal(), np.diag(expected), tolerance)
    v = np.random.default_rng(1).normal(size=(len(expected), 2))
    assert_close(xp, proximity.matmul(xp.array(v)), expected @ v, tolerance)


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_absent_objects_keep_their_proximities(xp, make, moves):
    source, away = moves
    (w, w_host), (past, past_host) = make(N), make(N_PAST)
    found = w.with_absent(past, index(xp, source), index(xp, away))
    assert type(found) is type(w)
    expected = with_absent_twin(w_host, past_host, source, away)
    assert_is(xp, found, expected)
    if not isinstance(w, Factored):  # entries are copied
        np.testing.assert_array_equal(entries(xp, found), expected)
    assert_is(xp, w, w_host)  # unchanged
    assert_is(xp, past, past_host)
    if isinstance(w, Sparse):
        assert found.prune == w.prune
        assert (found.matrix.data != 0).all()


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_sums_between_groups(xp, make, table):
    (w, w_host), (other, other_host) = make(), make()
    found = w.add_between_groups(other, index(xp, GROUPS), table)
    assert_is(xp, found, between_groups_twin(w_host, other_host, GROUPS, table))
    assert_is(xp, w, w_host)
    assert_is(xp, other, other_host)


def test_sums_in_one_group(xp, make):
    (w, w_host), (other, other_host) = make(), make()
    found = w.add_between_groups(other, index(xp, [0] * N), np.array([[1]]))
    assert_is(xp, found, w_host + other_host)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.with_absent(b, np.arange(3), np.arange(0)), "Blend cannot hold absent objects"),
        (lambda b: b.add_between_groups(b, np.zeros(3, int), np.ones((1, 1))), "Blend cannot be added"),
        (lambda b: b.scaled(np.ones(3)), "Blend cannot be scaled"),
        (lambda b: b.mapped(np.sqrt), "Blend does not hold the entries"),
    ],
    ids=["with_absent", "add_between_groups", "scaled", "mapped"],
)
def test_a_blend_says_what_to_call_first(call, message):
    w = Dense(np.eye(3))
    with pytest.raises(InputError, match=message + r".*; call its (formed\(\)|to_dense)"):
        call(Pair(w, w, align(range(3), range(3), w.like)).blend(0.5))


def test_representations_do_not_mix(eager_xp):
    makers = (dense, sparse, factored, chunked) if eager_xp.name == "numpy" else (dense, factored)
    some = [maker(eager_xp, np.random.default_rng(0))[0] for maker in makers]
    same = align(range(N), range(N), eager_xp.array([0.0]))
    for w, past in itertools.permutations(some, 2):
        if not isinstance(w, Dense):
            both = f"cannot blend {type(w).__name__} with {type(past).__name__}; "
            with pytest.raises(InputTypeError, match=both):
                w.blend(past, 0.5, same)


# Parts of a blend


def test_a_blend_multiplies_each_of_its_parts_once(eager_xp):
    if eager_xp.name == "cupy":
        pytest.skip("kernels multiply there, not matmul")
    calls = []
    w, past = (Dense(eager_xp.array(symmetric(np.random.default_rng(s)))) for s in (0, 1))

    def counted(name, proximity):
        def matmul(v, rows=None):
            calls.append(name)
            return Dense.matmul(proximity, v, rows)

        return matmul

    object.__setattr__(w, "matmul", counted("W", w))
    object.__setattr__(past, "matmul", counted("past", past))
    both = Pair(w, past, align(range(N), range(N), eager_xp.array([0.0])))
    groups = both.group(partition(eager_xp, LABELS[0]))
    groups.at(both.blend(0.0)).rows(slice(0, N))
    assert calls == ["W"]  # a past without weight is not read
    for alpha in (0.1, 0.2, 0.3):
        groups.at(both.blend(alpha)).rows(slice(0, N))
    assert sorted(calls) == ["W", "past"]


def test_dense_overwrites_the_past_where_it_may(eager_xp):
    w, past = (Dense(eager_xp.array(symmetric(np.random.default_rng(s)))) for s in (0, 1))
    same = align(range(N), range(N), eager_xp.array([0.0]))
    assert w.blend(past, 0.25, same).array is not past.array
    assert w.blend(past, 0.25, same, out=past).array is past.array


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_numpy_gets_the_entries_or_a_refusal(maker, eager_xp):
    proximity, w = maker(eager_xp, np.random.default_rng(0))
    if eager_xp.name in ("numpy", "torch") and not isinstance(proximity.formed(), Chunked):
        np.testing.assert_allclose(np.asarray(proximity), w, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(np.asarray(proximity, dtype=np.float32), w, rtol=1e-5, atol=1e-6)
        return
    with pytest.raises(InputTypeError, match=r"NumPy must not (copy|compute) it implicitly; use \.array"):
        np.asarray(proximity)
