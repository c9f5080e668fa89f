"""Chunked proximities in a store: written once, read in part, and cleaned up."""

import gc
import itertools
import logging
import os
import pickle
import tracemalloc

import numpy as np
import pytest
from chunked_cases import (
    LABELS,
    N,
    close,
    lazy_products,
    run,
    same_answer,
    steps,
    symmetric,
)
from representations import distance_twin, moments_twin

import affect_xp as ax
from affect_xp.partition import Partition, align
from affect_xp.proximity.chunked.chunked import PASS, Chunked

pytest_plugins = ("chunked_fixtures",)

SAME = align(range(N), range(N), np.zeros(1))


def made_chunks(da, library, values, sizes=(4, 5, 2)):
    """Return a lazy dask array of some values, and the list of positions of the chunks computed so far."""
    made = []

    def chunk(block_info=None):
        made.append(block_info[None]["chunk-location"])
        place = tuple(slice(*ends) for ends in block_info[None]["array-location"])
        return library.array(values[place])

    meta = library.array(np.empty((0, 0)))
    return da.map_blocks(chunk, chunks=(sizes, sizes), dtype=meta.dtype, meta=meta), made


# Written by the first operation, read by the others


QUESTIONS = {
    "diagonal": lambda w, library: (w.diagonal(), np.diag(symmetric())),
    "product": lambda w, library: (w.matmul(library.array(np.eye(N))), symmetric()),
    "some rows": lambda w, library: (
        w.matmul(library.array(np.eye(3)), library.array(np.array([9, 2, 3]))),
        symmetric()[:, [9, 2, 3]],
    ),
    "moments": lambda w, library: (
        w.block_moments(Partition(library.array(LABELS), 4))[1],
        moments_twin(symmetric(), LABELS, 4)[1],
    ),
    "distance": lambda w, library: (
        w.square_distance(Partition(library.array(LABELS), 4), library.array(symmetric(4))),
        distance_twin(symmetric(), LABELS, symmetric(4)),
    ),
}


@pytest.mark.parametrize("first", QUESTIONS)
def test_whatever_is_asked_first_each_chunk_is_made_once(da, library, store, computes, first):
    lazy, made = made_chunks(da, library, symmetric())
    w, names = Chunked(lazy, store=store), [name for name in QUESTIONS if name not in (first, "diagonal")]
    for asked, name in enumerate([first, *names, *["diagonal"] * (first != "diagonal")]):
        found, expected = QUESTIONS[name](w, library)
        known = asked > 0 and name == "diagonal"  # computed with the moments
        assert library.owns(found) and len(computes) == asked + 1 - known, name
        close(library.numpy(found), expected)
        assert sorted(made) == list(itertools.combinations_with_replacement(range(3), 2)), name
    close(library.numpy(w.blend(w, 0.5, SAME).array.compute()), symmetric())
    assert len(made) == 6


def test_chunks_of_any_size_and_precision_are_read_in_part(da, store):
    x = symmetric().astype(np.float32)
    for sizes in ((11,), (1,) * 11, (2, 5, 4)):
        w = Chunked(da.from_array(x, chunks=(sizes, sizes)), store=store)
        for rows in ([0], [10, 10, 0], [2, 9, 5], list(range(N))):
            v = np.random.default_rng(1).normal(size=(len(rows), 2))
            close(w.matmul(v, np.array(rows)), x.astype(np.float64)[:, rows] @ v)


def test_what_was_written_becomes_the_copy(da, library, store, computes):
    lazy, made = made_chunks(da, library, symmetric())
    w = Chunked(lazy, store=store)
    w.diagonal()
    copy = w.copy()
    assert len(computes) == 1 and len(os.listdir(store)) == 1
    close(library.numpy(copy.matmul(library.array(np.eye(N)))), symmetric())
    assert len(made) == 6
    close(library.numpy(w.matmul(library.array(np.eye(N)))), symmetric())  # recomputed and written again
    assert len(made) == 12 and len(os.listdir(store)) == 2
    del w
    gc.collect()
    close(library.numpy(copy.copy().array.compute()), symmetric())


def test_the_store_is_zarr(da, store):
    import zarr

    x = symmetric()
    x[:4, 4:9] = x[4:9, :4] = 0  # one chunk of zeros
    copy = Chunked(da.from_array(x, chunks=((4, 5, 2),) * 2), store=store).copy()
    folder = os.path.join(store, os.listdir(store)[0])
    assert sorted(os.listdir(folder)) == ["0.0", "0.1", "0.2", "1.1", "1.2", "2.2"]
    np.testing.assert_array_equal(zarr.open_array(os.path.join(folder, "0.1"), mode="r")[...], x[:4, 4:9])
    np.testing.assert_array_equal(zarr.open_array(os.path.join(folder, "1.2"), mode="r")[...], x[4:9, 9:])
    np.testing.assert_array_equal(copy.array.compute(), x)


