"""Where the fields of a stream are in a record of Kafka: in its value, or beside it in its key, headers and position.

An envelope has several forms, and each form has the event at another place: a ``RecordLayout`` is one of these forms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streamcore.schema.field_paths import Path
from streamcore.schema.record_places import (
    BINARY_MARK,
    CE_HEADER,
    CLOUDEVENT,
    CONTENT_TYPE,
    EXTRA_FIELDS,
    KAFKA,
    Envelope,
    KafkaValue,
    RecordForm,
)
from streamcore.schema.stream_schema import Field, StreamSchema
from streamcore.schema.time_patterns import with_year
from streamcore.schema.types import STRING


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where the fields of a stream are in records of one form.

    ``value``: the schema of the fields in the record's value, a part of the stream's. ``beside``: the fields with a
    path that begins with ``_kafka``. ``texts``: the fields in the value that are texts there, in the pattern of a time.
    ``has_fallback``: whether the event time may be that of the record. ``extra``: the field with the members of the
    value that no field is from.
    """

    value: StreamSchema
    beside: tuple[Field, ...]
    extra: Field | None = None
    texts: tuple[Field, ...] = ()
    has_fallback: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether all fields are in the value."""
        return not self.beside and self.extra is None and not self.texts and not self.has_fallback

    @property
    def declared(self) -> frozenset[str]:
        """The names at the top of the value that fields are from."""
        return frozenset(field.location[0] for field in self.value.fields)


def kafka_place(field: Field) -> tuple[KafkaValue, str]:
    """Return what of a record a field beside its value is, and the name of the header if it is one."""
    path = field.location
    return KafkaValue(path[1]), path[2] if len(path) > 2 else ""


def header_names(schema: StreamSchema) -> frozenset[str]:
    """Return the headers that fields, condition and envelope of the stream are read from."""
    names = {BINARY_MARK} if schema.envelope is Envelope.CLOUDEVENTS else set[str]()
    parts = [schema] if schema.when is None else [schema, schema.discriminator(schema.when)]
    for layout in (layout for part in parts for layout in layouts(part).values()):
        names |= {name for field in layout.beside if (name := kafka_place(field)[1])}
    return frozenset(names)


def reads_timestamps(schema: StreamSchema) -> bool:
    """Return whether a field, or the event time, may be the timestamp of the record."""
    return schema.time_fallback or any(
        field.location[:2] == (KAFKA, KafkaValue.TIMESTAMP) or (field.pattern and not with_year(field.pattern)[1])
        for field in schema.fields
    )


@functools.lru_cache(256)
def layouts(schema: StreamSchema) -> Mapping[RecordForm, RecordLayout]:
    """Return the layout of each form that records of the stream have."""
    match schema.envelope:
        case Envelope.CLOUDEVENTS:
            places = {RecordForm.BINARY: _in_binary, RecordForm.STRUCTURED: _in_structured}
        case Envelope.DEBEZIUM:
            places = {RecordForm.CHANGE: _as_written, RecordForm.WRAPPED: _in_payload}
        case _:
            places = {RecordForm.PLAIN: _as_written}
    return {form: _layout(schema, place) for form, place in places.items()}


def file_form(schema: StreamSchema) -> RecordForm:
    """Return the form in which an event is one JSON object, as in a file."""
    match schema.envelope:
        case Envelope.CLOUDEVENTS:
            return RecordForm.STRUCTURED
        case Envelope.DEBEZIUM:
            return RecordForm.CHANGE
    return RecordForm.PLAIN


def _layout(schema: StreamSchema, place: Callable[[Path], Path]) -> RecordLayout:
    moved = []
    for field in schema.fields:
        path = field.location if field.location[0] in (KAFKA, *EXTRA_FIELDS) else place(field.location)
        moved.append(replace(field, path=() if path == (field.name,) else path))
    inside = tuple(field for field in moved if field.location[0] not in (KAFKA, *EXTRA_FIELDS))
    texts = tuple(field for field in inside if field.pattern)
    is_time = any(field.name == schema.event_time and not field.pattern for field in inside)
    time = schema.event_time if is_time and not schema.time_fallback else ""
    inside = tuple(replace(f, type=STRING, pattern="") if f.pattern else f for f in inside)
    if schema.time_fallback:
        inside = tuple(replace(f, nullable=True) if f.name == schema.event_time else f for f in inside)
    value = replace(
        schema,
        fields=inside,
        event_time=time,
        time_fallback=False,
        keys=(),
        event_id=None,
        envelope=None,
        when=None,
        is_part=True,
    )
    extra = next((field for field in moved if field.location == EXTRA_FIELDS), None)
    beside = tuple(field for field in moved if field.location[0] == KAFKA)
    if schema.time_fallback:
        beside = tuple(replace(f, nullable=True) if f.name == schema.event_time else f for f in beside)
    return RecordLayout(value, beside, extra, texts, schema.time_fallback)


def _as_written(path: Path) -> Path:
    return path


def _in_payload(path: Path) -> Path:
    return ("payload", *path)


def _in_structured(path: Path) -> Path:
    return path[1:] if path[0] == CLOUDEVENT else ("data", *path)


def _in_binary(path: Path) -> Path:
    if path[0] != CLOUDEVENT:
        return path
    return (KAFKA, KafkaValue.HEADERS, CONTENT_TYPE if path[1] == "datacontenttype" else CE_HEADER + path[1])


def to_record(schema: StreamSchema, values: Mapping[str, object]) -> dict[str, object]:
    """Return the object of a record with these values, by field, at their places: without those that are beside the
    value of a record. Other names stay at the top, so extra fields are among them."""
    record: dict[str, object] = {}
    places = layouts(schema)[file_form(schema)]
    outside = {field.name for field in places.beside} | ({places.extra.name} if places.extra is not None else set())
    for name, value in values.items():
        if name in outside:
            continue
        field = places.value.get(name)
        *outer, last = field.location if field is not None else (name,)
        inside = record
        for part in outer:
            inner = inside.setdefault(part, {})
            assert isinstance(inner, dict)
            inside = inner
        inside[last] = value
    return record
