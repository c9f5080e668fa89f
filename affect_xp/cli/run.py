"""`affect-xp run`: from a file to clusters over time."""

import contextlib
import dataclasses
import re
import shlex
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from affect_xp.cli.decisions import check_rule, decisions_of, descriptions, scale_of
from affect_xp.cli.libraries import Backend, open_backend
from affect_xp.cli.options import ModelOptions, RunOptions
from affect_xp.cli.results import check_duckdb, check_unused, print_summary, summary_of, write_all
from affect_xp.cli.rows import Rows
from affect_xp.cli.terminal import StopBetweenSteps, note, plain_warnings
from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import Linkage
from affect_xp.clustering.spectral import Spectral
from affect_xp.exceptions import AffectError, InputError, InputWarning
from affect_xp.files import exclusive_use
from affect_xp.io import ReadOptions, Snapshot, Steps, read_steps
from affect_xp.models.affect import Affect
from affect_xp.models.smooth import Smoothed, smooth
from affect_xp.progress import Progress
from affect_xp.report.steps import DescribedStep, describe_step
from affect_xp.tracking.history import History, Record

METHODS: dict[str, Any] = {"kmeans": KMeans, "spectral": Spectral, "linkage": Linkage}
USUAL_METHOD = {"features": "kmeans", "edges": "spectral", "proximities": "spectral"}
USUAL_PROXIMITY = {"kmeans": "dot", "spectral": "rbf", "linkage": "euclidean"}

# Options of some methods: the name in the clusterer, and the methods.
OF_METHOD = {
    "n_init": ("n_init", ("kmeans", "spectral")),
    "objective": ("objective", ("spectral",)),
    "linkage": ("method", ("linkage",)),
}


def run_file(input: str, reading: ReadOptions, options: ModelOptions, running: RunOptions) -> int:
    """Cluster a file, write the results, and return the exit code."""
    if running.format == "parquet":
        check_duckdb()
    if options.offline:
        _check_offline(options, running)
    with _options_named(), plain_warnings(as_options):
        steps = _read(input, reading, running)
        model = model_of(input, steps, options)
        backend = open_backend(running.backend, running.device)
        running.out.mkdir(parents=True, exist_ok=True)
        with exclusive_use(running.out):
            run = _Run(input, steps, model, backend, running)
            return run.offline() if options.offline else run.online()


def _check_offline(options: ModelOptions, running: RunOptions) -> None:
    """Raise if an option has no meaning in hindsight."""
    given = {"--state": running.state, "--resume": running.resume, "--alpha": options.alpha != "estimate"}
    for option, value in given.items():
        if value:
            reason = "estimates all weights" if option == "--alpha" else "keeps no checkpoint"
            raise InputError(f"--offline uses all steps together and {reason}; leave out {option}")


