"""Rules of cluster ids on simulated partitions with known continuations: `python -m bench.cluster_ids`.

A cluster loses and gains objects from step to step. How much may change before it counts as another cluster?
"""

import numpy as np

from affect_xp.tracking.events import (
    CONTINUITY,
    MIN_SHARE,
    Clusters,
    EventRules,
    follow,
    match_clusters,
    matching_weights,
    totals,
)

rng = np.random.default_rng(0)
K, N_TRIALS = 6, 100

# A case consists of the previous and the current labels, with -1 for objects that are absent or in no
# cluster, and of the expected result: pairs of previous and current ids. One of the previous ids should
# continue as one of the current ids; if there are none, the ids should end.
#
# Sizes are between 6 and 50 unless stated otherwise. In addition, a tenth of the objects swap clusters.


def labels_of(sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


def random_sizes(low=6, high=50, k=K):
    return np.exp(rng.uniform(np.log(low), np.log(high), k)).astype(int)


def mixed(labels, share=0.1):
    some = np.flatnonzero((rng.random(len(labels)) < share) & (labels >= 0))
    now = labels.copy()
    now[some] = labels[rng.permutation(some)]
    return now


def turnover(share, **sizes):
    before = labels_of(random_sizes(**sizes))
    return before, mixed(before, share), [({c}, {c}) for c in np.unique(before)]


def split(m):
    before = labels_of(random_sizes(low=12))
    now = before.copy()
    now[before == 0] = np.append(0, K + np.arange(m - 1))[np.arange(np.sum(before == 0)) % m]
    return before, mixed(now), [({0}, {0, *range(K, K + m - 1)})]


def merge(m):
    now, before, ((after, earlier),) = split(m)
    return before, now, [(earlier, after)]


def renewal(share):
    """Objects leave, and equally many arrive in the same clusters."""
    before, now, expected = turnover(0.1)
    left = rng.random(len(before)) < share
    return (
        np.append(before, np.full(left.sum(), -1)),
        np.append(np.where(left, -1, now), before[left]),
        expected,
    )


def noise(share):
    before, now, expected = turnover(0.1)
    before, now = (np.where(rng.random(len(x)) < share, -1, x) for x in (before, now))
    return (
        before,
        now,
        [(c, d) for c, d in expected if np.isin([*c], before) and np.isin([*d], now)],
    )


# In these cases the id of cluster 0 should end, or all ids.


def scattered():
    """Its objects go to all other clusters, and a fifth of each of those forms a new cluster."""
    sizes = random_sizes(low=10)
    sizes[0] = min(sizes[0], 0.15 * sizes[1:].sum())
    before = labels_of(sizes)
    now = np.where(rng.random(len(before)) < 0.2, 0, before)
    now[before == 0] = rng.choice(before[before > 0], np.sum(before == 0))
    return before, mixed(now), [({0}, set())]


def exchanged():
    """It joins a larger cluster, and up to half of a third cluster splits off."""
    sizes = random_sizes()
    sizes[1], sizes[2] = max(sizes[1], 1.5 * sizes[0]), max(sizes[2], 20)
    before = labels_of(sizes)
    now = np.where(before == 0, 1, before)
    now[(before == 2) & (rng.random(len(before)) < rng.uniform(0.3, 0.5))] = 0
    return before, mixed(now), [({0}, set())]


def swallowed():
    """Its few objects join a large part of another cluster."""
    before = labels_of([rng.integers(1, 5), *random_sizes(k=K - 2), rng.integers(60, 100)])
    now = mixed(np.where((before == K - 1) & (rng.random(len(before)) < 0.4), 0, before))
    return before, np.where(before == 0, 0, now), [({0}, set())]


def remnant():
    """Nearly all of its objects join a larger cluster, and a few remain."""
    before = labels_of([rng.integers(40, 60), rng.integers(80, 100), *random_sizes(k=K - 2)])
    now = mixed(np.where(before == 0, 1, before))
    now[: rng.integers(1, 4)] = 0
    return before, now, [({0}, set())]


def replaced(share):
    """Nearly all objects are new, and the clusters are unrelated to the previous ones."""
    before = np.append(labels_of(rng.integers(30, 60, K)), np.full(250, -1))
    gone = rng.random(len(before)) < share
    return (
        before,
        np.where(gone & (before >= 0), -1, rng.integers(0, K, len(before))),
        ended(before),
    )


def unrelated(k):
    before, now = rng.integers(0, k, (2, 20 * k))
    return before, now, ended(before)


def ended(before):
    return [({c}, set()) for c in np.unique(before[before >= 0])]


GOES_ON = {
    "turnover 10–30 %": [lambda share=share: turnover(share) for share in (0.1, 0.2, 0.3)],
    "1–4 objects, 10 %": [lambda: turnover(0.1, low=1, high=5)],
    "split or merge, 2–4": [lambda m=m, how=how: how(m) for m in (2, 3, 4) for how in (split, merge)],
    "60 % renewed": [lambda: renewal(0.6)],
    "30 % noise": [lambda: noise(0.3)],
}
ENDS = {
    "scattered, exchanged": [scattered, exchanged],
    "swallowed, remnant": [swallowed, remnant],
    "96 % replaced": [lambda: replaced(0.96)],
    "unrelated, k = 10": [lambda: unrelated(10)],
    "k = 5": [lambda: unrelated(5)],
    "k = 3": [lambda: unrelated(3)],
    "k = 2": [lambda: unrelated(2)],
}


def counted(before, now, expected):
    """Return the common objects of previous and current clusters, both sizes, and the expected result."""
    t = np.zeros((before.max() + 1, now.max() + 1), dtype=int)
    both = (before >= 0) & (now >= 0)
    np.add.at(t, (before[both], now[both]), 1)
    return t, np.bincount(before[before >= 0]), np.bincount(now[now >= 0]), expected


CASES = {
    name: [counted(*make()) for make in makers for _ in range(N_TRIALS // len(makers))]
    for name, makers in (GOES_ON | ENDS).items()
}

# In the rules, t is the number of common objects of two clusters; a and b are the numbers of their objects
# that are in a cluster at both steps. An id may continue if the value is at least a threshold. Among the
# remaining matchings, the one in which most objects keep their id is chosen.

RULES = {
    "Jaccard": lambda t, a, b: t / np.maximum(a + b - t, 1),
    "larger share": lambda t, a, b: t / np.maximum(np.minimum(a, b), 1),
    "smaller share": lambda t, a, b: t / np.maximum(np.maximum(a, b), 1),
    "cosine": lambda t, a, b: t / np.sqrt(np.maximum(a * b, 1)),
}


def weights_of(t, smaller, rule, threshold, min_share):
    if rule == "cosine":  # as in affect_xp
        return matching_weights(t, *totals(t), smaller, threshold, min_share)
    return np.where((RULES[rule](t, *totals(t)) >= threshold) & (t >= min_share * smaller), t, 0)


def error(case, rule, threshold, min_share=MIN_SHARE):
    """Return the share of ids that continue but should end, or end but should continue."""
    t, sizes_before, sizes, expected = case
    weights = weights_of(t, np.minimum.outer(sizes_before, sizes), rule, threshold, min_share)
    names = match_clusters(weights, np.arange(len(t)), fresh=len(t))
    kept = {name: d for d, name in enumerate(names)}
    fates = [({kept[c] for c in old if c in kept}, new) for old, new in expected]
    return np.mean([not fate & new if new else bool(fate) for fate, new in fates])


def errors(*rule):
    return {name: 100 * np.mean([error(case, *rule) for case in cases]) for name, cases in CASES.items()}


# The first columns give the percentage of lost ids that should continue, the others that of kept ids
# that should end. The first row is the matching without a rule. The cosine of 0.4 is the default of
# `ax.EventRules`, shown between its neighbours; the last row is the same without `min_share`.

LINES = {
    "any common object": ("cosine", 0.0, 0.0),
    "Jaccard 0.1": ("Jaccard", 0.1),
    "Jaccard 0.2": ("Jaccard", 0.2),
    "Jaccard 0.3": ("Jaccard", 0.3),
    "larger share 0.5": ("larger share", 0.5),
    "smaller share 0.2": ("smaller share", 0.2),
    "cosine 0.3": ("cosine", 0.3),
    "cosine 0.4": ("cosine", CONTINUITY),
    "cosine 0.5": ("cosine", 0.5),
    "cosine 0.4, no minimum share": ("cosine", CONTINUITY, 0.0),
}
table = {line: errors(*rule) for line, rule in LINES.items()}
print("| rule |", " | ".join(CASES), "|")
print("|---" * (len(CASES) + 1) + "|")
for line, row in table.items():
    print(f"| {line} |", " | ".join(f"{value:.0f}" for value in row.values()), "|")

# The same for events: the percentage of splits and merges reported with all their parts, by the number of
# parts, which should be high; and the splits and merges reported in 100 steps in which clusters of 1 to 4
# objects exchange some of them, which should be zero.


def reported(case, rules):
    """Return the number of clusters in each split and each merge."""
    t, sizes_before, sizes, _ = case
    before = Clusters(np.arange(len(t)), sizes_before, fresh=len(t), t=0)
    _, events = follow(before, t, sizes, members_before=list, members=list, rules=rules)
    return [max(len(e.before), len(e.after)) for e in events if e.kind in ("split", "merge")]


PARTS = {m: [counted(*how(m)) for how in (split, merge) for _ in range(N_TRIALS)] for m in (2, 3, 4, 5)}
TINY = [counted(*turnover(0.2, low=1, high=5)) for _ in range(4 * N_TRIALS)]
event_table = {}
for part, least in ((0.1, 2), (0.15, 2), (0.15, 1), (0.25, 2)):
    rules = EventRules(part=part, min_objects=least, max_dormant=0)
    row = {f"{m} parts": 100 * np.mean([m in reported(case, rules) for case in PARTS[m]]) for m in PARTS}
    row["tiny clusters"] = 100 * np.mean([len(reported(case, rules)) for case in TINY])
    event_table[f"part {part}, min_objects {least}"] = row
print("| rule |", " | ".join(row), "|")
print("|---" * (len(row) + 1) + "|")
for line, row in event_table.items():
    print(f"| {line} |", " | ".join(f"{value:.0f}" for value in row.values()), "|")
