"""The benchmarks: measurement, comparison and reports. The clock is simulated: nothing is timed."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from bench import __main__ as command
from bench import _suite, compare
from bench._data import communities, stock_windows
from bench._device import Host
from bench._measure import (
    Effort,
    WallTimer,
    fitted_power,
    one_round,
    over,
    take_turns,
    timed_pieces,
    traced_peaks,
    watched,
)
from bench._report import Curve, Goal, Results, Row, aligned, draw_curves
from bench._suite import Case, Setting, Workload, limited_threads, run
from bench._worker import Answers, answer
from bench.workloads import WORKLOADS
from bench.workloads.imports import importing


class Clock:
    """A timer whose time is advanced explicitly."""

    def __init__(self):
        self.time, self.rests = 0.0, 0

    def now(self):
        return self.time

    start = now

    def stop(self, started):
        return self.time - started

    def rest(self):
        self.rests += 1

    def spends(self, *seconds):
        """Return an action whose pieces take these seconds; lists give the seconds of successive rounds."""
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


def test_each_piece_is_followed_by_a_rest_that_is_not_timed():
    clock = Clock()
    clock.rest = lambda: setattr(clock, "time", clock.time + 100)
    assert list(timed_pieces(clock.spends(2, 3), clock)) == [2, 3]
    assert clock.time == 205


@pytest.mark.parametrize(
    ("busy", "slices"),
    [([0.0], 1), ([0.01, 0.02, 0.005, 0.0005], 4), ([0.01] * 1000, 50)],
    ids=["idle", "spinning for a while", "busy for ever"],
)
def test_a_rest_lasts_until_no_thread_is_at_work(monkeypatch, busy, slices):
    used, slept = [0.0], []
    monkeypatch.setattr("bench._measure.time.process_time", lambda: used[0])

    def sleep(seconds):
        used[0] += busy[len(slept)]
        slept.append(seconds)

    monkeypatch.setattr("bench._measure.time.sleep", sleep)
    WallTimer().rest()
    assert len(slept) == slices


@pytest.mark.parametrize(
    ("effort", "expected"),
    [
        (Effort(fewest=2, seconds=0), 2),
        (Effort(fewest=2, seconds=25), 5),  # a sixth round would end at 30
        (Effort(fewest=2, seconds=1000, most=4), 4),
        (Effort(fewest=4, seconds=0, longest=9), 2),  # a third round would begin after 10
        (Effort(fewest=4, seconds=0, longest=1), 1),
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
    # At least two arrays exist at once; memory kept by the first piece does not count for the second.
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
    assert fitted_power(sizes, 3e-9 * sizes**exponent) == pytest.approx((3e-9, exponent))
    noisy = 3e-9 * sizes**exponent * [1.1, 0.9, 1.1]
    assert fitted_power(sizes, noisy)[1] == pytest.approx(exponent, abs=0.1)


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


@pytest.mark.parametrize("size", ["tiny", "quick"])
def test_smaller_runs_are_not_judged(size):
    assert " met" in results().text()
    smaller = results(environment={"size": size})
    assert " met" not in smaller.text()
    assert {row["verdict"] for row in smaller.as_json()["workloads"]["first"]} == {""}


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


def test_pictures_show_points_fits_and_goals(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: figures.append(figure))
    curve = Curve("memory", (10, 100), (1e3, 1e5), most=(2e3, 2e5))
    rows = [*results().all_rows(), Row.growth("store of Ψ̂, memory", "n²", curve)]
    draw_curves(rows, tmp_path, "a machine")
    time, memory = (figure.axes[0] for figure in figures)
    assert time.get_xscale() == time.get_yscale() == "log"
    assert [text.get_text() for text in time.get_legend().get_texts()] == [
        "growth: $n^{2.00}$ fitted",
        "growth: $n^{2.1}$, the goal",
    ]
    fit, points, goal = time.lines
    np.testing.assert_allclose(fit.get_ydata(), [1, 4, 16])
    assert [*points.get_ydata()] == [1, 4, 16]
    np.testing.assert_allclose(goal.get_ydata(), [1, 2**2.1, 4**2.1])
    assert memory.get_title(loc="left") == "a machine" and memory.get_ylabel() == "peak memory of a step"
    assert r"store of $\hat{\Psi}$: the goal" in [text.get_text() for text in memory.get_legend().get_texts()]
    assert [*memory.lines[-1].get_ydata()] == [2e3, 2e5]
    figures[1].draw_without_rendering()
    assert "100 kB" in [text.get_text() for text in memory.get_yticklabels()]


@pytest.mark.parametrize("before", [None, "7"])
def test_threads_are_fixed_everywhere_and_given_back(monkeypatch, before):
    from threadpoolctl import threadpool_info

    from affect_xp.array import threads

    if before is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", before)
    allowed, compiled = threads._n_allowed(), [pool["num_threads"] for pool in threadpool_info()]
    with pytest.raises(KeyError), limited_threads(3):
        assert threads._n_allowed() == 3
        assert {pool["num_threads"] for pool in threadpool_info()} == {3}
        asked = [sys.executable, "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "3\n"
        raise KeyError
    assert os.environ.get("OMP_NUM_THREADS") == before and threads._n_allowed() == allowed
    assert [pool["num_threads"] for pool in threadpool_info()] == compiled


def test_imports_are_timed_with_as_many_threads(monkeypatch):
    environments = []

    def run(command, *, env, **options):
        environments.append(env)
        return subprocess.CompletedProcess(command, 0, stdout="0.5\n")

    action = importing("affect_xp")
    monkeypatch.setattr(subprocess, "run", run)
    with limited_threads(3):
        assert list(action()) == [0.5]
    assert environments[0]["OMP_NUM_THREADS"] == "3"


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
    assert found.environment["took"].endswith(" s")


def test_ctrl_c_keeps_what_is_done(monkeypatch, tmp_path, capsys):
    def interrupted(setting):
        raise KeyboardInterrupt

    later = [Workload(name, interrupted) for name in ("second", "third")]
    first = next(workload for workload in WORKLOADS if workload.name == "alpha")
    monkeypatch.setattr(command, "WORKLOADS", [first, *later])
    assert command.measure("tiny", None, 1, "cpu", tmp_path) == 130
    told = "interrupted; these options measure the others: --only second --only third"
    assert told in capsys.readouterr().err
    assert "alpha" in (tmp_path / "results.json").read_text(encoding="utf-8")


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
    # Only some, because an emulated device is slow: these cover arrays, sparse matrices, memory and timing.
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


@pytest.mark.parametrize("threads", ["0", "-1", "two"])
def test_a_number_of_threads_that_is_none_is_refused(capsys, threads):
    with pytest.raises(SystemExit):
        command.main(["--threads", threads])
    assert "must be a whole number of 1 or more" in capsys.readouterr().err


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
    """A simulated worker: seconds by action, one list per round."""

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
    assert "SLOWER" in text and "faster" in text and "of 3, by more than 10 %: 1 slower, 1 faster" in text


def test_workloads_use_public_names_alone():
    """Revisions whose modules were moved can also be measured."""
    names = ("_worker", "__main__", "_suite", "_measure", "_report", "_data", "_device", "_scenario")
    files = [compare.ROOT / "bench" / f"{name}.py" for name in names]
    for file in [*files, *(compare.ROOT / "bench" / "workloads").glob("*.py")]:
        found = re.findall(r"(?m)^(?:from|import) (affect_xp\S*)", file.read_text("utf-8"))
        assert set(found) <= {"affect_xp", "affect_xp.datasets", "affect_xp.exceptions"}, file


def test_the_noise_is_the_standard_error_of_the_median():
    rng = np.random.default_rng(0)
    rounds = rng.normal(1.0, 0.1, size=(2000, 25))
    expected = np.median(rounds, axis=1).std()
    found = np.mean([compare.noise_of_median(values) for values in rounds])
    assert found == pytest.approx(expected, rel=0.1)
    assert np.isnan(compare.noise_of_median(np.ones(1)))
    old, new, _ = revisions({"a": [[1.0], [1.0], [1.0]]}, {"a": [[1.0], [1.02], [1.04]]})
    (difference,) = compare.compare_workload("work", old, new, Effort(3, 0))
    assert difference.median == pytest.approx(1.02)
    assert "± 0.02" in difference.cells()


def test_revisions_take_turns_and_count_with_their_best():
    old, new, log = revisions({"a": [[5.0, 1.0], [2.0, 3.0]]}, {"a": [[2.0, 1.0], [4.0, 4.0]]})
    (difference,) = compare.compare_workload("work", old, new, Effort(2, 0))
    assert log == ["old", "new", "new", "old"]
    assert (difference.old, difference.new) == (3.0, 3.0)


@pytest.mark.parametrize(
    ("olds", "news", "fewest", "flag", "asked"),
    [
        ([[1.0]], [[1.5], [1.0]], 1, "", 4),  # temporary noise
        ([[1.0]], [[0.5], [0.6]], 1, "faster", 6),
        ([[1.0]], [[1.2]], 1, "SLOWER", 6),
        ([[1.0]], [[1.05]], 1, "", 2),
        ([[1.0], [0.1], [1.0]], [[1.0]], 3, "", 6),  # one fast round
    ],
)
def test_differences_are_measured_again(olds, news, fewest, flag, asked):
    old, new, log = revisions({"a": olds}, {"a": news})
    (difference,) = compare.compare_workload("work", old, new, Effort(fewest, 0))
    assert difference.cells()[-1] == flag
    assert len(log) == asked


@pytest.mark.parametrize(
    ("best", "median", "flag"),
    [(1.2, 1.2, "SLOWER"), (7.0, 1.0, ""), (1.0, 7.0, ""), (0.8, 0.8, "faster"), (0.8, 1.2, "")],
)
def test_a_difference_shows_in_the_shortest_times_and_in_the_median(best, median, flag):
    difference = compare.Difference("work", "a", 1.0, best, median, 0.01)
    seconds, ratios = ("1", f"{best:.4g}"), (f"{best:.2f}", f"{median:.2f}", "± 0.01")
    assert difference.cells() == ("work", "a", *seconds, *ratios, flag)


@pytest.mark.parametrize(("load", "warns"), [(0.2, False), (3.0, True), (None, False)])
def test_other_programs_are_warned_of(monkeypatch, capsys, load, warns):
    monkeypatch.setattr(_suite, "load", lambda: load)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    _suite.busy()
    assert ("load 3.0 on 2 processors" in capsys.readouterr().err) == warns


def test_a_revision_that_cannot_be_imported_is_named(tmp_path, capfd):
    (tmp_path / "affect_xp").mkdir()
    (tmp_path / "affect_xp" / "__init__.py").write_text("import a_module_nobody_has\n")
    with (
        pytest.raises(compare.AffectError, match="measures v0 ended at 'where'"),
        compare.Worker(tmp_path, ["--tiny"], "v0"),
    ):
        pass
    assert "a_module_nobody_has" in capfd.readouterr().err


def test_a_worker_answers():
    answers = Answers(Setting("tiny", threads=1))
    assert answer(answers, '["where"]')["result"].endswith("__init__.py")
    assert "alpha" in answer(answers, '["names"]')["result"]
    assert answer(answers, '["prepare", "alpha"]') == {"result": ["α", "unchecked"]}
    assert len(answer(answers, '["run", "α"]')["result"]) == 1
    assert answer(answers, '["run", "β"]') == {"error": "KeyError: 'β'"}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit of a library that has changed since."""

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
