"""Conversion of constants to the type of another operand, and the growth of texts, for the type checker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from rulecore.language import types
from rulecore.language.ast import Call, Case, Expr, Literal
from rulecore.language.text_signatures import parse_replacement
from streamcore.schema import DOUBLE, LONG, TIMESTAMP, Kind, Type


def convert(literal: Literal, kind: Type) -> Literal | None:
    """Return the constant converted to ``kind``'s kind and scale; None if no value of ``kind`` can equal it."""
    value = literal.value
    if literal.type.kind is kind.kind and kind.kind is not Kind.DECIMAL:
        return literal
    if not isinstance(value, int | float | Decimal) or not types.is_numeric(kind) or isinstance(value, bool):
        return None
    if literal.type == TIMESTAMP:
        return None
    if kind == DOUBLE:
        return Literal.of(types.as_double(value))
    if isinstance(value, float):
        return None
    exact = Decimal(value)
    if kind == LONG:
        whole = exact == exact.to_integral_value() and types.MIN_LONG <= exact <= types.MAX_LONG
        return Literal.of(int(exact)) if whole else None
    rescaled = types.rescale(exact, kind.scale)
    return None if rescaled is None else Literal.of(rescaled)


def growth(expr: Expr) -> int:
    """Return how many times longer than its longest input text the result may be."""
    if not isinstance(expr, Call | Case):
        return 1
    inner = [growth(child) for child in expr.children]
    if isinstance(expr, Call) and expr.function == "concat":
        return sum(inner)
    if isinstance(expr, Call) and expr.function == "replace":
        old, new = expr.arguments[1:]
        sizes = [len(str(a.value).encode()) for a in (old, new) if isinstance(a, Literal)]
        return inner[0] * max(1, -(-sizes[1] // sizes[0]))
    if isinstance(expr, Call) and expr.function in _GROWING:
        return _GROWING[expr.function](expr) * max(inner)
    return max(inner)


def _of_replacement(expr: Call) -> int:
    """Return by how much ``regexp_replace`` may grow a text: each match may be one character, or none at all."""
    parts = parse_replacement(str(_constant(expr, 2)))
    return 1 + sum(1 if isinstance(part, int) else len(part.encode()) for part in parts)


def _constant(expr: Call, index: int) -> object:
    argument = expr.arguments[index]
    return argument.value if isinstance(argument, Literal) else None


#: Of functions whose result may be longer than their longest input: how many times.
_GROWING: Mapping[str, Callable[[Call], int]] = {
    "regexp_replace": _of_replacement,
    "concat_ws": lambda expr: len(expr.arguments) * 2 - 3,
    "repeat": lambda expr: max(1, int(str(_constant(expr, 1)))),
    "url_encode": lambda _: 3,
    "base64": lambda _: 2,
    "to_json": lambda _: 6,
}
