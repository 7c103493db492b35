"""Rows to groups, and ranges to rows, without sorting."""

from __future__ import annotations

import numpy as np

from streamcore.operators.windows.table import Ints

_DENSE = 1 << 22


def distinct(codes: Ints, size: int) -> tuple[Ints, Ints]:
    """For each row the number of its group, and the first row of each group; groups are rows of equal code.

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


def sorted_distinct(numbers: Ints) -> Ints:
    """The distinct numbers in order: ``np.unique`` hashes them first, which takes longer."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])]


def expanded(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """All numbers from ``first[i]`` to ``last[i]``, in turn, and the i of each; a range may be empty."""
    counts = np.maximum(last - first + 1, 0)
    index = np.repeat(np.arange(len(first)), counts)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + first[index]
