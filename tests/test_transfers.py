"""Number of times the host waits for the device, counted on array-api-strict."""

import numpy as np
import pytest
from alphas import estimate

import affect_xp as ax
from affect_xp.partition import Partition, align

strict = pytest.importorskip("array_api_strict")
from transfers import DEVICE, counted  # noqa: E402


def device(values):
    return strict.asarray(np.array(values), device=DEVICE)


def steps(n=40, n_steps=4, seed=0):
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.normal(size=(3, 2))[np.arange(n) % 3]
    for _ in range(n_steps):
        x = centres + rng.normal(size=(n, 2))
        yield device(x @ x.T)


@pytest.fixture(autouse=True)
def forbid_sizes_that_depend_on_data():
    with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False):
        yield


def test_the_counter_sees_each_kind():
    x = device([1.0, 2.0])
    with counted() as seen:
        float(x[0])
        bool(x[0] > 0)
        np.from_dlpack(x, device="cpu", copy=True)
        x.to_device(strict.Device("CPU_DEVICE"))
        str(x)
    assert seen == {"__float__": 1, "__bool__": 1, "__dlpack__": 1, "to_device": 1, "__str__": 1}, seen.where
    with counted() as seen:
        x + x
        x @ x
    assert not seen


@pytest.mark.parametrize("moved", [False, True], ids=["same objects", "objects come and go"])
def test_alpha_and_blend_need_none(moved):
    w, past = steps(n_steps=2)
    w, past = ax.Dense(w), ax.Dense(past)
    ids = tuple(range(40)) if not moved else tuple(range(5, 45))
    moves = align(ids, tuple(range(40)), w.like)
    labels = Partition(device(np.arange(40) % 3), 3)
    with counted() as seen:
        alpha = estimate(w, past, labels.masked(moves.source), labels.take(moves.target))
        w.blend(past, alpha, moves)
    assert not seen, seen.where


@pytest.mark.parametrize("init", ["random", "k-means++", "labels"])
def test_kmeans_needs_one_per_iteration(init):
    (w,) = steps(n_steps=1)
    start = Partition(device(np.random.default_rng(1).integers(0, 3, 40)), 3) if init == "labels" else init
    with counted() as seen:
        result = ax.kmeans(ax.Dense(w), 3, init=start, n_init=1, rng=0)
    assert result.n_iter > 1
    assert seen.total() == result.n_iter, seen.where


@pytest.mark.parametrize("n_reads", [0, 1], ids=["few objects", "many objects"])
def test_kmeans_reads_at_most_one_sample_to_compare_starts(monkeypatch, n_reads):
    (w,) = steps(n_steps=1)
    if n_reads:  # 40 objects are then many
        monkeypatch.setattr("affect_xp.clustering.kmeans.AUTO_LIMITS", (10, 15))
    with counted() as seen:
        result = ax.kmeans(ax.Dense(w), 3, rng=0)
    assert seen.total() == result.n_iter + n_reads, seen.where


@pytest.mark.parametrize("init", ["auto", "previous", "static"])
@pytest.mark.parametrize("churn", [0, 3], ids=["same objects", "objects come and go"])
@pytest.mark.parametrize("alpha_tol", [0.0, 0.01])
def test_a_step_needs_few_more_than_its_kmeans(init, churn, alpha_tol):
    model = ax.Affect(ax.KMeans(3), init=init, alpha_tol=alpha_tol, random_state=0)
    for t, w in enumerate(steps(n_steps=6)):
        with counted() as seen:
            model.partial_fit(w, ids=range(churn * t, churn * t + 40))
        # The first step is checked for skewness, and for distances instead of similarities. The members of
        # clusters that begin or end are read.
        kinds = {event.kind for event in model.history_[-1].events}
        more = 1 if t == 0 else 2 * bool(kinds - {"continuation", "growth", "shrink"})
        # The check, the matching, the α or labels that end the step, and a sample in which a new start wins:
        # k-means reads the rest.
        assert seen.total() <= model.history_[-1].n_iter + 4 + more, seen.where
    assert max(record.n_iter for record in model.history_) > 2
