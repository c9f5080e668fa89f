"""Cluster ids that keep their meaning over time."""

from collections.abc import Hashable, Iterable

import numpy as np
import scipy  # which imports its parts when they are first used

from affect_xp import _array
from affect_xp._typing import Array
from affect_xp.exceptions import InputError
from affect_xp.objects import as_ids


def match_labels(
    labels: Array,
    previous_labels: Array,
    ids: Iterable[Hashable] | None = None,
    previous_ids: Iterable[Hashable] | None = None,
) -> Array:
    """Rename clusters after those of the step before with which they share most objects.

    The pairs are those of a maximum-weight one-to-one matching on the number of common objects. A cluster
    that is left over, or shares no object with its partner, gets a fresh id, larger than any before.
    Labels of -1 (no cluster) stay. The labels are read to the host.

    Parameters
    ----------
    labels, previous_labels : (n,) and (n_previous,) int arrays
    ids, previous_ids : sequences of hashables, optional
        Which objects the labels are of; by default the same objects in the same order.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.match_labels(np.array([1, 1, 0, 0, 2]), np.array([0, 0, 1, 1, 1]))
    array([0, 0, 1, 1, 2])
    """
    now, before = (
        _array.to_host(_array.as_array(a), reason="matching")[0] for a in (labels, previous_labels)
    )
    now_ids, before_ids = as_ids(ids, len(now)), as_ids(previous_ids, len(before))
    if (ids is None or previous_ids is None) and len(now) != len(before):
        raise InputError(
            f"labels has length {len(now)} and previous_labels {len(before)}; "
            "pass ids and previous_ids when the objects are not the same"
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
    renamed[wanted] = match_clusters(table[known][:, wanted], names[known], fresh)
    return _array.from_host(renamed[c], _array.as_array(labels))


def match_clusters(table: np.ndarray, names: np.ndarray, fresh: int) -> np.ndarray:
    """Return a name for each column of `table`, the number of objects that clusters have in common.

    Parameters
    ----------
    table : (k_before, k) array
        Common objects of each earlier cluster (row) and each present one (column).
    names : (k_before,) int array
        The names of the earlier clusters.
    fresh : int
        The first name that was never given.
    """
    matched = np.full(table.shape[1], -1, dtype=np.int64)
    rows, columns = scipy.optimize.linear_sum_assignment(table, maximize=True)
    common = table[rows, columns] > 0
    matched[columns[common]] = names[rows[common]]
    new = matched < 0
    matched[new] = fresh + np.arange(new.sum())
    return matched
