"""Kinds of values: which values a column or a state takes, and the column in which they are kept.

``fit`` answers the value as it will read back from its column, so that memory and storage never differ; what would
lose digits, range or type is a ``Misfit``. A state may declare a Polars type, a Python type, or nothing (any plain
value, ``streamcore.keyed.plain``).
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
from streamcore.keyed.plain import Misfit, in_utc, plain, show, text

#: A Polars type, with or without its brackets.
ColumnType = pl.DataType | type[pl.DataType]

UTC_MS = pl.Datetime("ms", "UTC")


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """``fit``: a value as it will read back; None stays None. ``pack``, ``unpack``: to and from a plain value."""

    dtype: pl.DataType
    fit: Callable[[Any], Any]
    pack: Callable[[Any], Any] = _itself
    unpack: Callable[[Any], Any] = _itself

    @property
    def binary(self) -> bool:
        """Whether the column holds the binary form of plain values."""
        return self.dtype == pl.Binary


def is_column_type(declared: object) -> TypeGuard[ColumnType]:
    """Whether it is a Polars type, with or without its brackets."""
    return isinstance(declared, pl.DataType) or (isinstance(declared, type) and issubclass(declared, pl.DataType))


def reads_as(stored: pl.DataType, declared: pl.DataType) -> bool:
    """Whether a stored column is of the declared type. The log stores whole numbers narrow and reads them as Int64."""
    return stored == declared or (stored == pl.Int64 and declared.is_signed_integer())


def column_kind(declared: ColumnType) -> Kind:
    """The kind of a column of rows; ``ConfigError`` for types that rows do not have."""
    if not is_column_type(declared):
        raise ConfigError(f"{declared!r} is no Polars type; write for example pl.Int64 or pl.Decimal(18, 2)")
    dtype = declared if isinstance(declared, pl.DataType) else declared()
    if (bounds := _BOUNDS.get(dtype)) is not None:
        return Kind(dtype, _whole(*bounds))
    if isinstance(dtype, pl.Decimal):
        return Kind(dtype, _decimal(dtype.precision or 38, dtype.scale))
    if (fit := _FITS.get(dtype)) is not None:
        return Kind(dtype, fit)
    raise ConfigError(
        f"{dtype!r}: columns are text, numbers, booleans, decimals and pl.Datetime('ms', 'UTC'); choose one of them"
    )


def state_kind(declared: object) -> Kind:
    """The kind of a state's values: a Polars type, a Python type, a NamedTuple class, or None for any plain value."""
    if declared is None:
        return Kind(pl.Binary(), _something)
    if isinstance(declared, type) and (column := _PYTHON.get(declared)) is not None:
        return column_kind(column)
    if declared in (Decimal, bytes, tuple):
        return Kind(pl.Binary(), _exactly(declared))
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        return Kind(pl.Binary(), _record(declared), tuple, declared._make)  # type: ignore[attr-defined]  # has _fields
    if is_column_type(declared):
        if declared == pl.Float32:
            raise ConfigError("pl.Float32 loses digits between two events of a key; declare pl.Float64")
        return column_kind(declared)
    raise ConfigError(
        f"state cannot hold {declared!r}: declare int, float, bool, str, Decimal, bytes, datetime, tuple, a NamedTuple "
        "class, a Polars type, or nothing for any of these"
    )


def _none(value: Any, otherwise: str) -> None:
    """None stays None; asked last, for it is rare."""
    if value is not None:
        raise Misfit(f"{show(value)} {otherwise}")


def _whole(low: int, high: int) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        return _none(value, f"is no whole number from {low} to {high}")

    return fit


def _decimal(precision: int, scale: int) -> Callable[[Any], Any]:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-scale)
    zero = Decimal(0).quantize(unit)

    def fit(value: Any) -> Any:
        if (type(value) is Decimal and value.is_finite()) or type(value) is int:
            try:
                return Decimal(value).quantize(unit, context=context) or zero  # a column knows no negative zero
            except (Inexact, InvalidOperation):
                pass
        return _none(value, f"is no exact decimal of {precision} digits, {scale} of them behind the point")

    return fit


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
        raise Misfit(f"{show(value)} is too large for 32 bits") from None


def _bool(value: Any) -> Any:
    if type(value) is bool:
        return value
    return _none(value, "is no boolean")


def _str(value: Any) -> Any:
    if type(value) is str:
        return value if value.isascii() else text(value)
    return _none(value, "is no text")


def _datetime(value: Any) -> Any:
    if type(value) is datetime:
        if value.microsecond % 1000:
            raise Misfit(f"{show(value)} has microseconds; a datetime is kept in whole milliseconds")
        return in_utc(value)
    return _none(value, "is no datetime")


def _something(value: Any) -> Any:
    return plain(value)


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if type(value) is wanted:
            return plain(value)
        return _none(value, f"is no {wanted.__name__}")

    return fit


def _record(wanted: Any) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if type(value) is wanted:
            return wanted._make(plain(tuple(value)))
        return _none(value, f"is no {wanted.__name__}")

    return fit


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
_FITS: dict[pl.DataType, Callable[[Any], Any]] = {
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
