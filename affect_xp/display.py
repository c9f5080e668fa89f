"""Numbers and times as text, and HTML for notebooks: tables that inherit the colours of the page."""

import datetime
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

# Only semi-transparent greys and the text colour: readable in dark and light themes.
STYLE = """<style>
.affect-xp { display: inline-block; max-width: 100%; overflow-x: auto; font-size: 0.9em; line-height: 1.4;
  border: 1px solid rgba(128, 128, 128, 0.4); border-radius: 6px; padding: 0.5em 0.8em; }
.affect-xp .title { font-weight: 600; font-family: monospace; }
.affect-xp .about { opacity: 0.75; margin-left: 0.6em; }
.affect-xp table { border-collapse: collapse; min-width: 100%; margin: 0.4em 0 0; background: none;
  font-size: inherit; color: inherit; }
.affect-xp tr { background: none; border-top: 1px solid rgba(128, 128, 128, 0.25); }
.affect-xp th, .affect-xp td { padding: 0.15em 0.8em 0.15em 0; text-align: left; color: inherit;
  background: none; border: none; vertical-align: baseline; max-width: 48em; overflow-wrap: anywhere; }
.affect-xp th { font-weight: 500; opacity: 0.75; }
.affect-xp td { font-variant-numeric: tabular-nums; }
.affect-xp .number { text-align: right; }
.affect-xp .value { font-family: monospace; }
.affect-xp .usual { opacity: 0.7; }
</style>"""

LONGEST = 200  # characters per value


def text(value: object) -> str:
    """Return a value as escaped and truncated HTML text."""
    import html  # slow to import

    plain = value if isinstance(value, str) else repr(value)
    return html.escape(plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…")


def cell(value: object, kind: str = "") -> str:
    """Return a table cell; `kind` lists its CSS classes."""
    return f'<td class="{kind}">{text(value)}</td>' if kind else f"<td>{text(value)}</td>"


def row(name: str, value: object, kind: str = "value") -> str:
    """Return a row with a name and a value."""
    return f'<tr><th scope="row">{text(name)}</th>{cell(value, kind)}</tr>'


def table(rows: Sequence[str], columns: Sequence[tuple[str, str]] = ()) -> str:
    """Return a table of rows; `columns` gives the name and CSS class of each column."""
    names = "".join(f'<th scope="col" class="{kind}">{text(name)}</th>' for name, kind in columns)
    head = f"<thead><tr>{names}</tr></thead>" if columns else ""
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"


def parameters(values: Mapping[str, object], defaults: Mapping[str, object]) -> str:
    """Return a table of parameters that highlights non-default values."""
    usual = {name: repr(value) == repr(defaults[name]) for name, value in values.items()}
    return table(
        [row(name, repr(value), "value usual" if usual[name] else "value") for name, value in values.items()]
    )


def box(title: str, about: str, *parts: str) -> str:
    """Return a box with a title and a short description."""
    description = f'<span class="about">{text(about)}</span>' if about else ""
    return (
        f'{STYLE}<div class="affect-xp"><div><span class="title">{text(title)}</span>{description}</div>'
        f"{''.join(parts)}</div>"
    )


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, such as "1 step" or "2 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_bytes(number: int) -> str:
    """Return a number of bytes in a readable unit."""
    size, units = float(number), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}" if size < 1000 else f"{size:,.0f} {units[0]}"


def time_format(times: Iterable[Hashable]) -> Callable[[Hashable], str]:
    """Return one format for all times: dates if all are midnights, else with as many digits as they need.

    Examples
    --------
    >>> midnight, noon = datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, 12)
    >>> time_format([midnight])(midnight), time_format([midnight, noon])(midnight)
    ('2024-01-01', '2024-01-01 00:00')
    """
    moments = [time for time in map(_as_datetime, times) if isinstance(time, datetime.datetime)]
    by_day = all(moment.time() == datetime.time.min for moment in moments)
    by_minute = all(moment.second == moment.microsecond == 0 for moment in moments)

    def shown(time: Hashable) -> str:
        time = _as_datetime(time)
        if isinstance(time, datetime.datetime):
            day = time.date().isoformat()
            return day if by_day else time.isoformat(" ", "minutes" if by_minute else "auto")
        return str(time)

    return shown


def _as_datetime(time: Any) -> Any:
    """Return a datetime64 of NumPy as a datetime, and anything else as it is."""
    is_numpy = getattr(getattr(time, "dtype", None), "kind", "") == "M"
    return time.astype("datetime64[us]").item() if is_numpy else time
