"""Models with the paper's settings, which differ from the defaults of the library."""

import functools

from affect_xp.clustering.kmeans import KMeans
from affect_xp.models.affect import Affect
from affect_xp.models.rg import RG
from affect_xp.models.static import Static

# Use features and similarities without preparation.
affect = functools.partial(Affect, scale="none", rescale=None, alpha_tol=0.0)
static = functools.partial(Static, scale="none")
rg = functools.partial(RG, scale="none")
# One random partition, and Lloyd iterations until no label changes.
paper_kmeans = functools.partial(KMeans, init="random", n_init=1, tol=0.0)
