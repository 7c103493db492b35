"""Alerts and decisions as rows of sinks: those of the topic, in every sink that the settings name, once each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import NewDatabase
from headgate_rules.app import build_app, table_columns
from headgate_rules.service import SERVICE
from headgate_rules.settings import RulesSettings
from headgate_rules.topics import ROW_LANES
from rulecore.alerts.alert_rows import alert_columns
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.errors import ConfigError
from streamcore.service.config.sinks import sink_factories
from streamcore.sinks.sink import Sink, SinkHooks
from streamcore.wire.lanes import ALERTS, DECISIONS, SHADOW, Record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.parquet_notes import counted_files

ALERT_ROWS, SHADOW_ROWS, DECISION_ROWS = ROW_LANES[ALERTS], ROW_LANES[SHADOW], ROW_LANES[DECISIONS]
ROOT = Path(__file__).parents[2]
PER_CUT = 300
CUTS = 6
Row = Mapping[str, Any]
DECIDE = {"order": ["review"], "default": "review"}
POLICY = {"decision_policy": "orders", "version": 1, "owner": "tests", "on": "orders", "decide": DECIDE}


@pytest.mark.slow
def test_the_rows_of_alerts_are_in_each_sink_once_and_equal_the_records(tmp_path: Path) -> None:
    found = RulesSettings.model_validate(settings(tmp_path) | sinks(tmp_path))
    writers = [make(SinkHooks()) for make in sink_factories(found, {ALERT_ROWS: alert_columns()})]
    alerts = write(found, writers)
    assert len(alerts) > CUTS * 10
    assert {alert["kind"] for alert in alerts} >= {"event", "window"}
    assert {"decision_id" in alert for alert in alerts} == {True, False}
    expected = sorted(map(to_row, alerts), key=lambda row: row["alert_id"])
    assert read(counted_files(tmp_path / "files")) == expected
    assert read(map(str, iceberg_files.live_files(tmp_path, "risk.alerts"))) == expected


def test_without_sinks_alerts_are_no_rows(tmp_path: Path) -> None:
    app = build_app(RulesSettings.model_validate(settings(tmp_path)))
    assert not app.tables
    assert ALERT_ROWS not in {record.lane for record in run(app).pop()}


@pytest.mark.parametrize("lanes", [(ALERT_ROWS,), (DECISION_ROWS,), (SHADOW_ROWS, DECISION_ROWS)])
@pytest.mark.slow
def test_the_rows_of_each_lane_are_those_that_sinks_take(lanes: tuple[str, ...], tmp_path: Path) -> None:
    document = settings(tmp_path) | {"parquet": {"tables": {lane: {"uri": str(tmp_path / lane)} for lane in lanes}}}
    app = build_app(RulesSettings.model_validate(document))
    assert app.tables == {*lanes}
    records = [record for cut in run(app, trials=True) for record in cut]
    for lane, rows in ROW_LANES.items():
        tables = [pa.ipc.open_stream(record.value).read_all() for record in records if record.lane == rows]
        assert {table.schema for table in tables} <= {table_columns()[rows]}
        ids = [one for table in tables for one in table.column(0).to_pylist()]
        written = [(record.key or b"").decode() for record in records if record.lane == lane]
        assert written
        assert sorted(ids) == (sorted(written) if rows in lanes else [])


@pytest.mark.slow
def test_the_rows_of_decisions_are_in_a_sink_once_and_equal_the_records(tmp_path: Path) -> None:
    document = {"parquet": {"tables": {DECISION_ROWS: {"uri": str(tmp_path / "decided")}}}}
    found = RulesSettings.model_validate(settings(tmp_path) | document)
    (sink,) = [make(SinkHooks()) for make in sink_factories(found, table_columns())]
    sink.open(WriterId("rules", 1))
    decisions: list[Row] = []
    for number, cut in enumerate(run(build_app(found), trials=True)):
        rows = [pa.ipc.open_stream(record.value).read_all() for record in cut if record.lane == DECISION_ROWS]
        decisions += [json.loads(record.value or b"") for record in cut if record.lane == DECISIONS]
        for _ in range(2):  # as after a crash
            sink.write(cut_id(number), {DECISION_ROWS: pa.concat_tables(rows)} if rows else {})
    sink.close()
    assert len(decisions) > CUTS * 10
    assert {bool(decision["shadow"]) for decision in decisions} == {True, False}
    expected = sorted(map(to_decision_row, decisions), key=lambda row: row["decision_id"])
    assert read(counted_files(tmp_path / "decided"), "decision_id") == expected


def test_a_sink_of_another_lane_is_a_mistake_in_its_entry(tmp_path: Path) -> None:
    folder = {"tables": {"alerts": {"uri": str(tmp_path / "files")}}}
    found = RulesSettings.model_validate(settings(tmp_path) | {"parquet": folder})
    assert SERVICE.find_faults is not None
    (fault,) = SERVICE.find_faults(found, (), ())
    assert fault.path == "parquet.tables.alerts"
    with pytest.raises(ConfigError, match=r"parquet\.tables\.alerts: there is no lane 'alerts'; sinks take"):
        build_app(found)


def write(found: RulesSettings, writers: list[Sink]) -> list[Row]:
    """Run the app into its sinks, every cut twice, as after a crash; return the alerts on the topic."""
    for writer in writers:
        writer.open(WriterId("rules", 1))
    alerts: list[Row] = []
    for number, cut in enumerate(run(build_app(found))):
        rows = [pa.ipc.open_stream(r.value).read_all() for r in cut if r.lane == ALERT_ROWS]
        alerts += [json.loads(record.value or b"") for record in cut if record.lane == ALERTS]
        for writer in (*writers, *writers):
            written = writer.write(cut_id(number), {ALERT_ROWS: pa.concat_tables(rows)} if rows else {})
            assert not written.rejected
    for writer in writers:
        writer.close()
    return alerts


def run(app: Any, *, trials: bool = False) -> list[list[Record]]:
    """Return the output of each cut. ``trials``: every other rule is in shadow mode."""
    events = orders.orders(PER_CUT * CUTS, seed=51, step_ms=400)
    control = []
    for n, rule in enumerate(rules.all_kinds()):
        shadow = json.dumps({**json.loads(rule.value), "mode": "shadow"}).encode()
        control.append(control_record(n, rule.id, shadow if trials and n % 2 else rule.value))
    control.append(control_record(len(control), "decision-policy/orders", json.dumps(POLICY).encode()))
    process, cuts = InProcessApp(app), []
    for cut in range(CUTS):
        part = range(PER_CUT * cut, PER_CUT * (cut + 1))
        records = [RawRecord(0, events[n].partition, n, events[n].value) for n in part]
        cuts.append(list(process.cut(control + records, orders.START_MS + orders.DAY_MS + cut)))
        control = []
    return cuts


def to_row(alert: Row) -> Row:
    """Return the row of an alert, by its documentation."""
    window, source = alert["window"] or {}, alert["source"] or {}
    same = ("alert_id", "rule", "version", "mode", "stream", "severity", "outcome", "score", "kind", "timing")
    return {
        **{name: alert[name] for name in (*same, "incomplete", "message", "rules_epoch")},
        **{f"{name}_json": alert.get(name) for name in ("key", "values", "event", "events")},
        "suppressed": alert.get("suppressed"),
        "decision_id": alert.get("decision_id"),
        "window_start": to_time(window.get("start_ms")),
        "window_end": to_time(window.get("end_ms")),
        "event_time": to_time(alert["event_time_ms"]),
        "source_topic": source.get("topic"),
        "source_partition": source.get("partition"),
        "source_offset": source.get("offset"),
    }


def to_decision_row(decision: Row) -> Row:
    """Return the row of a decision, by its documentation."""
    same = ("decision_id", "policy", "version", "outcome", "score", "band", "cause", "stream", "rules_epoch")
    return {
        **{name: decision[name] for name in (*same, "event_id")},
        **{f"{name}_json": decision[name] for name in ("key", "rules", "shadow")},
        **{f"source_{name}": decision["source"][name] for name in ("topic", "partition", "offset")},
        "event_time": to_time(decision["event_time_ms"]),
        "left_out": 0,
    }


def to_time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def read(files: Iterable[str], key: str = "alert_id") -> list[Row]:
    """Return the rows of the files by their key, with the JSON of text columns parsed."""
    rows = []
    for row in (row for file in files for row in pq.ParquetFile(file).read().to_pylist()):
        parsed = {name: json.loads(value) for name, value in row.items() if name.endswith("_json") and value}
        rows.append(row | parsed)
    return sorted(rows, key=lambda row: row[key])


def sinks(folder: Path) -> dict[str, object]:
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {
        "parquet": {"tables": {ALERT_ROWS: {"uri": str(folder / "files")}}},
        "iceberg": {"catalog": {"options": catalog}, "tables": {ALERT_ROWS: {"table": "risk.alerts"}}},
    }


def settings(folder: Path) -> dict[str, object]:
    return {
        "app": "rows",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(orders.write_streams(folder)[0]), "topic": "orders"}],
        "checkpoint": str(folder),
        "jars": str(folder),
        "shards": 2,
    }


@pytest.mark.postgres
def test_the_table_of_the_documentation_takes_alerts_and_takes_each_once(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    database = new_database()
    document = {
        "host": database.host,
        "port": database.port,
        "database": database.name,
        "user": database.user,
        "password_file": str(database.password_file),
        "tables": {ALERT_ROWS: {"table": "public.alert", "key": ["alert_id"]}},
    }
    found = RulesSettings.model_validate(settings(tmp_path) | {"postgres": document})
    with database.connect() as connection:
        connection.execute((ROOT / "docs" / "sinks.md").read_text().partition("```sql\n")[2].partition("```")[0])
        alerts = write(found, [make(SinkHooks()) for make in sink_factories(found, {ALERT_ROWS: alert_columns()})])
        ids = connection.execute("SELECT alert_id, key_json FROM alert ORDER BY alert_id").fetchall()
    expected = sorted(((alert["alert_id"], alert["key"]) for alert in alerts), key=lambda one: one[0])
    assert [(name, json.loads(key)) for name, key in ids] == expected
