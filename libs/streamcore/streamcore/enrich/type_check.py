"""Whether a value that a store answered is of the type that was declared for its column.

Strict: nothing is parsed, rounded or cut to size, since a store that returns another type than declared is a
mistake that should be seen. Three conversions lose nothing that matters: a whole number becomes a float or a decimal,
a time of another zone becomes UTC, and microseconds of a time are left off.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal

import polars as pl

Coercion = Callable[[object], object]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MOST_DIGITS = 38
_WIDE = Context(prec=2 * _MOST_DIGITS)
UTC_MS = pl.Datetime("ms", "UTC")


class AnswerTypeMismatch(ValueError):
    """A value that is not of its declared type."""


def is_supported(dtype: pl.DataType) -> bool:
    """Return whether there are columns of this type."""
    return dtype in _COERCIONS or isinstance(dtype, pl.Decimal)


def coercion_for(dtype: pl.DataType) -> Coercion:
    """Return a function that converts a value for ``series``; it raises ``AnswerTypeMismatch``. Null always fits."""
    fit = _decimal(dtype) if isinstance(dtype, pl.Decimal) else _COERCIONS[dtype]
    return lambda value: None if value is None else fit(value)


def to_series(name: str, values: list[object], dtype: pl.DataType) -> pl.Series:
    """Return a column of values that fitted."""
    if dtype == UTC_MS:
        return pl.Series(name, values, dtype=pl.Int64).cast(UTC_MS)
    return pl.Series(name, values, dtype=dtype)


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise _mismatch(value, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise AnswerTypeMismatch(f"text that is not Unicode: {error.reason}") from None
    return str.__str__(value)


def _whole(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch(value, "a whole number")
    if not -(2**63) <= value < 2**63:
        raise AnswerTypeMismatch("a whole number of more than 64 bits")
    return int(value)


def _float(value: object) -> object:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _mismatch(value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise AnswerTypeMismatch("a number too large for 64 bits") from None


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _mismatch(value, "true or false")
    return value


def _time(value: object) -> object:
    if not isinstance(value, datetime):
        raise _mismatch(value, "a datetime")
    if value.tzinfo is None:
        raise AnswerTypeMismatch("a datetime without a zone")
    return (value - _EPOCH) // _MILLISECOND


def _decimal(dtype: pl.Decimal) -> Coercion:
    precision, scale = dtype.precision or _MOST_DIGITS, dtype.scale
    unit = Decimal(1).scaleb(-scale)

    def fit(value: object) -> object:
        if not isinstance(value, int | Decimal) or isinstance(value, bool):
            raise _mismatch(value, "a decimal")
        number = Decimal(value)
        if not number.is_finite():
            raise AnswerTypeMismatch("a decimal that is no number")
        if number and number.adjusted() >= precision - scale:
            raise AnswerTypeMismatch(f"a decimal of more than {precision - scale} digits before the point")
        exact = number.quantize(unit, context=_WIDE)
        if exact != number:
            raise AnswerTypeMismatch(f"a decimal of more than {scale} digits behind the point")
        return exact

    return fit


def _mismatch(value: object, wanted: str) -> AnswerTypeMismatch:
    return AnswerTypeMismatch(f"{type(value).__name__} where {wanted} was declared")


_COERCIONS: dict[pl.DataType, Coercion] = {
    pl.String(): _text,
    pl.Int64(): _whole,
    pl.Float64(): _float,
    pl.Boolean(): _boolean,
    UTC_MS: _time,
}
