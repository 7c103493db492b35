"""Finds the elements of arrays and the entries of objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import compiled, entry
from streamcore.decode.walk.grammar import (
    CLOSE_ARRAY,
    CLOSE_OBJECT,
    COMMA,
    INVALID,
    MAX_SKIPPED_DEPTH,
    OPEN_OBJECT,
    QUOTE,
    skip_colon,
    skip_space,
    skip_string,
    skip_value,
)
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import Bytes, byte

#: The rows of ``items``: where the name of an entry begins and ends, quotes included, and where an element does.
KEY_START, KEY_END, START, END = range(4)
_COLUMNS: Final = 4
_LETTER_N = ord("n")


@compiled
def split_value(
    data: Bytes, at: int, depth: int, max_depth: int, begin: int, items: Int64s, count: int
) -> tuple[int, int]:
    """Write where each element of an array, or each entry of an object, is to ``items``, from column ``count`` on.

    Return the position behind the value, or ``INVALID``, and the column behind its last element. ``begin``: added to
    the positions. ``depth``: the number of open brackets around the value.
    """
    is_object = byte(data, at) == OPEN_OBJECT
    close = CLOSE_OBJECT if is_object else CLOSE_ARRAY
    if depth + 1 > max_depth:
        return INVALID, count
    at = skip_space(data, at + 1)
    if byte(data, at) == close:
        return at + 1, count
    while True:
        if is_object:
            if byte(data, at) != QUOTE:
                return INVALID, count
            items[KEY_START, count] = begin + at
            at, _ = skip_string(data, at + 1)
            if at < 0:
                return INVALID, count
            items[KEY_END, count] = begin + at
            at = skip_colon(data, at)
            if at < 0:
                return INVALID, count
        items[START, count] = begin + at
        at = skip_value(data, at, depth + 1, max_depth)
        if at < 0:
            return INVALID, count
        items[END, count] = begin + at
        count += 1
        at = skip_space(data, at)
        if byte(data, at) != COMMA:
            return at + 1 if byte(data, at) == close else INVALID, count
        at = skip_space(data, at + 1)


@entry("void(Array(uint8, 1, 'C', readonly=True), int64[::1], int64[::1], int64[:, ::1], int64[::1])")
def split_values(source: Bytes, starts: Int64s, sizes: Int64s, items: Int64s, behind: Int64s) -> None:
    """Split arrays and objects that the walk has checked (``split_value``).

    ``starts``: the positions of the opening brackets; a value of size 0 is absent. ``behind``: behind each value, the
    number of elements up to there.
    """
    count = 0
    for row in range(len(starts)):
        if sizes[row] > 0:
            _, count = split_value(source, starts[row], 0, MAX_SKIPPED_DEPTH + 1, 0, items, count)
        behind[row] = count


@dataclass(frozen=True, slots=True)
class Elements:
    """Where the elements of arrays, or the entries of objects, are. ``items``: as ``split_value`` writes them, a column
    for each, with contiguous rows; ``behind``: from 0 on, the number of elements up to each array."""

    items: Int64s
    behind: Int64s

    @property
    def counts(self) -> Int64s:
        """The number of elements of each array."""
        return np.diff(self.behind)

    def find_nulls(self, source: Bytes) -> npt.NDArray[np.bool_]:
        """Return which elements are null."""
        nulls: npt.NDArray[np.bool_] = source[self.items[START]] == _LETTER_N
        return nulls

    def select(self, rows: npt.NDArray[np.bool_]) -> Elements:
        """Return these elements without those of some arrays, which are empty then. ``rows``: the others."""
        kept = np.repeat(rows, self.counts)
        return Elements(self.items.compress(kept, axis=1), offsets_of(np.where(rows, self.counts, 0)))


def make_items(byte_count: int) -> Int64s:
    """Return room for all elements in so many bytes. Most of its pages are never used."""
    return np.empty((_COLUMNS, byte_count // 2 + 1), np.int64)  # an element has a comma or a bracket of its own


def find_elements(source: Bytes, starts: Int64s, sizes: Int64s) -> Elements:
    """Return the elements of these values, which have been checked (``split_values``)."""
    items, behind = make_items(int(sizes.sum())), np.zeros(len(starts) + 1, np.int64)
    split_values(source, starts, sizes, items, behind[1:])
    return Elements(items[:, : behind[-1]], behind)


def gather_elements(items: Int64s, firsts: Int64s, counts: Int64s) -> Elements:
    """Return the elements of arrays of which each has ``counts`` columns of ``items``, from ``firsts`` on."""
    behind = offsets_of(counts)
    columns = np.repeat(firsts - behind[:-1], counts) + np.arange(behind[-1])
    return Elements(items.take(columns, axis=1), behind)


def offsets_of(lengths: Int64s) -> Int64s:
    """Return where each of the parts that are behind each other begins, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
