"""Decodes records of a stream to its events with their positions, for commands; counts rejected records by reason."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headgate.records.scalar_decoder import SCALAR_LIMIT, decode_scalars
from streamcore.decode.scalar import DecodeLimits, ExtraFields, RejectCode, RejectedRecord, StreamRecord
from streamcore.decode.types import BesideValues, RawBatch
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.wire.raw import header_columns

if TYPE_CHECKING:
    from streamcore.decode.stream_selection import OwnEvents


class EventDecoder:
    """Decodes records to events with their positions. Records with a time far after ``clock_ms`` are rejected.

    Fields that the stream does not declare are ignored, as an app does by default. Up to ``SCALAR_LIMIT`` records
    are decoded one by one, with the same result: the columnar decoder takes 0.1 s to load.
    """

    def __init__(self, schema: StreamSchema, clock_ms: int) -> None:
        self.schema = schema
        self.clock_ms = clock_ms
        self.dead_letters: Counter[str] = Counter()

    def of_lines(self, lines: Sequence[bytes], offsets: Iterable[int] | None = None) -> pl.DataFrame:
        """Decode records that are not from Kafka, as those of one partition. ``offsets``: by default from 0 on."""
        zeros = pa.array([0] * len(lines), pa.int32())
        places = pa.array(range(len(lines)) if offsets is None else offsets, pa.int64())
        return self._decode(RawBatch(pa.array(lines, pa.binary()), zeros, places, self.clock_ms))

    def __call__(self, records: pa.RecordBatch, topic: str) -> pl.DataFrame:
        """Decode records of a topic (``raw.RAW``); return the events, and count the rejected records in
        ``dead_letters``. The records have their timestamps and ``header_names(schema)`` if fields are read from these.
        """
        partition, key, times = (records.column(name) for name in ("partition", "key", "timestamp_ms"))
        beside = BesideValues(topic, partition, key, times, header_columns(records))
        values, offset = records.column("value"), records.column("offset")
        return self._decode(RawBatch(values, partition, offset, self.clock_ms, beside))

    def no_events(self) -> pl.DataFrame:
        """Return a frame of no events."""
        return self.of_lines([])

    def _decode(self, batch: RawBatch) -> pl.DataFrame:
        decode = self._decode_scalars if len(batch) <= SCALAR_LIMIT else self._decode_columns
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

        return OwnEvents(TopicStream(self.schema, JSON), DecodeLimits(), ExtraFields.IGNORE)

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
