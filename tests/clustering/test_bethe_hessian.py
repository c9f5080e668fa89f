"""The Bethe-Hessian against a dense twin, and the rules for k that need the evidence of two steps."""

import numpy as np
import pytest
from representations import only_on

import affect_xp as ax
from affect_xp.clustering.base import Call, Count
from affect_xp.clustering.bethe_hessian import bethe_hessian_scores
from affect_xp.clustering.spectral import PERSISTENT_RULES, density, unevenness
from affect_xp.exceptions import InputError
from affect_xp.partition import UNCHANGED
from affect_xp.proximity import Chunked, Dense, Pair, Sparse

SIZE = 60


def graph(seed=0, groups=3, inside=2.0, outside=0.2, n=SIZE, signs=False):
    rng = np.random.default_rng(seed)
    same = np.arange(n)[:, None] % groups == np.arange(n) % groups
    w = np.triu(rng.poisson(np.where(same, inside, outside)) * rng.gamma(2.0, 0.5, (n, n)), 1)
    w = w * np.where(rng.random((n, n)) < 0.2, -1, 1) if signs else w
    return w + w.T + np.diag(rng.random(n))


def slow_scores(w, most):
    """Return −λ of the smallest eigenvalues of H, straight from its definition."""
    n = len(w)
    s = [sum(w[i, j] ** 2 for j in range(n) if j != i) for i in range(n)]
    r = np.sqrt(sum(x * x for x in s) / sum(s))
    h = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                x = np.clip(w[i, j], -0.995 * r, 0.995 * r)
                h[i, j] -= r * x / (r * r - x * x)
                h[i, i] += x * x / (r * r - x * x)
        h[i, i] += 1
    return -np.linalg.eigvalsh(h)[:most]


def kinds(xp, w):
    """Return the storages of a matrix in a library."""
    yield Dense(xp.array(w))
    if xp.name == "numpy":
        scipy = pytest.importorskip("scipy.sparse")
        yield Sparse(scipy.csr_matrix(w))
    if xp.name == "dask":
        yield Chunked(xp.array(w))


@pytest.mark.parametrize("signs", [False, True], ids=["counts", "signed"])
@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e5])
def test_scores_are_those_of_the_definition(xp, small_blocks, unit, signs):
    w = graph(signs=signs)
    expected = slow_scores(w, 6)
    for W in kinds(xp, unit * w):
        found = list(bethe_hessian_scores(W, 6).values())
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_both_solvers_agree(xp):
    w = graph(n=200, groups=4)
    full, iterative = (
        np.array(list(bethe_hessian_scores(xp.array(w), 6, solver=solver, tol=0).values()))
        for solver in ("full", "iterative")
    )
    np.testing.assert_allclose(iterative[:4], full[:4], atol=1e-6)
    assert np.all(iterative <= full + 1e-8) and (full > 0).sum() == 4 == (iterative > 0).sum()


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_the_number_of_groups_is_that_of_positive_scores(groups):
    inside = 1.5 if groups > 1 else 0.2
    scores = bethe_hessian_scores(graph(n=150, groups=groups, inside=inside), 8)
    assert sum(score > 0 for score in scores.values()) == groups


def test_a_blend_is_judged_as_it_is_stored(eager_xp):
    w, psi = graph(0), graph(1)
    blend = Pair(Dense(eager_xp.array(w)), Dense(eager_xp.array(psi)), UNCHANGED).blend(0.25)
    found = list(bethe_hessian_scores(blend, 4).values())
    np.testing.assert_allclose(found, slow_scores(0.25 * psi + 0.75 * w, 4), atol=1e-9)


def test_edges(eager_xp):
    assert bethe_hessian_scores(eager_xp.array(np.zeros((3, 3))), 5) == {1: 0.0, 2: 0.0, 3: 0.0}
    assert bethe_hessian_scores(eager_xp.array(np.ones((1, 1))), 5) == {1: 0.0}
    one_edge = np.array([[0.0, 7.0], [7.0, 0.0]])
    assert list(bethe_hessian_scores(eager_xp.array(one_edge), 2)) == [1, 2]
    with pytest.raises(InputError, match="does not hold the entries of W"):
        bethe_hessian_scores(ax.Factored.from_features(np.eye(4)), 2)
    with pytest.raises(InputError, match="max_clusters must be at least 1, got 0"):
        bethe_hessian_scores(one_edge, 0)


