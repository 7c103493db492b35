"""The state table of live sessions.

Key and start identify the stored row of a session; when the start changes, the table writes a tombstone for the row
with the old start. A session that ends needs no tombstone, because its end follows from the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.columnar.grouping import distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.aggregate_set import AggregateSet, take_rows
from streamcore.operators.windows.general.window_table import END, FIRST
from streamcore.operators.windows.window_entries import NO_ENTRIES, WindowEntryTable


class SessionWindowTable(WindowEntryTable):
    """The live sessions of a shard; ``start`` and ``end`` are in milliseconds. ``marks`` are stored as columns.

    ``cold_count``: how many more sessions are on disk.
    """

    def __init__(self, keys: KeySlots, aggregate_set: AggregateSet, gap_ms: int, marks: Sequence[str] = ()) -> None:
        stored = dict.fromkeys([FIRST, END, *marks], pl.Int64())
        super().__init__(keys, aggregate_set, stored, [FIRST], gap_ms, marks)
        self.cold_count = 0
        self._moved: list[tuple[Ints, Ints]] = []

    def absorb(self, entries: Ints, into: Ints) -> None:
        """Handle entries that are about to be merged into the entries ``into``. The base class does nothing."""

    def merge_order(self, group: Ints, entries: Ints) -> Ints:  # noqa: ARG002 - any entry of a group may survive
        """Return the order of these entries by group. The first entry of a group survives the merge."""
        return np.argsort(group, kind="stable")

    def record_moved(self, key_slots: Ints, starts: Ints) -> None:
        """Record that the sessions of these keys no longer begin at these starts, so that their rows get deleted."""
        if key_slots.size:
            self._moved.append((key_slots, starts))

    # --- state --------------------------------------------------------------------------------------------------

    def _take_changes(self) -> pl.DataFrame | None:
        if not self._dirty and not self._moved:
            return None
        moved, self._moved = self._moved, []
        dirty, self._dirty = np.concatenate([NO_ENTRIES, *self._dirty]), []
        dirty = dirty[distinct(dirty, self._size)[1]]
        key_slots = np.concatenate([NO_ENTRIES, *(key_slots for key_slots, _ in moved)])
        starts = np.concatenate([NO_ENTRIES, *(starts for _, starts in moved)])
        tombstones = self.tombstones(key_slots, {FIRST: starts})
        return pl.concat([tombstones, self._rows(dirty[self.end[dirty] != self.FREE])])

    def rows_for(self, key_slots: Ints) -> pl.DataFrame:
        """Return the sessions of these keys."""
        return self._rows(self.entries_for(key_slots)[0])

    def drop(self, key_slots: Ints) -> None:
        """Forget the sessions of these keys, which are written."""
        self.remove(self.entries_for(key_slots)[0])
        self.link(key_slots, NO_ENTRIES, NO_ENTRIES)

    def restore(self, rows: pl.DataFrame) -> None:
        """Load all live rows of keys that have none in the table, when no change is unwritten."""
        key_slots = self.keys.assign(rows)
        entries = self.new(key_slots)
        self.write(entries, rows[FIRST].to_numpy(), rows[END].to_numpy(), self.aggregate_set.load(rows))
        for name, mark in self.marks.items():
            mark[entries] = rows[name].to_numpy()
        self.link_all(key_slots, entries)
        self._dirty = []

    def _rows(self, entries: Ints) -> pl.DataFrame:
        bounds = [pl.Series(FIRST, self.start[entries]), pl.Series(END, self.end[entries])]
        marks = [pl.Series(name, mark[entries]) for name, mark in self.marks.items()]
        return self.frame(
            self.key_slot[entries], [*bounds, *marks, *self.aggregate_set.store(take_rows(self.columns, entries))]
        )
