"""Progress on stderr."""

import re
import sys

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.progress import Progress, progress


def test_one_line_per_step(capsys):
    assert list(progress(range(3), 3, "run")) == [0, 1, 2]
    assert capsys.readouterr().err == "run 1 of 3\nrun 2 of 3\nrun 3 of 3\n"
    with Progress(None, done=4) as shown:
        shown.advance("Monday")
    assert capsys.readouterr().err == "step 5, Monday\n"


def test_silence(capsys):
    list(progress(range(3), 3, None))
    with Progress(2, show=False) as shown:
        shown.advance("x")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("total", [4, None])
def test_a_bar_with_the_time_left_on_a_terminal(total, capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress(total, done=1) as shown:
        shown.advance("[Monday]")  # no markup
    error = capsys.readouterr().err
    assert f"2/{total or '?'}" in re.sub(r"\x1b\[[0-9;?]*\w", "", error)
    assert ":--" in error or "0:00" in error
    assert "[Monday]" in error and "step 2" not in error


def test_lines_on_a_terminal_without_rich(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert list(progress("ab", 2, "run")) == ["a", "b"]
    assert capsys.readouterr().err == "run 1 of 2\nrun 2 of 2\n"


def test_nobody_reads_it(monkeypatch):
    class Closed:
        written = 0

        def isatty(self):
            return False

        def write(self, text):
            self.written += 1
            raise BrokenPipeError

    closed = Closed()
    monkeypatch.setattr(sys, "stderr", closed)
    assert list(progress(range(5), 5, "run")) == [0, 1, 2, 3, 4]
    assert closed.written == 1


# verbose=


def matrices(n_steps=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_steps, 8, 2)) + np.repeat([[3, 0], [0, 3]], 4, axis=0)
    return list(X @ np.swapaxes(X, 1, 2))


@pytest.mark.parametrize("given", [list, np.stack, lambda steps: dict(enumerate(steps)), iter])
def test_fit(given, capsys):
    model = ax.Affect(ax.KMeans(2), random_state=0)
    model.fit(given(matrices()), verbose=True)
    of = "" if given is iter else " of 3"
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {t + 1}{of}, {record}" for t, record in enumerate(model.history_)]
    assert lines[0].endswith("0: 8 objects, 2 clusters, α = 0.000")
    model.fit(matrices())
    assert capsys.readouterr().err == ""


def test_features_of_one_step(capsys):
    ax.Affect(ax.KMeans(2), proximity="dot").fit(np.eye(4), verbose=True)
    assert capsys.readouterr().err.startswith("step 1 of 1, ")


def test_fit_predict_and_callback(capsys):
    seen = []
    ax.Static(ax.KMeans(2)).fit_predict(matrices(), callback=seen.append, verbose=True)
    assert len(seen) == 3 and capsys.readouterr().err.count("\n") == 3


def test_both_passes_of_smooth(capsys):
    found = ax.smooth(matrices(12), ax.KMeans(2), random_state=0, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:12] == [f"step {t} of 24, backward pass, {t} of 12" for t in range(1, 13)]
    assert lines[12:] == [f"step {t + 13} of 24, {record}" for t, record in enumerate(found.history_)]
