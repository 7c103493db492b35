"""Control records as rows: the last input of an operator that listens to the control topic."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from streamcore.kernel import ControlRecord
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

#: Columns of a control row: text, as all that rows hold. Bytes of a value that are no UTF-8 stand in it as ``\xNN``,
#: for the operator to refuse; a null value takes back what ``key`` names. Their event time says nothing.
CONTROL_KEY = "key"
CONTROL_VALUE = "value"
SCHEMA = {CONTROL_KEY: pl.String(), CONTROL_VALUE: pl.String()}


def control_rows(records: Sequence[ControlRecord]) -> pl.DataFrame:
    """In order of offset; a record whose key is no text is left out, for no program can name it."""
    named = [(key, record) for record in records if (key := _text(record.key)) is not None]
    columns = {
        CONTROL_KEY: pl.Series([key for key, _ in named], dtype=pl.String),
        CONTROL_VALUE: pl.Series([_readable(record.value) for _, record in named], dtype=pl.String),
        EVENT_MS: pl.Series([0] * len(named), dtype=pl.Int64),
        PARTITION: pl.Series([record.partition for _, record in named], dtype=pl.Int32),
        OFFSET: pl.Series([record.offset for _, record in named], dtype=pl.Int64),
    }
    return pl.DataFrame(columns)


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _readable(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
