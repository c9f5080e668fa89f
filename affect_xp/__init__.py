"""Adaptive evolutionary clustering (AFFECT) on NumPy, CuPy and other array libraries.

Clusters objects that are observed again and again, following real change and ignoring noise. Start
with `Affect` and `KMeans`.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from affect_xp import datasets, exceptions, io, plots
    from affect_xp.affect.forgetting import (
        forgetting_factor,
        gaussian_mixture_proximity,
        oracle_forgetting_factor,
    )
    from affect_xp.affect.moments import BlockMoments, block_moments
    from affect_xp.clustering.external import as_external
    from affect_xp.clustering.kmeans import KMeans, KMeansResult, kmeans
    from affect_xp.clustering.linkage import Dendrogram, Linkage, linkage
    from affect_xp.clustering.metrics import adjusted_rand_index, rand_index, tracking_error
    from affect_xp.clustering.n_clusters import calinski_harabasz, modularity, silhouette
    from affect_xp.clustering.profiles import (
        ClusterDensities,
        ClusterProfiles,
        cluster_densities,
        cluster_profiles,
    )
    from affect_xp.clustering.spectral import Spectral, SpectralResult, spectral
    from affect_xp.models.affect import Affect
    from affect_xp.models.over_steps import OverSteps
    from affect_xp.models.pcm import PCM
    from affect_xp.models.pcq import PCQ
    from affect_xp.models.rg import RG
    from affect_xp.models.smooth import Smoothed, smooth
    from affect_xp.models.static import Static
    from affect_xp.models.tuning import cross_validate_alpha, tune_alpha
    from affect_xp.persistence import load
    from affect_xp.proximity import Chunked, Dense, Factored, Proximity, Sparse, as_proximity
    from affect_xp.proximity.dissimilarity import to_dissimilarity, to_similarity
    from affect_xp.report import write_report
    from affect_xp.tracking.change_points import change_points
    from affect_xp.tracking.events import Event, EventRules, match_labels

__version__ = "0.1.0"

# The public names of each module, which is imported when one of them is first used (PEP 562, SPEC 1).
_NAMES = {
    "affect.forgetting": ("forgetting_factor", "gaussian_mixture_proximity", "oracle_forgetting_factor"),
    "affect.moments": ("BlockMoments", "block_moments"),
    "clustering.external": ("as_external",),
    "clustering.kmeans": ("KMeans", "KMeansResult", "kmeans"),
    "clustering.linkage": ("Dendrogram", "Linkage", "linkage"),
    "clustering.metrics": ("adjusted_rand_index", "rand_index", "tracking_error"),
    "clustering.n_clusters": ("calinski_harabasz", "modularity", "silhouette"),
    "clustering.profiles": ("ClusterDensities", "ClusterProfiles", "cluster_densities", "cluster_profiles"),
    "clustering.spectral": ("Spectral", "SpectralResult", "spectral"),
    "models.affect": ("Affect",),
    "models.over_steps": ("OverSteps",),
    "models.pcm": ("PCM",),
    "models.pcq": ("PCQ",),
    "models.rg": ("RG",),
    "models.smooth": ("Smoothed", "smooth"),
    "models.static": ("Static",),
    "models.tuning": ("cross_validate_alpha", "tune_alpha"),
    "persistence": ("load",),
    "proximity": ("Chunked", "Dense", "Factored", "Proximity", "Sparse", "as_proximity"),
    "proximity.dissimilarity": ("to_dissimilarity", "to_similarity"),
    "report": ("write_report",),
    "tracking.change_points": ("change_points",),
    "tracking.events": ("Event", "EventRules", "match_labels"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_MODULES = ("datasets", "exceptions", "io", "plots")


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PCM",
    "PCQ",
    "RG",
    "Affect",
    "BlockMoments",
    "Chunked",
    "ClusterDensities",
    "ClusterProfiles",
    "Dendrogram",
    "Dense",
    "Event",
    "EventRules",
    "Factored",
    "KMeans",
    "KMeansResult",
    "Linkage",
    "OverSteps",
    "Proximity",
    "Smoothed",
    "Sparse",
    "Spectral",
    "SpectralResult",
    "Static",
    "adjusted_rand_index",
    "as_external",
    "as_proximity",
    "block_moments",
    "calinski_harabasz",
    "change_points",
    "cluster_densities",
    "cluster_profiles",
    "cross_validate_alpha",
    "datasets",
    "exceptions",
    "forgetting_factor",
    "gaussian_mixture_proximity",
    "io",
    "kmeans",
    "linkage",
    "load",
    "match_labels",
    "modularity",
    "oracle_forgetting_factor",
    "plots",
    "rand_index",
    "silhouette",
    "smooth",
    "spectral",
    "to_dissimilarity",
    "to_similarity",
    "tracking_error",
    "tune_alpha",
    "write_report",
]
