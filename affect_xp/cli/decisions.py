"""What `affect-xp run` takes for granted, by what a file holds, and what it tells of that.

Nobody looks at the data before it is clustered here: features are standardised, skewed counts are rescaled,
and people who miss a day keep their past, unless options say otherwise.
"""

import argparse
from typing import Any

from affect_xp.clustering.kmeans import KMeans
from affect_xp.clustering.linkage import Linkage
from affect_xp.clustering.spectral import Spectral
from affect_xp.exceptions import InputError
from affect_xp.io import Steps
from affect_xp.models.affect import Affect
from affect_xp.plots.times import time_format

METHODS: dict[str, Any] = {"kmeans": KMeans, "spectral": Spectral, "linkage": Linkage}


def methods_by_rule() -> dict[str, list[str]]:
    """Return the methods that have each rule for the number of clusters."""
    found: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        for rule in method.rules:
            found.setdefault(rule, []).append(name)
    return found


def check_rule(rule: object, method: str) -> None:
    """Raise if -k names a rule that a method does not have; say which one does."""
    if not isinstance(rule, str) or rule in METHODS[method].rules:
        return
    known = methods_by_rule()
    if rule in known:
        raise InputError(
            f"-k {rule} is for --method {' or '.join(known[rule])}, not {method}; give that, or a number, or "
            f"what {method} has: {', '.join(METHODS[method].rules)}"
        )
    rules = ", ".join(f"{name} ({', '.join(methods)})" for name, methods in known.items())
    raise InputError(f"-k {rule} is neither a number, nor one for each step as in 3,3,4, nor a rule: {rules}")


def scale_of(parsed: argparse.Namespace, steps: Steps, method: str, proximity: str) -> str:
    """Return how features are scaled: the option, or "standard" where distances between them count.

    Standardised features have negative dot products, which a cut does not take, and other angles: there it is
    left to "auto", which warns where an offset dominates. The values of a series in a window are no columns
    that last: the third day of one week is not that of the next.
    """
    holds = "series" if steps.of_series else steps.kind
    if holds != "features":
        if parsed.scale not in (None, "auto", "none"):
            instead = "use --standardize" if steps.of_series else "leave it out"
            raise InputError(
                f"--scale {parsed.scale} is for features, but {parsed.input} holds {holds}; {instead}"
            )
        return "none" if steps.of_series or parsed.scale == "none" else "auto"
    by_distance = proximity in ("rbf", "euclidean") or (method, proximity) == ("kmeans", "dot")
    usual: str = parsed.scale or ("standard" if by_distance else "auto")
    return usual


def absent_of(parsed: argparse.Namespace, steps: Steps) -> str:
    """Return what becomes of objects that are away: in a graph, who meets nobody on a day is still known."""
    usual: str = parsed.absent or ("keep" if steps.kind == "edges" else "forget")
    return usual


def decisions_of(model: Affect) -> dict[str, Any]:
    """Return what a model has decided at its first step; nothing before that."""
    if model.n_steps_ == 0:
        return {}
    first = model.history_[0].time
    location, scale = model.location_, model.scale_
    applied = "none" if location is None and scale is None else "center" if scale is None else "standard"
    columns = next((len(values) for values in (location, scale) if values is not None), 0)
    return {
        "at": time_format([first])(first),
        "scale": applied if model.scale == "auto" else model.scale,
        "scaled_columns": columns,
        "gamma": model.gamma_,
        "rescale": model.rescale_ or "none",
        "absent": model.absent,
    }


def told(decided: dict[str, Any], model: Affect) -> list[str]:
    """Return what to tell of decisions, but for what options have asked for."""
    found = []
    if decided["scaled_columns"]:
        found.append(
            f"scale {decided['scale']}: {decided['scaled_columns']} columns of features, by those of step "
            f"{decided['at']}, the same for all steps (--scale none keeps them as they are)"
        )
    if (
        model.proximity == "precomputed"
        and model.rescale == "auto"
        and not isinstance(model.clusterer, Linkage)
    ):
        reason = {"log1p": "skewed", "none": "not skewed"}[decided["rescale"]]
        instead = " (--rescale none keeps them as they are)" if decided["rescale"] == "log1p" else ""
        found.append(f"rescale {decided['rescale']}: weights are {reason} at step {decided['at']}{instead}")
    return found
