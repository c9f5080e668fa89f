"""Adaptive evolutionary clustering (AFFECT) on NumPy, CuPy and other array libraries.

Clusters objects that are observed again and again, following real change and ignoring noise. Start
with `Affect` and `KMeans`.
"""

import importlib
import typing

from affect_xp import exceptions, io
from affect_xp._version import __version__ as __version__
from affect_xp.changes import change_points
from affect_xp.clusterers import KMeans, Linkage, Spectral
from affect_xp.dissimilarity import to_dissimilarity, to_similarity
from affect_xp.estimators import Affect, Static
from affect_xp.events import Event, EventRules
from affect_xp.external import as_external
from affect_xp.forgetting import forgetting_factor, gaussian_mixture_proximity, oracle_forgetting_factor
from affect_xp.kmeans import KMeansResult, kmeans
from affect_xp.linkage import Dendrogram, linkage
from affect_xp.matching import match_labels
from affect_xp.metrics import adjusted_rand_index, rand_index, tracking_error
from affect_xp.moments import BlockMoments, block_moments
from affect_xp.over_steps import OverSteps
from affect_xp.proximity import Chunked, Dense, Factored, Proximity, Sparse, as_proximity
from affect_xp.selection import calinski_harabasz, modularity, silhouette
from affect_xp.spectral import SpectralResult, spectral

if typing.TYPE_CHECKING:
    from affect_xp import datasets, plots
    from affect_xp.baselines import PCM, PCQ, RG, cross_validate_alpha, tune_alpha
    from affect_xp.persistence import load
    from affect_xp.report import write_report
    from affect_xp.smoothing import Smoothed, smooth

# Where to find what is imported when it is first used: not every program waits for it.
_LATER = {
    **dict.fromkeys(("PCM", "PCQ", "RG", "cross_validate_alpha", "tune_alpha"), "baselines"),
    "datasets": "datasets",
    "Smoothed": "smoothing",
    "load": "persistence",
    "plots": "plots",
    "smooth": "smoothing",
    "write_report": "report",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_LATER[name]}")
    return globals().setdefault(name, module if name == _LATER[name] else getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "PCM",
    "PCQ",
    "RG",
    "Affect",
    "BlockMoments",
    "Chunked",
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
