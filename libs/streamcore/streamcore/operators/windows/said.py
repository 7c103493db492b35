"""The table of panes that may have to be taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.operators.windows.arena import NOTHING, Arena
from streamcore.operators.windows.general import Before
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.live import LiveWindow, Said
from streamcore.operators.windows.tables import END, FIRST, LATEST, PANE, UPTO, KeyedJournal, Name, SlotBuckets, bounds
from streamcore.windowing.values import AnyWindow


class SaidTable(KeyedJournal):
    """The panes that may have to be taken back, by the window that said them."""

    def __init__(self, keys: KeySlots, arena: Arena | None) -> None:
        self.arena = arena
        whole = pl.Int64()
        columns = {FIRST: whole, END: whole, PANE: whole, LATEST: whole, UPTO: whole}
        super().__init__(keys, {**columns, **(arena.bundle.dtypes if arena else {})}, [FIRST, END])
        self.said: dict[int, dict[AnyWindow, Said]] = {}
        self.dirty: dict[Name, None] = {}
        self.buckets = SlotBuckets(keys)

    def replace(self, before: Mapping[Name, Before], living: Iterable[LiveWindow]) -> None:
        """Forget what windows had said before the cut, and keep what the living ones have said."""
        now = {(live.slot, said.window): said for live in living for said in live.said}
        for (slot, _), one in before.items():
            for said in one.said:
                if (slot, said.window) not in now:
                    self._remove(slot, said.window)
        for (slot, window), said in now.items():
            if self.said.get(slot, {}).get(window) != said:
                self.put(slot, said)
                self.dirty[slot, window] = None

    def put(self, slot: int, said: Said) -> None:
        """Keep one that is stored."""
        if slot not in self.said:
            self.said[slot] = {}
            self.buckets.add(slot)
        self.said[slot][said.window] = said

    def _remove(self, slot: int, window: AnyWindow) -> None:
        if self.said.get(slot, {}).pop(window, None) is None:
            return
        self.dirty[slot, window] = None
        if not self.said[slot]:
            del self.said[slot]
            self.buckets.remove(slot)

    def _changed(self) -> pl.DataFrame | None:
        if not self.dirty:
            return None
        found = [(slot, window, self.said.get(slot, {}).get(window)) for slot, window in self.dirty]
        self.dirty = {}
        gone = [(slot, bounds(window)) for slot, window, said in found if said is None]
        names = {FIRST: [first for _, (first, _) in gone], END: [end for _, (_, end) in gone]}
        tombs = self.tombs([slot for slot, _ in gone], names)
        return pl.concat([self._rows([(slot, said) for slot, _, said in found if said is not None]), tombs])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        slots = self.buckets.of(bucket, buckets, self.said)
        return self._rows([(slot, said) for slot in slots for said in self.said[slot].values()])

    def _rows(self, said: Sequence[tuple[int, Said]]) -> pl.DataFrame:
        numbers = [[*bounds(one.window), one.pane, one.latest_ms, one.upto] for _, one in said]
        table = np.array(numbers, dtype=np.int64).reshape(len(said), 5).T
        columns = [pl.Series(n, c) for n, c in zip((FIRST, END, PANE, LATEST, UPTO), table, strict=True)]
        if self.arena is not None:
            nodes = [one.view if isinstance(one.view, int) else NOTHING for _, one in said]
            columns += self.arena.store(np.asarray(nodes, dtype=np.int64))
        return self.frame([slot for slot, _ in said], columns)

    def restore(self, rows: pl.DataFrame, window: Callable[[int, int], AnyWindow]) -> list[tuple[int, Said]]:
        """All panes that were stored; their views are nodes, or empty where elements are kept."""
        nodes = [NOTHING] * rows.height if self.arena is None else self.arena.load(rows)
        slots = self.keys.assign(rows).tolist()
        columns = (rows[name].to_list() for name in (FIRST, END, PANE, LATEST, UPTO))
        return [
            (slot, Said(window(first, end), pane, node, latest_ms, upto))
            for slot, node, first, end, pane, latest_ms, upto in zip(slots, nodes, *columns, strict=True)
        ]
