"""Windows over slices that take late elements: from then on they are kept one by one."""

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
    """Late elements, and the windows that they wake."""

    def __init__(self, spec: WindowSpec, slicing: Slicing, slices: SliceTable, triggered: TriggeredWindowStore) -> None:
        self.spec = spec
        self.slicing = slicing
        self.slices = slices
        self.triggered = triggered

    def take(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, first: Ints, last: Ints) -> None:
        """Put each row into those of its windows from ``first`` to ``last``. Before the rows go into their slices."""
        late = np.flatnonzero(first <= last)
        if not late.size:
            return
        index, window = expand_ranges(first[late], last[late])
        self._wake(slots[late][index], window)
        found = elements(rows[late], self.triggered.fields, slots[late], numbers[late])
        for row, element, low, high in zip(
            late.tolist(), found, first[late].tolist(), last[late].tolist(), strict=True
        ):
            windows = [Window(*self.slicing.bounds(number)) for number in range(low, high + 1)]
            self.triggered.engine.put(element, row, windows)

    def _wake(self, slots: Ints, window: Ints) -> None:
        """Keep these windows one by one, if they have fired and are not kept yet."""
        for number in np.unique(window).tolist():
            bounds = Window(*self.slicing.bounds(number))
            asleep = [s for s in np.unique(slots[window == number]).tolist() if not self.triggered.table.get(s, bounds)]
            found, partials = self._combine_for_keys(number, np.array(asleep, dtype=np.int64))
            nodes = self._nodes(partials, len(found))
            for slot, node in zip(found.tolist(), nodes, strict=True):
                self._put(slot, bounds, node)

    def _combine_for_keys(self, window: int, slots: Ints) -> tuple[Ints, Columns]:
        """Return the slots, among ``slots``, that the window's slices hold, and their partials over all slices."""
        first = window * self.slicing.step
        parts: list[Columns] = []
        index: list[Ints] = [np.empty(0, dtype=np.int64)]
        for number in self.slices.between(first, first + self.slicing.length):
            entries = self.slices.find(number, slots)
            there = np.flatnonzero(entries >= 0)
            index.append(there)
            parts.append(take_rows(self.slices[number].partials, entries[there]))
        which = np.concatenate(index)
        if not which.size:
            return which, {}
        order = np.argsort(which, kind="stable")
        keys, starts = np.unique(which[order], return_index=True)
        return slots[keys], self.slices.aggregate_set.reduce(take_rows(concat_rows(parts), order), starts)

    def _nodes(self, partials: Columns, count: int) -> Sequence[int]:
        partial_store = self.triggered.partial_store
        return partial_store.take(partials, count) if partial_store is not None and count else [NOTHING] * count

    def _put(self, slot: int, window: Window, node: int) -> None:
        """Store a window that has fired its pane on time."""
        trigger = self.spec.trigger.fire(self.spec.trigger.start(), TriggerContext(past_end=True, clock_ms=0))
        held = NOTHING if self.spec.accumulation is Accumulation.DISCARDING else node
        live = LiveWindow(slot, window, trigger, False, WindowContent(held), fired=1)
        if self.spec.accumulation is Accumulation.RETRACTING:
            live.last = EmittedPane(window, 0, node, 0, 0)
        self.triggered.table.put(live)
        self.triggered.engine.plan(live)
