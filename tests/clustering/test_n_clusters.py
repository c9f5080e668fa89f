"""Scores of partitions against scikit-learn, networkx and slow twins, and the choice among them."""

import itertools

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import pdist, squareform

import affect_xp as ax
from affect_xp.clustering import n_clusters as module
from affect_xp.clustering.n_clusters import (
    calinski_harabasz,
    calinski_harabasz_scores,
    choose,
    dispersion_of,
    eigengap_scores,
    height_gap_scores,
    likelihood,
    modularity,
    select,
    silhouette,
)
from affect_xp.partition import Partition, align, as_partition
from affect_xp.proximity import Pair

LABELS = np.array([0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 0, 1, 0, 2, 2])  # cluster 3 is a singleton
NOISY = np.where(np.arange(len(LABELS)) % 5 == 2, -1, LABELS)


def features(n=16, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * (rng.normal(size=(n, 3)) + 2 * rng.normal(size=(4, 3))[np.arange(n) % 4])


def graph():
    w = np.random.default_rng(0).random((16, 16)) ** 3
    return w + w.T


def matrices(kind, seed=0):
    x = features(seed=seed)
    return x @ x.T if kind == "similarity" else squareform(pdist(x))


def slow_silhouette(delta, labels):
    """Return the mean silhouette from the definition; objects labelled -1 are ignored."""
    scores = []
    for i in np.flatnonzero(labels >= 0):
        own = [delta[i, j] for j in np.flatnonzero(labels == labels[i]) if j != i]
        others = [delta[i, labels == c].mean() for c in set(labels.tolist()) - {-1, int(labels[i])}]
        a, b = np.mean(own) if own else 0.0, min(others, default=0.0)
        scores.append((b - a) / max(abs(a), abs(b)) if own and others and max(abs(a), abs(b)) > 0 else 0.0)
    return float(np.mean(np.clip(scores, -1, 1))) if scores else 0.0


def slow_modularity(w, labels):
    """Return Σ (wᵢⱼ − gᵢgⱼ/ω)/ω over the pairs within clusters; g are row sums over labelled objects."""
    w = w[np.ix_(labels >= 0, labels >= 0)]
    c, g, total = labels[labels >= 0], w.sum(axis=1), w.sum()
    pairs = itertools.product(range(len(w)), repeat=2)
    return sum((w[i, j] - g[i] * g[j] / total) / total for i, j in pairs if c[i] == c[j])


def likelihood_of(w, labels, dispersion=1.0):
    W = ax.as_proximity(w)
    partition = as_partition(labels, W.n, W.like)
    return likelihood(W, partition, W.matmul(partition.membership), "similarity", dispersion)


def slow_likelihood(w, labels, dispersion):
    """Return the penalised log-likelihood, straight from the formula."""
    keep = labels >= 0
    w, c = w[np.ix_(keep, keep)] * (1 - np.eye(keep.sum())), labels[keep]
    names, n, omega = sorted(set(c.tolist())), len(c), w.sum()
    total = 0.0
    for a, b in itertools.product(names, repeat=2):
        s = w[np.ix_(c == a, c == b)].sum()
        if s > 0:
            total += s * np.log(s * omega / (w[c == a].sum() * w[c == b].sum())) / 2
    k = len(names)
    return total / dispersion - k * (k + 1) / 4 * np.log(n * (n - 1) / 2) - n * np.log(k)


def slow_dispersion(w, labels):
    """Return φ from the entries of each block."""
    noise = total = squares = 0.0
    for a, b in itertools.product(sorted(set(labels.tolist())), repeat=2):
        pairs = itertools.product(np.flatnonzero(labels == a), np.flatnonzero(labels == b))
        x = np.array([w[i, j] for i, j in pairs if i != j])
        freedom = len(x) - (2 if a == b else 1)
        noise += len(x) * ((x - x.mean()) ** 2).sum() / freedom if freedom > 0 else 0.0
        total, squares = total + x.sum(), squares + (x**2).sum()
    return max(noise, 0.05 * squares) / total


def slow_calinski_harabasz(x, labels):
    """Return the ratio of dispersions from features and centroids."""
    x, labels = x[labels >= 0], labels[labels >= 0]
    groups = [x[labels == c] for c in sorted(set(labels.tolist()))]
    within = sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups)
    between = sum(len(group) * ((group.mean(axis=0) - x.mean(axis=0)) ** 2).sum() for group in groups)
    return between / (len(groups) - 1) / (within / (len(x) - len(groups)))


