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
    "one step": {"funnel": ["view", "view"]},
    "both added and subtracted": {"revenue": {"adds": ["payment"], "subtracts": ["payment"]}},
    "must not be below lateness_ms": {"lateness_ms": 20_000, "deduplicate_ms": 10_000},
    "needs fields.event_id": {"fields": {"event_id": None}},
    "must be a multiple": {"dashboard_metrics": {"active_ms": 100_000, "active_every_ms": 60_000}},
}
MISSING = {
    "fields.user: stream shop has no field 'customer'": {"fields": {"user": "customer"}},
    "fields.amount.0: field 'status' is string": {"fields": {"amount": ["status"]}},
    "failed.field: stream shop has no field 'state'": {"failed": {"field": "state"}},
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
