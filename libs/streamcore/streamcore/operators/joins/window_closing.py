"""Finds the windows over two inputs that close in a cut, and their rows.

Co-group and window join use it. A window closes once, when the watermark has passed its end and the allowed lateness. A
row is stored once, however many windows it has. A row is late when the last of its windows has closed; the window of a
row in a session is ``[event time, event time + gap)``. So whether a row is late depends only on its event time and the
watermark, and not on other rows: a row that could only extend an open session backwards is late too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.columnar.grouping import expand_counts
from streamcore.errors import ConfigError
from streamcore.operators.base import CutTime
from streamcore.schema import EVENT_MS
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import Ints, Mask, SortedRun
from streamcore.windowing.assigners import Assigner, Session, Sliding, Tumbling
from streamcore.windowing.model import END_OF_TIME_MS

_EVER_MS = END_OF_TIME_MS // 2


@dataclass(frozen=True, slots=True)
class WindowedRows:
    """Pairs of a row and one of its windows, in order of arrival. ``starts``, ``ends``: epoch milliseconds."""

    rows: pl.DataFrame
    starts: Ints
    ends: Ints


class WindowClosing(Protocol):
    """Closes the windows of an assigner, with an allowed lateness."""

    def late_before_ms(self, watermark_ms: int) -> int:
        """Return the event time before which rows are late, because they have no open window."""
        ...

    def open_windows(self, rows: pl.DataFrame, watermark_ms: int) -> WindowedRows:
        """Return each row with its open windows. A row's session is the one it would have as the only row."""
        ...

    def drop_expired(self, tables: Sequence[RowTable], watermark_ms: int) -> None:
        """Drop expired rows of loaded tables, which were dropped before without a tombstone."""
        ...

    def close(self, tables: Sequence[RowTable], time: CutTime) -> list[WindowedRows]:
        """Return the rows of the windows that close in this cut, one item per table; drop rows without an open
        window."""
        ...


def closing(assigner: Assigner, allowed_lateness_ms: int) -> WindowClosing:
    """Return the closing of an assigner's windows. Raise ``ConfigError`` for an assigner that two inputs cannot use."""
    if allowed_lateness_ms < 0:
        raise ConfigError(f"allowed_lateness_ms must not be negative, but is {allowed_lateness_ms}")
    if isinstance(assigner, Tumbling):
        return AlignedClosing(assigner.size_ms, assigner.size_ms, assigner.offset_ms, allowed_lateness_ms)
    if isinstance(assigner, Sliding):
        return AlignedClosing(assigner.size_ms, assigner.slide_ms, assigner.offset_ms, allowed_lateness_ms)
    if isinstance(assigner, Session) and assigner.gap_field is None:
        return SessionClosing(assigner.gap_ms, allowed_lateness_ms)
    raise ConfigError(f"two inputs meet in tumbling, sliding or session windows with one gap, not in {assigner}")


