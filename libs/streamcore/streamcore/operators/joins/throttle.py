"""Limits how often rows of a key are emitted, and stores which keys have changes that wait because of this.

The pause is measured by the clock of the cut, so a replayed cut decides alike. The table has a row for each key whose
pause is not over; the row is marked if changes of the key are waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import MARKED, Ints, SortedRun
from streamcore.windowing.model import END_OF_TIME_MS

#: A distance in time that covers all rows, in milliseconds.
EVER_MS = END_OF_TIME_MS // 2
_NO_PLACES = np.empty(0, dtype=np.int64)


class OutputThrottle:
    """The pauses of the keys of a shard.

    ``keys``: the key columns and their types. ``pause_ms``: the shortest time between two rows of a key; with 0 all
    rows are emitted at once and the table stays empty.
    """

    def __init__(self, keys: Mapping[str, pl.DataType], pause_ms: int) -> None:
        self.pause_ms = pause_ms
        self.table = RowTable({**keys, EVENT_MS: pl.Int64()}, tuple(keys))
        self._none = self.table.run(_NO_PLACES)

    def due(self, clock_ms: int) -> SortedRun:
        """Delete the keys whose pause is over; return those among them with waiting changes."""
        places = self.table.between(-EVER_MS, clock_ms + 1)
        if not places.size:
            return self._none
        run = self.table.run(places[self.table.states(places) & MARKED > 0])
        self.table.delete(places)
        return run

    def ready(self, run: SortedRun) -> SortedRun:
        """Return the rows that may be emitted at once, and mark the keys of the others. The keys must be distinct."""
        if not len(self.table):
            return run
        paused = self.table.find(run, -EVER_MS, EVER_MS)
        self.table.mark(paused.places)
        if not paused.rows.size:
            return run
        is_ready = np.ones(len(run), dtype=bool)
        is_ready[paused.rows] = False
        return run.take(np.flatnonzero(is_ready))

    def record_emitted(self, unthrottled: SortedRun, existing: SortedRun, throttled: SortedRun, clock_ms: int) -> None:
        """Record the emitted rows, and start the pauses of their keys.

        ``unthrottled``: rows that were emitted regardless of their pauses, which end; ``existing``: those among them
        that are no deletions, whose pauses start again. ``throttled``: rows that ``ready`` allowed.
        """
        self.table.delete(self._find_places(unthrottled))
        if self.pause_ms:
            for run in filter(len, (existing, throttled)):
                rows = run.frame.select(*self.table.keys, pl.lit(clock_ms + self.pause_ms, pl.Int64).alias(EVENT_MS))
                self.table.add(self.table.to_run(rows))

    def _find_places(self, run: SortedRun) -> Ints:
        return self.table.find(run, -EVER_MS, EVER_MS).places
