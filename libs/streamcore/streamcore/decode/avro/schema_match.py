"""Matches the fields of a stream with those of a writer's Avro schema: once per schema, not once per record.

Fields are found by their paths (``customer.id``: field ``id`` of the record in field ``customer``, which may be null).
No conversion is guessed: ``FITS`` lists the Avro types that fit each kind of field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamcore.decode.avro.schema import ArrayOf, AvroType, Enumeration, Fixed, MapOf, Primitive, RecordOf, UnionOf
from streamcore.decode.reject_codes import ExtraFields, RejectCode
from streamcore.decode.scalar.values import RecordError, inner_field
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.schema.field_paths import PathTree
from streamcore.schema.types import quote_name

_WHOLE = frozenset({"int", "long"})
INSTANTS = frozenset({"timestamp-millis", "timestamp-micros", "timestamp-nanos"})
FITS: dict[Kind, frozenset[str]] = {
    Kind.BOOLEAN: frozenset({"boolean"}),
    Kind.LONG: _WHOLE,
    Kind.DOUBLE: _WHOLE | {"float", "double"},
    Kind.DECIMAL: _WHOLE | {"decimal", "string"},
    Kind.STRING: frozenset({"string", "enum", "uuid"}),
    Kind.TIMESTAMP: INSTANTS | {f"local-{name}" for name in INSTANTS} | {"date", "long", "string"},
}


@dataclass(frozen=True, slots=True)
class FieldMapping:
    """The fields to read from an Avro record, by Avro name: a field of the stream, or the fields of a nested record."""

    inside: Mapping[str, Field | FieldMapping]


def type_name(kind: AvroType) -> str:
    """Return the name of a type: that of its logical type if it has one."""
    match kind:
        case Primitive():
            return kind.logical or kind.name
        case Fixed():
            return kind.logical or "fixed"
        case Enumeration():
            return "enum"
        case RecordOf():
            return "record"
    return {"ArrayOf": "array", "MapOf": "map", "UnionOf": "union"}[type(kind).__name__]


def map_fields(schema: StreamSchema) -> FieldMapping:
    """Return the fields of a stream by their paths."""
    return _to_mapping(schema, schema.tree)


def _to_mapping(schema: StreamSchema, tree: PathTree) -> FieldMapping:
    return FieldMapping(
        {n: _to_mapping(schema, v) if isinstance(v, PathTree) else schema.fields[v] for n, v in tree.inside.items()}
    )


def check_schema(kind: AvroType, want: FieldMapping, extra_fields: ExtraFields) -> None:
    """Raise ``RecordError`` when records of this type cannot be the stream's events."""
    if not isinstance(kind, RecordOf):
        raise RecordError(RejectCode.WRONG_TYPE, f"the Avro schema is a {type_name(kind)}; accepted is a record")
    extra = [name for name, _ in kind.fields if name not in want.inside]
    if extra and extra_fields is ExtraFields.REJECT:
        raise RecordError(
            RejectCode.EXTRA_FIELD, f"Avro field {extra[0][:60]!a} is not declared by the stream; see its schema"
        )
    _check_record(kind, want)


def _check_record(record: RecordOf, want: FieldMapping) -> None:
    types = dict(record.fields)
    for name, inner in want.inside.items():
        if name in types:
            _check(types[name], inner)
        elif needed := [field for field in _stream_fields(inner) if not field.nullable]:
            raise RecordError(
                RejectCode.MISSING_FIELD,
                f"field {needed[0].name} is missing: the Avro record {record.name[:60]!a} has no field {name};"
                f" a {needed[0].type} is needed",
            )


def _stream_fields(want: Field | FieldMapping) -> list[Field]:
    if isinstance(want, Field):
        return [want]
    return [field for inner in want.inside.values() for field in _stream_fields(inner)]


def _check(kind: AvroType, want: Field | FieldMapping) -> None:
    branches = kind.branches if isinstance(kind, UnionOf) else (kind,)
    for branch in branches:
        if branch == Primitive("null"):
            continue
        if isinstance(want, Field) and want.type.is_nested:
            _check_nested(branch, want)
        elif isinstance(want, Field):
            if (found := type_name(branch)) not in FITS[want.type.kind]:
                fits = ", ".join(sorted(FITS[want.type.kind]))
                raise RecordError(
                    RejectCode.WRONG_TYPE,
                    f"field {want.name}: found Avro's {found}; accepted for a {want.type} is {fits}",
                )
        elif isinstance(branch, RecordOf):
            _check_record(branch, want)
        else:
            field = _stream_fields(want)[0]
            raise RecordError(
                RejectCode.WRONG_TYPE,
                f"field {field.name}: found Avro's {type_name(branch)} on its path; needed is a record",
            )


def _check_nested(kind: AvroType, want: Field) -> None:
    """Check the type of an array, a map or a struct, and the types inside of it."""
    match kind, want.type.kind:
        case ArrayOf(), Kind.ARRAY:
            _check(kind.items, inner_field(want, "[]", want.type.items))
        case MapOf(), Kind.MAP:
            _check(kind.values, inner_field(want, "[]", want.type.items))
        case RecordOf(), Kind.STRUCT:
            types = dict(kind.fields)
            for name, member in want.type.members:
                if name in types:
                    _check(types[name], inner_field(want, f".{quote_name(name)}", member))
        case _:
            accepted = {Kind.ARRAY: "array", Kind.MAP: "map", Kind.STRUCT: "record"}[want.type.kind]
            raise RecordError(
                RejectCode.WRONG_TYPE,
                f"field {want.name}: found Avro's {type_name(kind)}; accepted for a {want.type} is {accepted}",
            )
