"""The page of a run: complete, bounded, and safe for any ids. `test_browser.py` tests it in a browser."""

import datetime
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.cli import main
from affect_xp.exceptions import AffectError
from affect_xp.report import _data, in_short, script, write_report
from affect_xp.report._data import report_data
from affect_xp.tracking.events import Event
from affect_xp.tracking.history import History, Record

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"&\u2028'",
    "<!--<script x",
]


def record(labels, ids, *, time=0, alpha=0.5, events=(), moved=None):
    moved = None if moved is None else np.asarray(moved)
    return Record(
        time, len(ids), 0, alpha, (alpha,), np.asarray(labels), tuple(ids), tuple(events), moved=moved
    )


@pytest.fixture
def history():
    split = Event("split", (0,), (0, 1), 4, 4, 4)
    went_on = Event("continuation", (0,), (0,), 2, 2, 2)
    return History(
        (
            record([0, 0, 0, 0], "abcd", time=datetime.datetime(2024, 1, 1), alpha=0.0),
            record([0, 0, 1, 1], "abcd", time=datetime.datetime(2024, 1, 8), events=(split,)),
            record([0, 1, 1, -1], "abce", time=datetime.datetime(2024, 1, 15), events=(went_on,)),
        )
    )


class Page(HTMLParser):
    """The elements of a page, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self._open = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag == "script"
        if self._open:
            self.scripts.append("")

    def handle_data(self, data):
        if self._open:
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self._open = False


def parsed(path):
    page = Page(path.read_text(encoding="utf-8"))
    return page, json.loads(page.scripts[0])


def test_an_unknown_alpha_is_left_out(tmp_path):
    alphas = [math.nan, 0.5, math.nan, 0.25]
    steps = [record([0, 1], "ab", time=t, alpha=alpha) for t, alpha in enumerate(alphas)]
    _, data = parsed(write_report(History(tuple(steps)), tmp_path / "report.html"))
    assert data["alpha"] == [None, 0.5, None, 0.25]


def test_data_of_a_small_run(history):
    data = report_data(history)
    assert data["times"] == ["2024-01-01", "2024-01-08", "2024-01-15"]
    assert data["alpha"] == [None, 0.5, 0.5]
    assert data["n"] == [4, 4, 4] and data["k"] == [1, 2, 2]
    assert data["sizes"] == [[[0, 4]], [[0, 2], [1, 2]], [[0, 1], [1, 2]]]
    assert data["links"] == [[], [[0, 0, 2], [0, 1, 2]], [[0, 0, 1], [0, 1, 1], [1, 1, 1]]]
    assert [[event["text"] for event in events] for events in data["events"]] == [
        [],
        ["cluster 0 (4 objects) split into clusters 0 and 1"],
        [],
    ]
    by_step = [dict(zip(data["ids"], labels, strict=True)) for labels in data["labels"]]
    assert by_step[2] == {"a": 0, "b": 1, "c": 1, "d": -2, "e": -1}
    assert data["nObjects"] == 5 and data["notes"] == []


def test_the_page_says_when_change_points_cannot_be_told(history, tmp_path):
    assert "estimated" in report_data(history)["changesNote"]  # these records have no noise and drift
    rng = np.random.default_rng(0)
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    for t in range(8):
        centres = np.array([[4.0, 0.0], [-4.0, 0.0]]) + (t >= 5) * np.array([[0.0, 6.0], [0.0, 0.0]])
        model.partial_fit(centres[np.arange(40) % 2] + rng.normal(size=(40, 2)))
        data = report_data(model.history_)
        assert ("too short" in data["changesNote"]) is (t < 3)
    assert data["changes"] == [5] and data["changesNote"] == ""
    page = write_report(model, tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="changes-note"' in page


def test_the_page_holds_the_data_and_loads_nothing(history, tmp_path):
    page, data = parsed(write_report(history, tmp_path / "report.html", title="a < b"))
    assert data == json.loads(json.dumps(report_data(history)))
    policy = next(attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'")
    assert not [attrs for _, attrs in page.tags if {"src", "href", "action"} & attrs.keys()]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w./]+", text)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not an address
    assert "<title>a &lt; b</title>" in text


def test_ids_times_and_titles_cannot_become_elements(tmp_path):
    plain = History((record([0, 0, 1, 1], "abcd", time="t"),))
    hostile = History((record([0, 0, 1, 1], HOSTILE, time=HOSTILE[0]),))
    expected, _ = parsed(write_report(plain, tmp_path / "plain.html", title="title"))
    page, data = parsed(write_report(hostile, tmp_path / "hostile.html", title=HOSTILE[0]))
    assert page.tags == expected.tags
    assert page.scripts[1] == expected.scripts[1]
    assert not set("<>&") & set(page.scripts[0])
    assert sorted(data["ids"]) == sorted(HOSTILE) and data["times"] == HOSTILE[:1]


def test_the_script_never_makes_markup_of_text():
    for door in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "import(",
    ):
        assert door not in script()


def test_large_runs_are_thinned_and_say_so(monkeypatch):
    monkeypatch.setattr(_data, "MAX_ENTRIES", 60)
    monkeypatch.setattr(_data, "MAX_BARS", 6)
    monkeypatch.setattr(_data, "MAX_LINKS", 4)
    monkeypatch.setattr(_data, "MAX_EVENTS", 2)
    births = tuple(Event("birth", (), (name,), 0, 0, 9) for name in range(5))
    rng = np.random.default_rng(0)
    history = History(tuple(record(rng.integers(0, 5, 300), range(300), events=births) for _ in range(2)))
    data = report_data(history)
    assert len(data["ids"]) == 30 and [len(labels) for labels in data["labels"]] == [30, 30]
    assert [len(sizes) for sizes in data["sizes"]] == [3, 3] and data["k"] == [5, 5]
    assert len(data["links"][1]) == 2
    kept = [{name for name, _ in sizes} for sizes in data["sizes"]]
    assert all(c in kept[0] and d in kept[1] for c, d, _ in data["links"][1])
    smallest_kept = min(size for _, size in data["sizes"][0])
    counts = np.bincount(history[0].labels)
    assert (counts[sorted(set(range(5)) - kept[0])] <= smallest_kept).all()
    assert [len(events) for events in data["events"]] == [0, 1]  # births of the first step are not events
    assert data["notes"][0].startswith("Members are shown for 30 of 300 objects")
    assert [note.split()[0] for note in data["notes"][1:]] == ["4", "The", "4"]


def test_a_large_run_makes_a_page_of_a_few_megabytes(tmp_path):
    rng = np.random.default_rng(0)
    records = [record(rng.integers(0, 30, 20_000), range(20_000), time=t) for t in range(50)]
    path = write_report(History(tuple(records)), tmp_path / "report.html")
    assert path.stat().st_size < 4e6
    assert len(parsed(path)[1]["ids"]) == 2000


def test_long_ids_are_cut():
    assert len(report_data(History((record([0], ["x" * 1000]),)))["ids"][0]) == _data.MAX_ID


def test_models_of_any_library(xp, tmp_path):
    steps = list(ax.datasets.colliding_gaussians(n_samples=16, n_steps=4, rng=0))
    given = [xp.array(step.W) for step in steps]
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(given)
    twin = ax.Affect(ax.KMeans(2), random_state=0).fit(step.W for step in steps)
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=given))
    assert data["labels"] == report_data(twin.history_)["labels"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Affect(clusterer=KMeans(n_clusters=2), random_state=0)" in text
    assert f"affect_xp {ax.__version__}" in text
    cohesion = [
        float(ax.silhouette(step.W, record.labels, kind="similarity"))
        for step, record in zip(steps, twin.history_, strict=True)
    ]
    np.testing.assert_allclose(data["cohesion"], cohesion, atol=1e-4)


def features(n_steps=5):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(12, 3)) + 9 * np.eye(3)[np.arange(12) % 3] * [1, 1, 100] for _ in range(n_steps)]


def scaled_kmeans():
    return ax.Affect(ax.KMeans(3), proximity="dot", scale="standard", random_state=0)


def test_features_describe_clusters(xp, tmp_path):
    given = [xp.array(X) for X in features()]
    model = scaled_kmeans().fit(given)
    names = ["a", "b", "<c>"]
    path = write_report(model, tmp_path / "report.html", steps=given, feature_names=np.array(names))
    _, data = parsed(path)
    assert data["measure"] == "silhouette" and data["densities"] is None
    for t, X in enumerate(features()):
        expected = ax.cluster_profiles(X, model.history_[t].labels, names)
        for (cluster, _), shown in zip(data["sizes"][t], data["profiles"][t], strict=True):
            place = expected.clusters.tolist().index(cluster)
            f = int(expected.top(1)[place, 0])
            name, *numbers = shown[0]
            assert data["features"][name] == names[f]
            of_all = (expected.mean_of_all[f], expected.std_of_all[f])
            np.testing.assert_allclose(
                numbers, (expected.means[place, f], expected.stds[place, f], *of_all), 1e-3
            )
        scaled = (X - model.location_) / model.scale_  # as in the model
        score = float(ax.silhouette(scaled @ scaled.T, model.history_[t].labels, kind="similarity"))
        assert data["cohesion"][t] == pytest.approx(score, abs=1e-4)


def test_graphs_have_densities_and_central_members(tmp_path):
    networkx = pytest.importorskip("networkx")
    graphs = [networkx.planted_partition_graph(2, 10, 0.9, 0.1, seed=seed) for seed in range(3)]
    model = ax.Affect(ax.Spectral(2), random_state=0).fit(graphs)
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=graphs))
    assert data["measure"] == "modularity" and data["profiles"] is None
    for t, graph in enumerate(graphs):
        W, last = networkx.to_numpy_array(graph), model.history_[t]
        assert data["cohesion"][t] == pytest.approx(float(ax.modularity(W, last.labels)), abs=1e-4)
        expected = ax.cluster_densities(W, last.labels, last.ids)
        for (cluster, _), (inside, outside, central) in zip(
            data["sizes"][t], data["densities"][t], strict=True
        ):
            place = expected.clusters.tolist().index(cluster)
            numbers = (expected.inside[place], expected.outside[place])
            np.testing.assert_allclose((inside, outside), numbers, rtol=1e-3)
            assert [data["ids"][row] for row in central] == [str(name) for name in expected.central[place]]


def test_frames_series_and_hindsight_are_described(tmp_path):
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(X, columns=["u", "v", "w"]) for X in features()]
    found = ax.smooth(frames, ax.KMeans(3), proximity="dot", scale="standard", random_state=0)
    _, data = parsed(write_report(found, tmp_path / "report.html", steps=frames))
    assert set(data["features"]) <= {"u", "v", "w"} and len(data["cohesion"]) == 5
    rng = np.random.default_rng(0)
    prices = (
        pandas.DataFrame(rng.normal(size=(20, 6)), columns=list("abcdef")).rename_axis("time").reset_index()
    )
    steps = ax.io.read_steps(prices, kind="series", freq="5 rows", time="time")
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(steps)
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=steps))
    assert data["profiles"] is None and len(data["densities"]) == 4  # columns are days, not features


@pytest.mark.parametrize(
    "model",
    [
        ax.Static(ax.KMeans(3), proximity="dot", scale="standard"),
        ax.RG(ax.KMeans(3), scale="standard", random_state=0),
        ax.PCM(ax.Spectral(3), proximity="rbf", scale="standard", random_state=0),
        ax.Affect(ax.Linkage(3), proximity="euclidean", scale="standard"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_all_models_are_described(model, tmp_path):
    model.fit(features())
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=features()))
    assert data["measure"] == "silhouette" and len(data["profiles"]) == 5
    assert all(0 < score <= 1 for score in data["cohesion"])


def test_proximities_of_other_kinds_are_described(tmp_path):
    X = features(1)[0] / [1, 1, 100]
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    model = ax.Affect(ax.Linkage(3)).fit([distances] * 2)
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=[distances] * 2))
    assert data["measure"] == "silhouette" and data["cohesion"][0] > 0.5
    assert all(inside < outside for inside, outside, _ in data["densities"][0])

    def halves(W):  # does not declare the kind of W
        return np.arange(W.n) % 2

    model = ax.Affect(halves).fit([distances] * 2)
    _, data = parsed(write_report(model, tmp_path / "report.html", steps=[distances] * 2))
    assert data["cohesion"] == [None, None] and len(data["densities"]) == 2


def test_many_clusters_have_fewer_features(monkeypatch):
    from affect_xp.report.steps import describe_steps

    model = scaled_kmeans().fit(features())
    described = describe_steps(model, model.history_, features())
    assert len(report_data(model.history_, described=described)["profiles"][0][0]) == 3
    monkeypatch.setattr(_data, "MAX_PROFILES", 30)  # of 15 clusters
    assert len(report_data(model.history_, described=described)["profiles"][0][0]) == 2


def test_steps_must_be_those_of_the_run(tmp_path):
    model = scaled_kmeans().fit(features())
    path = tmp_path / "report.html"
    for steps in (features(4), features(6)):
        with pytest.raises(AffectError, match=f"steps has {len(steps)} entries, but the run has 5 steps"):
            write_report(model, path, steps=steps)
    with pytest.raises(AffectError, match="steps has 11 objects at time 0, but the model was given 12"):
        write_report(model, path, steps=[X[:11] for X in features()])
    with pytest.raises(AffectError, match="feature_names has 1 names"):
        write_report(model, path, steps=features(), feature_names=["a"])
    with pytest.raises(AffectError, match="pass it instead of its history"):
        write_report(model.history_, path, steps=features())
    assert not path.exists()


def test_moves_and_stability_are_those_of_the_tables():
    pytest.importorskip("pandas")
    history = History(
        (
            record([0, 0, 1, 1], "abcd", time=0),
            record([1, 1, 0, 1], "abcd", time=1, moved=[0.6, 0.4, 0.9, 0.8]),
            record([1, 0, 0, -1], "abcx", time=2),
        )
    )
    data = report_data(history)
    assert data["moved"][0] is None and data["moved"][2] is None
    moved = {data["ids"][row]: p for row, p in data["moved"][1]}
    assert moved == {"a": 0.6, "b": 0.4, "c": 0.9, "d": 0.8}  # b changed clusters with a low probability
    table = history.moves_to_frame()
    assert {name for name, p in moved.items() if p >= 0.5} == set(table[table["time"] == 1]["id"])
    stable = history.stability()
    shown = [share for step in data["keptByCluster"] for share in step]
    np.testing.assert_allclose(np.array(shown, dtype=float), stable["kept"], atol=1e-3)
    assert data["kept"] == [None, 0.25, pytest.approx(2 / 3, abs=1e-3)]


def test_parameters_that_differ_from_their_defaults():
    model = ax.Affect(ax.KMeans(3, max_iter=9), events=ax.EventRules(part=0.2), alpha=0.5)
    assert (
        in_short(model)
        == "Affect(clusterer=KMeans(n_clusters=3, max_iter=9), events=EventRules(part=0.2), alpha=0.5)"
    )
    assert len(in_short(ax.Affect(ax.KMeans(2), alpha=[0.123456] * 1000))) < 300


def test_no_steps(tmp_path):
    _, data = parsed(write_report(History(), tmp_path / "report.html"))
    assert data["times"] == [] and data["labels"] == []


def test_rejects(history, tmp_path):
    with pytest.raises(AffectError, match="max_objects must be at least 1"):
        write_report(history, tmp_path / "report.html", max_objects=0)
    with pytest.raises(AffectError, match="is a folder"):
        write_report(history, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_report(tmp_path, capsys):
    rng = np.random.default_rng(0)
    lines = ["time,id,x,y"]
    for day in range(1, 4):
        for i in range(8):
            x, y = rng.normal(6 * (i % 2), 1, 2)
            lines.append(f"2024-01-0{day},o{i},{x},{y}")
    source = tmp_path / "points.csv"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["run", str(source), "-k", "2", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert "report.html" in capsys.readouterr().out
    _, data = parsed(tmp_path / "out" / "report.html")
    assert data["times"] == ["2024-01-01", "2024-01-02", "2024-01-03"]
    assert sorted(data["features"]) == ["x", "y"] and len(data["cohesion"]) == 3
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["files"]["report"] == "report.html"


def test_the_command_describes_the_steps_of_a_checkpoint_too(tmp_path):
    pytest.importorskip("duckdb")
    rows = [f"{t},o{i},o{j}" for t in range(4) for i in range(8) for j in range(i) if (i < 4) == (j < 4)]
    source, out = tmp_path / "links.csv", tmp_path / "out"
    command = ["run", str(source), "-k", "2", "--out", str(out), "--quiet"]
    source.write_text("\n".join(["time,source,target", *rows[: len(rows) // 2]]) + "\n", encoding="utf-8")
    assert main(command) == 0
    source.write_text("\n".join(["time,source,target", *rows]) + "\n", encoding="utf-8")
    assert main([*command, "--resume"]) == 0
    _, data = parsed(out / "report.html")
    assert data["cohesion"] == [0.5] * 4 and data["measure"] == "modularity"
    assert all(density[:2] == [1, 0] for step in data["densities"] for density in step)
    assert main([*command, "--offline", "--overwrite"]) == 0
    assert parsed(out / "report.html")[1]["cohesion"] == [0.5] * 4
