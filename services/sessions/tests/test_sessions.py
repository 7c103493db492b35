"""Sessions of the demo shop's events, out of order, twice and late, equal SQL over the same events."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.topology.simulation import SimulationResult
from tests.harness.apps.sessions_app import (
    CHECKOUT_GAP_MS,
    GAP_MS,
    ROOT,
    late_events,
    new_settings,
    run_cuts,
    select_final,
    shop_events,
)
from tests.harness.oracles import sessions as oracle

EVENTS = 4_000
ENDS = [range(500, EVENTS, 500), range(130, EVENTS, 730)]


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    return shop_events(EVENTS)


def rows_of(table: pl.DataFrame) -> list[oracle.Row]:
    """Return the rows in the form of the oracle."""
    times = pl.col("started_at", "ended_at").dt.epoch("ms")
    money = (pl.col("revenue") * 100).cast(pl.Int64)
    numbers = ("events", "pages", "first_page", "last_page", "converted")
    return table.select("user_id", times, *numbers, money, "funnel_step", "bounce").rows()


def expected(events: pl.DataFrame, result: SimulationResult) -> set[oracle.Row]:
    """Return the sessions of the events that are not in the late lane."""
    late = late_events(result, events)["event_id"].to_list()
    taken = events.filter(~pl.col("event_id").is_in(late))
    return oracle.sessions(taken, gap_ms=GAP_MS, checkout_gap_ms=CHECKOUT_GAP_MS)


def seconds_after(events: pl.DataFrame, *seconds: int) -> pl.Series:
    """Return times so long after the first of these events."""
    first = events["ts"].min()
    assert isinstance(first, datetime)
    return pl.Series([first + timedelta(seconds=one) for one in seconds], dtype=pl.Datetime("ms", "UTC"))


def check(events: pl.DataFrame, result: SimulationResult) -> None:
    table = select_final(result["sessions"])
    found = rows_of(table)
    assert len(found) == len(set(found))
    assert set(found) == expected(events, result)
    assert table["is_final"].all()


@pytest.mark.slow
@pytest.mark.parametrize("ends", ENDS, ids=["cuts of 500", "other cuts"])
@pytest.mark.parametrize("shards", [1, 3])
def test_sessions_equal_the_oracles(events: pl.DataFrame, ends: range, shards: int) -> None:
    result = run_cuts(new_settings(), events, ends, shards=shards)
    check(events, result)
    assert result.late
    assert result.counters["deduplicate-1.duplicates"] > 10


@pytest.mark.slow
def test_sessions_of_a_stream_with_deduplicate_equal_those_of_the_setting(events: pl.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text((ROOT / "streams" / "shop.yaml").read_text() + "deduplicate: 1h\n")
    of_stream = new_settings(deduplicate_ms=0, stream={"schema_file": str(file), "topic": "shop"})
    result = run_cuts(of_stream, events, ENDS[1], shards=3)
    assert result.counters["deduplication.shop.duplicates"] > 10
    of_setting = run_cuts(new_settings(), events, ENDS[1], shards=3)
    assert set(rows_of(select_final(result["sessions"]))) == set(rows_of(select_final(of_setting["sessions"])))
    each = run_cuts(new_settings(deduplicate_ms=0), events, ENDS[1], shards=3)
    assert set(rows_of(select_final(each["sessions"]))) != set(rows_of(select_final(of_setting["sessions"])))


@pytest.mark.slow
def test_the_late_lane_has_exactly_the_events_sent_hours_late(events: pl.DataFrame) -> None:
    result = run_cuts(new_settings(), events, ENDS[0])
    assert late_events(result, events)["ts"].max() < events["ts"].sort()[EVENTS // 100]
    reasons = [dict(record.headers)["reason"].decode() for record in result.late]
    assert all("by more than the" in reason or "may be forgotten" in reason for reason in reasons)
    assert min(int(reason.split("; ")[1].split()[0]) for reason in reasons) >= 3_000_000


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 1_500), max_size=6), st.sampled_from([0, 1_500]), st.sampled_from([1, 3]))
def test_final_sessions_do_not_depend_on_how_the_input_is_cut(ends: list[int], early_ms: int, shards: int) -> None:
    events = shop_events(1_500, users=40)
    check(events, run_cuts(new_settings(early_ms=early_ms), events, ends, shards=shards))


@pytest.mark.slow
def test_without_early_updates_a_session_has_one_record(events: pl.DataFrame) -> None:
    session_rows = run_cuts(new_settings(), events, ENDS[0])["sessions"]
    assert session_rows["session_id"].is_unique().all()
    assert set(session_rows["revision"]) == {1}
    assert not session_rows["is_deleted"].any()


@pytest.mark.slow
def test_early_records_are_corrected_by_later_ones(events: pl.DataFrame) -> None:
    result = run_cuts(new_settings(early_ms=1), events, range(100, EVENTS, 100))
    check(events, result)
    assert result["sessions"].height > 1.5 * select_final(result["sessions"]).height
    for _, of in result["sessions"].group_by("session_id"):
        assert of["revision"].to_list() == [*range(1, of.height + 1)]
        assert of["is_final"].to_list() == [False] * (of.height - 1) + [True]


@pytest.mark.slow
def test_a_restart_in_the_middle_changes_no_record(events: pl.DataFrame) -> None:
    ends, early = range(400, EVENTS, 400), new_settings(early_ms=1_500)
    whole = run_cuts(early, events, ends)
    again = run_cuts(early, events, ends, restart_after=4)
    assert rows_of(whole["sessions"]) == rows_of(again["sessions"])
    assert whole["sessions"].equals(again["sessions"])


@pytest.mark.slow
def test_a_late_event_that_joins_two_sessions_retracts_exactly_one() -> None:
    events = shop_events(1_000).filter(pl.col("user_id").is_not_null())[:5]
    times = seconds_after(events, 0, 30, 31, 15, 15)
    users = pl.Series(["u1", "u1", "somebody else", "u1", "u1"])
    joined = events.with_columns(user_id=users, ts=times, event_id=pl.format("x{}", pl.int_range(pl.len())))
    every = run_cuts(new_settings(early_ms=1, gap={"gap_ms": 20_000}), joined, [2, 3, 4])["sessions"]
    session_rows = every.filter(pl.col("user_id") == "u1")
    deleted = session_rows.filter("is_deleted")
    assert deleted["session_id"].n_unique() == deleted.height == 1
    assert deleted["merged_into"].to_list() == select_final(session_rows)["session_id"].to_list()
    assert select_final(session_rows)["events"].to_list() == [4]


@pytest.mark.slow
def test_a_checkout_keeps_a_session_open_for_longer() -> None:
    two = shop_events(1_000).filter(pl.col("user_id").is_not_null())[:2]
    apart = two.with_columns(
        user_id=pl.lit("u1"),
        ts=seconds_after(two, 0, 40),
        type=pl.Series(["checkout", "payment"]),
    )
    assert select_final(run_cuts(new_settings(), apart, [])["sessions"])["events"].to_list() == [2]
    plain = new_settings(gap={"gap_ms": GAP_MS, "expression": None})
    assert select_final(run_cuts(plain, apart, [])["sessions"])["events"].to_list() == [1, 1]
