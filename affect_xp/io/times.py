"""Times as SQL: formats of dates, and the window that contains a time."""

import dataclasses
import datetime
import math
import numbers
import re
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.io.engine import literal

# The units of pandas, of polars and in words: their length in microseconds, months or rows.
DAY = 86_400_000_000
UNITS: dict[str, tuple[float, str]] = {
    name: (size, unit)
    for names, size, unit in (
        *(("ns N", 1e-3, "time"), ("us U µs", 1, "time"), ("ms L", 1000, "time")),
        ("s S sec second seconds", 1_000_000, "time"),
        ("min T m minute minutes", 60_000_000, "time"),
        ("h H hour hours", 3_600_000_000, "time"),
        ("d D day days", DAY, "time"),
        ("w W week weeks", 7 * DAY, "week"),
        ("M ME MS BM BME BMS mo month months", 1, "month"),
        ("Q QE QS BQ BQE BQS q quarter quarters", 3, "month"),
        ("A Y YE YS BYE BYS AS y year years", 12, "month"),
        ("row rows", 1, "rows"),
    )
    for name in names.split()
}
WEEKDAYS = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
NAMES_OF_MONTHS = re.compile(rf"(?i)\b({'|'.join(MONTHS)})[a-z]*")
NAMES_OF_DAYS = re.compile(rf"(?i)\b({'|'.join(WEEKDAYS)})(s|r|rs|[a-z]*day)?\b")
UNDERSTOOD = "pass a number and a unit, such as '7D', '12h', '2W', 'W-FRI', '1mo', 'QE', '1Y' or '15 rows'"

DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d"),
    *(f"%{a}{sep}%{b}{sep}%{y}" for sep in "/.-" for y in "Yy" for a, b in ("dm", "md")),
    *("%y/%m/%d", "%y.%m.%d", "%y-%m-%d", *(f"%d{sep}%b{sep}%{y}" for sep in " -" for y in "Yy")),
    *("%d %B %Y", "%b %d %Y", "%B %d %Y", "%b %d, %Y", "%B %d, %Y", "%a %b %d %Y", "%A, %B %d, %Y"),
    *("%Y%m%dT%H%M%S", "%a %b %d %H:%M:%S %Y", "%d%b%Y"),
    *("%b %Y", "%B %Y", "%b-%Y", "%b-%y", "%Y-%m", "%Y/%m", "%m/%Y"),
)
CLOCKS = (" %H:%M:%S", " %H:%M", "T%H:%M:%S", "T%H:%M", " %H:%M:%S.%f", "T%H:%M:%S.%f")
HALVES = (" %I:%M %p", " %I:%M:%S %p", " %I:%M%p")
SINCE_1970 = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}  # in microseconds
OLDEST = "TIMESTAMP '1000-01-01'"  # %Y also reads 24 as a year
NEWEST = "TIMESTAMP '9999-12-31 23:59:59.999999'"  # of Python
YEAR_AND_QUARTER = "regexp_extract({t}, '\\d{4}')::BIGINT, 3 * regexp_extract({t}, '[Qq](.)', 1)::BIGINT - 2"
QUARTER = f"""CASE WHEN regexp_full_match({{t}}, '(?i)\\d{{4}}[- ]?Q[1-4]|Q[1-4][-/ ]?\\d{{4}}')
    THEN make_timestamp({YEAR_AND_QUARTER}, 1, 0, 0, 0) END"""
MONDAY = "try_strptime(rpad(replace({t}, '-', ''), 8, '1'), '%GW%V%u')"  # or the day that is given
WEEK = f"CASE WHEN strftime({MONDAY}, '%GW%V') = left(replace({{t}}, '-', ''), 7) THEN {MONDAY} END"
SPELLINGS = {  # of times, and the SQL that makes them usual
    r"\.\d{7}": r"regexp_replace({t}, '(\.\d{6})\d+', '\1')",  # nanoseconds
    r":\d\d,\d": "replace({t}, ',', '.')",
    r"\dt\d": "upper({t})",
    r"\(\w+\)$": r"regexp_replace({t}, ' \(\w+\)$', '')",  # -0800 (PST)
}
ZONED = ("%a, %d %b %Y %H:%M:%S %z", "%d/%b/%Y:%H:%M:%S %z", "%a %b %d %H:%M:%S %z %Y")
NUMBER = "CASE WHEN isfinite(try_cast({t} AS DOUBLE)) THEN try_cast({t} AS DOUBLE) END"


