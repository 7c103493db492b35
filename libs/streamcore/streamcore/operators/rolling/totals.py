"""The totals of one span by key: the partials of its steps, and their running total.

Each row is added once to its step and once to the total, and the partials of an expired step are subtracted from the
total. So the work does not grow with the number of steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import dense_codes, distinct, resized, sorted_distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.sliced.slice_table import SliceTable
from streamcore.schema import EVENT_MS
from streamcore.watermark import END_OF_TIME_MS

_NO_NUMBERS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class RollingSpan:
    """A span of event time. ``name`` ends the names of its columns, as ``1h`` in ``views_1h``.

    ``step_ms``: the length of a step; the rows of a step expire together.
    """

    name: str
    span_ms: DurationField = DurationField()
    step_ms: DurationField = DurationField()

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= self.span_ms or self.span_ms % self.step_ms:
            raise ConfigError(f"span {self.name}: {self.span_ms} ms must be a whole number of steps of {self.step_ms}")

    def first_live_step(self, watermark_ms: int) -> int:
        """Return the number of the first step that has not expired."""
        return watermark_ms // self.step_ms - self.span_ms // self.step_ms + 1

    def end_ms(self, step: int) -> int:
        """Return the watermark at which the rows of a step expire."""
        return step * self.step_ms + self.span_ms


class RollingTotals:
    """The steps of one span that have rows, and the total of each key.

    ``slices`` stores the partials of each step by key slot; a slice is one step.
    """

    def __init__(self, span: RollingSpan, keys: KeySlots, aggregate_set: AggregateSet) -> None:
        self.span = span
        self.keys = keys
        self.aggregate_set = aggregate_set
        self.slices = SliceTable(keys, aggregate_set)
        self._empty = aggregate_set.empty_partial()
        self._totals = take_rows(self._empty, _NO_NUMBERS)

    def totals_for(self, key_slots: Ints) -> Columns:
        """Return the totals of the keys with these key slots."""
        self._reserve()
        return take_rows(self._totals, key_slots)

    def results_for(self, key_slots: Ints) -> Columns:
        """Return the rows to emit for these key slots, before ``series``: by default the totals."""
        return self.totals_for(key_slots)

    def series(self, results: Columns) -> list[pl.Series]:
        """Return the values of ``results_for`` as columns, then those that tell why the user's code failed."""
        return self.aggregate_set.values(results)

    def expiring_key_slots(self, watermark_ms: int) -> Ints:
        """Return the key slots with rows that expire at this watermark; a key slot can be repeated."""
        numbers = self.slices.before(self.span.first_live_step(watermark_ms))
        return np.concatenate([_NO_NUMBERS, *(self.slices[number].key_slots for number in numbers)])

    def add(self, rows: pl.DataFrame, key_slots: Ints, watermark_ms: int, room: int) -> int:
        """Add the rows that have not expired at this watermark. Return the number of rejected rows.

        ``room``: how many new entries may be stored; rows that need further entries are rejected.
        """
        self._reserve()
        step = rows[EVENT_MS].to_numpy() // self.span.step_ms
        unexpired = np.flatnonzero(step >= self.span.first_live_step(watermark_ms))
        if unexpired.size < rows.height:
            rows, key_slots, step = rows[unexpired], key_slots[unexpired], step[unexpired]
        return self._add(rows, key_slots, step, room) if rows.height else 0

    def _add(self, rows: pl.DataFrame, key_slots: Ints, step: Ints, room: int) -> int:
        step_code, step_count = dense_codes(step)
        group, first_rows = distinct(step_code * self.keys.size + key_slots, step_count * self.keys.size)
        rows_by_step = [
            (number, np.flatnonzero(step[first_rows] == number))
            for number in sorted_distinct(step[first_rows]).tolist()
        ]
        entries = np.empty(len(first_rows), dtype=np.int64)
        for number, step_groups in rows_by_step:
            entries[step_groups] = self.slices.find(number, key_slots[first_rows[step_groups]])
        accepted = _fit_room(entries, room)
        partials = self.aggregate_set.aggregate_groups(rows, np.arange(rows.height), group, len(first_rows))
        for number, step_groups in rows_by_step:
            added = step_groups[accepted[step_groups]]
            if added.size:
                self._put(number, key_slots[first_rows[added]], entries[added], take_rows(partials, added))
        return int((~accepted[group]).sum())

    def _put(self, number: int, key_slots: Ints, entries: Ints, partials: Columns) -> None:
        self.slices.put(number, key_slots, entries, partials)
        self._write(key_slots, self.aggregate_set.merge(take_rows(self._totals, key_slots), partials))

    def expire(self, watermark_ms: int) -> tuple[Ints, Ints]:
        """Subtract and delete the steps that expire at this watermark.

        Return the key slots of their keys, which can be repeated, and the time at which each expired.
        """
        end = self.span.first_live_step(watermark_ms)
        key_slots, times = [_NO_NUMBERS], [_NO_NUMBERS]
        for number in self.slices.before(end):
            time_slice = self.slices[number]
            self._write(
                time_slice.key_slots,
                self.aggregate_set.subtract(self.totals_for(time_slice.key_slots), time_slice.partials),
            )
            key_slots.append(time_slice.key_slots.copy())
            times.append(np.full(len(time_slice), self.span.end_ms(number)))
        self.slices.remove(end)
        self._rebuild_failed(sorted_distinct(np.concatenate(key_slots)))
        return np.concatenate(key_slots), np.concatenate(times)

    def _rebuild_failed(self, key_slots: Ints) -> None:
        """Compute the failed totals of these key slots from their steps, as after a restart."""
        failed = key_slots[self.aggregate_set.find_failed(self.totals_for(key_slots))]
        if not failed.size:
            return
        self._write(failed, {name: np.repeat(column, len(failed)) for name, column in self._empty.items()})
        self._merge_steps(failed)

    def _merge_steps(self, key_slots: Ints) -> None:
        """Merge the steps of these key slots into their totals."""
        for number in self.slices.before(END_OF_TIME_MS):
            time_slice = self.slices[number]
            entries = np.flatnonzero(np.isin(time_slice.key_slots, key_slots))
            owners = time_slice.key_slots[entries]
            self._write(
                owners,
                self.aggregate_set.merge(take_rows(self._totals, owners), take_rows(time_slice.partials, entries)),
            )

    def restore(self, rows: pl.DataFrame) -> None:
        """Load all stored rows; some of them may have expired."""
        self.slices.restore(rows)
        self._reserve()
        for number in self.slices.before(END_OF_TIME_MS):
            time_slice = self.slices[number]
            self._write(
                time_slice.key_slots,
                self.aggregate_set.merge(take_rows(self._totals, time_slice.key_slots), time_slice.partials),
            )

    def _write(self, key_slots: Ints, totals: Columns) -> None:
        for name, values in totals.items():
            self._totals[name][key_slots] = values

    def _reserve(self) -> None:
        """Enlarge the columns to one total per key slot.

        A key slot that passes to another key needs no reset: its key had no rows left, so its total is that of no rows.
        """
        for name, column in self._totals.items():
            if len(column) < self.keys.size:
                larger = resized(column, 2 * self.keys.size)
                larger[len(column) :] = self._empty[name][0]
                self._totals[name] = larger


def _fit_room(entries: Ints, room: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the existing entries and of the first ``room`` new ones (-1)."""
    accepted = np.ones(len(entries), dtype=bool)
    accepted[np.flatnonzero(entries < 0)[max(room, 0) :]] = False
    return accepted
