"""Hindsight against a naive restatement: AFFECT in both directions, and each pair from its sources."""

import csv
import gc
import itertools
import json
import warnings

import numpy as np
import pytest
import reference
import reference_movers as movers
from sequences import churning, compact, drifting
from storages import MAKERS

import affect_xp as ax
from affect_xp.affect.forgetting import drift_from
from affect_xp.affect.hindsight import _renumbered, _Sources, weights_of
from affect_xp.affect.step import State
from affect_xp.array import threads
from affect_xp.cli import main
from affect_xp.clustering import kmeans as kmeans_module
from affect_xp.datasets import colliding_gaussians, contacts, separated_gaussians
from affect_xp.exceptions import InputError, InputTypeError, InputWarning, SkewedWarning
from affect_xp.models import affect as affect_module
from affect_xp.models import smooth as module
from affect_xp.models.smooth import smooth
from affect_xp.partition import Partition
from affect_xp.proximity import Dense, Proximity
from affect_xp.report import write_report

K = 3


def by_position(w):
    """Cluster a matrix from a fixed start."""
    return reference.kmeans(w, np.arange(len(w)) % K, K)


def clusterer_of(backend):
    """Return it as a clusterer function for `Affect`."""
    return lambda psi: backend.array(by_position(backend.numpy(psi.array)))


def sums(w, past, future, labels):
    """Return Σ var(n), and the sums of squares and products of the errors of both neighbours."""
    noise = past_drift = future_drift = product = 0
    for c, d, pairs in reference.blocks(labels):
        mean, variance = reference.mean_and_variance([w[i, j] for i, j in pairs], each_stands_twice=c == d)
        noise += variance * len(pairs)
        for i, j in pairs:
            f, b = past[i, j] - mean, future[i, j] - mean
            past_drift, future_drift, product = past_drift + f * f, future_drift + b * b, product + f * b
    return np.array([noise, past_drift, future_drift, product])


def risk(a, b, terms):
    noise, past_drift, future_drift, product = terms
    return a * a * past_drift + b * b * future_drift + 2 * a * b * product + (1 - a - b) ** 2 * noise


def best_weights(terms):
    """Return the a, b ≥ 0 of minimum risk: where the gradient is zero, or on the boundary."""
    noise, past_drift, future_drift, product = terms
    matrix = np.array([[past_drift + noise, product + noise], [product + noise, future_drift + noise]])
    candidates = [(noise / (noise + past_drift), 0.0), (0.0, noise / (noise + future_drift))]
    inside = tuple(np.linalg.solve(matrix, [noise, noise]))
    if min(inside) >= 0:
        candidates.append(inside)
    return min(candidates, key=lambda pair: risk(*pair, terms))


def affect(steps, ids, n_iter):
    """Run AFFECT with a clusterer without a start; return labels, α by iteration and Ψ̂ of each step."""
    results = [(by_position(steps[0]), [0.0], steps[0])]
    for t in range(1, len(steps)):
        (before, _, psi), w, now, past = results[-1], steps[t], ids[t], ids[t - 1]
        here = [p for p, i in enumerate(now) if i in past]
        there = [past.index(now[p]) for p in here]
        labels = np.array([before[past.index(i)] if i in past else -1 for i in now])
        alphas = []
        for _ in range(n_iter):
            sub, sub_past = w[np.ix_(here, here)], psi[np.ix_(there, there)]
            alphas.append(reference.forgetting_factor(sub, sub_past, labels[here]))
            blended = reference.blend(w, psi, alphas[-1], now, past)
            labels = by_position(blended)
        results.append((labels, alphas, blended))
    return results


def hindsight(steps, ids, n_iter):
    """Return labels, (a, b) by iteration and Ψ̂ of each step."""
    ids = [list(names) for names in ids]
    forward = affect(steps, ids, n_iter)
    backward = affect(steps[::-1], ids[::-1], n_iter)[::-1]
    results = [(backward[0][0], [(0.0, alpha) for alpha in backward[0][1]], backward[0][2])]
    for t in range(1, len(steps) - 1):
        neighbours = (forward[t - 1][2], ids[t - 1]), (backward[t + 1][2], ids[t + 1])
        here = (forward[t], backward[t])
        results.append(one_step(steps[t], ids[t], neighbours, here, n_iter))
    return [*results, (forward[-1][0], [(alpha, 0.0) for alpha in forward[-1][1]], forward[-1][2])]


