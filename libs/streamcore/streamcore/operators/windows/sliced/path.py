"""Windows that are the same for all keys and fire at their ends, in columns.

Whatever is on time is grouped by key and slice once a cut; a window that ends is its slices merged. Nothing is
kept for a window itself: it has fired if the watermark has passed its end. Only a window that takes a late element
becomes one of those that are kept one by one, starting from the contents of its slices when it fired.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.columnar.grouping import dense_codes, distinct, expand_ranges, sorted_distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.base import CutTime
from streamcore.operators.windows.aggregate_set import concat_rows, take_rows
from streamcore.operators.windows.general.element_table import ProgressTable
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.windows import TriggeredWindowStore
from streamcore.operators.windows.journal import JournaledTable
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import TIMINGS, DroppedRows, PaneFirings
from streamcore.operators.windows.output_order import in_order
from streamcore.operators.windows.sliced.late_windows import LateWindowStore
from streamcore.operators.windows.sliced.slice_table import SLICE, Slice, SliceTable, combine_slices
from streamcore.operators.windows.sliced.slicing import Slicing
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import END_OF_TIME_MS, Timing
from streamcore.windowing.triggers import AfterWatermark, Never, Trigger


def fires_at_end(trigger: Trigger) -> bool:
    """Return whether a window has no pane before its end."""
    return isinstance(trigger, AfterWatermark) and (trigger.early is None or isinstance(trigger.early, Never))


class SlicedWindows:
    """Computes windows over slices."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, slicing: Slicing) -> None:
        self.plan = plan
        self.metrics = metrics
        self.slicing = slicing
        self.progress = ProgressTable()
        self._output = plan.output
        self._none = take_rows(plan.aggregate_set.empty_partial(), np.empty(0, dtype=np.int64))
        trigger = plan.spec.trigger
        self._finishes = isinstance(trigger, AfterWatermark) and trigger.late is None
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.slices = SliceTable(self.keys, self.plan.aggregate_set)
        self.triggered = TriggeredWindowStore(self.plan, self.metrics, self.keys)
        self._late = LateWindowStore(self.plan.spec, self.slicing, self.slices, self.triggered)

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: CutTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process a cut; return its panes and its dropped elements."""
        self.apply_loaded()
        for table in self._journals().values():
            table.record_changes()
        self.keys.sweep()
        first = self.progress.take(rows.height)
        numbers = np.arange(first, first + rows.height)
        general = self.triggered.engine
        general.begin(time.clock_ms, time.watermark_ms)
        drops = self._take(rows, numbers, time)
        early = len(general.fired)
        general.watermark(time.next_watermark_ms)
        self.progress.watermark_ms = time.next_watermark_ms
        triggered, values = self.triggered.finish(rows, numbers)
        others = self._output.panes(self.keys, triggered, values)
        main = in_order(self.keys, triggered, others, early, self._emit_ended(time))
        return main, self._output.late(rows, drops, time.watermark_ms)

    def _take(self, rows: pl.DataFrame, numbers: Ints, time: CutTime) -> DroppedRows:
        """Put each row into its slice, and into those of its windows that have ended."""
        time_slice = self.slicing.slices(rows[EVENT_MS].to_numpy())
        last = time_slice // self.slicing.step
        first = (time_slice - self.slicing.length) // self.slicing.step + 1
        expired, ended = self._last_expired(time.watermark_ms), self.slicing.last_ended(time.watermark_ms)
        self.metrics.elements += rows.height
        self.metrics.assignments += int((last - first + 1).sum())
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
            self._add(taken, numbers[on_time], slots[on_time], time_slice[on_time], windows)
        return drops

    def _expire(self, first: Ints, last: Ints, expired: int) -> DroppedRows:
        """Return the expired windows of each row."""
        if not first.size or int(first.min()) > expired:
            return DroppedRows(*np.empty((4, 0), dtype=np.int64))
        row, window = expand_ranges(first, np.minimum(last, expired))
        self.metrics.dropped_expired += len(row)
        number, which = np.unique(window, return_inverse=True)
        start, end = self._bounds(number.tolist())
        return DroppedRows(row, start[which], end[which], np.zeros(len(row), dtype=np.int64))

    def _add(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, time_slice: Ints, windows: Ints) -> None:
        """Merge rows into their slices. ``windows``: into how many windows each goes by that."""
        lane, lanes = dense_codes(time_slice)
        group, one = distinct(lane * self.keys.size + slots, lanes * self.keys.size)
        entries, order = self._entries(slots[one], time_slice[one])
        room = self.plan.max_windows - self.slices.entries
        new = np.flatnonzero(entries < 0)
        if len(new) > room:
            admitted = np.ones(len(one), dtype=bool)
            admitted[new[max(room, 0) :]] = False
            kept = admitted[group]
            self.metrics.refused += int(windows[~kept].sum())
            if kept.any():
                self._add(rows.filter(pl.Series(kept)), numbers[kept], slots[kept], time_slice[kept], windows[kept])
            return
        self.metrics.on_time += int(windows.sum())
        partials = self.plan.aggregate_set.aggregate_groups(rows, numbers, group, len(one))
        for number, groups in order:
            self.slices.put(number, slots[one][groups], entries[groups], take_rows(partials, groups))

    def _entries(self, slots: Ints, time_slice: Ints) -> tuple[Ints, list[tuple[int, Ints]]]:
        """Return the entry of each pair (-1: new), and the pairs of each slice."""
        entries = np.empty(len(slots), dtype=np.int64)
        found: list[tuple[int, Ints]] = []
        for number in sorted_distinct(time_slice).tolist():
            mine = np.flatnonzero(time_slice == number)
            entries[mine] = self.slices.find(number, slots[mine])
            found.append((number, mine))
        return entries, found

    # --- firing -------------------------------------------------------------------------------------------------

    def _emit_ended(self, time: CutTime) -> tuple[PaneFirings, pl.DataFrame]:
        """Return the windows that the next watermark ends, by their ends; and it forgets the slices of those that
        expire."""
        before, now = self.slicing.last_ended(time.watermark_ms), self.slicing.last_ended(time.next_watermark_ms)
        expired = self._last_expired(time.next_watermark_ms)
        windows = self._windows(before, now)
        parts = [
            combine_slices(self._slices_for_window(window), self.keys, self.plan.aggregate_set) for window in windows
        ]
        counts = [len(slots) for slots, _ in parts]
        slots = np.concatenate([np.empty(0, np.int64), *(slots for slots, _ in parts)])
        window = np.repeat(np.array(windows, dtype=np.int64), counts)
        start, end = (np.repeat(bound, counts) for bound in self._bounds(windows))
        nothing = np.zeros(len(slots), dtype=np.int64)
        on_time = nothing + TIMINGS.index(Timing.ON_TIME)
        final = (window <= expired) | self._finishes
        panes = PaneFirings(slots, start, end, nothing, on_time, final, nothing.astype(bool), nothing)
        partials = concat_rows([self._none, *(held for _, held in parts)])
        self.metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        frame = self._output.panes(self.keys, panes, self.plan.aggregate_set.values(partials))
        self.slices.remove((expired + 1) * self.slicing.step)
        return panes, frame

    def _windows(self, after: int, upto: int) -> list[int]:
        """Return those with any data, from the one after ``after`` to ``upto``."""
        step, length = self.slicing.step, self.slicing.length
        found: set[int] = set()
        for number in self.slices.between((after + 1) * step, upto * step + length):
            found.update(range(max((number - length) // step + 1, after + 1), min(number // step, upto) + 1))
        return sorted(found)

    def _slices_for_window(self, window: int) -> list[Slice]:
        first = window * self.slicing.step
        return [self.slices[number] for number in self.slices.between(first, first + self.slicing.length)]

    def _last_expired(self, watermark_ms: int) -> int:
        """Return the last window that has expired; at the end of the stream all have."""
        ended = watermark_ms >= END_OF_TIME_MS
        return self.slicing.last_ended(watermark_ms - (0 if ended else self.plan.spec.allowed_lateness_ms))

    def _bounds(self, windows: list[int]) -> tuple[Ints, Ints]:
        """Return start and end of each window."""
        found = np.array([self.slicing.bounds(window) for window in windows], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return all state."""
        return {**self._journals(), "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the rows loaded since the last step, without the slices that the watermark has expired.

        A slice's expiry is not stored, since it follows from the watermark.
        """
        journals = self._journals()
        if not (self.progress.apply_loaded() or any(table.loaded for table in journals.values())):
            return
        stored = {name: table.take_loaded() for name, table in journals.items()}
        self._reset()
        self.triggered.restore(stored)
        over = (self._last_expired(self.progress.watermark_ms) + 1) * self.slicing.step
        self.slices.restore(stored["pieces"].filter(pl.col(SLICE) >= over))

    def _journals(self) -> dict[str, JournaledTable]:
        return {**self.triggered.journals(), "pieces": self.slices}
