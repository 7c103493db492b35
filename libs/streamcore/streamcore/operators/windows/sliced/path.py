"""Windows whose bounds are equal for all keys and that fire at their ends, in columns.

Once per cut the on-time elements are grouped by key and slice. A window that ends merges its slices. No state is stored
for a window itself: it has fired if the watermark has passed its end. Only a window that accepts a late element is
stored one by one, by the general path, starting with the contents of its slices when it fired.
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
from streamcore.operators.windows.general.element_table import ProgressTable, take_loaded
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
    """The windows of a shard: slices for on-time elements, and the general path for windows with late elements."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, slicing: Slicing) -> None:
        self.plan = plan
        self.metrics = metrics
        self.slicing = slicing
        self.progress = ProgressTable()
        self._output = plan.output
        self._none = take_rows(plan.aggregate_set.empty_partial(), np.empty(0, dtype=np.int64))
        trigger = plan.spec.trigger
        self.cold_count = 0  # entries that are on disk (``sliced.paging``); they count towards ``max_windows``
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
        engine = self.triggered.engine
        engine.begin(time.clock_ms, time.watermark_ms)
        drops = self._take(rows, numbers, time)
        fired_before_rows = len(engine.fired)
        engine.watermark(time.next_watermark_ms)
        self.progress.watermark_ms = time.next_watermark_ms
        triggered, values = self.triggered.finish(rows, numbers)
        triggered_panes = self._output.panes(self.keys, triggered, values)
        main = in_order(self.keys, triggered, triggered_panes, fired_before_rows, self._emit_ended(time))
        return main, self._output.late(rows, drops, time.watermark_ms)

    def _take(self, rows: pl.DataFrame, numbers: Ints, time: CutTime) -> DroppedRows:
        """Add each row to its slice and to its windows that have ended; return the expired windows of the rows."""
        time_slice = self.slicing.slices(rows[EVENT_MS].to_numpy())
        last = time_slice // self.slicing.step
        first = (time_slice - self.slicing.length) // self.slicing.step + 1
        expired, ended = self._last_expired(time.watermark_ms), self.slicing.last_ended(time.watermark_ms)
        self.metrics.elements += rows.height
        self.metrics.assignments += int((last - first + 1).sum())
        drops = self._expire(first, last, expired)
        not_expired = np.flatnonzero(last > expired)
        if not not_expired.size:
            return drops
        key_slots = np.full(rows.height, -1)
        key_slots[not_expired] = self.keys.assign(rows if len(not_expired) == rows.height else rows[not_expired])
        self._late.take(rows, numbers, key_slots, np.maximum(first, expired + 1), np.minimum(last, ended))
        on_time = np.flatnonzero(last > ended)
        if on_time.size:
            on_time_rows = rows if len(on_time) == rows.height else rows[on_time]
            windows = (last - np.maximum(first, ended + 1) + 1)[on_time]
            self._add(on_time_rows, numbers[on_time], key_slots[on_time], time_slice[on_time], windows)
        return drops

    def _expire(self, first: Ints, last: Ints, expired: int) -> DroppedRows:
        """Return the expired windows of each row."""
        if not first.size or int(first.min()) > expired:
            return DroppedRows(*np.empty((4, 0), dtype=np.int64))
        row, window = expand_ranges(first, np.minimum(last, expired))
        self.metrics.dropped_expired += len(row)
        number, number_index = np.unique(window, return_inverse=True)
        start, end = self._bounds(number.tolist())
        return DroppedRows(row, start[number_index], end[number_index], np.zeros(len(row), dtype=np.int64))

    def _add(self, rows: pl.DataFrame, numbers: Ints, key_slots: Ints, time_slice: Ints, windows: Ints) -> None:
        """Merge rows into their slices. ``windows``, of shape (rows,): the number of open windows of each row."""
        slice_code, slice_count = dense_codes(time_slice)
        group, first_rows = distinct(slice_code * self.keys.size + key_slots, slice_count * self.keys.size)
        entries, order = self._entries(key_slots[first_rows], time_slice[first_rows])
        room = self.plan.max_windows - self.slices.entries - self.cold_count
        new = np.flatnonzero(entries < 0)
        if len(new) > room:
            admitted = np.ones(len(first_rows), dtype=bool)
            admitted[new[max(room, 0) :]] = False
            accepted = admitted[group]
            self.metrics.rejected += int(windows[~accepted].sum())
            if accepted.any():
                self._add(
                    rows.filter(pl.Series(accepted)),
                    numbers[accepted],
                    key_slots[accepted],
                    time_slice[accepted],
                    windows[accepted],
                )
            return
        self.metrics.on_time += int(windows.sum())
        partials = self.plan.aggregate_set.aggregate_groups(rows, numbers, group, len(first_rows))
        for number, groups in order:
            self.slices.put(number, key_slots[first_rows][groups], entries[groups], take_rows(partials, groups))

    def _entries(self, key_slots: Ints, time_slice: Ints) -> tuple[Ints, list[tuple[int, Ints]]]:
        """Return the entry of each pair of key slot and slice (-1: none yet), and the indexes of the pairs by slice."""
        entries = np.empty(len(key_slots), dtype=np.int64)
        pairs_by_slice: list[tuple[int, Ints]] = []
        for number in sorted_distinct(time_slice).tolist():
            pairs = np.flatnonzero(time_slice == number)
            entries[pairs] = self.slices.find(number, key_slots[pairs])
            pairs_by_slice.append((number, pairs))
        return entries, pairs_by_slice

    def next_use_ms(self, number: int) -> int:
        """Return the watermark at which a slice is used next: at the end of a window, or when its last one expires."""
        last = number // self.slicing.step
        first = (number - self.slicing.length) // self.slicing.step + 1
        next_window = max(first, self.slicing.last_ended(self.progress.watermark_ms) + 1)
        if next_window <= last:
            return self.slicing.bounds(next_window)[1]
        return self.slicing.bounds(last)[1] + self.plan.spec.allowed_lateness_ms

    # --- firing -------------------------------------------------------------------------------------------------

    def _emit_ended(self, time: CutTime) -> tuple[PaneFirings, pl.DataFrame]:
        """Return the panes of the windows that the next watermark ends, ordered by end, and drop the slices of expired
        windows."""
        previous, last = self.slicing.last_ended(time.watermark_ms), self.slicing.last_ended(time.next_watermark_ms)
        expired = self._last_expired(time.next_watermark_ms)
        windows = self._windows(previous, last)
        parts = [
            combine_slices(self._slices_for_window(window), self.keys, self.plan.aggregate_set) for window in windows
        ]
        counts = [len(key_slots) for key_slots, _ in parts]
        key_slots = np.concatenate([np.empty(0, np.int64), *(key_slots for key_slots, _ in parts)])
        window = np.repeat(np.array(windows, dtype=np.int64), counts)
        start, end = (np.repeat(bound, counts) for bound in self._bounds(windows))
        zeros = np.zeros(len(key_slots), dtype=np.int64)
        on_time = zeros + TIMINGS.index(Timing.ON_TIME)
        final = (window <= expired) | self._finishes
        panes = PaneFirings(key_slots, start, end, zeros, on_time, final, zeros.astype(bool), zeros)
        partials = concat_rows([self._none, *(partials_of_window for _, partials_of_window in parts)])
        self.metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        frame = self._output.panes(self.keys, panes, self.plan.aggregate_set.values(partials))
        self.slices.remove((expired + 1) * self.slicing.step)
        return panes, frame

    def _windows(self, after: int, upto: int) -> list[int]:
        """Return the numbers of the windows with elements, from ``after + 1`` to ``upto``."""
        step, length = self.slicing.step, self.slicing.length
        windows: set[int] = set()
        for number in self.slices.between((after + 1) * step, upto * step + length):
            windows.update(range(max((number - length) // step + 1, after + 1), min(number // step, upto) + 1))
        return sorted(windows)

    def _slices_for_window(self, window: int) -> list[Slice]:
        first = window * self.slicing.step
        return [self.slices[number] for number in self.slices.between(first, first + self.slicing.length)]

    def _last_expired(self, watermark_ms: int) -> int:
        """Return the last window that has expired; at the end of the stream all have."""
        ended = watermark_ms >= END_OF_TIME_MS
        return self.slicing.last_ended(watermark_ms - (0 if ended else self.plan.spec.allowed_lateness_ms))

    def _bounds(self, windows: list[int]) -> tuple[Ints, Ints]:
        """Return start and end of each window."""
        bounds = np.array([self.slicing.bounds(window) for window in windows], dtype=np.int64).reshape(-1, 2)
        return bounds[:, 0], bounds[:, 1]

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return all state tables by name."""
        return {**self._journals(), "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the rows loaded since the last step, without the slices that the watermark has expired.

        A slice's expiry is not stored, since it follows from the watermark.
        """
        stored = take_loaded(self.progress, self._journals())
        if stored is None:
            return
        self._reset()
        self.triggered.restore(stored)
        first_slice = (self._last_expired(self.progress.watermark_ms) + 1) * self.slicing.step
        self.slices.restore(stored["pieces"].filter(pl.col(SLICE) >= first_slice))

    def _journals(self) -> dict[str, JournaledTable]:
        return {**self.triggered.journals(), "pieces": self.slices}
