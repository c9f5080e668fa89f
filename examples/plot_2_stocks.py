"""
Stocks that move together
=========================

This example clusters stocks by the correlation of their price changes and compares the clusters with the
sectors. The prices are simulated. If the environment variable ``AFFECT_XP_DATA`` names a folder that
contains ``nasdaq2008.npz``, the same script runs on the data of the paper.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax


# %%
# A step is a window of fifteen days. The features of a stock are its standardised daily changes, so that a
# dot product is a correlation. In the simulation each change is a sector term plus individual noise, and from
# window 14 on half of a sector moves with another one.
def simulated(n_sectors=5, per_sector=20, n_windows=24, days=15):
    """Yield (X, sectors) of each window."""
    rng = np.random.default_rng(0)
    sectors = np.repeat(np.arange(n_sectors), per_sector)
    for t in range(n_windows):
        if t == 14:
            sectors = sectors.copy()
            sectors[: per_sector // 2] = 1
        common = rng.normal(size=(n_sectors, days))
        changes = common[sectors] + 1.2 * rng.normal(size=(len(sectors), days))
        changes -= changes.mean(axis=1, keepdims=True)
        yield changes / changes.std(axis=1, keepdims=True), sectors


data = Path(os.environ.get("AFFECT_XP_DATA", "."), "nasdaq2008.npz")
if data.exists():
    windows = [(step.X, step.labels) for step in ax.datasets.load_nasdaq(data)]
else:
    windows = list(simulated())
n_sectors = len(np.unique(windows[0][1]))

# %%
# Run the same clusterer with and without a past. ``proximity="dot"`` never forms the n×n matrix.

clusterer = ax.KMeans(n_sectors)
models = {
    "AFFECT": ax.Affect(clusterer, proximity="dot", random_state=0),
    "static": ax.Static(clusterer, proximity="dot", random_state=0),
}
scores = {
    name: [
        ax.adjusted_rand_index(record.labels, sectors)
        for record, (_, sectors) in zip(
            model.fit(X for X, _ in windows).history_, windows, strict=True
        )
    ]
    for name, model in models.items()
}
for name, values in scores.items():
    print(f"{name}: mean adjusted Rand index {np.mean(values):.3f}")

# %%
# One window contains little information about a stock. Most of it comes from the past, with a weight α that
# drops when the past no longer holds.

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
ax.plots.plot_scores(scores, ax=above, ylabel="adjusted Rand index")
ax.plots.plot_alpha(models["AFFECT"], ax=below)
plt.show()
