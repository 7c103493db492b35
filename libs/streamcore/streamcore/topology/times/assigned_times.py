"""Assigns the event time of rows from a column, and measures how far it has progressed, by source partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from streamcore.engine.ingest import measure_progress
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, PARTITION
from streamcore.topology.nodes import TimestampsNode
from streamcore.watermark import Progress
from streamcore.wire.arrow_ipc import to_table

_NO_TIME, _AHEAD = "the time is null", "the time is ahead of the clock by more than the limit"
_MS = pl.col(pl.Datetime).dt.epoch("ms")


@dataclass(frozen=True, slots=True)
class AssignedTimes:
    """Rows with their new event time, and those without one. ``reasons``: of each of the latter. ``progress``: of each
    derived partition."""

    rows: pl.DataFrame
    rejected: pl.DataFrame
    reasons: list[str]
    progress: list[Progress]


def assign_times(
    node: TimestampsNode, rows: pl.DataFrame, derived: Mapping[int, int], latest_ms: int | None
) -> AssignedTimes:
    """Set the event time of the rows. ``derived``: the index of the derived source by that of the source of a row.

    ``latest_ms``: a later time is rejected, as one of an event from the future; None: there is no limit.
    """
    times = rows[node.column].dt.epoch("ms")
    is_ahead = times > latest_ms if latest_ms is not None else times.is_null() & False
    is_rejected = times.is_null() | is_ahead.fill_null(value=False)
    rejected = rows.filter(is_rejected)
    reasons = [
        f"column {node.column}: {_NO_TIME if time is None else _AHEAD}" for time in rejected[node.column].to_list()
    ]
    assigned = rows.with_columns(times.alias(EVENT_MS)).filter(~is_rejected)
    return AssignedTimes(assigned, rejected, reasons, _progress(node, assigned, derived))


def _progress(node: TimestampsNode, rows: pl.DataFrame, derived: Mapping[int, int]) -> list[Progress]:
    """Return the progress of the derived partitions. It counts no events: the sources do."""
    if not rows.height:
        return []
    source, partition = pl.col(PARTITION) // PARTITIONS_PER_TOPIC, pl.col(PARTITION) % PARTITIONS_PER_TOPIC
    number = source.replace_strict(derived, return_dtype=pl.Int32) * PARTITIONS_PER_TOPIC + partition
    marks = [name for name in (node.watermark.punctuation, node.watermark.end) if name is not None]
    measured = rows.select(number.cast(pl.Int32).alias(PARTITION), EVENT_MS, *marks).with_columns(_MS)
    return [replace(progress, events=0) for progress in measure_progress(to_table(measured), node.watermark)]
