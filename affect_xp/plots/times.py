"""Formats of times in tables and figures."""

import datetime
from collections.abc import Callable, Hashable, Iterable


def time_format(times: Iterable[Hashable]) -> Callable[[Hashable], str]:
    """Return one format for all times: dates if all are midnights, otherwise ISO 8601.

    Examples
    --------
    >>> time_format([datetime.datetime(2024, 1, 1)])(datetime.datetime(2024, 1, 1))
    '2024-01-01'
    """
    moments = [time for time in times if isinstance(time, datetime.datetime)]
    by_day = all(moment.time() == datetime.time.min for moment in moments)

    def shown(time: Hashable) -> str:
        if isinstance(time, datetime.datetime):
            return time.date().isoformat() if by_day else time.isoformat()
        return str(time)

    return shown
