"""Proximities in dask arrays: one compute per operation, each chunk once, also on a real cluster."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import reference
from chunked_cases import (
    LABELS,
    N,
    close,
    failing_blends,
    lazy_products,
    run,
    same_answer,
    steps,
    symmetric,
)
from conftest import Backend
from representations import distance_twin, moments_twin

import affect_xp as ax
from affect_xp.exceptions import AffectError, InputError, InputTypeError
from affect_xp.partition import Partition, align
from affect_xp.proximity import grouped, summed_proximity
from affect_xp.proximity.checks import checked_array
from affect_xp.proximity.chunked import Chunked, _chunk
from affect_xp.proximity.chunked._plan import Chunks, Plan
from affect_xp.proximity.chunked._spill import Kept
from affect_xp.proximity.kernels import features_to_proximity

pytest_plugins = ("chunked_fixtures",)

CHUNKS = [(4, 4), (3, 5), (11, 11), ((2, 5, 4), (11,)), (1, 1)]


@pytest.fixture(params=CHUNKS, ids=str)
def w(request, da, library):
    return Chunked(da.from_array(library.array(symmetric()), chunks=request.param, asarray=False))


# Computes


def test_each_question_is_one_compute(da, library, w, computes):
    """The results equal those of the matrix for any chunking."""
    v, guess = np.random.default_rng(1).normal(size=(N, 3)), symmetric(4, seed=2)
    partition, rows = Partition(library.array(LABELS), 4), np.array([2, 9, 5])
    past, ids, past_ids = symmetric(9, seed=3), tuple("abcdefghijk"), tuple("kxbadycif")
    before = Chunked(da.from_array(library.array(past), chunks=4, asarray=False))
    moves = align(ids, past_ids, library.array([0.0]))
    means, squares = moments_twin(symmetric(), LABELS, 4)
    answers = {
        "product": (lambda: w.matmul(library.array(v)), symmetric() @ v),
        "rows": (
            lambda: w.matmul(library.array(v[rows]), library.array(rows)),
            symmetric()[:, rows] @ v[rows],
        ),
        "diagonal": (w.diagonal, np.diag(symmetric())),
        "means": (lambda: w.group(partition).moments()[0], means),
        "squares": (lambda: w.group(partition).moments()[1], squares),
        "distance": (
            lambda: w.group(partition).distance_to(library.array(guess)),
            distance_twin(symmetric(), LABELS, guess),
        ),
        "blend": (
            lambda: w.blend(before, library.array(0.25), moves),
            reference.blend(symmetric(), past, 0.25, ids, past_ids),
        ),
    }
    assert computes == []
    for name, (ask, expected) in answers.items():
        found = ask()
        assert len(computes) == 1, name
        close(library.numpy(found.array.compute() if isinstance(found, Chunked) else found), expected)
        computes.clear()
    w.diagonal()  # cached
    w.take(library.array(rows))  # lazy
    w.matmul(library.array(v[:0]), library.array(rows[:0]))
    assert computes == []


def test_products_with_many_columns_are_made_in_parts(da, library):
    w, rows = Chunked(da.from_array(library.array(symmetric()), chunks=4, asarray=False)), np.array([9, 0, 4])
    v = np.random.default_rng(1).normal(size=(3, 40))
    close(library.numpy(w.matmul(library.array(v), library.array(rows))), symmetric()[:, rows] @ v)


def test_blend_of_the_same_objects_that_are_cut_otherwise_keeps_the_dtype(da, library, computes):
    now, past = (symmetric(seed=s).astype(np.float32) for s in (0, 1))
    w, before = (
        Chunked(da.from_array(library.array(x), chunks=c, asarray=False)) for x, c in ((now, 4), (past, 3))
    )
    blended = w.blend(before, 0.25, align(range(N), range(N), library.array([0.0])))
    assert blended.array.dtype == np.float32 and len(computes) == 1
    close(library.numpy(blended.array.compute()), 0.25 * past + 0.75 * now, rtol=1e-6, atol=1e-6)


def test_a_copy_keeps_what_was_there(da, computes):
    storage = symmetric()
    lazy = da.map_blocks(
        lambda block_info=None: storage[_place(block_info)], chunks=((4, 7),) * 2, dtype=float
    )
    copy = Chunked(lazy).copy()
    assert len(computes) == 1
    storage[...] = 99.0
    close(copy.array.compute(), symmetric())


def _place(block_info):
    return tuple(slice(*ends) for ends in block_info[None]["array-location"])


# Chunks that are read


def test_only_chunks_on_and_right_of_the_diagonal_are_made(da):
    made, whole = [], symmetric(12)

    def chunk(block_info=None):
        made.append(block_info[None]["chunk-location"])
        return whole[_place(block_info)]

    w = Chunked(da.map_blocks(chunk, chunks=((3,) * 4,) * 2, dtype=float, meta=np.empty((0, 0))))
    upper = {(i, j) for i in range(4) for j in range(i, 4)}
    labels = Partition(np.arange(12) % 2, 2)
    same = align(range(12), range(12), whole)
    questions = {
        "diagonal": (w.diagonal, {(i, i) for i in range(4)}),  # first: the moments contain it
        "moments": (lambda: w.block_moments(labels), upper),
        "distance": (lambda: w.square_distance(labels, np.eye(2)), upper),
        "product": (lambda: w.matmul(np.ones((12, 2))), upper),
        "rows": (lambda: w.matmul(np.ones((2, 2)), np.array([4, 5])), {p for p in upper if 1 in p}),
        "copy": (w.copy, upper),
        "blend": (lambda: w.blend(Chunked(da.zeros((12, 12), chunks=3)), 0.5, same), upper),
    }
    for name, (ask, expected) in questions.items():
        made.clear()
        ask()
        assert sorted(made) == sorted(expected), name  # each once


def test_single_precision_is_summed_in_double(da):
    x = symmetric(60, mean=1e4).astype(np.float32)
    w = Chunked(da.from_array(x, chunks=17))
    means, squares = w.block_moments(Partition(np.arange(60) % 2, 2))
    expected = moments_twin(x.astype(np.float64), np.arange(60) % 2, 2)
    assert means.dtype == np.float64
    close(means, expected[0], rtol=1e-14)
    close(squares, expected[1], rtol=1e-10)


def test_digits_survive_a_large_mean(da):
    x = symmetric(60, mean=1e8)
    _, squares = Chunked(da.from_array(x, chunks=17)).block_moments(Partition(np.arange(60) % 2, 2))
    close(squares, moments_twin(x, np.arange(60) % 2, 2)[1], rtol=1e-9)


# The functions of one chunk, on every library


NUMPY = Backend("numpy", np)
PLACES = [(slice(0, 4), slice(0, 4)), (slice(0, 4), slice(4, N)), (slice(4, N), slice(4, N))]


def chunks_with_labels(library, w, labels=LABELS):
    """Return chunks on and above the diagonal, the labels of their rows and columns, and which are on it."""
    return [(library.array(w[a, b]), labels[a], labels[b], a == b) for a, b in PLACES]


def test_chunk_functions(eager_xp, small_blocks):
    w, k, guess = symmetric(), 4, symmetric(4, seed=2)
    chunks = chunks_with_labels(eager_xp, w)
    moments = [_chunk.centred_moments(block, a, b, k, own) for block, a, b, own in chunks]
    merged = eager_xp.numpy(_chunk.merged_moments(eager_xp.xp.stack(moments)))
    means, squares = moments_twin(w, LABELS, k)
    close(merged[1], means)
    close(merged[2], squares)
    found = [_chunk.centred_distance(block, a, b, guess, own) for block, a, b, own in chunks]
    close(sum(float(eager_xp.numpy(f)) for f in found), distance_twin(w, LABELS, guess))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("strided", [False, True])
def test_sums_of_a_chunk_by_label(eager_xp, small_blocks, monkeypatch, dtype, strided):
    monkeypatch.setattr(_chunk, "SUMMED_ENTRIES", 1)
    monkeypatch.setattr(_chunk, "MIN_SUMMED_ROWS", 2)
    w, z = symmetric().astype(dtype), np.eye(5)[LABELS][:, :4]
    exact = w.astype(np.float64)
    w = np.repeat(w, 2, axis=1)[:, ::2] if strided else w
    for (a, b), (block, c_a, c_b, own) in zip(PLACES, chunks_with_labels(eager_xp, w), strict=True):
        right, down, q, diagonal = _chunk.chunk_sums(block, c_a, c_b, 4, own)
        close(eager_xp.numpy(right), exact[a, b] @ z[b])
        expected = z[a].T @ exact[a, b] ** 2 @ z[b]
        close(eager_xp.numpy(q), expected if own else expected + expected.T)
        close(eager_xp.numpy(_chunk.block_squares(block, c_a, c_b, 4, own)), eager_xp.numpy(q))
        products = _chunk.label_products(block, c_a[:, None], c_b[:, None], 4, own)
        close(eager_xp.numpy(products[0]), exact[a, b] @ z[b])
        if own:
            assert down is None and products[1] is None
            close(eager_xp.numpy(diagonal), np.diag(exact[a, b]))
        else:
            close(eager_xp.numpy(down), exact[a, b].T @ z[a])
            close(eager_xp.numpy(products[1]), exact[a, b].T @ z[a])
        both = np.stack([c_a, c_a[::-1]], axis=1), np.stack([c_b, c_b[::-1]], axis=1)
        runs = eager_xp.numpy(_chunk.label_products(block, *both, 4, own)[0])
        close(runs, exact[a, b] @ np.concatenate([z[b], z[b][::-1]], axis=1))


@pytest.mark.parametrize("mean", [0, 1e3])
@pytest.mark.parametrize("own", [False, True])
def test_rows_of_a_large_chunk_are_summed_in_single_precision(monkeypatch, mean, own):
    """Rounding is relative to the spread within blocks, also if the mean or wᵢᵢ is far larger."""
    rng, n, k = np.random.default_rng(0), 300, 4
    x, y, v = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), np.float32(rng.normal(size=(2, n)))
    w = np.float32((x @ x.T if own else x @ y.T) + mean + 1e5 * own * np.eye(n))
    rows, columns = np.int8(rng.integers(-1, k, (2, n)))
    given = w, rows, rows if own else columns, k, own
    expected = _chunk.label_sums(*given, v=tuple(np.float64(v)))
    monkeypatch.setattr(grouped, "MIN_NARROW", 1)
    found = _chunk.label_sums(*given, v=tuple(np.float64(v)))
    assert not np.array_equal(found[3], expected[3])  # not in double precision
    for a, b, limit in zip(found, expected, (n, n, n * n, n, n), strict=True):
        assert (a is None) == (b is None)
        close(0 if a is None else a, 0 if b is None else b, rtol=1e-13, atol=1e-6 * limit)
    close(_chunk.block_squares(*given), expected[2], rtol=1e-13, atol=1e-6 * n * n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_chunk_is_checked_and_summed_in_one_pass(dtype):
    w, v = symmetric().astype(dtype), np.random.default_rng(1).normal(size=N)
    w[2, 9] += 1
    for (a, b), (block, c_a, c_b, own) in zip(PLACES, chunks_with_labels(NUMPY, w), strict=True):
        *sums, right, down, largest = _chunk.checked_sums(
            block, (c_a, c_b), (v[a], v[b]), 4, slice(1, None), own
        )
        for found, expected in zip(sums, _chunk.chunk_sums(block, c_a, c_b, 4, own), strict=True):
            assert (found is None) == (expected is None)
            close(0 if found is None else found, 0 if found is None else expected)
        close(right, w[a, b].astype(np.float64) @ v[b])
        close(down, v[a] @ w[a, b].astype(np.float64))
        assert largest == max(np.abs(w[a, b][1:]).max(), np.abs(np.diag(w[a, b])).max() if own else 0)


def test_changes_of_a_chunk(eager_xp, small_blocks):
    """W·Z and sums of squares after moves, for moved rows, moved columns, and both."""
    w, k = symmetric().astype(np.float32), 4
    after = np.where(np.isin(np.arange(N), [0, 3, 9, 10]), 2, LABELS)
    z, moved = (np.eye(k + 1)[c][:, :k] for c in (LABELS, after))
    q = w.astype(np.float64) ** 2 * ~np.eye(N, dtype=bool)
    total = 0
    for (a, b), (block, *_, own) in zip(PLACES, chunks_with_labels(eager_xp, w), strict=True):
        rows, columns = (np.flatnonzero(LABELS[s] != after[s]) for s in (a, b))
        sides = [(i, LABELS[s][i, None], after[s][i, None]) for i, s in ((rows, a), (columns, b))]
        right, down = _chunk.moved_products(block, *sides, k)
        close(eager_xp.numpy(right), w[a, b].astype(np.float64) @ (moved - z)[b])
        close(eager_xp.numpy(down), w[a, b].astype(np.float64).T @ (moved - z)[a])
        assert _chunk.moved_products(block, sides[0], None, k)[0] is None
        chunk = w[a, b], (LABELS[a], LABELS[b]), (after[a], after[b])
        total += _chunk.square_changes(*chunk, k, (True, not own), own)
    close(total + total.T, moved.T @ q @ moved - z.T @ q @ z)


def test_chunk_products_and_blend(eager_xp, small_blocks):
    w, v = symmetric()[:4, 4:].astype(np.float32), np.random.default_rng(1).normal(size=(N, 2))
    block, index = eager_xp.array(w), np.array([1, 3])
    some = (index, eager_xp.array(v[index]))
    right, down = _chunk.chunk_products(block, eager_xp.array(v[:4]), eager_xp.array(v[4:]), False)
    close(eager_xp.numpy(right), w.astype(np.float64) @ v[4:])
    close(eager_xp.numpy(down), w.T.astype(np.float64) @ v[:4])
    right, down = _chunk.some_products(block, some, some)
    close(eager_xp.numpy(right), w[:, index].astype(np.float64) @ v[index])
    close(eager_xp.numpy(down), w[index].T.astype(np.float64) @ v[index])
    assert _chunk.some_products(block, some, None)[0] is None
    known = np.array([True, False, True, True]), np.arange(7) != 2
    for mask in (known, None):
        past = eager_xp.array(np.ones((4, 7), dtype=np.float32))
        found = _chunk.chunk_blend(block, past, 0.25, mask, False)
        expected = 0.25 + 0.75 * w if mask is None else np.where(np.outer(*known), 0.25 + 0.75 * w, w)
        close(eager_xp.numpy(found.array), expected, rtol=1e-6)
        close(eager_xp.numpy(found.square_sum), 2 * (expected.astype(np.float64) ** 2).sum(), rtol=1e-6)
        assert found.diagonal is None
    found = _chunk.chunk_copy(eager_xp.array(symmetric()), True)
    close(eager_xp.numpy(found.diagonal), np.diag(symmetric()))
    close(eager_xp.numpy(found.square_sum), (symmetric() ** 2).sum())


@pytest.mark.parametrize("which", ["usual", "read-only", "not aligned"])
def test_a_blend_is_in_place_of_a_past_that_is_writeable_and_aligned(which):
    w, past = symmetric(), symmetric(seed=1)
    if which == "not aligned":  # as chunks that a worker receives may be
        past = np.frombuffer(bytearray(1) + past.tobytes(), np.uint8)[1:].view(float).reshape(N, N)
        assert past.flags.writeable and not past.flags.aligned
    past.flags.writeable = which != "read-only"
    expected = 0.25 * past + 0.75 * w
    kept = Kept(past, 0.0, None)
    found = _chunk.chunk_blend_in_place(w, kept, 0.25, None, True)
    assert np.shares_memory(found.array, past) == (which == "usual")
    close(found.array, expected)
    if which == "usual":  # it is not blended twice; dask may ask for the same again
        assert _chunk.chunk_blend_in_place(w, kept, 0.25, None, True) is found
        with pytest.raises(AffectError, match=r"call reset\(\)"):
            _chunk.chunk_blend_in_place(w, kept, 0.5, None, True)
    assert sys.getsizeof(found) > w.nbytes  # dask knows what it costs to move it


@pytest.mark.parametrize("on_diagonal", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_squares_of_a_blend_follow_from_those_of_its_parts(dtype, alpha, on_diagonal):
    w, past = symmetric(mean=3).astype(dtype), symmetric(seed=1, mean=3).astype(dtype)
    copies = 1 if on_diagonal else 2
    squares = [copies * float((x.astype(np.float64) ** 2).sum()) for x in (past, w)]
    expected = alpha * past.astype(np.float64) + (1 - alpha) * w
    found = _chunk.chunk_blend_in_place(w, Kept(past, squares[0], None), alpha, None, on_diagonal, squares[1])
    tolerance = 1e-12 if dtype == np.float64 else 1e-6
    close(found.array, expected, rtol=tolerance, atol=tolerance)
    close(found.square_sum, copies * (expected**2).sum(), rtol=tolerance)
    assert np.shares_memory(found.array, past)


def test_differences_that_would_overflow_are_not_formed():
    w = np.full((2, 2), 3e38, dtype=np.float32)
    found = _chunk.chunk_blend_in_place(w, Kept(-w, 3.6e77, None), 0.5, None, True, 3.6e77)
    close(found.array, np.zeros((2, 2)))


def test_squares_of_the_chunks_are_kept_if_all_objects_have_labels(da):
    w = symmetric()
    for labels, known in ((np.arange(N) % 3, True), (LABELS, False)):
        W = summed_proximity(da.from_array(w, chunks=4), "W", Partition(labels, 4))
        assert (W.chunk_squares is not None) == known
        if known:
            close(W.chunk_squares[0, 0], (w[:4, :4] ** 2).sum())
            close(W.chunk_squares[0, 2], 2 * (w[:4, 8:] ** 2).sum())
            close(sum(W.chunk_squares.values()), (w**2).sum())


def test_rows_of_a_chunk_that_is_not_aligned_are_not_taken_at_once(monkeypatch):
    """`np.take` would copy the whole chunk for each block of rows."""
    aligned = symmetric()
    w = np.frombuffer(bytearray(1) + aligned.tobytes(), np.uint8)[1:].view(float).reshape(N, N)
    taken, take = [], np.take
    monkeypatch.setattr(np, "take", lambda *args, **options: taken.append(1) or take(*args, **options))
    for chunk, at_once in ((w, False), (aligned, True)):
        taken.clear()
        [(_, rows)] = _chunk._gathered(chunk, np.array([3, 1]), np.empty((2, N)))
        close(rows, aligned[[3, 1]])
        assert bool(taken) == at_once


# Chunks in memory


@pytest.mark.parametrize("chunks", [4, ((2, 5, 4), (2, 5, 4)), 11])
def test_rows_of_chunks_in_memory_are_read_instead_of_columns(da, monkeypatch, chunks):
    """The answers are those of lazy chunks, of which only those on and above the diagonal are read."""
    x = symmetric()
    whole = Chunked(da.from_array(x, chunks=chunks))
    lazy = Chunked(da.from_array(x, chunks=chunks).map_blocks(np.copy))
    before, after = (Partition(c, 4) for c in (LABELS, np.where(np.arange(N) % 4 == 1, 2, LABELS)))
    moved, z = np.flatnonzero(after.labels != LABELS), before.membership
    taken, take = [], _chunk._parts
    monkeypatch.setattr(_chunk, "_parts", lambda w, some, axis: taken.append(axis) or take(w, some, axis))
    for w in (whole, lazy):
        grouped = w.grouped(LABELS[:, None], 4).regrouped(after.labels[:, None], moved)
        close(grouped.array, x @ after.membership)
        q = x**2 * ~np.eye(N, dtype=bool)
        expected = after.membership.T @ q @ after.membership - z.T @ q @ z
        close(w.change_of_squares(before, after, moved), expected)
        assert (1 in taken) == (w is lazy and len(w.array.chunks[0]) > 1)
        taken.clear()


def test_chunks_of_one_worker_are_read_by_one_task():
    from dask._task_spec import DataNode, TaskRef

    chunks = Chunks(
        {(0, i): TaskRef(("w", i)) for i in range(7)}, {("w", i): DataNode(("w", i), i) for i in range(7)}
    )
    chunks.__dict__["holders"] = {("w", i): (f"worker {i % 2}", 1 + i % 2) for i in range(6)}
    plan = Plan(chunks)
    nodes = [plan.add(lambda i: 10 * i, node) for node in chunks.at.values()]
    key = [node.key for node in nodes]
    assert plan._together(key, 1) == []
    assert plan._together(key, 2) == [[key[0], key[2]], [key[1], key[3]]]
    assert plan._together(key, 9) == [[key[0], key[2], key[4]], [key[1], key[3]]]  # two threads: 1 and 3, 5
    assert plan.compute(nodes, 9) == [10 * i for i in range(7)]


# AFFECT


def test_affect_is_that_of_dense(da, expected):
    assert len(expected[0]) == 4 and all(alphas[-1] > 0.1 for _, alphas in expected[0][1:])
    same_answer(run(lambda x, t: Chunked(da.from_array(x @ x.T, chunks=(17 + t, 23)))), expected)


def test_affect_on_lazy_features(da, expected):
    same_answer(run(lambda x, t: features_to_proximity(da.from_array(x, chunks=(19, 2)))), expected)


@pytest.mark.parametrize(
    "clusterer",
    [
        ax.Linkage(2),
        ax.Linkage("gap", max_clusters=4),
        ax.Linkage("silhouette", max_clusters=4),
        ax.Linkage("calinski_harabasz", max_clusters=4),
        ax.KMeans("silhouette", max_clusters=4),
        ax.Spectral(2),
        lambda w: np.arange(w.n) % 2,
    ],
    ids=lambda c: type(c).__name__ + str(getattr(c, "n_clusters", "")),
)
def test_each_clusterer_takes_several_steps_and_has_the_answers_of_dense(da, clusterer):
    models = [ax.Affect(clusterer, rescale=None, random_state=0) for _ in range(2)]
    for x, ids in steps(n=20, n_steps=3):
        w = np.exp(-((x[:, None] - x) ** 2).sum(axis=2) / 20)
        w = 1 - w if isinstance(clusterer, ax.Linkage) else w
        models[0].partial_fit(w, ids)
        models[1].partial_fit(da.from_array(w, chunks=7), ids)
        assert isinstance(models[1].labels_, np.ndarray)
        np.testing.assert_array_equal(models[1].labels_, models[0].labels_)
        np.testing.assert_allclose(models[1].alphas_, models[0].alphas_, rtol=1e-9)


def test_features_are_checked_with_one_compute_and_cut_to_size(da, computes):
    import dask

    x = da.from_array(np.random.default_rng(0).normal(size=(100, 3)))
    with dask.config.set({"array.chunk-size": "8 kB"}):
        w = features_to_proximity(x, "rbf")
    assert len(computes) == 1
    assert max(w.array.chunks[0]) ** 2 * 8 <= 8000
    close(w.array.compute(), features_to_proximity(x.compute(), "rbf").array)


# Bad input


def test_a_dask_array_is_checked_with_one_compute(da, computes):
    x = symmetric()
    checked_array(da.from_array(x, chunks=(4, 3)), "W")
    assert len(computes) == 1
    x[2, 9] += 1
    with pytest.raises(InputError, match=r"W is not symmetric: W\[2, 9\]"):
        checked_array(da.from_array(x, chunks=4), "W")
    x[9, 2] = np.nan
    with pytest.raises(InputError, match=r"W\[9, 2\] = nan"):
        checked_array(da.from_array(x, chunks=4), "W")


def test_representations_are_not_mixed(da):
    w = Chunked(da.from_array(symmetric(), chunks=4))
    with pytest.raises(InputTypeError, match=r"cannot blend Chunked with Dense; .*dask.array.from_array"):
        w.blend(ax.Dense(symmetric()), 0.5, align(range(N), range(N), symmetric()))


def test_chunks_of_unknown_size_are_refused(da):
    x = da.from_array(symmetric(), chunks=4)
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        Chunked(x[x[:, 0] > 0])


def test_dask_is_not_imported_before_it_is_needed():
    code = (
        "import sys, affect_xp.proximity.kernels, affect_xp.proximity.chunked;"
        "print([m for m in sys.modules if m in ('dask', 'zarr')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# A cluster of two processes


@pytest.fixture
def cluster():
    """Two new processes per test: a cluster gives up a worker that dies twice."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def expected_of_two_steps():
    return run(lambda x, t: x @ x.T, n_steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["in memory", "in a store"])