def squared_distances(w):
    return np.diag(w)[:, None] + np.diag(w) - 2 * w


@pytest.mark.parametrize("labels", [LABELS, LABELS % 2], ids=["singleton", "two"])
class TestGoldens:
    """The same numbers as scikit-learn and networkx."""

    def test_silhouette(self, labels):
        metrics = pytest.importorskip("sklearn.metrics")
        x, d = features(), matrices("dissimilarity")
        found = [silhouette(d, labels, kind="dissimilarity"), silhouette(x @ x.T, labels, kind="similarity")]
        expected = [
            metrics.silhouette_score(d, labels, metric="precomputed"),
            metrics.silhouette_score(x, labels, metric="sqeuclidean"),
        ]
        np.testing.assert_allclose(found, expected, atol=1e-13)

    @pytest.mark.parametrize("kind", module.KINDS)
    def test_calinski_harabasz(self, labels, kind):
        metrics = pytest.importorskip("sklearn.metrics")
        expected = metrics.calinski_harabasz_score(features(), labels)
        assert float(calinski_harabasz(matrices(kind), labels, kind=kind)) == pytest.approx(
            expected, rel=1e-12
        )

    def test_modularity_where_networkx_counts_loops_twice(self, labels):
        networkx = pytest.importorskip("networkx")
        w = graph()
        loops = w - np.diag(np.diag(w)) / 2
        communities = [set(np.flatnonzero(c == labels).tolist()) for c in set(labels.tolist())]
        expected = networkx.community.modularity(networkx.from_numpy_array(loops), communities)
        assert float(modularity(w, labels)) == pytest.approx(expected, abs=1e-14)


class TestSilhouette:
    @pytest.mark.parametrize("labels", [LABELS, NOISY], ids=["singleton", "noise"])
    @pytest.mark.parametrize("kind", module.KINDS)
    def test_against_the_definition(self, xp, kind, labels, small_blocks):
        w = matrices(kind)
        found = silhouette(xp.array(w), xp.array(labels), kind=kind)
        assert xp.owns(found) and found.shape == ()
        delta = w if kind == "dissimilarity" else squared_distances(w)
        assert float(xp.numpy(found)) == pytest.approx(slow_silhouette(delta, labels), abs=1e-13)

    def test_a_graph_without_diagonal_compares_mean_weights(self, eager_xp):
        w = graph()
        np.fill_diagonal(w, 0)
        found = silhouette(eager_xp.array(w), eager_xp.array(LABELS), kind="similarity")
        assert float(eager_xp.numpy(found)) == pytest.approx(slow_silhouette(-w, LABELS), abs=1e-14)

    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("kind", module.KINDS)
    def test_stays_within_its_bounds_whatever_the_matrix(self, seed, kind):
        rng = np.random.default_rng(seed)
        w = rng.standard_cauchy(size=(12, 12))
        labels = rng.integers(-1, 4, 12)
        w = w + w.T
        found = float(silhouette(w, labels, kind=kind))
        assert -1 <= found <= 1
        delta = w if kind == "dissimilarity" else squared_distances(w)
        assert found == pytest.approx(slow_silhouette(delta, labels), abs=1e-9)

    def test_the_object_itself_is_not_counted(self):
        # A pair at distance 4 from each other, 8 from the third: a = 4, not the 2 of a mean with itself.
        d = np.array([[0.0, 4, 8], [4, 0, 8], [8, 8, 0]])
        assert float(silhouette(d, [0, 0, 1], kind="dissimilarity")) == pytest.approx((0.5 + 0.5 + 0) / 3)

    def test_a_singleton_changes_no_other_object(self):
        # An object far from all others adds a score of 0 and does not change the sum of the others.
        d = matrices("dissimilarity")
        d = np.pad(d, ((0, 1), (0, 1)), constant_values=1e3)
        d[-1, -1] = 0
        alone = float(silhouette(d, np.append(LABELS % 3, 3), kind="dissimilarity"))
        without = float(silhouette(d[:-1, :-1], LABELS % 3, kind="dissimilarity"))
        assert alone * len(d) == pytest.approx(without * (len(d) - 1), abs=1e-12)

    @pytest.mark.parametrize("value", [0.1, 0.7, 1000.1])
    def test_identical_objects_score_zero(self, eager_xp, value):
        # Differences of sums leave rounding errors here, with an arbitrary ratio.
        x, labels = np.full((50, 3), value), np.minimum(np.arange(50) % 5, 2)
        for dtype in (np.float64, np.float32):
            w, c = eager_xp.array((x @ x.T).astype(dtype)), eager_xp.array(labels)
            assert float(eager_xp.numpy(silhouette(w, c, kind="similarity"))) == 0
            assert float(eager_xp.numpy(calinski_harabasz(w, c, kind="similarity"))) == 0

    def test_single_precision(self, eager_xp):
        x = features(scale=10)
        w = x @ x.T
        found = silhouette(eager_xp.array(w, np.float32), eager_xp.array(LABELS), kind="similarity")
        assert float(eager_xp.numpy(found)) == pytest.approx(
            float(silhouette(w, LABELS, kind="similarity")), abs=1e-5
        )

    def test_of_a_blend(self):
        x, y = features(seed=1), features(seed=2)
        blend = Pair(ax.Dense(x @ x.T), ax.Dense(y @ y.T), align(range(16), range(16), x)).blend(0.3)
        found = silhouette(blend, LABELS, kind="similarity")
        assert float(found) == pytest.approx(
            float(silhouette(blend.formed(), LABELS, kind="similarity")), abs=1e-13
        )

    def test_empty_clusters_do_not_matter(self):
        d = matrices("dissimilarity")
        gaps = Partition(np.where(LABELS == 2, 7, LABELS), 9)
        expected = float(silhouette(d, LABELS, kind="dissimilarity"))
        assert float(silhouette(d, gaps, kind="dissimilarity")) == pytest.approx(expected, abs=1e-15)

    def test_what_w_holds_must_be_said(self):
        with pytest.raises(
            ax.exceptions.InputError, match="kind must be one of 'dissimilarity', 'similarity'"
        ):
            silhouette(np.eye(2), [0, 1], kind="distance")


