"""Running totals: for each event of a segment, the combined value of all events up to and including it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine, Partial

Ints = npt.NDArray[np.int64]

_FEW_SEGMENTS, _LONG_SEGMENT = 16, 64


def running(partial: Partial, values: Array, segment: Ints, base: Array, first: Ints | None = None) -> Array:
    """Return, for each row, the base of its segment combined with the segment's values up to this row.

    ``segment``: the segment of each row, ascending. ``base``: the start value of each segment. ``first``: the first row
    of each, found if it is not given. Doubles are added one
    after the other, so the sums do not depend on how the events are divided into cuts.
    """
    if not len(values):
        return values
    if first is None:
        first = np.flatnonzero(np.diff(segment, prepend=-1))
    combined = values.copy()
    combined[first] = partial.combine.operation(base[segment[first]], values[first])
    if partial.combine is not Combine.SUM:
        return _scan(partial.combine, combined, segment)
    if not partial.whole:
        return _add_up(combined, first)
    sums = np.cumsum(combined)
    before = np.where(first > 0, sums[first - 1], 0)
    result: Array = sums - np.repeat(before, np.diff(np.append(first, len(values))))
    return result


def _add_up(values: Array, first: Ints) -> Array:
    """Return the running sum of each segment, added up one value after the other. ``first``: of each segment.

    All segments advance together while there are many of them; few, or long ones, are added up one by one.
    """
    result = values.copy()
    end = np.append(first[1:], len(values))
    steps = 0
    at, end = first[first + 1 < end] + 1, end[first + 1 < end]
    while len(at) > _FEW_SEGMENTS and steps < _LONG_SEGMENT:
        result[at] += result[at - 1]
        at += 1
        rest = at < end
        at, end, steps = at[rest], end[rest], steps + 1
    for start, stop in zip((at - 1).tolist(), end.tolist(), strict=True):
        np.cumsum(result[start:stop], out=result[start:stop])
    return result


def _scan(combine: Combine, values: Array, segment: Ints) -> Array:
    """Return the running minimum or maximum of each segment.

    The algorithm doubles distances (Hillis, Steele: "Data parallel algorithms", 1986). The number of passes is the
    logarithm of the longest segment, and most passes have few rows.
    """
    result = values.copy()
    step = 1
    while (same := np.flatnonzero(segment[step:] == segment[:-step])).size:
        result[same + step] = combine.operation(result[same + step], result[same])
        step *= 2
    return result