def one_step(w, ids, neighbours, here, n_iter):
    (past, past_ids), (future, future_ids) = neighbours
    both = [p for p, i in enumerate(ids) if i in past_ids and i in future_ids]
    before, after = ([names.index(ids[p]) for p in both] for names in (past_ids, future_ids))
    parts = w[np.ix_(both, both)], past[np.ix_(before, before)], future[np.ix_(after, after)]
    terms = sum(sums(*parts, labels[both]) for labels, _, _ in here) / 2
    weights = []
    for _ in range(n_iter):
        a, b = best_weights(terms)
        weights.append((a, b))
        psi = w.copy()
        for (i, x), (j, y) in itertools.product(enumerate(ids), repeat=2):
            in_past, in_future = ({x, y} <= set(names) for names in (past_ids, future_ids))
            if in_past and in_future:
                f = past[past_ids.index(x), past_ids.index(y)]
                psi[i, j] += a * (f - w[i, j])
                psi[i, j] += b * (future[future_ids.index(x), future_ids.index(y)] - w[i, j])
            elif in_past or in_future:
                psi[i, j] = here[0 if in_past else 1][2][i, j]
        labels = by_position(psi)
        terms = sums(*parts, labels[both])
    return labels, weights, psi


@pytest.mark.parametrize("n_iter", [1, 3])
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "objects come and go"])
def test_as_the_definition(eager_xp, small_blocks, churn, n_iter):
    data = churning(4, 5, 18) if churn else ((w, range(18)) for w in drifting(4, 5, 18))
    steps, ids = zip(*data, strict=True)
    found = smooth(
        [eager_xp.array(w) for w in steps],
        clusterer_of(eager_xp),
        ids=ids,
        n_iter=n_iter,
        init="previous",
        alpha_tol=0.0,
        keep=True,
    )
    expected = hindsight(list(steps), ids, n_iter)
    for t, (labels, weights, psi) in enumerate(expected):
        assert compact(eager_xp.numpy(found.labels[t])) == compact(labels)
        np.testing.assert_allclose(found.weights[t], weights[-1], atol=1e-9)
        alphas = found.history_[t].alphas
        padded = [*alphas, *[alphas[-1]] * (len(weights) - len(alphas))]  # a converged step stops early
        np.testing.assert_allclose(padded, [a + b for a, b in weights], atol=1e-9)
        np.testing.assert_allclose(eager_xp.numpy(found.smoothed[t].array), psi, atol=1e-9)
    assert isinstance(found.labels[0], np.ndarray) and eager_xp.owns(found.smoothed[1].array)
    assert found.weights.min(axis=1).max() > 0.01  # in the interior for at least one step


def one_step_by_object(w, ids, neighbours, here, n_iter):
    """Return labels, (a, b) and Ψ̂ of a step from twins of both passes: (labels, a, p, Ψ̂)."""
    in_both = np.array([all(x in names for _, names in neighbours) for x in ids])
    M = in_both[:, None] & in_both & ~np.eye(len(ids), dtype=bool)
    sides = [
        psi[np.ix_(*[[names.index(x) if x in names else 0 for x in ids]] * 2)] for psi, names in neighbours
    ]

    def terms_of(z):
        z = np.where(in_both, z, -1)
        return movers.two_sided_terms(*(movers.Sums(w, side, M, z, K) for side in sides))

    trusts = [np.where(in_both, np.where(p > movers.PI, 1 - p, 1.0), 0.0) for _, _, p, _ in here]
    rest = here[0][3].copy()
    after = np.array([x in neighbours[1][1] for x in ids])
    rest[np.ix_(after, after)] = here[1][3][np.ix_(after, after)]
    terms = sum(terms_of(labels) for labels, *_ in here) / 2
    for _ in range(n_iter):
        a, b = best_weights(terms)
        change = sum(x * np.outer(s, s) * (y - w) for x, s, y in zip((a, b), trusts, sides, strict=True))
        psi = np.where(in_both[:, None] & in_both, w + change, rest)
        labels = by_anchors(psi)
        terms = terms_of(labels)
    return labels, (a, b), psi


def by_anchors(w):
    """A clusterer without rounding: each object joins the most similar of the first three."""
    labels = np.argmax(np.asarray(w)[:, :K], axis=1)
    labels[:K] = range(K)
    return labels


def steps_with_moves(n_steps, *, churn, n=20):
    """Return counts between objects of three groups, and their ids; some objects change their group."""
    rng, groups, made = np.random.default_rng(3), np.arange(26) % K, []
    for t in range(n_steps):
        groups[[3 * t % 26, 7 * t % 26]] = t % K
        names = np.sort(rng.permutation(26)[:n]) if churn else np.arange(n)
        c = groups[names]
        upper = np.triu(rng.poisson(np.where(c[:, None] == c, 4.0, 0.7)), 1)
        made.append(((upper + upper.T).astype(float), names.tolist()))
    return made


