"""Models in threads: two do not disturb each other, and one is not shared by accident."""

import copy
import pickle
import threading

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.models import base as locking

N, N_STEPS = 30, 12
PATIENCE = 60  # seconds after which a thread that waits has been forgotten


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


class Held:
    """A model that another thread keeps in the middle of a step, at its clusterer."""

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
        other = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(np.eye(4))  # is not concerned
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
