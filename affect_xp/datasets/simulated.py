"""Seeded simulations; features and truth are NumPy arrays."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from affect_xp.array.random import as_generator
from affect_xp.array.typing import Seed
from affect_xp.checks import check_int
from affect_xp.exceptions import InputError


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianStep:
    """Samples of a Gaussian mixture at one time step, and the parameters of the mixture.

    Attributes
    ----------
    X : (n, p) array
        The features.
    labels : (n,) int array
        The component of each sample.
    means : (k, p) array
    covariances : (k, p, p) array
    """

    X: np.ndarray
    labels: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @property
    def W(self) -> np.ndarray:
        """The dot products of the features, (n, n)."""
        return self.X @ self.X.T


def colliding_gaussians(
    n_samples: int = 40, n_steps: int = 25, *, scale_covariances: bool = True, rng: Seed = None
) -> Iterator[GaussianStep]:
    """Yield the steps of two Gaussians; one moves towards the other and then passes members to it.

    Component 0 stays at (3, 3). Component 1 starts at (-3, -3) and moves by (0.4, 0.4) at the steps 1
    to 9. At steps 10 and 11 an eighth of all samples changes from component 1 to component 0.
    Samples are redrawn at each step; otherwise they keep their component.

    Parameters
    ----------
    n_samples : int
        A multiple of 8; half of them start in each component.
    n_steps : int
    scale_covariances : bool
        Whether the covariances, initially the identity, are scaled by 1 ± 1/8 each time samples change
        (the settings of the published figures), or are constant (the text of the paper).
    rng : None, int or numpy.random.Generator

    References
    ----------
    Xu, Kliger & Hero, "Adaptive Evolutionary Clustering", section 5.2.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.colliding_gaussians(rng=0))
    >>> len(steps), steps[0].X.shape
    (25, (40, 2))
    >>> [int(step.labels.sum()) for step in steps[8:13]]
    [20, 20, 15, 10, 10]
    """
    if check_int("n_samples", n_samples, 8) % 8:
        raise InputError(f"n_samples must be a multiple of 8, got {n_samples}")
    check_int("n_steps", n_steps, 1)
    generator = as_generator(rng)
    labels = np.repeat([0, 1], n_samples // 2)
    means = np.array([[3.0, 3.0], [-3.0, -3.0]])
    covariances = np.stack([np.eye(2), np.eye(2)])
    for t in range(n_steps):
        if 1 <= t <= 9:
            means = means + np.array([[0.0, 0.0], [0.4, 0.4]])
        if t in (10, 11):
            labels = labels.copy()
            labels[np.flatnonzero(labels == 1)[: n_samples // 8]] = 0
            if scale_covariances:
                covariances = covariances * np.array([1 + 1 / 8, 1 - 1 / 8])[:, None, None]
        yield GaussianStep(_samples(means, covariances, labels, generator), labels, means, covariances)


def separated_gaussians(
    n_samples: int = 40, n_steps: int = 40, *, rng: Seed = None
) -> Iterator[GaussianStep]:
    """Yield the steps of two well-separated Gaussians whose means drift and whose noise grows once.

    The components start at (4, 0) and (-4, 0). At each step after the first, each mean moves independently
    by ±0.1 along the first axis. The covariances are 0.1 I, and 0.3 I from step 19 on. Samples are redrawn at
    each step and keep their component.

    Parameters
    ----------
    n_samples : int
        An even number; half of them are in each component.
    n_steps : int
    rng : None, int or numpy.random.Generator

    References
    ----------
    Xu, Kliger & Hero, "Adaptive Evolutionary Clustering", section 5.1.

    Examples
    --------
    >>> import affect_xp as ax
    >>> steps = list(ax.datasets.separated_gaussians(rng=0))
    >>> len(steps), steps[0].X.shape
    (40, (40, 2))
    >>> [float(step.covariances[0, 0, 0]) for step in steps[18:20]]
    [0.1, 0.3]
    """
    if check_int("n_samples", n_samples, 2) % 2:
        raise InputError(f"n_samples must be even, got {n_samples}")
    check_int("n_steps", n_steps, 1)
    generator = as_generator(rng)
    labels = np.repeat([0, 1], n_samples // 2)
    means = np.array([[4.0, 0.0], [-4.0, 0.0]])
    for t in range(n_steps):
        if t > 0:
            means = means + np.stack([generator.choice([-0.1, 0.1], size=2), np.zeros(2)], axis=1)
        covariances = np.stack([np.eye(2), np.eye(2)]) * (0.1 if t < 19 else 0.3)
        yield GaussianStep(_samples(means, covariances, labels, generator), labels, means, covariances)


def _samples(
    means: np.ndarray, covariances: np.ndarray, labels: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw one sample per label from its component."""
    root = np.linalg.cholesky(covariances)[labels]  # (n, p, p)
    noise = rng.standard_normal((len(labels), means.shape[1], 1))
    return means[labels] + (root @ noise)[:, :, 0]