@pytest.mark.parametrize("n_iter", [1, 3])
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "objects come and go"])
def test_by_objects_as_the_definition(eager_xp, churn, n_iter):
    given = steps_with_moves(6, churn=churn)
    steps, ids = zip(*given, strict=True)
    found = smooth(
        [eager_xp.array(w) for w in steps],
        lambda psi: eager_xp.array(by_anchors(eager_xp.numpy(psi.array))),
        ids=ids,
        n_iter=n_iter,
        forgetting="objects",
        rescale=None,
        alpha_tol=0.0,
        keep=True,
    )
    forward = movers.run([(names, w) for w, names in given], by_anchors, n_iter)
    backward = movers.run([(names, w) for w, names in given[::-1]], by_anchors, n_iter)[::-1]
    for t in range(1, 5):
        neighbours = (forward[t - 1][3], ids[t - 1]), (backward[t + 1][3], ids[t + 1])
        labels, weights, psi = one_step_by_object(
            steps[t], ids[t], neighbours, (forward[t], backward[t]), n_iter
        )
        np.testing.assert_allclose(found.weights[t], weights, atol=1e-9)
        np.testing.assert_allclose(eager_xp.numpy(found.smoothed[t].array), psi, atol=1e-9)
        assert ax.adjusted_rand_index(found.labels[t], labels) == 1
    for t, (labels, _, _, psi) in ((0, backward[0]), (5, forward[5])):
        np.testing.assert_allclose(eager_xp.numpy(found.smoothed[t].array), psi, atol=1e-9)
        assert ax.adjusted_rand_index(found.labels[t], labels) == 1
    assert found.weights.min(axis=1).max() > 0.01


@pytest.mark.parametrize("absent", ["forget", "keep"])
@pytest.mark.parametrize("make", MAKERS)
def test_by_objects_all_libraries_and_storages_agree(eager_xp, make, absent):
    steps, ids = zip(*steps_with_moves(6, churn=True), strict=True)
    options = {"forgetting": "objects", "absent": absent, "rescale": None, "random_state": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # dot products
        mine, dense = (
            smooth(given, ax.Spectral(K), ids=ids, keep=True, **options)
            for given in ([make(eager_xp, w) for w in steps], steps)
        )
    np.testing.assert_allclose(mine.weights, dense.weights, atol=1e-7)
    for t, labels in enumerate(dense.labels):
        assert ax.adjusted_rand_index(eager_xp.numpy(mine.labels[t]), labels) == 1
        full = mine.smoothed[t].matmul(eager_xp.array(np.eye(len(labels))))
        np.testing.assert_allclose(eager_xp.numpy(full), dense.smoothed[t].array, atol=1e-7)


def test_by_objects_states_found_again_are_the_same(monkeypatch):
    steps, ids = zip(*steps_with_moves(9, churn=True), strict=True)
    options = {"ids": ids, "forgetting": "objects", "rescale": None, "random_state": 0}
    held = smooth(steps, ax.Spectral(K), **options)
    monkeypatch.setattr(module, "SEGMENT", 1)
    again = smooth(steps, ax.Spectral(K), **options)
    np.testing.assert_allclose(again.weights, held.weights, atol=1e-12)


@pytest.mark.parametrize("clusterer", [ax.KMeans(3), ax.Spectral(3)], ids=str)
def test_by_objects_no_blend_is_formed(clusterer, monkeypatch):
    rng = np.random.default_rng(0)
    steps = [x + x.T for x in rng.poisson(2.0, size=(4, 30, 30)).astype(float)]
    options = {"forgetting": "objects", "rescale": None, "random_state": 0}
    expected = smooth(steps, clusterer, keep=True, **options).labels
    monkeypatch.delattr(Dense, "blend_two_sided")
    monkeypatch.delattr(Proximity, "blend_two_sided")
    np.testing.assert_array_equal(smooth(steps, clusterer, **options).labels, expected)


def test_by_objects_a_move_cuts_the_past_off_and_keeps_the_future():
    rng, groups = np.random.default_rng(0), np.arange(30) % K
    steps = []
    for t in range(7):
        groups[0] = 0 if t < 3 else 1
        upper = np.triu(rng.poisson(np.where(groups[:, None] == groups, 3.0, 0.5)), 1)
        steps.append((upper + upper.T).astype(float))
    found = smooth(steps, ax.Spectral(K), forgetting="objects", rescale=None, random_state=0, keep=True)
    own, other = np.arange(30) % K == 1, np.arange(30) % K == 0
    other[0] = False
    for t, psi in enumerate(found.smoothed):
        with_new, with_old = (psi.array[0, who].mean() for who in (own, other))
        assert (with_new > 2 * with_old) if t >= 3 else (with_old > 2 * with_new)


@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "objects come and go"])
def test_the_last_step_is_causal_and_the_first_is_that_of_the_backward_run(churn):
    data = churning(3) if churn else ((w, range(30)) for w in drifting(3))
    steps, ids = zip(*data, strict=True)
    found = smooth(steps, ax.KMeans(K), ids=ids, random_state=5, keep=True)
    forward = ax.Affect(ax.KMeans(K), random_state=5).fit(steps, ids=ids)
    backward = ax.Affect(ax.KMeans(K), random_state=5).fit(steps[::-1], ids=ids[::-1])
    for t, model in ((-1, forward), (0, backward)):
        assert compact(found.labels[t]) == compact(model.labels_)
        assert found.history_[t].alphas == model.alphas_
        np.testing.assert_array_equal(found.smoothed[t].array, model.smoothed_.array)
    np.testing.assert_array_equal(found.weights[[0, -1]], [[0, backward.alpha_], [forward.alpha_, 0]])
    for mine, theirs in zip(found.causal.history_, forward.history_, strict=True):
        np.testing.assert_array_equal(mine.labels, theirs.labels)
        assert mine.alphas == theirs.alphas


