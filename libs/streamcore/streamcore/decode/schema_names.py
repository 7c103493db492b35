"""Decodes the name of the schema that each record was written with: it tells kinds of event in one topic apart."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from streamcore.decode.scalar.values import RecordError
from streamcore.decode.types import Decoded, RawBatch, dead_table
from streamcore.schema import StreamSchema


def decode_names(schema: StreamSchema, batch: RawBatch, find_name: Callable[[int], str | None]) -> Decoded:
    """Return events of one field, the name. ``find_name``: of the record in a row; null for a schema without a name.
    It raises ``RecordError`` if the record has no schema.
    """
    names: list[str | None] = []
    rows: list[int] = []
    dead: list[tuple[int, str, str]] = []
    for row in range(len(batch)):
        try:
            names.append(find_name(row))
            rows.append(row)
        except RecordError as error:
            dead.append((row, error.code.value, error.reason))
    places = pa.array(rows, pa.int64())
    engine = [batch.partition.take(places), batch.offset.take(places), pa.nulls(len(rows), pa.int64())]
    events = pa.Table.from_arrays([pa.array(names, pa.large_string()), *engine], schema=schema.arrow)
    return Decoded(events, dead_table(dead))
