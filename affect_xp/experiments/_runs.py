"""Repeat an experiment with different random numbers, in one or several processes."""

import contextlib
import functools
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

import numpy as np

from affect_xp.exceptions import SkewedWarning
from affect_xp.progress import progress as reported

Result = TypeVar("Result")

_THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def over_runs(
    run: Callable[[int], Result], n_runs: int, seed: int, *, jobs: int = 1, progress: str | None = None
) -> list[Result]:
    """Return `run(seed of the run)` for each of `n_runs` seeds, the same for any number of `jobs`.

    Parameters
    ----------
    run : function of a seed
        Sent to other processes if jobs > 1: a module-level function, or a `functools.partial` of one.
    n_runs, seed : int
        The number of runs, and the seed from which their seeds are derived.
    jobs : int
        The number of processes, each with one thread for linear algebra.
    progress : str, optional
        The name of the runs in the progress report on stderr; None for no report.

    Examples
    --------
    >>> over_runs(abs, 3, 0) == over_runs(abs, 3, 0), over_runs(abs, 3, 0) == over_runs(abs, 3, 1)
    (True, False)
    """
    seeds, run = run_seeds(n_runs, seed), functools.partial(_as_published, run)
    if jobs == 1:
        return list(reported(map(run, seeds), n_runs, progress))
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks but not the threads
    with _one_thread(), ProcessPoolExecutor(min(jobs, n_runs), spawn) as pool:
        return list(reported(pool.map(run, seeds), n_runs, progress))


def _as_published(run: Callable[[int], Result], seed: int) -> Result:
    """Run with raw counts, as in the paper, although a transform would help."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkewedWarning)
        return run(seed)


def run_seeds(n_runs: int, seed: int) -> Sequence[int]:
    """Return one seed per run; the seeds derived from different `seed`s are independent."""
    return [int(state) for state in np.random.SeedSequence(seed).generate_state(n_runs)]


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Limit processes that start within this context to one thread for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREAD_LIMITS}
    os.environ.update(dict.fromkeys(_THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
