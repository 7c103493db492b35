"""Reads the schemas of a registry, and says why a record has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streamcore.decode.avro.schema import AvroSchemaError, AvroType, parse_avro_schema
from streamcore.decode.protobuf.schema import ProtoSchema, ProtoSchemaError, parse_proto_schema
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId, SchemaLookup

#: The most schemas for which a decoder keeps what it has made.
_MAX_CACHED: Final = 1_000
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class RejectedSchema:
    """Why no record of a schema can be decoded."""

    code: RejectCode
    reason: str


#: In place of a schema for records without an id.
NO_ID: Final = RejectedSchema(
    RejectCode.NO_SCHEMA_ID, "the record does not begin with a zero byte and a schema's id of four bytes"
)


class SchemaCache(Generic[_Made]):
    """Keeps what a decoder makes of each schema; that changes the cost of a batch, never its result. ``make`` raises
    ``RecordError`` if no record of a schema can be decoded."""

    def __init__(self, make: Callable[[RegisteredSchema], _Made]) -> None:
        self._make = make
        self._made: dict[SchemaId, _Made | RejectedSchema] = {}

    def find(self, schemas: SchemaLookup, ids: Sequence[SchemaId]) -> Mapping[SchemaId, _Made | RejectedSchema]:
        """Return what is made of each schema in this cut. Waits for schemas that are new."""
        absent = schemas.absent()
        if new := [n for n in ids if n not in self._made and n not in absent]:
            if len(self._made) + len(new) > _MAX_CACHED:
                self._made.clear()
                new = [n for n in ids if n not in absent]
            found = schemas.find(new)
            self._made |= {n: self._make_or_reject(schema) for n, schema in found.items() if schema is not None}
            absent = schemas.absent()
        return {n: _unknown(n) if n in absent else self._made[n] for n in ids}

    def _make_or_reject(self, registered: RegisteredSchema) -> _Made | RejectedSchema:
        if registered.problem:
            return RejectedSchema(RejectCode.UNUSABLE_SCHEMA, f"schema {registered.id}: {registered.problem}")
        try:
            return self._make(registered)
        except RecordError as error:
            return RejectedSchema(error.code, f"schema {registered.id}: {error.reason}")


def _unknown(schema_id: SchemaId) -> RejectedSchema:
    return RejectedSchema(RejectCode.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")


def read_avro(registered: RegisteredSchema) -> AvroType:
    """Return the type of an Avro schema; raise ``RecordError`` if it cannot be read."""
    try:
        return parse_avro_schema(registered.text, [reference.text for reference in registered.references])
    except AvroSchemaError as error:
        raise RecordError(RejectCode.UNUSABLE_SCHEMA, str(error)) from error


def read_protobuf(registered: RegisteredSchema) -> ProtoSchema:
    """Return the messages of a Protobuf schema; raise ``RecordError`` if it cannot be read."""
    try:
        return parse_proto_schema(registered.text, [reference.text for reference in registered.references])
    except ProtoSchemaError as error:
        raise RecordError(RejectCode.UNUSABLE_SCHEMA, str(error)) from error
