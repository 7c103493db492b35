"""Resolves the escape sequences of strings, and copies strings to a column."""

from __future__ import annotations

import numpy as np

from streamcore.decode.walk.compiler import compiled, entry, inlined
from streamcore.decode.walk.grammar import BACKSLASH, LETTER_U, hex_digits
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import VECTOR, Bytes, byte, copy_vector

_FIRST_CONTROL = ord("b")
#: What the escape sequences with the letters from b to t mean.
_CONTROLS = np.zeros(ord("t") - _FIRST_CONTROL + 1, np.uint8)
_CONTROLS[[ord(letter) - _FIRST_CONTROL for letter in "bfnrt"]] = [*b"\b\f\n\r\t"]


@compiled
def write_utf8(char: int, target: Bytes, to: int) -> int:
    """Write a character as UTF-8; return the position behind it."""
    if char < 0x80:
        target[to] = char
        return to + 1
    if char < 0x800:
        target[to] = 0xC0 | char >> 6
    else:
        if char < 0x10000:
            target[to] = 0xE0 | char >> 12
        else:
            target[to] = 0xF0 | char >> 18
            to += 1
            target[to] = 0x80 | (char >> 12 & 0x3F)
        to += 1
        target[to] = 0x80 | (char >> 6 & 0x3F)
    target[to + 1] = 0x80 | (char & 0x3F)
    return to + 2


@compiled
def unescape(data: Bytes, at: int, end: int, target: Bytes, to: int) -> int:
    """Write what a valid string from ``at`` to ``end`` means to the target; return the position behind it.

    What is written is never longer than the string.
    """
    while at < end:
        char = byte(data, at)
        if char != BACKSLASH:
            target[to] = char
            to += 1
            at += 1
            continue
        char = byte(data, at + 1)
        at += 2
        if char != LETTER_U:
            target[to] = _CONTROLS[char - _FIRST_CONTROL] if char >= _FIRST_CONTROL else char
            to += 1
            continue
        char = hex_digits(data, at)
        at += 4
        if 0xD800 <= char <= 0xDBFF:
            char = 0x10000 + (char - 0xD800) * 0x400 + hex_digits(data, at + 2) - 0xDC00
            at += 6
        to = write_utf8(char, target, to)
    return to


@inlined
def copy_bytes(source: Bytes, at: int, target: Bytes, to: int, count: int) -> None:
    """Copy bytes. The target has ``VECTOR`` bytes behind them, which may be written."""
    while count > 0 and at + VECTOR <= len(source):
        copy_vector(target, to, source, at)
        to += VECTOR
        at += VECTOR
        count -= VECTOR
    for i in range(count):
        target[to + i] = byte(source, at + i)


@entry("void(Array(uint8, 1, 'C', readonly=True), uint8[::1], int64[::1], int64[::1], uint8[::1])")
def copy_texts(source: Bytes, resolved: Bytes, starts: Int64s, offsets: Int64s, target: Bytes) -> None:
    """Copy strings behind each other.

    ``starts``: their positions in ``source``, or, as -1 minus the position, in ``resolved``. ``offsets``: those of
    Arrow. The target has ``VECTOR`` bytes behind the last string.
    """
    for row in range(len(starts)):
        start, to = starts[row], offsets[row]
        count = offsets[row + 1] - to
        if start >= 0:
            copy_bytes(source, start, target, to, count)
        else:
            copy_bytes(resolved, -1 - start, target, to, count)
