"""`affect-xp run`: from a file to clusters over time."""

import argparse
import contextlib
import dataclasses
import json
import re
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from affect_xp.affect.absence import ABSENT
from affect_xp.cli.decisions import (
    METHODS,
    absent_of,
    check_rule,
    decisions_of,
    methods_by_rule,
    scale_of,
    told,
)
from affect_xp.cli.libraries import BACKENDS, Backend, open_backend
from affect_xp.cli.results import FORMATS, SUMMARY, check_parquet
from affect_xp.cli.summary import summary_of, tell, write_all
from affect_xp.cli.terminal import StepProgress, StopBetweenSteps, plain_warnings
from affect_xp.exceptions import AffectError, InputError, InputWarning
from affect_xp.io import Snapshot, Steps, read_steps
from affect_xp.models.affect import Affect
from affect_xp.models.smooth import smooth
from affect_xp.plots.times import time_format
from affect_xp.proximity.kernels import KERNELS
from affect_xp.proximity.preparation import SCALES
from affect_xp.proximity.transforms import TRANSFORMS

USUAL_METHOD = {"features": "kmeans", "edges": "spectral", "proximities": "spectral"}
USUAL_PROXIMITY = {"kmeans": "dot", "spectral": "rbf", "linkage": "euclidean"}

# The arguments of `read_steps` that are options here, with the same names.
ARGUMENTS = (
    *("kind", "freq", "time", "id", "source", "target", "weight", "value", "features", "names"),
    *("time_format", "origin", "encoding", "decimal", "missing", "aggregate", "directed", "changes"),
    *("standardize", "dtype", "memory_limit"),
)

# Arguments of `Affect` that are options here, with the same names.
OF_MODEL = ("scale", "rescale")

# Options of one method alone: the name on the command line, and that of the clusterer.
OF_METHOD = {
    "n_init": ("n_init", ("kmeans", "spectral")),
    "objective": ("objective", ("spectral",)),
    "linkage": ("method", ("linkage",)),
}

DESCRIPTION = """\
Cluster objects that are observed over time, and follow the clusters.

INPUT is a file that holds one of
  features   time, id, and a column for each feature
  edges      time, source, target, and perhaps a weight
  series     time, and a column for each object, such as prices
as .csv, .tsv, .txt, .jsonl (also .gz, .zst) or .parquet, or a quoted pattern such as '2024-*.csv'; or
matrices over time as .npy, .npz or .mat.
The names of the columns tell which it is, or --kind does.

DIR gets labels.csv (time, id, cluster), alpha.csv (how far each step trusts the past), events.csv
(what happened to the clusters), report.html to look at all of it in a browser, summary.json, and
model.affect, from which --resume goes on. With --offline each step is estimated from the steps after it, too,
and there is no model.affect."""

