"""PCQ, PCM and RG against their explicit formulas, and the choice of α."""

import dataclasses
import functools
from typing import ClassVar

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.array.namespace import from_host
from affect_xp.datasets import boids
from affect_xp.models.pcm import PCM, discrete_solution
from affect_xp.models.pcq import PCQ
from affect_xp.models.relaxed import Combined, Expanded, Projection, Quality, with_means
from affect_xp.models.rg import RG, Frame, coefficients, filtered, separation
from affect_xp.models.tuning import cross_validate_alpha, tune_alpha
from affect_xp.partition import Partition, align

OBJECTIVES = ["average_association", "ratio_cut", "normalized_cut"]


def similarities(rng, labels, noise=0.3):
    """Return random positive similarities that are larger within clusters."""
    labels = np.asarray(labels)
    w = 0.2 + (labels[:, None] == labels) + noise * rng.random((len(labels), len(labels)))
    return (w + w.T) / 2


def slow_quality(w, objective):
    """Return the matrix whose top eigenvectors an objective uses, entry by entry."""
    d = [sum(row) for row in w]
    out = np.zeros_like(w)
    for i in range(len(w)):
        for j in range(len(w)):
            if objective == "normalized_cut":
                out[i, j] = w[i, j] / np.sqrt(d[i] * d[j])
            else:
                out[i, j] = w[i, j] - (d[i] if objective == "ratio_cut" and i == j else 0)
    return out


def slow_expanded(w, ids, past_ids):
    """Return past similarities of the current objects; new ones get the mean of those that stayed."""
    stayed = [past_ids.index(i) for i in ids if i in past_ids]
    out = np.empty((len(ids), len(ids)))
    for a, i in enumerate(ids):
        for b, j in enumerate(ids):
            rows = [past_ids.index(i)] if i in past_ids else stayed
            columns = [past_ids.index(j)] if j in past_ids else stayed
            out[a, b] = np.mean([[w[r, c] for c in columns] for r in rows])
    return out


def slow_rows(z, ids, past_ids):
    """Return past rows of the current objects; new ones get the mean of those that stayed."""
    mean = np.mean([z[past_ids.index(i)] for i in ids if i in past_ids], axis=0)
    return np.array([z[past_ids.index(i)] if i in past_ids else mean for i in ids])


# Objects that stay, leave, arrive, and change positions.
PAST_IDS, IDS = [1, 2, 3, 4, 5, 6, 7], [3, 9, 1, 5, 8, 6, 2, 7]
CHANGES = {"same": (PAST_IDS, PAST_IDS), "changed": (PAST_IDS, IDS), "moved": (PAST_IDS, PAST_IDS[::-1])}


def dense(backend, values):
    """Return a dense proximity on a backend."""
    return ax.Dense(backend.array(values))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("change", CHANGES)
class TestFormulas:
    def test_pcq_matrix(self, xp, change, objective):
        past_ids, ids = CHANGES[change]
        rng = np.random.default_rng(0)
        past, now = similarities(rng, [0] * len(past_ids)), similarities(rng, [0] * len(ids))
        W, V = dense(xp, now), rng.random((len(ids), 3))
        before = Expanded(dense(xp, past), align(tuple(ids), tuple(past_ids), W.like))
        n = len(ids)
        terms = Quality.of(Expanded(W), objective, n), Quality.of(before, objective, n)
        combined = Combined(*terms, 0.3, n, W.like)
        expected = 0.7 * slow_quality(now, objective)
        expected += 0.3 * slow_quality(slow_expanded(past, ids, past_ids), objective)
        self.check(xp, combined, expected, V)

    def test_pcm_matrix(self, xp, small_blocks, change, objective):
        past_ids, ids = CHANGES[change]
        rng = np.random.default_rng(1)
        now, z = similarities(rng, [0] * len(ids)), rng.normal(size=(len(past_ids), 2))
        W, V, n = dense(xp, now), rng.random((len(ids), 3)), len(ids)
        rows = with_means(xp.array(z), align(tuple(ids), tuple(past_ids), W.like))
        combined = Combined(Quality.of(Expanded(W), objective, n), Projection(rows), 0.3, n, W.like)
        slow = slow_rows(z, ids, past_ids)
        self.check(xp, combined, 0.3 * slow @ slow.T + 0.7 * slow_quality(now, objective), V)

    @staticmethod
    def check(xp, combined, expected, v):
        np.testing.assert_allclose(xp.numpy(combined.matmul(xp.array(v))), expected @ v, atol=1e-12)
        np.testing.assert_allclose(xp.numpy(combined.diagonal()), np.diag(expected), atol=1e-12)
        np.testing.assert_allclose(xp.numpy(combined.formed().array), expected, atol=1e-12)
        rows = xp.array([4, 1])
        np.testing.assert_allclose(
            xp.numpy(combined.matmul(xp.array(v[:2]), rows)), expected[:, [4, 1]] @ v[:2], atol=1e-12
        )


