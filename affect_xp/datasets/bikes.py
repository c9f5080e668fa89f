"""A small introductory data set: departure times at the bike stations of a simulated city, by week."""

import dataclasses
import datetime
from typing import Any

import numpy as np

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Seed
from affect_xp.checks import check_int

KINDS = ("homes", "offices", "parks")
# (hour, spread in hours, share) of the peaks of departures of each kind, in the holidays and afterwards.
HOLIDAYS = (
    ((10.0, 2.0, 0.6), (18.0, 3.0, 0.4)),
    ((17.0, 2.0, 0.6), (12.5, 2.0, 0.4)),
    ((15.0, 2.5, 0.7), (20.0, 1.5, 0.3)),
)
TERM = (
    ((8.0, 0.8, 0.8), (18.0, 3.0, 0.2)),
    ((17.5, 0.9, 0.8), (12.5, 2.0, 0.2)),
    ((13.0, 2.0, 0.7), (20.0, 1.5, 0.3)),
)
HOURS = range(6, 22, 2)  # the start of each interval
FIRST_WEEK = datetime.date(2024, 6, 10)
TERM_BEGINS = 12  # the week of 2 September
N_NEAR_CAMPUS = 6  # the first stations near parks
STATIONS = (
    ("Acorn St", "Alder Ln", "Birch Gr", "Brook St", "Cherry Wk", "Church Hl", "Clay Rd", "East Row",
     "Elm Tce", "Farm Rd", "Fern Cl", "Garden Row", "Hill Cr", "Ivy Ln", "Kiln Rd", "Larch St"),
    ("Bank", "Chambers", "City Hall", "Court", "Customs", "Exchange", "Hospital", "Library",
     "Market", "Mint", "Ministry", "Post Office", "Printworks", "Registry", "Telegraph", "Town Hall"),
    ("Boathouse", "Canal Lock", "Old Mill", "Orchard", "Quarry", "River Bend", "Aquarium", "Bandstand",
     "Castle", "Lake North", "Lake South", "Lido", "Museum", "Rose Garden", "Stadium", "Zoo"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class BikeStations:
    """Departures at bike stations in each week.

    Attributes
    ----------
    X : (T, n, p) array
        The share of the departures of a station in each interval of the day.
    ids : list of n str
        The stations.
    weeks : list of T datetime.date
        The Monday of each week.
    hours : list of p str
        The intervals.
    labels : (T, n) int array
        The true kind of each station in each week, an index into `kinds`.
    kinds : tuple of str
    """

    X: np.ndarray
    ids: list[str]
    weeks: list[datetime.date]
    hours: list[str]
    labels: np.ndarray
    kinds: tuple[str, ...] = KINDS

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per week and station: week, station, and the intervals.

        Examples
        --------
        >>> import affect_xp as ax
        >>> print(ax.datasets.bike_stations().to_frame().iloc[:2, :5].to_string(index=False))
              week  station  6-8  8-10  10-12
        2024-06-10 Acorn St  0.1 0.175  0.125
        2024-06-10 Alder Ln  0.1 0.225  0.325
        """
        import pandas

        T, n, p = self.X.shape
        table = pandas.DataFrame(self.X.reshape(T * n, p), columns=self.hours)
        table.insert(0, "week", [week for week in self.weeks for _ in range(n)])
        table.insert(1, "station", self.ids * T)
        return table


def bike_stations(n_weeks: int = 20, *, trips: int = 40, rng: Seed = 0) -> BikeStations:
    """Return when bikes leave 48 simulated stations: near homes, near offices, and near parks.

    Bikes leave homes in the morning, offices in the evening and parks in the afternoon. In week 12, from 2
    September 2024, the holidays end: the daily patterns change, and six stations near a park become stations
    of a new campus, with the pattern of offices. The departures of a station in a week are a multinomial
    sample, so a single week is noisy.

    Parameters
    ----------
    n_weeks : int
    trips : int
        The number of departures of a station in a week. Fewer are noisier.
    rng : None, int or numpy.random.Generator
        By default, each call returns the same data.

    Examples
    --------
    >>> import affect_xp as ax
    >>> bikes = ax.datasets.bike_stations()
    >>> bikes.X.shape, bikes.ids[0], str(bikes.weeks[0])
    ((20, 48, 8), 'Acorn St', '2024-06-10')
    >>> model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
    >>> model = model.fit(bikes.X, ids=bikes.ids, times=bikes.weeks)
    >>> ax.adjusted_rand_index(model.labels_, bikes.labels[-1])
    1.0
    """
    check_int("n_weeks", n_weeks, 1)
    check_int("trips", trips, 1)
    generator = as_generator(rng)
    per_kind = len(STATIONS[0])
    labels = np.tile(np.repeat(np.arange(len(KINDS)), per_kind), (n_weeks, 1))
    labels[TERM_BEGINS:, 2 * per_kind :][:, :N_NEAR_CAMPUS] = 1
    shares = np.array([[_shares(peaks) for peaks in season] for season in (HOLIDAYS, TERM)])
    season = (np.arange(n_weeks) >= TERM_BEGINS).astype(int)
    counts = generator.multinomial(trips, shares[season[:, None], labels])
    return BikeStations(
        X=counts / trips,
        ids=[name for names in STATIONS for name in names],
        weeks=[FIRST_WEEK + datetime.timedelta(weeks=t) for t in range(n_weeks)],
        hours=[f"{hour}-{hour + HOURS.step}" for hour in HOURS],
        labels=labels,
    )


def _shares(peaks: tuple[tuple[float, float, float], ...]) -> np.ndarray:
    """Return the expected share of departures in each interval, (p,)."""
    at, width, share = np.array(peaks).T[:, :, None]  # (m, 1) each
    middle = np.array(HOURS) + HOURS.step / 2
    density = (share / width * np.exp(-(((middle - at) / width) ** 2) / 2)).sum(axis=0)
    return density / density.sum()
