"""Decodes one record of Kafka to an event of a stream: the reference, which defines envelopes and conditions.

What is read is in the order: whether the record is a tombstone that the envelope ignores, its form, the fields in its
value, those beside it, and its event time if that is beside it. The first mistake is the reason of a rejected record.
A value in which no field is may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zoneinfo import ZoneInfo

import orjson

from streamcore import timestamps
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.json import decode_one
from streamcore.decode.scalar.record import RejectedRecord, check_event_time, decode_text
from streamcore.decode.scalar.values import EpochMilliseconds, Physical, RecordError, convert, parse_cell, read_time
from streamcore.schema import Envelope, Field, KafkaValue, RecordForm, StreamCondition, StreamSchema
from streamcore.schema.record_layout import RecordLayout, file_form, kafka_place, layouts, to_record
from streamcore.schema.record_places import BINARY_MARK
from streamcore.timestamps import load_zone
from streamcore.wire.json_members import other_members

#: The beginning of a change that has its schema beside it, as Kafka Connect's JSON converter writes it.
WRAPPED_PATTERN: Final = r'^[ \t\r\n]*\{[ \t\r\n]*"(?:schema|payload)"[ \t\r\n]*:'
_WRAPPED: Final = re.compile(WRAPPED_PATTERN.encode())

#: Decodes the value of a record, by a schema of a part of a stream.
ValueDecoder = Callable[[StreamSchema, bytes | None], "tuple[Physical, ...] | RejectedRecord"]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A record. What a record that is not from Kafka does not have is None. Of headers with one name, the last one."""

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes | None] = field(default_factory=dict)
    timestamp_ms: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


def make_record(schema: StreamSchema, values: Mapping[str, object]) -> StreamRecord:
    """Return a record of JSON that an event with these values may come from. ``values``: by field, as a person writes
    them; other names stay at the top of the record's value."""
    layout = layouts(schema)[file_form(schema)]
    parts: dict[KafkaValue, object] = {}
    headers: dict[str, bytes | None] = {}
    for one in layout.beside:
        value, (place, header) = values.get(one.name), kafka_place(one)
        if place is KafkaValue.HEADERS:
            headers[header] = _to_bytes(value)
        else:
            parts[place] = value
    time, key = parts.get(KafkaValue.TIMESTAMP), _to_bytes(parts.get(KafkaValue.KEY))
    time_ms = timestamps.from_iso(time, load_zone(schema.zone)) if isinstance(time, str) else time
    position = (parts.get(place) for place in (KafkaValue.TOPIC, KafkaValue.PARTITION, KafkaValue.OFFSET))
    return StreamRecord(orjson.dumps(to_record(schema, values)), key, headers, time_ms, *position)  # type: ignore[arg-type]


def _to_bytes(value: object) -> bytes | None:
    if value is None:
        return None
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


class IgnoredRecord:
    """A record that is no event of the stream and no mistake: a tombstone, or an event of another stream."""


def is_ignored(schema: StreamSchema, record: StreamRecord) -> bool:
    """Return whether the record is a tombstone after a deletion: the change before it has the deletion."""
    return schema.envelope is Envelope.DEBEZIUM and record.value is None


def find_form(schema: StreamSchema, record: StreamRecord) -> RecordForm:
    """Return the form of a record."""
    match schema.envelope:
        case Envelope.CLOUDEVENTS:
            return RecordForm.BINARY if record.headers.get(BINARY_MARK) is not None else RecordForm.STRUCTURED
        case Envelope.DEBEZIUM:
            return RecordForm.WRAPPED if _WRAPPED.match(record.value or b"") else RecordForm.CHANGE
    return RecordForm.PLAIN


def decode_record(
    schema: StreamSchema, record: StreamRecord, decode_value: ValueDecoder, *, clock_ms: int, limits: DecodeLimits
) -> tuple[Physical, ...] | RejectedRecord | IgnoredRecord:
    """Return the physical values of the schema's fields, in order, or the rejection. ``StreamSchema.when`` plays no
    part here (``matches``)."""
    if is_ignored(schema, record):
        return IgnoredRecord()
    layout = layouts(schema)[find_form(schema, record)]
    inside = decode_value(layout.value, record.value) if layout.value.fields else ()
    if isinstance(inside, RejectedRecord):
        return inside
    try:
        return _complete(schema, layout, inside, record, clock_ms, limits)
    except RecordError as error:
        return RejectedRecord(error.code, error.reason)


