"""Converts logical values, as rules use them, to physical values, as columns store them, and back.

See the table at the top of ``streamcore.schema``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from streamcore.schema import Kind, Type
from streamcore.wire.map_entries import KEY, VALUE


def to_physical(value: Any, kind: Type) -> Any:
    """Return the physical value: a decimal becomes a whole number, its value times ten to the scale.

    A map becomes the list of its entries. Raises ``ValueError`` for a value that the decimal type cannot hold exactly.
    """
    if value is None:
        return None
    match kind.kind:
        case Kind.ARRAY:
            return [to_physical(item, kind.items) for item in value]
        case Kind.MAP:
            return [{KEY: key, VALUE: to_physical(item, kind.items)} for key, item in value.items()]
        case Kind.STRUCT:
            return {name: to_physical(value.get(name), member) for name, member in kind.members}
        case Kind.DECIMAL:
            return _to_digits(value, kind)
    return value


def _to_digits(value: object, kind: Type) -> int:
    if not isinstance(value, int | Decimal):
        raise ValueError(f"{value!r} is no {kind}")
    scaled = Decimal(value).scaleb(kind.scale)
    if scaled != scaled.to_integral_value():
        raise ValueError(f"{value} has more than {kind.scale} digits after the point")
    return int(scaled)


def to_logical(value: Any, kind: Type) -> Any:
    """Return the logical value of a column's value; raise ``ValueError`` for a decimal that is no whole number.

    That of an array is a list, that of a struct or a map a dict.
    """
    if value is None:
        return None
    match kind.kind:
        case Kind.ARRAY:
            return [to_logical(item, kind.items) for item in value]
        case Kind.MAP:
            return {entry[KEY]: to_logical(entry[VALUE], kind.items) for entry in value}
        case Kind.STRUCT:
            return {name: to_logical(value[name], member) for name, member in kind.members}
        case Kind.DECIMAL:
            return _to_decimal(value, kind)
    return value


def _to_decimal(value: object, kind: Type) -> Decimal:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no physical {kind}")
    return Decimal(value).scaleb(-kind.scale)
