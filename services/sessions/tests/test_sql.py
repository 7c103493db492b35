"""The tables have the columns of the app's rows, each with a comment, and the views agree with the rows.

DuckDB runs the statements: they are of the kind that it and PostgreSQL share.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from headgate.demo.shop.session_columns import shop_metrics
from headgate_sessions.app import build_topology
from headgate_sessions.topics import ACTIVE, ACTIVITY, KEYS, REVENUE, SESSIONS, TOP
from streamcore.topology.simulation import SimulationResult
from streamcore.wire.lanes import table_lane
from tests.harness.apps.sessions_app import ROOT, new_settings, run_cuts, select_final, shop_events, table_settings

TABLES = {SESSIONS: "session", ACTIVITY: "activity", REVENUE: "revenue", ACTIVE: "active", TOP: "top"}
TYPES = {"large_string": "VARCHAR", "int64": "BIGINT", "bool": "BOOLEAN", "decimal128(38, 2)": "DECIMAL(18,3)"}
TYPES["decimal128(18, 2)"] = TYPES["decimal128(38, 2)"]
SQL = ROOT / "services" / "sessions" / "headgate_sessions" / "sql"


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    settings = new_settings(
        dashboard_metrics={**shop_metrics(), "top_ms": 180_000, "top_every_ms": 60_000}, early_ms=1_000
    )
    return run_cuts(settings, shop_events(2_000), range(200, 2_000, 200))


@pytest.fixture
def db(result: SimulationResult) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database whose tables have the greatest revision of each row."""
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name in ("tables.sql", "views.sql"):
            connection.execute((SQL / name).read_text())
        for lane, table in TABLES.items():
            key = list(KEYS[lane])
            rows = result[lane]
            latest = rows.group_by(key, maintain_order=True).last() if "revision" in rows.columns else rows
            connection.register("rows", latest.to_arrow())
            connection.execute(f"insert into sessions.{table} by name select * from rows")
            connection.unregister("rows")
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize("lane", TABLES)
def test_a_table_has_the_columns_of_its_lane(db: duckdb.DuckDBPyConnection, lane: str) -> None:
    there = db.execute(
        "select column_name, data_type from information_schema.columns"
        " where table_schema = 'sessions' and table_name = ?",
        [TABLES[lane]],
    ).fetchall()
    schema = build_topology(new_settings(**table_settings())).table_columns[table_lane(lane)]
    assert dict(there) == {field.name: _type(field.type) for field in schema}


def _type(kind: pa.DataType) -> str:
    return "TIMESTAMP WITH TIME ZONE" if pa.types.is_timestamp(kind) else TYPES[str(kind)]


@pytest.mark.slow
@pytest.mark.parametrize("lane", TABLES)
def test_every_column_has_a_comment(lane: str) -> None:
    text = (SQL / "tables.sql").read_text()
    columns = build_topology(new_settings(**table_settings())).table_columns[table_lane(lane)].names
    assert set(re.findall(rf"comment on column sessions\.{TABLES[lane]}\.(\w+)", text)) == set(columns)


@pytest.mark.slow
def test_conversion_and_funnel_are_computed_from_the_final_sessions(
    db: duckdb.DuckDBPyConnection, result: SimulationResult
) -> None:
    table = select_final(result[SESSIONS])
    days = db.execute("select sum(sessions), sum(converted) from sessions.conversion_by_day").fetchone()
    assert days == (table.height, table["converted"].sum())
    steps = db.execute("select step, sum(sessions) from sessions.funnel_by_day group by step order by step").fetchall()
    assert steps == [(step, table.filter(pl.col("funnel_step") >= step).height) for step in range(1, 5)]
    assert steps[0][1] > steps[3][1] > 0


@pytest.mark.slow
def test_no_view_contains_a_session_that_was_merged_into_another(
    db: duckdb.DuckDBPyConnection, result: SimulationResult
) -> None:
    for view in ("live_session", "final_session"):
        (found,) = db.execute(f"select count(*) from sessions.{view}").fetchone() or (0,)
        assert found == select_final(result[SESSIONS]).height


@pytest.mark.slow
def test_the_live_views_show_the_latest_figures(db: duckdb.DuckDBPyConnection, result: SimulationResult) -> None:
    active, top = result[ACTIVE], result[TOP]
    users = db.execute("select users from sessions.active_now").fetchall()
    assert users == [(active.sort("until")["users"][-1],)]
    ranks = db.execute("select rank, events from sessions.top_now order by rank").fetchall()
    assert ranks == top.filter(pl.col("until") == top["until"].max()).sort("rank").select("rank", "events").rows()
    (events,) = db.execute(
        "select sum(events) from (select distinct minute, events from sessions.live_minute)"
    ).fetchone() or (0,)
    assert events == result[ACTIVITY].group_by("minute", maintain_order=True).last()["events"].sum()