# Passes


@pytest.mark.parametrize("question", ["moments", "distance"])
def test_a_product_shares_the_pass_of_the_moments(da, library, computes, question):
    lazy, made = made_chunks(da, library, symmetric())
    w, partition = Chunked(lazy), Partition(library.array(LABELS), 4)
    z = library.numpy(partition.membership)
    groups = w.group(partition)
    assert computes == []
    if question == "moments":
        close(library.numpy(groups.moments()[1]), moments_twin(symmetric(), LABELS, 4)[1])
    else:
        w.diagonal()  # needed on the host
        del computes[:], made[:]
        found = groups.distance_to(library.array(symmetric(4)))
        close(library.numpy(found), distance_twin(symmetric(), LABELS, symmetric(4)))
    close(library.numpy(groups.rows(slice(0, N))), symmetric() @ z)
    assert len(computes) == 1 and len(made) == 6
    groups.moments()
    assert len(computes) == 1  # nor are squares
    other = LABELS.copy()
    other[3] = 2
    moved = groups.regrouped(library.array(other[:, None]), library.array(np.array([3])))
    close(library.numpy(moved.rows(slice(2, 9))), (symmetric() @ (other[:, None] == np.arange(4)))[2:9])


def test_a_product_that_is_looked_at_first_is_computed_once(da, library, computes):
    w = Chunked(da.from_array(library.array(symmetric()), chunks=4, asarray=False))
    labels = np.stack([LABELS % 4, np.arange(N) % 4], axis=1)
    z = np.eye(4)[labels]
    groups = w.grouped(library.array(labels), 4)
    own = [np.diag(z[:, r].T @ symmetric() @ z[:, r]) for r in range(2)]
    close(library.numpy(groups.own()), np.stack(own))
    close(library.numpy(groups.of_runs([1]).rows(slice(0, N))), symmetric() @ z[:, 1])
    assert len(computes) == 1


@pytest.mark.parametrize("kept", ["in memory", "in a store"])
def test_affect_computes_what_it_tells_and_nothing_else(da, store, computes, caplog, kept):
    n_steps = 3
    with caplog.at_level(logging.DEBUG, logger="affect_xp"):
        start, x = np.arange(60) % 3, next(steps())[0]
        model = ax.Affect(ax.KMeans(3, init=start), n_iter=2, init="previous")
        for t in range(n_steps):
            w = lazy_products(da, x + 0.1 * t)
            model.partial_fit(Chunked(w, store=store if kept == "in a store" else None))
    told = [record.args[0] for record in caplog.records if record.msg == PASS]
    # The diagonal and the sum of squares of a blend in memory are computed with it, and read once.
    assert len(computes) == len(told) + (n_steps - 1 if kept == "in memory" else 0)
    whole = [name.removesuffix(", all written") for name in told]
    assert whole.count("blend or copy") == (n_steps - 1 if kept == "in a store" else n_steps)
    # α by the previous labels, and the uncertainty of block means at the first step.
    assert whole.count("sums and squares") == n_steps
    # Ψ̂·Z is known to k-means, so that a distance needs only Σψ².
    assert whole.count("product") == whole.count("distance") == 0
    assert whole.count("squares by block") == (kept == "in a store")  # of the first W, which is not copied
    assert whole.count("squares of some rows") <= n_steps - 1  # α by labels that were found


