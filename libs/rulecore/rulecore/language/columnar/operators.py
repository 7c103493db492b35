"""Formulas over compiled operands: comparison, exact arithmetic and conversion.

Decimals are exact: whole numbers of 64 bits where the types prove that these suffice, else of 128 bits, and a result
that overflows becomes NULL. A formula that names an operand twice takes it through ``let``, so that the size of the
Polars expression is linear in that of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.schema import DOUBLE, LONG, MAX_DECIMAL_DIGITS, TIMESTAMP, Kind, Type

Formula = Callable[..., pl.Expr]

_LONG_DIGITS = 19
_LARGEST = 10**MAX_DECIMAL_DIGITS - 1


@dataclass(frozen=True, slots=True)
class ComputedOperand:
    """A compiled operand.

    ``leaf``: a column or constant, which a formula may name twice at no cost. ``constant``: it uses no column.
    ``value``: the physical value of a literal.
    """

    expr: pl.Expr
    type: Type
    leaf: bool = False
    constant: bool = False
    value: bool | int | float | str | None = None

    def to_double(self) -> pl.Expr:
        """Convert to double. For a decimal: its digits as a double, divided by ten to its scale."""
        if self.type == DOUBLE:
            return self.expr
        unit = 10.0**self.type.scale
        if isinstance(self.value, int):
            return pl.lit(float(self.value) / unit)
        value = self.expr.cast(pl.Float64)
        return quotient(value, pl.lit(unit)) if self.type.scale else value

    def rescale(self, scale: int, *, wide: bool) -> pl.Expr:
        """Return the digits at ``scale``, which is not below its own. ``wide``: in 128 bits, else in 64."""
        value = self.expr.cast(pl.Int128) if wide else self.expr
        factor = 10 ** (scale - self.type.scale)
        return value if factor == 1 else value * pl.lit(factor, dtype=pl.Int128 if wide else pl.Int64)

    def digits_at(self, scale: int) -> int:
        """Return the largest number of digits that its values have at ``scale``."""
        own = self.type.precision if self.type.kind is Kind.DECIMAL else _LONG_DIGITS
        return own + scale - self.type.scale

    def convert(self, kind: Type) -> pl.Expr:
        """Convert to a type; NULL for a value that does not fit it."""
        if kind == self.type or (kind.kind is not Kind.DECIMAL and kind != DOUBLE):
            return self.expr
        if kind == DOUBLE:
            return self.to_double()
        if self.digits_at(kind.scale) <= MAX_DECIMAL_DIGITS:
            return self.rescale(kind.scale, wide=False)
        return to_digits(self.rescale(kind.scale, wide=True))


def let(operands: Sequence[ComputedOperand], formula: Formula) -> pl.Expr:
    """Apply ``formula`` to the operands, each of which is computed once, however often the formula names it.

    Polars has no variables inside an expression; the fields of a struct replace them.
    """
    if all(operand.leaf for operand in operands):
        return formula(*[operand.expr for operand in operands])
    names = [f"_{i}" for i in range(len(operands))]
    record = pl.struct([operand.expr.alias(name) for operand, name in zip(operands, names, strict=True)])
    result = formula(*[pl.field(name) for name in names]).alias("_result")
    return record.struct.with_fields(result).struct.field("_result")


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return ``left / right`` of doubles, correctly rounded; NULL for a zero ``right``."""
    return let_columns([left, right], lambda a, b: pl.when(b != 0).then(a / b))


def let_columns(values: Sequence[pl.Expr], formula: Formula) -> pl.Expr:
    """Apply ``formula`` to doubles, each of them a whole column, even a constant.

    Polars divides a column by a scalar as a product with the reciprocal, so that 49.0 / 49 is not 1 (pola-rs/polars
    issue 23741, intended). A division of two columns is correctly rounded.
    """
    return let([ComputedOperand(value, DOUBLE) for value in values], formula)


