"""The defaults of `affect-xp run`, which depend on the contents of the file, and how they are reported.

Features are standardised, skewed counts are rescaled, and objects that are absent from a step of a graph keep
their past, unless options say otherwise.
"""

from typing import Any

from affect_xp.cli.options import RULES
from affect_xp.clustering.linkage import Linkage
from affect_xp.display import time_format
from affect_xp.exceptions import InputError
from affect_xp.io import Steps
from affect_xp.models.affect import Affect


def check_rule(rule: object, method: str) -> None:
    """Raise if -k names a rule that a method does not have; name the methods that have it."""
    if not isinstance(rule, str) or method in RULES[rule]:
        return
    own = ", ".join(name for name, methods in RULES.items() if method in methods)
    raise InputError(
        f"-k {rule} is for --method {' or '.join(RULES[rule])}, not {method}; give that, or a number, or "
        f"what {method} has: {own}"
    )


def scale_of(input: str, scale: str | None, steps: Steps, method: str, proximity: str) -> str:
    """Return how features are scaled: the option, or "standard" where distances between them count.

    Standardised features have negative dot products, which a cut does not allow, and other angles: for these
    the default is "auto", which warns if an offset dominates. Series are not scaled by column, because the
    columns of a window are days, which differ between windows.
    """
    contents = "series" if steps.of_series else steps.kind
    if contents != "features":
        if scale not in (None, "auto", "none"):
            instead = "use --standardize" if steps.of_series else "leave it out"
            raise InputError(f"--scale {scale} is for features, but {input} contains {contents}; {instead}")
        return "none" if steps.of_series or scale == "none" else "auto"
    by_distance = proximity in ("rbf", "euclidean") or (method, proximity) == ("kmeans", "dot")
    return scale or ("standard" if by_distance else "auto")


def decisions_of(model: Affect) -> dict[str, Any]:
    """Return the decisions of a model at its first step; none before that."""
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


def descriptions(decided: dict[str, Any], model: Affect) -> list[str]:
    """Return the decisions that no option requested, in words."""
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
