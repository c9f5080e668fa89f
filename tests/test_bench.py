"""The benchmarks: how they measure, compare and report. The clock is set by hand: nothing is timed."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("threadpoolctl")

from bench import __main__ as command
from bench import compare
from bench._data import communities, stock_windows
from bench._device import Host
from bench._measure import (
    Effort,
    fitted_exponent,
    one_round,
    over,
    take_turns,
    timed_pieces,
    traced_peaks,
    watched,
)
from bench._report import Curve, Goal, Results, Row, aligned
from bench._suite import Case, Setting, Workload, run
from bench._worker import Answers, answer
from bench.workloads import WORKLOADS


class Clock:
    """A timer whose time passes only when it is told so."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    start = now

    def stop(self, started):
        return self.time - started

    def spends(self, *seconds):
        """Return an action whose pieces take these seconds, or what is left of lists of them."""
        rounds = [list(s) if isinstance(s, list) else s for s in seconds]

        def action():
            for piece in rounds:
                self.time += piece.pop(0) if isinstance(piece, list) else piece
                yield

        return action


def test_actions_take_turns_piece_by_piece():
    order = []

    def action(name, n_pieces):
        return over(range(n_pieces), lambda: lambda i: order.append((name, i)))

    actions = {"a": action("a", 2), "b": action("b", 3)}
    one_round(actions, Clock())
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2)]
    order.clear()
    one_round(actions, Clock(), first=3)
    assert order[0] == ("b", 0)


def test_each_piece_counts_with_its_shortest_time():
    clock = Clock()
    actions = {"a": clock.spends([3, 1, 2], [5, 9, 4]), "b": clock.spends(2)}
    best, rounds = take_turns(actions, Effort(fewest=3, seconds=0), clock)
    assert rounds == 3
    assert best["a"].tolist() == [1, 4]
    assert best["b"].tolist() == [2]


def test_a_piece_may_tell_its_own_seconds():
    def action():
        yield 7.0

    assert list(timed_pieces(action, Clock())) == [7.0]


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        (Effort(fewest=2, seconds=0), 2),
        (Effort(fewest=2, seconds=25), 5),  # a sixth round would end at 30
        (Effort(fewest=2, seconds=1000, most=4), 4),
    ],
)
def test_rounds_fit_into_the_seconds(effort, expected):
    clock = Clock()
    _, rounds = take_turns({"a": clock.spends(5)}, effort, clock)
    assert rounds == expected


def test_peaks_are_beyond_what_was_held_before():
    kept = []
    actions = over([1, 2], lambda: lambda i: kept.append(np.ones(100_000) + np.ones(100_000)))
    peaks = traced_peaks(actions)
    assert len(peaks) == 2
    # Two arrays at least are there at once, and what the first piece keeps does not count for the second.
    assert ((peaks >= 2 * 800_000) & (peaks < 3.1 * 800_000)).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_watching_sees_what_stays():
    kept = []
    before = watched(lambda: None)[1]
    _, highest = watched(lambda: kept.append(np.ones(8_000_000)))
    assert highest - before > 50_000_000


@pytest.mark.parametrize("exponent", [0.5, 1, 2.03])
def test_exponents_are_found(exponent):
    sizes = np.array([1e3, 4e3, 1.2e4])
    assert fitted_exponent(sizes, 3e-9 * sizes**exponent) == pytest.approx(exponent)
    noisy = 3e-9 * sizes**exponent * [1.1, 0.9, 1.1]
    assert fitted_exponent(sizes, noisy) == pytest.approx(exponent, abs=0.1)


@pytest.mark.parametrize(
    ("goal", "figure", "verdict"),
    [
        (Goal(3, 2), 1.9, "aim"),
        (Goal(3, 2), 2.5, "must"),
        (Goal(3, 2), 3.1, "MISSED"),
        (Goal(1), 1.0, "met"),
        (Goal(5, 10, at_least=True), 12, "aim"),
        (Goal(5, 10, at_least=True), 5, "must"),
        (Goal(5, 10, at_least=True), 4.9, "MISSED"),
    ],
)
def test_verdicts(goal, figure, verdict):
    assert goal.verdict(figure) == verdict


