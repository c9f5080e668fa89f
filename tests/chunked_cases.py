"""Shared helpers of the tests of chunked proximities: matrices, twins, and steps of AFFECT."""

import os
import signal
import sys

import numpy as np

import affect_xp as ax

N = 11
LABELS = np.array([0, -1, 1, 0, 1, 3, 0, 1, 0, -1, 1])  # an empty cluster, a singleton, two objects in none


def symmetric(n=N, seed=0, mean=0.0):
    w = np.random.default_rng(seed).normal(size=(n, n))
    return w + w.T + mean


def close(found, expected, rtol=1e-12, atol=1e-12):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def steps(n=60, n_steps=4):
    """Return the features and ids of some steps, with objects that come, go and change places."""
    rng = np.random.default_rng(5)
    ids = [np.arange(n), np.arange(5, n + 3), rng.permutation(np.arange(8, n + 10)), np.arange(20, n + 10)]
    for names in ids[:n_steps]:
        yield 4 * np.eye(3)[names % 3] + rng.normal(size=(len(names), 3)), names.tolist()


def run(make, on_step=None, n_steps=4, numpy=np.asarray):
    """Fit AFFECT to the steps, each converted to a proximity; return labels and α by step, and Ψ̂."""
    model, results = ax.Affect(ax.KMeans(3), random_state=0), []
    for t, (x, ids) in enumerate(steps(n_steps=n_steps)):
        model.partial_fit(make(x, t), ids)
        results.append((numpy(model.labels_), model.alphas_))
        if on_step is not None:
            on_step(t)
    return results, numpy(model.smoothed_.array)


def same_answer(found, expected):
    for (labels, alphas), (expected_labels, expected_alphas) in zip(found[0], expected[0], strict=True):
        np.testing.assert_array_equal(labels, expected_labels)
        np.testing.assert_allclose(alphas, expected_alphas, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10, atol=1e-10)


def lazy_products(da, x, deadly=None):
    """Return a lazy XXᵀ; the first worker that computes a chunk dies if the file `deadly` does not exist."""

    # Defined here so that it is sent to the workers by value: they import neither this file nor torch.
    def block(block_info=None):
        if deadly is not None and not os.path.exists(deadly):
            open(deadly, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        (a, b), (c, d) = block_info[None]["array-location"]
        return x[a:b] @ x[c:d].T

    sizes = da.core.normalize_chunks(40, shape=(len(x),))[0]
    return da.map_blocks(block, chunks=(sizes, sizes), dtype=float, meta=np.empty((0, 0)))


def failing_blends(marker, blocks, deadly=False):
    """Return a function for workers: the first to blend some blocks of rows in place fails there, or dies."""

    def install():
        from affect_xp.proximity.chunked import _chunk

        left, square_sum = [blocks], _chunk._sum_of_squares

        def spy(block, wide=None):
            left[0] -= sys._getframe(2).f_locals["spent"] is not None
            if left[0] == 0 and not os.path.exists(marker):
                open(marker, "w").close()
                if deadly:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise MemoryError("in the middle of a blend")
            return square_sum(block, wide)

        _chunk.SUMMED_ENTRIES, _chunk._sum_of_squares = 64, spy  # 8 rows at a time

    return install
