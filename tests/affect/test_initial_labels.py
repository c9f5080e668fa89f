"""The initial labels of a step: the rule against a naive restatement, and its benefit."""

import dataclasses
import itertools

import numpy as np
import pytest
import reference_init
import scipy.sparse

import affect_xp as ax
from affect_xp.affect.forgetting import share_of_noise
from affect_xp.affect.initial_labels import _SpectralBound, alpha_is_insensitive, better_labels, judge
from affect_xp.affect.step import INITS, Options, step
from affect_xp.partition import Partition, align, as_partition
from affect_xp.proximity import Pair
from affect_xp.proximity.sparse import Sparse


def arguments(w, past, ids, past_ids, previous, static):
    """Return the arguments of the rule; labels are in the order of `ids`, -1 for new ones in `previous`."""
    both = Pair(w, past, align(ids, past_ids, w.like))
    return [both.group(as_partition(np.array(labels), w.n, w.like)) for labels in (previous, static)]


def numbers(judgement, to_numpy=np.asarray):
    """Return both α, the noise and the difference on the host, in the order of the twin."""
    alphas = share_of_noise(*judgement.previous), share_of_noise(*judgement.static)
    return [float(to_numpy(x)) for x in (*alphas, judgement.noise, judgement.difference)]


def observed(seed, n, n_features=2):
    """Return features of n objects around two centres."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)) + 3 * (np.arange(n) % 2)[:, None]


LABELS = [
    (np.arange(12) % 2, np.arange(12) % 3),
    (np.arange(12) // 6, np.array([0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2])),  # a singleton and a pair
    (np.array([0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2]), np.zeros(12, int)),
    (np.array([-1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, -1]), np.array([0, 0, 0, 1, -1, 1, 1, 1, 1, -1, -1, -1])),
    (np.full(12, -1), np.arange(12)),
]


@pytest.mark.parametrize("previous, static", LABELS, ids=["2 and 3", "small", "one", "left out", "none"])
def test_as_by_entries(xp, small_blocks, previous, static):
    x, y = observed(0, 12), observed(1, 12)
    w, past = (ax.as_proximity(xp.array(v @ v.T)) for v in (x, y))
    found = judge(*arguments(w, past, range(12), range(12), previous, static))
    np.testing.assert_allclose(
        numbers(found, xp.numpy),
        reference_init.judge(x @ x.T, y @ y.T, previous, static),
        rtol=1e-9,
        atol=1e-12,
    )


REPRESENTATIONS = {
    "dense": lambda x: ax.Dense(x @ x.T),
    "factored": ax.Factored.from_features,
    "sparse": lambda x: ax.as_proximity(scipy.sparse.csr_array(x @ x.T)),
}


@pytest.mark.parametrize("name", REPRESENTATIONS)
def test_objects_come_and_go(name):
    make = REPRESENTATIONS[name]
    ids, past_ids = [3, 9, 1, 14, 5, 0, 11, 12, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    x, y = observed(0, len(ids)), observed(1, len(past_ids))
    static = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1])
    previous = np.array([0, 0, 1, -1, 1, 0, 2, -1, 2])
    common = [i for i, name in enumerate(ids) if name in past_ids]
    there = [past_ids.index(ids[i]) for i in common]
    w, past = (v @ v.T for v in (x[common], y[there]))
    found = judge(*arguments(make(x), make(y), ids, past_ids, previous, static))
    expected = reference_init.judge(w, past, previous[common], static[common])
    np.testing.assert_allclose(numbers(found), expected)


def test_large_means_lose_no_digits(eager_xp):
    x, y = observed(0, 12), observed(1, 12)

    def judged(shift):
        w, past = (ax.Dense(eager_xp.array(v @ v.T + shift)) for v in (x, y))
        return numbers(judge(*arguments(w, past, range(12), range(12), *LABELS[0])), eager_xp.numpy)

    np.testing.assert_allclose(judged(1e6), judged(0), rtol=1e-6)


def moving_matrices(share, seed=0, n=60):
    """Return the past, and W after some objects have changed sides."""
    rng = np.random.default_rng(seed)
    side = np.repeat([-1.0, 1.0], n // 2)
    past = 9.0 * np.outer(side, side)
    moved = side.copy()
    moved[: int(share * n)] *= -1
    x = np.stack([3 * moved + rng.normal(size=n), rng.normal(size=n)], axis=1)
    return past, x @ x.T, side > 0, moved > 0


def chosen(xp, past, w, previous, static):
    """Return the labels that the rule chooses, on the host."""
    given = arguments(ax.Dense(xp.array(w)), ax.Dense(xp.array(past)), range(60), range(60), previous, static)
    return xp.numpy(better_labels(judge(*given), *(groups.partition for groups in given))[0].labels)


def test_change_is_followed_and_noise_is_not(eager_xp):
    past, w, before, after = moving_matrices(share=0.2)
    np.testing.assert_array_equal(chosen(eager_xp, past, w, before.astype(int), after.astype(int)), after)
    past, w, before, _ = moving_matrices(share=0.0)
    across = (w[0] > np.median(w[0])).astype(int)
    across[::5] = 1 - across[::5]  # static labels that are wrong
    np.testing.assert_array_equal(chosen(eager_xp, past, w, before.astype(int), across), before)


def test_the_past_wins_a_tie(eager_xp):
    past = np.kron(np.eye(2), np.ones((30, 30)))
    previous, static = np.repeat([0, 1], 30), np.repeat([1, 0], 30)
    np.testing.assert_array_equal(chosen(eager_xp, past, past, previous, static), previous)
    np.testing.assert_array_equal(chosen(eager_xp, 0 * past, 0 * past, previous, static), previous)


def test_numbers_of_clusters_may_differ(eager_xp):
    past, w, before, after = moving_matrices(share=0.2)
    static = np.where(np.arange(60) == 59, 2, after)
    np.testing.assert_array_equal(chosen(eager_xp, past, w, before.astype(int), static), static)
    past, w, before, after = moving_matrices(share=0.0)
    previous = np.where(np.arange(60) == 59, 2, before)
    np.testing.assert_array_equal(chosen(eager_xp, past, w, previous, np.arange(60) % 2), previous)


@pytest.mark.parametrize("outside, expected", [((0, 0), 0), ((0, 2), None), ((None, None), None)])
def test_what_the_host_knows_of_the_labels(outside, expected):
    w, alignment = ax.Dense(np.eye(6)), align(range(6), range(6), np.eye(6))
    previous, static = Partition(np.arange(6) % 2, 2, outside[0]), Partition(np.arange(6) % 3, 3, outside[1])
    both = Pair(w, w, alignment)
    judgement = judge(both.group(previous), both.group(static))
    found, _ = better_labels(judgement, previous, static)
    assert found.k == 3  # the larger of both numbers: the host does not know which labels were chosen
    assert found.n_outside == expected


def run(clusterer, steps, **options):
    """Return the mean Rand index of a run, and α by step."""
    model = ax.Affect(clusterer, **options).fit(step.X for step in steps)
    pairs = zip(model.history_, steps, strict=True)
    return np.mean(
        [ax.rand_index(record.labels, step.labels) for record, step in pairs]
    ), model.history_.alpha


def colliding(init, seed):
    """Return the mean Rand index of a run on colliding Gaussians, and α by step."""
    steps = list(ax.datasets.colliding_gaussians(rng=seed))
    return run(ax.KMeans(2), steps, proximity="dot", init=init, random_state=seed)


def test_members_that_change_are_followed_as_by_static_labels():
    runs = {init: [colliding(init, seed) for seed in range(12)] for init in INITS}
    rand = {init: np.mean([r for r, _ in found]) for init, found in runs.items()}
    assert rand["auto"] > rand["previous"] + 0.015
    assert rand["auto"] > rand["static"] - 0.002
    alpha = {init: np.mean([a for _, a in found], axis=0) for init, found in runs.items()}
    assert alpha["auto"][10] < alpha["previous"][10] - 0.1  # members change: α drops
    assert alpha["auto"][10] < alpha["auto"][8] - 0.1


def test_unstable_static_labels_are_not_followed():
    """Complete linkage of boids is unstable; the previous labels are better, and chosen."""
    options = {"proximity": "euclidean", "random_state": 0}
    scores = []
    for seed in range(3):
        steps, linkage = list(ax.datasets.boids(15, spacing=60, rng=seed)), ax.Linkage(4, method="complete")
        scores.append([run(linkage, steps, init=init, **options)[0] for init in INITS])
    auto, previous, static = np.mean(scores, axis=0)
    assert auto >= previous - 0.002
    assert auto > static


def test_without_a_difference_nothing_is_judged(monkeypatch):
    """If static clustering moves no object, both labels are equal."""

    def never(*args):
        raise AssertionError("two equal labellings were compared")

    monkeypatch.setattr("affect_xp.affect.step.judge", never)
    w = np.kron(np.eye(2), np.ones((5, 5)))
    model = ax.Affect(ax.KMeans(2, init=np.repeat([0, 1], 5))).fit([w, w, w])
    assert model.labels_.tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    "clusterer", [ax.KMeans(3), ax.Spectral(2), ax.Linkage(3), lambda psi: [0, 0, 1, 1, 1, -1]]
)
def test_every_clusterer(clusterer):
    rng = np.random.default_rng(0)
    model = ax.Affect(clusterer, random_state=0)
    for _ in range(4):
        x = rng.normal(size=(6, 2))
        d = np.linalg.norm(x[:, None] - x[None], axis=2)
        model.partial_fit(d if isinstance(clusterer, ax.Linkage) else np.exp(-d))
    assert all(0 <= a <= 1 for record in model.history_ for a in record.alphas)


def test_a_number_of_clusters_that_is_chosen():
    rng = np.random.default_rng(0)
    model = ax.Affect(ax.KMeans("silhouette", max_clusters=5), random_state=0)
    for t in range(4):
        x = rng.normal(size=(40, 2)) + 6 * (np.arange(40) % (2 + t % 2))[:, None]
        model.partial_fit(x @ x.T)
    assert {record.k for record in model.history_} > {2}


def test_fixed_alpha_needs_no_labels(monkeypatch):
    monkeypatch.setattr("affect_xp.affect.step.judge", None)
    state = step(None, ax.Dense(np.eye(4)), range(4), ax.KMeans(2)).state
    again = dataclasses.replace(state, smoothed=ax.Dense(np.eye(4)))
    assert step(again, ax.Dense(np.eye(4)), range(4), ax.KMeans(2), Options(alpha=0.5)).alphas == (0.5,)


def test_a_function_for_alpha_gets_the_chosen_labels():
    past, w, before, after = moving_matrices(share=0.2)
    seen = []

    def alpha(w, past, labels, t):
        seen.append(labels)
        return 0.2

    model = ax.Affect(ax.KMeans(2, init=before.astype(int)), alpha=alpha, n_iter=1).fit([past, w])
    assert model.alpha_ == 0.2
    assert ax.rand_index(seen[0], after) == 1.0


def graph(n, degree, k, seed, within=0.7):
    """Return a graph with k communities, and the community of each node."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    i, j = rng.integers(0, n, (2, n * degree // 2))
    mate = np.minimum(j - j % k + i % k, n - 1)
    j = np.where(rng.random(len(i)) < within, mate, j)
    half = scipy.sparse.coo_array((rng.uniform(0.5, 1.5, len(i)), (i, j)), shape=(n, n)).tocsr()
    return half + half.T, labels


