"""The functions of arrays and maps for the reference evaluator. Arrays are lists, maps and structs are dicts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from rulecore.language.ast import Call, Expr, LambdaParameter
from rulecore.language.reference.values import WIDE, coerce, coerce_number, compare, order
from streamcore.schema import DOUBLE, Kind


def _array(expr: Call, values: list[Any]) -> list[Any]:
    return [coerce(value, expr.type.items) for value in values]


def _map(expr: Call, values: list[Any]) -> dict[str, Any]:
    return {key: coerce(value, expr.type.items) for key, value in zip(values[::2], values[1::2], strict=True)}


def _element(expr: Expr) -> Expr:
    return LambdaParameter(name="x", type=expr.type.items)


def _contains(expr: Call, array: list[Any], value: Any) -> bool | None:
    """Return whether an element equals the value; None if none does and one is NULL."""
    found = [compare("=", item, value, _element(expr.arguments[0]), expr.arguments[1]) for item in array]
    return True if True in found else None if None in found else False


def _overlap(expr: Call, left: list[Any], right: list[Any]) -> bool | None:
    one, other = (_element(argument) for argument in expr.arguments)
    found = [compare("=", a, b, one, other) for a in left for b in right]
    return True if True in found else None if None in found else False


def _get(_expr: Call, array: list[Any], index: int) -> Any:
    return array[index] if 0 <= index < len(array) else None


def _element_at(expr: Call, nested: Any, key: Any) -> Any:
    if expr.arguments[0].type.kind is Kind.MAP:
        return nested.get(key)
    return nested[key - (key > 0)] if 0 < abs(key) <= len(nested) else None


def _extreme(array: list[Any], sign: int) -> Any:
    values = [value for value in array if value is not None]
    return functools.reduce(lambda a, b: a if order(a, b) * sign >= 0 else b, values) if values else None


def _sum(expr: Call, array: list[Any]) -> Any:
    values = [value for value in array if value is not None]
    if not values:
        return None
    if expr.type == DOUBLE:
        return functools.reduce(lambda a, b: a + b, values)
    total: Any = functools.reduce(WIDE.add, values) if isinstance(values[0], Decimal) else sum(values)
    return coerce_number(total, expr.type)


#: Functions that take NULL as a value.
CONSTRUCTORS: Mapping[str, Callable[[Call, list[Any]], Any]] = {"array": _array, "map": _map}
#: Functions that are NULL if an argument is NULL.
ARRAY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "cardinality": lambda _, nested: len(nested),
    "array_contains": _contains,
    "arrays_overlap": _overlap,
    "element_at": _element_at,
    "get": _get,
    "map_keys": lambda _, entries: [*entries],
    "map_values": lambda _, entries: [*entries.values()],
    "map_contains_key": lambda _, entries, key: key in entries,
    "array_min": lambda _, array: _extreme(array, -1),
    "array_max": lambda _, array: _extreme(array, 1),
    "array_sum": _sum,
}
