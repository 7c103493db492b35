"""The value types of columns and states: which values they accept, and the column in which the values are stored.

``coerce`` returns a value as a later read of its column returns it, so that memory and storage never differ. It raises
``ValueTypeMismatch`` for a value that would lose digits, or that is out of range or of another type. A state declares a
Polars type, a Python type, or nothing (any plain value, ``streamcore.keyed.value_codec``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeGuard, cast

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.value_codec import ValueTypeMismatch, check_text, check_value, describe, in_utc

#: A Polars type as an instance or a class: ``pl.Int64()`` or ``pl.Int64``.
ColumnType = pl.DataType | type[pl.DataType]

UTC_MS = pl.Datetime("ms", "UTC")


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of a column's or state's values. ``dtype``: the column in which they are stored.

    ``coerce``: returns a value as a later read returns it; None stays None. ``pack``, ``unpack``: convert to and from a
    plain value.
    """

    dtype: pl.DataType
    coerce: Callable[[Any], Any]
    pack: Callable[[Any], Any] = _identity
    unpack: Callable[[Any], Any] = _identity

    @property
    def binary(self) -> bool:
        """Return whether values are stored in the binary form of plain values."""
        return self.dtype == pl.Binary


def is_column_type(declared: object) -> TypeGuard[ColumnType]:
    """Return whether ``declared`` is a Polars type: an instance or a class."""
    return isinstance(declared, pl.DataType) or (isinstance(declared, type) and issubclass(declared, pl.DataType))


def is_stored_as(stored: pl.DataType, declared: pl.DataType) -> bool:
    """Return whether a stored column fits the declared type. The state log reads every signed integer as Int64."""
    return stored == declared or (stored == pl.Int64 and declared.is_signed_integer())


def value_type_for_column(declared: ColumnType) -> ValueType:
    """Return the value type of a column of rows; ``ConfigError`` for types that rows cannot have."""
    if not is_column_type(declared):
        raise ConfigError(f"{declared!r} is not a Polars type; write for example pl.Int64 or pl.Decimal(18, 2)")
    dtype = declared if isinstance(declared, pl.DataType) else declared()
    if (bounds := _INTEGER_BOUNDS.get(dtype)) is not None:
        return ValueType(dtype, _integer_coercion(*bounds))
    if isinstance(dtype, pl.Decimal):
        return ValueType(dtype, _decimal_coercion(dtype.precision or 38, dtype.scale))
    if (coerce := _COERCIONS.get(dtype)) is not None:
        return ValueType(dtype, coerce)
    if isinstance(dtype, pl.List):
        items = value_type_for_column(cast("ColumnType", dtype.inner))
        return ValueType(pl.List(items.dtype), _list_coercion(items.coerce))
    if isinstance(dtype, pl.Struct):
        fields = {field.name: value_type_for_column(cast("ColumnType", field.dtype)) for field in dtype.fields}
        struct = pl.Struct({name: field.dtype for name, field in fields.items()})
        return ValueType(struct, _struct_coercion({name: field.coerce for name, field in fields.items()}))
    raise ConfigError(
        f"{dtype!r}: columns are text, numbers, booleans, decimals, pl.Datetime('ms', 'UTC'), and lists and structs of "
        "these; choose one of them"
    )


def value_type_for_state(declared: object) -> ValueType:
    """Return the value type of a state; ``ConfigError`` for a declaration that a state cannot have.

    ``declared``: a Polars type, a Python type, a NamedTuple class, or None for any plain value.
    """
    if declared is None:
        return ValueType(pl.Binary(), _coerce_plain)
    if isinstance(declared, type) and (column := _COLUMN_TYPES.get(declared)) is not None:
        return value_type_for_column(column)
    if declared in (Decimal, bytes, tuple):
        return ValueType(pl.Binary(), _exact_coercion(declared))
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        return ValueType(pl.Binary(), _named_tuple_coercion(declared), tuple, declared._make)  # type: ignore[attr-defined]  # has _fields
    if is_column_type(declared):
        if declared == pl.Float32:
            raise ConfigError("pl.Float32 loses digits between two events of a key; declare pl.Float64")
        if isinstance(declared, pl.List | pl.Struct) or declared in (pl.List, pl.Struct):
            raise ConfigError(f"{declared!r} can change in place; declare a ListState, a MapState or a tuple")
        return value_type_for_column(declared)
    raise ConfigError(
        f"state cannot hold {declared!r}: declare int, float, bool, str, Decimal, bytes, datetime, tuple, a NamedTuple "
        "class, a Polars type, or nothing for any of these"
    )


