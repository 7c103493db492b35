"""Expressions of the settings: read, checked, and brought to the type of the field that they are for.

What would lose something on the way to a type is refused here, where it is written, with what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.errors import ExpressionError
from rulecore.lang import Call, Column, Expr, ListType, Literal, Scope, columns, lists, parse, rebuild
from streamcore.schema import BOOLEAN, DOUBLE, LONG, Kind, Type


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads expressions over some columns. ``lists``: those that may be asked."""

    types: Mapping[str, Type]
    lists: Mapping[str, ListType]

    def value(self, text: str, place: str, kind: Type) -> Expr:
        """Of that type; ``ExpressionError`` with the place in the document."""
        expr = parse(text, self._scope(), field=place, expect=None)
        fitted, hint = _fitted(expr, kind)
        if fitted is None:
            raise ExpressionError(
                f"{kind} is needed, this is {expr.type}", field=place, text=text, length=len(text), hint=hint
            )
        return fitted

    def condition(self, text: str, place: str) -> Expr:
        """True, false or unknown."""
        return parse(text, self._scope(), field=place, expect=BOOLEAN)

    def _scope(self) -> Scope:
        return Scope(self.types, lists=self.lists)


def nothing(kind: Type) -> Expr:
    """Null of that type."""
    return Literal(value=None, type=kind)


def asks_lists(expr: Expr) -> bool:
    """Whether it needs a list."""
    return bool(lists(expr))


def inlined(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """With expressions in place of the columns that they compute."""
    if isinstance(expr, Column):
        return known.get(expr.name, expr)
    if not columns(expr).intersection(known):
        return expr
    return rebuild(expr, lambda child: inlined(child, known))


def _fitted(expr: Expr, kind: Type) -> tuple[Expr | None, str]:
    """The expression in that type, or what to do."""
    found = expr.type
    if found == kind or (found.kind is kind.kind and kind.kind is not Kind.DECIMAL):
        return expr, ""
    exact = found.kind in (Kind.LONG, Kind.DECIMAL)
    if kind.kind is Kind.DECIMAL and exact and found.scale <= kind.scale:
        if found.kind is Kind.DECIMAL and found.scale == kind.scale and found.precision <= kind.precision:
            return expr, ""
        return Call.of("to_decimal", (expr, Literal.of(kind.precision), Literal.of(kind.scale))), ""
    if kind == DOUBLE and exact:
        return Call.of("to_double", (expr,)), ""
    return None, _hint(found, kind)


def _hint(found: Type, kind: Type) -> str:
    if kind.kind is Kind.DECIMAL and found.kind is Kind.DECIMAL:
        return f"it has more places than the field: round(..., {kind.scale})"
    converters = {
        Kind.DECIMAL: f"to_decimal(..., {kind.precision}, {kind.scale})",
        Kind.LONG: "to_long(...)" if found in (DOUBLE, LONG) or found.kind is Kind.STRING else "to_long(round(...))",
        Kind.DOUBLE: "to_double(...)",
        Kind.STRING: "to_text(...)",
        Kind.TIMESTAMP: "to_timestamp(...)",
        Kind.BOOLEAN: "a condition, such as ... = 'yes'",
    }
    return f"write: {converters[kind.kind]}"
