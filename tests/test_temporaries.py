"""No n×n temporaries: torch's meta tensors at n = 100,000 have shapes, but no memory or values."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from alphas import estimate  # noqa: E402
from large_arrays import Large, N, labels, matrix  # noqa: E402
from patches import replace_everywhere  # noqa: E402

import affect_xp as ax  # noqa: E402
from affect_xp.affect.step import State, step  # noqa: E402
from affect_xp.partition import align  # noqa: E402
from affect_xp.proximity import Pair  # noqa: E402
from affect_xp.tracking.events import Clusters  # noqa: E402


@pytest.fixture(autouse=True)
def larger_blocks(monkeypatch):
    # 2,000 rows at a time: still a fiftieth of the matrix, and fewer operations to trace.
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 2_000 * N * 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_alpha(dtype):
    w, past = matrix(dtype), matrix(dtype)
    with Large() as large:
        estimate(w, past, labels(), labels())
    assert large.found == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kmeans_products(dtype):
    same = align(range(N), range(N), matrix(dtype).like)
    blend = Pair(matrix(dtype), matrix(dtype), same).blend(0.5)
    rows = torch.empty((N // 8,), dtype=torch.int64, device="meta")
    with Large() as large:
        blend.matmul(labels().membership)
        blend.matmul(torch.empty((N // 8, 12), dtype=torch.float64, device="meta"), rows)
    assert large.found == []


def test_the_blend_is_the_only_large_array():
    w, past = matrix(torch.float32), matrix(torch.float32)
    same = align(range(N), range(N), w.like)
    alpha = torch.empty((), dtype=torch.float64, device="meta")
    with Large() as large:
        w.blend(past, alpha, same)
    assert large.found == [("empty_like", (N, N))]


def test_overwriting_makes_none():
    w, past = matrix(torch.float32), matrix(torch.float32)
    same = align(range(N), range(N), w.like)
    with Large() as large:
        w.blend(past, torch.empty((), dtype=torch.float64, device="meta"), same, out=past)
    assert large.found == []


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("churn", [0, 7], ids=["same objects", "objects come and go"])
def test_a_whole_step(monkeypatch, overwrite, churn):
    # Made-up host values take every branch: objects move, a cluster becomes empty, and no cluster is similar
    # to a previous one, so that their members are read. Labels are integers.
    def ones(*arrays, reason):
        return tuple(np.ones(a.shape, dtype=str(a.dtype).removeprefix("torch.")) for a in arrays)

    replace_everywhere(monkeypatch, "to_host", ones)
    w, past = matrix(torch.float32), matrix(torch.float32)
    clusters = Clusters(np.arange(12), np.full(12, N // 12), fresh=12, t=0)
    state = State(past, labels(), clusters, range(N))
    with Large() as large, pytest.warns(ax.exceptions.ConvergenceWarning):
        found = step(state, w, range(churn, N + churn), ax.KMeans(12, max_iter=2))
        assert large.found == []
        found.smoothed(out=state.smoothed if overwrite else None)
    assert large.found == ([] if overwrite and not churn else [("empty_like", (N, N))])


def test_large_operations_are_seen():
    w = matrix(torch.float32).array
    with Large() as large:
        0.5 * w
    assert large.found == [("mul", (N, N))]
