"""How a producer writes its records, and the regular expression that vouches for records written so.

Producers write an object's fields in one order, some of them left out, and one kind of field in one way. A
``JsonShape``
is such a way of writing. Its pattern matches a record only if the whole text is JSON without anything that a columnar
parser might read otherwise than the reference does: every declared field at most once and with a literal of its type
(whole numbers of at most 18 digits, decimals of at most 15 as numbers), required fields present, no other field, no
half of a surrogate pair, no white space but one space after a colon or a comma. A record that a shape does not match is
not wrong; it is only not vouched for.

A decoder starts with the schema's own order and learns the shapes that it meets from samples. That only ever changes
the cost of a record, never its decoded values.
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
    LOCAL,
    OFFSET,
    REAL,
    WHOLE,
    DecimalText,
    Form,
    PlainLiteral,
    TimeText,
    decimal,
)
from streamcore.decode.scalar.json import JsonObject
from streamcore.decode.scalar.values import Number
from streamcore.schema import Field, Kind, StreamSchema

_SPACE = "[ ]?"
_HIGH, _LOW = r"u[dD][89abAB][0-9a-fA-F]{2}", r"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = rf'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{{2}}|{_HIGH}\\{_LOW})'
_TEXT = rf'"(?:[^"\\\x00-\x1f]|{_ESCAPE})*"'
_ANY_SCALAR = rf"(?:{_TEXT}|{REAL}|true|false|null)"
#: Levels of arrays and objects in an ignored field; each makes its part of the pattern five times longer.
MAX_IGNORED_DEPTH = 3


@dataclass(frozen=True, slots=True)
class JsonShape:
    """``order`` holds all declared names and the ignored ones that were met; ``forms`` those that are not plain.

    ``depths`` gives how many levels of arrays and objects the ignored fields have (0: none).
    """

    order: tuple[str, ...]
    forms: Mapping[str, Form]
    depths: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def form(self, name: str) -> Form:
        """How the field's values are written."""
        return self.forms.get(name, PlainLiteral())

    def pattern(self, schema: StreamSchema) -> str:
        """Return the regular expression (of linear time, no backtracking) for a whole record.

        The event time is in every record, so fields before it bring a comma behind them and fields after it a comma
        before them; thus each may be absent and none may come twice.
        """
        pivot = self.order.index(schema.event_time)
        before = [_optional(schema, name, rf"{self._pair(schema, name)},{_SPACE}") for name in self.order[:pivot]]
        after = [_optional(schema, name, rf",{_SPACE}{self._pair(schema, name)}") for name in self.order[pivot + 1 :]]
        return rf"\A\{{{''.join(before)}{self._pair(schema, schema.event_time)}{''.join(after)}\}}\z"

    def _pair(self, schema: StreamSchema, name: str) -> str:
        field = schema.get(name)
        if field is None:
            return f'"{re.escape(name)}":{_SPACE}{_any_value(self.depths.get(name, 0))}'
        literal = _literal(field, self.form(name))
        return f'"{name}":{_SPACE}' + (f"(?:{literal}|null)" if field.nullable else literal)


def initial_shape(schema: StreamSchema) -> JsonShape:
    """Return the fields in the schema's order, every literal the plain one."""
    return JsonShape(schema.names, {})


def learn_shape(schema: StreamSchema, samples: Iterable[JsonObject]) -> JsonShape | None:
    """Return a shape that fits the first of the valid ``samples`` and all others that go with it; None without any."""
    followers: dict[str, set[str]] = {}
    forms: dict[str, Form] = {}
    depths: dict[str, int] = {}
    for sample in samples:
        names = [name for name, _ in sample.pairs if _learnable(schema, name)]
        new_forms = {name: form for name, value in sample.pairs if (form := _literal_form(schema.get(name), value))}
        merged = {name: set(after) for name, after in followers.items()}
        for name, following in zip(names, [*names[1:], None], strict=True):
            merged.setdefault(name, set()).update([following] if following else [])
        if _topological_order(merged) is not None and all(forms.get(n, f) == f for n, f in new_forms.items()):
            followers = merged
            forms.update(new_forms)
            for name, value in sample.pairs:
                depths[name] = max(depths.get(name, 0), min(_depth(value), MAX_IGNORED_DEPTH))
    order = _topological_order(followers)
    if not order:
        return None
    return JsonShape(
        order=tuple(_with_unseen(schema, order)),
        forms={name: form for name, form in forms.items() if form != PlainLiteral()},
        depths={name: depth for name, depth in depths.items() if depth and schema.get(name) is None},
    )


def _learnable(schema: StreamSchema, name: str) -> bool:
    """Ignored fields are learned too, if their name needs no escape in JSON."""
    return schema.get(name) is not None or (name.isascii() and name.isprintable() and not set(name) & set('"\\'))


def _depth(value: object) -> int:
    """Levels of arrays and objects, up to one more than the limit."""
    if isinstance(value, JsonObject):
        inner: list[object] = [item for _, item in value.pairs]
    elif isinstance(value, list):
        inner = value
    else:
        return 0
    return 1 + max((_depth(item) for item in inner), default=0)


def _any_value(depth: int) -> str:
    """JSON of at most so many levels."""
    if depth == 0:
        return _ANY_SCALAR
    item = _any_value(depth - 1)
    member = f"{_TEXT}:{_SPACE}{item}"
    array = rf"\[(?:{item}(?:,{_SPACE}{item})*)?\]"
    return rf"(?:{_ANY_SCALAR}|{array}|\{{(?:{member}(?:,{_SPACE}{member})*)?\}})"


def _topological_order(followers: Mapping[str, set[str]]) -> list[str] | None:
    """Return an order in which every name is before its followers; None when there is none."""
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
    """Insert the declared fields that no sample had behind the one that the schema has before them."""
    result = list(order)
    for previous, name in zip((None, *schema.names[:-1]), schema.names, strict=True):
        if name not in result:
            result.insert(0 if previous is None else result.index(previous) + 1, name)
    return result


def _literal_form(field: Field | None, value: object) -> Form | None:
    """How a valid value is written; None when that is unknown (null, or a field whose type has one form)."""
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


def _literal(field: Field, form: Form) -> str:
    match form:
        case TimeText():
            zone = {0: "", 1: "Z", 6: OFFSET}[form.zone_chars]
            return f'"{LOCAL % re.escape(form.separator)}{zone}"'
        case DecimalText():
            return f'"{decimal(field.type.precision, field.type.scale)}"'
    if field.type.kind is Kind.DECIMAL:
        if field.type.scale > EXACT_DIGITS:
            return "0"
        return decimal(min(field.type.precision, EXACT_DIGITS), field.type.scale)
    return _LITERALS[field.type.kind]


_LITERALS: dict[Kind, str] = {
    Kind.BOOLEAN: "(?:true|false)",
    Kind.LONG: WHOLE,
    Kind.DOUBLE: REAL,
    Kind.STRING: _TEXT,
    Kind.TIMESTAMP: EPOCH_MS,
}
