"""What a record may be, and why one is refused: the words that every format and every path of decoding share."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from streamcore.errors import ConfigError


class RejectCode(enum.StrEnum):
    """The reason of a rejected record, for machines. Listed in the order in which a record is checked."""

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
    """The treatment of a field that the schema does not declare."""

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
