"""Converts logical values, as rules use them, to physical values, as columns store them, and back.

See the table at the top of ``streamcore.schema``.
"""

from __future__ import annotations

from decimal import Decimal

from rulecore.language.types import Value
from streamcore.schema import Kind, Type


def to_physical(value: Value, kind: Type) -> Value:
    """Return the physical value: a decimal becomes a whole number, its value times ten to the scale; others stay.

    Raises ``ValueError`` for a value that the decimal type cannot hold exactly.
    """
    if kind.kind is not Kind.DECIMAL or value is None:
        return value
    if not isinstance(value, int | Decimal):
        raise ValueError(f"{value!r} is no {kind}")
    scaled = Decimal(value).scaleb(kind.scale)
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{value} has more than {kind.scale} digits after the point")
    return int(scaled)


def to_logical(value: Value, kind: Type) -> Value:
    """Return the logical value of a column's value; raise ``ValueError`` for a decimal that is no whole number."""
    if kind.kind is not Kind.DECIMAL or value is None:
        return value
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no physical {kind}")
    return Decimal(value).scaleb(-kind.scale)
