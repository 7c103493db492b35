"""Figures for the dashboard equal plain counting over the same events."""

from __future__ import annotations

from collections import Counter, defaultdict

import polars as pl
import pytest

from headgate.demo.shop.session_columns import shop_metrics
from streamcore.topology.simulation import SimulationResult
from tests.harness.apps.sessions_app import new_settings, run_cuts, shop_events

EVENTS = 3_000
MINUTE_MS = 60_000
TOP_MS = 180_000
DASHBOARD_METRICS = {**shop_metrics(), "early_ms": 1_500, "top_ms": TOP_MS, "top_every_ms": MINUTE_MS}


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    return shop_events(EVENTS)


@pytest.fixture(scope="module", params=[1, 3])
def result(request: pytest.FixtureRequest, events: pl.DataFrame) -> SimulationResult:
    settings = new_settings(dashboard_metrics=DASHBOARD_METRICS, lateness_ms=3_600_000)
    return run_cuts(settings, events, range(300, EVENTS, 300), shards=request.param)


@pytest.fixture(scope="module")
def on_time_events(events: pl.DataFrame) -> pl.DataFrame:
    """Each event once, without those that are hours late."""
    once = events.unique("event_id", keep="first", maintain_order=True)
    return once.filter(pl.col("ts") > once["ts"].sort()[60]).with_columns(ms=pl.col("ts").dt.epoch("ms"))


def without_first_windows(rows: pl.DataFrame, column: str, on_time_events: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without the first windows, which have late events."""
    least = on_time_events["ms"].min()
    assert isinstance(least, int)
    return rows.filter(pl.col(column).dt.epoch("ms") > least)


def last_revisions(rows: pl.DataFrame, *key: str) -> pl.DataFrame:
    """Return the greatest revision of each."""
    return rows.sort("revision").group_by(key, maintain_order=True).last()


@pytest.mark.slow
def test_activity_counts_events_and_users_by_the_minute(result: SimulationResult, on_time_events: pl.DataFrame) -> None:
    found = without_first_windows(last_revisions(result["activity"], "minute"), "minute", on_time_events)
    by_minute = defaultdict(list)
    for ms, user in on_time_events.select("ms", "user_id").rows():
        by_minute[ms // MINUTE_MS * MINUTE_MS].append(user)
    assert found["is_final"].all()
    assert found.height > 5
    for minute, count, users in found.select(pl.col("minute").dt.epoch("ms"), "events", "users").rows():
        assert count == len(by_minute[minute])
        assert users == pytest.approx(len({*by_minute[minute]} - {None}), rel=0.05)


@pytest.mark.slow
def test_revenue_is_exact_by_minute_and_currency_and_is_published_early(
    result: SimulationResult, on_time_events: pl.DataFrame
) -> None:
    every = result["revenue"]
    found = without_first_windows(last_revisions(every, "minute", "currency"), "minute", on_time_events)
    wanted: Counter[tuple[int, str]] = Counter()
    for ms, what, status, cents, currency in on_time_events.select(
        "ms", "type", "status", (pl.col("amount") * 100).cast(pl.Int64), "currency"
    ).rows():
        sign = {"payment": 1, "refund": -1}.get(what, 0)
        if sign and status == "ok":
            wanted[ms // MINUTE_MS * MINUTE_MS, currency] += sign * cents
    money = pl.col("minute").dt.epoch("ms"), "currency", (pl.col("revenue") * 100).cast(pl.Int64)
    assert found.height > 10
    for minute, currency, cents in found.select(money).rows():
        assert cents == wanted[minute, currency]
    assert every.height > last_revisions(every, "minute", "currency").height


@pytest.mark.slow
def test_active_users_are_counted_over_the_last_minutes(result: SimulationResult, on_time_events: pl.DataFrame) -> None:
    found = without_first_windows(result["active"], "since", on_time_events)
    assert found["until"].is_unique().all()
    for since, until, users in found.select(pl.col("since", "until").dt.epoch("ms"), "users").rows():
        assert until - since == 5 * MINUTE_MS
        there = {user for ms, user in on_time_events.select("ms", "user_id").rows() if since <= ms < until and user}
        assert users == pytest.approx(len(there), rel=0.05)


@pytest.mark.slow
def test_top_pages_are_ranked_by_their_events(result: SimulationResult, on_time_events: pl.DataFrame) -> None:
    found = without_first_windows(result["top"], "since", on_time_events)
    assert found["until"].n_unique() > 5
    for (until,), ranked in found.with_columns(pl.col("until").dt.epoch("ms")).group_by("until"):
        assert isinstance(until, int)
        pages = on_time_events.filter(pl.col("ms").is_between(until - TOP_MS, until, closed="left"))["product_id"]
        seen = Counter(pages.drop_nulls().to_list())
        rows = ranked.sort("rank")
        assert rows["rank"].to_list() == [*range(1, rows.height + 1)]
        assert rows["events"].to_list() == [count for _, count in seen.most_common(rows.height)]
        assert all(seen[page] == count for page, count in rows.select("page", "events").rows())


@pytest.mark.slow
def test_an_app_without_dashboard_metrics_has_no_lanes_for_them(events: pl.DataFrame) -> None:
    assert set(run_cuts(new_settings(), events, [1_000]).lanes) == {"sessions"}
