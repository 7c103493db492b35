"""The schema of a stream's events: names, types, places in a record, keys and the event time.

Decoding, rules and tests agree on it and on nothing else. It knows neither formats nor Spark nor Kafka.
"""

from __future__ import annotations

from streamcore.schema.record_places import Envelope, KafkaValue, RecordForm, StreamCondition
from streamcore.schema.stream_schema import (
    ENGINE_COLUMNS,
    EVENT_MS,
    OFFSET,
    PARTITION,
    UNION,
    Field,
    StreamSchema,
    TimeUnit,
)
from streamcore.schema.types import (
    BOOLEAN,
    DOUBLE,
    LONG,
    MAX_DECIMAL_DIGITS,
    MAX_FIELDS,
    STRING,
    TIMESTAMP,
    Kind,
    Type,
    array_of,
    map_of,
    struct_of,
)

__all__ = [
    "BOOLEAN",
    "DOUBLE",
    "ENGINE_COLUMNS",
    "EVENT_MS",
    "LONG",
    "MAX_DECIMAL_DIGITS",
    "MAX_FIELDS",
    "OFFSET",
    "PARTITION",
    "STRING",
    "TIMESTAMP",
    "UNION",
    "Envelope",
    "Field",
    "KafkaValue",
    "Kind",
    "RecordForm",
    "StreamCondition",
    "StreamSchema",
    "TimeUnit",
    "Type",
    "array_of",
    "map_of",
    "struct_of",
]
