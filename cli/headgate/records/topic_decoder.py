"""Decodes the records of topics to the events of the streams that a rule reads, numbered as in an app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import polars as pl
import pyarrow as pa

from headgate.records.decoder import EventDecoder
from headgate.records.formats import RecordFormats
from rulecore.errors import RuleError
from rulecore.key_columns import parse_key_columns
from rulecore.language.columnar.compiler import to_polars
from rulecore.streams import RuleInput
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import PARTITION, StreamSchema
from streamcore.schema.record_layout import reads_timestamps


class TopicDecoder:
    """Decodes records of the topics of ``source``. A record of a topic with several streams is offered to each."""

    def __init__(self, source: RuleInput, clock_ms: int, formats: RecordFormats) -> None:
        self.source = source
        self._decoders: dict[str, EventDecoder] = {
            one.schema.name: formats.decoder(one.schema, one.topic, clock_ms) for one in source.streams
        }
        self.headers = sorted({name for one in self._decoders.values() for name in one.headers})
        self.reads_timestamps = any(reads_timestamps(one.schema) for one in source.streams)

    def __call__(self, records: pa.RecordBatch, topic: str) -> dict[str, pl.DataFrame]:
        """Decode records of a topic (``raw.RAW``); return the events by stream."""
        shift = pl.col(PARTITION) + pl.lit(self.source.source(topic) * PARTITIONS_PER_TOPIC, pl.Int32)
        return {
            schema.name: self._decoders[schema.name](records, topic).with_columns(shift)
            for schema in self.source.find_streams(topic)
        }

    def no_events(self) -> dict[str, pl.DataFrame]:
        """Return a frame of no events for each stream."""
        return {name: decode.no_events() for name, decode in self._decoders.items()}

    def take_dead_letters(self) -> Mapping[str, int]:
        """Return the number of rejected records since the last call, by reason, and reset it."""
        return sum((Counter(one.take_dead_letters()) for one in self._decoders.values()), Counter[str]())


def key_conditions(events: pl.DataFrame, key: Mapping[str, object], schema: StreamSchema) -> list[pl.Expr]:
    """Return the conditions on events of one stream with this key. A column that the stream does not have is NULL."""
    columns = key_columns(events, key, schema)
    return [column.eq_missing(pl.lit(value)) for column, value in zip(columns, key.values(), strict=True)]


def key_columns(events: pl.DataFrame, names: Iterable[str], schema: StreamSchema) -> list[pl.Expr]:
    """Return the columns of a key of events of this stream: fields, and expressions by their text."""
    return [_key_column(events, name, schema).alias(name) for name in names]


def _key_column(events: pl.DataFrame, name: str, schema: StreamSchema) -> pl.Expr:
    if name in events.columns:
        return pl.col(name)
    try:
        (column,) = parse_key_columns(schema, [name])
    except RuleError:
        return pl.lit(None)
    return to_polars(column.operand)
