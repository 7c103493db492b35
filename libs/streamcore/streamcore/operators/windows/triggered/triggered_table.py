"""The state table of the columnar triggered windows. Its rows are those of ``WindowTable`` of the general path."""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.columnar.deadlines import DeadlineIndex
from streamcore.columnar.grouping import distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.general.window_table import CONTROL, END, FIRST
from streamcore.operators.windows.triggered.trigger_columns import NEVER, TriggerColumns, TriggerStates
from streamcore.operators.windows.window_entries import NO_ENTRIES, WindowEntryTable
from streamcore.windowing.model import END_OF_TIME_MS

#: Marks of an entry, in their stored order: see ``LiveWindow`` and ``WindowContent``.
AWAITS, UNFIRED, FIRED, LATEST, SINCE, UPTO = "awaits", "unfired", "fired", "latest", "since", "upto"
_NUMBERS = [AWAITS, UNFIRED, FIRED, LATEST, SINCE, UPTO]
#: The latest event time of no elements.
NO_TIME_MS = -(2**63)


class TriggeredWindowTable(WindowEntryTable):
    """The live windows of a shard, with the states of their triggers.

    ``lateness_ms``: how long after their ends windows live; None if windows end only with the stream or when they are
    full.
    """

    def __init__(
        self,
        keys: KeySlots,
        aggregate_set: AggregateSet,
        trigger: TriggerColumns,
        near_ms: int,
        lateness_ms: int | None,
    ) -> None:
        stored = {FIRST: pl.Int64(), END: pl.Int64(), CONTROL: pl.Binary()}
        super().__init__(keys, aggregate_set, stored, [FIRST, END], near_ms, [*_NUMBERS, *trigger.start])
        self.trigger = trigger
        self.lateness_ms = lateness_ms
        self._expiries = DeadlineIndex(near_ms)
        self._wakes = {column: DeadlineIndex(delay_ms) for column, delay_ms in trigger.wakes.items()}
        self._deleted: list[tuple[Ints, Ints, Ints]] = []
        self._empty_partial = aggregate_set.empty_partial()

    # --- writing ------------------------------------------------------------------------------------------------

    def new(self, key_slots: Ints) -> Ints:
        entries = super().new(key_slots)
        for column, value in self.trigger.start.items():
            self.marks[column][entries] = value
        self.marks[LATEST][entries] = NO_TIME_MS
        return entries

    def schedule(self, entries: Ints) -> None:
        """Plan the evaluation of new or changed windows at their ends and at their expiries."""
        if self.lateness_ms is None:
            return
        self._ends.put(self.end[entries], entries)
        if self.lateness_ms:
            self._expiries.put(self.end[entries], entries)

    def put_numbers(self, entries: Ints, numbers: TriggerStates) -> None:
        """Set marks of distinct entries, plan their evaluation by the clock, and mark them as changed."""
        self._dirty.append(entries)
        for name, values in numbers.items():
            if name in self._wakes:
                changed = np.flatnonzero((self.marks[name][entries] != values) & (values != NEVER))
                self._wakes[name].put(values[changed], entries[changed])
            self.marks[name][entries] = values

    def put(self, entries: Ints, start: Ints, end: Ints, numbers: TriggerStates, partials: Columns) -> None:
        """Set the bounds, marks and partials of distinct entries."""
        self.start[entries], self.end[entries] = start, end
        self.put_numbers(entries, numbers)
        for name, values in partials.items():
            self.columns[name][entries] = values

    def empty(self, entries: Ints) -> None:
        """Empty the contents of distinct entries."""
        if not entries.size:
            return
        for name, column in take_rows(self._empty_partial, np.zeros(len(entries), np.int64)).items():
            self.columns[name][entries] = column

    def link_new(self, entries: Ints) -> None:
        """Link new entries to their keys."""
        if entries.size:
            linked = np.concatenate([self.entries_for(self._distinct_keys(entries))[0], entries])
            self.link_all(self.key_slot[linked], linked)

    def discard(self, entries: Ints) -> None:
        """Free distinct entries, and unlink them from their keys."""
        if entries.size:
            self.remove(entries)
            self.unlink_removed(self._distinct_keys(entries))

    def merge(self, entries: Ints, starts: Ints) -> None:
        """Merge runs of sessions that wait for their ends into the first of each run.

        ``entries``, of shape (sessions,): distinct entries. ``starts``, of shape (runs,): the first place of each run.
        """
        if not entries.size:
            return
        self.record_deleted(entries)
        numbers = self.numbers(entries)
        merged = {name: np.maximum.reduceat(numbers[name], starts) for name in (LATEST, UPTO)}
        merged |= {UNFIRED: np.add.reduceat(numbers[UNFIRED], starts), SINCE: np.zeros(len(starts), dtype=np.int64)}
        bounds = np.minimum.reduceat(self.start[entries], starts), np.maximum.reduceat(self.end[entries], starts)
        partials = self.aggregate_set.reduce(take_rows(self.columns, entries), starts)
        self.put(entries[starts], *bounds, merged, partials)
        self.schedule(entries[starts])
        self.discard(np.delete(entries, starts))

    def _distinct_keys(self, entries: Ints) -> Ints:
        key_slots = self.key_slot[entries]
        return key_slots[distinct(key_slots, self.keys.size)[1]]

    def record_deleted(self, entries: Ints) -> None:
        """Record that the windows with the current bounds of these entries are no longer stored."""
        if entries.size:
            self._deleted.append((self.key_slot[entries], self.start[entries], self.end[entries]))

    def numbers(self, entries: Ints) -> dict[str, Ints]:
        """Return the marks of these entries."""
        return {name: mark[entries] for name, mark in self.marks.items()}

    # --- time ---------------------------------------------------------------------------------------------------

    def expired_end_ms(self, watermark_ms: int) -> int:
        """Return the latest end of expired windows; at the end of the stream all have expired."""
        if watermark_ms >= END_OF_TIME_MS:
            return 2**63 - 1
        return -(2**63) if self.lateness_ms is None else watermark_ms - self.lateness_ms

    def take_awake(self, clock_ms: int) -> Ints:
        """Return the entries whose processing time may be up, once."""
        parts = [index.take(clock_ms, self.marks[name], self._size) for name, index in self._wakes.items()]
        return self._distinct_live(parts)

    def take_due(self, watermark_ms: int) -> Ints:
        """Return the entries whose windows end or expire at or before the watermark, once for each of the two."""
        parts = [self.take_ended(watermark_ms)] if self.lateness_ms is not None else []
        if self.lateness_ms:
            parts.append(self._expiries.take(watermark_ms - self.lateness_ms, self.end, self._size))
        return self._distinct_live(parts)

    def _distinct_live(self, parts: list[Ints]) -> Ints:
        entries = np.concatenate([NO_ENTRIES, *parts])
        entries = entries[distinct(entries, self._size)[1]]
        live: Ints = entries[self.end[entries] != self.FREE]
        return live

    # --- state --------------------------------------------------------------------------------------------------

    def _take_changes(self) -> pl.DataFrame | None:
        if not self._dirty and not self._deleted:
            return None
        deleted, dirty = self._deleted, self._distinct_live(self._dirty)
        self._deleted, self._dirty = [], []
        if not deleted:
            return self._rows(dirty)
        key_slots, starts, ends = (np.concatenate(column) for column in zip(*deleted, strict=True))
        return pl.concat([self.tombstones(key_slots, {FIRST: starts, END: ends}), self._rows(dirty)])

    def restore(self, rows: pl.DataFrame) -> None:
        """Add stored rows to the table."""
        key_slots = self.keys.assign(rows)
        entries = self.new(key_slots)
        bounds = rows[FIRST].to_numpy(), rows[END].to_numpy()
        numbers = self.trigger.decode(rows[CONTROL], _NUMBERS)
        self.put(entries, *bounds, numbers, self.aggregate_set.load(rows))
        self.schedule(entries)
        self.link_new(entries)

    def mark_stored(self) -> None:
        """Mark all entries as stored."""
        self._dirty = []

    def stored_rows(self, entries: Ints) -> pl.DataFrame:
        """Return the rows of these entries as they are stored."""
        return self._rows(entries)

    def _rows(self, entries: Ints) -> pl.DataFrame:
        numbers = {name: pl.Series(name, self.marks[name][entries]) for name in _NUMBERS}
        numbers[AWAITS] = numbers[AWAITS].cast(pl.Boolean)
        states = {name: self.marks[name][entries] for name in self.trigger.start}
        columns = [
            pl.Series(FIRST, self.start[entries]),
            pl.Series(END, self.end[entries]),
            self.trigger.encode(states, numbers).alias(CONTROL),
        ]
        return self.frame(
            self.key_slot[entries], [*columns, *self.aggregate_set.store(take_rows(self.columns, entries))]
        )