def top_vectors(a, k):
    """Return the projection onto the top k eigenvectors."""
    vectors = np.linalg.eigh(a)[1][:, -k:]
    return vectors @ vectors.T


@pytest.mark.parametrize("objective", OBJECTIVES)
class TestSteps:
    """The stored eigenvectors of a step span those of the explicit matrix."""

    PAST, NOW = [0, 0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]

    def matrices(self):
        rng = np.random.default_rng(2)
        return similarities(rng, self.PAST), similarities(rng, self.NOW)

    def test_pcq(self, xp, objective):
        past, now = self.matrices()
        model = PCQ(ax.Spectral(2, objective=objective), alpha=0.4, random_state=0)
        model.partial_fit(xp.array(past), PAST_IDS).partial_fit(xp.array(now), IDS)
        expected = 0.6 * slow_quality(now, objective)
        expected += 0.4 * slow_quality(slow_expanded(past, IDS, PAST_IDS), objective)
        self.check(xp, model, expected)

    def test_pcq_keeps_one_step(self, objective):
        past, now = self.matrices()
        given = past.copy()
        model = PCQ(ax.Spectral(2, objective=objective), alpha=0.4, random_state=0)
        model.partial_fit(np.ones((7, 7)), PAST_IDS).partial_fit(given, PAST_IDS)
        given[:] = 1.0  # the model must not use the caller's array
        model.partial_fit(now, IDS)
        expected = 0.6 * slow_quality(now, objective)
        expected += 0.4 * slow_quality(slow_expanded(past, IDS, PAST_IDS), objective)
        self.check(None, model, expected)

    def test_pcm_relaxed(self, xp, objective):
        past, now = self.matrices()
        model = PCM(ax.Spectral(2, objective=objective), alpha=0.4, random_state=0)
        model.partial_fit(xp.array(past), PAST_IDS)
        z = np.linalg.eigh(slow_quality(past, objective))[1][:, -2:]
        model.partial_fit(xp.array(now), IDS)
        rows = slow_rows(z, IDS, PAST_IDS)
        self.check(xp, model, 0.4 * rows @ rows.T + 0.6 * slow_quality(now, objective))

    def test_pcm_discrete(self, xp, objective):
        past, now = self.matrices()
        settings = ax.Spectral(2, objective=objective)
        model = PCM(settings, alpha=0.4, membership="discrete", random_state=0)
        model.partial_fit(xp.array(past), PAST_IDS)
        z = np.eye(2)[self.PAST]
        if objective == "normalized_cut":
            z = z * np.sqrt(past.sum(axis=1))[:, None]
        z = z / np.linalg.norm(z, axis=0)
        found = xp.numpy(model._state.memory)
        np.testing.assert_allclose(found @ found.T, z @ z.T, atol=1e-12)
        model.partial_fit(xp.array(now), IDS)
        assert xp.owns(model.labels_)
        # The same step, but with its eigenvectors.
        relaxed = PCM(settings, alpha=0.4, random_state=0).partial_fit(xp.array(past), PAST_IDS)
        memory = from_host(z, relaxed._state.memory)
        relaxed._state = dataclasses.replace(relaxed._state, memory=memory)
        relaxed.partial_fit(xp.array(now), IDS)
        rows = slow_rows(z, IDS, PAST_IDS)
        self.check(xp, relaxed, 0.4 * rows @ rows.T + 0.6 * slow_quality(now, objective))
        np.testing.assert_array_equal(xp.numpy(relaxed.labels_), xp.numpy(model.labels_))

    @staticmethod
    def check(xp, model, expected):
        vectors = model._state.memory if xp is None else xp.numpy(model._state.memory)
        np.testing.assert_allclose(vectors @ vectors.T, top_vectors(expected, 2), atol=1e-7)
        assert model.history_[-1].alpha == 0.4
        assert model.history_[0].alpha == 0

    @pytest.mark.parametrize("method", [PCQ, PCM, functools.partial(PCM, membership="discrete")])
    def test_without_weight_on_the_past(self, method, objective):
        # With very different degrees, rows of eigenvectors differ in length; normalised cut must ignore it.
        size = np.geomspace(1, 1000, 22)[np.random.default_rng(0).permutation(22)]
        steps = [similarities(np.random.default_rng(t), [0] * 10 + [1] * 12, 2.0) for t in range(4)]
        steps = [w * np.outer(size, size) for w in steps]
        model = method(ax.Spectral(2, objective=objective), alpha=0.0, random_state=0).fit(steps)
        static = ax.Static(ax.Spectral(2, objective=objective), random_state=0).fit(steps)
        for a, b in zip(model.history_, static.history_, strict=True):
            assert ax.rand_index(a.labels, b.labels) == 1

    @pytest.mark.parametrize("method", [PCQ, PCM])
    def test_solvers_agree(self, method, objective):
        steps = [similarities(np.random.default_rng(t), [0] * 20 + [1] * 12 + [2] * 9) for t in range(3)]
        full, iterative = (
            method(ax.Spectral(3, objective=objective, solver=solver), random_state=0).fit(steps)
            for solver in ("full", "iterative")
        )
        np.testing.assert_array_equal(full.labels_, iterative.labels_)


