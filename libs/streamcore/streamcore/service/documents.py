"""Documents that people write: settings of a service, checked before anything starts.

Imports little: a service starts its JVM with what is said here, and loads the rest meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml
from pydantic import ValidationError

from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings, SaslMechanism, SecurityProtocol
from streamcore.service.base import Document, NotNegative, Positive
from streamcore.service.formats import FormatDocument, JsonDocument

if TYPE_CHECKING:
    from streamcore.decode import InputFormat
    from streamcore.schema import StreamSchema

__all__ = [
    "Document",
    "KafkaDocument",
    "NotNegative",
    "Positive",
    "StreamDocument",
    "checked_document",
    "load_document",
    "load_schema",
    "read_yaml",
]

D = TypeVar("D", bound=Document)


class KafkaDocument(Document):
    """How to reach Kafka. The password is named (a file, an environment variable), never written here."""

    bootstrap: str
    security: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512
    username: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def settings(self) -> KafkaSettings:
        """The engine's value."""
        return KafkaSettings(**self.model_dump())


class StreamDocument(Document):
    """One input: the file that declares the stream, the topic it arrives on, and what its records are written in."""

    schema_file: Path
    topic: str
    reject_extra_fields: bool = False
    format: FormatDocument = JsonDocument(kind="json")

    def schema_of(self) -> StreamSchema:
        """The stream's schema; ``ConfigError`` names the file."""
        return load_schema(self.schema_file)

    def format_of(self) -> InputFormat:
        """What its records are written in; ``ConfigError`` names a file that cannot be read."""
        return self.format.value()


def load_schema(path: Path) -> StreamSchema:
    """A stream's schema from its YAML file; ``ConfigError`` names the file."""
    from streamcore.schema import StreamSchema

    document = read_yaml(path)
    try:
        return StreamSchema.parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def load_document(path: Path, kind: type[D]) -> D:
    """A document from a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
    return checked_document(read_yaml(path), kind, str(path))


def checked_document(document: Mapping[str, object], kind: type[D], where: str) -> D:
    """A document that was read already; ``where`` it comes from, for the ``ConfigError``."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()]
        raise ConfigError("\n".join([f"{where}: settings that cannot be used", *lines])) from error
    except ConfigError as error:  # what a document of a service means is checked as a part of reading it
        raise ConfigError(f"{where}: settings that cannot be used\n{error}") from error


def read_yaml(path: Path) -> dict[str, object]:
    """The mapping in a YAML or JSON file; ``ConfigError`` names the file."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of names to values")
    return document
