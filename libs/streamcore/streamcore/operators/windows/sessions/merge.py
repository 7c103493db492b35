"""Merging the rows of a cut into the sessions of their keys, in columns.

Every row starts as a session of its own. The sessions of all rows and the live sessions of the same keys are sorted by
key and start, and those that overlap become one *group*. Of the live sessions in a group the first survives under its
entry and absorbs the others; a group without a live session becomes a new one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.columnar.grouping import distinct, run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.intervals import MergedIntervals
from streamcore.operators.windows.aggregate_set import Columns, take_rows
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.sessions.session_table import SessionWindowTable


class SessionMerger:
    """Merges rows into a table of sessions. An *entry* is a row of the table."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, sessions: SessionWindowTable) -> None:
        self.plan = plan
        self.metrics = metrics
        self.sessions = sessions

    def add(self, rows: pl.DataFrame, numbers: Ints, key_slots: Ints, starts: Ints, ends: Ints) -> None:
        """Merge rows into the sessions of their keys.

        ``numbers``, ``key_slots``, ``starts``, ``ends``, all of shape (rows,): the arrival number, the key slot of the
        key, and the bounds of each row's own session in epoch milliseconds.
        """
        if not key_slots.size:
            return
        row_keys, first_rows = distinct(key_slots, self.sessions.keys.size)
        distinct_key_slots = key_slots[first_rows]
        entries, entry_keys = self.sessions.entries_for(distinct_key_slots)
        merged = MergedIntervals.merge(
            np.concatenate([entry_keys, row_keys]),
            np.concatenate([self.sessions.start[entries], starts]),
            np.concatenate([self.sessions.end[entries], ends]),
        )
        row_groups = merged.group[len(entries) :]
        rejected_groups = self._groups_over_limit(merged, len(entries))
        if rejected_groups.size:
            rejected = np.isin(row_groups, rejected_groups)
            self.metrics.rejected += int(rejected.sum())
            accepted = np.flatnonzero(~rejected)
            self.add(rows[accepted], numbers[accepted], key_slots[accepted], starts[accepted], ends[accepted])
            return
        self.metrics.on_time += len(key_slots)
        self._merge(rows, numbers, distinct_key_slots, entries, merged)

    def _groups_over_limit(self, merged: MergedIntervals, entry_count: int) -> Ints:
        """Return the groups that would begin a session beyond ``max_windows``; earlier arrivals come first.

        The first ``entry_count`` intervals of ``merged`` are live sessions, the rest are rows.
        """
        room = self.plan.max_windows - self.sessions.count - self.sessions.cold_count
        if len(merged.start) <= room:
            return np.empty(0, dtype=np.int64)
        row_groups = merged.group[entry_count:]
        is_new = np.ones(len(merged.start), dtype=bool)
        is_new[merged.group[:entry_count]] = False
        _, first_rows = distinct(row_groups, len(is_new))
        by_arrival = row_groups[first_rows]
        return by_arrival[is_new[by_arrival]][max(room, 0) :]

    def _merge(
        self, rows: pl.DataFrame, numbers: Ints, key_slots: Ints, entries: Ints, merged: MergedIntervals
    ) -> None:
        """Write every group that takes rows and link the groups to their keys.

        ``key_slots``, of shape (keys,): of the distinct keys. ``entries``, of shape (entries,): the live sessions of
        the keys; they are the first intervals of ``merged``.
        """
        sessions, entry_count = self.sessions, len(entries)
        row_groups = merged.group[entry_count:]
        touched = np.zeros(len(merged.start), dtype=bool)
        touched[row_groups] = True
        partial_index = np.cumsum(touched) - 1  # by group that takes rows: its row among the partials
        aggregates = self.plan.aggregate_set
        partials = aggregates.aggregate_groups(rows, numbers, partial_index[row_groups], int(touched.sum()))
        # The entries in the order of their groups: the first of each group survives, the others are absorbed.
        order = sessions.merge_order(merged.group[:entry_count], entries)
        entries, entry_groups = entries[order], merged.group[:entry_count][order]
        survivors = run_starts(entry_groups)
        group_entry = np.full(len(merged.start), -1)
        group_entry[entry_groups[survivors]] = entries[survivors]
        if entries.size:
            partials = self._add_live(entries, entry_groups, merged, np.where(touched, partial_index, -1), partials)
        new_groups = np.flatnonzero(group_entry < 0)
        group_entry[new_groups] = sessions.new(key_slots[merged.key[new_groups]])
        sessions.write(group_entry[touched], merged.start[touched], merged.end[touched], partials)
        sessions.link(key_slots, group_entry, merged.key)

    def _add_live(
        self, entries: Ints, entry_groups: Ints, merged: MergedIntervals, partial_index: Ints, partials: Columns
    ) -> Columns:
        """Return the partials of the groups with those of their live sessions added; remove the absorbed sessions.

        ``entries`` and ``entry_groups``, both of shape (entries,), are ordered by group; the first entry of a group
        survives. ``partial_index``, of shape (groups,): the row of each group among the partials, -1 for a group that
        takes no rows, whose entries stay as they are.
        """
        sessions = self.sessions
        changed = np.flatnonzero(partial_index[entry_groups] >= 0)
        entries, entry_groups = entries[changed], entry_groups[changed]
        survivors = run_starts(entry_groups)
        live_partials = take_rows(sessions.columns, entries)
        live_partials = (
            live_partials
            if len(survivors) == len(entry_groups)
            else self.plan.aggregate_set.reduce(live_partials, survivors)
        )
        targets = partial_index[entry_groups[survivors]]
        combined = self.plan.aggregate_set.merge(live_partials, take_rows(partials, targets))
        partials = {name: column.copy() for name, column in partials.items()}
        for name, values in combined.items():
            partials[name][targets] = values
        moved = entries[sessions.start[entries] != merged.start[entry_groups]]
        sessions.record_moved(sessions.key_slot[moved], sessions.start[moved])
        absorbed = np.delete(np.arange(len(entries)), survivors)
        if absorbed.size:
            survivor_index = np.searchsorted(survivors, absorbed, side="right") - 1
            sessions.absorb(entries[absorbed], entries[survivors[survivor_index]])
            sessions.remove(entries[absorbed])
        return partials
