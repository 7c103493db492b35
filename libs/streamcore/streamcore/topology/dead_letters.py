"""Rejected records of a topology, in their one common form: why, where the record was, and its own bytes.

Rows of a source with ``raw=True`` bring their record along (``streamcore.wire.raw.ORIGIN``), through any number of
steps, so whatever happens to such a row, its dead-letter record holds the original as it came and can be sent again. Of
other rows it holds the row, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.offsets import PARTITIONS_PER_TOPIC, source_index
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS, Headers, Record
from streamcore.wire.raw import ORIGIN, RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """``topics``: the app's, by the place of their source."""

    topics: Sequence[str] = ()

    def to_records(self, rows: pl.DataFrame, codes: Sequence[str], reasons: Sequence[str]) -> list[Record]:
        """One a row, in order. ``codes`` are for machines, ``reasons`` for people."""
        why = [_reason_headers(code, reason) for code, reason in zip(codes, reasons, strict=True)]
        if RAW_VALUE not in rows.columns:
            values = LaneRows(DEAD_LETTERS, (), rows).values()
            return [Record(DEAD_LETTERS, None, value, headers) for value, headers in zip(values, why, strict=True)]
        places = self._positions(rows)
        records = zip(rows[RAW_KEY].to_list(), rows[RAW_VALUE].to_list(), places, why, strict=True)
        return [Record(DEAD_LETTERS, key, value, (*place, *headers)) for key, value, place, headers in records]

    def _positions(self, rows: pl.DataFrame) -> Iterator[Headers]:
        for number, offset in rows.select(RAW_PARTITION, RAW_OFFSET).iter_rows():
            source = source_index(number)
            topic = self.topics[source] if source < len(self.topics) else str(source)
            yield position_headers(topic, number % PARTITIONS_PER_TOPIC, offset)


def position_headers(topic: str, partition: int, offset: int) -> Headers:
    """Where a record was."""
    return (
        ("source_topic", topic.encode()),
        ("source_partition", b"%d" % partition),
        ("source_offset", b"%d" % offset),
    )


def without_origin(rows: pl.DataFrame) -> pl.DataFrame:
    """Without the columns that only a rejected record needs."""
    return rows.drop(ORIGIN, strict=False)


def _reason_headers(code: str, reason: str) -> Headers:
    return (("reason_code", code.encode()), ("reason", reason[:REASON_CHARS].encode()))
