"""The shape of a field by the schemas of records: the types that it may have, whether it may be null, and its members.

The shapes of several schemas are merged into one, whose type is the one that fits the records of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from streamcore.decode.avro.schema_match import FITS as AVRO_FITS
from streamcore.decode.avro.schema_match import INSTANTS as AVRO_INSTANTS
from streamcore.decode.protobuf.schema_match import FITS as PROTOBUF_FITS
from streamcore.decode.protobuf.schema_match import TIMESTAMP_MESSAGE
from streamcore.schema import MAX_DECIMAL_DIGITS, Kind, Type
from streamcore.schema.field_paths import MAX_DEPTH, Path
from streamcore.schema.types import array_of, is_field_name, map_of, struct_of
from streamcore.schema_registry.schemas import SchemaType

RECORD, ARRAY, MAP = "record", "array", "map"
#: A record inside of itself: no type has its depth.
RECURSIVE: Final = "record inside of itself"
DATE_TIME: Final = "date-time"
_JSON_FITS: Final = {
    Kind.BOOLEAN: frozenset({"boolean"}),
    Kind.LONG: frozenset({"integer"}),
    Kind.DOUBLE: frozenset({"integer", "number"}),
    Kind.DECIMAL: frozenset({"integer", "number"}),
    Kind.STRING: frozenset({"string", DATE_TIME}),
    Kind.TIMESTAMP: frozenset({"string", "integer", DATE_TIME}),
}
_FITS: Final[Mapping[SchemaType, Mapping[Kind, frozenset[str]]]] = {
    SchemaType.AVRO: AVRO_FITS,
    SchemaType.PROTOBUF: PROTOBUF_FITS,
    SchemaType.JSON: _JSON_FITS,
}
_TIMES: Final = AVRO_INSTANTS | {f"local-{name}" for name in AVRO_INSTANTS} | {"date", TIMESTAMP_MESSAGE, DATE_TIME}
#: In this order the first kind that fits all types is the field's. The last two are for texts and times in one field.
_ORDER: Final = (Kind.BOOLEAN, Kind.LONG, Kind.DECIMAL, Kind.DOUBLE, Kind.TIMESTAMP, Kind.STRING)
#: Kinds that values may show to be another one: a number or a text that is a time, a number with few digits.
_REFINED: Final = {Kind.LONG: Kind.TIMESTAMP, Kind.STRING: Kind.TIMESTAMP, Kind.DOUBLE: Kind.DECIMAL}
#: The digits before the point that whole numbers have as decimals.
_WHOLE_DIGITS: Final = 15
#: Of types inside each other, as those of a document.
_MAX_DEPTH: Final = MAX_DEPTH - 2

TypeName = tuple[SchemaType, str]


@dataclass(slots=True)
class Shape:
    """A field, or the elements of an array or a map. ``names``: its types, each with the schemas that have it.

    ``digits`` and ``scale``: the most before and behind the point of its decimals. ``symbols``: of its enums.
    ``members``: of its records; ``items``: of its arrays, or the values of its maps.
    """

    names: dict[TypeName, tuple[str, ...]] = field(default_factory=dict)
    optional: bool = False
    digits: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    members: dict[str, Shape] = field(default_factory=dict)
    items: Shape | None = None

    @property
    def is_record(self) -> bool:
        """Whether it is a record in all schemas, and a field can be inside of it."""
        return bool(self.names) and all(name == RECORD for _, name in self.names)

    @property
    def is_of_json(self) -> bool:
        """Whether only JSON Schemas have it: the sample decides where they leave a type open."""
        return all(language is SchemaType.JSON for language, _ in self.names)

    @property
    def shown(self) -> str:
        """Its types with their schemas, for a message."""
        return ", ".join(f"{name} ({', '.join(schemas)})" for (_, name), schemas in self.names.items())

    def type(self, depth: int = 1) -> Type | None:
        """Return the type that fits all; None if there is none, or a schema leaves it open."""
        names = {name for _, name in self.names}
        if depth > _MAX_DEPTH or not names:
            return None
        if names <= {ARRAY} or names <= {MAP}:
            element = None if self.items is None else self.items.type(depth + 1)
            return None if element is None else array_of(element) if names == {ARRAY} else map_of(element)
        if self.is_record:
            inside = {name: one.type(depth + 1) for name, one in self.members.items() if is_field_name(name)}
            members = {name: kind for name, kind in inside.items() if kind is not None}
            is_clear = len({name.lower() for name in members}) == len(members)
            return struct_of(members) if members and is_clear else None
        return self._value_type(names)

    def _value_type(self, names: set[str]) -> Type | None:
        for kind in _ORDER:
            is_usual = kind is not Kind.DECIMAL or "decimal" in names
            if self.fits(kind) and is_usual and (kind is not Kind.TIMESTAMP or names & _TIMES):
                return self._decimal() if kind is Kind.DECIMAL else Type(kind)
        return None

    def _decimal(self) -> Type | None:
        has_whole = any(name != "decimal" for _, name in self.names)
        digits = max(self.digits, _WHOLE_DIGITS if has_whole else 0) + self.scale
        if self.scale > MAX_DECIMAL_DIGITS:
            return None
        return Type(Kind.DECIMAL, max(1, min(digits, MAX_DECIMAL_DIGITS)), self.scale)

    def fits(self, kind: Kind) -> bool:
        """Return whether a field of this kind takes the values of all schemas."""
        return all(name in _FITS[language].get(kind, ()) for language, name in self.names)

    def is_refined(self, declared: Type, observed: Kind) -> bool:
        """Return whether values that are all of the kind ``observed`` say more than the type of the schemas."""
        return _REFINED.get(declared.kind) is observed and self.fits(observed)


def merge(one: Shape, other: Shape) -> Shape:
    """Return the shape of fields that have either of two shapes. A member that one of them lacks may be null.

    One without types only says whether the field may be null.
    """
    optional = one.optional or other.optional
    for empty, full in ((one, other), (other, one)):
        if not empty.names and not empty.members:
            return replace(full, optional=optional)
    names = dict(one.names)
    for kind, schemas in other.names.items():
        names[kind] = tuple(dict.fromkeys((*names.get(kind, ()), *schemas)))
    members = dict[str, Shape]()
    for name in dict.fromkeys((*one.members, *other.members)):
        both = [shape.members[name] for shape in (one, other) if name in shape.members]
        members[name] = merge(*both) if len(both) > 1 else _absent(both[0])
    items = one.items or other.items
    if one.items is not None and other.items is not None:
        items = merge(one.items, other.items)
    return Shape(
        names,
        optional,
        max(one.digits, other.digits),
        max(one.scale, other.scale),
        tuple(dict.fromkeys((*one.symbols, *other.symbols))),
        members,
        items,
    )


def _absent(shape: Shape) -> Shape:
    return replace(shape, optional=True)


def leaves(shape: Shape, outer: Path = ()) -> Iterator[tuple[Path, Shape]]:
    """Yield the fields of a record and of the records in it, by their paths. Fields of an optional record are
    optional."""
    for name, one in shape.members.items():
        path, inner = (*outer, name), _absent(one) if shape.optional and outer else one
        if inner.is_record and len(path) < MAX_DEPTH:
            yield from leaves(inner, path)
        else:
            yield path, inner
