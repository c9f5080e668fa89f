"""The models of the experiments, with features and similarities taken as they are, as in the paper."""

import functools

from affect_xp.baselines import RG
from affect_xp.estimators import Affect, Static

affect = functools.partial(Affect, scale="none", rescale=None)
static = functools.partial(Static, scale="none")
rg = functools.partial(RG, scale="none")
