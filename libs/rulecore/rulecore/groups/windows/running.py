"""Running totals: for each event of a segment, the combined value of all events up to and including it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine, Partial

Ints = npt.NDArray[np.int64]

#: For so few rows a loop takes less time than it takes a command to load the compiler.
_FEW_ROWS = 64


def running(partial: Partial, values: Array, segment: Ints, base: Array, *, before: bool = False) -> Array:
    """Return, for each row, the base of its segment combined with the segment's values up to this row.

    ``segment``: the segment of each row, ascending, an index of ``base``, which has the start values. ``before``:
    without the row's own value. Doubles are added one after the other, so the sums do not depend on how the events are
    divided into cuts.
    """
    own, starts = (np.ascontiguousarray(column, partial.dtype) for column in (values, base))
    result = np.empty_like(own)
    if len(own) <= _FEW_ROWS:
        _run_few(partial.combine, own, segment, starts, result, before=before)
        return result
    from streamcore.decode.walk.totals import running as compiled

    run: Callable[..., Any] = compiled.run_longs if partial.whole else compiled.run_doubles
    operation = {Combine.SUM: compiled.SUM, Combine.MIN: compiled.MIN, Combine.MAX: compiled.MAX}[partial.combine]
    run(operation, before, own, np.ascontiguousarray(segment), starts, result)
    return result


def _run_few(combine: Combine, values: Array, segment: Ints, base: Array, result: Array, *, before: bool) -> None:
    """Do the same as the compiled functions; of equal values the first one stays."""
    last, after = -1, values.dtype.type(0)
    with np.errstate(all="ignore"):
        for row, value in enumerate(values):
            total = base[segment[row]] if segment[row] != last else after
            last = segment[row]
            if combine is Combine.SUM:
                after = total + value
            else:
                is_new = value < total if combine is Combine.MIN else value > total
                after = value if is_new or np.isnan(value) else total
            result[row] = total if before else after
