"""Tables as text for people."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pytest

from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.simulation import SimulationResult
from streamcore.topology.stream import source
from streamcore.topology.text_tables import event_table
from streamcore.wire.lanes import DEAD_LETTERS, Record

STREAM = StreamSchema.parse(
    {
        "name": "sales",
        "event_time": "at",
        "keys": [["user"]],
        "zone": "Europe/Paris",
        "fields": {"at": "timestamp not null", "user": "string", "amount": "decimal(6,2)", "n": "long"},
    }
)


def test_a_table_has_the_columns_of_a_source_of_its_stream() -> None:
    assert event_table(STREAM, []).schema == source(STREAM).schema


def test_times_are_text_with_or_without_an_offset_and_decimals_are_exact() -> None:
    noon = datetime(2026, 3, 2, 11, tzinfo=UTC)
    written = ["2026-03-02 12:00:00", "2026-03-02T11:00:00Z", noon]
    found = event_table(STREAM, [(at, None, "0.10", 1) for at in written])
    assert found.rows() == [(noon, None, Decimal("0.10"), 1)] * 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("2026-03-02", "ann", "1.00"), "has 3 values, the fields are"),
        (("soon", "ann", "1.00", 1), "stream sales, field at, timestamp: Invalid isoformat"),
        (("2026-03-02", "ann", "much", 1), "field amount"),
        (("2026-03-02", "ann", "1.00", "one"), "field n"),
        (("2026-03-02", 7, "1.00", 1), "field user"),
        (("2026-03-02", "ann", "1.005", 1), "field amount"),
        (("2026-03-02", "ann", "12345.00", 1), "field amount"),
    ],
)
def test_a_value_that_a_field_cannot_hold_is_rejected(row: tuple[object, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        event_table(STREAM, [row])


def test_a_result_is_printed_by_lane_whole_and_dead_letters_with_their_reasons() -> None:
    long = "x" * 300
    result = SimulationResult({"b": pl.DataFrame({"n": range(12)}), "a": pl.DataFrame({"text": [long]})})
    result.dead = [Record(DEAD_LETTERS, None, b"{}", (("reason_code", b"failed"), ("reason", b"why\nat length")))]
    lines = result.text().splitlines()
    assert lines[0] == "a"
    assert long in lines[3]
    assert lines[5:9] == ["b", "| n  |", "|----|", "| 0  |"]
    assert lines[-3:] == ["dead letters", "failed: why", "  {}"]
    assert result.text("b").splitlines()[0] == "b"
