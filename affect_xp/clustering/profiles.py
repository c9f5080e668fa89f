"""What clusters are: the mean features of their members, or how dense they are and who is central."""

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.array.namespace import (
    array_namespace,
    as_array,
    from_host,
    on_input_device,
    ratio,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.checks import check_choice, check_int, import_pandas
from affect_xp.clustering.n_clusters import KINDS
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition
from affect_xp.proximity import Proximity, as_proximity


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterProfiles:
    """The features of clusters; see `cluster_profiles`. NumPy arrays.

    Attributes
    ----------
    clusters, sizes : (k,) int arrays
        The labels of the clusters, and the number of objects of each.
    feature_names : tuple of p str
    means, stds : (k, p) arrays
        Of each feature within each cluster.
    mean_of_all, std_of_all : (p,) arrays
        Of each feature over all objects.
    """

    clusters: np.ndarray
    sizes: np.ndarray
    feature_names: tuple[str, ...]
    means: np.ndarray
    stds: np.ndarray
    mean_of_all: np.ndarray
    std_of_all: np.ndarray

    @property
    def differences(self) -> np.ndarray:
        """The difference of each mean from that of all, in standard deviations of all, (k, p)."""
        scale = np.where(self.std_of_all > 0, self.std_of_all, 1)
        return (self.means - self.mean_of_all) / scale

    def top(self, n: int) -> np.ndarray:
        """Return the n features of each cluster that differ most from all, (k, n)."""
        return np.argsort(-np.abs(self.differences), axis=1, kind="stable")[:, :n]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per cluster and feature, largest differences first.

        The columns are cluster, size, feature, mean, std, mean_of_all, std_of_all, difference.
        """
        order = self.top(len(self.feature_names))
        rows = [
            (c, size, self.feature_names[f], means[f], stds[f], self.mean_of_all[f], self.std_of_all[f], d[f])
            for c, size, means, stds, d, features in zip(
                self.clusters, self.sizes, self.means, self.stds, self.differences, order, strict=True
            )
            for f in features
        ]
        columns = ["cluster", "size", "feature", "mean", "std", "mean_of_all", "std_of_all", "difference"]
        return import_pandas().DataFrame(rows, columns=columns)


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterDensities:
    """The proximities of clusters; see `cluster_densities`.

    Attributes
    ----------
    clusters, sizes : (k,) int NumPy arrays
        The labels of the clusters, and the number of objects of each.
    inside, outside : (k,) NumPy arrays
        The mean proximity of two members of each cluster, and of a member and an object of another cluster.
    central : list of k lists of ids
        The members of each cluster that are closest to the others, the most central first.
    """

    clusters: np.ndarray
    sizes: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    central: list[list[Hashable]]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per cluster: cluster, size, inside, outside, central."""
        table = import_pandas().DataFrame(dataclasses.asdict(self))
        return table.rename(columns={"clusters": "cluster", "sizes": "size"})


@on_input_device
def cluster_profiles(X: Array, labels: Array, feature_names: Sequence[str] | None = None) -> ClusterProfiles:
    """Return the mean and the standard deviation of each feature in each cluster, and over all objects.

    Parameters
    ----------
    X : (n, p) array of any library, or DataFrame
        The features of the objects at one step.
    labels : (n,) int array
        The clusters, such as `history_[t].labels`; objects with -1 are in no cluster.
    feature_names : sequence of p str, optional
        By default the columns of a DataFrame, or "feature 1", "feature 2", ...

    Returns
    -------
    profiles : ClusterProfiles
        NumPy arrays; `profiles.to_frame()` is a table with the largest differences first.

    Examples
    --------
    >>> import affect_xp as ax
    >>> X = [[1.0, 5.0], [3.0, 7.0], [11.0, 6.0]]
    >>> profiles = ax.cluster_profiles(X, [0, 0, 4], ["age", "height"])
    >>> profiles.to_frame()[["cluster", "feature", "mean", "std", "mean_of_all"]]
       cluster feature  mean  std  mean_of_all
    0        0     age   2.0  1.0          5.0
    1        0  height   6.0  1.0          6.0
    2        4     age  11.0  0.0          5.0
    3        4  height   6.0  0.0          6.0
    """
    if hasattr(X, "columns"):
        feature_names, X = X.columns if feature_names is None else feature_names, X.to_numpy()
    X = as_array(X)
    xp, p = array_namespace(X), X.shape[1]
    names = tuple(
        map(str, [f"feature {i + 1}" for i in range(p)] if feature_names is None else feature_names)
    )
    if len(names) != p:
        raise InputError(f"feature_names has {len(names)} names, but X has {p} columns; give one for each")
    clusters, partition = named_partition(labels, X)
    z, m = partition.membership, partition.sizes[:, None]
    x = xp.astype(X, wide_dtype(X), copy=False)
    mean_of_all, means = xp.mean(x, axis=0), ratio(z.T @ x, m)
    from_all, from_means = x - mean_of_all[None, :], x - partition.by_object(means)
    stds = xp.sqrt(ratio(z.T @ (from_means * from_means), m))
    std_of_all = xp.sqrt(xp.mean(from_all * from_all, axis=0))
    parts = (partition.sizes, means, stds, mean_of_all, std_of_all)
    sizes, means, stds, *of_all = to_host(*parts, reason="profiles of clusters")
    k = len(clusters)
    return ClusterProfiles(clusters, sizes[:k].astype(np.int64), names, means[:k], stds[:k], *of_all)


@on_input_device
def cluster_densities(
    W: Array | Proximity,
    labels: Array,
    ids: Sequence[Hashable] | None = None,
    *,
    kind: str = "similarity",
    n_central: int = 5,
) -> ClusterDensities:
    """Return the mean proximity inside each cluster and to the others, and the most central members.

        inside = Σ_{i≠j∈c} wᵢⱼ / m(m − 1),   outside = Σ_{i∈c, j∉c} wᵢⱼ / m(n − m)

    In a graph without weights these are the densities of edges. A member is central if its proximity
    to the other members, Σ_{j∈c} wᵢⱼ, is large; small for dissimilarities. Objects in no cluster do not
    count, and what is undefined is 0.

    Parameters
    ----------
    W : (n, n) array or Proximity
        The proximities at one step.
    labels : (n,) int array
        The clusters, such as `history_[t].labels`; objects with -1 are in no cluster.
    ids : sequence of n hashables, optional
        Such as `history_[t].ids`; by default 0 ... n-1.
    kind : "similarity" or "dissimilarity"
    n_central : int
        The number of central members.

    Returns
    -------
    densities : ClusterDensities

    Examples
    --------
    >>> import numpy as np, affect_xp as ax
    >>> W = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]])
    >>> ax.cluster_densities(W, [2, 2, 2, 5], ["a", "b", "c", "d"], n_central=1).to_frame()
       cluster  size    inside   outside central
    0        2     3  0.666667  0.333333     [a]
    1        5     1  0.000000  0.333333     [d]
    """
    check_choice("kind", kind, KINDS)
    check_int("n_central", n_central, 0)
    W = as_proximity(W)
    clusters, partition = named_partition(labels, W.like, W.n)
    z, m = partition.membership, partition.sizes
    xp = array_namespace(z)
    wz, w_ii = W.matmul(z), W.diagonal()
    sums = z.T @ wz  # (k, k)
    own = xp.linalg.diagonal(sums)
    inside = ratio(own - w_ii @ z, m * (m - 1))
    outside = ratio(xp.sum(sums, axis=1) - own, m * (xp.sum(m) - m))
    closeness = xp.sum(z * wz, axis=1) - w_ii
    read = to_host(inside, outside, m, closeness, partition.labels, reason="densities of clusters")
    inside, outside, sizes, closeness, codes = read
    order = np.argsort(closeness if kind == "dissimilarity" else -closeness, kind="stable")
    names = range(W.n) if ids is None else ids
    central = [[names[i] for i in order[codes[order] == c][:n_central]] for c in range(len(clusters))]
    k = len(clusters)
    return ClusterDensities(clusters, sizes[:k].astype(np.int64), inside[:k], outside[:k], central)


def named_partition(labels: Array, like: Array, n: int | None = None) -> tuple[np.ndarray, Partition]:
    """Return the clusters among the labels, and the partition by their positions, at least one."""
    read = to_host(as_array(labels), reason="labels of clusters")[0]
    n = like.shape[0] if n is None else n
    if read.shape != (n,):
        raise InputError(f"labels has shape {read.shape}, but there are {n} objects; give one label for each")
    clusters = np.unique(read[read >= 0])
    codes = np.where(read >= 0, np.searchsorted(clusters, read), -1).astype(np.int64)
    return clusters, Partition(from_host(codes, like), max(1, len(clusters)))
