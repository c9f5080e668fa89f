"""Sequences of steps shared by several tests."""

import numpy as np


def drifting(seed, n_steps=6, n=30, k=3):
    """Yield dot products of samples around slowly moving centres."""
    rng = np.random.default_rng(seed)
    centres, labels = 2.0 * rng.normal(size=(k, 2)), np.arange(n) % k
    for _ in range(n_steps):
        centres = centres + 0.2 * rng.normal(size=(k, 2))
        x = centres[labels] + rng.normal(size=(n, 2))
        yield x @ x.T


def churning(seed, n_steps=6, pool=30, k=3):
    """Yield (W, ids): each step contains some objects of a pool, in random order."""
    rng = np.random.default_rng(seed)
    for w in drifting(seed, n_steps, pool, k):
        seen = rng.permutation(pool)[: rng.integers(pool // 2, pool + 1)]
        yield w[np.ix_(seen, seen)], [f"object {i}" for i in seen]


def compact(labels):
    """Number clusters by first appearance, to compare partitions."""
    order = {}
    return [order.setdefault(c, len(order)) for c in labels.tolist()]
