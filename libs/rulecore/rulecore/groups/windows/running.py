"""Running totals: for each event of a segment, the combined value of all events up to and including it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine, Partial
from streamcore.decode.walk.totals.rows import MAX, MIN, SUM, combine_rows

Ints = npt.NDArray[np.int64]

_OPERATIONS = {Combine.SUM: SUM, Combine.MIN: MIN, Combine.MAX: MAX}
#: For so few rows the uncompiled loop takes less time than it takes a command to load the compiler.
_FEW_ROWS = 64


def running(partial: Partial, values: Array, segment: Ints, base: Array, *, before: bool = False) -> Array:
    """Return, for each row, the base of its segment combined with the segment's values up to this row.

    ``segment``: the segment of each row, ascending, an index of ``base``, which has the start values. ``before``:
    without the row's own value. Doubles are added one after the other, so the sums do not depend on how the events are
    divided into cuts.
    """
    own, starts = (np.ascontiguousarray(column, partial.dtype) for column in (values, base))
    result = np.empty_like(own)
    run: Callable[..., Any] = combine_rows if len(own) <= _FEW_ROWS else _compiled(partial)
    with np.errstate(all="ignore"):  # of which only the uncompiled function warns
        run(_OPERATIONS[partial.combine], before, own, np.ascontiguousarray(segment), starts, result)
    return result


def _compiled(partial: Partial) -> Callable[..., Any]:
    from streamcore.decode.walk.totals import running as compiled

    return compiled.run_longs if partial.whole else compiled.run_doubles
