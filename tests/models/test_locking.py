"""Models in threads: two models are independent, and one cannot be shared by accident."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
import threadpoolctl

import affect_xp as ax
from affect_xp.array import threads as array_threads
from affect_xp.models import base as locking

N, N_STEPS = 30, 12
PATIENCE = 60  # seconds after which a waiting thread gives up


def matrices(seed):
    rng = np.random.default_rng(seed)
    for _ in range(N_STEPS):
        x = rng.normal(size=(N, 3)) + 4 * np.eye(3)[np.arange(N) % 3]
        yield x @ x.T


def results(model):
    return [(record.alphas, record.labels.tolist()) for record in model.history_]


def test_models_in_threads_of_their_own():
    expected = [results(ax.Affect(ax.KMeans(3), random_state=s).fit(matrices(s))) for s in range(4)]
    models = [ax.Affect(ax.KMeans(3), random_state=s) for s in range(4)]
    start = threading.Barrier(len(models))

    def run(model, seed):
        start.wait(PATIENCE)
        for w in matrices(seed):
            model.partial_fit(w)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(models, range(4), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [results(model) for model in models] == expected


@pytest.fixture
def two_threads_of_blas(monkeypatch):
    """Let steps limit BLAS threads, independently of the machine and the test settings."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    array_threads._forget()
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield
    array_threads._forget()


def blas_threads():
    libraries = threadpoolctl.threadpool_info()
    return {library["num_threads"] for library in libraries if library["user_api"] == "blas"}


def test_models_in_threads_of_their_own_share_the_pool_and_the_limit_of_blas(two_threads_of_blas):
    test_models_in_threads_of_their_own()
    assert blas_threads() == {2}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["clusterer", "alpha"])
def test_a_step_that_ends_with_an_error_changes_nothing(two_threads_of_blas, error, where):
    calls = []

    def fail(*arguments):
        calls.append(blas_threads())
        if len(calls) == 3:
            raise error("now")
        return 0.5 if where == "alpha" else np.arange(N) % 3

    parameters = {"clusterer": ax.KMeans(3), "n_iter": 1, "init": "previous", where: fail}
    model, before, steps = ax.Affect(**parameters, random_state=0), None, list(matrices(0))
    with pytest.raises(error, match="now"):
        for w in steps:
            before = results(model) if hasattr(model, "history_") else []
            model.partial_fit(w)
    assert results(model) == before
    assert blas_threads() == {2}
    assert locking.OWNERS == {}
    assert model.partial_fit(steps[0]).n_steps_ == len(before) + 1


def test_functions_may_use_the_library_themselves(two_threads_of_blas):
    """A clusterer and an α that run other models while BLAS is already limited."""

    def cluster(psi):
        return ax.Affect(ax.KMeans(3), random_state=0).fit([psi, psi]).labels_

    def alpha(w, past, labels, t):
        inner = ax.Affect(ax.KMeans(3), random_state=0).fit([w, past])
        assert inner.n_steps_ == 2
        return ax.forgetting_factor(w, past, labels)

    steps = list(matrices(0))
    own = ax.Affect(cluster, alpha=alpha, n_iter=2, random_state=0).fit(steps)
    plain = ax.Affect(cluster, n_iter=2, random_state=0).fit(steps)
    np.testing.assert_array_equal(own.labels_, plain.labels_)
    np.testing.assert_allclose(own.history_.alpha, plain.history_.alpha, rtol=1e-12)
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_process_forked_in_the_middle_of_a_step_takes_steps_of_its_own(two_threads_of_blas):
    steps, ended = list(matrices(0)), []
    expected = results(ax.Affect(ax.KMeans(3), random_state=0).fit(steps))

    def cluster(psi):
        if not ended:
            child = os.fork()
            if child == 0:
                free = blas_threads() == {2}
                same = results(ax.Affect(ax.KMeans(3), random_state=0).fit(steps)) == expected
                os._exit(0 if free and same else 1)
            ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return np.arange(N) % 3

    ax.Affect(cluster, random_state=0).partial_fit(steps[0])
    assert ended == [0]
    assert blas_threads() == {2}


class Held:
    """A model that another thread holds in the middle of a step, in its clusterer."""

    def __init__(self):
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.model = ax.Affect(self.cluster, random_state=0)
        self.thread = threading.Thread(target=self.model.partial_fit, args=(np.eye(4),))

    def cluster(self, proximity):
        self.inside.set()
        assert self.go_on.wait(PATIENCE)
        return [0, 0, 1, 1]

    def __enter__(self):
        self.thread.start()
        assert self.inside.wait(PATIENCE)
        return self.model

    def __exit__(self, *error):
        self.go_on.set()
        self.thread.join(PATIENCE)


USES = {
    "partial_fit": lambda model, path: model.partial_fit(np.eye(4)),
    "fit": lambda model, path: model.fit([np.eye(4)]),
    "reset": lambda model, path: model.reset(),
    "save": lambda model, path: model.save(path),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_model_in_the_middle_of_a_step(use, tmp_path):
    path = tmp_path / "model.affect"
    with Held() as model:
        with pytest.raises(
            ax.exceptions.AffectError, match="is taking a step in another thread; wait for it"
        ):
            use(model, path)
        other = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(np.eye(4))  # not affected
        assert other.n_steps_ == 1
    assert not path.exists() and model.n_steps_ == len(model.history_) == 1
    assert model.partial_fit(np.eye(4)).n_steps_ == 2


def test_turns_end_with_errors_too():
    model = ax.Affect(ax.KMeans(2), random_state=0)
    with pytest.raises(ValueError, match="not symmetric"):
        model.fit([np.triu(np.ones((4, 4)))])
    thread = threading.Thread(target=model.partial_fit, args=(np.eye(4),))
    thread.start()
    thread.join(PATIENCE)
    assert model.n_steps_ == 1 and locking.OWNERS == {}


def test_a_callback_may_save(tmp_path):
    model = ax.Affect(ax.KMeans(3), random_state=0)
    model.fit(matrices(0), callback=lambda record: model.save(tmp_path / "model.affect"))
    assert results(ax.load(tmp_path / "model.affect")) == results(model)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_are_copied(copied):
    model = ax.Affect(ax.KMeans(3), random_state=0).fit(matrices(0))
    twin = copied(model)
    w = next(matrices(1))
    assert results(twin.partial_fit(w)) == results(model.partial_fit(w))


def test_a_copy_made_in_the_middle_of_a_step_is_free():
    with Held() as model:
        twin = ax.Affect(ax.KMeans(2))
        twin.__dict__.update({**vars(model), "clusterer": ax.KMeans(2)})
        assert twin.partial_fit(np.eye(4)).n_steps_ == 1
