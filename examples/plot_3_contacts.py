"""
Who is with whom
================

People meet, mostly those of their own group. Some are away, some leave for good, new ones come.
Spectral clustering of the smoothed contacts follows the groups.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Contacts of five groups of twenty, counted four times a day for two weeks. A fifth of the people is
# away on any day.

steps = list(ax.datasets.contacts(40, daily_contacts=60, absence=0.2, churn=0.01, rng=0))
print(f"{len(steps[0].ids)} people at first, {len({i for s in steps for i in s.ids})} in all")

# %%
# W holds the number of contacts of each pair, and ids tell who is who. A few pairs have most of the
# contacts: logarithms keep them from ruling the others. Whoever is away keeps the past until the return;
# without that, they would be new. In hindsight, the steps after a step tell about it as well.

W, ids = [step.W for step in steps], [step.ids for step in steps]
networks = {"rescale": "log1p", "absent": "keep", "random_state": 0}
models = {
    "AFFECT": ax.Affect(ax.Spectral(5), **networks).fit(W, ids=ids),
    "hindsight": ax.smooth(W, ax.Spectral(5), ids=ids, **networks),
    "static": ax.Static(ax.Spectral(5), random_state=0).fit(W, ids=ids),
}
scores = {
    name: [ax.adjusted_rand_index(r.labels, s.labels) for r, s in zip(m.history_, steps, strict=True)]
    for name, m in models.items()
}
for name, values in scores.items():
    print(f"{name}: mean adjusted Rand index {np.mean(values):.3f}")

# %%
# Each day the groups mix at lunch. Below, a row is a person, white where the person is away.

figure, (above, below) = plt.subplots(2, 1, figsize=(9, 7), layout="constrained", height_ratios=[2, 3])
ax.plots.plot_scores(scores, ax=above, ylabel="adjusted Rand index")
ax.plots.plot_memberships(models["AFFECT"].history_, ax=below)
plt.show()