def _read(input: str, reading: ReadOptions, running: RunOptions) -> Steps:
    if running.backend == "torch":  # only SciPy and CuPy have sparse matrices
        reading = dataclasses.replace(reading, sparse=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # it is also a note, which is printed
        return read_steps(input, **dataclasses.asdict(reading))


def model_of(input: str, steps: Steps, options: ModelOptions) -> Affect:
    """Return the model of the options, with what suits the input by default."""
    kind = steps.kind
    method = options.method or USUAL_METHOD[kind]
    check_rule(options.k, method)
    proximity = options.proximity or USUAL_PROXIMITY[method]
    if kind != "features":
        if options.proximity is not None:
            raise InputError(f"--proximity is for features, but {input} contains {kind}; leave it out")
        if kind == "edges" and method == "linkage":
            raise InputError(
                "linkage needs dissimilarities, but edges are similarities; use --method spectral"
            )
        proximity = "precomputed"
    model = Affect(
        METHODS[method](options.k, max_clusters=options.max_clusters, **_of_method(options, method)),
        proximity=proximity,
        scale=scale_of(input, options.scale, steps, method, proximity),
        rescale=None if options.rescale == "none" else options.rescale,
        absent=options.absent or ("keep" if kind == "edges" else "forget"),
        max_absence=options.max_absence,
        n_iter=options.n_iter,
        alpha=options.alpha,
        forgetting=options.forgetting,
        random_state=options.seed,
    )
    model.clusterer.check()
    return model


def _of_method(options: ModelOptions, method: str) -> dict[str, Any]:
    """Return the options of the clusterer; raise if one of another method is given."""
    found = {}
    for option, (name, methods) in OF_METHOD.items():
        value = getattr(options, option)
        if value is not None and method not in methods:
            flag = f"--{option.replace('_', '-')}"
            raise InputError(f"{flag} is for --method {' or '.join(methods)}, not {method}; leave it out")
        if value is not None:
            found[name] = value
    return found


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
        text = ",".join(values) if values else value.strip("[]").replace("None", "none")
        return f"--{name} {shlex.quote(text)}" if text not in ("", "True") else f"--{name}"

    names = "|".join([*(field.name for field in dataclasses.fields(ReadOptions)), "scale", "rescale"])
    return re.sub(rf"\b({names})=(\[[^\]]*\]|'[^']*'|True|None|)", option, message)


@dataclasses.dataclass(eq=False)
class _Run:
    """Takes the steps, saves the model now and then, and writes the results."""

    input: str
    steps: Steps
    model: Affect
    backend: Backend
    options: RunOptions

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.state = self.options.state or self.options.out / "model.affect"
        self.rows = Rows(self.state)
        self.described: dict[str, DescribedStep] = {}  # by time, for the report

    def online(self) -> int:
        """Take the steps that are left and return the exit code; what is done is kept however it ends."""
        self.state.parent.mkdir(parents=True, exist_ok=True)
        if self.options.resume and self.state.exists():
            self.model = _resumed(self.state, self.model, self.backend)
            self.rows.load()
            self._note(f"continuing after {self.model.n_steps_} steps in {self.state}")
        else:
            check_unused(self.options, self.state)
        self._note(*map(as_options, self.steps.notes))
        try:
            finished = self._take_all()
            self._check_any(self.model.n_steps_)
        except BaseException as error:
            if self._kept() and isinstance(error, AffectError):
                kept = f"the {self.model.n_steps_} steps before are kept: correct it and add --resume"
                raise InputError(f"{error}; {kept}") from error
            if isinstance(error, KeyboardInterrupt) and self.model.n_steps_:
                raise KeyboardInterrupt(
                    f"after {self.model.n_steps_} steps, which are kept; --resume continues"
                ) from error
            raise
        print_summary(self.options, self._keep(finished))
        return 0 if finished else 130

    def _take_all(self) -> bool:
        """Take the steps that are left; return whether all are done."""
        done = {str(record.time): record for record in getattr(self.model, "history_", ())}
        saved = time.monotonic()
        progress = Progress(self.steps.n_steps, done=len(done), show=not self.options.quiet)
        with progress, StopBetweenSteps() as stop:
            for step in self.steps:
                if str(step.time) in done:
                    self.rows.check(step, self.input)
                    self._describe(self.model, done[str(step.time)], self.backend.put(step.values))
                    continue
                if stop.asked:
                    return False
                self._take(step)
                if self.model.n_steps_ == 1:
                    self._note(*descriptions(decisions_of(self.model), self.model))
                progress.advance(str(self.model.history_[-1]))
                if time.monotonic() - saved >= self.options.save_every:
                    self._save()
                    saved = time.monotonic()
        return True

    def _take(self, step: Snapshot) -> None:
        values = self.backend.put(step.values)
        self.model.partial_fit(values, step.ids, time=step.time)
        self.rows.add(step)
        self._describe(self.model, self.model.history_[-1], values)

    def _describe(self, model: Affect, record: Record, values: Any) -> None:
        """Keep the few numbers that the report shows of a step."""
        self.described[str(record.time)] = describe_step(
            model, record, values, feature_names=self.steps.names or None, of_series=self.steps.of_series
        )

    def _descriptions(self, history: History) -> list[DescribedStep] | None:
        """Return the described steps of a history; None if some are missing, as with a file of new steps."""
        found = [self.described.get(str(record.time)) for record in history]
        return None if None in found else found  # type: ignore[return-value]

    def _kept(self) -> bool:
        """Keep what was done before a failure; return whether that was possible."""
        if self.model.n_steps_ == 0:
            return False
        try:
            self._keep(False)
        except (AffectError, OSError):  # the first error is reported
            return False
        return True

    def _save(self) -> None:
        from affect_xp.persistence import save

        self.rows.save()  # first: a checkpoint never has steps whose rows are unknown
        save(self.model, self.state)

    def _keep(self, finished: bool) -> dict[str, Any]:
        """Save the model, write the results and the report, and return the summary."""
        self._save()
        summary = self._summary(self.model, finished)
        summary["files"]["state"] = str(self.state)
        steps = self._descriptions(self.model.history_)
        return write_all(self.options, self.input, self.model, self.model.history_, summary, steps)

    def offline(self) -> int:
        """Smooth all steps, write the results, and return the exit code."""
        check_unused(self.options, self.state)
        self._note(*map(as_options, self.steps.notes))
        steps = [dataclasses.replace(step, values=self.backend.put(step.values)) for step in self.steps]
        self._check_any(len(steps))
        history, parameters = History(), self.model.get_params(deep=False)
        try:
            found = smooth(steps, verbose=not self.options.quiet, callback=history.append, **parameters)
        except KeyboardInterrupt as interrupt:
            if len(history):
                write_all(self.options, self.input, history, history, self._summary(self.model, False))
            raise KeyboardInterrupt(
                f"after {len(history)} of {len(steps)} steps, whose results are in {self.options.out}; "
                "--offline uses all steps together: run it again with --overwrite"
            ) from interrupt
        summary = self._summary(found, True)
        self._note(*descriptions(decisions_of(found.causal), found.causal))
        summary["mean_weights"] = dict(
            zip(("past", "future"), found.weights.mean(axis=0).tolist(), strict=True)
        )
        for record, step in zip(found.history_, steps, strict=True):
            self._describe(found.causal, record, step.values)
        described = self._descriptions(found.history_)
        written = write_all(self.options, self.input, found, found.history_, summary, described)
        print_summary(self.options, written)
        return 0

    def _summary(self, source: Affect | Smoothed, finished: bool) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.started, 3)
        return summary_of(self.input, self.backend, source, finished=finished, seconds=seconds)

    def _check_any(self, n_steps: int) -> None:
        if n_steps == 0:
            raise InputError(f"{self.input} contains no steps; it has no rows, or all were left out")

    def _note(self, *texts: str) -> None:
        for text in () if self.options.quiet else texts:
            note(text)


def _resumed(state: Path, asked: Affect, backend: Backend) -> Affect:
    """Return the model of a checkpoint, if it is of the kind asked for."""
    from affect_xp.persistence import load

    model = load(state, xp=backend.xp, device=backend.device)
    if not isinstance(model, Affect):
        raise InputError(f"{state} contains {type(model).__name__}, not Affect; give another --state")
    for name, value in asked.get_params().items():
        saved = model.get_params()[name]
        if repr(saved) != repr(value):
            raise InputError(
                f"{state} was made with {name}={saved!r}, but now {name}={value!r} is asked for; "
                "give the same options, or another --out or --state"
            )
    return model