class TestTwoSteps:
    """The number of clusters is the median of that before, the proposal before, and the present one."""

    def test_one_step_alone_changes_nothing(self):
        before = Count.of(3, None)
        assert before == Count(3, 3)
        once = Count.of(5, before)
        assert once.chosen == 3 and Count.of(3, once).chosen == 3
        assert Count.of(5, once).chosen == 5 and Count.of(4, once).chosen == 4

    @pytest.mark.parametrize("rule", PERSISTENT_RULES)
    def test_a_step_that_differs_once_is_ignored(self, eager_xp, rule):
        groups = [3, 3, 4, 3, 4, 4, 4]
        model = ax.Affect(ax.Spectral(rule), alpha=0.0, random_state=0, rescale=None)
        for t, k in enumerate(groups):
            model.partial_fit(eager_xp.array(graph(t, k)))
        assert [record.k for record in model.history_] == [3, 3, 3, 3, 3, 4, 4]
        assert all(record.scores is not None for record in model.history_)

    @pytest.mark.parametrize("rule", PERSISTENT_RULES)
    def test_nothing_is_remembered_outside_of_the_state(self, rule, tmp_path):
        groups, clusterer = [3, 3, 4, 4, 4], ax.Spectral(rule)
        model, other = (ax.Affect(clusterer, alpha=0.0, random_state=0, rescale=None) for _ in range(2))
        for t, k in enumerate(groups):
            model.partial_fit(graph(t, k))
            other.partial_fit(graph(t, k))
            other.save(tmp_path / "model")
            other = ax.load(tmp_path / "model")
        assert [r.k for r in other.history_] == [r.k for r in model.history_] == [3, 3, 3, 4, 4]

    def test_the_call_has_the_count_of_the_step_before(self):
        clusterer, W = ax.Spectral("bethe-hessian"), Dense(graph(0, 4))
        alone = clusterer.cluster(W, Call(rng=0))
        assert alone.partition.k == 4 and alone.count == Count(4, 4)
        later = clusterer.cluster(W, Call(1, rng=0, count=Count(3, 3)))
        assert later.partition.k == 3 and later.count == Count(3, 4)

    def test_no_more_clusters_than_objects(self):
        found = ax.Spectral("bethe-hessian").cluster(
            Dense(np.ones((2, 2))), Call(1, rng=0, count=Count(5, 5))
        )
        assert found.partition.k == 2


def test_auto_follows_the_degrees():
    even, rng = graph(0, n=120), np.random.default_rng(0)
    size = rng.gamma(1.0, 1.0, len(even))
    uneven = even * np.outer(size, size)
    assert unevenness(Dense(even)) < 0.4 < unevenness(Dense(uneven))
    for w, rule in ((even, "likelihood"), (uneven, "bethe-hessian")):
        auto, chosen = (ax.Spectral(r).cluster(Dense(w), Call(rng=0)) for r in ("auto", rule))
        assert auto.scores == chosen.scores and auto.count == chosen.count


def test_auto_takes_the_silhouette_of_a_kernel():
    rng = np.random.default_rng(0)
    x = 5 * np.eye(4)[np.arange(80) % 4] + rng.normal(size=(80, 4))
    kernel = np.exp(-np.square(x[:, None] - x[None]).sum(axis=2) / 16)
    auto, other = (ax.Spectral(r).cluster(Dense(kernel), Call(rng=0)) for r in ("auto", "silhouette"))
    assert auto.scores == other.scores and auto.partition.k == 4


def test_density_of_the_pairs_of_a_step(xp):
    w = graph(2)
    share = np.count_nonzero(w - np.diag(np.diag(w))) / (len(w) * (len(w) - 1))
    for W in kinds(xp, w):
        assert density(W) == pytest.approx(share)
        assert density(Pair(W, W, UNCHANGED).blend(0.5)) == pytest.approx(share)
    assert density(ax.Factored.from_features(xp.array(np.ones((3, 2))))) == 1


def test_the_unevenness_is_without_the_diagonal(xp):
    w = graph(2)
    d = (w - np.diag(np.diag(w))).sum(axis=1)
    for W in kinds(xp, w):
        assert unevenness(W) == pytest.approx(d.var() / d.mean() ** 2, rel=1e-10)


def test_sparse_graphs_on_cupy(xp):
    only_on(xp, "cupy")
    sparse = pytest.importorskip("cupyx.scipy.sparse")
    w = graph()
    found = bethe_hessian_scores(Sparse(sparse.csr_matrix(xp.array(w))), 4)
    np.testing.assert_allclose(list(found.values()), slow_scores(w, 4), atol=1e-8)
