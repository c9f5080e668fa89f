"""scikit-learn clusterers in Affect."""

import re
import types

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.clustering import external
from affect_xp.clustering.base import Call, as_clusterer
from affect_xp.clustering.external import ExternalClusterer, as_external

cluster = pytest.importorskip("sklearn.cluster")
ensemble = pytest.importorskip("sklearn.ensemble")
mixture = pytest.importorskip("sklearn.mixture")

N = 45


def drifting(n_steps=4, seed=0, outliers=0):
    """Yield features of three drifting Gaussians, and the labels; outliers are far from all other objects."""
    rng = np.random.default_rng(seed)
    truth = np.arange(N) % 3
    centres = 12 * np.eye(3)
    for _ in range(n_steps):
        x = centres[truth] + rng.normal(size=(N, 3))
        x[N - outliers :] += 200 * np.eye(3)[np.arange(outliers) % 3] * (1 + np.arange(outliers))[:, None]
        centres = centres + rng.normal(scale=0.3, size=(3, 3))
        yield x, truth


def distances(x):
    return np.sqrt(((x[:, None, :] - x) ** 2).sum(axis=2))


def kernel(x):
    return np.exp(-(distances(x) ** 2) / 50)


ESTIMATORS = {
    "spectral": (cluster.SpectralClustering(3, affinity="precomputed"), kernel),
    "affinity propagation": (
        cluster.AffinityPropagation(affinity="precomputed", preference=-300.0, damping=0.9),
        lambda x: -(distances(x) ** 2),
    ),
    "agglomerative": (cluster.AgglomerativeClustering(3, metric="precomputed", linkage="average"), distances),
    "dbscan": (cluster.DBSCAN(eps=5.0, metric="precomputed"), distances),
    "hdbscan": (cluster.HDBSCAN(metric="precomputed"), distances),
    "optics": (cluster.OPTICS(metric="precomputed", cluster_method="dbscan", eps=5.0), distances),
}


@pytest.mark.parametrize("name", ESTIMATORS)
class TestEveryEstimator:
    def test_inside_affect(self, name):
        estimator, proximity = ESTIMATORS[name]
        model = ax.Affect(as_external(estimator), random_state=0)
        for x, truth in drifting():
            w = proximity(x)
            given = w.copy()
            model.partial_fit(w)
            assert ax.rand_index(model.labels_, truth) == 1
            assert np.array_equal(w, given)  # not even HDBSCAN wrote into it
            assert np.array_equal(model.labels_, model.history_[0].labels)
        assert 0 < model.alpha_ < 1
        assert not hasattr(estimator, "labels_")  # a copy was fitted

    def test_smoothed_proximities_stay_as_they_are(self, name):
        estimator, proximity = ESTIMATORS[name]
        twice = [proximity(x) for x, _ in drifting(2)]
        model = ax.Affect(as_external(estimator), alpha=0.25).fit(twice)
        np.testing.assert_allclose(model.smoothed_.array, 0.25 * twice[0] + 0.75 * twice[1], rtol=1e-14)

    def test_labels_are_those_of_the_estimator(self, name):
        estimator, proximity = ESTIMATORS[name]
        w = proximity(next(drifting())[0])
        found = as_external(estimator).cluster(ax.Dense(w), Call(rng=3)).partition
        expected = type(estimator)(**estimator.get_params()).set_params(
            **({"random_state": 1} if "random_state" in estimator.get_params() else {}),
            **({"copy": True} if "copy" in estimator.get_params() else {}),
        )
        assert found.k == 3
        assert ax.adjusted_rand_index(found.labels, expected.fit_predict(w)) == 1

    def test_what_it_wants(self, name):
        estimator, proximity = ESTIMATORS[name]
        wants = "dissimilarity" if proximity is distances else "similarity"
        assert as_external(estimator).wants == wants
        as_external(estimator).check()


class TestNoise:
    def test_through_moments_and_matching(self):
        model = ax.Affect(as_external(cluster.DBSCAN(eps=5.0, metric="precomputed")))
        for x, truth in drifting(5, outliers=4):
            w = distances(x)
            model.partial_fit(w)
            labels = model.labels_
            assert np.array_equal(np.flatnonzero(labels == -1), np.arange(N - 4, N))
            assert ax.rand_index(labels[: N - 4], truth[: N - 4]) == 1
            assert set(labels.tolist()) == {-1, 0, 1, 2}
            assert len(model.history_[-1].ids) == N and model.history_[-1].k == 3
        assert np.array_equal(labels, model.history_[0].labels)

    def test_does_not_touch_alpha(self):
        # Noise does not enter the moments: α is that of the other objects.
        steps = [distances(x) for x, _ in drifting(2, outliers=4)]
        dbscan = as_external(cluster.DBSCAN(eps=5.0, metric="precomputed"))
        model = ax.Affect(dbscan).fit(steps)
        labels = model.history_[0].labels
        kept = np.flatnonzero(labels >= 0)
        alone = [w[np.ix_(kept, kept)] for w in steps]
        assert model.alphas_[0] == pytest.approx(
            ax.forgetting_factor(alone[1], alone[0], labels[kept]), rel=1e-12
        )

    def test_nothing_but_noise(self):
        dense, sparse = (distances(x) for x, _ in drifting(2))
        model = ax.Affect(as_external(cluster.DBSCAN(eps=5.0, metric="precomputed")), alpha=0.0)
        labels = [model.partial_fit(w).labels_ for w in (dense, 100 * sparse, dense)]
        assert (labels[1] == -1).all()
        assert ax.rand_index(labels[0], labels[2]) == 1
        estimated = ax.Affect(as_external(cluster.DBSCAN(eps=1e-9, metric="precomputed"))).fit(
            [dense, sparse]
        )
        assert 0 <= estimated.alpha_ <= 1


