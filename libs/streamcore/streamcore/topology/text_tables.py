"""Input and output tables of a simulation: events from Python rows, results as text. For examples and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.value_codec import ValueTypeMismatch
from streamcore.keyed.value_types import value_type_for_column
from streamcore.schema import Kind, StreamSchema
from streamcore.topology.nodes import polars_dtype
from streamcore.wire.lanes import Record


def event_table(stream: StreamSchema, rows: Sequence[Sequence[object]]) -> pl.DataFrame:
    """Return a frame of events from rows, each with the values in the order of the stream's fields.

    Times may be ISO 8601 text (without an offset: in the stream's zone), decimals may be text.
    ``ConfigError`` for a row of another length, or a value that does not have its field's type.
    """
    for row in rows:
        if len(row) != len(stream.fields):
            raise ConfigError(f"stream {stream.name}: {row} has {len(row)} values, the fields are {[*stream.names]}")
    return pl.DataFrame([_column(stream, index, [row[index] for row in rows]) for index in range(len(stream.fields))])


def format_tables(lanes: Mapping[str, pl.DataFrame], dead: Sequence[Record] = ()) -> str:
    """Return each lane as a table under its name, then the reason and the value of each dead letter."""
    tables = [f"{name}\n{_format_table(rows)}" for name, rows in sorted(lanes.items())]
    dead_letters = [
        f"{_reason_text(record)}\n  {(record.value or b'').decode(errors='backslashreplace')}" for record in dead
    ]
    return "\n\n".join([*tables, *(["\n".join(["dead letters", *dead_letters])] if dead_letters else [])])


def _column(stream: StreamSchema, index: int, values: Sequence[object]) -> pl.Series:
    field = stream.fields[index]
    kind = value_type_for_column(polars_dtype(field.type))
    try:
        coerced = [kind.coerce(_parse(field.type.kind, value, stream.zone)) for value in values]
    except (ValueTypeMismatch, ValueError, ArithmeticError) as error:
        raise ConfigError(f"stream {stream.name}, field {field.name}, {field.type}: {error}") from error
    return pl.Series(field.name, coerced, dtype=kind.dtype)


def _parse(kind: Kind, value: object, zone: str) -> object:
    """Return a decimal or a time from text; other values unchanged."""
    if isinstance(value, str) and kind is Kind.DECIMAL:
        return Decimal(value)
    if isinstance(value, str) and kind is Kind.TIMESTAMP:
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=ZoneInfo(zone))
    return value


def _format_table(rows: pl.DataFrame) -> str:
    with pl.Config(
        tbl_formatting="ASCII_MARKDOWN",
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=-1,
        fmt_str_lengths=1_000,
        fmt_table_cell_list_len=-1,
    ):
        return str(rows)


def _reason_text(record: Record) -> str:
    headers = dict(record.headers)
    return f"{headers.get('reason_code', b'').decode()}: {headers.get('reason', b'').decode().partition(chr(10))[0]}"
