"""Documents that people write: settings of a service, checked before anything starts.

Imports little: a service starts its JVM with these settings, and loads the rest meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from streamcore.errors import ConfigError
from streamcore.service.config.base import Document, NotNegative, Positive
from streamcore.service.config.formats import FormatDocument, JsonDocument
from streamcore.settings import describe_error

if TYPE_CHECKING:
    from streamcore.app import Source
    from streamcore.decode.formats import InputFormat
    from streamcore.schema import StreamSchema

__all__ = [
    "Document",
    "NotNegative",
    "Positive",
    "StreamDocument",
    "checked_document",
    "load_document",
    "load_schema",
    "read_settings",
    "read_yaml",
    "with_files_of",
]

D = TypeVar("D")


class StreamDocument(Document):
    """One input: the file that declares the stream, the topic it arrives on, and the format of its records."""

    schema_file: Annotated[Path, Field(description="YAML file that declares the stream.")]
    topic: Annotated[str, Field(description="Topic that the records arrive on.")]
    reject_extra_fields: Annotated[
        bool,
        Field(description="Whether a record with fields that the stream does not declare is rejected."),
    ] = False
    reject_other_records: Annotated[
        bool,
        Field(
            description="Whether a record of the topic that is an event of none of its streams (`when` of a stream "
            "file) is a dead letter; otherwise it is counted."
        ),
    ] = False
    format: Annotated[
        FormatDocument,
        Field(description="Format of the records; JSON without it."),
    ] = JsonDocument(kind="json")

    def stream_schema(self) -> StreamSchema:
        """Return the stream's schema; ``ConfigError`` names the file."""
        return load_schema(self.schema_file)

    def apply_to(self, source: Source) -> Source:
        """Return the source with the treatment of records that these settings name."""
        return dataclasses.replace(
            source, reject_extra_fields=self.reject_extra_fields, reject_other_records=self.reject_other_records
        )

    def input_format(self) -> InputFormat:
        """Return the format of its records; ``ConfigError`` names a file that cannot be read."""
        return self.format.to_format()


def load_schema(path: Path) -> StreamSchema:
    """Load a stream's schema from its YAML file; ``ConfigError`` names the file."""
    from streamcore.schema import StreamSchema

    document = read_yaml(path)
    try:
        return StreamSchema.parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_document(path: Path, kind: type[D]) -> D:
    """Load a document from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return checked_document(read_settings(path), kind, str(path))


def checked_document(document: Mapping[str, object], kind: type[D], where: str) -> D:
    """Validate a document that was read already; ``where``: its source, for the ``ConfigError``."""
    try:
        return TypeAdapter(kind).validate_python(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or 'document'}: {describe_error(e, kind)}" for e in error.errors()]
        raise ConfigError("\n".join([f"{where}: settings that cannot be used", *lines])) from error
    except ConfigError as error:  # what a document of a service means is checked as a part of reading it
        raise ConfigError(f"{where}: settings that cannot be used\n{error}") from error


#: Entries that name files of streams and their formats, relative to the document that names them.
_FILES = ("schema_file", "schema_files", "schemas")


def read_settings(path: Path) -> dict[str, object]:
    """Read a settings document. The stream files that it names are relative to its own folder, or else to the working
    directory."""
    found = with_files_of(path.parent, read_yaml(path))
    assert isinstance(found, dict), "a mapping stays one"
    return found


def with_files_of(folder: Path, value: object) -> object:
    """Return the value of an entry with the files of streams that it names as paths from the working directory."""
    if isinstance(value, dict):
        return {
            name: _from_folder(folder, each) if name in _FILES else with_files_of(folder, each)
            for name, each in value.items()
        }
    return [with_files_of(folder, each) for each in value] if isinstance(value, list) else value


def _from_folder(folder: Path, value: object) -> object:
    match value:
        case str():
            beside = folder / value
            return value if not beside.exists() and Path(value).exists() else str(beside)
        case list():
            return [_from_folder(folder, each) for each in value]
        case dict():
            return {name: _from_folder(folder, each) for name, each in value.items()}
    return value


def read_yaml(path: Path) -> dict[str, object]:
    """Read the mapping in a YAML or JSON file; ``ConfigError`` names the file."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of names to values")
    return document