def pair_of(now, past, ids=None):
    now, past = Sparse(now), Sparse(past)
    return Pair(now, past, align(range(now.n) if ids is None else ids, range(past.n), now.like))


def smallest_tolerance(pair, k):
    """Return the smallest tolerance at which α is known not to depend on labels."""
    return next(tol for tol in np.geomspace(1e-4, 1, 200) if alpha_is_insensitive(pair, k, tol))


@pytest.mark.parametrize("k", [2, 5])
def test_no_labels_change_alpha_by_more(k):
    (now, truth), (past, _) = graph(600, 12, k, seed=0), graph(600, 12, k, seed=1)
    rng = np.random.default_rng(2)
    labellings = [truth, np.zeros(600, dtype=int), *rng.integers(0, k, (10, 600))]
    labellings += [np.where(rng.random(600) < share, truth, labellings[2]) for share in (0.5, 0.9)]
    # Those that follow the noise of W, and that of the past.
    labellings += [ax.spectral(w, k, objective="average_association", rng=0).labels for w in (now, past)]
    alphas = [float(ax.forgetting_factor(now, past, labels, k)) for labels in labellings]
    tol = smallest_tolerance(pair_of(now, past), k)
    assert np.ptp(alphas) <= tol < 1
    assert tol < 0.4  # the bound is informative


