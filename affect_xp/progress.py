"""Progress on stderr: a bar with the remaining time on a terminal, one line per step elsewhere."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")


class Progress:
    """Report the number of completed steps.

    The bar needs rich (the extra `cli`); without it, lines are written. Of `total` steps, if known, `done`
    are already completed; `label` is the name of a step.

    Examples
    --------
    >>> with contextlib.redirect_stderr(sys.stdout), Progress(2) as progress:
    ...     progress.advance("Monday")
    ...     progress.advance("Tuesday")
    step 1 of 2, Monday
    step 2 of 2, Tuesday
    """

    def __init__(self, total: int | None, label: str = "step", *, done: int = 0, show: bool = True) -> None:
        self._total, self._label, self._done, self._show = total, label, done, show
        self._bar: Any = None

    def __enter__(self) -> Self:
        if self._show and sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                self._bar = _bar(self._label, self._total, self._done)
                self._bar.start()
        return self

    def advance(self, text: str = "") -> None:
        """Report one more completed step, with a short description."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=1, text=text)
        elif self._show:
            total = "" if self._total is None else f" of {self._total}"
            self._write(f"{self._label} {self._done}{total}{f', {text}' if text else ''}\n")

    def _write(self, line: str) -> None:
        try:
            sys.stderr.write(line)
            sys.stderr.flush()
        except OSError:  # stderr is closed, as in `2>&1 | head`
            self._show = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(label: str, total: int | None, done: int) -> Any:
    from rich import progress as rich
    from rich.console import Console

    time = rich.TimeElapsedColumn() if total is None else rich.TimeRemainingColumn()
    columns = rich.TextColumn("{task.description}"), rich.MofNCompleteColumn(), rich.BarColumn(20), time
    text = rich.TextColumn("{task.fields[text]}", markup=False)
    bar = rich.Progress(*columns, text, console=Console(stderr=True), transient=True)
    bar.add_task(label, total=total, completed=done, text="")
    return bar


def progress(items: Iterable[Item], total: int | None, label: str | None) -> Iterator[Item]:
    """Yield the items and report how many of `total` are done; report nothing if `label` is None."""
    with Progress(total, label or "", show=label is not None) as shown:
        for item in items:
            yield item
            shown.advance()
