"""What `affect-xp run` leaves behind and says at the end, whichever way the steps were taken."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from affect_xp.cli.decisions import decisions_of
from affect_xp.cli.libraries import Backend
from affect_xp.cli.results import write_results
from affect_xp.models.affect import Affect
from affect_xp.models.smooth import Smoothed
from affect_xp.report import write_report

REPORT = "report.html"


def summary_of(
    parsed: argparse.Namespace, backend: Backend, source: Affect | Smoothed, *, finished: bool, started: float
) -> dict[str, Any]:
    """Return what is known of a run but for its results."""
    return {
        "input": str(parsed.input),
        "finished": finished,
        "seconds": round(time.monotonic() - started, 3),
        "backend": backend.name,
        "device": None if backend.device is None else str(backend.device),
        "model": repr(source),
        "decided": decisions_of(source if isinstance(source, Affect) else source.causal),
        "files": {"report": REPORT},
    }


def write_all(
    parsed: argparse.Namespace, source: Affect | Smoothed, summary: dict[str, Any]
) -> dict[str, Any]:
    """Write the results and the report, and return the summary with the names of the files."""
    summary = write_results(source.history_, parsed.out, summary, parsed.format)
    write_report(source, parsed.out / REPORT, title=Path(parsed.input).name)
    return summary


def tell(parsed: argparse.Namespace, summary: dict[str, Any]) -> None:
    """Print a summary, in words or as JSON."""
    print(json.dumps(summary, indent=2) if parsed.json else _told(summary, parsed.out))


def _told(summary: dict[str, Any], out: Path) -> str:
    """Return a summary in words."""
    alpha = "" if summary["mean_alpha"] is None else f", mean α {summary['mean_alpha']:.3f}"
    events = ", ".join(
        f"{count} {kind}" for kind, count in summary["events"].items() if kind != "continuation"
    )
    lines = [
        f"{summary['steps']} steps from {summary['first_time']} to {summary['last_time']}, "
        f"{summary['objects']} objects, {summary['clusters_last']} clusters at the end{alpha}",
        f"events: {events or 'none'}",
        f"in {out}: {', '.join(name for key, name in summary['files'].items() if key != 'state')}",
    ]
    if "state" in summary["files"]:
        lines.append(f"checkpoint: {summary['files']['state']}")
    if not summary["finished"]:
        lines.append("stopped before the end; the same command with --resume goes on")
    return "\n".join(lines)
