"""Finds the windows of the rows of a cut: those of time, of a number of elements, and sessions that grow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import dense_codes, distinct, expand_ranges, run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.intervals import MergedIntervals
from streamcore.columnar.runs import Arrays, accumulate, positions
from streamcore.operators.windows.element_fields import session_gaps
from streamcore.operators.windows.output_columns import DroppedRows
from streamcore.operators.windows.sliced.slicing import Slicing
from streamcore.operators.windows.triggered.triggered_table import TriggeredWindowTable
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import CountSliding, CountTumbling, Session

Mask = npt.NDArray[np.bool_]
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Rows in their windows: the index of the row, and the bounds of the window; in the order of rows, then starts."""

    row: Ints
    first: Ints
    end: Ints

    def at(self, places: Ints | Mask) -> WindowBounds:
        """Return those at these places."""
        return WindowBounds(self.row[places], self.first[places], self.end[places])

    def as_dropped(self) -> DroppedRows:
        """Return them as rows of expired windows."""
        return DroppedRows(self.row, self.first, self.end, np.zeros(len(self.row), dtype=np.int64))


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows in their windows, ordered by window, then by arrival.

    ``row``, of shape (places,): the index of the row. ``first`` and ``end``: the bounds of the window with this row;
    ``grows``: they differ from those before it. ``starts``, of shape (windows,): the first place of each window.
    ``key_slots``, ``entries``, of shape (windows,): its key slot and its entry, -1 for a new window.
    """

    row: Ints
    first: Ints
    end: Ints
    grows: Mask
    starts: Ints
    key_slots: Ints
    entries: Ints


def time_windows(event_ms: Ints, slicing: Slicing) -> WindowBounds:
    """Return the windows of each row of event time."""
    time_slice = slicing.slices(event_ms)
    row, number = expand_ranges((time_slice - slicing.length) // slicing.step + 1, time_slice // slicing.step)
    if not row.size:
        return WindowBounds(row, row, row)
    code, count = dense_codes(number)
    numbers = np.zeros(count, dtype=np.int64)
    numbers[code] = number
    bounds = np.array([slicing.bounds(window) for window in numbers.tolist()], dtype=np.int64)
    return WindowBounds(row, bounds[code, 0], bounds[code, 1])


def count_windows(numbers: Ints, assigner: CountTumbling | CountSliding) -> WindowBounds:
    """Return the windows of each row. ``numbers``: how many elements of its key arrived before each row."""
    every = assigner.every if isinstance(assigner, CountSliding) else assigner.count
    row, window = expand_ranges(np.maximum((numbers - assigner.count) // every + 1, 0), numbers // every)
    return WindowBounds(row, window * every, window * every + assigner.count)


def place(windows: WindowBounds, key_slots: Ints, table: TriggeredWindowTable) -> PlacedRows:
    """Find the live windows of the rows. ``key_slots``, of shape (rows,): the key slot of each row."""
    if not windows.row.size:
        return PlacedRows(_NONE, _NONE, _NONE, np.empty(0, dtype=bool), _NONE, _NONE, _NONE)
    place_slots = key_slots[windows.row]
    keys, first_places = distinct(place_slots, table.keys.size)
    entries, entry_keys = table.entries_for(place_slots[first_places])
    code, count = dense_codes(np.concatenate([table.start[entries], windows.first]))
    codes = np.concatenate([entry_keys, keys]) * count + code
    group, group_firsts = distinct(codes, len(first_places) * count)
    group_entries = np.full(len(group_firsts), -1)
    group_entries[group[: len(entries)]] = entries
    window = group[len(entries) :]
    order = np.argsort(window, kind="stable")
    starts = run_starts(window[order])
    return PlacedRows(
        windows.row[order],
        windows.first[order],
        windows.end[order],
        np.zeros(len(order), dtype=bool),
        starts,
        place_slots[order[starts]],
        group_entries[window[order[starts]]],
    )


@dataclass(frozen=True, slots=True)
class PlacedSessions:
    """The sessions of the rows of a cut.

    ``growing``: the rows of sessions that only grow, because each row overlaps what there is of its session, or that
    may be merged in any order. ``mergeable``: the live sessions that are merged before that, ordered by ``group``, of
    the same shape; the first of each group is among the entries of ``growing``. ``most``: how many sessions may live
    for a time until they are merged. ``expired``: the rows that are too late and overlap no session. ``others``: the
    indexes of the other rows, whose sessions depend on the order of arrival in another way; ``entries``: the live
    sessions that they may overlap.
    """

    growing: PlacedRows
    mergeable: Ints
    group: Ints
    most: int
    expired: WindowBounds
    others: Ints
    entries: Ints


def place_sessions(
    rows: pl.DataFrame, key_slots: Ints, assigner: Session, table: TriggeredWindowTable, watermark_ms: int
) -> PlacedSessions:
    """Find the sessions of the rows.

    If the trigger fires no pane before the end of a session, rows and sessions whose ends are after the watermark may
    be merged in any order.
    """
    start = rows[EVENT_MS].to_numpy()
    end = start + session_gaps(rows, assigner)
    keys, first_rows = distinct(key_slots, table.keys.size)
    entries, entry_keys = table.entries_for(key_slots[first_rows])
    merged = MergedIntervals.merge(
        np.concatenate([entry_keys, keys]),
        np.concatenate([table.start[entries], start]),
        np.concatenate([table.end[entries], end]),
    )
    row_groups, entry_groups = merged.group[len(entries) :], merged.group[: len(entries)]
    by_group = np.argsort(entry_groups, kind="stable")
    entries, entry_groups = entries[by_group], entry_groups[by_group]
    live = np.bincount(entry_groups, minlength=len(merged.start))
    first_entries = run_starts(entry_groups)
    group_entries, live_first, live_end = (np.full(len(merged.start), -1) for _ in range(3))
    if entries.size:
        group_entries[entry_groups[first_entries]] = entries[first_entries]
        live_first[entry_groups[first_entries]] = np.minimum.reduceat(table.start[entries], first_entries)
        live_end[entry_groups[first_entries]] = np.maximum.reduceat(table.end[entries], first_entries)
    is_past_end = np.zeros(len(merged.start), dtype=bool)
    is_past_end[entry_groups[table.end[entries] <= watermark_ms]] = True
    is_past_end[row_groups[end <= watermark_ms]] = True

    row = np.argsort(row_groups, kind="stable")
    starts = run_starts(row_groups[row])
    groups = row_groups[row[starts]]
    group, position = positions(starts, len(row))
    session = group_entries[groups]
    has_live = session >= 0
    own_first, own_end = start[row], end[row]
    covers = {"first": own_first.copy(), "end": own_end.copy()}
    extended = starts[has_live]
    covers["first"][extended] = np.minimum(own_first[extended], live_first[groups[has_live]])
    covers["end"][extended] = np.maximum(own_end[extended], live_end[groups[has_live]])
    covers = accumulate(covers, position, _cover)
    before = {name: np.concatenate([column[:1], column[:-1]]) for name, column in covers.items()}
    before["first"][extended], before["end"][extended] = live_first[groups[has_live]], live_end[groups[has_live]]
    begins = position == 0
    begins[extended] = False
    is_expired = own_end <= table.expired_end_ms(watermark_ms)
    fits = np.where(begins, ~is_expired, (own_first < before["end"]) & (before["first"] < own_end))
    grows = ~begins & ((covers["first"] != before["first"]) | (covers["end"] != before["end"]))

    only_grows = (live[groups] <= 1) & np.logical_and.reduceat(fits, starts)
    is_merged = ~only_grows & ~is_past_end[groups] & (not table.trigger.fires_early)
    is_growing = only_grows | is_merged
    is_dropped = ~has_live & np.logical_and.reduceat(is_expired, starts)
    kept, dropped = is_growing[group], np.sort(row[is_dropped[group]])
    others = ~(is_growing | is_dropped)
    other_groups, merged_groups = (np.zeros(len(merged.start), dtype=bool) for _ in range(2))
    other_groups[groups[others]] = True
    merged_groups[groups[is_merged]] = True
    mergeable = np.flatnonzero(merged_groups[entry_groups] & (live[entry_groups] > 1))
    growing = PlacedRows(
        row[kept],
        covers["first"][kept],
        covers["end"][kept],
        grows[kept],
        np.flatnonzero((position == 0)[kept]),
        key_slots[row[starts[is_growing]]],
        session[is_growing],
    )
    return PlacedSessions(
        growing,
        entries[mergeable],
        entry_groups[mergeable],
        int(is_merged[group].sum()),
        WindowBounds(dropped, start[dropped], end[dropped]),
        np.sort(row[others[group]]),
        entries[other_groups[entry_groups]],
    )


def _cover(left: Arrays, right: Arrays) -> Arrays:
    return {"first": np.minimum(left["first"], right["first"]), "end": np.maximum(left["end"], right["end"])}
