"""The formats of an app's records, for commands that decode them: from ``--settings``, the settings file of the app.

Without it records are JSON. A schema of a registry is asked for when a record names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.errors import InputError
from streamcore.errors import ConfigError, Retryable
from streamcore.schema import StreamSchema

if TYPE_CHECKING:  # records of JSON need none of these
    from headgate.records.decoder import EventDecoder
    from streamcore.decode.formats import InputFormat
    from streamcore.schema_registry.client import RegistryClient
    from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId
    from streamcore.schema_registry.settings import RegistrySettings
    from streamcore.service.config.documents import StreamDocument


@dataclass(frozen=True)
class RecordFormats:
    """The formats by stream and by topic; other records are JSON. ``registry``: how to reach the app's, or None.

    ``topics``: the topic of each stream, in the order of the settings file.
    """

    by_stream: Mapping[str, InputFormat] = field(default_factory=dict)
    by_topic: Mapping[str, InputFormat] = field(default_factory=dict)
    registry: RegistrySettings | None = None
    topics: Mapping[str, str] = field(default_factory=dict)

    def find(self, schema: StreamSchema, topic: str) -> InputFormat | None:
        """Return the format of a stream's records in a topic; None if they are JSON."""
        from streamcore.decode.formats import JSON

        found = self.by_stream.get(schema.name) or self.by_topic.get(topic)
        return None if found == JSON else found

    def decoder(self, schema: StreamSchema, topic: str, clock_ms: int) -> EventDecoder:
        """Return the decoder of a stream's records in a topic."""
        from headgate.records.decoder import EventDecoder

        written = self.find(schema, topic) if self.by_stream or self.by_topic else None
        if written is None:
            return EventDecoder(schema, clock_ms)
        return EventDecoder(schema, clock_ms, written, self.lookup)

    @cached_property
    def lookup(self) -> RegistryLookup:
        if self.registry is None:
            return RegistryLookup(None)
        from streamcore.schema_registry.client import RegistryClient

        return RegistryLookup(RegistryClient(self.registry))


#: For commands without ``--settings``.
ALL_JSON = RecordFormats()


@dataclass(slots=True)
class RegistryLookup:
    """Finds schemas by asking the registry (``SchemaLookup``). Keeps its answers."""

    client: RegistryClient | None
    found: dict[SchemaId, RegisteredSchema | None] = field(default_factory=dict)

    def absent(self) -> Collection[SchemaId]:
        """See ``SchemaLookup``."""
        return [number for number, schema in self.found.items() if schema is None]

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        """See ``SchemaLookup``. Raises ``InputError`` if the registry does not answer."""
        if self.client is None:
            raise InputError("--settings: the records name schemas of a registry, and the file has no schema_registry")
        try:
            for number in {*ids} - self.found.keys():
                self.found[number] = self.client.schema(number)
        except Retryable as error:
            raise InputError(f"{self.client.name}: {error}") from error
        return {number: self.found[number] for number in ids}


def read_formats(path: Path | None) -> RecordFormats:
    """Read the settings file of an app; ``ConfigError`` names the entry that is wrong. None: all records are JSON."""
    if path is None:
        return ALL_JSON
    streams, registry = _read_settings(path)
    by_topic: dict[str, InputFormat] = {}
    for stream in streams:
        by_topic.setdefault(stream.topic, stream.input_format())
    by_name = {stream.stream_schema().name: stream for stream in streams}
    by_stream = {name: stream.input_format() for name, stream in by_name.items()}
    return RecordFormats(by_stream, by_topic, registry, {name: stream.topic for name, stream in by_name.items()})


def read_topic_format(path: Path, topic: str) -> RecordFormats:
    """Read the format of one topic of the settings file of an app, whose stream files need not be there yet.

    Raises ``ConfigError`` as ``read_formats``, and ``InputError`` if the file does not name the topic.
    """
    streams, registry = _read_settings(path)
    found = next((stream for stream in streams if stream.topic == topic), None)
    if found is None:
        known = ", ".join(dict.fromkeys(stream.topic for stream in streams))
        raise InputError(f"{path}: it does not name the topic {topic}; its topics are {known}")
    return RecordFormats({}, {topic: found.input_format()}, registry)


def registry_format(url: str, topic: str) -> RecordFormats:
    """Return the formats of an app that reads a topic with a schema registry; ``ConfigError`` for a wrong URL."""
    from streamcore.decode.formats import Registry
    from streamcore.schema_registry.settings import RegistrySettings
    from streamcore.service.config.documents import checked_document

    return RecordFormats(
        {}, {topic: Registry(in_header=True)}, checked_document({"url": url}, RegistrySettings, "--registry")
    )


def _read_settings(path: Path) -> tuple[list[StreamDocument], RegistrySettings | None]:
    from streamcore.schema_registry.settings import RegistrySettings
    from streamcore.service.config.documents import StreamDocument, checked_document, read_yaml

    document = read_yaml(path)
    entries = [(name, one) for name in ("streams", "inputs") for one in _entries(path, document, name)]
    if not entries:
        raise ConfigError(f"{path}: it has neither streams nor inputs; name the settings file of a rules or etl app")
    streams = []
    for name, entry in entries:
        known = {key: value for key, value in entry.items() if key in StreamDocument.model_fields}
        streams.append(checked_document(known, StreamDocument, f"{path}: {name}"))
    given = document.get("schema_registry")
    registry = None
    if isinstance(given, Mapping):
        registry = checked_document(given, RegistrySettings, f"{path}: schema_registry")
    return streams, registry


def _entries(path: Path, document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise ConfigError(f"{path}: {name}: a list of inputs is needed, each with schema_file and topic")
    return found
