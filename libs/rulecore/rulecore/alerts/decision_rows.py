"""The decisions of a cut as rows, for sinks: a column for each field that all decisions have.

The rules of a decision, and what differs from stream to stream, are columns of text with JSON, so that the columns do
not change with the rules. The driver makes the rows of the merged records, so this module imports no columnar library
but Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final  # a decision is JSON

import orjson
import pyarrow as pa

from rulecore.alerts.decisions import merge_decisions
from streamcore.wire.arrow_ipc import ipc_stream
from streamcore.wire.lanes import DECISIONS, Record, table_lane

_SCHEMA: Final = pa.schema(
    {
        "decision_id": pa.large_string(),
        "policy": pa.large_string(),
        "version": pa.int64(),
        "outcome": pa.large_string(),
        "score": pa.int64(),
        "band": pa.large_string(),
        "cause": pa.large_string(),
        "stream": pa.large_string(),
        "event_id": pa.large_string(),
        "key_json": pa.large_string(),
        "event_time": pa.timestamp("ms", "UTC"),
        "source_topic": pa.large_string(),
        "source_partition": pa.int64(),
        "source_offset": pa.int64(),
        "rules_epoch": pa.int64(),
        "rules_json": pa.large_string(),
        "shadow_json": pa.large_string(),
        "left_out": pa.int64(),
    }
)
#: Columns that are a field of a decision as it is.
_SAME: Final = ("decision_id", "policy", "version", "outcome", "score", "band", "cause", "stream", "rules_epoch")


def decision_columns() -> pa.Schema:
    """Return the columns of the rows, as a sink receives them."""
    return _SCHEMA


def merge_decisions_and_rows(parts: pa.Table) -> Sequence[Record]:
    """Return the records of ``merge_decisions``, and their rows as one record of the lane that sinks take."""
    records = merge_decisions(parts)
    rows = [_to_row(orjson.loads(record.value or b"")) for record in records]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    return [*records, Record(table_lane(DECISIONS), None, ipc_stream(table))]


def _to_row(decision: Mapping[str, Any]) -> Mapping[str, Any]:
    source, name = decision["source"], decision["event_id"]
    return {field: decision[field] for field in _SAME} | {
        "event_id": name if name is None or isinstance(name, str) else _json(name),
        "key_json": _json(decision["key"]),
        "event_time": decision["event_time_ms"],
        "source_topic": source["topic"],
        "source_partition": source["partition"],
        "source_offset": source["offset"],
        "rules_json": _json(decision["rules"]),
        "shadow_json": _json(decision["shadow"]),
        "left_out": decision.get("left_out", 0),
    }


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
