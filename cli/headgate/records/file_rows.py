"""Reads a Parquet or JSON-lines file as the records of a stream: JSON values, keys, event times.

Promises that every row becomes exactly one record, in the file's order. A value is converted to the type of the
stream's schema where that loses nothing (6.0 becomes 6 for a ``long``, a decimal keeps its digits); any other value is
sent unchanged, and the engine rejects it with a reason. A time of a Parquet file becomes a text in the ``pattern`` of
its field. What is inside of an object stays as it is. Blank lines are
skipped. NaN and infinities, which JSON does not have, become null at any depth.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import InputError
from streamcore.schema import Kind, StreamSchema
from streamcore.schema.record_layout import file_form, layouts

_BATCH_ROWS = 10_000
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\s.-]+")
_LONG = 2**63
_UTC = datetime.UTC


@dataclass(frozen=True, slots=True)
class Row:
    """A record to send. ``key``: the record key; None if a field of it is null. ``time_ms``: the event time in epoch
    milliseconds, which sets the speed of a replay; None if the row has no readable event time."""

    value: bytes
    key: bytes | None
    time_ms: int | None


def snake_case(name: str) -> str:
    """Convert a column name to snake case: ``InvoiceNo`` to ``invoice_no``, ``Unit Price`` to ``unit_price``."""
    return _WORDS.sub("_", name.strip()).lower()


def count_rows(path: Path) -> int | None:
    """Return the number of rows of a file; None if that needs reading the whole file."""
    return int(open_parquet(path).metadata.num_rows) if _is_parquet(path) else None


def read_rows(path: Path, schema: StreamSchema, key: Sequence[str] | None = None) -> Iterator[Row]:
    """Read the file's rows. ``key``: fields of the record key, by default those of the stream's first key.

    Raises ``InputError`` at once for an unknown key field or file type, and while the rows are read if the file cannot
    be read or the columns of a Parquet file do not fit the stream.
    """
    fields = tuple(schema.keys[0] if key is None else key)
    if unknown := [f for f in fields if schema.get(f) is None]:
        raise InputError(f"key {unknown}: no field of stream {schema.name}; fields are {', '.join(schema.names)}")
    return _parquet_rows(path, schema, fields) if _is_parquet(path) else _json_rows(path, _in_values(schema), fields)


def _in_values(schema: StreamSchema) -> StreamSchema:
    """Return the schema of the rows: that of the fields in the values of records. A file has no others."""
    return layouts(schema)[file_form(schema)].value


_JSON_LINES = (".jsonl", ".ndjson", ".json")


def _is_parquet(path: Path) -> bool:
    match path.suffix.lower():
        case ".parquet" | ".pq":
            return True
        case suffix if suffix in _JSON_LINES:
            return False
    raise InputError(f"{path}: neither .parquet nor .jsonl (one JSON object per line); convert it first")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open the file; ``InputError`` when it is not Parquet."""
    if path.suffix.lower() in _JSON_LINES:
        convert = f"polars.read_ndjson('{path}').write_parquet('{path.with_suffix('.parquet')}')"
        raise InputError(f'{path}: only Parquet is read here; convert JSON lines: python -c "import polars; {convert}"')
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}; is it complete?") from None


def _parquet_rows(path: Path, schema: StreamSchema, key: tuple[str, ...]) -> Iterator[Row]:
    file = open_parquet(path)
    names, inside = stream_columns(list(file.schema_arrow.names), schema, path), _in_values(schema)
    for batch in file.iter_batches(_BATCH_ROWS):
        for values in _documents(batch, names, schema):
            yield _row(values, inside, key)


def json_values(batch: pa.RecordBatch, names: Sequence[str], schema: StreamSchema) -> list[bytes]:
    """Encode the rows of a Parquet file as record values; ``names``: those of ``stream_columns``."""
    return [_encode(values) for values in _documents(batch, names, schema)]


