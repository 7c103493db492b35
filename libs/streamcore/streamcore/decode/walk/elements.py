"""Finds the elements of arrays and the entries of objects that the walk has checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import entry
from streamcore.decode.walk.grammar import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COMMA,
    MAX_SKIPPED_DEPTH,
    OPEN_OBJECT,
    skip_colon,
    skip_space,
    skip_string,
    skip_value,
)
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import Bytes, byte

_LETTER_N = ord("n")


@entry(
    "int64(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], boolean[::1])"
)
def split_values(
    source: Bytes,
    starts: Int64s,
    sizes: Int64s,
    key_starts: Int64s,
    key_ends: Int64s,
    item_starts: Int64s,
    item_ends: Int64s,
    sizes_so_far: Int64s,
    nulls: Bytes,
) -> int:
    """Write where each element of arrays, or each entry of objects, is in ``source``; return their number.

    ``starts``: the positions of the opening brackets; a value of size 0 is absent. ``key_starts`` and ``key_ends``: of
    the name of an entry, quotes included. ``sizes_so_far``: behind each value, the number of elements up to there.
    ``nulls``: whether an element is null.
    """
    count = 0
    for row in range(len(starts)):
        if sizes[row] > 0:
            at = starts[row]
            is_object = byte(source, at) == OPEN_OBJECT
            close = CLOSE_OBJECT if is_object else CLOSE_ARRAY
            at = skip_space(source, at + 1)
            while byte(source, at) != close:
                if is_object:
                    key_starts[count] = at
                    at, _ = skip_string(source, at + 1)
                    key_ends[count] = at
                    at = skip_colon(source, at)
                item_starts[count] = at
                nulls[count] = byte(source, at) == _LETTER_N
                at = skip_value(source, at, 0, MAX_SKIPPED_DEPTH)
                item_ends[count] = at
                count += 1
                at = skip_space(source, at)
                if byte(source, at) == COMMA:
                    at = skip_space(source, at + 1)
        sizes_so_far[row] = count
    return count


@dataclass(frozen=True, slots=True)
class Elements:
    """Where the elements of arrays, or the entries of objects, are: as ``split_values`` writes it.

    ``behind``: from 0 on, the number of elements up to each array.
    """

    key_starts: Int64s
    key_ends: Int64s
    starts: Int64s
    ends: Int64s
    nulls: npt.NDArray[np.bool_]
    behind: Int64s


def find_elements(source: Bytes, starts: Int64s, sizes: Int64s) -> Elements:
    """Return the elements of these values (``split_values``)."""
    room = int(sizes.sum()) // 2 + 1  # an element has a comma or a bracket of its own
    keys, key_ends, items, ends = np.empty((4, room), np.int64)
    nulls, behind = np.zeros(room, np.bool_), np.zeros(len(starts) + 1, np.int64)
    count = split_values(source, starts, sizes, keys, key_ends, items, ends, behind[1:], nulls)  # type: ignore[arg-type]
    return Elements(keys[:count], key_ends[:count], items[:count], ends[:count], nulls[:count], behind)
