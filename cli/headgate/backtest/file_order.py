"""The order in which the files of a stream are read: that of their paths, or by event time.

Files that an app or a job wrote one after the other are in order of time, and their paths are, too. Those of a lake
that is divided by another column are not: each file covers the whole time, so in the order of paths most events would
be late.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.backtest.columns import local_times
from headgate.records.file_rows import stream_columns
from streamcore.schema import EVENT_MS, OFFSET, Kind, StreamSchema, TimeUnit
from streamcore.timestamps import load_zone

_NEVER: Final = 2**62
#: The value of a folder such as ``country=...`` for rows without a value.
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"

#: Reads a file: yields the number of rows of each piece, and their events in the order of the file.
Reading = Iterator[tuple[int, pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The first and the last event time of a file, in epoch milliseconds."""

    first_ms: int
    last_ms: int


def is_out_of_order(spans: Sequence[TimeSpan | None]) -> bool:
    """Return whether more than half of the time of a file, in this order, is that of files before it.

    If a span is unknown, the order is taken to be right.
    """
    latest = -1
    for span in spans:
        if span is None:
            return False
        if min(latest, span.last_ms) - span.first_ms > (span.last_ms - span.first_ms) / 2 or span.last_ms <= latest:
            return True
        latest = max(latest, span.last_ms)
    return False


def time_span(file: pq.ParquetFile, schema: StreamSchema, path: Path) -> TimeSpan | None:
    """Return the span of event time by the statistics of a file; None if they do not say it."""
    field = schema.get(schema.event_time)
    names = stream_columns(list(file.schema_arrow.names), schema, path)
    if field is None or field.pattern or field.location[0] not in names or not file.metadata.num_rows:
        return None
    column = ".".join([file.schema_arrow.names[names.index(field.location[0])], *field.location[1:]])
    bounds: list[object] = []
    for group in (file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)):
        own = [group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == column]
        if len(own) != 1 or own[0].statistics is None or not own[0].statistics.has_min_max:
            return None
        bounds += [own[0].statistics.min, own[0].statistics.max]
    times = [_to_ms(value, schema, field.unit) for value in bounds]
    known = [time for time in times if time is not None]
    return TimeSpan(min(known), max(known)) if len(known) == len(times) else None


def _to_ms(value: object, schema: StreamSchema, unit: TimeUnit) -> int | None:
    if isinstance(value, int) and unit is TimeUnit.MILLISECONDS:
        return value
    if not isinstance(value, datetime.datetime):
        return None
    if value.tzinfo is not None:
        return round(value.timestamp() * 1_000)
    local_ms = round(value.replace(tzinfo=datetime.UTC).timestamp() * 1_000)
    return int(local_times(pl.Series([local_ms]), load_zone(schema.zone))[0])


def merge_by_time(files: Sequence[tuple[TimeSpan, Callable[[], Reading]]], size: int) -> Reading:
    """Yield the events of files by event time, those of one time by offset, in pieces of about ``size``.

    A file is begun when its first time is reached, and one piece of each is in memory. Each file is taken to be in
    order of time; where it is not, within a piece, its events come later, as they do in the file.
    """
    waiting = sorted(files, key=lambda one: one[0].first_ms, reverse=True)
    begun: list[_Begun] = []
    ready: list[pl.DataFrame] = []
    read = 0
    while waiting or begun:
        next_ms = waiting[-1][0].first_ms if waiting else None
        slowest = min((one for one in begun if not one.is_over), key=_last_ms, default=None)
        if next_ms is not None and (slowest is None or next_ms <= slowest.last_ms):
            slowest = _Begun(waiting.pop()[1]())  # begins another file
            begun.append(slowest)
        if slowest is not None:
            read += slowest.read()
        until_ms = min((one.last_ms for one in begun if not one.is_over), default=_NEVER)
        until_ms = min(until_ms, waiting[-1][0].first_ms if waiting else _NEVER)
        ready.append(pl.concat(one.take_before(until_ms) for one in begun).sort(EVENT_MS, OFFSET))
        begun = [one for one in begun if not one.is_over or one.events.height]
        if sum(part.height for part in ready) >= size:
            yield read, pl.concat(ready)
            ready, read = [], 0
    if ready:
        yield read, pl.concat(ready)


@dataclass(slots=True)
class _Begun:
    """A file that is being read. ``events``: those that are read and not passed on yet. ``last_ms``: the latest time
    that was read. ``is_over``: all is read."""

    reading: Reading
    events: pl.DataFrame = field(default_factory=pl.DataFrame)
    last_ms: int = -1
    is_over: bool = False

    def read(self) -> int:
        """Read a piece, and return the number of its rows."""
        piece = next(self.reading, None)
        if piece is None:
            self.is_over = True
            return 0
        rows, events = piece
        self.events = pl.concat([self.events, events]) if self.events.width else events
        self.last_ms = max(self.last_ms, int(events[EVENT_MS].max() or -1))  # type: ignore[arg-type]
        return rows

    def take_before(self, until_ms: int) -> pl.DataFrame:
        """Remove and return the events before a time."""
        passed = self.events[EVENT_MS] < until_ms
        taken, self.events = self.events.filter(passed), self.events.filter(~passed)
        return taken


def _last_ms(one: _Begun) -> int:
    return one.last_ms


def with_folder_columns(batch: pa.RecordBatch, names: list[str], file: Path, schema: StreamSchema) -> pa.RecordBatch:
    """Return a batch with the fields that the names of folders have, such as ``country=it``, and no column has.

    ``names``: the stream's names of its columns.
    """
    texts = dict(folder.split("=", 1) for folder in file.parent.parts if "=" in folder)
    for name, text in texts.items():
        field = None if name in names else schema.at(name)
        if field is None:
            continue
        value = None if text == _NO_VALUE else unquote(text)
        is_whole = field.type.kind is Kind.LONG and re.fullmatch(r"-?\d{1,18}", value or "") is not None
        kind = pa.int64() if is_whole else pa.string()
        column = pa.scalar(int(value) if is_whole and value is not None else value, kind)
        batch = batch.append_column(name, pa.repeat(column, batch.num_rows))
    return batch
