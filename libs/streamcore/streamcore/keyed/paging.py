"""Moves the keys of a keyed function to disk and back: the rows of its values, entries and timers.

A cold key is recalled for its events, for its first timer of each time domain, and when a control record applies a
function to all keys. Its state expires where it is: a
merge of runs drops values whose time to live has ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl

from streamcore.hashing import UInt64Array
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.state_tables import CollectionStateTable, ValueStateTable, live_entries, live_values
from streamcore.keyed.timers import stored_deadlines
from streamcore.keyed.value_state import ValueCell
from streamcore.state.cold.paged_state import ColdTimes, Frames, is_member
from streamcore.state.table import HASH, StateTable

_VALUES, _ENTRIES, _TIMERS = "values", "entries", "timers"
#: About how many bytes of memory a key takes, each of its values, each item of a list or map, and each timer, beside
#: the values themselves: measured with whole numbers.
_KEY_BYTES, _VALUE_BYTES, _ITEM_BYTES, _TIMER_BYTES = 110, 16, 250, 300
_SAMPLE = 64


class _PagedTable(StateTable, Protocol):
    def rows_for(self, key_slots: Sequence[int]) -> pl.DataFrame: ...


class PagedKeys:
    """The paged state of a keyed function."""

    tables = (_VALUES, _ENTRIES, _TIMERS)

    def __init__(self, store: KeyedStore) -> None:
        self._store = store
        self._tables: dict[str, _PagedTable] = {
            _VALUES: ValueStateTable(store),
            _ENTRIES: CollectionStateTable(store),
            _TIMERS: store.timers,
        }

    def start_paging(self) -> None:
        self._store.keys.track_use()

    def set_load_all(self, load_all: Callable[[], None]) -> None:
        self._store.load_cold = load_all

    def memory_bytes(self) -> int:
        store = self._store
        values = sum(_VALUE_BYTES + _bytes_a_value(cell) for cell in store.cells.values())
        items = sum(_ITEM_BYTES * collection.items_a_key for collection in store.collections.values())
        return round(len(store.keys) * (_KEY_BYTES + values + items)) + store.timers.count * _TIMER_BYTES

    def hashes(self) -> UInt64Array:
        return self._store.keys.hashes(self._store.keys.used())

    # --- moving -------------------------------------------------------------------------------------------------

    def evict(self, share: float) -> Frames:
        used = self._store.keys.least_used(share)
        key_slots = used.tolist()
        frames = {name: rows for name, table in self._tables.items() if (rows := table.rows_for(key_slots)).height}
        self._store.drop(used)
        self.count_cold(frames)
        return frames

    def forget(self, hashes: UInt64Array) -> None:
        used = self._store.keys.used()
        self._store.drop(used[is_member(self._store.keys.hashes(used), hashes)])

    def recall(self, frames: Frames) -> None:
        self._store.cold_keys -= _key_count(frames)
        for name in self.tables:
            if name in frames:
                self._tables[name].load(frames[name])
        self._store.on_keys_loaded()

    # --- cold rows ----------------------------------------------------------------------------------------------

    def times(self, frames: Frames) -> ColdTimes:
        if _TIMERS not in frames:
            return ColdTimes()
        event, clock = stored_deadlines(frames[_TIMERS])
        return ColdTimes(event, clock)

    def is_expired(self, newest_ms: int) -> bool:  # noqa: ARG002 - keys have no common time to live
        return False

    def without_expired(self, frames: Frames) -> Frames:
        before = _key_count(frames)
        kept = dict(frames)
        if _VALUES in frames:
            kept[_VALUES] = live_values(self._store, frames[_VALUES])
        if _ENTRIES in frames:
            kept[_ENTRIES] = live_entries(self._store, frames[_ENTRIES])
        self._store.cold_keys -= before - _key_count(kept)
        return kept

    def count_cold(self, frames: Frames) -> None:
        self._store.cold_keys += _key_count(frames)
        if _TIMERS in frames:
            self._store.timers.skip_orders(frames[_TIMERS])

    def cold_summary(self) -> Mapping[str, object]:
        return {"keys": self._store.cold_keys, "next_timer": self._store.timers.next_order}

    def restore_summary(self, summary: Mapping[str, Any]) -> None:
        self._store.cold_keys = summary["keys"]
        self._store.timers.next_order = max(self._store.timers.next_order, summary["next_timer"])


def _key_count(frames: Frames) -> int:
    hashes = [rows[HASH].to_numpy() for rows in frames.values()]
    return len(np.unique(np.concatenate(hashes))) if hashes else 0


def _bytes_a_value(cell: ValueCell) -> float:
    """Return about how many bytes a value takes: the mean over some of them."""
    sample = cell.values[:: len(cell.values) // _SAMPLE + 1]
    return sum(map(sys.getsizeof, sample)) / max(1, len(sample))
