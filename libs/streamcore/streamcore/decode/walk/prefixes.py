"""Reads the beginnings of records: prefixes, and the ids of schemas."""

from __future__ import annotations

from typing import Final

from streamcore.decode.walk.arrays import Bools
from streamcore.decode.walk.compiler import entry
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import Bytes, byte, eight_bytes

_ID_BYTES: Final = 4


@entry(
    "void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], Array(uint8, 1, 'C', readonly=True),"
    " boolean[::1])"
)
def find_prefix(source: Bytes, starts: Int64s, ends: Int64s, prefix: Bytes, matched: Bools) -> None:
    """Set ``matched``: whether each record begins with a prefix."""
    for row in range(len(starts)):
        start, i = starts[row], 0
        if ends[row] - start < len(prefix):
            matched[row] = False
            continue
        while i + 8 <= len(prefix) and eight_bytes(source, start + i) == eight_bytes(prefix, i):
            i += 8
        while i < len(prefix) and byte(source, start + i) == byte(prefix, i):
            i += 1
        matched[row] = i == len(prefix)


@entry("void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64, int64, int64[::1])")
def read_schema_ids(source: Bytes, starts: Int64s, lengths: Int64s, magic: int, max_bytes: int, ids: Int64s) -> None:
    """Write the number behind the byte ``magic`` of each record (``RecordStarts.schema_ids``)."""
    for row in range(len(starts)):
        start, found = starts[row], -1
        if _ID_BYTES < lengths[row] <= max_bytes and byte(source, start) == magic:
            found = 0
            for i in range(1, _ID_BYTES + 1):
                found = found << 8 | byte(source, start + i)
        ids[row] = found
