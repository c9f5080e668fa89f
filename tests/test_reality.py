"""The paper's experiment on MIT Reality Mining: the published Rand indices, whatever the eigensolver."""

import functools
import os
import pathlib

import numpy as np
import pytest

import affect_xp as ax

DATA = pathlib.Path(os.environ.get("AFFECT_XP_DATA", "")) / "reality.npz"
pytestmark = pytest.mark.skipif(
    "AFFECT_XP_DATA" not in os.environ or not DATA.exists(),
    reason="set AFFECT_XP_DATA to a folder with reality.npz",
)

SCHOOL_YEAR = [*range(5, 18), *range(25, 40)]  # weeks 6-18 and 26-40, counted from 1


@functools.cache
def weeks():
    """Return (W, members, affiliations) of each week."""
    data, steps = np.load(DATA), []
    for t in range(46):
        member = data["member"][data["member_ptr"][t] : data["member_ptr"][t + 1]]
        edges = slice(data["edge_ptr"][t], data["edge_ptr"][t + 1])
        w = np.zeros((len(member), len(member)))
        w[data["row"][edges], data["col"][edges]] = data["weight"][edges]
        steps.append((w, member.tolist(), data["affiliation"][member]))
    return steps


METHODS = {
    "AFFECT, 3 iterations": lambda clusterer: ax.Affect(clusterer, init="static", random_state=0),
    "AFFECT, 1 iteration": lambda clusterer: ax.Affect(clusterer, init="static", n_iter=1, random_state=0),
    "alpha = .5": lambda clusterer: ax.Affect(clusterer, alpha=0.5, random_state=0),
    "static": lambda clusterer: ax.Static(clusterer, warm_start=False, random_state=0),
}


@functools.cache
def run(method, **options):
    """Return the labels of all weeks and their Rand indices."""
    model = METHODS[method](ax.Spectral(2, **options))
    labels = [model.partial_fit(w, ids).labels_ for w, ids, _ in weeks()]
    truth = [affiliation for _, _, affiliation in weeks()]
    return labels, np.array([ax.rand_index(a, b) for a, b in zip(labels, truth, strict=True)])


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
    assert rand[SCHOOL_YEAR].mean() == pytest.approx(school_year, abs=tolerance)


def test_published_rand_indices_by_rotation():
    _, rand = run("static", assign_labels="rotation", solver="full")
    assert rand.mean() == pytest.approx(0.853, abs=0.004)
    assert rand[SCHOOL_YEAR].mean() == pytest.approx(0.905, abs=0.004)


@pytest.mark.parametrize(
    "method, options",
    [
        ("AFFECT, 3 iterations", {}),
        ("alpha = .5", {}),
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
    for t, (a, b) in enumerate(zip(full, iterative, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"week {t + 1}")
