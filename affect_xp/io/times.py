"""The times in a table: read as numbers, dates or labels, and cut into windows."""

import dataclasses
import datetime
import math
import numbers
import re
from collections.abc import Hashable
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.io.values import are_missing

SECOND = 1_000_000  # in microseconds, in which dates are counted
DAY = 86_400 * SECOND
EPOCH = datetime.datetime(1970, 1, 1)
ROUNDING = 1e-9  # 0.3 is in the window that starts at 3 · 0.1, whatever binary fractions say

UNITS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("us",), (1, "time")),
    **dict.fromkeys(("ms",), (1000, "time")),
    **dict.fromkeys(("s", "sec", "second", "seconds"), (SECOND, "time")),
    **dict.fromkeys(("min", "minute", "minutes"), (60 * SECOND, "time")),
    **dict.fromkeys(("h", "H", "hour", "hours"), (3600 * SECOND, "time")),
    **dict.fromkeys(("d", "D", "day", "days"), (DAY, "time")),
    **dict.fromkeys(("w", "W", "week", "weeks"), (7 * DAY, "time")),
    **dict.fromkeys(("M", "month", "months"), (1, "month")),
    **dict.fromkeys(("Q", "quarter", "quarters"), (3, "month")),
    **dict.fromkeys(("y", "Y", "year", "years"), (12, "month")),
    **dict.fromkeys(("row", "rows"), (1, "rows")),
}


@dataclasses.dataclass(frozen=True)
class Freq:
    """The width of a window.

    Attributes
    ----------
    width : int or float
    unit : "time" (microseconds), "month", "rows", or "number" (of the unit in which times are given)
    """

    width: float
    unit: str


def parse_freq(freq: object) -> Freq | None:
    """Return the width of windows: "7D" and the like, a time difference, or a number.

    Examples
    --------
    >>> parse_freq("1.5 h")
    Freq(width=5400000000, unit='time')
    >>> parse_freq("2Q")
    Freq(width=6, unit='month')
    """
    if freq is None:
        return None
    if isinstance(freq, np.timedelta64):
        freq = freq.astype("timedelta64[us]").item()
    if isinstance(freq, datetime.timedelta):
        return _positive(freq / datetime.timedelta(microseconds=1), "time", freq)
    if not isinstance(freq, bool) and isinstance(freq, numbers.Real):
        return _positive(float(freq), "number", freq)
    if not isinstance(freq, str):
        raise InputTypeError(f"freq must be a string such as '7D', or a number, got {freq!r}")
    if _is_number(freq):
        return _positive(float(freq), "number", freq)
    found = re.fullmatch(r"\s*(\d*\.?\d*)\s*([A-Za-z]+)\s*", freq)
    if found is None or found[2] not in UNITS or found[1] == ".":
        raise InputError(
            f"freq={freq!r} is not understood; give a number and a unit, such as '7D', '12h', '30min', '2W', "
            "'1M' (month), '1Q', '1Y', or '15 rows'"
        )
    size, unit = UNITS[found[2]]
    return _positive(float(found[1] or 1) * size, unit, freq)


def _positive(width: float, unit: str, freq: object) -> Freq:
    whole = round(width) if unit in ("time", "month", "rows") else width
    if not (width > 0 and math.isfinite(width)) or (unit != "number" and abs(whole - width) > ROUNDING):
        raise InputError(f"freq must be a positive width, whole in months and rows, got {freq!r}")
    return Freq(whole, unit)


