"""What one step of a sequence brings; it needs none of the readers."""

import dataclasses
from collections.abc import Hashable

from affect_xp.array.typing import Array


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """What is observed at one step.

    Attributes
    ----------
    time : hashable
        The start of the window (a datetime or a number), or what the input calls the step.
    ids : tuple of n hashables
        The objects that are there.
    values : (n, p) array of features, or (n, n) array or sparse matrix of proximities
    """

    time: Hashable
    ids: tuple[Hashable, ...] | None
    values: Array
