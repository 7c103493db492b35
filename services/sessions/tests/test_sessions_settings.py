"""The settings that the sessions app rejects, and its lanes and tables."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import yaml
from pydantic import ValidationError

from headgate_sessions.app import build_app, build_topology
from headgate_sessions.service import SERVICE
from headgate_sessions.topics import KEYS, lanes
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.errors import ConfigError
from streamcore.service.config.sinks import sink_factories
from streamcore.sinks.sink import SinkHooks
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import table_lane
from tests.harness.apps.sessions_app import START_MS, new_settings, run_cuts, shop_events, table_settings
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.parquet_notes import counted_files

#: Settings for a stream with a user and nothing else of the shop.
PLAIN: dict[str, object] = {
    "fields": {"user": "user_id"},
    "derive": {},
    "columns": {"views": "count(kind = 'view')"},
    "funnel": [],
    "gap": {"gap_ms": 20_000},
}
WRONG = {
    "two steps have the same name": {"funnel": [{"name": "a", "when": "type = 'view'"}] * 2},
    "must not be below lateness_ms": {"lateness_ms": 20_000, "deduplicate_ms": 10_000},
    "must not be below gap.gap_ms": {"max_length_ms": 1_000},
    "must be a multiple": {"dashboard_metrics": {"active_ms": 100_000, "active_every_ms": 60_000}},
    r"columns\.Devices": {"columns": {"Devices": "count(*)"}},
}
MISSING = {
    r"fields\.user:1:1: unknown column customer": {"fields": {"user": "customer"}},
    r"dashboard_metrics\.amount:1:1: long or decimal is needed": {"dashboard_metrics": {"amount": "status"}},
    r"columns\.users:1:16: unknown column state": {"columns": {"users": "count(distinct state)"}},
    r"columns\.events: every session has a column 'events'": {"columns": {"events": "count(*)"}},
    r"columns\.one:1:1: a constant is no column": {"columns": {"one": "1"}},
    r"funnel\.0\.when:1:1: a condition is needed": {"funnel": [{"name": "a", "when": "type"}]},
    r"gap\.expression:1:1: long is needed": {"gap": {"expression": "type"}},
    r"derive\.type: 'type' is a field": {"derive": {"type": "upper(type)"}},
}


@pytest.mark.parametrize(("because", "changes"), WRONG.items(), ids=WRONG)
def test_contradictory_settings_are_rejected(because: str, changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=because):
        new_settings(**changes)


@pytest.mark.parametrize(("because", "changes"), MISSING.items(), ids=MISSING)
def test_settings_that_name_fields_outside_of_the_stream_are_rejected(because: str, changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=because):
        build_topology(new_settings(**changes))


def test_the_error_about_a_file_of_settings_names_the_wrong_entry(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({"gap": {"gap_ms": 0}}))
    with pytest.raises(ConfigError, match=r"gap\.gap_ms"):
        SERVICE.load_settings(path)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dashboard_metrics", [None, {}])
def test_the_app_has_exactly_the_lanes_of_its_settings(dashboard_metrics: dict[str, object] | None) -> None:
    settings = new_settings(dashboard_metrics=dashboard_metrics)
    assert set(build_app(settings).lanes) == set(lanes(settings))


@pytest.mark.slow
def test_each_lane_can_also_be_a_table_with_the_columns_of_its_key() -> None:
    columns = build_topology(new_settings(**table_settings())).table_columns
    assert set(columns) == {table_lane(lane) for lane in KEYS}
    for lane, key in KEYS.items():
        assert set(key) <= set(columns[table_lane(lane)].names)


def test_a_table_for_an_unknown_lane_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"postgres\.tables\.\w+: there is no lane '\w+'; there are sessions_table"):
        build_topology(new_settings(**(table_settings() | {"dashboard_metrics": None})))


@pytest.mark.slow
def test_rows_for_the_database_equal_those_of_the_topic() -> None:
    result = run_cuts(new_settings(**table_settings()), shop_events(600), [300])
    assert result["sessions"].height
    for lane in KEYS:
        assert result[table_lane(lane)].equals(result[lane])


@pytest.mark.slow
def test_a_lane_can_be_in_several_sinks(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    lake = {
        "iceberg": {"catalog": {"options": catalog}, "tables": {"sessions_table": {"table": "shop.sessions"}}},
        "delta": {"tables": {"sessions_table": {"uri": str(tmp_path / "delta")}}},
        "parquet": {"tables": {"sessions_table": {"uri": str(tmp_path / "files")}}},
    }
    settings = new_settings(**lake)
    writers = [make(SinkHooks()) for make in sink_factories(settings, build_topology(settings).table_columns)]
    result = run_cuts(settings, shop_events(600), [300])["sessions_table"]
    for writer in (*writers, *writers):
        writer.open(WriterId("sessions", 1))
        writer.write(cut_id(0), {"sessions_table": to_table(result)})
        writer.close()
    files = [*map(str, iceberg_files.live_files(tmp_path, "shop.sessions")), *counted_files(tmp_path / "files")]
    tables = [pl.read_delta(str(tmp_path / "delta")), *(pl.read_parquet(file) for file in files)]
    assert len(tables) == 3
    assert result.height
    order = ["session_id", "revision"]
    for table in tables:
        assert table.cast(result.schema).sort(order).equals(result.sort(order))


@pytest.mark.slow
def test_records_of_other_formats_give_the_same_sessions(tmp_path: Path) -> None:
    fields = {"at": "timestamp not null", "user_id": "string", "kind": "string"}
    file = tmp_path / "clicks.yaml"
    file.write_text(yaml.safe_dump({"name": "clicks", "event_time": "at", "keys": [["user_id"]], "fields": fields}))
    rows = [(START_MS + 1_000 * n, f"u{n % 7}", "view") for n in range(60)] + [(START_MS + 10**7, "end", "view")]
    formats: dict[str, tuple[object, list[str]]] = {
        "json": ({"kind": "json"}, [json.dumps(dict(zip(fields, row, strict=True))) for row in rows]),
        "csv": ({"kind": "csv", "columns": [*fields], "delimiter": ";"}, [";".join(map(str, row)) for row in rows]),
        "logfmt": ({"kind": "logfmt"}, [f"at={at} user_id={user} kind={kind}" for at, user, kind in rows]),
    }
    found = {}
    for name, (format_, lines) in formats.items():
        stream = {"schema_file": str(file), "topic": "clicks", "format": format_}
        settings = new_settings(stream=stream, **PLAIN)
        cut = [RawRecord(0, 0, n, line.encode()) for n, line in enumerate(lines)]
        app = InProcessApp(build_app(settings))
        output = [*app.cut(cut, START_MS + 10**8), *app.cut([], START_MS + 10**8 + 1)]
        assert {record.lane for record in output} == {"sessions"}
        found[name] = sorted(record.value or b"" for record in output)
    assert len(found["json"]) == 7
    assert found["json"] == found["csv"] == found["logfmt"]
