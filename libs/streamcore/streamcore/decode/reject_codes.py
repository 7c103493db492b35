"""Limits of a record and codes of rejected records, which all formats share."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from streamcore.codes import Code
from streamcore.errors import ConfigError, StreamError
from streamcore.limits import MAX_RECORD_VALUES
from streamcore.timestamps import MIN_MS


class RejectCode(Code):
    """Codes of records that cannot be decoded, in the order in which a record is checked."""

    NO_VALUE = (
        "no_value",
        "The record has no value (null).",
        "Let the producer send no tombstones to a topic of events.",
    )
    TOO_LARGE = (
        "too_large",
        "The record has more than `max_record_bytes` bytes, before or after it is unpacked.",
        "Send smaller records, or raise `max_record_bytes`.",
    )
    NOT_UTF8 = (
        "not_utf8",
        "A text is not UTF-8. In an Avro record, this is a text of a field that is read.",
        "Let the producer encode text as UTF-8.",
    )
    NOT_JSON = (
        "not_json",
        "The record is not JSON, starts with a byte order mark, or has a number such as NaN.",
        "Correct the producer, or the `format` of the stream.",
    )
    NOT_AVRO = (
        "not_avro",
        "The bytes do not match their Avro schema, bytes are left over, or the container file is broken.",
        "Compare the producer's schema and framing with the `format` of the stream.",
    )
    NOT_PROTOBUF = (
        "not_protobuf",
        "The bytes are no Protobuf message, or name a message type that their schema does not have.",
        "Compare the producer's serializer with the `format` of the stream.",
    )
    NO_SCHEMA_ID = (
        "no_schema_id",
        "The record does not begin with a zero byte and the four bytes of an id in the schema registry.",
        "Let the producer write with a serializer of the registry, or correct the `format` of the stream.",
    )
    UNKNOWN_SCHEMA = (
        "unknown_schema",
        "The record names a schema by a fingerprint or id that the settings do not list, or that the schema registry "
        "does not have.",
        "Add the producer's schema to `format.schema_files` or `format.schemas`; compare the registry of the producer "
        "with `schema_registry`.",
    )
    UNUSABLE_SCHEMA = (
        "unusable_schema",
        "The schema registry has the record's schema, and it cannot be read: it is broken, exceeds a limit, or is of a "
        "type that is not supported.",
        "Correct the schema, or write the records with another type of schema.",
    )
    NOT_ONE_RECORD = (
        "not_one_record",
        "An Avro container file holds no record, or more than one.",
        "Send one record in each message.",
    )
    NOT_CSV = (
        "not_csv",
        "Quotes do not match, or the line has a line end outside of quotes or a NUL.",
        "Correct the producer's quoting.",
    )
    WRONG_COLUMNS = (
        "wrong_columns",
        "The CSV line has another number of columns than the stream needs.",
        "Compare the line with `format.columns` and `format.delimiter`.",
    )
    NOT_A_LOG_LINE = (
        "not_a_log_line",
        "The line does not have the layout of an access log.",
        "Compare the log format of the web server with `format.layout` and `format.request_time`.",
    )
    TOO_DEEP = ("too_deep", "The record nests deeper than the limit.", "Flatten the record.")
    NOT_AN_OBJECT = ("not_an_object", "The record is JSON, but no object.", "Send one JSON object in each record.")
    DUPLICATE_FIELD = ("duplicate_field", "A field occurs more than once in the JSON object.", "Correct the producer.")
    EXTRA_FIELD = (
        "extra_field",
        "The record has a field that the stream does not declare, and `reject_extra_fields` is on.",
        "Declare the field in the stream's schema, or turn `reject_extra_fields` off.",
    )
    TOO_MANY_VALUES = (
        "too_many_values",
        "The arrays and maps of the record have more than `max_record_values` values. An element that is a struct also "
        "counts as each of its declared members, and an entry of a map as key and value.",
        "Send fewer elements in a record, declare only the members that you need, or raise `max_record_values`.",
    )
    MISSING_FIELD = (
        "missing_field",
        "A field that is `not null` is missing or null.",
        "Correct the producer, or declare the field without `not null`.",
    )
    WRONG_TYPE = (
        "wrong_type",
        "A field has a value of another type than the stream declares.",
        "Correct the producer, or the type in the stream's schema.",
    )
    OUT_OF_RANGE = (
        "out_of_range",
        "A number does not fit the field's type.",
        "Correct the producer, or declare a wider type.",
    )
    BAD_TIMESTAMP = (
        "bad_timestamp",
        "A timestamp cannot be read.",
        "Send ISO 8601 or milliseconds since 1970, or give the field its `pattern` or `unit`.",
    )
    IMPLAUSIBLE_TIME = (
        "implausible_time",
        "The event time is before `min_event_time`, or a number of ten digits that would be a time of today in the "
        "next larger unit: seconds that are read as milliseconds.",
        "Give the field its `unit`, such as `s`; for old events lower `min_event_time`.",
    )
    NO_STREAM = (
        "no_stream",
        "The record fulfils the condition (`when`) of no stream of its topic, and `reject_other_records` is on.",
        "Declare a stream for this kind of event, or turn `reject_other_records` off.",
    )
    FROM_THE_FUTURE = (
        "from_the_future",
        "The event time is ahead of the clock by more than `max_future_ms`.",
        "Correct the producer's clock or time zone, or raise `max_future_ms`.",
    )


class ExtraFields(enum.StrEnum):
    """The treatment of a field that the schema does not declare."""

    REJECT = "reject"
    IGNORE = "ignore"


class TooManyBatchValues(StreamError):
    """Raised in place of decoding records whose arrays and maps have too many values together: decode some of them."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits of one record, and of some that are decoded at once.

    ``max_future_ms`` is how far an event's time may be ahead of the clock. ``max_record_values``: of the values in its
    arrays and maps (``streamcore.decode.scalar.value_counts``). ``max_batch_values``: likewise of all records that are
    decoded at once; None: any number. ``min_event_ms``: the earliest plausible event time; None: only times in a wrong
    unit are implausible (``TimeBounds``).
    """

    max_record_bytes: int = 256 * 1024
    max_future_ms: int = 5 * 60 * 1000
    max_depth: int = 32
    max_record_values: int = MAX_RECORD_VALUES
    max_batch_values: int | None = None
    min_event_ms: int | None = None

    def __post_init__(self) -> None:
        if self.max_record_bytes < 2 or self.max_future_ms < 0 or not 1 <= self.max_depth <= 200:
            raise ConfigError(
                f"{self}: max_record_bytes is at least 2, max_future_ms at least 0, max_depth between 1 and 200"
            )
        if self.max_record_values < 0:
            raise ConfigError(f"{self}: max_record_values is at least 0")

    def check_batch(self, values: int, records: int) -> None:
        """Raise ``TooManyBatchValues`` if several records have more values than may be decoded at once."""
        if records > 1 and self.max_batch_values is not None and values > self.max_batch_values:
            raise TooManyBatchValues(f"{records} records have more than {self.max_batch_values} values")


#: A number of ten digits: seconds since 2001, and, read as milliseconds, a time in January or February 1970.
TEN_DIGITS = 1_000_000_000
MOST_SECONDS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Which event times a cut accepts, in epoch milliseconds: from ``first`` to ``last``, but for those from
    ``unit_from`` to ``unit_to``, which are times of today in a larger unit."""

    first: int
    last: int
    unit_from: int
    unit_to: int

    @classmethod
    def of(cls, limits: DecodeLimits, clock_ms: int) -> TimeBounds:
        """Return the bounds of a cut. Only its clock counts, so that a cut that runs again accepts the same times."""
        last = clock_ms + limits.max_future_ms
        first = MIN_MS if limits.min_event_ms is None else limits.min_event_ms
        until = min(last // 1_000, MOST_SECONDS) if limits.min_event_ms is None else -1
        return cls(first, last, TEN_DIGITS, until)

    def contain(self, times: Any) -> Any:
        """Return which times of a column are within the bounds. ``times``: of NumPy or Polars, as the result."""
        within = (times >= self.first) & (times <= self.last)
        return within & ((times < self.unit_from) | (times > self.unit_to)) if self.unit_to > 0 else within
