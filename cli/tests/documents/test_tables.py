"""``headgate sessions tables``: PostgreSQL takes its SQL, and the sink finds tables that fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conftest import NewDatabase
from headgate.main import run
from headgate_rules.app import table_columns
from headgate_rules.settings import RulesSettings
from headgate_sessions.app import build_topology
from headgate_sessions.settings import SessionsSettings
from streamcore.cuts.writer_id import WriterId
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.sink import SinkHooks

ROOT = Path(__file__).parents[3]


@pytest.mark.postgres
def test_the_tables_of_any_schema_are_made_for_own_columns(
    new_database: NewDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = new_database()
    document = {
        "kafka": {"bootstrap": "nowhere:9092"},
        "checkpoint": "unused",
        "stream": {"schema_file": str(ROOT / "examples/events/streams/wikipedia.yaml"), "topic": "wikipedia"},
        "fields": {"user": "user"},
        "columns": {"first_title": "first(title)", "wikis": "count(distinct wiki)", "grown": "sum(new_length)"},
        "dashboard_metrics": None,
        "postgres": {
            "host": database.host,
            "port": database.port,
            "database": database.name,
            "user": database.user,
            "password_file": str(database.password_file),
            "sslmode": "disable",
            "tables": {"sessions_table": {"table": "wiki.visits", "key": ["session_id"], "version": "revision"}},
        },
    }
    file = tmp_path / "sessions.yaml"
    file.write_text(yaml.safe_dump(document))
    assert run(["sessions", "tables", str(file)]) == 0
    printed = capsys.readouterr().out
    assert 'CREATE TABLE IF NOT EXISTS "wiki"."visits"' in printed
    with database.connect() as connection:
        connection.execute(printed)
        columns = connection.execute("select * from wiki.visits").description
        assert {"first_title", "wikis", "grown"} < {column.name for column in columns or ()}
    settings = SessionsSettings.model_validate(document)
    assert settings.postgres is not None
    sink = sink_factory(settings.postgres, build_topology(settings).table_columns)(SinkHooks())
    sink.open(WriterId("sessions", 1))
    sink.close()


@pytest.mark.postgres
def test_the_tables_of_alerts_trials_and_decisions_are_made(
    new_database: NewDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = new_database()
    lanes = {"alerts_table": "risk.alert", "shadow_table": "risk.trial", "decisions_table": "risk.decision"}
    document = {
        "kafka": {"bootstrap": "nowhere:9092"},
        "checkpoint": "unused",
        "streams": [{"schema_file": str(ROOT / "streams/shop.yaml"), "topic": "shop"}],
        "postgres": {
            "host": database.host,
            "port": database.port,
            "database": database.name,
            "user": database.user,
            "password_file": str(database.password_file),
            "sslmode": "disable",
            "tables": {
                lane: {"table": table, "key": ["decision_id" if "decision" in table else "alert_id"]}
                for lane, table in lanes.items()
            },
        },
    }
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(document))
    assert run(["rules", "tables", str(file)]) == 0
    printed = capsys.readouterr().out
    with database.connect() as connection:
        connection.execute(printed)
    settings = RulesSettings.model_validate(document)
    assert settings.postgres is not None
    sink = sink_factory(settings.postgres, table_columns())(SinkHooks())
    sink.open(WriterId("rules", 1))
    sink.close()


def test_a_document_without_tables_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = {"schema_file": str(ROOT / "streams/shop.yaml"), "topic": "shop"}
    file = tmp_path / "sessions.yaml"
    file.write_text(yaml.safe_dump({"kafka": {"bootstrap": "n:1"}, "checkpoint": "unused", "stream": stream}))
    assert run(["sessions", "tables", str(file)]) != 0
    assert "the document has no entry postgres" in capsys.readouterr().err
