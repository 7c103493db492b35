"""Records that a shape vouches for, all at once, to the physical columns of their stream.

The records are joined to lines and parsed by Polars' NDJSON reader, which is fast and lenient; strictness is the
shape's business. Left to this module are the values that need more than parsing: decimals and timestamps.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.decode.json.shape import DecimalText, Form, JsonShape, PlainLiteral, TimeText
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.timestamps import HOUR_MS, MAX_MS, MIN_MS, load_zone

_EMPTY, _NEWLINE = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())
_MAIN_CHARS = len("2026-01-31T12:00:00")
#: The Polars side of ``streamcore.schema``'s table of physical types.
PHYSICAL: dict[Kind, type[pl.DataType]] = {
    Kind.BOOLEAN: pl.Boolean,
    Kind.LONG: pl.Int64,
    Kind.DOUBLE: pl.Float64,
    Kind.DECIMAL: pl.Int64,
    Kind.STRING: pl.String,
    Kind.TIMESTAMP: pl.Int64,
}


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


def parse_times(text: pl.Series, form: TimeText, zone: str) -> pl.Series:
    """Epoch milliseconds of texts with the layout of ``form``; null where ``from_iso`` finds no time in range."""
    local = text.str.head(_MAIN_CHARS).str.to_datetime(
        f"%Y-%m-%d{form.separator}%H:%M:%S", time_unit="ms", strict=False, exact=True
    )
    fraction = text.str.slice(_MAIN_CHARS + 1)
    if form.zone_chars:
        fraction = fraction.str.head(-form.zone_chars)
    local_ms = local.to_physical() + fraction.str.head(3).str.pad_end(3, "0").cast(pl.Int64)
    match form.zone_chars:
        case 0:
            filled = local_ms.fill_null(0).to_numpy()
            utc_ms = pl.Series(text.name, local_to_utc(load_zone(zone), filled.astype(np.int64, copy=False)))
            utc_ms = utc_ms.set(local_ms.is_null(), None)
        case 1:
            utc_ms = local_ms
        case _:
            utc_ms = local_ms - _offsets(text.str.tail(form.zone_chars))
    return utc_ms.set(~utc_ms.is_between(MIN_MS, MAX_MS), None).rename(text.name)


def _offsets(text: pl.Series) -> pl.Series:
    """Milliseconds ahead of UTC of ``+HH:MM`` texts."""
    distinct = [t for t in text.unique().to_list() if t is not None]
    ahead = [int(t[0] + "1") * (int(t[1:3]) * HOUR_MS + int(t[4:6]) * 60_000) for t in distinct]
    return text.replace_strict(distinct, ahead, default=None, return_dtype=pl.Int64)
