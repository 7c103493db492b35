"""Decodes the records of a batch to columns by the walk."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.decode.assembly import physical_schema
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.walk.batch import walk_batch
from streamcore.decode.walk.fields import ABSENT, LOCAL
from streamcore.decode.walk.texts import copy_texts
from streamcore.decode.walk.tree import Int64s, build_nodes
from streamcore.decode.walk.words import VECTOR, Bytes
from streamcore.schema import Kind, StreamSchema
from streamcore.timestamps import MAX_MS, MIN_MS

Bools = npt.NDArray[np.bool_]
_UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class WalkedRecords:
    """``sure``: of each record, whether it is decoded. ``columns``: the physical columns of those that are."""

    sure: Bools
    columns: pa.Table


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """Where strings are: in the records, or, if they have escape sequences there, in ``resolved`` without these."""

    source: Bytes
    resolved: Bytes


class RecordWalk:
    """Walks through the records of one stream. It remembers the order of names, so it is for one thread."""

    def __init__(self, schema: StreamSchema, zone: ZoneInfo, limits: DecodeLimits, extra_fields: ExtraFields) -> None:
        self._schema = schema
        self._zone = zone
        self._limits = limits
        self._only_declared = extra_fields is ExtraFields.REJECT
        self._table = build_nodes(schema)
        self._record = np.empty(limits.max_record_bytes + self._table.pad, np.uint8)
        self._required = np.array([i for i, f in enumerate(schema.fields) if not f.nullable], np.int64)
        self._times = [i for i, f in enumerate(schema.fields) if f.type.kind is Kind.TIMESTAMP]
        self._event_time = schema.names.index(schema.event_time)
        self._columns = physical_schema(schema)

    def decode(self, records: pa.LargeBinaryArray, clock_ms: int) -> WalkedRecords:
        """Decode records. ``clock_ms``: the clock of the cut, which limits event times."""
        source, offsets = bytes_of(records)
        resolved = np.empty(int(offsets[-1] - offsets[0]) + VECTOR, np.uint8)  # most pages of it are never used
        count, table = len(records), self._table
        fields = len(self._schema.fields)
        values, lengths = np.zeros((fields, count), np.int64), np.zeros((fields, count), np.int64)
        found, sure = np.zeros((fields, count), np.uint8), np.zeros(count, np.bool_)
        walk_batch(
            source,
            offsets,
            self._record,
            table.nodes,
            table.names,
            table.scratch,
            table.guesses,
            np.zeros(len(table.nodes), np.int64),
            self._required,
            self._limits.max_record_bytes,
            self._limits.max_depth,
            self._only_declared,
            values,
            lengths,
            found,
            resolved,
            np.zeros(1, np.int64),
            sure,  # type: ignore[arg-type]
        )
        return self.finish(records, StoredTexts(source, resolved), (values, lengths, found), sure, clock_ms)

    def finish(
        self,
        records: pa.LargeBinaryArray,
        texts: StoredTexts,
        walked: tuple[Int64s, Int64s, Bytes],
        sure: Bools,
        clock_ms: int,
    ) -> WalkedRecords:
        """Return the columns of what a walk has found. ``walked``: ``values``, ``lengths`` and ``found`` of
        ``read_field``."""
        values, lengths, found = walked
        if records.null_count:
            sure &= records.is_valid().to_numpy(zero_copy_only=False)
        for time in self._times:
            self._to_utc(values[time], found[time], sure)
        sure &= values[self._event_time] <= clock_ms + self._limits.max_future_ms
        rows = None if sure.all() else np.flatnonzero(sure)
        columns = [self._column(texts, i, values[i], lengths[i], found[i], rows) for i in range(len(values))]
        return WalkedRecords(sure, pa.Table.from_arrays(columns, schema=self._columns))

    def _to_utc(self, times: Int64s, found: Bytes, sure: Bools) -> None:
        """Convert local times; leave records with times that are out of range then to the reference."""
        local = sure & (found == LOCAL)
        if not local.any():
            return
        if self._zone.key != _UTC.key:
            times[local] = local_to_utc(self._zone, times[local])
        sure &= ~local | ((times >= MIN_MS) & (times <= MAX_MS))

    def _column(
        self, texts: StoredTexts, field: int, values: Int64s, lengths: Int64s, found: Bytes, rows: Int64s | None
    ) -> pa.Array:
        """Return the column of a field. ``rows``: those that it has; None for all."""
        kind = self._columns[field].type
        values, found = (values.copy(), found) if rows is None else (values[rows], found[rows])
        count = len(values)
        present = found != ABSENT
        validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        if pa.types.is_large_string(kind):
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(lengths if rows is None else lengths[rows], out=offsets[1:])
            target = np.empty(int(offsets[-1]) + VECTOR, np.uint8)
            copy_texts(texts.source, texts.resolved, values, offsets, target)
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(target)])
        stored = np.packbits(values.astype(np.bool_), bitorder="little") if pa.types.is_boolean(kind) else values
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(stored)])


def bytes_of(records: pa.LargeBinaryArray) -> tuple[Bytes, Int64s]:
    """Return the bytes of the records, and where each begins and the last ends."""
    if not len(records):
        return _read_only(b""), np.zeros(1, np.int64)
    _, offsets, stored = records.buffers()
    places = np.frombuffer(offsets, np.int64, len(records) + 1, records.offset * np.int64().itemsize)
    return _read_only(stored or b""), places.copy()


def _read_only(stored: bytes | pa.Buffer) -> Bytes:
    source = np.frombuffer(stored, np.uint8) if len(stored) else np.zeros(0, np.uint8)
    source.flags.writeable = False
    return source
