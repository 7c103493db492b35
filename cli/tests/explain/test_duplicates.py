"""Of a stream with ``deduplicate``, an explanation counts an event once, and tells that an event is a duplicate."""

from __future__ import annotations

import polars as pl
import pytest

from headgate.explain.evidence import Evidence, drop_duplicates
from rulecore.explain.explanation import ExplainQuestion
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

DOCUMENT = {
    "name": "pay",
    "event_time": "ts",
    "event_id": "id",
    "keys": [["user"]],
    "fields": {"id": "string", "ts": "timestamp not null", "user": "string"},
}
ONCE = StreamSchema.parse(DOCUMENT | {"deduplicate": "1h"})


def evidence(ids: list[str], row: int | None, stream: StreamSchema = ONCE) -> Evidence:
    events = pl.DataFrame({"id": ids, "ts": [0] * len(ids), "user": ["u"] * len(ids)}).with_columns(
        pl.lit(0, pl.Int32).alias(PARTITION),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET),
        pl.col("ts").alias(EVENT_MS),
    )
    source = RuleInput.of_stream(stream, "pay")
    place = None if row is None else (0, row)
    return Evidence(source, {stream.name: events}, ExplainQuestion(row=row), "u", place=place)


@pytest.mark.parametrize(
    ("row", "offsets", "new_row", "duplicate"),
    [(None, [0, 1, 3], None, False), (3, [0, 1, 3], 2, False), (2, [1, 2, 3], 1, True)],
)
def test_an_event_counts_once_and_the_event_in_question_stays(
    row: int | None, offsets: list[int], new_row: int | None, duplicate: bool
) -> None:
    found = drop_duplicates(evidence(["a", "b", "a", "c"], row))
    assert found.events[OFFSET].to_list() == offsets
    assert (found.question.row, found.duplicate) == (new_row, duplicate)
    assert found.notes == ("1 events of the key are duplicates and do not count",)


def test_without_the_line_all_events_count() -> None:
    before = evidence(["a", "a"], 1, StreamSchema.parse(DOCUMENT))
    assert drop_duplicates(before) == before