class TestModularity:
    @pytest.mark.parametrize("labels", [LABELS, NOISY, np.zeros_like(LABELS)], ids=["all", "noise", "one"])
    def test_against_the_definition(self, xp, labels):
        w = graph()
        found = modularity(xp.array(w), xp.array(labels))
        assert xp.owns(found) and found.shape == ()
        assert float(xp.numpy(found)) == pytest.approx(slow_modularity(w, labels), abs=1e-14)

    def test_one_cluster_has_exactly_none(self):
        assert float(modularity(graph(), np.zeros(16, dtype=int))) == 0


class TestCalinskiHarabasz:
    @pytest.mark.parametrize("kind", module.KINDS)
    @pytest.mark.parametrize("labels", [LABELS, NOISY], ids=["singleton", "noise"])
    def test_against_centroids_of_the_features(self, xp, kind, labels, small_blocks):
        found = calinski_harabasz(xp.array(matrices(kind)), xp.array(labels), kind=kind)
        assert xp.owns(found) and found.shape == ()
        assert float(xp.numpy(found)) == pytest.approx(slow_calinski_harabasz(features(), labels), rel=1e-12)

    @pytest.mark.parametrize("kind", module.KINDS)
    def test_nothing_left_within_is_the_best_of_all(self, kind):
        x = np.repeat([0.1, 0.7, 2.3], 3)[:, None]
        w = x @ x.T if kind == "similarity" else abs(x - x.T)
        assert float(calinski_harabasz(w, np.arange(9) // 3, kind=kind)) == np.inf

    @pytest.mark.parametrize(
        "labels", [np.zeros(5, dtype=int), np.arange(5)], ids=["one cluster", "n clusters"]
    )
    @pytest.mark.parametrize("kind", module.KINDS)
    def test_undefined_is_zero(self, kind, labels):
        x = features(5)
        w = x @ x.T if kind == "similarity" else squareform(pdist(x))
        assert float(calinski_harabasz(w, labels, kind=kind)) == 0


class TestChoose:
    def test_the_highest_wins(self):
        assert choose({2: 0.1, 3: 0.4, 4: 0.3}) == 3

    def test_ties_and_rounding_go_to_the_smallest(self):
        assert choose({5: 0.7, 2: 0.5, 3: 0.7 - 1e-15, 4: 0.7}) == 3
        assert choose({4: np.inf, 3: np.inf, 2: 10.0}) == 3

    def test_nan_does_not_count(self):
        assert choose({2: np.nan, 3: -0.5}) == 3
        with pytest.raises(ax.exceptions.InputError, match="scores must hold a number"):
            choose({2: np.nan})


def blocks(n_blocks=3, size=6):
    """Return features of well-separated groups, and their labels."""
    truth = np.repeat(np.arange(n_blocks), size)
    noise = np.random.default_rng(0).normal(size=(len(truth), n_blocks))
    return 20 * np.eye(n_blocks)[truth] + noise, truth


def cuts(xp, d):
    """Return a function that cuts a dendrogram: from k to a partition."""
    merges = hierarchy.linkage(squareform(d, checks=False), "average")
    return lambda k: Partition(xp.array(hierarchy.cut_tree(merges, k)[:, 0]), k)


class TestLikelihood:
    @pytest.mark.parametrize("labels", [LABELS, NOISY, LABELS % 2, 0 * LABELS], ids=str)
    def test_against_the_formula(self, xp, labels):
        found = likelihood_of(xp.array(graph()), xp.array(labels), 0.3)
        assert xp.owns(found) and found.shape == ()
        assert float(xp.numpy(found)) == pytest.approx(slow_likelihood(graph(), labels, 0.3), rel=1e-12)

    def test_the_dispersion_is_that_of_entries_within_blocks(self, xp):
        W, partition = ax.Dense(xp.array(graph())), Partition(xp.array(LABELS), 4)
        found = float(xp.numpy(dispersion_of(W, partition)))
        assert found == pytest.approx(slow_dispersion(graph(), LABELS), rel=1e-12)

    @pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
    @pytest.mark.parametrize("groups", [1, 3])
    def test_finds_the_number_of_groups_in_any_unit(self, groups, unit):
        rng = np.random.default_rng(groups)
        same = np.arange(60)[:, None] % groups == np.arange(60) % groups
        w = np.triu(rng.poisson(np.where(same, 2.0 if groups > 1 else 0.4, 0.2)), 1)
        model = ax.Static(ax.Spectral("likelihood"), random_state=0)
        model.fit([unit * (w + w.T).astype(float)])
        assert model.history_[0].k == groups and list(model.history_[0].scores) == list(range(1, 11))

    def test_one_edge_is_no_error(self):
        assert np.isfinite(float(likelihood_of(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]))))
        assert float(dispersion_of(ax.Dense(np.zeros((3, 3))), Partition(np.array([0, 0, 1]), 2))) == 1.0


