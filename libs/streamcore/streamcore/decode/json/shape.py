"""The shape of a producer's JSON records, and a regular expression for records that can be decoded in columns.

A producer usually writes the fields of its objects in one order, some of them left out, and the values of a field in
one notation. A ``JsonShape`` describes this. Its pattern matches a record only if a columnar parser reads it as the
reference does: each declared field at most once and with a literal of its type (integers of at most 18 digits,
decimals as numbers of at most 15), all required fields, only ignored other fields, no lone surrogates, and no white
space except one space after a colon or comma. A record that no shape matches is left to the reference.

A decoder begins with the schema's order of fields and learns other shapes from samples. That changes the cost of a
record, never its decoded values.
"""

from __future__ import annotations

import dataclasses
import graphlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamcore.decode.literal_patterns import (
    EPOCH_MS,
    EXACT_DIGITS,
    LOCAL_TIME,
    REAL,
    UTC_OFFSET,
    WHOLE,
    DecimalText,
    Notation,
    PlainLiteral,
    TimeText,
    decimal_pattern,
)
from streamcore.decode.scalar.json import JsonObject
from streamcore.decode.scalar.values import Number
from streamcore.schema import Field, Kind, StreamSchema

_SPACE = "[ ]?"
_HIGH, _LOW = r"u[dD][89abAB][0-9a-fA-F]{2}", r"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = rf'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{{2}}|{_HIGH}\\{_LOW})'
_TEXT = rf'"(?:[^"\\\x00-\x1f]|{_ESCAPE})*"'
_ANY_SCALAR = rf"(?:{_TEXT}|{REAL}|true|false|null)"
#: The most levels of arrays and objects in an ignored field. Each makes the field's pattern five times longer.
MAX_IGNORED_DEPTH = 3


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The order of a record's fields and the notation of their values.

    ``order``: the names of all declared fields and of the ignored fields in the samples. ``notations``: those
    other than ``PlainLiteral``, by field. ``depths``: the levels of arrays and objects in each ignored field; a
    missing one has none.
    """

    order: tuple[str, ...]
    notations: Mapping[str, Notation]
    depths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def notation(self, name: str) -> Notation:
        """Return the notation of the field's values."""
        return self.notations.get(name, PlainLiteral())

    def pattern(self, schema: StreamSchema) -> str:
        """Return the regular expression, without backtracking, for a whole record.

        The event time is in every record. Fields before it have their comma after them, fields after it before them, so
        that each of them may be absent.
        """
        pivot = self.order.index(schema.event_time)
        before = [_optional(schema, name, rf"{self._pair(schema, name)},{_SPACE}") for name in self.order[:pivot]]
        after = [_optional(schema, name, rf",{_SPACE}{self._pair(schema, name)}") for name in self.order[pivot + 1 :]]
        return rf"\A\{{{''.join(before)}{self._pair(schema, schema.event_time)}{''.join(after)}\}}\z"

    def _pair(self, schema: StreamSchema, name: str) -> str:
        field = schema.get(name)
        if field is None:
            return f'"{re.escape(name)}":{_SPACE}{_any_value(self.depths.get(name, 0))}'
        literal = _literal(field, self.notation(name))
        return f'"{name}":{_SPACE}' + (f"(?:{literal}|null)" if field.nullable else literal)


def initial_shape(schema: StreamSchema) -> JsonShape:
    """Return the shape with the fields in the schema's order and plain literals."""
    return JsonShape(schema.names, {})


def learn_shape(schema: StreamSchema, samples: Iterable[JsonObject]) -> JsonShape | None:
    """Return a shape that matches the first sample and all later ones that do not contradict it; None without samples.

    ``samples``: records that the reference accepts.
    """
    followers: dict[str, set[str]] = {}
    notations: dict[str, Notation] = {}
    depths: dict[str, int] = {}
    for sample in samples:
        names = [name for name, _ in sample.pairs if _learnable(schema, name)]
        new_notations = {
            name: notation for name, value in sample.pairs if (notation := _detect_notation(schema.get(name), value))
        }
        merged = {name: set(after) for name, after in followers.items()}
        for name, following in zip(names, [*names[1:], None], strict=True):
            merged.setdefault(name, set()).update([following] if following else [])
        if _topological_order(merged) is not None and all(notations.get(n, f) == f for n, f in new_notations.items()):
            followers = merged
            notations.update(new_notations)
            for name, value in sample.pairs:
                depths[name] = max(depths.get(name, 0), min(_depth(value), MAX_IGNORED_DEPTH))
    order = _topological_order(followers)
    if not order:
        return None
    return JsonShape(
        order=tuple(_with_unseen(schema, order)),
        notations={name: notation for name, notation in notations.items() if notation != PlainLiteral()},
        depths={name: depth for name, depth in depths.items() if depth and schema.get(name) is None},
    )