def test_a_worker_that_dies_in_a_step_changes_nothing(da, cluster, expected_of_two_steps, tmp_path, kept):
    store = tmp_path / "store" if kept == "in a store" else None
    if store is not None:
        pytest.importorskip("zarr")
    deadly, before = tmp_path / "died", set(cluster.run(os.getpid).values())
    assert len(before) == 2

    def make(x, t):  # the first pass over W of the second step kills
        return Chunked(lazy_products(da, x, str(deadly) if t == 1 else None), store=store)

    same_answer(run(make, n_steps=2), expected_of_two_steps)
    assert deadly.exists()
    assert not before <= set(cluster.run(os.getpid).values())


def of_same_objects(n=60):
    """Yield features of the same objects, some of which move: the blend is written in place of the past."""
    rng = np.random.default_rng(0)
    for t in range(4):
        yield 4 * np.eye(3)[(np.arange(n) + (np.arange(n) < 6 * t)) % 3] + rng.normal(size=(n, 3))


def same_steps(da, models, xs):
    """Yield the number of each step, before the second model takes it on persisted chunks."""
    import distributed

    for t, x in enumerate(xs):
        models[0].partial_fit(x @ x.T)
        W = lazy_products(da, x).persist()
        distributed.wait(W)
        yield t
        models[1].partial_fit(W)
        np.testing.assert_array_equal(models[1].labels_, models[0].labels_)
        np.testing.assert_allclose(models[1].alphas_, models[0].alphas_, atol=1e-10)
    close(models[1].smoothed_.array.compute(), models[0].smoothed_.array)


