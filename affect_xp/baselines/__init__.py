"""The methods that AFFECT is compared with, and the choice of their parameter."""

from affect_xp.baselines.pcm import PCM
from affect_xp.baselines.pcq import PCQ
from affect_xp.baselines.rg import RG
from affect_xp.baselines.tuning import CrossValidation, Tuning, cross_validate_alpha, tune_alpha

__all__ = ["PCM", "PCQ", "RG", "CrossValidation", "Tuning", "cross_validate_alpha", "tune_alpha"]
