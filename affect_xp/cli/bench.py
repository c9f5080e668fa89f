"""The command `affect-xp bench`: how fast the library is here, against others and against the machine."""

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import affect_xp
from affect_xp.exceptions import AffectError

WHEEL = "affect_xp._bench"  # what the folder `bench` of the repository is called in a wheel


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to a parser."""
    # Options belong to the benchmarks, which have a parser of their own: here they are words like others.
    command = commands.add_parser(
        "bench", help="measure how fast it is here (see bench --help)", add_help=False, prefix_chars="+"
    )
    command.add_argument("options", nargs="*")
    command.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the benchmarks."""
    code: int = _suite().main(parsed.options, prog="affect-xp bench")
    return code


def _suite() -> Any:
    """Return the module of the benchmarks: of the wheel, or of the folder beside the package in a clone."""
    if importlib.util.find_spec(WHEEL) is not None:
        return importlib.import_module(f"{WHEEL}.__main__")
    root = Path(affect_xp.__file__).parents[1]
    if not (root / "bench" / "__main__.py").is_file():
        raise AffectError(
            f"there are no benchmarks beside {root}; install the wheel, or clone the repository"
        )
    sys.path.insert(0, str(root))
    return importlib.import_module("bench.__main__")
