"""Simulated data that change over time, with the truth beside them."""

from affect_xp.datasets.simulated import GaussianStep, colliding_gaussians

__all__ = ["GaussianStep", "colliding_gaussians"]
