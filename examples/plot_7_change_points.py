"""
When did it change?
===================

α is the trust in the past. Where the past is further off than noise explains, something has changed.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Sixty objects in three groups. At steps 14 and 26 the centres of the groups jump, and no object
# changes groups: labels alone would not show it.

rng = np.random.default_rng(2)
groups = np.repeat([0, 1, 2], 20)
centres = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
jumps = {14: [2.5, 2.5], 26: [-3.0, 2.0]}

model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
for t in range(36):
    centres = centres + jumps.get(t, [0.0, 0.0]) * np.array([[1], [-1], [0]])
    model.partial_fit(centres[groups] + rng.normal(size=(60, 2)))

# %%
# Each step knows its noise, and its drift: how far the past is from what is expected now. While nothing
# changes, the drift can be foretold from the noise of the steps before. The detector compares the two. It
# looks at nothing that comes later, so a change is known at the step at which it happens, and one step in 200
# is a false alarm.

found = ax.change_points(model)
print(f"change points: {found}")

ax.plots.plot_alpha(model.history_, changes=found)
plt.show()

# %%
# It needs no long run. Eight steps, of which the sixth brings a change:

rng = np.random.default_rng(1)
centres = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
short = ax.Affect(ax.KMeans(3, init="k-means++", n_init=3), proximity="dot", random_state=0)
for t in range(8):
    moved = np.where((t >= 5) & (np.arange(60) % 4 == 0), (groups + 1) % 3, groups)
    short.partial_fit(centres[moved] + rng.normal(size=(60, 2)))
print(f"change points: {ax.change_points(short)}")

# %%
# Three steps are too few to tell whether something changed, and the picture says so.

ax.plots.plot_alpha(short.history_[:3], changes=True)
plt.show()
