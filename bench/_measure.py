"""Alternating timing, growth exponents, and process memory.

An action is a generator function: each `next` does one piece of work, such as one time step, and is timed
separately. Actions alternate piece by piece, so that other load on the machine affects all of them. The time
of a piece is its minimum over several rounds.
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

END = object()  # returned by `next` if no piece is left

# Interval at which a thread samples the resident memory; short enough for all large arrays.
WATCH_SECONDS = 0.005

# A process is idle if it uses less than this share of a time slice; stop waiting after this many slices.
REST_SECONDS, REST_SHARE, REST_SLICES = 0.01, 0.1, 50


def once(function: Callable[[], object]) -> Action:
    """Return an action of one piece."""

    def action() -> Iterator[None]:
        function()
        yield

    return action


def over(items: Iterable[Item], make: Callable[[], Callable[[Item], object]]) -> Action:
    """Return an action with one piece per item; `make` returns a new function for each round."""

    def action() -> Iterator[None]:
        function = make()
        for item in items:
            function(item)
            yield

    return action


class Timer(Protocol):
    """A timer."""

    def now(self) -> float:
        """Return the seconds since some moment."""

    def start(self) -> Any:
        """Start the timer, and return the argument of `stop`."""

    def stop(self, started: Any) -> float:
        """Return the seconds since `start`."""

    def rest(self) -> None:
        """Wait until the timed work has finished."""


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
        """Wait until no thread of this process is active.

        Threads of OpenBLAS and OpenMP spin after their work is done: for about 0.1 s and 0.02 s as measured,
        other libraries for 0.2 s. Meanwhile they occupy cores that the next action needs.
        """
        for _ in range(REST_SLICES):
            before = time.process_time()
            time.sleep(REST_SECONDS)
            if time.process_time() - before < REST_SHARE * REST_SECONDS:
                return


@dataclasses.dataclass(frozen=True)
class Effort:
    """The number of rounds: at least `fewest`, then more while they fit into `seconds`.

    No round starts after `longest` seconds.
    """

    fewest: int
    seconds: float
    most: int = 50
    longest: float = math.inf

    def goes_on(self, done: int, spent: float) -> bool:
        """Return whether to run another round, if it takes the mean time of the previous ones."""
        if done < self.fewest:
            return done == 0 or spent <= self.longest
        return done < self.most and spent + spent / done <= self.seconds


def take_turns(
    actions: Mapping[str, Action], effort: Effort, timer: Timer
) -> tuple[dict[str, np.ndarray], int]:
    """Return the minimum seconds of each piece by action, and the number of rounds."""
    start, rounds = timer.now(), 0
    best: dict[str, np.ndarray] = {}
    while effort.goes_on(rounds, timer.now() - start):
        for name, seconds in one_round(actions, timer, first=rounds).items():
            best[name] = np.minimum(best[name], seconds) if name in best else np.array(seconds)
        rounds += 1
    return best, rounds


def one_round(actions: Mapping[str, Action], timer: Timer, first: int = 0) -> dict[str, list[float]]:
    """Return the seconds of each piece by action; the order of the actions rotates."""
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
    """Yield the seconds of each piece of an action; wait after each piece until all threads are idle."""
    pieces = action()
    while True:
        started = timer.start()
        try:
            value = next(pieces)
        except StopIteration:
            return
        spent = timer.stop(started)
        timer.rest()
        yield spent if value is None else value


def traced_peaks(action: Action) -> np.ndarray:
    """Return the peak memory of each piece in bytes, in addition to that allocated before it.

    This counts NumPy arrays and Python objects (`tracemalloc`), exactly and reproducibly, but not internal
    buffers of compiled libraries.
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
    """Return a and b of values ≈ a·sizesᵇ, by a linear fit of the logarithms."""
    b, log_a = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(np.exp(log_a)), float(b)


def memory(field: str) -> int:
    """Return a field of /proc/self/status in bytes: VmRSS is the resident size, VmHWM the highest so far."""
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))


def forget_the_highest() -> None:
    """Reset VmHWM to the current resident size."""
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def resident() -> int:
    """Return the resident size of this process in bytes."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_of(function: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def watched(function: Callable[[], object]) -> tuple[float, int]:
    """Call a function; return its seconds and the peak resident size during the call."""
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
