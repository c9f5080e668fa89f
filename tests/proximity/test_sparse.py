"""Sparse proximities: the same results as the dense matrix, without stored zeros."""

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse
from alphas import estimate
from conftest import BACKENDS, Backend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from representations import distance_twin, moments_twin

import affect_xp as ax
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Partition, align
from affect_xp.proximity import checks_sparse
from affect_xp.proximity.sparse import Sparse, is_sparse

N = 23


def checked_sparse(matrix, name):
    """Return the checked matrix."""
    return checks_sparse.checked_sparse(matrix, name)[0]


@dataclasses.dataclass(frozen=True)
class Library:
    """A library of sparse matrices, with its dense arrays."""

    sparse: Any
    dense: Backend

    def matrix(self, w, dtype=np.float64):
        """Return a host matrix as a CSR matrix of this library."""
        return self.sparse.csr_matrix(scipy.sparse.csr_matrix(w, dtype=dtype))

    def array(self, values, dtype=None):
        return self.dense.array(values, dtype)

    def numpy(self, x):
        if is_sparse(x):
            x = x.toarray()
        return self.dense.numpy(x)


def libraries():
    yield Library(scipy.sparse, Backend("numpy", np))
    for backend in BACKENDS:
        if backend.name == "cupy":
            import cupyx.scipy.sparse

            yield Library(cupyx.scipy.sparse, backend)


@pytest.fixture(params=list(libraries()), ids=lambda library: library.sparse.__name__.split(".")[0])
def library(request):
    return request.param


