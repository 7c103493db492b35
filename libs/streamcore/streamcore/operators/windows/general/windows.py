"""The windows of the general path: the decisions of ``TriggerEngine``, the values of panes, and the state tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.element_fields import fields_for
from streamcore.operators.windows.general.contents import BufferedContent, FoldedContent
from streamcore.operators.windows.general.element_table import ElementTable
from streamcore.operators.windows.general.fired_panes import EmittedPaneTable
from streamcore.operators.windows.general.live_window import EmittedPane, PaneFiring
from streamcore.operators.windows.general.pane_values import (
    AggregateValues,
    FunctionValues,
    PaneValues,
    RecomputedValues,
)
from streamcore.operators.windows.general.partial_store import PartialStore
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.trigger_engine import Drop, TriggerEngine
from streamcore.operators.windows.general.window_table import bounds
from streamcore.operators.windows.journal import JournaledTable
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import REASONS, TIMINGS, DroppedRows, PaneFirings
from streamcore.windowing.model import Accumulation, AnyWindow, CountWindow, Element, Window


class TriggeredWindowStore:
    """The live windows of a shard, by key slot of ``keys``, with their contents and state tables."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics, keys: KeySlots) -> None:
        self.plan = plan
        self.keys = keys
        self.fields = list(plan.schema) if plan.keeps_elements else fields_for(plan.spec, plan.schema)
        self.partial_store: PartialStore | None = None
        self.elements: ElementTable | None = None
        self._contents: FoldedContent | BufferedContent
        self._values: PaneValues
        if plan.keeps_elements:
            self.elements = ElementTable(keys, plan.schema)
            self._contents = BufferedContent(plan.spec.evictor, self.elements)
            self._values = (
                FunctionValues(plan.function, plan.schema, plan.failures)
                if plan.function and plan.failures
                else RecomputedValues(plan.aggregate_set, metrics, plan.failures)
            )
        else:
            self.partial_store = PartialStore(plan.aggregate_set)
            self._contents = FoldedContent(self.partial_store)
            self._values = AggregateValues(self.partial_store, metrics, plan.failures)
        self.engine = TriggerEngine(plan.spec, keys, self._contents, metrics, plan.max_windows)
        self.table = self.engine.windows
        self.emitted = (
            EmittedPaneTable(keys, self.partial_store) if plan.spec.accumulation is Accumulation.RETRACTING else None
        )

    def finish(self, rows: pl.DataFrame, numbers: Ints) -> tuple[PaneFirings, list[pl.Series]]:
        """Return the panes of the cut and their columns of values, and free the nodes that are not needed any more.

        ``rows``: the rows of the cut; ``numbers``, of shape (rows,): their arrival numbers.
        """
        living = [live for name in self.table.dirty if (live := self.table.get(*name))]
        if isinstance(self._contents, FoldedContent) and self.partial_store:
            for live in living:
                self._contents.seal(live.content)
            self.partial_store.compute(rows, numbers)
        panes = to_pane_firings(self.engine.fired)
        pane, values = self._values.compute(self.engine.fired, self.keys.frame(panes.key_slots))
        before = self.engine.before
        if self.emitted is not None:
            self.emitted.replace(before, living)
        if self.partial_store is not None:
            old = {
                node
                for window_before in before.values()
                for node in (window_before.node, *_nodes(window_before.emitted))
            }
            self.partial_store.keep(
                old, {node for live in living for node in (live.content.node, *_nodes(live.emitted_panes))}
            )
        return panes.at(pane), values

    # --- state --------------------------------------------------------------------------------------------------

    def journals(self) -> dict[str, JournaledTable]:
        """Return all state tables by name, without ``progress``."""
        tables: dict[str, JournaledTable | None] = {
            "windows": self.table,
            "emitted": self.emitted,
            "elements": self.elements,
        }
        return {name: table for name, table in tables.items() if table is not None}

    def restore(self, stored: Mapping[str, pl.DataFrame]) -> None:
        """Load all live rows, by table name, into the empty tables."""
        self.table.restore(stored["windows"], self._window)
        if self.elements is not None:
            self._restore_elements(self.elements, stored["elements"])
        if self.emitted is not None:
            self._restore_panes(self.emitted, stored["emitted"])
        for key_slot, window in self.table.names():
            self.engine.plan(self.table.live[key_slot][window])
        if self.partial_store is not None:
            self.partial_store.keep_loaded()

    def _restore_elements(self, table: ElementTable, rows: pl.DataFrame) -> None:
        """Add the stored elements to the live windows that contain them."""
        elements_by_key_slot = table.restore(rows)
        for key_slot, window in self.table.names():
            live = self.table.live[key_slot][window]
            elements = [] if live.trigger.done else elements_by_key_slot.get(key_slot, [])
            live.content.elements = [e for e in elements if e.number >= live.content.since and contains(window, e)]
            for element in live.content.elements:
                table.hold(element)
        table.clear_changes()

    def _restore_panes(self, table: EmittedPaneTable, rows: pl.DataFrame) -> None:
        """Add the stored panes to the live window that emitted them, or that absorbed the session that did."""
        for key_slot, stored in sorted(
            table.restore(rows, self._window),
            key=lambda key_slot_and_pane: retraction_order(key_slot_and_pane[1].window),
        ):
            emitted_pane = stored
            owner = next((w for w in self.table.windows_for(key_slot) if _within(emitted_pane.window, w)), None)
            if owner is None:
                continue
            live = self.table.live[key_slot][owner]
            if isinstance(self._contents, BufferedContent):
                elements = live.content.elements
                pane_elements = [
                    e for e in elements if e.number < emitted_pane.upto and contains(emitted_pane.window, e)
                ]
                emitted_pane = EmittedPane(
                    emitted_pane.window,
                    emitted_pane.pane,
                    self._contents.visible_elements(pane_elements),
                    emitted_pane.latest_ms,
                    emitted_pane.upto,
                )
            if emitted_pane.window == owner:
                live.last = emitted_pane
            else:
                live.superseded.append(emitted_pane)
            table.put(key_slot, emitted_pane)

    def _window(self, first: int, end: int) -> AnyWindow:
        return Window(first, end) if self.plan.spec.assigner.in_event_time else CountWindow(first, end)


