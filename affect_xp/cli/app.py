"""The command `affect-xp`."""

import argparse
import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import affect_xp
from affect_xp.cli import bench, demo, doctor, run
from affect_xp.exceptions import AffectError
from affect_xp.experiments import EXPERIMENTS, Options, Report, index_page, reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted."""
    parser = argparse.ArgumentParser(
        prog="affect-xp", description="Adaptive evolutionary clustering (AFFECT)."
    )
    parser.add_argument("--version", action="version", version=affect_xp.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    run.add(commands)
    _add_reproduce(commands)
    bench.add(commands)
    doctor.add(commands)
    parsed = parser.parse_args(arguments)
    try:
        return parsed.run(parsed)
    except (AffectError, OSError) as error:
        print(f"affect-xp: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"affect-xp: out of memory ({error}); `affect-xp doctor` tells how much fits", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("affect-xp: interrupted", file=sys.stderr)
        return 130


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


def _add_reproduce(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    listed = "\n".join(f"  {name:15} {experiment.title}" for name, experiment in EXPERIMENTS.items())
    command = commands.add_parser(
        "reproduce",
        help="re-run the experiments of the paper beside the published numbers",
        description="Re-run an experiment of the paper, and show its tables beside the published ones.",
        epilog=f"experiments:\n{listed}\n  {'all':15} every one whose data is there",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "name", choices=[*EXPERIMENTS, "all"], metavar="NAME", help="which experiment, or all"
    )
    length = command.add_mutually_exclusive_group()
    length.add_argument("--runs", type=_at_least(1), help="repetitions (default: as many as the paper)")
    length.add_argument("--quick", action="store_true", help="a few repetitions, to have a look")
    command.add_argument("--seed", type=_at_least(0), default=0, help="of all random numbers (default: 0)")
    command.add_argument("--jobs", type=_at_least(1), default=1, help="processes (default: 1)")
    command.add_argument("--data", type=Path, help="the folder with reality.npz and nasdaq2008.npz")
    command.add_argument(
        "--out",
        type=Path,
        default=Path("affect-xp-results"),
        help="the folder for reports and figures (default: affect-xp-results)",
    )
    command.set_defaults(run=_reproduce)


def _at_least(minimum: int) -> Callable[[str], int]:
    """Return a function that reads an integer of at least `minimum`."""

    def integer(text: str) -> int:
        if int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, got {text}")
        return int(text)

    return integer


def _reproduce(parsed: argparse.Namespace) -> int:
    options = Options(parsed.runs, parsed.seed, parsed.jobs, parsed.data, show=True)
    if parsed.name != "all":
        _reproduce_one(parsed.name, options, parsed)
        return 0
    reports, skipped = [], []
    index = parsed.out / "README.md"
    for name, experiment in EXPERIMENTS.items():
        if experiment.is_missing_data(options):
            skipped.append(
                f"{name}, which needs {experiment.data[0]}; name its folder by --data or AFFECT_XP_DATA"
            )
            print(f"skipped: {skipped[-1]}")
        else:
            reports.append(_reproduce_one(name, options, parsed))
        # Each time, so that what is stopped halfway has its index too.
        index.write_text(index_page(reports, skipped), encoding="utf-8")
    print(f"index: {index}")
    return 0


def _reproduce_one(name: str, options: Options, parsed: argparse.Namespace) -> Report:
    """Run an experiment, print its report, and write it with its figures."""
    experiment = EXPERIMENTS[name]
    if experiment.is_missing_data(options):
        options.data_file(experiment.data[0])  # say now what would be missed later
    parsed.out.mkdir(parents=True, exist_ok=True)
    if parsed.quick:
        options = dataclasses.replace(options, runs=experiment.quick_runs)
    report = reproduce(name, options)
    print(report.text())
    report.write(parsed.out)
    print(f"\nreport: {parsed.out / name}.md\n")
    if report.figures and importlib.util.find_spec("matplotlib") is None:
        print("for the figures: pip install 'affect_xp[plot]'\n")
    return report