def graph(rng, n=N, density=0.2, dtype=np.float64):
    """Return a symmetric array with many zeros, some negative and diagonal entries, and empty rows."""
    w = np.where(rng.random((n, n)) < density, rng.normal(1.0, 1.0, (n, n)), 0.0)
    w = np.triu(w)
    w[:, n // 2] = w[n // 2, :] = 0.0
    return (w + np.triu(w, 1).T).astype(dtype)


LABELS = [
    np.arange(N) % 3,
    np.array([0] * 10 + [1] * 2 + [2] + [3] * 10),  # a pair and a singleton
    np.array([0, 2] * 11 + [0]),  # an empty cluster
    np.where(np.arange(N) % 4 == 1, -1, np.arange(N) % 3),  # objects without a cluster
    np.full(N, -1),
    np.arange(N),
]


# ---- sums


@pytest.fixture(params=["float64", "float32", "nothing stored", "all stored"])
def pair(request, library, small_blocks):
    """A sparse proximity and its full matrix."""
    rng = np.random.default_rng(7)
    density = {"nothing stored": 0.0, "all stored": 1.0}.get(request.param, 0.2)
    w = graph(rng, density=density, dtype="float32" if request.param == "float32" else "float64")
    return Sparse(library.matrix(w, w.dtype)), w.astype(np.float64)


def test_blocks_of_rows_are_not_copied():
    rng = np.random.default_rng(0)
    proximity = Sparse(scipy.sparse.csr_array(graph(rng, 900, 0.9)))
    assert len(proximity._blocks) > 2
    for _, block in proximity._blocks:
        assert np.shares_memory(block.data, proximity.matrix.data)
        assert np.shares_memory(block.indices, proximity.matrix.indices)


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_sums_from_differences(library, pair, labels):
    """The second pass, if plain sums would lose digits."""
    proximity, w = pair
    k = max(1, int(labels.max()) + 1)
    partition, guess = Partition(library.array(labels), k), graph(np.random.default_rng(3), k, 1.0)
    found = *proximity.centred_moments(partition), proximity.centred_distance(partition, library.array(guess))
    expected = *moments_twin(w, labels, k), distance_twin(w, labels, guess)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(library.numpy(one), other, rtol=1e-12, atol=1e-12)


def test_library_and_representation(library):
    proximity = Sparse(library.matrix(np.eye(3)))
    assert proximity.formed() is proximity
    assert library.dense.owns(proximity.like)
    assert repr(proximity) == f"Sparse(n=3, dtype=float64, library={library.dense.name})"


# ---- digits and sizes


def test_no_digits_are_lost_where_the_mean_is_large(library, small_blocks):
    # Every pair is stored, as 1e8 + a small integer: all sums of squares are exact in integers.
    rng = np.random.default_rng(0)
    small = np.triu(rng.integers(-3, 4, (N, N)), 1)
    small = small + small.T
    w = Sparse(library.matrix(small + 1e8))
    labels = np.arange(N) % 2
    partition = Partition(library.array(labels), 2)
    means, squares = w.block_moments(partition)
    distance = w.square_distance(partition, means)
    total = 0.0
    for c, d, pairs in reference.blocks(labels):
        if d is not None:
            values = [int(small[i, j]) for i, j in pairs]
            exact = sum(v * v for v in values) - sum(values) ** 2 / len(values)
            total += exact
            np.testing.assert_allclose(library.numpy(squares)[c, d], exact, rtol=1e-8)
    np.testing.assert_allclose(float(library.numpy(distance)), total, rtol=1e-8)


def test_a_large_diagonal_does_not_drown_the_rest(library):
    w = graph(np.random.default_rng(0))
    partition = Partition(library.array(np.arange(N) % 2), 2)
    without = Sparse(library.matrix(w - np.diag(np.diag(w)))).block_moments(partition)
    drowned = Sparse(library.matrix(w + 1e20 * np.eye(N))).block_moments(partition)
    for found, expected in zip(drowned, without, strict=True):
        np.testing.assert_allclose(library.numpy(found), library.numpy(expected), rtol=1e-14)
    means = library.array(np.ones((2, 2)))
    without, drowned = (
        Sparse(library.matrix(m)).square_distance(partition, means)
        for m in (w - np.diag(np.diag(w)), w + 1e20 * np.eye(N))
    )
    np.testing.assert_allclose(library.numpy(drowned), library.numpy(without), rtol=1e-12)


def corner(n):
    """Return a matrix of n objects with one edge of weight 3, between the last two."""
    return scipy.sparse.coo_array(([3.0, 3.0], ([n - 1, n - 2], [n - 2, n - 1])), shape=(n, n))


def test_more_pairs_than_an_int32_counts():
    n = 100_000
    w = Sparse(corner(n))
    means, squares = w.block_moments(Partition(np.zeros(n, dtype=np.int64), 1))
    count = n * (n - 1)
    assert means[0, 0] == 6.0 / count
    np.testing.assert_allclose(squares[0, 0], 18.0 - 36.0 / count, rtol=1e-14)
    same = align(range(n), range(n), w.like)
    later = w.take(np.arange(n)[::-1]).blend(w, 0.25, same)
    assert later.matrix.nnz == 4 and later.matrix[n - 1, n - 2] == 0.75
    moved = align(range(n), range(1, n + 1), w.like)
    assert w.blend(w, 0.5, moved).matrix[n - 1, n - 2] == 1.5


@pytest.mark.parametrize(
    "alignment", [(range(N), range(N)), (range(N), range(N, 0, -1))], ids=["same", "moved"]
)
def test_wide_indices(small_blocks, alignment):
    rng = np.random.default_rng(0)
    w, past = graph(rng), graph(rng)
    wide = []
    for dense in (w, past):
        matrix = scipy.sparse.csr_array(dense)
        matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
        wide.append(Sparse(checked_sparse(matrix, "W")))
    assert wide[0].matrix.indices.dtype == np.int64
    partition = Partition(np.arange(N) % 3, 3)
    moves = align(*alignment, w)
    found = estimate(*wide, partition.masked(moves.source), partition.take(moves.target))
    expected = estimate(
        ax.Dense(w), ax.Dense(past), partition.masked(moves.source), partition.take(moves.target)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    blended = wide[0].blend(wide[1], 0.5, moves).matrix.toarray()
    np.testing.assert_array_equal(blended, ax.Dense(w).blend(ax.Dense(past), 0.5, moves).array)


def test_no_step_makes_a_dense_matrix():
    n = 200_000  # a dense matrix would take 320 GB
    w = Sparse(checked_sparse(corner(n), "W"))
    model = ax.Affect(ax.KMeans(2, init=np.arange(n) % 2), alpha=0.5)
    model.partial_fit(w, range(n)).partial_fit(w, range(2, n + 2))
    assert model.smoothed_.matrix.nnz <= 4


# ---- the blend

IDS = list("abcdefghijklmnopqrstuvw")


@pytest.mark.parametrize("past_ids", [IDS, list("zkxbadyclmwif")], ids=["same", "all at once"])
def test_a_blend_stores_no_zeros(library, small_blocks, past_ids):
    rng = np.random.default_rng(5)
    w, past = graph(rng), graph(rng, len(past_ids))
    moves = align(tuple(IDS), tuple(past_ids), library.array([0.0]))
    for alpha in (0.0, 0.25, 1.0):
        formed = Sparse(library.matrix(w)).blend(Sparse(library.matrix(past)), library.array(alpha), moves)
        expected = reference.blend(w, past, alpha, IDS, past_ids)
        np.testing.assert_allclose(library.numpy(formed.matrix), expected, rtol=1e-14)
        assert formed.matrix.nnz == np.count_nonzero(expected)


def test_a_hub_is_not_copied_for_each_new_object(small_blocks):
    # The first object of the past has edges to all others: new objects must not read its row.
    n = 400
    star = scipy.sparse.lil_array((n, n))
    star[0, 1:] = star[1:, 0] = 1.0
    past, w = Sparse(star), Sparse(scipy.sparse.csr_array((n, n)))
    from affect_xp.proximity.sparse import _Aligned

    parts = _Aligned.of(w.matrix, past.matrix, align(range(n - 1, 2 * n - 1), range(n), w.like))
    assert parts.row_counts().tolist() == [1] + [0] * (n - 1)
    assert parts._past_rows(parts.alignment.source).nnz <= 1


def test_mixed_representations_name_the_conversion(library):
    w = graph(np.random.default_rng(0))
    same = align(range(N), range(N), library.array([0.0]))
    with pytest.raises(InputTypeError, match=r"cannot blend Sparse with Dense; call to_dense\(\)"):
        Sparse(library.matrix(w)).blend(ax.Dense(library.array(w)), 0.5, same)


# ---- pruning


def decaying(library, prune, n_steps=30, alpha=0.5, seed=0):
    """Return Ψ̂ of a graph whose edges are redrawn at each step, pruned and unpruned."""
    rng = np.random.default_rng(seed)
    same = align(range(N), range(N), library.array([0.0]))
    psi = exact = None
    for _ in range(n_steps):
        w = graph(rng, density=0.03)
        if psi is None:
            psi, exact = Sparse(library.matrix(w), prune), w
        else:
            psi = Sparse(library.matrix(w), prune).blend(psi, alpha, same)
            exact = alpha * exact + (1 - alpha) * w
    return psi, exact


def test_with_prune_zero_everything_is_kept(library):
    psi, exact = decaying(library, prune=0.0)
    assert psi.matrix.nnz == np.count_nonzero(exact)
    np.testing.assert_allclose(library.numpy(psi.matrix), exact, rtol=1e-12)


def test_what_has_decayed_is_pruned_and_symmetry_stays(library, small_blocks):
    pruned, exact = decaying(library, prune=1e-3)
    kept, _ = decaying(library, prune=0.0)
    assert pruned.matrix.nnz < 0.7 * kept.matrix.nnz
    found = library.numpy(pruned.matrix)
    np.testing.assert_array_equal(found, found.T)
    assert pruned.prune == 1e-3
    # Each blend drops at most 1e-3 of the weight, and α halves the previous error.
    assert 0 < np.abs(found - exact).sum() < 2 * 1e-3 * 2 * np.abs(exact).sum()


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.floats(0.0, 1.0), st.floats(0.0, 0.5), st.booleans())
def test_a_blend_leaves_out_no_more_than_it_says(seed, alpha, prune, moved):
    rng = np.random.default_rng(seed)
    w, past = (graph(rng) * np.exp(rng.normal(0, 6)) for _ in range(2))
    past_ids = list("zkxbadyclmwif") if moved else IDS
    past = past[: len(past_ids), : len(past_ids)]
    moves = align(tuple(IDS), tuple(past_ids), w)
    found = Sparse(scipy.sparse.csr_array(w), prune).blend(Sparse(scipy.sparse.csr_array(past)), alpha, moves)
    whole = reference.blend(w, past, alpha, IDS, past_ids)
    left_out = np.abs(found.matrix.toarray() - whole).sum()
    allowed = prune * (alpha * np.abs(past).sum() + (1 - alpha) * np.abs(w).sum())
    assert left_out <= allowed * (1 + 1e-12) + 1e-14 * np.abs(whole).sum()
    np.testing.assert_array_equal(found.matrix.toarray(), found.matrix.toarray().T)


def community_steps(rng, n, n_steps, churn=0, density=0.15):
    """Yield (ids, W) of graphs with three communities and redrawn edges; objects come and go."""
    ids = np.arange(n)
    for _ in range(n_steps):
        inside = (ids[:, None] % 3) == (ids[None, :] % 3)
        links = np.triu(rng.random((n, n)) < np.where(inside, 2 * density, density / 3), 1)
        w = np.where(links, rng.gamma(2.0, 0.5, (n, n)), 0.0)
        yield tuple(ids.tolist()), w + w.T + np.diag(rng.random(n) * 4)
        if churn:
            fresh = ids.max() + 1 + np.arange(churn)
            ids = rng.permutation(np.concatenate([ids[churn:], fresh]))


def test_default_pruning_is_not_noticed():
    # Enough steps for early edges to be pruned, as the number of entries shows.
    # Half the estimated α, so that edges decay within few steps.
    def half(W, past, labels, _):
        return ax.forgetting_factor(W, past, labels) / 2

    models = {prune: ax.Affect(ax.KMeans(3), alpha=half, random_state=0) for prune in (0.0, None)}
    fewer = 0
    for ids, w in community_steps(np.random.default_rng(0), 90, 70, density=0.01):
        for prune, model in models.items():
            matrix = scipy.sparse.csr_array(w)
            model.partial_fit(Sparse(matrix) if prune is None else Sparse(matrix, prune), ids)
        kept, pruned = models[0.0], models[None]
        np.testing.assert_array_equal(kept.labels_, pruned.labels_)
        assert abs(kept.alpha_ - pruned.alpha_) < 1e-12
        fewer = max(fewer, kept.smoothed_.matrix.nnz - pruned.smoothed_.matrix.nnz)
    assert fewer > 100


@pytest.mark.parametrize("prune", [-1.0, 1.5, "no"])
def test_bad_prune(prune):
    with pytest.raises((InputError, InputTypeError), match="prune"):
        Sparse(scipy.sparse.eye_array(3), prune)


# ---- algorithms


def assert_like_dense(library, steps, make_model):
    sparse, dense = make_model(), make_model()
    for ids, w in steps:
        sparse.partial_fit(Sparse(library.matrix(w)), ids)
        dense.partial_fit(library.array(w), ids)
        np.testing.assert_array_equal(library.numpy(sparse.labels_), library.numpy(dense.labels_))
        np.testing.assert_allclose(sparse.alphas_, dense.alphas_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        library.numpy(sparse.smoothed_.matrix), library.numpy(dense.smoothed_.array), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("churn", [0, 4], ids=["same objects", "objects come and go"])
@pytest.mark.parametrize("init", ["previous", "static"])
def test_affect_is_that_of_the_dense_matrix(library, churn, init):
    steps = community_steps(np.random.default_rng(3), 45, 5, churn)
    assert_like_dense(library, steps, lambda: ax.Affect(ax.KMeans(3), init=init, random_state=1))


@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.SkewedWarning")  # some are skewed by chance
@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.InputWarning")  # or have no edges
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(6, 40), st.integers(0, 5), st.floats(0.02, 0.45))
def test_affect_is_that_of_the_dense_matrix_on_any_graph(seed, n, churn, density):
    steps = community_steps(np.random.default_rng(seed), n, 4, min(churn, n), density)
    host = Library(scipy.sparse, Backend("numpy", np))
    assert_like_dense(host, steps, lambda: ax.Affect(ax.KMeans(2, max_iter=1000), random_state=seed))


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_kmeans_is_that_of_the_dense_matrix(library, init):
    ((_, w),) = community_steps(np.random.default_rng(0), 60, 1)
    sparse, dense = (
        ax.kmeans(p, 3, init=init, n_init=4, rng=0) for p in (Sparse(library.matrix(w)), library.array(w))
    )
    np.testing.assert_array_equal(library.numpy(sparse.labels), library.numpy(dense.labels))
    np.testing.assert_allclose(sparse.inertia, dense.inertia, rtol=1e-12)


def test_a_graph_without_links(library):
    w = Sparse(checked_sparse(library.matrix(np.zeros((N, N))), "W"))
    assert w.matrix.nnz == 0
    model = ax.Affect(lambda _: library.array(np.arange(N) % 2)).partial_fit(w).partial_fit(w)
    assert model.alpha_ == 0.0


# ---- checks of input

FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_all_formats_and_classes_of_scipy(form, kind):
    w = graph(np.random.default_rng(0))
    given_matrix = getattr(scipy.sparse, f"{form}_{kind}")(w)
    assert is_sparse(given_matrix)
    for made in (checked_sparse(given_matrix, "W"), Sparse(given_matrix).matrix):
        assert isinstance(made, scipy.sparse.csr_array) and made.has_canonical_format
        np.testing.assert_array_equal(made.toarray(), w)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_formats_of_the_library(library, form):
    w = graph(np.random.default_rng(0))
    found = checked_sparse(library.matrix(w).asformat(form), "W")
    assert found.format == "csr"
    np.testing.assert_array_equal(library.numpy(found), w)


def test_arrays_are_not_sparse():
    assert not is_sparse(np.eye(3)) and not is_sparse([[1.0]])
    with pytest.raises(InputTypeError, match=r"matrix must be a sparse matrix.*got ndarray.*Dense"):
        Sparse(np.eye(3))


def test_what_is_in_order_is_kept_and_not_copied(library):
    matrix = library.matrix(graph(np.random.default_rng(0)))
    Sparse(checked_sparse(matrix, "W")).matrix.data[:] = 7.0
    assert set(library.numpy(matrix.data).tolist()) == {7.0}


def test_the_matrix_given_is_not_changed(library):
    # Unsorted rows, with a duplicate entry and a stored zero.
    arrays = [2.0, 3.0, 1.5, 1.5, 2.0, 0.0, 0.0], [2, 1, 0, 0, 0, 2, 1], [0, 2, 4, 7]
    data, indices, indptr = (library.array(a, t) for a, t in zip(arrays, "dii", strict=True))
    matrix = type(library.matrix(np.eye(3)))((data, indices, indptr), shape=(3, 3))
    for make in (lambda m: checked_sparse(m, "W"), lambda m: Sparse(m).matrix):
        found = make(matrix)
        np.testing.assert_array_equal(library.numpy(found), [[0, 3, 2], [3, 0, 0], [2, 0, 0]])
        assert found.has_canonical_format
        np.testing.assert_array_equal(library.numpy(matrix.data), arrays[0])
        np.testing.assert_array_equal(library.numpy(matrix.indices), arrays[1])
    assert checked_sparse(matrix, "W").nnz == 4


def test_stored_zeros_and_repeated_entries():
    rows, columns, values = [0, 1, 0, 1, 0, 1, 2], [1, 0, 1, 0, 2, 2, 2], [1.0, 1.0, 2.0, 2.0, 0.0, 0.0, 5.0]
    given_matrix = scipy.sparse.coo_array((values, (rows, columns)), shape=(3, 3))
    found = checked_sparse(given_matrix, "W")
    assert found.nnz == 3 and given_matrix.nnz == 7
    np.testing.assert_array_equal(found.toarray(), [[0, 3, 0], [3, 0, 0], [0, 0, 5]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64, bool])
def test_integers_become_float64(dtype):
    found = checked_sparse(scipy.sparse.csr_array(np.eye(3, dtype=dtype)), "W")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found.toarray(), np.eye(3))