class TestSelect:
    @pytest.mark.parametrize(
        "rule, kind",
        [
            (rule, kind)
            for rule in ("silhouette", "modularity", "calinski_harabasz")
            for kind in module.KINDS
            if (rule, kind) != ("modularity", "dissimilarity")
        ],
    )
    def test_finds_the_number_of_groups(self, eager_xp, rule, kind):
        x, truth = blocks()
        d = squareform(pdist(x))
        w = d if kind == "dissimilarity" else np.exp(-(d**2) / 50) if rule == "modularity" else x @ x.T
        k, partition, scores = select(eager_xp.array(w), rule, 6, cuts(eager_xp, d), kind=kind)
        assert k == 3 and list(scores) == [2, 3, 4, 5, 6]
        assert ax.rand_index(eager_xp.numpy(partition.labels), truth) == 1
        by_hand = {"silhouette": silhouette, "calinski_harabasz": calinski_harabasz}
        for n_clusters, score in scores.items():
            labels = eager_xp.numpy(cuts(eager_xp, d)(n_clusters).labels)
            given = {} if rule == "modularity" else {"kind": kind}
            expected = float(by_hand.get(rule, modularity)(w, labels, **given))
            assert score == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("width", [1, 5, 1000])
    def test_how_candidates_share_a_pass_makes_no_difference(self, monkeypatch, width, eager_xp):
        monkeypatch.setattr(module, "PASS_COLUMNS", width)
        x, _ = blocks()
        w = eager_xp.array(x @ x.T)
        found = select(w, "silhouette", 6, cuts(eager_xp, squareform(pdist(x))), kind="similarity")
        assert found.k == 3
        expected = [silhouette(x @ x.T, cuts_of(x, k), kind="similarity") for k in range(2, 7)]
        np.testing.assert_allclose(list(found.scores.values()), [float(e) for e in expected], atol=1e-13)

    def test_the_partition_is_that_of_the_number_chosen(self):
        # Not that of the first candidate: each has its own partition.
        x, _ = blocks(5)
        made = {}
        cluster = cuts(ArrayMaker, squareform(pdist(x)))

        def cluster_k(k):
            made[k] = cluster(k)
            return made[k]

        found = select(x @ x.T, "silhouette", 8, cluster_k, kind="similarity")
        assert found.k == 5 and found.partition is made[5]

    def test_a_graph_without_groups_is_one_cluster(self):
        w = np.ones((9, 9))
        found = select(w, "modularity", 4, lambda k: Partition(np.arange(9) % k, k), 1, kind="similarity")
        assert found.k == 1 and found.scores[1] == 0 and max(found.scores.values()) == 0

    @pytest.mark.parametrize("rule", module.RULES)
    def test_no_more_clusters_than_objects(self, rule):
        for n in (1, 2, 3):
            x = np.arange(n, dtype=float)[:, None]
            found = select(
                x @ x.T, rule, 10, lambda k, n=n: Partition(np.arange(n) % k, k), kind="similarity"
            )
            assert list(found.scores) == list(range(min(2, n), n + 1))
            assert np.isfinite(list(found.scores.values())).all()

    def test_errors_name_the_remedy(self):
        def never(k):
            raise AssertionError

        with pytest.raises(ax.exceptions.InputError, match="rule must be one of 'silhouette'"):
            select(np.eye(3), "gap", 3, never, kind="similarity")
        with pytest.raises(ax.exceptions.InputError, match=r"needs similarities.*use 'silhouette'"):
            select(np.eye(3), "modularity", 3, never, kind="dissimilarity")
        with pytest.raises(ax.exceptions.InputError, match="max_clusters must be at least 4, got 3"):
            select(np.eye(9), "silhouette", 3, never, min_clusters=4, kind="similarity")
        with pytest.raises(ax.exceptions.InputTypeError, match="max_clusters must be an integer"):
            select(np.eye(9), "silhouette", 3.0, never, kind="similarity")


