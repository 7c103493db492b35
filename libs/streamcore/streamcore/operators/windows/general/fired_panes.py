"""The state table of panes that may have to be retracted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.general.live_window import EmittedPane, LiveWindow
from streamcore.operators.windows.general.partial_store import NOTHING, PartialStore
from streamcore.operators.windows.general.trigger_engine import WindowBeforeCut
from streamcore.operators.windows.general.window_table import (
    END,
    FIRST,
    LATEST,
    PANE,
    UPTO,
    KeyedJournaledTable,
    Name,
    SlotBuckets,
    bounds,
)
from streamcore.windowing.model import AnyWindow


class EmittedPaneTable(KeyedJournaledTable):
    """The panes that may have to be retracted, by key slot and window. Empty unless the windows are retracting."""

    def __init__(self, keys: KeySlots, partial_store: PartialStore | None) -> None:
        self.partial_store = partial_store
        int64 = pl.Int64()
        columns = {FIRST: int64, END: int64, PANE: int64, LATEST: int64, UPTO: int64}
        super().__init__(
            keys, {**columns, **(partial_store.aggregate_set.partial_types if partial_store else {})}, [FIRST, END]
        )
        self.emitted: dict[int, dict[AnyWindow, EmittedPane]] = {}
        self.dirty: dict[Name, None] = {}
        self.buckets = SlotBuckets(keys)

    def replace(self, before: Mapping[Name, WindowBeforeCut], living: Iterable[LiveWindow]) -> None:
        """Delete the panes that the windows of ``before`` had emitted before the cut; store those of ``living``."""
        current = {
            (live.key_slot, emitted_pane.window): emitted_pane for live in living for emitted_pane in live.emitted_panes
        }
        for (key_slot, _), window_before in before.items():
            for emitted_pane in window_before.emitted:
                if (key_slot, emitted_pane.window) not in current:
                    self._remove(key_slot, emitted_pane.window)
        for (key_slot, window), emitted_pane in current.items():
            if self.emitted.get(key_slot, {}).get(window) != emitted_pane:
                self.put(key_slot, emitted_pane)
                self.dirty[key_slot, window] = None

    def put(self, key_slot: int, emitted_pane: EmittedPane) -> None:
        """Put a pane into the table, without marking it as changed."""
        if key_slot not in self.emitted:
            self.emitted[key_slot] = {}
            self.buckets.add(key_slot)
        self.emitted[key_slot][emitted_pane.window] = emitted_pane

    def _remove(self, key_slot: int, window: AnyWindow) -> None:
        if self.emitted.get(key_slot, {}).pop(window, None) is None:
            return
        self.dirty[key_slot, window] = None
        if not self.emitted[key_slot]:
            del self.emitted[key_slot]
            self.buckets.remove(key_slot)

    def _take_changes(self) -> pl.DataFrame | None:
        if not self.dirty:
            return None
        changed = [(key_slot, window, self.emitted.get(key_slot, {}).get(window)) for key_slot, window in self.dirty]
        self.dirty = {}
        deleted = [(key_slot, bounds(window)) for key_slot, window, emitted_pane in changed if emitted_pane is None]
        names = {FIRST: [first for _, (first, _) in deleted], END: [end for _, (_, end) in deleted]}
        tombstones = self.tombstones([key_slot for key_slot, _ in deleted], names)
        return pl.concat(
            [
                self._rows(
                    [(key_slot, emitted_pane) for key_slot, _, emitted_pane in changed if emitted_pane is not None]
                ),
                tombstones,
            ]
        )

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        key_slots = self.buckets.key_slots_in(bucket, buckets, self.emitted)
        return self._rows(
            [(key_slot, emitted_pane) for key_slot in key_slots for emitted_pane in self.emitted[key_slot].values()]
        )

    def _rows(self, panes: Sequence[tuple[int, EmittedPane]]) -> pl.DataFrame:
        numbers = [[*bounds(pane.window), pane.pane, pane.latest_ms, pane.upto] for _, pane in panes]
        table = np.array(numbers, dtype=np.int64).reshape(len(panes), 5).T
        columns = [pl.Series(n, c) for n, c in zip((FIRST, END, PANE, LATEST, UPTO), table, strict=True)]
        if self.partial_store is not None:
            nodes = [pane.view if isinstance(pane.view, int) else NOTHING for _, pane in panes]
            columns += self.partial_store.store(np.asarray(nodes, dtype=np.int64))
        return self.frame([key_slot for key_slot, _ in panes], columns)

    def restore(self, rows: pl.DataFrame, window: Callable[[int, int], AnyWindow]) -> list[tuple[int, EmittedPane]]:
        """Return all stored panes with their key slots, and do not add them to the table.

        Their views are nodes of partials, or ``NOTHING`` if windows keep elements. ``window``: builds a window from its
        bounds.
        """
        nodes = [NOTHING] * rows.height if self.partial_store is None else self.partial_store.load(rows)
        key_slots = self.keys.assign(rows).tolist()
        columns = (rows[name].to_list() for name in (FIRST, END, PANE, LATEST, UPTO))
        return [
            (key_slot, EmittedPane(window(first, end), pane, node, latest_ms, upto))
            for key_slot, node, first, end, pane, latest_ms, upto in zip(key_slots, nodes, *columns, strict=True)
        ]
