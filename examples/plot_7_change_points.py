"""
When did it change?
===================

α is the trust in the past. Where it falls suddenly, the past has stopped telling about the present.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Sixty objects in three groups. At steps 14 and 26 the centres of the groups jump, and no object
# changes groups: labels alone would not show it.

rng = np.random.default_rng(0)
groups = np.repeat([0, 1, 2], 20)
centres = np.array([[5.0, 0.0], [-3.0, 4.0], [-3.0, -4.0]])
jumps = {14: [2.5, 2.5], 26: [-3.0, 2.0]}

model = ax.Affect(ax.KMeans(3), proximity="dot", random_state=0)
for t in range(36):
    centres = centres + jumps.get(t, [0.0, 0.0]) * np.array([[1], [-1], [0]])
    model.partial_fit(centres[groups] + rng.normal(size=(60, 2)))

# %%
# The detector compares each drop of α with those before it. It looks at nothing that comes later, so
# a change is known at the step at which it happens.

alpha = model.history_.alpha
found = ax.change_points(alpha)
print(f"change points: {found}")

ax.plots.plot_alpha(model.history_, changes=found)
plt.show()
