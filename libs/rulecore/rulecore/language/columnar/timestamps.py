"""The functions of times as Polars formulas (``streamcore.columnar.time_patterns``)."""

from __future__ import annotations

import polars as pl

from rulecore.language.columnar.operators import ComputedOperand, let
from rulecore.language.time_formats import ISO
from streamcore.columnar.time_patterns import local_to_utc, read_iso, read_pattern, utc_to_local, write_pattern
from streamcore.schema.time_patterns import TimePattern

_MIN_MS, _MAX_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_DAY_MS = 86_400_000


def to_timestamp(operand: ComputedOperand, time_format: str, zone: str) -> pl.Expr:
    """Return epoch ms; NULL for text that does not follow the format. ``zone``: of times without an offset."""
    if time_format == ISO:
        return let([operand], lambda text: read_iso(text, zone))
    pattern = TimePattern.parse_input(time_format)
    return let([operand], lambda text: read_pattern(text, pattern, zone))


def to_utc(operand: ComputedOperand, zone: str) -> pl.Expr:
    """Convert a timestamp in local time of the zone to UTC; NULL outside of the years 1900 to 2099."""
    return let([operand], lambda ms: local_to_utc(ms, zone))


def to_local(operand: ComputedOperand, zone: str) -> pl.Expr:
    """Convert a timestamp to the local time of the zone; NULL outside of the years 1900 to 2099."""
    return let([operand], lambda ms: utc_to_local(ms, zone))


def format_time(operand: ComputedOperand, time_format: str, zone: str) -> pl.Expr:
    """Return the time as text in a pattern."""
    pattern = TimePattern.parse(time_format)
    return let([operand], lambda ms: write_pattern(ms, pattern, zone))


PARTS = ("year", "quarter", "month", "day", "dayofyear", "weekofyear")


def part(operand: ComputedOperand, name: str) -> pl.Expr:
    """Return a part of the UTC date, such as the year; NULL outside of the years 1 to 9999."""

    def formula(ms: pl.Expr) -> pl.Expr:
        moment = pl.when(ms.is_between(_MIN_MS, _MAX_MS)).then(ms).cast(pl.Datetime("ms"))
        parts = {
            "year": moment.dt.year,
            "quarter": moment.dt.quarter,
            "month": moment.dt.month,
            "day": moment.dt.day,
            "dayofyear": moment.dt.ordinal_day,
            "weekofyear": moment.dt.week,
        }
        return parts[name]().cast(pl.Int64)

    return let([operand], formula)


def from_number(operand: ComputedOperand, unit: int) -> pl.Expr:
    """Return the time of a number of units since 1970; NULL outside of the years 1 to 9999. ``unit``: how many
    milliseconds it has, or, negative, how many are one millisecond."""

    def formula(number: pl.Expr) -> pl.Expr:
        if unit < 0:
            ms = number // -unit
        else:
            ms = pl.when(number.is_between(_MIN_MS // unit, _MAX_MS // unit)).then(number) * unit
        return pl.when(ms.is_between(_MIN_MS, _MAX_MS)).then(ms)

    return let([operand], formula)


def to_number(operand: ComputedOperand, unit: int) -> pl.Expr:
    """Return the number of units since 1970, rounded down. ``unit``: as in ``from_number``."""
    if unit < 0:
        within = _MAX_LONG // -unit
        return let([operand], lambda ms: pl.when(ms.is_between(-within, within)).then(ms) * -unit)
    return operand.expr // unit


_MAX_LONG = 2**63 - 1
