"""Soak test over a few hundred steps with changing objects: the memory of a model stays constant.

Only counts and bytes; `python -m bench.soak` takes thousands of steps and also measures the process and time.
"""

import sys

import numpy as np
import pytest

import affect_xp as ax

if not sys.platform.startswith("linux"):
    pytest.skip("sizes of processes are read from /proc", allow_module_level=True)
from bench import soak

N = 20
LENGTHS = {
    "dense": 200,
    "factored": 300,
    "capped": 120,
    "sparse": 200,
    "chunked": 40,
    "dense-options": 150,
    "sparse-options": 150,
}


@pytest.fixture(scope="module")
def seen():
    """The measurements of each representation; a run is made on first access."""
    known = {}

    def of(kind):
        if kind == "chunked":
            pytest.importorskip("dask.array")
        if kind not in known:
            known[kind] = soak.soak(kind, N, LENGTHS[kind], 20, traced=0)
        return known[kind]

    return of


def does_not_grow(values):
    """Return whether a quantity stays about constant after warm-up: leaks double it, changes of α do not."""
    first, last = soak.ends(values[len(values) // 4 :])
    return last <= 1.5 * first


@pytest.mark.parametrize("kind", LENGTHS)
def test_what_the_model_holds(seen, kind):
    assert does_not_grow(seen(kind)["held"])


@pytest.mark.parametrize("kind", LENGTHS)
def test_ids_of_objects_long_gone_are_let_go(seen, kind):
    assert N < max(seen(kind)["ids"]) <= soak.most_ids(N) < N + LENGTHS[kind]


def test_rank(seen):
    assert does_not_grow(seen("factored")["rank"]) and max(seen("capped")["rank"]) == soak.MAX_RANK


def test_links(seen):
    assert does_not_grow(seen("sparse")["links"]) and max(seen("sparse")["links"]) < N * N


def test_a_history_that_is_not_cut_grows_with_each_step_and_object():
    """By design: at least 16 bytes per object and step, for its label and the index of its id."""
    for n in (20, 40):
        seen = soak.soak("dense", n, 40, 9, cut=False, traced=0)
        growth = np.diff(seen["held"]) / np.diff(seen["step"])
        assert np.all(growth[4:] >= 16 * n) and np.median(growth) <= 16 * n + 3000


def test_a_history_can_be_cut():
    """Truncation does not affect the next step."""
    whole, cut = (ax.Affect(ax.KMeans(2), random_state=0) for _ in range(2))
    for t in range(6):
        x = np.random.default_rng(t).normal(size=(9, 2)) + 4 * np.eye(2)[np.arange(9) % 2]
        whole.partial_fit(x @ x.T)
        cut.partial_fit(x @ x.T)
        cut.history_ = cut.history_[-2:]
    assert len(cut.history_) == 2 and cut.history_.times == [4, 5]
    assert cut.n_steps_ == whole.n_steps_ == 6 and cut.alphas_ == whole.alphas_
    np.testing.assert_array_equal(cut.labels_, whole.labels_)


def test_bytes_held():
    x = np.zeros(1000)
    assert 8000 <= soak.bytes_held([x]) <= 8400
    assert soak.bytes_held([x, x[1:], {"a": x}]) <= 9000  # shared memory counts once
    assert soak.bytes_held([[0.5] * 100]) >= 800


def test_what_grows_is_found():
    flat = {name: [100.0] * 30 for name in soak.LIMITS} | {"ids": [10.0] * 30}
    assert soak.failures(flat, N) == []
    for name, (_, limit) in soak.LIMITS.items():
        growing = [100 + (limit + 300) * i / 10 for i in range(30)]
        assert soak.failures({**flat, name: growing}, N) == [name]
    assert soak.failures({**flat, "ids": [10.0, 10_000.0]}, N) == ["ids"]
