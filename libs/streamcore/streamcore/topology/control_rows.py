"""Control records as rows: the last input of an operator with a control input."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from streamcore.kernel import ControlRecord
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

#: Text columns of a control row. Bytes of a value that are not UTF-8 become ``\xNN``, so that the operator rejects the
#: row. A null value revokes the record of its key. The event time of a control row is always 0.
CONTROL_KEY = "key"
CONTROL_VALUE = "value"
SCHEMA = {CONTROL_KEY: pl.String(), CONTROL_VALUE: pl.String()}


def control_rows(records: Sequence[ControlRecord]) -> pl.DataFrame:
    """Return the records as rows, in order of offset. Records whose key is missing or not UTF-8 are left out."""
    keyed_records = [(key, record) for record in records if (key := _decode_key(record.key)) is not None]
    columns = {
        CONTROL_KEY: pl.Series([key for key, _ in keyed_records], dtype=pl.String),
        CONTROL_VALUE: pl.Series([_decode_value(record.value) for _, record in keyed_records], dtype=pl.String),
        EVENT_MS: pl.Series([0] * len(keyed_records), dtype=pl.Int64),
        PARTITION: pl.Series([record.partition for _, record in keyed_records], dtype=pl.Int32),
        OFFSET: pl.Series([record.offset for _, record in keyed_records], dtype=pl.Int64),
    }
    return pl.DataFrame(columns)


def _decode_key(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _decode_value(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
