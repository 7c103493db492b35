"""Windows that are the same for all keys and fire at their ends, in columns.

Whatever is on time is grouped by key and piece once a cut; a window that ends is its pieces put together. Nothing is
kept for a window itself: it has fired if the watermark has passed its end. Only a window that takes a late element
becomes one of those that are kept one by one, starting from what its pieces held when it fired.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.operators.operator import StepTime
from streamcore.operators.windows.bundle import at, joined
from streamcore.operators.windows.columns import TIMINGS, Drops, Panes
from streamcore.operators.windows.elements import ProgressTable
from streamcore.operators.windows.grouping import distinct, expanded, numbered, sorted_distinct
from streamcore.operators.windows.journal import Journal
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.late import LateWindows
from streamcore.operators.windows.ordering import in_order
from streamcore.operators.windows.paning import Paning
from streamcore.operators.windows.pieces import PIECE, Piece, Pieces, together
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.singles import Singles
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tally import Tally
from streamcore.schema import EVENT_MS
from streamcore.windowing.triggers import AfterWatermark, Never, Trigger
from streamcore.windowing.values import END_OF_TIME_MS, Timing


def fires_at_end(trigger: Trigger) -> bool:
    """Whether a window has no pane before its end."""
    return isinstance(trigger, AfterWatermark) and (trigger.early is None or isinstance(trigger.early, Never))


class Paned:
    """Windows over pieces."""

    def __init__(self, plan: Plan, tally: Tally, paning: Paning) -> None:
        self.plan = plan
        self.tally = tally
        self.paning = paning
        self.progress = ProgressTable()
        self._shape = plan.shape
        self._none = at(plan.bundle.nothing(), np.empty(0, dtype=np.int64))
        trigger = plan.spec.trigger
        self._finishes = isinstance(trigger, AfterWatermark) and trigger.late is None
        self._empty()

    def _empty(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.pieces = Pieces(self.keys, self.plan.bundle)
        self.singles = Singles(self.plan, self.tally, self.keys)
        self._late = LateWindows(self.plan.spec, self.paning, self.pieces, self.singles)

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: StepTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The panes and the dropped of a cut."""
        self.settle()
        for table in self._journals().values():
            table.note()
        self.keys.sweep()
        first = self.progress.take(rows.height)
        numbers = np.arange(first, first + rows.height)
        general = self.singles.general
        general.begin(time.clock_ms, time.watermark_ms)
        drops = self._take(rows, numbers, time)
        early = len(general.fired)
        general.watermark(time.next_watermark_ms)
        self.progress.watermark_ms = time.next_watermark_ms
        singles, values = self.singles.finish(rows, numbers)
        others = self._shape.panes(self.keys, singles, values)
        main = in_order(self.keys, singles, others, early, self._ended(time))
        return main, self._shape.late(rows, drops, time.watermark_ms)

    def _take(self, rows: pl.DataFrame, numbers: Ints, time: StepTime) -> Drops:
        """Put each row into its piece, and into those of its windows that have ended."""
        piece = self.paning.piece(rows[EVENT_MS].to_numpy())
        last = piece // self.paning.step
        first = (piece - self.paning.length) // self.paning.step + 1
        expired, ended = self._expired(time.watermark_ms), self.paning.last_ended(time.watermark_ms)
        self.tally.elements += rows.height
        self.tally.assignments += int((last - first + 1).sum())
        drops = self._expire(first, last, expired)
        awake = np.flatnonzero(last > expired)
        if not awake.size:
            return drops
        slots = np.full(rows.height, -1)
        slots[awake] = self.keys.assign(rows if len(awake) == rows.height else rows[awake])
        self._late.take(rows, numbers, slots, np.maximum(first, expired + 1), np.minimum(last, ended))
        on_time = np.flatnonzero(last > ended)
        if on_time.size:
            taken = rows if len(on_time) == rows.height else rows[on_time]
            windows = (last - np.maximum(first, ended + 1) + 1)[on_time]
            self._add(taken, numbers[on_time], slots[on_time], piece[on_time], windows)
        return drops

    def _expire(self, first: Ints, last: Ints, expired: int) -> Drops:
        """The windows of each row that have expired."""
        if not first.size or int(first.min()) > expired:
            return Drops(*np.empty((4, 0), dtype=np.int64))
        row, window = expanded(first, np.minimum(last, expired))
        self.tally.dropped_expired += len(row)
        number, which = np.unique(window, return_inverse=True)
        start, end = self._bounds(number.tolist())
        return Drops(row, start[which], end[which], np.zeros(len(row), dtype=np.int64))

    def _add(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, piece: Ints, windows: Ints) -> None:
        """Merge rows into their pieces. ``windows``: into how many windows each goes by that."""
        lane, lanes = numbered(piece)
        group, one = distinct(lane * self.keys.size + slots, lanes * self.keys.size)
        entries, order = self._entries(slots[one], piece[one])
        room = self.plan.max_windows - self.pieces.entries
        new = np.flatnonzero(entries < 0)
        if len(new) > room:
            admitted = np.ones(len(one), dtype=bool)
            admitted[new[max(room, 0) :]] = False
            kept = admitted[group]
            self.tally.refused += int(windows[~kept].sum())
            if kept.any():
                self._add(rows.filter(pl.Series(kept)), numbers[kept], slots[kept], piece[kept], windows[kept])
            return
        self.tally.on_time += int(windows.sum())
        partials = self.plan.bundle.group(rows, numbers, group, len(one))
        for number, groups in order:
            self.pieces.put(number, slots[one][groups], entries[groups], at(partials, groups))

    def _entries(self, slots: Ints, piece: Ints) -> tuple[Ints, list[tuple[int, Ints]]]:
        """The entry of each pair, -1 where it is new; and the pairs of each piece."""
        entries = np.empty(len(slots), dtype=np.int64)
        found: list[tuple[int, Ints]] = []
        for number in sorted_distinct(piece).tolist():
            mine = np.flatnonzero(piece == number)
            entries[mine] = self.pieces.find(number, slots[mine])
            found.append((number, mine))
        return entries, found

    # --- firing -------------------------------------------------------------------------------------------------

    def _ended(self, time: StepTime) -> tuple[Panes, pl.DataFrame]:
        """The windows that the next watermark ends, by their ends; and it forgets the pieces of those that expire."""
        before, now = self.paning.last_ended(time.watermark_ms), self.paning.last_ended(time.next_watermark_ms)
        expired = self._expired(time.next_watermark_ms)
        windows = self._windows(before, now)
        parts = [together(self._pieces_of(window), self.keys, self.plan.bundle) for window in windows]
        counts = [len(slots) for slots, _ in parts]
        slots = np.concatenate([np.empty(0, np.int64), *(slots for slots, _ in parts)])
        window = np.repeat(np.array(windows, dtype=np.int64), counts)
        start, end = (np.repeat(bound, counts) for bound in self._bounds(windows))
        nothing = np.zeros(len(slots), dtype=np.int64)
        on_time = nothing + TIMINGS.index(Timing.ON_TIME)
        final = (window <= expired) | self._finishes
        panes = Panes(slots, start, end, nothing, on_time, final, nothing.astype(bool), nothing)
        partials = joined([self._none, *(held for _, held in parts)])
        self.tally.truncated += self.plan.bundle.truncated(partials)
        frame = self._shape.panes(self.keys, panes, self.plan.bundle.values(partials))
        self.pieces.remove((expired + 1) * self.paning.step)
        return panes, frame

    def _windows(self, after: int, upto: int) -> list[int]:
        """Those with any data, from the one after ``after`` to ``upto``."""
        step, length = self.paning.step, self.paning.length
        found: set[int] = set()
        for number in self.pieces.between((after + 1) * step, upto * step + length):
            found.update(range(max((number - length) // step + 1, after + 1), min(number // step, upto) + 1))
        return sorted(found)

    def _pieces_of(self, window: int) -> list[Piece]:
        first = window * self.paning.step
        return [self.pieces[number] for number in self.pieces.between(first, first + self.paning.length)]

    def _expired(self, watermark_ms: int) -> int:
        """The last window that has expired; with the stream all have."""
        ended = watermark_ms >= END_OF_TIME_MS
        return self.paning.last_ended(watermark_ms - (0 if ended else self.plan.spec.allowed_lateness_ms))

    def _bounds(self, windows: list[int]) -> tuple[Ints, Ints]:
        """Start and end of each window."""
        found = np.array([self.paning.bounds(window) for window in windows], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, Journal]:
        """All state."""
        return {**self._journals(), "progress": self.progress}

    def settle(self) -> None:
        """Take what was loaded since the last step, but for the pieces that are over: those that were here too, for
        that something is over is not stored where time says it."""
        journals = self._journals()
        if not (self.progress.settle() or any(table.loaded for table in journals.values())):
            return
        stored = {name: table.taken() for name, table in journals.items()}
        self._empty()
        self.singles.restore(stored)
        over = (self._expired(self.progress.watermark_ms) + 1) * self.paning.step
        self.pieces.restore(stored["pieces"].filter(pl.col(PIECE) >= over))

    def _journals(self) -> dict[str, Journal]:
        return {**self.singles.journals(), "pieces": self.pieces}
