"""Walks through the records of a batch, one behind the other in a buffer."""

from __future__ import annotations

from streamcore.decode.walk.compiler import entry
from streamcore.decode.walk.fields import ABSENT
from streamcore.decode.walk.record import walk_record
from streamcore.decode.walk.texts import copy_bytes
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import Bytes


@entry(
    "void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], uint8[::1], int64[:, ::1], uint8[::1],"
    " uint8[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64, boolean, int64[:, ::1], int64[:, ::1],"
    " uint8[:, ::1], uint8[::1], int64[::1], int64[:, ::1], int64[::1], boolean[::1])"
)
def walk_batch(
    source: Bytes,
    starts: Int64s,
    ends: Int64s,
    record: Bytes,
    nodes: Int64s,
    names: Bytes,
    scratch: Bytes,
    guesses: Int64s,
    seen: Int64s,
    required: Int64s,
    max_bytes: int,
    max_depth: int,
    only_declared: bool,
    values: Int64s,
    lengths: Int64s,
    found: Bytes,
    resolved: Bytes,
    resolved_end: Int64s,
    items: Int64s,
    items_end: Int64s,
    sure: Bytes,
) -> None:
    """Read the fields of all records; set ``sure`` of those on which the reference does not have to decide.

    ``starts`` and ``ends``: where each record begins and ends in ``source``. ``record``: room for one record of
    ``max_bytes`` and ``PathNodes.pad`` bytes. ``required``: the fields that each record must have. ``walk_record`` and
    ``read_field`` describe the others.
    """
    for row in range(len(starts)):
        begin, end = starts[row], ends[row] - starts[row]
        if end > max_bytes:
            continue
        copy_bytes(source, begin, record, 0, end)
        record[end] = 0
        good = walk_record(
            record,
            end,
            begin,
            row,
            nodes,
            names,
            scratch,
            guesses,
            seen,
            max_depth,
            only_declared,
            values,
            lengths,
            found,
            resolved,
            resolved_end,
            items,
            items_end,
        )
        if good:
            for i in range(len(required)):
                good = good and found[required[i], row] != ABSENT
        sure[row] = good
