"""Columns of a file to the columns of a stream's events, without a detour over JSON where nothing can be lost.

A value is taken over directly when it is *sure* that the way through JSON and the decoder would give the same; every
other row goes that way (``headgate.records.file_rows``, ``streamcore.decode``), so it becomes the same event or gets
the same reason. Reading a file for a back-test and replaying it into a topic therefore give the same events.
"""

from __future__ import annotations

from zoneinfo import ZoneInfo

import polars as pl

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import Field, Kind, StreamSchema, TimeUnit
from streamcore.schema.record_places import KAFKA
from streamcore.timestamps import MAX_MS, load_zone

_SURE = "__sure_"
_DIGITS = 15  # a number of at most so many digits is the shortest text of its double
_LONG = 2.0**63


def convert(frame: pl.DataFrame, schema: StreamSchema) -> tuple[pl.DataFrame, pl.Series]:
    """Return the stream's physical columns of a frame that has its names, and which rows are sure; the values of other
    rows are meaningless. A file has nothing that is beside the values of records."""
    zone = load_zone(schema.zone)
    found = [
        (f, (pl.lit(None), None) if f.location[0] == KAFKA else _find(frame.schema, f.location)) for f in schema.fields
    ]
    fields = [(f, *_convert_column(f, *column, zone)) for f, column in found]
    values = [value.cast(polars_type(f.type)).alias(f.name) for f, value, _ in fields]
    columns = frame.select(*values, pl.int_range(pl.len()).alias(_SURE)).drop(_SURE)
    checks = [_nulls_allowed(f, columns[f.name], frame, sure) for f, _, sure in fields]
    is_plain = schema.envelope is None and schema.when is None
    every = pl.repeat(is_plain, frame.height, dtype=pl.Boolean, eager=True)
    for check in checks:
        every = every & check
    return columns, every


def _find(columns: pl.Schema, path: tuple[str, ...]) -> tuple[pl.Expr, pl.DataType | None]:
    """Return the column at a path, through structs, and its type: None if there is none."""
    column, found = pl.col(path[0]), columns.get(path[0])
    for name in path[1:]:
        if not isinstance(found, pl.Struct):
            return column, None if found in (None, pl.Null()) else pl.Object()
        inside = {one.name: one.dtype for one in found.fields}
        if name not in inside:
            return column, None
        dtype = inside[name]
        column, found = column.struct.field(name), dtype() if isinstance(dtype, type) else dtype
    return column, found


def _nulls_allowed(field: Field, value: pl.Series, frame: pl.DataFrame, sure: pl.Expr) -> pl.Series:
    check = frame.select(_all=sure.fill_null(value=True) & pl.int_range(pl.len()).is_not_null())["_all"]
    return check if field.nullable else check & value.is_not_null()


def _convert_column(
    field: Field, column: pl.Expr, found: pl.DataType | None, zone: ZoneInfo
) -> tuple[pl.Expr, pl.Expr]:
    """Value and whether it is sure (null: the value is null, and that is sure)."""
    if found is None or found == pl.Null():
        return pl.lit(None), pl.lit(value=True)
    match field.type.kind:
        case Kind.STRING if found == pl.String() or isinstance(found, pl.Categorical | pl.Enum) or found.is_integer():
            return column.cast(pl.String), pl.lit(value=True)
        case Kind.BOOLEAN if found == pl.Boolean():
            return column, pl.lit(value=True)
        case Kind.LONG if found.is_integer():
            whole = column.cast(pl.Int64, strict=False)
            return whole, column.is_null() | whole.is_not_null()
        case Kind.LONG if found.is_float():
            return _whole(column.cast(pl.Float64))
        case Kind.DOUBLE if found.is_float():
            wide = column.cast(pl.Float64)
            return pl.when(wide.is_finite()).then(wide), pl.lit(value=True)
        case Kind.DOUBLE if found.is_integer():
            return column.cast(pl.Float64), pl.lit(value=True)
        case Kind.DECIMAL:
            return _decimal(column, found, field)
        case Kind.TIMESTAMP:
            return _time(field, column, found, zone)
    return pl.lit(None), column.is_null()


def _whole(value: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """NaN and infinities are null, as JSON has them."""
    fits = value.is_finite() & (value == value.floor()) & (value.abs() < _LONG)
    return pl.when(fits).then(value).cast(pl.Int64, strict=False), fits | ~value.is_finite()


def _decimal(column: pl.Expr, found: pl.DataType, field: Field) -> tuple[pl.Expr, pl.Expr]:
    scale, digits = field.type.scale, field.type.precision
    if found.is_integer():
        whole = column.cast(pl.Int64, strict=False)
        fits = whole.is_between(-(10 ** (digits - scale)), 10 ** (digits - scale), closed="none")
        return pl.when(fits).then(whole * 10**scale), column.is_null() | fits.fill_null(value=False)
    if found.is_float():
        value = column.cast(pl.Float64)
        units = (value * 10**scale).round()
        exact = value.is_finite() & (units / 10**scale == value) & (units.abs() < 10.0 ** min(digits, _DIGITS))
        return pl.when(exact).then(units).cast(pl.Int64, strict=False), exact | ~value.is_finite()
    if isinstance(found, pl.Decimal) and found.scale <= scale:
        physical = column.to_physical().cast(pl.Int64, strict=False)
        room = 10 ** (digits - scale + found.scale)
        fits = physical.is_between(-room, room, closed="none")
        units = pl.when(fits).then(physical * 10 ** (scale - found.scale))
        return units, column.is_null() | fits.fill_null(value=False)
    return pl.lit(None), column.is_null()


def _time(field: Field, column: pl.Expr, found: pl.DataType, zone: ZoneInfo) -> tuple[pl.Expr, pl.Expr]:
    if field.pattern or (field.unit is not TimeUnit.MILLISECONDS and found.is_integer()):
        return pl.lit(None), column.is_null()
    if found.is_integer():
        value = column.cast(pl.Int64, strict=False)
    elif isinstance(found, pl.Datetime) and found.time_zone is not None:
        value = column.dt.timestamp("ms")
    elif isinstance(found, pl.Datetime):
        value = column.dt.timestamp("ms").map_batches(lambda local: local_times(local, zone), return_dtype=pl.Int64)
    else:
        return pl.lit(None), column.is_null()
    return value, column.is_null() | value.is_between(0, MAX_MS).fill_null(value=False)


def local_times(local_ms: pl.Series, zone: ZoneInfo) -> pl.Series:
    """Return times of a zone's calendar, in milliseconds, as epoch milliseconds; -1 beyond the years of calendars."""
    usual = local_ms.is_between(0, MAX_MS - 86_400_000)  # what a calendar holds in every zone
    utc = local_to_utc(zone, local_ms.set(~usual.fill_null(value=False), 0).fill_null(0).to_numpy())
    return pl.Series(utc).set(~usual.fill_null(value=False), -1).set(local_ms.is_null(), None)
