"""Writes the dead letters of a topology: headers with the reason and the position, and the original record.

Rows of a source with ``raw=True`` carry their record through all steps (``streamcore.wire.raw.ORIGIN``), and so do
control records. So a dead letter contains the original bytes, which can be sent again. The dead letter of another row
contains the row as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.app import CONTROL
from streamcore.offsets import PARTITIONS_PER_TOPIC, source_index
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.schema import StreamSchema
from streamcore.topology.logical_types import to_logical
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, DeadLetterCode, Headers, Record
from streamcore.wire.raw import ORIGIN, RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """Writes rows as dead letters. ``topics``, ``control_topic``: the Kafka topics of the app, by source index.

    ``lane``: of the records.
    """

    topics: Sequence[str] = ()
    control_topic: str = ""
    lane: str = DEAD_LETTERS

    def to_records(self, rows: pl.DataFrame, codes: Sequence[str], reasons: Sequence[str]) -> list[Record]:
        """Return one record per row, in order. ``codes`` are reasons for machines, ``reasons`` for people."""
        reasons_headers = [_reason_headers(code, reason) for code, reason in zip(codes, reasons, strict=True)]
        if RAW_VALUE not in rows.columns:
            values = LaneRows(self.lane, (), rows).values()
            return [
                Record(self.lane, None, value, headers) for value, headers in zip(values, reasons_headers, strict=True)
            ]
        if rows[RAW_PARTITION].null_count():
            return self._with_rows_of_no_record(rows, codes, reasons)
        positions = self._positions(rows)
        records = zip(rows[RAW_KEY].to_list(), rows[RAW_VALUE].to_list(), positions, reasons_headers, strict=True)
        return [Record(self.lane, key, value, (*position, *headers)) for key, value, position, headers in records]

    def _with_rows_of_no_record(self, rows: pl.DataFrame, codes: Sequence[str], reasons: Sequence[str]) -> list[Record]:
        """Return the records where some rows stem from no record, as a timer's row does: such a row itself as JSON."""
        records: list[Record] = []
        for n, (code, reason) in enumerate(zip(codes, reasons, strict=True)):
            row = rows[n : n + 1]
            row = without_origin(row) if row[RAW_PARTITION].item() is None else row
            records += self.to_records(row, [code], [reason])
        return records

    def _positions(self, rows: pl.DataFrame) -> Iterator[Headers]:
        for partition, offset in rows.select(RAW_PARTITION, RAW_OFFSET).iter_rows():
            yield position_headers(self._topic(source_index(partition)), partition % PARTITIONS_PER_TOPIC, offset)

    def _topic(self, source: int) -> str:
        if source == CONTROL:
            return self.control_topic
        return self.topics[source] if source < len(self.topics) else str(source)


@dataclass(frozen=True, slots=True)
class LateEventLetters:
    """Writes the events that are too late for the deduplication of their stream as dead letters (``WriteLate``).

    ``streams``, ``topics``: those of the app, by source index.
    """

    streams: tuple[StreamSchema, ...]
    topics: tuple[str, ...]

    def __call__(self, source: int, late: pl.DataFrame, watermark_ms: int) -> Sequence[Record]:  # noqa: ARG002 - the protocol's signature
        """Return a record for each event, in order."""
        stream = self.streams[source]
        rows = to_logical(to_table(late.drop(LATE_REASON, LATENESS_MS)), stream)
        reasons = [f"deduplicate of stream {stream.name}: {reason}" for reason in late[LATE_REASON].to_list()]
        return DeadLetterWriter(self.topics).to_records(rows, [DeadLetterCode.LATE] * rows.height, reasons)


def position_headers(topic: str, partition: int, offset: int) -> Headers:
    """Return the headers with the position of the original record."""
    return (
        ("source_topic", topic.encode()),
        ("source_partition", b"%d" % partition),
        ("source_offset", b"%d" % offset),
    )


def without_origin(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without the columns of their original record."""
    return rows.drop(ORIGIN, strict=False)


def _reason_headers(code: str, reason: str) -> Headers:
    return (("reason_code", code.encode()), ("reason", reason[:REASON_CHARS].encode()))
