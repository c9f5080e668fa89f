"""
Many objects without an n×n matrix
==================================

With dot products as similarities, AFFECT works on the features. The n×n matrix is never formed, and the
result is exact.
"""

import matplotlib.pyplot as plt
import numpy as np

import affect_xp as ax

# %%
# Simulate 50,000 objects in four groups. Their similarities would be 2.5 billion numbers: 20 GB for each of
# two matrices.

n, k = 50_000, 4
rng = np.random.default_rng(0)
groups = rng.integers(k, size=n)
centres = 2.5 * rng.normal(size=(k, 6))

model = ax.Affect(ax.KMeans(k), proximity="dot", random_state=0)
for _ in range(6):
    X = centres[groups] + 2 * rng.normal(size=(n, 6))
    model.partial_fit(X)

score = ax.adjusted_rand_index(model.labels_, groups)
smoothed = model.smoothed_
print(smoothed)
print(f"adjusted Rand index {score:.3f}")

# %%
# With few objects, the factored form can be compared with the dense matrix: α agrees up to rounding.

few = [centres[groups[:200]] + 2 * rng.normal(size=(200, 6)) for _ in range(6)]
factored = ax.Affect(ax.KMeans(k), proximity="dot", random_state=0).fit(few)
dense = ax.Affect(ax.KMeans(k), random_state=0).fit(X @ X.T for X in few)
difference = float(np.abs(factored.history_.alpha - dense.history_.alpha).max())
print(f"largest difference of α: {difference:.0e}")

# %%
# Plot the proximities of a sample of the objects.

sample = rng.choice(n, 300, replace=False)
ax.plots.plot_smoothing(
    X[sample] @ X[sample].T, smoothed.take(sample), model.labels_[sample]
)
plt.show()
