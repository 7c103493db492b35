"""Many Avro datums of one schema at once: field by field over all rows, to the stream's physical columns.

Rows that are not ``ok`` at the end are left to the reference, among them numbers of more than nine bytes, arrays and
maps that are not empty, uuids as bytes, decimals of more than eight, and schemas of very many fields.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.columnar.local_timestamps import local_to_utc
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
from streamcore.decode.physical_columns import PHYSICAL
from streamcore.decode.text.cells import parse_cells
from streamcore.schema import Field, Kind, StreamSchema
from streamcore.timestamps import HOUR_MS, MAX_MS, MIN_MS, load_zone

#: Types that are walked through, for all rows of a batch together.
_MAX_STEPS = 4_000
_MAX_NESTING = 32
_DECIMAL_BYTES = 8
_NANOS, _MICROS, _DAY_MS = 1_000_000, 1_000, 24 * HOUR_MS
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


class TooManyStepsError(Exception):
    """The schema is too large to be walked through field by field."""


def read_columns(
    schema: StreamSchema, kind: AvroType, want: FieldMapping, rows: ByteCursors, latest_ms: int
) -> pl.DataFrame:
    """Return the schema's columns; which rows are sure is in ``rows.ok``. Raises ``TooManyStepsError``."""
    found: dict[str, pl.Series] = {}
    _ColumnReader(schema.zone).walk(rows, kind, want, found, 0)
    rows.ok &= rows.position == rows.end
    columns = {f.name: found.get(f.name, _null_column(f, len(rows))).rename(f.name) for f in schema.fields}
    for field in schema.fields:
        if not field.nullable:
            rows.ok &= columns[field.name].is_not_null().to_numpy()
    rows.ok &= (columns[schema.event_time] <= latest_ms).fill_null(value=False).to_numpy()
    return pl.DataFrame(columns)


