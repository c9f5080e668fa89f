"""The paper's experiment on NASDAQ stocks: on a simulated market, and on the prices of 2008."""

import datetime
import os
import pathlib

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.experiments import Entry, Measured, Options, Table, nasdaq

DATA = pathlib.Path(os.environ.get("AFFECT_XP_DATA", "")) / "nasdaq2008.npz"
needs_data = pytest.mark.skipif(
    "AFFECT_XP_DATA" not in os.environ or not DATA.exists(),
    reason="set AFFECT_XP_DATA to a folder with nasdaq2008.npz",
)


def write_market(folder, n_days=241, per_sector=10):
    """Write a nasdaq2008.npz in which stocks of a sector move together, and in window 13 all stocks do."""
    rng = np.random.default_rng(0)
    sector = np.repeat(np.arange(12), per_sector)
    # Sectors have the same pattern in each window, so that the past predicts the present.
    pattern = rng.normal(size=(15, 12))
    changes = np.tile(pattern, (n_days // 15 + 1, 1))[: n_days - 1, sector]
    changes[13 * 15 : 14 * 15] = 3 * rng.normal(size=(15, 1))[: max(0, n_days - 1 - 13 * 15)]
    changes = changes + rng.normal(scale=1.5, size=changes.shape)
    first = datetime.date(2008, 1, 1)
    np.savez(
        folder / "nasdaq2008.npz",
        opens=500 + np.cumsum(np.vstack([np.zeros(len(sector)), changes]), axis=0),
        dates=np.array([str(first + datetime.timedelta(days=i)) for i in range(n_days)]),
        tickers=np.array([f"S{i}" for i in range(len(sector))]),
        sector=np.array([f"sector {c}" for c in sector]),
    )
    return folder


def test_report_on_a_simulated_market(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(nasdaq, "SIZES", (24, 1000))
    monkeypatch.setattr(nasdaq, "REPEATS", 1)
    report = nasdaq.run(Options(runs=2, data=write_market(tmp_path)))
    rand, variants, times = report.tables
    assert rand[nasdaq.THREE].mean > rand[nasdaq.STATIC].mean + 0.01
    assert rand[nasdaq.THREE].error is not None
    assert {entry.method: entry.published for entry in rand.entries}[nasdaq.RG3] == 0.804
    assert [claim.text for claim in report.claims if not claim.holds] == []
    # All prices of this market change in every window.
    same = {name: variants[name] for name in nasdaq.WITHOUT_CONSTANT}
    assert same == {name: rand[method] for name, method in nasdaq.WITHOUT_CONSTANT.items()}
    assert [entry.method.split(",")[0] for entry in times.entries] == ["24 stocks"] * 3 + ["120 stocks"] * 3
    assert all(0 < entry.measured.mean < np.inf for entry in times.entries)
    written = {path.name for path in report.write(tmp_path / "out")}
    assert {"nasdaq.md", "nasdaq.json", "nasdaq-alpha.png", "nasdaq-time.svg"} <= written


def test_a_short_year_is_refused(tmp_path):
    with pytest.raises(ax.exceptions.InputError, match="has 2 windows of 120 stocks"):
        nasdaq.run(Options(runs=1, data=write_market(tmp_path, n_days=40)))


def test_claims_fail_when_affect_is_no_better():
    equal = Table("", "Rand index", tuple(Entry(method, Measured(0.8)) for method in nasdaq.METHODS))
    alpha = np.array([0.0, *np.full(15, 0.7)])
    alpha[5] = 0.1
    claims = nasdaq._claims(equal, {nasdaq.THREE: alpha})
    assert not any(claim.holds for claim in claims)
    alpha[nasdaq.CRASH] = 0.05
    assert nasdaq._claims(equal, {nasdaq.THREE: alpha})[-1].holds


@needs_data
def test_what_the_data_are_said_to_hold():
    steps = ax.datasets.load_nasdaq(DATA)
    assert len(steps) == 16 and len(steps[0].ids) == 1929 and len(steps[0].sectors) == 12
    for step in steps:
        constant = ~step.X.any(axis=1)
        assert 2 <= constant.sum() <= 9
        np.testing.assert_allclose(step.X[~constant].mean(axis=1), 0, atol=1e-12)
        np.testing.assert_allclose(step.X[~constant].std(axis=1), 1)


@needs_data
def test_affect_beats_static_and_alpha_falls_in_the_crash():
    """A third of the stocks, three starts: the rankings of the paper."""
    steps = ax.datasets.load_nasdaq(DATA)
    rand, alpha = {}, []
    for method in (nasdaq.STATIC, nasdaq.THREE_PREVIOUS):
        runs = [
            nasdaq.METHODS[method](proximity="dot", random_state=seed)
            .fit(step.X[::3] for step in steps)
            .history_
            for seed in range(3)
        ]
        rand[method] = np.mean([ax.rand_index(a, steps[0].labels[::3]) for run in runs for a in run.labels])
        alpha = np.mean([run.alpha for run in runs], axis=0)
    assert rand[nasdaq.THREE_PREVIOUS] > rand[nasdaq.STATIC] + 0.003
    assert nasdaq.lowest_window(alpha) == nasdaq.CRASH and alpha[nasdaq.CRASH] < alpha[11] - 0.2
