"""Decodes many Avro datums of one schema together, field by field, into the stream's physical columns.

Rows that are not ``ok`` at the end are left to the reference: all rows of a stream with fields that are arrays, structs
or maps, and rows with varints of more than nine bytes,
non-empty arrays and maps, uuids as bytes and decimals of more than eight bytes, and all rows of a very large schema.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.columnar.polars_types import polars_type
from streamcore.decode.assembly import decode_utf8
from streamcore.decode.avro.byte_cursors import ByteCursors, Ints
from streamcore.decode.avro.schema import (
    ArrayOf,
    AvroType,
    Enumeration,
    Fixed,
    MapOf,
    Primitive,
    RecordOf,
    UnionOf,
)
from streamcore.decode.avro.schema_match import FieldMapping, type_name
from streamcore.decode.text.cells import parse_cells
from streamcore.schema import Field, Kind, StreamSchema, TimeUnit
from streamcore.timestamps import HOUR_MS, MAX_MS, MIN_MS, load_zone

#: The most types that one call reads or skips; a union may repeat its branches for parts of the rows.
_MAX_STEPS = 4_000
_MAX_NESTING = 32
_DECIMAL_BYTES = 8
_NANOS, _MICROS, _DAY_MS = 1_000_000, 1_000, 24 * HOUR_MS
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class TooManyStepsError(Exception):
    """The schema is too large to be decoded field by field (``_MAX_STEPS``)."""


def read_columns(
    schema: StreamSchema, kind: AvroType, want: FieldMapping, rows: ByteCursors, latest_ms: int
) -> pl.DataFrame:
    """Read all rows; return the stream's columns.

    Afterwards ``rows.ok`` is False for each row that the reference must decide, among them rows with an event time
    after ``latest_ms``. Raises ``TooManyStepsError``.
    """
    columns_by_field: dict[str, pl.Series] = {}
    _ColumnReader(schema.zone).walk(rows, kind, want, columns_by_field, 0)
    rows.ok &= rows.position == rows.end
    columns = {f.name: columns_by_field.get(f.name, _null_column(f, len(rows))).rename(f.name) for f in schema.fields}
    for field in schema.fields:
        if not field.nullable:
            rows.ok &= columns[field.name].is_not_null().to_numpy()
    if schema.event_time:
        rows.ok &= (columns[schema.event_time] <= latest_ms).fill_null(value=False).to_numpy()
    return pl.DataFrame(columns)


class _ColumnReader:
    """Reads the values of one batch. ``zone``: the stream's time zone. ``steps``: types read or skipped so far."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.steps = 0

    def walk(
        self,
        rows: ByteCursors,
        kind: AvroType,
        want: Field | FieldMapping | None,
        columns: dict[str, pl.Series],
        depth: int,
    ) -> None:
        """Read a value of each row into ``columns``, by field name; skip it if ``want`` is None."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise TooManyStepsError
        if depth > _MAX_NESTING:
            rows.ok[:] = False
        if not rows.ok.any():
            return
        match kind:
            case UnionOf():
                self.read_union(rows, kind, want, columns, depth)
            case RecordOf() if not isinstance(want, Field):
                inside = want.inside if want is not None else {}
                for name, inner in kind.fields:
                    self.walk(rows, inner, inside.get(name), columns, depth + 1)
            case _ if isinstance(want, Field) and want.type.is_nested:
                rows.ok[:] = False
            case _ if isinstance(want, Field):
                columns[want.name] = _read_value(rows, kind, want, self.zone)
            case _:
                _skip(rows, kind)

    def read_union(
        self,
        rows: ByteCursors,
        union: UnionOf,
        want: Field | FieldMapping | None,
        columns: dict[str, pl.Series],
        depth: int,
    ) -> None:
        """Read which branch each row has, and each branch for its rows; combine the columns."""
        number = rows.read_long()
        rows.ok &= (number >= 0) & (number < len(union.branches))
        parts: list[tuple[Ints, dict[str, pl.Series]]] = []
        for index, branch in enumerate(union.branches):
            chosen = rows.ok & (number == index)
            if chosen.all():
                self.walk(rows, branch, want, columns, depth + 1)
                return
            if chosen.any():
                branch_rows: Ints = np.flatnonzero(chosen)
                part, inner = rows.subset(branch_rows), dict[str, pl.Series]()
                self.walk(part, branch, want, inner, depth + 1)
                rows.write_back(branch_rows, part)
                parts.append((branch_rows, inner))
        columns.update(_combine(len(rows), parts))


def _combine(count: int, parts: list[tuple[Ints, dict[str, pl.Series]]]) -> Mapping[str, pl.Series]:
    """Return columns of ``count`` rows from parts, each the indexes of some rows and their columns. Other values are
    null."""
    names = dict.fromkeys(name for _, inner in parts for name in inner)
    columns: dict[str, pl.Series] = {}
    for name in names:
        filled = [(rows, inner[name]) for rows, inner in parts if name in inner and not inner[name].is_null().all()]
        filled = filled or [(rows, inner[name]) for rows, inner in parts if name in inner][:1]
        positions: Ints = np.full(count, -1, dtype=np.int64)
        start = 0
        for rows, column in filled:
            positions[rows] = np.arange(start, start + len(rows))
            start += len(column)
        gathered = pl.Series(positions).set(pl.Series(positions < 0), None)
        columns[name] = pl.concat([column for _, column in filled]).gather(gathered)
    return columns


def _null_column(field: Field, count: int) -> pl.Series:
    return pl.Series(field.name, [None], dtype=polars_type(field.type)).new_from_index(0, count)


def _skip(rows: ByteCursors, kind: AvroType) -> None:
    """Skip a value of each row. Rows with items in an array or map are no longer ``ok``."""
    match kind:
        case Primitive("null"):
            pass
        case Primitive("boolean"):
            rows.ok &= rows.read_byte() <= 1
        case Primitive("int") | Enumeration():
            _read_int(rows)
        case Primitive("long"):
            rows.read_long()
        case Primitive("float"):
            rows.skip(4)
        case Primitive("double"):
            rows.skip(8)
        case Primitive():
            rows.read_prefixed()
        case Fixed():
            rows.skip(kind.size)
        case ArrayOf() | MapOf():
            rows.ok &= rows.read_byte() == 0


def _read_int(rows: ByteCursors) -> Ints:
    """Read an Avro ``int`` of each row."""
    number = rows.read_long()
    rows.ok &= (number >= _INT_MIN) & (number <= _INT_MAX)
    return number


def _read_value(rows: ByteCursors, kind: AvroType, field: Field, zone: str) -> pl.Series:
    """Read a value of each row as the physical column of the field."""
    match kind:
        case Primitive("null"):
            return _null_column(field, len(rows))
        case Primitive("boolean"):
            byte = rows.read_byte()
            rows.ok &= byte <= 1
            return pl.Series(byte == 1)
        case Primitive("float") | Primitive("double"):
            return _read_floating(rows, kind.name)
        case Primitive("string"):
            return _read_text(rows, field, zone)
        case Primitive("bytes"):
            return _rescale(rows, _read_unscaled(rows, *rows.read_prefixed()), field, kind.scale)
        case Fixed() if kind.logical == "decimal":
            begin = rows.skip(kind.size)
            return _rescale(rows, _read_unscaled(rows, begin, np.full(len(rows), kind.size)), field, kind.scale)
        case Enumeration():
            number = _read_int(rows)
            rows.ok &= (number >= 0) & (number < len(kind.symbols))
            symbols = pl.Series([*kind.symbols, ""], dtype=pl.String)
            return symbols.gather(np.where(rows.ok, number, len(kind.symbols)))
        case Primitive():
            return _convert_integers(
                rows, _read_int(rows) if kind.name == "int" else rows.read_long(), field, type_name(kind), zone
            )
    rows.ok[:] = False
    return _null_column(field, len(rows))


def _read_floating(rows: ByteCursors, name: str) -> pl.Series:
    size = 4 if name == "float" else 8
    number = np.ascontiguousarray(rows.read_bytes(size)).view(f"<f{size}").ravel().astype(np.float64)
    rows.ok &= np.isfinite(number)
    return pl.Series(number)


def _read_text(rows: ByteCursors, field: Field, zone: str) -> pl.Series:
    text = decode_utf8(rows.slice_bytes(*rows.read_prefixed()))
    rows.ok &= text.is_not_null().to_numpy()
    if field.type.kind is Kind.STRING:
        return text
    cells = parse_cells(field, text, zone)
    rows.ok &= cells.sure.to_numpy()
    return cells.values


def _read_unscaled(rows: ByteCursors, begin: Ints, length: Ints) -> Ints:
    """Return the big-endian two's complement numbers of 1 to 8 bytes that begin at ``begin``."""
    rows.ok &= (length >= 1) & (length <= _DECIMAL_BYTES)
    count = np.where(rows.ok, length, 1)
    units = rows.data[np.where(rows.ok, begin, 0)].astype(np.int8).astype(np.int64)
    for index in range(1, int(count.max(initial=1))):
        longer = np.flatnonzero(count > index)
        units[longer] = (units[longer] << 8) | rows.data[begin[longer] + index]
    return units


