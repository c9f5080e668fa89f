"""`affect-xp bench`: how fast the library is here, compared with others and with the machine."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import affect_xp
from affect_xp.exceptions import AffectError

WHEEL = "affect_xp._bench"  # the name of the folder `bench` of the repository in a wheel


def suite() -> Any:
    """Return the module of the benchmarks: of the wheel, or of the folder `bench` of a clone."""
    if importlib.util.find_spec(WHEEL) is not None:
        return importlib.import_module(f"{WHEEL}.__main__")
    root = Path(affect_xp.__file__).parents[1]
    if not (root / "bench" / "__main__.py").is_file():
        raise AffectError(f"{root} contains no folder `bench`; install the wheel, or clone the repository")
    sys.path.insert(0, str(root))
    return importlib.import_module("bench.__main__")
