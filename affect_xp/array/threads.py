"""Work on the host shared among threads.

NumPy and SciPy let other threads run while they compute, but have none of their own: only BLAS does, for
large products of matrices, and its threads stay awake for a while after each product, in the way of all
others. So it is one or the other: within `ours`, BLAS keeps to the thread that calls it, and `share` uses all
processors.

The blocks that work is cut into never change a result, so the number of threads does not either.
"""

import collections
import concurrent.futures
import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import threadpoolctl

T = TypeVar("T")

# Whether this is a thread that does a share of some work: what it calls is not shared again.
_sharing = contextvars.ContextVar("sharing", default=False)


def n_threads() -> int:
    """Return how many threads `share` uses here: more than one only within `ours`, but not in a share."""
    return _n_allowed() if _blas().n_holders > 0 and not _sharing.get() else 1


def _n_allowed() -> int:
    """Return OMP_NUM_THREADS, which BLAS obeys too, or how many processors this process may use."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(limit) if limit.isdigit() and int(limit) > 0 else _n_processors()


@functools.cache
def _n_processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Blas:
    """The threads of BLAS, held at one while anybody asks for it."""

    def __init__(self) -> None:
        self.n_holders = 0
        self._lock = threading.Lock()
        self._limit: Any = None

    def hold(self) -> None:
        """Keep BLAS to one thread until `release`; several callers may do so at the same time."""
        with self._lock:
            if self.n_holders == 0:
                self._limit = _libraries().limit(limits=1)
            self.n_holders += 1

    def release(self) -> None:
        """Let BLAS have its threads again, when the last caller says so."""
        with self._lock:
            self.n_holders -= 1
            if self.n_holders == 0:
                self._limit.restore_original_limits()


@functools.cache
def _blas() -> _Blas:
    return _Blas()


@functools.cache
def _libraries() -> Any:
    """Return the libraries of BLAS that are loaded (NumPy and SciPy have one each)."""
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Within this, or a function decorated with it, `share` has the processors and BLAS has one thread."""
    if _n_allowed() == 1:
        yield
        return
    blas = _blas()
    blas.hold()
    try:
        yield
    finally:
        blas.release()


@contextlib.contextmanager
def theirs() -> Iterator[None]:
    """Within this, BLAS has its threads also where `ours` was asked for: for large decompositions."""
    blas = _blas()
    if blas.n_holders == 0:
        yield
        return
    blas.release()
    try:
        yield
    finally:
        blas.hold()


@functools.cache
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max(1, _n_allowed() - 1), thread_name_prefix="affect_xp")


def _forget() -> None:
    """Begin anew in a forked process, in which no other threads are left."""
    _pool.cache_clear()
    _blas.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def share(work: Callable[[T], object], blocks: Iterable[T]) -> None:
    """Do the work on each block, within `ours` several at a time; the caller's thread takes part."""
    pending = collections.deque(blocks)
    n_helpers = min(n_threads(), len(pending)) - 1
    if n_helpers < 1:
        for block in pending:
            work(block)
        return

    def drain() -> None:
        while True:
            try:
                block = pending.popleft()
            except IndexError:
                return
            work(block)

    def do_a_share() -> None:
        before = _sharing.set(True)
        try:
            drain()
        except BaseException:
            pending.clear()  # nobody needs the rest
            raise
        finally:
            _sharing.reset(before)

    # NumPy's state of errors belongs to the caller's context.
    helpers = [_pool().submit(contextvars.copy_context().run, do_a_share) for _ in range(n_helpers)]
    try:
        do_a_share()
    finally:
        # One that has not begun has nothing left to do, and may be waiting for this very thread.
        running = [helper for helper in helpers if not helper.cancel()]
        concurrent.futures.wait(running)
    for helper in running:
        helper.result()
