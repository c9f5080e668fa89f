"""Slow, obvious twin of the choice of initial labels: entry by entry, from the definitions."""

import numpy as np
import reference


def judge(w, past, previous, static):
    """Return α for both labels, and the noise V and the difference D per entry, if all objects are common."""
    alphas = [reference.forgetting_factor(w, past, labels) for labels in (previous, static)]
    return *alphas, noise(w, past, static), difference(w, past, previous)


def block_values(labels):
    """Yield the indices (rows, columns) of the entries of each block; diagonals are separate blocks."""
    for _, _, pairs in reference.blocks(labels):
        if pairs:
            yield tuple(np.array(pairs).T)


def noise(w, past, labels):
    """Return the variance within blocks, plus the part of that between blocks that is new in W."""
    total, w_means, past_means = 0.0, [], []
    for c, d, pairs in reference.blocks(labels):
        _, variance = reference.mean_and_variance([w[i, j] for i, j in pairs], each_stands_twice=c == d)
        total += variance * len(pairs)
        for means, matrix in ((w_means, w), (past_means, past)):
            means.extend([np.mean([matrix[i, j] for i, j in pairs])] * len(pairs) if pairs else [])
    if not w_means:
        return 0.0
    spread, past_spread = np.var(w_means), np.var(past_means)
    covariance = np.cov(w_means, past_means, ddof=0)[0, 1]
    r2 = covariance**2 / (spread * past_spread) if spread * past_spread > 0 else 0.0
    return (total + (1 - r2) * spread * len(w_means)) / len(w_means)


def difference(w, past, labels):
    """Return the mean of (w − ψ)² without the part that residuals of pairs of objects have in common."""
    total, n_entries = 0.0, 0
    for rows, columns in block_values(labels):
        x, y = w[rows, columns], past[rows, columns]
        x_rest, y_rest = x - additive(x, rows, columns), y - additive(y, rows, columns)
        total += np.sum((x - y) ** 2) + 2 * np.sum(x_rest * y_rest)
        n_entries += len(x)
    return total / n_entries if n_entries else 0.0


def additive(values, rows, columns):
    """Return the least-squares fit of the entries of a block by the sum of two object effects."""
    if np.array_equal(rows, columns):  # a diagonal: one effect per entry
        return values
    symmetric = set(rows) == set(columns)
    design = np.zeros((len(values), 2 * (max(rows.max(), columns.max()) + 1)))
    entry = np.arange(len(values))
    design[entry, 2 * rows] += 1
    design[entry, 2 * columns + (0 if symmetric else 1)] += 1
    return design @ np.linalg.lstsq(design, values, rcond=None)[0]
