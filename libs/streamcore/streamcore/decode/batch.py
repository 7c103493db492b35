"""What goes into a decoder and what comes out, as values.

Every row of a ``RawBatch`` is in exactly one of the two tables of ``Decoded``. Nothing here knows a format.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streamcore.errors import ConfigError


class DeadCode(enum.StrEnum):
    """Why a record is a dead letter, for machines. Listed in the order in which a record is checked."""

    NO_VALUE = "no_value"
    TOO_LARGE = "too_large"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AVRO = "not_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    NOT_ONE_RECORD = "not_one_record"
    NOT_CSV = "not_csv"
    WRONG_COLUMNS = "wrong_columns"
    NOT_A_LOG_LINE = "not_a_log_line"
    TOO_DEEP = "too_deep"
    NOT_AN_OBJECT = "not_an_object"
    DUPLICATE_FIELD = "duplicate_field"
    EXTRA_FIELD = "extra_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    BAD_TIMESTAMP = "bad_timestamp"
    FROM_THE_FUTURE = "from_the_future"


class ExtraFields(enum.StrEnum):
    """What to do with a field that the schema does not declare."""

    REJECT = "reject"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of one record. ``max_future_ms`` is how far an event's time may be ahead of the clock."""

    max_record_bytes: int = 256 * 1024
    max_future_ms: int = 5 * 60 * 1000
    max_depth: int = 32

    def __post_init__(self) -> None:
        if self.max_record_bytes < 2 or self.max_future_ms < 0 or not 1 <= self.max_depth <= 200:
            raise ConfigError(
                f"{self}: max_record_bytes is at least 2, max_future_ms at least 0, max_depth between 1 and 200"
            )


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Records as they came: arrays of one length. ``clock_ms`` is the cut's clock, in epoch milliseconds.

    ``partition`` is the number of (topic, partition) in the app.
    """

    values: pa.LargeBinaryArray | pa.BinaryArray
    partition: pa.Int32Array
    offset: pa.Int64Array
    clock_ms: int

    def __len__(self) -> int:
        return len(self.values)


#: ``row`` is the index into the batch (ascending), ``code`` a ``DeadCode``, ``reason`` a sentence for people.
DEAD_SCHEMA = pa.schema([pa.field("row", pa.uint32()), pa.field("code", pa.string()), pa.field("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Decoded:
    """``events``: ``StreamSchema.arrow``, in the order of the batch. ``dead``: ``DEAD_SCHEMA``."""

    events: pa.Table
    dead: pa.Table


class Decoder(Protocol):
    """Turns a batch into columns. Never raises for what is in a record."""

    def decode(self, batch: RawBatch) -> Decoded:
        """All of the batch's rows, each either decoded or dead."""
        ...
