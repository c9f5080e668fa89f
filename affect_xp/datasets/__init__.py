"""Simulated data that change over time, with the truth beside them."""

from affect_xp.datasets.boids import BoidsStep, boids
from affect_xp.datasets.simulated import GaussianStep, colliding_gaussians, separated_gaussians

__all__ = ["BoidsStep", "GaussianStep", "boids", "colliding_gaussians", "separated_gaussians"]