def test_room_behind_the_last_entry_is_no_entry():
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.data, matrix.indices = np.append(matrix.data, np.nan), np.append(matrix.indices, np.int32(99))
    for found in (checked_sparse(matrix, "W"), Sparse(matrix).matrix):
        assert found.data.shape == (3,)
    assert matrix.data.shape == (4,)


def test_small_integers_do_not_overflow_when_added_up():
    hundreds = np.full(4, 100, dtype=np.int8)
    matrix = scipy.sparse.coo_array((hundreds, ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    np.testing.assert_array_equal(checked_sparse(matrix, "W").toarray(), [[0, 200], [200, 0]])


def test_float32_stays(library):
    found = checked_sparse(library.matrix(np.eye(3), np.float32), "W")
    assert found.dtype == np.float32


def with_values(dtype):
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.data = matrix.data.astype(dtype)
    return matrix


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (scipy.sparse.csr_array((3, 4)), InputError, r"W must be a square matrix of .*got shape \(3, 4\)"),
        (
            scipy.sparse.coo_array(np.arange(3)),
            InputError,
            r"W must be a square matrix of .*got shape \(3,\)",
        ),
        (scipy.sparse.csr_array((0, 0)), InputError, r"W has no objects"),
        (
            with_values(np.float16),
            InputTypeError,
            r"W must be of dtype float32 or float64, got float16; use astype",
        ),
        (
            with_values(np.longdouble),
            InputTypeError,
            r"W must be of dtype float32 or float64, got .*; use astype",
        ),
        (with_values(complex), InputTypeError, r"W must be real, got dtype complex128"),
    ],
    ids=["not square", "one axis", "empty", "float16", "longdouble", "complex"],
)
def test_what_cannot_be_a_proximity(matrix, error, message):
    with pytest.raises(error, match=message):
        checked_sparse(matrix, "W")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_located(library, value):
    w = graph(np.random.default_rng(0))
    w[4, 7] = w[7, 4] = value
    with pytest.raises(InputError, match=rf"past must be finite, but past\[4, 7\] = {value}; leave"):
        checked_sparse(library.matrix(w), "past")


