"""Slow, obvious twins of the fast paths: entry by entry, from the definitions. NumPy only."""

import itertools
from fractions import Fraction

import numpy as np

ROUGH_TOL = 1e-3  # tolerance of k-means whose labels are only used to estimate α


def blocks(labels):
    """Yield (c, d, list of index pairs) for each block, the diagonals of clusters as (c, None, pairs)."""
    clusters = sorted({int(c) for c in labels if c >= 0})
    members = {c: [i for i, x in enumerate(labels) if x == c] for c in clusters}
    for c in clusters:
        yield c, None, [(i, i) for i in members[c]]
        for d in clusters:
            yield c, d, [(i, j) for i in members[c] for j in members[d] if i != j]


def mean_and_variance(values, each_stands_twice=False):
    """Return the sample mean and the unbiased variance; 0 without degrees of freedom."""
    if len(values) == 0:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    freedom = len(values) - (2 if each_stands_twice else 1)
    return mean, sum((v - mean) ** 2 for v in values) / freedom if freedom > 0 else 0.0


def block_moments(w, labels, k):
    """Return means, variances, diagonal means and variances by block."""
    means, variances = np.zeros((k, k)), np.zeros((k, k))
    diagonal_means, diagonal_variances = np.zeros(k), np.zeros(k)
    for c, d, pairs in blocks(labels):
        mean, variance = mean_and_variance([w[i, j] for i, j in pairs], each_stands_twice=c == d)
        if d is None:
            diagonal_means[c], diagonal_variances[c] = mean, variance
        else:
            means[c, d], variances[c, d] = mean, variance
    return means, variances, diagonal_means, diagonal_variances


def mean_variance(w, pairs, each_stands_twice=False):
    """Return the variance of the mean of a block, by the components of variance of its objects and pairs."""
    mean, variance = mean_and_variance([w[i, j] for i, j in pairs], each_stands_twice)
    rows, columns = sorted({i for i, _ in pairs}), sorted({j for _, j in pairs})
    on_diagonal = all(i == j for i, j in pairs)
    if on_diagonal or len(rows) < (4 if each_stands_twice else 2) or len(columns) < 2:  # taken as independent
        return variance * (2 if each_stands_twice else 1) / len(pairs) if pairs else 0.0
    m_c, m_d = len(rows), len(columns)
    a = {i: mean_and_variance([w[i, j] for k, j in pairs if k == i])[0] - mean for i in rows}
    b = {j: mean_and_variance([w[i, j] for i, k in pairs if k == j])[0] - mean for j in columns}
    if each_stands_twice:
        a = b = {i: a[i] * (m_c - 1) / (m_c - 2) for i in rows}
    freedom = m_c * (m_c - 3) if each_stands_twice else (m_c - 1) * (m_d - 1)
    var_e = sum((w[i, j] - mean - a[i] - b[j]) ** 2 for i, j in pairs) / freedom
    var_a, var_b = (sum(x[i] ** 2 for i in x) / (len(x) - 1) for x in (a, b))
    if each_stands_twice:
        return 4 * (var_a - var_e / (m_c - 2)) / m_c + 2 * var_e / len(pairs)
    return (var_a - var_e / m_d) / m_c + (var_b - var_e / m_c) / m_d + var_e / len(pairs)


def forgetting_factor(w, past, labels, correction=None):
    """Return the estimated forgetting factor."""
    noise = drift = 0
    for c, d, pairs in blocks(labels):
        mean, variance = mean_and_variance([w[i, j] for i, j in pairs], each_stands_twice=c == d)
        drift += sum((past[i, j] - mean) ** 2 for i, j in pairs)
        if correction is None:
            noise += variance * len(pairs)
        else:
            uncertainty = len(pairs) * mean_variance(w, pairs, each_stands_twice=c == d)
            noise += sum((w[i, j] - mean) ** 2 for i, j in pairs) + uncertainty
            drift -= uncertainty
    drift = max(drift, 0)
    return noise / (noise + drift) if noise + drift > 0 else 0.0


def inertia(w, labels):
    """Return the sum of squared distances to the centroids, from dot products."""
    total = 0.0
    for c in set(labels.tolist()) - {-1}:
        own = np.flatnonzero(labels == c)
        total += np.trace(w[np.ix_(own, own)]) - w[np.ix_(own, own)].sum() / len(own)
    return total


def distances(w, labels, k):
    """Return the squared distance of each object to each centroid; infinite to an empty cluster."""
    out = np.full((len(w), k), np.inf)
    for i, c in itertools.product(range(len(w)), range(k)):
        own = np.flatnonzero(labels == c)
        if len(own):
            out[i, c] = w[i, i] - 2 * w[i, own].mean() + w[np.ix_(own, own)].mean()
    return out


def repair(labels, distance, k):
    """Give each empty cluster the object farthest from its centroid; the nearest of each cluster stays.

    Distances that differ by less than about 1e-9 of the largest are equal: then the first object is chosen.
    """
    labels = labels.copy()
    own = distance[np.arange(len(labels)), labels]
    largest = np.max(np.abs(own[np.isfinite(own)]), initial=0.0)
    own = np.rint(own / largest * 2**30) if largest > 0 else own
    stay = {min(np.flatnonzero(labels == c), key=lambda i: own[i]) for c in set(labels.tolist())}
    farthest = sorted((i for i in range(len(labels)) if i not in stay), key=lambda i: -own[i])
    for c, i in zip([c for c in range(k) if not np.any(labels == c)], farthest, strict=False):
        labels[i] = c
    return labels


