"""Change points: steps at which the past is further from the present than noise explains.

A step knows its noise n = Σ var(nᵢⱼ) and its drift d = Σ(ψ̂ᵢⱼ − E wᵢⱼ)², the squared error of the past, both
for each entry. While nothing changes, that error is known beforehand: it is that of a weighted mean of
observations, and follows from their noise and weights,

    v⁰ = n⁰,   vᵗ = αᵗ² vᵗ⁻¹ + (1 − αᵗ)² nᵗ

The drift is more than vᵗ⁻¹ by two parts. The means of blocks that stand for E w are uncertain, c n̄, with
c = Σ var μ̂ / Σ var(nᵢⱼ) of the first step and n̄ the noise of quiet steps before t. And there is what does not
average out, a share q of what has averaged out so far: objects that differ from their cluster for good, and
clusters that move slowly. Without change

    E dᵗ = e = vᵗ⁻¹ + c n̄ + q (n̄ − vᵗ⁻¹)

The drift varies about it by a factor, log dᵗ = log e + σ z, with z of the logistic distribution. Sums over
entries vary the less, the smaller c is, which tells how many entries are independent; means of blocks are few
and vary more. With f the share in e of c n̄, of what is left of a change, and of LOOSE times the last part,

    σ² = h² { (1 − f)² ρ² c + f² τ² }

q and h are not known. Each pair on a grid has a prior weight, and gains weight by how well it explains the
quiet steps, the last ten or so: at first the prior decides, later the run. Step t is a change point if a
drift like its own has a probability below the level,

    P(d ≥ dᵗ) = Σ w(q, h) / (1 + exp z),   z = log(dᵗ / e) / σ

After a change the past is off by what was seen, v = d − c n̄ − q (n̄ − v), and steps are judged by that.
"""

import math
from typing import Any

import numpy as np

from affect_xp.display import counted
from affect_xp.exceptions import InputError
from affect_xp.tracking.history import History

# Chosen by simulation; `affect-xp reproduce changes` measures with other settings what they give.
LEVEL = 0.005
RHO, TAU, LOOSE = 0.35, 0.33, 0.3
LASTING = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 1.0, 3.0, 10.0])  # q
LASTING_PRIOR = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.2, 0.02, 0.002])
SPREADS = np.geomspace(0.125, 16.0, 15)  # h
SPREADS_PRIOR = np.exp(-((np.log(SPREADS) / 0.7) ** 2) / 2)
KEPT = 0.9  # of the weight of earlier steps, from step to step
MEMORY = 3  # quiet steps of which n̄ is the mean, about
USUAL_SHARE, LEAST_SHARE = 0.05, 1e-5  # c, where it is not known, and at least
MOST = 50.0  # what a step counts for at most, as |z|, when pairs are weighted
LEAST = 1e-12  # α, where the drift is found from α alone
RELIABLE = 3  # the first step at which most changes are found: before it, the past is one or two observations


class _Expectation:
    """What drift a step without change has, given the steps before it."""

    def __init__(self) -> None:
        q, h = np.meshgrid(LASTING, SPREADS, indexing="ij")
        self._q, self._h = q.ravel(), h.ravel()
        self._log_prior = self._log_w = np.log(np.outer(LASTING_PRIOR, SPREADS_PRIOR)).ravel()
        self.start(math.nan, math.nan)

    def start(self, noise: float, share: float) -> None:
        """Begin with a step that has no past, of which noise and c are nan if they are not known."""
        self._share = USUAL_SHARE if math.isnan(share) else max(share, LEAST_SHARE)
        self._noise, self._n_quiet = noise, 1
        self._v = np.full(self._h.shape, noise)
        self._rest = np.zeros(self._h.shape)  # of v, what changes left

    def tail(self, noise: float, drift: float) -> float:
        """Return the probability that a step without change has as much drift, or more.

        Its noise stands in for that of the step before, where that is not known.
        """
        if math.isnan(self._noise):
            self.start(noise, self._share)
        w = np.exp(self._log_w - self._log_w.max())
        return float(w @ _upper_tail(self._deviation(drift)[0]) / w.sum())

    def _deviation(self, drift: float) -> tuple[np.ndarray, np.ndarray]:
        """Return z and σ of a drift for each pair of the grid."""
        means, lasting = self._share * self._noise, self._lasting()
        e = self._v + means + lasting
        f = (means + self._rest + LOOSE * lasting) / np.where(e > 0, e, 1.0)
        sigma = self._h * np.hypot((1 - f) * RHO * math.sqrt(self._share), TAU * f)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log(drift / e) / sigma
        return np.nan_to_num(z, nan=0.0), sigma  # 0 / 0: no drift where none is expected

    def _lasting(self) -> np.ndarray:
        """Return q (n̄ − v)."""
        return self._q * np.maximum(self._noise - self._v, 0.0)

    def take(self, noise: float, drift: float, *, changed: bool, learns: bool) -> None:
        """Go on to the next step."""
        if learns:
            z, sigma = self._deviation(drift)
            earlier = self._log_w - self._log_prior
            self._log_w = self._log_prior + KEPT * earlier + _log_density(z) - np.log(sigma)
        if changed:
            off = np.maximum(self._v, drift - self._share * self._noise - self._lasting())
            self._rest, self._v = self._rest + off - self._v, off
        else:
            self._n_quiet = min(self._n_quiet + 1, MEMORY)
            self._noise += (noise - self._noise) / self._n_quiet
        alpha = noise / (noise + drift) if noise + drift > 0 else 0.0
        self._rest = alpha**2 * self._rest
        self._v = alpha**2 * self._v + (1 - alpha) ** 2 * noise


