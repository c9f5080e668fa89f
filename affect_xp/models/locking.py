"""Exclusive use of a model by one thread, and restoring of state after a rejected step."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from affect_xp.array.device import current_device_of
from affect_xp.exceptions import AffectError

# The thread that is using a model, by the id of the model. It is not an attribute of the model, because it
# must not be copied or saved. `dict.setdefault` is atomic.
OWNERS: dict[int, tuple[int, object]] = {}


@contextlib.contextmanager
def exclusive(model: Any, *given: object) -> Iterator[None]:
    """Raise if another thread is using the model, and lock it otherwise. One thread may nest calls.

    The device of what is given, or else of the model, is current in the block.
    """
    mine = threading.get_ident(), object()
    first = OWNERS.setdefault(id(model), mine)
    if first[0] != mine[0]:
        raise AffectError(
            "this model is taking a step in another thread; "
            "wait for it, or use a separate model in each thread"
        )
    try:
        with current_device_of(*given, getattr(model, "_like", None)):
            yield
    finally:
        if first is mine:
            del OWNERS[id(model)]


@contextlib.contextmanager
def rng_restored_on_error(random_state: Any) -> Iterator[None]:
    """Restore the state of a random generator if the block raises, so that a rejected step draws nothing."""
    legacy = isinstance(random_state, np.random.RandomState)
    bits = getattr(random_state, "bit_generator", random_state)
    drawable = legacy or isinstance(bits, np.random.BitGenerator)
    before = (random_state.get_state() if legacy else bits.state) if drawable else None
    try:
        yield
    except BaseException:
        if legacy:
            random_state.set_state(before)
        elif drawable:
            bits.state = before
        raise


@contextlib.contextmanager
def decisions_restored_on_error(model: Any) -> Iterator[None]:
    """Discard the decisions that a model made at its first step if the step fails."""
    first = "_preparation" not in model.__dict__
    try:
        yield
    except BaseException:
        if first:
            model.__dict__.pop("_preparation", None)
        raise
