"""Timing by turns, exponents of growth, and the memory of a process.

An action is a generator function: each `next` does one piece of its work (one time step, say), and pieces are
timed apart. Actions take turns piece by piece, so that what else the machine does meanwhile falls on all of
them, and each piece counts with its shortest time of several rounds.
"""

import dataclasses
import math
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

Item = TypeVar("Item")
Action = Callable[[], Iterator[float | None]]  # a piece that times itself yields its seconds

END = object()  # what `next` gives where no piece is left

# A thread that looks at the resident size this often sees every array that matters.
WATCH_SECONDS = 0.005

# Looked at in slices, a process is at rest that uses a tenth of one; after so many it is let go on anyway.
REST_SECONDS, REST_SHARE, REST_SLICES = 0.01, 0.1, 50


def once(function: Callable[[], object]) -> Action:
    """Return an action of one piece."""

    def action() -> Iterator[None]:
        function()
        yield

    return action


def over(items: Iterable[Item], make: Callable[[], Callable[[Item], object]]) -> Action:
    """Return an action with a piece for each item, done by a function that is made anew for each round."""

    def action() -> Iterator[None]:
        function = make()
        for item in items:
            function(item)
            yield

    return action


class Timer(Protocol):
    """How seconds are taken."""

    def now(self) -> float:
        """Return the seconds since some moment."""

    def start(self) -> Any:
        """Begin, and return what `stop` is to be given."""

    def stop(self, started: Any) -> float:
        """Return the seconds since `start`."""

    def rest(self) -> None:
        """Wait until nothing is left of what was timed."""


class WallTimer:
    """The clock of the host."""

    def now(self) -> float:
        """Return the seconds since some moment."""
        return time.perf_counter()

    start = now

    def stop(self, started: float) -> float:
        """Return the seconds since `start`."""
        return self.now() - started

    def rest(self) -> None:
        """Wait until no thread of this process is at work.

        Those of OpenBLAS and OpenMP stay awake when their work is done, and look for more: for about 0.1 s
        and 0.02 s as measured, other libraries for 0.2 s. Meanwhile they hold processors that whoever has
        the next turn would miss.
        """
        for _ in range(REST_SLICES):
            before = time.process_time()
            time.sleep(REST_SECONDS)
            if time.process_time() - before < REST_SHARE * REST_SECONDS:
                return


@dataclasses.dataclass(frozen=True)
class Effort:
    """How often actions are repeated: at least `fewest` rounds, then more while they fit into `seconds`.

    After `longest` seconds there is no other round in any case.
    """

    fewest: int
    seconds: float
    most: int = 50
    longest: float = math.inf

    def goes_on(self, done: int, spent: float) -> bool:
        """Tell whether there is to be another round, which may take as long as the mean of those done."""
        if done < self.fewest:
            return done == 0 or spent <= self.longest
        return done < self.most and spent + spent / done <= self.seconds


def take_turns(
    actions: Mapping[str, Action], effort: Effort, timer: Timer
) -> tuple[dict[str, np.ndarray], int]:
    """Return the shortest seconds of each piece by action, and how many rounds there were."""
    start, rounds = timer.now(), 0
    best: dict[str, np.ndarray] = {}
    while effort.goes_on(rounds, timer.now() - start):
        for name, seconds in one_round(actions, timer, first=rounds).items():
            best[name] = np.minimum(best[name], seconds) if name in best else np.array(seconds)
        rounds += 1
    return best, rounds


def one_round(actions: Mapping[str, Action], timer: Timer, first: int = 0) -> dict[str, list[float]]:
    """Return the seconds of each piece by action; another one begins each time."""
    first %= max(1, len(actions))
    names = [*actions][first:] + [*actions][:first]
    running = {name: timed_pieces(actions[name], timer) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    while running:
        for name in list(running):
            spent = next(running[name], None)
            if spent is None:
                del running[name]
            else:
                seconds[name].append(spent)
    return seconds


def timed_pieces(action: Action, timer: Timer) -> Iterator[float]:
    """Yield the seconds of each piece of an action, and leave the processors to others after each."""
    pieces = action()
    while True:
        started = timer.start()
        try:
            told = next(pieces)
        except StopIteration:
            return
        spent = timer.stop(started)
        timer.rest()
        yield spent if told is None else told


def traced_peaks(action: Action) -> np.ndarray:
    """Return for each piece the most bytes that were held at once beyond those held before it.

    Counted are the arrays of NumPy and the objects of Python (`tracemalloc`), to the byte and the same each
    time; not the buffers that compiled libraries take for themselves.
    """
    peaks: list[int] = []
    tracemalloc.start()
    try:
        pieces = action()
        while True:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            if next(pieces, END) is END:
                return np.array(peaks)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


def fitted_power(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the a and b of values ≈ a·sizesᵇ: the line through their logarithms."""
    b, log_a = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(np.exp(log_a)), float(b)


def memory(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS is the resident size, VmHWM the highest so far."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))


def forget_the_highest() -> None:
    """Let VmHWM start anew from the present resident size."""
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def resident() -> int:
    """Return the bytes this process has in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_of(function: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def watched(function: Callable[[], object]) -> tuple[float, int]:
    """Call a function; return its seconds and the highest resident size meanwhile."""
    highest, done = [resident()], threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_SECONDS):
            highest[0] = max(highest[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds = seconds_of(function)
    finally:
        done.set()
        watcher.join()
    return seconds, max(highest[0], resident())