def test_time_reversed():
    steps, ids = zip(*churning(6, 7), strict=True)
    options = {"n_iter": 3, "keep": True}
    found = smooth(steps, lambda psi: by_position(psi.array), ids=ids, **options)
    other = smooth(steps[::-1], lambda psi: by_position(psi.array), ids=ids[::-1], **options)
    np.testing.assert_allclose(found.weights, other.weights[::-1, ::-1], atol=1e-10)
    for t, psi in enumerate(other.smoothed[::-1]):
        np.testing.assert_allclose(found.smoothed[t].array, psi.array, atol=1e-10)
        assert compact(found.labels[t]) == compact(other.labels[-1 - t])


def errors(steps, truths, clusterer, ids=None):
    """Return the squared error per entry of the causal and of the two-sided estimate at each step, (2, T)."""
    as_it_is = {"rescale": None, "random_state": 0}  # the truth refers to the raw W
    found = smooth(steps, clusterer, ids=ids, keep=True, **as_it_is)
    model, causal = ax.Affect(clusterer, **as_it_is), []
    for t, w in enumerate(steps):
        model.partial_fit(w, None if ids is None else ids[t])
        causal.append(model.smoothed_.array)
    both = causal, [psi.array for psi in found.smoothed]
    return np.array([[np.mean((x - y) ** 2) for x, y in zip(psi, truths, strict=True)] for psi in both])


@pytest.mark.parametrize(("simulated", "most"), [(separated_gaussians, 0.75), (colliding_gaussians, 0.6)])
def test_less_error_than_the_causal_estimate_of_gaussians(simulated, most):
    runs = []
    for seed in range(4):
        steps = list(simulated(rng=seed))
        truths = [ax.gaussian_mixture_proximity(s.means, s.covariances, s.labels)[0] for s in steps]
        runs.append(errors([step.W for step in steps], truths, ax.KMeans(2)))
    causal, two_sided = np.mean(runs, axis=0)
    assert (two_sided[:-1] < causal[:-1]).all()
    assert two_sided[:-1].mean() < most * causal[:-1].mean()
    assert two_sided[-1] == causal[-1]


@pytest.mark.parametrize("options", [{}, {"absence": 0.2, "churn": 0.05}, {"moves": 0.1}], ids=str)
def test_less_error_than_the_causal_estimate_of_contacts(options):
    runs = []
    for seed in range(2):
        steps = list(contacts(8, n_groups=3, group_size=12, rng=seed, **options))
        ids, truths = [step.ids for step in steps], [step.expected for step in steps]
        runs.append(errors([step.W for step in steps], truths, ax.Spectral(3), ids)[:, :-1].mean(axis=1))
    causal, two_sided = np.mean(runs, axis=0)
    assert two_sided < 0.9 * causal


def of_features(kind, x):
    """Return the dot products of features in one of the representations."""
    if kind == "Factored":
        return ax.Factored.from_features(x)
    if kind == "Sparse":
        return ax.Sparse(pytest.importorskip("scipy.sparse").csr_array(x @ x.T))
    if kind == "Chunked":
        return ax.Chunked(pytest.importorskip("dask.array").from_array(x @ x.T, chunks=9))
    return ax.Dense(x @ x.T)


