"""Moves the keys of session windows to disk and back."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.general.window_table import END
from streamcore.operators.windows.paging import PagedSlots, SlotTable
from streamcore.operators.windows.sessions.path import SessionWindows
from streamcore.state.cold.paged_state import Deadlines, Frames
from streamcore.state.table import HASH

_SESSIONS = "sessions"


class PagedSessions(PagedSlots):
    """The paged state of session windows: a key is recalled when one of its sessions ends."""

    tables = (_SESSIONS,)

    def __init__(self, path: SessionWindows) -> None:
        super().__init__()
        self._path = path

    @property
    def _keys(self) -> KeySlots:
        return self._path.keys

    def _slot_tables(self) -> Mapping[str, SlotTable]:
        return {_SESSIONS: self._path.sessions}

    def _entries(self) -> tuple[int, int]:
        sessions = self._path.sessions
        return sessions.count, sum(column.itemsize for column in sessions.columns.values()) * sessions.count

    def _load(self, frames: Frames) -> None:
        self._path.sessions.restore(frames[_SESSIONS])

    def _deadlines(self, rows: pl.DataFrame, name: str) -> Deadlines:  # noqa: ARG002 - there is one table
        return Deadlines(rows[HASH].to_numpy(), rows[END].to_numpy())

    def _set_cold_count(self, count: int) -> None:
        super()._set_cold_count(count)
        self._path.set_cold_count(count)