class Clock:
    """Reads the times of a table from top to bottom, and says in which window they fall.

    The first times read decide what all are: numbers, dates (ISO 8601, or `time_format`), or else
    labels, ordered as they first appear. Dates are counted in microseconds from 1970 in UTC.
    """

    def __init__(self, freq: object = None, origin: object = None, time_format: str | None = None) -> None:
        self.freq = parse_freq(freq)
        self._given_origin = origin
        self._origin: Any = None
        self._format = time_format
        self._scale: str | None = None
        self._labels: dict[Hashable, int] = {}  # in their order
        self._rows = 0

    def read(self, values: np.ndarray, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the position of each row on the axis of time, and whether it has one."""
        known = ~are_missing(values)
        given = values[known]
        if self._scale is None and len(given):
            self._settle(self._scale_of(given), column, given[0])
        positions = np.zeros(len(values), np.float64 if self._scale == "number" else np.int64)
        if self._scale == "date" and values.dtype.kind == "M":
            positions[known] = given.astype("datetime64[us]").astype(np.int64)
        elif len(given):
            listed = given.tolist()
            distinct = {value: self._position(value, column) for value in dict.fromkeys(listed)}
            positions[known] = [distinct[value] for value in listed]
        return positions, known

    def _scale_of(self, values: np.ndarray) -> str:
        """Return what times are, by the first ones."""
        if self._format is not None or values.dtype.kind == "M":
            return "date"
        distinct = set(values.tolist())
        if all(_is_number(value) for value in distinct):
            return "number"
        return "date" if all(_is_date(value) for value in distinct) else "label"

    def _settle(self, scale: str, column: str, first: Any) -> None:
        """Note what times are, and check that the windows asked for fit them."""
        self._scale = scale
        unit = None if self.freq is None else self.freq.unit
        if unit in (None, "rows"):
            return
        if scale == "label":
            raise InputError(
                f"column {column!r} holds {first!r}, which is neither a number nor a date such as "
                "2008-12-31; for freq, say how to read it, as in time_format='%d/%m/%Y'"
            )
        if scale == "number" and unit != "number":
            raise InputError(
                f"column {column!r} holds numbers such as {first!r}, but freq is a time; give freq in the "
                "unit of the numbers (604800 for a week of seconds), or time_format='%Y%m%d' for dates"
            )
        if scale == "date" and unit == "number":
            raise InputError(f"column {column!r} holds dates, but freq is a number; give a unit, as in '7D'")

    def _position(self, value: Any, column: str) -> Any:
        if self._scale == "label":
            return self._labels.setdefault(value, len(self._labels))
        try:
            return float(value) if self._scale == "number" else as_microseconds(value, self._format)
        except (TypeError, ValueError, AttributeError) as error:
            how = (
                f"by time_format={self._format!r}"
                if self._format
                else f"as a {self._scale} like those before"
            )
            raise InputError(
                f"column {column!r} holds {value!r}, which cannot be read {how}; mend it, or give another "
                "time_format"
            ) from error

    def windows(self, positions: np.ndarray) -> np.ndarray:
        """Return the number of the window of each position, for positions that follow the last ones."""
        if self.freq is None or not len(positions):
            return positions
        if self.freq.unit == "rows":
            rows = np.arange(self._rows, self._rows + len(positions))
            self._rows += len(positions)
            return rows // int(self.freq.width)
        if self._origin is None:
            self._origin = self._first(positions[0])
        if self.freq.unit == "month":
            return (_months(positions) - self._origin) // int(self.freq.width)
        if self.freq.unit == "time":
            return (positions - self._origin) // int(self.freq.width)
        return np.floor((positions - self._origin) / self.freq.width + ROUNDING).astype(np.int64)

    def _first(self, position: Any) -> Any:
        """Return where windows are counted from: as given; 0; midnight; or the month of January."""
        assert self.freq is not None
        if self._scale == "number":
            return 0.0 if self._given_origin is None else self._given_number()
        if self._given_origin is not None:
            try:
                position = as_microseconds(self._given_origin, self._format)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"origin must be a date such as '2008-01-07', got {self._given_origin!r}"
                ) from error
            return _months(np.array([position]))[0] if self.freq.unit == "month" else position
        if self.freq.unit == "month":
            return _months(np.array([position]))[0] // 12 * 12
        return position // DAY * DAY

    def _given_number(self) -> float:
        try:
            return float(self._given_origin)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"origin must be a number, as the times are, got {self._given_origin!r}"
            ) from error

    def name(self, window: Any, position: Any) -> Hashable:
        """Return what to call a window whose first row is at a position: its start, where it has one."""
        if self.freq is not None and self.freq.unit == "month":
            month = int(window * self.freq.width + self._origin)
            return datetime.datetime(1970 + month // 12, month % 12 + 1, 1)
        if self.freq is not None and self.freq.unit != "rows":
            position = self._origin + window * self.freq.width
        if self._scale == "label":
            return list(self._labels)[int(position)]
        if self._scale == "date":
            return EPOCH + datetime.timedelta(microseconds=int(position))
        number = round(float(position), 9)
        return int(number) if number.is_integer() else number


def shown(time: Hashable) -> str:
    """Return a time as messages have it: a date without its midnight."""
    return str(time).removesuffix(" 00:00:00")


def as_microseconds(value: Any, time_format: str | None = None) -> int:
    """Return a date, given as text or as an object, in microseconds from 1970 in UTC.

    Examples
    --------
    >>> as_microseconds("1970-01-01T02:00+02:00")
    0
    """
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, datetime.datetime):
        moment = value
    elif isinstance(value, datetime.date):
        moment = datetime.datetime(value.year, value.month, value.day)
    elif time_format is not None:
        moment = datetime.datetime.strptime(str(value).strip(), time_format)
    else:
        text = value.strip()
        moment = datetime.datetime.fromisoformat(f"{text}-01" if re.fullmatch(r"\d{4}-\d\d", text) else text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def _months(positions: np.ndarray) -> np.ndarray:
    """Return the number of months since January 1970."""
    return positions.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _is_date(value: Any) -> bool:
    try:
        as_microseconds(value)
    except (TypeError, ValueError, AttributeError):
        return False
    return True
