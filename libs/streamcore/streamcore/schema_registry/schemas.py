"""A registered schema as a value, and how a decoder finds one."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from streamcore.errors import ConfigError

#: The first byte of a record that names its schema by an id, and the bytes of the id, which follow it.
MAGIC, ID_BYTES = 0, 4
#: The length of both together.
PREFIX_BYTES = 1 + ID_BYTES
#: The id of a schema in a registry: a number, or the text of a GUID. A schema may have both.
SchemaId = int | str


class SchemaType(enum.StrEnum):
    """The language of a schema, by the registry's names."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses. ``name``: its name there: a type (Avro), a file (Protobuf) or a URI."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry. It never changes: an id is given once.

    ``type``: a ``SchemaType``, or another name that a registry gives. ``references``: all that it uses, directly or
    through others; each comes after those that it uses itself. ``problem``: which limit it exceeds, if it does; then
    it has no references.
    """

    id: SchemaId
    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    problem: str = ""


class SchemaLookup(Protocol):
    """Finds the schemas of one cut. Its answers are part of the cut: a replay gets the same."""

    def absent(self) -> Collection[SchemaId]:
        """Return the ids that the registry did not have when the cut first asked for them."""
        ...

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        """Return the schema of each id, or None if it is absent. Waits while the registry is away."""
        ...


class _NoRegistry:
    def absent(self) -> Collection[SchemaId]:
        return ()

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        raise ConfigError(f"schema {next(iter(ids))} is needed and the app has no registry; set schema_registry")


#: For apps without a registry.
NO_REGISTRY: SchemaLookup = _NoRegistry()
