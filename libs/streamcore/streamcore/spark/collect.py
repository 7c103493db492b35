"""Collects the output of a cut's shards on the driver, as Arrow.

Spark's ``collect`` pickles rows, and its pickler writes bytes one character at a time: measured, nearly half of the
JVM's work for an app that writes what it reads. Arrow copies the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from streamcore.spark.wire import OUTPUT_SCHEMA

_RECORDS = "records"
_OTHERS = [name for name in OUTPUT_SCHEMA.names if name != _RECORDS]


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A row of ``wire.OUTPUT_SCHEMA``. ``records`` is a view of the received Arrow buffer, not a copy."""

    records: pa.Buffer
    shard: int
    produced: int
    events: int
    watermark_ms: int
    partitions: str
    clock_ms: int
    state_bytes: int
    shards_loaded: int
    counters: str
    streams: str
    reads: str


def collect_shards(frame: DataFrame) -> Sequence[ShardRow]:
    """Run the cut and return the rows of all shards, in order of the shards."""
    table = frame.toArrow()
    others = zip(*(table.column(name).to_pylist() for name in _OTHERS), strict=True)
    records = (value.as_buffer() for value in table.column(_RECORDS))
    rows = (ShardRow(records_of_shard, *row) for records_of_shard, row in zip(records, others, strict=True))
    return sorted(rows, key=lambda row: row.shard)
