"""Reads numbers and texts of binary records, and converts them to the physical values of fields.

Nothing is read behind the end of a record. Each function that cannot be sure returns ``INVALID``.
"""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.binary.steps import AS_DECIMAL, AS_DOUBLE, AS_IT_IS, AS_LOCAL, AS_TIME
from streamcore.decode.walk.compiler import compiled, inlined
from streamcore.decode.walk.fields import LOCAL, PRESENT
from streamcore.decode.walk.grammar import INVALID, skip_utf8
from streamcore.decode.walk.numbers import _POWERS_OF_TEN as POWERS_OF_TEN
from streamcore.decode.walk.numbers import read_decimal
from streamcore.decode.walk.texts import copy_bytes
from streamcore.decode.walk.times import LOCAL_TIME, NO_TIME, read_time
from streamcore.decode.walk.words import Bytes, byte, eight_bytes, lowest_bit, shift_left, shift_right
from streamcore.timestamps import MAX_MS, MIN_MS

#: What a walk says of a record: the reference decides, it is read, or a level has not enough room.
UNSURE, SURE, OUT_OF_ROOM = range(3)
#: Beside those of ``fields``: a whole number and a float that become doubles.
WHOLE_DOUBLE, FLOAT_BITS = 3, 4
#: Texts of numbers and times with more bytes are left to the reference.
MAX_SHORT_TEXT: Final = 60
_NOT_ASCII: Final = -0x7F7F7F7F7F7F7F80
_DAY_MS: Final = 86_400_000


@compiled
def read_long_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Do as ``read_varint``, for numbers of two and more bytes."""
    number = 0
    if at + 8 <= end:
        word = eight_bytes(data, at)
        ends = ~word & _NOT_ASCII
        if ends != 0:  # it has at most eight bytes: take seven bits of each together
            last = lowest_bit(ends)
            word &= shift_right(-1, 63 - last) & ~_NOT_ASCII
            word = (word & 0x007F007F007F007F) | shift_right(word & 0x7F007F007F007F00, 1)
            word = (word & 0x00003FFF00003FFF) | shift_right(word & 0x3FFF00003FFF0000, 2)
            word = (word & 0x000000000FFFFFFF) | shift_right(word & 0x0FFFFFFF00000000, 4)
            return at + (last >> 3) + 1, word
    for i in range(10):
        if at >= end:
            return INVALID, 0
        char = byte(data, at)
        at += 1
        number |= shift_left(char & 0x7F, 7 * i)
        if char < 0x80:
            return (at, number) if i < 9 or char <= 1 else (INVALID, 0)
    return INVALID, 0


@inlined
def read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the position behind a variable-length number, and its 64 bits."""
    if at < end:
        char = byte(data, at)
        if char < 0x80:
            return at + 1, char
    return read_long_varint(data, at, end)


@inlined
def unzigzag(number: int) -> int:
    """Return the number that a zigzag number stands for."""
    return shift_right(number, 1) ^ -(number & 1)


@inlined
def read_fixed(data: Bytes, at: int, count: int) -> int:
    """Return ``count`` bytes, the first one lowest."""
    if count == 8:
        return eight_bytes(data, at)
    number = 0
    for i in range(count):
        number |= shift_left(byte(data, at + i), 8 * i)
    return number


@compiled
def read_unscaled(data: Bytes, at: int, count: int) -> tuple[int, int]:
    """Return ``PRESENT`` or ``INVALID``, and a number in two's complement, the first byte highest, if it has at most 64
    bits."""
    if count < 1:
        return INVALID, 0
    first = at
    at += max(count - 8, 0)
    behind = first + count
    number = byte(data, at)
    if number >= 0x80:
        number -= 0x100
    sign = 0xFF if number < 0 else 0
    for i in range(first, at):
        if byte(data, i) != sign:
            return INVALID, 0
    for i in range(at + 1, behind):
        number = shift_left(number, 8) | byte(data, i)
    return PRESENT, number


@inlined
def is_finite_double(bits: int) -> bool:
    """Return whether the bits are those of a finite double."""
    return shift_right(bits, 52) & 0x7FF != 0x7FF


@inlined
def is_finite_float(bits: int) -> bool:
    """Return whether the bits are those of a finite float."""
    return bits >> 23 & 0xFF != 0xFF


