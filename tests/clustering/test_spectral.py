"""Spectral clustering against definitions and scikit-learn, and its failure cases."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from scipy.linalg import block_diag

import affect_xp as ax
from affect_xp.clustering.base import Call
from affect_xp.clustering.spectral import ASSIGNMENTS, OBJECTIVES, spectral
from affect_xp.exceptions import InputError
from affect_xp.partition import UNCHANGED, align
from affect_xp.proximity import Pair
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.sparse import Sparse

CUTS = ("normalized_cut", "ratio_cut")


def kernel(n, seed=0, n_groups=3, spread=0.4):
    """Return similarities of points in groups, each of about n / n_groups, and the groups."""
    rng = np.random.default_rng(seed)
    groups = np.arange(n) % n_groups
    x = 2.5 * np.eye(max(2, n_groups))[groups]
    x = x + spread * rng.normal(size=x.shape)
    return np.exp(-np.sum((x[:, None] - x[None]) ** 2, axis=2) / 2), groups


def same(a, b):
    return ax.adjusted_rand_index(np.asarray(a), np.asarray(b)) == 1.0


def laplacian(w, objective):
    """Return the matrix whose bottom (average association: top, negated) eigenvectors are used."""
    d = w.sum(axis=1)
    if objective == "average_association":
        return -w
    if objective == "ratio_cut":
        return np.diag(d) - w
    return np.eye(len(w)) - w / np.sqrt(d[:, None] * d[None, :])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("solver", ["full", "iterative"])
def test_eigenpairs_are_those_of_the_definition(xp, objective, solver):
    w = kernel(60)[0]
    w = w + np.diag(np.linspace(0, 5, 60))  # the diagonal counts
    result = spectral(xp.array(w), 3, objective=objective, solver=solver, tol=0, rng=0)
    values, vectors = np.linalg.eigh(laplacian(w, objective))
    sign = -1 if objective == "average_association" else 1
    unit = np.abs(values).max()
    np.testing.assert_allclose(xp.numpy(result.values), sign * values[:3], atol=1e-10 * unit)
    found = xp.numpy(result.vectors)
    np.testing.assert_allclose(found @ found.T, vectors[:, :3] @ vectors[:, :3].T, atol=1e-6)
    assert xp.owns(result.labels) and xp.owns(result.vectors) and xp.owns(result.values)
    assert result.converged and result.residual < 1e-7
    assert result.n_components == (None if objective == "average_association" else 1)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("assign_labels", ASSIGNMENTS)
def test_clear_groups_are_found(xp, objective, assign_labels):
    w, groups = kernel(60)
    result = spectral(xp.array(w), 3, objective=objective, assign_labels=assign_labels, rng=0)
    np.testing.assert_array_equal(xp.numpy(result.labels), groups)  # numbered by their first objects


@pytest.mark.parametrize(
    "name, peers_name", [("kmeans", "kmeans"), ("rotation", "discretize"), ("cluster_qr", "cluster_qr")]
)
def test_same_clusters_as_sklearn_without_a_diagonal(name, peers_name):
    sklearn_cluster = pytest.importorskip("sklearn.cluster")
    # scikit-learn sets the diagonal to zero; on a matrix that has none it solves the same problem.
    for seed in range(3):
        w, _ = kernel(80, seed=seed, n_groups=4, spread=0.6)
        np.fill_diagonal(w, 0)
        peer = sklearn_cluster.SpectralClustering(
            4, affinity="precomputed", assign_labels=peers_name, random_state=0
        )
        assert same(spectral(w, 4, assign_labels=name, rng=0).labels, peer.fit(w).labels_)


def test_cluster_qr_and_rotation_round_like_sklearn():
    peer = pytest.importorskip("sklearn.cluster._spectral")
    w, _ = kernel(80, seed=3, n_groups=4, spread=1.2)
    result = spectral(w, 4, objective="average_association", assign_labels="cluster_qr")
    assert same(result.labels, peer.cluster_qr(result.vectors))
    result = spectral(w, 4, assign_labels="rotation", rng=0)
    assert same(result.labels, peer.discretize(result.vectors, random_state=0))


def test_the_diagonal_counts():
    w, _ = kernel(30)
    heavy = w + np.diag(np.r_[np.full(15, 50.0), np.zeros(15)])
    plain, other = (spectral(x, 3, rng=0).values for x in (w, heavy))
    assert np.all(other[1:] < plain[1:] / 2)


def graphs():
    """Return difficult graphs, by name."""
    rng = np.random.default_rng(5)
    giant = np.zeros((30, 30))
    giant[:15, :15] = kernel(15)[0]
    hub = np.zeros((12, 12))
    hub[0, 1:] = hub[1:, 0] = 1
    return {
        "one object": np.ones((1, 1)),
        "one object, zero": np.zeros((1, 1)),
        "two objects": np.array([[1, 0.5], [0.5, 1]]),
        "three objects": kernel(3)[0],
        "all zero": np.zeros((7, 7)),
        "identity": np.eye(9),
        "all one": np.ones((8, 8)),
        "all one, no diagonal": np.ones((8, 8)) - np.eye(8),
        "equal blocks": block_diag(*[np.ones((3, 3))] * 3),
        "many components": block_diag(*[np.ones((m, m)) for m in (5, 2, 2, 1, 1)]),
        "giant and singletons": giant,
        "giant and pairs": block_diag(kernel(14)[0], np.ones((2, 2)), np.ones((2, 2))),
        "hub": hub,
        "identical objects": np.kron(kernel(8)[0], np.ones((2, 2))),
        "path": np.eye(30, k=1) + np.eye(30, k=-1),
        "no groups": kernel(40, n_groups=1, spread=1.0)[0],
        "two equal kernels": block_diag(*[kernel(20)[0]] * 2),
        "isolated objects": block_diag(kernel(30)[0], np.zeros((2, 2))),
        "far apart": np.where((w := kernel(30, seed=1)[0]) > 1e-3, w, w * 1e-200),
        "random": (x := rng.uniform(size=(25, 25))) + x.T,
    }


@pytest.mark.parametrize("name", graphs())
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_hard_graphs(name, objective):
    w = graphs()[name]
    n = len(w)
    for k, assign, components in itertools.product(
        {1, 2, 3, n} & set(range(1, n + 1)), ASSIGNMENTS, ("joint", "separate")
    ):
        options = {"objective": objective, "assign_labels": assign, "components": components}
        # One start: with several, rounding would decide between equally good ones.
        full, iterative = (
            spectral(w, k, solver=solver, n_init=1, tol=0, rng=1, **options)
            for solver in ("full", "iterative")
        )
        for result in (full, iterative):
            assert np.all(np.isfinite(result.vectors)) and np.all(np.isfinite(result.values))
            assert result.converged
            assert set(result.labels.tolist()) == set(range(k))
        np.testing.assert_array_equal(full.labels, iterative.labels)


@pytest.mark.parametrize("name", graphs())
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_hard_graphs_in_single_precision(name, objective):
    w = graphs()[name].astype(np.float32)
    for k in {1, 2, len(w) - 1} & set(range(1, len(w) + 1)):
        result = spectral(w, k, objective=objective, solver="iterative", rng=1)
        assert np.all(np.isfinite(result.vectors)) and result.converged
        assert set(result.labels.tolist()) == set(range(k))


@pytest.mark.parametrize("name", ["giant and singletons", "giant and pairs", "all zero", "isolated objects"])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("components", ["joint", "separate"])
def test_disconnected_graphs_on_every_library(xp, name, objective, components):
    w = graphs()[name]
    options = {"objective": objective, "components": components, "n_init": 3, "rng": 0}
    expected = spectral(w, 3, **options)
    for solver in ("full", "iterative"):
        result = spectral(xp.array(w), 3, solver=solver, **options)
        np.testing.assert_array_equal(xp.numpy(result.labels), expected.labels)
        assert result.n_components == expected.n_components


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_start_from_the_last_vectors(eager_xp, dtype):
    w, _ = kernel(150, n_groups=4, spread=0.9)
    w = eager_xp.array(w, dtype=dtype)
    cold = spectral(w, 4, solver="iterative", rng=0)
    warm = spectral(w, 4, solver="iterative", start=cold.vectors, rng=0)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_array_equal(eager_xp.numpy(warm.labels), eager_xp.numpy(cold.labels))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("assign_labels", ASSIGNMENTS)
@pytest.mark.parametrize("components", ["joint", "separate"])
def test_order_of_objects_does_not_matter(objective, assign_labels, components):
    w = block_diag(kernel(40)[0], kernel(11, n_groups=1)[0], np.ones((2, 2)), np.zeros((1, 1)))
    order = np.random.default_rng(0).permutation(len(w))
    options = {"objective": objective, "assign_labels": assign_labels, "components": components}
    plain = spectral(w, 5, n_init=30, rng=0, **options)
    moved = spectral(w[np.ix_(order, order)], 5, n_init=30, rng=0, **options)
    assert same(plain.labels[order], moved.labels)


# Defects of the authors' toolbox: ratio cut, small components, seeds, equal components, the rotation.


def test_ratio_cut_is_the_best_cut():
    w = np.ones((9, 9)) - np.eye(9)
    w[:4, 4:] = w[4:, :4] = 0.1
    labels = spectral(w, 2, objective="ratio_cut", rng=0).labels

    def ratio_cut(c):
        return sum(w[np.ix_(c == a, c != a)].sum() / np.sum(c == a) for a in (0, 1))

    subsets = (np.array([i >> b & 1 for b in range(9)]) for i in range(1, 511))
    assert ratio_cut(labels) == pytest.approx(min(ratio_cut(c) for c in subsets))


@pytest.mark.parametrize("solver", ["full", "iterative"])
@pytest.mark.parametrize("objective", CUTS)
def test_component_smaller_than_k(solver, objective):
    w = block_diag(kernel(40, n_groups=4)[0], np.ones((2, 2)))
    result = spectral(w, 5, objective=objective, solver=solver, rng=0)
    np.testing.assert_array_equal(result.labels, [*(np.arange(40) % 4), 4, 4])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("assign_labels", ASSIGNMENTS)
def test_seed_does_not_decide_about_components(objective, assign_labels):
    w = block_diag(*[kernel(m, n_groups=1)[0] for m in (12, 9, 4, 2)])
    options = {"objective": objective, "assign_labels": assign_labels}
    labels = [spectral(w, 3, rng=seed, **options).labels.tolist() for seed in range(8)]
    assert all(x == labels[0] for x in labels)
    assert objective == "average_association" or labels[0] == [0] * 12 + [1] * 9 + [2] * 6


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_equal_components_are_treated_equally(objective):
    block, groups = kernel(12, n_groups=2)
    w = block_diag(block, block, np.ones((2, 2)))
    result = spectral(w, 5, objective=objective, components="separate", rng=0)
    np.testing.assert_array_equal(result.labels, [*groups, *(groups + 2), 4, 4])


def test_rotation_with_a_seed_is_one_rotation():
    w, _ = kernel(60, n_groups=4, spread=1.5)
    first, second = (spectral(w, 4, assign_labels="rotation", rng=3).labels for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_more_components_than_clusters():
    sizes = [1, 5, 1, 3, 1]
    w = block_diag(*[np.ones((m, m)) for m in sizes])
    component = np.repeat(np.arange(5), sizes)
    joint, separate = (spectral(w, 3, components=c, rng=0) for c in ("joint", "separate"))
    assert joint.n_components == separate.n_components == 5
    np.testing.assert_array_equal(joint.labels, np.array([0, 1, 0, 2, 0])[component])
    # The four small ones share a cluster, and the largest is split although it has no clusters.
    small = component != 1
    assert len(set(separate.labels[small].tolist())) == 1
    assert len(set(separate.labels[~small].tolist())) == 2


def test_separate_components_leave_zeros_in_the_vectors():
    w = block_diag(kernel(20, n_groups=2)[0], np.ones((3, 3)))
    result = spectral(w, 3, components="separate", solver="iterative", rng=0)
    assert not np.any(result.vectors[20:])
    again = spectral(w, 3, components="separate", solver="iterative", start=result.vectors, rng=0)
    np.testing.assert_array_equal(again.labels, result.labels)


def test_all_representations_agree():
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(50, 3))) + 4 * np.eye(3)[np.arange(50) % 3]
    w = x @ x.T
    dense = spectral(w, 3, rng=0)
    blend = Pair(ax.Dense(0.5 * w), ax.Dense(1.5 * w), align(range(50), range(50), w)).blend(0.5)
    for other in (Factored.from_features(x), Sparse(scipy.sparse.csr_array(w)), blend):
        result = spectral(other, 3, rng=0)
        np.testing.assert_array_equal(result.labels, dense.labels)
        np.testing.assert_allclose(result.values, dense.values, atol=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("moved", [False, True], ids=["same objects", "objects come and go"])
def test_blends_of_the_same_parts(eager_xp, objective, moved):
    now, past = kernel(90, spread=0.8)[0], kernel(90, seed=1, spread=0.8)[0]
    now[:40, :40] += 0.5  # other degrees
    ids = range(5, 95) if moved else range(90)
    parts = ax.Dense(eager_xp.array(now)), ax.Dense(eager_xp.array(past))
    blend = Pair(*parts, align(ids, range(90), parts[0].like)).blend(0.0)
    for alpha in (0.0, 0.5, 0.6, eager_xp.array(np.array(0.7)), 0.0):
        found = spectral(blend.at(alpha), 3, objective=objective, solver="iterative", tol=0, rng=0)
        twin = spectral(blend.at(alpha).formed(), 3, objective=objective, solver="full", rng=0)
        np.testing.assert_allclose(eager_xp.numpy(found.values), eager_xp.numpy(twin.values), atol=1e-6)
        np.testing.assert_array_equal(eager_xp.numpy(found.labels), eager_xp.numpy(twin.labels))


@pytest.mark.parametrize("objective", CUTS)
@pytest.mark.parametrize(
    "w, symptom",
    [
        ([[0, -1.0, 0.5], [-1.0, 0, 0], [0.5, 0, 0]], "the degree -1"),
        ([[0, 1.0, -1.0], [1.0, 0, 2.0], [-1.0, 2.0, 0]], "the degree 0"),
        ([[-1.0, 0], [0, 2.0]], "the degree -1"),
        ([[9.0, -1.0, 1.0], [-1.0, 9.0, 1.0], [1.0, 1.0, 9.0]], "the eigenvalue -"),
    ],
)
def test_negative_similarities_cannot_be_cut(objective, w, symptom):
    with pytest.raises(InputError, match=f"similarities that are not negative.*{symptom}.*average_assoc"):
        spectral(np.array(w), 2, objective=objective)


@pytest.mark.parametrize("solver", ["full", "iterative"])
def test_negative_similarities_are_found_with_the_first_products(eager_xp, solver):
    w = np.ones((60, 60))
    w[0, 1:] = w[1:, 0] = -1.0
    with pytest.raises(InputError, match="an object has the degree -58"):
        ax.spectral(eager_xp.array(w), 2, solver=solver)


def test_negative_similarities_can_be_associated():
    signs = np.repeat([1.0, -1.0], 4)
    np.testing.assert_array_equal(
        spectral(np.outer(signs, signs), 2, objective="average_association", rng=0).labels, signs < 0
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_clusters": 4}, "n_clusters=4 exceeds the number of objects, 3"),
        ({"objective": "min_cut"}, "objective must be one of"),
        ({"assign_labels": "svd"}, "assign_labels must be one of"),
        ({"components": "drop"}, "components must be one of"),
        ({"solver": "arpack"}, "solver must be one of"),
        ({"n_init": 0}, "n_init must be at least 1"),
        ({"start": np.zeros((2, 2))}, "start must have 3 rows"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(InputError, match=message):
        spectral(np.ones((3, 3)), **{"n_clusters": 2, **options})


def test_links_of_the_present_do_not_count_where_the_past_is_all():
    past = np.kron(np.eye(2), np.ones((3, 3)))
    past[0, :] = past[:, 0] = 0.0  # isolated at that step
    W = np.ones((6, 6))
    model = ax.Affect(ax.Spectral(3), alpha=1.0, random_state=0).fit([past, W])
    assert model.labels_.tolist() == model.history_[0].labels.tolist()
    assert len(set(model.labels_[1:3].tolist())) == len(set(model.labels_[3:].tolist())) == 1


def test_a_gpu_decomposes_no_more_than_cusolver_can(monkeypatch):
    cupy = pytest.importorskip("cupy")
    monkeypatch.setattr("affect_xp.clustering.eigen.MAX_CUSOLVER_SIZE", 10)
    with pytest.raises(ValueError, match=r"solver='full' decomposes at most 10 .* use solver='iterative'"):
        ax.spectral(cupy.ones((20, 20)), 2, solver="full")


def test_labels_of_the_present_alone_need_fewer_products():
    w = [kernel(600, seed, spread=0.8)[0] for seed in range(2)]
    pair = Pair(ax.Dense(w[1]), ax.Dense(w[0]), UNCHANGED)
    clusterer = ax.Spectral(3, solver="iterative", tol=1e-4)
    exact, rough = (clusterer.cluster(pair.blend(0.0), Call(rough=rough)) for rough in (False, True))
    assert rough.n_iter < exact.n_iter
    assert ax.adjusted_rand_index(rough.partition.labels, exact.partition.labels) > 0.95
    blends = [clusterer.cluster(pair.blend(0.5), Call(rough=rough)) for rough in (False, True)]
    assert blends[0].n_iter == blends[1].n_iter  # these labels may be those of the step


def test_a_step_hands_on_eigenvectors_and_guards():
    model = ax.Affect(ax.Spectral(3, solver="iterative"), random_state=0)
    for seed in range(3):
        model.partial_fit(kernel(600, seed)[0])
        memory = model._state.memory
        assert memory.shape == (600, 5)
        np.testing.assert_allclose(memory.T @ memory, np.eye(5), atol=1e-6)
