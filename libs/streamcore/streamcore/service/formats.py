"""Input formats as documents: what a service's settings say of the records of a topic.

Schema files are read here, at the start; from then on a format is a value (``streamcore.decode.formats``). Imports the
decoders only when a format is made, as they take a while to load.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from streamcore.errors import ConfigError
from streamcore.service.base import Document

if TYPE_CHECKING:
    from streamcore.decode import Framing, InputFormat


class JsonDocument(Document):
    """One JSON object a record."""

    kind: Literal["json"]

    def value(self) -> InputFormat:
        """The engine's value."""
        from streamcore.decode import Json

        return Json()


class CsvDocument(Document):
    """One line of CSV a record (see ``Csv``)."""

    kind: Literal["csv"]
    columns: tuple[str, ...] | None = None
    delimiter: str = ","
    null_values: tuple[str, ...] = ()

    def value(self) -> InputFormat:
        """The engine's value."""
        from streamcore.decode import Csv

        return Csv(self.columns, self.delimiter, self.null_values)


class AccessLogDocument(Document):
    """One line of an access log a record (see ``AccessLog``). ``fields``: field of the stream to column of the log."""

    kind: Literal["access-log"]
    layout: Literal["common", "combined"] = "combined"
    request_time: bool = False
    fields: dict[str, str] = Field(default_factory=dict)

    def value(self) -> InputFormat:
        """The engine's value."""
        from streamcore.decode import AccessLog, LogLayout

        return AccessLog(LogLayout(self.layout), self.request_time, self.fields)


class AvroDocument(Document):
    """An Avro record (see ``Avro``). ``paths``: field of the stream to its place in Avro's record.

    Each framing has its own way of naming schemas: ``container`` none, ``bare`` one ``schema_file``, ``single-object``
    ``schema_files``, ``confluent`` ``schemas`` by number.
    """

    kind: Literal["avro"]
    framing: Literal["container", "bare", "single-object", "confluent"] = "container"
    schema_file: Path | None = None
    schema_files: tuple[Path, ...] | None = None
    schemas: dict[int, Path] | None = None
    paths: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_its_schemas(self) -> AvroDocument:
        given = {name for name in _SCHEMAS_OF.values() if name is not None and getattr(self, name) is not None}
        needed = _SCHEMAS_OF[self.framing]
        if given != ({needed} if needed is not None else set()):
            raise ValueError(f"framing {self.framing} needs {needed or 'no schema'} and nothing else of its kind")
        return self

    def value(self) -> InputFormat:
        """The engine's value; ``ConfigError`` names a file that cannot be read."""
        from streamcore.decode import Avro

        return Avro(self._framing(), self.paths)

    def _framing(self) -> Framing:
        from streamcore.decode import Bare, Confluent, Container, SingleObject

        if self.schema_file is not None:
            return Bare(_read(self.schema_file))
        if self.schema_files is not None:
            return SingleObject(tuple(_read(path) for path in self.schema_files))
        if self.schemas is not None:
            return Confluent({number: _read(path) for number, path in self.schemas.items()})
        return Container()


_SCHEMAS_OF = {"container": None, "bare": "schema_file", "single-object": "schema_files", "confluent": "schemas"}

#: ``format:`` of a stream; ``kind`` says which.
FormatDocument = Annotated[JsonDocument | CsvDocument | AccessLogDocument | AvroDocument, Field(discriminator="kind")]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the Avro schema cannot be read: {error}") from error
