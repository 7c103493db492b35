"""Walks through Avro datums of one schema, step by step."""

from __future__ import annotations

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
    read_unscaled,
    read_varint,
    unzigzag,
)
from streamcore.decode.walk.binary.steps import (
    ARRAY,
    ARRAY_END,
    BASE,
    CALL,
    CONVERSION,
    DOUBT,
    END,
    JUMP,
    LAST_WITH_NUMBER,
    LEVEL,
    LIST,
    LIST_END,
    OP,
    OPTION,
    READ_BYTES,
    READ_DOUBLE,
    READ_ENUM,
    READ_FIXED,
    READ_FLOAT,
    READ_INT,
    READ_LONG,
    READ_TEXT,
    READ_TRUTH,
    RETURN,
    SKIP_BYTES,
    SKIP_INT,
    SKIP_PREFIXED,
    SKIP_TRUTH,
    STRUCT,
    UNION,
    Int64s,
    P,
    Q,
    R,
    S,
)
from streamcore.decode.walk.compiler import entry, inlined
from streamcore.decode.walk.fields import ABSENT, PRESENT
from streamcore.decode.walk.words import Bytes, byte

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


@inlined
def walk_datum(  # noqa: PLR0915 - one loop over all operations: a call for each would cost more than they do
    data: Bytes,
    at: int,
    end: int,
    row: int,
    steps: Int64s,
    symbols: Int64s,
    levels: Int64s,
    stack: Int64s,
    scratch: Bytes,
    max_depth: int,
    values_left: int,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
) -> int:
    """Read the datum from ``at`` to ``end`` into row ``row``; return ``SURE``, ``UNSURE`` or ``OUT_OF_ROOM``.

    ``values``, ``lengths``, ``found``: the columns (``fields.read_field``); strings have their position in ``data``,
    symbols -1 minus that in the names. The length of an array or a map is the number of its elements. ``stack``: room
    for open arrays, each with the items that are left and the row around it, and for calls, each with the step behind
    it and the depth around it. ``scratch``: for short texts. ``values_left``: the most values in arrays and maps.
    """
    step, top, depth = 0, 0, 0
    while True:
        op = steps[step, OP]
        number = 0
        if op <= LAST_WITH_NUMBER:
            at, number = read_varint(data, at, end)
            if at < 0:
                return UNSURE
            number = unzigzag(number)
        index, state, value = steps[step, BASE] + row, ABSENT, 0
        if op == OPTION:
            if number == steps[step, P]:
                step = steps[step, S]
                continue
            if number != 1 - steps[step, P]:
                return UNSURE
        elif op == READ_TEXT:
            if number < 0 or number > end - at:
                return UNSURE
            state, value = convert_text(
                steps[step, CONVERSION], data, at, at + number, scratch, steps[step, Q], steps[step, R]
            )
            lengths[index] = number
            at += number
        elif op == READ_LONG or op == READ_INT:
            if op == READ_INT and (number < _INT_MIN or number > _INT_MAX):
                return UNSURE
            state, value = convert_whole(
                steps[step, CONVERSION], number, steps[step, P], steps[step, Q], steps[step, R]
            )
        elif op == SKIP_BYTES or op == SKIP_PREFIXED:
            if op == SKIP_BYTES:
                number = steps[step, S]
            if number < 0 or number > end - at:
                return UNSURE
            at += number
        elif op == JUMP:
            step = steps[step, S]
            continue
        elif op == UNION:
            if number < 0 or number >= steps[step, S]:
                return UNSURE
            step = steps[step + 1 + number, S]
            continue
        elif op == READ_DOUBLE or op == READ_FLOAT:
            size = 8 if op == READ_DOUBLE else 4
            if end - at < size:
                return UNSURE
            value = read_fixed(data, at, size)
            at += size
            if op == READ_DOUBLE:
                state = PRESENT
                if not is_finite_double(value):
                    return UNSURE
            else:
                state = FLOAT_BITS
                if not is_finite_float(value):
                    return UNSURE
        elif op == READ_TRUTH or op == SKIP_TRUTH:
            if at >= end or byte(data, at) > 1:
                return UNSURE
            value = byte(data, at)
            at += 1
            state = PRESENT if op == READ_TRUTH else ABSENT
        elif op == SKIP_INT:
            if number < _INT_MIN or number > _INT_MAX:
                return UNSURE
        elif op == READ_ENUM:
            if number < 0 or number >= steps[step, P]:
                return UNSURE
            symbol = steps[step, S] + number
            state, value = PRESENT, -1 - symbols[symbol, 1]
            lengths[index] = symbols[symbol, 2]
        elif op == READ_BYTES or op == READ_FIXED:
            if op == READ_FIXED:
                number = steps[step, S]
            if number > end - at:
                return UNSURE
            state, value = read_unscaled(data, at, number)
            if state < 0:
                return UNSURE
            state, value = convert_whole(steps[step, CONVERSION], value, steps[step, P], steps[step, Q], steps[step, R])
            at += number
        elif op == STRUCT:
            state = PRESENT
        elif op == LIST:
            found[index] = PRESENT
            if number == 0:
                step = steps[step, S]
                continue
            if number < 0:  # the length of the block in bytes follows
                at, _ = read_varint(data, at, end)
                if at < 0 or number < _INT_MIN:
                    return UNSURE
                number = -number
            level, size = steps[step, LEVEL], steps[step, P]
            first = levels[level, COUNT]
            if top + 2 > len(stack) or (size > 0 and number > (end - at) // size):
                return UNSURE
            if number > values_left // levels[level, WIDTH]:
                return UNSURE
            values_left -= number * levels[level, WIDTH]
            if first + number > levels[level, CAPACITY]:
                levels[level, WANTED] = first + number
                return OUT_OF_ROOM
            levels[level, COUNT] = first + number
            lengths[index] += number
            stack[top], stack[top + 1] = number, row
            top += 2
            row = first
        elif op == LIST_END or op == ARRAY_END:
            stack[top - 2] -= 1
            if stack[top - 2] > 0:
                row += 1 if op == LIST_END else 0
                step = steps[step, S] + 1
            else:
                top -= 2
                row = stack[top + 1]
                step = steps[step, S]
            continue
        elif op == ARRAY:
            if number == 0:
                step = steps[step, S]
                continue
            if number < 0:  # the length of the block in bytes follows
                at, size = read_varint(data, at, end)
                size = unzigzag(size)
                if at < 0 or size < 0 or size > end - at:
                    return UNSURE
                at += size
                continue
            size = steps[step, P]
            if top + 2 > len(stack) or (size != 0 and number > (end - at) // abs(size)):
                return UNSURE
            if size >= 0:
                at += number * size
                continue
            stack[top], stack[top + 1] = number, row
            top += 2
        elif op == CALL:
            if top + 2 > len(stack) or depth + steps[step, P] + steps[step, Q] > max_depth:
                return UNSURE
            stack[top], stack[top + 1] = step + 1, depth
            top += 2
            depth += steps[step, P]
            step = steps[step, S]
            continue
        elif op == RETURN:
            top -= 2
            step, depth = stack[top], stack[top + 1]
            continue
        elif op == END:
            return SURE if at == end else UNSURE
        elif op == DOUBT:
            return UNSURE
        if state < 0:
            return UNSURE
        if state != ABSENT:
            values[index] = value
            found[index] = state
        step += 1


@entry(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64, int64[:, ::1], int64[:, ::1],"
    " int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1], int64[::1], int64, int64, int64[::1], int64[::1],"
    " uint8[::1], boolean[::1])"
)
def walk_datums(
    source: Bytes,
    starts: Int64s,
    ends: Int64s,
    row: int,
    steps: Int64s,
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
    """Read the fields of all records from ``row`` on, each of which is a datum; set ``sure`` (``batch.walk_batch``).

    Return the row behind the last one, or that of a record for which there is no room (``columns.WANTED``).
    """
    while row < len(starts):
        begin_record(levels)
        state = walk_datum(
            source,
            starts[row],
            ends[row],
            row,
            steps,
            symbols,
            levels,
            stack,
            scratch,
            max_depth,
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
