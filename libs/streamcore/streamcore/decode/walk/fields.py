"""Reads the value of one field."""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.compiler import compiled, inlined
from streamcore.decode.walk.elements import split_value
from streamcore.decode.walk.grammar import (
    INVALID,
    MINUS,
    OPEN_ARRAY,
    OPEN_OBJECT,
    QUOTE,
    is_digit,
    skip_digits,
    skip_literal,
    skip_string,
    skip_value,
)
from streamcore.decode.walk.numbers import read_decimal, read_double, read_whole
from streamcore.decode.walk.texts import unescape
from streamcore.decode.walk.times import LOCAL_TIME, NO_TIME, read_time
from streamcore.decode.walk.tree import (
    DECIMAL,
    DOUBLE,
    FIELD,
    KIND,
    PRECISION,
    SCALE,
    TEXT,
    TIME,
    WHOLE,
    WHOLE_ARRAY,
    WHOLE_MAP,
    WHOLE_OBJECT,
    Int64s,
)
from streamcore.decode.walk.words import Bytes, byte
from streamcore.timestamps import MAX_MS, MIN_MS

#: What a record has of a field: nothing, a value, or a local time, which is to be converted to UTC.
ABSENT, PRESENT, LOCAL = 0, 1, 2
_LETTER_N, _LETTER_T, _LETTER_F = ord("n"), ord("t"), ord("f")
#: No zone is farther ahead of UTC, or behind it.
_DAY_MS: Final = 86_400_000


@inlined
def read_field(
    data: Bytes,
    at: int,
    node: int,
    begin: int,
    row: int,
    nodes: Int64s,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    resolved: Bytes,
    resolved_end: Int64s,
    items: Int64s,
    items_end: Int64s,
    depth: int,
    max_depth: int,
) -> int:
    """Read a value into row ``row`` of its field; return the position behind it, or ``INVALID``.

    ``values``, of each field: whole numbers, decimals and times as they are, doubles as bits, truth as 0 or 1, and the
    position of strings: from ``begin`` on that in the record, or, as -1 minus the position, that in ``resolved``. Of a
    struct: the position of its opening bracket; of an array or a map: the column of its first element in ``items``
    (``split_value``). ``lengths``: those of strings and structs, and the numbers of elements. ``items_end[0]``: the
    column of the next element.
    ``found``: ``ABSENT`` (which is not written), ``PRESENT`` or ``LOCAL``. ``resolved``: strings that have escape
    sequences in the record; ``resolved_end[0]``: where the next one begins. ``depth``: the number of open brackets
    around the value.
    """
    kind, field, char = nodes[node, KIND], nodes[node, FIELD], byte(data, at)
    if char == _LETTER_N:
        return skip_literal(data, at)  # null is as good as absent
    state, value = PRESENT, 0
    if kind == TEXT:
        if char != QUOTE:
            return INVALID
        behind, escaped = skip_string(data, at + 1)
        value, length = begin + at + 1, behind - at - 2
        if behind >= 0 and escaped:
            start = resolved_end[0]
            resolved_end[0] = unescape(data, at + 1, behind - 1, resolved, start)
            value, length = -1 - start, resolved_end[0] - start
        lengths[field, row] = length
    elif kind == WHOLE:
        behind, value = read_whole(data, at)
    elif kind == DOUBLE:
        behind, value = read_double(data, at)
    elif kind == DECIMAL:
        behind, value = read_decimal_or_text(data, at, nodes[node, PRECISION], nodes[node, SCALE])
    elif kind == TIME:
        behind, value, state = read_time_or_number(data, at, nodes[node, PRECISION], nodes[node, SCALE])
    elif kind == WHOLE_ARRAY or kind == WHOLE_MAP:
        if char != (OPEN_ARRAY if kind == WHOLE_ARRAY else OPEN_OBJECT):
            return INVALID
        value = items_end[0]
        behind, items_end[0] = split_value(data, at, depth, max_depth, begin, items, value)
        lengths[field, row] = items_end[0] - value
    elif kind == WHOLE_OBJECT:
        if char != OPEN_OBJECT:
            return INVALID
        behind, value = skip_value(data, at, depth, max_depth), begin + at
        lengths[field, row] = behind - at
    else:
        if char != _LETTER_T and char != _LETTER_F:
            return INVALID
        behind = skip_literal(data, at)
        value = 1 if char == _LETTER_T else 0
    values[field, row] = value
    found[field, row] = state
    return behind


@inlined
def read_decimal_or_text(data: Bytes, at: int, precision: int, scale: int) -> tuple[int, int]:
    """Return the position behind a number, or a number as text, and the number times 10**scale."""
    if byte(data, at) != QUOTE:
        return read_decimal(data, at, precision, scale)
    behind, value = read_decimal(data, at + 1, precision, scale)
    return (behind + 1, value) if behind >= 0 and byte(data, behind) == QUOTE else (INVALID, 0)


@inlined
def is_number_text(data: Bytes, at: int) -> bool:
    """Return whether the text from here on is a whole number, up to its closing quote."""
    if byte(data, at) == MINUS:
        at += 1
    at = skip_digits(data, at)
    return at >= 0 and byte(data, at) == QUOTE


@compiled
def read_time_or_number(data: Bytes, at: int, factor: int, divisor: int) -> tuple[int, int, int]:
    """Return the position behind a time as text or a number, its milliseconds, and ``PRESENT`` or ``LOCAL``.

    A number times ``factor``, divided by ``divisor``, is milliseconds. It may be text unless both are 1.
    """
    char = byte(data, at)
    quoted = char == QUOTE and (factor > 1 or divisor > 1) and is_number_text(data, at + 1)
    if quoted or char == MINUS or is_digit(char):
        behind, number = read_whole(data, at + 1 if quoted else at)
        if quoted:
            behind = behind + 1 if behind >= 0 and byte(data, behind) == QUOTE else INVALID
        if behind < 0 or number < MIN_MS or (factor > 1 and number > MAX_MS):  # the product would not fit
            return INVALID, 0, ABSENT
        millis = number * factor // divisor
        return behind if millis <= MAX_MS else INVALID, millis, PRESENT
    if char != QUOTE:
        return INVALID, 0, ABSENT
    behind, escaped = skip_string(data, at + 1)
    if behind < 0 or escaped:
        return INVALID, 0, ABSENT
    millis, what = read_time(data, at + 1, behind - 1)
    if what == NO_TIME:
        return INVALID, 0, ABSENT
    if what == LOCAL_TIME:
        return behind if MIN_MS - _DAY_MS <= millis <= MAX_MS + _DAY_MS else INVALID, millis, LOCAL
    return behind if MIN_MS <= millis <= MAX_MS else INVALID, millis, PRESENT
