"""Decodes the JSON records that match a shape, all together, into the physical columns of their stream.

The records are joined to lines and parsed by Polars' NDJSON reader. This reader is fast, and accepts more than strict
JSON; the pattern of the shape has excluded such records. Decimals and timestamps are converted after the parsing.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.json.shape import JsonShape
from streamcore.decode.literal_patterns import DecimalText, Notation, PlainLiteral, TimeText
from streamcore.decode.physical_columns import PHYSICAL, parse_times
from streamcore.schema import Field, Kind, StreamSchema

_EMPTY, _NEWLINE = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())


@dataclass(frozen=True, slots=True)
class ParsedColumns:
    """``columns``: the schema's fields with their physical types. ``sure``: False where the reference must decide."""

    columns: pl.DataFrame
    sure: pl.Series


def parse_matched(
    schema: StreamSchema, shape: JsonShape, records: pa.LargeBinaryArray, latest_ms: int
) -> ParsedColumns:
    """Return the columns of records that match the shape.

    The reference must decide on records with an event time after ``latest_ms``, and on those with a timestamp that
    matches its pattern but does not exist (30 February). Raises ``polars.exceptions.PolarsError`` if the parser does
    not find exactly one object in each record.
    """
    lines = pc.binary_join_element_wise(records, _EMPTY, _NEWLINE)
    types = {
        f.name: PHYSICAL[f.type.kind] if shape.notation(f.name) == PlainLiteral() else pl.String for f in schema.fields
    }
    types |= {f.name: pl.Float64 for f in schema.fields if f.type.kind is Kind.DECIMAL and types[f.name] != pl.String}
    raw = pl.read_ndjson(io.BytesIO(lines.buffers()[2]), schema=types)
    if raw.height != len(records):
        raise pl.exceptions.ComputeError(f"{len(records)} records were read as {raw.height} lines")
    columns = pl.DataFrame([_to_physical(schema, f, shape.notation(f.name), raw[f.name]) for f in schema.fields])
    sure = (columns[schema.event_time] <= latest_ms).fill_null(value=False)
    for field in schema.fields:
        if isinstance(shape.notation(field.name), TimeText):
            sure &= columns[field.name].is_not_null() | raw[field.name].is_null()
    return ParsedColumns(columns, sure)


def _to_physical(schema: StreamSchema, field: Field, notation: Notation, raw: pl.Series) -> pl.Series:
    match notation:
        case TimeText():
            return parse_times(raw, notation, schema.zone)
        case DecimalText():
            return raw.cast(pl.Decimal(38, field.type.scale)).to_physical().cast(pl.Int64)
    if field.type.kind is Kind.DECIMAL:
        # The pattern allows at most 15 digits, so the double times 10**scale rounds to the exact unscaled value.
        return (raw * 10.0**field.type.scale).round().cast(pl.Int64)
    return raw