class ArrayMaker:
    """NumPy as a backend."""

    array = staticmethod(np.array)


def cuts_of(x, k):
    return cuts(ArrayMaker, squareform(pdist(x)))(k).labels


def cuts_by_scipy(merges):
    return lambda k: hierarchy.cut_tree(merges, k)[:, 0]


class TestEigengap:
    def test_the_largest_gap_in_either_order(self, xp):
        values = np.array([0.0, 0.1, 0.15, 0.9, 1.5])
        for signed in (values, -values):
            scores = eigengap_scores(xp.array(signed), 4)
            assert choose(scores) == 3
            np.testing.assert_allclose(list(scores.values()), [0.05, 0.75, 0.6])

    def test_ends(self):
        assert choose(eigengap_scores([3.0], 5)) == 1
        assert choose(eigengap_scores([3.0, 1.0], 5)) == 2
        assert eigengap_scores([3.0, 1.0, 0.5], 5) == {2: 0.5, 3: 0.0}
        assert choose(eigengap_scores(np.zeros(6), 5)) == 2


class TestDendrogram:
    @pytest.mark.parametrize("kind", module.KINDS)
    def test_every_cut_against_centroids_of_the_features(self, xp, kind):
        x = features(13, seed=3)
        merges = hierarchy.linkage(pdist(x), "complete")
        w = xp.array(x @ x.T if kind == "similarity" else squareform(pdist(x)))
        scores = calinski_harabasz_scores(ax.as_proximity(w), cuts_by_scipy(merges), 20, kind=kind)
        assert list(scores) == list(range(2, 14)) and scores[13] == 0
        for k in range(2, 13):
            expected = slow_calinski_harabasz(x, hierarchy.cut_tree(merges, k)[:, 0])
            assert scores[k] == pytest.approx(expected, rel=1e-11)

    def test_the_rules_find_the_groups(self):
        x, _ = blocks(4)
        merges = hierarchy.linkage(pdist(x), "complete")
        assert choose(height_gap_scores(merges[:, 2], 10)) == 4
        d, cut = ax.Dense(squareform(pdist(x))), cuts_by_scipy(merges)
        assert choose(calinski_harabasz_scores(d, cut, 10, kind="dissimilarity")) == 4

    def test_gaps_of_heights(self):
        heights = np.array([0.5, 1.0, 3.0, 3.5])
        assert height_gap_scores(heights, 9) == {2: 0.5, 3: 2.0, 4: 0.5, 5: 0.5}
        assert height_gap_scores(heights, 3) == {2: 0.5, 3: 2.0}
        assert height_gap_scores(np.zeros(0), 3) == {1: 0.0}

    def test_ties_everywhere_and_few_objects(self):
        for n in (1, 2, 3, 6):
            d = np.ones((n, n)) - np.eye(n)
            cut = ax.linkage(d, "average").host_labels
            scores = calinski_harabasz_scores(ax.Dense(d), cut, 4, kind="dissimilarity")
            assert list(scores) == list(range(min(2, n), min(4, n) + 1))
            assert np.isfinite(list(scores.values())).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("matrix", [np.zeros, np.ones], ids=["zeros", "ones"])
