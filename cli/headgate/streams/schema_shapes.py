"""Reads the shapes of records out of their schemas: Avro, Protobuf and JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.streams.shapes import ARRAY, DATE_TIME, MAP, RECORD, RECURSIVE, Shape, merge
from streamcore.decode.avro.schema import ArrayOf, AvroType, Enumeration, Fixed, MapOf, Primitive, RecordOf, UnionOf
from streamcore.decode.avro.schema_match import type_name
from streamcore.decode.protobuf.schema import SCALARS, ProtoEnum, ProtoField, ProtoMessage, ProtoSchema
from streamcore.decode.protobuf.schema_match import TIMESTAMP_MESSAGE
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.scalar.values import RecordError
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaType

#: The objects inside each other that are read of a JSON Schema.
_MAX_NESTING = 32


def avro_shape(kind: AvroType, schema: str, outer: tuple[RecordOf, ...] = ()) -> Shape:
    """Return the shape of an Avro type. ``schema``: its name in messages; ``outer``: the records around it."""
    if isinstance(kind, UnionOf):
        found = Shape()
        for branch in kind.branches:
            is_null = branch == Primitive("null")
            found = merge(found, Shape(optional=True) if is_null else avro_shape(branch, schema, outer))
        return found
    if isinstance(kind, RecordOf) and kind in outer:
        return Shape({(SchemaType.AVRO, RECURSIVE): (schema,)})
    shape = Shape({(SchemaType.AVRO, type_name(kind)): (schema,)})
    match kind:
        case Primitive() | Fixed() if kind.logical == "decimal":
            shape.digits, shape.scale = kind.precision - kind.scale, kind.scale
        case Enumeration():
            shape.symbols = kind.symbols
        case ArrayOf():
            shape.items = avro_shape(kind.items, schema, outer)
        case MapOf():
            shape.items = avro_shape(kind.values, schema, outer)
        case RecordOf():
            shape.members = {name: avro_shape(one, schema, (*outer, kind)) for name, one in kind.fields}
    return shape


def protobuf_shape(types: ProtoSchema, message: ProtoMessage, schema: str) -> Shape:
    """Return the shape of a message type of Protobuf."""
    return _Messages(types, schema).message(message, ())


@dataclass(frozen=True, slots=True)
class _Messages:
    types: ProtoSchema
    schema: str

    def named(self, name: str) -> Shape:
        return Shape({(SchemaType.PROTOBUF, name): (self.schema,)})

    def message(self, message: ProtoMessage, outer: tuple[str, ...]) -> Shape:
        if message.name in outer:
            return self.named(RECURSIVE)
        shape = self.named(RECORD)
        inside = (*outer, message.name)
        shape.members = {one.name: self.field(message, one, inside) for one in message.fields.values()}
        return shape

    def field(self, message: ProtoMessage, one: ProtoField, outer: tuple[str, ...]) -> Shape:
        value = self.value(message, one.type, outer)
        if one.repeated:
            shape = self.named(MAP if one.key else ARRAY)
            shape.items = value
            return shape
        is_message = any(name in (RECORD, RECURSIVE, TIMESTAMP_MESSAGE) for _, name in value.names)
        value.optional = one.presence or bool(one.oneof) or is_message
        return value

    def value(self, message: ProtoMessage, kind: str, outer: tuple[str, ...]) -> Shape:
        found = None if kind in SCALARS else self.types.resolve(kind, message.name)
        if isinstance(found, ProtoEnum):
            shape = self.named("enum")
            shape.symbols = tuple(found.values.values())
            return shape
        if isinstance(found, ProtoMessage) and found.name != TIMESTAMP_MESSAGE:
            return self.message(found, outer)
        return self.named(kind if found is None else found.name)


def json_shape(registered: RegisteredSchema, schema: str) -> Shape:
    """Return the shape of a JSON Schema. What it says in another way than with types, properties, items and
    references is left open. Raises ``RecordError`` if it cannot be read."""
    try:
        document = json.loads(registered.text)
        others = {one.name: json.loads(one.text) for one in registered.references}
    except (ValueError, RecursionError):
        raise RecordError(RejectCode.UNUSABLE_SCHEMA, f"{schema} is no JSON") from None
    return _JsonSchema(document, others, schema).read(document, 0)


@dataclass(frozen=True, slots=True)
class _JsonSchema:
    document: object
    others: Mapping[str, object]
    schema: str

    def read(self, one: object, depth: int) -> Shape:
        shape = Shape()
        if not isinstance(one, Mapping) or depth > _MAX_NESTING:
            return shape
        if isinstance(reference := one.get("$ref"), str):
            return self.read(self.find(reference), depth + 1)
        for name in ("allOf", "anyOf", "oneOf"):
            for part in _sequence(one.get(name)):
                found = self.read(part, depth + 1)
                if name == "allOf":  # each part says something of one object
                    shape.members |= found.members
                    found = Shape(found.names, found.optional, symbols=found.symbols, items=found.items)
                shape = merge(shape, found)
        kinds = one.get("type")
        for kind in [kinds] if isinstance(kinds, str) else _sequence(kinds):
            shape = merge(shape, self.of_type(one, str(kind), depth))
        if isinstance(members := one.get("properties"), Mapping):
            required = _sequence(one.get("required"))
            inside = {str(name): self.read(part, depth + 1) for name, part in members.items()}
            for name, member in inside.items():
                member.optional = member.optional or name not in required
            shape = merge(shape, Shape({(SchemaType.JSON, RECORD): (self.schema,)}))
            shape.members = shape.members | inside
        return shape

    def of_type(self, one: Mapping[str, object], kind: str, depth: int) -> Shape:
        if kind == "null":
            return Shape(optional=True)
        name, values = kind, one.get("additionalProperties")
        if kind == "object":
            if "properties" in one or not isinstance(values, Mapping):
                return Shape()  # its properties follow, or anything may be inside
            name = MAP
        if kind == "string" and one.get("format") == "date-time":
            name = DATE_TIME
        shape = Shape({(SchemaType.JSON, name): (self.schema,)})
        if kind == "string":
            shape.symbols = tuple(text for text in _sequence(one.get("enum")) if isinstance(text, str))
        if name in (ARRAY, MAP):
            shape.items = self.read(one.get("items") if name == ARRAY else values, depth + 1)
        return shape

    def find(self, reference: str) -> object:
        """Return the target of a reference: a part of this schema, or of another one."""
        other, _, place = reference.partition("#")
        found = self.others.get(other) if other else self.document
        for name in place.strip("/").split("/") if place.strip("/") else ():
            found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        return found


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
