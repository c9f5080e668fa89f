"""What the columns of a table are: the time, the objects, links between them, and values."""

import dataclasses
from collections.abc import Sequence

from affect_xp.checks import check_choice
from affect_xp.exceptions import InputError
from affect_xp.io.tables import Table

KINDS = ("features", "edges", "series")

# Looked for in this order. Single letters count in lower case only: upper case ones are stocks.
TIMES = (
    "time",
    "date",
    "datetime",
    "timestamp",
    "t",
    "step",
    "period",
    "week",
    "day",
    "month",
    "quarter",
    "year",
)
IDS = ("id", "name", "object", "node", "ticker", "symbol", "user", "entity", "item")
SOURCES = ("source", "src", "from", "u", "i")
TARGETS = ("target", "dst", "to", "v", "j")
WEIGHTS = ("weight", "w", "value", "count")


@dataclasses.dataclass(frozen=True)
class Names:
    """The names of columns as the caller gave them; None for those to look for."""

    time: str | None = None
    id: str | None = None
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    features: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True)
class Columns:
    """What the columns of a table are.

    Attributes
    ----------
    kind : "features", "edges" or "series"
    time : str
    objects : tuple of str
        The column of ids; for edges the two of the objects linked; for a series none.
    values : tuple of str
        The columns of features; for edges that of weights, if any; for a series one for each object.
    """

    kind: str
    time: str
    objects: tuple[str, ...]
    values: tuple[str, ...]


def find_columns(table: Table, kind: str, names: Names) -> Columns:
    """Return what the columns of a table are, by what the caller said and by their names."""
    check_choice("kind of a table", kind, ("auto", *KINDS))
    time = _named(table, "time", names.time) or _found(table, TIMES)
    if time is None:
        raise _lacking(table, "time", "times")
    kind = _kind(table, names) if kind == "auto" else kind
    if kind == "edges":
        return _edges(table, time, names)
    objects: tuple[str, ...] = ()
    if kind == "features":
        id = _named(table, "id", names.id) or _found(table, IDS)
        if id is None:
            raise _lacking(table, "id", "ids of objects")
        objects = (id,)
    return Columns(kind, time, objects, _values(table, names.features, (time, *objects)))


def _kind(table: Table, names: Names) -> str:
    linked = _found(table, SOURCES) is not None and _found(table, TARGETS) is not None
    if names.source is not None or names.target is not None or (linked and names.id is None):
        return "edges"
    return "series" if names.id is None and _found(table, IDS) is None else "features"


def _edges(table: Table, time: str, names: Names) -> Columns:
    source = _named(table, "source", names.source) or _found(table, SOURCES)
    target = _named(table, "target", names.target) or _found(table, TARGETS)
    if source is None or target is None:
        raise _lacking(table, "source" if source is None else "target", "objects that are linked")
    weight = _named(table, "weight", names.weight) or _found(table, WEIGHTS)
    return Columns("edges", time, (source, target), () if weight is None else (weight,))


def _values(table: Table, features: Sequence[str] | None, others: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(features, str):
        features = [features]
    if features is not None:
        return tuple(_named(table, "features", name) or "" for name in features)
    values = tuple(name for name in table.columns if name not in others)
    if not values:
        raise InputError(f"{table.title} has no columns of values beside {', '.join(others)}; give it some")
    return values


def _named(table: Table, role: str, name: str | None) -> str | None:
    if name is not None and name not in table.columns:
        raise InputError(f"{role}={name!r} is not a column of {table.title}; it has {_listed(table)}")
    return name


def _found(table: Table, known: Sequence[str]) -> str | None:
    """Return the column with the first of the known names, whatever its case."""
    by_name = {name if len(name) == 1 else name.lower(): name for name in reversed(table.columns)}
    return next((by_name[name] for name in known if name in by_name), None)


def _lacking(table: Table, role: str, what: str) -> InputError:
    return InputError(
        f"cannot tell which column of {table.title} holds the {what}; say so with {role}=, "
        f"one of {_listed(table)}"
    )


def _listed(table: Table) -> str:
    few = ", ".join(repr(name) for name in table.columns[:8])
    return few if len(table.columns) <= 8 else f"{few}, ... ({len(table.columns)} in all)"
