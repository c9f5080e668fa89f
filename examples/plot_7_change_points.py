"""
Detecting change points
=======================

α is the weight of the past. A step is a change point if the past is further from the present than noise
explains.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Simulate sixty objects in three groups. At steps 14 and 26 the centres of the groups jump, but no object
# changes groups, so the labels do not show the change.

rng = np.random.default_rng(2)
groups = np.repeat([0, 1, 2], 20)
centres = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
jumps = {14: [2.5, 2.5], 26: [-3.0, 2.0]}

model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
for t in range(36):
    centres = centres + jumps.get(t, [0.0, 0.0]) * np.array([[1], [-1], [0]])
    model.partial_fit(centres[groups] + rng.normal(size=(60, 2)))

# %%
# Each record stores its noise and its drift, the distance of the past from the current expectation. While
# nothing changes, the noise of the previous steps predicts the drift. The detector compares the two. It does
# not use later steps, so a change is reported at the step where it happens. About one step in 200 is a false
# alarm.

found = ax.change_points(model)
print(f"change points: {found}")

ax.plots.plot_alpha(model, changes=found)
plt.show()

# %%
# Short runs work as well. This run has eight steps, with a change at the sixth:

rng = np.random.default_rng(1)
centres = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
short = ax.Affect(
    ax.KMeans(3, init="k-means++", n_init=3), proximity="dot", random_state=0
)
for t in range(8):
    moved = np.where((t >= 5) & (np.arange(60) % 4 == 0), (groups + 1) % 3, groups)
    short.partial_fit(centres[moved] + rng.normal(size=(60, 2)))
print(f"change points: {ax.change_points(short)}")

# %%
# Three steps are too few to detect a change; the figure says so.

ax.plots.plot_alpha(short.history_[:3], changes=True)
plt.show()
