"""Which column of a table is what: the time, the ids, the two ends of edges, and values."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from affect_xp.exceptions import InputError
from affect_xp.io.engine import IS_MISSING, Engine
from affect_xp.io.options import ReadOptions
from affect_xp.io.sources import Source

# Single letters count in lower case only: upper case ones are stocks.
CLEAR_TIMES = ("time", "date", "datetime", "timestamp")
USUAL = {
    "time": (*CLEAR_TIMES, "t", "ts", "step", "period", "week", "day", "month", "quarter", "year"),
    "id": ("id", "name", "object", "node", "ticker", "symbol", "user", "entity", "item"),
    "source": ("source", "src", "from", "sender", "u", "i"),
    "target": ("target", "dst", "to", "receiver", "v", "j"),
    "weight": ("weight", "w", "value", "count"),
}
ID_LIKE = re.compile("(?i:[_ .-]id)$|[a-z]I[dD]$")  # user_id, userId
SAMPLE = 1000  # rows that show which columns contain texts
IS_NUMBER = "try_cast(replace({t}::VARCHAR, ',', '.') AS DOUBLE) IS NOT NULL"


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the columns of a table are."""

    kind: str  # "features", "edges" or "series"
    time: str
    objects: tuple[str, ...]  # the column of ids; for edges of both ends; for a wide series none
    # The columns of features; of weights of edges, if any; of a series one per object, or one for all.
    values: tuple[str, ...]
    unused: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        return (self.time, *self.objects, *self.values)

    def __str__(self) -> str:
        ends = ("source", "target") if self.kind == "edges" else ("id",)
        parts = [f"time {self.time!r}", *(f"{a} {b!r}" for a, b in zip(ends, self.objects, strict=False))]
        parts += [f"values {listed(self.values)}"] if self.values else []
        unused = f"; not used: {listed(self.unused)}" if self.unused else ""
        return f"{self.kind}: {', '.join(parts)}{unused}"


def find_roles(engine: Engine, source: Source, options: ReadOptions) -> Roles:
    """Return what the columns of a table are, by the options and by their names.

    An index column that contains dates is the time, if there is no other. If no usual name tells the ids,
    they are in the only column of texts or with a name such as user_id, of a table with several rows for a
    time.
    """
    title, columns, kind = source.title, list(source.columns), _kind_by_names(source, options)
    time = _find(source, "time", options.time, _dated_index(engine, source))
    may_have_ids = kind in (None, "features") or options.value is not None
    is_named = bool(options.id or named_as("id", columns))
    by_rows = _id_by_rows(engine, source, time) if may_have_ids and not is_named else None
    kind = kind or ("features" if by_rows else _series(source, options))
    if kind == "edges":
        objects = [_find(source, "source", options.source), _find(source, "target", options.target)]
        weight = _find(source, "weight", options.weight or options.value, "")
        values = [weight] if weight else []
    else:
        has_ids = kind == "features" or options.value is not None
        objects = [_find(source, "id", options.id, by_rows)] if has_ids else []
        values = _values(engine, source, options, [time, *objects])
    used = [time, *objects, *values]
    if len(set(used)) < len(used):
        raise InputError(f"a column of {title} has two roles: {listed(used)}; use each once")
    unused = tuple(name for name in columns if name not in set(used))
    return Roles(kind, time, tuple(objects), tuple(values), unused)


def _find(source: Source, role: str, given: str | None, default: str | None = None) -> str:
    """Return the column of a role: the one passed, or the only one with a usual name."""
    columns = list(source.columns)
    found = named_as(role, columns) if given is None else [name for name in columns if name == given]
    if role == "time" and len(found) > 1:
        found = [name for name in found if name.lower() in CLEAR_TIMES] or found
    if len(found) == 1 or (not found and given is None and default is not None):
        return found[0] if found else str(default)
    problem = f"{listed(found)} could each be the {role}" if found else f"it has {listed(columns)}"
    what = f"{role}={given!r} is not a column" if given is not None else f"cannot find the {role} column"
    raise InputError(f"{what} of {source.title}: {problem}; pass {role}= with one of them, or names=[...]")


def _values(engine: Engine, source: Source, options: ReadOptions, others: Sequence[str]) -> list[str]:
    """Return the columns of values: those passed, or all besides the others."""
    given = options.features if options.value is None else [options.value]
    if given is None:
        taken = {*others, *source.index, *filter(is_index, source.columns)}
        values = [name for name in source.columns if name not in taken]
        _check_unnamed(engine, source, others[0])
    else:
        values = [_find(source, "features", name) for name in ([given] if isinstance(given, str) else given)]
    if not values:
        raise InputError(f"{source.title} has no columns of values besides {listed(others)}; add some")
    return values


