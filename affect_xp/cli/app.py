"""The commands with their options; what a command does is imported when it runs."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter
from cyclopts.exceptions import MissingArgumentError, UnusedCliTokensError
from cyclopts.types import NonNegativeInt, PositiveInt
from rich.console import Console

import affect_xp
from affect_xp.cli.options import ModelOptions, RunOptions, TableOptions, suggestion
from affect_xp.cli.terminal import is_closed_pipe, note, robust_output
from affect_xp.exceptions import AffectError
from affect_xp.experiments import EXPERIMENTS, Options

app = App(
    name="affect-xp",
    help="Adaptive evolutionary clustering (AFFECT): cluster objects that change over time.",
    help_epilogue="`affect-xp COMMAND --help` lists the options of a command.",
    help_format="plaintext",
    version=affect_xp.__version__,
    default_parameter=Parameter(negative="", show_default=lambda value: None if value is False else value),
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command(help="Install the completion of bash, zsh or fish.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 1 failed, 2 wrong arguments, 130 interrupted."""
    code = 0
    with robust_output():
        try:
            code = _call(sys.argv[1:] if arguments is None else arguments)
        except CycloptsError as error:
            note(_message(error))
            code = 2
        except MemoryError as error:
            note(f"out of memory ({error}); `affect-xp doctor` shows how much fits")
            code = 1
        except KeyboardInterrupt as interrupt:
            note(" ".join(["interrupted", *interrupt.args]))
            code = 130
        except AffectError as error:
            note(str(error))
            code = 1
        except OSError as error:
            if not is_closed_pipe(error):
                note(str(error))
                code = 1
    return code


def _message(error: CycloptsError) -> str:
    """Return the message for wrong arguments, in one line."""
    name = (error.command_chain or [""])[0]
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return f"affect-xp {name} needs {error.argument.names[0]}; `affect-xp {name} --help` describes it"
    if not isinstance(error, UnusedCliTokensError):
        return " ".join(str(error).split())
    words = error.unused_tokens or [""]
    arguments = (app[name] if name else app).assemble_argument_collection()
    meant = suggestion(f"--{words[0]}", [option for argument in arguments for option in argument.names])
    several = ". To read several files, quote a pattern such as '2024-*.csv'" if name == "run" else ""
    return f"affect-xp {name} does not take {' '.join(words)!r}{meant or several}"


def _call(arguments: Sequence[str]) -> int:
    app.help_formatter = "default" if sys.stdout.isatty() else "plain"
    app.console = None if sys.stdout.isatty() else Console(width=1000)  # no line breaks in a pipe
    code = app(
        list(arguments), print_error=False, exit_on_error=False, verbose=False, result_action="return_value"
    )
    return int(code or 0)


@app.command
def demo(*, seed: NonNegativeInt = 0, out: Path = Path("affect-xp-demo.png")) -> int:
    """Cluster a simulated example and draw a picture.

    Parameters
    ----------
    seed
        The seed of the simulation.
    out
        The picture.
    """
    from affect_xp.cli.demo import show

    return show(seed, out)


RUNNING = RunOptions()


@app.command
def run(
    input: str,
    /,
    *,
    model: Annotated[ModelOptions, Parameter(name="*", group="Clustering")],
    reading: Annotated[TableOptions | None, Parameter(name="*", group="Reading")] = None,
    running: Annotated[RunOptions, Parameter(name="*", group="Running")] = RUNNING,
) -> int:
    """Cluster a file of features, edges, series or matrices over time.

    The columns of the file are one of

      features   time, id, and a column for each feature
      edges      time, source, target, and optionally a weight
      series     time, and a column for each object, such as prices

    as .csv, .tsv, .txt, .jsonl (also .gz, .zst) or .parquet, or a quoted pattern such as '2024-*.csv'; or it
    contains matrices over time as .npy, .npz or .mat.
    The names of the columns decide which it is, or --kind does. The only column of texts contains the ids, if
    no column is named as such.

    The results are labels.csv (time, id, cluster), alpha.csv (how much each step trusts the past), events.csv
    (what happened to the clusters), moves.csv (who changed the cluster), report.html for a browser,
    summary.json, and model.affect, from which --resume continues.

    Parameters
    ----------
    input
        The file.
    """
    from affect_xp.cli.run import run_file

    return run_file(input, reading or TableOptions(), model, running)


