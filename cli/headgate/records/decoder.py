"""Decodes records of a stream to its events with their positions, for commands; counts rejected records by reason."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headgate.records.scalar_decoder import SCALAR_LIMIT, decode_scalars
from streamcore.decode.scalar import (
    DecodeLimits,
    ExtraFields,
    IgnoredRecord,
    Physical,
    RejectCode,
    RejectedRecord,
    StreamRecord,
)
from streamcore.decode.types import NOTHING_BESIDE, BesideValues, RawBatch
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.schema.record_layout import header_names
from streamcore.schema_registry.schemas import NO_REGISTRY, SchemaLookup
from streamcore.wire.raw import header_columns

if TYPE_CHECKING:
    from streamcore.decode.formats import InputFormat
    from streamcore.decode.stream_selection import OwnEvents


class EventDecoder:
    """Decodes records to events with their positions. Records with a time far after ``clock_ms`` are rejected.

    Fields that the stream does not declare are ignored, as an app does by default. Up to ``SCALAR_LIMIT`` records
    of JSON are decoded one by one, with the same result: the columnar decoder takes 0.1 s to load. ``written``: the
    format of the records; None: JSON. ``schemas``: finds those that records name.
    """

    def __init__(
        self,
        schema: StreamSchema,
        clock_ms: int,
        written: InputFormat | None = None,
        schemas: SchemaLookup = NO_REGISTRY,
    ) -> None:
        self.schema = schema
        self.clock_ms = clock_ms
        self._written, self._schemas = written, schemas
        self.dead_letters: Counter[str] = Counter()

    @property
    def headers(self) -> frozenset[str]:
        """The headers of records that are read."""
        return header_names(self.schema) | (frozenset() if self._written is None else self._written.headers)

    def of_lines(self, lines: Sequence[bytes], offsets: Iterable[int] | None = None) -> pl.DataFrame:
        """Decode records that are not from Kafka, as those of one partition. ``offsets``: by default from 0 on."""
        zeros = pa.array([0] * len(lines), pa.int32())
        places = pa.array(range(len(lines)) if offsets is None else offsets, pa.int64())
        return self._decode(RawBatch(pa.array(lines, pa.binary()), zeros, places, self.clock_ms))

    def __call__(self, records: pa.RecordBatch, topic: str) -> pl.DataFrame:
        """Decode records of a topic (``raw.RAW``); return the events, and count the rejected records in
        ``dead_letters``. The records have their timestamps, if fields are read from these, and ``headers``.
        """
        partition, key, times = (records.column(name) for name in ("partition", "key", "timestamp_ms"))
        beside = BesideValues(topic, partition, key, times, header_columns(records))
        values, offset = records.column("value"), records.column("offset")
        return self._decode(RawBatch(values, partition, offset, self.clock_ms, beside, self._schemas))

    def decode_each(
        self, records: Sequence[StreamRecord]
    ) -> list[tuple[Physical, ...] | RejectedRecord | IgnoredRecord]:
        """Return for each record its physical values, or why it is no event. All are of one topic, or of files."""
        if self._written is None and len(records) <= SCALAR_LIMIT:
            return decode_scalars(self.schema, records, self.clock_ms)
        decoded = self._decoder.decode(self._batch(records))
        names = self.schema.names
        rows = iter(zip(*(decoded.events.column(name).to_pylist() for name in names), strict=True))
        rejected = dict(zip(decoded.dead.column("row").to_pylist(), _rejections(decoded.dead), strict=True))
        ignored = frozenset(decoded.ignored)
        return [
            rejected[row] if row in rejected else IgnoredRecord() if row in ignored else next(rows)
            for row in range(len(records))
        ]

    def _batch(self, records: Sequence[StreamRecord]) -> RawBatch:
        partitions = pa.array([one.partition or 0 for one in records], pa.int32())
        offsets = pa.array([one.offset or 0 for one in records], pa.int64())
        beside = NOTHING_BESIDE
        if records[0].topic is not None:
            beside = BesideValues(
                records[0].topic,
                partitions,
                pa.array([one.key for one in records], pa.binary()),
                pa.array([one.timestamp_ms for one in records], pa.int64()),
                {name: pa.array([one.headers.get(name) for one in records], pa.binary()) for name in self.headers},
            )
        values = pa.array([one.value for one in records], pa.large_binary())
        return RawBatch(values, partitions, offsets, self.clock_ms, beside, self._schemas)

    def no_events(self) -> pl.DataFrame:
        """Return a frame of no events."""
        return self.of_lines([])

    def _decode(self, batch: RawBatch) -> pl.DataFrame:
        one_by_one = self._written is None and len(batch) <= SCALAR_LIMIT
        decode = self._decode_scalars if one_by_one else self._decode_columns
        frame = pl.from_arrow(decode(batch))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _decode_scalars(self, batch: RawBatch) -> pa.Table:
        decoded = decode_scalars(self.schema, _records(batch), self.clock_ms)
        self.dead_letters.update(row.general for row in decoded if isinstance(row, RejectedRecord))
        names = self.schema.names
        rows = [
            {**dict(zip(names, row, strict=True)), PARTITION: position[0], OFFSET: position[1]}
            for row, *position in zip(decoded, batch.partition.to_pylist(), batch.offset.to_pylist(), strict=True)
            if isinstance(row, tuple)
        ]
        return pa.Table.from_pylist(
            [{**row, EVENT_MS: row[self.schema.event_time]} for row in rows], schema=self.schema.arrow
        )

    def _decode_columns(self, batch: RawBatch) -> pa.Table:
        decoded = self._decoder.decode(batch)
        self.dead_letters.update(record.general for record in _rejections(decoded.dead))
        return decoded.events

    @functools.cached_property
    def _decoder(self) -> OwnEvents:
        from streamcore.decode.formats import JSON
        from streamcore.decode.stream_selection import OwnEvents, TopicStream

        return OwnEvents(TopicStream(self.schema, self._written or JSON), DecodeLimits(), ExtraFields.IGNORE)

    def take_dead_letters(self) -> Mapping[str, int]:
        """Return the number of rejected records since the last call, by reason, and reset it."""
        dead_letters, self.dead_letters = self.dead_letters, Counter()
        return dead_letters


def _records(batch: RawBatch) -> Iterator[StreamRecord]:
    """Yield the records of a batch one by one."""
    beside, count = batch.beside, len(batch)
    headers = {name: column.to_pylist() for name, column in beside.headers.items()}
    key, times, partitions = (
        [None] * count if column is None else column.to_pylist()
        for column in (beside.key, beside.timestamp_ms, beside.partition)
    )
    offsets = [None] * count if beside.topic is None else batch.offset.to_pylist()
    for row, value in enumerate(batch.values.to_pylist()):
        own = {name: column[row] for name, column in headers.items()}
        yield StreamRecord(value, key[row], own, times[row], beside.topic, partitions[row], offsets[row])


def _rejections(dead: pa.Table) -> Iterator[RejectedRecord]:
    columns = (dead.column(name).to_pylist() for name in ("code", "reason"))
    return (RejectedRecord(RejectCode(code), reason) for code, reason in zip(*columns, strict=True))