def _convert_integers(rows: ByteCursors, number: Ints, field: Field, avro_type: str, zone: str) -> pl.Series:
    """Return integers as the physical column of the field. ``avro_type``: their Avro type, as of ``type_name``."""
    match field.type.kind:
        case Kind.DOUBLE:
            return pl.Series(number.astype(np.float64))
        case Kind.DECIMAL:
            return _rescale(rows, number, field, 0)
        case Kind.TIMESTAMP:
            rows.ok &= avro_type != "long" or field.unit is TimeUnit.MILLISECONDS
            return _to_epoch_ms(rows, number, avro_type, zone)
    return pl.Series(number)


def _rescale(rows: ByteCursors, units: Ints, field: Field, scale: int) -> pl.Series:
    """Return decimals of the given scale as unscaled values of the field's scale.

    Rows that would lose digits, or exceed the field's precision, are no longer ``ok``.
    """
    shift = field.type.scale - scale
    limit = 10**field.type.precision - 1
    if shift < 0:
        if -shift > 18:
            rows.ok &= units == 0
            return pl.Series(np.zeros_like(units))
        rows.ok &= units % 10**-shift == 0
        units = units // 10**-shift
    else:
        factor = 10**shift
        rows.ok &= (units >= -(limit // factor)) & (units <= limit // factor)
        units = np.where(rows.ok, units, 0) * factor
    rows.ok &= (units >= -limit) & (units <= limit)
    return pl.Series(units)


def _to_epoch_ms(rows: ByteCursors, number: Ints, avro_type: str, zone: str) -> pl.Series:
    """Return timestamps or dates as epoch milliseconds, rounded down. Local ones are in ``zone``."""
    if avro_type.endswith("micros"):
        number = number // _MICROS
    elif avro_type.endswith("nanos"):
        number = number // _NANOS
    elif avro_type == "date":
        number = number * _DAY_MS
    if avro_type == "date" or avro_type.startswith("local"):
        in_range = (number >= MIN_MS - _DAY_MS) & (number <= MAX_MS - _DAY_MS)
        rows.ok &= in_range
        number = local_to_utc(load_zone(zone), np.where(in_range, number, 0))
    rows.ok &= (number >= MIN_MS) & (number <= MAX_MS)
    return pl.Series(number)
