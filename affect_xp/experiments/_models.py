"""The models of the experiments with the paper's settings, where the defaults of the library differ."""

import functools

from affect_xp.clustering.base import KMeans
from affect_xp.models.affect import Affect, Static
from affect_xp.models.rg import RG

# Features and similarities as they are.
affect = functools.partial(Affect, scale="none", rescale=None)
static = functools.partial(Static, scale="none")
rg = functools.partial(RG, scale="none")
# One random partition, and Lloyd's iteration until no label changes.
paper_kmeans = functools.partial(KMeans, init="random", n_init=1, tol=0.0)