def _complete(
    schema: StreamSchema,
    layout: RecordLayout,
    inside: tuple[Physical, ...],
    record: StreamRecord,
    clock_ms: int,
    limits: DecodeLimits,
) -> tuple[Physical, ...]:
    zone = load_zone(schema.zone)
    found = dict(zip(layout.value.names, inside, strict=True))
    found |= {one.name: read_time(one, found[one.name], zone, record.timestamp_ms) for one in layout.texts}
    found |= {one.name: convert_beside(one, _beside(one, record), zone, record.timestamp_ms) for one in layout.beside}
    if schema.time_fallback and found[schema.event_time] is None:
        found[schema.event_time] = fallback_time(schema, record.timestamp_ms)
    if layout.extra is not None:
        found[layout.extra.name] = other_members((record.value or b"").decode(), layout.declared)
    values = tuple(found[name] for name in schema.names)
    if schema.event_time and not layout.value.event_time:
        check_event_time(schema, values, clock_ms, limits)
    return values


def _beside(one: Field, record: StreamRecord) -> bytes | str | int | None:
    place, header = kafka_place(one)
    match place:
        case KafkaValue.VALUE:
            return record.value
        case KafkaValue.KEY:
            return record.key
        case KafkaValue.HEADERS:
            return record.headers.get(header)
        case KafkaValue.TIMESTAMP:
            return record.timestamp_ms
        case KafkaValue.TOPIC:
            return record.topic
        case KafkaValue.PARTITION:
            return record.partition
    return record.offset


def fallback_time(schema: StreamSchema, timestamp_ms: int | None) -> int:
    """Return the timestamp of a record as its event time; raise ``RecordError``."""
    if timestamp_ms is None or not timestamps.MIN_MS <= timestamp_ms <= timestamps.MAX_MS:
        label = next(field.label for field in schema.fields if field.name == schema.event_time)
        raise RecordError(RejectCode.MISSING_FIELD, f"field {label} is missing, and the record has no timestamp")
    return timestamp_ms


def convert_beside(one: Field, value: bytes | str | int | None, zone: ZoneInfo, record_ms: int | None) -> Physical:
    """Return the physical value of a field beside the value of a record; raise ``RecordError``.

    Bytes are text in UTF-8, and the text is read as a cell of a line is.
    """
    if isinstance(value, int):
        return convert(one, EpochMilliseconds(value), zone)
    try:
        text = decode_text(value) if isinstance(value, bytes) else value
    except RecordError as error:
        raise RecordError(error.code, f"field {one.label}: {error.reason}") from None
    if one.pattern and text is not None:
        return read_time(one, text, zone, record_ms)
    return convert(one, parse_cell(one, text), zone)


def matches(when: StreamCondition, value: Physical) -> bool:
    """Return whether a record with this value of ``StreamSchema.discriminator`` fulfils the condition."""
    return value is not None and value in when.equals


#: A discriminator that is rejected with one of these codes is a value of another type: of another stream.
OF_ANOTHER_TYPE: Final = frozenset({RejectCode.WRONG_TYPE, RejectCode.OUT_OF_RANGE})


def decode_json_event(
    schema: StreamSchema,
    record: StreamRecord,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
    extra_fields: ExtraFields,
) -> tuple[Physical, ...] | RejectedRecord | IgnoredRecord:
    """Decode one record of a stream of JSON that has its topic for itself."""

    def decode(part: StreamSchema, value: bytes | None) -> tuple[Physical, ...] | RejectedRecord:
        return decode_one(part, value, clock_ms=clock_ms, zone=zone, limits=limits, extra_fields=extra_fields)

    if schema.when is not None:
        found = decode_record(schema.discriminator(schema.when), record, decode, clock_ms=clock_ms, limits=limits)
        if isinstance(found, RejectedRecord) and found.code not in OF_ANOTHER_TYPE:
            return found
        if isinstance(found, RejectedRecord | IgnoredRecord) or not matches(schema.when, found[0]):
            return IgnoredRecord()
    return decode_record(schema, record, decode, clock_ms=clock_ms, limits=limits)