def _documents(batch: pa.RecordBatch, names: Sequence[str], schema: StreamSchema) -> Iterator[dict[str, object]]:
    inside = _in_values(schema)
    convert = [_converter(inside, name) for name in names]
    columns = [
        [None if v is None else convert_value(v) for v in _plain(_as_in_records(column, schema, name))]
        for convert_value, column, name in zip(convert, batch.columns, names, strict=True)
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _as_in_records(column: pa.Array, schema: StreamSchema, name: str) -> pa.Array:
    """Return the column as records have it: times of a field with a ``pattern`` are texts in that pattern."""
    field = schema.at(name)
    if field is None or not field.pattern or not pa.types.is_timestamp(column.type):
        return column
    import polars as pl

    from streamcore.columnar.time_patterns import local_to_utc, write_pattern
    from streamcore.schema.time_patterns import TimePattern

    ms = pl.col("time").dt.epoch("ms")
    utc = ms if column.type.tz else local_to_utc(ms, schema.zone)
    text = write_pattern(utc, TimePattern.parse(field.pattern), schema.zone)
    frame = pl.DataFrame({"time": pl.Series(pl.from_arrow(column))})
    return frame.select(text.alias("text"))["text"].to_arrow()


def stream_columns(columns: list[str], schema: StreamSchema, path: Path) -> list[str]:
    """Return the stream's names for the file's columns; ``InputError`` when they do not belong to the stream."""
    schema = _in_values(schema)
    names = [_rename(column, schema) for column in columns]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise InputError(f"{path}: several columns are {', '.join(twice)} in the stream; rename or drop one of each")
    time = _location(schema, schema.event_time)
    if time and time[0] not in names:
        raise InputError(
            f"{path}: there is no column {time[0]} with the event time of stream {schema.name}; "
            f"its columns are {', '.join(columns)}: is --stream the right one?"
        )
    return names


def _rename(name: str, schema: StreamSchema) -> str:
    """Map a column's name to a field's name if one matches; other columns keep their name."""
    snake = snake_case(name)
    return snake if schema.at(name) is None and schema.at(snake) is not None else name


def _location(schema: StreamSchema, name: str) -> tuple[str, ...]:
    """Return the path of a field in a row; empty if a row does not have it."""
    field = schema.get(name)
    return () if field is None else field.location


def _value(values: Mapping[str, object], path: Sequence[str]) -> object:
    """Return the value at a path of a record; None if there is none."""
    found: object = values if path else None
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _plain(column: pa.Array) -> list[object]:
    """Return the values of a column as Python objects; times are truncated to microseconds, as Python has them."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[object] = column.to_pylist()
    return values


def _json_rows(path: Path, schema: StreamSchema, key: tuple[str, ...]) -> Iterator[Row]:
    try:
        with path.open("rb") as lines:
            for line in lines:
                if text := line.strip():
                    yield _json_row(text, schema, key)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a file that you may read") from None


def _json_row(text: bytes, schema: StreamSchema, key: tuple[str, ...]) -> Row:
    constants: list[str] = []  # NaN and infinities; ``append`` returns None, so each becomes null at any depth
    try:
        document = json.loads(text, parse_float=decimal.Decimal, parse_constant=constants.append)
    except (ValueError, RecursionError):
        return Row(text, None, None)
    if not isinstance(document, dict):
        return Row(text, None, None)
    renamed = {_rename(name, schema): value for name, value in document.items()}
    converted = {name: None if v is None else _converter(schema, name)(v) for name, v in renamed.items()}
    row = _row(converted, schema, key)
    # A line that needs no conversion is sent byte for byte; so is one with two names for one field.
    unchanged = (
        not constants
        and list(converted.items()) == list(document.items())
        and all(type(converted[n]) is type(document[n]) for n in document)
    )
    return Row(text, row.key, row.time_ms) if unchanged or len(renamed) < len(document) else row


def _row(values: Mapping[str, object], schema: StreamSchema, key: tuple[str, ...]) -> Row:
    parts = [_value(values, _location(schema, field)) for field in key]
    if not parts or any(part is None for part in parts):
        record_key = None
    elif len(parts) == 1:
        record_key = str(parts[0]).encode("utf-8", "replace")
    else:
        record_key = _encode(parts)
    return Row(_encode(values), record_key, _time_ms(_value(values, _location(schema, schema.event_time))))


def _encode(value: object) -> bytes:
    try:
        return orjson.dumps(value, default=_encode_other)
    except TypeError:  # a whole number beyond 64 bits, a broken surrogate: the standard library writes those
        return json.dumps(value, default=str, separators=(",", ":")).encode("utf-8")


def _encode_other(value: object) -> object:
    if isinstance(value, decimal.Decimal):
        return orjson.Fragment(format(value, "f").encode()) if value.is_finite() else None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _time_ms(value: object) -> int | None:
    """Return the event time in epoch milliseconds, for the speed of a replay alone; a time without a zone is read as
    UTC."""
    if isinstance(value, int):
        return value
    if not isinstance(value, str):
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=_UTC)).timestamp() * 1000)


def _converter(schema: StreamSchema, name: str) -> Callable[[object], object]:
    field = schema.at(name)
    return _CONVERTERS.get(field.type.kind, _to_json_value) if field else _to_json_value


def _to_json_value(value: object) -> object:
    """Convert a value that JSON does not have: NaN and infinities to null, dates and times to ISO 8601."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, datetime.datetime | datetime.date) else value


def _to_long(value: object) -> object:
    if isinstance(value, float | decimal.Decimal) and math.isfinite(value) and value == int(value):
        return int(value) if -_LONG <= value < _LONG else value
    return _to_json_value(value)


def _to_string(value: object) -> object:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole else _to_json_value(value)


_CONVERTERS: dict[Kind, Callable[[object], object]] = {Kind.LONG: _to_long, Kind.STRING: _to_string}
