"""The introductory data set: size, seed, change, and table."""

import datetime

import numpy as np
import pytest

import affect_xp as ax
from affect_xp.exceptions import AffectError


def test_the_shape_is_that_of_the_names():
    bikes = ax.datasets.bike_stations(7)
    assert bikes.X.shape == (7, len(bikes.ids), len(bikes.hours)) and len(set(bikes.ids)) == 48
    assert bikes.labels.shape == bikes.X.shape[:2] and len(bikes.weeks) == 7
    np.testing.assert_allclose(bikes.X.sum(axis=2), 1)
    assert {week.weekday() for week in bikes.weeks} == {0}


def test_the_default_is_always_the_same():
    one, again, other = (ax.datasets.bike_stations(3, rng=seed).X for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(one, ax.datasets.bike_stations(3).X)
    assert (one != other).any()


def test_six_stations_change_when_the_term_begins():
    bikes = ax.datasets.bike_stations(trips=10_000)
    week = bikes.weeks.index(datetime.date(2024, 9, 2))
    moved = np.flatnonzero(bikes.labels[week - 1] != bikes.labels[week])
    assert len(moved) == 6 and {bikes.kinds[c] for c in bikes.labels[week, moved]} == {"offices"}
    for t in (week - 1, week):  # many trips show the pattern of the kind of each station
        typical = np.stack([bikes.X[t][bikes.labels[t] == c].mean(axis=0) for c in range(3)])
        nearest = np.linalg.norm(bikes.X[t][:, None] - typical, axis=2).argmin(axis=1)
        np.testing.assert_array_equal(nearest, bikes.labels[t])


def test_the_past_helps_and_the_change_is_found():
    bikes = ax.datasets.bike_stations()
    score = {}
    for kind in (ax.Static, ax.Affect):
        model = kind(ax.KMeans(3), proximity="dot", random_state=0).fit(bikes.X)
        found = [
            ax.adjusted_rand_index(r.labels, c) for r, c in zip(model.history_, bikes.labels, strict=True)
        ]
        score[kind] = np.mean(found)
    assert score[ax.Affect] > score[ax.Static] + 0.05
    assert ax.change_points(model) == [12] and model.history_.alpha[1:].argmin() == 11


def test_the_table_is_read_back():
    pytest.importorskip("pandas")
    pytest.importorskip("duckdb")
    bikes = ax.datasets.bike_stations(3)
    steps = list(ax.io.read_steps(bikes.to_frame(), time="week", id="station"))
    assert [step.time.date() for step in steps] == bikes.weeks
    for step, X in zip(steps, bikes.X, strict=True):
        rows = [bikes.ids.index(name) for name in step.ids]
        np.testing.assert_array_equal(step.values, X[rows])


@pytest.mark.parametrize("given", [{"n_weeks": 0}, {"trips": 0}])
def test_nothing_is_rejected(given):
    with pytest.raises(AffectError, match="must be at least 1, got 0"):
        ax.datasets.bike_stations(**given)
