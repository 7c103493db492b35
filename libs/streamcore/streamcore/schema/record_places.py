"""Places of fields outside of the value of a record, and the forms of records: words that stream documents have.

A path of a field begins with ``_kafka`` for what Kafka keeps of a record, and with ``_cloudevent`` for an attribute of
a CloudEvent; ``_extra_fields`` is the rest of an event. Any other path goes into the event: the value of the record, or
what its envelope holds.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from streamcore.errors import ConfigError
from streamcore.schema.field_paths import Path, format_path, parse_path

KAFKA: Final = "_kafka"
CLOUDEVENT: Final = "_cloudevent"
#: The path of a field with the members at the top of a record of JSON that no other field is from.
EXTRA_FIELDS: Final[Path] = ("_extra_fields",)
#: The path of a condition that is the name of the schema that a record of Avro was written with.
SCHEMA_NAME: Final[Path] = ("_schema", "name")
#: The header of a CloudEvent's attribute is this and the name of the attribute.
CE_HEADER: Final = "ce_"
#: A record with this header is a CloudEvent in binary mode.
BINARY_MARK: Final = "ce_specversion"
CONTENT_TYPE: Final = "content-type"


class KafkaValue(enum.StrEnum):
    """What Kafka keeps of a record: its value as a whole, and what is beside it."""

    VALUE = "value"
    KEY = "key"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"
    TOPIC = "topic"
    PARTITION = "partition"
    OFFSET = "offset"


#: The types of the values that no other type is read from.
_KINDS: Final = MappingProxyType(
    {
        KafkaValue.VALUE: ("string",),
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


def check_place(label: str, path: Path, kind: str, envelope: Envelope | None) -> None:
    """Raise ``ConfigError`` if no record has this place, or not with this type. ``label``: of the field."""
    if path[0] == KAFKA:
        _check_kafka(label, path, kind)
    elif path == EXTRA_FIELDS:
        if kind != "string" or envelope is not None:
            raise ConfigError(f"field {label}: its type is string, an object of JSON, in a stream without an envelope")
    elif path[0] == CLOUDEVENT and (envelope is not Envelope.CLOUDEVENTS or len(path) != 2):
        raise ConfigError(
            f"field {label}: an attribute of a CloudEvent is such as {CLOUDEVENT}.type, in a stream with envelope: "
            f"{Envelope.CLOUDEVENTS}"
        )


def _check_kafka(label: str, path: Path, kind: str) -> None:
    known = [f"{KAFKA}.{one}{'.NAME' if one is KafkaValue.HEADERS else ''}" for one in KafkaValue]
    length = 3 if path[1:2] == (KafkaValue.HEADERS,) else 2
    if len(path) != length or path[1] not in [*KafkaValue]:
        raise ConfigError(
            f"field {label}: of a record there are {', '.join(known)}; a header's name with dots is in backquotes"
        )
    kinds = _KINDS.get(KafkaValue(path[1]))
    if kinds is not None and kind not in kinds:
        raise ConfigError(f"field {label}: its type is {' or '.join(kinds)}, not {kind}")


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
