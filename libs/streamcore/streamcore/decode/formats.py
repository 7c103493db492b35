"""The formats of the records of a topic, as values.

A format is part of the plan that the workers receive, and makes the decoder of its stream there. It holds the text of
files, never paths: the service reads the files when it starts, and reports a missing one then
(``streamcore.service.config.formats``). ``decoder`` raises ``ConfigError`` if format and stream do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

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
from streamcore.decode.avro.schema_names import SchemaNames
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.registry.decoder import RegistryDecoder
from streamcore.decode.registry.record_ids import SCHEMA_ID_HEADER
from streamcore.decode.registry.schema_names import RegistryNames
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.text import syslog
from streamcore.decode.text.access_log import LogLayout, LogLines, log_columns
from streamcore.decode.text.csv import CsvLines
from streamcore.decode.text.line_decoder import LineDecoder
from streamcore.decode.text.logfmt import LogfmtLines
from streamcore.decode.text.patterns import LinePattern, PatternLines
from streamcore.decode.text.syslog import SyslogLines
from streamcore.decode.types import Decoder
from streamcore.errors import ConfigError
from streamcore.schema import Kind, StreamSchema
from streamcore.schema.field_paths import format_path

_MAX_SCHEMA_ID = 2**32 - 1


class InputFormat(Protocol):
    """The format of the records of a topic."""

    @property
    def needs_registry(self) -> bool:
        """Whether records name their schemas by ids of a schema registry."""
        ...

    @property
    def is_text(self) -> bool:
        """Whether records are text."""
        ...

    @property
    def headers(self) -> frozenset[str]:
        """The headers of records that the format reads."""
        ...

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """Return the decoder of a stream's records; ``ConfigError`` if the format does not fit the schema."""
        ...


@dataclass(frozen=True, slots=True)
class Json:
    """Each record is one JSON object."""

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        return JsonDecoder(schema, limits=limits, extra_fields=extra_fields)


#: The default format of a source.
JSON = Json()


@dataclass(frozen=True, slots=True)
class Csv:
    """Each record is one line of CSV.

    ``columns``: the names of the columns in order, or None for those of the stream's fields. A column that no field is
    from is not read. ``null_values``: texts that are null where they stand without quotes; an empty cell always is.
    """

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

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
        """See ``InputFormat``. ``extra_fields`` has no effect: a record has exactly the named columns."""
        by_column = {f.location[0]: f for f in schema.fields}
        names = tuple(by_column) if self.columns is None else self.columns
        where = f"stream {schema.name}: csv"
        if nested := [f for f in schema.fields if len(f.location) > 1]:
            raise ConfigError(f"{where}: field {nested[0].label}: a line has no objects; write the name of a column")
        _reject_nested_types(schema, where)
        if len(set(names)) < len(names) or not names:
            raise ConfigError(f"{where}: columns: at least one is needed, and each name once")
        if (
            len(self.delimiter) != 1
            or not self.delimiter.isascii()
            or self.delimiter in '"\r\n\0'
            or _is_in_numbers(self.delimiter)
        ):
            raise ConfigError(
                f"{where}: delimiter {self.delimiter!r}: needs one ASCII character other than a-z, A-Z, 0-9, quote,"
                " '+', '-', '.', line end or NUL"
            )
        if missing := [f.label for f in schema.fields if not f.nullable and f.location[0] not in names]:
            raise ConfigError(f"{where}: columns: field {missing[0]} is not null, so it needs a column")
        columns = tuple(by_column[name].name if name in by_column else None for name in names)
        return LineDecoder(schema, CsvLines(columns, self.delimiter, frozenset(self.null_values)), limits)


def _is_in_numbers(delimiter: str) -> bool:
    return delimiter.isalnum() or delimiter in "+-."


def _reject_nested_types(schema: StreamSchema, where: str) -> None:
    if nested := [f for f in schema.fields if f.type.is_nested]:
        raise ConfigError(f"{where}: field {nested[0].label}: a cell of a line is text, no {nested[0].type.kind}")


