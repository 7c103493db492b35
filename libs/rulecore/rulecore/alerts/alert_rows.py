"""The alerts of a cut as rows, for sinks: a column for each field that all alerts have. Those of the shadow lane are
rows of their own.

What differs from rule to rule, such as the key and the values of aggregates, is a column of text with JSON, so that the
columns do not change with the rules. The rows are made of the records, which are what an alert is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final  # an alert is JSON

import orjson
import polars as pl
import pyarrow as pa

from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import Record, table_lane

_TIME: Final = pl.Datetime("ms", "UTC")
_SCHEMA: Final[Mapping[str, Any]] = {
    "alert_id": pl.String,
    "rule": pl.String,
    "version": pl.Int64,
    "mode": pl.String,
    "stream": pl.String,
    "severity": pl.String,
    "outcome": pl.String,
    "score": pl.Int64,
    "kind": pl.String,
    "key_json": pl.String,
    "window_start": _TIME,
    "window_end": _TIME,
    "timing": pl.String,
    "event_time": _TIME,
    "values_json": pl.String,
    "source_topic": pl.String,
    "source_partition": pl.Int64,
    "source_offset": pl.Int64,
    "incomplete": pl.Boolean,
    "message": pl.String,
    "rules_epoch": pl.Int64,
    "suppressed": pl.Int64,
    "decision_id": pl.String,
    "event_json": pl.String,
    "events_json": pl.String,
}
#: Columns that are a field of an alert as it is.
_SAME: Final = ("alert_id", "rule", "version", "mode", "stream", "severity", "outcome", "score", "kind", "timing")
_SAME_TOO: Final = ("incomplete", "message", "rules_epoch")


def alert_columns() -> pa.Schema:
    """Return the columns of the rows, as a sink receives them."""
    return to_table(pl.DataFrame(schema=_SCHEMA)).schema


def alert_rows(records: Sequence[Record], lane: str) -> LaneRows | None:
    """Return the rows of the alerts of a lane among these records, in their order; None if there are none."""
    rows = [_to_row(orjson.loads(record.value or b"")) for record in records if record.lane == lane]
    return (
        LaneRows(table_lane(lane), (), pl.DataFrame(rows, schema=_SCHEMA, orient="row"), whole=True) if rows else None
    )


def _to_row(alert: Mapping[str, Any]) -> tuple[Any, ...]:
    window, source = alert["window"] or {}, alert["source"] or {}
    row = {name: alert[name] for name in (*_SAME, *_SAME_TOO)} | {
        "key_json": _json(alert["key"]),
        "window_start": window.get("start_ms"),
        "window_end": window.get("end_ms"),
        "event_time": alert["event_time_ms"],
        "values_json": _json(alert["values"]),
        "source_topic": source.get("topic"),
        "source_partition": source.get("partition"),
        "source_offset": source.get("offset"),
        "suppressed": alert.get("suppressed"),
        "decision_id": alert.get("decision_id"),
        "event_json": _json(alert.get("event")),
        "events_json": _json(alert.get("events")),
    }
    return tuple(row[name] for name in _SCHEMA)


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
