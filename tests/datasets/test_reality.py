"""The paper's experiment on MIT Reality Mining: the published Rand indices, with either eigensolver."""

import datetime
import functools
import os
import pathlib

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.experiments import Entry, Measured, Options, Table, reality

DATA = pathlib.Path(os.environ.get("AFFECT_XP_DATA", "")) / "reality.npz"
needs_data = pytest.mark.skipif(
    "AFFECT_XP_DATA" not in os.environ or not DATA.exists(),
    reason="set AFFECT_XP_DATA to a folder with reality.npz",
)

weeks = functools.cache(lambda: ax.datasets.load_reality(DATA))

# The paper uses raw counts.
affect = functools.partial(ax.Affect, rescale=None, random_state=0)
METHODS = {
    "AFFECT, 3 iterations": lambda clusterer: affect(clusterer, init="static"),
    "AFFECT, 1 iteration": lambda clusterer: affect(clusterer, init="static", n_iter=1),
    "alpha = .5": lambda clusterer: affect(clusterer, alpha=0.5),
    "static": lambda clusterer: ax.Static(clusterer, warm_start=False, random_state=0),
}


@functools.cache
def run(method, **options):
    """Return the history of all weeks and their Rand indices."""
    history = (
        METHODS[method](ax.Spectral(2, **options))
        .fit([week.W for week in weeks()], ids=[week.ids for week in weeks()])
        .history_
    )
    rand = [ax.rand_index(labels, week.labels) for labels, week in zip(history.labels, weeks(), strict=True)]
    return history, np.array(rand)


@needs_data
@pytest.mark.parametrize(
    "method, entire, school_year, tolerance",
    [
        ("AFFECT, 3 iterations", 0.893, 0.953, 0.004),
        ("AFFECT, 1 iteration", 0.891, 0.953, 0.004),
        ("alpha = .5", 0.882, 0.949, 0.004),
        ("static", 0.853, 0.905, 0.009),
    ],
)
def test_published_rand_indices(method, entire, school_year, tolerance):
    _, rand = run(method, solver="full")
    assert rand.mean() == pytest.approx(entire, abs=tolerance)
    assert rand[reality.SCHOOL_YEAR].mean() == pytest.approx(school_year, abs=tolerance)


@needs_data
def test_published_rand_indices_by_rotation():
    _, rand = run("static", assign_labels="rotation", solver="full")
    assert rand.mean() == pytest.approx(0.853, abs=0.004)
    assert rand[reality.SCHOOL_YEAR].mean() == pytest.approx(0.905, abs=0.004)


