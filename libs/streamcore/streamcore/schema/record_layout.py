"""Where the fields of a stream are in a record of Kafka: in its value, or beside it in its key, headers and position.

A path of a field begins with ``_kafka`` for what Kafka keeps of a record, and with ``_cloudevent`` for an attribute of
a CloudEvent. Any other path goes into the event: the value of the record, or what its envelope holds. An envelope has
several forms, and each form has the event at another place: a ``RecordLayout`` is one of these forms.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from streamcore.errors import ConfigError
from streamcore.schema.field_paths import Path, format_path

if TYPE_CHECKING:
    from streamcore.schema.stream_schema import Field, StreamSchema

KAFKA: Final = "_kafka"
CLOUDEVENT: Final = "_cloudevent"
HEADERS: Final = "headers"
#: The header of a CloudEvent's attribute is this and the name of the attribute.
CE_HEADER: Final = "ce_"
#: A record with this header is a CloudEvent in binary mode.
BINARY_MARK: Final = "ce_specversion"
_CONTENT_TYPE: Final = "content-type"


class KafkaValue(enum.StrEnum):
    """What Kafka keeps of a record beside its value."""

    KEY = "key"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"


#: The types of the values that are no bytes.
_KINDS: Final = MappingProxyType(
    {
        KafkaValue.TIMESTAMP: ("timestamp", "long"),
        KafkaValue.TOPIC: ("string",),
        KafkaValue.PARTITION: ("long",),
        KafkaValue.OFFSET: ("long",),
    }
)


class Envelope(enum.StrEnum):
    """The form around the events of a topic."""

    CLOUDEVENTS = "cloudevents"
    DEBEZIUM = "debezium"


class RecordForm(enum.StrEnum):
    """The forms of a record that have its event at different places."""

    #: The value is the event.
    PLAIN = "plain"
    #: A CloudEvent with its attributes in headers: the value is the event. One as a whole in JSON.
    BINARY = "binary"
    STRUCTURED = "structured"
    #: A change of Debezium, and one with its schema beside it.
    CHANGE = "change"
    WRAPPED = "wrapped"


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where the fields of a stream are in records of one form.

    ``value``: the schema of the fields in the record's value, a part of the stream's. ``beside``: the other fields,
    each with a path that begins with ``_kafka``.
    """

    value: StreamSchema
    beside: tuple[Field, ...]


def kafka_place(field: Field) -> tuple[KafkaValue, str]:
    """Return what of a record a field beside its value is, and the name of the header if it is one."""
    path = field.location
    return KafkaValue(path[1]), path[2] if len(path) > 2 else ""


def check_places(schema: StreamSchema) -> None:
    """Raise ``ConfigError`` if a field is at a place that no record of the stream has."""
    for field in schema.fields:
        path = field.location
        if path[0] == KAFKA:
            _check_kafka(field, path)
        elif path[0] == CLOUDEVENT and (schema.envelope is not Envelope.CLOUDEVENTS or len(path) != 2):
            raise ConfigError(
                f"field {field.label}: an attribute of a CloudEvent is such as {CLOUDEVENT}.type, in a stream with "
                f"envelope: {Envelope.CLOUDEVENTS}"
            )


def _check_kafka(field: Field, path: Path) -> None:
    known = [f"{KAFKA}.{one}{'.NAME' if one is KafkaValue.HEADERS else ''}" for one in KafkaValue]
    length = 3 if path[1:2] == (HEADERS,) else 2
    if len(path) != length or path[1] not in [*KafkaValue]:
        raise ConfigError(
            f"field {field.label}: of a record there are {', '.join(known)}; a header's name with dots is in backquotes"
        )
    kinds = _KINDS.get(KafkaValue(path[1]))
    if kinds is not None and field.type.kind not in kinds:
        raise ConfigError(f"field {field.label}: its type is {' or '.join(kinds)}, not {field.type}")


def header_names(schema: StreamSchema) -> frozenset[str]:
    """Return the headers that fields, condition and envelope of the stream are read from."""
    names = {BINARY_MARK} if schema.envelope is Envelope.CLOUDEVENTS else set[str]()
    parts = [schema] if schema.when is None else [schema, schema.discriminator(schema.when)]
    for layout in (layout for part in parts for layout in layouts(part).values()):
        names |= {name for field in layout.beside if (name := kafka_place(field)[1])}
    return frozenset(names)


def reads_timestamps(schema: StreamSchema) -> bool:
    """Return whether a field is the timestamp of the record."""
    return any(field.location[:2] == (KAFKA, KafkaValue.TIMESTAMP) for field in schema.fields)


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
        path = field.location if field.location[0] == KAFKA else place(field.location)
        moved.append(replace(field, path=() if path == (field.name,) else path))
    inside = tuple(field for field in moved if field.location[0] != KAFKA)
    time = schema.event_time if any(field.name == schema.event_time for field in inside) else ""
    value = replace(
        schema, fields=inside, event_time=time, keys=(), event_id=None, envelope=None, when=None, is_part=True
    )
    return RecordLayout(value, tuple(field for field in moved if field.location[0] == KAFKA))


def _as_written(path: Path) -> Path:
    return path


def _in_payload(path: Path) -> Path:
    return ("payload", *path)


def _in_structured(path: Path) -> Path:
    return path[1:] if path[0] == CLOUDEVENT else ("data", *path)


def _in_binary(path: Path) -> Path:
    if path[0] != CLOUDEVENT:
        return path
    return (KAFKA, HEADERS, _CONTENT_TYPE if path[1] == "datacontenttype" else CE_HEADER + path[1])


@dataclass(frozen=True, slots=True)
class StreamCondition:
    """Which records of a topic are events of a stream: those with one of some values at a place.

    ``path``: as of a field. ``equals``: texts, whole numbers or booleans, all of one type.
    """

    path: Path
    equals: tuple[str | int | bool, ...]

    @classmethod
    def parse(cls, document: object) -> StreamCondition:
        """Read ``{from: path, equals: value or values}``; ``ConfigError`` for anything else."""
        from streamcore.schema.field_paths import parse_path

        if not isinstance(document, Mapping) or {*document} != {"from", "equals"}:
            raise ConfigError("when: write {from: PATH, equals: VALUE}, such as {from: type, equals: invoice.paid}")
        given = document["equals"]
        values = given if isinstance(given, list) else [given]
        kinds = {type(value) for value in values}
        if not values or len(kinds) > 1 or not kinds <= {str, int, bool}:
            raise ConfigError("when: equals: a text, a whole number or a boolean is needed, or several of one type")
        if not isinstance(document["from"], str):
            raise ConfigError("when: from must be a path, such as type or _kafka.headers.event-type")
        return cls(parse_path(document["from"]), tuple(values))

    def __str__(self) -> str:
        return f"{format_path(self.path)} = {' or '.join(map(repr, self.equals))}"


__all__ = [
    "BINARY_MARK",
    "CE_HEADER",
    "CLOUDEVENT",
    "KAFKA",
    "Envelope",
    "KafkaValue",
    "RecordForm",
    "RecordLayout",
    "StreamCondition",
    "check_places",
    "file_form",
    "header_names",
    "kafka_place",
    "layouts",
    "reads_timestamps",
]