class _ColumnReader:
    def __init__(self, zone: str) -> None:
        self.zone = zone
        self.steps = 0

    def walk(
        self,
        rows: ByteCursors,
        kind: AvroType,
        want: Field | FieldMapping | None,
        found: dict[str, pl.Series],
        depth: int,
    ) -> None:
        """Read (``want``) or pass over (None) a value of each row."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise TooManyStepsError
        if depth > _MAX_NESTING:
            rows.ok[:] = False
        if not rows.ok.any():
            return
        match kind:
            case UnionOf():
                self.union(rows, kind, want, found, depth)
            case RecordOf() if not isinstance(want, Field):
                inside = want.inside if want is not None else {}
                for name, inner in kind.fields:
                    self.walk(rows, inner, inside.get(name), found, depth + 1)
            case _ if isinstance(want, Field):
                found[want.name] = _value(rows, kind, want, self.zone)
            case _:
                _skip(rows, kind)

    def union(
        self,
        rows: ByteCursors,
        union: UnionOf,
        want: Field | FieldMapping | None,
        found: dict[str, pl.Series],
        depth: int,
    ) -> None:
        number = rows.read_long()
        rows.ok &= (number >= 0) & (number < len(union.branches))
        parts: list[tuple[Ints, dict[str, pl.Series]]] = []
        for place, branch in enumerate(union.branches):
            chosen = rows.ok & (number == place)
            if chosen.all():
                self.walk(rows, branch, want, found, depth + 1)
                return
            if chosen.any():
                mine: Ints = np.flatnonzero(chosen)
                part, inner = rows.subset(mine), dict[str, pl.Series]()
                self.walk(part, branch, want, inner, depth + 1)
                rows.write_back(mine, part)
                parts.append((mine, inner))
        found.update(_combine(len(rows), parts))


def _combine(count: int, parts: list[tuple[Ints, dict[str, pl.Series]]]) -> Mapping[str, pl.Series]:
    """Columns of some rows each as columns of all rows; null where there is none."""
    names = dict.fromkeys(name for _, inner in parts for name in inner)
    columns: dict[str, pl.Series] = {}
    for name in names:
        having = [(rows, inner[name]) for rows, inner in parts if name in inner and not inner[name].is_null().all()]
        having = having or [(rows, inner[name]) for rows, inner in parts if name in inner][:1]
        where: Ints = np.full(count, -1, dtype=np.int64)
        start = 0
        for rows, column in having:
            where[rows] = np.arange(start, start + len(rows))
            start += len(column)
        gathered = pl.Series(where).set(pl.Series(where < 0), None)
        columns[name] = pl.concat([column for _, column in having]).gather(gathered)
    return columns


def _null_column(field: Field, count: int) -> pl.Series:
    return pl.Series(field.name, [None], dtype=PHYSICAL[field.type.kind]).new_from_index(0, count)


def _skip(rows: ByteCursors, kind: AvroType) -> None:
    match kind:
        case Primitive("null"):
            pass
        case Primitive("boolean"):
            rows.ok &= rows.read_byte() <= 1
        case Primitive("int") | Enumeration():
            _int(rows)
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


def _int(rows: ByteCursors) -> Ints:
    number = rows.read_long()
    rows.ok &= (number >= _INT_MIN) & (number <= _INT_MAX)
    return number


def _value(rows: ByteCursors, kind: AvroType, field: Field, zone: str) -> pl.Series:
    match kind:
        case Primitive("null"):
            return _null_column(field, len(rows))
        case Primitive("boolean"):
            byte = rows.read_byte()
            rows.ok &= byte <= 1
            return pl.Series(byte == 1)
        case Primitive("float") | Primitive("double"):
            return _real(rows, kind.name)
        case Primitive("string"):
            return _text(rows, field, zone)
        case Primitive("bytes"):
            return _rescale(rows, _units(rows, *rows.read_prefixed()), field, kind.scale)
        case Fixed() if kind.logical == "decimal":
            begin = rows.skip(kind.size)
            return _rescale(rows, _units(rows, begin, np.full(len(rows), kind.size)), field, kind.scale)
        case Enumeration():
            number = _int(rows)
            rows.ok &= (number >= 0) & (number < len(kind.symbols))
            symbols = pl.Series([*kind.symbols, ""], dtype=pl.String)
            return symbols.gather(np.where(rows.ok, number, len(kind.symbols)))
        case Primitive():
            return _number(rows, _int(rows) if kind.name == "int" else rows.read_long(), field, type_name(kind), zone)
    rows.ok[:] = False
    return _null_column(field, len(rows))


def _real(rows: ByteCursors, name: str) -> pl.Series:
    size = 4 if name == "float" else 8
    number = np.ascontiguousarray(rows.read_bytes(size)).view(f"<f{size}").ravel().astype(np.float64)
    rows.ok &= np.isfinite(number)
    return pl.Series(number)


def _text(rows: ByteCursors, field: Field, zone: str) -> pl.Series:
    text = decode_utf8(rows.slice_bytes(*rows.read_prefixed()))
    rows.ok &= text.is_not_null().to_numpy()
    if field.type.kind is Kind.STRING:
        return text
    cells = parse_cells(field, text, zone)
    rows.ok &= cells.sure.to_numpy()
    return cells.values


def _units(rows: ByteCursors, begin: Ints, length: Ints) -> Ints:
    """Big-endian numbers of 1 to 8 bytes."""
    rows.ok &= (length >= 1) & (length <= _DECIMAL_BYTES)
    count = np.where(rows.ok, length, 1)
    units = rows.data[np.where(rows.ok, begin, 0)].astype(np.int8).astype(np.int64)
    for place in range(1, int(count.max(initial=1))):
        more = np.flatnonzero(count > place)
        units[more] = (units[more] << 8) | rows.data[begin[more] + place]
    return units


def _number(rows: ByteCursors, number: Ints, field: Field, sort: str, zone: str) -> pl.Series:
    match field.type.kind:
        case Kind.DOUBLE:
            return pl.Series(number.astype(np.float64))
        case Kind.DECIMAL:
            return _rescale(rows, number, field, 0)
        case Kind.TIMESTAMP:
            return _times(rows, number, sort, zone)
    return pl.Series(number)


def _rescale(rows: ByteCursors, units: Ints, field: Field, scale: int) -> pl.Series:
    """Units of one scale as the field's units, where none is lost and they fit."""
    more = field.type.scale - scale
    limit = 10**field.type.precision - 1
    if more < 0:
        if -more > 18:
            rows.ok &= units == 0
            return pl.Series(np.zeros_like(units))
        rows.ok &= units % 10**-more == 0
        units = units // 10**-more
    else:
        factor = 10**more
        rows.ok &= (units >= -(limit // factor)) & (units <= limit // factor)
        units = np.where(rows.ok, units, 0) * factor
    rows.ok &= (units >= -limit) & (units <= limit)
    return pl.Series(units)


def _times(rows: ByteCursors, number: Ints, sort: str, zone: str) -> pl.Series:
    if sort.endswith("micros"):
        number = number // _MICROS
    elif sort.endswith("nanos"):
        number = number // _NANOS
    elif sort == "date":
        number = number * _DAY_MS
    if sort == "date" or sort.startswith("local"):
        near = (number >= MIN_MS - _DAY_MS) & (number <= MAX_MS - _DAY_MS)
        rows.ok &= near
        number = local_to_utc(load_zone(zone), np.where(near, number, 0))
    rows.ok &= (number >= MIN_MS) & (number <= MAX_MS)
    return pl.Series(number)