@pytest.mark.parametrize("kind", ["Factored", "Sparse", "Chunked"])
@pytest.mark.parametrize("churn", [False, True], ids=["same objects", "objects come and go"])
def test_all_representations_agree(kind, churn):
    rng, centres = np.random.default_rng(0), np.array([[4.0, 0.0], [-2.0, 3.0], [-2.0, -3.0]])
    ids = [rng.permutation(24)[: rng.integers(14, 24) if churn else 24].tolist() for _ in range(5)]
    features = [centres[np.array(names) % 3] + rng.normal(size=(len(names), 2)) for names in ids]
    mine, dense = (
        smooth([of_features(k, x) for x in features], ax.KMeans(K), ids=ids, random_state=1, keep=True)
        for k in (kind, "Dense")
    )
    np.testing.assert_allclose(mine.weights, dense.weights, atol=1e-7)
    for t, labels in enumerate(dense.labels):
        np.testing.assert_array_equal(np.asarray(mine.labels[t]), labels)
        full = mine.smoothed[t] if kind == "Chunked" else mine.smoothed[t].to_dense()
        np.testing.assert_allclose(np.asarray(full.array), dense.smoothed[t].array, atol=1e-8)


def test_all_libraries_agree(eager_xp):
    steps, ids = zip(*churning(2), strict=True)
    mine = smooth([eager_xp.array(w) for w in steps], ax.KMeans(K), ids=ids, random_state=5)
    theirs = smooth(steps, ax.KMeans(K), ids=ids, random_state=5)
    np.testing.assert_allclose(mine.weights, theirs.weights, atol=1e-9)
    for a, b in zip(mine.labels, theirs.labels, strict=True):
        np.testing.assert_array_equal(eager_xp.numpy(a), b)


def test_states_found_again_are_the_same(monkeypatch):
    steps, ids = zip(*churning(2, 11), strict=True)
    results = []
    for at_least in (1, 100):
        monkeypatch.setattr(module, "SEGMENT", at_least)
        results.append(smooth(steps, ax.KMeans(K), ids=ids, random_state=np.random.default_rng(7), keep=True))
    np.testing.assert_array_equal(results[0].weights, results[1].weights)
    for t in range(11):
        np.testing.assert_array_equal(results[0].labels[t], results[1].labels[t])
        np.testing.assert_array_equal(results[0].smoothed[t].array, results[1].smoothed[t].array)


def n_states():
    return sum(type(found) is State and found.smoothed is not None for found in gc.get_objects())


def test_few_states_are_held():
    held, before = [], n_states()
    at_starts_of_segments = {0, 30, 60, 90}
    smooth(
        list(drifting(0, 100, n=4)),
        ax.KMeans(2),
        random_state=0,
        callback=lambda record: held.append(n_states()) if record.time in at_starts_of_segments else None,
    )
    assert 10 < max(held) - before < 30  # 2√T, plus those in use


@pytest.mark.parametrize("n_steps", [1, 2, 8, 9, 16, 17, 26])
def test_any_number_of_steps(n_steps):
    steps = list(drifting(1, n_steps, n=9))
    seen = []
    found = smooth(
        steps, ax.KMeans(K), random_state=0, times=[f"t{t}" for t in range(n_steps)], callback=seen.append
    )
    assert found.history_.times == [f"t{t}" for t in range(n_steps)] == [record.time for record in seen]
    assert found.weights.shape == (n_steps, 2)
    np.testing.assert_allclose(found.weights.sum(axis=1), found.history_.alpha)
    assert found.smoothed is None
    if n_steps == 1:
        assert found.weights.tolist() == [[0, 0]] and len(np.unique(found.labels[0])) == K


def test_clusters_keep_their_names():
    centres, rng = np.array([[9.0, 0.0], [0.0, 9.0], [-9.0, -9.0]]), np.random.default_rng(0)
    ids = [rng.permutation(30) for _ in range(10)]
    features = [centres[order % 3] + rng.normal(size=(30, 2)) for order in ids]
    found = smooth(features, ax.KMeans(K, n_init=10), ids=ids, proximity="dot", random_state=0)
    names = [dict(zip(o.tolist(), c.tolist(), strict=True)) for o, c in zip(ids, found.labels, strict=True)]
    assert all(now == names[0] for now in names)
    assert [event.kind for event in found.history_[0].events] == ["birth"] * 3
    assert {event.kind for events in found.history_.events[1:] for event in events} == {"continuation"}


def test_more_and_fewer_clusters():
    asked = [2, 3, 3, 5, 4, 4, 2, 1]
    found = smooth(list(drifting(1, 8)), ax.KMeans(asked), random_state=0)
    assert [record.k for record in found.history_] == asked
    assert [len(np.unique(labels)) for labels in found.labels] == asked
    assert {event.kind for event in found.history_.events[-1]} & {"merge", "death"}