def test_columns_are_aligned_under_combining_characters():
    first, rule, second, third = aligned([("a", "b"), ("Ψ̂", "x"), ("ΨΨ", "y")]).splitlines()
    assert second == "Ψ̂   x" and third == "ΨΨ  y" and set(rule) == {"-"}
    assert first == "a   b"


def results(**changed):
    curve = Curve("time", (10, 20, 40), (1.0, 4.0, 16.0))
    rows = [
        Row("work", "peer", 2.5, Goal(3, 2), note="data: made up"),
        Row.growth("growth", "n²", curve, Goal(2.1)),
        Row("extra", "peer", 1.0, note="data: made up"),
    ]
    given = {
        "rows": {"first": rows},
        "problems": {"second": "left out, needs a peer"},
        "details": {"first": {"rounds": 3}},
        "environment": {"size": "full", "device": "a machine"},
    }
    return Results(**(given | changed))


def test_the_table():
    text = results().text()
    assert "work      peer     2.5 ×   ≤ 3    ≤ 2  must" in text
    assert "growth    n²       n^2.00  ≤ 2.1       met" in text
    assert text.count("data: made up") == 1
    assert "second: left out, needs a peer." in text


def test_tiny_runs_are_not_judged():
    assert " met" in results().text()
    assert " met" not in results(environment={"size": "tiny"}).text()


def test_what_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    paths = results().write(tmp_path / "out", draw=True)
    assert [path.name for path in paths] == ["results.json", "results.md", "time.png"]
    saved = json.loads(paths[0].read_text())
    assert saved["workloads"]["first"][0]["figure"] == 2.5
    assert saved["workloads"]["first"][0]["verdict"] == "must"
    assert saved["workloads"]["first"][1]["curve"]["sizes"] == [10, 20, 40]
    page = paths[1].read_text()
    assert "| work | peer | 2.5 × | ≤ 3 | ≤ 2 | must |" in page and "(time.png)" in page
    assert paths[2].read_bytes().startswith(b"\x89PNG")


def test_a_run(monkeypatch):
    clock = Clock()

    def prepare(setting):
        def rows(measured):
            yield Row("work", "peer", measured.ratio("ours", "peer"))
            yield Row("memory", "bytes", float(measured.peaks["ours"].max()))

        return Case({"ours": clock.spends(2, 4)}, {"peer": clock.spends(3)}, rows, watched=["ours"])

    def broken(setting):
        raise ValueError("out of order")

    workloads = [
        Workload("good", prepare),
        Workload("broken", broken),
        Workload("poor", prepare, needs=("a_library_nobody_has",)),
        Workload("elsewhere", prepare, devices=("cuda",)),
    ]
    found = run(workloads, Setting("tiny", Host(timer=clock)))
    work, memory = found.rows["good"]
    assert work.figure == 2.0 and memory.figure >= 0
    assert found.problems == {
        "broken": "FAILED, ValueError: out of order",
        "poor": "left out, needs a_library_nobody_has",
        "elsewhere": "left out, only for --device cuda",
    }
    assert found.details["good"]["seconds"] == {"ours": [2.0, 4.0], "peer": [3.0]}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_workload_runs(workload):
    setting = Setting("tiny", threads=1)
    obstacle = workload.obstacle(setting)
    if obstacle is not None:
        pytest.skip(obstacle)
    found = run([workload], setting)
    assert found.problems == {}
    rows = found.rows[workload.name]
    assert rows and all(np.isfinite(row.figure) for row in rows)
    assert any(row.goal is not None for row in rows)


def test_workloads_run_on_cupy():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.zeros(1)
    except Exception:
        pytest.skip("there is no device")
    setting = Setting("tiny", command.DEVICES["cuda"](), threads=1)
    # Not all, since an emulated device is slow: arrays, sparse matrices, memory, and timing are in these.
    names = {"alpha", "linkage", "spectral-sparse", "step-on-device"}
    found = run([workload for workload in WORKLOADS if workload.name in names], setting)
    assert found.problems == {} and set(found.rows) == names


def test_cuda_is_refused_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit) as stopped:
        command.main(["--device", "cuda"])
    assert stopped.value.code == 2
    assert "needs CuPy and a GPU" in capsys.readouterr().err


