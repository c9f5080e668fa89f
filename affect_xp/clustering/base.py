"""Static clustering methods as objects that `Affect` applies to the smoothed proximities of each step.

A clusterer has a method `cluster(proximity, call)` that returns a `Clustering`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from affect_xp.array.namespace import is_array, to_host
from affect_xp.array.typing import Array, Seed
from affect_xp.checks import check_choice, check_int, check_n_clusters
from affect_xp.clustering.connectivity import Components
from affect_xp.exceptions import InputError
from affect_xp.partition import Partition, fewer_clusters
from affect_xp.proximity import Blend, Grouped, GroupedPair, ObjectBlend, Proximity

# The rules for the number of clusters that each clusterer supports.
RULES = {
    "KMeans": ("silhouette", "calinski_harabasz", "modularity"),
    "Spectral": ("eigengap", "modularity", "silhouette", "likelihood", "bethe-hessian", "auto"),
    "Linkage": ("gap", "calinski_harabasz", "silhouette"),
}


class Count(NamedTuple):
    """The number of clusters of a step, and the number that a rule proposed there."""

    chosen: int
    proposed: int

    @staticmethod
    def of(proposed: int, before: "Count | None") -> "Count":
        """Return the number of clusters of a step: it changes only if two steps in a row propose it.

        It is the median of the number before, the proposal before and the present one.

        Examples
        --------
        >>> Count.of(5, Count(3, 3)), Count.of(5, Count(3, 4)), Count.of(5, Count(3, 2))
        (Count(chosen=3, proposed=5), Count(chosen=4, proposed=5), Count(chosen=3, proposed=5))
        """
        chosen = proposed if before is None else sorted((*before, proposed))[1]
        return Count(chosen, proposed)


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum:
    """The result of a spectral clustering call for the next call of the same step."""

    vectors: Array  # the eigenvectors and guards, (n, r); only these are kept from step to step
    components: Components | None = None  # of the graph; None if they were not computed
    blended: bool = False  # whether the graph was a blend with a nonzero weight of the past


@dataclasses.dataclass(frozen=True, eq=False)
class Clustering:
    """The result of a clusterer.

    Attributes
    ----------
    partition : Partition
        No cluster is empty.
    moved : bool or None
        Whether any label differs from the initial labels; None if that is not known.
    n_iter : int
        Iterations; each waits once for the device.
    memory : (n, r) array or None
        Starting values for the next step, with a row for each object (eigenvectors, for instance).
    scores : dict or None
        The score of each number of clusters that was tried, if it was selected.
    groups : Grouped or None
        The proximity with the labels of the partition, if their product is known.
    rough : bool
        Whether the clusterer stopped early because the call accepts rough labels.
    spectrum : Spectrum or None
        The result of spectral clustering for the next call of the step.
    count : Count or None
        The number of clusters, if the next step needs it to choose its own.
    """

    partition: Partition
    moved: bool | None = None
    n_iter: int = 0
    memory: Array | None = None
    scores: dict[int, float] | None = None
    groups: Grouped | None = None
    rough: bool = False
    spectrum: Spectrum | None = None
    count: Count | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """The context of a clusterer call: the step, and the past of its objects.

    Attributes
    ----------
    t : int
        The number of the step.
    start : Partition or None
        The previous clusters of the objects, -1 for new ones; None if there is no past.
    memory : (n, r) array or None
        The memory of the last call, with rows of zeros for new objects.
    rng : None, int, sequence of int, or numpy.random.Generator
    rough : bool
        Whether the labels are only used to estimate α, so that an approximate result is enough.
    groups : GroupedPair or None
        Current and past proximities with the labels of `start`, if the step has both.
    spectrum : Spectrum or None
        The result of spectral clustering at the last call of the step.
    count : Count or None
        The number of clusters of the previous step, if a rule that needs it chose it.
    settled : bool
        Whether the initial labels have already competed with new starts.
    """

    t: int = 0
    start: Partition | None = None
    memory: Array | None = None
    rng: Seed = None
    rough: bool = False
    groups: GroupedPair | None = None
    spectrum: Spectrum | None = None
    count: Count | None = None
    settled: bool = False

    def after(self, found: Clustering) -> "Call":
        """Return the next call of the step, with the same initial labels and the updated memory."""
        return dataclasses.replace(self, memory=found.memory, spectrum=found.spectrum)

    def knowing(self, found: Clustering) -> "Call":
        """Return the same call with the components of the graph that another call of the step found."""
        if found.spectrum is None or self.memory is None:
            return self
        return dataclasses.replace(self, spectrum=dataclasses.replace(found.spectrum, vectors=self.memory))

    def from_found(self, found: Clustering) -> "Call":
        """Return the last call of the step, which starts from the rough labels."""
        groups = None if found.groups is None else found.groups.parts
        return dataclasses.replace(self.after(found), start=found.partition, groups=groups, rough=False)

    def start_groups(self, proximity: Proximity, k: int) -> Grouped:
        """Return a proximity grouped by the initial labels, with at most k clusters."""
        assert self.start is not None
        if isinstance(proximity, Blend | ObjectBlend) and self.groups is not None and self.groups.k == k:
            return proximity.from_parts(self.groups)
        return proximity.group(fewer_clusters(self.start, k))


FIRST = Call()


@dataclasses.dataclass(frozen=True, eq=False)
class Change:
    """A number, which may be on a device, and its value before."""

    now: Array | float
    before: Array | float
    tol: float

    def is_large(self, *read: np.ndarray) -> bool:
        """Return whether the change exceeds `tol`; the host waits unless the values have been read."""
        now, before = read or (self.now, self.before)
        if not read and is_array(now):
            now, before = to_host(now, before, reason="has α changed?")
        return not abs(now - before) <= self.tol


class Clusterer(Protocol):
    """The interface of a static clustering method for `Affect`."""

    def check(self) -> None:
        """Raise if a parameter is invalid."""

    def cluster(self, proximity: Proximity, call: Call = FIRST) -> Clustering:
        """Cluster the objects of a step."""


def as_clusterer(clusterer: Any) -> Clusterer:
    """Return a clusterer from an argument of `Affect`: a clusterer, an estimator, or a function."""
    if not isinstance(clusterer, type) and hasattr(clusterer, "cluster") and not is_estimator(clusterer):
        return clusterer
    from affect_xp.clustering.external import wrapped  # imports this module

    return wrapped(clusterer)


def is_estimator(clusterer: object) -> bool:
    """Return whether a clusterer has the interface of scikit-learn."""
    return hasattr(clusterer, "get_params") and hasattr(clusterer, "fit_predict")


NClusters = int | Sequence[int] | str


def clusters_at(n_clusters: Any, t: int, n: int) -> int | None:
    """Return the requested number of clusters at step t, for n objects; None if a rule chooses it."""
    if isinstance(n_clusters, str):
        return None
    if hasattr(n_clusters, "__len__"):
        if t >= len(n_clusters):
            raise InputError(
                f"n_clusters has {len(n_clusters)} entries, but this is step {t}; give one for each step"
            )
        return check_n_clusters(n_clusters[t], n, name=f"n_clusters[{t}]")
    return check_n_clusters(n_clusters, n)


def check_clusters(n_clusters: Any, max_clusters: int, rules: Sequence[str]) -> None:
    """Raise unless `n_clusters` is a positive integer, a sequence of such, or a rule."""
    if isinstance(n_clusters, str):
        if n_clusters not in rules:
            _check_rule_of_another(n_clusters, rules)
        check_choice("n_clusters, if not a number,", n_clusters, rules)
    elif hasattr(n_clusters, "__len__"):
        if len(n_clusters) == 0:
            raise InputError("n_clusters is an empty sequence; give one for each step")
        for value in n_clusters:
            check_int("n_clusters", value, 1)
    else:
        check_int("n_clusters", n_clusters, 1)
    check_int("max_clusters", max_clusters, 1)


def _check_rule_of_another(rule: str, rules: Sequence[str]) -> None:
    """Raise if a rule belongs to another clusterer, and name that clusterer."""
    others = [name for name, known in RULES.items() if rule in known]
    if others:
        listed = ", ".join(repr(choice) for choice in rules)
        named = " or ".join(f"ax.{name}({rule!r})" for name in others)
        raise InputError(f"n_clusters={rule!r} is a rule of {named}; choose that, or one of {listed} here")
