"""
Streaming and resuming
======================

This example processes steps as they arrive and saves the model in between. The resumed run gives the same
results, bit for bit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import affect_xp as ax

days = list(ax.datasets.colliding_gaussians(n_samples=80, n_steps=20, rng=0))

# %%
# Process the first ten days one at a time. The model keeps only the last smoothed matrix, the last labels and
# the history.

model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
for day in days[:10]:
    model.partial_fit(day.X)

# %%
# The file is written atomically. Another process can load it and continue the run.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "days.affect")
    model.save(path)
    resumed = ax.load(path)

for day in days[10:]:
    resumed.partial_fit(day.X)

# %%
# An uninterrupted run gives the same result.

unbroken = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit(
    day.X for day in days
)
same = all(
    a.alpha == b.alpha and (a.labels == b.labels).all()
    for a, b in zip(unbroken.history_, resumed.history_, strict=True)
)
score = ax.rand_index(resumed.labels_, days[-1].labels)
print(f"the same α and labels at all steps: {same}; Rand index at the end {score:.2f}")

axes = ax.plots.plot_alpha(resumed, changes=True)
axes.axvspan(-0.5, 9.5, color="0.93", zorder=0)
axes.text(4.5, 0.05, "before the break", ha="center")
plt.show()
