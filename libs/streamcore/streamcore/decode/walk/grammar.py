"""The grammar of JSON (RFC 8259), strictly, over bytes: where a value ends.

Each function takes the position of a value and returns the position behind it, or ``INVALID``. The byte behind a record
is zero while it is read, which is valid nowhere, so no function asks whether the record has ended.
"""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.compiler import compiled, inlined
from streamcore.decode.walk.words import VECTOR, Bytes, byte, eight_bytes, lowest_bit, special_bits

INVALID: Final = -1
QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT = (ord(char) for char in '"\\,:-+.')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (ord(char) for char in "{}[]")
LETTER_U = ord("u")
#: The open brackets of a skipped value are the bits of a word.
MAX_SKIPPED_DEPTH: Final = 60
_TRUE, _NULL, _FALSE = (int.from_bytes(word, "little") for word in (b"true", b"null", b"false"))


@inlined
def skip_space(data: Bytes, at: int) -> int:
    """Return the position of the first byte that is no white space."""
    while byte(data, at) <= 32:
        char = byte(data, at)
        if char != 32 and char != 10 and char != 13 and char != 9:
            break
        at += 1
    return at


@inlined
def is_digit(char: int) -> bool:
    """Return whether this is 0 to 9."""
    return 48 <= char <= 57


@compiled
def hex_digits(data: Bytes, at: int) -> int:
    """Return the value of four hexadecimal digits, or ``INVALID``."""
    value = 0
    for i in range(4):
        char = byte(data, at + i)
        if 48 <= char <= 57:
            digit = char - 48
        elif 97 <= (char | 32) <= 102:
            digit = (char | 32) - 87
        else:
            return INVALID
        value = value * 16 + digit
    return value


@compiled
def skip_utf8(data: Bytes, at: int) -> int:
    """Skip one character that is not ASCII (Unicode 16.0, table 3-7)."""
    first, second = byte(data, at), byte(data, at + 1)
    if 0xC2 <= first <= 0xDF:
        return at + 2 if second & 0xC0 == 0x80 else INVALID
    if second & 0xC0 != 0x80 or byte(data, at + 2) & 0xC0 != 0x80:
        return INVALID
    if 0xE0 <= first <= 0xEF:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return INVALID
        return at + 3
    if 0xF0 <= first <= 0xF4 and byte(data, at + 3) & 0xC0 == 0x80:
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return INVALID
        return at + 4
    return INVALID


@compiled
def skip_escape(data: Bytes, at: int) -> int:
    """Skip one escape sequence; the two of a pair of surrogates are one. A lone surrogate is invalid."""
    char = byte(data, at + 1)
    if char == LETTER_U:
        unit = hex_digits(data, at + 2)
        if unit < 0:
            return INVALID
        if unit < 0xD800 or unit > 0xDFFF:
            return at + 6
        if unit <= 0xDBFF and byte(data, at + 6) == BACKSLASH and byte(data, at + 7) == LETTER_U:
            low = hex_digits(data, at + 8)
            if 0xDC00 <= low <= 0xDFFF:
                return at + 12
        return INVALID
    # One of "\/bfnrt.
    if char == 34 or char == 92 or char == 47 or char == 98 or char == 102 or char == 110 or char == 114 or char == 116:
        return at + 2
    return INVALID


@inlined
def skip_plain(data: Bytes, at: int) -> int:
    """Return the position of the first special character (``special_bits``)."""
    bits = special_bits(data, at)
    while bits == 0:
        at += VECTOR
        bits = special_bits(data, at)
    return at + lowest_bit(bits)


@compiled
def skip_special(data: Bytes, at: int) -> tuple[int, bool]:
    """Skip the rest of a string from a special character."""
    escaped = False
    while True:
        char = byte(data, at)
        if char == QUOTE:
            return at + 1, escaped
        if char == BACKSLASH:
            escaped = True
            at = skip_escape(data, at)
        elif char >= 0x80:
            at = skip_utf8(data, at)
            while at >= 0 and byte(data, at) >= 0x80:
                at = skip_utf8(data, at)
        else:
            return INVALID, escaped
        if at < 0:
            return INVALID, escaped
        at = skip_plain(data, at)


@inlined
def skip_string(data: Bytes, at: int) -> tuple[int, bool]:
    """Skip a string from behind its opening quote. Also return whether it has escape sequences."""
    at = skip_plain(data, at)
    if byte(data, at) == QUOTE:
        return at + 1, False
    return skip_special(data, at)


@inlined
def skip_digits(data: Bytes, at: int) -> int:
    """Skip at least one digit."""
    if not is_digit(byte(data, at)):
        return INVALID
    while is_digit(byte(data, at)):
        at += 1
    return at


@inlined
def skip_number(data: Bytes, at: int) -> int:
    """Skip a number."""
    if byte(data, at) == MINUS:
        at += 1
    at = at + 1 if byte(data, at) == 48 else skip_digits(data, at)
    if at >= 0 and byte(data, at) == POINT:
        at = skip_digits(data, at + 1)
    if at >= 0 and byte(data, at) | 32 == 101:  # e or E
        at += 1
        if byte(data, at) == PLUS or byte(data, at) == MINUS:
            at += 1
        at = skip_digits(data, at)
    return at


@inlined
def skip_literal(data: Bytes, at: int) -> int:
    """Skip true, false or null."""
    word = eight_bytes(data, at)
    if word & 0xFFFFFFFF == _TRUE or word & 0xFFFFFFFF == _NULL:
        return at + 4
    return at + 5 if word & 0xFFFFFFFFFF == _FALSE else INVALID


@inlined
def skip_colon(data: Bytes, at: int) -> int:
    """Return the position of the value behind a colon."""
    at = skip_space(data, at)
    return skip_space(data, at + 1) if byte(data, at) == COLON else INVALID


@inlined
def skip_name(data: Bytes, at: int) -> int:
    """Return the position of the value behind a name and a colon."""
    if byte(data, at) != QUOTE:
        return INVALID
    behind, _ = skip_string(data, at + 1)
    return skip_colon(data, behind) if behind >= 0 else INVALID


@compiled
def skip_value(data: Bytes, at: int, depth: int, max_depth: int) -> int:
    """Skip a value of any type. ``depth``: the number of open brackets around it."""
    objects, level = 0, 0  # bit by bit, the innermost lowest: whether an open bracket is that of an object
    while True:
        char = byte(data, at)
        if char == QUOTE:
            at, _ = skip_string(data, at + 1)
        elif char == OPEN_OBJECT or char == OPEN_ARRAY:
            level += 1
            if depth + level > max_depth or level > MAX_SKIPPED_DEPTH:
                return INVALID
            objects = objects * 2 + (1 if char == OPEN_OBJECT else 0)
            at = skip_space(data, at + 1)
            if byte(data, at) != char + 2:
                if char == OPEN_OBJECT:
                    at = skip_name(data, at)
                    if at < 0:
                        return INVALID
                continue
        elif char == MINUS or is_digit(char):
            at = skip_number(data, at)
        else:
            at = skip_literal(data, at)
        if at < 0:
            return INVALID
        while True:
            if level == 0:
                return at
            at = skip_space(data, at)
            char = byte(data, at)
            if char == COMMA:
                at = skip_space(data, at + 1)
                if objects & 1:
                    at = skip_name(data, at)
                    if at < 0:
                        return INVALID
                break
            if char != (CLOSE_OBJECT if objects & 1 else CLOSE_ARRAY):
                return INVALID
            objects >>= 1
            level -= 1
            at += 1
