"""Cluster ids that keep their meaning over time.

The table of common objects, t_cd, counts the objects that were in cluster c and are now in cluster d. An id
passes from c to d only if the two are similar enough; see `matching_weights`.
"""

from collections.abc import Hashable, Iterable

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.alignment import as_ids
from affect_xp.array.namespace import as_array, from_host, on_input_device, to_host
from affect_xp.array.typing import Array
from affect_xp.checks import check_fraction
from affect_xp.exceptions import InputError

# Chosen by simulation: examples/plot_9_names.py.
CONTINUITY = 0.4
MIN_SHARE = 0.1


@on_input_device
def match_labels(
    labels: Array,
    previous_labels: Array,
    ids: Iterable[Hashable] | None = None,
    previous_ids: Iterable[Hashable] | None = None,
    *,
    continuity: float = CONTINUITY,
    min_share: float = MIN_SHARE,
) -> Array:
    """Rename clusters after the previous clusters with which they share most objects.

    Ids follow a maximum-weight one-to-one matching on the number of common objects, over the pairs of
    clusters that are similar enough. An unmatched cluster gets a new id, larger than all previous ones.
    Labels of -1 (no cluster) are kept. The labels are copied to the host.

    Parameters
    ----------
    labels, previous_labels : (n,) and (n_previous,) int arrays
    ids, previous_ids : sequences of hashables, optional
        The ids of the objects; by default the same objects in the same order.
    continuity : float
        The minimum similarity of two clusters with the same id, from 0 to 1: the number of common objects
        divided by the geometric mean of both sizes. Only objects that are in a cluster at both
        steps count.
    min_share : float
        The minimum share of common objects in the smaller of the two clusters. All of its objects count here,
        including those that arrived, left, or were in no cluster at the other step.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.match_labels(np.array([1, 1, 0, 0, 2]), np.array([0, 0, 1, 1, 1]))
    array([0, 0, 1, 1, 2])

    Three objects of the first cluster join the third; half of the second splits off and is joined by the
    fourth object of the first. One object of four is not enough to keep an id:

    >>> before = np.repeat([0, 1, 2], [4, 6, 6])
    >>> now = np.repeat([0, 2, 0, 1, 2], [1, 3, 3, 3, 6])
    >>> ax.match_labels(now, before)
    array([3, 2, 2, 2, 3, 3, 3, 1, 1, 1, 2, 2, 2, 2, 2, 2])
    """
    continuity, min_share = check_fraction("continuity", continuity), check_fraction("min_share", min_share)
    now, before = (to_host(as_array(a), reason="matching")[0] for a in (labels, previous_labels))
    now_ids, before_ids = as_ids(ids, len(now)), as_ids(previous_ids, len(before))
    if (ids is None or previous_ids is None) and len(now) != len(before):
        raise InputError(
            f"labels has length {len(now)} and previous_labels {len(before)}; "
            "pass ids and previous_ids if the objects differ"
        )
    position = {name: i for i, name in enumerate(before_ids)}
    common = [(i, position[name]) for i, name in enumerate(now_ids) if name in position]
    here, there = np.array(common, dtype=np.int64).reshape(-1, 2).T
    clusters, c = np.unique(now, return_inverse=True)
    names, p = np.unique(before, return_inverse=True)
    table = np.zeros((len(names), len(clusters)), dtype=np.int64)
    np.add.at(table, (p[there], c[here]), 1)
    known, wanted = names >= 0, clusters >= 0
    fresh = int(names.max(initial=-1)) + 1
    renamed = np.where(wanted, 0, clusters)
    sizes_before, sizes = np.bincount(p, minlength=len(names)), np.bincount(c, minlength=len(clusters))
    table = table[known][:, wanted]
    smaller = np.minimum(sizes_before[known][:, None], sizes[wanted])
    weights = matching_weights(table, *totals(table), smaller, continuity, min_share)
    renamed[wanted] = match_clusters(weights, names[known], fresh)
    return from_host(renamed[c], as_array(labels))


def totals(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of common objects of each previous, (k_before, 1), and current cluster, (1, k)."""
    return table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)


def matching_weights(
    table: np.ndarray,
    out: np.ndarray,
    into: np.ndarray,
    smaller: np.ndarray,
    continuity: float,
    min_share: float,
) -> np.ndarray:
    """Return the weight of each pair of clusters in the matching, 0 if the id must not continue.

    An id passes from c to d only if

        s_cd = t_cd / √(a_c b_d) ≥ continuity   and   t_cd ≥ min_share · min(n_c, n_d)

    where a_c and b_d are the numbers of objects of c and d that are in a cluster at both steps, and n_c and
    n_d are their sizes. s is the cosine similarity of the two clusters as vectors of zeros and ones (the
    Ochiai coefficient). It is 1/√m for a cluster and one of the m equal parts into which it splits, and for a
    cluster that is the union of m equal ones and each of them. It is 1 - p for two clusters of the same size
    that differ in a share p of their objects.

    The weight is t_cd plus a term that sums to less than 1 over a matching. It breaks ties in favour of the
    most similar clusters.

    Parameters
    ----------
    table : (k_before, k) array
        t, the number of common objects.
    out, into : (k_before, 1) and (1, k) arrays
        a and b.
    smaller : array that broadcasts to (k_before, k)
        min(n_c, n_d).
    continuity, min_share : float
    """
    scale = np.sqrt(out * into)
    may_go_on = (table > 0) & (table >= continuity * scale) & (table >= min_share * smaller)
    similarity = table / np.maximum(scale, 1)
    return np.where(may_go_on, table + similarity / (1 + min(table.shape)), 0)


def match_clusters(weights: np.ndarray, names: np.ndarray, fresh: int) -> np.ndarray:
    """Return a name for each column, by a one-to-one matching of maximum weight.

    Parameters
    ----------
    weights : (k_before, k) array
        The weight of giving each current cluster (column) the name of each previous one (row), such as the
        number of common objects; 0 if not allowed.
    names : (k_before,) int array
        The names of the previous clusters.
    fresh : int
        The first unused name.
    """
    matched = np.full(weights.shape[1], -1, dtype=np.int64)
    rows, columns = scipy.optimize.linear_sum_assignment(weights, maximize=True)
    chosen = weights[rows, columns] > 0
    matched[columns[chosen]] = names[rows[chosen]]
    new = matched < 0
    matched[new] = fresh + np.arange(new.sum())
    return matched
