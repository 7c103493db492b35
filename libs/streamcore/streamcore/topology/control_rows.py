"""Control records as rows: the last input of an operator with a control input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from streamcore.app import CONTROL
from streamcore.kernel import ControlRecord
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.operators.process import FAILED_CONTROL
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.topology.dead_letters import DeadLetterWriter
from streamcore.topology.nodes import ORIGIN_SCHEMA
from streamcore.wire.lanes import Record
from streamcore.wire.raw import RAW_KEY, RAW_OFFSET, RAW_PARTITION, RAW_VALUE

#: Text columns of a control row. Bytes of a value that are not UTF-8 become ``\xNN``, so that the operator rejects the
#: row. A null value revokes the record of its key.
CONTROL_KEY = "key"
CONTROL_VALUE = "value"
#: The columns of a control row: its text, and its record, as rows of a source with ``raw=True`` have it.
SCHEMA = {CONTROL_KEY: pl.String(), CONTROL_VALUE: pl.String(), **ORIGIN_SCHEMA}


def control_rows(records: Sequence[ControlRecord], watermark_ms: int) -> pl.DataFrame:
    """Return the records as rows, in order of offset, without those of ``unreadable_records``.

    Their event time is the watermark, 0 before the first: so no row that they give is late, and none is early.
    """
    readable = [(key, record) for record in records if (key := _decode_key(record.key)) is not None]
    columns = {
        CONTROL_KEY: [key for key, _ in readable],
        CONTROL_VALUE: [_decode_value(record.value) for _, record in readable],
        **_origin([record for _, record in readable]),
        EVENT_MS: [max(0, watermark_ms)] * len(readable),
        PARTITION: [record.partition for _, record in readable],
        OFFSET: [record.offset for _, record in readable],
    }
    return pl.DataFrame(columns, schema={**SCHEMA, EVENT_MS: pl.Int64, PARTITION: pl.Int32, OFFSET: pl.Int64})


def unreadable_records(records: Sequence[ControlRecord], writer: DeadLetterWriter) -> Iterator[Record]:
    """Yield a dead letter for each record whose key is missing or no UTF-8 text."""
    unreadable = [record for record in records if _decode_key(record.key) is None]
    reasons = [f"control: the key is {'missing' if r.key is None else 'no UTF-8 text'}" for r in unreadable]
    rows = pl.DataFrame(_origin(unreadable), schema=ORIGIN_SCHEMA)
    yield from writer.to_records(rows, [FAILED_CONTROL] * len(reasons), reasons)


def _origin(records: Sequence[ControlRecord]) -> dict[str, list[bytes | None] | list[int]]:
    """Return the columns of ``ORIGIN_SCHEMA``."""
    return {
        RAW_KEY: [record.key for record in records],
        RAW_VALUE: [record.value for record in records],
        RAW_PARTITION: [CONTROL * PARTITIONS_PER_TOPIC + record.partition for record in records],
        RAW_OFFSET: [record.offset for record in records],
    }


def _decode_key(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _decode_value(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")