class TestRandomness:
    def test_the_model_seeds_the_estimator(self):
        seen = []

        class Recording(cluster.SpectralClustering):
            def fit_predict(self, w, y=None):
                seen.append(self.random_state)
                return np.arange(len(w)) % 2

        w = kernel(next(drifting())[0])
        for seed in (0, 0, 1):
            as_external(Recording(affinity="precomputed")).cluster(ax.Dense(w), Call(rng=[seed, 0]))
        as_external(Recording(affinity="precomputed", random_state=7)).cluster(ax.Dense(w), Call(rng=[0, 0]))
        assert seen[0] == seen[1] != seen[2] and seen[3] == 7

    def test_a_run_repeats(self):
        w = np.random.default_rng(0).random((2, 20, 20))
        w = w + w.transpose(0, 2, 1)
        spectral = as_external(cluster.SpectralClustering(4, affinity="precomputed", n_init=1))
        first, second = (ax.Affect(spectral, random_state=5).fit(w).labels_ for _ in range(2))
        assert np.array_equal(first, second)


class TestLibraries:
    def test_a_device_is_read_only_when_the_user_says_so(self, xp):
        x, truth = next(drifting())
        w = ax.Dense(xp.array(distances(x)))
        dbscan = cluster.DBSCAN(eps=5.0, metric="precomputed")
        if xp.name in ("numpy", "torch"):  # on the host already
            found = as_external(dbscan).cluster(w)
        else:
            with pytest.raises(
                ax.exceptions.InputError, match=r"as_external\(DBSCAN\(...\), host_copy=True\)"
            ):
                as_external(dbscan).cluster(w)
            found = as_external(dbscan, host_copy=True).cluster(w)
        assert xp.owns(found.partition.labels)
        assert ax.rand_index(xp.numpy(found.partition.labels), truth) == 1

    def test_affect_on_a_device(self, eager_xp):
        external = as_external(cluster.HDBSCAN(metric="precomputed"), host_copy=True)
        model = ax.Affect(external, random_state=0)
        for x, truth in drifting(3):
            model.partial_fit(eager_xp.array(distances(x)))
            assert eager_xp.owns(model.labels_)
            assert ax.rand_index(eager_xp.numpy(model.labels_), truth) == 1

    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_single_precision(self, name):
        estimator, proximity = ESTIMATORS[name]
        x, truth = next(drifting())
        found = as_external(estimator).cluster(ax.Dense(proximity(x).astype(np.float32)), Call(rng=0))
        assert ax.rand_index(found.partition.labels, truth) == 1