def _require_none(value: Any, reason: str) -> None:
    """Accept None; raise ``ValueTypeMismatch`` for any other value. Called last, because None is rare."""
    if value is not None:
        raise ValueTypeMismatch(f"{describe(value)} {reason}")


def _integer_coercion(low: int, high: int) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        return _require_none(value, f"is not a whole number from {low} to {high}")

    return coerce


def _decimal_coercion(precision: int, scale: int) -> Callable[[Any], Any]:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)
    zero = Decimal(0).quantize(unit)

    def coerce(value: Any) -> Any:
        if (type(value) is Decimal and value.is_finite()) or type(value) is int:
            try:
                return Decimal(value).quantize(unit, context=context) or zero  # a column has no negative zero
            except (Inexact, InvalidOperation):
                pass
        return _require_none(value, f"is not an exact decimal of {precision} digits, {scale} of them after the point")

    return coerce


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    return _require_none(value, "is not a floating-point number")


def _float32(value: Any) -> Any:
    try:
        return None if value is None else struct.unpack("<f", struct.pack("<f", _float(value)))[0]
    except OverflowError:
        raise ValueTypeMismatch(f"{describe(value)} is too large for 32 bits") from None


def _bool(value: Any) -> Any:
    if type(value) is bool:
        return value
    return _require_none(value, "is not a boolean")


def _str(value: Any) -> Any:
    if type(value) is str:
        return value if value.isascii() else check_text(value)
    return _require_none(value, "is not text")


def _datetime(value: Any) -> Any:
    if type(value) is datetime:
        if value.microsecond % 1000:
            raise ValueTypeMismatch(f"{describe(value)} has microseconds; a datetime is kept in whole milliseconds")
        return in_utc(value)
    return _require_none(value, "is not a datetime")


def _coerce_plain(value: Any) -> Any:
    return check_value(value)


def _exact_coercion(exact_type: type) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is exact_type:
            return check_value(value)
        return _require_none(value, f"is not a {exact_type.__name__}")

    return coerce


def _named_tuple_coercion(exact_type: Any) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is exact_type:
            return exact_type._make(check_value(tuple(value)))
        return _require_none(value, f"is not a {exact_type.__name__}")

    return coerce


def _list_coercion(coerce_item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [coerce_item(item) for item in value]
        return _require_none(value, "is not a list")

    return coerce


def _struct_coercion(fields: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == fields.keys():
            return {name: coerce_field(value[name]) for name, coerce_field in fields.items()}
        return _require_none(value, f"is not a dictionary with the fields {[*fields]}")

    return coerce


_INTEGER_BOUNDS: dict[pl.DataType, tuple[int, int]] = {
    pl.Int8(): (-(2**7), 2**7 - 1),
    pl.Int16(): (-(2**15), 2**15 - 1),
    pl.Int32(): (-(2**31), 2**31 - 1),
    pl.Int64(): (-(2**63), 2**63 - 1),
    pl.UInt8(): (0, 2**8 - 1),
    pl.UInt16(): (0, 2**16 - 1),
    pl.UInt32(): (0, 2**32 - 1),
    pl.UInt64(): (0, 2**64 - 1),
}
_COERCIONS: dict[pl.DataType, Callable[[Any], Any]] = {
    pl.Float64(): _float,
    pl.Float32(): _float32,
    pl.Boolean(): _bool,
    pl.String(): _str,
    UTC_MS: _datetime,
}
_COLUMN_TYPES: dict[type, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    str: pl.String(),
    datetime: UTC_MS,
}
