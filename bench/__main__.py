"""Run the benchmarks: print a table, and write results.json, results.md and figures to a folder.

Each figure is the ratio of two computations timed alternately in the same run, by the minimum of several
rounds. Peak memory, measured separately, is that of NumPy arrays (tracemalloc), or of CuPy's pool on a GPU.

For all rows and figures: pip install 'affect_xp[sklearn,linkage,plot,cli]'
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from affect_xp.exceptions import AffectError

from ._device import DEVICES
from ._suite import INTERRUPTED, Setting, busy, run
from .workloads import WORKLOADS

OUT = Path("affect-xp-bench")
NAMES = [workload.name for workload in WORKLOADS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks and return the exit code: 0 success, 1 failure, 2 invalid arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="cuda: CuPy arrays on a GPU")
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help=f"(default: {OUT})")
    options = parser.parse_args(arguments)
    try:
        return measure(options.size, options.only, options.threads, options.device, options.out)
    except AffectError as error:
        parser.error(str(error))


def measure(size: str, only: Sequence[str] | None, threads: int, device: str, out: Path) -> int:
    """Measure workloads, write the results and return the exit code."""
    setting = _setting(size, threads, device)
    if setting.size != "full":
        print(f"{setting.size}: too small to be compared with the goals", file=sys.stderr)
    busy()
    chosen = [workload for workload in WORKLOADS if not only or workload.name in only]
    results = run(chosen, setting, label="bench")
    print(results.text())
    can_draw = importlib.util.find_spec("matplotlib") is not None
    paths = results.write(out, draw=can_draw)
    print(f"\nwritten: {', '.join(map(str, paths))}")
    if not can_draw:
        print("for the figures: pip install 'affect_xp[plot]'")
    left = [name for name, why in results.problems.items() if why == INTERRUPTED]
    if left:
        options = " ".join(f"--only {name}" for name in left)
        print(f"interrupted; these options measure the others: {options}", file=sys.stderr)
        return 130
    return int(any(why.startswith("FAILED") for why in results.problems.values()))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options shared with `compare`."""
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick",
        action="store_const",
        const="quick",
        dest="size",
        help="smaller sizes: two minutes on two cores",
    )
    size.add_argument(
        "--tiny", action="store_const", const="tiny", dest="size", help="only checks that everything runs"
    )
    parser.set_defaults(size="full")
    parser.add_argument(
        "--only",
        action="append",
        choices=NAMES,
        metavar="NAME",
        help=f"one workload (may be repeated): {', '.join(NAMES)}",
    )
    parser.add_argument(
        "--threads", type=_positive, default=2, metavar="N", help="of all libraries (default: 2)"
    )


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, got {text!r}")
    return number


def setting_of(options: argparse.Namespace, device: str = "cpu") -> Setting:
    """Return the setting for the options."""
    return _setting(options.size, options.threads, device)


def _setting(size: str, threads: int, device: str) -> Setting:
    data = os.environ.get("AFFECT_XP_DATA")
    return Setting(size, DEVICES[device](), threads, Path(data) if data else None)


if __name__ == "__main__":
    sys.exit(main())