def kmeans(w, labels, k, max_iter=300, tol=0.0):
    """Run Lloyd's iteration from labels, with -1 for objects that are first assigned by the iteration.

    It stops when the relative decrease of the sum of squares is less than `tol`.
    """
    labels = np.asarray(labels)
    before = np.inf
    for iteration in range(max_iter):
        now = np.inf if iteration == 0 and np.any(labels < 0) else inertia(w, labels)
        if np.isfinite(before) and 0 <= before - now < tol * abs(before):
            break
        before = now
        distance = distances(w, labels, k)
        assigned = repair(np.argmin(distance, axis=1), distance, k)
        if np.array_equal(assigned, labels):
            break
        labels = assigned
    return labels


def blend(w, past, alpha, ids, past_ids):
    """Return the convex combination if both objects were present before, and w otherwise."""
    out = w.copy()
    for (i, a), (j, b) in itertools.product(enumerate(ids), repeat=2):
        if a in past_ids and b in past_ids:
            out[i, j] = alpha * past[past_ids.index(a), past_ids.index(b)] + (1 - alpha) * w[i, j]
    return out


def affect(steps, ids, k, start, n_iter=3, alpha=None, init="previous"):
    """Run AFFECT k-means with the conventions of the authors' toolbox; return labels, α by iteration and Ψ̂.

    `start` are the initial labels of the first k-means. Every iteration of a step starts k-means from the
    labels of the previous step, in which new objects have none. Only the last one runs until no label
    changes; the others, whose labels are only used for α, stop at ROUGH_TOL.
    """
    labels, psi, past_ids, results = kmeans(steps[0], start, k), steps[0], list(ids[0]), []
    results.append((labels, [], psi))
    for w, now in zip(steps[1:], ids[1:], strict=True):
        now = list(now)
        begin = np.array([labels[past_ids.index(i)] if i in past_ids else -1 for i in now])
        here = [p for p, i in enumerate(now) if i in past_ids]
        there = [past_ids.index(now[p]) for p in here]
        current = begin if init == "previous" else kmeans(w, begin, k, tol=ROUGH_TOL)
        alphas = []
        for i in range(n_iter):
            estimate = forgetting_factor(w[np.ix_(here, here)], psi[np.ix_(there, there)], current[here])
            alphas.append(estimate if alpha is None else alpha)
            blended = blend(w, psi, alphas[-1], now, past_ids)
            current = kmeans(blended, begin, k, tol=ROUGH_TOL if i + 1 < n_iter else 0.0)
        labels, psi, past_ids = current, blended, now
        results.append((labels, alphas, psi))
    return results


def best_matching(table):
    """Return the largest number of common objects over all one-to-one matchings."""
    table = np.asarray(table)
    if table.shape[0] > table.shape[1]:
        table = table.T
    choices = itertools.permutations(range(table.shape[1]), table.shape[0])
    return max(sum(table[i, j] for i, j in enumerate(choice)) for choice in choices)


def may_go_on(table, sizes_before, sizes, continuity, min_share):
    """Return for each pair of clusters whether the name may continue: t² ≥ c² a b and t ≥ m min(n, n)."""
    continuity, min_share = (Fraction(str(x)) for x in (continuity, min_share))
    table = [[int(t) for t in row] for row in table]
    out, into = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
    return [
        [
            t > 0
            and t**2 >= continuity**2 * out[c] * into[d]
            and t >= min_share * min(int(sizes_before[c]), int(sizes[d]))
            for d, t in enumerate(row)
        ]
        for c, row in enumerate(table)
    ]


def matchings(allowed):
    """Yield all one-to-one matchings over the allowed pairs, from columns to rows."""
    k_before, k = len(allowed), len(allowed[0])
    for rows in itertools.product([None, *range(k_before)], repeat=k):
        given = [row for row in rows if row is not None]
        if len(set(given)) == len(given) and all(
            row is None or allowed[row][d] for d, row in enumerate(rows)
        ):
            yield {d: row for d, row in enumerate(rows) if row is not None}


def rand_index(a, b):
    """Return the share of pairs on which two labellings agree."""
    pairs = list(itertools.combinations(range(len(a)), 2))
    agree = sum((a[i] == a[j]) == (b[i] == b[j]) for i, j in pairs)
    return agree / len(pairs) if pairs else 1.0


def greedy_centres(w, order, draws):
    """Return the centres of greedy k-means++, given numbers in [0, 1) for each centre and trial, (k, L)."""

    def distance(i, j):
        return max(0.0, w[i, i] - 2 * w[i, j] + w[j, j])

    centres, weight = [], np.ones(len(w))
    for numbers in draws:
        tried = []
        for number in numbers:
            ladder = np.cumsum([weight[i] for i in order])
            tried.append(order[min(int((ladder <= number * ladder[-1]).sum()), len(w) - 1)])
        left = [
            sum(min([distance(i, j), *(distance(i, c) for c in centres)]) for i in range(len(w)))
            for j in tried
        ]
        centres.append(tried[int(np.argmin(left))])
        weight = np.array([min(distance(i, c) for c in centres) for i in range(len(w))])
    return centres


def cluster_distance(d, a, b, method):
    """Return the distance of two clusters, lists of objects, by its definition; squared for Ward.

    Ward: 2 m_a m_b / (m_a + m_b) ‖x̄_a − x̄_b‖², with the distance of the centroids from mean squares.
    """
    if method != "ward":
        return {"single": np.min, "complete": np.max, "average": np.mean}[method](d[np.ix_(a, b)])
    between, within_a, within_b = (np.mean(d[np.ix_(i, j)] ** 2) for i, j in ((a, b), (a, a), (b, b)))
    return 2 * len(a) * len(b) / (len(a) + len(b)) * (between - within_a / 2 - within_b / 2)
