"""Parses Avro schemas, with limits, because a schema may come from an untrusted record.

In a parsed schema all names are resolved, nesting is bounded, and no record contains itself unless through a union,
array or map. Empty types have values without bytes (``is_empty``); a reader skips any number of them at once. As in the
Avro specification 1.12, unknown or invalid logical types are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MAX_NESTING = 64
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_TIMES = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
_LOGICAL = {
    "int": frozenset({"date"}),
    "long": frozenset({*_TIMES, *(f"local-{name}" for name in _TIMES)}),
    "string": frozenset({"uuid"}),
    "bytes": frozenset({"decimal"}),
    "fixed": frozenset({"decimal", "uuid"}),
}
_UUID_BYTES = 16
#: As in Avro's own library for Java.
_MAX_FIXED_BYTES = 2**31 - 1


class AvroSchemaError(ValueError):
    """The text is not a valid schema, or exceeds a limit."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type. ``logical``: its logical type, or empty. ``scale``, ``precision``: of a decimal."""

    name: str
    logical: str = ""
    scale: int = 0
    precision: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of bytes, ``size``."""

    size: int
    logical: str = ""
    scale: int = 0
    precision: int = 0


@dataclass(frozen=True, slots=True)
class Enumeration:
    """An enum; a value is the index of a symbol."""

    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """An array with items of one type."""

    items: AvroType


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from texts to values of one type."""

    values: AvroType


@dataclass(frozen=True, slots=True)
class UnionOf:
    """A union; a value is of one of the branches."""

    branches: tuple[AvroType, ...]


@dataclass(slots=True, eq=False)
class RecordOf:
    """A record with its fields in order. ``non_empty``: the types of the fields that have bytes (see ``is_empty``).

    A record may contain itself, so records are compared by identity. The parser fills it; nothing changes it later.
    """

    name: str
    fields: list[tuple[str, AvroType]] = field(default_factory=list)
    non_empty: list[AvroType] = field(default_factory=list)
    namespace: str = ""

    @property
    def full_name(self) -> str:
        """The name with its namespace; of a record inside of another one, with its own namespace alone."""
        return f"{self.namespace}.{self.name}" if self.namespace and "." not in self.name else self.name


