"""
Choosing the number of clusters
===============================

The number of groups changes over time. This example compares three rules that choose the number at each step.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax
from affect_xp.proximity.kernels import features_to_proximity

# %%
# Eighty objects form groups on a circle: three at first, five from step 6 on, and four from step 12 on.

rng = np.random.default_rng(0)
true = np.repeat([3, 5, 4], 6)
similarities = []
for k in true:
    angle = 2 * np.pi * (np.arange(80) % k) / k
    X = 5 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(size=(80, 2))
    similarities.append(features_to_proximity(X, "rbf", gamma=0.1))

# %%
# Each rule tries every number up to ``max_clusters`` and keeps the one with the best score.

clusterers = {
    "silhouette": ax.KMeans("silhouette", max_clusters=7),
    "modularity": ax.Spectral("modularity", max_clusters=7),
    "eigengap": ax.Spectral("eigengap", max_clusters=7),
}
models = {
    name: ax.Affect(c, random_state=0).fit(similarities) for name, c in clusterers.items()
}
found = {name: [record.k for record in model.history_] for name, model in models.items()}
shares = {name: float(np.mean(found[name] == true)) for name in found}
for name, share in shares.items():
    print(f"{name}: the right number at {share:.0%} of the steps")

# %%
# Most errors occur at the steps where the number changes. ``history_`` stores the scores of each choice.

figure, (left, *others) = plt.subplots(
    1, 3, figsize=(10, 3), layout="constrained", width_ratios=[2, 1, 1]
)
left.step(range(len(true)), true, where="mid", label="true", color="0.8", linewidth=8)
for i, (name, chosen) in enumerate(found.items()):
    left.plot(
        np.arange(len(true)) + 0.3 * (i - 1), chosen, "o^x"[i], markersize=4, label=name
    )
left.set(xlabel="time step", ylabel="number of clusters", ylim=(0, 9))
left.set_xticks(range(0, len(true), 3))
left.legend(frameon=False, ncols=2)
for panel, t in zip(others, (3, 9), strict=True):
    record = models["silhouette"].history_[t]
    ax.plots.plot_scores_by_k(record.scores, chosen=record.k, ax=panel)
    panel.set_title(f"silhouette, step {t}")
plt.show()