def test_bounds_of_eigenvalues():
    w, _ = graph(300, 8, 3, seed=0)
    largest = np.linalg.eigvalsh(w.toarray())[-1]
    bound = _SpectralBound(Sparse(w))
    bounds = [bound.at(power) ** (1 / power) for power in (1, 2, 4)]
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[-1] > largest
    assert bounds[0] == pytest.approx(w.sum(axis=1).max())


def test_what_is_not_known():
    (now, _), (past, _) = graph(600, 12, 2, seed=0), graph(600, 12, 2, seed=1)
    assert alpha_is_insensitive(pair_of(now, past), 2, 1.0)
    assert not alpha_is_insensitive(pair_of(now, past), 2, 0.0)
    assert not alpha_is_insensitive(pair_of(now, past, ids=range(1, 601)), 2, 1.0)  # different objects
    assert not alpha_is_insensitive(pair_of(-now, past), 2, 1.0)
    assert not alpha_is_insensitive(pair_of(scipy.sparse.csr_array((600, 600)), past), 2, 1.0)
    dense = Pair(ax.Dense(now.toarray()), ax.Dense(past.toarray()), align(range(600), range(600), now.data))
    assert not alpha_is_insensitive(dense, 2, 1.0)


def steps(n_steps=4, n=3000):
    return [graph(n, 10, 3, seed=seed)[0] for seed in range(n_steps)]


