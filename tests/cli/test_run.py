"""The command `affect-xp run`."""

import csv
import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import typing
import warnings

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.cli import main, rows, run, terminal
from affect_xp.cli.libraries import LIBRARIES, open_backend
from affect_xp.cli.options import ModelOptions, RunOptions, TableOptions
from affect_xp.display import time_format
from affect_xp.exceptions import ConvergenceWarning, InputError
from affect_xp.files import LOCK
from affect_xp.io import ReadOptions, Snapshot, read_steps

N, STEPS = 12, 5


@pytest.fixture
def features(tmp_path):
    """Two groups of objects over five weeks, as a file."""
    rng = np.random.default_rng(0)
    path = tmp_path / "features.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "id", "x", "y"])
        for t in range(STEPS):
            for i in range(N):
                x, y = rng.normal(size=2) + (3 if i % 2 else -3)
                writer.writerow([f"2024-01-{1 + 7 * t:02d}" if t < 5 else "", f"o{i}", x, y])
    return path


@pytest.fixture
def edges(tmp_path):
    """Two cliques over three days, as a file."""
    path = tmp_path / "edges.csv"
    rows = [
        f"2024-01-0{t},{5 * c + a},{5 * c + b}"
        for t in (1, 2, 3)
        for c in (0, 1)
        for a in range(5)
        for b in range(a)
    ]
    rows = sorted([*rows, "2024-01-01,0,5", "2024-01-02,1,6", "2024-01-03,2,7"])
    path.write_text("\n".join(["day,source,target", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def call(*arguments):
    return main(["run", *map(str, arguments)])


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_features(features, out, capsys):
    assert call(features, "-k", 2, "--freq", "7D", "--out", out) == 0
    printed = capsys.readouterr()
    assert "5 steps from 2024-01-01 to 2024-01-29, 12 objects, 2 clusters at the end" in printed.out
    assert "step 3 of 5, 2024-01-15: 12 objects, 2 clusters, α = 0." in printed.err
    labels, alpha = table(out / "labels.csv"), table(out / "alpha.csv")
    assert [row["time"] for row in labels[::N]] == [f"2024-01-{d:02d}" for d in (1, 8, 15, 22, 29)]
    clusters = {row["id"]: row["cluster"] for row in labels[:N]}
    assert len({clusters[f"o{i}"] for i in range(0, N, 2)}) == 1
    model = ax.Affect(ax.KMeans(2), proximity="dot", scale="standard", random_state=0)  # the default here
    model.fit(read_steps(features, freq="7D"))
    assert [float(row["alpha"]) for row in alpha] == [record.alpha for record in model.history_]
    assert [int(row["cluster"]) for row in labels] == np.concatenate(model.history_.labels).tolist()
    assert [row["event"] for row in table(out / "events.csv")] == ["birth", "birth"]
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["finished"] and summary["steps"] == STEPS and summary["backend"] == "numpy"


def test_edges(edges, out):
    assert call(edges, "-k", 2, "--out", out, "--quiet") == 0
    last = {row["id"]: row["cluster"] for row in table(out / "labels.csv")[-10:]}
    assert len({last[str(i)] for i in range(5)}) == len({last[str(i)] for i in range(5, 10)}) == 1
    assert "Spectral" in json.loads((out / "summary.json").read_text(encoding="utf-8"))["model"]


def test_json_and_silence(features, out, capsys):
    assert call(features, "-k", "silhouette", "--out", out, "--json", "--quiet") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert printed.err == ""


@pytest.mark.parametrize(
    "method, proximity", [("kmeans", "dot"), ("spectral", "rbf"), ("linkage", "euclidean")]
)
def test_each_method_has_its_proximity(method, proximity, features, out, capsys):
    assert call(features, "-k", 2, "--method", method, "--out", out, "--json") == 0
    assert f"proximity='{proximity}'" in json.loads(capsys.readouterr().out)["model"]


def test_options_for_networks(edges, out, capsys):
    options = ["--rescale", "log1p", "--absent", "keep", "--max-absence", 3]
    assert call(edges, "-k", 2, *options, "--out", out, "--json") == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert "rescale='log1p', absent='keep', max_absence=3" in model
    assert ax.load(out / "model.affect").absent == "keep"


def test_who_moved(tmp_path, out):
    groups = [["abcdef", "ghijkl"], ["abcde", "fghijkl"]]
    rows = [
        (t, x, y) for t in range(4) for group in groups[t >= 2] for x, y in itertools.combinations(group, 2)
    ]
    path = tmp_path / "moves.csv"
    path.write_text("t,source,target\n" + "".join(f"{t},{x},{y}\n" for t, x, y in rows), encoding="utf-8")
    assert call(path, "-k", 2, "--forgetting", "objects", "--out", out, "--quiet") == 0
    (move,) = table(out / "moves.csv")
    assert (move["time"], move["id"]) == ("2", "f") and float(move["probability"]) > 0.9
    assert (move["from"], move["to"]) == tuple(
        row["cluster"] for row in table(out / "labels.csv") if row["id"] == "f" and row["time"] in "12"
    )
    assert ax.load(out / "model.affect").forgetting == "objects"


def test_options_reach_the_model(features, out, capsys):
    options = [
        "--method",
        "linkage",
        "--linkage",
        "complete",
        "--alpha",
        "0.5",
        "--n-iter",
        "1",
        "--seed",
        "7",
    ]
    assert call(features, "-k", "2,2,2,2,3", *options, "--out", out, "--json") == 0
    model = json.loads(capsys.readouterr().out)["model"]
    for part in ("[2, 2, 2, 2, 3]", "method='complete'", "alpha=0.5", "n_iter=1", "random_state=7"):
        assert part in model
    assert [float(row["alpha"]) for row in table(out / "alpha.csv")] == [0, 0.5, 0.5, 0.5, 0.5]


def test_parquet(features, out):
    duckdb = pytest.importorskip("duckdb")
    assert call(features, "-k", 2, "--out", out, "--format", "parquet", "--quiet") == 0
    for name in ("labels", "alpha", "events"):
        found = duckdb.sql(f"SELECT * FROM '{out / name}.parquet'")
        assert found.columns[0] in ("time", "step")
    assert found.columns[1] == "event"
    labels = duckdb.sql(f"SELECT * FROM '{out}/labels.parquet'")
    assert labels.columns == ["time", "id", "cluster"] and len(labels.fetchall()) == N * STEPS


def test_parquet_without_duckdb(features, out, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert call(features, "-k", 2, "--out", out, "--format", "parquet") == 1
    assert "need DuckDB: pip install 'affect_xp[io]'" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--id", "nobody"], "--id nobody is not a column"),
        (["--objective", "ratio_cut"], "--objective is for --method spectral, not kmeans"),
        (["--method", "linkage"], "-k modularity is for --method kmeans or spectral, not linkage; give that"),
        (["-k", "gap"], "-k gap is for --method linkage, not kmeans; give that, or a number, or what kmeans"),
        (["-k", "eigengap"], "-k eigengap is for --method spectral, not kmeans"),
        (
            ["-k", "calinski_harabasz", "--method", "spectral"],
            "is for --method kmeans or linkage, not spectral",
        ),
        (["--method", "linkage", "--proximity", "dot", "-k", "2"], "proximity='dot' gives a similarity"),
        (["--freq", "30D", "-k", "2"], "id 'o0' has 5 rows at time 2024-01-01; pass --aggregate mean (or "),
        (["-k", "99"], "n_clusters=99 exceeds the number of objects, 12"),
    ],
)
def test_errors_are_one_line(arguments, told, features, out, capsys):
    rule = [] if "-k" in arguments else ["-k", "modularity"]
    assert call(features, *rule, *arguments, "--out", out, "--quiet") == 1
    error = capsys.readouterr().err
    assert error.startswith("affect-xp: ") and error.count("\n") == 1
    assert told in error


def test_proximities_are_not_made_of_proximities(edges, out, capsys):
    assert call(edges, "-k", 2, "--proximity", "dot", "--out", out) == 1
    assert "--proximity is for features" in capsys.readouterr().err


def test_graphs_have_no_dissimilarities(edges, out, capsys):
    assert call(edges, "-k", 2, "--method", "linkage", "--out", out) == 1
    assert "linkage needs dissimilarities, but edges are similarities" in capsys.readouterr().err


def test_no_input(tmp_path, out, capsys):
    assert call(tmp_path / "none.csv", "-k", 2, "--out", out) == 1
    assert "does not exist; check its name" in capsys.readouterr().err
    assert call(tmp_path / "none.csv") == 2


def test_an_empty_table(tmp_path, out, capsys):
    path = tmp_path / "empty.csv"
    path.write_text("time,id,x\n", encoding="utf-8")
    assert call(path, "-k", 2, "--out", out) == 1
    assert "contains no steps" in capsys.readouterr().err


def test_memory_that_is_not_enough(features, out, monkeypatch, capsys):
    def exhaust(*arguments, **options):
        raise MemoryError("Unable to allocate 8. TiB")

    monkeypatch.setattr(ax.Affect, "partial_fit", exhaust)
    assert call(features, "-k", 2, "--out", out, "--quiet") == 1
    assert capsys.readouterr().err.startswith("affect-xp: out of memory (Unable to allocate 8. TiB)")


# Defaults


def write_table(path, heading, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


@pytest.fixture
def countries(tmp_path):
    """Countries of two kinds, with incomes and populations unrelated to the kinds, and the kind of each."""
    rng, rows = np.random.default_rng(0), []
    income, people = rng.lognormal(9, 0.2, size=40), rng.lognormal(16, 0.2, size=40)
    for year in range(1960, 2000, 5):
        for i in range(40):
            life = rng.normal(75 if i % 2 else 50, 3)
            children = rng.normal(2 if i % 2 else 6, 0.5)
            rows.append([year, f"country {i}", income[i], life, people[i], children])
    heading = ["year", "country", "gdp", "life", "population", "children"]
    path = write_table(tmp_path / "countries.csv", heading, rows)
    return path, {f"country {i}": i % 2 for i in range(40)}


def agreement(out, groups):
    """Return the minimum adjusted Rand index of all steps."""
    rows = table(out / "labels.csv")
    found = []
    for time in sorted({row["time"] for row in rows}):
        own = [row for row in rows if row["time"] == time]
        truth = [groups[row["id"]] for row in own]
        found.append(ax.adjusted_rand_index([int(row["cluster"]) for row in own], truth))
    return min(found)


COUNTRIES = ("--time", "year", "--id", "country", "-k", 2)


@pytest.mark.parametrize("method", ["kmeans", "spectral", "linkage"])
@pytest.mark.parametrize("hindsight", [[], ["--offline"]])
def test_features_in_different_units(method, hindsight, countries, out, capsys):
    path, groups = countries
    assert call(path, *COUNTRIES, "--method", method, *hindsight, "--out", out) == 0
    error = capsys.readouterr().err
    assert error.count("scale standard: 4 columns of features, by those of step 1960, the same for all") == 1
    assert "warning" not in error and "rescale" not in error
    decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
    assert decided["at"] == "1960" and decided["scale"] == "standard" and decided["scaled_columns"] == 4
    assert agreement(out, groups) > 0.8
    again = ["--scale", "none", *hindsight, "--out", out, "--overwrite"]
    assert call(path, *COUNTRIES, "--method", method, *again) == 0
    assert "scale" not in capsys.readouterr().err
    assert agreement(out, groups) < 0.1  # clusters are bands of population


@pytest.mark.filterwarnings("default::affect_xp.exceptions.ScaleWarning")
def test_scales_can_be_chosen(countries, out, capsys):
    for scale in ("none", "center", "standard", "robust", "auto"):
        assert call(countries[0], *COUNTRIES, "--scale", scale, "--out", out, "--overwrite") == 0
        printed = capsys.readouterr().err
        decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
        expected = "standard" if scale == "auto" else scale
        assert decided["scale"] == expected and decided["scaled_columns"] == (0 if scale == "none" else 4)
        assert (f"scale {expected}: 4 columns" in printed) == (scale != "none")
        assert ("pass --scale standard to confirm, or --scale none" in printed) == (scale == "auto")


def test_what_is_cut_and_angles_are_not_standardised(features, out, capsys):
    cut = ["--method", "spectral", "--objective", "average_association"]
    for options in (["--proximity", "cosine"], [*cut, "--proximity", "dot"]):
        assert call(features, "-k", 2, *options, "--out", out, "--quiet", "--overwrite") == 0
        decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
        assert decided["scale"] == "none" and decided["scaled_columns"] == 0


def test_series_have_no_columns_that_last(tmp_path, out, capsys):
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(41, 2)), axis=0)[:, [0, 0, 0, 1, 1, 1]] + 0.1 * rng.normal(size=(41, 6))
    rows = [[t, *(100 * (i + 1) + w for i, w in enumerate(row))] for t, row in enumerate(walk)]
    path = write_table(tmp_path / "series.csv", ["time", *"abcdef"], rows)
    options = (path, "-k", 2, "--freq", "10 rows", "--changes", "absolute", "--standardize", "--out", out)
    assert call(*options) == 0
    assert "scale" not in capsys.readouterr().err
    decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
    assert decided["scale"] == "none" and decided["scaled_columns"] == 0
    assert agreement(out, dict(zip("abcdef", [0, 0, 0, 1, 1, 1], strict=True))) == 1
    assert call(*options, "--scale", "standard") == 1
    assert "--scale standard is for features, but" in (error := capsys.readouterr().err)
    assert "contains series; use --standardize" in error


@pytest.fixture
def meetings(tmp_path):
    """Contacts of two groups with heavy tails, and the group of each person."""
    steps = list(
        ax.datasets.contacts(6, n_groups=2, group_size=20, absence=0.2, mixing=0.1, lunch_mixing=0.1, rng=0)
    )
    rows = [
        [t, step.ids[i], step.ids[j], step.W[i, j]]
        for t, step in enumerate(steps)
        for i, j in zip(*np.triu(step.W).nonzero(), strict=True)
    ]
    path = write_table(tmp_path / "meetings.csv", ["time", "source", "target", "weight"], rows)
    groups = {str(name): label for step in steps for name, label in zip(step.ids, step.labels, strict=True)}
    return path, groups


@pytest.mark.parametrize("hindsight", [[], ["--offline"]])
def test_counts_with_heavy_tails(meetings, hindsight, out, capsys):
    path, groups = meetings
    assert call(path, "-k", 2, *hindsight, "--out", out) == 0
    error = capsys.readouterr().err
    assert error.count("affect-xp: rescale log1p: weights are skewed at step 0 (--rescale none keeps") == 1
    assert "warning" not in error
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["decided"]["rescale"] == "log1p" and summary["decided"]["absent"] == "keep"
    assert "absent='keep'" in summary["model"]
    assert agreement(out, groups) > 0.8
    options = ["--rescale", "none", "--absent", "forget", "--overwrite"]
    assert call(path, "-k", 2, *options, *hindsight, "--out", out) == 0
    assert "rescale" not in capsys.readouterr().err
    decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
    assert decided["rescale"] == "none" and decided["absent"] == "forget"


def test_links_without_weights_are_not_rescaled(edges, out, capsys):
    assert call(edges, "-k", 2, "--out", out) == 0
    assert "rescale none: weights are not skewed at step 2024-01-01\n" in capsys.readouterr().err
    assert call(edges, "-k", 2, "--out", out, "--scale", "robust") == 1
    assert "--scale robust is for features, but" in capsys.readouterr().err


def test_matrices_are_rescaled_and_the_absent_forgotten(tmp_path, out, capsys):
    path = tmp_path / "w.npy"
    steps = ax.datasets.contacts(3, n_groups=2, group_size=15, daily_contacts=2000, rng=0)
    np.save(path, np.stack([step.W for step in steps]))
    assert call(path, "-k", 2, "--out", out) == 0
    assert "rescale log1p" in capsys.readouterr().err
    decided = json.loads((out / "summary.json").read_text(encoding="utf-8"))["decided"]
    assert decided["rescale"] == "log1p" and decided["absent"] == "forget"


def test_decisions_are_kept_by_the_checkpoint(meetings, out, tmp_path, monkeypatch, capsys):
    path, _ = meetings
    assert call(path, "-k", 2, "--out", tmp_path / "whole", "--quiet") == 0
    assert capsys.readouterr().err == ""
    with monkeypatch.context() as patch:
        stopping_at(patch, 2)
        assert call(path, "-k", 2, "--out", out) == 130
    capsys.readouterr()
    assert call(path, "-k", 2, "--out", out, "--resume", "--rescale", "log1p") == 1
    assert "was made with --rescale auto, but now --rescale log1p is asked for" in capsys.readouterr().err
    assert call(path, "-k", 2, "--out", out, "--resume") == 0
    assert "rescale" not in capsys.readouterr().err  # reported at the first step
    assert files(out) == files(tmp_path / "whole")
    wholes = [
        json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for folder in (out, tmp_path / "whole")
    ]
    assert wholes[0]["decided"] == wholes[1]["decided"]


def test_later_steps_that_do_not_fit_what_was_decided(tmp_path, out, capsys):
    steps = [step.W for step in ax.datasets.contacts(2, n_groups=2, daily_contacts=5000, rng=0)]
    steps[1][0, 1] = steps[1][1, 0] = -1
    np.save(tmp_path / "w.npy", np.stack(steps))
    assert call(tmp_path / "w.npy", "-k", 2, "--out", out) == 1
    error = capsys.readouterr().err
    assert "--rescale log1p needs nonnegative similarities" in error and "use --rescale none" in error


# Interruption and resuming


def stopping_at(monkeypatch, step, times=1):
    """Simulate Ctrl-C during a step; return the list of steps taken."""
    partial_fit, taken = ax.Affect.partial_fit, []

    def pressed(self, *arguments, **options):
        taken.append(options["time"])
        if len(taken) == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return partial_fit(self, *arguments, **options)

    monkeypatch.setattr(ax.Affect, "partial_fit", pressed)
    return taken


def files(out):
    return {
        name: (out / name).read_text(encoding="utf-8") for name in ("labels.csv", "alpha.csv", "events.csv")
    }


def test_stopped_and_resumed_is_the_same_as_in_one_go(features, out, tmp_path, monkeypatch, capsys):
    pytest.importorskip("affect_xp.persistence")
    assert call(features, "-k", 2, "--out", tmp_path / "whole") == 0
    handlers = [signal.getsignal(number) for number in terminal.StopBetweenSteps.SIGNALS]
    with monkeypatch.context() as patch:
        taken = stopping_at(patch, 2)
        assert call(features, "-k", 2, "--out", out) == 130
    assert handlers == [signal.getsignal(number) for number in terminal.StopBetweenSteps.SIGNALS]
    assert len(taken) == 2 and len(table(out / "alpha.csv")) == 2
    printed = capsys.readouterr()
    assert "--resume continues" in printed.out and "stopping after this step" in printed.err
    assert call(features, "-k", 2, "--out", out) == 1  # the stopped run is not overwritten
    assert "add --resume to continue, or --overwrite" in capsys.readouterr().err
    assert call(features, "-k", 2, "--out", out, "--resume") == 0
    assert "continuing after 2 steps" in capsys.readouterr().err
    assert files(out) == files(tmp_path / "whole")


def test_pressed_twice_it_stops_at_once(features, out, monkeypatch, capsys):
    pytest.importorskip("affect_xp.persistence")
    stopping_at(monkeypatch, 3, times=2)
    assert call(features, "-k", 2, "--out", out) == 130
    error = capsys.readouterr().err
    assert error.endswith("affect-xp: interrupted after 2 steps, which are kept; --resume continues\n")
    assert len(table(out / "alpha.csv")) == 2
    monkeypatch.undo()
    assert call(features, "-k", 2, "--out", out, "--overwrite") == 0
    assert len(table(out / "alpha.csv")) == STEPS


def test_a_bad_row_is_found_before_the_first_step(features, out, capsys):
    lines = features.read_text(encoding="utf-8").splitlines()
    lines[-1] = lines[-1].rpartition(",")[0] + ","
    features.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert call(features, "-k", 2, "--out", out, "--quiet") == 1
    error = capsys.readouterr().err
    assert f"line {len(lines)} of {features}" in error and "has no value in column 'y'" in error
    assert not out.exists()


def test_a_bad_step_leaves_what_is_before_it(tmp_path, out, capsys):
    pytest.importorskip("affect_xp.persistence")
    X = np.random.default_rng(0).normal(size=(STEPS, N, 2))
    path = tmp_path / "x.npy"
    np.save(path, np.where(np.arange(STEPS)[:, None, None] == STEPS - 1, np.nan, X))
    assert call(path, "-k", 2, "--out", out, "--quiet") == 1
    assert "the 4 steps before are kept: correct it and add --resume" in capsys.readouterr().err
    np.save(path, X)
    assert call(path, "-k", 2, "--out", out, "--resume", "--quiet") == 0
    assert len(table(out / "alpha.csv")) == STEPS


def test_what_the_columns_are_is_told(tmp_path, out, capsys):
    rows = [[i, t, f"o{i}", i % 2 + 0.1 * t, "x"] for t in range(3) for i in range(6)]
    path = write_table(tmp_path / "f.csv", ["", "day", "name", "height", "note"], rows)
    assert call(path, "-k", 2, "--features", "height", "--out", out) == 0
    told = "features: time 'day', id 'name', values 'height'; not used: '', 'note'"
    assert told in capsys.readouterr().err


def test_new_rows_are_taken_when_they_come(features, out, tmp_path):
    pytest.importorskip("affect_xp.persistence")
    assert call(features, "-k", 2, "--out", tmp_path / "whole", "--quiet") == 0
    lines = features.read_text(encoding="utf-8").splitlines()
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("\n".join(lines[: 1 + 3 * N]) + "\n", encoding="utf-8")
    new.write_text("\n".join([lines[0], *lines[1 + 3 * N :]]) + "\n", encoding="utf-8")
    state = tmp_path / "kept.affect"
    for path in (old, new):
        assert call(path, "-k", 2, "--out", out, "--state", state, "--resume", "--quiet") == 0
    assert files(out) == files(tmp_path / "whole")


def test_resumed_with_other_options(features, out, capsys):
    pytest.importorskip("affect_xp.persistence")
    assert call(features, "-k", 2, "--out", out, "--quiet") == 0
    assert call(features, "-k", 3, "--out", out, "--resume") == 1
    error = capsys.readouterr().err
    assert "was made with clusterer=KMeans(n_clusters=2" in error and "give the same options" in error


def test_a_finished_run_is_not_replaced(features, out, capsys):
    assert call(features, "-k", 2, "--out", out, "--quiet") == 0
    before = files(out)
    for hindsight in ([], ["--offline"]):
        assert call(features, "-k", 3, "--out", out, *hindsight) == 1
        error = capsys.readouterr().err
        assert (
            f"{out} contains a finished run; give another --out, --overwrite to replace it, or --resume"
            in error
        )
    assert files(out) == before
    assert call(features, "-k", 3, "--out", out, "--overwrite", "--quiet") == 0
    assert files(out) != before


def test_a_checkpoint_without_results_is_not_replaced(features, out, capsys):
    """As left by a killed process."""
    assert call(features, "-k", 2, "--out", out, "--quiet") == 0
    (out / "summary.json").unlink()
    assert call(features, "-k", 2, "--out", out) == 1
    assert "contains a run that was stopped" in capsys.readouterr().err


@pytest.mark.parametrize("changed", ["value", "id", "more rows"])
def test_rows_that_have_changed_are_noticed(changed, features, out, capsys):
    options = (features, "-k", 2, "--freq", "7D", "--out", out)
    assert call(*options, "--quiet") == 0
    lines = features.read_text(encoding="utf-8").splitlines()
    if changed == "value":
        time, name, x, y = lines[3].split(",")
        lines[3] = f"{time},{name},{float(x) + 1e-4},{y}"
    elif changed == "id":
        lines[3] = lines[3].replace("o2", "someone")
    else:
        lines.append("2024-01-29,new,1.0,1.0")
    features.write_text("\n".join(lines) + "\n", encoding="utf-8")
    before = files(out)
    assert call(*options, "--resume") == 1
    time = "2024-01-29" if changed == "more rows" else "2024-01-01"
    error = capsys.readouterr().err
    assert (
        f"the rows of {features} at time {time} 00:00:00 have changed since the checkpoint used them" in error
    )
    assert "--overwrite" in error and files(out) == before


def test_fingerprints_see_every_entry():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    same = rows.fingerprint(Snapshot(0, None, X))
    assert rows._equal(same, rows.fingerprint(Snapshot(0, None, X * (1 + 1e-15))))
    assert rows._equal(same, rows.fingerprint(Snapshot(0, None, scipy.sparse.csr_array(X))))
    for i, j in zip(rng.integers(1500, size=50), rng.integers(3, size=50), strict=True):
        other = X.copy()
        other[i, j] += 1e-6
        assert not rows._equal(same, rows.fingerprint(Snapshot(0, None, other)))
    assert not rows._equal(same, rows.fingerprint(Snapshot(0, None, X[::-1])))


def test_two_runs_into_one_folder(features, out, tmp_path, capsys):
    out.mkdir()
    code = (
        "import sys, pathlib, affect_xp.files as files\n"
        "with files.exclusive_use(pathlib.Path(sys.argv[1])):\n"
        "    print('mine', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout.readline().strip() == b"mine"
        assert call(features, "-k", 2, "--out", out) == 1
        assert f"process {owner.pid} on " in (error := capsys.readouterr().err) and "is writing to" in error
        assert os.listdir(out) == [LOCK]
        owner.kill()
    assert (out / LOCK).exists()  # the lock of a killed process is stale
    assert call(features, "-k", 2, "--out", out, "--quiet") == 0
    assert not (out / LOCK).exists()


def test_ctrl_c_in_hindsight_keeps_what_is_done(features, out, monkeypatch, capsys):
    smooth = run.smooth

    def pressed(*arguments, callback, **options):
        def stopping(record):
            callback(record)
            if str(record.time).startswith("2024-01-15"):
                raise KeyboardInterrupt

        return smooth(*arguments, callback=stopping, **options)

    monkeypatch.setattr(run, "smooth", pressed)
    assert call(features, "-k", 2, "--offline", "--out", out) == 130
    error = capsys.readouterr().err
    assert "interrupted after 3 of 5 steps, whose results are in" in error and "--overwrite" in error
    assert len(table(out / "alpha.csv")) == 3
    monkeypatch.undo()
    assert call(features, "-k", 2, "--offline", "--out", out, "--overwrite") == 0
    assert len(table(out / "alpha.csv")) == 5


def test_progress_of_both_passes(tmp_path, out, capsys):
    path = tmp_path / "w.npy"
    np.save(path, np.stack([step.W for step in ax.datasets.colliding_gaussians(n_steps=12, rng=0)]))
    assert call(path, "-k", 2, "--method", "kmeans", "--offline", "--out", out) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step")]
    assert lines[0] == "step 1 of 24, backward pass, 1 of 12" and lines[-1].startswith("step 24 of 24, 11: ")


def test_nobody_reads_the_progress(features, out):
    """`affect-xp run ... 2>&1 | head -1` still writes the results."""
    called = [sys.executable, "-m", "affect_xp", "run", str(features), "-k", "2", "--out", str(out)]
    with subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        process.stdout.close()
    assert len(table(out / "alpha.csv")) == STEPS


def test_the_model_is_saved_now_and_then(features, out, monkeypatch):
    persistence = pytest.importorskip("affect_xp.persistence")
    saved, save = [], persistence.save
    monkeypatch.setattr(
        persistence, "save", lambda model, path: saved.append(model.n_steps_) or save(model, path)
    )
    assert call(features, "-k", 2, "--out", out, "--quiet", "--save-every", 0) == 0
    assert saved == [1, 2, 3, 4, 5, 5]


# Parts


def test_torch_computes_the_same(features, edges, tmp_path):
    pytest.importorskip("torch")
    for name, path in (("f", features), ("e", edges)):
        of = {}
        for backend in ("numpy", "torch"):
            out = tmp_path / f"{name}-{backend}"
            assert call(path, "-k", 2, "--out", out, "--backend", backend, "--device", "cpu", "--quiet") == 0
            of[backend] = table(out / "labels.csv"), [float(row["alpha"]) for row in table(out / "alpha.csv")]
        assert of["torch"][0] == of["numpy"][0]
        np.testing.assert_allclose(of["torch"][1], of["numpy"][1], rtol=1e-9)


def test_backends_that_are_not_here(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(InputError, match=r"CuPy cannot be used here .*pip install 'affect_xp\[cuda12\]'"):
        open_backend("cupy")
    with pytest.raises(InputError, match="NumPy has no device 'cuda:7' here; it has cpu"):
        open_backend("numpy", "cuda:7")


def test_cupy_keeps_sparse_matrices(edges):
    cupy = pytest.importorskip("cupy")
    try:
        backend = open_backend("cupy")
    except InputError as error:
        pytest.skip(str(error))
    step = next(iter(read_steps(edges)))
    there = backend.put(step.values)
    assert isinstance(there.data, cupy.ndarray)
    np.testing.assert_array_equal(there.get().toarray(), step.values.toarray())


def test_the_arguments_of_reading_are_options():
    assert run.as_options("freq='20 rows' or time=") == "--freq '20 rows' or --time"
    assert run.as_options("names=['time', 'source']") == "--names time,source"
    assert run.as_options("features=[...]") == "--features ..."
    assert run.as_options("scale='standard' or rescale=None") == "--scale standard or --rescale none"
    assert run.as_options("time_format='%d/%m/%Y', n_clusters=3") == "--time-format %d/%m/%Y, n_clusters=3"


def test_warnings_are_one_line(capsys):
    with terminal.plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("raise it", ConvergenceWarning, stacklevel=1)
    assert capsys.readouterr().err == "affect-xp: warning: raise it\n"


def test_times_are_written_in_one_way():
    from datetime import datetime

    midnight, noon = datetime(2024, 1, 1), datetime(2024, 1, 1, 12)
    assert time_format([midnight])(midnight) == "2024-01-01"
    assert [time_format([midnight, noon])(t) for t in (midnight, noon)] == [
        "2024-01-01 00:00",
        "2024-01-01 12:00",
    ]
    late = noon.replace(second=5)
    assert [time_format([noon, late])(t) for t in (noon, late)] == [
        "2024-01-01 12:00:00",
        "2024-01-01 12:00:05",
    ]
    day, hour = np.datetime64("2024-01-01", "ns"), np.datetime64("2024-01-01T12", "h")
    assert [time_format([day])(day), time_format([day, hour])(hour)] == ["2024-01-01", "2024-01-01 12:00"]
    assert time_format([3])(3) == "3"


def test_backends_of_the_command_line_are_known():
    assert set(typing.get_args(typing.get_type_hints(RunOptions)["backend"])) <= set(LIBRARIES)


def test_options_have_the_defaults_of_the_model():
    given = {field.name: field.default for field in dataclasses.fields(ModelOptions)}
    known = ax.Affect(ax.KMeans(2)).get_params(deep=False)
    same = ("rescale", "max_absence", "n_iter", "alpha", "forgetting")
    assert {name: given[name] for name in same} == {name: known[name] for name in same}
    assert issubclass(TableOptions, ReadOptions)