class TestErrors:
    @pytest.mark.parametrize(
        "estimator, message",
        [
            (cluster.DBSCAN(), "has metric='euclidean'; set metric='precomputed'"),
            (cluster.AffinityPropagation(), "has affinity='euclidean'; set affinity='precomputed'"),
            (
                cluster.SpectralClustering(2),
                "has affinity='rbf'; set affinity='precomputed', or use ax.Spectral(2)",
            ),
            (cluster.KMeans(3), "KMeans takes features, not proximities; use ax.KMeans(3)"),
            (
                cluster.MiniBatchKMeans(np.int64(4)),
                "MiniBatchKMeans takes features, not proximities; use ax.KMeans(4)",
            ),
            (cluster.BisectingKMeans(3), "not proximities; use ax.KMeans(3)"),
            (cluster.Birch(n_clusters=3), "not proximities; use ax.KMeans(3)"),
            (cluster.Birch(n_clusters=None), "not proximities; use ax.KMeans('silhouette')"),
            (cluster.MeanShift(), "not proximities; use ax.KMeans('silhouette')"),
            (mixture.GaussianMixture(3), "not proximities; use ax.KMeans(3)"),
            (mixture.BayesianGaussianMixture(n_components=5), "not proximities; use ax.KMeans(5)"),
            (
                cluster.AgglomerativeClustering(2, metric="precomputed"),
                "set metric='precomputed' and linkage to 'average', 'complete' or 'single', or use "
                "ax.Linkage(2, method='ward') on distances",
            ),
            (cluster.AgglomerativeClustering(3), "has linkage='ward', which needs features; set metric="),
            (
                cluster.AgglomerativeClustering(3, linkage="average"),
                "has metric='euclidean'; set metric='precomputed', or use ax.Linkage(3)",
            ),
            (
                cluster.AgglomerativeClustering(None, linkage="single", distance_threshold=0.5),
                "or use ax.Linkage(distance_threshold=0.5)",
            ),
            (
                type("Their", (cluster.KMeans,), {})(6),
                "Their takes features, not proximities; use ax.KMeans(6)",
            ),
            (ensemble.IsolationForest(), "give a clusterer whose metric or affinity can be 'precomputed'"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_the_estimator_must_take_proximities(self, estimator, message):
        with pytest.raises(ax.exceptions.InputError, match=re.escape(message)):
            as_external(estimator).check()
        with pytest.raises(ax.exceptions.InputError, match=re.escape(message)):
            ax.Affect(estimator).partial_fit(np.eye(3))

    @pytest.mark.parametrize("name", ["agglomerative", "dbscan", "hdbscan", "optics"])
    def test_similarities_for_a_dissimilarity_clusterer(self, name):
        x, _ = next(drifting())
        for similarities in (kernel(x), x @ x.T):
            with pytest.raises(
                ax.exceptions.InputError, match=r"takes dissimilarities.*ax.to_dissimilarity\(W\)"
            ):
                as_external(ESTIMATORS[name][0]).cluster(ax.Dense(similarities))

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_rounding_on_the_diagonal_is_no_similarity(self, dtype):
        x, truth = next(drifting())
        x = (x + 10).astype(dtype)
        w = x @ x.T
        # The textbook formula leaves square roots of rounding errors on the diagonal.
        self_products = (x * x).sum(axis=1)
        d = np.sqrt(np.maximum(self_products[:, None] + self_products - 2 * w, 0) + np.finfo(dtype).eps)
        assert np.diag(d).min() > 0
        found = as_external(cluster.DBSCAN(eps=5.0, metric="precomputed")).cluster(ax.Dense(d))
        assert ax.rand_index(found.partition.labels, truth) == 1

    def test_a_graph_with_an_empty_diagonal_is_fine_for_affinities(self):
        x, truth = next(drifting())
        w = kernel(x)
        np.fill_diagonal(w, 0)
        found = as_external(ESTIMATORS["spectral"][0]).cluster(ax.Dense(w), Call(rng=0))
        assert ax.rand_index(found.partition.labels, truth) == 1

    def test_only_arrays(self):
        unstored = types.SimpleNamespace(formed=lambda: types.SimpleNamespace())
        with pytest.raises(ax.exceptions.InputTypeError, match="DBSCAN needs all proximities as an array"):
            as_external(cluster.DBSCAN(metric="precomputed")).cluster(unstored)

    @pytest.mark.parametrize("given", [cluster.DBSCAN, len, "dbscan", None])
    def test_not_an_estimator(self, given):
        with pytest.raises(ax.exceptions.InputTypeError, match=r"such as DBSCAN\(metric='precomputed'\)"):
            as_external(given)


class TestAsClusterer:
    def test_of_each_kind(self):
        ours = ax.KMeans(2)
        assert as_clusterer(ours) is ours
        assert isinstance(as_clusterer(len), external.FunctionClusterer)
        wrapped = as_clusterer(cluster.DBSCAN(metric="precomputed"))
        assert isinstance(wrapped, ExternalClusterer) and not wrapped.host_copy
        assert as_clusterer(wrapped) is wrapped

    @pytest.mark.parametrize("given", ["kmeans", None, cluster.DBSCAN, ax.KMeans])
    def test_nothing_else(self, given):
        with pytest.raises(ax.exceptions.InputTypeError, match="clusterer must be"):
            as_clusterer(given)

    def test_an_estimator_may_declare_that_it_takes_proximities(self):
        base = pytest.importorskip("sklearn.base")

        class Halves(base.ClusterMixin, base.BaseEstimator):
            def __sklearn_tags__(self):
                tags = super().__sklearn_tags__()
                tags.input_tags.pairwise = True
                return tags

            def fit_predict(self, w, y=None):
                return np.where(w[0] > np.median(w[0]), 5, 9)

        external = as_clusterer(Halves())
        external.check()
        assert external.wants is None
        labels = external.cluster(ax.Dense(np.outer(np.arange(1.0, 7), np.arange(1.0, 7)))).partition.labels
        assert labels.tolist() == [1, 1, 1, 0, 0, 0]


def test_affect_takes_estimators_as_they_are():
    x = np.repeat([0.0, 9.0], 8) + np.random.default_rng(0).normal(size=16)
    d = abs(x[:, None] - x)
    model = ax.Affect(cluster.HDBSCAN(min_cluster_size=4, metric="precomputed")).fit([d, d])
    assert ax.rand_index(model.labels_, np.repeat([0, 1], 8)) == 1
