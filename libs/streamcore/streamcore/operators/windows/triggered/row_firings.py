"""Finds the rows of a cut at which windows fire, and adds the rows to the windows.

A *segment* is the rows of a window that one phase of the trigger observes: a session whose end has passed can be moved
before its end again. A *piece* is the rows of a window after a pane up to the next pane, or to the end of the cut. The
contents of a pane are the pieces since the window was last empty, after what the window held before the cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import run_starts
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.runs import Arrays, accumulate, positions
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows
from streamcore.operators.windows.output_columns import TIMINGS, PaneFirings
from streamcore.operators.windows.triggered.placement import PlacedRows
from streamcore.operators.windows.triggered.trigger_columns import TriggerColumns
from streamcore.operators.windows.triggered.triggered_table import (
    AWAITS,
    FIRED,
    LATEST,
    SINCE,
    UNFIRED,
    UPTO,
    TriggeredWindowTable,
)
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Timing

Mask = npt.NDArray[np.bool_]
EARLY, ON_TIME, LATE = (TIMINGS.index(timing) for timing in (Timing.EARLY, Timing.ON_TIME, Timing.LATE))


@dataclass(frozen=True, slots=True)
class RowFirings:
    """Panes that fired at rows, in any order: ``row`` and the partials of each."""

    row: Ints
    panes: PaneFirings
    partials: Columns


@dataclass(frozen=True)
class ArrivingRows:
    """The rows that are added to windows.

    ``rows``: the rows of the cut, and ``numbers`` their arrival numbers; ``placed``: some of them in their windows.
    ``past_end``, of shape (places,): whether the end of the window has passed; in a session it may have passed until a
    row moves the end. ``full``, of shape (places,): whether the row is the last one of its window.
    """

    rows: pl.DataFrame
    numbers: Ints
    placed: PlacedRows
    past_end: Mask
    full: Mask

    @cached_property
    def window(self) -> Ints:
        """Return the index of the window of each place."""
        return positions(self.placed.starts, len(self.placed.row))[0]

    @cached_property
    def last(self) -> Ints:
        """Return the last place of each window."""
        return np.append(self.placed.starts[1:], len(self.placed.row)) - 1

    @cached_property
    def is_new(self) -> Mask:
        """Return whether each window is new."""
        return self.placed.entries < 0

    @cached_property
    def grown(self) -> Ints:
        """Return, for each place, the last place up to it at which its window has grown; -1 if it has not."""
        grown = np.maximum.accumulate(np.where(self.placed.grows, np.arange(len(self.window)), -1))
        return np.where(grown >= self.placed.starts[self.window], grown, -1)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """``piece``, of shape (places,): the piece of each place. ``partials``, ``latest_ms``, of shape (pieces,): the
    contents of the window after the piece, and the latest event time in the window."""

    piece: Ints
    partials: Columns
    latest_ms: Ints


class RowAdder:
    """Adds rows to the windows of a table. ``discards``: each pane empties its window."""

    def __init__(
        self, table: TriggeredWindowTable, trigger: TriggerColumns, aggregate_set: AggregateSet, *, discards: bool
    ) -> None:
        self.table = table
        self.trigger = trigger
        self.aggregate_set = aggregate_set
        self.discards = discards

    def add(self, arriving: ArrivingRows, clock_ms: int) -> RowFirings:
        """Add rows to their windows in the table; return the panes that fire. Windows that are full are removed."""
        table, placed, is_new = self.table, arriving.placed, arriving.is_new
        entries = placed.entries.copy()
        entries[is_new] = table.new(placed.key_slots[is_new])
        before = table.numbers(entries)
        before[AWAITS][is_new] = ~arriving.past_end[placed.starts[is_new]]
        before[SINCE][is_new] = arriving.numbers[placed.row[placed.starts[is_new]]]
        is_late = arriving.past_end if self.trigger.ended else np.zeros(len(placed.row), dtype=bool)
        segment_starts = run_starts(2 * arriving.window + is_late)
        fires, clears = self._find_firing(arriving, before, is_late, segment_starts, clock_ms)
        fires |= arriving.full
        pieces = self._pieces(arriving, entries, before, fires, clears)
        fired_before: Ints = np.cumsum(fires) - fires
        fired_before -= fired_before[placed.starts][arriving.window]
        # A session that has grown is another window, whose panes are counted from 0.
        fired_before_growth = np.where(
            arriving.grown < 0, -before[FIRED][arriving.window], fired_before[arriving.grown]
        )
        pane = fired_before - fired_before_growth
        awaits = ~arriving.past_end | ((before[AWAITS][arriving.window] == 1) & (fired_before == 0))
        firings = self._firings(arriving, pieces, np.flatnonzero(fires), pane, awaits)
        last, piece = arriving.last, pieces.piece[arriving.last]
        after = self._states_after(arriving, before, fires, is_late, segment_starts, clock_ms) | {
            AWAITS: (awaits & ~(fires & arriving.past_end))[last].astype(np.int64),
            FIRED: (pane + fires)[last],
            LATEST: pieces.latest_ms[piece],
            SINCE: np.where(arriving.grown[last] < 0, before[SINCE], 0),
            UPTO: arriving.numbers[placed.row[last]] + 1,
        }
        moved = ~is_new & ((table.start[entries] != placed.first[last]) | (table.end[entries] != placed.end[last]))
        table.record_deleted(entries[moved])
        table.put(entries, placed.first[last], placed.end[last], after, take_rows(pieces.partials, piece))
        table.empty(entries[clears[last]])
        table.schedule(entries[is_new | moved])
        table.link_new(entries[is_new])
        is_full = arriving.full[last]
        table.record_deleted(entries[is_full & ~is_new])
        table.discard(entries[is_full])
        return firings

    def _find_firing(
        self, arriving: ArrivingRows, before: Arrays, is_late: Mask, segment_starts: Ints, clock_ms: int
    ) -> tuple[Mask, Mask]:
        """Return at which places the trigger fires, and at which of them the window is emptied.

        ``before``: the marks of the windows before the cut. ``is_late``, of shape (places,): the phase.
        """
        trigger, placed, window = self.trigger, arriving.placed, arriving.window
        segment, position = positions(segment_starts, len(window))
        segment_window, late = window[segment_starts], is_late[segment_starts]
        states = {name: before[name][segment_window] for name in trigger.start}
        ended = states[trigger.ended] == 1 if trigger.ended else np.zeros(len(late), dtype=bool)
        begins = segment_starts == placed.starts[segment_window]
        fires, clears = np.zeros(len(window), dtype=bool), np.zeros(len(window), dtype=bool)
        for phase, is_active in ((trigger.early, ~late), (trigger.late, late)):
            if phase is None or not is_active.any():
                continue
            if phase.flag is not None:
                found = arriving.rows[phase.flag].fill_null(value=False).to_numpy()[placed.row]
            else:
                period = trigger.period(phase, clock_ms)
                until = trigger.elements_until_ready(phase, states, len(late), clock_ms)
                # A window that begins after its end fires the pane at the end with its first row.
                first = np.where(begins & (ended == late), until, period + late)
                since = position + 1 - first[segment]
                found = (since >= 0) & (since % period == 0)
            found &= is_active[segment]
            fires |= found
            clears |= found & (self.discards or phase.purges)
        at_end = segment_starts[late & ~ended & begins]
        fires[at_end] = True
        clears[at_end] = self.discards or trigger.purges_at_end
        return fires, clears

    def _pieces(self, arriving: ArrivingRows, entries: Ints, before: Arrays, fires: Mask, clears: Mask) -> _Pieces:
        """Return the pieces of the windows with these entries."""
        placed = arriving.placed
        begins = np.concatenate([[True], fires[:-1]])
        begins[placed.starts] = True
        starts, piece = np.flatnonzero(begins), np.cumsum(begins) - 1
        latest_ms = np.maximum.reduceat(arriving.rows[EVENT_MS].to_numpy()[placed.row], starts)
        partials = {name: column.copy() for name, column in self._aggregate(arriving, piece, len(starts)).items()}
        held = np.flatnonzero(~arriving.is_new)
        first_pieces = piece[placed.starts[held]]
        latest_ms[first_pieces] = np.maximum(latest_ms[first_pieces], before[LATEST][held])
        held_partials = take_rows(self.table.columns, entries[held])
        for name, values in self.aggregate_set.merge(held_partials, take_rows(partials, first_pieces)).items():
            partials[name][first_pieces] = values
        is_first = np.zeros(len(starts), dtype=bool)
        is_first[piece[placed.starts]] = True
        is_empty_before = is_first | np.concatenate([[True], clears[starts[1:] - 1]])
        in_window = positions(np.flatnonzero(is_first), len(starts))[1]
        since_empty = positions(np.flatnonzero(is_empty_before), len(starts))[1]
        latest_ms = accumulate({LATEST: latest_ms}, in_window, _later)[LATEST]
        return _Pieces(piece, accumulate(partials, since_empty, self._merge), latest_ms)

    def _aggregate(self, arriving: ArrivingRows, piece: Ints, pieces: int) -> Columns:
        """Return the partials of each piece alone. ``piece``, of shape (places,): the piece of each place."""
        row, rows, numbers = arriving.placed.row, arriving.rows, arriving.numbers
        order = np.argsort(row, kind="stable")
        by_row = row[order]
        if len(row) != rows.height or (by_row != np.arange(len(row))).any():
            rows, numbers = rows[by_row], numbers[by_row]
        return self.aggregate_set.aggregate_groups(rows, numbers, piece[order], pieces)

    def _merge(self, left: Arrays, right: Arrays) -> Arrays:
        return self.aggregate_set.merge(dict(left), dict(right))

    def _firings(self, arriving: ArrivingRows, pieces: _Pieces, at: Ints, pane: Ints, awaits: Mask) -> RowFirings:
        """Return the panes at the places ``at``."""
        placed, full, piece = arriving.placed, arriving.full[at], pieces.piece[at]
        timing = np.where(arriving.past_end[at] | full, np.where(awaits[at], ON_TIME, LATE), EARLY)
        panes = PaneFirings(
            placed.key_slots[arriving.window[at]],
            placed.first[at],
            placed.end[at],
            pane[at],
            timing,
            full,
            np.zeros(len(at), dtype=bool),
            pieces.latest_ms[piece],
        )
        return RowFirings(placed.row[at], panes, take_rows(pieces.partials, piece))

    def _states_after(
        self,
        arriving: ArrivingRows,
        before: Arrays,
        fires: Mask,
        is_late: Mask,
        segment_starts: Ints,
        clock_ms: int,
    ) -> dict[str, Ints]:
        """Return the states of the triggers after the rows, and how many rows were in no pane yet."""
        trigger, starts, last = self.trigger, arriving.placed.starts, arriving.last
        last_fired = starts - 1
        at = np.flatnonzero(fires)
        last_fired[arriving.window[at]] = at
        has_fired = last_fired >= starts
        unfired = last - last_fired
        segment_first = segment_starts[np.searchsorted(segment_starts, last, side="right") - 1]
        ended = before[trigger.ended] == 1 if trigger.ended else np.zeros(len(starts), dtype=bool)
        is_reset = (last_fired >= segment_first) | (segment_first > starts) | (ended & ~is_late[last])
        states = {name: np.where(is_reset, value, before[name]) for name, value in trigger.start.items()}
        observed = np.minimum(unfired, last - segment_first + 1)
        after = trigger.observe(states, is_late[last], observed, clock_ms)
        if trigger.ended:
            after[trigger.ended] = is_late[last].astype(np.int64)
        return {**after, UNFIRED: unfired + np.where(has_fired, 0, before[UNFIRED])}


def _later(left: Arrays, right: Arrays) -> Arrays:
    return {LATEST: np.maximum(left[LATEST], right[LATEST])}
