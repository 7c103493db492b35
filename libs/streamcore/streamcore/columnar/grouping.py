"""Rows to groups, and ranges to rows, without sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamcore.columnar.hash_table import Hashes, Ints

_DENSE = 1 << 22
_NARROW = 64


def distinct(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """Return, for each row, the number of its group, and the first row of each group; groups are rows of equal code.

    By writing each row's number at the place of its code, from the last row to the first: the last to write stands for
    its group. Codes are below ``size``; where that is far more than there are rows, by sorting.
    """
    rows = np.arange(len(codes))
    if size > _DENSE and size > 64 * len(codes):
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        return group, first
    earliest = np.empty(size, dtype=np.int64)
    earliest[codes[::-1]] = rows[::-1]
    stands = earliest[codes]
    chosen = stands == rows
    number = np.cumsum(chosen) - 1
    return number[stands], np.flatnonzero(chosen)


def dense_codes(numbers: Ints) -> tuple[Ints, int]:
    """Return small codes in place of numbers, of shape (numbers,), equal for equal ones, and their bound."""
    least, spread = int(numbers.min()), int(numbers.max()) - int(numbers.min()) + 1
    if spread <= _NARROW:
        return numbers - least, spread
    found, back = np.unique(numbers, return_inverse=True)
    return back, len(found)


def sorted_distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers in order: ``np.unique`` hashes them first, which takes longer."""
    ordered = np.sort(numbers)
    found: Ints = ordered[np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])]
    return found


def expand_ranges(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return all numbers from ``first[i]`` to ``last[i]``, in turn, and the i of each; a range may be empty."""
    counts = np.maximum(last - first + 1, 0)
    index = np.repeat(np.arange(len(first)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + first[index]


def expand_counts(starts: Ints, counts: Ints) -> Ints:
    """Return ``starts[i], starts[i] + 1, ...``, ``counts[i]`` numbers for every i in turn; ``expand_ranges`` takes
    ends."""
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

    One sort of numbers that hold both does, where they fit 63 bits; it is several times as fast.
    """
    if not major.size:
        return major
    least = int(minor.min())
    bits = (int(minor.max()) - least).bit_length()
    if int(major.max()).bit_length() + bits > 63:
        return np.lexsort((minor, major))
    return np.argsort((major << bits) | (minor - least))


def by_time_and_hash(time_ms: Ints, hashes: Hashes) -> Ints:
    """Return the order by time, then hash. One sort does where the upper bits of the hashes suffice."""
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
    """Return the column with room up to this length."""
    room = np.empty(length, dtype=column.dtype)
    room[: len(column)] = column
    return room


def with_capacity(column: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the column, with room for twice the length if it has less than that length."""
    return column if len(column) >= length else resized(column, 2 * length)