AvroType = Primitive | Fixed | Enumeration | ArrayOf | MapOf | UnionOf | RecordOf


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the type that a schema's JSON text defines; raise ``AvroSchemaError``.

    ``references``: the texts of other schemas whose types it may use; each may use the types of those before it.
    """
    parser = _Parser({}, [])
    for reference in references:
        parser.read(_parse_json(reference), "", 0)
    parsed = parser.read(_parse_json(text), "", 0)
    _fill_non_empty(parser.records)
    return parsed


def _parse_json(text: str) -> object:
    try:
        document: object = json.loads(text)
        # A name with a lone surrogate would be no text of a column.
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"the schema is no JSON of Unicode: {type(error).__name__}") from None
    return document


def is_empty(kind: AvroType) -> bool:
    """Return whether values of the type have no bytes."""
    match kind:
        case Primitive():
            return kind.name == "null"
        case Fixed():
            return kind.size == 0
        case RecordOf():
            return not kind.non_empty
    return False


@dataclass(frozen=True, slots=True)
class _Parser:
    """Parses one schema. ``names``: the declared types by full name. ``records``: all records, in order."""

    names: dict[str, AvroType]
    records: list[RecordOf]

    def read(self, document: object, namespace: str, depth: int) -> AvroType:
        """Return the type that a part of the schema's JSON defines. ``namespace``: of the enclosing type."""
        if depth > MAX_NESTING:
            raise AvroSchemaError(f"the schema nests deeper than {MAX_NESTING} levels, which is the limit")
        if isinstance(document, str):
            return self._find_type(document, namespace)
        if isinstance(document, list):
            return self._union(document, namespace, depth)
        if not isinstance(document, dict):
            raise AvroSchemaError("the schema has a type that is neither a name, a list nor an object")
        return self._object(document, namespace, depth)

    def _find_type(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return Primitive(name)
        declared = self.names.get(_full_name(name, namespace)) or self.names.get(name)
        if declared is None:
            raise AvroSchemaError(f"the schema uses the type {name[:60]!a}, which it does not declare")
        return declared

    def _union(self, document: list[object], namespace: str, depth: int) -> UnionOf:
        branches = tuple(self.read(branch, namespace, depth + 1) for branch in document)
        if not branches or any(isinstance(branch, UnionOf) for branch in branches):
            raise AvroSchemaError("the schema has a union that is empty or holds a union")
        return UnionOf(branches)

    def _object(self, document: Mapping[str, object], namespace: str, depth: int) -> AvroType:
        match document.get("type"):
            case "record" | "error":
                return self._record(document, namespace, depth)
            case "enum":
                symbols = document.get("symbols")
                if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                    raise AvroSchemaError("the schema has an enum without symbols")
                return self._declare(document, namespace, Enumeration(tuple(symbols)))
            case "fixed":
                size = document.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED_BYTES:
                    raise AvroSchemaError(f"the schema has a fixed without a size from 0 to {_MAX_FIXED_BYTES} bytes")
                return self._declare(document, namespace, Fixed(size, *_read_logical_type(document, "fixed", size)))
            case "array":
                return ArrayOf(self.read(document.get("items"), namespace, depth + 1))
            case "map":
                return MapOf(self.read(document.get("values"), namespace, depth + 1))
            case str(name) if name in _PRIMITIVES:
                return Primitive(name, *_read_logical_type(document, name, 0))
            case other:
                return self.read(other, namespace, depth + 1)

    def _record(self, document: Mapping[str, object], namespace: str, depth: int) -> RecordOf:
        record = RecordOf(str(document.get("name", "")), namespace=str(document.get("namespace", "")))
        self._declare(document, namespace, record)
        self.records.append(record)
        fields, inner = document.get("fields"), _full_name(record.name, str(document.get("namespace", namespace)))
        if not isinstance(fields, list):
            raise AvroSchemaError("the schema has a record without fields")
        for entry in fields:
            if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
                raise AvroSchemaError("the schema has a field without a name")
            record.fields.append((name, self.read(entry.get("type"), inner.rpartition(".")[0], depth + 1)))
        if len({name for name, _ in record.fields}) < len(record.fields):
            raise AvroSchemaError("the schema has a record with two fields of one name")
        return record

    def _declare(self, document: Mapping[str, object], namespace: str, kind: AvroType) -> AvroType:
        """Add the named type to ``names``, and return it."""
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise AvroSchemaError("the schema has a record, enum or fixed without a name")
        full = _full_name(name, str(document.get("namespace") or namespace))
        if full in self.names or name in _PRIMITIVES:
            raise AvroSchemaError(f"the schema declares the type {full[:60]!a} twice")
        self.names[full] = kind
        return kind


def _full_name(name: str, namespace: str) -> str:
    """Return a name with its namespace."""
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _read_logical_type(document: Mapping[str, object], base: str, size: int) -> tuple[str, int, int]:
    """Return the logical type and a decimal's scale and precision; empty and 0 if it is unknown or invalid."""
    logical, scale, precision = document.get("logicalType"), document.get("scale", 0), document.get("precision")
    if not isinstance(logical, str) or logical not in _LOGICAL.get(base, ()):
        return "", 0, 0
    if logical == "uuid" and base == "fixed" and size != _UUID_BYTES:
        return "", 0, 0
    if logical != "decimal":
        return logical, 0, 0
    if not isinstance(scale, int) or not isinstance(precision, int) or not 0 <= scale <= precision <= 1_000:
        return "", 0, 0
    return logical, scale, precision


def _fill_non_empty(records: list[RecordOf]) -> None:
    """Set ``non_empty`` of all records. Raise if one contains itself other than through a union, array or map."""
    visited: set[RecordOf] = set()
    for record in records:
        _visit(record, visited, [])


def _visit(record: RecordOf, visited: set[RecordOf], path: list[RecordOf]) -> None:
    """Set ``non_empty`` of the record, after that of the records in it. ``path``: the enclosing records."""
    if record in visited:
        return
    if record in path:
        raise AvroSchemaError(f"the schema's record {record.name[:60]!a} contains itself without end")
    if len(path) > MAX_NESTING:
        raise AvroSchemaError(f"the schema nests deeper than {MAX_NESTING} levels, which is the limit")
    for _, kind in record.fields:
        if isinstance(kind, RecordOf):
            _visit(kind, visited, [*path, record])
    record.non_empty = [kind for _, kind in record.fields if not is_empty(kind)]
    visited.add(record)
