"""Sessions that fire once, at their ends, in columns.

The order of arrival matters only to elements so late that nothing but a session that is there keeps them: those, and
the keys they have, are gone through one by one first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.operators.operator import StepTime
from streamcore.operators.windows.bundle import at
from streamcore.operators.windows.columns import TIMINGS, Drops, Panes
from streamcore.operators.windows.elements import ProgressTable
from streamcore.operators.windows.grouping import by_time_and_hash, distinct
from streamcore.operators.windows.intervals import Living
from streamcore.operators.windows.joining import Joining
from streamcore.operators.windows.journal import Journal
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.sessions import Sessions
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tables import END
from streamcore.operators.windows.tally import Tally
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import Session
from streamcore.windowing.values import Timing

Mask = npt.NDArray[np.bool_]


class SessionWindows:
    """Sessions without allowed lateness, so that the pane at the end is all there is."""

    def __init__(self, plan: Plan, tally: Tally, assigner: Session) -> None:
        self.plan = plan
        self.tally = tally
        self.assigner = assigner
        self.progress = ProgressTable()
        self._shape = plan.shape
        self._empty()

    def _empty(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.sessions = Sessions(self.keys, self.plan.bundle, self.assigner.gap_ms)
        self._joining = Joining(self.plan, self.tally, self.sessions)

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: StepTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The panes and the dropped of a cut."""
        self.settle()
        self.sessions.note()
        self.keys.sweep()
        first = self.progress.take(rows.height)
        start = rows[EVENT_MS].to_numpy()
        end = start + self._gaps(rows)
        slots = self.keys.assign(rows)
        taken = self._taken(slots, start, end, time.watermark_ms)
        if taken.all():
            self._joining.add(rows, np.arange(first, first + rows.height), slots, start, end)
        else:
            kept = np.flatnonzero(taken)
            self._joining.add(rows[kept], first + kept, slots[kept], start[kept], end[kept])
        gone = np.flatnonzero(~taken)
        drops = Drops(gone, start[gone], end[gone], np.zeros(len(gone), dtype=np.int64))
        self.tally.elements += rows.height
        self.tally.assignments += rows.height
        self.tally.dropped_expired += len(gone)
        self.progress.watermark_ms = time.next_watermark_ms
        return self._ended(time.next_watermark_ms), self._shape.late(rows, drops, time.watermark_ms)

    def _gaps(self, rows: pl.DataFrame) -> Ints:
        """The gap after each event."""
        if self.assigner.gap_field is None:
            return np.full(rows.height, self.assigner.gap_ms)
        own = pl.col(self.assigner.gap_field).cast(pl.Int64, strict=False)
        return rows.select(pl.when(own > 0).then(own).otherwise(self.assigner.gap_ms)).to_series().to_numpy()

    # --- the late -----------------------------------------------------------------------------------------------

    def _taken(self, slots: Ints, start: Ints, end: Ints, watermark_ms: int) -> Mask:
        """Which rows are in time, or in a session that is."""
        taken = end > watermark_ms
        late = np.flatnonzero(~taken)
        if not late.size:
            return taken
        concerned = np.zeros(self.keys.size, dtype=bool)
        concerned[slots[late]] = True
        keys = np.flatnonzero(concerned)
        entries, place = self.sessions.of(keys)
        living: dict[int, Living] = {slot: Living() for slot in keys.tolist()}
        known = (keys[place], self.sessions.start[entries], self.sessions.end[entries])
        for slot, first, last in zip(*(column.tolist() for column in known), strict=True):
            living[slot].join(first, last)
        for row in np.flatnonzero(concerned[slots]).tolist():
            of, first, last = living[int(slots[row])], int(start[row]), int(end[row])
            taken[row] = bool(taken[row]) or of.meets(first, last)
            if taken[row]:
                of.join(first, last)
        return taken

    # --- firing -------------------------------------------------------------------------------------------------

    def _ended(self, watermark_ms: int) -> pl.DataFrame:
        """The sessions that the watermark ends, by their ends, then by the hashes of their keys."""
        sessions = self.sessions
        entries = sessions.ending(watermark_ms)
        entries = entries[by_time_and_hash(sessions.end[entries], self.keys.hashes[sessions.slot[entries]])]
        slots, end = sessions.slot[entries], sessions.end[entries]
        nothing = np.zeros(len(entries), dtype=np.int64)
        timing, final = nothing + TIMINGS.index(Timing.ON_TIME), np.ones(len(entries), dtype=bool)
        panes = Panes(slots, sessions.start[entries], end, nothing, timing, final, ~final, nothing)
        partials = at(sessions.columns, entries)
        self.tally.truncated += self.plan.bundle.truncated(partials)
        frame = self._shape.panes(self.keys, panes, self.plan.bundle.values(partials))
        sessions.remove(entries)
        keys = slots[distinct(slots, self.keys.size)[1]]
        others, place = sessions.of(keys)
        left = np.flatnonzero(sessions.end[others] != sessions.FREE)
        left = left[np.argsort(place[left], kind="stable")]
        sessions.link(keys, others[left], place[left])
        return frame

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, Journal]:
        """All state."""
        return {"sessions": self.sessions, "progress": self.progress}

    def settle(self) -> None:
        """Take what was loaded since the last step, but for the sessions that are over: those that were here too, for
        that something is over is not stored where time says it."""
        if self.progress.settle() or self.sessions.loaded:
            rows = self.sessions.taken()
            self._empty()
            living = rows.filter(pl.col(END) > self.progress.watermark_ms)
            if living.height:
                self.sessions.restore(living)
