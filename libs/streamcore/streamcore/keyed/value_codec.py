"""Plain values: what state may hold when no column type is declared, and their binary form.

A plain value is None, a bool, an int of any size, a float, a ``Decimal``, text, bytes, a ``datetime`` with a zone, or a
tuple of plain values. All are immutable, so a value cannot change behind the state's back, and each reads back as it
was written: the same type, the same digits, the same bits. Lists, dictionaries and classes are refused: they can be
changed in place, and their stored form would hang on code (pickle), not on data.

The form: a type code of one byte, then a fixed number of bytes, or a length and so many bytes. Lengths are LEB128
numbers.
"""

from __future__ import annotations

import reprlib
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from streamcore.errors import CorruptState

#: The zone object that Polars gives to what it reads, so that a stored value is the same in every respect.
UTC_ZONE = ZoneInfo("UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_AS_THEY_ARE = frozenset({type(None), bool, int, float, Decimal, bytes})


class ValueTypeMismatch(ValueError):
    """A value that does not fit its declared type. The message gives the reason; the caller adds where."""


def check_value(value: object) -> object:
    """Return the value as it will read back; ``ValueTypeMismatch`` if it is not plain."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if isinstance(value, str) and kind is str:
        return check_text(value)
    if isinstance(value, datetime) and kind is datetime:
        return in_utc(value)
    if isinstance(value, tuple) and kind is tuple:
        return tuple([check_value(item) for item in value])
    raise ValueTypeMismatch(
        f"{describe(value)} cannot be stored as it is: state holds None, bool, int, float, Decimal, str, bytes, "
        "datetime and tuples of these; declare a ListState or MapState for lists and dictionaries"
    )


def check_text(value: str) -> str:
    """Return the text itself; ``ValueTypeMismatch`` for half a surrogate pair, which no encoding can store."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueTypeMismatch(f"{describe(value)} is no valid Unicode: {error.reason}") from None
    return value


def in_utc(value: datetime) -> datetime:
    """Return the same instant in UTC; ``ValueTypeMismatch`` without a zone."""
    if value.tzinfo is None:
        raise ValueTypeMismatch(f"{describe(value)} has no time zone; add one, for example tzinfo=UTC")
    return value.astimezone(UTC_ZONE)


def describe(value: object) -> str:
    """Return the value and its type, short."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def encode(value: object) -> bytes:
    """Return the binary form of a plain value."""
    kind = type(value)
    if kind is int and isinstance(value, int):
        return _with_length(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if kind is str and isinstance(value, str):
        return _with_length(b"s", value.encode())
    if kind is float:
        return b"f" + struct.pack("<d", value)
    if isinstance(value, tuple):
        return b"(" + _length(len(value)) + b"".join([encode(item) for item in value])
    if isinstance(value, Decimal):
        return _with_length(b"d", str(value).encode())
    if isinstance(value, datetime):
        return b"t" + struct.pack("<q", (value - _EPOCH) // _MICROSECOND)
    if isinstance(value, bytes):
        return _with_length(b"b", value)
    return {None: b"N", True: b"T", False: b"F"}[value]  # type: ignore[index]  # plain, and nothing else is left


def decode(blob: bytes) -> object:
    """Return the value that ``encode`` was given; ``CorruptState`` for anything that it did not write."""
    try:
        value, end = _read(blob, 0)
    except (IndexError, struct.error, ValueError, ArithmeticError) as error:
        raise CorruptState(f"a stored value does not read back: {reprlib.repr(blob)}") from error
    if end != len(blob):
        raise CorruptState(f"a stored value is followed by {len(blob) - end} bytes: {reprlib.repr(blob)}")
    return value


_CONSTANTS: dict[int, object] = {ord("N"): None, ord("T"): True, ord("F"): False}


def _read(blob: bytes, at: int) -> tuple[object, int]:
    """Return the value that begins at a place, and the place behind it."""
    code = blob[at]
    if code in _CONSTANTS:
        return _CONSTANTS[code], at + 1
    if code == ord("f"):
        return struct.unpack_from("<d", blob, at + 1)[0], at + 9
    if code == ord("t"):
        (microseconds,) = struct.unpack_from("<q", blob, at + 1)
        return in_utc(_EPOCH + microseconds * _MICROSECOND), at + 9
    size, begin = _read_length(blob, at + 1)
    if code == ord("("):
        return _read_items(blob, begin, size)
    end = begin + size
    if end > len(blob):
        raise IndexError("cut off")
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


def _read_items(blob: bytes, at: int, count: int) -> tuple[tuple[object, ...], int]:
    items = []
    for _ in range(count):
        item, at = _read(blob, at)
        items.append(item)
    return tuple(items), at


def _with_length(code: bytes, body: bytes) -> bytes:
    return code + _length(len(body)) + body


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    return bytes((size & 0x7F | 0x80,)) + _length(size >> 7)


def _read_length(blob: bytes, at: int) -> tuple[int, int]:
    size = shift = 0
    while blob[at] & 0x80:
        size |= (blob[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return size | blob[at] << shift, at + 1
