"""What rolling totals are made of: a span, cut into steps, and what its steps add up to for each key.

A row is added to its step and to the total once, and a step that is over is taken away from the total as a whole, so
the work does not grow with the number of steps. The module does not know late rows and output.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import dense_codes, distinct, resized, sorted_distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.errors import ConfigError
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.sliced.slice_table import SliceTable
from streamcore.schema import EVENT_MS
from streamcore.watermark import END_OF_TIME_MS

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class RollingSpan:
    """``name`` ends the names of its columns, as ``1h`` in ``views_1h``; ``step_ms``: how exactly it rolls."""

    name: str
    span_ms: int
    step_ms: int

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
    """One span: its steps with data, and by slot what they add up to."""

    def __init__(self, span: RollingSpan, keys: KeySlots, aggregate_set: AggregateSet) -> None:
        self.span = span
        self.keys = keys
        self.aggregate_set = aggregate_set
        self.slices = SliceTable(keys, aggregate_set)
        self._nothing = aggregate_set.empty_partial()
        self._columns = take_rows(self._nothing, _NONE)

    def totals_for(self, slots: Ints) -> Columns:
        """Return the totals of these slots."""
        self._reserve()
        return take_rows(self._columns, slots)

    def expiring_slots(self, watermark_ms: int) -> Ints:
        """Return the key slots with rows that expire at this watermark; a slot can be repeated."""
        numbers = self.slices.before(self.span.first_live_step(watermark_ms))
        return np.concatenate([_NONE, *(self.slices[number].slots for number in numbers)])

    def add(self, rows: pl.DataFrame, slots: Ints, watermark_ms: int, room: int) -> int:
        """Add the rows that are not over. Returns how many were refused for want of room."""
        self._reserve()
        step = rows[EVENT_MS].to_numpy() // self.span.step_ms
        live = np.flatnonzero(step >= self.span.first_live_step(watermark_ms))
        if live.size < rows.height:
            rows, slots, step = rows[live], slots[live], step[live]
        return self._add(rows, slots, step, room) if rows.height else 0

    def _add(self, rows: pl.DataFrame, slots: Ints, step: Ints, room: int) -> int:
        lane, lanes = dense_codes(step)
        group, one = distinct(lane * self.keys.size + slots, lanes * self.keys.size)
        found = [(number, np.flatnonzero(step[one] == number)) for number in sorted_distinct(step[one]).tolist()]
        entries = np.empty(len(one), dtype=np.int64)
        for number, mine in found:
            entries[mine] = self.slices.find(number, slots[one[mine]])
        kept = _with_room(entries, room)
        partials = self.aggregate_set.aggregate_groups(rows, np.arange(rows.height), group, len(one))
        for number, mine in found:
            taken = mine[kept[mine]]
            if taken.size:
                self._put(number, slots[one[taken]], entries[taken], take_rows(partials, taken))
        return int((~kept[group]).sum())

    def _put(self, number: int, slots: Ints, entries: Ints, partials: Columns) -> None:
        self.slices.put(number, slots, entries, partials)
        self._write(slots, self.aggregate_set.merge(take_rows(self._columns, slots), partials))

    def expire(self, watermark_ms: int) -> tuple[Ints, Ints]:
        """Take away the steps that are over. Returns their slots, maybe several times, and when each was over."""
        end = self.span.first_live_step(watermark_ms)
        slots, times = [_NONE], [_NONE]
        for number in self.slices.before(end):
            time_slice = self.slices[number]
            self._write(
                time_slice.slots, self.aggregate_set.subtract(self.totals_for(time_slice.slots), time_slice.partials)
            )
            slots.append(time_slice.slots.copy())
            times.append(np.full(len(time_slice), self.span.end_ms(number)))
        self.slices.remove(end)
        return np.concatenate(slots), np.concatenate(times)

    def restore(self, rows: pl.DataFrame) -> None:
        """Take all rows that were stored; some of them may be over."""
        self.slices.restore(rows)
        self._reserve()
        for number in self.slices.before(END_OF_TIME_MS):
            time_slice = self.slices[number]
            self._write(
                time_slice.slots,
                self.aggregate_set.merge(take_rows(self._columns, time_slice.slots), time_slice.partials),
            )

    def _write(self, slots: Ints, totals: Columns) -> None:
        for name, values in totals.items():
            self._columns[name][slots] = values

    def _reserve(self) -> None:
        """Make room for every slot; a slot that is given to another key holds nothing again, for all was taken away."""
        for name, column in self._columns.items():
            if len(column) < self.keys.size:
                room = resized(column, 2 * self.keys.size)
                room[len(column) :] = self._nothing[name][0]
                self._columns[name] = room


def _with_room(entries: Ints, room: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the entries that fit: existing ones, and the first of the new ones (-1) up to ``room``."""
    kept = np.ones(len(entries), dtype=bool)
    kept[np.flatnonzero(entries < 0)[max(room, 0) :]] = False
    return kept
