"""`headgate probe` of a running app finds its alert and leaves no data behind."""

from __future__ import annotations

import pytest

from conftest import NewTopic
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import as_object
from tests.harness.servers.command import HEADGATE, CompletedCommand, run_command

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def _probe(live: Scene, topic: str, *more: str) -> CompletedCommand:
    where = ["--app", live.app.name, "--bootstrap", live.kafka.bootstrap, "--streams", str(live.app.folder / "streams")]
    what = ["--stream", "orders", "--topic", topic, "--at", str(live.next_day()), "-o", "json"]
    ended = run_command([*HEADGATE, "probe", *where, *what, *more])
    live.published += 2  # its rule, and the deletion
    return ended


def test_a_probe_finds_its_shadow_alert_and_sends_no_real_one(live: Scene) -> None:
    alerts = live.app.lane("alerts")
    ended = _probe(live, live.orders_topic)
    live.count += 1
    live.settle()
    assert ended.code == 0, ended.err
    found = ended.document
    shadow = [as_object(record) for record in live.outputs.read("shadow")]
    assert [a["message"] for a in shadow if a["alert_id"] == found["alert_id"]] == [f"{found['event']} was seen"]
    assert found["rule_ms"] > 0
    assert found["alert_ms"] > 0
    assert live.app.lane("alerts") == alerts
    answers = [as_object(record) for record in live.outputs.read("status")]
    assert [a["status"] for a in answers if a["rule"] == "headgate-probe"][-2:] == ["accepted", "deleted"]


def test_a_probe_without_its_alert_names_the_topics_to_look_at(live: Scene, new_topic: NewTopic) -> None:
    elsewhere = new_topic("elsewhere")
    ended = _probe(live, elsewhere, "--wait", "10")
    live.settle()
    assert (ended.code, ended.out) == (1, "")
    assert f"an event in topic {elsewhere}" in ended.err
    assert f"{live.app.name}.deadletters" in ended.err