def contains(window: AnyWindow, element: Element) -> bool:
    """Return whether the element is within the window's bounds."""
    first, end = bounds(window)
    return first <= (element.number if isinstance(window, CountWindow) else element.event_ms) < end


def retraction_order(window: AnyWindow) -> tuple[int, int]:
    """Return the sort key of retractions: by end, and nested sessions before the one around them."""
    first, end = bounds(window)
    return end, -first


def to_pane_firings(fired: Sequence[PaneFiring]) -> PaneFirings:
    """Return the fired panes as columns."""
    numbers = [
        (
            firing.key_slot,
            *bounds(firing.window),
            firing.pane,
            TIMINGS.index(firing.timing),
            firing.final,
            firing.retraction,
            firing.latest_ms,
        )
        for firing in fired
    ]
    key_slots, first, end, pane, timing, final, retraction, latest = np.array(numbers, np.int64).reshape(-1, 8).T
    return PaneFirings(key_slots, first, end, pane, timing, final.astype(bool), retraction.astype(bool), latest)


def to_dropped_rows(dropped: Sequence[Drop]) -> DroppedRows:
    """Return the dropped elements as columns."""
    numbers = [(row, *bounds(window), REASONS.index(reason)) for row, window, reason in dropped]
    return DroppedRows(*np.array(numbers, np.int64).reshape(-1, 4).T)


def _within(inner: AnyWindow, outer: AnyWindow) -> bool:
    return bounds(outer)[0] <= bounds(inner)[0] and bounds(inner)[1] <= bounds(outer)[1]


def _nodes(panes: Sequence[EmittedPane]) -> list[int]:
    return [pane.view for pane in panes if isinstance(pane.view, int)]
