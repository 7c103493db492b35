"""Running sums, minima and maxima of segments of rows. Doubles are added in the order of the rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import entry

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

#: Operations on two values. A minimum or maximum with a NaN is NaN.
SUM, MIN, MAX = 0, 1, 2
_INTS = "Array(int64, 1, 'C', readonly=True)"
_DOUBLES = "Array(float64, 1, 'C', readonly=True)"


@entry(f"void(int64, boolean, {_INTS}, {_INTS}, {_INTS}, int64[::1])")
def run_longs(operation: int, before: bool, values: Ints, segment: Ints, base: Ints, result: Ints) -> None:
    """Write for each row the base of its segment combined with the values of the segment up to this row; with
    ``before`` without the row itself. ``segment``: of each row, ascending, an index of ``base``. Sums wrap around."""
    last, total = -1, 0
    for row in range(len(values)):
        value = values[row]
        if segment[row] != last:
            last = segment[row]
            total = base[last]
        if before:
            result[row] = total
        if operation == SUM:
            total += value
        elif (value < total) if operation == MIN else (value > total):
            total = value
        if not before:
            result[row] = total


@entry(f"void(int64, boolean, {_DOUBLES}, {_INTS}, {_DOUBLES}, float64[::1])")
def run_doubles(operation: int, before: bool, values: Doubles, segment: Ints, base: Doubles, result: Doubles) -> None:
    """Do the same with doubles."""
    last, total = -1, 0.0
    for row in range(len(values)):
        value = values[row]
        if segment[row] != last:
            last = segment[row]
            total = base[last]
        if before:
            result[row] = total
        if operation == SUM:
            total += value
        elif value != value or ((value < total) if operation == MIN else (value > total)):  # noqa: PLR0124 - NaN
            total = value
        if not before:
            result[row] = total