def test_an_asymmetric_pattern_is_refused(library):
    upper = np.triu(np.ones((4, 4)), 1)
    upper[0, 1] = 0.0
    with pytest.raises(
        InputError, match=r"W\[0, 2\] = 1.0 but W\[2, 0\] = 0.0; use \(W \+ W.T\) / 2 .*W.maximum\(W.T\)"
    ):
        checked_sparse(library.matrix(upper), "W")


def test_asymmetric_values_are_refused(library):
    w = graph(np.random.default_rng(0), density=1.0)
    w[2, 5] += 1e-3
    with pytest.raises(InputError, match=r"W is not symmetric: W\[2, 5\] = .* but W\[5, 2\] = "):
        checked_sparse(library.matrix(w), "W")


@pytest.mark.parametrize(("dtype", "gap"), [(np.float64, 1e-10), (np.float32, 1e-5)])
def test_rounding_is_averaged_away(library, dtype, gap):
    w = graph(np.random.default_rng(0), density=1.0).astype(dtype)
    noisy = (w * (1 + gap * np.random.default_rng(1).random((N, N)))).astype(dtype)
    noisy[0, N - 1], noisy[N - 1, 0] = gap, 0.0  # stored on one side only
    found = library.numpy(checked_sparse(library.matrix(noisy, dtype), "W"))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, (noisy + noisy.T) / 2, rtol=1e-6)


def test_indices_that_overflowed_are_refused():
    matrix = scipy.sparse.csr_array(np.eye(3))
    matrix.indices = np.array([0, 1, -2147483648], dtype=np.int32)
    with pytest.raises(InputError, match=r"W is not a valid sparse matrix: .*; rebuild it"):
        checked_sparse(matrix, "W")


def test_cupy_is_not_imported():
    code = "import sys, affect_xp.proximity.sparse; assert not {'cupy', 'cupyx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