@dataclasses.dataclass(frozen=True)
class Freq:
    """The width of a window."""

    width: float
    unit: str  # "time" or "week" (in microseconds), "month", "rows", or "number" (in the unit of the times)
    anchor: int = 0  # the first day of a week, from Monday; the first month of a year, from January

    def window(self, time: str, first: Any, origin: object) -> str:
        """Return the SQL of the start of the window of a time.

        Windows start at the origin, or at 0, midnight, Monday or January before the first time.
        """
        try:
            if self.unit == "number":  # 0.3 is in the window that starts at 3 · 0.1, in spite of rounding
                start = 0.0 if origin is None else float(origin)  # type: ignore[arg-type]
                steps = f"floor(({time} - {start!r}) / {self.width!r} + 1e-9)"
                return f"round({steps} * {self.width!r} + {start!r}, 9)"
            begin = self._start(first) if origin is None else _moment(str(origin).strip())
        except (TypeError, ValueError) as error:
            what = "a number, as the times are" if self.unit == "number" else "a date such as '2008-01-07'"
            raise InputError(f"origin must be {what}, got {origin!r}") from error
        unit = "months" if self.unit == "month" else "microseconds"
        return f"time_bucket(INTERVAL '{int(self.width)} {unit}', {time}, TIMESTAMP '{begin}')"

    def _start(self, first: datetime.datetime) -> datetime.datetime:
        if self.unit == "month":
            return datetime.datetime(first.year - (first.month <= self.anchor), self.anchor + 1, 1)
        midnight = datetime.datetime(first.year, first.month, first.day)
        return midnight - datetime.timedelta((first.weekday() - self.anchor) % 7 * (self.unit == "week"))


def parse_freq(freq: object) -> Freq | None:
    """Return the width of windows: "7D", an alias of pandas or polars, a time difference, or a number.

    Examples
    --------
    >>> parse_freq("1.5 h")
    Freq(width=5400000000, unit='time', anchor=0)
    >>> parse_freq("2QE"), parse_freq("W-FRI")
    (Freq(width=6, unit='month', anchor=0), Freq(width=604800000000, unit='week', anchor=5))
    """
    if freq is None:
        return None
    freq = getattr(freq, "freqstr", freq)  # of an offset of pandas
    if isinstance(freq, np.timedelta64 | datetime.timedelta):
        freq = f"{np.timedelta64(freq, 'us').astype(int)}us"
    if isinstance(freq, bool) or not isinstance(freq, str | numbers.Real):
        raise InputTypeError(f"freq must be a string such as '7D', or a number, got {freq!r}")
    text, unit, first = str(freq).strip(), "number", 0
    if re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf", text):
        width = float(text)
    else:  # a number and a unit, several of them ("1d12h"), or a unit with an anchor ("W-FRI")
        body, _, anchor = text.partition("-")
        parts = re.findall(r"(\d+\.?\d*|\.\d+|)\s*([A-Za-zµ]+)", body)
        known = [UNITS.get(name, (0, "unknown")) for _, name in parts]
        units, yearly = {unit for _, unit in known}, any(re.match("B?[QAY]", name) for _, name in parts)
        calendar = WEEKDAYS if units == {"week"} else MONTHS if yearly else []
        understood = parts and "unknown" not in units and (not anchor or anchor in calendar)
        understood = understood and "".join(map("".join, parts)) == "".join(body.split())
        if not understood or (len(parts) > 1 and not units <= {"time", "week"}):
            raise InputError(f"freq={freq!r} is not understood; {UNDERSTOOD}")
        # W-FRI ends on Friday and QE-JAN in January, but QS-FEB starts in February.
        first = (calendar.index(anchor) + (not parts[0][1].endswith("S"))) % len(calendar) if anchor else 0
        width = sum(float(count or 1) * size for (count, _), (size, _) in zip(parts, known, strict=True))
        unit = units.pop() if len(parts) == 1 else "time"
    whole = width if unit == "number" or not math.isfinite(width) else round(width)
    if not (0 < width < math.inf) or abs(whole - width) > 1e-9:
        raise InputError(f"freq must be a positive width, whole in months and rows, got {freq!r}")
    return Freq(whole, unit, first)