def _log_density(z: np.ndarray) -> np.ndarray:
    """Return the logarithm of the density of the logistic distribution."""
    size = np.minimum(np.abs(z), MOST)
    return -size - 2 * np.log1p(np.exp(-size))


def _upper_tail(z: np.ndarray) -> np.ndarray:
    """Return the upper tail of the logistic distribution, 1 / (1 + exp z)."""
    return np.exp(-np.logaddexp(0.0, z))


def change_points(source: Any, *, level: float = LEVEL) -> list[int]:
    """Return the steps at which the past is further from the present than noise explains.

    Each step compares its drift with what is to be expected of it, given the noise and the weights of the
    steps before. Nothing after it matters, so that a change is known at once. A change that takes
    several steps is found at the first of them, and once more if it is much clearer at a later one.

    Parameters
    ----------
    source : fitted model, History, or (T,) array
        A model, its `history_`, or forgetting factors alone, such as `history_.alpha`. These tell less: the
        noise is then taken to be the same at all steps, while a change often looks like noise, too. The
        first step has no past, and is never a change point.
    level : float
        The rate of false alarms: a step is a change point if a drift like its own has a smaller probability
        without change. Lower finds less.

    Notes
    -----
    At the default level, in simulations of 8, 20 and 100 steps, 0.8, 0.4 and 0.2 of 100 steps are called a
    change where nothing changed; more, if the level of all proximities goes up and down from step to step.
    From step 3 on about 9 in 10 changes of a quarter of the objects are found at once or a step late. Before,
    the past is one or two observations, and changes must be large. `affect-xp reproduce changes` gives the
    tables.

    Examples
    --------
    >>> from affect_xp.tracking.change_points import change_points
    >>> change_points([0, 0.52, 0.64, 0.72, 0.79, 0.81, 0.37, 0.55, 0.68])
    [6]
    """
    if not 0 < level < 0.5:
        raise InputError(f"level must be more than 0 and less than 0.5, got {level}")
    tails = _tails(_measured(source), level)
    return [t for t in range(1, len(tails)) if tails[t] < level and _begins(tails[t - 1], tails[t], level)]


def told_changes(history: History) -> tuple[list[int], str]:
    """Return the change points of a run, and a sentence where the run does not allow to tell them all.

    Examples
    --------
    >>> from affect_xp.tracking.change_points import told_changes
    >>> told_changes(History())[1]
    'A run of 0 steps is too short to tell whether something changed: changes are told from step 3 on.'
    """
    if len(history) > 1 and not _is_measured(history):
        return [], "Change points are not told: that takes an α that is estimated, with its noise and drift."
    note = ""
    if len(history) <= RELIABLE:
        note = (
            f"A run of {counted(len(history), 'step')} is too short to tell whether something changed: "
            f"changes are told from step {RELIABLE} on."
        )
    return change_points(history), note


def _is_measured(history: History) -> bool:
    return any(record.drift is not None for record in history)


def _begins(before: float, tail: float, level: float) -> bool:
    """Tell whether a change is new: not one that goes on, but for one that is much clearer than before."""
    return before >= level or tail < before / 2


def _tails(measured: np.ndarray, level: float) -> list[float]:
    """Return of each step the probability of a drift like its own without change."""
    tails: list[float] = []
    known = _Expectation()
    for noise, drift, noise_of_means in measured.tolist():
        if math.isnan(drift):
            known.start(noise, noise_of_means / noise if noise > 0 else math.nan)
            tails.append(1.0)
            continue
        tail = known.tail(noise, drift)
        known.take(noise, drift, changed=tail < level, learns=tail >= level or tails[-1] < level)
        tails.append(tail)
    return tails


def _measured(source: Any) -> np.ndarray:
    """Return noise, drift and noise of means as mean squares, in any unit, (T, 3); nan where not known."""
    history = source if isinstance(source, History) else getattr(source, "history_", None)
    if history is None:
        return _from_alpha(source)
    measured = [(record.noise, record.drift, record.noise_of_means) for record in history]
    if len(measured) > 1 and not _is_measured(history):
        raise InputError(
            'change points need an α that is estimated: fit the model with alpha="estimate"; of a run saved '
            "by an earlier version, pass history_.alpha"
        )
    values = np.array(measured, dtype=np.float64).reshape(-1, 3)  # None becomes nan
    largest = np.nanmax(values, initial=0.0)
    return (values / largest if largest > 0 else values) ** 2


def _from_alpha(alpha: Any) -> np.ndarray:
    """Return a noise of 1, and the drift (1 − α) / α."""
    try:
        values = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise InputError(
            "change_points takes a fitted model, its history_, or a sequence of forgetting factors between 0 "
            f"and 1, got {alpha!r}"
        )
    drift = (1 - values) / np.maximum(values, LEAST)
    drift[:1] = np.nan
    return np.stack([np.ones(len(values)), drift, np.full(len(values), np.nan)], axis=1)
