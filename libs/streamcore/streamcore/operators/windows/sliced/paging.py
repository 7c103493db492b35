"""Moves the keys of windows that are runs of slices to disk and back.

A key with a window that fires by itself, because of a late element, stays in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.paging import PagedSlots, SlotTable
from streamcore.operators.windows.sliced.path import SlicedWindows
from streamcore.operators.windows.sliced.slice_table import SLICE
from streamcore.state.cold.paged_state import Deadlines, Frames
from streamcore.state.table import HASH

_PIECES = "pieces"


class PagedSlices(PagedSlots):
    """The paged state of sliced windows: a key is recalled when a window with a slice of it ends, or expires."""

    tables = (_PIECES,)

    def __init__(self, path: SlicedWindows) -> None:
        super().__init__()
        self._path = path

    @property
    def _keys(self) -> KeySlots:
        return self._path.keys

    def _slot_tables(self) -> Mapping[str, SlotTable]:
        return {_PIECES: self._path.slices}

    def _entries(self) -> tuple[int, int]:
        slices = self._path.slices
        partials = sum(column.itemsize for column in slices.aggregate_set.empty_partial().values())
        return slices.entries, partials * slices.entries

    def _without_pinned(self, key_slots: Ints) -> Ints:
        pinned = np.fromiter(self._path.triggered.table.live, np.int64)
        if not pinned.size:
            return key_slots
        free = key_slots[~np.isin(key_slots, pinned)]
        hashes = self._keys.hashes
        return free[~np.isin(hashes[free], hashes[pinned])]

    def _load(self, frames: Frames) -> None:
        self._path.slices.restore(frames[_PIECES])

    def _deadlines(self, rows: pl.DataFrame, name: str) -> Deadlines:  # noqa: ARG002 - there is one table
        numbers, index = np.unique(rows[SLICE].to_numpy(), return_inverse=True)
        times = np.array([self._path.next_use_ms(number) for number in numbers.tolist()], dtype=np.int64)
        return Deadlines(rows[HASH].to_numpy(), times[index])

    def _set_cold_count(self, count: int) -> None:
        super()._set_cold_count(count)
        self._path.cold_count = count