@pytest.mark.parametrize("method", [PCQ, PCM])
class TestChoices:
    def test_clusters_by_step_and_by_rule(self, method):
        truth = [[0] * 8 + [1] * 8 + [2] * 8] * 3 + [[0] * 8 + [1] * 16] * 3
        steps = [similarities(np.random.default_rng(t), labels) for t, labels in enumerate(truth)]
        asked = method(ax.Spectral([3, 3, 3, 2, 2, 2]), alpha=0.1, random_state=0).fit(steps)
        assert [record.k for record in asked.history_] == [3, 3, 3, 2, 2, 2]
        for rule in ("modularity", "silhouette", "eigengap"):
            model = method(ax.Spectral(rule, max_clusters=5), alpha=0.1, random_state=0).fit(steps)
            assert [record.k for record in model.history_] == [3, 3, 3, 2, 2, 2], rule
            assert ax.rand_index(model.labels_, truth[-1]) == 1
            assert model.history_[-1].scores is not None

    def test_nobody_stays(self, method):
        w = similarities(np.random.default_rng(0), [0] * 5 + [1] * 5)
        model = method(ax.Spectral(2), random_state=0).fit([w, w], ids=[range(10), range(10, 20)])
        assert model.history_[1].alpha == 0
        assert ax.rand_index(*model.history_.labels) == 1

    def test_alpha_by_step(self, method):
        w = similarities(np.random.default_rng(0), [0] * 5 + [1] * 5)
        model = method(ax.Spectral(2), alpha=[0, 0.2, 0.7], random_state=0).fit([w] * 3)
        assert model.history_.alpha.tolist() == [0, 0.2, 0.7]

    def test_representations(self, method):
        import scipy.sparse

        rng = np.random.default_rng(0)
        x = [0.5 + np.eye(2)[[0] * 9 + [1] * 8] + 0.1 * rng.random((17, 2)) for _ in range(3)]
        makers = (
            lambda x: ax.Dense(x @ x.T),
            ax.Factored.from_features,
            lambda x: scipy.sparse.csr_array(x @ x.T),
        )
        ids = [range(17), range(2, 17), range(17)]
        runs = [
            method(ax.Spectral(2), random_state=0).fit(
                (make(a[list(i)]) for a, i in zip(x, ids, strict=True)), ids=ids
            )
            for make in makers
        ]
        for model in runs:
            assert ax.rand_index(model.labels_, [0] * 9 + [1] * 8) == 1
            np.testing.assert_array_equal(model.labels_, runs[0].labels_)

    def test_the_past_steadies_the_clusters(self, method):
        truth = [0] * 12 + [1] * 12
        steps = [similarities(np.random.default_rng(t), truth, 7.0) for t in range(15)]

        def score(alpha):
            model = method(ax.Spectral(2), alpha=alpha, random_state=0).fit(steps)
            return np.mean([ax.rand_index(labels, truth) for labels in model.history_.labels])

        assert score(0.5) > score(0.0) + 0.02