EXAMPLES = """\
examples:
  affect-xp run prices.csv --freq "15 rows" --changes relative --standardize -k 12 --out stocks
  affect-xp run contacts.csv --freq 7D --method spectral -k modularity --out weeks
  affect-xp run features.parquet --freq 1M --aggregate mean --method linkage -k 4 --out months

exit codes: 0 done, 1 failed, 2 wrong arguments, 130 stopped with Ctrl-C (--resume goes on)"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Tell the parser about the command."""
    command = commands.add_parser(
        "run",
        usage="affect-xp run INPUT -k K [--freq 7D] [--method METHOD] [--out DIR] [option ...]",
        help="cluster a file of features, edges, series or matrices over time",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("input", metavar="INPUT", help="the file")
    command.add_argument(
        "--out", type=Path, default=Path("affect-xp-run"), metavar="DIR", help="(default: affect-xp-run)"
    )
    _add_reading(command.add_argument_group("reading"))
    _add_clustering(command.add_argument_group("clustering"))
    _add_running(command.add_argument_group("running"))
    command.set_defaults(run=_run)


def _add_reading(group: Any) -> None:
    group.add_argument(
        "--kind", default="auto", choices=["auto", "features", "edges", "series", "proximities"]
    )
    group.add_argument(
        "--freq", help="length of a step: 7D, 12h, 1M, '15 rows', or a number (default: each time)"
    )
    for name in ("time", "id", "source", "target", "weight"):
        group.add_argument(f"--{name}", metavar="COLUMN", help=f"the column of {name}s")
    group.add_argument("--value", metavar="COLUMN", help="of a tidy table of series: time, id, value")
    group.add_argument("--features", type=_listed, metavar="COLUMN,...", help="the columns of features")
    group.add_argument(
        "--names", type=_listed, metavar="NAME,...", help="of the columns, if the file has none"
    )
    group.add_argument("--time-format", metavar="FORMAT", help="of dates, such as %%d/%%m/%%Y")
    group.add_argument("--origin", help="where windows start")
    group.add_argument("--encoding", help="of a text file (default: utf-8)")
    group.add_argument("--decimal", default=".", choices=[".", ","], help="the decimal point (default: .)")
    group.add_argument(
        "--directed", choices=["sum", "mean", "max"], help="what to make of links that lead both ways"
    )
    group.add_argument("--memory-limit", help="for reading, such as 2GB (default: 80 %% of the memory)")
    group.add_argument(
        "--missing", default="error", choices=["error", "drop"], help="values that are missing"
    )
    group.add_argument(
        "--aggregate",
        default="error",
        choices=["error", "mean", "sum", "last"],
        help="several rows of an object in a step",
    )
    group.add_argument(
        "--changes", choices=["absolute", "relative", "log"], help="of series, from row to row"
    )
    group.add_argument("--standardize", action="store_true", help="series: dot products become correlations")
    group.add_argument("--dense", action="store_true", help="edges as full matrices, not sparse ones")
    group.add_argument("--dtype", default="float64", choices=["float64", "float32"])


def _add_clustering(group: Any) -> None:
    group.add_argument("--method", choices=list(METHODS), help="(default: kmeans, of graphs spectral)")
    group.add_argument(
        "-k",
        type=_clusters,
        required=True,
        help="clusters: a number, one for each step (3,3,4), or a rule: "
        + ", ".join(f"{rule} ({', '.join(methods)})" for rule, methods in methods_by_rule().items()),
    )
    group.add_argument("--max-clusters", type=int, default=10, help="that a rule may choose (default: 10)")
    group.add_argument(
        "--proximity", choices=list(KERNELS), help="of features (default: dot, rbf or euclidean, by method)"
    )
    group.add_argument(
        "--scale",
        choices=SCALES,
        help="columns of features, by the first step (default: standard; with cosines, and dot products that "
        "are cut, auto)",
    )
    group.add_argument(
        "--rescale",
        default="auto",
        choices=("auto", "none", *TRANSFORMS),
        help="proximities before they are tracked (default: auto, log1p for skewed counts)",
    )
    group.add_argument(
        "--absent",
        choices=ABSENT,
        help="objects that are away: forget, or keep their past until they return (default: of edges keep, "
        "otherwise forget)",
    )
    group.add_argument(
        "--max-absence", type=int, default=10, metavar="STEPS", help="that --absent keep allows (default: 10)"
    )
    group.add_argument("--objective", help="of spectral: normalized_cut, ratio_cut or average_association")
    group.add_argument("--linkage", help="single, complete or average")
    group.add_argument("--n-init", type=int, help="starts of kmeans and spectral at each step")
    group.add_argument(
        "--alpha", type=_alpha, default="estimate", help="estimate (the default), or fixed, 0 to 1"
    )
    group.add_argument("--n-iter", type=int, default=3, help="iterations of a step (default: 3)")
    group.add_argument(
        "--offline", action="store_true", help="hindsight: estimate a step from those after it, too"
    )
    group.add_argument("--seed", type=int, default=0, help="of random numbers (default: 0)")


def _add_running(group: Any) -> None:
    group.add_argument(
        "--backend", default="numpy", choices=BACKENDS, help="where to compute (default: numpy)"
    )
    group.add_argument("--device", help="such as cuda:0 (default: the first GPU the backend has)")
    group.add_argument(
        "--state", type=Path, metavar="FILE", help="the checkpoint (default: DIR/model.affect)"
    )
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    group.add_argument("--overwrite", action="store_true", help="start anew where a run was stopped")
    group.add_argument("--save-every", type=float, default=60, metavar="SECONDS", help="(default: 60)")
    group.add_argument("--format", default="csv", choices=FORMATS, help="of the tables (default: csv)")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress")


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _clusters(text: str) -> int | list[int] | str:
    """Read "12", "3,3,4" or the name of a rule."""
    parts = _listed(text)
    if all(part.lstrip("-").isdecimal() for part in parts):
        return int(text) if len(parts) == 1 else [int(part) for part in parts]
    return text


def _alpha(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _run(parsed: argparse.Namespace) -> int:
    if parsed.format == "parquet":
        check_parquet()
    if parsed.offline:
        _check_offline(parsed)
    with _options_named(), warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the notes, which are printed, have it
        steps = _read(parsed)
    model = _model(parsed, steps)
    model.clusterer.check()
    backend = open_backend(parsed.backend, parsed.device)
    parsed.out.mkdir(parents=True, exist_ok=True)
    if parsed.offline:
        return _run_offline(parsed, steps, model, backend)
    state = parsed.state or parsed.out / "model.affect"
    state.parent.mkdir(parents=True, exist_ok=True)
    if parsed.resume and state.exists():
        model = _resumed(state, model, backend)
        _note(parsed, f"going on after {model.n_steps_} steps in {state}")
    else:
        _check_overwriting(parsed)
    run = _Run(parsed, steps, model, backend, state)
    with plain_warnings(as_options):
        return run.go()


def _check_offline(parsed: argparse.Namespace) -> None:
    """Raise at options that have no meaning in hindsight."""
    given = {"--state": parsed.state, "--resume": parsed.resume, "--alpha": parsed.alpha != "estimate"}
    for option, value in given.items():
        if value:
            reason = "estimates all weights" if option == "--alpha" else "keeps no checkpoint"
            raise InputError(f"--offline takes all steps together and {reason}; leave out {option}")


def _run_offline(parsed: argparse.Namespace, steps: Steps, model: Affect, backend: Backend) -> int:
    """Smooth the whole record, write the results, and return the exit code."""
    _check_overwriting(parsed)
    started = time.monotonic()
    progress = StepProgress(steps.n_steps, 0, quiet=parsed.quiet)
    with _options_named(), plain_warnings(as_options), progress:
        record = [dataclasses.replace(step, values=backend.put(step.values)) for step in steps]
        _check_any(parsed, len(record))
        found = smooth(
            record,
            callback=lambda done: progress.show(done, time_format([done.time])(done.time)),
            **model.get_params(deep=False),
        )
    summary = summary_of(parsed, backend, found, finished=True, started=started)
    _tell_decisions(parsed, steps, found.causal)
    summary["mean_weights"] = dict(zip(("past", "future"), found.weights.mean(axis=0).tolist(), strict=True))
    tell(parsed, write_all(parsed, found, summary))
    return 0


def _check_any(parsed: argparse.Namespace, n_steps: int) -> None:
    if n_steps == 0:
        raise InputError(f"{parsed.input} holds no steps; it has no rows, or all were left out")


def _read(parsed: argparse.Namespace) -> Steps:
    options = {name: getattr(parsed, name) for name in ARGUMENTS}
    # Only SciPy and CuPy have sparse matrices.
    return read_steps(parsed.input, sparse=not parsed.dense and parsed.backend != "torch", **options)


def _model(parsed: argparse.Namespace, steps: Steps) -> Affect:
    """Return the model asked for, with what suits the input where nothing was said."""
    kind = steps.kind
    method = parsed.method or USUAL_METHOD[kind]
    check_rule(parsed.k, method)
    options = {"max_clusters": parsed.max_clusters}
    for option, (name, methods) in OF_METHOD.items():
        value = getattr(parsed, option)
        if value is not None and method not in methods:
            flag = f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} is for --method {' or '.join(methods)}, not {method}; leave it out")
        if value is not None:
            options[name] = value
    proximity = parsed.proximity or USUAL_PROXIMITY[method]
    if kind != "features":
        if parsed.proximity is not None:
            raise InputError(f"--proximity is for features, but {parsed.input} holds {kind}; leave it out")
        if kind == "edges" and method == "linkage":
            raise InputError(
                "linkage takes dissimilarities, but edges are similarities; use --method spectral"
            )
        proximity = "precomputed"
    return Affect(
        METHODS[method](parsed.k, **options),
        proximity=proximity,
        scale=scale_of(parsed, steps, method, proximity),
        rescale=None if parsed.rescale == "none" else parsed.rescale,
        absent=absent_of(parsed, steps),
        max_absence=parsed.max_absence,
        n_iter=parsed.n_iter,
        alpha=parsed.alpha,
        random_state=parsed.seed,
    )


def _check_overwriting(parsed: argparse.Namespace) -> None:
    """Raise if the folder holds a run that was stopped, which would be lost."""
    try:
        stopped = json.loads((parsed.out / SUMMARY).read_text(encoding="utf-8"))["finished"] is False
    except (OSError, ValueError, KeyError, TypeError):
        return
    if stopped and not parsed.overwrite:
        raise InputError(
            f"{parsed.out} holds a run that was stopped; add --resume to go on, or --overwrite to start anew"
        )


def _resumed(state: Path, asked: Affect, backend: Backend) -> Affect:
    """Return the model of a checkpoint, if it is of the kind asked for."""
    from affect_xp.persistence import load

    model = load(state, xp=backend.xp, device=backend.device)
    if not isinstance(model, Affect):
        raise InputError(f"{state} holds {type(model).__name__}, not Affect; give another --state")
    for name, value in asked.get_params().items():
        saved = model.get_params()[name]
        if repr(saved) != repr(value):
            raise InputError(
                f"{state} was made with {name}={saved!r}, but now {name}={value!r} is asked for; "
                "give the same options, or another --out or --state"
            )
    return model


def _note(parsed: argparse.Namespace, text: str) -> None:
    if not parsed.quiet:
        sys.stderr.write(f"affect-xp: {text}\n")


def _tell_decisions(parsed: argparse.Namespace, steps: Steps, model: Affect) -> None:
    for text in (*map(as_options, steps.notes), *told(decisions_of(model), model)):
        _note(parsed, text)


@contextlib.contextmanager
def _options_named() -> Iterator[None]:
    """Name arguments in errors as the command line does: missing='drop' is --missing drop there."""
    try:
        yield
    except InputError as error:
        raise InputError(as_options(str(error))) from error


def as_options(message: str) -> str:
    """Return a message with the options of the command line for the arguments of `read_steps` and `Affect`.

    Examples
    --------
    >>> as_options("give missing='drop', standardize=True, features=['x', 'y'] or id=")
    'give --missing drop, --standardize, --features x,y or --id'
    """

    def option(found: re.Match[str]) -> str:
        name, value = found[1].replace("_", "-"), found[2]
        values = re.findall(r"'([^']*)'", value)
        text = ",".join(values) if values else value.replace("None", "none")
        return f"--{name} {shlex.quote(text)}" if text not in ("", "True") else f"--{name}"

    names = "|".join((*ARGUMENTS, *OF_MODEL))
    return re.sub(rf"\b({names})=(\[[^\]]*\]|'[^']*'|True|None|)", option, message)


@dataclasses.dataclass(eq=False)
class _Run:
    """Takes the steps that are left, saves the model now and then, and writes the results."""

    parsed: argparse.Namespace
    steps: Steps
    model: Affect
    backend: Backend
    state: Path

    def go(self) -> int:
        """Return the exit code; however it ends, what is done by then is kept."""
        started = time.monotonic()
        try:
            with _options_named():
                finished = self._loop()
            _check_any(self.parsed, self.model.n_steps_)
        except BaseException as error:
            if self._kept_nevertheless(started) and isinstance(error, AffectError):
                kept = f"the {self.model.n_steps_} steps before are kept: mend it and add --resume"
                raise InputError(f"{error}; {kept}") from error
            raise
        tell(self.parsed, self._keep(finished, started))
        return 0 if finished else 130

    def _loop(self) -> bool:
        """Take the steps that are left; return whether all are done."""
        done = {str(record.time) for record in getattr(self.model, "history_", ())}
        saved = time.monotonic()
        progress = StepProgress(self.steps.n_steps, self.model.n_steps_, quiet=self.parsed.quiet)
        with progress, StopBetweenSteps() as stop:
            for step in self.steps:
                if str(step.time) in done:
                    continue
                if stop.asked:
                    return False
                self._take(step)
                if self.model.n_steps_ == 1:
                    _tell_decisions(self.parsed, self.steps, self.model)
                progress.show(self.model.history_[-1], time_format([step.time])(step.time))
                if time.monotonic() - saved >= self.parsed.save_every:
                    self._save()
                    saved = time.monotonic()
        return True

    def _kept_nevertheless(self, started: float) -> bool:
        """Keep what was done before a failure, if anything was and can be."""
        if self.model.n_steps_ == 0:
            return False
        try:
            self._keep(False, started)
        except (AffectError, OSError):  # what went wrong first is what to tell
            return False
        return True

    def _take(self, step: Snapshot) -> None:
        self.model.partial_fit(self.backend.put(step.values), step.ids, time=step.time)

    def _save(self) -> None:
        from affect_xp.persistence import save

        save(self.model, self.state)

    def _keep(self, finished: bool, started: float) -> dict[str, Any]:
        """Write the results and the report, save the model, and return the summary."""
        summary = summary_of(self.parsed, self.backend, self.model, finished=finished, started=started)
        summary["files"]["state"] = str(self.state)
        self._save()
        return write_all(self.parsed, self.model, summary)
