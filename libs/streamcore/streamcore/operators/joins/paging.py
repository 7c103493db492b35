"""Moves the keys of joins to disk and back.

All rows of a key in all tables of the join move together. A cold key is recalled for its rows of either input, and when
a row of it expires or a pause of it ends. The keys whose rows arrived first are evicted first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamcore.hashing import UInt64Array
from streamcore.schema import EVENT_MS
from streamcore.state.cold.paged_state import ColdTimes, Deadlines, Frames
from streamcore.state.row_table import RowTable, next_number
from streamcore.state.table import HASH

#: About how many bytes a row takes beside its columns: hash, time, number and state, and the indexes of a run.
_ROW_BYTES = 60


@dataclass(frozen=True, slots=True)
class PagedTable:
    """A table of a join. ``keeps_ms``: how long after its event time a row is due; None: it is never due.
    ``by_clock``: the times of its rows are times of the clock."""

    rows: RowTable
    keeps_ms: int | None = None
    by_clock: bool = False


class PagedRows:
    """The paged state of a join."""

    def __init__(self, tables: Mapping[str, PagedTable]) -> None:
        self._tables = tables
        self.tables = tuple(tables)

    def memory_bytes(self) -> int:
        return sum(one.rows.memory_bytes + _ROW_BYTES * one.rows.rows_in_memory for one in self._tables.values())

    def hashes(self) -> UInt64Array:
        return np.unique(np.concatenate([one.rows.hashes_and_numbers()[0] for one in self._tables.values()]))

    def start_paging(self) -> None:
        """Do nothing: the order of arrival decides."""

    def evict(self, share: float) -> Frames:
        chosen = self._oldest(share)
        frames = {name: one.rows.take_out(chosen) for name, one in self._tables.items()}
        self.count_cold(frames)
        return frames

    def _oldest(self, share: float) -> UInt64Array:
        """Return the hashes of this share of the keys, those whose newest row in its table arrived first."""
        parts = []
        for one in self._tables.values():
            hashes, numbers = one.rows.hashes_and_numbers()
            keys, index = np.unique(hashes, return_inverse=True)
            newest = np.full(len(keys), -1)
            np.maximum.at(newest, index, numbers)
            parts.append(keys[np.argsort(newest, kind="stable")[: round(share * len(keys)) or len(keys[:1])]])
        return np.unique(np.concatenate(parts))

    def forget(self, hashes: UInt64Array) -> None:
        for one in self._tables.values():
            one.rows.take_out(hashes)

    def recall(self, frames: Frames) -> None:
        for name, rows in frames.items():
            table = self._tables[name].rows
            table.cold_count -= rows.height
            table.load(rows)

    def times(self, frames: Frames) -> ColdTimes:
        event, clock = [Deadlines()], [Deadlines()]
        for name, rows in frames.items():
            table = self._tables[name]
            if table.keeps_ms is not None:
                times = rows[EVENT_MS].to_numpy() + table.keeps_ms
                (clock if table.by_clock else event).append(Deadlines(rows[HASH].to_numpy(), times))
        return ColdTimes(_concat(event), _concat(clock))

    def is_expired(self, newest_ms: int) -> bool:  # noqa: ARG002 - keys are recalled before their rows expire
        return False

    def without_expired(self, frames: Frames) -> Frames:
        return frames

    def count_cold(self, frames: Frames) -> None:
        for name, rows in frames.items():
            table = self._tables[name].rows
            table.cold_count += rows.height
            if rows.height:
                table.skip_numbers(next_number(rows))

    def cold_summary(self) -> Mapping[str, object]:
        return {name: [one.rows.cold_count, one.rows.next_number] for name, one in self._tables.items()}

    def restore_summary(self, summary: Mapping[str, Any]) -> None:
        for name, one in self._tables.items():
            one.rows.cold_count, next_number = summary[name]
            one.rows.skip_numbers(next_number)


def _concat(parts: Sequence[Deadlines]) -> Deadlines:
    return Deadlines(np.concatenate([one.hashes for one in parts]), np.concatenate([one.times for one in parts]))
