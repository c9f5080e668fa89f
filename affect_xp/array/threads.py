"""A thread pool for work on the host.

NumPy and SciPy release the GIL while they compute but use one thread; only BLAS has threads of its own, for
large products, and they keep spinning for a while after each product, which slows down all other threads. So
only one of the two pools is active at a time: within `own_threads` BLAS has one thread, and `run_blocks` uses
all processors.

How work is cut into blocks never changes a result, so the number of threads does not either.
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

# True in a thread of the pool: work that it starts runs in the same thread.
_in_pool = contextvars.ContextVar("in_pool", default=False)


def n_threads() -> int:
    """Return how many threads `run_blocks` uses here: one outside of `own_threads` and within the pool."""
    return _n_allowed() if _blas().n_holders > 0 and not _in_pool.get() else 1


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
def own_threads() -> Iterator[None]:
    """Limit BLAS to one thread so that our thread pool can use all cores; also a decorator."""
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
def blas_threads() -> Iterator[None]:
    """Give BLAS its threads back within `own_threads`, for large decompositions."""
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
    """Start over in a forked process, which has none of the threads of its parent."""
    _pool.cache_clear()
    _blas.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run_blocks(work: Callable[[T], object], blocks: Iterable[T]) -> None:
    """Do the work on each block, within `own_threads` several at a time; the caller's thread takes part."""
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

    def work_through() -> None:
        before = _in_pool.set(True)
        try:
            drain()
        except BaseException:
            pending.clear()  # nobody needs the rest
            raise
        finally:
            _in_pool.reset(before)

    # NumPy's state of errors belongs to the caller's context.
    helpers = [_pool().submit(contextvars.copy_context().run, work_through) for _ in range(n_helpers)]
    try:
        work_through()
    finally:
        # One that has not begun has nothing left to do, and may be waiting for this very thread.
        running = [helper for helper in helpers if not helper.cancel()]
        concurrent.futures.wait(running)
    for helper in running:
        helper.result()
