"""The options of `read_steps`, which the command line shares."""

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a table, a file or a sequence of steps: the keyword arguments of `read_steps`.

    Examples
    --------
    >>> ReadOptions(freq="7D").missing
    'error'
    """

    kind: Literal["auto", "features", "edges", "series", "proximities"] = "auto"
    """What the input contains; by default decided by the names of the columns."""
    freq: Any = None
    """Length of a step: 7D, 12h, W-FRI, 1mo, QE, '15 rows', or a number; by default each time is a step."""
    time: str | None = None
    """Column of times."""
    id: str | None = None
    """Column of ids."""
    source: str | None = None
    """Column of the first object of each edge."""
    target: str | None = None
    """Column of the second object of each edge."""
    weight: str | None = None
    """Column of edge weights; without one, each row counts 1."""
    value: str | None = None
    """Column of values of a tidy table of series, with one row per time and id."""
    features: Sequence[str] | None = None
    """Columns of features, or objects of a series; by default all other columns."""
    names: Sequence[str] | None = None
    """Names of the columns of a text file that does not start with them."""
    time_format: str | None = None
    """Format of the times, such as %d/%m/%Y; or s, ms, us, ns for numbers since 1970."""
    origin: Any = None
    """Where windows start: a date, or a number."""
    encoding: str | None = None
    """Encoding of a text file; by default UTF-8."""
    decimal: Literal[".", ","] = "."
    """Decimal separator of a text file."""
    missing: Literal["error", "drop"] = "error"
    """Rows with missing values: an error, or left out."""
    aggregate: Literal["error", "mean", "sum", "last"] = "error"
    """Several rows of one object in a step: an error, or combined."""
    directed: Literal["sum", "mean", "max"] | None = None
    """How to combine edges that go both ways; by default they are an error."""
    changes: Literal["absolute", "relative", "log"] | None = None
    """Series: use the changes from row to row instead of the values."""
    standardize: bool = False
    """Series: scale each window of an object to mean 0 and length 1."""
    sparse: bool = True
    """Return edges as sparse matrices."""
    dtype: Literal["float64", "float32"] = "float64"
    """Data type of the values."""
    memory_limit: str | int | None = None
    """Memory that reading may use, such as 2GB; the rest goes to a temporary folder."""

    def __post_init__(self) -> None:
        from affect_xp.checks import check_choice  # imports NumPy, which the help of the command does without

        for name, hint in typing.get_type_hints(type(self)).items():
            parts = (hint, *typing.get_args(hint))
            choices = [typing.get_args(part) for part in parts if typing.get_origin(part) is Literal]
            value = getattr(self, name)
            if choices and not (value is None and type(None) in parts):
                check_choice(name, value, choices[0])