def test_the_command(tmp_path, capsys):
    assert command.main(["--tiny", "--only", "alpha", "--threads", "1", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "α, dense, n = 60, k = 12: time" in captured.out
    assert (tmp_path / "results.json").is_file()


def test_an_unknown_workload_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["--only", "dancing"])
    assert "dense-step" in capsys.readouterr().err


def test_the_stand_in_for_stocks():
    windows, source = stock_windows(None, 50, 3)
    assert [x.shape for x in windows] == [(50, 15)] * 3 and "stand-in" in source
    np.testing.assert_allclose(windows[0].mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(windows[0].std(axis=1), 1)


def test_graphs_have_communities_and_remember_edges():
    (first, labels), (second, _) = communities(120, 1200, 2, k=4)
    assert (first != first.T).nnz == 0
    i, j = first.nonzero()
    assert np.mean(labels[i] == labels[j]) > 0.6
    common = first.multiply(second).nnz / first.nnz
    assert 0.7 < common < 0.95


class Revision:
    """Stands for a worker: seconds by action, a list for each round."""

    def __init__(self, name, seconds, log):
        self.name, self.seconds, self.log = name, seconds, log

    def ask(self, question, argument=None):
        if question == "prepare":
            if argument == "novelty" and self.name == "old":
                raise compare.AffectError("no such thing yet")
            return list(self.seconds)
        self.log.append(self.name)
        rounds = self.seconds[argument]
        return rounds.pop(0) if len(rounds) > 1 else rounds[0]


def revisions(old, new):
    log = []
    return Revision("old", old, log), Revision("new", new, log), log


def test_slower_actions_are_flagged():
    old, new, _ = revisions(
        {"same": [[1.0]], "slow": [[1.0, 1.0]], "quick": [[1.0]], "gone": [[1.0]]},
        {"same": [[1.09]], "slow": [[1.0, 1.3]], "quick": [[0.5]], "fresh": [[1.0]]},
    )
    differences, problems = compare.compare(["work", "novelty"], old, new, Effort(1, 0))
    assert [(d.action, d.is_slower) for d in differences] == [
        ("same", False),
        ("slow", True),
        ("quick", False),
    ]
    assert differences[1].ratio == pytest.approx(1.15)
    assert problems == {"novelty": "no such thing yet"}
    text = compare.tell(differences, problems)
    assert "SLOWER" in text and "faster" in text and "1 of 3 slower by more than 10 %" in text


def test_revisions_take_turns_and_count_with_their_best():
    old, new, log = revisions({"a": [[5.0, 1.0], [2.0, 3.0]]}, {"a": [[2.0, 1.0], [4.0, 4.0]]})
    (difference,) = compare.compare_workload("work", old, new, Effort(2, 0))
    assert log == ["old", "new", "new", "old"]
    assert (difference.old, difference.new) == (3.0, 3.0)


def test_a_worker_answers():
    answers = Answers(Setting("tiny", threads=1))
    assert answer(answers, '["where"]')["result"].endswith("__init__.py")
    assert "alpha" in answer(answers, '["names"]')["result"]
    assert answer(answers, '["prepare", "alpha"]') == {"result": ["α"]}
    assert len(answer(answers, '["run", "α"]')["result"]) == 1
    assert answer(answers, '["run", "β"]') == {"error": "KeyError: 'β'"}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit of a library that is now different."""

    def git(*arguments):
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "affect_xp"
    package.mkdir()
    (package / "__init__.py").write_text("was = 1\n")
    try:
        git("init")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    git("add", ".")
    git("commit", "-m", "first")
    (package / "__init__.py").write_text("was = 2\n")
    monkeypatch.setattr(compare, "ROOT", tmp_path)
    return tmp_path


def test_the_tree_of_a_revision(repository):
    with compare.tree_of("HEAD") as tree:
        assert (tree / "affect_xp" / "__init__.py").read_text() == "was = 1\n"
    assert not tree.exists()
    with compare.tree_of(None) as tree:
        assert tree == repository


@pytest.mark.parametrize("revision", ["nowhere", "--help"])
def test_an_unknown_revision_is_refused(repository, revision):
    with pytest.raises(compare.InputError, match="name a commit"), compare.tree_of(revision):
        pass
