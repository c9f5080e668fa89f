"""What `affect-xp run` leaves in a folder: labels, forgetting factors, events, and a summary."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from affect_xp.array.namespace import to_host
from affect_xp.exceptions import InputError
from affect_xp.plots.times import time_format
from affect_xp.tracking.history import History

FORMATS = ("csv", "parquet")
SUMMARY = "summary.json"

Rows = Iterable[tuple[Any, ...]]


def write_results(
    history: History, folder: Path, summary: dict[str, Any], format: str = "csv"
) -> dict[str, Any]:
    """Write the tables and the summary of a run, and return the summary with the names of the files."""
    tables: dict[str, tuple[tuple[str, ...], Rows]] = {
        "labels": (("time", "id", "cluster"), label_rows(history)),
        "alpha": (("step", "time", "n", "k", "alpha", "n_iter"), alpha_rows(history)),
        "events": (
            ("time", "event", "before", "after", "n_common", "size_before", "size_after", "text"),
            event_rows(history),
        ),
    }
    write = {"csv": _write_csv, "parquet": _write_parquet}[format]
    files = {}
    for name, (columns, rows) in tables.items():
        path = folder / f"{name}.{format}"
        write(path, columns, rows)
        files[name] = path.name
    summary = {
        **summary,
        **_counts(history),
        "files": {**summary.get("files", {}), **files, "summary": SUMMARY},
    }
    _replace(
        folder / SUMMARY, lambda path: path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    )
    return summary


def label_rows(history: History) -> Rows:
    """Yield (time, id, cluster) of each object at each step."""
    shown = time_format(history.times)
    for record in history:
        labels = to_host(record.labels, reason="labels as a table")[0].tolist()
        yield from (
            (shown(record.time), str(name), label) for name, label in zip(record.ids, labels, strict=True)
        )


def alpha_rows(history: History) -> Rows:
    """Yield (step, time, n, k, alpha, n_iter) of each step."""
    shown = time_format(history.times)
    for t, record in enumerate(history):
        yield t, shown(record.time), record.n, record.k, record.alpha, record.n_iter


def event_rows(history: History) -> Rows:
    """Yield what happened to the clusters, but for those that just went on."""
    shown = time_format(history.times)
    for record in history:
        for event in record.events:
            if event.kind != "continuation":
                before, after = (" ".join(map(str, names)) for names in (event.before, event.after))
                numbers = (event.n_common, event.size_before, event.size_after)
                yield shown(record.time), event.kind, before, after, *numbers, str(event)


def _counts(history: History) -> dict[str, Any]:
    shown = time_format(history.times)
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
    def write(target: Path) -> None:
        with target.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)

    _replace(path, write)


def _write_parquet(path: Path, columns: tuple[str, ...], rows: Rows) -> None:
    pyarrow, parquet = check_parquet()
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    table = pyarrow.table({name: list(values) for name, values in zip(columns, by_column, strict=True)})
    _replace(path, lambda target: parquet.write_table(table, target))


def check_parquet() -> tuple[Any, Any]:
    """Return the modules that write Parquet files, if they are here."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'affect_xp[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, then put it there: a reader finds the old one or the new one, whole."""
    beside = path.with_name(f".{path.name}.part")
    write(beside)
    beside.replace(path)
