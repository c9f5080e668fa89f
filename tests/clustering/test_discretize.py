"""Discretization of eigenvectors with many trials on a sample of the objects."""

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.clustering import discretize
from affect_xp.clustering.discretize import ASSIGNMENTS


def embedding(sizes, spread, seed=0):
    """Return eigenvectors of an ideal graph, constant on each cluster, with noise, and the clusters."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    height = 1 / np.sqrt(np.array(sizes, dtype=float))
    noise = rng.normal(scale=spread, size=(len(labels), len(sizes)))
    return (np.eye(len(sizes))[labels] + noise) * height[labels][:, None], labels


def by_kmeans(vectors, k, rng=0):
    rows = discretize.unit_rows(vectors)
    return ASSIGNMENTS["kmeans"](vectors, rows, k, 10, np.random.default_rng(rng)), rows


def inertia(rows, labels, k):
    centroids = np.stack([rows[labels == c].mean(axis=0) for c in range(k)])
    return np.sum((rows - centroids[labels]) ** 2)


def test_small_clusters_are_not_missed(eager_xp):
    vectors, labels = embedding([4000, 900, 90, 10], 0.1)
    found, _ = by_kmeans(eager_xp.array(vectors), 4)
    assert eager_xp.owns(found)
    assert ax.adjusted_rand_index(eager_xp.numpy(found), labels) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_finds_what_all_objects_find(monkeypatch, seed):
    vectors, _ = embedding([900] * 6, 0.35, seed)
    sampled, rows = by_kmeans(vectors, 6)
    monkeypatch.setattr(discretize, "SAMPLE", len(vectors))
    whole, _ = by_kmeans(vectors, 6)
    assert inertia(rows, sampled, 6) <= inertia(rows, whole, 6) * (1 + 1e-4)
    assert ax.adjusted_rand_index(sampled, whole) > 0.99
