"""`affect-xp reproduce`: the experiments of the paper, with the published numbers."""

import dataclasses
import importlib.util
import json
from typing import TYPE_CHECKING

import affect_xp
from affect_xp import experiments
from affect_xp.experiments import EXPERIMENTS, Claim, Report, index_page

if TYPE_CHECKING:
    from affect_xp.cli.app import Reproduction


def reproduce(name: str, options: "Reproduction") -> int:
    """Run one experiment or all of them, write reports and figures, and return the exit code."""
    if name == "all":
        _reproduce_all(options)
        return 0
    try:
        _reproduce_one(name, options)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"at {name}, which keeps nothing; fewer --runs take less time") from interrupt
    return 0


def _reproduce_all(options: "Reproduction") -> None:
    reports: list[Report] = []
    skipped: list[str] = []
    index = options.out / "README.md"
    for name, experiment in EXPERIMENTS.items():
        if experiment.is_missing_data(options):
            skipped.append(
                f"{name}, which needs {experiment.data[0]}; name its folder by --data or AFFECT_XP_DATA"
            )
            print(f"skipped: {skipped[-1]}")
        else:
            try:
                reports.append(_finished(name, options) or _reproduce_one(name, options))
            except KeyboardInterrupt as interrupt:
                done = ", ".join(report.name for report in reports) or "none"
                raise KeyboardInterrupt(
                    f"at {name}; finished: {done}; the same command with --resume runs the others"
                ) from interrupt
        # Each time, so that a run that is stopped has an index, too.
        index.write_text(index_page(reports, skipped), encoding="utf-8")
    print(f"index: {index}")


def _finished(name: str, options: "Reproduction") -> Report | None:
    """Return the report of an experiment that an earlier command has finished, if --resume is given."""
    path = options.out / f"{name}.json"
    if not (options.resume and path.exists()):
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    asked = {"runs": _runs(name, options) or EXPERIMENTS[name].runs, "seed": options.seed}
    known = {key: found["settings"].get(key) for key in asked}
    if known != asked or found["affect_xp"] != affect_xp.__version__:
        return None
    print(f"finished: {path}")
    claims = tuple(Claim(**claim) for claim in found["claims"])
    return Report(name, found["title"], found["settings"], (), claims)


def _runs(name: str, options: "Reproduction") -> int | None:
    return EXPERIMENTS[name].quick_runs if options.quick else options.runs


def _reproduce_one(name: str, options: "Reproduction") -> Report:
    """Run an experiment, print its report, and write it with its figures."""
    experiment = EXPERIMENTS[name]
    if experiment.is_missing_data(options):
        options.data_file(experiment.data[0])  # raises now, not after the runs
    options.out.mkdir(parents=True, exist_ok=True)
    report = experiments.reproduce(name, dataclasses.replace(options, runs=_runs(name, options), quick=False))
    print(report.text())
    report.write(options.out)
    print(f"\nreport: {options.out / name}.md\n")
    if report.figures and importlib.util.find_spec("matplotlib") is None:
        print("for the figures: pip install 'affect_xp[plot]'\n")
    return report
