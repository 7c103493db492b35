"""Records that a shape vouches for, all at once, to the physical columns of their stream.

The records are joined to lines and parsed by Polars' NDJSON reader, which is fast and lenient; strictness is the
shape's business. ``physical_columns`` computes the values that need more than parsing: decimals and timestamps.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.json.shape import JsonShape
from streamcore.decode.literal_patterns import DecimalText, Form, PlainLiteral, TimeText
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
    """Return the columns of records that the shape vouches for.

    Not sure are those with an event time after ``latest_ms``, and those with a timestamp that has the layout of one but
    is none (30 February). Raises ``polars.exceptions.PolarsError`` should the parser see anything else in a record
    than one object.
    """
    lines = pc.binary_join_element_wise(records, _EMPTY, _NEWLINE)
    types = {
        f.name: PHYSICAL[f.type.kind] if shape.form(f.name) == PlainLiteral() else pl.String for f in schema.fields
    }
    types |= {f.name: pl.Float64 for f in schema.fields if f.type.kind is Kind.DECIMAL and types[f.name] != pl.String}
    raw = pl.read_ndjson(io.BytesIO(lines.buffers()[2]), schema=types)
    if raw.height != len(records):
        raise pl.exceptions.ComputeError(f"{len(records)} records were read as {raw.height} lines")
    columns = pl.DataFrame([_physical(schema, f, shape.form(f.name), raw[f.name]) for f in schema.fields])
    sure = (columns[schema.event_time] <= latest_ms).fill_null(value=False)
    for field in schema.fields:
        if isinstance(shape.form(field.name), TimeText):
            sure &= columns[field.name].is_not_null() | raw[field.name].is_null()
    return ParsedColumns(columns, sure)


def _physical(schema: StreamSchema, field: Field, form: Form, raw: pl.Series) -> pl.Series:
    match form:
        case TimeText():
            return parse_times(raw, form, schema.zone)
        case DecimalText():
            return raw.cast(pl.Decimal(38, field.type.scale)).to_physical().cast(pl.Int64)
    if field.type.kind is Kind.DECIMAL:
        # At most 15 digits (the shape's promise): the nearest double times 10**scale is nearest to the exact units.
        return (raw * 10.0**field.type.scale).round().cast(pl.Int64)
    return raw
