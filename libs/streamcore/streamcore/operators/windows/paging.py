"""Moves the keys of windowed operators to disk and back.

A cold key is recalled for its rows, and when a window of it ends or expires. So nothing of a cold key is ever due, and
the number of its entries is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.hashing import UInt64Array
from streamcore.state.cold.paged_state import ColdTimes, Deadlines, Frames, is_member
from streamcore.state.table import HASH

#: About how many bytes a key takes beside its columns, and an entry beside its partials: the index and the lists.
_KEY_BYTES, _ENTRY_BYTES = 80, 60


class SlotTable(Protocol):
    """A table of entries by key slot whose keys can be moved out."""

    loaded: list[pl.DataFrame]

    def rows_for(self, key_slots: Ints) -> pl.DataFrame:
        """Return the live rows of these keys."""
        ...

    def drop(self, key_slots: Ints) -> None:
        """Forget the rows of these keys, which are written."""
        ...


class PagedSlots(ABC):
    """The paged state of an operator whose tables share the numbering of their keys.

    ``cold_count``: how many entries are cold; they count towards the limit of the operator.
    """

    tables: tuple[str, ...]

    def __init__(self) -> None:
        self._cold_count = 0
        self._tracks_use = False

    # --- the operator -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _keys(self) -> KeySlots:
        """Return the numbering of the keys; a load makes another."""

    @abstractmethod
    def _slot_tables(self) -> Mapping[str, SlotTable]:
        """Return the paged tables by name."""

    @abstractmethod
    def _entries(self) -> tuple[int, int]:
        """Return how many entries are in memory, and the bytes of their partials."""

    @abstractmethod
    def _load(self, frames: Frames) -> None:
        """Load rows of keys that are not in memory."""

    @abstractmethod
    def _deadlines(self, rows: pl.DataFrame, name: str) -> Deadlines:
        """Return when the keys of rows of a table must be in memory, by event time."""

    def _set_cold_count(self, count: int) -> None:
        """Take over the number of cold entries."""
        self._cold_count = count

    def _without_pinned(self, key_slots: Ints) -> Ints:
        """Return the key slots without those that must stay in memory."""
        return key_slots

    # --- PagedState ---------------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        if self._tracks_use:
            self._keys.track_use()
        entries, partial_bytes = self._entries()
        return len(self._keys) * _KEY_BYTES + self._keys.frame_bytes + entries * _ENTRY_BYTES + partial_bytes

    def hashes(self) -> UInt64Array:
        return self._keys.hashes[self._keys.used()]

    def start_paging(self) -> None:
        self._tracks_use = True

    def evict(self, share: float) -> Frames:
        self._keys.track_use()
        key_slots = self._without_pinned(self._keys.least_used(share))
        frames = {name: table.rows_for(key_slots) for name, table in self._slot_tables().items()}
        self._drop(key_slots)
        self.count_cold(frames)
        return frames

    def _drop(self, key_slots: Ints) -> None:
        for table in self._slot_tables().values():
            table.drop(key_slots)
        self._keys.forget(key_slots)

    def forget(self, hashes: UInt64Array) -> None:
        for table in self._slot_tables().values():
            table.loaded = [rows.filter(pl.Series(~is_member(rows[HASH].to_numpy(), hashes))) for rows in table.loaded]
        used = self._keys.used()
        self._drop(used[is_member(self._keys.hashes[used], hashes)])

    def recall(self, frames: Frames) -> None:
        self._set_cold_count(self._cold_count - _row_count(frames))
        self._load(frames)

    def times(self, frames: Frames) -> ColdTimes:
        due = [self._deadlines(rows, name) for name, rows in frames.items()]
        return ColdTimes(
            Deadlines(np.concatenate([one.hashes for one in due]), np.concatenate([one.times for one in due]))
        )

    def is_expired(self, newest_ms: int) -> bool:  # noqa: ARG002 - keys are recalled before they expire
        return False

    def without_expired(self, frames: Frames) -> Frames:
        return frames

    def count_cold(self, frames: Frames) -> None:
        self._set_cold_count(self._cold_count + _row_count(frames))

    def cold_summary(self) -> Mapping[str, object]:
        return {"count": self._cold_count}

    def restore_summary(self, summary: Mapping[str, Any]) -> None:
        self._set_cold_count(summary["count"])


def _row_count(frames: Frames) -> int:
    return sum(rows.height for rows in frames.values())
