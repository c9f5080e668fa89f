"""How times are written in tables and pictures."""

import datetime
from collections.abc import Callable, Hashable, Iterable


def time_format(times: Iterable[Hashable]) -> Callable[[Hashable], str]:
    """Return how to write times, in one way for all: dates where all are midnights, else ISO 8601.

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
