"""Random numbers, drawn on the host so that every library and device gets the same ones."""

import numpy as np

from affect_xp.array.typing import Seed
from affect_xp.exceptions import InputTypeError, shown


def as_generator(rng: Seed, name: str = "rng") -> np.random.Generator:
    """Return a NumPy generator from a seed, a generator (used as it is), or None (fresh entropy)."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            f"{name} must be None, a non-negative int or a numpy.random.Generator, got {shown(rng)}"
        ) from error


def draw_seed(random_state: object) -> int:
    """Return an integer seed that replaces `random_state`.

    A model keeps this number and seeds each step with (number, step), so that a run that is
    stopped and resumed draws the same numbers as an uninterrupted one.
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if (
        isinstance(random_state, int | np.integer)
        and not isinstance(random_state, bool)
        and random_state >= 0
    ):
        return int(random_state)
    return int(as_generator(random_state, "random_state").integers(2**63))  # type: ignore[arg-type]
