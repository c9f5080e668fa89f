"""Communication with the terminal: notes and warnings in one line, closed pipes, Ctrl-C between steps."""

import contextlib
import errno
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self


def note(text: str) -> None:
    """Write a line to stderr."""
    with contextlib.suppress(OSError):  # nobody reads it
        sys.stderr.write(f"affect-xp: {text}\n")
        sys.stderr.flush()


@contextlib.contextmanager
def robust_output() -> Iterator[None]:
    """Replace characters that the console cannot show; ignore that nobody reads the output (`| head`)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if not is_closed_pipe(error):
            raise


def is_closed_pipe(error: OSError) -> bool:
    """Return whether nobody reads the output any more; then the rest of it is discarded."""
    windows = error.errno == errno.EINVAL and error.filename is None  # there is no EPIPE
    if not (isinstance(error, BrokenPipeError) or windows):
        return False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would complain when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return True


class StopBetweenSteps:
    """Turns the first Ctrl-C (or SIGTERM) into a request to stop after the step; the second stops at once.

    A step that is interrupted may leave the smoothed proximities half written, and the model of no use.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        note("stopping after this step; press Ctrl-C again to stop at once")

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
    from affect_xp.exceptions import SkewedWarning

    def show(message: Warning | str, *where: object, **more: object) -> None:
        note(f"warning: {worded(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkewedWarning)  # reported with the other decisions
        warnings.showwarning = show
        yield
