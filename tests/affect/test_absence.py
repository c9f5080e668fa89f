"""Absent objects: the kept proximities against a table of pairs, on every representation."""

import itertools

import dask.array as da
import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.affect.absence import Meetings

REPRESENTATIONS = {
    "dense": lambda x: ax.Dense(x @ x.T),
    "factored": ax.Factored.from_features,
    "sparse": lambda x: ax.Sparse(scipy.sparse.csr_array(x @ x.T)),
    "chunked": lambda x: ax.Chunked(da.from_array(x @ x.T, chunks=7)),
}


def coming_and_going(seed, n_steps=9, pool=24):
    """Yield features and names of the objects that are present; some are absent for a while, some are new."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(3 * np.eye(3), pool // 3, axis=0)
    back = np.zeros(pool, dtype=int)  # the step at which each object returns
    arrival = np.where(np.arange(pool) % 4 == 0, rng.integers(0, n_steps, size=pool), 0)
    for t in range(n_steps):
        leaving = rng.random(pool) < 0.2
        back = np.where(leaving & (back <= t), t + rng.integers(1, 5, size=pool), back)
        here = rng.permutation(np.flatnonzero((back <= t) & (arrival <= t)))
        yield centres[here] + rng.normal(size=(len(here), 3)), [f"object {i}" for i in here]


class Twin:
    """Ψ̂ as a table of pairs of names, without pairs that were never observed."""

    def __init__(self, max_absence):
        self.psi, self.seen, self.max_absence = {}, {}, max_absence

    def past(self, w, names):
        """Return the known names and their past; pairs that never met have the current entry."""
        known = [i for i, name in enumerate(names) if name in self.seen]
        table = [[self.psi.get((names[i], names[j]), w[i, j]) for j in known] for i in known]
        return known, np.array(table)

    def take(self, t, w, names, alpha):
        """Blend the observation, and forget objects that are absent for too long."""
        for (i, a), (j, b) in itertools.product(enumerate(names), repeat=2):
            self.psi[a, b] = alpha * self.psi[a, b] + (1 - alpha) * w[i, j] if (a, b) in self.psi else w[i, j]
        self.seen |= dict.fromkeys(names, t)
        for name in [name for name, last in self.seen.items() if t - last > self.max_absence]:
            del self.seen[name]
            self.psi = {pair: value for pair, value in self.psi.items() if name not in pair}

    def smoothed(self, names):
        return np.array([[self.psi[a, b] for b in names] for a in names])


def as_array(proximity):
    return np.asarray(proximity.matmul(np.eye(proximity.n)))


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("max_absence", [1, 2, 10])
def test_against_a_table_of_pairs(representation, max_absence):
    put, twin, asked = REPRESENTATIONS[representation], Twin(max_absence), []

    def alpha(W, past, labels, t):
        asked.append((as_array(W), as_array(past)))
        return 0.4 + 0.05 * t

    model = ax.Affect(
        ax.KMeans(3), alpha=alpha, n_iter=1, absent="keep", max_absence=max_absence, random_state=0
    )
    returned = 0
    for t, (x, names) in enumerate(coming_and_going(3)):
        w = x @ x.T
        known, past = twin.past(w, names)
        model.partial_fit(put(x), names)
        if t:
            found = asked.pop()
            np.testing.assert_allclose(found[0], w[np.ix_(known, known)], atol=1e-9)
            np.testing.assert_allclose(found[1], past, atol=1e-9)
            returned += sum(twin.seen.get(name, t - 1) < t - 1 for name in names)
        twin.take(t, w, names, model.alpha_)
        np.testing.assert_allclose(as_array(model.smoothed_), twin.smoothed(names), atol=1e-9)
        assert set(model._state.ids) == set(twin.seen)
        assert model.ids_ == tuple(names)
        assert model.labels_.shape == (len(names),)
    assert (returned > 0) == (max_absence > 1) or max_absence == 1


@pytest.mark.parametrize("clusterer", [ax.KMeans(3), ax.Spectral(3)], ids=["kmeans", "spectral"])
def test_all_libraries_agree(eager_xp, clusterer):
    def run(put):
        model = ax.Affect(clusterer, absent="keep", random_state=0)
        for x, names in coming_and_going(1):
            model.partial_fit(put(np.exp(-((x[:, None] - x) ** 2).sum(axis=2) / 8)), names)
        return model

    mine, theirs = run(eager_xp.array), run(np.asarray)
    for a, b in zip(mine.history_, theirs.history_, strict=True):
        np.testing.assert_array_equal(eager_xp.numpy(a.labels), b.labels)
        np.testing.assert_allclose(a.alphas, b.alphas, atol=1e-9)


def test_nobody_away_changes_nothing():
    steps = [x @ x.T for x, _ in coming_and_going(0, pool=12)]
    steps = [w[:6, :6] for w in steps if len(w) >= 6]
    kept, forgotten = (
        ax.Affect(ax.KMeans(2), absent=absent, random_state=0).fit(steps) for absent in ("keep", "forget")
    )
    np.testing.assert_array_equal(kept.smoothed_.array, forgotten.smoothed_.array)
    assert [record.alphas for record in kept.history_] == [record.alphas for record in forgotten.history_]


def test_who_returns_has_a_past():
    x = np.repeat([[3.0, 0.0], [0.0, 3.0]], 4, axis=0)
    w, names = x @ x.T, list("abcdefgh")
    blank = np.eye(8)  # no contacts at the last step
    for absent, expected in (("keep", 4.5), ("forget", 0.0)):
        model = ax.Affect(ax.KMeans(2), alpha=0.5, absent=absent, random_state=0)
        model.partial_fit(w, names).partial_fit(w[1:, 1:], names[1:]).partial_fit(blank, names)
        assert model.smoothed_.array[0, 1] == expected


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_what_is_kept_is_saved(tmp_path, representation):
    put, steps = REPRESENTATIONS[representation], list(coming_and_going(5))
    straight, model = (ax.Affect(ax.KMeans(3), absent="keep", random_state=0) for _ in range(2))
    for x, names in steps:
        straight.partial_fit(put(x), names)
        model.partial_fit(put(x), names)
        model.save(tmp_path / "model")
        model = ax.load(tmp_path / "model")
    assert straight.alpha_ == model.alpha_
    np.testing.assert_array_equal(straight.labels_, model.labels_)
    np.testing.assert_array_equal(as_array(straight._state.smoothed), as_array(model._state.smoothed))
    assert straight._state.ids == model._state.ids


def test_memory_is_bounded():
    rng = np.random.default_rng(0)
    model = ax.Affect(ax.KMeans(2), absent="keep", max_absence=3, random_state=0)
    for t in range(40):
        x = rng.normal(size=(20, 2))
        model.partial_fit(x @ x.T, range(5 * t, 5 * t + 20))  # five new objects at each step
    assert len(model._state.ids) == 20 + 3 * 5
    assert model._state.smoothed.n == 35
    assert len(model._state.away.meetings.met) == 7  # one per group that arrived together, not per object


def test_nobody_known_is_there():
    model = ax.Affect(ax.KMeans(2), absent="keep", alpha_tol=0.0, random_state=0)
    w = np.kron(np.eye(2), np.ones((3, 3)))
    model.partial_fit(w, range(6)).partial_fit(2 * w, range(6, 12)).partial_fit(3 * w, range(6))
    assert model.alphas_ != (0.0,)
    np.testing.assert_allclose(model.smoothed_.array, (3 - 2 * model.alpha_) * w)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"absent": "remember"}, "absent must be .*'forget'.*'keep'.*'remember'"),
        ({"absent": "keep", "max_absence": 0}, "max_absence must be .*1.* got 0"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        ax.Affect(ax.KMeans(2), **options).partial_fit(np.eye(4))


def test_meetings_are_those_of_a_table():
    rng = np.random.default_rng(0)
    names, met, meetings = [0], {(0, 0)}, Meetings.of_all(1)
    for t in range(30):
        here = rng.permutation(sorted({*names, t}))[: rng.integers(1, 6)].tolist()
        away = [name for name in names if name not in here and rng.random() < 0.9]
        places = {name: i for i, name in enumerate(names)}
        meetings = meetings.after(
            np.array([places.get(name, -1) for name in here]), np.array([places[name] for name in away], int)
        )
        names = here + away
        met = {pair for pair in met if set(pair) <= set(names)} | set(itertools.product(here, repeat=2))
        table = meetings.met[np.ix_(meetings.groups, meetings.groups)]
        assert {(names[i], names[j]) for i, j in zip(*np.nonzero(table), strict=True)} == met
        assert len(np.unique(meetings.met, axis=0)) == len(meetings.met)
