"""The latest records in the live view of a service."""

from __future__ import annotations

from headgate.demo.views.service import LatestRecord
from headgate.demo.views.service_watch import brief, select_latest


def test_a_record_is_shown_as_names_and_values_without_nulls() -> None:
    text = '{"minute":"2024-02-26T02:21:00+00:00","revenue":"13.80","payments":2,"is_final":false,"currency":null}'
    assert brief(text) == "minute 2024-02-26T02:21:00  revenue 13.80  payments 2  is_final false"


def test_a_value_that_is_no_json_object_is_shown_unchanged() -> None:
    for text in ("not_json: {", "[1]", "", "7"):
        assert brief(text) == text


def test_a_lane_with_many_rows_hides_no_other() -> None:
    many = [LatestRecord(1_000 + n, "many", str(n)) for n in range(100)]
    few = [LatestRecord(500, "few", "x")]
    shown = select_latest([many, few, []], 10)
    assert [row.text for row in shown] == ["99", "98", "97", "96", "95", "x"]
    assert select_latest([], 10) == ()


def test_the_latest_record_is_shown_first() -> None:
    shown = select_latest([[LatestRecord(1_000, "a", "old")], [LatestRecord(9_000, "b", "new")]], 10)
    assert [row.text for row in shown] == ["new", "old"]
