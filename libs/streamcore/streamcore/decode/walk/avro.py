"""Walks through Avro datums of one schema, step by step."""

from __future__ import annotations

from streamcore.decode.walk.binary import (
    FLOAT_BITS,
    convert_text,
    convert_whole,
    is_finite_double,
    is_finite_float,
    read_fixed,
    read_unscaled,
    read_varint,
    unzigzag,
)
from streamcore.decode.walk.compiler import compiled, entry
from streamcore.decode.walk.fields import ABSENT, PRESENT
from streamcore.decode.walk.steps import (
    ARRAY,
    ARRAY_END,
    CONVERSION,
    DOUBT,
    END,
    FIELD,
    JUMP,
    OP,
    READ_BYTES,
    READ_DOUBLE,
    READ_ENUM,
    READ_FIXED,
    READ_FLOAT,
    READ_INT,
    READ_LONG,
    READ_TEXT,
    READ_TRUTH,
    SKIP_BYTES,
    SKIP_INT,
    SKIP_PREFIXED,
    SKIP_TRUTH,
    UNION,
    Int64s,
    P,
    Q,
    R,
    S,
)
from streamcore.decode.walk.words import Bytes, byte

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


@compiled
def walk_datum(  # noqa: PLR0915 - one loop over all operations: a call for each would cost more than they do
    data: Bytes,
    at: int,
    end: int,
    row: int,
    steps: Int64s,
    symbols: Int64s,
    stack: Int64s,
    scratch: Bytes,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
) -> bool:
    """Read the datum from ``at`` to ``end`` into row ``row``; return whether it is sure.

    ``values``, ``lengths``, ``found``: as of ``fields.read_field``; strings have their position in ``data``, symbols
    -1 minus that in the names. ``stack``: room for the counts of open arrays. ``scratch``: for short texts.
    """
    step, level = 0, 0
    while True:
        op = steps[step, OP]
        number = 0
        # What most steps begin with: a number.
        if (
            op == READ_TEXT
            or op == READ_LONG
            or op == UNION
            or op == READ_INT
            or (SKIP_INT <= op <= SKIP_PREFIXED)
            or op == ARRAY
            or op == READ_ENUM
            or op == READ_BYTES
        ):
            at, number = read_varint(data, at, end)
            if at < 0:
                return False
            number = unzigzag(number)
        if op == UNION:
            if number < 0 or number >= steps[step, S]:
                return False
            step = steps[step + 1 + number, S]
            continue
        if op == JUMP:
            step = steps[step, S]
            continue
        field, state, value = steps[step, FIELD], ABSENT, 0
        if op == READ_TEXT:
            if number < 0 or number > end - at:
                return False
            state, value = convert_text(
                steps[step, CONVERSION], data, at, at + number, scratch, steps[step, Q], steps[step, R]
            )
            lengths[field, row] = number
            at += number
        elif op == READ_LONG or op == READ_INT:
            if op == READ_INT and (number < _INT_MIN or number > _INT_MAX):
                return False
            state, value = convert_whole(
                steps[step, CONVERSION], number, steps[step, P], steps[step, Q], steps[step, R]
            )
        elif op == READ_DOUBLE or op == READ_FLOAT:
            size = 8 if op == READ_DOUBLE else 4
            if end - at < size:
                return False
            value = read_fixed(data, at, size)
            at += size
            if op == READ_DOUBLE:
                state = PRESENT
                if not is_finite_double(value):
                    return False
            else:
                state = FLOAT_BITS
                if not is_finite_float(value):
                    return False
        elif op == READ_TRUTH or op == SKIP_TRUTH:
            if at >= end or byte(data, at) > 1:
                return False
            value = byte(data, at)
            at += 1
            state = PRESENT if op == READ_TRUTH else ABSENT
        elif op == READ_ENUM:
            if number < 0 or number >= steps[step, P]:
                return False
            symbol = steps[step, S] + number
            state, value = PRESENT, -1 - symbols[symbol, 1]
            lengths[field, row] = symbols[symbol, 2]
        elif op == READ_BYTES or op == READ_FIXED:
            if op == READ_FIXED:
                number = steps[step, S]
            if number < 1 or number > 8 or number > end - at:
                return False
            state, value = convert_whole(
                steps[step, CONVERSION],
                read_unscaled(data, at, number),
                steps[step, P],
                steps[step, Q],
                steps[step, R],
            )
            at += number
        elif op == SKIP_BYTES or op == SKIP_PREFIXED:
            if op == SKIP_BYTES:
                number = steps[step, S]
            if number < 0 or number > end - at:
                return False
            at += number
        elif op == SKIP_INT:
            if number < _INT_MIN or number > _INT_MAX:
                return False
        elif op == ARRAY:
            if number == 0:
                step = steps[step, S]
                continue
            if number < 0:  # the length of the block in bytes follows
                at, size = read_varint(data, at, end)
                size = unzigzag(size)
                if at < 0 or size < 0 or size > end - at:
                    return False
                at += size
                continue
            if steps[step, P] != 0:  # items without bytes
                continue
            if number > end - at:
                return False
            stack[level] = number
            level += 1
        elif op == ARRAY_END:
            stack[level - 1] -= 1
            if stack[level - 1] > 0:
                step = steps[step, S] + 1
            else:
                level -= 1
                step = steps[step, S]
            continue
        elif op == END:
            return at == end
        elif op == DOUBT:
            return False
        if state < 0:
            return False
        if state != ABSENT:
            values[field, row] = value
            found[field, row] = state
        step += 1


@entry(
    "void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1],"
    " int64[::1], int64[:, ::1], int64[:, ::1], uint8[:, ::1], boolean[::1])"
)
def walk_datums(
    source: Bytes,
    offsets: Int64s,
    prefix_bytes: int,
    steps: Int64s,
    symbols: Int64s,
    stack: Int64s,
    scratch: Bytes,
    required: Int64s,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    sure: Bytes,
) -> None:
    """Read the fields of all records, each a prefix and a datum; set ``sure`` (see ``batch.walk_batch``)."""
    for row in range(len(offsets) - 1):
        at, end = offsets[row] + prefix_bytes, offsets[row + 1]
        good = at <= end
        if good:
            good = walk_datum(source, at, end, row, steps, symbols, stack, scratch, values, lengths, found)
        if good:
            for i in range(len(required)):
                good = good and found[required[i], row] != ABSENT
        sure[row] = good