@compiled
def is_utf8(data: Bytes, at: int, end: int) -> bool:
    """Return whether bytes are UTF-8. Near the end of the data, only ASCII is certain."""
    while at < end:
        if at + 8 <= end and eight_bytes(data, at) & _NOT_ASCII == 0:
            at += 8
        elif byte(data, at) < 0x80:
            at += 1
        else:
            if at + 4 > len(data):
                return False
            at = skip_utf8(data, at)
            if at < 0 or at > end:
                return False
    return True


@inlined
def is_text(data: Bytes, at: int, end: int) -> bool:
    """Do as ``is_utf8``, quickly for ASCII."""
    while at + 8 <= end:
        if eight_bytes(data, at) & _NOT_ASCII != 0:
            return is_utf8(data, at, end)
        at += 8
    if at == end:
        return True
    if at + 8 <= len(data) and eight_bytes(data, at) & _NOT_ASCII & (shift_left(1, 8 * (end - at)) - 1) == 0:
        return True
    return is_utf8(data, at, end)


@compiled
def rescale(units: int, from_scale: int, precision: int, scale: int) -> tuple[int, int]:
    """Return ``PRESENT`` or ``INVALID``, and the unscaled value at another scale."""
    shift = scale - from_scale
    if shift < 0:
        if shift < -18:
            return (PRESENT, 0) if units == 0 else (INVALID, 0)
        if units % POWERS_OF_TEN[-shift] != 0:
            return INVALID, 0
        units = units // POWERS_OF_TEN[-shift]
    elif units != 0:
        if shift >= precision:
            return INVALID, 0
        limit = POWERS_OF_TEN[precision - shift]
        if units >= limit or units <= -limit:
            return INVALID, 0
        units *= POWERS_OF_TEN[shift]
    if units >= POWERS_OF_TEN[precision] or units <= -POWERS_OF_TEN[precision]:
        return INVALID, 0
    return PRESENT, units


@inlined
def convert_whole(conversion: int, number: int, p: int, q: int, r: int) -> tuple[int, int]:
    """Return the state and the value of a whole number; the state may be ``INVALID``."""
    if conversion == AS_IT_IS:
        return PRESENT, number
    return convert_number(conversion, number, p, q, r)


@compiled
def convert_number(conversion: int, number: int, p: int, q: int, r: int) -> tuple[int, int]:
    """Do as ``convert_whole``, for a value that is not the number itself."""
    if conversion == AS_DOUBLE:
        return WHOLE_DOUBLE, number
    if conversion == AS_DECIMAL:
        return rescale(number, p, q, r)
    if p > 1 and (number > MAX_MS or number < -MAX_MS):  # the product would not fit
        return INVALID, 0
    millis = number * p // q
    if conversion == AS_LOCAL:
        return (LOCAL, millis) if MIN_MS - _DAY_MS <= millis <= MAX_MS + _DAY_MS else (INVALID, 0)
    return (PRESENT, millis) if MIN_MS <= millis <= MAX_MS else (INVALID, 0)


@inlined
def convert_text(conversion: int, data: Bytes, at: int, end: int, scratch: Bytes, q: int, r: int) -> tuple[int, int]:
    """Return the state and the value of a text: its position, or the number or the time that it is."""
    if conversion == AS_IT_IS:
        return (PRESENT, at) if is_text(data, at, end) else (INVALID, 0)
    return convert_short_text(conversion, data, at, end, scratch, q, r)


@compiled
def convert_short_text(
    conversion: int, data: Bytes, at: int, end: int, scratch: Bytes, q: int, r: int
) -> tuple[int, int]:
    """Return the state and the value of a text that is a number or a time."""
    count = end - at
    if count == 0 or count > MAX_SHORT_TEXT:
        return INVALID, 0
    copy_bytes(data, at, scratch, 0, count)
    scratch[count] = 0
    if conversion == AS_DECIMAL:
        behind, value = read_decimal(scratch, 0, q, r)
        return (PRESENT, value) if behind == count else (INVALID, 0)
    if conversion != AS_TIME:
        return INVALID, 0
    millis, what = read_time(scratch, 0, count)
    if what == NO_TIME:
        return INVALID, 0
    if what == LOCAL_TIME:
        return (LOCAL, millis) if MIN_MS - _DAY_MS <= millis <= MAX_MS + _DAY_MS else (INVALID, 0)
    return (PRESENT, millis) if MIN_MS <= millis <= MAX_MS else (INVALID, 0)
