"""Workloads, and how to run them."""

import contextlib
import dataclasses
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import affect_xp

from ._device import Cuda, Host
from ._measure import Action, Effort, take_turns
from ._report import Results, Row

Choice = TypeVar("Choice")

EFFORTS = {
    "tiny": Effort(1, 0.0),
    "quick": Effort(2, 5.0, longest=8.0),
    "full": Effort(3, 15.0, longest=30.0),
}
BUSY = 0.5  # maximum load per core before the measurements
THREADS = "OMP_NUM_THREADS"
INTERRUPTED = "left out, interrupted"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "fastcluster", "threadpoolctl", "cupy-cuda12x", "cupy-cuda13x")


@dataclasses.dataclass(frozen=True)
class Setting:
    """Size, device and data of a run."""

    size: str = "quick"
    device: Host | Cuda = dataclasses.field(default_factory=Host)
    threads: int = 2
    data: Path | None = None  # the folder of nasdaq2008.npz

    def rows_at(self, *, full: Choice, quick: Choice, tiny: Choice) -> Choice:
        """Return the argument for the size of the run."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.size]


@dataclasses.dataclass(frozen=True)
class Measured:
    """Seconds and bytes of each piece, by action."""

    seconds: Mapping[str, np.ndarray]
    peaks: Mapping[str, np.ndarray]
    rounds: int = 1

    def total(self, name: str) -> float:
        """Return the seconds of all pieces of an action."""
        return float(self.seconds[name].sum())

    def ratio(self, ours: str, peer: str) -> float:
        """Return the ratio of the times of two actions."""
        return self.total(ours) / self.total(peer)

    def last(self, name: str) -> float:
        """Return the seconds of the last piece of an action."""
        return float(self.seconds[name][-1])

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        return {
            "rounds": self.rounds,
            "seconds": {name: values.tolist() for name, values in self.seconds.items()},
            "peak bytes": {name: values.tolist() for name, values in self.peaks.items()},
        }


@dataclasses.dataclass(frozen=True)
class Case:
    """A prepared workload: its data are in memory, and nothing has been timed yet.

    Attributes
    ----------
    ours, peers : actions by name
        The actions that use affect_xp, and those they are compared with.
    rows : function
        Returns the figures, given the measurements.
    watched : names of actions
        The actions whose memory is measured, in a separate run.
    """

    ours: Mapping[str, Action]
    peers: Mapping[str, Action]
    rows: Callable[[Measured], Iterable[Row]]
    watched: Sequence[str] = ()

    def measure(self, setting: Setting) -> Measured:
        """Time all actions alternately."""
        actions = {**self.ours, **self.peers}
        with limited_threads(setting.threads):
            seconds, rounds = take_turns(actions, EFFORTS[setting.size], setting.device.timer)
            peaks = {name: setting.device.peaks(actions[name]) for name in self.watched}
        return Measured(seconds, peaks, rounds)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload of the benchmarks.

    Attributes
    ----------
    name : str
        For --only.
    prepare : function
        Returns the case.
    needs : names of modules
        The workload is skipped if one of them is not installed.
    devices : names of devices
    """

    name: str
    prepare: Callable[[Setting], Case]
    needs: Sequence[str] = ()
    devices: Sequence[str] = ("cpu", "cuda")

    def obstacle(self, setting: Setting) -> str | None:
        """Return the reason why it cannot be run, or None."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            return f"left out, needs {', '.join(missing)}"
        if setting.device.name not in self.devices:
            return f"left out, only for --device {' or '.join(self.devices)}"
        return None


@contextlib.contextmanager
def limited_threads(threads: int) -> Iterator[None]:
    """Limit the number of threads of affect_xp and of the compiled libraries loaded so far.

    affect_xp reads the environment variable at each call; new processes, such as those that time imports,
    read it when they start.
    """
    from threadpoolctl import threadpool_limits

    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


def run(workloads: Sequence[Workload], setting: Setting, *, label: str | None = None) -> Results:
    """Run workloads one after the other; a failure does not stop the others."""
    from affect_xp.progress import progress  # missing in older revisions, which `_worker` measures

    rows, problems, details = {}, {}, {}
    environment, began = described(setting), time.perf_counter()
    for workload in progress(workloads, len(workloads), label):
        obstacle = workload.obstacle(setting)
        if obstacle is not None:
            problems[workload.name] = obstacle
            continue
        try:
            start = time.perf_counter()
            case = workload.prepare(setting)
            measured = case.measure(setting)
            rows[workload.name] = list(case.rows(measured))
            spent = round(time.perf_counter() - start, 1)
            details[workload.name] = measured.as_json() | {"seconds spent": spent}
        except KeyboardInterrupt:  # keep the finished workloads
            problems |= {other.name: INTERRUPTED for other in workloads if other.name not in rows}
            break
        except Exception as error:
            problems[workload.name] = f"FAILED, {type(error).__name__}: {error}"
    took = f"{time.perf_counter() - began:.0f} s"
    return Results(rows, problems, details, environment | {"load after": load(), "took": took})


def described(setting: Setting) -> dict[str, Any]:
    """Return the information needed to compare two runs."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "size": setting.size,
        "device": setting.device.described(),
        "processors": os.cpu_count(),
        "threads": setting.threads,
        "load before": load(),
        "python": platform.python_version(),
        "affect_xp": affect_xp.__version__,
        **dict(_versions()),
    }


def load() -> float | None:
    """Return the load average of the last minute, if known."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def busy() -> None:
    """Warn if other programs are running, which delays threads that wait for each other."""
    waiting, processors = load(), os.cpu_count() or 1
    if waiting is not None and waiting > BUSY * processors:
        state = f"load {waiting} on {processors} processors"
        print(
            f"other programs are running ({state}): measurements take longer and are unreliable",
            file=sys.stderr,
        )


def _versions() -> Iterator[tuple[str, str]]:
    for name in LIBRARIES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
