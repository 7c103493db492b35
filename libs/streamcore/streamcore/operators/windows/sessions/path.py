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
from streamcore.operators.windows.element_fields import session_gaps
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
    """Session windows without allowed lateness: each fires one pane, when the watermark reaches its end."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, assigner: Session) -> None:
        self.plan = plan
        self.metrics = metrics
        self.assigner = assigner
        self.progress = ProgressTable()
        self._output = plan.output
        self._cold_count = 0
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.sessions = SessionWindowTable(self.keys, self.plan.aggregate_set, self.assigner.gap_ms)
        self.sessions.cold_count = self._cold_count
        self._merger = SessionMerger(self.plan, self.metrics, self.sessions)

    def set_cold_count(self, count: int) -> None:
        """Take over how many sessions are cold (``sessions.paging``); they count towards ``max_windows``."""
        self._cold_count = self.sessions.cold_count = count

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: CutTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process a cut; return its panes and its dropped elements."""
        self.apply_loaded()
        self.sessions.record_changes()
        self.keys.sweep()
        first_number = self.progress.take(rows.height)
        start = rows[EVENT_MS].to_numpy()
        end = start + session_gaps(rows, self.assigner)
        key_slots = self.keys.assign(rows)
        accepted = self._find_accepted(key_slots, start, end, time.watermark_ms)
        if accepted.all():
            self._merger.add(rows, np.arange(first_number, first_number + rows.height), key_slots, start, end)
        else:
            accepted_rows = np.flatnonzero(accepted)
            self._merger.add(
                rows[accepted_rows],
                first_number + accepted_rows,
                key_slots[accepted_rows],
                start[accepted_rows],
                end[accepted_rows],
            )
        dropped = np.flatnonzero(~accepted)
        drops = DroppedRows(dropped, start[dropped], end[dropped], np.zeros(len(dropped), dtype=np.int64))
        self.metrics.elements += rows.height
        self.metrics.assignments += rows.height
        self.metrics.dropped_expired += len(dropped)
        self.progress.watermark_ms = time.next_watermark_ms
        return self._emit_ended(time.next_watermark_ms), self._output.late(rows, drops, time.watermark_ms)

    # --- late rows ----------------------------------------------------------------------------------------------

    def _find_accepted(self, key_slots: Ints, start: Ints, end: Ints, watermark_ms: int) -> Mask:
        """Return a mask of the rows that are on time, or that overlap a live session of their key.

        Rows of keys without a late row are decided at once; the others one by one, in order of arrival.
        """
        accepted = end > watermark_ms
        late = np.flatnonzero(~accepted)
        if not late.size:
            return accepted
        has_late = np.zeros(self.keys.size, dtype=bool)
        has_late[key_slots[late]] = True
        late_keys = np.flatnonzero(has_late)  # key slots
        entries, entry_keys = self.sessions.entries_for(late_keys)
        sessions_by_key_slot: dict[int, IntervalSet] = {key_slot: IntervalSet() for key_slot in late_keys.tolist()}
        stored = (late_keys[entry_keys], self.sessions.start[entries], self.sessions.end[entries])
        for key_slot, start_ms, end_ms in zip(*(column.tolist() for column in stored), strict=True):
            sessions_by_key_slot[key_slot].add(start_ms, end_ms)
        for row in np.flatnonzero(has_late[key_slots]).tolist():
            sessions, start_ms, end_ms = sessions_by_key_slot[int(key_slots[row])], int(start[row]), int(end[row])
            accepted[row] = bool(accepted[row]) or sessions.overlaps(start_ms, end_ms)
            if accepted[row]:
                sessions.add(start_ms, end_ms)
        return accepted

    # --- firing -------------------------------------------------------------------------------------------------

    def _emit_ended(self, watermark_ms: int) -> pl.DataFrame:
        """Remove the sessions that the watermark ends; return their panes, ordered by end, then by hash of the key."""
        sessions = self.sessions
        entries = sessions.take_ended(watermark_ms)
        entries = entries[by_time_and_hash(sessions.end[entries], self.keys.hashes[sessions.key_slot[entries]])]
        key_slots, end = sessions.key_slot[entries], sessions.end[entries]
        zeros = np.zeros(len(entries), dtype=np.int64)
        timing, final = zeros + TIMINGS.index(Timing.ON_TIME), np.ones(len(entries), dtype=bool)
        panes = PaneFirings(key_slots, sessions.start[entries], end, zeros, timing, final, ~final, zeros)
        partials = take_rows(sessions.columns, entries)
        self.metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        frame = self._output.panes(self.keys, panes, self.plan.aggregate_set.values(partials))
        sessions.remove(entries)
        sessions.unlink_removed(key_slots[distinct(key_slots, self.keys.size)[1]])
        return frame

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return the tables of the sessions and of the operator's progress, by name."""
        return {"sessions": self.sessions, "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the rows loaded since the last step, without the sessions that the watermark has ended.

        A session's end is not stored, since it follows from the watermark.
        """
        if self.progress.apply_loaded() or self.sessions.loaded:
            rows = self.sessions.take_loaded()
            self._reset()
            not_ended = rows.filter(pl.col(END) > self.progress.watermark_ms)
            if not_ended.height:
                self.sessions.restore(not_ended)
