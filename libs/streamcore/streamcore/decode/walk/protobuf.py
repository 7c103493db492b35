"""Walks through Protobuf messages of one type, field by field."""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.binary import (
    FLOAT_BITS,
    NO_DEFAULT,
    convert_text,
    convert_whole,
    is_finite_double,
    is_finite_float,
    read_fixed,
    read_varint,
    unzigzag,
)
from streamcore.decode.walk.compiler import compiled, entry
from streamcore.decode.walk.fields import ABSENT, PRESENT
from streamcore.decode.walk.grammar import INVALID
from streamcore.decode.walk.steps import (
    AS_IT_IS,
    AS_TIME,
    CHILDREN,
    CONVERSION,
    FIELD,
    FIRST_CHILD,
    MESSAGE,
    NUMBER,
    OP,
    PRESENCE,
    READ_DOUBLE,
    READ_ENUM,
    READ_FIXED32,
    READ_FIXED64,
    READ_FLOAT,
    READ_STAMP,
    READ_TEXT,
    READ_TRUTH,
    SIGNED_32,
    UNSIGNED_32,
    UNSIGNED_64,
    WIRE,
    ZIGZAG_32,
    ZIGZAG_64,
    Int64s,
    P,
    Q,
    R,
    S,
)
from streamcore.decode.walk.words import Bytes, shift_right
from streamcore.timestamps import MAX_MS

VARINT, FIXED64, PREFIXED, FIXED32 = 0, 1, 2, 5
_MAX_NUMBER: Final = 2**29 - 1
_LOW: Final = 2**32 - 1


@compiled
def skip_wire(data: Bytes, at: int, end: int, wire: int) -> int:
    """Skip a value; return the position behind it, or ``INVALID``."""
    count = 0
    if wire == VARINT:
        at, count = read_varint(data, at, end)
        return at
    if wire == PREFIXED:
        at, count = read_varint(data, at, end)
        if at < 0 or count < 0:
            return INVALID
    elif wire == FIXED64:
        count = 8
    elif wire == FIXED32:
        count = 4
    else:
        return INVALID
    return at + count if count <= end - at else INVALID