@dataclass(frozen=True, slots=True)
class AlignedClosing:
    """Closes tumbling and sliding windows, whose bounds are equal for all keys."""

    size_ms: int
    slide_ms: int
    offset_ms: int
    lateness_ms: int

    def late_before_ms(self, watermark_ms: int) -> int:
        return self._first_open(watermark_ms)

    def open_windows(self, rows: pl.DataFrame, watermark_ms: int) -> WindowedRows:
        return self._between(rows, self._first_open(watermark_ms), END_OF_TIME_MS)

    def drop_expired(self, tables: Sequence[RowTable], watermark_ms: int) -> None:
        for table in tables:
            table.expire(self._first_open(watermark_ms))

    def close(self, tables: Sequence[RowTable], time: CutTime) -> list[WindowedRows]:
        first, end = self._first_open(time.watermark_ms), self._first_open(time.next_watermark_ms)
        closed = []
        for table in tables:
            places = table.between(first, end - self.slide_ms + self.size_ms)
            rows = table.frame(places[np.argsort(table.numbers(places))])
            closed.append(self._between(rows, first, end))
            table.expire(end)
        return closed

    def _first_open(self, watermark_ms: int) -> int:
        """Return the start of the first window that the watermark leaves open. No row before it has such a window."""
        return _floor(watermark_ms - self.lateness_ms - self.size_ms, self.slide_ms, self.offset_ms) + self.slide_ms

    def _between(self, rows: pl.DataFrame, first_ms: int, end_ms: int) -> WindowedRows:
        """Return the rows with those of their windows that start from ``first_ms`` up to, not including, ``end_ms``."""
        times = rows[EVENT_MS].to_numpy()
        last = (times - self.offset_ms) // self.slide_ms * self.slide_ms + self.offset_ms
        lowest = (times - self.size_ms - self.offset_ms) // self.slide_ms * self.slide_ms + self.offset_ms
        low, high = np.maximum(lowest + self.slide_ms, first_ms), np.minimum(last, end_ms - self.slide_ms)
        counts = np.maximum((high - low) // self.slide_ms + 1, 0)
        index = np.repeat(np.arange(len(times)), counts)
        starts = low[index] + expand_counts(np.zeros(len(counts), np.int64), counts) * self.slide_ms
        return WindowedRows(rows[index], starts, starts + self.size_ms)


@dataclass(frozen=True, slots=True)
class SessionClosing:
    """Closes sessions. The rows of both inputs form common sessions."""

    gap_ms: int
    lateness_ms: int

    def late_before_ms(self, watermark_ms: int) -> int:
        return watermark_ms - self.lateness_ms - self.gap_ms + 1

    def open_windows(self, rows: pl.DataFrame, watermark_ms: int) -> WindowedRows:  # noqa: ARG002 - a late row has none
        starts = rows[EVENT_MS].to_numpy()
        return WindowedRows(rows, starts, starts + self.gap_ms)

    def drop_expired(self, tables: Sequence[RowTable], watermark_ms: int) -> None:
        """Do nothing: rows of sessions are deleted one by one."""

    def close(self, tables: Sequence[RowTable], time: CutTime) -> list[WindowedRows]:
        lasts = [self._lasts(table, tables, time) for table in tables]
        rows = []
        for table in tables:
            matches = [table.find(last, -_EVER_MS, 0).places for last in lasts]
            places = np.unique(np.concatenate(matches))
            rows.append(table.frame(places[np.argsort(table.numbers(places))]))
            table.delete(places)
        starts, ends = self._bounds([(r, t.keys) for r, t in zip(rows, tables, strict=True)])
        edges = np.cumsum([r.height for r in rows])[:-1]
        return [WindowedRows(*side) for side in zip(rows, np.split(starts, edges), np.split(ends, edges), strict=True)]

    def _lasts(self, table: RowTable, tables: Sequence[RowTable], time: CutTime) -> SortedRun:
        """Return, for each key, the last row of this table that ends a session now.

        A row ends its session if the gap after it has passed without a further row. Each row is tested in only one cut,
        with one lookup per table.
        """
        passed = table.between(self.late_before_ms(time.watermark_ms), self.late_before_ms(time.next_watermark_ms))
        ending = table.run(passed)
        before_gap = replace(ending, times=ending.times + (self.gap_ms - 1))
        for other_table in tables:
            latest = other_table.last(before_gap)
            followed = np.zeros(len(latest), dtype=bool)
            has_row = np.flatnonzero(latest >= 0)
            followed[has_row] = other_table.times(latest[has_row]) > ending.times[has_row]
            not_followed = np.flatnonzero(~followed)
            ending, before_gap = ending.take(not_followed), before_gap.take(not_followed)
        return ending.take(ending.last_per_key())

    def _bounds(self, sides: Sequence[tuple[pl.DataFrame, tuple[str, ...]]]) -> tuple[Ints, Ints]:
        """Return start and end of the session of each row, in milliseconds, for the rows of all sides in turn."""
        names = [str(n) for n in range(len(sides[0][1]))]
        all_rows = pl.concat(
            rows.select(EVENT_MS, *(pl.col(key).alias(name) for key, name in zip(keys, names, strict=True)))
            for rows, keys in sides
        )
        all_rows = all_rows.with_row_index("row").sort(*names, EVENT_MS)
        if not all_rows.height:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        times = all_rows[EVENT_MS].to_numpy()
        is_first = changes(all_rows, names)
        is_first[1:] |= np.diff(times) >= self.gap_ms
        first_rows = np.flatnonzero(is_first)
        session = np.cumsum(is_first) - 1
        starts, ends = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
        row = all_rows["row"].to_numpy()
        starts[row] = times[first_rows][session]
        ends[row] = times[np.append(first_rows[1:], len(times)) - 1][session] + self.gap_ms
        return starts, ends


def changes(rows: pl.DataFrame, names: Sequence[str]) -> Mask:
    """Return whether a row differs from the one before it in these columns, none of which holds a null."""
    differs = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in names)
    return rows.select(differs.fill_null(value=True)).to_series().to_numpy().copy()


def _floor(point: int, step: int, offset: int) -> int:
    return (point - offset) // step * step + offset