def test_no_pair_with_both_neighbours():
    """The past contains one half of the objects, the future the other."""
    w0, w1, w2 = drifting(0, 3, n=20)
    ids = [range(10), range(20), range(10, 20)]
    steps = [w0[:10, :10], w1, w2[10:, 10:]]
    found = smooth(steps, ax.KMeans(2), ids=ids, random_state=0, keep=True)
    forward = ax.Affect(ax.KMeans(2), random_state=0).fit(steps[:2], ids=ids[:2])
    backward = ax.Affect(ax.KMeans(2), random_state=0).fit(steps[:0:-1], ids=ids[:0:-1])
    expected = w1.copy()
    expected[:10, :10] = forward.smoothed_.array[:10, :10]
    expected[10:, 10:] = backward.smoothed_.array[10:, 10:]
    np.testing.assert_allclose(found.smoothed[1].array, expected)
    assert found.weights[1].tolist() == [0, 0]


def test_nobody_stays():
    steps = list(drifting(0, 3, n=12))
    ids = [range(12), range(12, 24), range(24, 36)]
    found = smooth(steps, ax.KMeans(K), ids=ids, random_state=0, keep=True)
    assert (found.weights == 0).all()
    for psi, w in zip(found.smoothed, steps, strict=True):
        np.testing.assert_array_equal(psi.array, w)


def weights(sources, partition):
    """Return α, r and V + D for one partition."""
    groups = sources.group(partition)
    sums = sources.sums(groups)
    return weights_of([sums], sources.difference(groups, sums))


def test_products_of_both_passes_are_used_again(monkeypatch):
    steps = list(drifting(3, 20, n=30))  # some segments of the backward pass
    found = smooth(steps, ax.KMeans(K), random_state=0)
    monkeypatch.setattr(module.Products, "of", staticmethod(lambda groups: None))
    without = smooth(steps, ax.KMeans(K), random_state=0)
    np.testing.assert_allclose(found.weights, without.weights, rtol=1e-9)
    assert all(np.array_equal(*labels) for labels in zip(found.labels, without.labels, strict=True))


@pytest.mark.parametrize("n_moved", [0, 3])
def test_products_by_clusters_in_another_order(n_moved):
    W, labels = ax.Dense(next(drifting(3, 1, n=30))), np.arange(30) % K
    labels[7] = -1
    other = np.where(labels < 0, -1, (labels + 1) % K)
    other[:n_moved] = labels[:n_moved]
    partition, other = Partition(labels, K), Partition(other, K)
    found = _renumbered(W, partition, other, W.group(other).array)
    assert found.partition is partition
    np.testing.assert_allclose(found.array, W.array @ partition.membership, atol=1e-12)
    unlike = Partition(np.arange(30) // 15, K)
    assert _renumbered(W, partition, unlike, W.group(unlike).array) is None


def test_storage_that_is_used_again_changes_nothing():
    steps = list(drifting(4, 20, n=30))
    found, kept = (smooth(steps, ax.KMeans(K), random_state=0, keep=keep) for keep in (False, True))
    assert np.array_equal(found.weights, kept.weights)
    assert np.array_equal(found.causal.smoothed_.array, kept.causal.smoothed_.array)
    causal = ax.Affect(ax.KMeans(K), random_state=0).fit(steps)
    assert np.array_equal(found.causal.smoothed_.array, causal.smoothed_.array)


def test_the_difference_of_dense_neighbours_is_that_of_their_mean():
    w, past, future = drifting(0, 3, n=20)
    sources = _Sources(ax.Dense(w), ax.Dense(past), ax.Dense(future), None)
    groups = sources.group(Partition(np.arange(20) % K, K, 0))
    sums = sources.sums(groups)
    half = drift_from(ax.Dense((past + future) / 2).group(groups.W.partition), sums.moments)
    by_mean = 2 * sums.terms[1] + 2 * sums.terms[2] - 4 * half
    np.testing.assert_allclose(sources.difference(groups, sums), by_mean, rtol=1e-9)


def test_neighbours_that_are_the_same_weigh_the_same():
    w, past = drifting(0, 2, n=20)
    partition = Partition(np.arange(20) % K, K, 0)
    for correction in (None, "objects"):
        sources = _Sources(ax.Dense(w), ax.Dense(past), ax.Dense(past.copy()), correction)
        alpha, r, _ = weights(sources, partition)
        assert abs(r - 0.5) < 1e-6
        expected = reference.forgetting_factor(w, past, np.arange(20) % K, correction)
        np.testing.assert_allclose(alpha, expected, rtol=1e-9)


def test_a_neighbour_that_is_further_off_in_the_same_direction_is_left_out():
    w, past = drifting(0, 2, n=20)
    partition = Partition(np.arange(20) % K, K, 0)
    moments = ax.block_moments(w, partition)
    mean = moments.means[np.ix_(partition.labels, partition.labels)]
    np.fill_diagonal(mean, moments.diagonal_means[partition.labels])
    for swap in (False, True):
        neighbours = [ax.Dense(past), ax.Dense(mean + 3 * (past - mean))]
        sources = _Sources(ax.Dense(w), *(neighbours[::-1] if swap else neighbours), None)
        alpha, r, _ = weights(sources, partition)
        assert r == swap
        np.testing.assert_allclose(alpha, ax.forgetting_factor(w, past, partition), rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"absent": "keep"}, {"rescale": "log1p"}, {"correction": "objects"}], ids=str
)
def test_options_of_affect_hold_for_both_passes(options):
    steps, ids = zip(*churning(2), strict=True)
    steps = [np.abs(w) for w in steps]
    found = smooth(steps, ax.KMeans(K), ids=ids, random_state=0, **options)
    plain = smooth(steps, ax.KMeans(K), ids=ids, random_state=0)
    forward = ax.Affect(ax.KMeans(K), random_state=0, **options).fit(steps, ids=ids)
    backward = ax.Affect(ax.KMeans(K), random_state=0, **options).fit(steps[::-1], ids=ids[::-1])
    np.testing.assert_allclose(found.weights[[0, -1]], [[0, backward.alpha_], [forward.alpha_, 0]])
    assert (found.weights[1:-1] != plain.weights[1:-1]).any()
    assert ((found.weights >= 0) & (found.weights <= 1)).all()


