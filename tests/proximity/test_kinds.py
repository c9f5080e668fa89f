"""Detection of the kind of W against a slow twin, and its warnings."""

import warnings

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import InputWarning
from affect_xp.proximity.kinds import entry_statistics

N = 40


def groups(seed=0, k=3, n=N, p=2):
    rng = np.random.default_rng(seed)
    return 5 * rng.normal(size=(k, p))[np.arange(n) % k] + rng.normal(size=(n, p))


def distances(x):
    return np.sqrt(((x[:, None, :] - x) ** 2).sum(axis=2))


def kernel(x):
    return np.exp(-(distances(x) ** 2) / 10)


def without_diagonal(w):
    return w - np.diag(np.diag(w))


def slow_rho(w):
    entries, likeness = [], []
    for i in range(len(w)):
        for j in range(len(w)):
            others = [k for k in range(len(w)) if k not in (i, j)]
            if i != j and w[others, i].std() > 0 and w[others, j].std() > 0:
                entries.append(w[i, j])
                likeness.append(np.corrcoef(w[others, i], w[others, j])[0, 1])
    return np.corrcoef(entries, likeness)[0, 1]


@pytest.mark.parametrize("make", [distances, kernel, lambda x: x @ x.T], ids=["distances", "kernel", "dot"])
def test_against_a_slow_twin(eager_xp, make):
    w = make(groups(n=15))
    looks = entry_statistics(ax.Dense(eager_xp.array(w)))
    off = w[~np.eye(15, dtype=bool)]
    expected = (slow_rho(w), off.min(), off.max(), 0.0, abs(np.diag(w)).max())
    np.testing.assert_allclose(looks, expected, rtol=1e-9, atol=1e-12)


def test_a_sample_of_many_objects():
    looks = entry_statistics(ax.Dense(distances(groups(n=1100))))
    assert looks.rho < -0.8 and looks.zeros == 0 and looks.on_diagonal == 0


def heard(clusterer, w, model=ax.Affect):
    """Return the messages of the warnings of two steps."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = model(clusterer, random_state=0).partial_fit(w)
        assert caught == [] or caught[0].filename == __file__
        fitted.partial_fit(w)
    assert all(warning.category is InputWarning for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("model", [ax.Affect, ax.Static])
@pytest.mark.parametrize("clusterer", [ax.KMeans(3), ax.Spectral(3), ax.Spectral("eigengap")], ids=str)
def test_distances_for_a_clusterer_of_similarities(clusterer, model):
    (message,) = heard(clusterer, distances(groups()), model)  # one warning
    assert f"{type(clusterer).__name__} takes similarities, but W looks like distances" in message
    assert "ax.to_similarity(W)" in message
    assert heard(clusterer, distances(groups()) ** 2)
    duplicates = np.repeat(groups(n=20), 2, axis=0)
    assert heard(clusterer, distances(duplicates).astype(np.float32))


def test_similarities_without_a_diagonal_for_linkage():
    (message,) = heard(ax.Linkage(3), without_diagonal(kernel(groups())))
    assert "Linkage takes dissimilarities, but W looks like similarities" in message
    with pytest.raises(ax.exceptions.InputError, match="looks like similarities"):  # by its diagonal
        ax.Affect(ax.Linkage(3)).partial_fit(kernel(groups()))


@pytest.mark.parametrize("w", [np.ones((N, N)), np.eye(N), np.zeros((N, N)), 1 - np.eye(N)])
def test_nothing_to_cluster(w):
    (message,) = heard(ax.Spectral(2), w)
    assert "there are no clusters, and the returned ones are arbitrary" in message
    assert heard(ax.Spectral(1), w) == []
    assert len(heard(ax.KMeans("silhouette"), w)) == 1


@pytest.mark.parametrize("proximity", ["dot", "rbf"])
def test_the_same_features(proximity):
    x = np.ones((N, 2))
    with pytest.warns(InputWarning, match="there are no clusters"):
        ax.Affect(ax.KMeans(2), proximity=proximity).partial_fit(x)
    ax.Affect(ax.KMeans(1), proximity=proximity).partial_fit(x)
    x[0, 0] = 2
    ax.Affect(ax.KMeans(2), proximity=proximity).partial_fit(x)


def random_graph(seed, inside, between, weights=None):
    rng = np.random.default_rng(seed)
    c = np.arange(N) % 3
    chance = np.where(c[:, None] == c, inside, between)
    w = np.triu(rng.random((N, N)) < chance if weights is None else rng.poisson(weights * chance), 1)
    return (w + w.T).astype(float)


QUIET = {
    "dot products": lambda seed: (x := groups(seed)) @ x.T,
    "dot products with an offset": lambda seed: (x := groups(seed) + 100) @ x.T,
    "a kernel": lambda seed: kernel(groups(seed)),
    "a kernel without its diagonal": lambda seed: without_diagonal(kernel(groups(seed))),
    "correlations": lambda seed: np.corrcoef(np.random.default_rng(seed).normal(size=(N, 12))),
    "negative squared distances": lambda seed: -(distances(groups(seed)) ** 2),
    "a network of groups": lambda seed: random_graph(seed, 0.6, 0.05),
    "a network between groups": lambda seed: random_graph(seed, 0.05, 0.6),
    "counts of all pairs": lambda seed: random_graph(seed, 20, 10, weights=2),
    "noise": lambda seed: (w := np.random.default_rng(seed).random((N, N))) + w.T - np.diag(2 * np.diag(w)),
}


@pytest.mark.parametrize("make", QUIET.values(), ids=QUIET)
def test_nothing_is_said_of_similarities(make):
    for seed in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("error", InputWarning)
            ax.Static(ax.KMeans(3), random_state=0).partial_fit(make(seed))


def test_nothing_is_said_of_distances_for_linkage():
    for seed in range(10):
        for p in (1, 2, 20):
            assert heard(ax.Linkage(3), distances(groups(seed, p=p))) == []


def test_nothing_is_said_of_features_few_objects_and_functions():
    x = groups()
    ax.Affect(ax.Linkage(3), proximity="euclidean").partial_fit(x)
    ax.Affect(ax.KMeans(2)).partial_fit(distances(x[:9]))
    ax.Affect(lambda psi: np.arange(psi.n) % 2).partial_fit(np.ones((N, N)))
