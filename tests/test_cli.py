"""The command line."""

import subprocess
import sys

import pytest

import affect_xp as ax
from affect_xp.cli import main


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
