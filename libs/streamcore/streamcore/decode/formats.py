"""Input formats as values: the formats of the records of a topic.

A format travels to the workers with the plan and makes the decoder of its stream there. It holds texts, never paths:
files are read at the start, where a mistake can still be shown (``streamcore.service.config.formats``). ``decoder``
raises
``ConfigError`` when format and stream do not fit; every other mistake is in a record, which is then rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.avro.fingerprint import fingerprint
from streamcore.decode.avro.framing import (
    CONFLUENT_MAGIC,
    OBJECT_MAGIC,
    BareFraming,
    ContainerFraming,
    Framing,
    PrefixFraming,
    confluent_prefix,
    object_prefix,
)
from streamcore.decode.avro.schema import AvroSchemaError, AvroType, parse_avro_schema
from streamcore.decode.avro.schema_match import FieldMapping, check_schema, map_fields
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.text.access_log import LogLayout, LogLines, log_columns
from streamcore.decode.text.csv import CsvLines
from streamcore.decode.text.line_decoder import LineDecoder
from streamcore.decode.types import Decoder
from streamcore.errors import ConfigError
from streamcore.schema import Kind, StreamSchema

_MAX_SCHEMA_ID = 2**32 - 1


class InputFormat(Protocol):
    """The format of the records of a topic."""

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """Of this format's records as events of the stream; ``ConfigError`` when they cannot be."""
        ...


@dataclass(frozen=True, slots=True)
class Json:
    """One JSON object a record."""

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        return JsonDecoder(schema, limits=limits, extra_fields=extra_fields)


#: The default format of a source.
JSON = Json()


@dataclass(frozen=True, slots=True)
class Csv:
    """One line of CSV a record. ``columns``: their names in order, None: the stream's fields; a column that is no field
    is not read. ``null_values``: words that, without quotes, are null as an empty cell is."""

    columns: tuple[str, ...] | None = None
    delimiter: str = ","
    null_values: tuple[str, ...] = ()

    def decoder(  # the columns are named, so none is extra
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect here: a record has the columns that were named."""
        names = schema.names if self.columns is None else self.columns
        where = f"stream {schema.name}: csv"
        if len(set(names)) < len(names) or not names:
            raise ConfigError(f"{where}: columns are named once each, and at least one is needed")
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0' or _in_values(self):
            raise ConfigError(f"{where}: delimiter {self.delimiter!r}: one ASCII character that is in no number")
        _all_needed_are_there(schema, set(names), f"{where}: columns")
        columns = tuple(name if schema.get(name) is not None else None for name in names)
        return LineDecoder(schema, CsvLines(columns, self.delimiter, frozenset(self.null_values)), limits)


def _in_values(csv: Csv) -> bool:
    return csv.delimiter.isalnum() or csv.delimiter in "+-."


@dataclass(frozen=True, slots=True)
class AccessLog:
    """A line of an access log a record. ``fields``: the log's column of a field, where it has another name.
    ``request_time``: whether a number of seconds (or whatever the server writes) is at the end of the line."""

    layout: LogLayout = LogLayout.COMBINED
    request_time: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)

    def decoder(  # the columns are named, so none is extra
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect here: columns that no field asks for are not read."""
        where = f"stream {schema.name}: access-log"
        there = log_columns(self.layout, request_time=self.request_time)
        if strangers := sorted(set(self.fields) - set(schema.names)):
            raise ConfigError(f"{where}: fields: {strangers[0]!r} is no field of the stream")
        columns = {name: self.fields.get(name, name) for name in schema.names}
        for name, column in columns.items():
            if column not in there:
                raise ConfigError(f"{where}: field {name}: no column {column!r}; there are {', '.join(there)}")
        times = frozenset(f.name for f in schema.fields if f.type.kind is Kind.TIMESTAMP)
        if wrong := sorted(name for name in times if columns[name] != "time"):
            raise ConfigError(f"{where}: field {wrong[0]}: the only timestamp of a log is its column 'time'")
        return LineDecoder(schema, LogLines(self.layout, self.request_time, columns, times), limits)


@dataclass(frozen=True, slots=True)
class Container:
    """A container file of one record, its schema inside."""


@dataclass(frozen=True, slots=True)
class Bare:
    """A datum and nothing else; ``schema``: the JSON of the one schema that all were written with."""

    schema: str


@dataclass(frozen=True, slots=True)
class SingleObject:
    """Avro's single-object encoding; ``schemas``: the JSON of each schema that a record may be written with."""

    schemas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confluent:
    """Confluent's prefix of five bytes; ``schemas``: the JSON of each schema by its number in the registry."""

    schemas: Mapping[int, str]


AvroFraming = Container | Bare | SingleObject | Confluent


@dataclass(frozen=True, slots=True)
class Avro:
    """``framing``: how a record names its schema. ``paths``: where a field is in Avro's record, when it is not a field
    of the same name at the top (``customer.id``)."""

    framing: AvroFraming = field(default_factory=Container)
    paths: Mapping[str, str] = field(default_factory=dict)

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        if strangers := sorted(set(self.paths) - set(schema.names)):
            raise ConfigError(f"stream {schema.name}: avro: paths: {strangers[0]!r} is no field of the stream")
        try:
            want = map_fields(schema, self.paths)
        except ValueError as error:
            raise ConfigError(f"stream {schema.name}: avro: paths: {error}") from error
        return AvroDecoder(schema, _frame(self.framing, schema, want, extra_fields), want, limits)


def _frame(framing: AvroFraming, schema: StreamSchema, want: FieldMapping, extra_fields: ExtraFields) -> Framing:
    def fitted(text: str, called: str) -> AvroType:
        try:
            kind = parse_avro_schema(text)
            check_schema(kind, want, extra_fields)
        except (AvroSchemaError, RecordError) as error:
            raise ConfigError(f"stream {schema.name}: avro: {called}: {error}") from error
        return kind

    match framing:
        case Container():
            return ContainerFraming(want, extra_fields)
        case Bare():
            return BareFraming(fitted(framing.schema, "schema"))
        case SingleObject():
            texts = list(enumerate(framing.schemas, 1))
            kinds = {object_prefix(fingerprint(text)): fitted(text, f"schema {n}") for n, text in texts}
            return _prefix_framing(schema, kinds, OBJECT_MAGIC, "C3 01 and a fingerprint of eight bytes")
        case Confluent():
            if wrong := [number for number in framing.schemas if not 0 <= number <= _MAX_SCHEMA_ID]:
                raise ConfigError(f"stream {schema.name}: avro: schema {wrong[0]}: a number of 32 bits is needed")
            kinds = {confluent_prefix(n): fitted(text, f"schema {n}") for n, text in framing.schemas.items()}
            return _prefix_framing(schema, kinds, CONFLUENT_MAGIC, "a zero byte and a schema's number of four bytes")


def _prefix_framing(schema: StreamSchema, kinds: Mapping[bytes, AvroType], magic: bytes, what: str) -> PrefixFraming:
    if not kinds:
        raise ConfigError(f"stream {schema.name}: avro: no schemas; give each that a record may be written with")
    return PrefixFraming(kinds, magic, what)


def _all_needed_are_there(schema: StreamSchema, names: set[str], where: str) -> None:
    if missing := [f.name for f in schema.fields if not f.nullable and f.name not in names]:
        raise ConfigError(f"{where}: field {missing[0]} is not null and not among them")
