"""
From a table to a figure
========================

This example clusters a table with a time, an id and two features, and follows the clusters over time.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Sixty shops of three kinds are observed with noise for twelve weeks. In week 7 five shops change from the
# first kind to the second.

rng = np.random.default_rng(0)
kinds = np.repeat([0, 1, 2], 20)
typical = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])  # centered sales and returns of each kind

rows, truth = [], []
for week in range(12):
    if week == 7:
        kinds[:5] = 1
    seen = typical[kinds] + 0.7 * rng.normal(size=(60, 2))
    rows += [(week, f"shop {i}", *values) for i, values in enumerate(seen)]
    truth.append(kinds.copy())
week, shop, sales, returns = map(list, zip(*rows, strict=True))
table = {"week": week, "shop": shop, "sales": sales, "returns": returns}

# %%
# :func:`~affect_xp.io.read_steps` splits a dict of columns, a DataFrame or a CSV file into steps. The
# similarity of two shops is the dot product of their features.

steps = ax.io.read_steps(table, time="week", id="shop")
model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(steps)
score = np.mean([ax.rand_index(r.labels, c) for r, c in zip(model.history_, truth, strict=True)])
print(f"mean Rand index {score:.3f}")

# %%
# The upper panel shows α, the weight of the past. It drops when the shops change. In the lower panel bars are
# clusters and ribbons are the shops they share.

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
ax.plots.plot_alpha(model.history_, ax=above)
ax.plots.plot_flow(model.history_, ax=below)
plt.show()
