"""The paper's settings, where the defaults of the library differ."""

import functools

from affect_xp.clusterers import KMeans

# One random partition, and Lloyd's iteration until no label changes.
paper_kmeans = functools.partial(KMeans, init="random", n_init=1, tol=0.0)