def slow_rg(xs, all_labels, k, order, power=2):
    """Return the coefficients and the output of the filter at the last step; [i] is i steps earlier."""
    t = len(xs) - 1
    weights = []
    for i in range(min(order, t) + 1):
        labels = all_labels[max(1, i)]  # the current step uses the previous labels
        x, total, pairs = xs[t - i], 0.0, 0
        for c in range(k):
            for d in range(c):
                gap = x[labels == c].mean(axis=0) - x[labels == d].mean(axis=0)
                total, pairs = total + np.linalg.norm(gap) ** power, pairs + 1
        weights.append(total / pairs)
    b = np.array(weights) / sum(weights)
    return b, sum(b[i] * xs[t - i] for i in range(len(b)))


class TestRG:
    K = 3

    def data(self, n_steps=6):
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(self.K, 2)) * 4
        labels = [rng.permutation(np.arange(24) % self.K) for _ in range(n_steps)]
        return [centres[c] * (1 + t) + rng.normal(size=(24, 2)) for t, c in enumerate(labels)], labels

    @pytest.mark.parametrize("order, power", [(1, 2), (3, 0), (3, 1), (10, 2)])
    def test_filter_against_a_loop(self, eager_xp, order, power):
        xs, labels = self.data()
        t = len(xs) - 1
        newest_first = [None, *labels[:t][::-1]]  # [1] is the previous step
        frames = [Frame(eager_xp.array(xs[t]), eager_xp.array(labels[t - 1]))]
        frames += [
            Frame(eager_xp.array(xs[t - i]), eager_xp.array(labels[t - i]))
            for i in range(1, min(order, t) + 1)
        ]
        b, y = slow_rg(xs, newest_first, self.K, order, power)
        np.testing.assert_allclose(eager_xp.numpy(coefficients(frames, self.K, power)), b, rtol=1e-12)
        np.testing.assert_allclose(eager_xp.numpy(filtered(frames, self.K, power)), y, rtol=1e-12)
        assert b.sum() == pytest.approx(1)

    @pytest.mark.parametrize("settings, proximity", [(ax.KMeans(3), "dot"), (ax.Linkage(3), "euclidean")])
    @pytest.mark.parametrize("order, options", [(0, {}), (2, {}), (2, {"power": 1})])
    def test_run_against_a_loop(self, eager_xp, settings, proximity, order, options):
        xs, _ = self.data()
        model = RG(settings, order=order, proximity=proximity, random_state=0, **options)
        static = ax.Static(settings, proximity=proximity, random_state=0)
        found: list[np.ndarray] = []
        for t, x in enumerate(xs):
            y = slow_rg(xs[: t + 1], [None, *found[::-1]], self.K, order, **options)[1] if t and order else x
            model.partial_fit(eager_xp.array(x))
            static.partial_fit(eager_xp.array(y))
            found.append(eager_xp.numpy(model._state.partition.labels))
            np.testing.assert_array_equal(eager_xp.numpy(model.labels_), eager_xp.numpy(static.labels_))
        assert eager_xp.owns(model.labels_)

    def test_objects_may_change_places(self):
        xs, _ = self.data()
        plain = RG(ax.Linkage(3), proximity="euclidean").fit(xs)
        order = np.random.default_rng(1).permutation(24)
        mixed = RG(ax.Linkage(3), proximity="euclidean")
        for t, x in enumerate(xs):
            places = order if t % 2 else np.arange(24)
            mixed.partial_fit(x[places], places)
        assert ax.rand_index(mixed.labels_, plain.labels_[order]) == 1

    def test_separation(self):
        """Centroids at 0, 3 and 4i: the mean of 3, 4 and 5, or of their squares."""
        x = np.array([[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
        assert separation(Frame(x, np.array([0, 0, 1, 2])), 3, 1) == pytest.approx(4)
        assert separation(Frame(x, np.array([0, 0, 1, 2])), 3, 2) == pytest.approx(50 / 3)
        assert separation(Frame(x, np.zeros(4, dtype=np.int64)), 1, 2) == 0

    def test_coinciding_centroids(self):
        frame = Frame(np.ones((4, 1)), np.array([0, 1, 0, 1]))
        np.testing.assert_array_equal(coefficients([frame] * 4, 2, 2), [0.25] * 4)

    def test_float32_is_kept(self):
        xs, _ = self.data()
        model = RG(ax.KMeans(3), random_state=0).fit(x.astype(np.float32) for x in xs)
        assert model._state.memory.dtype == np.float32

    def test_a_step_refused_changes_nothing(self):
        xs, _ = self.data()
        model = RG(ax.KMeans(3), random_state=0).fit(xs[:3])
        before = model.labels_
        with pytest.raises(ax.exceptions.InputError):
            model.partial_fit(xs[3][:10], range(10))
        assert model.labels_ is before
        assert model.n_steps_ == 3


W2 = np.kron(np.eye(2), np.ones((3, 3))) + 0.1
X2 = np.eye(2)[[0, 0, 0, 1, 1, 1]]


def twice(model, first, second, **names):
    """Take two steps."""
    return lambda: model.partial_fit(first).partial_fit(second, **names)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PCQ(ax.KMeans(2)).fit([W2]), r"PCQ takes a Spectral .*, got KMeans"),
        (lambda: PCM(ax.Linkage(2)).fit([W2]), r"PCM takes a Spectral .*, got Linkage"),
        (lambda: PCQ(ax.Spectral(2, components="separate")).fit([W2]), "components='joint'"),
        (lambda: PCQ(ax.Spectral(2), alpha=1.5).fit([W2]), "alpha must be between 0 and 1, got 1.5"),
        (lambda: PCQ(ax.Spectral(2), alpha="estimate").fit([W2]), "alpha must be a number between 0 and 1"),
        (lambda: PCM(ax.Spectral(2), alpha=[0.0, 2]).fit([W2]), r"alpha\[1\] must be between 0 and 1"),
        (lambda: PCM(ax.Spectral(2), alpha=[0.0]).fit([W2, W2]), "alpha has 1 entries, but this is step 1"),
        (lambda: PCM(ax.Spectral(2), membership="hard").fit([W2]), "membership must be one of 'relaxed'"),
        (twice(PCQ(ax.Spectral(2)), W2, W2 - 2), "needs nonnegative similarities"),
        (lambda: RG(ax.Spectral(2)).fit([X2]), "RG takes KMeans or Linkage as clusterer, got Spectral"),
        (lambda: RG(ax.KMeans([2, 3])).fit([X2]), r"the same number of clusters .* got n_clusters=\[2, 3\]"),
        (lambda: RG(ax.KMeans("silhouette")).fit([X2]), "got n_clusters='silhouette'; pass an integer"),
        (lambda: RG(ax.Linkage(distance_threshold=1.0)).fit([X2]), "got n_clusters=None"),
        (lambda: RG(ax.KMeans(2), order=-1).fit([X2]), "order must be at least 0, got -1"),
        (lambda: RG(ax.KMeans(2), power=-1).fit([X2]), "power must be at least 0, got -1"),
        (lambda: RG(ax.KMeans(2), proximity="precomputed").fit([W2]), "RG filters features"),
        (lambda: RG(ax.Linkage(2)).fit([X2]), "proximity='dot' gives a similarity, but Linkage"),
        (lambda: RG(ax.KMeans(2)).fit([ax.Dense(W2)]), "array of features in memory, got Dense"),
        (twice(RG(ax.KMeans(2)), X2, X2[:5], ids=range(5)), "but 0 are new and 1 left"),
        (twice(RG(ax.KMeans(2), order=0), X2, X2, ids=range(1, 7)), "but 1 are new and 1 left"),
        (twice(RG(ax.KMeans(2)), X2, X2[:, :1]), "X has 1 features, but the previous steps had 2"),
        (lambda: tune_alpha(PCQ, [W2], [[0]], []), "grid is empty"),
        (lambda: tune_alpha(PCQ, [W2], [], [0.5]), "truth has 0 entries, but sequence has 1"),
        (lambda: tune_alpha(PCQ, [W2], [[0] * 6], [2.0]), "an α of grid must be between 0 and 1"),
        (
            lambda: cross_validate_alpha(lambda a: PCQ(ax.Spectral(2), alpha=a), [W2], [[0] * 6]),
            "sequence has 1 step",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


class TestTuning:
    """With given Rand indices: a clusterer that is correct only at given steps."""

    TRUTH = [np.array([0, 0, 1, 1])] * 4
    # By α: the steps at which it is correct. 0.2 is best on the first half, 0.3 to 0.5 on the second.
    RIGHT: ClassVar = {0.1: (), 0.2: (0, 1), 0.3: (0, 2, 3), 0.4: (2, 3), 0.5: (0, 2, 3)}

    def make(self, alpha):
        steps = iter(range(4))
        truth, wrong = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        return ax.Static(lambda w: truth if next(steps) in self.RIGHT[alpha] else wrong)

    def test_tune(self):
        tuning = tune_alpha(self.make, [np.eye(4)] * 4, self.TRUTH, list(self.RIGHT))
        wrong = ax.rand_index([0, 0, 1, 1], [0, 1, 0, 1])
        expected = {a: (len(right) + (4 - len(right)) * wrong) / 4 for a, right in self.RIGHT.items()}
        assert tuning.scores == pytest.approx(expected)
        assert tuning.alpha == 0.3  # not 0.5, which is equally good

    def test_cross_validation(self):
        found = cross_validate_alpha(self.make, iter([np.eye(4)] * 4), iter(self.TRUTH), list(self.RIGHT))
        assert found.alphas == (0.3, 0.2)  # each is the smallest of the best on the other half
        wrong = ax.rand_index([0, 0, 1, 1], [0, 1, 0, 1])
        np.testing.assert_allclose(found.rand, [1, wrong, wrong, wrong])
        assert found.mean == pytest.approx((1 + 3 * wrong) / 4)

    def test_cross_validation_over_random_steps(self):
        """Against a loop over the steps, with folds that depend on the seed."""
        args = [np.eye(4)] * 4, self.TRUTH, list(self.RIGHT)
        wrong = ax.rand_index([0, 0, 1, 1], [0, 1, 0, 1])
        splits = set()
        for seed in range(6):
            found = cross_validate_alpha(self.make, *args, rng=seed)
            fold = [t for t in range(4) if np.random.default_rng(seed).permutation(4)[t] < 2]
            rest = [t for t in range(4) if t not in fold]
            for own, other, alpha in ((fold, rest, found.alphas[0]), (rest, fold, found.alphas[1])):
                hits = {a: len(set(right) & set(other)) for a, right in self.RIGHT.items()}
                assert alpha == min(a for a in hits if hits[a] == max(hits.values()))
                for t in own:
                    assert found.rand[t] == (1 if t in self.RIGHT[alpha] else wrong)
            splits.add(tuple(fold))
        assert len(splits) > 1

    def test_ids(self):
        steps, ids = [W2, W2[:5, :5]], [list("abcdef"), list("abcde")]
        truth = [[0] * 3 + [1] * 3, [0] * 3 + [1] * 2]
        tuning = tune_alpha(lambda a: PCM(ax.Spectral(2), alpha=a), steps, truth, [0.2, 0.5], ids=iter(ids))
        assert tuning.scores == {0.2: 1.0, 0.5: 1.0}


def mean_rand(model, steps):
    """Return the mean Rand index of a run."""
    return np.mean([ax.rand_index(r.labels, s.labels) for r, s in zip(model.history_, steps, strict=True)])


def test_orderings_of_the_paper_on_colliding_gaussians():
    """AFFECT is better than RG of order 3, which is better than static clustering and RG of order 10."""
    scores = []
    for seed in range(10):
        steps = list(ax.datasets.colliding_gaussians(rng=seed))
        settings = {"proximity": "dot", "random_state": seed}
        models = (
            ax.Affect(ax.KMeans(2), init="static", **settings),
            RG(ax.KMeans(2), order=3, **settings),
            ax.Static(ax.KMeans(2), **settings),
            RG(ax.KMeans(2), order=10, **settings),
        )
        scores.append([mean_rand(model.fit(step.X for step in steps), steps) for model in models])
    affect, short, static, long = np.mean(scores, axis=0)
    assert affect > short + 0.01
    assert short > static + 0.03
    assert short > long + 0.05


def test_orderings_of_the_paper_on_boids():
    """The past helps complete linkage, with AFFECT and with a filter."""
    linkage = ax.Linkage(4, method="complete")
    scores = []
    for seed in range(3):
        steps = list(boids(20, rng=seed))
        settings = {"proximity": "euclidean", "scale": "none", "random_state": seed}
        models = (
            ax.Affect(linkage, init="static", **settings),
            RG(linkage, order=3, **settings),
            ax.Static(linkage, **settings),
        )
        scores.append([mean_rand(model.fit(step.X for step in steps), steps) for model in models])
    affect, filtered_, static = np.mean(scores, axis=0)
    assert affect > static + 0.02
    assert filtered_ > static + 0.02


def test_discrete_solution_of_an_empty_cluster():
    z = discrete_solution(ax.Dense(W2), Partition(np.array([0, 0, 0, 2, 2, 2]), 3), "ratio_cut")
    np.testing.assert_allclose(z.T @ z, np.diag([1, 0, 1]), atol=1e-15)
