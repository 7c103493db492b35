"""Spoils binary records: other bytes, fewer, more, and lengths and counts that are huge or negative."""

from __future__ import annotations

import random

_HUGE = (
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 11,
    b"\x80\x00",
    b"\xfe\xff\x07",
    b"\x01",
)


def spoil(record: bytes, chance: random.Random, from_byte: int = 0) -> bytes:
    """Return the record with a mistake behind ``from_byte``; it may be valid all the same."""
    data = bytearray(record)
    match chance.randrange(5):
        case 0 if len(data) > from_byte:
            data[chance.randrange(from_byte, len(data))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
        case 1:
            del data[chance.randrange(from_byte, len(data) + 1) :]
        case 2:
            data += chance.randbytes(chance.randrange(1, 12))
        case 3 if len(data) > from_byte:
            at = chance.randrange(from_byte, len(data))
            data[at : at + chance.randrange(2)] = chance.choice(_HUGE)
        case _:
            at = chance.randrange(from_byte, len(data) + 1)
            data[at:at] = chance.randbytes(chance.randrange(1, 4))
    return bytes(data)
