"""Converts cells (CSV columns, parts of a log line) from text to the type of a field.

A cell has no type of its own, so the type of the field decides how it is read. The rules are those of the scalar
decoder: ``01`` and ``1.0`` are not whole numbers in any format. ``scalar.values.parse_cell`` is the reference;
``parse_cells`` parses a column, and marks the cells of which it is sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from streamcore.columnar.polars_types import polars_type
from streamcore.decode.literal_patterns import EPOCH_MS, LOCAL_TIME, REAL, UTC_OFFSET, WHOLE, TimeText, decimal_pattern
from streamcore.decode.physical_columns import parse_times
from streamcore.schema import Field, Kind, TimeUnit

_TIME_NOTATIONS: list[tuple[TimeText | None, str]] = [
    (None, EPOCH_MS),
    *(
        (TimeText(separator, chars), (LOCAL_TIME % separator) + zone)
        for separator in ("T", " ")
        for chars, zone in ((1, "Z"), (6, UTC_OFFSET), (0, ""))
    ),
]


@dataclass(frozen=True, slots=True)
class ParsedCells:
    """A physical column. ``sure``: False where the reference must decide, and the value is undefined."""

    values: pl.Series
    sure: pl.Series


def parse_cells(field: Field, text: pl.Series, zone: str) -> ParsedCells:
    """Return the column of a field from the texts of its cells. ``zone``: the time zone of times without an offset."""
    match field.type.kind:
        case Kind.STRING:
            return ParsedCells(text, text.is_null() | True)
        case Kind.TIMESTAMP:
            found = _parse_timestamps(text, zone)
            if field.unit is TimeUnit.MILLISECONDS:
                return found
            return ParsedCells(found.values, found.sure & ~text.str.contains(rf"\A{REAL}\z").fill_null(value=False))
    sure = text.str.contains(rf"\A{_pattern(field)}\z").fill_null(value=True)
    return ParsedCells(_parse(field, text if sure.all() else text.set(~sure, None)), sure)


def _pattern(field: Field) -> str:
    match field.type.kind:
        case Kind.BOOLEAN:
            return "(?:true|false)"
        case Kind.LONG:
            return WHOLE
        case Kind.DOUBLE:
            return REAL
    return decimal_pattern(field.type.precision, field.type.scale)


def _parse(field: Field, text: pl.Series) -> pl.Series:
    match field.type.kind:
        case Kind.BOOLEAN:
            return text == "true"
        case Kind.DECIMAL:
            return text.cast(pl.Decimal(38, field.type.scale)).to_physical().cast(pl.Int64)
    return text.cast(polars_type(field.type))


def _parse_timestamps(text: pl.Series, zone: str) -> ParsedCells:
    """Read the cells of one notation after the other, until every cell is read."""
    values = pl.Series(text.name, [None], dtype=pl.Int64).new_from_index(0, len(text))
    remaining = text.is_not_null()
    for notation, pattern in _TIME_NOTATIONS:
        if not remaining.any():
            break
        matched = remaining & text.str.contains(rf"\A{pattern}\z").fill_null(value=False)
        if matched.all():
            values = _read_times(text, notation, zone)
        elif matched.any():
            values = values.scatter(matched.arg_true(), _read_times(text.filter(matched), notation, zone))
        remaining &= ~matched
    return ParsedCells(values, text.is_null() | values.is_not_null())


def _read_times(text: pl.Series, notation: TimeText | None, zone: str) -> pl.Series:
    return text.cast(pl.Int64) if notation is None else parse_times(text, notation, zone)
