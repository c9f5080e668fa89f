"""Reading what people have, tables, edge lists, graphs and matrices over time, as the steps of a model.

`read_steps` is the door: `model.fit(read_steps(...))`.
"""

from affect_xp.io.snapshots import Snapshot
from affect_xp.io.steps import Steps, read_steps

__all__ = ["Snapshot", "Steps", "read_steps"]
