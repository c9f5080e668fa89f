"""How long `import affect_xp` takes, in fresh processes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import affect_xp as ax

from .._measure import Action
from .._report import Goal, Row
from .._suite import Case, Measured, Setting, Workload

IMPORT = Goal(must=1.3)
CACHE = "affect_xp-bench-bytecode"
TIMED = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def imports(setting: Setting) -> Case:
    """The package, against the parts of NumPy and SciPy that it cannot do without."""

    def rows(measured: Measured) -> Iterator[Row]:
        yield Row("import affect_xp", "import numpy, scipy.sparse", measured.ratio("ours", "theirs"), IMPORT)

    return Case({"ours": importing("affect_xp")}, {"theirs": importing("numpy, scipy.sparse")}, rows)


def importing(modules: str) -> Action:
    """Return an action that imports modules in a new process, which tells the seconds."""
    root = str(Path(ax.__file__).parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    # Bytecode in a folder of our own: where none may be written, only one side would be compiled each time.
    bytecode = os.path.join(tempfile.gettempdir(), CACHE)
    changed = {"PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": bytecode}

    def action() -> Iterator[float]:
        env = os.environ | changed  # as it is now: the number of threads is set while actions run
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        told = subprocess.run(
            [sys.executable, "-c", TIMED.format(f"import {modules}")],
            env=env,
            cwd=tempfile.gettempdir(),  # not where a folder may be taken for a module
            capture_output=True,
            text=True,
            check=True,
        )
        yield float(told.stdout)

    return action


WORKLOADS = (Workload("import", imports),)