def test_never_nan(eager_xp, n, matrix, dtype):
    w = eager_xp.array(matrix((n, n)), dtype)
    for labels in (np.zeros(n), np.arange(n), np.arange(n) // 2, np.full(n, -1)):
        partition = eager_xp.array(labels, np.int64)
        scores = [modularity(w, partition)]
        scores += [
            score(w, partition, kind=k) for score in (silhouette, calinski_harabasz) for k in module.KINDS
        ]
        for score in scores:
            assert not np.isnan(eager_xp.numpy(score))


class TestOnADevice:
    def test_scores_read_nothing_and_a_selection_reads_once(self):
        strict = pytest.importorskip("array_api_strict")
        from transfers import DEVICE, counted

        def device(values):
            return strict.asarray(np.array(values), device=DEVICE)

        x, _ = blocks()
        d = squareform(pdist(x))
        partitions = {k: Partition(device(cuts_of(x, k)), k) for k in range(2, 7)}
        with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False):
            w = {"similarity": ax.Dense(device(x @ x.T)), "dissimilarity": ax.Dense(device(d))}
            with counted() as seen:
                modularity(w["similarity"], partitions[3])
                for kind in module.KINDS:
                    silhouette(w[kind], partitions[3], kind=kind)
                    calinski_harabasz(w[kind], partitions[3], kind=kind)
            assert not seen, seen.where
            for rule, kind in itertools.product(("silhouette", "calinski_harabasz"), module.KINDS):
                with counted() as seen:
                    select(w[kind], rule, 6, partitions.__getitem__, kind=kind)
                assert seen.total() == 1, seen.where
            merges = hierarchy.linkage(pdist(x))
            with counted() as seen:
                cut = cuts_by_scipy(merges)
                calinski_harabasz_scores(w["dissimilarity"], cut, 6, kind="dissimilarity")
            assert seen.total() == 1, seen.where

    @pytest.mark.parametrize("kind", module.KINDS)
    def test_no_large_temporaries(self, kind, monkeypatch):
        torch = pytest.importorskip("torch")
        from large_arrays import Large, N, labels, matrix

        monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 2_000 * N * 8)
        w = matrix(torch.float32)
        with Large() as large:
            silhouette(w, labels(), kind=kind)
            calinski_harabasz(w, labels(), kind=kind)
            modularity(w, labels())
        assert large.found == []

    def test_candidates_share_passes(self, monkeypatch):
        x, _ = blocks()
        passes = []
        multiply = ax.Dense.matmul
        monkeypatch.setattr(ax.Dense, "matmul", lambda w, v: passes.append(v.shape[1]) or multiply(w, v))
        select(x @ x.T, "silhouette", 10, lambda k: Partition(np.arange(18) % k, k), kind="similarity")
        assert passes == [sum(range(2, 11))]
