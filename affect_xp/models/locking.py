"""One thread at a time for a model, and random numbers that a rejected step does not use up."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from affect_xp.exceptions import AffectError

# The thread that is at work on a model, by the model's id. Not kept in the model: what tells threads apart
# cannot be copied, nor saved. `setdefault` of a dict is one operation to all threads.
TURNS: dict[int, tuple[int, object]] = {}


@contextlib.contextmanager
def turn_of(model: object) -> Iterator[None]:
    """Keep other threads from a model; raise if one of them is at it. Turns of one thread may be nested."""
    mine = threading.get_ident(), object()
    first = TURNS.setdefault(id(model), mine)
    if first[0] != mine[0]:
        raise AffectError(
            "this model is taking a step in another thread; "
            "wait for it, or give each thread a model of its own"
        )
    try:
        yield
    finally:
        if first is mine:
            del TURNS[id(model)]


@contextlib.contextmanager
def undrawn_on_failure(random_state: Any) -> Iterator[None]:
    """Set a generator back to where it was if what follows fails: a rejected step draws nothing."""
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
def undecided_on_failure(model: Any) -> Iterator[None]:
    """Forget what a model has decided at its first step if the step fails."""
    first = "_preparation" not in model.__dict__
    try:
        yield
    except BaseException:
        if first:
            model.__dict__.pop("_preparation", None)
        raise
