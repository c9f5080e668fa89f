"""Progress on stderr: a bar on a terminal, lines of text elsewhere."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_LINES = 10  # maximum number without a bar


def progress(items: Iterable[Item], total: int, label: str | None) -> Iterator[Item]:
    """Yield the items and report how many of `total` are done; nothing is reported if `label` is None.

    The bar needs tqdm (the extra `cli`); without it, lines are written.

    Examples
    --------
    >>> list(progress("abc", 3, None))
    ['a', 'b', 'c']
    """
    if label is None:
        return iter(items)
    if sys.stderr.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            return _lines(items, total, label)
        return iter(tqdm(items, total=total, desc=label, leave=False))
    return _lines(items, total, label)


def _lines(items: Iterable[Item], total: int, label: str) -> Iterator[Item]:
    """Yield the items, and write a line each time another tenth of them is done."""
    for done, item in enumerate(items, start=1):
        yield item
        if done * _LINES // total > (done - 1) * _LINES // total:
            sys.stderr.write(f"{label}: {done} of {total}\n")
            sys.stderr.flush()
