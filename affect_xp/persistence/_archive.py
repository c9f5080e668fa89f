"""One file: a zip archive of arrays (.npy) and a header (JSON), written atomically and verified before use.

The last 64 bytes are the hexadecimal SHA-256 of all bytes before them, and belong to the comment of the
archive. Nothing is compressed or pickled, so that no array can be larger than the file. Any tool that reads
.npz files can read the arrays.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy

from affect_xp.array.namespace import (
    array_namespace,
    device_of,
    from_host,
    is_by_columns,
    row_blocks,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array
from affect_xp.exceptions import AffectError, FileFormatError, InputError
from affect_xp.files import replacing
from affect_xp.persistence._values import EXACT, Json, decode

HEADER = "header.json"
MARK = b"affect_xp model, sha256 "
DIGEST = hashlib.sha256().digest_size * 2  # in hexadecimal
DTYPES = ("bool", "int8", "int16", "int32", "int64", "float32", "float64")
MIN_RANGE_LIMIT = 10_000  # entries of a range; more only in a file of more bytes
READ_BYTES = 2**20
ZIP64_FROM = 2**31 - 2**20


def write(path: str | os.PathLike[str], header: Json, arrays: Mapping[str, Array]) -> None:
    """Write a header and named arrays to a file, and replace `path` if this succeeds."""
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    with replacing(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, x in arrays.items():
                _write_array(archive, name, x)
            archive.writestr(_member(HEADER), text)
            archive.comment = MARK + b"0" * DIGEST
        size = file.seek(-DIGEST, os.SEEK_END)
        digest = _digest(file, size)
        file.seek(size)
        file.write(digest)


def _write_array(archive: zipfile.ZipFile, name: str, x: Array) -> None:
    """Write an array one block of rows at a time; keep the memory order, so that BLAS rounds identically."""
    by_columns = is_by_columns(x)
    shape, dtype = tuple(x.shape), np.dtype(str(x.dtype).rpartition(".")[2]).newbyteorder("<")
    if dtype.name not in DTYPES:
        raise InputError(f"an array of dtype {dtype} cannot be saved; use one of {', '.join(DTYPES)}")
    x = x.T if by_columns else x if x.ndim else x[None]
    n_columns = math.prod(x.shape[1:])
    large = x.shape[0] * n_columns * dtype.itemsize >= ZIP64_FROM
    with archive.open(_member(f"{name}.npy"), "w", force_zip64=large) as file:
        npy.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": by_columns, "shape": shape})
        for rows in row_blocks(x, n_columns=n_columns):
            file.write(to_host(x[rows, ...], reason="saving")[0].astype(dtype, copy=False).tobytes())


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member with open permissions and without a date, so that equal models give equal files."""
    member = zipfile.ZipInfo(name)
    member.external_attr = 0o644 << 16
    return member


