"""The sessions service with the retail lines, out of order and some days late: to Kafka, PostgreSQL and lakes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from headgate.local.servers.postgres import EmbeddedPostgres
from headgate.records.file_rows import read_rows
from headgate_sessions.app import build_topology
from streamcore.service.config.documents import load_schema
from streamcore.sinks.postgres.lane_table import lane_tables
from tests.harness.apps.sessions_app import retail_settings
from tests.harness.faults.services.servers import Postgres
from tests.harness.faults.services.trial import LATE_DAYS, LINES, ROOT, Input, ServicePlan, ServiceScene, with_garbage
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.parquet_notes import counted_files
from tests.harness.oracles.retail_windows import DAY_MS, Oracle

_GAP_MS = 1_800_000
#: Who comes last, so late that everybody's sessions are final.
_TICK = 99_999_999
#: In Iceberg.
_TABLE = "shop.sessions"
_SELECT = """
select user_id, (extract(epoch from started_at) * 1000)::bigint, (extract(epoch from ended_at) * 1000)::bigint,
       events, (revenue * 1000)::bigint, is_final, session_id, revision, is_deleted
from sessions.session
"""
_SETTINGS = (
    "fields",
    "derive",
    "columns",
    "funnel",
    "gap",
    "max_out_of_orderness_ms",
    "max_future_ms",
)


@dataclass(frozen=True, slots=True)
class SessionsOutput:
    """``oracle``: of the lines as they arrive. ``lake``: a folder with an Iceberg catalogue and Parquet files."""

    database: Postgres
    lake: Path
    oracle: Oracle

    def check(self, scene: ServiceScene) -> None:
        """Compare the sessions with SQL, and the table with the topic."""
        with self.database.connect() as connection:
            rows = connection.execute(_SELECT).fetchall()
        there = [row for row in rows if not row[8] and row[0] != str(_TICK)]
        found = [(int(row[0]), row[1], row[2] + _GAP_MS, *row[3:5]) for row in there]
        assert Counter(found) == Counter(row for row in self.oracle.sessions("customer") if row[0] is not None)
        assert all(row[5] for row in there), "all are final"
        counts = self.record_counts(scene)
        assert counts.total() == len(counts), "no revision is there twice"
        files = [str(file) for file in iceberg_files.live_files(self.lake, _TABLE)]
        for system, found_files in (("Iceberg", files), ("Parquet", counted_files(self.lake / "files"))):
            revisions = pl.read_parquet(found_files, columns=["session_id", "revision"])
            assert Counter(revisions.iter_rows()) == counts, f"{system} has the revisions of the topic"
        newest: dict[str, int] = {}
        for session, revision in counts:
            newest[session] = max(newest.get(session, 0), revision)
        assert newest == {row[6]: row[7] for row in rows}
        assert len(scene.read("late")) == self.oracle.late_of_customers()
        assert len(scene.read("deadletters")) == sum(record[1] == b"bad" for record in scene.plan.records)

    def record_counts(self, scene: ServiceScene) -> Counter[tuple[str, int]]:
        """Return how often the topic has each session and revision."""
        bodies = [json.loads(record.value or b"") for record in scene.read("sessions")]
        return Counter((body["session_id"], body["revision"]) for body in bodies)


def plan_sessions(folder: Path, name: str, server: EmbeddedPostgres) -> ServicePlan:
    """Start the server, create the tables, and return the plan of the service."""
    database = Postgres(server)
    server.start()
    lake = folder / "lake"
    lake.mkdir()
    output = SessionsOutput(database, lake, Oracle(LINES, LATE_DAYS * DAY_MS))
    catalog = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    document = retail_settings().model_dump(mode="json", include={*_SETTINGS})
    table = {"table": "sessions.session", "key": ["session_id"], "version": "revision"}
    settings = document | {
        "stream": {"schema_file": str(ROOT / "streams" / "retail.yaml"), "topic": f"{name}.lines"},
        "lateness_ms": 3_600_000,
        "early_ms": 1_500,
        "dashboard_metrics": None,
        "postgres": database.login | {"tables": {"sessions_table": table}},
        "iceberg": {"catalog": {"options": catalog}, "tables": {"sessions_table": {"table": _TABLE}}},
        "parquet": {"tables": {"sessions_table": {"uri": str(lake / "files")}}},
    }
    with database.connect() as connection:
        connection.execute("create schema sessions")
        connection.execute(_create_table(table))
    return ServicePlan(("headgate_sessions",), settings, _records(output.oracle), server, output.check)


def _create_table(table: object) -> str:
    """Return the statement that makes the table of the sessions, as ``headgate sessions tables`` prints it."""
    unused = {"host": "unused", "database": "unused", "user": "unused"}
    settings = retail_settings(postgres=unused | {"tables": {"sessions_table": table}})
    assert settings.postgres is not None
    columns = build_topology(settings).table_columns
    return lane_tables(settings.postgres, columns)["sessions_table"].create_table()


def _records(oracle: Oracle) -> list[Input]:
    lines = [*read_rows(LINES, load_schema(ROOT / "streams" / "retail.yaml"))]
    records: list[Input] = [("lines", lines[row].key, lines[row].value) for row in oracle.arrivals.order]
    last = json.loads(lines[-1].value)
    tick = last | {"customer_id": _TICK, "invoice_date": max(line.time_ms or 0 for line in lines) + 30 * DAY_MS}
    return [*with_garbage(records), ("lines", None, json.dumps(tick).encode())]
