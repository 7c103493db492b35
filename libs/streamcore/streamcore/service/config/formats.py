"""Settings of input formats: they describe the records of a topic.

``value`` reads the schema files when the service starts, and returns a format (``streamcore.decode.formats``). The
decoders are imported by ``value`` only, because they take long to load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from streamcore.errors import ConfigError
from streamcore.service.config.base import Document

if TYPE_CHECKING:
    from streamcore.decode.formats import AvroFraming, InputFormat


class JsonDocument(Document):
    """Each record is one JSON object."""

    kind: Annotated[Literal["json"], Field(description="Name of the format.")]

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import Json

        return Json()


class CsvDocument(Document):
    """Each record is one line of CSV."""

    kind: Annotated[Literal["csv"], Field(description="Name of the format.")]
    columns: Annotated[
        tuple[str, ...] | None,
        Field(description="Names of the columns in order; without it those of the stream."),
    ] = None
    delimiter: Annotated[str, Field(description="Character between two columns.")] = ","
    null_values: Annotated[tuple[str, ...], Field(description="Texts that stand for NULL.")] = ()

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import Csv

        return Csv(self.columns, self.delimiter, self.null_values)


class AccessLogDocument(Document):
    """Each record is one line of an access log."""

    kind: Annotated[Literal["access-log"], Field(description="Name of the format.")]
    layout: Annotated[
        Literal["common", "combined"],
        Field(description="Layout of a line, as Apache and nginx name it."),
    ] = "combined"
    request_time: Annotated[
        bool,
        Field(description="Whether a line ends with the request's duration."),
    ] = False

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import AccessLog
        from streamcore.decode.text.access_log import LogLayout

        return AccessLog(LogLayout(self.layout), self.request_time)


class SyslogDocument(Document):
    """Each record is one line of syslog, of RFC 3164 or RFC 5424."""

    kind: Annotated[Literal["syslog"], Field(description="Name of the format.")]

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import Syslog

        return Syslog()


class LogfmtDocument(Document):
    """Each record is one line of pairs, key=value."""

    kind: Annotated[Literal["logfmt"], Field(description="Name of the format.")]

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import Logfmt

        return Logfmt()


class PatternDocument(Document):
    """Each record is one line in a pattern of named parts, as in Grok."""

    kind: Annotated[Literal["pattern"], Field(description="Name of the format.")]
    pattern: Annotated[
        str,
        Field(description="A regular expression of the whole line, in which %{NAME:column} is a column, such as "
              "%{IPORHOST:client} %{WORD:method} %{NUMBER:seconds}."),
    ]  # fmt: skip
    patterns: Annotated[
        dict[str, str],
        Field(default_factory=dict, description="Regular expressions that %{NAME} stands for, beside the known ones."),
    ]
    null_values: Annotated[tuple[str, ...], Field(description="Texts of a part that stand for NULL.")] = ()

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import TextPattern

        return TextPattern(self.pattern, self.patterns, self.null_values)


class AvroDocument(Document):
    """Each record is one Avro record.

    The framing decides which setting names the schemas: ``schema_file`` for ``bare``, ``schema_files`` for
    ``single-object``, ``schemas`` for ``confluent``; none for ``container``.
    """

    kind: Annotated[Literal["avro"], Field(description="Name of the format.")]
    framing: Annotated[
        Literal["container", "bare", "single-object", "confluent"],
        Field(description="How a record names its schema."),
    ] = "container"
    schema_file: Annotated[
        Path | None,
        Field(description="File of the schema; needed by the framing bare."),
    ] = None
    schema_files: Annotated[
        tuple[Path, ...] | None,
        Field(description="Files of the schemas; needed by the framing single-object."),
    ] = None
    schemas: Annotated[
        dict[int, Path] | None,
        Field(description="File of each schema by its id; needed by the framing confluent."),
    ] = None

    @model_validator(mode="after")
    def _check_schemas(self) -> AvroDocument:
        given = {name for name in _SCHEMA_SETTING.values() if name is not None and getattr(self, name) is not None}
        needed = _SCHEMA_SETTING[self.framing]
        if given != ({needed} if needed is not None else set()):
            raise ValueError(f"framing {self.framing} needs {needed or 'no schema'}, and no other setting of schemas")
        return self

    def to_format(self) -> InputFormat:
        """Return the format; ``ConfigError`` names a file that cannot be read."""
        from streamcore.decode.formats import Avro

        return Avro(self._framing())

    def _framing(self) -> AvroFraming:
        from streamcore.decode.formats import Bare, Confluent, Container, SingleObject

        if self.schema_file is not None:
            return Bare(_read(self.schema_file))
        if self.schema_files is not None:
            return SingleObject(tuple(_read(path) for path in self.schema_files))
        if self.schemas is not None:
            return Confluent({schema_id: _read(path) for schema_id, path in self.schemas.items()})
        return Container()


class RegistryDocument(Document):
    """Each record names its schema by an id of the schema registry, which says whether it is Avro, Protobuf or JSON."""

    kind: Annotated[Literal["registry"], Field(description="Name of the format.")]
    id_in: Annotated[
        Literal["value", "header"],
        Field(description="Where the id is: at the beginning of the value, or in the header `__value_schema_id`. With "
              "`header` a record without that header still has its id at the beginning of the value."),
    ] = "value"  # fmt: skip

    def to_format(self) -> InputFormat:
        """Return the format."""
        from streamcore.decode.formats import Registry

        return Registry(in_header=self.id_in == "header")


#: The setting that names the schemas of each framing.
_SCHEMA_SETTING = {"container": None, "bare": "schema_file", "single-object": "schema_files", "confluent": "schemas"}

#: The setting ``format`` of a stream.
FormatDocument = Annotated[
    JsonDocument
    | CsvDocument
    | AccessLogDocument
    | SyslogDocument
    | LogfmtDocument
    | PatternDocument
    | AvroDocument
    | RegistryDocument,
    Field(discriminator="kind"),
]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the Avro schema cannot be read: {error}") from error
