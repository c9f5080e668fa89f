"""
Births, splits and merges
=========================

Clusters keep their ids from step to step. Their changes are recorded as events and plotted as a flow.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Simulate two groups of thirty. At step 5 the second group splits. At step 10 a group of new objects arrives.
# At step 15 the two halves merge again. The objects have ids, so they may come and go.

rng = np.random.default_rng(0)
steps, ids, truth = [], [], []
for t in range(20):
    apart = 6.0 if 5 <= t < 15 else 0.0
    centres = np.array([[-6.0, 0.0], [6.0, -apart], [6.0, apart], [0.0, 9.0]])
    groups = np.repeat([0, 1, 2, 3], [30, 15, 15, 20 if t >= 10 else 0])
    steps.append(centres[groups] + rng.normal(size=(len(groups), 2)))
    ids.append(range(len(groups)))
    truth.append(groups if apart else np.where(groups == 2, 1, groups))

# %%
# The silhouette chooses the number of clusters at each step. The split is detected two steps late, because a
# change within one cluster looks like noise at first.

clusterer = ax.KMeans("silhouette", max_clusters=6)
model = ax.Affect(clusterer, proximity="dot", scale="none", random_state=0).fit(
    steps, ids=ids
)
score = np.mean(
    [
        ax.adjusted_rand_index(r.labels, c)
        for r, c in zip(model.history_, truth, strict=True)
    ]
)
print(f"mean adjusted Rand index {score:.3f}")
for record in model.history_[1:]:
    for event in record.events:
        if event.kind != "continuation":
            print(f"step {record.time}: {event}")

# %%
# The upper panel shows clusters as bars and shared objects as ribbons. The lower panel has a row per object,
# in the colour of its cluster, white if the object is absent.

figure, (above, below) = plt.subplots(2, 1, figsize=(9, 7), layout="constrained")
ax.plots.plot_flow(model, ax=above)
ax.plots.plot_memberships(model, ax=below)
plt.show()
