"""Running combinations: for each event of a segment, the combination of all events up to and including it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows.aggregation import Array, Combine, Partial

Ints = npt.NDArray[np.int64]


def running(partial: Partial, values: Array, segment: Ints, base: Array) -> Array:
    """Combine the base of the segment with all its values up to each row. ``segment`` is sorted.

    Doubles are added one after the other from the base on, so the sums do not depend on where a cut ended.
    """
    if not len(values):
        return values
    first = np.flatnonzero(np.diff(segment, prepend=-1))
    begun = values.copy()
    begun[first] = partial.combine.operation(base[segment[first]], values[first])
    if partial.combine is not Combine.SUM:
        return _scan(partial.combine, begun, segment)
    if not partial.whole:
        frame = pl.DataFrame([pl.Series("v", begun), pl.Series("g", segment)])
        return frame.select(pl.col("v").cum_sum().over("g")).to_series().to_numpy()
    sums = np.cumsum(begun)
    before = np.where(first > 0, sums[first - 1], 0)
    result: Array = sums - np.repeat(before, np.diff(np.append(first, len(values))))
    return result


def _scan(combine: Combine, values: Array, segment: Ints) -> Array:
    """Compute the running minimum or maximum of each segment.

    It doubles distances (Hillis, Steele: "Data parallel algorithms", 1986): as many passes as the longest segment has
    bits, and most have few rows.
    """
    result = values.copy()
    step = 1
    while (same := np.flatnonzero(segment[step:] == segment[:-step])).size:
        result[same + step] = combine.operation(result[same + step], result[same])
        step *= 2
    return result
