"""Evaluates triggered windows in columns: the clock of a cut, its rows, and its next watermark, one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import distinct, run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.base import CutTime
from streamcore.operators.windows.aggregate_set import Columns, take_rows
from streamcore.operators.windows.element_fields import elements
from streamcore.operators.windows.general.element_table import ArrivalTable, ProgressTable, number_rows, take_loaded
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.windows import TriggeredWindowStore, to_dropped_rows
from streamcore.operators.windows.journal import JournaledTable
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import DroppedRows, PaneFirings
from streamcore.operators.windows.sliced.slicing import slicing_for
from streamcore.operators.windows.triggered.placement import (
    PlacedRows,
    WindowBounds,
    count_windows,
    place,
    place_sessions,
    time_windows,
)
from streamcore.operators.windows.triggered.row_firings import EARLY, LATE, ON_TIME, ArrivingRows, RowAdder
from streamcore.operators.windows.triggered.trigger_columns import TriggerColumns, has_columns
from streamcore.operators.windows.triggered.triggered_table import (
    AWAITS,
    FIRED,
    LATEST,
    UNFIRED,
    TriggeredWindowTable,
)
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import CountSliding, CountTumbling, Session, Sliding, Tumbling
from streamcore.windowing.model import END_OF_TIME_MS, Accumulation

Mask = npt.NDArray[np.bool_]
_DAY_MS = 86_400_000
_NONE = np.empty(0, dtype=np.int64)


def has_columnar_form(plan: WindowPlan) -> bool:
    """Return whether ``ColumnarTriggeredWindows`` supports the windows."""
    spec = plan.spec
    built_in = not plan.keeps_elements and not spec.calls_user_code
    return built_in and spec.accumulation is not Accumulation.RETRACTING and has_columns(spec.trigger)


class ColumnarTriggeredWindows:
    """The windows of a shard whose triggers fire before, at or after their ends, evaluated all at once."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics) -> None:
        self.plan = plan
        self.metrics = metrics
        self.progress = ProgressTable()
        self._output = plan.output
        self._assigner = plan.spec.assigner
        self._slicing = slicing_for(self._assigner)
        self._trigger = TriggerColumns(plan.spec.trigger)
        self._discards = plan.spec.accumulation is Accumulation.DISCARDING
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        is_timed = self._assigner.in_event_time and self._assigner.ends
        lateness_ms = self.plan.spec.allowed_lateness_ms if is_timed else None
        self.windows = TriggeredWindowTable(
            self.keys, self.plan.aggregate_set, self._trigger, self._near_ms(), lateness_ms
        )
        self.arrivals = None if self._assigner.in_event_time else ArrivalTable(self.keys)
        self._no_panes = self._panes(_NONE, np.empty(0, dtype=bool), _NONE)
        self._adder = RowAdder(self.windows, self._trigger, self.plan.aggregate_set, discards=self._discards)

    def _near_ms(self) -> int:
        match self._assigner:
            case Session(gap_ms):
                return gap_ms
            case Tumbling(size_ms) | Sliding(size_ms):
                return size_ms
        return _DAY_MS

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, rows: pl.DataFrame, time: CutTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process a cut; return its panes and its dropped elements."""
        self.apply_loaded()
        for table in self._journals().values():
            table.record_changes()
        self.keys.sweep()
        key_slots = self.keys.assign(rows)
        numbers = number_rows(self.progress, self.arrivals, key_slots)
        panes = [self._evaluate(self.windows.take_awake(time.clock_ms), time.watermark_ms, time.clock_ms)]
        drops = WindowBounds(_NONE, _NONE, _NONE).as_dropped()
        if rows.height:
            fired, drops = self._add(rows, key_slots, numbers, time)
            panes.append(fired)
        ends = time.next_watermark_ms >= END_OF_TIME_MS
        due = self.windows.live_entries() if ends else self.windows.take_due(time.next_watermark_ms)
        panes.append(self._evaluate(due, time.next_watermark_ms, time.clock_ms))
        some = [part for part in panes if part.height]
        main = some[0] if len(some) == 1 else pl.concat(some or panes[:1])
        return main, self._output.late(rows, drops, time.watermark_ms)

    def _add(
        self, rows: pl.DataFrame, key_slots: Ints, numbers: Ints, time: CutTime
    ) -> tuple[pl.DataFrame, DroppedRows]:
        """Add the rows to their windows; return the panes that fire, in the order of rows, and the dropped rows."""
        others, entries, mergeable, group, most = _NONE, _NONE, _NONE, _NONE, 0
        if isinstance(self._assigner, Session):
            sessions = place_sessions(rows, key_slots, self._assigner, self.windows, time.watermark_ms)
            placed, expired, others, entries = sessions.growing, sessions.expired, sessions.others, sessions.entries
            mergeable, group, most = sessions.mergeable, sessions.group, sessions.most
        else:
            bounds = self._bounds(rows, numbers)
            is_expired = bounds.end <= self.windows.expired_end_ms(time.watermark_ms)
            expired = bounds.at(is_expired)
            placed = place(bounds.at(~is_expired) if len(expired.row) else bounds, key_slots, self.windows)
        if self.windows.count + int((placed.entries < 0).sum()) + len(others) + most > self.plan.max_windows:
            keys = key_slots[distinct(key_slots, self.keys.size)[1]]
            others, entries = np.arange(rows.height), self.windows.entries_for(keys)[0]
            return self._add_one_by_one(rows, key_slots, numbers, time, others, entries)[1:]
        self.windows.merge(mergeable, run_starts(group))
        self.metrics.elements += rows.height - len(others)
        self.metrics.assignments += len(placed.row) + len(expired.row)
        self.metrics.dropped_expired += len(expired.row)
        row, panes = self._add_placed(placed, rows, numbers, time)
        if not others.size:
            return panes, expired.as_dropped()
        other_row, other_panes, other_drops = self._add_one_by_one(rows, key_slots, numbers, time, others, entries)
        by_row = np.argsort(np.concatenate([row, other_row]), kind="stable")
        return pl.concat([panes, other_panes])[by_row], expired.as_dropped().merged_by_row(other_drops)

    def _bounds(self, rows: pl.DataFrame, numbers: Ints) -> WindowBounds:
        """Return the windows of each row, for assigners that do not merge windows."""
        if self._slicing is not None:
            return time_windows(rows[EVENT_MS].to_numpy(), self._slicing)
        if isinstance(self._assigner, CountTumbling | CountSliding):
            return count_windows(numbers, self._assigner)
        return WindowBounds(
            np.arange(rows.height), np.full(rows.height, -END_OF_TIME_MS), np.full(rows.height, END_OF_TIME_MS)
        )

    def _add_placed(
        self, placed: PlacedRows, rows: pl.DataFrame, numbers: Ints, time: CutTime
    ) -> tuple[Ints, pl.DataFrame]:
        """Add rows to their windows in columns; return the panes that fire, in the order of rows, and their rows."""
        if not placed.row.size:
            return _NONE, self._no_panes
        never = np.zeros(len(placed.row), dtype=bool)
        past_end = time.watermark_ms >= placed.end if self.windows.lateness_ms is not None else never
        full = never if self.arrivals is None else numbers[placed.row] == placed.end - 1
        self.metrics.on_time += int((~past_end).sum())
        self.metrics.late_accepted += int(past_end.sum())
        fired = self._adder.add(ArrivingRows(rows, numbers, placed, past_end, full), time.clock_ms)
        order = np.lexsort((fired.panes.first, fired.row))
        partials = take_rows(fired.partials, order)
        return fired.row[order], self._frame(fired.panes.at(order), partials)

    def _add_one_by_one(
        self, rows: pl.DataFrame, key_slots: Ints, numbers: Ints, time: CutTime, chosen: Ints, entries: Ints
    ) -> tuple[Ints, pl.DataFrame, DroppedRows]:
        """Add rows by the general path; return the rows at which panes fire, the panes, and the dropped rows.

        ``chosen``: the indexes of the rows. ``entries``: the windows that they may belong to.
        """
        store = TriggeredWindowStore(self.plan, self.metrics, self.keys)
        engine = store.engine
        engine.max_windows -= self.windows.count - len(entries)
        store.restore({"windows": self.windows.stored_rows(entries)})
        self.windows.record_deleted(entries)
        self.windows.discard(entries)
        engine.begin(time.clock_ms, time.watermark_ms)
        row: list[int] = []
        given = elements(rows[chosen], store.fields, key_slots[chosen], numbers[chosen])
        for index, element in zip(chosen.tolist(), given, strict=True):
            engine.element(element, index)
            row += [index] * (len(engine.fired) - len(row))
        panes, values = store.finish(rows, numbers)
        frame = self._output.panes(self.keys, panes, values)
        self.windows.restore(store.table.rows(0, 1))
        self.keys.release(np.array([*store.table.live], dtype=np.int64))
        return np.array(row, dtype=np.int64), frame, to_dropped_rows(engine.dropped)

    # --- the clock and the watermark ----------------------------------------------------------------------------

    def _evaluate(self, entries: Ints, watermark_ms: int, clock_ms: int) -> pl.DataFrame:
        """Fire these windows where a pane is due, and remove those that have expired.

        Return the panes, ordered by end, start and hash of the key.
        """
        windows = self.windows
        if not entries.size:
            return self._no_panes
        hashes = self.keys.hashes[windows.key_slot[entries]]
        entries = entries[np.lexsort((hashes, windows.start[entries], windows.end[entries]))]
        ended = np.full(len(entries), watermark_ms >= END_OF_TIME_MS)
        past_end = ended if windows.lateness_ms is None else watermark_ms >= windows.end[entries]
        expired = windows.end[entries] <= windows.expired_end_ms(watermark_ms)
        numbers = windows.numbers(entries)
        awaits, has_new = numbers[AWAITS] == 1, numbers[UNFIRED] > 0
        ready = self._trigger.find_ready(numbers, past_end, clock_ms, stream_ended=watermark_ms >= END_OF_TIME_MS)
        ready &= has_new | (awaits & past_end)
        clears = ready & (self._trigger.find_purging(numbers, past_end) | self._discards)
        fires = np.flatnonzero(ready | (expired & has_new))
        timing = np.where(past_end, np.where(awaits, ON_TIME, LATE), EARLY)
        main = self._panes(entries[fires], expired[fires], timing[fires])
        stays = fires[~expired[fires]]
        fired = {AWAITS: (awaits & ~past_end).astype(np.int64), UNFIRED: 0 * awaits, FIRED: numbers[FIRED] + 1}
        fired |= {name: np.full(len(entries), value) for name, value in self._trigger.start.items()}
        if self._trigger.ended:
            fired[self._trigger.ended] = np.where(past_end, 1, numbers[self._trigger.ended])
        windows.put_numbers(entries[stays], {name: values[stays] for name, values in fired.items()})
        windows.empty(entries[stays[clears[stays]]])
        windows.record_deleted(entries[expired])
        windows.discard(entries[expired])
        return main

    def _panes(self, entries: Ints, final: Mask, timing: Ints) -> pl.DataFrame:
        """Return the panes of these windows as they are."""
        windows = self.windows
        bounds = windows.key_slot[entries], windows.start[entries], windows.end[entries]
        numbers = windows.numbers(entries)
        none = np.zeros(len(entries), dtype=bool)
        panes = PaneFirings(*bounds, numbers[FIRED], timing, final, none, numbers[LATEST])
        return self._frame(panes, take_rows(windows.columns, entries))

    def _frame(self, panes: PaneFirings, partials: Columns) -> pl.DataFrame:
        self.metrics.truncated += self.plan.aggregate_set.count_truncated(partials)
        return self._output.panes(self.keys, panes, self.plan.aggregate_set.values(partials))

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return all state tables by name."""
        return {**self._journals(), "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the state rows loaded since the last step."""
        stored = take_loaded(self.progress, self._journals())
        if stored is None:
            return
        self._reset()
        if self.arrivals is not None:
            self.arrivals.restore(stored["arrivals"])
        self.windows.restore(stored["windows"])
        self.windows.mark_stored()

    def _journals(self) -> dict[str, JournaledTable]:
        return {"windows": self.windows} | ({} if self.arrivals is None else {"arrivals": self.arrivals})
