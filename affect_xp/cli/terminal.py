"""How a long command talks: a bar or lines of progress, warnings in one line, and Ctrl-C between steps."""

import contextlib
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from affect_xp.exceptions import SkewedWarning
from affect_xp.tracking.history import Record


class StepProgress:
    """Shows each step on stderr: a bar on a terminal, where tqdm is installed, and lines elsewhere."""

    def __init__(self, total: int | None, done: int, *, quiet: bool = False) -> None:
        self._total = total
        self._done = done
        self._quiet = quiet
        self._bar: Any = None
        if not quiet and sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                from tqdm import tqdm

                self._bar = tqdm(total=total, initial=done, unit=" steps", leave=False, mininterval=0)

    def show(self, record: Record, time: str) -> None:
        """Report a step that is done."""
        self._done += 1
        told = f"{time}: {record.n} objects, {record.k} clusters, α = {record.alpha:.3f}"
        if self._bar is not None:
            self._bar.set_description_str(told, refresh=False)
            self._bar.update()
        elif not self._quiet:
            of = "" if self._total is None else f" of {self._total}"
            sys.stderr.write(f"step {self._done}{of}, {told}\n")
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class StopBetweenSteps:
    """Turns the first Ctrl-C (or SIGTERM) into a request to stop after the step; the second stops at once.

    A step that is cut short may leave the smoothed proximities half written, and the model of no use.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        sys.stderr.write("\naffect-xp: stopping after this step; press Ctrl-C again to stop at once\n")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others get no signals
            self._before = {number: signal.signal(number, self._ask) for number in self.SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def plain_warnings(worded: Callable[[str], str] = str) -> Iterator[None]:
    """Show warnings in one line each, worded for the terminal, without the line of code they come from."""

    def show(message: Warning | str, *where: object, **more: object) -> None:
        sys.stderr.write(f"affect-xp: warning: {worded(str(message))}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkewedWarning)  # what is done about it is told with other decisions
        warnings.showwarning = show
        yield
