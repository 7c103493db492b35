"""Documents that people write: settings of a service, checked before anything starts.

Imports little: a service starts its JVM with these settings, and loads the rest meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import yaml
from pydantic import Field, ValidationError

from streamcore.errors import ConfigError
from streamcore.kafka.settings import KafkaSettings, SaslMechanism, SecurityProtocol
from streamcore.service.config.base import Document, NotNegative, Positive
from streamcore.service.config.formats import FormatDocument, JsonDocument

if TYPE_CHECKING:
    from streamcore.decode.formats import InputFormat
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

    bootstrap: Annotated[
        str,
        Field(description="Addresses of brokers, host:port, separated by commas."),
    ]
    security: Annotated[
        SecurityProtocol,
        Field(description="Protocol towards the brokers, as Kafka names it."),
    ] = SecurityProtocol.PLAINTEXT
    mechanism: Annotated[
        SaslMechanism,
        Field(description="SASL mechanism; used by the SASL protocols only."),
    ] = SaslMechanism.SCRAM_SHA_512
    username: Annotated[str | None, Field(description="SASL user name.")] = None
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[
        str | None,
        Field(description="Environment variable with the password."),
    ] = None
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[
        Path | None,
        Field(description="PEM file of the key of the client's certificate."),
    ] = None

    def settings(self) -> KafkaSettings:
        """Return the engine's value."""
        return KafkaSettings(**self.model_dump())


class StreamDocument(Document):
    """One input: the file that declares the stream, the topic it arrives on, and the format of its records."""

    schema_file: Annotated[Path, Field(description="YAML file that declares the stream.")]
    topic: Annotated[str, Field(description="Topic that the records arrive on.")]
    reject_extra_fields: Annotated[
        bool,
        Field(description="Whether a record with fields that the stream does not declare is rejected."),
    ] = False
    format: Annotated[
        FormatDocument,
        Field(description="Format of the records; JSON without it."),
    ] = JsonDocument(kind="json")

    def stream_schema(self) -> StreamSchema:
        """Return the stream's schema; ``ConfigError`` names the file."""
        return load_schema(self.schema_file)

    def input_format(self) -> InputFormat:
        """Return the format of its records; ``ConfigError`` names a file that cannot be read."""
        return self.format.value()


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
    return checked_document(read_yaml(path), kind, str(path))


def checked_document(document: Mapping[str, object], kind: type[D], where: str) -> D:
    """Validate a document that was read already; ``where``: its source, for the ``ConfigError``."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc'])) or 'document'}: {e['msg']}" for e in error.errors()]
        raise ConfigError("\n".join([f"{where}: settings that cannot be used", *lines])) from error
    except ConfigError as error:  # what a document of a service means is checked as a part of reading it
        raise ConfigError(f"{where}: settings that cannot be used\n{error}") from error


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