app["run"].help_epilogue = """\
Examples:

  affect-xp run prices.csv --freq "15 rows" --changes relative --standardize -k 12 --out stocks
  affect-xp run contacts.csv --freq 7D --method spectral -k modularity --out weeks
  affect-xp run features.parquet --freq 1M --aggregate mean --method linkage -k 4 --out months

Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 stopped with Ctrl-C (--resume continues)."""


@dataclasses.dataclass(frozen=True)
class Reproduction(Options):
    """How often, and where the results go.

    Parameters
    ----------
    runs
        The number of repetitions. By default that of the paper.
    seed
        The seed of all random numbers.
    jobs
        The number of processes.
    data
        The folder with reality.npz and nasdaq2008.npz.
    quick
        A few repetitions, to have a look.
    out
        The folder for reports and figures.
    resume
        Skip experiments with a report in this folder.
    """

    runs: PositiveInt | None = None
    seed: NonNegativeInt = 0
    jobs: PositiveInt = 1
    show: Annotated[bool, Parameter(parse=False)] = True
    quick: bool = False
    out: Path = Path("affect-xp-results")
    resume: bool = False


REPRODUCTION = Reproduction()


@app.command
def reproduce(
    name: Literal[(*EXPERIMENTS, "all")],  # type: ignore[valid-type]
    /,
    *,
    options: Annotated[Reproduction, Parameter(name="*")] = REPRODUCTION,
) -> int:
    """Re-run the experiments of the paper and compare with the published numbers.

    Parameters
    ----------
    name
        The experiment, or all.
    """
    if options.quick and options.runs is not None:
        raise CycloptsError("--quick chooses the number of runs; leave out --quick or --runs")
    from affect_xp.cli.reproduce import reproduce

    return reproduce(name, options)


app["reproduce"].help_epilogue = "\n".join(
    ["Experiments:", ""]
    + [f"  {name:15} {experiment.title}" for name, experiment in EXPERIMENTS.items()]
    + [f"  {'all':15} every one whose data is there"]
)


@app.command
def bench(
    *,
    quick: bool = False,
    tiny: bool = False,
    only: list[str] | None = None,
    threads: PositiveInt = 2,
    device: Literal["cpu", "cuda"] = "cpu",
    out: Path = Path("affect-xp-bench"),
    mine: bool = False,
) -> int:
    """Measure speed and memory here, against other libraries.

    Parameters
    ----------
    quick
        Smaller sizes: two minutes on two processors.
    tiny
        Shows that it runs, not how fast.
    only
        One workload; may be repeated.
    threads
        The number of threads of all libraries.
    device
        cuda: CuPy arrays on a GPU.
    out
        The folder for results.json, results.md and pictures.
    mine
        Print only the time and memory of a step here, for n = 1,000 to 1,000,000.
    """
    from affect_xp.cli.bench import suite
    from affect_xp.cli.how_long import report
    from affect_xp.cli.libraries import host_memory

    if mine:
        print(report(host_memory()))
        return 0

    benchmarks = suite()
    for name in only or ():
        if name not in benchmarks.NAMES:
            known = ", ".join(benchmarks.NAMES)
            raise CycloptsError(f"--only {name} must be one of {known}{suggestion(name, benchmarks.NAMES)}")
    return benchmarks.measure("tiny" if tiny else "quick" if quick else "full", only, threads, device, out)


@app.command
def doctor(
    *,
    require: list[Literal["numpy", "cupy", "torch", "dask", "strict"]] | None = None,
    json: bool = False,
    gpu: bool = False,
    gpu_file: Path = Path("gpu-check.json"),
) -> int:
    """Show which array libraries and devices work here, and how much fits.

    Run the core on each array library that is installed, compare it with NumPy, and say what works, how large
    the data may be, and what to install. The exit code is 1 if a result is wrong.

    Parameters
    ----------
    require
        Also fail unless this library works; may be repeated.
    json
        Print JSON.
    gpu
        Compare everything on the GPU with NumPy instead, and write all that is found to a file.
    gpu_file
        The file of --gpu.
    """
    from affect_xp.cli.doctor import check_gpu, diagnose

    return check_gpu(gpu_file) if gpu else diagnose(require or [], as_json=json)
