"""Agreement of partitions, and the error of smoothed proximities."""

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    as_array,
    device_of,
    on_input_device,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError


def contingency(a: Array, b: Array) -> np.ndarray:
    """Return the number of objects in each pair of clusters of two labellings, on the host."""
    a, b = (to_host(as_array(x), reason="comparing partitions")[0] for x in (a, b))
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(
            f"labels to compare must be one-dimensional and of one length, got shapes {a.shape} and {b.shape}"
        )
    rows, i = np.unique(a, return_inverse=True)
    columns, j = np.unique(b, return_inverse=True)
    counts = np.bincount(i * len(columns) + j, minlength=len(rows) * len(columns))
    return counts.reshape(len(rows), len(columns))


def _pairs(counts: np.ndarray) -> int:
    """Return Σ x(x − 1)/2 exactly."""
    return sum(x * (x - 1) // 2 for x in counts.ravel().tolist())


def rand_index(a: Array, b: Array) -> float:
    """Return the share of pairs of objects on which two labellings agree, between 0 and 1.

    Two labellings agree on a pair if both put it into one cluster, or both into two clusters. The label -1
    counts as a cluster. A single object agrees with itself.

    Examples
    --------
    >>> import affect_xp as ax
    >>> ax.rand_index([0, 0, 1, 1], [1, 1, 0, 2])
    0.8333333333333334
    """
    table = contingency(a, b)
    pairs = _pairs(table.sum(keepdims=True))
    if pairs == 0:
        return 1.0
    together = _pairs(table)
    return (pairs + 2 * together - _pairs(table.sum(axis=0)) - _pairs(table.sum(axis=1))) / pairs


def adjusted_rand_index(a: Array, b: Array) -> float:
    """Return the Rand index corrected for chance: 1 for equal partitions, 0 on average for random ones.

    Examples
    --------
    >>> import affect_xp as ax
    >>> ax.adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 2])
    0.5714285714285714
    >>> ax.adjusted_rand_index([0, 0, 0], [1, 1, 1])
    1.0
    """
    table = contingency(a, b)
    pairs, together = _pairs(table.sum(keepdims=True)), _pairs(table)
    in_a, in_b = _pairs(table.sum(axis=1)), _pairs(table.sum(axis=0))
    # (together − expected) / (mean(in_a, in_b) − expected), times 2·pairs: integers up to the division
    above = 2 * (together * pairs - in_a * in_b)
    most = (in_a + in_b) * pairs - 2 * in_a * in_b
    return above / most if most else 1.0  # both partitions are trivial and equal


@on_input_device
def tracking_error(estimate: Array, truth: Array) -> float:
    """Return ‖Ψ̂ − Ψ‖², the squared error of smoothed proximities summed over all entries.

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> ax.tracking_error(np.zeros((2, 2)), np.eye(2))
    2.0
    """
    estimate = getattr(estimate, "array", estimate)
    if tuple(estimate.shape) != tuple(truth.shape):
        raise InputError(
            f"estimate and truth must be of one shape, got {tuple(estimate.shape)} and {tuple(truth.shape)}"
        )
    xp = array_namespace(estimate, truth)
    wide = wide_dtype(estimate)
    total = xp.zeros((), dtype=wide, device=device_of(estimate))
    for rows in row_blocks(estimate):
        total = total + xp.sum(xp.astype(estimate[rows, :] - truth[rows, :], wide) ** 2)
    return float(to_host(total, reason="tracking error")[0])
