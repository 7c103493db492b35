"""Plain values: the values that a state without a declared column type can hold, and their binary form.

A plain value is None, a bool, an int of any size, a float, a ``Decimal``, text, bytes, a ``datetime`` with a zone, or a
tuple of plain values. All are immutable, so a value changes only by a write to the state, and a read returns exactly
what was written: equal in type, digits and bits. Lists, dictionaries and other classes are rejected: they can be
changed in place, and their stored form would depend on code (pickle).

The binary form: a type code of one byte, then a fixed number of bytes, or a length in LEB128 and that many bytes.
"""

from __future__ import annotations

import reprlib
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from streamcore.errors import CorruptState

#: The zone object of datetimes that Polars reads, so that values before and after storing have equal zones.
UTC_ZONE = ZoneInfo("UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNCHANGED = frozenset({type(None), bool, int, float, Decimal, bytes})


class ValueTypeMismatch(ValueError):
    """A value does not fit its declared type. The message gives the reason; callers prepend the state or column."""


def check_value(value: object) -> object:
    """Return a plain value as a later read returns it; ``ValueTypeMismatch`` if it is not plain."""
    value_class = type(value)
    if value_class in _UNCHANGED:
        return value
    if isinstance(value, str) and value_class is str:
        return check_text(value)
    if isinstance(value, datetime) and value_class is datetime:
        return in_utc(value)
    if isinstance(value, tuple) and value_class is tuple:
        return tuple([check_value(item) for item in value])
    raise ValueTypeMismatch(
        f"{describe(value)} cannot be stored as it is: state holds None, bool, int, float, Decimal, str, bytes, "
        "datetime and tuples of these; declare a ListState or MapState for lists and dictionaries"
    )


def check_text(value: str) -> str:
    """Return the text unchanged; ``ValueTypeMismatch`` for a lone surrogate, which UTF-8 cannot encode."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueTypeMismatch(f"{describe(value)} is not valid Unicode: {error.reason}") from None
    return value


def in_utc(value: datetime) -> datetime:
    """Return the same instant in UTC; ``ValueTypeMismatch`` without a zone."""
    if value.tzinfo is None:
        raise ValueTypeMismatch(f"{describe(value)} has no time zone; add one, for example tzinfo=UTC")
    return value.astimezone(UTC_ZONE)


def describe(value: object) -> str:
    """Return a short text of the value and its type, for messages."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def encode(value: object) -> bytes:
    """Return the binary form of a plain value."""
    value_class = type(value)
    if value_class is int and isinstance(value, int):
        return _with_length(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if value_class is str and isinstance(value, str):
        return _with_length(b"s", value.encode())
    if value_class is float:
        return b"f" + struct.pack("<d", value)
    if isinstance(value, tuple):
        return b"(" + _length(len(value)) + b"".join([encode(item) for item in value])
    if isinstance(value, Decimal):
        return _with_length(b"d", str(value).encode())
    if isinstance(value, datetime):
        return b"t" + struct.pack("<q", (value - _EPOCH) // _MICROSECOND)
    if isinstance(value, bytes):
        return _with_length(b"b", value)
    return {None: b"N", True: b"T", False: b"F"}[value]  # type: ignore[index]  # the other plain values are handled above


def decode(blob: bytes) -> object:
    """Return the plain value of a binary form; ``CorruptState`` if ``encode`` cannot have written it."""
    try:
        value, end = _read(blob, 0)
    except (IndexError, struct.error, ValueError, ArithmeticError) as error:
        raise CorruptState(f"a stored value cannot be decoded: {reprlib.repr(blob)}") from error
    if end != len(blob):
        raise CorruptState(f"a stored value is followed by {len(blob) - end} excess bytes: {reprlib.repr(blob)}")
    return value


_CONSTANTS: dict[int, object] = {ord("N"): None, ord("T"): True, ord("F"): False}


def _read(blob: bytes, offset: int) -> tuple[object, int]:
    """Return the value that begins at ``offset``, and the offset after it."""
    code = blob[offset]
    if code in _CONSTANTS:
        return _CONSTANTS[code], offset + 1
    if code == ord("f"):
        return struct.unpack_from("<d", blob, offset + 1)[0], offset + 9
    if code == ord("t"):
        (microseconds,) = struct.unpack_from("<q", blob, offset + 1)
        return in_utc(_EPOCH + microseconds * _MICROSECOND), offset + 9
    size, begin = _read_length(blob, offset + 1)
    if code == ord("("):
        return _read_items(blob, begin, size)
    end = begin + size
    if end > len(blob):
        raise IndexError("the value is truncated")
    return _from_bytes(code, blob[begin:end]), end


def _from_bytes(code: int, body: bytes) -> object:
    if code == ord("i"):
        return int.from_bytes(body, "little", signed=True)
    if code == ord("s"):
        return body.decode()
    if code == ord("d"):
        return Decimal(body.decode())
    if code == ord("b"):
        return body
    raise ValueError(f"unknown type code {code}")


def _read_items(blob: bytes, offset: int, count: int) -> tuple[tuple[object, ...], int]:
    items = []
    for _ in range(count):
        item, offset = _read(blob, offset)
        items.append(item)
    return tuple(items), offset


def _with_length(code: bytes, body: bytes) -> bytes:
    return code + _length(len(body)) + body


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    return bytes((size & 0x7F | 0x80,)) + _length(size >> 7)


def _read_length(blob: bytes, offset: int) -> tuple[int, int]:
    size = shift = 0
    while blob[offset] & 0x80:
        size |= (blob[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
    return size | blob[offset] << shift, offset + 1