def _kind_by_names(source: Source, options: ReadOptions) -> str | None:
    """Return what the rows of a table are: the option, or by the names of its columns; None if unknown."""
    if options.kind != "auto":
        return str(options.kind)
    ids, first, second = (named_as(role, source.columns) for role in ("id", "source", "target"))
    if options.source or options.target:
        return "edges"
    if first and second and options.id is None:
        if ids and all(len(name) == 1 for name in first + second):
            what = f"columns {listed(first + second)} of {source.title} could be the ends of edges"
            raise InputError(f"{what}, or features of {ids[0]!r}; pass kind='edges' or kind='features'")
        return "edges"
    if options.value is not None:
        return "series"
    return "features" if options.id or ids else None


def _series(source: Source, options: ReadOptions) -> str:
    """Return "series", unless the name of a column looks like that of ids."""
    for name in (name for name in source.columns if options.features is None and ID_LIKE.search(name)):
        what = f"column {name!r} of {source.title} could be the id, or a series"
        raise InputError(f"{what}; pass id={name!r}, or kind='series'")
    return "series"


def _id_by_rows(engine: Engine, source: Source, time: str) -> str | None:
    """Return the only column of texts or with a name such as user_id, if several rows have a time."""
    others = [name for name in source.columns if name not in (time, *source.index) and not is_index(name)]
    rows, sample = f"FROM {source.rows}", f"FROM (SELECT * FROM {source.rows} LIMIT {SAMPLE})"
    texts = _texts(engine, source, others, sample)
    ids = [name for name in others if name in texts or ID_LIKE.search(name)]
    repeats = f"SELECT count(*) > count(DISTINCT {source.columns[time][0]})"
    if not ids or not any(engine.run(f"{repeats} {some}", source.title)[0][0] for some in (sample, rows)):
        return None
    if len(ids) > 1:
        what = f"columns {listed(ids)} of {source.title} could each be the id"
        raise InputError(f"{what}; pass id= with one of them, or source= and target= for edges")
    return ids[0]


def _texts(engine: Engine, source: Source, names: Sequence[str], sample: str) -> list[str]:
    """Return the columns that contain texts and no number in a sample."""
    columns = {name: source.columns[name][0] for name in names if _is_text(source.columns[name][1])}
    counted = f"count(*) FILTER (NOT {IS_MISSING}), count(*) FILTER (NOT {IS_MISSING} AND {IS_NUMBER})"
    counts = [counted.replace("{t}", sql) for sql in columns.values()]
    found = engine.run(f"SELECT {', '.join(counts)} {sample}", source.title)[0] if counts else ()
    return [name for i, name in enumerate(columns) if found[2 * i] > 0 and found[2 * i + 1] == 0]


def _is_text(of: str) -> bool:
    """Return whether a column of this type of DuckDB may contain texts."""
    return of.startswith(("VARCHAR", "ENUM"))


def named_as(role: str, columns: Iterable[str]) -> list[str]:
    """Return the columns with a usual name of a role."""
    return [name for name in columns if (name if len(name) == 1 else name.lower()) in USUAL.get(role, ())]


def is_edge_list(columns: Iterable[str]) -> bool:
    """Return whether a table contains edges, by the names of its columns."""
    return bool(named_as("source", columns) and named_as("target", columns))


def has_times(columns: Sequence[str], *, alone: bool) -> bool:
    """Return whether a table contains several times, by the names of its columns.

    With `alone`, a clear name of a time suffices; other names of times need ids or edges besides.
    """
    times = named_as("time", columns)
    clear = alone and any(name.lower() in CLEAR_TIMES for name in times)
    return clear or bool(times and (named_as("id", columns) or is_edge_list(columns)))


def is_index(name: str) -> bool:
    """Return whether a column is the index of a DataFrame that was saved with it."""
    return name == "" or name.startswith(("Unnamed: ", "__index_level_"))


def listed(names: Sequence[str]) -> str:
    """Return a few names."""
    few = ", ".join(repr(name) for name in names[:8])
    return few if len(names) <= 8 else f"{few}, ... ({len(names)} in all)"


def _check_unnamed(engine: Engine, source: Source, time: str) -> None:
    """Raise if a last column without a name contains values: unlike a first one, it is not an index."""
    for name in itertools.takewhile(is_index, reversed(source.columns)):
        column = source.columns[name][0]
        sql = f"SELECT 1 FROM {source.rows} WHERE trim({column}::VARCHAR) <> '' LIMIT 1"
        if name != time and source.file and list(engine.run(sql)):
            where = f"column {list(source.columns).index(name) + 1} of {source.title}"
            raise InputError(f"{where} contains values but has no name; name it, or pass features=[...]")


def _dated_index(engine: Engine, source: Source) -> str | None:
    """Return the index column of a saved DataFrame, if it contains dates."""
    for name in filter(is_index, source.columns):
        sql = f"SELECT trim({source.columns[name][0]}::VARCHAR) FROM {source.rows} LIMIT 1"
        if re.match(r"\d+[-/.]\d+[-/.]\d|\d+[- ][A-Z]", "".join(text or "" for (text,) in engine.run(sql))):
            return name
    return None
