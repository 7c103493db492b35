"""Running totals: for each event of a segment, the combined value of all events up to and including it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows.aggregation import Array, Combine, Partial

Ints = npt.NDArray[np.int64]


def running(partial: Partial, values: Array, segment: Ints, base: Array) -> Array:
    """Return, for each row, the base of its segment combined with the segment's values up to this row.

    ``segment``: the segment of each row, ascending. ``base``: the start value of each segment. Doubles are added one
    after the other, so the sums do not depend on how the events are divided into cuts.
    """
    if not len(values):
        return values
    first = np.flatnonzero(np.diff(segment, prepend=-1))
    combined = values.copy()
    combined[first] = partial.combine.operation(base[segment[first]], values[first])
    if partial.combine is not Combine.SUM:
        return _scan(partial.combine, combined, segment)
    if not partial.whole:
        frame = pl.DataFrame([pl.Series("v", combined), pl.Series("g", segment)])
        return frame.select(pl.col("v").cum_sum().over("g")).to_series().to_numpy()
    sums = np.cumsum(combined)
    before = np.where(first > 0, sums[first - 1], 0)
    result: Array = sums - np.repeat(before, np.diff(np.append(first, len(values))))
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
