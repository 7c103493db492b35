"""Running totals: for each event of a segment, the combined value of all events up to and including it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine, Partial

Ints = npt.NDArray[np.int64]


def running(partial: Partial, values: Array, segment: Ints, base: Array, *, before: bool = False) -> Array:
    """Return, for each row, the base of its segment combined with the segment's values up to this row.

    ``segment``: the segment of each row, ascending, an index of ``base``, which has the start values. ``before``:
    without the row's own value. Doubles are added one after the other, so the sums do not depend on how the events are
    divided into cuts.
    """
    from streamcore.decode.walk.totals import running as compiled  # loads the compiler, for which commands do not wait

    run: Callable[..., Any] = compiled.run_longs if partial.whole else compiled.run_doubles
    operation = {Combine.SUM: compiled.SUM, Combine.MIN: compiled.MIN, Combine.MAX: compiled.MAX}[partial.combine]
    own, starts = (np.ascontiguousarray(column, partial.dtype) for column in (values, base))
    result = np.empty_like(own)
    run(operation, before, own, np.ascontiguousarray(segment), starts, result)
    return result
