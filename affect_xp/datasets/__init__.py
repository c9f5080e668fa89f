"""Data that change over time, with known clusters: simulated, or read from files."""

from affect_xp.datasets.bikes import BikeStations, bike_stations
from affect_xp.datasets.boids import BoidsStep, boids
from affect_xp.datasets.contacts import ContactStep, contacts
from affect_xp.datasets.football import FootballStep, load_football
from affect_xp.datasets.nasdaq import StockStep, load_nasdaq
from affect_xp.datasets.reality import RealityStep, load_reality
from affect_xp.datasets.simulated import GaussianStep, colliding_gaussians, separated_gaussians

__all__ = [
    "BikeStations",
    "BoidsStep",
    "ContactStep",
    "FootballStep",
    "GaussianStep",
    "RealityStep",
    "StockStep",
    "bike_stations",
    "boids",
    "colliding_gaussians",
    "contacts",
    "load_football",
    "load_nasdaq",
    "load_reality",
    "separated_gaussians",
]
