"""The schema of a service in a real database: created once, deleted for a new workspace, rejected if foreign."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import NewDatabase
from headgate.console.messages import silent
from headgate.demo.services.database import ExternalDatabase, LocalDatabase, PostgresAddress, Schema, open_transaction
from headgate.errors import InputError
from streamcore.sinks.postgres.settings import TableName, TableSpec

SQL = Path(__file__).parents[3] / "services" / "sessions" / "headgate_sessions" / "sql"
FILES = [SQL / "tables.sql", SQL / "views.sql"]
TABLES = {"sessions_table": TableSpec(table=TableName("sessions", "session"), key=("session_id",), version="revision")}
LEDGER = TableName("sessions", "headgate_ledger")


@pytest.fixture
def database(new_database: NewDatabase) -> ExternalDatabase:
    made = new_database()
    return ExternalDatabase(
        PostgresAddress(made.host, made.port, made.name, made.user, made.password_file), TABLES, LEDGER
    )


def views(database: ExternalDatabase) -> int:
    with open_transaction(database.settings()) as connection:
        rows = connection.execute("select count(*) from pg_views where schemaname = 'sessions'").fetchone()
    return 0 if rows is None else int(str(rows[0]))


@pytest.mark.slow
def test_the_statements_of_a_service_are_idempotent_and_a_new_workspace_drops_the_old_schema(
    database: ExternalDatabase, tmp_path: Path
) -> None:
    database.start(silent)
    schema = Schema(database, "sessions", tmp_path)
    schema.drop(silent)
    for _ in range(2):
        schema.apply(FILES)
    assert views(database) == 8
    Schema(database, "sessions", tmp_path).drop(silent)
    assert views(database) == 0


def test_a_schema_of_another_workspace_is_rejected_and_kept(database: ExternalDatabase, tmp_path: Path) -> None:
    Schema(database, "sessions", tmp_path / "one").apply(FILES)
    other = Schema(database, "sessions", tmp_path / "another")
    with pytest.raises(InputError, match="belongs to another workspace"):
        other.drop(silent)
    with pytest.raises(InputError, match="belongs to another workspace"):
        other.apply(FILES)
    assert views(database) == 8


def test_the_printed_psql_command_contains_no_password(database: ExternalDatabase, tmp_path: Path) -> None:
    secret, line = database.settings().password_file, Schema(database, "sessions", tmp_path).inspect_command()
    assert secret is not None
    assert secret.read_text(encoding="utf-8") not in line
    assert f"$(cat {secret})" in line


@pytest.mark.parametrize("place", ["db", "db/shop", "db:x/shop", "db:5432", "db:0/shop", ":5432/shop"])
def test_an_invalid_postgresql_address_is_rejected(place: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT/DATABASE"):
        PostgresAddress.parse(place, "u")


@pytest.mark.slow
def test_the_local_database_keeps_its_data_over_a_restart_and_reports_its_end(tmp_path: Path) -> None:
    own = LocalDatabase(tmp_path / "postgres", TABLES, LEDGER)
    schema = Schema(own, "sessions", tmp_path)
    own.start(silent)
    try:
        schema.apply(FILES)
        own.raise_if_ended()
        own.stop(silent)
        own.start(silent)
        schema.drop(silent)  # which it would reject, had it not made it
    finally:
        own.stop(silent)
    with pytest.raises(Exception, match="the local PostgreSQL ended"):
        own.raise_if_ended()
