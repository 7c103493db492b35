"""Records of sessions in PostgreSQL, cut by cut through the real sink: the views equal the oracle."""

from __future__ import annotations

from datetime import datetime

import pytest

from conftest import Database, NewDatabase
from headgate_sessions.app import build_topology
from headgate_sessions.settings import SessionsSettings
from streamcore.cuts.writer_id import WriterId
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.sink import Sink, SinkHooks, WriteOutcome
from streamcore.wire.arrow_ipc import to_table
from tests.harness.apps.sessions_app import (
    CHECKOUT_GAP_MS,
    GAP_MS,
    ROOT,
    late_events,
    new_settings,
    run_each_cut,
    shop_events,
    table_settings,
)
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import sessions as oracle

EVENTS = 1_500
ENDS = range(100, EVENTS, 100)


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    made = new_database()
    with made.connect() as connection:
        for name in ("tables.sql", "views.sql"):
            connection.execute((ROOT / "services" / "sessions" / "headgate_sessions" / "sql" / name).read_bytes())
    return made


def settings_for(database: Database) -> SessionsSettings:
    given = table_settings()
    postgres = given["postgres"]
    assert isinstance(postgres, dict)
    where = {"host": database.host, "port": database.port, "database": database.name}
    login = {"user": database.user, "password_file": database.password_file}
    return new_settings(early_ms=1, **(given | {"postgres": postgres | where | login}))


def open_sink(settings: SessionsSettings) -> Sink:
    assert settings.postgres is not None
    sink = sink_factory(settings.postgres, build_topology(settings).table_columns)(SinkHooks())
    sink.open(WriterId("sessions", 1))
    return sink


def test_the_tables_equal_the_oracle_though_a_cut_is_written_twice(database: Database) -> None:
    settings, events = settings_for(database), shop_events(EVENTS, users=40)
    sink, late = open_sink(settings), list[str]()
    for batch, result in enumerate(run_each_cut(settings, events, ENDS)):
        rows = {lane: to_table(frame) for lane, frame in result.lanes.items() if lane.endswith("_table")}
        filled = {lane: table for lane, table in rows.items() if table.num_rows}
        late += late_events(result, events)["event_id"].to_list()
        assert not sink.write(cut_id(batch), filled).rejected
        if batch == 7:  # a crash after the commit: another process writes the cut again
            sink.close()
            sink = open_sink(settings)
            assert sink.write(cut_id(batch), filled).outcome is WriteOutcome.SKIPPED
    sink.close()
    taken = events.filter(~events["event_id"].is_in(late))
    assert _final_sessions(database) == oracle.sessions(taken, gap_ms=GAP_MS, checkout_gap_ms=CHECKOUT_GAP_MS)
    assert _select_number(database, "select count(*) from sessions.live_session") == len(_final_sessions(database))
    assert _select_number(database, "select max(revision) from sessions.session") > 2
    assert _select_number(database, "select count(*) from sessions.top_now") > 0


def _final_sessions(database: Database) -> set[oracle.Row]:
    """Return the rows in the form of the oracle."""
    query = """select user_id, started_at, ended_at, events, pages, first_page, last_page, converted,
                      (revenue * 100)::bigint, funnel_step, bounce from sessions.final_session"""
    with database.connect() as connection:
        rows = connection.execute(query).fetchall()
    return {(user, _ms(start), _ms(end), *rest) for user, start, end, *rest in rows}


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _select_number(database: Database, query: str) -> int:
    with database.connect() as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]