def _learnable(schema: StreamSchema, name: str) -> bool:
    """Return whether a shape may have the field: if it is declared, or its name needs no escapes in JSON."""
    return schema.get(name) is not None or (name.isascii() and name.isprintable() and not set(name) & set('"\\'))


def _depth(value: object) -> int:
    """Return the levels of arrays and objects in a value."""
    if isinstance(value, JsonObject):
        inner: list[object] = [item for _, item in value.pairs]
    elif isinstance(value, list):
        inner = value
    else:
        return 0
    return 1 + max((_depth(item) for item in inner), default=0)


def _any_value(depth: int) -> str:
    """Return the pattern of a JSON value with at most ``depth`` levels of arrays and objects."""
    if depth == 0:
        return _ANY_SCALAR
    item = _any_value(depth - 1)
    member = f"{_TEXT}:{_SPACE}{item}"
    array = rf"\[(?:{item}(?:,{_SPACE}{item})*)?\]"
    return rf"(?:{_ANY_SCALAR}|{array}|\{{(?:{member}(?:,{_SPACE}{member})*)?\}})"


def _topological_order(followers: Mapping[str, set[str]]) -> list[str] | None:
    """Return an order in which every name is before its followers; None if they contradict each other."""
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for name, after in followers.items():
        sorter.add(name)
        for following in sorted(after):
            sorter.add(following, name)
    try:
        return list(sorter.static_order())
    except graphlib.CycleError:
        return None


def _with_unseen(schema: StreamSchema, order: Sequence[str]) -> list[str]:
    """Insert each declared field that no sample had after its predecessor in the schema."""
    result = list(order)
    for previous, name in zip((None, *schema.names[:-1]), schema.names, strict=True):
        if name not in result:
            result.insert(0 if previous is None else result.index(previous) + 1, name)
    return result


def _detect_notation(field: Field | None, value: object) -> Notation | None:
    """Return the notation of a valid value; None if it is null, or its type has only one."""
    if field is None or value is None or field.type.kind not in (Kind.DECIMAL, Kind.TIMESTAMP):
        return None
    if isinstance(value, Number) or not isinstance(value, str):
        return PlainLiteral()
    if field.type.kind is Kind.DECIMAL:
        return DecimalText()
    tail = value[19:]
    zone_chars = 1 if tail.endswith("Z") else 6 if "+" in tail or "-" in tail else 0
    return TimeText(separator=value[10:11], zone_chars=zone_chars)


def _optional(schema: StreamSchema, name: str, pair: str) -> str:
    field = schema.get(name)
    return pair if field is not None and not field.nullable else f"(?:{pair})?"


def _literal(field: Field, notation: Notation) -> str:
    match notation:
        case TimeText():
            zone = {0: "", 1: "Z", 6: UTC_OFFSET}[notation.zone_chars]
            return f'"{LOCAL_TIME % re.escape(notation.separator)}{zone}"'
        case DecimalText():
            return f'"{decimal_pattern(field.type.precision, field.type.scale)}"'
    if field.type.kind is Kind.DECIMAL:
        if field.type.scale > EXACT_DIGITS:
            return "0"
        return decimal_pattern(min(field.type.precision, EXACT_DIGITS), field.type.scale)
    return _LITERALS[field.type.kind]


_LITERALS: dict[Kind, str] = {
    Kind.BOOLEAN: "(?:true|false)",
    Kind.LONG: WHOLE,
    Kind.DOUBLE: REAL,
    Kind.STRING: _TEXT,
    Kind.TIMESTAMP: EPOCH_MS,
}
