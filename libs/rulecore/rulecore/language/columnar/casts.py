"""``cast`` as Polars formulas: the conversions of Spark, with NULL where Spark raises an error."""

from __future__ import annotations

import polars as pl

from rulecore.language.ast import Call
from rulecore.language.columnar import conversions
from rulecore.language.columnar.operators import ComputedOperand, let
from streamcore.columnar.time_patterns import read_iso
from streamcore.schema import BOOLEAN, DOUBLE, STRING, TIMESTAMP, Kind, Type

_TRUE, _FALSE = ["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"]
#: What Spark trims: control characters and spaces.
_TRIMMED = "".join(map(chr, range(0x21)))
_LONG_END = 2.0**63


def cast(expr: Call, operands: list[ComputedOperand]) -> pl.Expr:
    """Compile ``cast`` or ``try_cast``, which differ only in whether a row of etl fails."""
    operand, kind = operands[0], expr.type
    if operand.type == STRING and kind != STRING:
        trimmed = operand.expr.str.strip_chars(_TRIMMED)
        return _from_text(ComputedOperand(trimmed, STRING), kind)
    if operand.type == kind:
        return operand.expr
    if operand.type == BOOLEAN and kind != STRING:
        return operand.expr.cast(pl.Int64) * 10**kind.scale if kind != DOUBLE else operand.expr.cast(pl.Float64)
    match kind.kind:
        case Kind.STRING:
            return _text_of_time(operand) if operand.type == TIMESTAMP else conversions.to_text(operand)
        case Kind.BOOLEAN:
            return operand.expr != 0
        case Kind.TIMESTAMP:
            bound = 9_000_000_000_000_000
            return let([operand], lambda s: pl.when(s.is_between(-bound, bound)).then(s) * 1000)
        case Kind.DOUBLE if operand.type == TIMESTAMP:
            return ComputedOperand(operand.expr, Type(Kind.DECIMAL, 18, 3)).to_double()
        case Kind.DOUBLE:
            return operand.to_double()
        case Kind.LONG:
            return _to_long(operand)
    if operand.type == TIMESTAMP:
        operand = ComputedOperand(operand.expr, Type(Kind.DECIMAL, 18, 3))
    return _to_decimal(operand, kind)


def _from_text(text: ComputedOperand, kind: Type) -> pl.Expr:
    match kind.kind:
        case Kind.BOOLEAN:
            word = text.expr.str.to_lowercase()
            return let(
                [ComputedOperand(word, STRING)],
                lambda w: pl.when(w.is_in(_TRUE)).then(pl.lit(True)).when(w.is_in(_FALSE)).then(pl.lit(False)),
            )
        case Kind.TIMESTAMP:
            whole = let(
                [text],
                lambda t: pl.when(t.str.len_chars() == 10).then(pl.concat_str([t, pl.lit("T00:00")])).otherwise(t),
            )
            return let([ComputedOperand(whole, STRING)], lambda t: read_iso(t, "UTC"))
        case Kind.LONG:
            return conversions.to_long(text)
        case Kind.DOUBLE:
            return conversions.to_double(text)
    return conversions.round_text(text, kind)


def _to_long(operand: ComputedOperand) -> pl.Expr:
    """Return the whole number towards zero; of a time, the seconds since 1970, rounded down."""
    if operand.type == TIMESTAMP:
        return operand.expr // 1000
    if operand.type == DOUBLE:
        whole = let([operand], lambda v: pl.when(v < 0).then(v.ceil()).otherwise(v.floor()))
        inside = let([ComputedOperand(whole, DOUBLE)], lambda v: pl.when((v >= -_LONG_END) & (v < _LONG_END)).then(v))
        return inside.cast(pl.Int64, strict=False)
    unit = pl.lit(10**operand.type.scale, dtype=pl.Int64)
    return let([operand], lambda v: v.abs() // unit * v.sign()) if operand.type.scale else operand.expr


def _to_decimal(operand: ComputedOperand, kind: Type) -> pl.Expr:
    if operand.type == DOUBLE or operand.type.scale <= kind.scale:
        return conversions.to_decimal(operand, kind)
    unit = 10 ** (operand.type.scale - kind.scale)

    def rounded(value: pl.Expr) -> pl.Expr:
        wide = value.cast(pl.Int128)
        half_up = (wide.abs() + pl.lit(unit // 2, dtype=pl.Int128)) // pl.lit(unit, dtype=pl.Int128)
        return pl.when(value < 0).then(pl.lit(0, dtype=pl.Int128) - half_up).otherwise(half_up)

    return conversions.within(let([operand], rounded), kind)


def _text_of_time(operand: ComputedOperand) -> pl.Expr:
    """Render a time in UTC as Spark does: ``2026-01-05 10:00:00.5``, without zeros at the end of the fraction."""
    text = ComputedOperand(conversions.to_text(operand), STRING)
    plain = let([text], lambda t: pl.concat_str([t.str.head(10), pl.lit(" "), t.str.slice(11, 12)]))
    return plain.str.replace(r"\.([0-9]*?)0*\z", ".$1").str.strip_chars_end(".")
