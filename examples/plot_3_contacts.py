"""
Groups in a contact network
===========================

People mostly meet members of their own group. Some are absent for a while, some leave for good, and new
ones arrive. Spectral clustering of the smoothed contacts follows the groups.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Contacts of five groups of twenty people are counted four times a day for two weeks. On each day a fifth of
# the people is absent.

steps = list(ax.datasets.contacts(40, daily_contacts=60, absence=0.2, churn=0.01, rng=0))
print(
    f"{len(steps[0].ids)} people at first, {len({i for s in steps for i in s.ids})} in all"
)

# %%
# W contains the number of contacts of each pair; ids identify the people. A few pairs account for most of
# the contacts; logarithms keep them from dominating. With ``absent="keep"``, absent people keep their past
# until they return; otherwise they would count as new. Hindsight also uses the steps after a step.

W, ids = [step.W for step in steps], [step.ids for step in steps]
networks = {"rescale": "log1p", "absent": "keep", "random_state": 0}
models = {
    "AFFECT": ax.Affect(ax.Spectral(5), **networks).fit(W, ids=ids),
    "hindsight": ax.smooth(W, ax.Spectral(5), ids=ids, **networks),
    "static": ax.Static(ax.Spectral(5), random_state=0).fit(W, ids=ids),
}
scores = {
    name: [
        ax.adjusted_rand_index(r.labels, s.labels)
        for r, s in zip(m.history_, steps, strict=True)
    ]
    for name, m in models.items()
}
for name, values in scores.items():
    print(f"{name}: mean adjusted Rand index {np.mean(values):.3f}")

# %%
# The groups mix at lunch each day. In the lower panel, a row is a person, white if the person is absent.

figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 7), layout="constrained", height_ratios=[2, 3]
)
ax.plots.plot_scores(scores, ax=above, ylabel="adjusted Rand index")
ax.plots.plot_memberships(models["AFFECT"], ax=below)
plt.show()
