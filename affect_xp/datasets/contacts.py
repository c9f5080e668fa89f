"""Simulated contacts of people in groups, as recorded by wearable badges in schools and offices."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Seed
from affect_xp.checks import check_fraction, check_int
from affect_xp.exceptions import InputError

HOURS = 8  # of a day
LUNCH = 4  # the hour of lunch, counted from 0
LUNCH_VOLUME = 2.0  # contacts in that hour relative to any other
STEPS_PER_DAY = (1, 2, 4, 8)  # a day, a half, a quarter, an hour


@dataclasses.dataclass(frozen=True, eq=False)
class ContactStep:
    """Contacts of the people observed in one time step.

    Attributes
    ----------
    W : (n, n) array or scipy.sparse array
        The number of contacts of two people; zero diagonal.
    ids : list of n int
        The people; they come and go.
    labels : (n,) int array
        The group of each.
    expected : (n, n) array
        The expected number of contacts, given who was present: W without noise.
    variance : (n, n) array
        The variance of W.
    day, hour : int
        The day and the hour at which the step begins, both from 0.
    """

    W: Any
    ids: list[int]
    labels: np.ndarray
    expected: np.ndarray
    variance: np.ndarray
    day: int
    hour: int


def contacts(
    n_steps: int = 40,
    *,
    n_groups: int = 5,
    group_size: int = 20,
    steps_per_day: int = 4,
    daily_contacts: float = 250.0,
    mixing: float = 0.15,
    lunch_mixing: float = 0.6,
    absence: float = 0.0,
    absence_days: float = 2.0,
    churn: float = 0.0,
    moves: float = 0.0,
    people_spread: float = 0.4,
    pair_spread: float = 1.2,
    bursts: float = 2.0,
    volume_spread: float = 0.0,
    sparse: bool = False,
    rng: Seed = None,
) -> Iterator[ContactStep]:
    """Yield the steps of contacts among people in groups, such as classes, who mix at lunch.

    Two people i and j who are both present in an hour h of step t meet

        wᵢⱼ ~ Poisson(λᵢⱼ g),   λᵢⱼ = vₜ uₕ aᵢ aⱼ bᵢⱼ rₕ(cᵢ, cⱼ)

    times. vₜ is the volume of the step, uₕ that of the hour (twice as much at lunch), aᵢ the activity of a
    person, and bᵢⱼ the closeness of two people; v, a and b are log-normal with mean 1, and a and b are
    constant over time. rₕ is such that a person of mean activity has `daily_contacts` per day, with a share
    `mixing` of them with other groups, and `lunch_mixing` at lunch. g is gamma-distributed with mean 1 and
    drawn for each pair and step: contacts come in bursts. The counts are then negative binomial, with many
    zeros.

    People without contacts in a step are not observed, as with badges. People are absent for whole days, two
    in a row on average. Before each new day some leave for good and are replaced, and some change groups.

    Form and defaults follow published statistics of such counts, in intervals of 20 s, and not the behaviour
    of any method. In a primary school of ten classes, a child had 528 contacts a day with 47 others, three
    times as many with its class as with all others. In a high school of nine classes there were about half as
    many; in an office about 20. The times that pairs spend together span orders of magnitude, the numbers of
    people met do not. The classes mix during breaks and lunch.

    Parameters
    ----------
    n_steps : int
    n_groups, group_size : int
        All groups start with the same size.
    steps_per_day : 1, 2, 4 or 8
        The number of steps in the eight hours of a day; the fifth hour is lunch.
    daily_contacts : float
    mixing, lunch_mixing : float
        The share of contacts with other groups, and the same at lunch.
    absence : float
        The share of people who are absent on a day.
    absence_days : float
        The mean number of consecutive days of an absence, at least 1.
    churn : float
        The share of people who are replaced by new ones from one day to the next.
    moves : float
        The share of people who change groups from one day to the next.
    people_spread, pair_spread, volume_spread : float
        The standard deviations of the logarithms of a, b and v.
    bursts : float
        The variance of g; 0 for Poisson counts.
    sparse : bool
        Whether W is a `scipy.sparse.csr_array`.
    rng : None, int or numpy.random.Generator

    References
    ----------
    Stehlé et al., "High-resolution measurements of face-to-face contact patterns in a primary school",
    PLOS ONE 6 (2011) e23176. Mastrandrea, Fournet & Barrat, "Contact patterns in a high school", PLOS ONE
    10 (2015) e0136497. Génois et al., "Data on face-to-face contacts in an office building suggest a low-cost
    vaccination strategy based on community linkers", Network Science 3 (2015) 326-347.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.contacts(8, absence=0.2, rng=0))
    >>> [len(step.ids) for step in steps], [(step.day, step.hour) for step in steps[:5]]
    ([84, 84, 84, 84, 83, 83, 83, 83], [(0, 0), (0, 2), (0, 4), (0, 6), (1, 0)])
    >>> model = ax.Affect(ax.Spectral(5), rescale="log1p", absent="keep", random_state=0)
    >>> model = model.fit([step.W for step in steps], ids=[step.ids for step in steps])
    >>> ax.adjusted_rand_index(model.labels_, steps[-1].labels) > 0.8
    True
    """
    check_int("n_steps", n_steps, 1)
    check_int("n_groups", n_groups, 2)
    check_int("group_size", group_size, 2)
    if steps_per_day not in STEPS_PER_DAY:
        raise InputError(f"steps_per_day must be one of 1, 2, 4 and 8, got {steps_per_day!r}")
    spreads = {"people_spread": people_spread, "pair_spread": pair_spread, "volume_spread": volume_spread}
    for name, number in (spreads | {"bursts": bursts, "daily_contacts": daily_contacts}).items():
        _check_at_least(name, number, 0)
    _check_at_least("absence_days", absence_days, 1)
    for name, number in {"mixing": mixing, "lunch_mixing": lunch_mixing}.items():
        check_fraction(name, number)
    rates = _Rates(n_groups, group_size, daily_contacts, mixing, lunch_mixing)
    generator = as_generator(rng)
    school = _School(generator, rates, (people_spread, pair_spread), _Absences(absence, absence_days))
    check_fraction("churn", churn), check_fraction("moves", moves)
    hours = HOURS // steps_per_day
    for t in range(n_steps):
        day, part = divmod(t, steps_per_day)
        if part == 0 and day > 0:
            school.next_day(churn, moves)
        volume = _log_normal(generator, volume_spread, ())
        expected = (
            volume * school.closeness() * rates.of(school.labels, range(part * hours, (part + 1) * hours))
        )
        yield _observed(school, expected, bursts, sparse, day, part * hours)


@dataclasses.dataclass(frozen=True)
class _Absences:
    """Absence as a two-state Markov chain: `share` of the people on any day, `days` in a row on average."""

    share: float
    days: float

    def __post_init__(self) -> None:
        check_fraction("absence", self.share)
        if self.share > self.days / (self.days + 1):
            raise InputError(
                f"absence={self.share} is not possible with absence_days={self.days}: more people would have "
                "to leave than are present; increase absence_days or reduce absence"
            )

    def first(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return rng.random(n) < self.share

    def next(self, rng: np.random.Generator, away: np.ndarray) -> np.ndarray:
        """Stay absent with probability 1 − 1/days; become absent with p, p (1 − share) = share / days."""
        falls = self.share / self.days / (1 - self.share)
        return rng.random(len(away)) < np.where(away, 1 - 1 / self.days, falls)


@dataclasses.dataclass(frozen=True)
class _Rates:
    """The expected contacts of two people of mean activity and closeness."""

    n_groups: int
    group_size: int
    daily: float
    mixing: float
    lunch_mixing: float

    def of(self, labels: np.ndarray, hours: range) -> np.ndarray:
        """Return r summed over hours, (n, n)."""
        n = self.n_groups * self.group_size
        inside = outside = 0.0
        for hour in hours:
            at_lunch = hour == LUNCH
            number = self.daily * (LUNCH_VOLUME if at_lunch else 1.0) / (HOURS - 1 + LUNCH_VOLUME)
            share = self.lunch_mixing if at_lunch else self.mixing
            inside += number * (1 - share) / (self.group_size - 1)
            outside += number * share / (n - self.group_size)
        return np.where(labels[:, None] == labels[None, :], inside, outside)


class _School:
    """The population: a fixed number of places, whose holders may change."""

    def __init__(
        self, rng: np.random.Generator, rates: _Rates, spreads: tuple[float, float], absences: _Absences
    ) -> None:
        self.rng, self.absences, n_groups, group_size = rng, absences, rates.n_groups, rates.group_size
        self.n_groups, (self.people_spread, self.pair_spread) = n_groups, spreads
        n = n_groups * group_size
        self.labels = np.repeat(np.arange(n_groups), group_size)
        self.ids = np.arange(n)
        self.activity = _log_normal(rng, self.people_spread, (n,))
        upper = np.triu(_log_normal(rng, self.pair_spread, (n, n)), 1)
        self.affinity = upper + upper.T  # b, with a zero diagonal
        self.away = absences.first(rng, n)

    def next_day(self, churn: float, moves: float) -> None:
        """Replace some people, move some, and make some absent."""
        n = len(self.ids)
        for i in np.flatnonzero(self.rng.random(n) < churn):
            self._replace(i)
        moving = np.flatnonzero(self.rng.random(n) < moves)
        away_by = self.rng.integers(1, self.n_groups, len(moving))
        self.labels = self.labels.copy()  # previous steps keep theirs
        self.labels[moving] = (self.labels[moving] + away_by) % self.n_groups
        self.away = self.absences.next(self.rng, self.away)

    def _replace(self, i: np.integer) -> None:
        """Replace the holder of a place."""
        self.ids[i] = self.ids.max() + 1
        self.activity[i] = _log_normal(self.rng, self.people_spread, ())
        to_others = _log_normal(self.rng, self.pair_spread, (len(self.ids),))
        to_others[i] = 0.0
        self.affinity[i, :] = self.affinity[:, i] = to_others

    def closeness(self) -> np.ndarray:
        """Return aᵢ aⱼ bᵢⱼ of those who are present, 0 for others, (n, n)."""
        here = np.where(self.away, 0.0, self.activity)
        return here[:, None] * here[None, :] * self.affinity


def _observed(
    school: _School, expected: np.ndarray, bursts: float, sparse: bool, day: int, hour: int
) -> ContactStep:
    """Draw the counts of a step, and drop people without contacts."""
    n = len(expected)
    i, j = np.triu_indices(n, 1)
    rate = expected[i, j]
    if bursts > 0:
        rate = rate * school.rng.gamma(1 / bursts, bursts, len(rate))
    W = np.zeros((n, n))
    W[i, j] = W[j, i] = school.rng.poisson(rate)
    seen = np.flatnonzero(W.sum(axis=1) > 0)
    pairs = np.ix_(seen, seen)
    of_seen = expected[pairs]
    return ContactStep(
        W=scipy.sparse.csr_array(W[pairs]) if sparse else W[pairs],
        ids=[int(name) for name in school.ids[seen]],
        labels=school.labels[seen],
        expected=of_seen,
        variance=of_seen + bursts * of_seen**2,  # of a Poisson variable with a gamma-distributed rate
        day=day,
        hour=hour,
    )


def _log_normal(rng: np.random.Generator, spread: float, shape: tuple[int, ...]) -> Any:
    """Draw from exp(N(−σ²/2, σ²)), whose mean is 1."""
    return np.exp(spread * rng.standard_normal(shape) - spread**2 / 2)


def _check_at_least(name: str, value: float, least: float) -> None:
    if not (np.isfinite(value) and value >= least):
        raise InputError(f"{name} must be a number of at least {least}, got {value!r}")
