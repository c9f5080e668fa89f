"""A file that takes the place of another in one stroke when it is complete, or not at all."""

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from affect_xp.exceptions import InputError, SaveError

try:
    import fcntl

    LOCKS = True
except ImportError:  # Windows
    LOCKS = False


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of `path` once it is on disk; on any error nothing changes."""
    target = Path(os.path.realpath(path))  # a link stays one
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
            if not LOCKS:  # Windows does not rename files that are open
                file.close()
            os.replace(temporary, target)
    except OSError as error:
        raise SaveError(
            error.errno,
            f"{os.fspath(path)!r} cannot be written: {error.strerror or error}; make room or choose another "
            "folder. What was there before is still whole",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the new name is on disk, too; not every system can: then it will be there before long."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _created(path: Path) -> BinaryIO:
    """Open a new file and lock it until it is closed; again, if it was swept up before it was locked."""
    while True:
        file = open(path, "x+b")  # noqa: SIM115  (the caller's to close)
        if not _lock(file) or os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _sweep(target: Path) -> None:
    """Delete what processes that were killed while they wrote the same target have left."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.????????.tmp"):
        with contextlib.suppress(OSError), open(left, "r+b") as file:
            # By now another may have swept it up, and its writer begun anew under the same name.
            if _lock(file, wait=False) and os.path.samestat(os.fstat(file.fileno()), left.stat()):
                left.unlink()


def _lock(file: BinaryIO, *, wait: bool = True) -> bool:
    """Lock a file until it is closed or the process ends; tell whether that worked."""
    if not LOCKS:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
