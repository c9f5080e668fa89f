"""The command line."""

import json
import subprocess
import sys

import pytest

import affect_xp as ax
from affect_xp.cli import app
from affect_xp.cli.app import main
from affect_xp.experiments import EXPERIMENTS, Claim, Entry, Measured, Options, Report, Table


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


def test_unknown_command():
    with pytest.raises(SystemExit) as stopped:
        main(["dance"])
    assert stopped.value.code == 2


@pytest.fixture
def one_table(monkeypatch):
    """Let every experiment give one table at once; return the options they were run with."""
    asked = {}

    def run(name, options):
        asked[name] = options
        table = Table("Rand", "Rand index", (Entry("AFFECT", Measured(0.9837, 0.0006), 0.984),))
        return Report(name, f"Title of {name}", {"runs": options.runs}, (table,), (Claim("it works", True),))

    monkeypatch.setattr(app, "reproduce", run)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    return asked


def test_reproduce(one_table, tmp_path, capsys):
    out = tmp_path / "results"
    arguments = [
        "reproduce",
        "boids-variable",
        "--runs",
        "7",
        "--seed",
        "3",
        "--jobs",
        "2",
        "--out",
        str(out),
    ]
    assert main(arguments) == 0
    assert one_table == {"boids-variable": Options(runs=7, seed=3, jobs=2, show=True)}
    printed = capsys.readouterr().out
    assert "Rand index   published\n  AFFECT   0.9837 ± 0.0006       0.984" in printed
    assert f"report: {out / 'boids-variable.md'}" in printed
    assert json.loads((out / "boids-variable.json").read_text(encoding="utf-8"))["settings"] == {"runs": 7}


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
    assert not one_table  # found out before the runs, not after


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["dance"], "invalid choice"),
        (["boids", "--runs", "0"], "must be at least 1"),
        (["boids", "--runs", "many"], "invalid integer"),
        (["boids", "--seed", "-1"], "must be at least 0"),
        (["boids", "--runs", "3", "--quick"], "not allowed with"),
    ],
)
def test_wrong_arguments(arguments, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *arguments])
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


def test_interrupted(monkeypatch, tmp_path, capsys):
    def stop(name, options):
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "reproduce", stop)
    assert main(["reproduce", "separated", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "affect-xp: interrupted\n"


def test_help_lists_the_experiments(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    printed = capsys.readouterr().out
    assert all(name in printed and experiment.title in printed for name, experiment in EXPERIMENTS.items())


def test_bench_hands_its_options_on(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--help"])
    assert stopped.value.code == 0
    assert "usage: affect-xp bench" in capsys.readouterr().out
