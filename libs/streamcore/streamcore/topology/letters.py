"""Dead letters of a topology, in the one form that all have: why, where the record was, and its own bytes.

Rows of a source with ``raw=True`` bring their record along (``streamcore.raw.ORIGIN``), through any number of steps, so
whatever happens to such a row, its letter holds the record as it came and can be sent again. Of other rows the letter
holds the row, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.lane_rows import LaneRows
from streamcore.lanes import DEAD_LETTERS, Headers, Record
from streamcore.position import PARTITIONS_PER_TOPIC, source_of
from streamcore.raw import ORIGIN, RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

REASON_CHARS = 500


@dataclass(frozen=True, slots=True)
class Letters:
    """``topics``: the app's, by the place of their source."""

    topics: Sequence[str] = ()

    def of(self, rows: pl.DataFrame, codes: Sequence[str], reasons: Sequence[str]) -> list[Record]:
        """One a row, in order. ``codes`` are for machines, ``reasons`` for people."""
        why = [_why(code, reason) for code, reason in zip(codes, reasons, strict=True)]
        if RAW_VALUE not in rows.columns:
            values = LaneRows(DEAD_LETTERS, (), rows).values()
            return [Record(DEAD_LETTERS, None, value, said) for value, said in zip(values, why, strict=True)]
        places = self._places(rows)
        records = zip(rows[RAW_KEY].to_list(), rows[RAW_VALUE].to_list(), places, why, strict=True)
        return [Record(DEAD_LETTERS, key, value, (*place, *said)) for key, value, place, said in records]

    def _places(self, rows: pl.DataFrame) -> Iterator[Headers]:
        for number, offset in rows.select(RAW_PARTITION, RAW_OFFSET).iter_rows():
            source = source_of(number)
            topic = self.topics[source] if source < len(self.topics) else str(source)
            yield place(topic, number % PARTITIONS_PER_TOPIC, offset)


def place(topic: str, partition: int, offset: int) -> Headers:
    """Where a record was."""
    return (
        ("source_topic", topic.encode()),
        ("source_partition", b"%d" % partition),
        ("source_offset", b"%d" % offset),
    )


def without_origin(rows: pl.DataFrame) -> pl.DataFrame:
    """Without what only a dead letter needs."""
    return rows.drop(ORIGIN, strict=False)


def _why(code: str, reason: str) -> Headers:
    return (("reason_code", code.encode()), ("reason", reason[:REASON_CHARS].encode()))
