"""The general path with its tables: what ``General`` decides, with values, and kept from cut to cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.operators.windows.arena import Arena
from streamcore.operators.windows.assigning import fields_of
from streamcore.operators.windows.columns import REASONS, TIMINGS, Drops, Panes
from streamcore.operators.windows.contents import Folded, Kept
from streamcore.operators.windows.elements import ElementTable
from streamcore.operators.windows.general import Drop, General
from streamcore.operators.windows.journal import Journal
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.live import Fired, Said
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.said import SaidTable
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tables import bounds
from streamcore.operators.windows.tally import Tally
from streamcore.operators.windows.values import Called, Recomputed, Results, Values
from streamcore.windowing.values import Accumulation, AnyWindow, CountWindow, Element, Window


class Singles:
    """Windows that are kept one by one, under the slots of ``keys``."""

    def __init__(self, plan: Plan, tally: Tally, keys: KeySlots) -> None:
        self.plan = plan
        self.keys = keys
        self.fields = list(plan.schema) if plan.keeps_elements else fields_of(plan.spec, plan.schema)
        self.arena: Arena | None = None
        self.elements: ElementTable | None = None
        self._contents: Folded | Kept
        self._values: Values
        if plan.keeps_elements:
            self.elements = ElementTable(keys, plan.schema)
            self._contents = Kept(plan.spec.evictor, self.elements)
            self._values = Called(plan.function, plan.schema) if plan.function else Recomputed(plan.bundle, tally)
        else:
            self.arena = Arena(plan.bundle)
            self._contents = Folded(self.arena)
            self._values = Results(self.arena, tally)
        self.general = General(plan.spec, keys, self._contents, tally, plan.max_windows)
        self.table = self.general.windows
        self.said = SaidTable(keys, self.arena) if plan.spec.accumulation is Accumulation.RETRACTING else None

    def finish(self, rows: pl.DataFrame, numbers: Ints) -> tuple[Panes, list[pl.Series]]:
        """The panes of the cut with their values; afterwards what only the cut needed is given back."""
        living = [live for name in self.table.dirty if (live := self.table.get(*name))]
        if isinstance(self._contents, Folded) and self.arena:
            for live in living:
                self._contents.seal(live.content)
            self.arena.compute(rows, numbers)
        panes = panes_of(self.general.fired)
        pane, values = self._values.of(self.general.fired, self.keys.frame(panes.slots))
        before = self.general.before
        if self.said is not None:
            self.said.replace(before, living)
        if self.arena is not None:
            old = {node for one in before.values() for node in (one.node, *_nodes(one.said))}
            self.arena.keep(old, {node for live in living for node in (live.content.node, *_nodes(live.said))})
        return panes.at(pane), values

    # --- state --------------------------------------------------------------------------------------------------

    def journals(self) -> dict[str, Journal]:
        """All state."""
        found: dict[str, Journal | None] = {"windows": self.table, "said": self.said, "elements": self.elements}
        return {name: table for name, table in found.items() if table is not None}

    def restore(self, stored: Mapping[str, pl.DataFrame]) -> None:
        """Take all live rows into empty tables."""
        self.table.restore(stored["windows"], self._window)
        if self.elements is not None:
            self._give(self.elements, stored["elements"])
        if self.said is not None:
            self._take_back(self.said, stored["said"])
        for slot, window in self.table.names():
            self.general.plan(self.table.live[slot][window])
        if self.arena is not None:
            self.arena.settle()

    def _give(self, table: ElementTable, rows: pl.DataFrame) -> None:
        """Each living window its elements."""
        of = table.restore(rows)
        for slot, window in self.table.names():
            live = self.table.live[slot][window]
            found = [] if live.trigger.done else of.get(slot, [])
            live.content.elements = [e for e in found if e.number >= live.content.since and holds(window, e)]
            for element in live.content.elements:
                table.hold(element)
        table.settled()

    def _take_back(self, table: SaidTable, rows: pl.DataFrame) -> None:
        """Each living window what it or the sessions in it have said."""
        for slot, stored in sorted(table.restore(rows, self._window), key=lambda one: nested(one[1].window)):
            said = stored
            owner = next((w for w in self.table.of(slot) if _within(said.window, w)), None)
            if owner is None:
                continue
            live = self.table.live[slot][owner]
            if isinstance(self._contents, Kept):
                elements = live.content.elements
                seen = [e for e in elements if e.number < said.upto and holds(said.window, e)]
                said = Said(said.window, said.pane, self._contents.seen(seen), said.latest_ms, said.upto)
            if said.window == owner:
                live.last = said
            else:
                live.superseded.append(said)
            table.put(slot, said)

    def _window(self, first: int, end: int) -> AnyWindow:
        return Window(first, end) if self.plan.spec.assigner.in_event_time else CountWindow(first, end)


def holds(window: AnyWindow, element: Element) -> bool:
    """Whether the element is within the window's bounds."""
    first, end = bounds(window)
    return first <= (element.number if isinstance(window, CountWindow) else element.event_ms) < end


def nested(window: AnyWindow) -> tuple[int, int]:
    """By end, and what is within another before it: the order in which absorbed sessions are taken back."""
    first, end = bounds(window)
    return end, -first


def panes_of(fired: Sequence[Fired]) -> Panes:
    """Columns of panes."""
    numbers = [
        (one.slot, *bounds(one.window), one.pane, TIMINGS.index(one.timing), one.final, one.retraction, one.latest_ms)
        for one in fired
    ]
    slots, first, end, pane, timing, final, retraction, latest = np.array(numbers, np.int64).reshape(-1, 8).T
    return Panes(slots, first, end, pane, timing, final.astype(bool), retraction.astype(bool), latest)


def drops_of(dropped: Sequence[Drop]) -> Drops:
    """Columns of what was dropped."""
    numbers = [(row, *bounds(window), REASONS.index(reason)) for row, window, reason in dropped]
    return Drops(*np.array(numbers, np.int64).reshape(-1, 4).T)


def _within(inner: AnyWindow, outer: AnyWindow) -> bool:
    return bounds(outer)[0] <= bounds(inner)[0] and bounds(inner)[1] <= bounds(outer)[1]


def _nodes(said: Sequence[Said]) -> list[int]:
    return [one.view for one in said if isinstance(one.view, int)]
