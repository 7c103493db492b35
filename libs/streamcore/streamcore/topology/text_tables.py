"""Tables as people write and read them: input and output of a simulation as text.

For examples, tests and trying things out. Refuses to know JSON and lanes of Kafka, which have their own rules.
"""

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
    """Rows of a stream: values in the order of its fields.

    Times may be ISO 8601 text (without an offset: in the stream's zone), decimals may be text.
    ``ConfigError`` for a row of another length or a value that is not of its field's type.
    """
    for row in rows:
        if len(row) != len(stream.fields):
            raise ConfigError(f"stream {stream.name}: {row} has {len(row)} values, the fields are {[*stream.names]}")
    return pl.DataFrame([_column(stream, place, [row[place] for row in rows]) for place in range(len(stream.fields))])


def format_tables(lanes: Mapping[str, pl.DataFrame], dead: Sequence[Record] = ()) -> str:
    """Each lane as a table under its name, then a line per rejected record: the reason, and its contents."""
    parts = [f"{name}\n{_draw(rows)}" for name, rows in sorted(lanes.items())]
    letters = [f"{_reason(record)}\n  {(record.value or b'').decode()}" for record in dead]
    return "\n\n".join([*parts, *(["\n".join(["dead letters", *letters])] if letters else [])])


def _column(stream: StreamSchema, place: int, values: Sequence[object]) -> pl.Series:
    field = stream.fields[place]
    kind = value_type_for_column(polars_dtype(field.type))
    try:
        fitted = [kind.coerce(_read(field.type.kind, value, stream.zone)) for value in values]
    except (ValueTypeMismatch, ValueError, ArithmeticError) as error:
        raise ConfigError(f"stream {stream.name}, field {field.name}, {field.type}: {error}") from error
    return pl.Series(field.name, fitted, dtype=kind.dtype)


def _read(kind: Kind, value: object, zone: str) -> object:
    """Return the value that the text stands for."""
    if isinstance(value, str) and kind is Kind.DECIMAL:
        return Decimal(value)
    if isinstance(value, str) and kind is Kind.TIMESTAMP:
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=ZoneInfo(zone))
    return value


def _draw(rows: pl.DataFrame) -> str:
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


def _reason(record: Record) -> str:
    headers = dict(record.headers)
    return f"{headers.get('reason_code', b'').decode()}: {headers.get('reason', b'').decode().partition(chr(10))[0]}"
