"""Change points: steps at which the past is further from the present than noise explains.

Each step has a noise n = Σ var(nᵢⱼ) and a drift d = Σ(ψ̂ᵢⱼ − E wᵢⱼ)², the squared error of the past, both per
entry. While nothing changes, this error is predictable: it is the error of a weighted mean of observations,
which follows from their noise and weights,

    v⁰ = n⁰,   vᵗ = αᵗ² vᵗ⁻¹ + (1 − αᵗ)² nᵗ

The drift exceeds vᵗ⁻¹ by two terms. The block means that estimate E w are uncertain, which adds c n̄, with
c = Σ var μ̂ / Σ var(nᵢⱼ) of the first step and n̄ the noise of the quiet steps before t. And a part of the
error does not average out, a share q of what has averaged out so far: objects that permanently differ from
their cluster, and clusters that move slowly. Without change

    E dᵗ = e = vᵗ⁻¹ + c n̄ + q (n̄ − vᵗ⁻¹)

The drift varies about e by a factor, log dᵗ = log e + σ z, where z has the logistic distribution. Sums over
entries vary less if c is small, that is, if many entries are independent; block means are few and vary more.
With f the share in e of c n̄, of the remainder of a change, and of LOOSE times the last term,

    σ² = h² { (1 − f)² ρ² c + f² τ² }

q and h are unknown. Each pair on a grid has a prior weight, which is updated by the likelihood of the quiet
steps, about the last ten: at first the prior dominates, later the run. Step t is a change point if the
probability of a drift of at least dᵗ is below the level,

    P(d ≥ dᵗ) = Σ w(q, h) / (1 + exp z),   z = log(dᵗ / e) / σ

After a change the error of the past is the observed one, v = d − c n̄ − q (n̄ − v), and later steps are
compared with it.
"""

import math
from typing import Any

import numpy as np
import scipy  # imports its submodules lazily

from affect_xp.display import counted
from affect_xp.exceptions import InputError
from affect_xp.tracking.history import History

# Chosen by simulation; `affect-xp reproduce changes` measures their performance on other settings.
LEVEL = 0.005
RHO, TAU, LOOSE = 0.35, 0.33, 0.3
LASTING = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 1.0, 3.0, 10.0])  # q
LASTING_PRIOR = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.2, 0.02, 0.002])
SPREADS = np.geomspace(0.125, 16.0, 15)  # h
SPREADS_PRIOR = np.exp(-((np.log(SPREADS) / 0.7) ** 2) / 2)
KEPT = 0.9  # share of the weight of earlier steps that is kept from step to step
MEMORY = 3  # n̄ averages about this number of quiet steps
USUAL_SHARE, MIN_SHARE = 0.05, 1e-5  # default of c if unknown, and its lower bound
MAX_ABS_Z = 50.0  # upper bound of |z| when pairs are weighted
MIN_ALPHA = 1e-12  # lower bound of α if the drift is computed from α alone
RELIABLE = 3  # the first step at which most changes are found; before it, the past is one or two observations


class _Expectation:
    """The distribution of the drift of a step without change, given the previous steps."""

    def __init__(self) -> None:
        q, h = np.meshgrid(LASTING, SPREADS, indexing="ij")
        self._q, self._h = q.ravel(), h.ravel()
        self._log_prior = self._log_w = np.log(np.outer(LASTING_PRIOR, SPREADS_PRIOR)).ravel()
        self.start(math.nan, math.nan)

    def start(self, noise: float, share: float) -> None:
        """Start with a step that has no past; its noise and c are nan if unknown."""
        self._share = USUAL_SHARE if math.isnan(share) else max(share, MIN_SHARE)
        self._noise, self._n_quiet = noise, 1
        self._v = np.full(self._h.shape, noise)
        self._rest = np.zeros(self._h.shape)  # the part of v that changes left

    def tail(self, noise: float, drift: float) -> float:
        """Return the probability that a step without change has at least this drift.

        If the noise of the previous step is unknown, that of this step is used.
        """
        if math.isnan(self._noise):
            self.start(noise, self._share)
        w = np.exp(self._log_w - self._log_w.max())
        return float(w @ scipy.special.expit(-self._deviation(drift)[0]) / w.sum())

    def _deviation(self, drift: float) -> tuple[np.ndarray, np.ndarray]:
        """Return z and σ of a drift for each pair of the grid."""
        means, lasting = self._share * self._noise, self._lasting()
        e = self._v + means + lasting
        f = (means + self._rest + LOOSE * lasting) / np.where(e > 0, e, 1.0)
        sigma = self._h * np.hypot((1 - f) * RHO * math.sqrt(self._share), TAU * f)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log(drift / e) / sigma
        return np.nan_to_num(z, nan=0.0), sigma  # 0 / 0: no drift expected, none found

    def _lasting(self) -> np.ndarray:
        """Return q (n̄ − v)."""
        return self._q * np.maximum(self._noise - self._v, 0.0)

    def take(self, noise: float, drift: float, *, changed: bool, learns: bool) -> None:
        """Update the state with a step."""
        if learns:
            z, sigma = self._deviation(drift)
            earlier = self._log_w - self._log_prior
            size = np.minimum(np.abs(z), MAX_ABS_Z)
            log_density = -size - 2 * np.log1p(np.exp(-size))  # of the logistic distribution
            self._log_w = self._log_prior + KEPT * earlier + log_density - np.log(sigma)
        if changed:
            off = np.maximum(self._v, drift - self._share * self._noise - self._lasting())
            self._rest, self._v = self._rest + off - self._v, off
        else:
            self._n_quiet = min(self._n_quiet + 1, MEMORY)
            self._noise += (noise - self._noise) / self._n_quiet
        alpha = noise / (noise + drift) if noise + drift > 0 else 0.0
        self._rest = alpha**2 * self._rest
        self._v = alpha**2 * self._v + (1 - alpha) ** 2 * noise