@needs_data
@pytest.mark.parametrize(
    "method, options",
    [
        ("AFFECT, 3 iterations", {"tol": 0.0}),
        ("alpha = .5", {"tol": 0.0}),
        ("static", {}),
        ("static", {"assign_labels": "rotation"}),
        ("static", {"assign_labels": "cluster_qr"}),
        ("static", {"components": "separate"}),
        ("static", {"objective": "ratio_cut"}),
        ("static", {"objective": "average_association"}),
    ],
)
def test_same_labels_for_both_solvers(method, options):
    full, iterative = (run(method, solver=solver, **options)[0] for solver in ("full", "iterative"))
    for t, (a, b) in enumerate(zip(full.labels, iterative.labels, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"week {t + 1}")


@needs_data
def test_nearly_the_same_labels_with_the_default_tolerance():
    full, iterative = (run("AFFECT, 3 iterations", solver=solver)[0] for solver in ("full", "iterative"))
    different = [np.sum(a != b) for a, b in zip(full.labels, iterative.labels, strict=True)]
    assert max(different) <= 1 and sum(different) <= 4  # of about 60 people in each of 46 weeks
    np.testing.assert_allclose(full.alpha, iterative.alpha, atol=0.005)


@needs_data
def test_alpha_drops_around_the_dates_of_terms():
    history, _ = run("AFFECT, 3 iterations", solver="full")
    assert reality.followers(history.alpha) >= 4
    larger, smaller = reality.density_falls(weeks(), history.labels)
    assert smaller < 0.3 < larger < 1


@needs_data
def test_what_the_data_are_said_to_hold():
    assert len(weeks()) == 46 and weeks()[0].start == datetime.date(2004, 8, 8)
    affiliations = {
        name: label for week in weeks() for name, label in zip(week.ids, week.labels, strict=True)
    }
    assert (min(len(week.ids) for week in weeks()), max(len(week.ids) for week in weeks())) == (21, 88)
    assert len(affiliations) == 93 and list(affiliations.values()).count(2) == 26  # one never appears


@needs_data
@pytest.mark.slow
def test_every_claim_of_the_paper_holds():
    report = reality.run(Options(runs=1, data=DATA.parent))
    assert [claim.text for claim in report.claims if not claim.holds] == []


def write_two_communities(folder, n_weeks=46):
    """Write a reality.npz of 14 participants in two communities; two are absent every third week."""
    rng, arrays = np.random.default_rng(0), {"member": [], "row": [], "col": [], "weight": []}
    affiliation = np.repeat([1, 2], [9, 5])
    member_ptr, edge_ptr = [0], [0]
    for t in range(n_weeks):
        member = np.arange(12 if t % 3 == 2 else 14)
        rate = np.where(affiliation[member][:, None] == affiliation[member], 6.0, 3.0)
        upper = np.triu(rng.poisson(rate) + 1, 1)
        row, col = np.nonzero(upper + upper.T)
        for name, values in zip(arrays, (member, row, col, (upper + upper.T)[row, col]), strict=True):
            arrays[name].append(values)
        member_ptr.append(member_ptr[-1] + len(member))
        edge_ptr.append(edge_ptr[-1] + len(row))
    np.savez(
        folder / "reality.npz",
        ids=np.array([f"p{i}" for i in range(14)]),
        affiliation=affiliation,
        member_ptr=member_ptr,
        edge_ptr=edge_ptr,
        **{name: np.concatenate(values) for name, values in arrays.items()},
    )
    return folder


@pytest.fixture
def few_methods(monkeypatch):
    """Skip slow parts: variants, and most values of α."""
    monkeypatch.setattr(reality, "VARIANTS", {})
    monkeypatch.setattr(reality, "GRID", (0.0, 0.3))


def test_report_on_simulated_communities(tmp_path, few_methods):
    pytest.importorskip("matplotlib")
    report = reality.run(Options(runs=1, data=write_two_communities(tmp_path)))
    entire, school, _ = report.tables
    assert [entry.method for entry in entire.entries] == list(reality.SHOWN)
    assert {entry.method: entry.published for entry in school.entries}[reality.PCM_CV] == 0.941
    assert entire[reality.THREE].mean > entire[reality.STATIC].mean + 0.02
    assert {claim.text: claim.holds for claim in report.claims}["AFFECT beats static over the school year."]
    assert len(report.series[f"α, {reality.THREE}"]) == 46
    written = {path.name for path in report.write(tmp_path / "out")}
    assert {"reality.md", "reality.json", "reality-alpha.png", "reality-winter-break.svg"} <= written


def test_a_file_with_other_weeks_is_refused(tmp_path):
    with pytest.raises(ax.exceptions.InputError, match="has 3 weeks, but the experiment has 46"):
        reality.run(Options(runs=1, data=write_two_communities(tmp_path, n_weeks=3)))


def test_followers_counts_low_weeks_by_hand():
    alpha = np.full(46, 0.6)
    alpha[0] = 0.0  # the first step has none, and does not count
    alpha[[6, 15, 20, 39, 2, 10]] = 0.1, 0.2, 0.2, 0.2, 0.1, 0.1
    assert reality.followers(alpha) == 4  # not the weeks 2 and 10, far from all dates


def test_ordering_puts_the_largest_cluster_first():
    labels, affiliation = np.array([7, 3, 3, 7, 3]), np.array([1, 2, 1, 2, 1])
    assert reality.by_size(labels) == [3, 7]
    assert reality.ordering(labels, affiliation).tolist() == [2, 4, 1, 0, 3]


def test_claims_fail_when_affect_is_no_better():
    equal = Table("", "Rand index", tuple(Entry(method, Measured(0.8)) for method in reality.SHOWN))
    W = np.ones((4, 4)) - np.eye(4)
    step = ax.datasets.RealityStep(W, list("abcd"), np.array([1, 1, 2, 2]), datetime.date(2004, 8, 8))
    labels = [np.array([0, 0, 1, 1])] * 46
    claims = reality._claims(equal, equal, np.linspace(0, 1, 46)[::-1], [step] * 46, labels)
    assert [claim.text for claim in claims if claim.holds] == ["One iteration is nearly as good as three."]
