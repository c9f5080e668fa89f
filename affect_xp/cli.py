"""The command `affect-xp`."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import affect_xp
from affect_xp import demo
from affect_xp.exceptions import AffectError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="affect-xp", description="Adaptive evolutionary clustering (AFFECT)."
    )
    parser.add_argument("--version", action="version", version=affect_xp.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    parsed = parser.parse_args(arguments)
    try:
        return parsed.run(parsed)
    except (AffectError, OSError) as error:
        print(f"affect-xp: {error}", file=sys.stderr)
        return 1


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser("demo", help="cluster a simulated example and draw a picture")
    command.add_argument("--seed", type=int, default=0, help="of the simulation (default: 0)")
    command.add_argument(
        "--out",
        type=Path,
        default=Path("affect-xp-demo.png"),
        help="the picture (default: affect-xp-demo.png)",
    )
    command.set_defaults(run=_demo)


def _demo(parsed: argparse.Namespace) -> int:
    print("Two Gaussian clouds collide and exchange members; 40 samples are drawn anew at each of 25 steps.")
    print(
        "AFFECT estimates at each step how far to trust the past (α) and clusters the smoothed proximities.\n"
    )
    result = demo.run(parsed.seed)
    print(result.table())
    if importlib.util.find_spec("matplotlib") is None:
        print("\nfor a picture: pip install 'affect_xp[plot]'")
    else:
        result.draw(parsed.out)
        print(f"\npicture: {parsed.out}")
    return 0
