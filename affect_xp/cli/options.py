"""The options of `affect-xp run` as dataclasses; importing them takes neither NumPy nor SciPy.

Cyclopts makes the command line of them: types give the choices, docstrings the help.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveInt

RULES = {  # for the number of clusters, with the methods that have them
    "silhouette": ("kmeans", "spectral", "linkage"),
    "modularity": ("kmeans", "spectral"),
    "calinski_harabasz": ("kmeans", "linkage"),
    "eigengap": ("spectral",),
    "gap": ("linkage",),
}


def _listed(_: Any, tokens: Sequence[Token]) -> list[str]:
    """Read "a,b,c"."""
    return [name.strip() for token in tokens for name in token.value.split(",")]


def _n_clusters(_: Any, tokens: Sequence[Token]) -> int | list[int] | str:
    """Read "12", "3,3,4" or the name of a rule."""
    text = tokens[0].value
    parts = [part.strip() for part in text.split(",")]
    if all(part.lstrip("-").isdecimal() for part in parts):
        return int(text) if len(parts) == 1 else [int(part) for part in parts]
    if text in RULES:
        return text
    rules = ", ".join(f"{rule} ({', '.join(methods)})" for rule, methods in RULES.items())
    raise ValueError(
        f"-k {text} is neither a number, nor one for each step as in 3,3,4, nor a rule: {rules}"
        f"{suggestion(text, RULES)}"
    )


def suggestion(text: str, choices: Any) -> str:
    """Return a question with the choice that is most similar to a text, or nothing.

    Examples
    --------
    >>> suggestion("modularty", RULES)
    '. Did you mean "modularity"?'
    """
    import difflib

    close = difflib.get_close_matches(text, list(choices), n=1)
    return f'. Did you mean "{close[0]}"?' if close else ""


Names = Annotated[list[str] | None, Parameter(converter=_listed)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read the file, as in `affect_xp.io.read_steps`.

    Parameters
    ----------
    kind
        What a row is.
    freq
        The length of a step: 7D, 12h, 1M, '15 rows', or a number. By default each time is a step.
    time
        The column of times.
    id
        The column of ids.
    source
        The column of sources.
    target
        The column of targets.
    weight
        The column of weights.
    features
        The columns of features: x,y,z.
    names
        The names of the columns if the file has none: time,id,x,y.
    time_format
        The format of dates, such as %d/%m/%Y.
    origin
        Where windows start.
    missing
        What to do with values that are missing.
    aggregate
        What to do with several rows of an object in a step.
    changes
        Series: take the changes from row to row.
    standardize
        Series: dot products become correlations.
    sort
        Read all of the file and sort it by time.
    sparse
        Edges as sparse matrices; --dense makes full ones.
    dtype
        The type of numbers.
    """

    kind: Literal["auto", "features", "edges", "series", "proximities"] = "auto"
    freq: str | None = None
    time: str | None = None
    id: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    features: Names = None
    names: Names = None
    time_format: str | None = None
    origin: str | None = None
    missing: Literal["error", "drop"] = "error"
    aggregate: Literal["error", "mean", "sum", "last"] = "error"
    changes: Literal["absolute", "relative", "log"] | None = None
    standardize: bool = False
    sort: bool = False
    sparse: Annotated[bool, Parameter(negative="--dense")] = True
    dtype: Literal["float64", "float32"] = "float64"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to cluster, as in `affect_xp.Affect`.

    Parameters
    ----------
    k
        The number of clusters; one for each step (3,3,4); or a rule: silhouette, modularity (kmeans,
        spectral), calinski_harabasz (kmeans, linkage), eigengap (spectral), gap (linkage).
    method
        By default kmeans, for graphs spectral.
    max_clusters
        The maximum that a rule may choose.
    proximity
        The proximity of features. By default dot, rbf or euclidean, by method.
    scale
        How to scale the columns of features, by the first step. By default standard; auto with cosines, and
        with dot products that are cut.
    rescale
        How to transform proximities before they are tracked; auto is log1p for skewed counts.
    absent
        What to do with absent objects: forget them, or keep their past until they return. By default keep for
        edges, otherwise forget.
    max_absence
        The number of steps that --absent keep allows.
    objective
        The objective of spectral clustering.
    linkage
        The linkage of hierarchical clustering.
    n_init
        The number of starts of kmeans and spectral at each step.
    alpha
        The forgetting factor: estimate, or a number from 0 to 1.
    n_iter
        The iterations of a step.
    offline
        Hindsight: the estimate of a step uses the steps after it, too.
    seed
        The seed of random numbers.
    """

    k: Annotated[Any, Parameter(name=("-k", "--n-clusters"), converter=_n_clusters, n_tokens=1)]
    method: Literal["kmeans", "spectral", "linkage"] | None = None
    max_clusters: PositiveInt = 10
    proximity: Literal["dot", "rbf", "cosine", "euclidean"] | None = None
    scale: Literal["auto", "none", "center", "standard", "robust"] | None = None
    rescale: Literal["auto", "none", "log1p", "sqrt", "binary", "volume", "degree"] = "auto"
    absent: Literal["forget", "keep"] | None = None
    max_absence: PositiveInt = 10
    objective: Literal["normalized_cut", "ratio_cut", "average_association"] | None = None
    linkage: Literal["single", "complete", "average"] | None = None
    n_init: PositiveInt | None = None
    alpha: float | Literal["estimate"] = "estimate"
    n_iter: PositiveInt = 3
    offline: bool = False
    seed: NonNegativeInt = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where to compute, and what to write.

    Parameters
    ----------
    out
        The folder of the results.
    backend
        The array library.
    device
        A device such as cuda:0. By default the first GPU of the backend, if it has one.
    state
        The checkpoint. By default DIR/model.affect.
    resume
        Continue from the checkpoint, if there is one.
    overwrite
        Replace the results of another run.
    save_every
        Seconds between checkpoints.
    format
        The format of the tables.
    json
        Print the summary as JSON.
    quiet
        No progress.
    """

    out: Path = Path("affect-xp-run")
    backend: Literal["numpy", "cupy", "torch"] = "numpy"
    device: str | None = None
    state: Path | None = None
    resume: bool = False
    overwrite: bool = False
    save_every: NonNegativeFloat = 60
    format: Literal["csv", "parquet"] = "csv"
    json: bool = False
    quiet: bool = False
