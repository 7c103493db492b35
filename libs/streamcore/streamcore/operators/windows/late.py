"""Windows over pieces that take late elements: from then on they are kept one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.operators.windows.arena import NOTHING
from streamcore.operators.windows.assigning import elements
from streamcore.operators.windows.bundle import Columns, at, joined
from streamcore.operators.windows.contents import Content
from streamcore.operators.windows.grouping import expanded
from streamcore.operators.windows.live import LiveWindow, Said
from streamcore.operators.windows.paning import Paning
from streamcore.operators.windows.pieces import Pieces
from streamcore.operators.windows.singles import Singles
from streamcore.operators.windows.table import Ints
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import Moment
from streamcore.windowing.values import Accumulation, Window


class LateWindows:
    """Late elements, and the windows that they wake."""

    def __init__(self, spec: WindowSpec, paning: Paning, pieces: Pieces, singles: Singles) -> None:
        self.spec = spec
        self.paning = paning
        self.pieces = pieces
        self.singles = singles

    def take(self, rows: pl.DataFrame, numbers: Ints, slots: Ints, first: Ints, last: Ints) -> None:
        """Put each row into those of its windows from ``first`` to ``last``. Before the rows go into their pieces."""
        late = np.flatnonzero(first <= last)
        if not late.size:
            return
        index, window = expanded(first[late], last[late])
        self._wake(slots[late][index], window)
        found = elements(rows[late], self.singles.fields, slots[late], numbers[late])
        for row, element, low, high in zip(
            late.tolist(), found, first[late].tolist(), last[late].tolist(), strict=True
        ):
            windows = [Window(*self.paning.bounds(number)) for number in range(low, high + 1)]
            self.singles.general.put(element, row, windows)

    def _wake(self, slots: Ints, window: Ints) -> None:
        """Keep these windows one by one, if they have fired and are not kept yet."""
        for number in np.unique(window).tolist():
            bounds = Window(*self.paning.bounds(number))
            asleep = [s for s in np.unique(slots[window == number]).tolist() if not self.singles.table.get(s, bounds)]
            found, partials = self._held(number, np.array(asleep, dtype=np.int64))
            nodes = self._nodes(partials, len(found))
            for slot, node in zip(found.tolist(), nodes, strict=True):
                self._put(slot, bounds, node)

    def _held(self, window: int, slots: Ints) -> tuple[Ints, Columns]:
        """Which of the keys are in the window's pieces, and what all pieces hold of each."""
        first = window * self.paning.step
        parts: list[Columns] = []
        index: list[Ints] = [np.empty(0, dtype=np.int64)]
        for number in self.pieces.between(first, first + self.paning.length):
            entries = self.pieces.find(number, slots)
            there = np.flatnonzero(entries >= 0)
            index.append(there)
            parts.append(at(self.pieces[number].partials, entries[there]))
        which = np.concatenate(index)
        if not which.size:
            return which, {}
        order = np.argsort(which, kind="stable")
        keys, starts = np.unique(which[order], return_index=True)
        return slots[keys], self.pieces.bundle.reduce(at(joined(parts), order), starts)

    def _nodes(self, partials: Columns, count: int) -> Sequence[int]:
        arena = self.singles.arena
        return arena.take(partials, count) if arena is not None and count else [NOTHING] * count

    def _put(self, slot: int, window: Window, node: int) -> None:
        """A window that has had its pane on time."""
        trigger = self.spec.trigger.fire(self.spec.trigger.start(), Moment(past_end=True, clock_ms=0))
        held = NOTHING if self.spec.accumulation is Accumulation.DISCARDING else node
        live = LiveWindow(slot, window, trigger, False, Content(held), fired=1)
        if self.spec.accumulation is Accumulation.RETRACTING:
            live.last = Said(window, 0, node, 0, 0)
        self.singles.table.put(live)
        self.singles.general.plan(live)