def test_a_sparse_step_solves_one_problem(monkeypatch):
    asked, cluster = [], ax.Spectral.cluster
    monkeypatch.setattr(
        ax.Spectral, "cluster", lambda self, W, call: asked.append(call.rough) or cluster(self, W, call)
    )
    model = ax.Affect(ax.Spectral(3), alpha_tol=0.05, random_state=0)
    paper = ax.Affect(ax.Spectral(3), alpha_tol=0.0, random_state=0)
    for w in steps():
        asked.clear()
        model.partial_fit(w)
        assert asked == [False] or len(model.history_) == 1
        asked.clear()
        paper.partial_fit(w)
        assert len(asked) > 1 or len(paper.history_) == 1
        assert model.alpha_ == pytest.approx(paper.alpha_, abs=0.05)
        assert ax.adjusted_rand_index(model.labels_, paper.labels_) > 0.98


def test_iterations_end_when_alpha_stays(eager_xp):
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(3, 2))[np.arange(60) % 3]
    xs = [centres + rng.normal(size=(60, 2)) for _ in range(6)]
    n_stopped = 0
    for x, y in itertools.pairwise(xs):
        pair = [eager_xp.array(z @ z.T) for z in (x, y)]
        a, b = (
            ax.Affect(ax.KMeans(3), init="previous", n_iter=6, alpha_tol=tol, random_state=0)
            .fit(pair)
            .alphas_
            for tol in (0.01, 0.0)
        )
        # α by iteration is the same until it changes by at most the tolerance.
        np.testing.assert_allclose(a, b[: len(a)], atol=1e-12)
        assert np.all(np.abs(np.diff(a)) > 0.01)
        if len(a) < len(b):
            assert abs(b[len(a)] - a[-1]) <= 0.01
            n_stopped += 1
    assert n_stopped


@pytest.mark.parametrize("tol", [-0.1, 2, "a"])
def test_bad_tolerances(tol):
    with pytest.raises((ValueError, TypeError), match="alpha_tol must be"):
        ax.Affect(ax.KMeans(2), alpha_tol=tol).partial_fit(np.eye(3))