def test_the_causal_model_goes_on():
    *steps, last = drifting(5)
    found = smooth(steps, ax.KMeans(K), random_state=2)
    model = ax.Affect(ax.KMeans(K), random_state=2).fit([*steps, last])
    np.testing.assert_array_equal(found.causal.partial_fit(last).labels_, model.labels_)
    assert found.causal.alpha_ == model.alpha_


def test_skewed_counts_are_hinted_at_once():
    step = next(contacts(1, rng=0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        smooth([step.W] * 3, ax.Spectral(5), random_state=0)
    (hint,) = [warning for warning in caught if warning.category is SkewedWarning]
    assert hint.filename == __file__


@pytest.mark.parametrize("exponent", [660, -660])
def test_units_do_not_matter(exponent):
    usual, found = (
        smooth([2.0**e * w for w in drifting(0)], ax.KMeans(K), random_state=0) for e in (0, exponent)
    )
    np.testing.assert_allclose(found.weights, usual.weights, rtol=1e-10)
    for mine, theirs in zip(found.labels, usual.labels, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.InputWarning")  # W is zero
def test_without_noise_and_drift_it_is_causal():
    steps = [0.0 * w for w in drifting(0)]
    found = smooth(steps, ax.KMeans(K), random_state=0)
    model = ax.Affect(ax.KMeans(K), random_state=0).fit(steps)
    np.testing.assert_array_equal(found.weights[1:, 0], model.history_.alpha[1:])


def test_given_steps_stay_as_they_are():
    steps = list(drifting(0))
    before = [w.copy() for w in steps]
    smooth(steps, ax.KMeans(K), random_state=0)
    for w, was in zip(steps, before, strict=True):
        np.testing.assert_array_equal(w, was)


@pytest.mark.parametrize("alpha", [0.5, [0.1] * 6, np.full(6, 0.1), lambda w, past, labels, t: 0.5])
def test_alpha_is_estimated(alpha):
    with pytest.raises(InputError, match=r"alpha=.*omit alpha"):
        smooth(list(drifting(0)), ax.KMeans(K), alpha=alpha)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"sequence": []}, InputError, "sequence is empty"),
        ({"sequence": np.eye(3)}, InputTypeError, "one matrix per step"),
        ({"times": [1]}, InputError, "times has 1 entries"),
        ({"ids": [range(30)]}, InputError, "ids has 1 entries"),
        ({"clusterer": 3}, InputTypeError, "clusterer"),
        ({"n_iter": 0}, InputError, "n_iter"),
        ({"clusterer": ax.KMeans([3, 3])}, InputError, "n_clusters has 2 entries"),
        ({"sequence": [np.eye(3), np.full((3, 3), np.nan)]}, InputError, "NaN|nan|finite"),
        ({"clusterer": ax.Linkage(2), "proximity": "dot"}, InputError, "dissimilarity"),
    ],
)
def test_bad_input(arguments, error, message):
    given = {"sequence": list(drifting(0)), "clusterer": ax.KMeans(K)} | arguments
    with pytest.raises(error, match=message):
        smooth(given.pop("sequence"), given.pop("clusterer"), **given)


