"""Defaults on data with obvious clusters: correct clusters or a warning, never silently wrong."""

import warnings

import numpy as np
import pytest

import affect_xp as ax

SEEDS = range(5)


def eight_groups(seed, n_steps=10, n=160):
    """Return features (T, n, 2) of eight well-separated groups on a circle, and the truth."""
    truth = np.arange(n) % 8
    centres = 10 * np.column_stack([np.cos(np.pi / 4 * np.arange(8)), np.sin(np.pi / 4 * np.arange(8))])
    return centres[truth] + 0.5 * np.random.default_rng(seed).normal(size=(n_steps, n, 2)), truth


def two_groups(seed, n_steps=24, n=40, change=None):
    """Return features (T, n, 2) of two groups, and the truth at the end; ten objects move at `change`."""
    rng = np.random.default_rng(seed)
    side = np.repeat([-2.0, 2.0], n // 2)
    steps = []
    for t in range(n_steps):
        if t == change:
            side[:10] = 2.0
        steps.append(np.column_stack([side, 0 * side]) + rng.normal(size=(n, 2)))
    return np.stack(steps), (side > 0).astype(int)


def counts(seed, n_steps=8, n=60):
    """Return counts of meetings of objects with different activity, more frequent within three groups."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    activity = rng.lognormal(0, 1, n)
    rate = activity[:, None] * activity * np.where(truth[:, None] == truth, 8, 1)
    met = [np.triu(rng.poisson(rate * rng.gamma(0.5, 2, size=(n, n))), 1) for _ in range(n_steps)]
    return np.stack([m + m.T for m in met]), truth


def of_features(k, seed):
    return ax.Affect(ax.KMeans(k), proximity="dot", random_state=seed)


def agreement(model, truth):
    return ax.adjusted_rand_index(model.labels_, truth)


def quiet(model, steps):
    """Return the fitted model, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return model.fit(steps), bool(caught)


def found_eight(seed):
    x, truth = eight_groups(seed)
    return agreement(of_features(8, seed).fit(x), truth) > 0.99


def found_eight_spectral(seed):
    x, truth = eight_groups(seed)
    return agreement(ax.Affect(ax.Spectral(8), proximity="rbf", random_state=seed).fit(x), truth) > 0.99


def found_with_units(seed):
    x, truth = two_groups(seed)
    model, warned = quiet(of_features(2, seed), x * np.array([1.0, 1e4]))
    return warned or agreement(model, truth) > 0.9


def told_of_a_wide_column(seed):
    """A noise column 5.5 times as wide as the other hides the clusters, with a warning."""
    x, truth = two_groups(seed)
    model, warned = quiet(of_features(2, seed), x / x[0].std(axis=0) * np.array([1.0, 5.5]))
    alike, silent = quiet(of_features(2, seed), x)
    return agreement(model, truth) < 0.5 and warned and agreement(alike, truth) > 0.9 and not silent


def found_with_offset(seed):
    x, truth = two_groups(seed)
    model, warned = quiet(of_features(2, seed), x + 100)
    return warned or agreement(model, truth) > 0.9


def followed_with_offset(seed):
    """Ten objects move at step 14: the labels follow for any origin of the features."""
    x, truth = two_groups(seed, change=14)
    return agreement(of_features(2, seed).fit(x + 100), truth) > 0.8


def found_in_counts(clusterer):
    def found(seed):
        w, truth = counts(seed)
        model, _ = quiet(ax.Affect(clusterer, random_state=seed), w)
        return agreement(model, truth) > 0.9

    return found


def reported_change(seed):
    (moved, _), (same, _) = two_groups(seed, change=14), two_groups(seed)
    found = ax.change_points(of_features(2, seed).fit(moved))
    none = ax.change_points(of_features(2, seed).fit(same))
    return any(14 <= t <= 15 for t in found) and len(found) <= 2 and not none


def history_for_model(seed):
    model = of_features(2, seed).fit(two_groups(seed, change=14)[0])
    return ax.change_points(model.history_) == ax.change_points(model)


def ids_last(seed):
    """A fifth of the objects is new at each step; those that stay keep the id of their cluster."""
    x, truth = eight_groups(seed)
    rng = np.random.default_rng(seed)
    names = np.arange(160)
    model = ax.Affect(ax.Spectral(8), proximity="rbf", random_state=seed)
    id_of: dict[int, set[int]] = {group: set() for group in range(8)}
    for t in range(len(x)):
        fresh = rng.permutation(160)[:32] if t else np.empty(0, int)
        names[fresh] = 1000 * t + fresh
        model.partial_fit(x[t], ids=names.tolist())
        for group in range(8):
            id_of[group] |= set(model.labels_[truth == group].tolist())
    return all(len(ids) == 1 for ids in id_of.values())


CASES = {
    "eight groups, k-means": found_eight,
    "eight groups, spectral": found_eight_spectral,
    "a column in other units": found_with_units,
    "a wide column of noise": told_of_a_wide_column,
    "an offset": found_with_offset,
    "an offset, and a change": followed_with_offset,
    "heavy-tailed counts, k-means": found_in_counts(ax.KMeans(3)),
    "heavy-tailed counts, spectral": found_in_counts(ax.Spectral(3)),
    "a sudden change is reported": reported_change,
    "a history in place of its model": history_for_model,
    "ids last while objects come and go": ids_last,
}


@pytest.mark.parametrize("right", CASES.values(), ids=CASES)
def test_default(right):
    assert [seed for seed in SEEDS if not right(seed)] == []
