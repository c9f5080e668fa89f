"""A custom clusterer: k-medoids on dissimilarities."""

import dataclasses
from typing import ClassVar

import numpy as np

from affect_xp.clustering.base import FIRST, Clustering
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition
from affect_xp.proximity import Dense


@dataclasses.dataclass
class KMedoids:
    """Alternate between assigning objects to the nearest medoid and updating the medoids.

    Parameters
    ----------
    n_clusters : int
    max_iter : int
    """

    wants: ClassVar[str] = "dissimilarity"  # lets Affect reject a wrong `proximity`

    n_clusters: int
    max_iter: int = 100

    def check(self):
        """Raise an error if a parameter is invalid."""
        if self.n_clusters < 1:
            raise InputError(f"n_clusters must be at least 1, got {self.n_clusters}")

    def cluster(self, proximity, call=FIRST):
        """Cluster the objects of a step, starting from the previous clusters if there are any."""
        stored = proximity.formed()  # during a step the blend is lazy
        if not isinstance(stored, Dense):
            raise InputError(f"KMedoids needs an array, got {stored!r}")
        D = np.asarray(stored.array)
        medoids = self._first(D, call)
        for n_iter in range(1, self.max_iter + 1):  # noqa: B007
            labels = np.argmin(D[:, medoids], axis=1)
            labels[medoids] = np.arange(
                len(medoids)
            )  # no cluster is empty, even with ties
            z = np.eye(len(medoids))[labels]
            inside = np.where(
                z > 0, D @ z, np.inf
            )  # sum of distances to the own cluster, (n, k)
            if (np.argmin(inside, axis=0) == medoids).all():
                break
            medoids = np.argmin(inside, axis=0)
        return Clustering(Partition(labels, len(medoids), 0), n_iter=n_iter)

    def _first(self, D, call):
        """Return the medoids of the previous clusters, or objects far from each other."""
        if call.start is not None and call.start.k == self.n_clusters:
            z = call.start.membership  # zero for new objects
            if (z.sum(axis=0) > 0).all():
                return np.argmin(np.where(z > 0, D @ z, np.inf), axis=0)
        chosen = [int(np.argmin(D.sum(axis=1)))]
        while len(chosen) < min(self.n_clusters, len(D)):
            chosen.append(int(np.argmax(D[:, chosen].min(axis=1))))
        return np.array(chosen)
