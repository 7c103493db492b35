"""Sessions that fire once, at their ends, in columns.

All rows of a cut and the sessions of their keys are sorted by key and start, and what overlaps becomes one. The order
of arrival matters only to elements so late that nothing but a session that is there keeps them: those, and the keys
they have, are gone through one by one first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.operators.operator import StepTime
from streamcore.operators.windows.bundle import Columns, at
from streamcore.operators.windows.columns import TIMINGS, Drops, Panes
from streamcore.operators.windows.elements import ProgressTable
from streamcore.operators.windows.grouping import by_time_and_hash, distinct, runs
from streamcore.operators.windows.intervals import Joined, Living
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
            self._add(rows, np.arange(first, first + rows.height), slots, start, end)
        else:
            kept = np.flatnonzero(taken)
            self._add(rows[kept], first + kept, slots[kept], start[kept], end[kept])
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

    # --- joining ------------------------------------------------------------------------------------------------

    def _add(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, start: Ints, end: Ints) -> None:
        """Merge rows into the sessions of their keys."""
        if not slots.size:
            return
        which, one = distinct(slots, self.keys.size)
        keys = slots[one]
        entries, place = self.sessions.of(keys)
        joined = Joined.of(
            np.concatenate([place, which]),
            np.concatenate([self.sessions.start[entries], start]),
            np.concatenate([self.sessions.end[entries], end]),
        )
        group = joined.group[len(entries) :]
        refused = self._refused(joined, len(entries))
        if refused.size:
            self.tally.refused += int(np.isin(group, refused).sum())
            kept = np.flatnonzero(~np.isin(group, refused))
            self._add(rows[kept], numbers[kept], slots[kept], start[kept], end[kept])
            return
        self.tally.on_time += len(slots)
        self._merge(rows, numbers, keys, entries, joined)

    def _refused(self, joined: Joined, known: int) -> Ints:
        """The new sessions that are too many, by their first arrivals."""
        room = self.plan.max_windows - self.sessions.count
        if len(joined.start) <= room:
            return np.empty(0, dtype=np.int64)
        groups = joined.group[known:]
        fresh = np.ones(len(joined.start), dtype=bool)
        fresh[joined.group[:known]] = False
        _, first = distinct(groups, len(fresh))
        arriving = groups[first]
        return arriving[fresh[arriving]][max(room, 0) :]

    def _merge(self, rows: pl.DataFrame, numbers: Ints, keys: Ints, entries: Ints, joined: Joined) -> None:
        sessions, known = self.sessions, len(entries)
        touched = np.zeros(len(joined.start), dtype=bool)
        touched[joined.group[known:]] = True
        number = np.cumsum(touched) - 1  # of the groups that take rows
        partials = self.plan.bundle.group(rows, numbers, number[joined.group[known:]], int(touched.sum()))
        # The entries in the order of their groups; the first of a group goes on, the others are taken in.
        order = np.argsort(joined.group[:known], kind="stable")
        entries, of = entries[order], joined.group[:known][order]
        firsts = runs(of)
        final = np.full(len(joined.start), -1)
        final[of[firsts]] = entries[firsts]
        if entries.size:
            partials = self._with_held(entries, of, joined, np.where(touched, number, -1), partials)
        new = np.flatnonzero(final < 0)
        final[new] = sessions.new(keys[joined.place[new]])
        sessions.write(final[touched], joined.start[touched], joined.end[touched], partials)
        sessions.link(keys, final, joined.place)

    def _with_held(self, entries: Ints, of: Ints, joined: Joined, number: Ints, partials: Columns) -> Columns:
        """The partials with what the entries held, which are in the order of their groups ``of``. All entries of a
        group but the first are no more. ``number``: of the group among the partials, -1 where it is not."""
        sessions = self.sessions
        mine = np.flatnonzero(number[of] >= 0)
        entries, of = entries[mine], of[mine]
        firsts = runs(of)
        held = at(sessions.columns, entries)
        held = held if len(firsts) == len(of) else self.plan.bundle.reduce(held, firsts)
        into = number[of[firsts]]
        merged = self.plan.bundle.merge(held, at(partials, into))
        partials = {name: column.copy() for name, column in partials.items()}
        for name, values in merged.items():
            partials[name][into] = values
        moved = entries[sessions.start[entries] != joined.start[of]]
        sessions.moved(sessions.slot[moved], sessions.start[moved])
        sessions.remove(np.delete(entries, firsts))
        return partials

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
