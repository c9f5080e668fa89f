"""Time of `import affect_xp` in new processes."""

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
    """The package, relative to the parts of NumPy and SciPy that it requires."""

    def rows(measured: Measured) -> Iterator[Row]:
        yield Row("import affect_xp", "import numpy, scipy.sparse", measured.ratio("ours", "theirs"), IMPORT)

    return Case({"ours": importing("affect_xp")}, {"theirs": importing("numpy, scipy.sparse")}, rows)


def importing(modules: str) -> Action:
    """Return an action that imports modules in a new process, which reports the seconds."""
    root = str(Path(ax.__file__).parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    # Cache bytecode in a separate folder: if a folder is read-only, one side would be compiled each time.
    bytecode = os.path.join(tempfile.gettempdir(), CACHE)
    changed = {"PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": bytecode}

    def action() -> Iterator[float]:
        env = os.environ | changed  # read here, because the number of threads is set while actions run
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        result = subprocess.run(
            [sys.executable, "-c", TIMED.format(f"import {modules}")],
            env=env,
            cwd=tempfile.gettempdir(),  # a folder without modules
            capture_output=True,
            text=True,
            check=True,
        )
        yield float(result.stdout)

    return action


WORKLOADS = (Workload("import", imports),)
