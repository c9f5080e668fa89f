"""The options of `read_steps`, which the command line shares."""

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a table, a file or a sequence of steps: the keyword arguments of `read_steps`.

    Parameters
    ----------
    kind
        What the input contains; by default decided by the names of the columns.
    freq
        Length of a step: 7D, 12h, W-FRI, 1mo, QE, '15 rows', or a number; by default each time is a step.
    time
        Column of times.
    id
        Column of ids.
    source
        Column of the first object of each edge.
    target
        Column of the second object of each edge.
    weight
        Column of edge weights; without one, each row counts 1.
    value
        Column of values of a tidy table of series, with one row per time and id.
    features
        Columns of features, or objects of a series; by default all other columns.
    names
        Names of the columns of a text file that does not start with them.
    time_format
        Format of the times, such as %d/%m/%Y; or s, ms, us, ns for numbers since 1970.
    origin
        Where windows start: a date, or a number.
    encoding
        Encoding of a text file; by default UTF-8.
    decimal
        Decimal separator of a text file.
    missing
        Rows with missing values: an error, or left out.
    aggregate
        Several rows of one object in a step: an error, or combined.
    directed
        How to combine edges that go both ways; by default they are an error.
    changes
        Series: use the changes from row to row instead of the values.
    standardize
        Series: scale each window of an object to mean 0 and length 1.
    sparse
        Return edges as sparse matrices.
    dtype
        Data type of the values.
    memory_limit
        Memory that reading may use, such as 2GB; the rest goes to a temporary folder.

    Examples
    --------
    >>> ReadOptions(freq="7D").missing
    'error'
    """

    kind: Literal["auto", "features", "edges", "series", "proximities"] = "auto"
    freq: Any = None
    time: str | None = None
    id: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    value: str | None = None
    features: Sequence[str] | None = None
    names: Sequence[str] | None = None
    time_format: str | None = None
    origin: Any = None
    encoding: str | None = None
    decimal: Literal[".", ","] = "."
    missing: Literal["error", "drop"] = "error"
    aggregate: Literal["error", "mean", "sum", "last"] = "error"
    directed: Literal["sum", "mean", "max"] | None = None
    changes: Literal["absolute", "relative", "log"] | None = None
    standardize: bool = False
    sparse: bool = True
    dtype: Literal["float64", "float32"] = "float64"
    memory_limit: str | int | None = None

    def __post_init__(self) -> None:
        from affect_xp.checks import check_choice  # imports NumPy, which the help of the command does without

        for name, hint in typing.get_type_hints(type(self)).items():
            parts, value = (hint, *typing.get_args(hint)), getattr(self, name)
            for part in parts if value is not None or type(None) not in parts else ():
                if typing.get_origin(part) is Literal:
                    check_choice(name, value, typing.get_args(part))
