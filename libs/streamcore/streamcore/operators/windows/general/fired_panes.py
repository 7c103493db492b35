"""The table of panes that may have to be taken back."""

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
    """The panes that may have to be retracted, by the window that emitted them."""

    def __init__(self, keys: KeySlots, partial_store: PartialStore | None) -> None:
        self.partial_store = partial_store
        whole = pl.Int64()
        columns = {FIRST: whole, END: whole, PANE: whole, LATEST: whole, UPTO: whole}
        super().__init__(
            keys, {**columns, **(partial_store.aggregate_set.partial_types if partial_store else {})}, [FIRST, END]
        )
        self.emitted: dict[int, dict[AnyWindow, EmittedPane]] = {}
        self.dirty: dict[Name, None] = {}
        self.buckets = SlotBuckets(keys)

    def replace(self, before: Mapping[Name, WindowBeforeCut], living: Iterable[LiveWindow]) -> None:
        """Forget the panes that windows had emitted before the cut, and keep those of the live windows."""
        now = {(live.slot, emitted_pane.window): emitted_pane for live in living for emitted_pane in live.emitted_panes}
        for (slot, _), one in before.items():
            for emitted_pane in one.emitted:
                if (slot, emitted_pane.window) not in now:
                    self._remove(slot, emitted_pane.window)
        for (slot, window), emitted_pane in now.items():
            if self.emitted.get(slot, {}).get(window) != emitted_pane:
                self.put(slot, emitted_pane)
                self.dirty[slot, window] = None

    def put(self, slot: int, emitted_pane: EmittedPane) -> None:
        """Keep one that is stored."""
        if slot not in self.emitted:
            self.emitted[slot] = {}
            self.buckets.add(slot)
        self.emitted[slot][emitted_pane.window] = emitted_pane

    def _remove(self, slot: int, window: AnyWindow) -> None:
        if self.emitted.get(slot, {}).pop(window, None) is None:
            return
        self.dirty[slot, window] = None
        if not self.emitted[slot]:
            del self.emitted[slot]
            self.buckets.remove(slot)

    def _take_changes(self) -> pl.DataFrame | None:
        if not self.dirty:
            return None
        found = [(slot, window, self.emitted.get(slot, {}).get(window)) for slot, window in self.dirty]
        self.dirty = {}
        gone = [(slot, bounds(window)) for slot, window, emitted_pane in found if emitted_pane is None]
        names = {FIRST: [first for _, (first, _) in gone], END: [end for _, (_, end) in gone]}
        tombstones = self.tombstones([slot for slot, _ in gone], names)
        return pl.concat(
            [
                self._rows([(slot, emitted_pane) for slot, _, emitted_pane in found if emitted_pane is not None]),
                tombstones,
            ]
        )

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        slots = self.buckets.slots_in(bucket, buckets, self.emitted)
        return self._rows([(slot, emitted_pane) for slot in slots for emitted_pane in self.emitted[slot].values()])

    def _rows(self, emitted_pane: Sequence[tuple[int, EmittedPane]]) -> pl.DataFrame:
        numbers = [[*bounds(one.window), one.pane, one.latest_ms, one.upto] for _, one in emitted_pane]
        table = np.array(numbers, dtype=np.int64).reshape(len(emitted_pane), 5).T
        columns = [pl.Series(n, c) for n, c in zip((FIRST, END, PANE, LATEST, UPTO), table, strict=True)]
        if self.partial_store is not None:
            nodes = [one.view if isinstance(one.view, int) else NOTHING for _, one in emitted_pane]
            columns += self.partial_store.store(np.asarray(nodes, dtype=np.int64))
        return self.frame([slot for slot, _ in emitted_pane], columns)

    def restore(self, rows: pl.DataFrame, window: Callable[[int, int], AnyWindow]) -> list[tuple[int, EmittedPane]]:
        """Return all panes that were stored; their views are nodes, or empty where elements are kept."""
        nodes = [NOTHING] * rows.height if self.partial_store is None else self.partial_store.load(rows)
        slots = self.keys.assign(rows).tolist()
        columns = (rows[name].to_list() for name in (FIRST, END, PANE, LATEST, UPTO))
        return [
            (slot, EmittedPane(window(first, end), pane, node, latest_ms, upto))
            for slot, node, first, end, pane, latest_ms, upto in zip(slots, nodes, *columns, strict=True)
        ]