def _moment(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(f"{text}-01" if re.fullmatch(r"\d{4}-\d\d", text) else text)
    return moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def date_readings(sample: list[str]) -> dict[str, str]:
    """Return the SQL of each way to read texts as dates, by name. In the SQL, {t} is the text."""
    text = max(sample, default="", key=len)
    clocks = ["", *(clock for clock in (*CLOCKS, *HALVES) if ":" in text)]
    clocks.sort(key=lambda clock: sum(clock.count(c) != text.count(c) for c in ":T."))  # failures are slow
    found = {date: strptime([date + clock for clock in clocks]) for date in DATES}
    zoned = strptime([f"%Y-%m-%d{clock}{blank}%z" for clock in CLOCKS for blank in ("", " ")])
    found["%Y-%m-%d with zones"] = zoned.replace("{t}", "regexp_replace({t}, ' ?(Z|z|UTC)$', '+00')")
    found |= {form: strptime([form]) for form in ZONED}
    found |= {"quarters": QUARTER, "ISO weeks": WEEK}
    for spelling, usual in SPELLINGS.items():
        if re.search(spelling, text):
            found = {name: sql.replace("{t}", usual) for name, sql in found.items()}
    return found


def strptime(formats: list[str]) -> str:
    """Return the SQL that reads {t} by the first format that fits, in UTC."""
    parsed = f"try_strptime({{t}}, [{', '.join(map(literal, formats))}])"
    return f"make_timestamp(epoch_us({parsed}))" if "%z" in formats[0] else parsed


def since_1970(unit: str) -> str:
    """Return the SQL that reads numbers {t} since 1970 as dates."""
    return f"make_timestamp(round({{t}} * {SINCE_1970[unit]!r})::BIGINT)"


def numbers_as_dates(low: float, high: float) -> tuple[str, str]:
    """Return the `time_format` and the SQL that read numbers {t} as dates from 1973 to 2100, else as NULL."""
    for form, first, last in (("%Y%m%d", 19_000_101, 21_001_231), ("%Y%m", 190_001, 210_012)):
        if first <= low <= high <= last:
            return form, f"try_strptime({{t}}::BIGINT::VARCHAR, '{form}')"
    fit = (unit for unit, us in SINCE_1970.items() if 1e14 <= low * us <= high * us <= 4.1e15)
    return next(((unit, since_1970(unit)) for unit in fit), ("", "NULL::TIMESTAMP"))


def in_order(labels: Sequence[str]) -> bool:
    """Return whether labels that differ in numbers or names of months or days only are in their order.

    Weeks start on Monday or Sunday.

    Examples
    --------
    >>> in_order(["wave 2", "wave 10", "end"]), in_order(["wave 10", "wave 2"]), in_order(["April", "March"])
    (True, False, False)
    >>> in_order(["Sun", "Mon"]), in_order(["Saturday", "Sunday"]), in_order(["Tue", "Mon"])
    (True, True, False)
    """

    def ordered(days: list[str]) -> bool:
        numbers: dict[str, list[list[int]]] = {}
        for label in labels:
            label = NAMES_OF_MONTHS.sub(lambda name: str(MONTHS.index(name[1].upper())), label)
            label = NAMES_OF_DAYS.sub(lambda name: str(days.index(name[1].upper())), label)
            found = [int(n) for n in re.findall(r"\d+", label)]
            numbers.setdefault(re.sub(r"\d+", "", label), []).append(found)
        return all(found == sorted(found) for found in numbers.values())

    return ordered(WEEKDAYS) or ordered([WEEKDAYS[-1], *WEEKDAYS[:-1]])


def shown(time: Hashable) -> str:
    """Return a time as in messages: a date without its midnight."""
    return str(time).removesuffix(" 00:00:00")


def plain(time: Any) -> Hashable:
    """Return a time as the caller would write it: 3, not 3.0."""
    return int(time) if isinstance(time, float) and time.is_integer() else time
