"""Files shared by several processes: replace a file atomically, use a folder exclusively."""

import contextlib
import glob
import os
import platform
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from affect_xp.exceptions import AffectError, InputError, SaveError

WINDOWS = os.name == "nt"
LOCK = ".affect-xp.lock"  # exists in a folder that is in use
_BEYOND = 2**40  # the locked byte on Windows, beyond the end of the file: locked bytes cannot be read
_PAUSES = (0.01, 0.04, 0.2, 0.8)  # seconds; on Windows a file that is being read cannot be replaced


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` once it is on disk; on any error nothing changes."""
    target = Path(os.path.realpath(path))  # keep a symbolic link
    if target.is_dir():
        raise InputError(f"path={os.fspath(path)!r} is a folder; give the name of a file in it")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        _sweep(target)
        with _created(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, temporary)
            if WINDOWS:  # cannot rename open files
                file.close()
            _rename(temporary, target)
    except OSError as error:
        raise SaveError(
            error.errno,
            f"{os.fspath(path)!r} cannot be written: {error.strerror or error}; free some space or choose "
            "another folder. Any existing file is unchanged",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _rename(source: Path, target: Path) -> None:
    """Rename a file; on Windows, retry while another process reads the target."""
    for pause in _PAUSES if WINDOWS else ():
        try:
            return os.replace(source, target)
        except PermissionError:
            time.sleep(pause)
    return os.replace(source, target)


def _sync_folder(folder: Path) -> None:
    """Flush the directory entry to disk too, where the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _created(path: Path) -> BinaryIO:
    """Open a new file and lock it until it is closed; retry if it was deleted before it was locked."""
    while True:
        file = open(path, "x+b")  # noqa: SIM115  (closed by the caller)
        if WINDOWS or not _lock(file) or os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _sweep(target: Path) -> None:
    """Delete temporary files left by processes that were killed while writing the same target."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????.tmp"):
        with contextlib.suppress(OSError):
            if WINDOWS:
                left.unlink()  # fails if it is open
                continue
            with open(left, "r+b") as file:
                # Another process may have deleted the file, and its writer recreated it.
                if _lock(file, wait=False) and _is_at(file, left):
                    left.unlink()


@contextlib.contextmanager
def exclusive_use(folder: Path) -> Iterator[None]:
    """Use a folder; raise an `AffectError` with the process id of the owner if another process uses it.

    The system releases the lock when the process ends, for whatever reason, so a file left behind by a
    killed process is not locked.
    """
    path = folder / LOCK
    with _locked(path) as file:
        file.truncate(0)
        file.write(f"{os.getpid()} on {platform.node()}".encode())
        file.flush()
        try:
            yield
        finally:
            if not WINDOWS:
                path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if WINDOWS:
            path.unlink()


def _locked(path: Path) -> BinaryIO:
    """Open a file and lock it."""
    while True:
        file = open(path, "a+b")  # noqa: SIM115  (closed by the caller)
        if not _lock(file, wait=False):
            with file:
                file.seek(0)
                owner = file.read().decode(errors="replace") or "(unknown)"
            raise AffectError(
                f"process {owner} is writing to {path.parent}; wait until it ends, or choose another folder"
            )
        if _is_at(file, path):
            return file
        file.close()  # its owner has just ended and deleted it


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: BinaryIO, *, wait: bool = True) -> bool:
    """Lock a file until it is closed or the process ends; return False if another process has locked it."""
    try:
        if WINDOWS:
            import msvcrt

            file.seek(_BEYOND)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            file.seek(0)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
