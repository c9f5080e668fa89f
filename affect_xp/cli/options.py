"""The options of `affect-xp run` as dataclasses; importing them imports neither NumPy nor SciPy.

Cyclopts makes the command line of them: types give the choices, docstrings the help.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveInt

from affect_xp.io.options import ReadOptions

RULES = {  # for the number of clusters, with the methods that have them
    "silhouette": ("kmeans", "spectral", "linkage"),
    "modularity": ("kmeans", "spectral"),
    "calinski_harabasz": ("kmeans", "linkage"),
    "auto": ("spectral",),
    "likelihood": ("spectral",),
    "bethe-hessian": ("spectral",),
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
    if all(part.isdecimal() and int(part) for part in parts):
        return int(text) if len(parts) == 1 else [int(part) for part in parts]
    if text in RULES:
        return text
    rules = ", ".join(f"{rule} ({', '.join(methods)})" for rule, methods in RULES.items())
    raise ValueError(
        f"-k {text} is neither a number from 1, nor one for each step as in 3,3,4, nor a rule: {rules}"
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


def _freq(_: Any, tokens: Sequence[Token]) -> str:
    """Check the length of a step."""
    from affect_xp.io.times import parse_freq

    parse_freq(tokens[0].value)
    return tokens[0].value


def _check_alpha(_: Any, alpha: float | str) -> None:
    if isinstance(alpha, float) and not 0 <= alpha <= 1:
        raise ValueError("Must be estimate, or from 0 to 1")


Listed = Annotated[list[str] | None, Parameter(converter=_listed)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(ReadOptions):
    """The options of `read_steps`, as words of a command."""

    freq: Annotated[Any, Parameter(converter=_freq, n_tokens=1)] = None
    """Length of a step: 7D, 12h, W-FRI, 1mo, QE, '15 rows', or a number; by default each time is a step."""
    features: Listed = None
    """Columns of features, or objects of a series: x,y,z; by default all other columns."""
    names: Listed = None
    """Names of the columns of a text file that does not start with them: time,id,x,y."""
    sparse: Annotated[bool, Parameter(negative="--dense")] = True
    """Edges as sparse matrices; --dense makes full ones."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How to cluster, as in `affect_xp.Affect`.

    Parameters
    ----------
    k
        The number of clusters; one for each step (3,3,4); or a rule: silhouette, modularity (kmeans,
        spectral), calinski_harabasz (kmeans, linkage), gap (linkage), and of spectral auto, likelihood,
        bethe-hessian and eigengap.
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
    forgetting
        One weight of the past for all (global), or less for objects that have probably moved (objects).
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
    linkage: Literal["single", "complete", "average", "ward"] | None = None
    n_init: PositiveInt | None = None
    alpha: Annotated[float | Literal["estimate"], Parameter(validator=_check_alpha)] = "estimate"
    forgetting: Literal["global", "objects"] = "global"
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