@dataclass(frozen=True, slots=True)
class AccessLog:
    """Each record is one line of an access log.

    ``request_time``: whether a line ends with the duration of the request, a number in the unit of the server's
    settings.
    """

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

    layout: LogLayout = LogLayout.COMBINED
    request_time: bool = False

    def decoder(  # the columns are named, so none is extra
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect: the layout defines the columns of a line."""
        where = f"stream {schema.name}: access-log"
        _reject_nested_types(schema, where)
        available = log_columns(self.layout, request_time=self.request_time)
        columns = {f.name: format_path(f.location) for f in schema.fields}
        for name, column in columns.items():
            if column not in available:
                raise ConfigError(f"{where}: field {name}: no column {column!r}; the log has {', '.join(available)}")
        times = frozenset(f.name for f in schema.fields if f.type.kind is Kind.TIMESTAMP)
        if wrong := sorted(name for name in times if columns[name] != "time"):
            raise ConfigError(f"{where}: field {wrong[0]}: the only timestamp of a log is its column 'time'")
        return LineDecoder(schema, LogLines(self.layout, self.request_time, columns, times), limits)


@dataclass(frozen=True, slots=True)
class Syslog:
    """Each record is one line of syslog, of RFC 3164 or RFC 5424."""

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

    def decoder(  # the columns are named, so none is extra
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect: the layout defines the columns of a line."""
        return LineDecoder(schema, SyslogLines(_line_columns(schema, "syslog", syslog.COLUMNS)), limits)


@dataclass(frozen=True, slots=True)
class Logfmt:
    """Each record is one line of pairs ``key=value``. A key that no field is from is not read."""

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

    def decoder(
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect: a line may have any keys."""
        return LineDecoder(schema, LogfmtLines(_line_columns(schema, "logfmt", None)), limits)


@dataclass(frozen=True, slots=True)
class TextPattern:
    """Each record is one line in a pattern of named parts (``streamcore.decode.text.patterns``).

    ``patterns``: expressions of one's own, by name. ``null_values``: texts of a part that are null.
    """

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = True
    headers: ClassVar[frozenset[str]] = frozenset()

    pattern: str
    patterns: Mapping[str, str] = field(default_factory=dict)
    null_values: tuple[str, ...] = ()

    def decoder(  # the columns are named, so none is extra
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits,
        extra_fields: ExtraFields,  # noqa: ARG002
    ) -> Decoder:
        """See ``InputFormat``. ``extra_fields`` has no effect: the pattern names the columns of a line."""
        try:
            pattern = LinePattern.parse(self.pattern, self.patterns)
        except ConfigError as error:
            raise ConfigError(f"stream {schema.name}: {error}") from None
        columns = _line_columns(schema, "pattern", pattern.columns)
        return LineDecoder(schema, PatternLines(pattern, columns, frozenset(self.null_values)), limits)


def _line_columns(schema: StreamSchema, kind: str, available: tuple[str, ...] | None) -> dict[str, str]:
    """Return the column of each field; ``ConfigError`` for one that a line does not have. ``available``: None: any."""
    where = f"stream {schema.name}: {kind}"
    _reject_nested_types(schema, where)
    columns = {f.name: format_path(f.location) for f in schema.fields}
    for name, column in columns.items():
        if available is not None and column not in available:
            raise ConfigError(f"{where}: field {name}: no column {column!r}; a line has {', '.join(available)}")
    return columns


@dataclass(frozen=True, slots=True)
class Container:
    """Each record is a container file with its schema and one datum."""


@dataclass(frozen=True, slots=True)
class Bare:
    """Each record is only a datum. ``schema``: the JSON of the schema that all records are written with."""

    schema: str


@dataclass(frozen=True, slots=True)
class SingleObject:
    """Avro's single-object encoding. ``schemas``: the JSON of each schema that a record may be written with."""

    schemas: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confluent:
    """Confluent's prefix of five bytes. ``schemas``: the JSON of each schema, by its id in the registry."""

    schemas: Mapping[int, str]


AvroFraming = Container | Bare | SingleObject | Confluent


@dataclass(frozen=True, slots=True)
class Registry:
    """Each record has the id of its schema in the registry of the app's settings. The schema says what the record is:
    Avro, Protobuf or JSON.

    The value begins with a zero byte and the id. ``in_header``: records may have the id in a header instead
    (``registry.record_ids``).
    """

    needs_registry: ClassVar[bool] = True
    is_text: ClassVar[bool] = False

    in_header: bool = False

    @property
    def headers(self) -> frozenset[str]:
        """See ``InputFormat``."""
        return frozenset({SCHEMA_ID_HEADER}) if self.in_header else frozenset()

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        return RegistryDecoder(schema, limits=limits, extra_fields=extra_fields, in_header=self.in_header)

    def name_decoder(self, schema: StreamSchema, limits: DecodeLimits) -> Decoder:
        """Return the decoder of a stream's discriminator that is the name of the records' schema."""
        return RegistryNames(schema, limits, in_header=self.in_header)


@dataclass(frozen=True, slots=True)
class Avro:
    """Each record is one Avro record.

    ``framing``: how a record names its schema.
    """

    needs_registry: ClassVar[bool] = False
    is_text: ClassVar[bool] = False
    headers: ClassVar[frozenset[str]] = frozenset()

    framing: AvroFraming = field(default_factory=Container)

    def decoder(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> Decoder:
        """See ``InputFormat``."""
        want = map_fields(schema)
        return AvroDecoder(schema, make_framing(self.framing, schema, want, extra_fields), want, limits)

    def name_decoder(self, schema: StreamSchema, limits: DecodeLimits) -> Decoder:
        """Return the decoder of a stream's discriminator that is the name of the records' schema."""
        framing = make_framing(self.framing, schema, FieldMapping({}), ExtraFields.IGNORE)
        return SchemaNames(schema, framing, limits)


def make_framing(framing: AvroFraming, schema: StreamSchema, want: FieldMapping, extra_fields: ExtraFields) -> Framing:
    """Return the framing, which finds the datum of a record; ``ConfigError`` if a schema does not fit the stream."""

    def parse(text: str, name: str) -> AvroType:
        try:
            kind = parse_avro_schema(text)
            check_schema(kind, want, extra_fields)
        except (AvroSchemaError, RecordError) as error:
            raise ConfigError(f"stream {schema.name}: avro: {name}: {error}") from error
        return kind

    match framing:
        case Container():
            return ContainerFraming(want, extra_fields)
        case Bare():
            return BareFraming(parse(framing.schema, "schema"))
        case SingleObject():
            texts = list(enumerate(framing.schemas, 1))
            kinds = {object_prefix(fingerprint(text)): parse(text, f"schema {n}") for n, text in texts}
            return _prefix_framing(schema, kinds, OBJECT_MAGIC, "C3 01 and a fingerprint of eight bytes")
        case Confluent():
            if wrong := [schema_id for schema_id in framing.schemas if not 0 <= schema_id <= _MAX_SCHEMA_ID]:
                raise ConfigError(
                    f"stream {schema.name}: avro: schema {wrong[0]}: an id from 0 to {_MAX_SCHEMA_ID} is needed"
                )
            kinds = {confluent_prefix(n): parse(text, f"schema {n}") for n, text in framing.schemas.items()}
            return _prefix_framing(schema, kinds, CONFLUENT_MAGIC, "a zero byte and a schema's id of four bytes")


def _prefix_framing(
    schema: StreamSchema, kinds: Mapping[bytes, AvroType], magic: bytes, description: str
) -> PrefixFraming:
    if not kinds:
        raise ConfigError(f"stream {schema.name}: avro: no schemas; list each that a record may be written with")
    return PrefixFraming(kinds, magic, description)
