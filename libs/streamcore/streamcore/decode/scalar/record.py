"""The rules of one record that all formats share: its size, its encoding, its fields and its event time.

A format finds the value of each field. ``convert_values`` converts them to physical values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from streamcore.decode.reject_codes import (
    MOST_SECONDS,
    TEN_DIGITS,
    DecodeLimits,
    RejectCode,
    TimeBounds,
)
from streamcore.decode.scalar.values import Physical, RecordError, convert
from streamcore.schema import StreamSchema, TimeUnit
from streamcore.timestamps import to_text


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A rejected record: the code for machines, the reason for people."""

    code: RejectCode
    reason: str

    @property
    def general(self) -> str:
        """Code and reason without the value: equal for records that have the same mistake."""
        return f"{self.code}: {self.reason.split(': found', 1)[0]}"


def check_bytes(record: bytes | None, limits: DecodeLimits, accepted: str) -> bytes:
    """Return the record; raise ``RecordError`` if it is null or too large. ``accepted``: for the message."""
    if record is None:
        raise RecordError(RejectCode.NO_VALUE, f"the record has no value (null); accepted is {accepted}")
    if len(record) > limits.max_record_bytes:
        raise RecordError(
            RejectCode.TOO_LARGE, f"the record has {len(record)} bytes; at most {limits.max_record_bytes} are accepted"
        )
    return record


def decode_text(record: bytes) -> str:
    """Return the record as text; raise ``RecordError``."""
    try:
        return record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(
            RejectCode.NOT_UTF8, f"byte {error.start} (0x{record[error.start]:02x}) is not UTF-8: {error.reason}"
        ) from None


def convert_values(
    schema: StreamSchema, found: Mapping[str, object], *, clock_ms: int, zone: ZoneInfo, limits: DecodeLimits
) -> tuple[Physical, ...]:
    """Return the physical values of the schema's fields, in order; raise ``RecordError``.

    ``found``: the values in the record, by field. ``zone``: of times without an offset.
    """
    values: list[Physical] = []
    for field in schema.fields:
        if field.name not in found and not field.nullable:
            raise RecordError(RejectCode.MISSING_FIELD, f"field {field.label} is missing; a {field.type} is needed")
        values.append(convert(field, found.get(field.name), zone))
    _check_time(schema, values, clock_ms, limits)
    return tuple(values)


def _check_time(schema: StreamSchema, values: list[Physical], clock_ms: int, limits: DecodeLimits) -> None:
    if schema.event_time:
        check_event_time(schema, values, clock_ms, limits)


#: The unit with which a number would be a thousand times later.
_LARGER = {TimeUnit.MILLISECONDS: "s", TimeUnit.MICROSECONDS: "ms", TimeUnit.NANOSECONDS: "us"}


def _larger_unit(schema: StreamSchema, event_ms: int) -> str:
    field = schema.get(schema.event_time)
    unit = None if field is None or field.pattern else _LARGER.get(field.unit)
    if unit is None or not TEN_DIGITS <= event_ms <= MOST_SECONDS:
        return ""
    word = TimeUnit(unit).word
    return f"; as {word} it would be {to_text(event_ms * 1_000)}: are these {word}? Use unit: {unit}"


def check_event_time(schema: StreamSchema, values: Sequence[Physical], clock_ms: int, limits: DecodeLimits) -> None:
    """Raise ``RecordError`` if the event time is too far ahead of the clock, or implausible (``TimeBounds``).

    ``values``: of the schema's fields.
    """
    event_ms = values[schema.names.index(schema.event_time)]
    bounds = TimeBounds.of(limits, clock_ms)
    if isinstance(event_ms, int) and event_ms < bounds.first:
        raise RecordError(
            RejectCode.IMPLAUSIBLE_TIME,
            f"field {schema.event_time}: {to_text(event_ms)} is before {to_text(bounds.first)} (min_event_time)"
            f"{_larger_unit(schema, event_ms)}",
        )
    if isinstance(event_ms, int) and bounds.unit_from <= event_ms <= bounds.unit_to:
        raise RecordError(
            RejectCode.IMPLAUSIBLE_TIME,
            f"field {schema.event_time}: {to_text(event_ms)} is no plausible time{_larger_unit(schema, event_ms)}",
        )
    if isinstance(event_ms, int) and event_ms > clock_ms + limits.max_future_ms:
        raise RecordError(
            RejectCode.FROM_THE_FUTURE,
            f"field {schema.event_time}: {to_text(event_ms)} is {(event_ms - clock_ms) / 1000:.0f} s ahead of the"
            f" clock ({to_text(clock_ms)}); at most {limits.max_future_ms / 1000:.0f} s are accepted",
        )
