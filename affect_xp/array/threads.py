"""A thread pool for work on the host.

NumPy and SciPy release the GIL while they compute but use one thread. Only BLAS has its own threads, for
large products, and they keep spinning for a while after each product, which slows down all other threads. So
only one of the two pools is active at a time: within `own_threads` BLAS has one thread, and `run_blocks` uses
all processors.

Results do not depend on how work is split into blocks, nor on the number of threads.
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
Holder = tuple[int, object]  # a thread, and a call of `own_threads` in it

# True in a thread of the pool: nested work runs in the same thread.
_in_pool = contextvars.ContextVar("in_pool", default=False)


def n_threads() -> int:
    """Return how many threads `run_blocks` uses here: one outside of `own_threads` and within the pool."""
    return _n_allowed() if _blas.holders and not _in_pool.get() else 1


def _n_allowed() -> int:
    """Return OMP_NUM_THREADS, which BLAS obeys too, or the number of processors available to this process."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(limit) if limit.isdigit() and int(limit) > 0 else _n_processors()


@functools.cache
def _n_processors() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on all systems
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Blas:
    """The BLAS threads, limited to one while there are holders.

    An interrupt may arrive between any two lines: `hold` stores the original numbers of threads before it
    changes them, and `release` may be called twice.
    """

    def __init__(self) -> None:
        self.holders: list[Holder] = []
        self._lock = threading.Lock()
        self._original: list[tuple[Any, int]] = []

    def hold(self, holder: Holder) -> None:
        """Limit BLAS to one thread until `release`; there may be several holders at the same time."""
        with self._lock:
            if not self._original:
                self._original = [(library, library.num_threads) for library in _libraries()]
            self.holders.append(holder)
            for library, _ in self._original:
                library.set_num_threads(1)

    def release(self, holder: Holder) -> None:
        """Restore the BLAS threads when the last holder releases them."""
        with self._lock:
            self.holders = [other for other in self.holders if other is not holder]
            if not self.holders:
                self._restore()

    def _restore(self) -> None:
        for library, number in self._original:
            library.set_num_threads(number)
        self._original = []

    def after_fork(self) -> None:
        """Restore the BLAS threads in a forked process; the holders are threads of its parent."""
        self._lock = threading.Lock()  # another thread may have held the old one
        self.holders = []
        self._restore()


_blas = _Blas()


@functools.cache
def _libraries() -> list[Any]:
    """Return the loaded BLAS libraries (NumPy and SciPy have one each)."""
    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


@contextlib.contextmanager
def own_threads() -> Iterator[None]:
    """Limit BLAS to one thread so that our thread pool can use all cores; also a decorator.

    BLAS may have several threads even if OMP_NUM_THREADS is 1: it reads the variable only at its start, and
    dask sets it to 1 when it starts workers.
    """
    holder = threading.get_ident(), object()
    try:
        try:
            _blas.hold(holder)
            yield
        finally:
            _blas.release(holder)
    finally:
        _blas.release(holder)  # again, in case the first call was interrupted


@contextlib.contextmanager
def blas_threads() -> Iterator[None]:
    """Give BLAS its threads back within `own_threads`, for large decompositions."""
    own = [holder for holder in _blas.holders if holder[0] == threading.get_ident()]
    if not own:
        yield
        return
    try:
        _blas.release(own[-1])
        yield
    finally:
        _blas.hold(own[-1])


@functools.cache
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max(1, _n_allowed() - 1), thread_name_prefix="affect_xp")


def _forget() -> None:
    """Reset the pool in a forked process, which has none of its parent's threads."""
    _pool.cache_clear()
    _blas.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _helpers(work: Callable[[], None], n: int) -> list[concurrent.futures.Future]:
    """Start the work in n threads of the pool; replace a pool that was shut down.

    While the interpreter exits no pool can be created: the caller then works alone.
    """
    for _ in range(2):
        # The copied context carries the caller's NumPy error state.
        with contextlib.suppress(RuntimeError):
            return [_pool().submit(contextvars.copy_context().run, work) for _ in range(n)]
        _pool.cache_clear()
    return []


def run_blocks(work: Callable[[T], object], blocks: Iterable[T]) -> None:
    """Call `work` on each block, in parallel within `own_threads`; the caller's thread takes part."""
    pending = collections.deque(blocks)
    n_helpers = min(n_threads(), len(pending)) - 1
    if n_helpers < 1:
        for block in pending:
            work(block)
        return

    works = [work]  # emptied at the end: a thread of the pool may keep this closure for a moment

    def drain() -> None:
        while True:
            try:
                block = pending.popleft()
            except IndexError:
                return
            works[0](block)

    def work_through() -> None:
        _in_pool.set(True)  # in a copied context, so an interrupt leaves nothing to reset
        try:
            drain()
        except BaseException:
            pending.clear()  # cancel the remaining blocks
            raise

    helpers = _helpers(work_through, n_helpers)
    try:
        contextvars.copy_context().run(work_through)
    finally:
        # A helper that has not started has nothing left to do, and may be waiting for this thread.
        running = [helper for helper in helpers if not helper.cancel()]
        concurrent.futures.wait(running)
        works.clear()
    for helper in running:
        helper.result()
