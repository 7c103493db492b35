"""Conversions between types as Polars formulas: text to numbers and back. A value without an exact conversion is NULL.

The whole text must be a number, and a number with digits that do not fit becomes NULL. Only the conversion of a double
to a decimal rounds, since a double is not exact itself.
"""

from __future__ import annotations

import polars as pl

from rulecore.language.columnar.operators import ComputedOperand, let
from streamcore.schema import BOOLEAN, DOUBLE, STRING, TIMESTAMP, Type

#: Patterns of the whole text; the reference evaluator accepts the same texts.
LONG_TEXT = r"[+-]?[0-9]{1,19}"
DECIMAL_TEXT = r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,36})?|\.[0-9]{1,36})"
DOUBLE_TEXT = r"[+-]?(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})(?:[eE][+-]?[0-9]{1,3})?"

_WIDE = pl.Int128
_LONG_END = 2.0**63  # the smallest double above all longs


def to_long(operand: ComputedOperand) -> pl.Expr:
    """Convert to long; NULL for a value that is not a whole number of 64 bits."""
    if operand.type == STRING:
        return let([operand], lambda v: _matching(v, LONG_TEXT).str.strip_prefix("+").cast(pl.Int64, strict=False))
    if operand.type == DOUBLE:
        whole = let([operand], lambda v: pl.when((v.floor() == v) & (v >= -_LONG_END) & (v < _LONG_END)).then(v))
        return whole.cast(pl.Int64, strict=False)
    unit = 10**operand.type.scale
    return let([operand], lambda v: pl.when(v % unit == 0).then(v // unit)) if unit > 1 else operand.expr


def to_double(operand: ComputedOperand) -> pl.Expr:
    """Convert to double; NULL for text that is not a finite number."""
    if operand.type != STRING:
        return operand.to_double()

    def read(text: pl.Expr) -> pl.Expr:
        return _matching(text, DOUBLE_TEXT).str.strip_prefix("+").cast(pl.Float64, strict=False)

    return let([ComputedOperand(let([operand], read), DOUBLE)], lambda v: pl.when(v.is_finite()).then(v))


def to_decimal(operand: ComputedOperand, kind: Type) -> pl.Expr:
    """Convert to the decimal type ``kind``; NULL for a value that does not fit. Only doubles are rounded."""
    if operand.type == STRING:
        wide = let([operand], lambda v: _digits_of_text(v, kind.scale))
    elif operand.type == DOUBLE:
        wide = let([operand], lambda v: _digits_of_double(v, kind.scale))
    else:
        wide = _rescale(operand, kind.scale)
    return within(wide, kind)


def round_text(operand: ComputedOperand, kind: Type) -> pl.Expr:
    """Convert text to a decimal, rounded half away from zero; NULL for other text and a value that does not fit."""
    return within(let([operand], lambda v: _digits_of_text(v, kind.scale, rounded=True)), kind)


def within(wide: pl.Expr, kind: Type) -> pl.Expr:
    """Return digits in 128 bits as a decimal; NULL for those that do not fit the type."""
    limit = pl.lit(10**kind.precision, dtype=_WIDE)
    return let([ComputedOperand(wide, kind)], lambda v: pl.when(v.abs() < limit).then(v)).cast(pl.Int64)


def to_text(operand: ComputedOperand) -> pl.Expr:
    """Convert to text: numbers in plain digits, decimals with all places, booleans, times as ISO 8601 in UTC."""
    if operand.type == STRING:
        return operand.expr
    if operand.type == BOOLEAN:
        return let([operand], lambda v: pl.when(v).then(pl.lit("true")).when(~v).then(pl.lit("false")))
    if operand.type == TIMESTAMP:
        return let([operand], _text_of_time)
    scale = operand.type.scale
    if scale == 0:
        return operand.expr.cast(pl.String)
    return let([operand], lambda v: _text_of_digits(v, scale))


def _matching(text: pl.Expr, pattern: str) -> pl.Expr:
    """Return the text if all of it matches, else NULL."""
    return pl.when(text.str.contains(rf"\A(?:{pattern})\z")).then(text)


def _digits_of_text(text: pl.Expr, scale: int, *, rounded: bool = False) -> pl.Expr:
    """Return the digits of a decimal in text at ``scale``, in 128 bits; NULL for other text.

    More places are NULL, or ``rounded`` half away from zero.
    """
    read = _matching(text, DECIMAL_TEXT)
    whole = read.str.extract(r"\A[+-]?([0-9]*)").str.pad_start(1, "0").cast(_WIDE)
    places = read.str.extract(r"\.([0-9]*)\z").fill_null("").str.strip_chars_end("0")
    more = places.str.slice(scale, 1).str.contains("[5-9]") if rounded else None
    kept = places.str.head(scale) if rounded else places
    fraction = kept.str.pad_end(max(1, scale), "0").cast(_WIDE, strict=False) if scale else pl.lit(0, dtype=_WIDE)
    digits = whole * pl.lit(10**scale, dtype=_WIDE) + fraction
    digits = digits if more is None else digits + more.cast(_WIDE)
    signed = pl.when(read.str.starts_with("-")).then(pl.lit(0, dtype=_WIDE) - digits).otherwise(digits)
    return signed if rounded else pl.when(places.str.len_chars() <= scale).then(signed)


def _digits_of_double(value: pl.Expr, scale: int) -> pl.Expr:
    scaled = (value * pl.lit(10.0**scale)).round(0, mode="half_away_from_zero")
    return pl.when(scaled.abs() < _LONG_END).then(scaled).cast(pl.Int64, strict=False).cast(_WIDE)


def _rescale(operand: ComputedOperand, scale: int) -> pl.Expr:
    if scale >= operand.type.scale:
        return operand.rescale(scale, wide=True)
    unit = pl.lit(10 ** (operand.type.scale - scale), dtype=pl.Int64)
    return let([operand], lambda v: pl.when(v % unit == 0).then(v // unit)).cast(_WIDE)


def _text_of_digits(value: pl.Expr, scale: int) -> pl.Expr:
    digits = value.abs().cast(pl.String).str.zfill(scale + 1)
    sign = pl.when(value < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str([sign, digits.str.head(-scale), pl.lit("."), digits.str.tail(scale)])


def _text_of_time(ms: pl.Expr) -> pl.Expr:
    """Render a time; NULL outside of the years 1 to 9999."""
    inside = pl.when(ms.is_between(_MIN_MS, _MAX_MS)).then(ms)
    return inside.cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


_MIN_MS, _MAX_MS = -62_135_596_800_000, 253_402_300_799_999
