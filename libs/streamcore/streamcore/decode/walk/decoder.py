"""Decodes the records of a batch to columns by the walk."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from streamcore.decode.assembly import physical_schema
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, TimeBounds
from streamcore.decode.walk.arrays import Bools
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.values import FieldWalk, WalkedFields
from streamcore.decode.walk.words import PAD, Bytes
from streamcore.schema import StreamSchema


@dataclass(frozen=True, slots=True)
class WalkedRecords:
    """``sure``: of each record, whether it is decoded. ``columns``: the physical columns of those that are, of the
    fields that were asked for."""

    sure: Bools
    columns: pa.Table


class RecordWalk:
    """Walks through the records of one stream. It remembers the order of names, so it is for one thread."""

    def __init__(self, schema: StreamSchema, zone: ZoneInfo, limits: DecodeLimits, extra_fields: ExtraFields) -> None:
        only_declared = extra_fields is ExtraFields.REJECT
        self._walk = FieldWalk(schema.tree, schema.fields, zone, limits, only_declared=only_declared)
        self._columns = RecordColumns(schema, limits)

    def decode(
        self,
        source: Bytes,
        starts: Int64s,
        ends: Int64s,
        valid: Bools,
        clock_ms: int,
        fields: Collection[str] | None = None,
    ) -> WalkedRecords:
        """Decode the records between these positions of ``source``. ``valid``: those that are not null. ``clock_ms``:
        the clock of the cut, which limits event times. ``fields``: as in ``RawBatch``."""
        if self._walk.has_nested:
            source = np.concatenate([source, np.zeros(PAD, np.uint8)])
            source.flags.writeable = False
        walked = self._walk.walk(source, starts, ends)
        walked.sure[~valid] = False
        return self._columns.finish(walked, clock_ms, fields)


class RecordColumns:
    """Makes the columns of the records of one stream out of their walked fields."""

    def __init__(self, schema: StreamSchema, limits: DecodeLimits) -> None:
        self._limits = limits
        self._event_time = schema.names.index(schema.event_time) if schema.event_time else None
        self._columns = physical_schema(schema)

    def finish(self, walked: WalkedFields, clock_ms: int, fields: Collection[str] | None) -> WalkedRecords:
        """Return the columns of the records that are sure, and whose times the cut accepts."""
        sure = walked.sure
        if self._event_time is not None:
            sure &= TimeBounds.of(self._limits, clock_ms).contain(walked.values[self._event_time])
        rows = None if sure.all() else np.flatnonzero(sure)
        wanted = [n for n, one in enumerate(self._columns) if fields is None or one.name in fields]
        schema = pa.schema([self._columns.field(n) for n in wanted])
        return WalkedRecords(sure, pa.Table.from_arrays([walked.column(n, rows) for n in wanted], schema=schema))


def bytes_of(records: pa.LargeBinaryArray) -> tuple[Bytes, Int64s]:
    """Return the bytes of the records, and where each begins and the last ends."""
    if not len(records):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, offsets, stored = records.buffers()
    places = np.frombuffer(offsets, np.int64, len(records) + 1, records.offset * np.int64().itemsize)
    return np.frombuffer(stored, np.uint8) if stored else np.zeros(0, np.uint8), places.copy()
