"""The thread pool, and its limits on BLAS threads."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

from affect_xp.array import threads


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    """Use three threads on any machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    threads._forget()
    yield
    threads._forget()


def blas_threads():
    return [
        library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"
    ]


def test_does_the_work_on_every_block_once():
    seen = []
    with threads.own_threads():
        threads.run_blocks(seen.append, range(1000))
    assert sorted(seen) == list(range(1000))


def test_several_threads_take_part_within_ours_alone():
    def who(together):
        names = set()
        meeting = threading.Barrier(together)
        threads.run_blocks(
            lambda _: (names.add(threading.current_thread().name), meeting.wait(30)), range(together)
        )
        return names

    with threads.own_threads():
        assert len(who(3)) == 3  # otherwise the barrier breaks
    assert who(1) == {threading.current_thread().name}
    assert threads.n_threads() == 1


def test_an_error_reaches_the_caller_and_ends_the_work():
    done = []

    def work(i):
        if i == 3:
            raise ValueError("three")
        time.sleep(0.001)
        done.append(i)

    with threads.own_threads(), pytest.raises(ValueError, match="three"):
        threads.run_blocks(work, range(10_000))
    assert len(done) < 5000


def test_sharing_within_shared_work_ends():
    seen = []
    with threads.own_threads():
        threads.run_blocks(lambda i: threads.run_blocks(lambda j: seen.append((i, j)), range(20)), range(20))
    assert sorted(seen) == [(i, j) for i in range(20) for j in range(20)]


def test_errors_of_numpy_are_handled_as_the_caller_asks():
    def work(_):
        np.zeros(3) / np.zeros(3)

    with threads.own_threads(), np.errstate(invalid="ignore"):
        threads.run_blocks(work, range(50))
    with threads.own_threads(), np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        threads.run_blocks(work, range(50))


def test_blas_has_one_thread_meanwhile_and_its_own_again_after_the_last():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        first, second = threads.own_threads(), threads.own_threads()
        first.__enter__()
        assert set(blas_threads()) == {1}
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert set(blas_threads()) == {2}


def test_blas_has_one_thread_if_the_variable_is_set_after_its_start(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as dask does when it starts workers
    with threadpoolctl.threadpool_limits(3, user_api="blas"), threads.own_threads():
        assert threads.n_threads() == 1
        assert set(blas_threads()) == {1}


def test_blas_may_have_its_threads_meanwhile():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with threads.own_threads():
            with threads.blas_threads():
                assert set(blas_threads()) == {2}
                assert threads.n_threads() == 1
            assert set(blas_threads()) == {1}
        with threads.blas_threads():
            assert set(blas_threads()) == {2}


def test_what_is_called_by_shared_work_is_not_shared_again():
    found = []
    with threads.own_threads():
        threads.run_blocks(lambda _: found.append(threads.n_threads()), range(4))
        assert found == [1] * 4
        assert threads.n_threads() == 3


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_blas_has_its_threads_again_after_an_error(error):
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        with pytest.raises(error), threads.own_threads():
            raise error
        assert set(blas_threads()) == {2}


def test_another_thread_does_not_release_blas():
    with threadpoolctl.threadpool_limits(2, user_api="blas"), threads.own_threads():
        other = threading.Thread(target=lambda: threads.blas_threads().__enter__())
        other.start()
        other.join(30)
        assert set(blas_threads()) == {1}


# CPython handles no signal between a lock and its `with`.
LOCKS = {
    number
    for number, line in enumerate(Path(threads.__file__).read_text().splitlines(), 1)
    if "with self._lock" in line
}


def interrupted(work, at):
    """Raise KeyboardInterrupt at the n-th executed line of threads.py; return whether it was reached."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        if frame.f_code.co_filename != threads.__file__:
            return None
        if event == "line" and frame.f_lineno not in LOCKS:
            lines += 1
            if lines == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_blas_has_its_threads_again_wherever_an_interrupt_arrives():
    def work():
        with threads.own_threads(), threads.own_threads():
            threads.run_blocks(lambda _: None, range(5))
            with threads.blas_threads():
                pass

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        at = 1
        while interrupted(work, at):
            assert set(blas_threads()) == {2}, f"interrupted at line {at}"
            assert threads._blas.holders == []
            assert threads.n_threads() == 1
            at += 1
        assert at > 60
        with threads.own_threads():  # still works
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}


@pytest.mark.parametrize("wait", [True, False])
def test_a_pool_that_was_shut_down_is_replaced(wait):
    seen = []
    with threads.own_threads():
        threads.run_blocks(lambda _: None, range(100))
        threads._pool().shutdown(wait=wait)
        threads.run_blocks(seen.append, range(100))
    assert sorted(seen) == list(range(100))


def test_at_the_exit_of_the_interpreter_the_caller_works_alone():
    code = (
        "import atexit, threading\n"
        "from affect_xp.array import threads\n"
        "def late():\n"
        "    with threads.own_threads():\n"
        "        threads.run_blocks(lambda i: print(i, end=' '), range(4))\n"
        "atexit.register(late)\n"
        "with threads.own_threads():\n"
        "    threads.run_blocks(lambda _: None, range(9))\n"
    )
    env = os.environ | {"OMP_NUM_THREADS": "3"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert sorted(found.stdout.split()) == ["0", "1", "2", "3"] and not found.stderr


@pytest.mark.parametrize(("limit", "expected"), [("2", 2), ("4,2", 4), ("", None), ("0", None), ("x", None)])
def test_obeys_the_variable_blas_obeys(monkeypatch, limit, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert threads._n_allowed() == (expected or threads._n_processors())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    """This includes BLAS threads: the step of the parent continues only in the parent."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"), threads.own_threads():
        threads.run_blocks(lambda _: None, range(100))  # starts the threads
        child = os.fork()
        if child == 0:
            seen, others = [], blas_threads()
            with threads.own_threads():
                threads.run_blocks(seen.append, range(100))
            os._exit(0 if sorted(seen) == list(range(100)) and set(others) == {2} else 1)
        assert set(blas_threads()) == {1}
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the forked process hangs"
        time.sleep(0.01)
    assert ended[1] == 0
