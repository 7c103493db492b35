"""Comparison and conversion of values in the reference evaluator, in plain Python."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from rulecore.language.ast import Expr
from rulecore.language.types import Value
from streamcore.schema import DOUBLE, Kind, Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Number = int | float | Decimal

WIDE = Context(prec=100)


def order(left: Value, right: Value) -> int:
    """Return -1, 0 or 1. NaN equals itself and is greater than all other values; text is ordered by code point."""
    if isinstance(left, float) and math.isnan(left):
        return 0 if isinstance(right, float) and math.isnan(right) else 1
    if isinstance(right, float) and math.isnan(right):
        return -1
    return (left > right) - (left < right)  # type: ignore[operator]


def compare(op: str, left: Value, right: Value, left_expr: Expr, right_expr: Expr) -> bool | None:
    """Return ``left op right``; None if a side is NULL, except for ``<=>``. Exact, unless a side is a double."""
    if op == "<=>" and (left is None or right is None):
        return left is right
    if left is None or right is None:
        return None
    if DOUBLE in (left_expr.type, right_expr.type):
        left, right = double(left), double(right)
    sign = order(left, right)
    return {
        "=": sign == 0,
        "<=>": sign == 0,
        "<>": sign != 0,
        "<": sign < 0,
        "<=": sign <= 0,
        ">": sign > 0,
        ">=": sign >= 0,
    }[op]


def double(value: Value) -> float:
    """Convert to double. For a decimal: its digits as a double, divided by the power of ten of its scale."""
    if isinstance(value, Decimal):
        _, _, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        return float(int(value.scaleb(-exponent, WIDE))) / 10.0**-exponent
    assert isinstance(value, int | float)
    return float(value)


def coerce_number(value: Number | None, kind: Type) -> Value:
    """Convert a number to the type: a decimal gets its scale. None for a value that does not fit."""
    if value is None:
        return None
    if kind == DOUBLE:
        return double(value)
    if kind.kind is not Kind.DECIMAL:
        assert isinstance(value, int)
        return value if -(2**63) <= value < 2**63 else None
    exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
    if not exact:
        return exact.copy_abs()  # a decimal has one zero
    return exact if abs(exact.scaleb(kind.scale, WIDE)) < 10**18 else None


def coerce(value: Any, kind: Type) -> Any:
    """Convert a value to a type, as ``coerce_number`` does. What is no number stays as it is."""
    if isinstance(value, bool | str | list | dict) or value is None:
        return value
    return coerce_number(value, kind)


def to_datetime(ms: int) -> datetime | None:
    """Return a time in UTC; None outside of the years 1 to 9999."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def text_of_time(ms: int) -> str | None:
    """Return a time as ISO 8601 in UTC with milliseconds; None outside of the years 1 to 9999."""
    moment = to_datetime(ms)
    return None if moment is None else f"{moment:%Y}".zfill(4) + f"{moment:-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
