"""Expressions of the settings: read, checked, and brought to the type of the field that they are for.

A conversion that would lose information is refused here, at its place in the settings, with the correct form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.errors import ExpressionError
from rulecore.language import Call, ColumnRef, Expr, ListType, Literal, Scope, columns, lists, parse, rebuild
from streamcore.schema import BOOLEAN, DOUBLE, LONG, Kind, Type


@dataclass(frozen=True, slots=True)
class ExpressionReader:
    """Reads expressions over some columns. ``lists``: those that may be asked."""

    types: Mapping[str, Type]
    lists: Mapping[str, ListType]

    def value(self, text: str, place: str, kind: Type) -> Expr:
        """Of that type; ``ExpressionError`` with the place in the document."""
        expr = parse(text, self._scope(), field=place, expect=None)
        coerced, hint = _coerce(expr, kind)
        if coerced is None:
            raise ExpressionError(
                f"{kind} is needed, this is {expr.type}", field=place, text=text, length=len(text), hint=hint
            )
        return coerced

    def condition(self, text: str, place: str) -> Expr:
        """Parse a condition: true, false or unknown."""
        return parse(text, self._scope(), field=place, expect=BOOLEAN)

    def _scope(self) -> Scope:
        return Scope(self.types, lists=self.lists)


def null_of_type(kind: Type) -> Expr:
    """Null of that type."""
    return Literal(value=None, type=kind)


def asks_lists(expr: Expr) -> bool:
    """Whether it needs a list."""
    return bool(lists(expr))


def inline(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """With expressions in place of the columns that they compute."""
    if isinstance(expr, ColumnRef):
        return known.get(expr.name, expr)
    if not columns(expr).intersection(known):
        return expr
    return rebuild(expr, lambda child: inline(child, known))


def _coerce(expr: Expr, kind: Type) -> tuple[Expr | None, str]:
    """Convert the expression to that type, or return a hint."""
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
