"""The command line."""

import json
import os
import select
import shutil
import subprocess
import sys
import typing

import pytest

import affect_xp as ax
from affect_xp import experiments
from affect_xp.affect.absence import ABSENT
from affect_xp.cli import libraries, main, options, run
from affect_xp.cli.app import app
from affect_xp.clustering.linkage import METHODS
from affect_xp.clustering.spectral import OBJECTIVES
from affect_xp.experiments import EXPERIMENTS, Claim, Entry, Measured, Report, Table
from affect_xp.proximity.kernels import KERNELS
from affect_xp.proximity.preparation import SCALES
from affect_xp.proximity.transforms import TRANSFORMS


def command(*arguments, code=0, **options):
    """Run the command in a new process, with pipes instead of a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "affect_xp", *arguments], capture_output=True, text=True, **options
    )
    assert done.returncode == code, done.stderr
    return done


def test_demo(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "demo.png"
    assert main(["demo", "--out", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "Rand AFFECT" in out and "mean" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_where_nothing_can_be_written(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert main(["demo", "--out", str(tmp_path / "missing" / "demo.png")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("affect-xp: ") and "Traceback" not in error


def test_as_a_module():
    out = subprocess.run(
        [sys.executable, "-m", "affect_xp", "--version"], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == ax.__version__


@pytest.mark.parametrize(
    "arguments, suggested",
    [
        (["rnu", "x.csv", "-k", "2"], 'Did you mean "run"?'),
        (["run", "x.csv", "-k", "2", "--fre", "7D"], "Did you mean --freq?"),
        (["run", "x.csv", "-k", "2", "--method", "kmean"], 'Did you mean "kmeans"?'),
        (["run", "x.csv", "-k", "modularty"], 'Did you mean "modularity"?'),
        (
            ["run", "x.csv", "y.csv", "-k", "2"],
            "affect-xp run does not take 'y.csv'. To read several files, quote",
        ),
        (["demo", "sed", "3"], "affect-xp demo does not take 'sed 3'. Did you mean \"--seed\"?"),
        (["reproduce", "boid"], 'Did you mean "boids"?'),
        (["run", "x.csv", "-k", "2", "--freq", "7X"], "--freq: freq='7X' is not understood; pass a number"),
        (["run", "x.csv", "-k", "2", "--alpha", "2"], "--alpha. Must be estimate, or from 0 to 1"),
        (["run", "x.csv", "-k", "3,0"], "-k 3,0 is neither a number from 1, nor one for each step"),
        (["bench", "--only", "alpah"], 'Did you mean "alpha"?'),
        (["doctor", "--require", "cupi"], 'Did you mean "cupy"?'),
    ],
)
def test_suggestions(arguments, suggested, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("affect-xp: ") and error.count("\n") == 1 and suggested in error


def test_choices_are_those_of_the_library():
    """The options are literals, so that help and completion need no NumPy."""

    def choices(name):
        hints = typing.get_type_hints(options.ModelOptions)
        found = [hints[name], *typing.get_args(hints[name])]
        return next(typing.get_args(hint) for hint in found if typing.get_origin(hint) is typing.Literal)

    assert choices("proximity") == tuple(KERNELS)
    assert choices("scale") == SCALES
    assert choices("rescale") == ("auto", "none", *TRANSFORMS)
    assert choices("absent") == ABSENT
    assert choices("objective") == OBJECTIVES
    assert choices("linkage") == METHODS
    assert choices("method") == tuple(run.METHODS)
    for rule, methods in options.RULES.items():
        assert methods == tuple(name for name, method in run.METHODS.items() if rule in method.rules)
    required = typing.get_args(typing.get_type_hints(app["doctor"].default_command)["require"])[0]
    assert typing.get_args(typing.get_args(required)[0]) == tuple(libraries.LIBRARIES)


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["reproduce", "--help"], ["--version"]])
def test_help_is_plain_in_a_pipe_and_takes_no_numpy(arguments):
    code = (
        "import sys, affect_xp.cli as cli; cli.main(sys.argv[1:]); "
        "assert not {'numpy', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert done.stdout.isprintable() or "\x1b" not in done.stdout
    assert not set("─│╭╮╰╯") & set(done.stdout)
    assert done.stderr == ""


def test_nobody_reads_to_the_end():
    """`affect-xp run --help | head -1`, and a pipe that is closed before anything is written."""
    for arguments in (["run", "--help"], ["doctor", "--require", "nothing"], ["reproduce", "--help"]):
        called = [sys.executable, "-m", "affect_xp", *arguments]
        with subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            error = process.stderr.read()
        assert error == b"" or arguments[0] == "doctor"
        assert b"pipe" not in error.lower() and b"Traceback" not in error and b"Exception" not in error


@pytest.mark.skipif(os.name == "nt", reason="a shell with pipes")
def test_head():
    for _ in range(5):  # the time at which the reader exits varies
        called = f"{sys.executable} -m affect_xp run --help | head -1"
        done = subprocess.run(called, shell=True, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("Usage: affect-xp run -k STR [OPTIONS] INPUT\n", "")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_consoles_without_greek_letters(encoding, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "affect_xp", "demo", "--out", str(tmp_path / "demo.png")],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0 and b"Rand AFFECT" in done.stdout


def test_without_the_extra(tmp_path):
    for name in ("cyclopts", "rich"):
        code = f"import sys; sys.modules[{name!r}] = None; from affect_xp.cli import main; sys.exit(main([]))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr == (
            "affect-xp: the command line needs more packages: pip install 'affect_xp[cli]'\n"
        )


# Completion

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.parametrize("shell", CHECKS)
def test_completion_is_installed(shell, tmp_path):
    env = {**os.environ, "HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    env.pop("ZSH", None), env.pop("ZSH_CUSTOM", None)
    told = command("--install-completion", "--shell", shell, env=env).stdout
    path = next(path for path in tmp_path.rglob("*") if path.is_file() and "affect" in path.name)
    assert str(path) in told
    script = path.read_text(encoding="utf-8")
    for word in ("reproduce", "--freq", "log1p", "boids-variable"):
        assert word.lstrip("-") in script
    if shutil.which(shell) and os.name != "nt":  # bash of Windows has other paths
        subprocess.run([*CHECKS[shell], str(path)], check=True)


def completed(shell, words, home):
    """Return the completions of a shell after some words."""
    line, env = " ".join(words), {**os.environ, "HOME": str(home)}
    if shell == "fish":
        code = f"complete -C {line!r}"
        args = ["fish", "-c", f"source $HOME/.config/fish/completions/affect-xp.fish; {code}"]
    else:
        script = home / ".local/share/bash-completion/completions/affect-xp"
        code = (
            f". {script}; f=$(complete -p affect-xp | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "
            f"COMP_WORDS=({line}{' ' + chr(39) * 2 if line.endswith(' ') else ''}); "
            f"COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
            'COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}; $f; printf \'%s\\n\' "${COMPREPLY[@]}"'
        )
        args = ["bash", "--norc", "-c", code]
    done = subprocess.run(args, capture_output=True, text=True, env=env)
    return {row.split("\t")[0].strip() for row in done.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completion_completes(shell, tmp_path):
    if shutil.which(shell) is None or os.name == "nt":
        pytest.skip(f"no {shell}")
    command("--install-completion", "--shell", shell, env={**os.environ, "HOME": str(tmp_path)})
    assert {"run", "reproduce"} <= completed(shell, ["affect-xp", "r"], tmp_path)
    assert "--freq" in completed(shell, ["affect-xp", "run", "x.csv", "--fr"], tmp_path)
    assert {"spectral"} == completed(shell, ["affect-xp", "run", "x.csv", "--method", "sp"], tmp_path)


@pytest.mark.skipif(shutil.which("zsh") is None or os.name == "nt", reason="no zsh")
def test_completion_completes_in_zsh(tmp_path):
    """zsh completes in an interactive shell only, which needs a terminal."""
    import pty

    env = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    command("--install-completion", "--shell", "zsh", env=env)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)

    def typed(keys, expected):
        os.write(terminal, keys.encode())
        shown = ""
        while expected not in shown:
            ready, _, _ = select.select([terminal], [], [], 20)
            assert ready, shown
            shown += os.read(terminal, 4096).decode(errors="replace")

    typed("PS1=; . ~/.zshrc; autoload -Uz compinit; compinit -u; unsetopt BEEP; echo rea''dy\n", "ready")
    typed("affect-xp reprod\t", "reproduce ")
    typed("\x15affect-xp run x.csv --method sp\t", "spectral ")
    os.write(terminal, b"\x15exit\n")
    os.close(terminal)
    os.waitpid(pid, 0)


@pytest.fixture
def one_table(monkeypatch):
    """Replace every experiment by a trivial table; return the options they were run with."""
    asked = {}

    def run(name, options):
        asked[name] = options
        table = Table("Rand", "Rand index", (Entry("AFFECT", Measured(0.9837, 0.0006), 0.984),))
        return Report(
            name,
            f"Title of {name}",
            {"runs": options.runs, "seed": options.seed},
            (table,),
            (Claim("it works", True),),
        )

    monkeypatch.setattr(experiments, "reproduce", run)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    return asked


def test_reproduce(one_table, tmp_path, capsys):
    out = tmp_path / "results"
    assert (
        main(
            ["reproduce", "boids-variable", *["--runs", "7", "--seed", "3", "--jobs", "2", "--out"], str(out)]
        )
        == 0
    )
    asked = one_table["boids-variable"]
    assert (asked.runs, asked.seed, asked.jobs, asked.show) == (7, 3, 2, True)
    printed = capsys.readouterr().out
    assert "Rand index   published\n  AFFECT   0.9837 ± 0.0006       0.984" in printed
    assert f"report: {out / 'boids-variable.md'}" in printed
    assert json.loads((out / "boids-variable.json").read_text(encoding="utf-8"))["settings"]["runs"] == 7


def test_reproduce_quickly(one_table, tmp_path):
    assert main(["reproduce", "colliding", "--quick", "--out", str(tmp_path)]) == 0
    assert one_table["colliding"].runs == EXPERIMENTS["colliding"].quick_runs


def test_reproduce_all_without_data(one_table, tmp_path, capsys):
    assert main(["reproduce", "all", "--out", str(tmp_path)]) == 0
    assert list(one_table) == [name for name in EXPERIMENTS if name not in ("reality", "nasdaq")]
    printed = capsys.readouterr().out
    assert "skipped: reality, which needs reality.npz; name its folder by --data or AFFECT_XP_DATA" in printed
    index = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "[Title of boids](boids.md) | 1 of 1" in index and "skipped: nasdaq, which needs" in index


def test_reproduce_all_with_data(one_table, tmp_path):
    for name in ("reality.npz", "nasdaq2008.npz"):
        (tmp_path / name).touch()
    assert main(["reproduce", "all", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert list(one_table) == list(EXPERIMENTS)


@pytest.mark.parametrize("name", ["reality", "nasdaq"])
def test_reproduce_without_data(name, one_table, tmp_path, capsys):
    assert main(["reproduce", name, "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("affect-xp: ") and error.count("\n") == 1
    assert "--data" in error and "AFFECT_XP_DATA" in error
    assert not one_table and not (tmp_path / "out").exists()


def test_reproduce_where_nothing_can_be_written(one_table, tmp_path, capsys):
    taken = tmp_path / "file"
    taken.touch()
    assert main(["reproduce", "separated", "--out", str(taken)]) == 1
    assert capsys.readouterr().err.startswith("affect-xp: ")
    assert not one_table  # detected before the runs


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["dance"], 'Invalid value "dance" for NAME'),
        (["boids", "--runs", "0"], "Must be > 0"),
        (["boids", "--runs", "many"], 'Invalid value for --runs: unable to convert "many"'),
        (["boids", "--seed", "-1"], "Must be >= 0"),
        (["boids", "--runs", "3", "--quick"], "leave out --quick or --runs"),
        ([], "affect-xp reproduce needs NAME; `affect-xp reproduce --help` describes it"),
    ],
)
def test_wrong_arguments(arguments, told, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_interrupted_and_resumed(one_table, monkeypatch, tmp_path, capsys):
    run = experiments.reproduce

    def stop(name, options):
        if name == "boids":
            raise KeyboardInterrupt
        return run(name, options)

    monkeypatch.setattr(experiments, "reproduce", stop)
    assert main(["reproduce", "separated", "--out", str(tmp_path)]) == 0
    assert main(["reproduce", "all", "--quick", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == (
        "affect-xp: interrupted at boids; finished: separated, colliding; "
        "the same command with --resume runs the others\n"
    )
    assert main(["reproduce", "boids", "--out", str(tmp_path)]) == 130
    assert "interrupted at boids, which keeps nothing; fewer --runs" in capsys.readouterr().err
    one_table.clear()
    monkeypatch.setattr(experiments, "reproduce", run)
    assert main(["reproduce", "all", "--quick", "--resume", "--out", str(tmp_path)]) == 0
    assert "separated" not in one_table and next(iter(one_table)) == "boids"
    assert "[Title of separated](separated.md) | 1 of 1" in (tmp_path / "README.md").read_text(
        encoding="utf-8"
    )
    one_table.clear()
    assert main(["reproduce", "all", "--runs", "7", "--resume", "--out", str(tmp_path)]) == 0
    assert "separated" in one_table  # with another number of runs


def test_help_lists_the_experiments(capsys):
    assert main(["reproduce", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed and experiment.title in printed for name, experiment in EXPERIMENTS.items())


def test_bench(tmp_path, capsys):
    arguments = ["--tiny", "--only", "alpha", "--threads", "1", "--out", str(tmp_path)]
    assert main(["bench", *arguments]) == 0
    printed = capsys.readouterr()
    assert "bench 1 of 1" in printed.err and "figure" in printed.out
    assert (tmp_path / "results.json").exists()