def test_memory_is_that_of_a_few_chunks(da, store):
    import dask

    n, size = 2000, 200
    x = np.random.default_rng(0).normal(size=(n, 3)) + 4 * np.eye(3)[np.arange(n) % 3]

    def lazy(x):
        return da.map_blocks(
            lambda block_info=None: (
                x[slice(*block_info[None]["array-location"][0])]
                @ x[slice(*block_info[None]["array-location"][1])].T
            ),
            chunks=((size,) * (n // size),) * 2,
            dtype=float,
            meta=np.empty((0, 0)),
        )

    with dask.config.set(scheduler="synchronous"):
        model = ax.Affect(ax.KMeans(3, init=np.arange(n) % 3), n_iter=1)
        model.partial_fit(Chunked(lazy(x), store=store))
        tracemalloc.start()
        model.partial_fit(Chunked(lazy(x + 0.1), store=store))
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert highest < 8 * n * n / 5  # a fifth of a matrix, mostly task graphs
    assert model.alpha_ > 0


def test_a_matrix_larger_than_the_device(da, store):
    """Chunks on the host or in the store visit the device one at a time."""
    cupy = pytest.importorskip("cupy")
    import dask

    n, size = 600, 50
    rng = np.random.default_rng(0)
    x = 4 * np.eye(3)[np.arange(n) % 3] + rng.normal(size=(2, n, 3))
    clusterer = ax.KMeans(3, init=np.arange(n) % 3, n_init=1)  # no sample of objects, which has a fixed size
    models = [ax.Affect(clusterer, rescale=None, scale="none", random_state=0) for _ in range(2)]
    peak = PoolPeak(cupy)
    with dask.config.set(scheduler="synchronous"), peak.hook:
        for w in x @ x.transpose(0, 2, 1):
            on_host = da.from_array(w, chunks=size)
            visiting = on_host.map_blocks(cupy.asarray, meta=cupy.empty((0, 0)))
            models[0].partial_fit(Chunked(visiting, store=store))
            models[1].partial_fit(w)
    assert isinstance(models[0].labels_, cupy.ndarray)
    np.testing.assert_array_equal(models[0].labels_.get(), models[1].labels_)
    np.testing.assert_allclose(models[0].alphas_, models[1].alphas_, rtol=1e-10)
    assert 8 * size**2 < peak.bytes < 8 * n * n / 4


class PoolPeak:
    """The largest number of bytes of CuPy's pool in use, while `hook` is entered."""

    def __init__(self, cupy):
        self.bytes = self._used = 0
        peak = self

        class Hook(cupy.cuda.MemoryHook):
            name = "peak"

            def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
                peak._used += mem_size
                peak.bytes = max(peak.bytes, peak._used)

            def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
                peak._used -= mem_size

        self.hook = Hook()


# Cleaned up


def test_affect_in_a_store_keeps_one_matrix(da, expected, store):
    held = []

    def make(x, t):  # all steps use the store of the first
        return Chunked(da.from_array(x @ x.T, chunks=20), store=store if t == 0 else None)

    same_answer(run(make, lambda t: held.append(len(os.listdir(store)))), expected)
    assert held == [1, 1, 1, 1]
    gc.collect()
    assert os.listdir(store) == []  # deleted with the model


@pytest.mark.parametrize("kept", ["in memory", "in a store"])
def test_affect_on_chunks_of_any_library(da, library, expected, store, kept):
    def make(x, t):
        w = da.from_array(library.array(x @ x.T), chunks=20, asarray=False)
        return Chunked(w, store=store if kept == "in a store" else None)

    def numpy(a):
        return library.numpy(a.compute() if isinstance(a, da.Array) else a)

    same_answer(run(make, numpy=numpy), expected)


def test_affect_with_all_in_a_store_keeps_one_matrix_between_steps(da, expected, store):
    held = []

    def count(t):
        gc.collect()
        held.append(len(os.listdir(store)))

    same_answer(run(lambda x, t: Chunked(lazy_products(da, x), store=store), count), expected)
    assert held == [1, 1, 1, 1]
    gc.collect()
    assert os.listdir(store) == []


def test_what_is_derived_keeps_the_store_alive(da, library, store):
    w = Chunked(da.from_array(library.array(symmetric()), chunks=4, asarray=False), store=store).copy()
    taken = w.take(library.array(np.arange(3)))
    del w
    gc.collect()
    assert len(os.listdir(store)) == 1
    close(library.numpy(taken.array.compute()), symmetric()[:3, :3])
    del taken
    gc.collect()
    assert os.listdir(store) == []


def test_the_copies_of_workers_delete_nothing(da, store):
    w = Chunked(da.ones((6, 6), chunks=3), store=store).copy()
    travelled = pickle.loads(pickle.dumps(w._spill))
    assert travelled.path == w._spill.path
    del travelled
    gc.collect()
    close(w.array.compute(), np.ones((6, 6)))


def test_the_past_is_deleted_when_it_may_be_overwritten(da, store):
    past = Chunked(da.zeros((6, 6), chunks=3), store=store).copy()
    now = Chunked(da.ones((6, 6), chunks=3))
    same = align(range(6), range(6), np.zeros(1))
    kept = now.blend(past, 0.5, same)
    assert len(os.listdir(store)) == 2
    taken = now.blend(past, 0.5, same, out=past)
    assert len(os.listdir(store)) == 2
    close(taken.array.compute(), kept.array.compute())
