"""Array functions that group rows and expand ranges, without sorting where possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamcore.columnar.hash_table import Hashes, Ints

_DENSE = 1 << 22
_NARROW = 64


def distinct(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the group number of each row, and the first row of each group. A group is the rows of one code.

    ``size``: the exclusive upper bound of the codes. Each row writes its number at the index of its code, from the last
    row to the first, so that the first row of a group remains. If ``size`` is far above the number of rows, sorts.
    """
    rows = np.arange(len(codes))
    if size > _DENSE and size > 64 * len(codes):
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        return group, first
    earliest = np.empty(size, dtype=np.int64)
    earliest[codes[::-1]] = rows[::-1]
    first_of_group = earliest[codes]
    is_first = first_of_group == rows
    number = np.cumsum(is_first) - 1
    return number[first_of_group], np.flatnonzero(is_first)


def dense_codes(numbers: Ints) -> tuple[Ints, int]:
    """Return a small code for each number, equal for equal numbers, and the exclusive upper bound of the codes."""
    least, spread = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
    if spread <= _NARROW:
        return numbers - least, spread
    unique_numbers, index = np.unique(numbers, return_inverse=True)
    return index, len(unique_numbers)


def sorted_distinct(numbers: Ints) -> Ints:
    """Return the sorted distinct numbers. ``np.unique`` is slower, because it hashes them first."""
    ordered = np.sort(numbers)
    unique_numbers: Ints = ordered[
        np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])
    ]
    return unique_numbers


def expand_ranges(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return the i of each number, and all numbers from ``first[i]`` to ``last[i]``, for each i in turn.

    A range may be empty.
    """
    counts = np.maximum(last - first + 1, 0)
    index = np.repeat(np.arange(len(first)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + first[index]


def expand_counts(starts: Ints, counts: Ints) -> Ints:
    """Return ``counts[i]`` numbers ``starts[i], starts[i] + 1, ...`` for each i in turn."""
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return offsets + np.arange(total)


def run_starts(ordered: Ints) -> Ints:
    """Return the index at which each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]]))


def sorted_pairs(major: Ints, minor: Ints) -> Ints:
    """Return the order by ``major`` (not negative), then ``minor``, and in any order where both are equal.

    If both fit into 63 bits, one sort of combined numbers is used, which is several times as fast.
    """
    if not major.size:
        return major
    least = int(minor.min())
    bits = (int(minor.max()) - least).bit_length()
    if int(major.max()).bit_length() + bits > 63:
        return np.lexsort((minor, major))
    return np.argsort((major << bits) | (minor - least))


def by_time_and_hash(time_ms: Ints, hashes: Hashes) -> Ints:
    """Return the order by time, then hash. One sort is used if the upper bits of the hashes suffice."""
    if not time_ms.size:
        return time_ms
    since = (time_ms - time_ms.min()).astype(np.uint64)
    bits = int(since.max()).bit_length()
    if bits < 32:
        code = (since << np.uint64(64 - bits)) | (hashes >> np.uint64(bits)) if bits else hashes
        order = np.argsort(code)
        if np.all(code[order][1:] != code[order][:-1]):
            return order
    return np.lexsort((hashes, time_ms))


def resized(column: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return a copy of the column with ``length`` entries; the added ones are undefined."""
    room = np.empty(length, dtype=column.dtype)
    room[: len(column)] = column
    return room


def with_capacity(column: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the column if it has ``length`` entries, else a copy with twice as many; the added ones are undefined."""
    return column if len(column) >= length else resized(column, 2 * length)
