"""Readers of tables, edge lists, graphs and matrices over time, which return the steps of a model.

`read_steps` is the entry point: `model.fit(read_steps(...))`.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from affect_xp.io.options import ReadOptions
    from affect_xp.io.snapshot import Snapshot
    from affect_xp.io.steps import Steps, read_steps

__all__ = ["ReadOptions", "Snapshot", "Steps", "read_steps"]


def __getattr__(name: str) -> typing.Any:  # the readers are imported when they are first used
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"ReadOptions": "options", "Snapshot": "snapshot"}.get(name, "steps")
    return globals().setdefault(name, getattr(importlib.import_module(f"{__name__}.{module}"), name))
