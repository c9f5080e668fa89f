"""Flocks of boids: simulated animals that fly together and occasionally change flocks (Reynolds)."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Seed
from affect_xp.checks import check_choice, check_int
from affect_xp.exceptions import InputError

MOVES = 5  # moves between two time steps
CUBE = 60.0  # side of the cube in which a flock starts
COHESION = 1 / 100  # share of the way to the centre of the flock, and of the way to its goal
ALIGNMENT = 1 / 8  # share of the difference from the heading of the flock
NEAR = 10.0  # boids closer than this double their distance
SCATTERED_NEAR = 20.0  # the same while flocks scatter
SPEED = 2.0  # of the goals along their paths, per move
SCATTER_AT, REGROUP_AT = 17, 19
SPACING = 1.5 * CUBE  # between the centres of neighbouring cubes
LAYOUTS = ("row", "square")
SEPARATIONS = ("all", "flock")
GOALS = ("place", "direction")


@dataclasses.dataclass(frozen=True, eq=False)
class BoidsStep:
    """Boids at one time step.

    Attributes
    ----------
    X : (n, 3) array
        The positions.
    velocities : (n, 3) array
        The displacement of each boid per move.
    labels : (n,) int array
        The flock of each boid.
    """

    X: np.ndarray
    velocities: np.ndarray
    labels: np.ndarray


def boids(
    n_steps: int = 40,
    *,
    n_flocks: int = 4,
    flock_size: int = 25,
    spacing: float = SPACING,
    layout: str = "row",
    separation: str = "all",
    goal: str = "place",
    variable: bool = False,
    rng: Seed = None,
) -> Iterator[BoidsStep]:
    """Yield the steps of flocks that fly along parallel paths, while one boid changes flocks at each step.

    The boids of a flock start at random positions in a cube of side 60. Between two steps each boid moves
    five times. Each rule adds a term to its velocity before a move:

    - cohesion: 1/100 of the way to the centre of the rest of its flock;
    - separation: the difference from each boid that is closer than 10, which doubles the distance;
    - alignment: 1/8 of the difference from the mean velocity of the rest of its flock;
    - goal: 1/100 of the way to the goal of its flock, a point that moves along a straight path.

    At each step after the first, a random boid joins a random other flock.

    The paper mentions separate cubes and goals, but does not specify `spacing`, `layout` and `goal`; these
    parameters show how much depends on them. The defaults are the simplest interpretation: the cubes are side
    by side with gaps between them, and a flock follows a point that moves ahead of it. In the paper each boid
    keeps away from all others, and follows its "local flock mates", here the rest of its flock. Boids start
    with the velocity of the goals, and goals start at the centres of the cubes. All boids move
    simultaneously, and only alignment slows them, so that flocks oscillate about their paths. The speed of
    the goals does not affect distances; the spacing has the largest effect, because flocks are about as wide
    as their cubes.

    Parameters
    ----------
    n_steps : int
    n_flocks, flock_size : int
    spacing : float
        The distance between the centres of neighbouring cubes, at least 60, where they touch. The default of
        90 leaves half a cube between them.
    layout : "row" or "square"
        The arrangement of the cubes across the direction of flight: one row, or two rows.
    separation : "all" or "flock"
        The boids that a boid keeps away from: all, or those of its flock.
    goal : "place" or "direction"
        Whether the goal attracts a flock to its path, or is only a direction, which all boids already have.
    variable : bool
        Whether flocks scatter at step 17 (no cohesion and no goal, separation below 20), and those of two
        neighbouring paths join at step 19: four flocks become two. They fly midway between the paths. Until
        step 19 boids keep the label of their flock.
    rng : None, int or numpy.random.Generator

    References
    ----------
    Reynolds, "Flocks, Herds, and Schools", SIGGRAPH 1987. Parker, "Boids Pseudocode", 2007. Xu, Kliger &
    Hero, "Adaptive Evolutionary Clustering", section 5.3.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.boids(n_steps=3, rng=0))
    >>> steps[0].X.shape, [int((step.labels != steps[0].labels).sum()) for step in steps]
    ((100, 3), [0, 1, 2])
    """
    _check_sizes(n_steps, n_flocks, flock_size, spacing, variable)
    rules = _Rules(check_choice("separation", separation, SEPARATIONS), check_choice("goal", goal, GOALS))
    generator = as_generator(rng)
    labels = np.repeat(np.arange(n_flocks), flock_size)
    heading = np.array([SPEED, 0.0, 0.0])
    goals = _centres(n_flocks, spacing, check_choice("layout", layout, LAYOUTS))
    x = goals[labels] + generator.uniform(-CUBE / 2, CUBE / 2, (len(labels), 3))
    v = np.tile(heading, (len(labels), 1))
    for t in range(n_steps):
        if variable and t == REGROUP_AT:
            labels, goals = labels // 2, (goals[::2] + goals[1::2]) / 2
        if t > 0:
            labels = _one_changes(labels, len(goals), generator)
            scatters = variable and SCATTER_AT <= t < REGROUP_AT
            for _ in range(MOVES):
                goals = goals + heading
                x, v = rules.moved(x, v, labels, goals, scatters=scatters)
        yield BoidsStep(x, v, labels)


def _check_sizes(n_steps: int, n_flocks: int, flock_size: int, spacing: float, variable: bool) -> None:
    check_int("n_steps", n_steps, 1)
    check_int("n_flocks", n_flocks, 2)
    check_int("flock_size", flock_size, 2)
    if not spacing >= CUBE:
        raise InputError(f"spacing must be at least {CUBE:g}, so that cubes do not overlap, got {spacing}")
    if variable and (n_flocks % 2 or n_flocks < 4):
        raise InputError(f"n_flocks must be even and at least 4 with variable=True, got {n_flocks}")


def _centres(n_flocks: int, spacing: float, layout: str) -> np.ndarray:
    """Return the centres of the cubes, (n_flocks, 3); the first axis is the direction of flight."""
    places = np.arange(n_flocks)
    across, above = (places, np.zeros(n_flocks)) if layout == "row" else (places // 2, places % 2)
    return spacing * np.stack([np.zeros(n_flocks), across, above], axis=1)


def _one_changes(labels: np.ndarray, n_flocks: int, rng: np.random.Generator) -> np.ndarray:
    """Return the labels after one boid has joined another flock."""
    labels = labels.copy()
    boid = rng.integers(len(labels))
    labels[boid] = (labels[boid] + rng.integers(1, n_flocks)) % n_flocks
    return labels


@dataclasses.dataclass(frozen=True)
class _Rules:
    """The rules of motion that can be chosen."""

    separation: str
    goal: str

    def moved(
        self, x: np.ndarray, v: np.ndarray, labels: np.ndarray, goals: np.ndarray, *, scatters: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities after one move."""
        push = self._push(x, labels, SCATTERED_NEAR if scatters else NEAR)
        align = ALIGNMENT * (_mean_of_others(v, labels, len(goals)) - v)
        pull = np.zeros_like(x)
        if not scatters:
            pull = COHESION * (_mean_of_others(x, labels, len(goals)) - x)
            if self.goal == "place":
                pull = pull + COHESION * (goals[labels] - x)
        v = v + push + align + pull
        return x + v, v

    def _push(self, x: np.ndarray, labels: np.ndarray, near: float) -> np.ndarray:
        """Return the sum of the differences to the boids closer than `near`, (n, 3)."""
        close = scipy.spatial.distance.cdist(x, x, "sqeuclidean") < near**2  # (n, n)
        if self.separation == "flock":
            close &= labels[:, None] == labels[None, :]
        # Σⱼ cᵢⱼ (xᵢ − xⱼ)
        return close.sum(axis=1)[:, None] * x - close.astype(x.dtype) @ x


def _mean_of_others(values: np.ndarray, labels: np.ndarray, n_flocks: int) -> np.ndarray:
    """Return the mean over the rest of the flock of each boid, or its own value if it is alone, (n, 3)."""
    z = labels[:, None] == np.arange(n_flocks)
    others = (z.sum(axis=0) - 1)[labels][:, None]
    sums = (z.T.astype(values.dtype) @ values)[labels] - values
    return np.where(others > 0, sums / np.maximum(others, 1), values)
