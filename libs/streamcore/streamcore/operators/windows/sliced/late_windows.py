"""Adds late elements to windows that have fired, and moves these windows to the general path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.columnar.grouping import expand_ranges
from streamcore.columnar.hash_table import Ints
from streamcore.operators.windows.aggregate_set import Columns, concat_rows, take_rows
from streamcore.operators.windows.element_fields import elements
from streamcore.operators.windows.general.contents import WindowContent
from streamcore.operators.windows.general.live_window import EmittedPane, LiveWindow
from streamcore.operators.windows.general.partial_store import NOTHING
from streamcore.operators.windows.general.windows import TriggeredWindowStore
from streamcore.operators.windows.sliced.slice_table import SliceTable
from streamcore.operators.windows.sliced.slicing import Slicing
from streamcore.windowing.model import Accumulation, Window
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import TriggerContext


class LateWindowStore:
    """Adds late elements to windows. ``triggered`` stores the windows of the general path."""

    def __init__(self, spec: WindowSpec, slicing: Slicing, slices: SliceTable, triggered: TriggeredWindowStore) -> None:
        self.spec = spec
        self.slicing = slicing
        self.slices = slices
        self.triggered = triggered

    def take(self, rows: pl.DataFrame, numbers: Ints, key_slots: Ints, first: Ints, last: Ints) -> None:
        """Add each row to its windows from ``first`` to ``last``. Call it before the rows are added to their slices.

        ``numbers``, ``key_slots``, ``first``, ``last``, all of shape (rows,): the arrival number, the key slot, and the
        numbers of the windows; a row with ``first > last`` is not late.
        """
        late = np.flatnonzero(first <= last)
        if not late.size:
            return
        index, window = expand_ranges(first[late], last[late])
        self._move_to_general_path(key_slots[late][index], window)
        late_elements = elements(rows[late], self.triggered.fields, key_slots[late], numbers[late])
        for row, element, first_window, last_window in zip(
            late.tolist(), late_elements, first[late].tolist(), last[late].tolist(), strict=True
        ):
            windows = [Window(*self.slicing.bounds(number)) for number in range(first_window, last_window + 1)]
            self.triggered.engine.put(element, row, windows)

    def _move_to_general_path(self, key_slots: Ints, window: Ints) -> None:
        """Move these windows to the general path, with the contents of their slices, unless they are there already."""
        for number in np.unique(window).tolist():
            bounds = Window(*self.slicing.bounds(number))
            not_moved = [
                s for s in np.unique(key_slots[window == number]).tolist() if not self.triggered.table.get(s, bounds)
            ]
            with_elements, partials = self._combine_for_keys(number, np.array(not_moved, dtype=np.int64))
            nodes = self._nodes(partials, len(with_elements))
            for key_slot, node in zip(with_elements.tolist(), nodes, strict=True):
                self._put(key_slot, bounds, node)

    def _combine_for_keys(self, window: int, key_slots: Ints) -> tuple[Ints, Columns]:
        """Return those of ``key_slots`` with elements in the window, and their partials merged over its slices."""
        first = window * self.slicing.step
        parts: list[Columns] = []
        index: list[Ints] = [np.empty(0, dtype=np.int64)]
        for number in self.slices.between(first, first + self.slicing.length):
            entries = self.slices.find(number, key_slots)
            present = np.flatnonzero(entries >= 0)
            index.append(present)
            parts.append(take_rows(self.slices[number].partials, entries[present]))
        key_slot_index = np.concatenate(index)
        if not key_slot_index.size:
            return key_slot_index, {}
        order = np.argsort(key_slot_index, kind="stable")
        keys, starts = np.unique(key_slot_index[order], return_index=True)
        return key_slots[keys], self.slices.aggregate_set.reduce(take_rows(concat_rows(parts), order), starts)

    def _nodes(self, partials: Columns, count: int) -> Sequence[int]:
        partial_store = self.triggered.partial_store
        return partial_store.take(partials, count) if partial_store is not None and count else [NOTHING] * count

    def _put(self, key_slot: int, window: Window, node: int) -> None:
        """Store a window of the general path that has fired its on-time pane."""
        trigger = self.spec.trigger.fire(self.spec.trigger.start(), TriggerContext(past_end=True, clock_ms=0))
        contents = NOTHING if self.spec.accumulation is Accumulation.DISCARDING else node
        live = LiveWindow(key_slot, window, trigger, False, WindowContent(contents), fired=1)
        if self.spec.accumulation is Accumulation.RETRACTING:
            live.last = EmittedPane(window, 0, node, 0, 0)
        self.triggered.table.put(live)
        self.triggered.engine.plan(live)