@compiled
def read_stamp(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return ``PRESENT`` or ``INVALID``, and the milliseconds of a ``google.protobuf.Timestamp``."""
    seconds, nanos = 0, 0
    while at < end:
        at, tag = read_varint(data, at, end)
        if at < 0 or (tag != 8 and tag != 16):
            return INVALID, 0
        at, number = read_varint(data, at, end)
        if at < 0:
            return INVALID, 0
        if tag == 8:
            seconds = number
        else:
            nanos = number
    if seconds < 0 or seconds > MAX_MS or nanos < 0 or nanos > 1_000_000_000:
        return INVALID, 0
    return convert_whole(AS_TIME, seconds * 1_000 + nanos // 1_000_000, 1, 1, 0)


@compiled
def decode_varint(kind: int, number: int) -> int:
    """Return the number that a varint stands for."""
    if kind == ZIGZAG_64:
        return unzigzag(number)
    if kind == ZIGZAG_32:
        return unzigzag(number & _LOW)
    if kind == UNSIGNED_32:
        return number & _LOW
    if kind == SIGNED_32:
        number &= _LOW
        return number - 2**32 if number >= 2**31 else number
    return number


@compiled
def find_symbol(symbols: Int64s, first: int, count: int, number: int) -> int:
    """Return the row of the symbol with a number, or ``INVALID``."""
    for row in range(first, first + count):
        if symbols[row, 0] == number:
            return row
    return INVALID


@compiled
def add_defaults(
    node: int, row: int, nodes: Int64s, symbols: Int64s, values: Int64s, lengths: Int64s, found: Bytes
) -> None:
    """Give the fields of a message that have no presence, and no value yet, their defaults."""
    first = nodes[node, FIRST_CHILD]
    for child in range(first, first + nodes[node, CHILDREN]):
        if nodes[child, PRESENCE] != 0 or found[nodes[child, FIELD], row] != ABSENT:
            continue
        op, field, state, value = nodes[child, OP], nodes[child, FIELD], PRESENT, 0
        if op == READ_TEXT:
            lengths[field, row] = 0
            if nodes[child, CONVERSION] != AS_IT_IS:
                state = NO_DEFAULT
        elif op == READ_ENUM:
            symbol = find_symbol(symbols, nodes[child, S], nodes[child, P], 0)
            state = NO_DEFAULT if symbol < 0 else PRESENT
            value = -1 - symbols[max(symbol, 0), 1]
            lengths[field, row] = symbols[max(symbol, 0), 2]
        values[field, row] = value
        found[field, row] = state


@compiled
def walk_message(  # noqa: PLR0915 - one loop over all operations: a call for each would cost more than they do
    data: Bytes,
    at: int,
    end: int,
    row: int,
    nodes: Int64s,
    symbols: Int64s,
    stack: Int64s,
    scratch: Bytes,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
) -> bool:
    """Read the message from ``at`` to ``end`` into row ``row``; return whether it is sure.

    ``nodes``: the steps; the first one is the message. ``stack``: room for the open messages. Others: as of
    ``avro.walk_datum``.
    """
    node, level, stop = 0, 0, end
    add_defaults(node, row, nodes, symbols, values, lengths, found)
    guess = nodes[node, FIRST_CHILD]
    while True:
        if at >= stop:
            if at > stop:
                return False
            if level == 0:
                return True
            level -= 1
            guess = node + 1
            node, stop = stack[2 * level], stack[2 * level + 1]
            continue
        at, tag = read_varint(data, at, stop)
        number, wire = shift_right(tag, 3), tag & 7
        if at < 0 or number < 1 or number > _MAX_NUMBER:
            return False
        first = nodes[node, FIRST_CHILD]
        behind = first + nodes[node, CHILDREN]
        child = guess if first <= guess < behind and nodes[guess, NUMBER] == number else first
        while child < behind and nodes[child, NUMBER] != number:
            child += 1
        if child == behind or nodes[child, WIRE] != wire:
            at = skip_wire(data, at, stop, wire)
            if at < 0:
                return False
            continue
        guess = child + 1
        op, field, state, value = nodes[child, OP], nodes[child, FIELD], ABSENT, 0
        if wire == FIXED64 or wire == FIXED32:
            size = 8 if wire == FIXED64 else 4
            if size > stop - at:
                return False
            number = read_fixed(data, at, size)
            at += size
        else:
            at, number = read_varint(data, at, stop)
            if at < 0:
                return False
        if wire == PREFIXED:
            if number < 0 or number > stop - at:
                return False
            if op == MESSAGE:
                stack[2 * level], stack[2 * level + 1] = node, stop
                level += 1
                node, stop = child, at + number
                guess = nodes[node, FIRST_CHILD]
                add_defaults(node, row, nodes, symbols, values, lengths, found)
                continue
            if op == READ_STAMP:
                state, value = read_stamp(data, at, at + number)
            else:
                state, value = convert_text(
                    nodes[child, CONVERSION], data, at, at + number, scratch, nodes[child, Q], nodes[child, R]
                )
                lengths[field, row] = number
            at += number
        elif op == READ_DOUBLE:
            state, value = PRESENT, number
            if not is_finite_double(number):
                return False
        elif op == READ_FLOAT:
            state, value = FLOAT_BITS, number
            if not is_finite_float(number):
                return False
        elif op == READ_TRUTH:
            state, value = PRESENT, 1 if number != 0 else 0
        elif op == READ_ENUM:
            symbol = find_symbol(symbols, nodes[child, S], nodes[child, P], decode_varint(SIGNED_32, number))
            if symbol < 0:
                return False
            state, value = PRESENT, -1 - symbols[symbol, 1]
            lengths[field, row] = symbols[symbol, 2]
        else:
            if op == READ_FIXED32:
                if nodes[child, S] == 0 and number >= 2**31:
                    number -= 2**32
            elif op == READ_FIXED64:
                if nodes[child, S] != 0 and number < 0:
                    return False
            else:
                if nodes[child, S] == UNSIGNED_64 and number < 0:
                    return False
                number = decode_varint(nodes[child, S], number)
            state, value = convert_whole(
                nodes[child, CONVERSION], number, nodes[child, P], nodes[child, Q], nodes[child, R]
            )
        if state < 0:
            return False
        values[field, row] = value
        found[field, row] = state


@entry(
    "void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1],"
    " int64[::1], int64[:, ::1], int64[:, ::1], uint8[:, ::1], boolean[::1])"
)
def walk_messages(
    source: Bytes,
    offsets: Int64s,
    prefix_bytes: int,
    nodes: Int64s,
    symbols: Int64s,
    stack: Int64s,
    scratch: Bytes,
    required: Int64s,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    sure: Bytes,
) -> None:
    """Read the fields of all records, each a prefix and a message; set ``sure`` (see ``batch.walk_batch``)."""
    for row in range(len(offsets) - 1):
        at, end = offsets[row] + prefix_bytes, offsets[row + 1]
        good = at <= end
        if good:
            good = walk_message(source, at, end, row, nodes, symbols, stack, scratch, values, lengths, found)
        for i in range(len(found)):
            good = good and found[i, row] != NO_DEFAULT
        if good:
            for i in range(len(required)):
                good = good and found[required[i], row] != ABSENT
        sure[row] = good
