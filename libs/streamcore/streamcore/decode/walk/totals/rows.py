"""Combines the rows of segments one after the other. Importing this module does not load the compiler."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_Numbers = TypeVar("_Numbers", npt.NDArray[np.int64], npt.NDArray[np.float64])

#: Operations on two values. A minimum or maximum with a NaN is NaN; of equal values the first one stays.
SUM, MIN, MAX = 0, 1, 2


def combine_rows(
    operation: int, before: bool, values: _Numbers, segment: Ints, base: _Numbers, result: _Numbers
) -> None:
    """Write for each row the base of its segment combined with the values of the segment up to this row; with
    ``before`` without the row itself. ``segment``: of each row, ascending, an index of ``base``. Sums of whole numbers
    wrap around; doubles are added in the order of the rows."""
    last = -1
    total = values.dtype.type(0)
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
