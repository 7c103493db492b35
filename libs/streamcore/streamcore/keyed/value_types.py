"""Kinds of values: which values a column or a state takes, and the column in which they are kept.

``coerce`` answers the value as it will read back from its column, so that memory and storage never differ; what would
lose digits, range or type is a ``ValueTypeMismatch``. A state may declare a Polars type, a Python type, or nothing
(any plain value, ``streamcore.keyed.value_codec``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeGuard

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.value_codec import ValueTypeMismatch, check_text, check_value, describe, in_utc

#: A Polars type, with or without its brackets.
ColumnType = pl.DataType | type[pl.DataType]

UTC_MS = pl.Datetime("ms", "UTC")


def _identity(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class ValueType:
    """``coerce``: a value as it will read back; None stays None. ``pack``, ``unpack``: to and from a plain value."""

    dtype: pl.DataType
    coerce: Callable[[Any], Any]
    pack: Callable[[Any], Any] = _identity
    unpack: Callable[[Any], Any] = _identity

    @property
    def binary(self) -> bool:
        """Return whether the column holds the binary form of plain values."""
        return self.dtype == pl.Binary


def is_column_type(declared: object) -> TypeGuard[ColumnType]:
    """Return whether it is a Polars type, with or without its brackets."""
    return isinstance(declared, pl.DataType) or (isinstance(declared, type) and issubclass(declared, pl.DataType))


def is_stored_as(stored: pl.DataType, declared: pl.DataType) -> bool:
    """Return whether a stored column is of the declared type. The log stores whole numbers narrow and reads them as
    Int64."""
    return stored == declared or (stored == pl.Int64 and declared.is_signed_integer())


def value_type_for_column(declared: ColumnType) -> ValueType:
    """Return the kind of a column of rows; ``ConfigError`` for types that rows do not have."""
    if not is_column_type(declared):
        raise ConfigError(f"{declared!r} is no Polars type; write for example pl.Int64 or pl.Decimal(18, 2)")
    dtype = declared if isinstance(declared, pl.DataType) else declared()
    if (bounds := _BOUNDS.get(dtype)) is not None:
        return ValueType(dtype, _whole(*bounds))
    if isinstance(dtype, pl.Decimal):
        return ValueType(dtype, _decimal(dtype.precision or 38, dtype.scale))
    if (coerce := _COERCIONS.get(dtype)) is not None:
        return ValueType(dtype, coerce)
    raise ConfigError(
        f"{dtype!r}: columns are text, numbers, booleans, decimals and pl.Datetime('ms', 'UTC'); choose one of them"
    )


def value_type_for_state(declared: object) -> ValueType:
    """Return the kind of a state's values: a Polars type, a Python type, a NamedTuple class, or None for any plain
    value."""
    if declared is None:
        return ValueType(pl.Binary(), _any_plain)
    if isinstance(declared, type) and (column := _PYTHON.get(declared)) is not None:
        return value_type_for_column(column)
    if declared in (Decimal, bytes, tuple):
        return ValueType(pl.Binary(), _exactly(declared))
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        return ValueType(pl.Binary(), _record(declared), tuple, declared._make)  # type: ignore[attr-defined]  # has _fields
    if is_column_type(declared):
        if declared == pl.Float32:
            raise ConfigError("pl.Float32 loses digits between two events of a key; declare pl.Float64")
        return value_type_for_column(declared)
    raise ConfigError(
        f"state cannot hold {declared!r}: declare int, float, bool, str, Decimal, bytes, datetime, tuple, a NamedTuple "
        "class, a Polars type, or nothing for any of these"
    )


def _none(value: Any, otherwise: str) -> None:
    """Accept None, which is checked last because it is rare; refuse any other value."""
    if value is not None:
        raise ValueTypeMismatch(f"{describe(value)} {otherwise}")


def _whole(low: int, high: int) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        return _none(value, f"is no whole number from {low} to {high}")

    return coerce


def _decimal(precision: int, scale: int) -> Callable[[Any], Any]:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)
    zero = Decimal(0).quantize(unit)

    def coerce(value: Any) -> Any:
        if (type(value) is Decimal and value.is_finite()) or type(value) is int:
            try:
                return Decimal(value).quantize(unit, context=context) or zero  # a column knows no negative zero
            except (Inexact, InvalidOperation):
                pass
        return _none(value, f"is no exact decimal of {precision} digits, {scale} of them behind the point")

    return coerce


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    return _none(value, "is no floating-point number")


def _float32(value: Any) -> Any:
    try:
        return None if value is None else struct.unpack("<f", struct.pack("<f", _float(value)))[0]
    except OverflowError:
        raise ValueTypeMismatch(f"{describe(value)} is too large for 32 bits") from None


def _bool(value: Any) -> Any:
    if type(value) is bool:
        return value
    return _none(value, "is no boolean")


def _str(value: Any) -> Any:
    if type(value) is str:
        return value if value.isascii() else check_text(value)
    return _none(value, "is no text")


def _datetime(value: Any) -> Any:
    if type(value) is datetime:
        if value.microsecond % 1000:
            raise ValueTypeMismatch(f"{describe(value)} has microseconds; a datetime is kept in whole milliseconds")
        return in_utc(value)
    return _none(value, "is no datetime")


def _any_plain(value: Any) -> Any:
    return check_value(value)


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is wanted:
            return check_value(value)
        return _none(value, f"is no {wanted.__name__}")

    return coerce


def _record(wanted: Any) -> Callable[[Any], Any]:
    def coerce(value: Any) -> Any:
        if type(value) is wanted:
            return wanted._make(check_value(tuple(value)))
        return _none(value, f"is no {wanted.__name__}")

    return coerce


_BOUNDS: dict[pl.DataType, tuple[int, int]] = {
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
_PYTHON: dict[type, pl.DataType] = {
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
    str: pl.String(),
    datetime: UTC_MS,
}