def test_a_failure_draws_no_random_numbers():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError):
        smooth([np.eye(3), np.full((3, 3), np.nan)], ax.KMeans(2), random_state=rng)
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_report_and_repr(tmp_path):
    found = smooth(list(drifting(0)), ax.KMeans(K), random_state=0)
    assert repr(found).startswith("Smoothed(Affect(clusterer=KMeans(")
    assert "smooth: Affect(" in write_report(found, tmp_path / "report.html").read_text(encoding="utf-8")


# The command line.


@pytest.fixture
def file(tmp_path):
    """Two noisy groups over five weeks; the fourth object is absent in the third week."""
    rng, path = np.random.default_rng(0), tmp_path / "features.csv"
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["time", "id", "x", "y"])
        for t, i in itertools.product(range(5), range(12)):
            if (t, i) != (2, 3):
                writer.writerow(
                    [f"2024-01-{1 + 7 * t:02d}", f"o{i}", *rng.normal(size=2) + (2 if i % 2 else -2)]
                )
    return path


def call(*arguments):
    return main(["run", *map(str, arguments)])


def test_offline_on_the_command_line(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert call(file, "-k", 2, "--freq", "7D", "--offline", "--out", out) == 0
    printed = capsys.readouterr()
    assert "step 5" in printed.err and "checkpoint" not in printed.out
    as_there = {"proximity": "dot", "scale": "standard", "random_state": 0}
    found = smooth(ax.io.read_steps(file, freq="7D"), ax.KMeans(2), **as_there)
    with (out / "labels.csv").open(newline="", encoding="utf-8") as handle:
        clusters = [int(row["cluster"]) for row in csv.DictReader(handle)]
    assert clusters == np.concatenate(found.labels).tolist()
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["finished"] and summary["files"].keys() == {
        "labels",
        "alpha",
        "events",
        "moves",
        "report",
        "summary",
    }
    means = list(summary["mean_weights"].values())
    np.testing.assert_allclose(means, found.weights.mean(axis=0))
    assert "smooth: Affect(" in (out / "report.html").read_text(encoding="utf-8")
    assert not (out / "model.affect").exists()


@pytest.mark.parametrize("option", [["--resume"], ["--state", "x"], ["--alpha", "0.5"]])
def test_what_offline_does_not_take(file, tmp_path, capsys, option):
    assert call(file, "-k", 2, "--freq", "7D", "--offline", "--out", tmp_path / "out", *option) == 1
    assert f"leave out {option[0]}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_offline_without_steps(tmp_path, capsys):
    path = tmp_path / "empty.csv"
    path.write_text("time,id,x\n", encoding="utf-8")
    assert call(path, "-k", 2, "--offline", "--out", tmp_path / "out") == 1
    assert "contains no steps" in capsys.readouterr().err


def test_blas_has_one_thread_meanwhile(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    held = []
    smooth(
        list(drifting(0, 4, n=8)),
        ax.KMeans(2),
        random_state=0,
        callback=lambda record: held.append(threads.n_threads()),
    )
    assert held == [2] * 4  # one of them outside `own_threads`


def test_new_starts_compete_in_both_passes_only(monkeypatch):
    steps, seen = [step.W for step in ax.datasets.colliding_gaussians(n_steps=4, rng=0)], []
    fresh = kmeans_module._better_on
    monkeypatch.setattr(kmeans_module, "_better_on", lambda *a: seen.append(a) or fresh(*a))
    ax.Affect(ax.KMeans(2), random_state=0).fit(steps)
    n_causal = len(seen)
    smooth(steps, ax.KMeans(2), random_state=0)
    assert len(seen) == 3 * n_causal > 0  # and those of the causal run above


def test_arrays_are_checked_once_in_each_pass(monkeypatch):
    """The second segment of the backward pass is recomputed without a check."""
    steps, seen = [step.W for step in ax.datasets.colliding_gaussians(n_steps=12, rng=0)], []
    check = affect_module.summed_proximity
    monkeypatch.setattr(
        affect_module, "summed_proximity", lambda *a, **k: seen.append(a[0]) or check(*a, **k)
    )
    smooth(steps, ax.KMeans(2), random_state=0)
    assert len(seen) == 2 * (len(steps) - 1)
