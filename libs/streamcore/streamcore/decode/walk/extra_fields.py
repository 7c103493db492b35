"""Takes the members of JSON objects that no field is from, as text."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.walk.decoder import bytes_of
from streamcore.decode.walk.elements import END, KEY_END, KEY_START, find_elements
from streamcore.decode.walk.grammar import OPEN_OBJECT
from streamcore.decode.walk.texts import copy_texts
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.values import UTC, ScalarReader
from streamcore.decode.walk.words import PAD, VECTOR, Bytes
from streamcore.schema import STRING


def extra_fields(records: pa.LargeBinaryArray, declared: Collection[str], limits: DecodeLimits) -> pa.LargeStringArray:
    """Return of each object of JSON that has been decoded the object of its members with other names; null for one
    without any. ``streamcore.wire.json_members`` is the definition.
    """
    source, offsets = bytes_of(records)
    brackets = len(source)
    source = np.concatenate([source, np.frombuffer(b"{,}", np.uint8), np.zeros(PAD, np.uint8)])
    source.flags.writeable = False
    starts, ends = offsets[:-1], offsets[1:]
    for row in np.flatnonzero(source[starts] != OPEN_OBJECT).tolist():
        starts[row] += records[row].as_py().index(b"{")
    members = find_elements(source, starts, ends - starts)
    _, names = ScalarReader(STRING, UTC, limits).read(source, members.items[KEY_START], members.items[KEY_END])
    is_extra = pc.invert(pc.is_in(names, pa.array([*declared], pa.large_string()))).to_numpy(zero_copy_only=False)
    behind = np.concatenate([[0], np.cumsum(is_extra)])[members.behind]
    return _join(source, brackets, members.items[KEY_START, is_extra], members.items[END, is_extra], behind)


def _join(source: Bytes, brackets: int, starts: Int64s, ends: Int64s, behind: Int64s) -> pa.LargeStringArray:
    """Return objects of members between these positions of ``source``; null for one without members.

    ``brackets``: where ``source`` has ``{,}``. ``behind``: of each object, the number of members up to there.
    """
    is_object = np.diff(behind) > 0
    closed = behind[1:][is_object]  # for each object, its members and those before
    before = np.repeat(np.arange(len(closed)), np.diff(closed, prepend=0))  # for each member, the objects before
    at = 2 * np.arange(len(starts)) + before  # of each member's bracket or comma, among what is copied
    last = 2 * closed + np.arange(len(closed))
    opens = np.ones(len(starts), np.bool_)
    opens[1:] = np.diff(before) > 0
    pieces, sizes = np.empty((2, len(starts) * 2 + len(closed)), np.int64)
    pieces[at], sizes[at] = brackets + ~opens, 1
    pieces[at + 1], sizes[at + 1] = starts, ends - starts
    pieces[last], sizes[last] = brackets + 2, 1
    places = np.concatenate([[0], np.cumsum(sizes)])
    target = np.empty(int(places[-1]) + VECTOR, np.uint8)
    copy_texts(source, np.zeros(0, np.uint8), pieces, places, target)
    offsets = np.zeros(len(is_object) + 1, np.int64)
    offsets[1:][is_object] = np.diff(places[last + 1], prepend=0)
    validity = pa.py_buffer(np.packbits(is_object, bitorder="little"))
    buffers = [validity, pa.py_buffer(np.cumsum(offsets)), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.large_string(), len(is_object), buffers)
