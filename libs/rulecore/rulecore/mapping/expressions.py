"""Parses the expressions of the settings, checks them, and converts each to the type of its field.

An implicit conversion that would lose information is an error, which names the entry of the settings and the function
to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rulecore.errors import ExpressionError
from rulecore.language import Call, ColumnRef, Expr, ListType, Literal, Scope, columns, lists, parse, rebuild
from streamcore.schema import BOOLEAN, DOUBLE, LONG, Kind, Type


@dataclass(frozen=True, slots=True)
class ExpressionReader:
    """Parses expressions.

    ``types``: the columns that they may read; ``lists``: the lists that they may use; ``secrets``: the file of each key
    that they may name.
    """

    types: Mapping[str, Type]
    lists: Mapping[str, ListType]
    secrets: Mapping[str, str] = field(default_factory=dict)

    def value(self, text: str, path: str, type_: Type) -> Expr:
        """Parse an expression and convert it to ``type_``. ``ExpressionError`` names ``path``, the entry of the
        settings.
        """
        expr = self.any_value(text, path)
        coerced, hint = _coerce(expr, type_)
        if coerced is None:
            raise ExpressionError(
                f"{type_} is needed, this is {expr.type}", field=path, text=text, length=len(text), hint=hint
            )
        return coerced

    def any_value(self, text: str, path: str) -> Expr:
        """Parse an expression of any type. ``ExpressionError`` names ``path``, the entry of the settings."""
        return parse(text, self._scope(), field=path, expect=None)

    def condition(self, text: str, path: str) -> Expr:
        """Parse a condition. ``ExpressionError`` names ``path``, the entry of the settings."""
        return parse(text, self._scope(), field=path, expect=BOOLEAN)

    def _scope(self) -> Scope:
        return Scope(self.types, lists=self.lists, secrets=self.secrets)


def null_of_type(type_: Type) -> Expr:
    """Return the literal null, with the type."""
    return Literal(value=None, type=type_)


def uses_lists(expr: Expr) -> bool:
    """Whether the expression reads a list."""
    return bool(lists(expr))


def inline(expr: Expr, known: Mapping[str, Expr]) -> Expr:
    """Replace each column in ``known`` by the expression that computes it."""
    if isinstance(expr, ColumnRef):
        return known.get(expr.name, expr)
    if not columns(expr).intersection(known):
        return expr
    return rebuild(expr, lambda child: inline(child, known))


def _coerce(expr: Expr, type_: Type) -> tuple[Expr | None, str]:
    """Return the expression converted to the type; None and a hint if the conversion could lose information."""
    given = expr.type
    if given == type_ or (given.kind is type_.kind and type_.kind is not Kind.DECIMAL):
        return expr, ""
    exact = given.kind in (Kind.LONG, Kind.DECIMAL)
    if type_.kind is Kind.DECIMAL and exact and given.scale <= type_.scale:
        if given.kind is Kind.DECIMAL and given.scale == type_.scale and given.precision <= type_.precision:
            return expr, ""
        return Call.of("to_decimal", (expr, Literal.of(type_.precision), Literal.of(type_.scale))), ""
    if type_ == DOUBLE and exact:
        return Call.of("to_double", (expr,)), ""
    return None, _hint(given, type_)


def _hint(given: Type, type_: Type) -> str:
    if type_.kind is Kind.DECIMAL and given.kind is Kind.DECIMAL:
        return f"it has more places than the field: round(..., {type_.scale})"
    converters = {
        Kind.DECIMAL: f"to_decimal(..., {type_.precision}, {type_.scale})",
        Kind.LONG: "to_long(...)" if given in (DOUBLE, LONG) or given.kind is Kind.STRING else "to_long(round(...))",
        Kind.DOUBLE: "to_double(...)",
        Kind.STRING: "to_text(...)",
        Kind.TIMESTAMP: "to_timestamp(...)",
        Kind.BOOLEAN: "a condition, such as ... = 'yes'",
    }
    return f"write: {converters[type_.kind]}"
