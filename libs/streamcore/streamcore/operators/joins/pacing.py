"""How often something is said of a key: what has just been said, and what waits because of that.

By the clock of the cut, so it is the same whenever the cut runs again. Of a key there is a row while less than the
pause has passed since something was said of it; the row's mark says that something waits. Refuses to know what is said.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.schema import EVENT_MS
from streamcore.state.rows import RowTable
from streamcore.state.run import MARKED, Ints, Run
from streamcore.windowing.values import END_OF_TIME_MS

#: Any distance in time.
EVER_MS = END_OF_TIME_MS // 2
_NO_PLACES = np.empty(0, dtype=np.int64)


class Pacing:
    """``pause_ms`` 0: everything at once, and nothing is kept. ``keys``: their columns."""

    def __init__(self, keys: Mapping[str, pl.DataType], pause_ms: int) -> None:
        self.pause_ms = pause_ms
        self.table = RowTable({**keys, EVENT_MS: pl.Int64()}, tuple(keys))
        self._none = self.table.run(_NO_PLACES)

    def due(self, clock_ms: int) -> Run:
        """Forget the keys whose pause is over. Returns those of them of which something has waited."""
        over = self.table.between(-EVER_MS, clock_ms + 1)
        if not over.size:
            return self._none
        run = self.table.run(over[self.table.states(over) & MARKED > 0])
        self.table.delete(over)
        return run

    def free(self, run: Run) -> Run:
        """Of rows with distinct keys those that may go at once; the others wait."""
        if not len(self.table):
            return run
        held = self.table.find(run, -EVER_MS, EVER_MS)
        self.table.mark(held.places)
        if not held.rows.size:
            return run
        free = np.ones(len(run), dtype=bool)
        free[held.rows] = False
        return run.take(np.flatnonzero(free))

    def gave(self, anyway: Run, live: Run, free: Run, clock_ms: int) -> None:
        """Something has been said of the keys of ``anyway``, whatever the pause, and of those of ``free``. More may
        come of ``free`` and, among ``anyway``, of ``live``."""
        self.table.delete(self._places(anyway))
        if self.pause_ms:
            for run in filter(len, (live, free)):
                rows = run.frame.select(*self.table.keys, pl.lit(clock_ms + self.pause_ms, pl.Int64).alias(EVENT_MS))
                self.table.add(self.table.sort(rows))

    def _places(self, run: Run) -> Ints:
        return self.table.find(run, -EVER_MS, EVER_MS).places
