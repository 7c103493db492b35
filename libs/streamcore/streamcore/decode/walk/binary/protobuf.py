"""Walks through Protobuf messages of one type, field by field."""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.binary.columns import (
    CAPACITY,
    COUNT,
    WANTED,
    WIDTH,
    begin_record,
    has_required,
    take_back,
)
from streamcore.decode.walk.binary.primitives import (
    FLOAT_BITS,
    OUT_OF_ROOM,
    SURE,
    UNSURE,
    convert_text,
    convert_whole,
    is_finite_double,
    is_finite_float,
    read_fixed,
    read_varint,
    unzigzag,
)
from streamcore.decode.walk.binary.steps import (
    AS_IT_IS,
    AS_TIME,
    BASE,
    CHILDREN,
    CONVERSION,
    EXPLICIT,
    FIRST_CHILD,
    IMPLICIT,
    LEVEL,
    LIST,
    MESSAGE,
    NEEDED,
    NUMBER,
    ONEOF_BASE,
    OP,
    OTHER,
    PRESENCE,
    READ_DOUBLE,
    READ_ENUM,
    READ_FIXED32,
    READ_FIXED64,
    READ_FLOAT,
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
from streamcore.decode.walk.compiler import compiled, entry, inlined
from streamcore.decode.walk.fields import ABSENT, PRESENT
from streamcore.decode.walk.grammar import INVALID
from streamcore.decode.walk.words import Bytes, shift_right
from streamcore.timestamps import MAX_MS

VARINT, FIXED64, PREFIXED, FIXED32 = 0, 1, 2, 5
_MAX_NUMBER: Final = 2**29 - 1
_LOW: Final = 2**32 - 1


@inlined
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


@inlined
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


@inlined
def find_symbol(symbols: Int64s, first: int, count: int, number: int) -> int:
    """Return the row of the symbol with a number, or ``INVALID``."""
    if 0 <= number < count and symbols[first + number, 0] == number:
        return first + number
    for row in range(first, first + count):
        if symbols[row, 0] == number:
            return row
    return INVALID


@compiled
def add_defaults(
    node: int, row: int, nodes: Int64s, symbols: Int64s, values: Int64s, lengths: Int64s, found: Bytes
) -> bool:
    """Give the fields of a message that have no presence, and no value yet, their defaults; return whether they are
    sure."""
    first = nodes[node, FIRST_CHILD]
    for child in range(first, first + nodes[node, CHILDREN]):
        index = nodes[child, BASE] + row
        if nodes[child, PRESENCE] == EXPLICIT or found[index] != ABSENT:
            continue
        op, value = nodes[child, OP], 0
        if nodes[child, PRESENCE] == NEEDED or (op == READ_TEXT and nodes[child, CONVERSION] != AS_IT_IS):
            return False
        if op == READ_ENUM:
            symbol = nodes[child, R]
            if symbol < 0:
                return False
            value = -1 - symbols[symbol, 1]
            lengths[index] = symbols[symbol, 2]
        values[index] = value
        found[index] = PRESENT
    return True


@inlined
def walk_message(  # noqa: PLR0915 - one loop over all operations: a call for each would cost more than they do
    data: Bytes,
    at: int,
    end: int,
    row: int,
    nodes: Int64s,
    symbols: Int64s,
    levels: Int64s,
    stack: Int64s,
    scratch: Bytes,
    values_left: int,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
) -> int:
    """Read the message from ``at`` to ``end`` into row ``row``; return ``SURE``, ``UNSURE`` or ``OUT_OF_ROOM``.

    ``nodes``: the steps; the first one is the message. ``stack``: room for the open messages. Others: as of
    ``avro.walk_datum``.
    """
    node, top, stop = 0, 0, end
    first = nodes[node, FIRST_CHILD]
    behind = first + nodes[node, CHILDREN]
    guess = first
    missing = nodes[node, IMPLICIT]  # the fields without presence that have not come yet, or more
    packed, packed_end = 0, 0  # the list whose elements follow without tags
    while True:
        if at < packed_end:
            child, wire, limit = packed, nodes[nodes[packed, FIRST_CHILD], WIRE], packed_end
        elif at >= stop:
            if at > stop or (missing > 0 and not add_defaults(node, row, nodes, symbols, values, lengths, found)):
                return UNSURE
            if top == 0:
                return SURE
            top -= 5
            node, stop, row, guess, missing = stack[top], stack[top + 1], stack[top + 2], stack[top + 3], stack[top + 4]
            first = nodes[node, FIRST_CHILD]
            behind = first + nodes[node, CHILDREN]
            continue
        else:
            at, tag = read_varint(data, at, stop)
            number, wire, limit = shift_right(tag, 3), tag & 7, stop
            if at < 0 or number < 1 or number > _MAX_NUMBER:
                return UNSURE
            if guess > first and nodes[guess - 1, NUMBER] >= number:
                guess = first
            while guess < behind and nodes[guess, NUMBER] < number:
                guess += 1
            child = guess
            if child == behind or nodes[child, NUMBER] != number:
                child = -1
            elif nodes[child, WIRE] != wire:
                if nodes[child, OP] != LIST or wire != PREFIXED or nodes[child, WIRE] == PREFIXED:
                    child = -1
                else:
                    at, number = read_varint(data, at, stop)
                    if at < 0 or number < 0 or number > stop - at:
                        return UNSURE
                    packed, packed_end = child, at + number
                    continue
            elif nodes[child, ONEOF_BASE] >= 0:
                index = nodes[child, ONEOF_BASE] + row
                if found[index] != ABSENT and values[index] != number:
                    return UNSURE  # it takes back the value of another member
                values[index] = number
                found[index] = PRESENT
                if nodes[child, OP] == OTHER:
                    child = -1
            if child < 0:
                at = skip_wire(data, at, stop, wire)
                if at < 0:
                    return UNSURE
                continue
        target = row
        if nodes[child, OP] == LIST:
            level, index = nodes[child, LEVEL], nodes[child, BASE] + row
            target = levels[level, COUNT]
            values_left -= levels[level, WIDTH]
            if values_left < 0:
                return UNSURE
            if target >= levels[level, CAPACITY]:
                levels[level, WANTED] = target + 1
                return OUT_OF_ROOM
            levels[level, COUNT] = target + 1
            if found[index] == ABSENT:
                found[index] = PRESENT
                missing -= 1
            lengths[index] += 1
            child = nodes[child, FIRST_CHILD]
        op, index, state, value = nodes[child, OP], nodes[child, BASE] + target, PRESENT, 0
        if wire == FIXED64 or wire == FIXED32:
            size = 8 if wire == FIXED64 else 4
            if size > limit - at:
                return UNSURE
            number = read_fixed(data, at, size)
            at += size
        else:
            at, number = read_varint(data, at, limit)
            if at < 0:
                return UNSURE
        if wire == PREFIXED:
            if number < 0 or number > limit - at:
                return UNSURE
            if op == MESSAGE:
                if top + 5 > len(stack):
                    return UNSURE
                if nodes[child, BASE] >= 0:
                    if found[index] == ABSENT and nodes[child, PRESENCE] != EXPLICIT:
                        missing -= 1
                    found[index] = PRESENT
                stack[top], stack[top + 1], stack[top + 2], stack[top + 3], stack[top + 4] = (
                    node,
                    stop,
                    row,
                    guess,
                    missing,
                )
                top += 5
                node, stop, row = child, at + number, target
                first = nodes[node, FIRST_CHILD]
                behind = first + nodes[node, CHILDREN]
                guess = first
                missing = nodes[node, IMPLICIT]
                continue
            if op == READ_TEXT:
                state, value = convert_text(
                    nodes[child, CONVERSION], data, at, at + number, scratch, nodes[child, Q], nodes[child, R]
                )
                lengths[index] = number
            else:
                if found[index] != ABSENT:
                    return UNSURE  # it is merged with the one before
                state, value = read_stamp(data, at, at + number)
            at += number
        elif op == READ_DOUBLE:
            value = number
            if not is_finite_double(number):
                return UNSURE
        elif op == READ_FLOAT:
            state, value = FLOAT_BITS, number
            if not is_finite_float(number):
                return UNSURE
        elif op == READ_TRUTH:
            value = 1 if number != 0 else 0
        elif op == READ_ENUM:
            symbol = find_symbol(symbols, nodes[child, S], nodes[child, P], decode_varint(SIGNED_32, number))
            if symbol < 0:
                return UNSURE
            value = -1 - symbols[symbol, 1]
            lengths[index] = symbols[symbol, 2]
        else:
            if op == READ_FIXED32:
                if nodes[child, S] == 0 and number >= 2**31:
                    number -= 2**32
            elif op == READ_FIXED64:
                if nodes[child, S] != 0 and number < 0:
                    return UNSURE
            else:
                if nodes[child, S] == UNSIGNED_64 and number < 0:
                    return UNSURE
                number = decode_varint(nodes[child, S], number)
            state, value = convert_whole(
                nodes[child, CONVERSION], number, nodes[child, P], nodes[child, Q], nodes[child, R]
            )
        if state < 0:
            return UNSURE
        if found[index] == ABSENT and nodes[child, PRESENCE] != EXPLICIT:
            missing -= 1
        values[index] = value
        found[index] = state


@entry(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64, int64[:, ::1], int64[:, ::1],"
    " int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1], int64[::1], int64, int64, int64[::1], int64[::1],"
    " uint8[::1], boolean[::1])"
)
def walk_messages(
    source: Bytes,
    starts: Int64s,
    ends: Int64s,
    row: int,
    nodes: Int64s,
    symbols: Int64s,
    columns: Int64s,
    levels: Int64s,
    stack: Int64s,
    scratch: Bytes,
    required: Int64s,
    max_depth: int,
    max_values: int,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    sure: Bytes,
) -> int:
    """Read the fields of all records from ``row`` on, each of which is a message (see ``avro.walk_datums``)."""
    while row < len(starts):
        begin_record(levels)
        state = walk_message(
            source,
            starts[row],
            ends[row],
            row,
            nodes,
            symbols,
            levels,
            stack,
            scratch,
            max_values,
            values,
            lengths,
            found,
        )
        sure[row] = state == SURE and has_required(row, required, columns, found)
        if not sure[row]:
            take_back(row, columns, levels, lengths, found)
        if state == OUT_OF_ROOM:
            return row
        row += 1
    return row
