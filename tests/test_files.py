"""Files and folders shared by processes; `tests/persistence/test_faults.py` tests replacement further."""

import os
import subprocess
import sys
import types

import pytest

from affect_xp import files
from affect_xp.exceptions import AffectError, SaveError

HOLD = """
import sys, pathlib
from affect_xp import files
with files.exclusive_use(pathlib.Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path):
    """Another process that uses a folder."""
    called = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(called, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().strip() == b"mine"
        yield process
        process.kill()


def test_a_folder_in_use(owner, tmp_path):
    with (
        pytest.raises(AffectError, match=rf"process {owner.pid} on .* is writing to .*; wait until it ends"),
        files.exclusive_use(tmp_path),
    ):
        pass
    owner.communicate()  # waits for its end
    with files.exclusive_use(tmp_path):
        assert (tmp_path / files.LOCK).read_text(encoding="utf-8").startswith(f"{os.getpid()} on ")
    assert not list(tmp_path.iterdir())


def test_the_lock_of_a_killed_process_is_stale(owner, tmp_path):
    owner.kill()
    owner.wait()
    assert (tmp_path / files.LOCK).exists()
    with files.exclusive_use(tmp_path):
        pass


def test_released_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), files.exclusive_use(tmp_path):
        raise ZeroDivisionError
    with files.exclusive_use(tmp_path):
        pass


def test_an_owner_that_ends_in_between(tmp_path, monkeypatch):
    """The file that was opened is deleted before it is locked."""
    lock, path = files._lock, tmp_path / files.LOCK
    ended = []

    def ends(file, *, wait=True):
        if not ended:
            ended.append(path.unlink())
        return lock(file, wait=wait)

    monkeypatch.setattr(files, "_lock", ends)
    with files.exclusive_use(tmp_path):
        assert path.exists()


# Windows, as far as other systems can emulate it


@pytest.fixture
def windows(monkeypatch):
    """Lock by msvcrt, and refuse to delete or rename open files."""
    fcntl = pytest.importorskip("fcntl")
    opened = {}

    def locking(descriptor, mode, n_bytes):
        assert n_bytes == 1 and os.lseek(descriptor, 0, os.SEEK_CUR) == files._BEYOND  # not the process id
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == "try" else 0))

    def watched(path, mode="r", *arguments, **options):
        file = open(path, mode, *arguments, **options)  # noqa: SIM115
        opened[os.fspath(path)] = file
        return file

    def refusing(action):
        def careful(path, *arguments, **options):
            file = opened.get(os.fspath(path))
            if file is not None and not file.closed:
                raise PermissionError(13, "The process cannot access the file")
            return action(path, *arguments, **options)

        return careful

    monkeypatch.setattr(files, "WINDOWS", True)
    monkeypatch.setattr(files, "open", watched, raising=False)
    monkeypatch.setattr(files.os, "replace", refusing(os.replace))
    monkeypatch.setattr(files.Path, "unlink", refusing(files.Path.unlink))
    monkeypatch.setitem(
        sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_LOCK="wait", LK_NBLCK="try")
    )


def test_replacement_on_windows(windows, tmp_path):
    path = tmp_path / "file"
    left = tmp_path / ".file.0123abcd.tmp"
    left.write_bytes(b"of a process that was killed")
    for content in (b"old", b"new"):
        with files.replacing(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_is_read_on_windows(windows, tmp_path, monkeypatch):
    """For example a virus scanner: a retry succeeds, or the error says so and the old file is intact."""
    replace, pauses, busy = os.replace, [], [True, True]

    def while_read(source, target):
        if busy:
            busy.pop()
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", while_read)
    monkeypatch.setattr(files.time, "sleep", pauses.append)
    with files.replacing(tmp_path / "file") as file:
        file.write(b"old")
    assert len(pauses) == 2
    busy += [True] * 10
    with pytest.raises(SaveError, match="Access is denied"), files.replacing(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_exclusive_use_on_windows(windows, tmp_path, owner):
    with pytest.raises(AffectError, match=f"process {owner.pid}"), files.exclusive_use(tmp_path):
        pass
    owner.communicate()
    with files.exclusive_use(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