def join_balanced(values: list[pl.Expr], join: Formula) -> pl.Expr:
    """Join the values as a balanced tree: five hundred terms are nine levels deep."""
    while len(values) > 1:
        joined = [join(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = joined + values[len(values) // 2 * 2 :]
    return values[0]


def comparison(op: str, left: ComputedOperand, right: ComputedOperand) -> pl.Expr:
    """Return ``left op right``: exact between longs and decimals, and in doubles if one side is a double.

    Polars orders NaN and text as the language does. A constant goes to the right: with one on the left, Polars 2.1
    returns one row instead of all if the right side is a ``when`` or ``coalesce`` that takes its constant branch in
    every row.
    """
    if left.constant and not right.constant:
        return comparison(_MIRRORED.get(op, op), right, left)
    if DOUBLE in (left.type, right.type):
        return _COMPARE[op](left.to_double(), right.to_double())
    if Kind.DECIMAL not in (left.type.kind, right.type.kind):
        return _COMPARE[op](left.expr, right.expr)
    scale = max(left.type.scale, right.type.scale)
    wide = any(o.type.scale < scale and o.digits_at(scale) > MAX_DECIMAL_DIGITS for o in (left, right))
    return _COMPARE[op](left.rescale(scale, wide=wide), right.rescale(scale, wide=wide))


def negation(operand: ComputedOperand) -> pl.Expr:
    """Return ``-x``; NULL for the smallest long."""
    if operand.type == LONG:
        return to_long(pl.lit(0, dtype=pl.Int128) - operand.expr.cast(pl.Int128))
    return -operand.expr


def arithmetic(op: str, left: ComputedOperand, right: ComputedOperand, kind: Type) -> pl.Expr:
    """Return ``left op right`` as ``kind``; overflow and division by zero are NULL."""
    if op == "/":
        return quotient(left.to_double(), right.to_double())
    if kind == DOUBLE:
        return _arithmetic(op, left.to_double(), right.to_double())
    scale = kind.scale
    wide = kind in (LONG, TIMESTAMP) or kind.precision >= MAX_DECIMAL_DIGITS or op == "%"
    if op == "*":
        a, b = left.rescale(left.type.scale, wide=wide), right.rescale(right.type.scale, wide=wide)
    else:
        a, b = left.rescale(scale, wide=wide), right.rescale(scale, wide=wide)
    if op == "%":
        result = let([ComputedOperand(a, left.type, left.leaf), ComputedOperand(b, right.type, right.leaf)], _remainder)
    else:
        result = _arithmetic(op, a, b)
    if not wide:
        return result
    return to_long(result) if kind in (LONG, TIMESTAMP) else to_digits(result)


def absolute(operand: ComputedOperand) -> pl.Expr:
    """Return ``abs(x)``; NULL for the smallest long."""
    if operand.type == LONG:
        return to_long(operand.expr.cast(pl.Int128).abs())
    return operand.expr.abs()


def to_long(wide: pl.Expr) -> pl.Expr:
    """Convert back to 64 bits; NULL for a value that does not fit."""
    return wide.cast(pl.Int64, strict=False)


def to_digits(wide: pl.Expr) -> pl.Expr:
    """Convert back to a decimal of 18 digits; NULL for a value that does not fit."""
    limit = pl.lit(_LARGEST, dtype=pl.Int128)
    return let([ComputedOperand(wide, LONG)], lambda v: pl.when(v.abs() <= limit).then(v)).cast(pl.Int64)


def _arithmetic(op: str, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
    return left * right


def _remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return the remainder with the sign of ``left``; NULL for a zero ``right``."""
    rest = left.abs() % pl.when(right != 0).then(right.abs())
    return pl.when(left < 0).then(pl.lit(0, dtype=pl.Int128) - rest).otherwise(rest)


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COMPARE: Mapping[str, Formula] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<=>": lambda a, b: a.eq_missing(b),
}
