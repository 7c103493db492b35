"""Limits how often a row of a key is emitted, and remembers the keys whose changes wait because of that.

By the clock of the cut, so it is the same whenever the cut runs again. Of a key there is a row while less than the
pause has passed since a row of it was emitted; a marked row has changes that wait. It does not know the output.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import MARKED, Ints, SortedRun
from streamcore.windowing.model import END_OF_TIME_MS

#: Any distance in time.
EVER_MS = END_OF_TIME_MS // 2
_NO_SLOTS = np.empty(0, dtype=np.int64)


class OutputThrottle:
    """``pause_ms`` 0: everything at once, and nothing is kept. ``keys``: their columns."""

    def __init__(self, keys: Mapping[str, pl.DataType], pause_ms: int) -> None:
        self.pause_ms = pause_ms
        self.table = RowTable({**keys, EVENT_MS: pl.Int64()}, tuple(keys))
        self._none = self.table.run(_NO_SLOTS)

    def due(self, clock_ms: int) -> SortedRun:
        """Forget the keys whose pause is over. Returns those of them of which something has waited."""
        over = self.table.between(-EVER_MS, clock_ms + 1)
        if not over.size:
            return self._none
        run = self.table.run(over[self.table.states(over) & MARKED > 0])
        self.table.delete(over)
        return run

    def ready(self, run: SortedRun) -> SortedRun:
        """Return the rows, of distinct keys, that may be emitted at once; mark the others as waiting."""
        if not len(self.table):
            return run
        held = self.table.find(run, -EVER_MS, EVER_MS)
        self.table.mark(held.places)
        if not held.rows.size:
            return run
        free = np.ones(len(run), dtype=bool)
        free[held.rows] = False
        return run.take(np.flatnonzero(free))

    def record_emitted(self, anyway: SortedRun, live: SortedRun, free: SortedRun, clock_ms: int) -> None:
        """Record that rows of the keys of ``anyway``, whatever the pause, and of ``ready`` were emitted. More may
        come of ``ready`` and, among ``anyway``, of ``live``."""
        self.table.delete(self._slots_for(anyway))
        if self.pause_ms:
            for run in filter(len, (live, free)):
                rows = run.frame.select(*self.table.keys, pl.lit(clock_ms + self.pause_ms, pl.Int64).alias(EVENT_MS))
                self.table.add(self.table.to_run(rows))

    def _slots_for(self, run: SortedRun) -> Ints:
        return self.table.find(run, -EVER_MS, EVER_MS).places
