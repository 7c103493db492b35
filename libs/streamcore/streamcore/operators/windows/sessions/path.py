"""Sessions that fire once, at their ends, in columns.

The order of arrival matters only for elements that are so late that they are accepted only into an existing session.
Their keys are therefore processed first, one element at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import by_time_and_hash, distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.intervals import IntervalSet
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.base import CutTime
from streamcore.operators.windows.aggregate_set import take_rows
from streamcore.operators.windows.general.element_table import ProgressTable
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.window_table import END
from streamcore.operators.windows.journal import JournaledTable
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import TIMINGS, DroppedRows, PaneFirings
from streamcore.operators.windows.sessions.merge import SessionMerger
from streamcore.operators.windows.sessions.session_table import SessionWindowTable
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import Session
from streamcore.windowing.model import Timing

Mask = npt.NDArray[np.bool_]


class SessionWindows:
    """Sessions without allowed lateness, so that the pane at the end is all there is."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, assigner: Session) -> None:
        self.plan = plan
        self.metrics = metrics
        self.assigner = assigner
        self.progress = ProgressTable()
        self._output = plan.output
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.sessions = SessionWindowTable(self.keys, self.plan.aggregate_set, self.assigner.gap_ms)
        self._merger = SessionMerger(self.plan, self.metrics, self.sessions)

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: CutTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process a cut; return its panes and its dropped elements."""
        self.apply_loaded()
        self.sessions.record_changes()
        self.keys.sweep()
        first = self.progress.take(rows.height)
        start = rows[EVENT_MS].to_numpy()
        end = start + self._gaps(rows)
        slots = self.keys.assign(rows)
        taken = self._find_accepted(slots, start, end, time.watermark_ms)
        if taken.all():
            self._merger.add(rows, np.arange(first, first + rows.height), slots, start, end)
        else:
            kept = np.flatnonzero(taken)
            self._merger.add(rows[kept], first + kept, slots[kept], start[kept], end[kept])
        gone = np.flatnonzero(~taken)
        drops = DroppedRows(gone, start[gone], end[gone], np.zeros(len(gone), dtype=np.int64))
        self.metrics.elements += rows.height
        self.metrics.assignments += rows.height
        self.metrics.dropped_expired += len(gone)
        self.progress.watermark_ms = time.next_watermark_ms
        return self._emit_ended(time.next_watermark_ms), self._output.late(rows, drops, time.watermark_ms)

    def _gaps(self, rows: pl.DataFrame) -> Ints:
        """Return the gap after each event."""
        if self.assigner.gap_field is None:
            return np.full(rows.height, self.assigner.gap_ms)
        own = pl.col(self.assigner.gap_field).cast(pl.Int64, strict=False)
        return rows.select(pl.when(own > 0).then(own).otherwise(self.assigner.gap_ms)).to_series().to_numpy()

    # --- late rows ----------------------------------------------------------------------------------------------

    def _find_accepted(self, slots: Ints, start: Ints, end: Ints, watermark_ms: int) -> Mask:
        """Return a mask of shape (rows,): rows that are on time, or that overlap a session that is still live.

        Rows of keys without a late row are decided at once; the others one by one, in order of arrival.
        """
        taken = end > watermark_ms
        late = np.flatnonzero(~taken)
        if not late.size:
            return taken
        has_late = np.zeros(self.keys.size, dtype=bool)
        has_late[slots[late]] = True
        key_slots = np.flatnonzero(has_late)
        entries, entry_keys = self.sessions.entries_for(key_slots)
        live: dict[int, IntervalSet] = {slot: IntervalSet() for slot in key_slots.tolist()}
        known = (key_slots[entry_keys], self.sessions.start[entries], self.sessions.end[entries])
        for slot, first, last in zip(*(column.tolist() for column in known), strict=True):
            live[slot].add(first, last)
        for row in np.flatnonzero(has_late[slots]).tolist():
            sessions, first, last = live[int(slots[row])], int(start[row]), int(end[row])
            taken[row] = bool(taken[row]) or sessions.overlaps(first, last)
            if taken[row]:
                sessions.add(first, last)
        return taken

    # --- firing -------------------------------------------------------------------------------------------------

    def _emit_ended(self, watermark_ms: int) -> pl.DataFrame:
        """Return the sessions that the watermark ends, by their ends, then by the hashes of their keys."""
        sessions = self.sessions
        entries = sessions.take_ended(watermark_ms)
        entries = entries[by_time_and_hash(sessions.end[entries], self.keys.hashes[sessions.slot[entries]])]
        slots, end = sessions.slot[entries], sessions.end[entries]
        nothing = np.zeros(len(entries), dtype=np.int64)
        timing, final = nothing + TIMINGS.index(Timing.ON_TIME), np.ones(len(entries), dtype=bool)
        panes = PaneFirings(slots, sessions.start[entries], end, nothing, timing, final, ~final, nothing)
        partials = take_rows(sessions.columns, entries)
        self.metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        frame = self._output.panes(self.keys, panes, self.plan.aggregate_set.values(partials))
        sessions.remove(entries)
        keys = slots[distinct(slots, self.keys.size)[1]]
        remaining, entry_keys = sessions.entries_for(keys)
        live = np.flatnonzero(sessions.end[remaining] != sessions.FREE)
        live = live[np.argsort(entry_keys[live], kind="stable")]
        sessions.link(keys, remaining[live], entry_keys[live])
        return frame

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return all state."""
        return {"sessions": self.sessions, "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the rows loaded since the last step, without the sessions that the watermark has ended.

        A session's end is not stored, since it follows from the watermark.
        """
        if self.progress.apply_loaded() or self.sessions.loaded:
            rows = self.sessions.take_loaded()
            self._reset()
            living = rows.filter(pl.col(END) > self.progress.watermark_ms)
            if living.height:
                self.sessions.restore(living)