@pytest.mark.slow
def test_steps_on_persisted_chunks_survive_the_loss_of_a_worker(da, cluster):
    """The blend is written in place of the past, and computed again from all steps."""
    models = [ax.Affect(ax.KMeans(3), random_state=0) for _ in range(2)]
    for t in same_steps(da, models, of_same_objects()):
        if t == 3:
            kept = models[1]._state.smoothed
            holders = {worker for worker, _ in kept._known.chunks.holders.values()}
            os.kill(cluster.run(os.getpid)[min(holders)], signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("blocks", [2, 9])  # in the middle of the first chunk, and of a later one
def test_a_worker_that_dies_while_it_blends_in_place_changes_nothing(da, cluster, tmp_path, copies, blocks):
    models = [ax.Affect(ax.KMeans(3), random_state=0) for _ in range(2)]
    before, died = set(cluster.run(os.getpid).values()), tmp_path / "died"
    for t in same_steps(da, models, of_same_objects(120)):
        if t == 2:
            wait_for_blend(cluster, models[1], copies)
            cluster.run(failing_blends(str(died), blocks, deadly=True))
    assert died.exists()
    assert not before <= set(cluster.run(os.getpid).values())


@pytest.mark.slow
def test_a_blend_in_place_that_fails_is_not_repeated_on_what_it_wrote(da, cluster, tmp_path):
    import dask

    models, failed = [ax.Affect(ax.KMeans(3), random_state=0) for _ in range(2)], tmp_path / "failed"
    xs = list(of_same_objects(120))
    with dask.annotate(retries=2), pytest.raises(AffectError, match=r"call reset\(\)"):
        for t in same_steps(da, models, xs):
            if t == 2:
                wait_for_blend(cluster, models[1])
                cluster.run(failing_blends(str(failed), 2))
    assert failed.exists()
    close(
        models[1].fit([lazy_products(da, x) for x in xs]).smoothed_.array.compute(),
        models[0].fit([x @ x.T for x in xs]).smoothed_.array,
    )


def wait_for_blend(cluster, model, copies=1):
    """Wait until the smoothed proximities are in memory, with so many copies of each chunk."""
    import distributed

    futures = list(model._state.smoothed._known.chunks.graph.values())
    distributed.wait(futures)
    cluster.replicate(futures, copies)


@pytest.mark.slow
def test_what_was_kept_in_the_memory_of_a_lost_worker_is_computed_again(da, cluster):
    import distributed

    x = next(steps())[0]
    blended = Chunked(lazy_products(da, x)).blend(
        Chunked(lazy_products(da, 2 * x)).copy(), 0.5, align(range(60), range(60), x)
    )
    distributed.wait(distributed.futures_of(blended.array))
    holders = {worker for workers in cluster.who_has(blended.array).values() for worker in workers}
    assert holders
    os.kill(cluster.run(os.getpid)[holders.pop()], signal.SIGKILL)
    close(blended.matmul(np.eye(60)), 2.5 * x @ x.T)
