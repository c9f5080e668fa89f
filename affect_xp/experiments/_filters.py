"""RG with other coefficients than those of `affect_xp.models.RG`, to measure their effect."""

from collections.abc import Iterable

import numpy as np

from affect_xp.clustering.metrics import rand_index
from affect_xp.datasets import GaussianStep
from affect_xp.experiments._models import paper_kmeans, static
from affect_xp.models.rg import Frame, separation


def filtered_rand(
    steps: Iterable[GaussianStep], order: int, power: float, seed: int, n_clusters: int = 2
) -> np.ndarray:
    """Return the Rand index of k-means on filtered features at each step, (T,).

        yᵗ = b₀ xᵗ + … + b_l xᵗ⁻ˡ,   bᵢ ∝ (distance of the centroids at t − i) ^ power

    A power of 1 is `RG`, 0 gives equal coefficients, 2 those by squared distances.
    """
    model = static(paper_kmeans(n_clusters), proximity="dot", random_state=seed)
    past: list[Frame] = []  # from the newest to the oldest
    rand = []
    for step in steps:
        y = step.X
        if past:
            frames = [Frame(step.X, past[0].labels), *past]
            b = np.array([float(separation(frame, n_clusters)) ** power for frame in frames])
            y = sum(share * frame.x for share, frame in zip(b / b.sum(), frames, strict=True))
        labels = np.unique(model.partial_fit(y).labels_, return_inverse=True)[1]
        rand.append(rand_index(labels, step.labels))
        past = [Frame(step.X, labels), *past][:order]
    return np.array(rand)
