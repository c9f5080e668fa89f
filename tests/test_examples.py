"""The gallery scripts run without data and without a network, draw a figure, and confirm their text."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Expected values of variables of each script.
CLAIMS = {
    "plot_1_quickstart": lambda found: found["score"] > 0.95 and _falls(found["model"].history_.alpha, at=12),
    "plot_2_stocks": lambda found: _mean(found["scores"]["AFFECT"]) > 0.9 > _mean(found["scores"]["static"]),
    "plot_3_contacts": lambda found: (
        _mean(found["scores"]["hindsight"])
        > _mean(found["scores"]["AFFECT"])
        > _mean(found["scores"]["static"]) + 0.2
    ),
    "plot_4_choosing_k": lambda found: min(found["shares"].values()) > 0.9,
    "plot_5_streaming": lambda found: found["same"] and found["score"] == 1,
    "plot_6_many_objects": lambda found: found["score"] > 0.95 and found["difference"] < 1e-12,
    "plot_7_change_points": lambda found: (
        found["found"] == [14, 26] and found["ax"].change_points(found["short"]) == [5]
    ),
    "plot_8_events": lambda found: (
        found["score"] > 0.95 and {"split", "merge", "birth"} <= _kinds(found["model"].history_)
    ),
}


def _mean(values):
    return sum(values) / len(values)


def _falls(alpha, at):
    return alpha[at] == alpha[1:].min() and alpha[at] < alpha[at - 1] - 0.2


def _kinds(history):
    return {event.kind for record in history[1:] for event in record.events}


def _ids_keep_their_meaning(found):
    """Return whether the defaults have few errors of both kinds, with a margin on both sides."""
    for rule in ("cosine 0.4", *(("cosine", threshold) for threshold in (0.35, 0.45))):
        row = found["table"][rule] if isinstance(rule, str) else found["errors"](*rule)
        hard = {"k = 5", "k = 3", "k = 2"}  # so few clusters are similar by chance
        if max(value for name, value in row.items() if name not in hard) > 5:
            return False
    events = found["event_table"]["part 0.15, min_objects 2"]
    return min(events[f"{m} parts"] for m in (2, 3, 4)) > 80 and events["tiny clusters"] < 2


def _as_on_the_page(found):
    """Return whether the results show the numbers of the script, up to random variation."""
    page = (EXAMPLES.parent / "bench" / "RESULTS.md").read_text("utf-8").replace("**", "")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    shown = {
        row[0]: [float(x) for x in row[1:]] for row in rows if row[0] in found["table"] | found["event_table"]
    }
    measured = found["table"] | found["event_table"]
    return shown.keys() == measured.keys() and all(
        abs(a - b) <= 8
        for name, values in shown.items()
        for a, b in zip(values, measured[name].values(), strict=True)
    )


@pytest.mark.skipif(not EXAMPLES.exists(), reason="not a clone of the repository")
def test_every_script_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_example(name, monkeypatch, tmp_path):
    path = EXAMPLES / f"{name}.py"
    if not path.exists():
        pytest.skip("not a clone of the repository")
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AFFECT_XP_DATA", raising=False)
    matplotlib.use("agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    try:
        found = runpy.run_path(str(path))
        figures = [plt.figure(number) for number in plt.get_fignums()]
        assert figures and all(axes.has_data() for figure in figures for axes in figure.axes)
    finally:
        plt.close("all")
    assert CLAIMS[name](found)
    assert not list(tmp_path.iterdir())  # no files remain


def test_rules_of_cluster_ids():
    path = EXAMPLES.parent / "bench" / "cluster_ids.py"
    if not path.exists():
        pytest.skip("not a clone of the repository")
    found = runpy.run_path(str(path))
    assert _ids_keep_their_meaning(found)
    assert _as_on_the_page(found)
