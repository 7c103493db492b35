"""The settings that the sessions app rejects, and its lanes and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from headgate_sessions.app import build_app, build_topology
from headgate_sessions.service import SERVICE
from headgate_sessions.topics import KEYS, lanes, table_lane
from streamcore.errors import ConfigError
from tests.harness.apps.sessions_app import new_settings, run_cuts, shop_events, table_settings

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


@pytest.mark.parametrize("dashboard_metrics", [None, {}])
def test_the_app_has_exactly_the_lanes_of_its_settings(dashboard_metrics: dict[str, object] | None) -> None:
    settings = new_settings(dashboard_metrics=dashboard_metrics)
    assert set(build_app(settings).lanes) == set(lanes(settings))


def test_each_lane_can_also_be_a_table_with_the_columns_of_its_key() -> None:
    columns = build_topology(new_settings(**table_settings())).table_columns
    assert set(columns) == {table_lane(lane) for lane in KEYS}
    for lane, key in KEYS.items():
        assert set(key) <= set(columns[table_lane(lane)].names)


def test_a_table_for_an_unknown_lane_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"no lane 'active_table'; there are sessions_table"):
        build_topology(new_settings(**(table_settings() | {"dashboard_metrics": None})))


def test_rows_for_the_database_equal_those_of_the_topic() -> None:
    result = run_cuts(new_settings(**table_settings()), shop_events(600), [300])
    assert result["sessions"].height
    for lane in KEYS:
        assert result[table_lane(lane)].equals(result[lane])
