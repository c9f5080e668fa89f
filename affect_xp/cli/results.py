"""The results of `affect-xp run` in a folder: labels, forgetting factors, events, moves, a report, and a
summary.
"""

import csv
import io
import json
import tempfile
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from affect_xp.array.namespace import to_host
from affect_xp.cli.decisions import decisions_of
from affect_xp.cli.libraries import Backend
from affect_xp.cli.options import RunOptions
from affect_xp.display import time_format
from affect_xp.exceptions import InputError
from affect_xp.files import replacing
from affect_xp.models.affect import Affect
from affect_xp.models.smooth import Smoothed
from affect_xp.report import write_report
from affect_xp.report.steps import DescribedStep
from affect_xp.tracking.history import History

SUMMARY = "summary.json"
REPORT = "report.html"

Rows = Iterable[tuple[Any, ...]]
Shown = Callable[[Hashable], str]  # a time as text


def check_unused(options: RunOptions, state: Path) -> None:
    """Raise if there is another run that this one would replace."""
    if options.overwrite or not any(path.exists() for path in (options.out / SUMMARY, state)):
        return
    try:
        finished = json.loads((options.out / SUMMARY).read_text(encoding="utf-8"))["finished"]
    except (OSError, ValueError, KeyError, TypeError):
        finished = False
    what = "a run that was stopped; add --resume to continue, or --overwrite to start again"
    if finished:
        what = "a finished run; give another --out, --overwrite to replace it, or --resume to add new steps"
    raise InputError(f"{options.out} contains {what}")


def summary_of(
    input: str, backend: Backend, source: Affect | Smoothed, *, finished: bool, seconds: float
) -> dict[str, Any]:
    """Return what is known of a run except its results."""
    return {
        "input": input,
        "finished": finished,
        "seconds": seconds,
        "backend": backend.name,
        "device": None if backend.device is None else str(backend.device),
        "model": repr(source),
        "decided": decisions_of(source if isinstance(source, Affect) else source.causal),
        "files": {"report": REPORT},
    }


def write_all(
    options: RunOptions,
    input: str,
    source: Any,
    history: History,
    summary: dict[str, Any],
    steps: list[DescribedStep] | None = None,
) -> dict[str, Any]:
    """Write the report, the tables and the summary, and return the summary with the names of the files."""
    write_report(source, options.out / REPORT, steps=steps, title=Path(input).name)
    shown = time_format(history.times)
    write = {"csv": _write_csv, "parquet": _write_parquet}[options.format]
    files = {name: f"{name}.{options.format}" for name in TABLES}
    for name, (columns, rows) in TABLES.items():
        write(options.out / files[name], columns, rows(history, shown))
    files = {**summary["files"], **files, "summary": SUMMARY}
    summary = {**summary, **_counts(history, shown), "files": files}
    with replacing(options.out / SUMMARY) as file:
        file.write(f"{json.dumps(summary, indent=2)}\n".encode())
    return summary


def _label_rows(history: History, shown: Shown) -> Rows:
    """Yield (time, id, cluster) of each object at each step."""
    for record in history:
        labels = to_host(record.labels, reason="labels as a table")[0].tolist()
        yield from (
            (shown(record.time), str(name), label) for name, label in zip(record.ids, labels, strict=True)
        )


def _alpha_rows(history: History, shown: Shown) -> Rows:
    """Yield (step, time, n, k, alpha, n_iter) of each step."""
    for t, record in enumerate(history):
        yield t, shown(record.time), record.n, record.k, record.alpha, record.n_iter


def _event_rows(history: History, shown: Shown) -> Rows:
    """Yield what happened to the clusters, except continuations."""
    for record in history:
        for event in record.events:
            if event.kind != "continuation":
                before, after = (" ".join(map(str, names)) for names in (event.before, event.after))
                numbers = (event.n_common, event.size_before, event.size_after)
                yield shown(record.time), event.kind, before, after, *numbers, str(event)


def _move_rows(history: History, shown: Shown) -> Rows:
    """Yield (time, id, from, to, probability) of each object that moved."""
    for time, name, before, after, probability in history.moves():
        yield shown(time), str(name), before, after, probability


# The columns of each table, and the function that yields its rows.
TABLES: dict[str, tuple[tuple[str, ...], Callable[[History, Shown], Rows]]] = {
    "labels": (("time", "id", "cluster"), _label_rows),
    "alpha": (("step", "time", "n", "k", "alpha", "n_iter"), _alpha_rows),
    "events": (
        ("time", "event", "before", "after", "n_common", "size_before", "size_after", "text"),
        _event_rows,
    ),
    "moves": (("time", "id", "from", "to", "probability"), _move_rows),
}


def _counts(history: History, shown: Shown) -> dict[str, Any]:
    kinds = [event.kind for record in history for event in record.events]
    alphas = [record.alpha for record in history][1:]  # the first step has no past
    return {
        "steps": len(history),
        "objects": len({name for record in history for name in record.ids}),
        "first_time": shown(history[0].time) if len(history) else None,
        "last_time": shown(history[-1].time) if len(history) else None,
        "clusters_last": history[-1].k if len(history) else None,
        "mean_alpha": sum(alphas) / len(alphas) if alphas else None,
        "events": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
    }


def _write_csv(path: Path, columns: tuple[str, ...], rows: Rows) -> None:
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(rows)
        text.flush()
        text.detach()


def _write_parquet(path: Path, columns: tuple[str, ...], rows: Rows) -> None:
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    table = {name: np.array(column) for name, column in zip(columns, values, strict=True)}
    with tempfile.TemporaryDirectory() as folder, check_duckdb().connect() as connection:
        written = Path(folder, path.name)
        connection.register("result", table)
        connection.execute("COPY result TO $1 (FORMAT parquet)", [str(written)])
        with replacing(path) as file:
            file.write(written.read_bytes())


def check_duckdb() -> Any:
    """Return the module that writes Parquet files, if it is installed."""
    try:
        import duckdb
    except ImportError as error:
        raise InputError("Parquet files need DuckDB: pip install 'affect_xp[io]'") from error
    return duckdb


def print_summary(options: RunOptions, summary: dict[str, Any]) -> None:
    """Print a summary, in words or as JSON."""
    print(json.dumps(summary, indent=2) if options.json else _in_words(summary, options.out))


def _in_words(summary: dict[str, Any], out: Path) -> str:
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
        lines.append("stopped before the end; the same command with --resume continues")
    return "\n".join(lines)
