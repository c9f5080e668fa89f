"""Simulated contacts: counts against their stated moments, presence, and seeds."""

import itertools

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.datasets import contacts


def steps_of(n_steps=8, **options):
    return list(contacts(n_steps, rng=0, **options))


def same_group(step):
    return step.labels[:, None] == step.labels[None, :]


def share_inside(W, step):
    return (W * same_group(step)).sum() / W.sum()


class TestCounts:
    def test_shape(self):
        for step in steps_of(absence=0.2):
            n = len(step.ids)
            assert step.W.shape == step.expected.shape == step.variance.shape == (n, n)
            assert step.labels.shape == (n,) and len(set(step.ids)) == n
            np.testing.assert_array_equal(step.W, step.W.T)
            np.testing.assert_array_equal(step.W, np.round(step.W))
            np.testing.assert_allclose(step.expected, step.expected.T)
            assert not np.diag(step.W).any() and not np.diag(step.expected).any()
            assert step.W.sum(axis=1).min() > 0  # people without contacts are not observed

    @pytest.mark.parametrize("bursts", [0.0, 2.0])
    def test_moments(self, bursts):
        """Over many similar steps, W has the mean and the variance given in `expected` and `variance`."""
        steps = steps_of(300, n_groups=2, group_size=4, steps_per_day=1, pair_spread=0.5, bursts=bursts)
        expected, variance = steps[0].expected, steps[0].variance
        assert all(len(step.ids) == 8 for step in steps)
        W = np.stack([step.W for step in steps])
        away = ~np.eye(8, dtype=bool)
        standardised = (W.mean(axis=0) - expected)[away] / np.sqrt(variance[away] / 300)
        assert np.abs(standardised).max() < 4.5 and 0.6 < standardised.std() < 1.4
        assert np.mean(W.var(axis=0)[away] / variance[away]) == pytest.approx(1, abs=0.2)

    def test_volume_of_a_day(self):
        steps = steps_of(
            16, steps_per_day=8, people_spread=0.0, pair_spread=0.0, bursts=0.0, daily_contacts=90.0
        )
        expected = np.array([step.expected.sum(axis=1).mean() for step in steps])
        np.testing.assert_allclose(expected, 2 * [10, 10, 10, 10, 20, 10, 10, 10], rtol=0.02)

    def test_lunch_mixes_groups(self):
        steps = steps_of(8, steps_per_day=8, people_spread=0.0, pair_spread=0.0)
        inside = [share_inside(step.expected, step) for step in steps]
        np.testing.assert_allclose(inside, [0.85] * 4 + [0.4] + [0.85] * 3)
        assert [step.hour for step in steps] == list(range(8))

    def test_steps_of_a_day_add_up(self):
        options = {"people_spread": 0.0, "pair_spread": 0.0, "daily_contacts": 500.0}
        whole = steps_of(1, steps_per_day=1, **options)[0].expected
        for parts in (2, 4, 8):
            steps = steps_of(parts, steps_per_day=parts, **options)
            np.testing.assert_allclose(sum(step.expected for step in steps), whole)

    def test_as_in_a_primary_school(self):
        """Published values: 528 intervals per day with 47 others, three times as many within the class."""
        steps = steps_of(2, n_groups=10, group_size=23, steps_per_day=1, daily_contacts=528.0)
        for step in steps:
            assert 400 < step.W.sum(axis=1).mean() < 700
            assert 35 < (step.W > 0).sum(axis=1).mean() < 75
            assert 2 < share_inside(step.W, step) / (1 - share_inside(step.W, step)) < 5

    def test_tails_and_volume(self):
        plain = steps_of(40)
        heavy = steps_of(40, people_spread=0.8, pair_spread=1.5, bursts=4.0, volume_spread=1.0)

        def tail(steps):
            """Return the share of contacts of the busiest hundredth of all pairs."""
            counts = [np.sort(step.W[np.triu_indices(len(step.W), 1)]) for step in steps]
            return np.mean([own[-len(own) // 100 :].sum() / own.sum() for own in counts])

        def log_volumes(steps):
            return np.log([step.expected.sum() for step in steps])

        assert tail(heavy) > 0.6 > 0.5 > tail(plain) > 0.25
        assert 0.7 < log_volumes(heavy).std() < 1.4
        assert log_volumes(plain).std() < 0.3  # except for lunch, all steps are similar

    def test_sparse(self):
        for dense, sparse in zip(steps_of(3), steps_of(3, sparse=True), strict=True):
            assert scipy.sparse.issparse(sparse.W)
            np.testing.assert_array_equal(sparse.W.toarray(), dense.W)


class TestPeople:
    def test_absence_is_for_days(self):
        steps = steps_of(800, absence=0.2, absence_days=3.0, steps_per_day=2, daily_contacts=5000.0)
        here = np.array([np.isin(np.arange(100), step.ids) for step in steps])
        np.testing.assert_array_equal(here[::2], here[1::2])  # both halves of a day
        away = ~here[::2]
        assert away.mean() == pytest.approx(0.2, abs=0.02)
        returns = (away[:-1] & ~away[1:]).sum() / away[:-1].sum()
        assert returns == pytest.approx(1 / 3, abs=0.04)

    def test_churn(self):
        steps = steps_of(60, churn=0.1, steps_per_day=1, daily_contacts=5000.0)
        assert all(len(step.ids) == 100 for step in steps)
        new = [len(set(now.ids) - set(before.ids)) for before, now in itertools.pairwise(steps)]
        assert np.mean(new) == pytest.approx(10, abs=1.5)
        seen = [name for before, now in itertools.pairwise(steps) for name in set(now.ids) - set(before.ids)]
        assert len(set(seen)) == len(seen)  # people who left do not return
        group = {}
        for step in steps:
            for name, label in zip(step.ids, step.labels.tolist(), strict=True):
                assert group.setdefault(name, label) == label
            assert np.bincount(step.labels).tolist() == [20] * 5

    def test_moves(self):
        steps = steps_of(60, moves=0.05, steps_per_day=1, daily_contacts=5000.0)
        moved = [(now.labels != before.labels).sum() for before, now in itertools.pairwise(steps)]
        assert np.mean(moved) == pytest.approx(5, abs=1)
        assert all(step.ids == list(range(100)) for step in steps)
        inside = [share_inside(step.expected, step) for step in steps]
        assert min(inside) > 0.6  # contacts follow the groups

    def test_groups_change_between_days_only(self):
        steps = steps_of(12, moves=0.5, daily_contacts=5000.0)
        same = [np.array_equal(a.labels, b.labels) for a, b in itertools.pairwise(steps)]
        assert same == [True, True, True, False] * 2 + [True] * 3
        assert [step.day for step in steps] == [0] * 4 + [1] * 4 + [2] * 4


def test_seeds():
    same, again, other = (next(contacts(rng=seed)).W for seed in (5, 5, 6))
    np.testing.assert_array_equal(same, again)
    assert same.shape != other.shape or not np.array_equal(same, other)


def test_steps_are_for_affect():
    steps = steps_of(12, absence=0.1, sparse=True)
    model = ax.Affect(ax.Spectral(5), rescale="log1p", random_state=0)
    model.fit([s.W for s in steps], ids=[s.ids for s in steps])
    assert ax.adjusted_rand_index(model.labels_, steps[-1].labels) > 0.8


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
        ({"n_groups": 1}, "n_groups must be at least 2, got 1"),
        ({"group_size": 1}, "group_size must be at least 2, got 1"),
        ({"steps_per_day": 3}, "steps_per_day must be one of 1, 2, 4 and 8, got 3"),
        ({"mixing": 1.5}, "mixing must be between 0 and 1, got 1.5"),
        ({"lunch_mixing": -0.1}, "lunch_mixing must be between 0 and 1, got -0.1"),
        (
            {"absence": 0.9},
            "absence=0.9 is not possible with absence_days=2.0: .* increase absence_days or reduce absence",
        ),
        ({"absence_days": 0.5}, "absence_days must be a number of at least 1, got 0.5"),
        ({"churn": 2}, "churn must be between 0 and 1, got 2"),
        ({"moves": "few"}, "moves must be a number between 0 and 1, got 'few'"),
        ({"bursts": -1.0}, "bursts must be a number of at least 0, got -1.0"),
        ({"pair_spread": np.nan}, "pair_spread must be a number of at least 0, got nan"),
    ],
)
def test_errors(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        next(contacts(**options))