def change_points(source: Any, *, level: float = LEVEL) -> list[int]:
    """Return the steps at which the past is further from the present than noise explains.

    The drift of each step is compared with its expectation, given the noise and the weights of the previous
    steps. Later steps are not used, so that a change is reported immediately. A change that takes
    several steps is found at the first of them, and again if it is much clearer at a later one.

    Parameters
    ----------
    source : fitted model, History, or (T,) array
        A model, its `history_`, or forgetting factors alone, such as `history_.alpha`. With forgetting
        factors alone the noise is assumed to be constant, and changes that raise the noise are missed. The
        first step has no past, and is never a change point.
    level : float
        The false-alarm rate: a step is a change point if the probability of its drift without change is
        smaller. A lower level finds fewer changes.

    Notes
    -----
    At the default level, in simulations of 8, 20 and 100 steps, there are 0.3, 0.8 and 0.4 false alarms per
    100 steps; more, if the level of all proximities fluctuates from step to step. From step 3 on, about 9 in
    10 changes of a quarter of the objects are found at their step or the next one. Before step 3 the past is
    one or two observations, and only large changes are found. `affect-xp reproduce changes` gives the tables.

    Examples
    --------
    >>> from affect_xp.tracking.change_points import change_points
    >>> change_points([0, 0.52, 0.64, 0.72, 0.79, 0.81, 0.37, 0.55, 0.68])
    [6]
    """
    if not 0 < level < 0.5:
        raise InputError(f"level must be greater than 0 and less than 0.5, got {level}")
    tails = _tails(_measured(source), level)
    return [t for t in range(1, len(tails)) if tails[t] < level and _begins(tails[t - 1], tails[t], level)]


def changes_with_note(history: History) -> tuple[list[int], str]:
    """Return the change points of a run, and a note if they cannot all be determined."""
    if len(history) > 1 and not _is_measured(history):
        return [], "Change points are not available: they need an estimated α, with its noise and drift."
    length = counted(len(history), "step")
    short = f"A run of {length} is too short to detect changes: they are reported from step {RELIABLE} on."
    return change_points(history), short if len(history) <= RELIABLE else ""


def _is_measured(history: History) -> bool:
    return any(record.drift is not None for record in history)


def _begins(before: float, tail: float, level: float) -> bool:
    """Return whether a change is new: not the continuation of one, unless it is much clearer than before."""
    return before >= level or tail < before / 2


def _tails(measured: np.ndarray, level: float) -> list[float]:
    """Return the probability of the drift of each step without change."""
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
    """Return noise, drift and noise of means as mean squares, in any unit, (T, 3); nan if unknown."""
    history = source if isinstance(source, History) else getattr(source, "history_", None)
    if history is None:
        return _from_alpha(source)
    measured = [(record.noise, record.drift, record.noise_of_means) for record in history]
    if len(measured) > 1 and not _is_measured(history):
        raise InputError(
            'change points need an estimated α: fit the model with alpha="estimate"; for a run saved '
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
    drift = (1 - values) / np.maximum(values, MIN_ALPHA)
    drift[:1] = np.nan
    return np.stack([np.ones(len(values)), drift, np.full(len(values), np.nan)], axis=1)
