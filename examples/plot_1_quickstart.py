"""
From a table to a figure
========================

This example clusters a table with a time, an id and some features, and follows the clusters over time.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# A row of the table contains the departures at a bike station in a week, by part of the day. There are three
# kinds of stations. In week 12 the holidays end, and six stations change from one kind to another.

bikes = ax.datasets.bike_stations()
table = bikes.to_frame()
print(table.iloc[::200, :6])

# %%
# :func:`~affect_xp.io.read_steps` splits a DataFrame, a dict of columns or a CSV file into steps. The
# similarity of two stations is the dot product of their features.

steps = ax.io.read_steps(table, time="week", id="station")
model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0).fit(steps)
score = np.mean(
    [
        ax.rand_index(r.labels, c)
        for r, c in zip(model.history_, bikes.labels, strict=True)
    ]
)
print(f"mean Rand index {score:.3f}")

# %%
# In the upper panel bars are clusters and ribbons are the stations they share. The lower panel shows α, the
# weight of the past. It falls when the stations change.

ax.plots.plot_run(model)
plt.show()
