"""Object ids, and the positions of the objects of a step in the previous step."""

import dataclasses
from collections.abc import Hashable, Iterable

import numpy as np

from affect_xp.array.namespace import from_host, is_array, places_of, rows_at, to_host
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError

Ids = tuple[Hashable, ...] | range


def as_ids(ids: Iterable[Hashable] | Array | None, n: int, past_ids: Ids | None = None) -> Ids:
    """Return the checked ids of n objects; by default, the row numbers 0 ... n-1.

    `past_ids` are the ids of the previous step: if it had ids, this one needs them too.
    """
    if ids is None:
        if past_ids is not None and past_ids != range(n):
            raise InputError(
                f"ids=None, but the previous step had {len(past_ids)} objects "
                f"{'with ids' if isinstance(past_ids, tuple) else 'and this one has ' + str(n)}; "
                "pass ids= with each step so that objects can be matched"
            )
        return range(n)
    if isinstance(ids, range):
        listed: Ids = ids
    elif is_array(ids):
        listed = tuple(to_host(ids, reason="ids are kept on the host")[0].tolist())
    else:
        listed = tuple(getattr(ids, "tolist", lambda: ids)())  # such as a pandas Index
    if len(listed) != n:
        raise InputError(f"ids has length {len(listed)}, but there are {n} objects; give one id for each row")
    _check_ids(listed)
    return listed


def _check_ids(ids: Ids) -> None:
    if isinstance(ids, range):
        return
    try:
        distinct = len(set(ids))
    except TypeError as error:
        raise InputError(f"ids must be hashable (numbers, strings, tuples), got {ids[0]!r}, ...") from error
    if distinct < len(ids):
        seen: set[Hashable] = set()
        double = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InputError(f"ids must be unique; {double!r} appears more than once")


@dataclasses.dataclass(frozen=True, eq=False)
class Alignment:
    """Positions of the objects of step t in step t-1, and the reverse.

    Attributes
    ----------
    source : (n,) int array or None
        Position at t-1 of each object of t, -1 for a new one. None if the objects and their order
        are the same.
    target : (n_past,) int array or None
        Position at t of each object of t-1, -1 for one that left.
    n_common : int
        The number of objects present at both steps.
    n_new : int
        The number of objects present only at t.
    """

    source: Array | None
    target: Array | None
    n_common: int
    n_new: int

    @property
    def n_gone(self) -> int:
        """The number of objects present only at t-1."""
        return 0 if self.target is None else self.target.shape[0] - self.n_common

    @property
    def unchanged(self) -> bool:
        """Whether the objects and their order are the same at both steps."""
        return self.source is None

    def new(self) -> Array:
        """Return the positions at t of the new objects."""
        return places_of(self.source < 0, self.n_new)  # type: ignore[operator]

    def gone(self) -> Array:
        """Return the positions at t-1 of the objects that left."""
        return places_of(self.target < 0, self.n_gone)  # type: ignore[operator]

    def common(self) -> tuple[Array, Array]:
        """Return the positions of the common objects at t and at t-1; requires that something changed."""
        here = places_of(self.source >= 0, self.n_common)  # type: ignore[operator]
        return here, rows_at(self.source, here)


UNCHANGED = Alignment(None, None, n_common=0, n_new=0)


def align(ids: Ids, past_ids: Ids, like: Array) -> Alignment:
    """Match the objects of a step with those of the previous step; indices go to the device of `like`."""
    if ids == past_ids:
        return Alignment(None, None, n_common=len(ids), n_new=0)
    source = positions(ids, past_ids)
    known = source >= 0
    target = np.full(len(past_ids), -1, dtype=np.int64)
    target[source[known]] = np.flatnonzero(known)
    n_common = int(known.sum())
    return Alignment(from_host(source, like), from_host(target, like), n_common, len(ids) - n_common)


def positions(ids: Ids, past_ids: Ids) -> np.ndarray:
    """Return the position of each id among the past ids, -1 if it is not among them."""
    if isinstance(ids, range) and isinstance(past_ids, range) and ids.step == past_ids.step == 1:
        shifted = np.arange(ids.start - past_ids.start, ids.stop - past_ids.start)
        return np.where((shifted >= 0) & (shifted < len(past_ids)), shifted, -1)
    position = {name: i for i, name in enumerate(past_ids)}
    return np.fromiter((position.get(name, -1) for name in ids), np.int64, len(ids))