class Reader:
    """A file opened for reading, in the library of `like`; call `verify` before any other method."""

    def __init__(self, path: str | os.PathLike[str], like: Array) -> None:
        self.path, self.like = os.fspath(path), like
        self._arrays: dict[str, Array] = {}
        try:
            self._file = open(self.path, "rb")  # noqa: SIM115  (closed on exit)
        except OSError as error:
            raise InputError(
                f"path={self.path!r} cannot be opened: {error.strerror}; check its name and permissions"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def verify(self) -> None:
        """Raise unless the file is a saved model with a valid checksum."""
        size = self._file.seek(0, os.SEEK_END) - DIGEST
        self._file.seek(max(0, size - len(MARK)))
        mark, digest = self._file.read(len(MARK)), self._file.read()
        if mark != MARK:
            raise FileFormatError(
                f"{self.path} is not a model saved by affect_xp, or its end is missing; "
                "use a file written by save, or an intact copy"
            )
        if _digest(self._file, size) != digest:
            raise FileFormatError(
                f"{self.path} is damaged: the checksum does not match the contents; use an intact copy, "
                "or start again from the data"
            )

    @functools.cached_property
    def _zip(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self._file)

    @functools.cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        """The members by name; raise if they claim to be larger than the file."""
        members = {member.filename: member for member in self._zip.infolist()}
        if len(members) < len(self._zip.infolist()):
            raise ValueError("two members have the same name")
        if any(m.compress_type != zipfile.ZIP_STORED for m in members.values()):
            raise ValueError("a member is compressed")
        if sum(m.file_size for m in members.values()) > os.fstat(self._file.fileno()).st_size:
            raise ValueError("the members are larger than the file")
        return members

    @contextlib.contextmanager
    def damage_explained(self) -> Iterator[None]:
        """Convert any error in the block to a FileFormatError: damage can cause errors of any kind."""
        try:
            yield
        except AffectError:
            raise
        except Exception as error:
            raise FileFormatError(
                f"{self.path} has a valid checksum, but its contents are inconsistent "
                f"({type(error).__name__}: {error}); save the model again"
            ) from error

    def header(self) -> Json:
        """Return the header; nothing in it may take more memory than the file."""
        return json.loads(
            self._zip.read(self._members[HEADER]),
            parse_int=_exact_int,
            parse_float=_finite_float,
            parse_constant=_finite_float,
            object_hook=self._bounded,
        )

    def _bounded(self, stored: dict[str, Json]) -> dict[str, Json]:
        """Return an object of the header; raise if it is a range with more entries than a file may name."""
        limit = max(MIN_RANGE_LIMIT, os.fstat(self._file.fileno()).st_size)
        if "range" in stored and (n := len(decode(stored))) > limit:
            raise ValueError(f"a range of {n} entries")
        return stored

    def holds(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return f"{name}.npy" in self._members

    def array(self, name: str | None) -> Array:
        """Return an array in the requested library, None for None; repeated calls return the same array."""
        if name is None:
            return None
        if name not in self._arrays:
            self._arrays[name] = self._read(name, self.like)
        return self._arrays[name]

    def host_array(self, name: str | None) -> Any:
        """Return an array of NumPy, None for None."""
        return None if name is None else self._read(name, np.empty(0))

    def _read(self, name: str, like: Array) -> Array:
        """Return an array in the library and on the device of `like`, read one block of rows at a time."""
        member = self._members[f"{name}.npy"]
        with self._zip.open(member) as file:
            shape, by_columns, dtype = _npy_header(file)
            if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
                raise ValueError(f"array {name} does not have the declared size")
            x = _filled(file, shape[::-1] if by_columns else shape or (1,), dtype, like)
        return x.T if by_columns else x if shape else x[0]

    def check_in_place(self) -> None:
        """Raise if the file at the path is no longer the one that was verified."""
        found = os.stat(self.path), os.fstat(self._file.fileno())
        if len({(file.st_ino, file.st_mtime_ns, file.st_size) for file in found}) > 1:
            raise FileFormatError(f"{self.path} was replaced while being read; load it again")


def _exact_int(text: str) -> int:
    """Return an integer that every JSON reader represents exactly; larger ones have a tag."""
    if len(text) > len(str(-EXACT)) or abs(int(text)) >= EXACT:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _finite_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return value


def _digest(file: BinaryIO, size: int) -> bytes:
    """Return the SHA-256 of the first `size` bytes, in hexadecimal."""
    found = hashlib.sha256()
    file.seek(0)
    while size > 0 and (data := file.read(min(size, READ_BYTES))):
        found.update(data)
        size -= len(data)
    return found.hexdigest().encode()


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Read the shape, the memory order and the dtype of an array from its NumPy header."""
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array has an unknown header")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a header as of Python 2 is not ours
        try:
            shape, by_columns, dtype = npy.read_array_header_1_0(file)
        except UserWarning as warning:
            raise ValueError("an array has an unknown header") from warning
    if dtype.name not in DTYPES or min(shape, default=0) < 0 or (by_columns and len(shape) != 2):
        raise ValueError(f"an array of dtype {dtype} and shape {shape}")
    return shape, by_columns, dtype


def _filled(file: Any, shape: tuple[int, ...], dtype: np.dtype, like: Array) -> Array:
    """Return an array like another one, filled from a file one block of rows at a time."""
    xp, n_columns = array_namespace(like), math.prod(shape[1:])
    # A device without float64 gets its widest float.
    kind = wide_dtype(like) if dtype.name == "float64" else getattr(xp, dtype.name)
    x = xp.empty(shape, dtype=kind, device=device_of(like))
    for rows in row_blocks(x, n_columns=n_columns):
        n_rows = rows.stop - rows.start
        data = np.frombuffer(file.read(n_rows * n_columns * dtype.itemsize), dtype)
        block = data.reshape(n_rows, *shape[1:]).astype(dtype.newbyteorder("="), copy=False)
        x[rows, ...] = from_host(block, like, kind)
    return x
