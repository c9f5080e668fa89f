"""Encode values as JSON with their type: a decoded value equals the original and has the same class.

JSON types are encoded as they are; anything else is an object with one key, its tag. Classes are looked up in
tables here, never by a name from a file.
"""

import datetime
import math
import zoneinfo
from collections.abc import Callable
from typing import Any

import numpy as np

from affect_xp.exceptions import InputError

Json = Any  # a value of the json module

# Every JSON reader represents integers up to this one exactly.
EXACT = 2**53
# Integers of more bits are not saved: no id, seed or parameter needs them.
MAX_BITS = 256

NUMPY_KINDS = "biufMm"  # booleans, numbers, datetime64 and timedelta64


def encode(value: Any, what: str) -> Json:
    """Return a value as JSON; `what` names it in messages."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return _encode_numpy(value, what)
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise _unsavable(value, what)
    return encoder(value, what)


def decode(stored: Json) -> Any:
    """Return the decoded value; invalid input raises an error of any kind."""
    if isinstance(stored, list):
        return [decode(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    ((tag, content),) = stored.items()
    return _DECODERS[tag](content)


def _unsavable(value: Any, what: str) -> InputError:
    return InputError(
        f"{what} {value!r} has type {type(value).__name__}, which cannot be saved; use numbers, "
        "strings, dates of the datetime module, or tuples of these (a pandas Timestamp has to_pydatetime)"
    )


def _encode_int(value: int, what: str) -> Json:
    if value.bit_length() > MAX_BITS:
        raise InputError(f"{what} has {value.bit_length()} bits; use integers of at most {MAX_BITS} bits")
    return value if abs(value) < EXACT else {"int": hex(value)}


def _decode_int(content: Json) -> int:
    if len(content) > MAX_BITS or (value := int(content, 16)).bit_length() > MAX_BITS:
        raise ValueError(f"an integer of more than {MAX_BITS} bits")
    return value


def _encode_range(value: range, what: str) -> Json:
    return {"range": [_encode_int(number, what) for number in (value.start, value.stop, value.step)]}


def _encode_float(value: float, what: str) -> Json:
    return value if math.isfinite(value) else {"float": str(value)}


def _encode_datetime(value: datetime.datetime, what: str) -> Json:
    zone = value.tzinfo
    if zone is None or type(zone) is datetime.timezone:
        return {"datetime": [value.isoformat(), None, value.fold]}
    if not isinstance(zone, zoneinfo.ZoneInfo) or zone.key is None:
        raise _unsavable(value, what)
    return {"datetime": [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]}


def _decode_datetime(content: Json) -> datetime.datetime:
    text, zone, fold = content
    value = datetime.datetime.fromisoformat(text).replace(fold=fold)
    return value if zone is None else value.replace(tzinfo=zoneinfo.ZoneInfo(zone))


def _encode_numpy(value: np.generic, what: str) -> Json:
    if type(value) is np.str_:
        return {"numpy.str": "".join(value)}  # str() drops null characters at the end
    dtype = value.dtype.newbyteorder("<")
    if dtype.kind not in NUMPY_KINDS or dtype.itemsize > 8:
        raise _unsavable(value, what)
    return {"numpy": [dtype.str, np.asarray(value, dtype).tobytes().hex()]}


def _decode_numpy(content: Json) -> np.generic:
    dtype = np.dtype(content[0])
    if dtype.kind not in NUMPY_KINDS or dtype.itemsize > 8:
        raise ValueError(f"{dtype} is not the dtype of a number")
    return np.frombuffer(bytes.fromhex(content[1]), dtype).astype(dtype.newbyteorder("="))[()][0]


_PLAIN = (type(None), bool, str)

_ENCODERS: dict[type, Callable[[Any, str], Json]] = {
    int: _encode_int,
    float: _encode_float,
    list: lambda value, what: [encode(item, what) for item in value],
    tuple: lambda value, what: {"tuple": [encode(item, what) for item in value]},
    range: _encode_range,
    datetime.date: lambda value, what: {"date": value.isoformat()},
    datetime.datetime: _encode_datetime,
}

_DECODERS: dict[str, Callable[[Json], Any]] = {
    "int": _decode_int,
    "float": float,
    "tuple": lambda content: tuple(decode(item) for item in content),
    "range": lambda content: range(*decode(content)),
    "date": datetime.date.fromisoformat,
    "datetime": _decode_datetime,
    "numpy": _decode_numpy,
    "numpy.str": np.str_,
}
