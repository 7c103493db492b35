"""Checks that a value in a store's answer has the type that was declared for its column.

The check is strict: no value is parsed, rounded or truncated, because a store that returns another type than declared
is a mistake that must be seen. Three conversions are made: a whole number becomes a float or a decimal, a time becomes
UTC, and the microseconds of a time are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import polars as pl

Coercion = Callable[[object], object]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MAX_DIGITS = 38
_EXACT_CONTEXT = Context(prec=2 * _MAX_DIGITS)
UTC_MS = pl.Datetime("ms", "UTC")


class AnswerTypeMismatch(ValueError):
    """A value does not have its declared type."""


def is_supported(dtype: pl.DataType) -> bool:
    """Return whether an enrichment can add columns of this type."""
    return dtype in _COERCIONS or isinstance(dtype, pl.Decimal)


def coercion_for(dtype: pl.DataType) -> Coercion:
    """Return a function that checks a value and converts it for ``to_series``.

    The function raises ``AnswerTypeMismatch``, and returns None for None.
    """
    convert = _decimal_coercion(dtype) if isinstance(dtype, pl.Decimal) else _COERCIONS[dtype]
    return lambda value: None if value is None else convert(value)


def to_series(name: str, values: list[object], dtype: pl.DataType) -> pl.Series:
    """Return a column of values that ``coercion_for`` converted."""
    if dtype == UTC_MS:
        return pl.Series(name, values, dtype=pl.Int64).cast(UTC_MS)
    return pl.Series(name, values, dtype=dtype)


def _convert_text(value: object) -> object:
    if not isinstance(value, str):
        raise _mismatch(value, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise AnswerTypeMismatch(f"text that is not Unicode: {error.reason}") from None
    return str.__str__(value)


def _convert_integer(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch(value, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise AnswerTypeMismatch("a whole number of more than 64 bits")
    return int(value)


def _convert_float(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _mismatch(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise AnswerTypeMismatch("a number too large for 64 bits") from None


def _convert_boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _mismatch(value, "true or false")
    return value


def _convert_time(value: object) -> object:
    if not isinstance(value, datetime):
        raise _mismatch(value, "a datetime")
    if value.tzinfo is None:
        raise AnswerTypeMismatch("a datetime without a zone")
    return (value - _EPOCH) // _MILLISECOND


def _decimal_coercion(dtype: pl.Decimal) -> Coercion:
    precision, scale = dtype.precision or _MAX_DIGITS, dtype.scale
    unit = Decimal(1).scaleb(-scale)

    def convert(value: object) -> object:
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise _mismatch(value, "a decimal")
        number = Decimal(value)
        if not number.is_finite():
            raise AnswerTypeMismatch("a decimal that is not finite")
        if number and number.adjusted() >= precision - scale:
            raise AnswerTypeMismatch(f"a decimal of more than {precision - scale} digits before the point")
        exact = number.quantize(unit, context=_EXACT_CONTEXT)
        if exact != number:
            raise AnswerTypeMismatch(f"a decimal of more than {scale} digits after the point")
        return exact

    return convert


def _mismatch(value: object, expected: str) -> AnswerTypeMismatch:
    return AnswerTypeMismatch(f"{type(value).__name__} where {expected} was declared")


_COERCIONS: dict[pl.DataType, Coercion] = {
    pl.String(): _convert_text,
    pl.Int64(): _convert_integer,
    pl.Float64(): _convert_float,
    pl.Boolean(): _convert_boolean,
    UTC_MS: _convert_time,
}
