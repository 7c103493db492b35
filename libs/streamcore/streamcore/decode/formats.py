"""Input formats as values: what the records of a topic are written in.

A format travels to the workers with the plan and makes the decoder of its stream there. It holds texts, never paths:
files are read at the start, where a mistake can still be shown (``streamcore.service.formats``). ``decoder`` raises
``ConfigError`` when format and stream do not fit; every other mistake is in a record, and then it is a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.decode.access_log import LogLayout, LogLines, columns_of
from streamcore.decode.avro_decoder import AvroDecoder
from streamcore.decode.avro_fingerprint import fingerprint
from streamcore.decode.avro_fit import Wanted, check_fit, wanted
from streamcore.decode.avro_frames import (
    CONFLUENT_MAGIC,
    OBJECT_MAGIC,
    BareFrame,
    ContainerFrame,
    Frame,
    PrefixFrame,
    confluent_prefix,
    object_prefix,
)
from streamcore.decode.avro_schema import AvroSchemaError, AvroType, parse_avro_schema
from streamcore.decode.batch import Decoder
from streamcore.decode.csv_lines import CsvLines
from streamcore.decode.decoder import JsonDecoder
from streamcore.decode.lines import LineDecoder
from streamcore.errors import ConfigError
from streamcore.records.scalars import RecordError
from streamcore.records.terms import DecodeLimits, ExtraFields
from streamcore.schema import Kind, StreamSchema

_MAX_SCHEMA_ID = 2**32 - 1


class InputFormat(Protocol):
    """What the records of a topic are written in."""

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """Of this format's records as events of the stream; ``ConfigError`` when they cannot be."""
        ...


@dataclass(frozen=True, slots=True)
class Json:
    """One JSON object a record."""

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        return JsonDecoder(schema, limits=limits, extra_fields=extra_fields)


#: What a source is in when nothing is said.
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
        """See ``InputFormat``. ``extra_fields`` says nothing here: a record has the columns that were named."""
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
        """See ``InputFormat``. ``extra_fields`` says nothing here: columns that no field asks for are not read."""
        where = f"stream {schema.name}: access-log"
        there = columns_of(self.layout, request_time=self.request_time)
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


Framing = Container | Bare | SingleObject | Confluent


@dataclass(frozen=True, slots=True)
class Avro:
    """``framing``: how a record says its schema. ``paths``: where a field is in Avro's record, when it is not a field
    of the same name at the top (``customer.id``)."""

    framing: Framing = field(default_factory=Container)
    paths: Mapping[str, str] = field(default_factory=dict)

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        if strangers := sorted(set(self.paths) - set(schema.names)):
            raise ConfigError(f"stream {schema.name}: avro: paths: {strangers[0]!r} is no field of the stream")
        try:
            want = wanted(schema, self.paths)
        except ValueError as error:
            raise ConfigError(f"stream {schema.name}: avro: paths: {error}") from error
        return AvroDecoder(schema, _frame(self.framing, schema, want, extra_fields), want, limits)


def _frame(framing: Framing, schema: StreamSchema, want: Wanted, extra_fields: ExtraFields) -> Frame:
    def fitted(text: str, called: str) -> AvroType:
        try:
            kind = parse_avro_schema(text)
            check_fit(kind, want, extra_fields)
        except (AvroSchemaError, RecordError) as error:
            raise ConfigError(f"stream {schema.name}: avro: {called}: {error}") from error
        return kind

    match framing:
        case Container():
            return ContainerFrame(want, extra_fields)
        case Bare():
            return BareFrame(fitted(framing.schema, "schema"))
        case SingleObject():
            texts = list(enumerate(framing.schemas, 1))
            kinds = {object_prefix(fingerprint(text)): fitted(text, f"schema {n}") for n, text in texts}
            return _prefixed(schema, kinds, OBJECT_MAGIC, "C3 01 and a fingerprint of eight bytes")
        case Confluent():
            if wrong := [number for number in framing.schemas if not 0 <= number <= _MAX_SCHEMA_ID]:
                raise ConfigError(f"stream {schema.name}: avro: schema {wrong[0]}: a number of 32 bits is needed")
            kinds = {confluent_prefix(n): fitted(text, f"schema {n}") for n, text in framing.schemas.items()}
            return _prefixed(schema, kinds, CONFLUENT_MAGIC, "a zero byte and a schema's number of four bytes")


def _prefixed(schema: StreamSchema, kinds: Mapping[bytes, AvroType], magic: bytes, what: str) -> PrefixFrame:
    if not kinds:
        raise ConfigError(f"stream {schema.name}: avro: no schemas; give each that a record may be written with")
    return PrefixFrame(kinds, magic, what)


def _all_needed_are_there(schema: StreamSchema, names: set[str], where: str) -> None:
    if missing := [f.name for f in schema.fields if not f.nullable and f.name not in names]:
        raise ConfigError(f"{where}: field {missing[0]} is not null and not among them")
