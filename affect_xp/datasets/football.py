"""American college football: games between teams, which sometimes change conferences."""

import dataclasses
from pathlib import Path

import numpy as np

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Seed
from affect_xp.checks import check_fraction
from affect_xp.datasets._npz import existing_file, read_npz
from affect_xp.exceptions import InputError

TEAMS = ("season", "teams", "member_ptr", "member", "conference", "scored")
GAMES = ("game_ptr", "team1", "team2", "month")
# The months of each part of a season; January and February belong to the season before.
PARTS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: (tuple(range(1, 13)),),
    3: ((8, 9), (10,), (11, 12, 1, 2)),
}
UNSCORED = -1
# Teams without a conference form a cluster if there are at least this many, because they play each other.
INDEPENDENTS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class FootballStep:
    """The teams of a season, or of a part of it.

    Attributes
    ----------
    W : (n, n) array
        The number of games between two teams.
    ids : list of n str
        The teams.
    labels : (n,) int array
        Their conference; -1 for independents and members of conferences of fewer than four teams.
    k : int
        The number of conferences, plus one if ten or more teams have none.
    season : int
    """

    W: np.ndarray
    ids: list[str]
    labels: np.ndarray
    k: int
    season: int


def load_football(
    path: str | Path, *, parts: int = 1, keep: float = 1.0, rng: Seed = None
) -> list[FootballStep]:
    """Read seasons of American college football: a network whose true groups change.

    Parameters
    ----------
    path : str or Path
        An .npz file with `season`, `teams`, and for season t the teams
        `member[member_ptr[t]:member_ptr[t + 1]]` (indices into `teams`), their `conference` and whether it is
        `scored`, and the games `team1, team2, month[game_ptr[t]:game_ptr[t + 1]]`.
    parts : 1 or 3
        The number of steps of a season. Three steps are noisier.
    keep : float
        The probability that a game is kept. Fewer games are noisier.
    rng : None, int or numpy.random.Generator

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = ax.datasets.load_football("football.npz")  # doctest: +SKIP
    >>> model = ax.Affect(ax.Spectral([step.k for step in steps]))  # doctest: +SKIP
    """
    data, rng = read_npz(existing_file(path), (*TEAMS, *GAMES)), as_generator(rng)
    if parts not in PARTS:
        raise InputError(f"parts must be 1 or 3, got {parts!r}")
    check_fraction("keep", keep)
    steps = []
    for t, season in enumerate(data["season"].tolist()):
        own, played = (slice(*data[name][t : t + 2]) for name in ("member_ptr", "game_ptr"))
        members, scored = data["member"][own], data["scored"][own].astype(bool)
        labels = np.where(scored, data["conference"][own], UNSCORED).astype(int)
        k = len(np.unique(labels[scored])) + int(np.sum(~scored) >= INDEPENDENTS)
        games = np.stack([data["team1"][played], data["team2"][played]])
        kept, month = rng.random(games.shape[1]) < keep, data["month"][played]
        for months in PARTS[parts]:
            W = np.zeros((len(data["teams"]),) * 2)
            np.add.at(W, tuple(games[:, kept & np.isin(month, months)]), 1)
            W = (W + W.T)[np.ix_(members, members)]
            steps.append(FootballStep(W, data["teams"][members].tolist(), labels, k, season))
    return steps
